#include <check.h>
#include <string.h>

#include "client/print.h"

static struct bp_buf out;
static json_t *value;

static void release(void)
{
    bp_buf_release(&out);
    json_decref(value);
    value = NULL;
}

static json_t *parsed(const char *text)
{
    json_decref(value);
    value = json_loads(text, JSON_DECODE_ANY, NULL);
    ck_assert_ptr_nonnull(value);
    return value;
}

static const struct {
    const char *text, *safe;
} texts[] = {
    {"plain text, caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "plain text, caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
    {"a\x1b[31mred\x1b[0m", "a?[31mred?[0m"},
    {"\x1b]0;title\x07", "?]0;title?"},
    {"two\nlines\r\ttab", "two?lines??tab"},
    {"del\x7f", "del?"},
    {"c1 csi \xc2\x9b"
     "2J",
     "c1 csi ?2J"},
    {"nel \xc2\x85 is one", "nel ? is one"},
    {"no-break space \xc2\xa0 stays", "no-break space \xc2\xa0 stays"},
    {"bare 8-bit csi \x9b", "bare 8-bit csi ?"},
    {"overlong \xc0\x9b", "overlong ??"},
    {"cut short \xe2\x82", "cut short ??"},
    {"surrogate \xed\xa0\x80", "surrogate ???"},
    {"override \xe2\x80\xae"
     "evil \xe2\x81\xa6",
     "override ?evil ?"},
    {"line separator \xe2\x80\xa8", "line separator ?"},
};

START_TEST(test_print__nothing_that_drives_a_terminal_gets_through)
{
    bp_text_add(&out, texts[_i].text);
    ck_assert_str_eq(bp_buf_string(&out), texts[_i].safe);
}
END_TEST

START_TEST(test_print__a_nul_within_a_string_is_replaced)
{
    bp_text_addn(&out, "a\0b", 3);
    ck_assert_str_eq(bp_buf_string(&out), "a?b");
}
END_TEST

START_TEST(test_print__lines_stay_lines_and_are_indented)
{
    bp_text_add_lines(&out, "one\n\n\ttwo\x1b\nthree", 2);
    ck_assert_str_eq(bp_buf_string(&out), "  one\n\n  \ttwo?\n  three\n");
}
END_TEST

#define TEN "123456789 "
#define FIFTY TEN TEN TEN TEN TEN

START_TEST(test_print__long_lines_are_broken_at_blanks)
{
    bp_text_add_lines(&out, FIFTY FIFTY TEN "\n|" FIFTY FIFTY FIFTY "|\n", 1);
    ck_assert_str_eq(bp_buf_string(&out), " " FIFTY TEN TEN TEN TEN "123456789\n " TEN "\n |" FIFTY FIFTY FIFTY "|\n");
}
END_TEST

START_TEST(test_print__a_line_without_blanks_is_left_whole)
{
    char word[301] = "";
    memset(word, 'x', sizeof word - 1);
    bp_text_add_lines(&out, word, 0);
    ck_assert_uint_eq(out.len, sizeof word);
    ck_assert_ptr_eq(memchr(out.data, '\n', out.len), out.data + out.len - 1);
}
END_TEST

static const struct {
    uint64_t bytes;
    const char *gib;
} sizes[] = {
    {0, "0.000"},
    {1, "0.000"},
    {536870, "0.000"},
    {536871, "0.001"}, /* half of a thousandth, rounded up */
    {UINT64_C(1) << 30, "1.000"},
    {(UINT64_C(1) << 30) - 1, "1.000"},
    {UINT64_C(85899345920), "80.000"},
    {UINT64_C(1610612736), "1.500"},
    {(UINT64_C(1) << 53) - 1, "8388608.000"},
    {(UINT64_C(1) << 53) - (UINT64_C(1) << 29), "8388607.500"},
};

START_TEST(test_print__gib_are_exact_to_the_thousandth)
{
    bp_text_add_gib(&out, sizes[_i].bytes);
    ck_assert_str_eq(bp_buf_string(&out), sizes[_i].gib);
}
END_TEST

static const struct {
    const char *json, *text;
} values[] = {
    {"\"340282366920938463463374607431768211455\"", "340282366920938463463374607431768211455"},
    {"9007199254740991", "9007199254740991"},
    {"true", "true"},
    {"null", ""},
    {"[1, {\"a\": \"b\\u001b\"}]", "[1,{\"a\":\"b\\u001B\"}]"},
};

START_TEST(test_print__values_print_exactly)
{
    bp_text_add_value(&out, parsed(values[_i].json));
    ck_assert_str_eq(bp_buf_string(&out), values[_i].text);
}
END_TEST

static const struct bp_table_column columns[] = {
    {"#", NULL, true, bp_cell_index},          {"name", "name", false, NULL},
    {"never", "never", false, NULL},           {"bytes", "bytes", true, NULL},
    {"after", "after", false, bp_cell_places},
};

START_TEST(test_print__columns_align_and_empty_ones_are_left_out)
{
    parsed("{\"tasks\": [{\"id\": \"t:a\", \"name\": \"\u00e9t\u00e9\", \"bytes\": 5, \"after\": []},"
           " {\"id\": \"t:b\", \"name\": \"longer\", \"bytes\": 123456, \"after\": [\"t:a\", \"t:x\"]}]}");
    json_t *places = bp_places_of(value);
    bp_print_table(&out, json_object_get(value, "tasks"), places, columns, 5);
    json_decref(places);
    ck_assert_str_eq(bp_buf_string(&out), "#  name     bytes  after\n"
                                          "0  \xc3\xa9t\xc3\xa9          5\n"
                                          "1  longer  123456  0,t:x\n");
}
END_TEST

static const struct bp_table_column members[] = {
    {"memory", NULL, false, bp_cell_name},
    {"bytes", NULL, true, bp_cell_value},
    {"GiB", NULL, true, bp_cell_gib},
};

START_TEST(test_print__an_object_is_a_table_of_its_members)
{
    parsed("{\"weights\": 1073741824, \"x\\u001b\": \"no number\"}");
    BP_PRINT_TABLE(&out, value, members);
    ck_assert_str_eq(bp_buf_string(&out), "memory        bytes    GiB\n"
                                          "weights  1073741824  1.000\n"
                                          "x?        no number\n");
}
END_TEST

#define WRONG                                                                                                          \
    "{\"plans\": {\"a\": 1}, \"snapshots\": [3], \"facts\": [], \"stages\": [null], \"chain\": [[]], \"passes\": 1, "  \
    "\"models\": \"x\", \"model\": 5, \"errors\": {}}"

static const char *const shapes[] = {"null", "7", "\"text\"", "[]", "{}", "[1, null, \"a\", [[]], {\"tasks\": 3}]",
                                     WRONG};

START_TEST(test_print__an_answer_of_any_shape_is_survived)
{
    static enum bp_exit (*const printers[])(struct bp_buf *, const json_t *) = {
        bp_print_plan,  bp_print_plans, bp_print_snapshot, bp_print_lineage,
        bp_print_trace, bp_print_diff,  bp_print_passes,   bp_print_models};
    parsed(shapes[_i]);
    for (size_t i = 0; i < sizeof printers / sizeof *printers; i++) {
        ck_assert_int_eq(printers[i](&out, value), BP_EXIT_YES);
        ck_assert(!out.failed);
    }
    /* What does not say "identical" is no proof of it. */
    ck_assert_int_eq(bp_print_replay(&out, value), BP_EXIT_NO);
}
END_TEST

Suite *suite_print(void)
{
    Suite *suite = suite_create("print");
    TCase *tcase = tcase_create("print");
    tcase_add_checked_fixture(tcase, NULL, release);
    tcase_add_loop_test(tcase, test_print__nothing_that_drives_a_terminal_gets_through, 0,
                        sizeof texts / sizeof *texts);
    tcase_add_test(tcase, test_print__a_nul_within_a_string_is_replaced);
    tcase_add_test(tcase, test_print__lines_stay_lines_and_are_indented);
    tcase_add_test(tcase, test_print__long_lines_are_broken_at_blanks);
    tcase_add_test(tcase, test_print__a_line_without_blanks_is_left_whole);
    tcase_add_loop_test(tcase, test_print__gib_are_exact_to_the_thousandth, 0, sizeof sizes / sizeof *sizes);
    tcase_add_loop_test(tcase, test_print__values_print_exactly, 0, sizeof values / sizeof *values);
    tcase_add_test(tcase, test_print__columns_align_and_empty_ones_are_left_out);
    tcase_add_test(tcase, test_print__an_object_is_a_table_of_its_members);
    tcase_add_loop_test(tcase, test_print__an_answer_of_any_shape_is_survived, 0, sizeof shapes / sizeof *shapes);
    suite_add_tcase(suite, tcase);
    return suite;
}
