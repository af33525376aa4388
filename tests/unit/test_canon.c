/* The RFC 8785 writer. The vectors are the RFC's own and those of its published test suite, as far as they have no
 * floats: a value is written by the calls a caller would make, so order is the caller's and the writer's to check. */
#include <check.h>
#include <string.h>

#include "common/base/canon.h"
#include "tests/lib/fault_alloc.h"

static struct bp_buf out;
static struct bp_writer writer;

static void begin(void)
{
    writer = (struct bp_writer){.out = &out};
}

static void release(void)
{
    bp_buf_release(&out);
}

static const char *finished(void)
{
    struct bp_err err = {0};
    ck_assert_msg(bp_writer_finish(&writer, &err) == 0, "%s", err.message);
    return bp_buf_string(&out);
}

static void assert_breach(const char *what)
{
    struct bp_err err = {0};
    ck_assert_int_eq(bp_writer_finish(&writer, &err), -1);
    ck_assert_int_eq(err.code, BP_E_internal);
    ck_assert_msg(strstr(err.message, what) != NULL, "%s", err.message);
}

static const struct {
    uint64_t value;
    const char *text;
} integers[] = {
    {0, "0"},
    {1, "1"},
    {10, "10"},
    {4294967296, "4294967296"},
    {UINT64_C(9007199254740990), "9007199254740990"},
    {UINT64_C(9007199254740991), "9007199254740991"},
};

START_TEST(test_canon__integers_are_plain_decimals_to_2_53_minus_1)
{
    bp_writer_uint(&writer, integers[_i].value);
    ck_assert_str_eq(finished(), integers[_i].text);
}
END_TEST

START_TEST(test_canon__an_integer_past_2_53_minus_1_is_a_breach)
{
    bp_writer_uint(&writer, UINT64_C(9007199254740992));
    assert_breach("2^53");
}
END_TEST

static const struct {
    const char *text, *json;
} strings[] = {
    {"", "\"\""},
    {"plain", "\"plain\""},
    {"1234567", "\"1234567\""},
    {"12345678", "\"12345678\""},
    {"123456789", "\"123456789\""},
    /* RFC 8785, 3.2.2: the sample's string */
    {"\xe2\x82\xac$\x0f\nA'B\"\\\\\"/", "\"\xe2\x82\xac$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\""},
    {"\b\t\n\f\r", "\"\\b\\t\\n\\f\\r\""},
    {"\x01\x07\x0b\x0e\x1f", "\"\\u0001\\u0007\\u000b\\u000e\\u001f\""},
    {"\x7f", "\"\x7f\""},
    {"</script>", "\"</script>\""},
    {"\xc2\x80", "\"\xc2\x80\""},                 /* "Control\u007f" sorts beside it: no escape past U+001F */
    {"\xc3\xb6", "\"\xc3\xb6\""},                 /* o with diaeresis */
    {"\xef\xac\xb3", "\"\xef\xac\xb3\""},         /* U+FB33 */
    {"\xf0\x9f\x98\x80", "\"\xf0\x9f\x98\x80\""}, /* U+1F600 */
    {"\xf4\x8f\xbf\xbf", "\"\xf4\x8f\xbf\xbf\""}, /* U+10FFFF */
    {"A\xcc\x8a", "\"A\xcc\x8a\""},               /* not normalised to U+00C5 */
    {"abcdefgh\"", "\"abcdefgh\\\"\""},
    {"abcdefg\nijklmnop", "\"abcdefg\\nijklmnop\""},
    {"abcdefg\xc3\xa9ijklmnop", "\"abcdefg\xc3\xa9ijklmnop\""},
    {"a\"b", "\"a\\\"b\""},
    {"abc\\", "\"abc\\\\\""},
    {"abcd\x1f", "\"abcd\\u001f\""},
};

START_TEST(test_canon__strings_are_escaped_as_the_scheme_says)
{
    bp_writer_string(&writer, strings[_i].text);
    ck_assert_str_eq(finished(), strings[_i].json);
}
END_TEST

/* Words are looked at eight bytes at a time: an odd byte must be seen wherever it stands. */
START_TEST(test_canon__an_odd_byte_is_seen_at_every_place)
{
    static const struct {
        char byte;
        const char *escape;
    } odd[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\n', "\\n"}, {0x1f, "\\u001f"}, {0x00, "\\u0000"}};
    for (size_t n = 1; n < 20; n++) {
        for (size_t at = 0; at < n; at++) {
            for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
                char text[24], expected[48] = "\"";
                memset(text, 0x20 + (int)(at % 2) * 0x5e, sizeof text); /* the ends of the plain range */
                text[at] = odd[i].byte;
                memcpy(expected + 1, text, at);
                strcpy(expected + 1 + at, odd[i].escape);
                const size_t head = strlen(expected);
                memcpy(expected + head, text + at + 1, n - at - 1);
                strcpy(expected + head + n - at - 1, "\"");
                begin();
                bp_buf_clear(&out);
                bp_writer_stringn(&writer, text, n);
                ck_assert_str_eq(finished(), expected);
            }
        }
    }
}
END_TEST

START_TEST(test_canon__a_nul_within_a_counted_string_is_escaped)
{
    bp_writer_stringn(&writer, "a\0b", 3);
    ck_assert_str_eq(finished(), "\"a\\u0000b\"");
}
END_TEST

static const char *const not_utf8[] = {
    "\x80",
    "\xc3",
    "\xc0\x80",
    "\xc1\xbf",
    "\xe0\x80\x80",
    "\xe2\x82",
    "\xed\xa0\x80",
    "\xed\xbf\xbf",
    "\xf0\x80\x80\x80",
    "\xf4\x90\x80\x80",
    "\xf8\x88\x80\x80\x80",
    "\xff",
    "abcdefgh\xff",
    "abc\xe2\x28\xa1",
};

START_TEST(test_canon__strings_and_keys_that_are_not_utf8_are_a_breach)
{
    bp_writer_string(&writer, not_utf8[_i]);
    assert_breach("UTF-8");
    begin();
    bp_writer_object(&writer);
    bp_writer_key(&writer, not_utf8[_i]);
    bp_writer_null(&writer);
    bp_writer_end(&writer);
    assert_breach("UTF-8");
}
END_TEST

static void write_keys(const char *const *keys, size_t n)
{
    bp_writer_object(&writer);
    for (size_t i = 0; i < n; i++) {
        bp_writer_key(&writer, keys[i]);
        bp_writer_uint(&writer, i);
    }
    bp_writer_end(&writer);
}

/* RFC 8785, 3.2.3: the sample's keys in the order it gives: by UTF-16 code units, so that U+1F600, whose first unit is
 * a surrogate, comes before U+FB33. */
static const char *const sample_keys[] = {
    "\r", "1", "\xc2\x80", "\xc3\xb6", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xef\xac\xb3"};
enum { SAMPLE_KEYS = sizeof sample_keys / sizeof *sample_keys };

START_TEST(test_canon__keys_come_by_utf_16_code_units)
{
    write_keys(sample_keys, SAMPLE_KEYS);
    ck_assert_str_eq(finished(), "{\"\\r\":0,\"1\":1,\"\xc2\x80\":2,\"\xc3\xb6\":3,\"\xe2\x82\xac\":4,"
                                 "\"\xf0\x9f\x98\x80\":5,\"\xef\xac\xb3\":6}");
}
END_TEST

static const char *const ordered[] = {
    "", "\x01", "A", "Aa", "a", "aa", "aaa", "ab", "b", "\xc2\x80", "a\xc2\x80", "a\xc3\xa9", "\xee\x80\x80",
};

START_TEST(test_canon__any_other_order_of_keys_is_a_breach)
{
    /* Every pair of the sample, and of keys that are one another's beginning, the wrong way round and twice. */
    for (size_t i = 0; i < SAMPLE_KEYS; i++) {
        for (size_t j = 0; j < SAMPLE_KEYS; j++) {
            const char *const pair[] = {sample_keys[i], sample_keys[j]};
            begin();
            bp_buf_clear(&out);
            write_keys(pair, 2);
            if (i < j)
                finished();
            else
                assert_breach("order");
        }
    }
    for (size_t i = 0; i + 4 < sizeof ordered / sizeof *ordered; i++) {
        const char *const wrong[] = {ordered[i + 1], ordered[i]}, *const right[] = {ordered[i], ordered[i + 1]};
        begin();
        bp_buf_clear(&out);
        write_keys(right, 2);
        finished();
        begin();
        bp_buf_clear(&out);
        write_keys(wrong, 2);
        assert_breach("order");
    }
}
END_TEST

START_TEST(test_canon__supplementary_keys_of_one_high_surrogate_go_by_the_low_one)
{
    const char *const keys[] = {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x81", "\xf0\x9f\x98\x81x"}; /* U+1F600, U+1F601 */
    const char *const wrong[] = {keys[1], keys[0]};
    write_keys(keys, 3);
    finished();
    begin();
    bp_buf_clear(&out);
    write_keys(wrong, 2);
    assert_breach("order");
}
END_TEST

START_TEST(test_canon__a_member_is_its_key_and_its_value)
{
    begin();
    bp_writer_object(&writer);
    bp_writer_put_uint(&writer, "a", 7);
    bp_writer_put_bool(&writer, "b", true);
    bp_writer_put_string(&writer, "c", "text");
    bp_writer_put_string(&writer, "d", NULL);
    bp_writer_end(&writer);
    ck_assert_str_eq(finished(), "{\"a\":7,\"b\":true,\"c\":\"text\",\"d\":null}");
}
END_TEST

START_TEST(test_canon__a_member_out_of_order_is_a_breach)
{
    begin();
    bp_writer_object(&writer);
    bp_writer_put_uint(&writer, "b", 7);
    bp_writer_put_string(&writer, "a", "text");
    bp_writer_end(&writer);
    assert_breach("order");
}
END_TEST

START_TEST(test_canon__order_is_the_callers_when_it_says_so)
{
    writer.any_order = true;
    write_keys((const char *const[]){"b", "a"}, 2);
    ck_assert_str_eq(finished(), "{\"b\":0,\"a\":1}");
}
END_TEST

START_TEST(test_canon__values_of_every_kind_nest)
{
    struct bp_digest digest;
    bp_digest_of("abc", 3, &digest);
    bp_writer_object(&writer);
    bp_writer_key(&writer, "array");
    bp_writer_array(&writer);
    bp_writer_array(&writer);
    bp_writer_end(&writer);
    bp_writer_object(&writer);
    bp_writer_end(&writer);
    bp_writer_null(&writer);
    bp_writer_bool(&writer, true);
    bp_writer_bool(&writer, false);
    bp_writer_end(&writer);
    bp_writer_key(&writer, "decimal");
    bp_writer_decimal(&writer, ~(bp_u128)0);
    bp_writer_key(&writer, "digest");
    bp_writer_digest(&writer, &digest);
    bp_writer_key(&writer, "raw");
    bp_writer_raw(&writer, "[1]", 3);
    bp_writer_key(&writer, "room");
    char *to = bp_writer_room(&writer, 2);
    memcpy(to, "{}", 2);
    bp_writer_take(&writer, to + 2);
    bp_writer_end(&writer);
    ck_assert_str_eq(finished(), "{\"array\":[[],{},null,true,false],"
                                 "\"decimal\":\"340282366920938463463374607431768211455\",\"digest\":"
                                 "\"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\","
                                 "\"raw\":[1],\"room\":{}}");
}
END_TEST

START_TEST(test_canon__shapes_write_what_keys_write)
{
    struct bp_shape shape = {0};
    bp_shape_key(&shape, "a");
    bp_shape_key(&shape, "b\"\xc3\xa9");
    bp_shape_key(&shape, "c");
    bp_writer_array(&writer);
    for (unsigned i = 0; i < 2; i++) {
        bp_writer_shaped(&writer, &shape);
        bp_writer_uint(&writer, i);
        bp_writer_object(&writer);
        bp_writer_key(&writer, "z");
        bp_writer_null(&writer);
        bp_writer_end(&writer);
        bp_writer_string(&writer, "x");
        bp_writer_end(&writer);
    }
    bp_writer_end(&writer);
    ck_assert_str_eq(finished(), "[{\"a\":0,\"b\\\"\xc3\xa9\":{\"z\":null},\"c\":\"x\"},"
                                 "{\"a\":1,\"b\\\"\xc3\xa9\":{\"z\":null},\"c\":\"x\"}]");
}
END_TEST

START_TEST(test_canon__shapes_are_held_to_the_same_rules)
{
    struct bp_shape unordered = {0}, long_key = {0}, many = {0}, wrong = {0};
    bp_shape_key(&unordered, "b");
    bp_shape_key(&unordered, "a");
    bp_shape_key(&long_key, "a_key_that_is_longer_than_any_of_ours");
    bp_shape_key(&wrong, "\xff");
    for (char key[] = "a"; key[0] < 'a' + BP_SHAPE_KEYS_MAX + 1; key[0]++)
        bp_shape_key(&many, strdupa(key));
    const struct bp_shape *const shapes[] = {&unordered, &long_key, &wrong, &many};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        begin();
        bp_buf_clear(&out);
        bp_writer_shaped(&writer, shapes[i]);
        for (unsigned k = 0; k < shapes[i]->n; k++)
            bp_writer_uint(&writer, k);
        bp_writer_end(&writer);
        assert_breach(i == 0 ? "order" : "no shape holds");
    }
}
END_TEST

START_TEST(test_canon__a_shape_takes_a_value_a_key_no_more_no_less)
{
    struct bp_shape shape = {0};
    bp_shape_key(&shape, "a");
    bp_shape_key(&shape, "b");
    for (unsigned n = 0; n < 4; n++) {
        begin();
        bp_buf_clear(&out);
        bp_writer_shaped(&writer, &shape);
        for (unsigned i = 0; i < n; i++)
            bp_writer_uint(&writer, i);
        bp_writer_end(&writer);
        if (n == 2)
            finished();
        else
            assert_breach("last key");
    }
    begin();
    bp_writer_shaped(&writer, &shape);
    bp_writer_key(&writer, "a");
    assert_breach("a key outside an object");
}
END_TEST

static void no_key(void)
{
    bp_writer_object(&writer);
    bp_writer_uint(&writer, 1);
    bp_writer_end(&writer);
}
static void two_keys(void)
{
    bp_writer_object(&writer);
    bp_writer_key(&writer, "a");
    bp_writer_key(&writer, "b");
}
static void key_in_array(void)
{
    bp_writer_array(&writer);
    bp_writer_key(&writer, "a");
}
static void key_outside(void)
{
    bp_writer_key(&writer, "a");
}
static void end_outside(void)
{
    bp_writer_end(&writer);
}
static void end_after_key(void)
{
    bp_writer_object(&writer);
    bp_writer_key(&writer, "a");
    bp_writer_end(&writer);
}
static void two_values(void)
{
    bp_writer_uint(&writer, 1);
    bp_writer_uint(&writer, 2);
}
static void value_after_object(void)
{
    bp_writer_object(&writer);
    bp_writer_end(&writer);
    bp_writer_array(&writer);
    bp_writer_end(&writer);
}
static void left_open(void)
{
    bp_writer_array(&writer);
}
static void nothing(void)
{
}
static void too_deep(void)
{
    for (unsigned i = 0; i < BP_JSON_DEPTH_MAX + 1; i++)
        bp_writer_array(&writer);
    for (unsigned i = 0; i < BP_JSON_DEPTH_MAX + 1; i++)
        bp_writer_end(&writer);
}

static const struct {
    void (*write)(void);
    const char *breach;
} breaches[] = {
    {no_key, "a value without a key"},
    {two_keys, "a key outside an object"},
    {key_in_array, "a key outside an object"},
    {key_outside, "a key outside an object"},
    {end_outside, "an end without a beginning"},
    {end_after_key, "an end without a beginning"},
    {two_values, "a second value"},
    {value_after_object, "a second value"},
    {left_open, "before the end"},
    {nothing, "before the end"},
    {too_deep, "too deep"},
};

START_TEST(test_canon__misuse_is_reported_at_the_end)
{
    breaches[_i].write();
    assert_breach(breaches[_i].breach);
}
END_TEST

START_TEST(test_canon__sixty_four_levels_may_be_open)
{
    for (unsigned i = 0; i < BP_JSON_DEPTH_MAX; i++)
        bp_writer_array(&writer);
    for (unsigned i = 0; i < BP_JSON_DEPTH_MAX; i++)
        bp_writer_end(&writer);
    ck_assert_uint_eq(strlen(finished()), 2 * BP_JSON_DEPTH_MAX);
}
END_TEST

static void write_everything(void)
{
    struct bp_shape shape = {0};
    struct bp_digest digest = {{0}};
    bp_shape_key(&shape, "a");
    bp_writer_array(&writer);
    for (unsigned i = 0; i < 64; i++) {
        bp_writer_shaped(&writer, &shape);
        bp_writer_digest(&writer, &digest);
        bp_writer_end(&writer);
        bp_writer_object(&writer);
        bp_writer_key(&writer, "a");
        bp_writer_uint(&writer, i);
        bp_writer_key(&writer, "b");
        bp_writer_decimal(&writer, i);
        bp_writer_end(&writer);
        bp_writer_null(&writer);
    }
    bp_writer_end(&writer);
}

START_TEST(test_canon__want_of_memory_is_reported_at_the_end)
{
    for (long n = 0;; n++) {
        struct bp_err err = {0};
        bp_buf_release(&out);
        begin();
        bp_fault_alloc_after(n);
        write_everything();
        const int result = bp_writer_finish(&writer, &err);
        if (!bp_fault_alloc_off()) {
            ck_assert_int_eq(result, 0);
            return;
        }
        ck_assert_int_eq(result, -1);
        ck_assert_msg(err.code == BP_E_out_of_memory, "%s", err.message);
    }
}
END_TEST

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

Suite *suite_canon(void)
{
    Suite *suite = suite_create("canon");
    TCase *tcase = tcase_create("canon");
    tcase_add_checked_fixture(tcase, begin, release);
    tcase_add_loop_test(tcase, test_canon__integers_are_plain_decimals_to_2_53_minus_1, 0, COUNT(integers));
    tcase_add_test(tcase, test_canon__an_integer_past_2_53_minus_1_is_a_breach);
    tcase_add_loop_test(tcase, test_canon__strings_are_escaped_as_the_scheme_says, 0, COUNT(strings));
    tcase_add_test(tcase, test_canon__an_odd_byte_is_seen_at_every_place);
    tcase_add_test(tcase, test_canon__a_nul_within_a_counted_string_is_escaped);
    tcase_add_loop_test(tcase, test_canon__strings_and_keys_that_are_not_utf8_are_a_breach, 0, COUNT(not_utf8));
    tcase_add_test(tcase, test_canon__keys_come_by_utf_16_code_units);
    tcase_add_test(tcase, test_canon__any_other_order_of_keys_is_a_breach);
    tcase_add_test(tcase, test_canon__supplementary_keys_of_one_high_surrogate_go_by_the_low_one);
    tcase_add_test(tcase, test_canon__a_member_is_its_key_and_its_value);
    tcase_add_test(tcase, test_canon__a_member_out_of_order_is_a_breach);
    tcase_add_test(tcase, test_canon__order_is_the_callers_when_it_says_so);
    tcase_add_test(tcase, test_canon__values_of_every_kind_nest);
    tcase_add_test(tcase, test_canon__shapes_write_what_keys_write);
    tcase_add_test(tcase, test_canon__shapes_are_held_to_the_same_rules);
    tcase_add_test(tcase, test_canon__a_shape_takes_a_value_a_key_no_more_no_less);
    tcase_add_loop_test(tcase, test_canon__misuse_is_reported_at_the_end, 0, COUNT(breaches));
    tcase_add_test(tcase, test_canon__sixty_four_levels_may_be_open);
    tcase_add_test(tcase, test_canon__want_of_memory_is_reported_at_the_end);
    suite_add_tcase(suite, tcase);
    return suite;
}
