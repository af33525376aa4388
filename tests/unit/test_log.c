/* The log: one JSON object a line whatever the values are, and the journal by its own protocol. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/canon.h"
#include "common/base/json.h"
#include "daemon/log.h"

/* Every test is a process of its own, whose stderr this becomes. */
static FILE *caught;

static void catch_stderr(void)
{
    caught = tmpfile();
    ck_assert_ptr_nonnull(caught);
    ck_assert_int_ge(dup2(fileno(caught), STDERR_FILENO), 0);
    bp_log_set_level(BP_LOG_INFO);
    bp_log_set_target(BP_LOG_STDERR);
}

/* The next line that was logged, parsed; NULL when there is none. */
static json_t *next_line(void)
{
    static char text[65536];
    struct bp_json_position position;
    struct bp_err err = {0};
    if (!fgets(text, sizeof text, caught))
        return NULL;
    ck_assert_msg(text[strlen(text) - 1] == '\n', "a line does not end");
    json_t *line = bp_json_parse(text, strlen(text), &position, &err);
    ck_assert_msg(line != NULL, "%s: %s", err.message, text);
    ck_assert(json_is_object(line));
    return line;
}

static const char *text_of(json_t *line, const char *key)
{
    return json_string_value(json_object_get(line, key));
}

START_TEST(test_log__a_line_has_its_time_level_message_and_fields)
{
    unsigned year, month, day, hour, minute, second, millisecond;
    char zone, rest;
    bp_log(BP_LOG_WARNING, "something", BP_LOG_FIELDS(BP_LOG_TEXT("what", "that"), BP_LOG_UINT("n", 17)));
    rewind(caught);
    json_t *line = next_line();
    ck_assert_str_eq(text_of(line, "level"), "warning");
    ck_assert_str_eq(text_of(line, "message"), "something");
    ck_assert_str_eq(text_of(line, "what"), "that");
    ck_assert_int_eq(json_integer_value(json_object_get(line, "n")), 17);
    ck_assert_int_eq(sscanf(text_of(line, "time"), "%4u-%2u-%2uT%2u:%2u:%2u.%3u%c%c", &year, &month, &day, &hour,
                            &minute, &second, &millisecond, &zone, &rest),
                     8);
    ck_assert_int_eq(zone, 'Z');
    ck_assert_uint_ge(year, 2024);
    ck_assert_uint_eq(json_object_size(line), 5);
    json_decref(line);
    ck_assert_ptr_null(next_line());
}
END_TEST

START_TEST(test_log__levels_below_the_least_are_dropped)
{
    bp_log(BP_LOG_DEBUG, "quiet", NULL);
    ck_assert(!bp_log_wants(BP_LOG_DEBUG) && bp_log_wants(BP_LOG_INFO));
    bp_log_set_level(BP_LOG_DEBUG);
    bp_log(BP_LOG_DEBUG, "loud", NULL);
    rewind(caught);
    json_t *line = next_line();
    ck_assert_str_eq(text_of(line, "message"), "loud");
    json_decref(line);
    ck_assert_ptr_null(next_line());
}
END_TEST

/* What comes out must be one line, that object, and a value that says as much as can be said. */
static const struct {
    const char *value, *logged;
} hostile[] = {
    {"a\nb\r\n{\"level\":\"error\"}", "a\nb\r\n{\"level\":\"error\"}"},
    {"\",\"level\":\"error", "\",\"level\":\"error"},
    {"\\", "\\"},
    {"\x01\x1b[31m\x7f", "\x01\x1b[31m\x7f"},
    {"\xff\xfe", "\xef\xbf\xbd\xef\xbf\xbd"},
    {"a\xc3", "a\xef\xbf\xbd"},
    {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xf4\x90\x80\x80z", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz"},
    {"\xe2\x80\xa8\xf0\x9f\x98\x80", "\xe2\x80\xa8\xf0\x9f\x98\x80"},
    {"", ""},
};

START_TEST(test_log__no_value_breaks_a_line)
{
    bp_log(BP_LOG_ERROR, hostile[_i].value, BP_LOG_FIELDS(BP_LOG_TEXT("value", hostile[_i].value)));
    bp_log(BP_LOG_ERROR, "after", NULL);
    rewind(caught);
    json_t *line = next_line();
    ck_assert_str_eq(text_of(line, "message"), hostile[_i].logged);
    ck_assert_str_eq(text_of(line, "value"), hostile[_i].logged);
    ck_assert_str_eq(text_of(line, "level"), "error");
    json_decref(line);
    line = next_line();
    ck_assert_str_eq(text_of(line, "message"), "after");
    json_decref(line);
    ck_assert_ptr_null(next_line());
}
END_TEST

START_TEST(test_log__long_values_are_cut_between_characters)
{
    static char value[3 * BP_LOG_VALUE_MAX + 1];
    for (size_t i = 0; i + 3 < sizeof value; i += 3)
        memcpy(value + i, "\xe2\x82\xac", 3);
    bp_log(BP_LOG_ERROR, "long", BP_LOG_FIELDS(BP_LOG_TEXT("value", value), BP_LOG_TEXT("next", "whole")));
    rewind(caught);
    json_t *line = next_line();
    ck_assert_uint_eq(strlen(text_of(line, "value")), BP_LOG_VALUE_MAX / 3 * 3);
    ck_assert_str_eq(text_of(line, "next"), "whole");
    json_decref(line);
}
END_TEST

START_TEST(test_log__numbers_past_what_json_readers_hold_are_logged)
{
    char text[256] = "";
    bp_log(BP_LOG_ERROR, "large", BP_LOG_FIELDS(BP_LOG_UINT("n", UINT64_MAX)));
    rewind(caught);
    ck_assert_ptr_nonnull(fgets(text, sizeof text, caught));
    ck_assert_ptr_nonnull(strstr(text, "\"n\":18446744073709551615}\n"));
}
END_TEST

START_TEST(test_log__fields_past_the_most_are_left_out)
{
    struct bp_log_field fields[BP_LOG_FIELDS_MAX + 2] = {{0}};
    char keys[BP_LOG_FIELDS_MAX + 1][8];
    for (size_t i = 0; i <= BP_LOG_FIELDS_MAX; i++) {
        snprintf(keys[i], sizeof keys[i], "k%zu", i);
        fields[i] = BP_LOG_UINT(keys[i], i);
    }
    bp_log(BP_LOG_ERROR, "many", fields);
    rewind(caught);
    json_t *line = next_line();
    ck_assert_uint_eq(json_object_size(line), 3 + BP_LOG_FIELDS_MAX);
    json_decref(line);
}
END_TEST

/* ---- What a line is about ---- */

static void *log_elsewhere(void *data)
{
    struct bp_log_context none;
    (void)data;
    bp_log_current(&none);
    ck_assert_str_eq(none.request_id, "");
    bp_log(BP_LOG_INFO, "another thread", NULL);
    return NULL;
}

START_TEST(test_log__lines_say_which_request_they_are_about)
{
    static const struct bp_log_context about = {.request_id = "one", .trace_id = "t", .parent_id = "p", .span_id = "s"};
    static const struct bp_log_context no_trace = {.request_id = "two"};
    struct bp_log_context copy;
    pthread_t thread;
    bp_log_about(&about);
    bp_log_current(&copy);
    bp_log(BP_LOG_INFO, "here", NULL);
    ck_assert_int_eq(pthread_create(&thread, NULL, log_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    bp_log_about(&no_trace);
    bp_log(BP_LOG_INFO, "untraced", NULL);
    bp_log_about(NULL);
    bp_log(BP_LOG_INFO, "nothing", NULL);
    ck_assert_int_eq(memcmp(&copy, &about, sizeof about), 0);
    rewind(caught);
    json_t *line = next_line();
    ck_assert_str_eq(text_of(line, "request_id"), "one");
    ck_assert_str_eq(text_of(line, "trace_id"), "t");
    ck_assert_str_eq(text_of(line, "parent_id"), "p");
    ck_assert_str_eq(text_of(line, "span_id"), "s");
    json_decref(line);
    line = next_line();
    ck_assert_str_eq(text_of(line, "message"), "another thread");
    ck_assert_ptr_null(text_of(line, "request_id"));
    json_decref(line);
    line = next_line();
    ck_assert_str_eq(text_of(line, "request_id"), "two");
    ck_assert_ptr_null(text_of(line, "trace_id"));
    json_decref(line);
    line = next_line();
    ck_assert_ptr_null(text_of(line, "request_id"));
    json_decref(line);
}
END_TEST

/* ---- The journal ---- */

START_TEST(test_log__a_stream_of_the_journal_is_known_by_its_file)
{
    struct stat status;
    char stream[64];
    ck_assert_int_eq(fstat(STDERR_FILENO, &status), 0);
    snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)status.st_dev, (unsigned long long)status.st_ino);
    ck_assert(bp_log_is_journal_stream(stream, STDERR_FILENO));
    snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)status.st_dev,
             (unsigned long long)status.st_ino + 1);
    ck_assert(!bp_log_is_journal_stream(stream, STDERR_FILENO));
    ck_assert(!bp_log_is_journal_stream("", STDERR_FILENO));
    ck_assert(!bp_log_is_journal_stream(NULL, STDERR_FILENO));
    ck_assert(!bp_log_is_journal_stream(stream, -1));
}
END_TEST

/* A journal's socket where libsystemd looks for it, in a mount namespace of this process; -1 where there can be none.
 */
static int fake_journal(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/run/systemd/journal/socket"};
    if (unshare(CLONE_NEWNS) || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) ||
        mount("run", "/run", "tmpfs", 0, NULL))
        return -1;
    ck_assert_int_eq(mkdir("/run/systemd", 0755), 0);
    ck_assert_int_eq(mkdir("/run/systemd/journal", 0755), 0);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void expect_entry(const char *datagram, size_t n, const char *entry)
{
    ck_assert_msg(memmem(datagram, n, entry, strlen(entry)) != NULL, "no %s in %.*s", entry, (int)n, datagram);
}

START_TEST(test_log__the_journal_has_every_field_by_its_name)
{
    static const struct bp_log_context about = {.request_id = "one"};
    /* A value with a line feed goes by its length, in eight bytes. */
    static const char forged[] = "BLUEPRINT_WHAT\n\x0c\0\0\0\0\0\0\0a\nPRIORITY=0\n";
    char datagram[8192];
    int journal = fake_journal();
    if (journal < 0) {
        printf("log: there can be no private /run here (%s): the journal is left out\n", strerror(errno));
        return;
    }
    bp_log_set_target(BP_LOG_JOURNAL);
    bp_log_about(&about);
    bp_log(BP_LOG_WARNING, "something",
           BP_LOG_FIELDS(BP_LOG_TEXT("what", "a\nPRIORITY=0"), BP_LOG_UINT("n", UINT64_MAX)));
    ssize_t n = recv(journal, datagram, sizeof datagram, 0);
    ck_assert_int_gt(n, 0);
    expect_entry(datagram, (size_t)n, "MESSAGE=something\n");
    expect_entry(datagram, (size_t)n, "PRIORITY=4\n");
    expect_entry(datagram, (size_t)n, "SYSLOG_IDENTIFIER=blueprintd\n");
    expect_entry(datagram, (size_t)n, "BLUEPRINT_REQUEST_ID=one\n");
    expect_entry(datagram, (size_t)n, "BLUEPRINT_N=18446744073709551615\n");
    ck_assert_ptr_nonnull(memmem(datagram, (size_t)n, forged, sizeof forged - 1));
    rewind(caught);
    ck_assert_ptr_null(next_line());
    close(journal);
}
END_TEST

START_TEST(test_log__what_the_journal_does_not_take_goes_to_stderr)
{
    int journal = fake_journal();
    if (journal < 0) {
        printf("log: there can be no private /run here (%s): the journal is left out\n", strerror(errno));
        return;
    }
    ck_assert_int_eq(unlink("/run/systemd/journal/socket"), 0);
    bp_log_set_target(BP_LOG_JOURNAL);
    bp_log(BP_LOG_ERROR, "nobody listens", NULL);
    rewind(caught);
    json_t *line = next_line();
    ck_assert_ptr_nonnull(line);
    ck_assert_str_eq(text_of(line, "message"), "nobody listens");
    json_decref(line);
    close(journal);
}
END_TEST

START_TEST(test_log__stderr_that_is_no_stream_of_the_journal_gets_the_lines)
{
    ck_assert_int_eq(setenv("JOURNAL_STREAM", "1:2", 1), 0);
    bp_log_set_target(BP_LOG_AUTO);
    bp_log(BP_LOG_ERROR, "here", NULL);
    rewind(caught);
    json_t *line = next_line();
    ck_assert_ptr_nonnull(line);
    json_decref(line);
}
END_TEST

/* ---- Several threads ---- */

enum { THREADS = 4, LINES = 500 };

static void *log_along(void *data)
{
    for (int i = 0; i < LINES; i++)
        bp_log(BP_LOG_INFO, data, BP_LOG_FIELDS(BP_LOG_TEXT("text", "some text that takes a while to write")));
    return NULL;
}

START_TEST(test_log__lines_of_several_threads_do_not_mix)
{
    static char names[THREADS][4] = {"a", "b", "c", "d"};
    pthread_t threads[THREADS];
    size_t n = 0;
    /* A pipe is what a service's stderr is; a file is written at an offset that threads would share. */
    ck_assert_int_ge(fcntl(STDERR_FILENO, F_SETFL, O_APPEND), 0);
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, log_along, names[i]), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    rewind(caught);
    for (json_t *line; (line = next_line()) != NULL; n++)
        json_decref(line);
    ck_assert_uint_eq(n, THREADS * LINES);
}
END_TEST

Suite *suite_log(void)
{
    Suite *suite = suite_create("log");
    TCase *tcase = tcase_create("log");
    tcase_add_checked_fixture(tcase, catch_stderr, NULL);
    tcase_add_test(tcase, test_log__a_line_has_its_time_level_message_and_fields);
    tcase_add_test(tcase, test_log__levels_below_the_least_are_dropped);
    tcase_add_loop_test(tcase, test_log__no_value_breaks_a_line, 0, sizeof hostile / sizeof *hostile);
    tcase_add_test(tcase, test_log__long_values_are_cut_between_characters);
    tcase_add_test(tcase, test_log__numbers_past_what_json_readers_hold_are_logged);
    tcase_add_test(tcase, test_log__fields_past_the_most_are_left_out);
    tcase_add_test(tcase, test_log__lines_say_which_request_they_are_about);
    tcase_add_test(tcase, test_log__a_stream_of_the_journal_is_known_by_its_file);
    tcase_add_test(tcase, test_log__the_journal_has_every_field_by_its_name);
    tcase_add_test(tcase, test_log__what_the_journal_does_not_take_goes_to_stderr);
    tcase_add_test(tcase, test_log__stderr_that_is_no_stream_of_the_journal_gets_the_lines);
    tcase_add_test(tcase, test_log__lines_of_several_threads_do_not_mix);
    suite_add_tcase(suite, tcase);
    return suite;
}
