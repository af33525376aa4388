/* Reading JSON from outside: the guarded parse and the typed getters. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/canon.h"
#include "common/base/json.h"
#include "common/base/u128.h"
#include "tests/lib/fault_alloc.h"
#include "tests/unit/reading.h"

static const struct {
    const char *text;
    enum bp_code code;
    int line, column; /* 0: not held to one */
} refused[] = {
    {"", BP_E_empty_body, 1, 1},
    {" \t\r\n ", BP_E_empty_body, 1, 1},
    {"{", BP_E_invalid_json, 1, 0},
    {"{\"a\": }", BP_E_invalid_json, 1, 7},
    {"{\n \"a\": 1,\n \"b\": x}", BP_E_invalid_json, 3, 7},
    {"[1, 2] 3", BP_E_invalid_json, 1, 8},
    {"[NaN]", BP_E_invalid_json, 1, 0},
    {"[Infinity]", BP_E_invalid_json, 1, 0},
    {"[01]", BP_E_invalid_json, 1, 0},
    {"[+1]", BP_E_invalid_json, 1, 2},
    {"[1,]", BP_E_invalid_json, 1, 4},
    {"['a']", BP_E_invalid_json, 1, 2},
    {"[\"a\\u0000\"]", BP_E_invalid_json, 1, 0},
    {"[\"\\ud800\"]", BP_E_invalid_json, 1, 0},
    {"[\"a\x01\"]", BP_E_invalid_json, 1, 0},
    {"[\"\xff\"]", BP_E_invalid_json, 1, 0},
    {"[\"\xc0\x80\"]", BP_E_invalid_json, 1, 0},
    {"[\"\xed\xa0\x80\"]", BP_E_invalid_json, 1, 0},
    {"[\"\xc3\xa9\xc3\xa9\", x]", BP_E_invalid_json, 1, 10},
    {"{\"a\": 1, \"a\": 1}", BP_E_duplicate_key, 1, 0},
    {"{\"a\": {\"b\": 1,\n\"\\u0062\": 1}}", BP_E_duplicate_key, 2, 0},
    /* Numbers that no type holds hide no mistake, nor move its place. */
    {"[9223372036854775808, x]", BP_E_invalid_json, 1, 23},
    {"[1e999,\n-00000000000000000000]", BP_E_invalid_json, 2, 0},
    {"[1e999, 1.e9999]", BP_E_invalid_json, 1, 0},
    {"[99999999999999999999, 5e]", BP_E_invalid_json, 1, 0},
};

START_TEST(test_json__text_that_does_not_parse_is_named_with_its_place)
{
    struct bp_err err = {0};
    struct bp_json_position position = {0};
    const char *text = refused[_i].text;
    ck_assert_ptr_null(bp_json_parse(text, strlen(text), &position, &err));
    ck_assert_msg(err.code == refused[_i].code, "%s: %s %s", text, bp_code_name(err.code), err.message);
    ck_assert_str_eq(err.path, "");
    ck_assert_msg(position.line == refused[_i].line, "%s: line %d", text, position.line);
    if (refused[_i].column)
        ck_assert_msg(position.column == refused[_i].column, "%s: column %d", text, position.column);
    ck_assert_int_ge(position.column, 1);
}
END_TEST

START_TEST(test_json__a_number_that_no_type_holds_is_out_of_range_where_it_is_read)
{
    static const char text[] =
        "{\"n\": 9223372036854775808, \"m\": -99999999999999999999, \"r\": 1e999, \"q\": -1E+0400,"
        "\"s\": \"99999999999999999999\", \"k\": 1000000000000000000019884624838656,"
        "\"small\": 1e-999, \"plain\": 17}";
    struct bp_problems problems = {0};
    struct bp_json_position position;
    struct bp_err err = {0};
    json_t *value = bp_json_parse(text, strlen(text), &position, &err);
    ck_assert_msg(value, "%s", err.message);
    struct bp_reader reader = bp_reader_of(value, "", &problems);
    static const char *const keys[] = {"n", "m", "k"};
    for (size_t i = 0; i < 3; i++) {
        bp_reader_uint(&reader, keys[i], 0, BP_JSON_INT_MAX, 0);
        ck_assert_uint_eq(problems.n, i + 1);
        ck_assert_int_eq(problems.at[i].code, BP_E_out_of_range);
    }
    bp_reader_uint(&reader, "r", 0, BP_JSON_INT_MAX, 0);
    ck_assert_int_eq(problems.at[3].code, BP_E_wrong_type);
    ck_assert(json_real_value(json_object_get(value, "r")) > 1);
    ck_assert(json_real_value(json_object_get(value, "q")) < -1);
    ck_assert(json_real_value(json_object_get(value, "small")) < 1);
    ck_assert_str_eq(bp_reader_string(&reader, "s", true), "99999999999999999999");
    ck_assert_uint_eq(bp_reader_uint(&reader, "plain", 0, 20, 0), 17);
    ck_assert_uint_eq(problems.n, 4);
    bp_problems_release(&problems);
    json_decref(value);
}
END_TEST

START_TEST(test_json__a_nul_byte_is_not_json)
{
    struct bp_err err = {0};
    struct bp_json_position position;
    ck_assert_ptr_null(bp_json_parse("[1]\0", 4, &position, &err));
    ck_assert_int_eq(err.code, BP_E_invalid_json);
}
END_TEST

static const char *const accepted[] = {"{}",  " [1, -2] ",           "\"\\u00e9\"",         "true", "null", "-0",
                                       "1e3", "9223372036854775807", "{\"a\": 1, \"A\": 1}"};

START_TEST(test_json__any_one_value_is_read)
{
    struct bp_err err = {0};
    struct bp_json_position position;
    json_t *value = bp_json_parse(accepted[_i], strlen(accepted[_i]), &position, &err);
    ck_assert_msg(value != NULL, "%s: %s", accepted[_i], err.message);
    json_decref(value);
}
END_TEST

static json_t *nested(size_t n_open, size_t n_close, struct bp_json_position *ret_position, struct bp_err *err)
{
    struct bp_buf text = {0};
    for (size_t i = 0; i < n_open; i++)
        bp_buf_addch(&text, '[');
    for (size_t i = 0; i < n_close; i++)
        bp_buf_addch(&text, ']');
    json_t *value = bp_json_parse(text.data, text.len, ret_position, err);
    bp_buf_release(&text);
    return value;
}

START_TEST(test_json__sixty_four_levels_are_read_and_sixty_five_are_not)
{
    struct bp_err err = {0};
    struct bp_json_position position;
    json_t *value = nested(64, 64, &position, &err);
    ck_assert_ptr_nonnull(value);
    json_decref(value);
    ck_assert_ptr_null(nested(65, 65, &position, &err));
    ck_assert_int_eq(err.code, BP_E_too_deep);
    ck_assert_int_eq(position.line, 1);
    ck_assert_int_eq(position.column, 65);
}
END_TEST

static enum bp_code read_request_of(size_t n_values, const char *value)
{
    struct bp_buf text = {0};
    struct bp_json_position position;
    struct bp_err err = {0};
    bp_buf_addch(&text, '[');
    for (size_t i = 1; i < n_values; i++)
        bp_buf_addf(&text, "%s%s", i > 1 ? "," : "", value);
    bp_buf_addch(&text, ']');
    json_t *json = bp_json_parse_request(text.data, text.len, &position, &err);
    ck_assert(json == NULL || json_array_size(json) == n_values - 1);
    json_decref(json);
    json = bp_json_parse(text.data, text.len, &position, NULL); /* what is no request may have any number */
    ck_assert_uint_eq(json_array_size(json), n_values - 1);
    json_decref(json);
    bp_buf_release(&text);
    return err.code;
}

START_TEST(test_json__a_request_has_a_bounded_number_of_values)
{
    ck_assert_int_eq(read_request_of(BP_JSON_VALUES_MAX - 1, "0"), BP_OK);
    ck_assert_int_eq(read_request_of(BP_JSON_VALUES_MAX, "\",[,{\""), BP_OK); /* those in strings are none */
    ck_assert_int_eq(read_request_of(BP_JSON_VALUES_MAX + 1, "0"), BP_E_too_many_values);
    ck_assert_int_eq(read_request_of(BP_JSON_VALUES_MAX / 2 - 1, "[]"), BP_OK);
    ck_assert_int_eq(read_request_of(BP_JSON_VALUES_MAX / 2 + 2, "{}"), BP_E_too_many_values);
}
END_TEST

START_TEST(test_json__a_hundred_thousand_brackets_are_refused_at_once)
{
    struct bp_err err = {0};
    struct bp_json_position position;
    ck_assert_ptr_null(nested(100000, 0, &position, &err));
    ck_assert_int_eq(err.code, BP_E_too_deep);
    ck_assert_int_eq(position.column, 65);
}
END_TEST

START_TEST(test_json__brackets_in_strings_are_no_levels)
{
    struct bp_buf text = {0};
    struct bp_err err = {0};
    struct bp_json_position position;
    bp_buf_addstr(&text, "[\"\\\"");
    for (int i = 0; i < 200; i++)
        bp_buf_addstr(&text, "[{");
    bp_buf_addstr(&text, "\\\\\", 1]");
    json_t *value = bp_json_parse(text.data, text.len, &position, &err);
    ck_assert_msg(value != NULL, "%s", err.message);
    json_decref(value);
    bp_buf_release(&text);
}
END_TEST

START_TEST(test_json__want_of_memory_is_no_syntax_error)
{
    static const char text[] = "{\"a\": [1, \"b\", {\"c\": null}], \"d\": \"eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee\"}";
    for (long n = 0;; n++) {
        struct bp_err err = {0};
        struct bp_json_position position;
        bp_fault_alloc_after(n);
        json_t *value = bp_json_parse(text, sizeof text - 1, &position, &err);
        if (!bp_fault_alloc_off()) {
            ck_assert_ptr_nonnull(value);
            json_decref(value);
            ck_assert_int_gt(n, bp_fault_alloc_works() ? 5 : -1);
            return;
        }
        ck_assert_msg(!value && err.code == BP_E_out_of_memory, "allocation %ld: %s", n, err.message);
    }
}
END_TEST

/* When the buffer of a token cannot grow jansson goes on without the characters that found no room, and trips over an
 * escape that has lost one. */
START_TEST(test_json__want_of_memory_loses_no_character)
{
    /* The letters behind the backslashes are the 16th and the 32nd byte, where jansson's buffer grows. */
    static const char text[] = "[\"aaaaaaaaaaaaa\\u00e9aaaaaaaaaa\\n\", 12345678901234567]";
    bool failed = true;
    long n = 0;
    for (; failed; n++) {
        struct bp_err err = {0};
        struct bp_json_position position;
        bp_fault_alloc_once(n);
        json_t *value = bp_json_parse(text, sizeof text - 1, &position, &err);
        failed = bp_fault_alloc_off();
        ck_assert_msg(failed ? !value && err.code == BP_E_out_of_memory : value != NULL, "allocation %ld: %s", n,
                      err.message);
        json_decref(value);
    }
    ck_assert_int_gt(n, bp_fault_alloc_works() ? 5 : 0);
}
END_TEST

/* Processor time of this thread to read an object of `n` keys. */
static double seconds_to_read(size_t n)
{
    struct bp_buf text = {0};
    struct bp_json_position position;
    struct timespec before, after;
    for (size_t i = 0; i < n; i++)
        bp_buf_addf(&text, "%s\"k%zu\": 1", i ? ", " : "{", i);
    bp_buf_addch(&text, '}');
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    json_t *value = bp_json_parse(text.data, text.len, &position, NULL);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    ck_assert_uint_eq(json_object_size(value), n);
    json_decref(value);
    bp_buf_release(&text);
    return (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
}

/* Sixteen times the text takes some twenty times the time; with the square it would be 256 times. */
START_TEST(test_json__the_time_grows_with_the_text_and_not_with_its_square)
{
    double little = seconds_to_read(4000);
    for (int i = 0; i < 4; i++) {
        double again = seconds_to_read(4000);
        little = again < little ? again : little;
    }
    double much = seconds_to_read(64000);
    ck_assert_msg(much < 100 * little, "%g s for 4000 keys, %g s for 64000", little, much);
}
END_TEST

START_TEST(test_json__a_copy_without_memory_is_none)
{
    json_t *object = json_object(), *copy;
    bool failed = true;
    for (char key[] = "a"; *key <= 'p'; ++*key)
        ck_assert_int_eq(json_object_set_new(object, key, json_true()), 0);
    for (long n = 0; failed; n++) {
        bp_fault_alloc_once(n);
        copy = bp_json_copy_object(object);
        failed = bp_fault_alloc_off();
        ck_assert_msg(failed ? !copy : json_equal(copy, object), "allocation %ld", n);
        json_decref(copy);
    }
    json_decref(object);
}
END_TEST

static struct bp_problems problems;
static json_t *root;

static struct bp_reader reader_of(const char *text)
{
    root = json_of(text);
    return bp_reader_of(root, "/r", &problems);
}

static void release(void)
{
    json_decref(root);
    root = NULL;
    bp_problems_release(&problems);
}

START_TEST(test_reader__what_is_right_is_read)
{
    static const char *const words[] = {"one", "two", NULL};
    struct bp_reader reader = reader_of("{'n': 9007199254740991, 'b': true, 's': 'text', 'e': 'two', 'o': {'m': 3}}");
    ck_assert_uint_eq(bp_reader_uint(&reader, "n", 0, BP_JSON_INT_MAX, 1), BP_JSON_INT_MAX);
    ck_assert(bp_reader_bool(&reader, "b", false));
    ck_assert_str_eq(bp_reader_string(&reader, "s", true), "text");
    ck_assert_int_eq(bp_reader_enum(&reader, "e", words, 0), 1);
    struct bp_reader inner = bp_reader_object(&reader, "o", true);
    ck_assert_str_eq(inner.pointer, "/r/o");
    ck_assert_uint_eq(bp_reader_uint_required(&inner, "m", 0, 5), 3);
    ck_assert(bp_problems_none(&problems));
}
END_TEST

START_TEST(test_reader__what_is_absent_takes_its_fallback)
{
    static const char *const words[] = {"one", "two", NULL};
    struct bp_reader reader = reader_of("{}");
    ck_assert_uint_eq(bp_reader_uint(&reader, "n", 1, 9, 7), 7);
    ck_assert(bp_reader_bool(&reader, "b", true));
    ck_assert_ptr_null(bp_reader_string(&reader, "s", false));
    ck_assert_int_eq(bp_reader_enum(&reader, "e", words, 1), 1);
    struct bp_reader inner = bp_reader_object(&reader, "o", false);
    ck_assert_ptr_null(inner.object);
    ck_assert(bp_problems_none(&problems));
}
END_TEST

START_TEST(test_reader__what_is_required_and_absent_is_named)
{
    static const char *const words[] = {"one", NULL};
    struct bp_reader reader = reader_of("{}");
    ck_assert_uint_eq(bp_reader_uint_required(&reader, "n", 3, 9), 3);
    bp_reader_string(&reader, "s", true);
    ck_assert_int_eq(bp_reader_enum(&reader, "e", words, -1), 0);
    bp_reader_object(&reader, "o", true);
    ck_assert_str_eq(line_of(&problems), "missing_key /r/n, missing_key /r/s, missing_key /r/e, missing_key /r/o");
}
END_TEST

START_TEST(test_reader__wrong_types_and_ranges_are_named_and_take_the_fallback)
{
    static const char *const words[] = {"one", "two", NULL};
    struct bp_reader reader = reader_of("{'f': 1.0, 'x': 1e3, 't': '1', 'neg': -1, 'zero': 0, 'big': 9007199254740992,"
                                        "'b': 1, 's': 2, 'e': 'six', 'o': [], 'e2': 3}");
    ck_assert_uint_eq(bp_reader_uint(&reader, "f", 1, 9, 7), 7);
    ck_assert_uint_eq(bp_reader_uint(&reader, "x", 1, 9, 7), 7);
    ck_assert_uint_eq(bp_reader_uint_required(&reader, "t", 1, 9), 1);
    ck_assert_uint_eq(bp_reader_uint(&reader, "neg", 0, 9, 7), 7);
    ck_assert_uint_eq(bp_reader_uint(&reader, "zero", 1, 9, 7), 7);
    ck_assert_uint_eq(bp_reader_uint(&reader, "big", 0, BP_JSON_INT_MAX, 7), 7);
    ck_assert(bp_reader_bool(&reader, "b", true));
    ck_assert_ptr_null(bp_reader_string(&reader, "s", true));
    ck_assert_int_eq(bp_reader_enum(&reader, "e", words, 1), 1);
    ck_assert_int_eq(bp_reader_enum(&reader, "e2", words, -1), 0);
    ck_assert_ptr_null(bp_reader_object(&reader, "o", true).object);
    ck_assert_str_eq(line_of(&problems),
                     "wrong_type /r/f, wrong_type /r/x, wrong_type /r/t, out_of_range /r/neg, out_of_range /r/zero, "
                     "out_of_range /r/big, wrong_type /r/b, wrong_type /r/s, unknown_value /r/e, wrong_type /r/e2, "
                     "wrong_type /r/o");
    ck_assert(some_message_has(&problems, "one, two"));
}
END_TEST

START_TEST(test_reader__unknown_keys_are_named_by_escaped_pointers)
{
    static const char *const known[] = {"a", NULL};
    struct bp_reader reader = reader_of("{'a': 1, 'b/c~d': 2, '': 3}");
    bp_reader_refuse_unknown(&reader, known);
    ck_assert_str_eq(line_of(&problems), "unknown_key /r/b~1c~0d, unknown_key /r/");
}
END_TEST

START_TEST(test_reader__a_value_that_is_no_object_is_named_once)
{
    static const char *const known[] = {"a", NULL};
    struct bp_reader reader = reader_of("[1]");
    ck_assert_uint_eq(bp_reader_uint_required(&reader, "n", 3, 9), 3);
    bp_reader_string(&reader, "s", true);
    bp_reader_refuse_unknown(&reader, known);
    ck_assert_str_eq(line_of(&problems), "wrong_type /r");
}
END_TEST

START_TEST(test_reader__long_pointers_are_cut_between_characters)
{
    char key[400], pointer[BP_POINTER_MAX];
    struct bp_reader reader = {.pointer = "/r"}, full = {.pointer = ""};
    for (size_t ascii = 0; ascii < 3; ascii++) {
        memset(key, 'k', ascii);
        for (size_t i = ascii; i + 2 < sizeof key; i += 2)
            memcpy(key + i, "\xc3\xa9\0", 3);
        bp_reader_pointer(&reader, key, pointer);
        const size_t n = strlen(pointer);
        ck_assert_uint_lt(n, BP_POINTER_MAX);
        for (size_t i = 0; i < n;) {
            uint32_t point;
            const size_t len = bp_utf8_decode((const unsigned char *)pointer + i, n - i, &point);
            ck_assert_uint_gt(len, 0);
            i += len;
        }
    }
    memset(key, '~', sizeof key - 1);
    key[sizeof key - 1] = '\0';
    bp_reader_pointer(&full, key, full.pointer);
    ck_assert_uint_lt(strlen(full.pointer), BP_POINTER_MAX);
    struct bp_reader deeper = full;
    bp_reader_pointer(&full, key, deeper.pointer);
    ck_assert_uint_lt(strlen(deeper.pointer), BP_POINTER_MAX);
}
END_TEST

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

Suite *suite_json(void)
{
    Suite *suite = suite_create("json");
    TCase *parse = tcase_create("parse"), *reader = tcase_create("reader");
    tcase_add_loop_test(parse, test_json__text_that_does_not_parse_is_named_with_its_place, 0, COUNT(refused));
    tcase_add_test(parse, test_json__a_nul_byte_is_not_json);
    tcase_add_test(parse, test_json__a_number_that_no_type_holds_is_out_of_range_where_it_is_read);
    tcase_add_loop_test(parse, test_json__any_one_value_is_read, 0, COUNT(accepted));
    tcase_add_test(parse, test_json__sixty_four_levels_are_read_and_sixty_five_are_not);
    tcase_add_test(parse, test_json__a_hundred_thousand_brackets_are_refused_at_once);
    tcase_add_test(parse, test_json__a_request_has_a_bounded_number_of_values);
    tcase_add_test(parse, test_json__brackets_in_strings_are_no_levels);
    tcase_add_test(parse, test_json__want_of_memory_is_no_syntax_error);
    tcase_add_test(parse, test_json__want_of_memory_loses_no_character);
    tcase_add_test(parse, test_json__the_time_grows_with_the_text_and_not_with_its_square);
    tcase_add_test(parse, test_json__a_copy_without_memory_is_none);
    suite_add_tcase(suite, parse);
    tcase_add_checked_fixture(reader, NULL, release);
    tcase_add_test(reader, test_reader__what_is_right_is_read);
    tcase_add_test(reader, test_reader__what_is_absent_takes_its_fallback);
    tcase_add_test(reader, test_reader__what_is_required_and_absent_is_named);
    tcase_add_test(reader, test_reader__wrong_types_and_ranges_are_named_and_take_the_fallback);
    tcase_add_test(reader, test_reader__unknown_keys_are_named_by_escaped_pointers);
    tcase_add_test(reader, test_reader__a_value_that_is_no_object_is_named_once);
    tcase_add_test(reader, test_reader__long_pointers_are_cut_between_characters);
    suite_add_tcase(suite, reader);
    return suite;
}
