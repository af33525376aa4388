/* What a request goes by: ids that it may bring, ids that are made, and the trace it is part of. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/http/trail.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"

START_TEST(test_trail__request_ids_are_short_and_plain)
{
    static const char *const sane[] = {"a", "0", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "A.b_c~d:e+f/g=h@i"};
    static const char *const odd[] = {"",     "a b",   "a\tb",     "a\"b", "a\\b", "a,b",  "<a>",
                                      "a;b=", "a\xc3", "\x7f\x01", "a\nb", "a%20", "a{b}", "a'b"};
    char longest[BP_REQUEST_ID_MAX + 2] = "";
    for (size_t i = 0; i < sizeof sane / sizeof *sane; i++)
        ck_assert_msg(bp_request_id_is_sane(sane[i]), "%s", sane[i]);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        ck_assert_msg(!bp_request_id_is_sane(odd[i]), "%s", odd[i]);
    memset(longest, 'x', BP_REQUEST_ID_MAX);
    ck_assert(bp_request_id_is_sane(longest));
    longest[BP_REQUEST_ID_MAX] = 'x';
    ck_assert(!bp_request_id_is_sane(longest));
}
END_TEST

static const struct traceparent_row {
    const char *text;
    bool taken, sampled;
} traceparents[] = {
    {"00-" TRACE "-" PARENT "-01", true, true},
    {"00-" TRACE "-" PARENT "-00", true, false},
    {"00-" TRACE "-" PARENT "-02", true, false},
    {"00-" TRACE "-" PARENT "-ff", true, true},
    {"cc-" TRACE "-" PARENT "-01", true, true},
    {"cc-" TRACE "-" PARENT "-01-what.the.future.brings", true, true},
    {"cc-" TRACE "-" PARENT "-01-", true, true},
    {"cc-" TRACE "-" PARENT "-01.what", false, false},
    {"00-" TRACE "-" PARENT "-01-what", false, false},
    {"00-" TRACE "-" PARENT "-01-", false, false},
    {"00-" TRACE "-" PARENT "-01 ", false, false},
    {" 00-" TRACE "-" PARENT "-01", false, false},
    {"ff-" TRACE "-" PARENT "-01", false, false},
    {"FF-" TRACE "-" PARENT "-01", false, false},
    {"0-" TRACE "-" PARENT "-01", false, false},
    {"000-" TRACE "-" PARENT "-01", false, false},
    {"0g-" TRACE "-" PARENT "-01", false, false},
    {"00-00000000000000000000000000000000-" PARENT "-01", false, false},
    {"00-" TRACE "-0000000000000000-01", false, false},
    {"00-4BF92F3577B34DA6A3CE929D0E0E4736-" PARENT "-01", false, false},
    {"00-" TRACE "-00F067AA0BA902B7-01", false, false},
    {"00-" TRACE "-" PARENT "-0G", false, false},
    {"00-" TRACE "-" PARENT "-1", false, false},
    {"00-" TRACE "-" PARENT "-", false, false},
    {"00-" TRACE "-" PARENT, false, false},
    {"00_" TRACE "_" PARENT "_01", false, false},
    {"00-4bf92f3577b34da6a3ce929d0e0e473-" PARENT "-010", false, false},
    {"00-4bf92f3577b34da6a3ce929d0e0e473\"-" PARENT "-01", false, false},
    {"00-" TRACE PARENT "-01--", false, false},
    {"", false, false},
};

START_TEST(test_trail__a_traceparent_is_read_by_the_rules)
{
    const struct traceparent_row *row = &traceparents[_i];
    char trace[BP_TRACE_ID_LENGTH + 1] = "before", parent[BP_SPAN_ID_LENGTH + 1] = "before";
    bool sampled = false;
    ck_assert_int_eq(bp_traceparent_read(row->text, trace, parent, &sampled), row->taken);
    ck_assert_str_eq(trace, row->taken ? TRACE : "before");
    ck_assert_str_eq(parent, row->taken ? PARENT : "before");
    ck_assert_int_eq(sampled, row->sampled);
}
END_TEST

static struct bp_ids ids;

static const struct bp_trail *name(const struct bp_head *head)
{
    static struct bp_trail trail;
    bp_trail_name(&trail, head, &ids);
    return &trail;
}

START_TEST(test_trail__a_request_that_brings_no_id_is_given_one)
{
    struct bp_head none = {0}, odd = {0}, twice = {0};
    bp_ids_init(&ids);
    bp_head_add(&odd, "X-Request-Id", "a b");
    bp_head_add(&twice, "X-Request-Id", "one");
    bp_head_add(&twice, "x-request-id", "one");
    const struct bp_head *const heads[] = {&none, &odd, &twice};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        const struct bp_trail *trail = name(heads[i]);
        ck_assert_uint_eq(strspn(trail->ids.request_id, "0123456789abcdef"), BP_SPAN_ID_LENGTH);
        ck_assert_uint_eq(strlen(trail->ids.request_id), BP_SPAN_ID_LENGTH);
        ck_assert(!trail->is_given);
    }
}
END_TEST

START_TEST(test_trail__a_request_keeps_the_id_it_brings)
{
    struct bp_head head = {0};
    bp_head_add(&head, "x-ReQuest-id", "its-own");
    ck_assert_str_eq(name(&head)->ids.request_id, "its-own");
    ck_assert(name(&head)->is_given);
}
END_TEST

static int compare_ids(const void *a, const void *b)
{
    return strcmp(a, b);
}

START_TEST(test_trail__ids_that_are_made_do_not_repeat)
{
    enum { N = 20000 };
    static char made[N][BP_SPAN_ID_LENGTH + 1];
    static const struct bp_head none;
    bp_ids_init(&ids);
    for (size_t i = 0; i < N; i++)
        memcpy(made[i], name(&none)->ids.request_id, sizeof made[i]);
    bp_ids_init(&ids);
    ck_assert_str_ne(made[0], name(&none)->ids.request_id); /* another run begins elsewhere */
    qsort(made, N, sizeof *made, compare_ids);
    for (size_t i = 1; i < N; i++)
        ck_assert_str_ne(made[i - 1], made[i]);
}
END_TEST

START_TEST(test_trail__a_traced_request_is_a_new_span_of_its_trace)
{
    struct bp_head head = {0};
    char first[BP_TRACEPARENT_LENGTH + 1], second[BP_TRACEPARENT_LENGTH + 1], expected[128];
    bp_head_add(&head, "traceparent", "00-" TRACE "-" PARENT "-01");
    const struct bp_trail *trail = name(&head);
    ck_assert_str_eq(trail->ids.trace_id, TRACE);
    ck_assert_str_eq(trail->ids.parent_id, PARENT);
    ck_assert_str_ne(trail->ids.span_id, PARENT);
    ck_assert(trail->is_given);
    bp_trail_response(trail, first);
    snprintf(expected, sizeof expected, "00-" TRACE "-%s-01", trail->ids.span_id);
    ck_assert_str_eq(first, expected);
    bp_trail_response(name(&head), second);
    ck_assert_str_ne(first, second);
}
END_TEST

START_TEST(test_trail__without_a_trace_none_is_made_up)
{
    struct bp_head none = {0}, odd = {0}, twice = {0};
    char text[BP_TRACEPARENT_LENGTH + 1];
    bp_head_add(&odd, "traceparent", "00-" TRACE "-" PARENT "-01-");
    bp_head_add(&twice, "traceparent", "00-" TRACE "-" PARENT "-01");
    bp_head_add(&twice, "Traceparent", "00-" TRACE "-" PARENT "-01");
    const struct bp_head *const heads[] = {&none, &odd, &twice};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        const struct bp_trail *trail = name(heads[i]);
        ck_assert_str_eq(trail->ids.trace_id, "");
        ck_assert_str_eq(trail->ids.parent_id, "");
        ck_assert_str_eq(trail->ids.span_id, "");
        bp_trail_response(trail, text);
        ck_assert_str_eq(text, "");
    }
}
END_TEST

Suite *suite_trail(void)
{
    Suite *suite = suite_create("trail");
    TCase *tcase = tcase_create("trail");
    tcase_add_test(tcase, test_trail__request_ids_are_short_and_plain);
    tcase_add_loop_test(tcase, test_trail__a_traceparent_is_read_by_the_rules, 0,
                        sizeof traceparents / sizeof *traceparents);
    tcase_add_test(tcase, test_trail__a_request_that_brings_no_id_is_given_one);
    tcase_add_test(tcase, test_trail__a_request_keeps_the_id_it_brings);
    tcase_add_test(tcase, test_trail__ids_that_are_made_do_not_repeat);
    tcase_add_test(tcase, test_trail__a_traced_request_is_a_new_span_of_its_trace);
    tcase_add_test(tcase, test_trail__without_a_trace_none_is_made_up);
    suite_add_tcase(suite, tcase);
    return suite;
}
