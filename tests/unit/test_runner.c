/* The runner must not call an empty or an unknown selection a success. */
#include <stdio.h>

#include "tests/lib/runner.h"

START_TEST(passes)
{
    ck_assert_int_eq(1, 1);
}
END_TEST

START_TEST(fails)
{
    ck_abort_msg("on purpose");
}
END_TEST

static Suite *suite_of(const char *name, const TTest *test)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    if (test)
        tcase_add_test(tcase, test);
    suite_add_tcase(suite, tcase);
    return suite;
}

static Suite *passing(void)
{
    return suite_of("passing", passes);
}

static Suite *failing(void)
{
    return suite_of("failing", fails);
}

static Suite *empty(void)
{
    return suite_of("empty", NULL);
}

static int run(char *suite)
{
    static const struct bp_suite_row rows[] = {{"passing", passing}, {"failing", failing}, {"empty", empty}};
    char *argv[] = {"inner", suite, NULL};
    ck_assert(freopen("/dev/null", "w", stdout) && freopen("/dev/null", "w", stderr));
    return bp_run_suites(rows, 3, 2, argv);
}

START_TEST(test_runner__a_passing_suite_is_a_success)
{
    ck_assert_int_eq(run("passing"), 0);
}
END_TEST

START_TEST(test_runner__a_failing_suite_is_a_failure)
{
    ck_assert_int_eq(run("failing"), 1);
}
END_TEST

START_TEST(test_runner__no_test_run_is_a_failure)
{
    ck_assert_int_eq(run("empty"), 1);
}
END_TEST

START_TEST(test_runner__an_unknown_suite_is_a_usage_error)
{
    ck_assert_int_eq(run("missing"), 2);
}
END_TEST

Suite *suite_runner(void)
{
    Suite *suite = suite_create("runner");
    TCase *tcase = tcase_create("runner");
    tcase_add_test(tcase, test_runner__a_passing_suite_is_a_success);
    tcase_add_test(tcase, test_runner__a_failing_suite_is_a_failure);
    tcase_add_test(tcase, test_runner__no_test_run_is_a_failure);
    tcase_add_test(tcase, test_runner__an_unknown_suite_is_a_usage_error);
    suite_add_tcase(suite, tcase);
    return suite;
}
