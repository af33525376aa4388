/* common/base without the writer: errors, arena, buffer, exact arithmetic, digests. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/digest.h"
#include "common/base/err.h"
#include "common/base/u128.h"
#include "tests/lib/fault_alloc.h"

#define U128_MAX (~(bp_u128)0)

START_TEST(test_err__the_first_error_wins)
{
    struct bp_err err = {0};
    ck_assert_int_eq(bp_fail(&err, BP_E_not_found, "/a", "no %s", "plan"), -1);
    ck_assert_int_eq(bp_fail(&err, BP_E_internal, "/b", "later"), -1);
    ck_assert_int_eq(err.code, BP_E_not_found);
    ck_assert_str_eq(err.path, "/a");
    ck_assert_str_eq(err.message, "no plan");
    ck_assert_int_eq(bp_fail(NULL, BP_E_internal, "", "nobody asks"), -1);
}
END_TEST

START_TEST(test_err__a_prefix_goes_before_what_was_said)
{
    struct bp_err err = {0}, none = {0};
    bp_fail(&err, BP_E_not_found, "", "no plan");
    ck_assert_int_eq(bp_err_prefix(&err, "stage %d", 2), -1);
    ck_assert_str_eq(err.message, "stage 2: no plan");
    bp_err_prefix(&none, "stage");
    ck_assert_str_eq(none.message, "");
    ck_assert_int_eq(bp_err_prefix(NULL, "stage"), -1);
}
END_TEST

START_TEST(test_err__a_prefix_never_runs_past_the_message)
{
    struct bp_err err = {0};
    char longest[sizeof err.message];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    bp_fail(&err, BP_E_internal, "", "%s", longest);
    bp_err_prefix(&err, "before");
    ck_assert_uint_eq(strlen(err.message), sizeof err.message - 1);
    ck_assert(strncmp(err.message, "before: xxx", 11) == 0);
    bp_err_prefix(&err, "%s", longest);
    ck_assert_uint_eq(strlen(err.message), sizeof err.message - 1);
    ck_assert_int_eq(err.message[0], 'x');
}
END_TEST

START_TEST(test_err__the_table_answers_for_every_code)
{
#define BP_ERRCODE(number, name, kind, status, title)                                                                  \
    ck_assert_int_eq(BP_E_##name, number);                                                                             \
    ck_assert_str_eq(bp_code_name(BP_E_##name), #name);                                                                \
    ck_assert_int_eq((int)bp_code_kind(BP_E_##name), (int)BP_KIND_##kind);                                             \
    ck_assert_int_eq(bp_code_status(BP_E_##name), status);                                                             \
    ck_assert_str_eq(bp_code_title(BP_E_##name), title);
#include "common/base/errcode.def"
#undef BP_ERRCODE
    ck_assert_str_eq(bp_code_name((enum bp_code)9999), "internal");
}
END_TEST

START_TEST(test_problems__the_list_is_bounded_and_counts_what_it_drops)
{
    struct bp_problems problems = {0};
    ck_assert(bp_problems_none(&problems));
    for (int i = 0; i < BP_PROBLEMS_MAX + 3; i++)
        bp_problems_add(&problems, BP_E_wrong_type, "/a", "problem %d", i);
    ck_assert_uint_eq(problems.n, BP_PROBLEMS_MAX);
    ck_assert_uint_eq(problems.n_dropped, 3);
    ck_assert_str_eq(problems.at[255].message, "problem 255");
    ck_assert(!bp_problems_none(&problems));
    bp_problems_release(&problems);
    ck_assert(bp_problems_none(&problems));
}
END_TEST

START_TEST(test_problems__lost_for_want_of_memory_is_not_none)
{
    struct bp_problems problems = {0};
    bp_fault_alloc_after(0);
    bp_problems_add(&problems, BP_E_wrong_type, "", "lost");
    if (!bp_fault_alloc_off())
        return bp_problems_release(&problems);
    ck_assert_uint_eq(problems.n, 0);
    ck_assert(problems.out_of_memory);
    ck_assert(!bp_problems_none(&problems));
    bp_problems_release(&problems);
}
END_TEST

START_TEST(test_arena__memory_is_zeroed_aligned_and_apart)
{
    struct bp_arena arena = {0};
    unsigned char *last = NULL;
    for (size_t n = 0; n < 3000; n += 7) {
        unsigned char *memory = bp_arena_array(&arena, n, 3);
        ck_assert_ptr_nonnull(memory);
        ck_assert_uint_eq((uintptr_t)memory % _Alignof(max_align_t), 0);
        unsigned char any = 0;
        for (size_t i = 0; i < 3 * n; i++)
            any |= memory[i];
        ck_assert_int_eq(any, 0);
        if (n > 7)
            ck_assert(memory != last);
        memset(memory, 0xee, 3 * n);
        last = memory;
    }
    ck_assert_uint_ge(arena.used, 3 * 2996);
    bp_arena_release(&arena);
    ck_assert_ptr_null(arena.chunks);
    ck_assert_uint_eq(arena.used, 0);
}
END_TEST

START_TEST(test_arena__larger_than_a_chunk_is_served_and_absurd_sizes_are_not)
{
    struct bp_arena arena = {0};
    char *memory = bp_arena_array(&arena, 1, 1 << 20);
    ck_assert_ptr_nonnull(memory);
    memory[(1 << 20) - 1] = 'x';
    ck_assert_ptr_null(bp_arena_array(&arena, SIZE_MAX / 2, 3));
    ck_assert_ptr_null(bp_arena_array(&arena, SIZE_MAX - 20, 1));
    bp_arena_release(&arena);
}
END_TEST

START_TEST(test_arena__texts_are_copied_and_printed)
{
    struct bp_arena arena = {0};
    ck_assert_str_eq(bp_arena_strndup(&arena, "abcdef", 3), "abc");
    ck_assert_str_eq(bp_arena_printf(&arena, "%s-%d", "row", 7), "row-7");
    bp_arena_release(&arena);
    bp_fault_alloc_after(0);
    const char *copy = bp_arena_strndup(&arena, "abc", 3), *print = bp_arena_printf(&arena, "%d", 7);
    if (bp_fault_alloc_off()) {
        ck_assert_ptr_null(copy);
        ck_assert_ptr_null(print);
    }
    bp_arena_release(&arena);
}
END_TEST

START_TEST(test_buf__holds_what_was_added)
{
    struct bp_buf buf = {0};
    bp_buf_add(&buf, "ab\0c", 4);
    bp_buf_addstr(&buf, "def");
    bp_buf_addch(&buf, '!');
    bp_buf_addu(&buf, U128_MAX);
    bp_buf_addf(&buf, "[%s %d]", "x", -5);
    static const char expected[] = "ab\0cdef!340282366920938463463374607431768211455[x -5]";
    ck_assert_uint_eq(buf.len, sizeof expected - 1);
    ck_assert_mem_eq(bp_buf_string(&buf), expected, sizeof expected);
    bp_buf_clear(&buf);
    ck_assert_str_eq(bp_buf_string(&buf), "");
    bp_buf_release(&buf);
}
END_TEST

START_TEST(test_buf__grows_past_any_start)
{
    struct bp_buf buf = {0};
    for (int i = 0; i < 5000; i++)
        bp_buf_addf(&buf, "%04d", i);
    ck_assert_uint_eq(buf.len, 20000);
    ck_assert_mem_eq(buf.data + 4 * 4321, "4321", 4);
    bp_buf_release(&buf);
}
END_TEST

START_TEST(test_buf__memory_is_handed_over_once)
{
    struct bp_buf buf = {0};
    size_t n = 0;
    ck_assert_ptr_null(bp_buf_detach(&buf, &n));
    bp_buf_addstr(&buf, "text");
    char *text = bp_buf_detach(&buf, &n);
    ck_assert_uint_eq(n, 4);
    ck_assert_mem_eq(text, "text", 4);
    ck_assert_ptr_null(buf.data);
    free(text);
}
END_TEST

START_TEST(test_buf__failure_sticks_until_cleared)
{
    struct bp_buf buf = {0};
    size_t n = 7;
    bp_buf_addstr(&buf, "before");
    ck_assert(!bp_buf_reserve(&buf, SIZE_MAX / 2));
    ck_assert(buf.failed);
    bp_buf_addstr(&buf, "after");
    bp_buf_addf(&buf, "%d", 1);
    ck_assert_str_eq(bp_buf_string(&buf), "");
    bp_buf_clear(&buf);
    bp_buf_addstr(&buf, "again");
    ck_assert_str_eq(bp_buf_string(&buf), "again");
    ck_assert(!bp_buf_reserve(&buf, SIZE_MAX));
    ck_assert_ptr_null(bp_buf_detach(&buf, &n));
    ck_assert_uint_eq(n, 7);
}
END_TEST

START_TEST(test_buf__want_of_memory_is_a_failure)
{
    struct bp_buf buf = {0};
    bp_fault_alloc_after(0);
    bp_buf_addstr(&buf, "text");
    if (bp_fault_alloc_off()) {
        ck_assert(buf.failed);
        ck_assert_uint_eq(buf.len, 0);
    }
    bp_buf_release(&buf);
}
END_TEST

START_TEST(test_u128__arithmetic_is_exact_to_the_limits)
{
    struct bp_calc calc = {0};
    ck_assert(bp_add(&calc, U128_MAX - 1, 1) == U128_MAX);
    ck_assert(bp_sub(&calc, U128_MAX, U128_MAX) == 0);
    ck_assert(bp_mul(&calc, (bp_u128)1 << 64, ((bp_u128)1 << 64) - 1) == U128_MAX - ((bp_u128)1 << 64) + 1);
    ck_assert(bp_div(&calc, U128_MAX - 1, 2) == U128_MAX / 2);
    ck_assert(bp_div_ceil(&calc, 7, 2) == 4);
    ck_assert(bp_div_ceil(&calc, 8, 2) == 4);
    ck_assert(bp_div_ceil(&calc, U128_MAX, 2) == U128_MAX / 2 + 1);
    ck_assert(BP_PROD(&calc, 2, 3, 5, 7) == 210);
    ck_assert(BP_SUM(&calc, 2, 3, 5, 7) == 17);
    ck_assert(bp_product(&calc, NULL, 0) == 1);
    ck_assert(bp_calc_ok(&calc));
    ck_assert_int_eq(bp_calc_check(&calc, "", "it", NULL), 0);
}
END_TEST

START_TEST(test_u128__every_overflow_is_remembered)
{
    for (int step = 0; step < 6; step++) {
        struct bp_calc calc = {0};
        struct bp_err err = {0};
        switch (step) {
        case 0:
            bp_add(&calc, U128_MAX, 1);
            break;
        case 1:
            bp_sub(&calc, 1, 2);
            break;
        case 2:
            bp_mul(&calc, (bp_u128)1 << 64, (bp_u128)1 << 64);
            break;
        case 3:
            ck_assert_uint_eq(bp_bytes(&calc, (bp_u128)BP_JSON_INT_MAX + 1).n, 0);
            break;
        case 4:
            bp_bytes_add(&calc, (struct bp_bytes){BP_JSON_INT_MAX}, (struct bp_bytes){1});
            break;
        default:
            bp_ops_add(&calc, (struct bp_ops){U128_MAX}, (struct bp_ops){U128_MAX});
        }
        bp_add(&calc, 1, 1);
        ck_assert_msg(calc.overflow && !calc.inexact && !bp_calc_ok(&calc), "step %d", step);
        ck_assert_int_eq(bp_calc_check(&calc, "/a", "the size", &err), -1);
        ck_assert_int_eq(err.code, BP_E_quantity_overflow);
        ck_assert_str_eq(err.path, "/a");
        ck_assert_ptr_nonnull(strstr(err.message, "the size"));
    }
}
END_TEST

START_TEST(test_u128__an_uneven_division_is_remembered)
{
    struct bp_calc by_three = {0}, by_zero = {0}, ceiling = {0};
    struct bp_err err = {0};
    ck_assert(bp_div(&by_three, 7, 3) == 0);
    ck_assert(bp_div(&by_zero, 7, 0) == 0);
    ck_assert(bp_div_ceil(&ceiling, 7, 0) == 0);
    ck_assert(by_three.inexact && by_zero.inexact && ceiling.inexact);
    ck_assert_int_eq(bp_calc_check(&by_three, "", "it", &err), -1);
    ck_assert_int_eq(err.code, BP_E_internal);
}
END_TEST

START_TEST(test_u128__the_largest_byte_count_is_2_53_minus_1)
{
    struct bp_calc calc = {0};
    ck_assert_uint_eq(bp_bytes(&calc, BP_JSON_INT_MAX).n, UINT64_C(9007199254740991));
    ck_assert(bp_calc_ok(&calc));
}
END_TEST

static const struct {
    const char *text;
    uint64_t high, low;
} decimals[] = {
    {"0", 0, 0},
    {"1", 0, 1},
    {"9", 0, 9},
    {"10", 0, 10},
    {"99", 0, 99},
    {"100", 0, 100},
    {"105", 0, 105},
    {"1000", 0, 1000},
    {"9007199254740991", 0, UINT64_C(9007199254740991)},
    {"9999999999999999", 0, UINT64_C(9999999999999999)},
    {"10000000000000000", 0, UINT64_C(10000000000000000)},
    {"10000000000000000000", 0, UINT64_C(10000000000000000000)},
    {"18446744073709551615", 0, UINT64_MAX},
    {"18446744073709551616", 1, 0},
    {"184467440737095516150000000000000000000", UINT64_C(0x8ac7230489e7ffff), UINT64_C(0x7538dcfb76180000)},
    {"340282366920938463463374607431768211455", UINT64_MAX, UINT64_MAX},
};

START_TEST(test_u128__decimals_are_written_and_read_back)
{
    char text[BP_U128_TEXT];
    bp_u128 value = (bp_u128)decimals[_i].high << 64 | decimals[_i].low, back = 0;
    ck_assert_uint_eq(bp_u128_format(value, text), strlen(decimals[_i].text));
    ck_assert_str_eq(text, decimals[_i].text);
    ck_assert(bp_u128_parse(text, &back));
    ck_assert(back == value);
}
END_TEST

START_TEST(test_u128__every_count_of_digits_comes_back)
{
    bp_u128 value = 1;
    for (size_t n = 1; n <= 39; n++, value *= 10) {
        char text[BP_U128_TEXT];
        bp_u128 back = 0;
        ck_assert_uint_eq(bp_u128_format(value, text), n);
        ck_assert(bp_u128_parse(text, &back) && back == value);
        ck_assert_uint_eq(bp_u128_format(value - 1, text), n == 1 ? 1 : n - 1);
        ck_assert(bp_u128_parse(text, &back) && back == value - 1);
    }
}
END_TEST

static const char *const not_decimals[] = {"",
                                           "00",
                                           "01",
                                           "-1",
                                           "+1",
                                           " 1",
                                           "1 ",
                                           "1.0",
                                           "1e3",
                                           "0x1",
                                           "a",
                                           "340282366920938463463374607431768211456",
                                           "999999999999999999999999999999999999999999"};

START_TEST(test_u128__other_than_plain_decimals_is_not_read)
{
    bp_u128 value = 42;
    ck_assert_msg(!bp_u128_parse(not_decimals[_i], &value), "%s", not_decimals[_i]);
    ck_assert(value == 42);
}
END_TEST

START_TEST(test_digest__is_the_published_sha_256)
{
    static const struct {
        const char *text, *digest;
    } vectors[] = {
        {"", "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "sha256:248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        struct bp_digest digest, back;
        char text[BP_DIGEST_TEXT];
        bp_digest_of(vectors[i].text, strlen(vectors[i].text), &digest);
        bp_digest_format(&digest, text);
        ck_assert_str_eq(text, vectors[i].digest);
        ck_assert(bp_digest_parse(text, &back));
        ck_assert(bp_digest_equal(&digest, &back));
        back.bytes[31] ^= 1;
        ck_assert(!bp_digest_equal(&digest, &back));
    }
}
END_TEST

static const char *const not_digests[] = {
    "",
    "sha256:",
    "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015a",
    "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad0",
    "sha256:BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    "sha256:ga7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    "sha255:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
};

START_TEST(test_digest__other_texts_are_not_read)
{
    struct bp_digest digest;
    memset(&digest, 0x5a, sizeof digest);
    ck_assert_msg(!bp_digest_parse(not_digests[_i], &digest), "%s", not_digests[_i]);
    ck_assert_int_eq(digest.bytes[0], 0x5a);
}
END_TEST

START_TEST(test_hex__every_byte_goes_there_and_back)
{
    uint8_t bytes[256], back[256];
    char text[2 * sizeof bytes + 1];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)i;
    bp_hex(bytes, sizeof bytes, text);
    ck_assert_uint_eq(strlen(text), 2 * sizeof bytes);
    ck_assert(strncmp(text, "000102", 6) == 0 && strcmp(text + 508, "feff") == 0);
    ck_assert(bp_unhex(text, back, sizeof back));
    ck_assert_mem_eq(bytes, back, sizeof bytes);
    ck_assert(!bp_unhex("abc", back, 1));
    ck_assert(!bp_unhex("a", back, 1));
    ck_assert(!bp_unhex("", back, 1));
}
END_TEST

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

static TCase *arithmetic(void)
{
    TCase *tcase = tcase_create("arithmetic");
    tcase_add_test(tcase, test_u128__arithmetic_is_exact_to_the_limits);
    tcase_add_test(tcase, test_u128__every_overflow_is_remembered);
    tcase_add_test(tcase, test_u128__an_uneven_division_is_remembered);
    tcase_add_test(tcase, test_u128__the_largest_byte_count_is_2_53_minus_1);
    tcase_add_loop_test(tcase, test_u128__decimals_are_written_and_read_back, 0, COUNT(decimals));
    tcase_add_test(tcase, test_u128__every_count_of_digits_comes_back);
    tcase_add_loop_test(tcase, test_u128__other_than_plain_decimals_is_not_read, 0, COUNT(not_decimals));
    tcase_add_test(tcase, test_digest__is_the_published_sha_256);
    tcase_add_loop_test(tcase, test_digest__other_texts_are_not_read, 0, COUNT(not_digests));
    tcase_add_test(tcase, test_hex__every_byte_goes_there_and_back);
    return tcase;
}

Suite *suite_base(void)
{
    Suite *suite = suite_create("base");
    TCase *tcase = tcase_create("memory and errors");
    tcase_add_test(tcase, test_err__the_first_error_wins);
    tcase_add_test(tcase, test_err__a_prefix_goes_before_what_was_said);
    tcase_add_test(tcase, test_err__a_prefix_never_runs_past_the_message);
    tcase_add_test(tcase, test_err__the_table_answers_for_every_code);
    tcase_add_test(tcase, test_problems__the_list_is_bounded_and_counts_what_it_drops);
    tcase_add_test(tcase, test_problems__lost_for_want_of_memory_is_not_none);
    tcase_add_test(tcase, test_arena__memory_is_zeroed_aligned_and_apart);
    tcase_add_test(tcase, test_arena__larger_than_a_chunk_is_served_and_absurd_sizes_are_not);
    tcase_add_test(tcase, test_arena__texts_are_copied_and_printed);
    tcase_add_test(tcase, test_buf__holds_what_was_added);
    tcase_add_test(tcase, test_buf__grows_past_any_start);
    tcase_add_test(tcase, test_buf__memory_is_handed_over_once);
    tcase_add_test(tcase, test_buf__failure_sticks_until_cleared);
    tcase_add_test(tcase, test_buf__want_of_memory_is_a_failure);
    suite_add_tcase(suite, tcase);
    suite_add_tcase(suite, arithmetic());
    return suite;
}
