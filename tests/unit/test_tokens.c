/* The file of tokens, scopes, and the making of tokens. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/access/secret.h"
#include "daemon/access/tokens.h"

static struct bp_problems problems;
static struct bp_tokens tokens;
static char file[64];

#define HASH "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER "sha256:0000000000000000000000000000000000000000000000000000000000000001"

static void set_up(void)
{
    problems = (struct bp_problems){0};
    tokens = (struct bp_tokens){0};
    snprintf(file, sizeof file, "/tmp/test-tokens-XXXXXX");
    close(mkstemp(file));
}

static void tear_down(void)
{
    bp_problems_release(&problems);
    bp_tokens_release(&tokens);
    unlink(file);
}

static void parse(const char *text)
{
    bp_problems_release(&problems);
    bp_tokens_release(&tokens);
    bp_tokens_parse("tokens", text, strlen(text), &tokens, &problems);
}

static void write_file(const char *text, mode_t mode)
{
    FILE *out = fopen(file, "w");
    ck_assert_ptr_nonnull(out);
    fputs(text, out);
    fclose(out);
    ck_assert_int_eq(chmod(file, mode), 0);
}

/* Exactly one problem, with the file as its path and these words. */
static void expect_only(const char *path, const char *words)
{
    ck_assert_uint_eq(problems.n, 1);
    ck_assert_int_eq(problems.at[0].code, BP_E_config_invalid);
    ck_assert_str_eq(problems.at[0].path, path);
    ck_assert_msg(strstr(problems.at[0].message, words) != NULL, "\"%s\" has no \"%s\"", problems.at[0].message, words);
    ck_assert_ptr_null(tokens.at);
}

START_TEST(test_tokens__every_word_of_a_line_is_taken)
{
    parse("# name scopes\n\n  \t\nci read " HASH "\r\n"
          "  ops.team-1_x\tadmin,read,plan  rate=90/m concurrency=3 " OTHER);
    ck_assert_msg(bp_problems_none(&problems), "%s", problems.n ? problems.at[0].message : "");
    ck_assert_uint_eq(tokens.n, 2);
    ck_assert_str_eq(tokens.at[0].name, "ci");
    ck_assert_uint_eq(tokens.at[0].scopes, BP_SCOPE_READ);
    ck_assert_uint_eq(tokens.at[0].line, 4);
    ck_assert_uint_eq(tokens.at[0].limits.requests, 0);
    ck_assert_uint_eq(tokens.at[0].limits.at_once, 0);
    ck_assert_uint_eq(tokens.at[0].hash.bytes[0], 0x01);
    ck_assert_uint_eq(tokens.at[0].hash.bytes[31], 0xef);
    ck_assert_str_eq(tokens.at[1].name, "ops.team-1_x");
    ck_assert_uint_eq(tokens.at[1].scopes, BP_SCOPE_READ | BP_SCOPE_PLAN | BP_SCOPE_ADMIN);
    ck_assert_uint_eq(tokens.at[1].limits.requests, 90);
    ck_assert_uint_eq(tokens.at[1].limits.period_ns, UINT64_C(60000000000));
    ck_assert_uint_eq(tokens.at[1].limits.at_once, 3);
}
END_TEST

#define LONG_64 "a234567890123456789012345678901234567890123456789012345678901234"

static const struct {
    const char *line, *words;
} bad_lines[] = {
    {"x", "NAME SCOPES"},
    {"x read", "sha256:HEX is missing"},
    {"x read rate=1/s", "sha256:HEX is missing"},
    {"-x: read " HASH, "a name is"},
    {"x/y read " HASH, "a name is"},
    {"\xc3\xa4 read " HASH, "a name is"},
    {LONG_64 "5 read " HASH, "a name is"},
    {"x write " HASH, "the scopes are"},
    {"x READ " HASH, "the scopes are"},
    {"x read, " HASH, "the scopes are"},
    {"x ,read " HASH, "the scopes are"},
    {"x read,,plan " HASH, "the scopes are"},
    {"x none " HASH, "the scopes are"},
    {"x readplan " HASH, "the scopes are"},
    {"x rea " HASH, "the scopes are"},
    {"x " HASH " read", "the scopes are"},
    {"x read,read " HASH, "a scope is given twice"},
    {"x read sha256:0123", "64 hex digits"},
    {"x read " HASH "0", "64 hex digits"},
    {"x read sha256:0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef", "64 hex digits"},
    {"x read sha256:", "64 hex digits"},
    {"x read sha512:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "a word is none of"},
    {"x read " HASH " # comment", "a word is none of"},
    {"x read " HASH " burst=2", "a word is none of"},
    {"x read " HASH " " OTHER, "a word is given twice"},
    {"x read " HASH " rate=1/s rate=2/s", "a word is given twice"},
    {"x read " HASH " concurrency=1 concurrency=1", "a word is given twice"},
    {"x read " HASH " rate=0/s", "a rate is"},
    {"x read " HASH " rate=1", "a rate is"},
    {"x read " HASH " rate=1/d", "a rate is"},
    {"x read " HASH " rate=1/ss", "a rate is"},
    {"x read " HASH " rate=-1/s", "a rate is"},
    {"x read " HASH " rate=1000001/s", "a rate is"},
    {"x read " HASH " rate=99999999999999999999/s", "a rate is"},
    {"x read " HASH " rate=", "a rate is"},
    {"x read " HASH " concurrency=0", "requests at once"},
    {"x read " HASH " concurrency=1x", "requests at once"},
    {"x read " HASH " concurrency=", "requests at once"},
    {"x read " HASH " concurrency=1000001", "requests at once"},
    {"a b c d e f g h i", "too many words"},
};

START_TEST(test_tokens__a_bad_line_is_named_and_none_is_taken)
{
    char text[512], words[128];
    snprintf(text, sizeof text, "good read " HASH "\n\n%s\n", bad_lines[_i].line);
    /* The good line has the hash as well, which a bad line must not be blamed for first. */
    parse(text);
    snprintf(words, sizeof words, "line 3: ");
    expect_only("tokens", words);
    expect_only("tokens", bad_lines[_i].words);
}
END_TEST

START_TEST(test_tokens__the_longest_name_and_the_largest_limits_are_taken)
{
    parse(LONG_64 " plan concurrency=1000000 rate=1000000/h " HASH);
    ck_assert(bp_problems_none(&problems));
    ck_assert_str_eq(tokens.at[0].name, LONG_64);
}
END_TEST

START_TEST(test_tokens__all_bad_lines_are_named_at_once)
{
    parse("a\nb read " HASH "\nc what " HASH "\n");
    ck_assert_uint_eq(problems.n, 2);
    ck_assert_ptr_nonnull(strstr(problems.at[0].message, "line 1: "));
    ck_assert_ptr_nonnull(strstr(problems.at[1].message, "line 3: "));
    ck_assert_ptr_null(tokens.at);
}
END_TEST

START_TEST(test_tokens__two_lines_of_one_name_or_one_token_are_refused)
{
    parse("a read " HASH "\na read " OTHER);
    expect_only("tokens", "line 2: the name is that of line 1");
    parse("a read " HASH "\nb plan " HASH);
    expect_only("tokens", "line 2: the token is that of line 1");
}
END_TEST

START_TEST(test_tokens__a_file_without_a_token_is_refused)
{
    parse("");
    expect_only("tokens", "names no token");
    parse("# only this\n\n");
    expect_only("tokens", "names no token");
}
END_TEST

START_TEST(test_tokens__nul_and_long_lines_are_refused)
{
    static const char nul[] = "a read\0 " HASH;
    char text[700];
    bp_tokens_parse("tokens", nul, sizeof nul - 1, &tokens, &problems);
    expect_only("tokens", "line 1: it has a NUL");
    memset(text, ' ', sizeof text);
    text[sizeof text - 1] = '\0';
    text[600] = '#';
    parse(text);
    expect_only("tokens", "line 1: it is longer");
}
END_TEST

START_TEST(test_tokens__there_is_a_most)
{
    struct bp_buf text = {0};
    for (unsigned i = 0; i < BP_TOKENS_MAX; i++)
        bp_buf_addf(&text, "t%u read sha256:%064x\n", i, i);
    parse(bp_buf_string(&text));
    ck_assert(bp_problems_none(&problems));
    ck_assert_uint_eq(tokens.n, BP_TOKENS_MAX);
    bp_buf_addf(&text, "one-more read sha256:%064x\n", BP_TOKENS_MAX);
    parse(bp_buf_string(&text));
    expect_only("tokens", "line 1025: there are more than 1024 tokens");
    bp_buf_release(&text);
}
END_TEST

START_TEST(test_tokens__only_the_whole_token_is_found)
{
    char token[BP_TOKEN_TEXT], hash[BP_DIGEST_TEXT], text[256];
    struct bp_digest digest;
    struct bp_err err = {0};
    ck_assert_int_eq(bp_token_make(token, &err), 0);
    bp_digest_of(token, strlen(token), &digest);
    bp_digest_format(&digest, hash);
    snprintf(text, sizeof text, "other read " HASH "\nmine plan %s\n", hash);
    parse(text);
    ck_assert(bp_problems_none(&problems));
    const struct bp_token *found = bp_tokens_find(&tokens, token, strlen(token));
    ck_assert_ptr_eq(found, &tokens.at[1]);
    ck_assert_ptr_null(bp_tokens_find(&tokens, token, strlen(token) - 1));
    ck_assert_ptr_null(bp_tokens_find(&tokens, token, strlen(token) + 1));
    ck_assert_ptr_null(bp_tokens_find(&tokens, "", 0));
    ck_assert_ptr_null(bp_tokens_find(&tokens, hash, strlen(hash)));
    token[10] = (char)(token[10] ^ 1);
    ck_assert_ptr_null(bp_tokens_find(&tokens, token, strlen(token)));
}
END_TEST

START_TEST(test_tokens__no_two_that_are_made_are_the_same)
{
    char a[BP_TOKEN_TEXT], b[BP_TOKEN_TEXT];
    ck_assert_int_eq(bp_token_make(a, NULL), 0);
    ck_assert_int_eq(bp_token_make(b, NULL), 0);
    ck_assert_str_ne(a, b);
    ck_assert_int_eq(strncmp(a, "bp_", 3), 0);
    ck_assert_uint_eq(strspn(a + 3, "0123456789abcdef"), 64);
    ck_assert_uint_eq(strlen(a), 67);
}
END_TEST

START_TEST(test_tokens__permissions_decide_whether_a_file_is_read)
{
    static const struct {
        mode_t mode;
        bool taken;
    } rows[] = {{0600, true},  {0640, true},  {0400, true},  {0440, true},  {0644, false},
                {0604, false}, {0620, false}, {0602, false}, {0660, false}, {0666, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_file("a read " HASH "\n", rows[i].mode);
        bp_problems_release(&problems);
        bp_tokens_release(&tokens);
        bp_tokens_load(file, &tokens, &problems);
        if (rows[i].taken) {
            ck_assert_msg(bp_problems_none(&problems), "%03o", (unsigned)rows[i].mode);
            ck_assert_uint_eq(tokens.n, 1);
        } else {
            expect_only(file, "has mode ");
        }
        chmod(file, 0600);
    }
}
END_TEST

START_TEST(test_tokens__what_is_no_file_of_ours_is_refused)
{
    bp_tokens_load("/nowhere/tokens", &tokens, &problems);
    expect_only("/nowhere/tokens", "cannot be opened");
    bp_problems_release(&problems);
    bp_tokens_load("/tmp", &tokens, &problems);
    expect_only("/tmp", "is not a regular file");
    if (geteuid() != 0)
        return; /* only root can give a file away */
    bp_problems_release(&problems);
    write_file("a read " HASH "\n", 0600);
    ck_assert_int_eq(chown(file, 12345, 0), 0);
    bp_tokens_load(file, &tokens, &problems);
    expect_only(file, "belongs to the user 12345");
}
END_TEST

START_TEST(test_tokens__a_file_that_is_too_large_is_refused)
{
    write_file("", 0600);
    ck_assert_int_eq(truncate(file, (off_t)BP_FILE_MAX + 1), 0);
    bp_tokens_load(file, &tokens, &problems);
    expect_only(file, "is larger than");
}
END_TEST

START_TEST(test_secret__public_files_may_be_read_by_all_and_written_by_one)
{
    struct bp_buf text = {0};
    struct bp_err err = {0};
    write_file("x", 0644);
    ck_assert_int_eq(bp_secret_read(file, BP_FILE_PUBLIC, &text, &err), 0);
    ck_assert_uint_eq(text.len, 1);
    write_file("x", 0664);
    ck_assert_int_eq(bp_secret_read(file, BP_FILE_PUBLIC, &text, &err), -1);
    ck_assert_int_eq(err.code, BP_E_config_invalid);
    bp_secret_release(&text);
}
END_TEST

Suite *suite_tokens(void)
{
    Suite *suite = suite_create("tokens");
    TCase *tcase = tcase_create("tokens");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, test_tokens__every_word_of_a_line_is_taken);
    tcase_add_loop_test(tcase, test_tokens__a_bad_line_is_named_and_none_is_taken, 0,
                        sizeof bad_lines / sizeof *bad_lines);
    tcase_add_test(tcase, test_tokens__the_longest_name_and_the_largest_limits_are_taken);
    tcase_add_test(tcase, test_tokens__all_bad_lines_are_named_at_once);
    tcase_add_test(tcase, test_tokens__two_lines_of_one_name_or_one_token_are_refused);
    tcase_add_test(tcase, test_tokens__a_file_without_a_token_is_refused);
    tcase_add_test(tcase, test_tokens__nul_and_long_lines_are_refused);
    tcase_add_test(tcase, test_tokens__there_is_a_most);
    tcase_add_test(tcase, test_tokens__only_the_whole_token_is_found);
    tcase_add_test(tcase, test_tokens__no_two_that_are_made_are_the_same);
    tcase_add_test(tcase, test_tokens__permissions_decide_whether_a_file_is_read);
    tcase_add_test(tcase, test_tokens__what_is_no_file_of_ours_is_refused);
    tcase_add_test(tcase, test_tokens__a_file_that_is_too_large_is_refused);
    tcase_add_test(tcase, test_secret__public_files_may_be_read_by_all_and_written_by_one);
    suite_add_tcase(suite, tcase);
    return suite;
}
