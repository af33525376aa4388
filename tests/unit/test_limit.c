/* Limits, by a clock of the test's own. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/access/limit.h"

static const uint64_t second = UINT64_C(1000000000);

START_TEST(test_limit__a_rate_is_spent_at_once_and_comes_back_evenly)
{
    struct bp_limiter limiter = {0};
    struct bp_limits limits = {0};
    unsigned wait = 0;
    uint64_t now = 1000 * second;
    ck_assert_ptr_null(bp_limits_read_rate("3/m", &limits));
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(bp_limiter_take(&limiter, &limits, now, &wait, NULL), 0);
    ck_assert_int_eq(bp_limiter_take(&limiter, &limits, now, &wait, NULL), -1);
    ck_assert_uint_eq(wait, 20);
    ck_assert_int_eq(bp_limiter_take(&limiter, &limits, now + 19 * second, &wait, NULL), -1);
    ck_assert_uint_eq(wait, 1);
    ck_assert_int_eq(bp_limiter_take(&limiter, &limits, now + 20 * second, &wait, NULL), 0);
    ck_assert_int_eq(bp_limiter_take(&limiter, &limits, now + 20 * second, &wait, NULL), -1);
    ck_assert_uint_eq(wait, 20);
    /* After the whole period all of it is there again, and no more. */
    now += 200 * second;
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(bp_limiter_take(&limiter, &limits, now, &wait, NULL), 0);
    ck_assert_int_eq(bp_limiter_take(&limiter, &limits, now, &wait, NULL), -1);
}
END_TEST

/* Whatever the rate and the moment: who comes as told is admitted, who comes a second earlier is not. */
START_TEST(test_limit__the_wait_is_exact)
{
    static const char *const rates[] = {"1/s", "7/s", "1000/s", "1/m", "7/m", "59/m", "1/h", "999/h", "1000000/h"};
    unsigned random = 1;
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        struct bp_limits limits = {0};
        struct bp_limiter limiter = {0};
        unsigned wait = 0, refused = 0;
        uint64_t now = 5 * second;
        ck_assert_ptr_null(bp_limits_read_rate(rates[r], &limits));
        for (int i = 0; i < 3000; i++) {
            random = random * 1664525 + 1013904223;
            now += random % (limits.period_ns / limits.requests / 2 + 1);
            struct bp_limiter before = limiter;
            if (bp_limiter_take(&limiter, &limits, now, &wait, NULL) == 0)
                continue;
            refused++;
            ck_assert_uint_ge(wait, 1);
            ck_assert_uint_eq(limiter.due_ns, before.due_ns);
            struct bp_limiter early = limiter, told = limiter;
            unsigned other;
            if (wait > 1)
                ck_assert_int_eq(bp_limiter_take(&early, &limits, now + (wait - 1) * second, &other, NULL), -1);
            ck_assert_int_eq(bp_limiter_take(&told, &limits, now + wait * second, &other, NULL), 0);
        }
        if (limits.requests < 1000)
            ck_assert_uint_gt(refused, 0);
    }
}
END_TEST

START_TEST(test_limit__what_is_under_way_is_counted_and_given_back)
{
    struct bp_limiter limiter = {0};
    struct bp_limits limits = {0};
    struct bp_err err = {0};
    unsigned wait = 0;
    ck_assert_ptr_null(bp_limits_read_at_once("2", &limits));
    ck_assert_int_eq(bp_limiter_take(&limiter, &limits, 0, &wait, &err), 0);
    ck_assert_int_eq(bp_limiter_take(&limiter, &limits, 0, &wait, &err), 0);
    ck_assert_int_eq(bp_limiter_take(&limiter, &limits, 0, &wait, &err), -1);
    ck_assert_int_eq(err.code, BP_E_concurrency_limited);
    ck_assert_uint_eq(wait, 1);
    bp_limiter_give(&limiter);
    ck_assert_int_eq(bp_limiter_take(&limiter, &limits, 0, &wait, NULL), 0);
    ck_assert_int_eq(bp_limiter_take(&limiter, &limits, 0, &wait, NULL), -1);
}
END_TEST

START_TEST(test_limit__who_is_refused_for_one_limit_pays_nothing_of_the_other)
{
    struct bp_limiter limiter = {0};
    struct bp_limits limits = {0};
    unsigned wait = 0;
    ck_assert_ptr_null(bp_limits_read_rate("2/h", &limits));
    ck_assert_ptr_null(bp_limits_read_at_once("1", &limits));
    ck_assert_int_eq(bp_limiter_take(&limiter, &limits, 0, &wait, NULL), 0);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(bp_limiter_take(&limiter, &limits, 0, &wait, NULL), -1);
    bp_limiter_give(&limiter);
    ck_assert_int_eq(bp_limiter_take(&limiter, &limits, 0, &wait, NULL), 0);
    bp_limiter_give(&limiter);
    ck_assert_int_eq(bp_limiter_take(&limiter, &limits, 0, &wait, NULL), -1);
    ck_assert_uint_eq(limiter.under_way, 0);
    ck_assert_uint_eq(wait, 1800);
}
END_TEST

/* A limit that was an hour's and is now a minute's holds nobody up for what is left of the hour. */
START_TEST(test_limit__a_shorter_period_is_taken_at_once)
{
    struct bp_limiter limiter = {0};
    struct bp_limits limits = {0};
    unsigned wait = 0;
    uint64_t now = 10 * second;
    ck_assert_ptr_null(bp_limits_read_rate("2/h", &limits));
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(bp_limiter_take(&limiter, &limits, now, &wait, NULL), 0);
    ck_assert_ptr_null(bp_limits_read_rate("6/m", &limits));
    ck_assert_int_eq(bp_limiter_take(&limiter, &limits, now, &wait, NULL), -1);
    ck_assert_uint_eq(wait, 10);
    ck_assert_int_eq(bp_limiter_take(&limiter, &limits, now + 10 * second, &wait, NULL), 0);
    ck_assert_int_eq(bp_limiter_take(&limiter, &limits, now + 10 * second, &wait, NULL), -1);
    ck_assert_uint_eq(wait, 10);
}
END_TEST

Suite *suite_limit(void)
{
    Suite *suite = suite_create("limit");
    TCase *tcase = tcase_create("limit");
    tcase_add_test(tcase, test_limit__a_rate_is_spent_at_once_and_comes_back_evenly);
    tcase_add_test(tcase, test_limit__the_wait_is_exact);
    tcase_add_test(tcase, test_limit__what_is_under_way_is_counted_and_given_back);
    tcase_add_test(tcase, test_limit__who_is_refused_for_one_limit_pays_nothing_of_the_other);
    tcase_add_test(tcase, test_limit__a_shorter_period_is_taken_at_once);
    suite_add_tcase(suite, tcase);
    return suite;
}
