/* What differs between two plans. */
#include <check.h>
#include <string.h>

#include "common/view/diff.h"
#include "tests/lib/fault_alloc.h"
#include "tests/unit/reading.h"

static struct bp_diff_side side_of(const char *request, const char *facts, unsigned stages)
{
    struct bp_diff_side side = {.request = request, .n_request = strlen(request), .facts = facts};
    side.n_facts = facts ? strlen(facts) : 0;
    for (unsigned stage = 0; stage < stages; stage++) {
        side.has[stage] = true;
        bp_digest_of(bp_stage_names[stage], 1 + stage / 2 * (stages > 3), &side.digest[stage]);
    }
    return side;
}

static const char *diff(const struct bp_diff_side *a, const struct bp_diff_side *b)
{
    static struct bp_buf out;
    struct bp_writer writer = {.out = &out, .any_order = true};
    struct bp_err err = {0};
    ck_assert_msg(bp_diff_write(&writer, a, b, &err) == 0, "%s", err.message);
    return canonical(&writer);
}

/* The differences of two requests, as a text with ' for ". */
static const struct {
    const char *a, *b, *expected;
} requests[] = {
    {"{}", "{}", "[]"},
    {"{\"a\":1,\"b\":[1]}", "{\"a\":1,\"b\":[1]}", "[]"},
    {"{\"a\":1}", "{\"a\":2}", "[{'path':'/a','a':1,'b':2}]"},
    {"{\"a\":\"1\"}", "{\"a\":1}", "[{'path':'/a','a':'1','b':1}]"},
    {"{\"a\":true}", "{}", "[{'path':'/a','a':true,'b':null}]"},
    {"{}", "{\"a\":null}", "[{'path':'/a','a':null,'b':null}]"},
    {"{\"z\":1,\"a\":1}", "{\"m\":1}",
     "[{'path':'/a','a':1,'b':null},{'path':'/m','a':null,'b':1},{'path':'/z','a':1,'b':null}]"},
    {"{\"s\":{\"t\":8,\"p\":1}}", "{\"s\":{\"t\":4,\"p\":1}}", "[{'path':'/s/t','a':8,'b':4}]"},
    {"{\"s\":{\"t\":8}}", "{}", "[{'path':'/s/t','a':8,'b':null}]"},
    {"{\"s\":{}}", "{}", "[{'path':'/s','a':{},'b':null}]"},
    {"{\"s\":[]}", "{\"s\":{}}", "[{'path':'/s','a':[],'b':{}}]"},
    {"{\"s\":{\"t\":8}}", "{\"s\":8}", "[{'path':'/s','a':{'t':8},'b':8}]"},
    {"{\"l\":[1,2]}", "{\"l\":[1,3,4]}", "[{'path':'/l/1','a':2,'b':3},{'path':'/l/2','a':null,'b':4}]"},
    {"{\"a/b~c\":1}", "{\"a/b~c\":2}", "[{'path':'/a~1b~0c','a':1,'b':2}]"},
    {"{\"a\":{\"b\":1},\"a-\":1}", "{\"a\":{\"b\":2},\"a-\":2}",
     "[{'path':'/a-','a':1,'b':2},{'path':'/a/b','a':1,'b':2}]"},
};

START_TEST(test_diff__requests_and_facts_are_compared_value_by_value)
{
    char expected[1024];
    struct bp_diff_side a = side_of(requests[_i].a, requests[_i].a, 0);
    struct bp_diff_side b = side_of(requests[_i].b, requests[_i].b, 0);
    snprintf(expected, sizeof expected, "{'stages':[],'request':%s,'facts':%s}", requests[_i].expected,
             requests[_i].expected);
    ck_assert_str_eq(diff(&a, &b), expected);
}
END_TEST

START_TEST(test_diff__every_stage_that_one_of_them_has_is_listed)
{
    struct bp_diff_side a = side_of("{}", "{}", 4), b = side_of("{}", NULL, 3);
    json_t *value = json_of(diff(&a, &b));
    const json_t *stages = json_object_get(value, "stages");
    ck_assert_uint_eq(json_array_size(stages), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *row = json_array_get(stages, i);
        ck_assert_str_eq(json_string_value(json_object_get(row, "stage")), bp_stage_names[i]);
        ck_assert(json_is_string(json_object_get(row, "a")));
        ck_assert(i < 3 ? json_is_string(json_object_get(row, "b")) : json_is_null(json_object_get(row, "b")));
        ck_assert_int_eq(json_is_true(json_object_get(row, "same")), i < 2);
    }
    json_decref(value);
}
END_TEST

START_TEST(test_diff__facts_of_one_alone_are_taken_apart)
{
    struct bp_diff_side a = side_of("{}", "{\"tasks\":3,\"memory\":{\"weights\":5}}", 0), b = side_of("{}", NULL, 0);
    ck_assert_str_eq(diff(&a, &b), "{'stages':[],'request':[],'facts':[{'path':'/memory/weights','a':5,'b':null},"
                                   "{'path':'/tasks','a':3,'b':null}]}");
    ck_assert_str_eq(diff(&b, &b), "{'stages':[],'request':[],'facts':[]}");
}
END_TEST

START_TEST(test_diff__many_differences_are_all_listed)
{
    struct bp_buf text = {0}, out = {0};
    struct bp_writer writer = {.out = &out, .any_order = true};
    bp_buf_addch(&text, '{');
    for (int i = 0; i < 100; i++)
        bp_buf_addf(&text, "%s\"k%d\":%d", i ? "," : "", i, i);
    bp_buf_addch(&text, '}');
    struct bp_diff_side a = side_of(bp_buf_string(&text), NULL, 0), b = side_of("{}", NULL, 0);
    ck_assert_int_eq(bp_diff_write(&writer, &a, &b, NULL), 0);
    json_t *value = json_loadb(out.data, out.len, 0, NULL);
    ck_assert_uint_eq(json_array_size(json_object_get(value, "request")), 100);
    json_decref(value);
    bp_buf_release(&text);
    bp_buf_release(&out);
}
END_TEST

START_TEST(test_diff__texts_that_do_not_parse_are_an_error)
{
    static const char *const texts[][2] = {{"{", "{}"}, {"{}", "{"}};
    for (unsigned i = 0; i < 4; i++) {
        struct bp_buf out = {0};
        struct bp_writer writer = {.out = &out, .any_order = true};
        struct bp_err err = {0};
        const char *a = texts[i % 2][0], *b = texts[i % 2][1];
        struct bp_diff_side first = i < 2 ? side_of(a, "{}", 0) : side_of("{}", a, 0);
        struct bp_diff_side second = i < 2 ? side_of(b, "{}", 0) : side_of("{}", b, 0);
        ck_assert_int_eq(bp_diff_write(&writer, &first, &second, &err), -1);
        ck_assert_int_eq(err.code, BP_E_invalid_json);
        bp_buf_release(&out);
    }
}
END_TEST

START_TEST(test_diff__want_of_memory_is_reported)
{
    struct bp_diff_side a = side_of("{\"a\":{\"b\":1},\"c\":[1,2]}", "{\"d\":4}", 3), b = side_of("{\"a\":1}", NULL, 4);
    for (long n = 0;; n++) {
        struct bp_buf out = {0};
        struct bp_writer writer = {.out = &out, .any_order = true};
        struct bp_err err = {0};
        bp_fault_alloc_after(n);
        int result = bp_diff_write(&writer, &a, &b, &err);
        if (result == 0)
            result = bp_writer_finish(&writer, &err);
        const bool failed = bp_fault_alloc_off();
        bp_buf_release(&out);
        if (!failed) {
            ck_assert_int_eq(result, 0);
            return;
        }
        ck_assert_msg(result == -1 && err.code == BP_E_out_of_memory, "allocation %ld: %d %s", n, result, err.message);
    }
}
END_TEST

Suite *suite_diff(void)
{
    Suite *suite = suite_create("diff");
    TCase *tcase = tcase_create("diff");
    tcase_add_loop_test(tcase, test_diff__requests_and_facts_are_compared_value_by_value, 0,
                        sizeof requests / sizeof *requests);
    tcase_add_test(tcase, test_diff__every_stage_that_one_of_them_has_is_listed);
    tcase_add_test(tcase, test_diff__facts_of_one_alone_are_taken_apart);
    tcase_add_test(tcase, test_diff__many_differences_are_all_listed);
    tcase_add_test(tcase, test_diff__texts_that_do_not_parse_are_an_error);
    tcase_add_test(tcase, test_diff__want_of_memory_is_reported);
    suite_add_tcase(suite, tcase);
    return suite;
}
