/* The daemon's configuration: command line, INI file, what is refused. */
#include <arpa/inet.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/access/scope.h"
#include "daemon/config.h"

static struct bp_daemon_config config;
static struct bp_problems problems;
static char file[64];

static void set_up(void)
{
    problems = (struct bp_problems){0};
    snprintf(file, sizeof file, "/tmp/test-config-XXXXXX");
    close(mkstemp(file));
}

static void tear_down(void)
{
    bp_problems_release(&problems);
    unlink(file);
}

static void write_file(const char *text)
{
    FILE *out = fopen(file, "w");
    ck_assert_ptr_nonnull(out);
    fputs(text, out);
    fclose(out);
}

/* Up to five arguments. */
static void read_config(const char *a, const char *b, const char *c, const char *d, const char *e)
{
    const char *const argv[] = {"blueprintd", a, b, c, d, e, NULL};
    int argc = 1;
    while (argc < 6 && argv[argc])
        argc++;
    bp_problems_release(&problems);
    bp_daemon_config_read(argc, (char *const *)(uintptr_t)argv, &config, &problems);
}

static void expect_problem(size_t i, const char *path, const char *words)
{
    ck_assert_uint_gt(problems.n, i);
    ck_assert_int_eq(problems.at[i].code, BP_E_config_invalid);
    ck_assert_str_eq(problems.at[i].path, path);
    ck_assert_msg(strstr(problems.at[i].message, words) != NULL, "%s", problems.at[i].message);
}

static unsigned port(void)
{
    return ntohs(((const struct sockaddr_in *)(const void *)&config.listen)->sin_port);
}

START_TEST(test_config__nothing_given_is_the_documented_default)
{
    read_config(NULL, NULL, NULL, NULL, NULL);
    ck_assert(bp_problems_none(&problems));
    ck_assert_int_eq(config.action, BP_ACTION_RUN);
    ck_assert_str_eq(config.listen_host, "127.0.0.1");
    ck_assert_uint_eq(port(), 7433);
    ck_assert_str_eq(config.socket, "");
    ck_assert_str_eq(config.database, "blueprint.db");
    ck_assert_uint_ge(config.workers, 1);
    ck_assert_uint_eq(config.queue, 256);
    ck_assert_uint_eq(config.connections, 0);
    ck_assert_uint_eq(config.connections_per_address, 0);
    ck_assert_uint_eq(config.receive_timeout, 30);
    ck_assert_uint_eq(config.answer_timeout, 60);
    ck_assert_uint_eq(config.stop_timeout, 30);
    ck_assert_int_eq(config.log_level, BP_LOG_INFO);
    ck_assert_int_eq(config.log_target, BP_LOG_AUTO);
    ck_assert_uint_eq(config.disk_reserve, 64);
}
END_TEST

START_TEST(test_config__options_take_their_value_either_way)
{
    read_config("--listen", "127.0.0.2:0", "--workers=7", "--log-level", "error");
    ck_assert(bp_problems_none(&problems));
    ck_assert_str_eq(config.listen_host, "127.0.0.2");
    ck_assert_uint_eq(port(), 0);
    ck_assert_uint_eq(config.workers, 7);
    ck_assert_int_eq(config.log_level, BP_LOG_ERROR);
}
END_TEST

START_TEST(test_config__command_line_goes_before_the_file)
{
    write_file("; comment\nworkers = 3\nqueue=9\nsocket = /run/x.sock\n");
    read_config("--workers", "5", "--config", file, NULL);
    ck_assert(bp_problems_none(&problems));
    ck_assert_uint_eq(config.workers, 5);
    ck_assert_uint_eq(config.queue, 9);
    ck_assert_str_eq(config.socket, "/run/x.sock");
}
END_TEST

START_TEST(test_config__every_problem_is_named)
{
    char path[128];
    write_file("workers = 0\nnothing = 1\nqueue = 2\nqueue = 3\n[part]\nlisten = 127.0.0.1:1\n");
    read_config("--queue", "-1", "--config", file, "--nonsense");
    ck_assert_uint_eq(problems.n, 6);
    expect_problem(0, "--nonsense", "not an option");
    snprintf(path, sizeof path, "%s: workers", file);
    expect_problem(1, path, "between 1 and 256");
    snprintf(path, sizeof path, "%s: nothing", file);
    expect_problem(2, path, "not a key");
    snprintf(path, sizeof path, "%s: queue", file);
    expect_problem(3, path, "twice");
    snprintf(path, sizeof path, "%s: part.listen", file);
    expect_problem(4, path, "not a key");
    expect_problem(5, "--queue", "between 1 and 65536");
}
END_TEST

START_TEST(test_config__values_that_are_none_are_refused)
{
    static const struct {
        const char *option, *value, *words;
    } rows[] = {
        {"--listen", "example.org:80", "IP address"},
        {"--listen", "127.1:80", "IP address"},
        {"--listen-beyond-loopback-without-tokens-and-tls", "true", "yes or no"},
        {"--socket-users", "root", "NAME:SCOPES"},
        {"--socket-groups", "nobody-of-this-name:read", "does not know"},
        {"--tokens", "", "path"},
        {"--rate-limit", "5", "a rate is"},
        {"--concurrency-limit", "0", "requests at once"},
        {"--new-token", "a b", "a name of"},
        {"--tls-certificate=/a", NULL, "go together"},
        {"--listen", "127.0.0.1", "HOST:PORT"},
        {"--listen", "127.0.0.1:65536", "HOST:PORT"},
        {"--listen", "127.0.0.1:", "HOST:PORT"},
        {"--listen", "::1:80", "HOST:PORT"},
        {"--listen", "127.0.0.1:1x", "HOST:PORT"},
        {"--workers", "0", "between"},
        {"--workers", "257", "between"},
        {"--workers", "+1", "between"},
        {"--workers", " 1", "between"},
        {"--workers", "99999999999999999999", "between"},
        {"--queue", "0", "between"},
        {"--queue", "65537", "between"},
        {"--connections", "0", "between"},
        {"--connections-per-address", "65537", "between"},
        {"--receive-timeout", "0", "between"},
        {"--answer-timeout", "3601", "between"},
        {"--stop-timeout", "15s", "between"},
        {"--wal-limit", "15", "between"},
        {"--log-level", "INFO", "debug"},
        {"--disk-reserve", "-1", "MiB between 0 and 1073741824"},
        {"--disk-reserve", "1073741825", "MiB between 0 and 1073741824"},
        {"--log-target", "syslog", "auto, stderr or journal"},
        {"--database", "", "path"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        read_config(rows[i].option, rows[i].value, NULL, NULL, NULL);
        ck_assert_msg(problems.n == 1, "%s %s", rows[i].option, rows[i].value);
        expect_problem(0, strcspn(rows[i].option, "=") < strlen(rows[i].option) ? "tls-certificate" : rows[i].option,
                       rows[i].words);
    }
}
END_TEST

/* Not beyond loopback without tokens and TLS, unless that is said in so many words. */
START_TEST(test_config__what_listens_beyond_loopback_is_protected_or_said_to_be_not)
{
    static const char *const hosts[] = {"0.0.0.0:7433", "192.168.1.1:80", "[::]:7433", "[2001:db8::1]:80",
                                        "[::ffff:127.0.0.1]:80"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        read_config("--listen", hosts[i], NULL, NULL, NULL);
        ck_assert_uint_eq(problems.n, 1);
        expect_problem(0, "listen", "listen-beyond-loopback-without-tokens-and-tls = yes");
        read_config("--listen", hosts[i], "--tokens=/t", NULL, NULL);
        ck_assert_uint_eq(problems.n, 1);
        read_config("--listen", hosts[i], "--tls-key=/k", "--tls-certificate=/c", NULL);
        ck_assert_uint_eq(problems.n, 1);
        read_config("--listen", hosts[i], "--listen-beyond-loopback-without-tokens-and-tls=no", NULL, NULL);
        ck_assert_uint_eq(problems.n, 1);
        read_config("--listen", hosts[i], "--tokens=/t", "--tls-key=/k", "--tls-certificate=/c");
        ck_assert(bp_problems_none(&problems));
        read_config("--listen", hosts[i], "--listen-beyond-loopback-without-tokens-and-tls=yes", NULL, NULL);
        ck_assert(bp_problems_none(&problems));
    }
    ck_assert_str_eq(config.listen_host, "[::ffff:127.0.0.1]");
}
END_TEST

START_TEST(test_config__a_line_longer_than_the_library_reads_is_named)
{
    char text[512] = "workers = 1\nsocket-users = 1:read";
    for (unsigned i = 2; strlen(text) < 12 + 198 - 7; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), " %u:read", i + 8);
    size_t n = strlen(text);
    memset(text + n, ' ', 12 + 198 - n); /* 198 bytes in the second line */
    text[12 + 198] = '\0';
    write_file(text);
    read_config("--config", file, NULL, NULL, NULL);
    ck_assert_msg(bp_problems_none(&problems), "%s", problems.n ? problems.at[0].message : "");
    ck_assert_uint_gt(config.peers.n, 10);
    size_t rules = config.peers.n;
    strcat(text, "\nqueue = 9");
    write_file(text);
    read_config("--config", file, NULL, NULL, NULL);
    ck_assert(bp_problems_none(&problems));
    ck_assert_uint_eq(config.peers.n, rules);
    text[12 + 198] = ' ';
    write_file(text);
    read_config("--config", file, NULL, NULL, NULL);
    ck_assert_uint_eq(problems.n, 1);
    expect_problem(0, file, "line 2 is longer than 198 bytes");
}
END_TEST

START_TEST(test_config__a_file_with_a_nul_is_refused)
{
    static const char text[] = "workers = 1\n\0queue = 0\n";
    FILE *out = fopen(file, "w");
    ck_assert_uint_eq(fwrite(text, 1, sizeof text - 1, out), sizeof text - 1);
    fclose(out);
    read_config("--config", file, NULL, NULL, NULL);
    ck_assert_uint_eq(problems.n, 1);
    expect_problem(0, file, "has a NUL");
}
END_TEST

START_TEST(test_config__access_is_read_from_both_sources)
{
    write_file("socket-users = root:read,plan 12:admin\nsocket-groups=root:read\ntokens = /etc/tokens\n"
               "rate-limit = 60/m\nconcurrency-limit = 4\n");
    read_config("--config", file, "--socket-users", "7:read", NULL);
    ck_assert(bp_problems_none(&problems));
    ck_assert_uint_eq(config.peers.n, 2);
    ck_assert_uint_eq(bp_peer_scopes(&config.peers, &(struct bp_peer){.uid = 7}), BP_SCOPE_READ);
    ck_assert_uint_eq(bp_peer_scopes(&config.peers, &(struct bp_peer){.uid = 12}), 0);
    ck_assert_str_eq(config.tokens, "/etc/tokens");
    ck_assert_uint_eq(config.limits.requests, 60);
    ck_assert_uint_eq(config.limits.at_once, 4);
    read_config("--new-token", "ci", NULL, NULL, NULL);
    ck_assert(bp_problems_none(&problems));
    ck_assert_int_eq(config.action, BP_ACTION_NEW_TOKEN);
    ck_assert_str_eq(config.token_name, "ci");
}
END_TEST

START_TEST(test_config__loopback_has_three_spellings)
{
    read_config("--listen", "localhost:1", NULL, NULL, NULL);
    ck_assert(bp_problems_none(&problems));
    ck_assert_str_eq(config.listen_host, "127.0.0.1");
    read_config("--listen", "[::1]:2", NULL, NULL, NULL);
    ck_assert(bp_problems_none(&problems));
    ck_assert_str_eq(config.listen_host, "[::1]");
    ck_assert_int_eq(config.listen.ss_family, AF_INET6);
}
END_TEST

START_TEST(test_config__a_path_too_long_for_a_socket_is_refused)
{
    char path[128];
    memset(path, 'a', sizeof path - 1);
    path[sizeof config.socket] = '\0';
    read_config("--socket", path, NULL, NULL, NULL);
    expect_problem(0, "--socket", "107");
    path[sizeof config.socket - 1] = '\0';
    read_config("--socket", path, NULL, NULL, NULL);
    ck_assert(bp_problems_none(&problems));
    ck_assert_str_eq(config.socket, path);
}
END_TEST

START_TEST(test_config__a_file_that_is_none_is_refused)
{
    read_config("--config", "/nonexistent/file.ini", NULL, NULL, NULL);
    expect_problem(0, "/nonexistent/file.ini", "cannot be read");
    read_config("--config", "/", NULL, NULL, NULL);
    expect_problem(0, "/", "is a directory");
    read_config("--config", "/dev/zero", NULL, NULL, NULL); /* has no end */
    expect_problem(0, "/dev/zero", "is larger than");
    write_file("workers 3\n");
    read_config("--config", file, NULL, NULL, NULL);
    expect_problem(0, file, "line 1");
}
END_TEST

START_TEST(test_config__flags_say_what_to_do_and_take_no_value)
{
    read_config("--check-config", NULL, NULL, NULL, NULL);
    ck_assert_int_eq(config.action, BP_ACTION_CHECK);
    read_config("--version", NULL, NULL, NULL, NULL);
    ck_assert_int_eq(config.action, BP_ACTION_VERSION);
    read_config("--help=yes", "word", "--database", NULL, NULL);
    ck_assert_int_eq(config.action, BP_ACTION_HELP);
    ck_assert_uint_eq(problems.n, 3);
    expect_problem(0, "--help=yes", "no value");
    expect_problem(1, "word", "not an option");
    expect_problem(2, "--database", "needs a value");
}
END_TEST

START_TEST(test_config__there_is_one_thing_to_do)
{
    read_config("--verify", "--verify", NULL, NULL, NULL);
    ck_assert_int_eq(config.action, BP_ACTION_VERIFY);
    ck_assert_uint_eq(problems.n, 0);
    read_config("--migrate", "--dry-run", "--verify", NULL, NULL);
    ck_assert_uint_eq(problems.n, 1);
    expect_problem(0, "--verify", "second thing");
}
END_TEST

START_TEST(test_config__help_names_every_option)
{
    static const char *const options[] = {
#define BP_CONFIG_KEY(key, argument, fallback, read, help) "--" key " " argument,
#include "daemon/config.def"
#undef BP_CONFIG_KEY
#define BP_CONFIG_FLAG(option, argument, action, help) "--" option,
#include "daemon/config.def"
#undef BP_CONFIG_FLAG
    };
    struct bp_buf help = {0};
    bp_daemon_config_help(&help);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        ck_assert_msg(strstr(bp_buf_string(&help), options[i]) != NULL, "%s", options[i]);
    bp_buf_release(&help);
}
END_TEST

Suite *suite_daemon_config(void)
{
    Suite *suite = suite_create("daemon config");
    TCase *cases = tcase_create("config");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, test_config__what_listens_beyond_loopback_is_protected_or_said_to_be_not);
    tcase_add_test(cases, test_config__access_is_read_from_both_sources);
    tcase_add_test(cases, test_config__a_file_with_a_nul_is_refused);
    tcase_add_test(cases, test_config__a_line_longer_than_the_library_reads_is_named);
    tcase_add_test(cases, test_config__nothing_given_is_the_documented_default);
    tcase_add_test(cases, test_config__options_take_their_value_either_way);
    tcase_add_test(cases, test_config__command_line_goes_before_the_file);
    tcase_add_test(cases, test_config__every_problem_is_named);
    tcase_add_test(cases, test_config__values_that_are_none_are_refused);
    tcase_add_test(cases, test_config__loopback_has_three_spellings);
    tcase_add_test(cases, test_config__a_path_too_long_for_a_socket_is_refused);
    tcase_add_test(cases, test_config__a_file_that_is_none_is_refused);
    tcase_add_test(cases, test_config__flags_say_what_to_do_and_take_no_value);
    tcase_add_test(cases, test_config__there_is_one_thing_to_do);
    tcase_add_test(cases, test_config__help_names_every_option);
    suite_add_tcase(suite, cases);
    return suite;
}
