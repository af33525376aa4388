/* The daemon as systemd starts it: sockets handed over, notifications, the watchdog. The test stands for systemd. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/api/expect.h"
#include "tests/api/server.h"

/* What the daemon's process gets. */
static struct {
    const char *notify, *watchdog_usec, *names;
    int listeners[3];
    size_t n_listeners;
} handed;

enum { FIRST_FD = 3, WAIT_MS = 60000 };

static void hand_over(void)
{
    for (size_t i = 0; i < handed.n_listeners; i++)
        handed.listeners[i] = fcntl(handed.listeners[i], F_DUPFD, 32);
    for (size_t i = 0; i < handed.n_listeners; i++)
        dup2(handed.listeners[i], FIRST_FD + (int)i);
    char number[16];
    snprintf(number, sizeof number, "%d", (int)getpid());
    setenv("LISTEN_PID", number, 1);
    if (handed.watchdog_usec) {
        setenv("WATCHDOG_PID", number, 1);
        setenv("WATCHDOG_USEC", handed.watchdog_usec, 1);
    }
    snprintf(number, sizeof number, "%zu", handed.n_listeners);
    if (handed.n_listeners)
        setenv("LISTEN_FDS", number, 1);
    if (handed.names)
        setenv("LISTEN_FDNAMES", handed.names, 1);
    if (handed.notify)
        setenv("NOTIFY_SOCKET", handed.notify, 1);
}

static void restart(const char *const *arguments)
{
    server_stop(&server);
    server_prepare = hand_over;
    server_restart(&server, arguments);
}

/* ---- Notifications ---- */

static int notifications = -1;

static void listen_for_notifications(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int n = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "blueprintd-test-%d-%s", (int)getpid(),
                     strrchr(server.directory, '.') + 1);
    notifications = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(notifications, (const struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)),
                     0);
    handed.notify = keep_text("@%s", address.sun_path + 1);
}

/* The next notification within the time; NULL: none came. */
static const char *next_notification(int ms)
{
    static char text[1024];
    struct pollfd ready = {.fd = notifications, .events = POLLIN};
    if (poll(&ready, 1, ms) <= 0)
        return NULL;
    ssize_t n = recv(notifications, text, sizeof text - 1, 0);
    ck_assert_int_ge(n, 0);
    text[n] = '\0';
    return text;
}

/* Waits for one that has that text, and counts the feeds on the way. */
static unsigned wait_for_notification(const char *wanted)
{
    unsigned feeds = 0;
    const char *text;
    do {
        ck_assert_msg(text = next_notification(WAIT_MS), "no notification of %s", wanted);
        feeds += strstr(text, "WATCHDOG=1") != NULL;
    } while (!strstr(text, wanted));
    return feeds;
}

START_TEST(test_systemd__is_told_ready_how_it_goes_and_stopping)
{
    listen_for_notifications();
    restart(NULL);
    wait_for_notification("STATUS=Opening ");
    wait_for_notification("READY=1");
    /* Nobody asked for a feed. */
    unsigned feeds = wait_for_notification(keep_text("STATUS=Serving %s: 0 plans in flight, 0 of ", server.url + 7));
    server_stop(&server);
    feeds += wait_for_notification("STOPPING=1");
    ck_assert_uint_eq(feeds, 0);
}
END_TEST

START_TEST(test_systemd__is_told_of_a_reload_and_of_its_end)
{
    listen_for_notifications();
    restart(NULL);
    wait_for_notification("READY=1");
    for (int i = 0; i < 2; i++) {
        const char *text;
        ck_assert_int_eq(kill(server.pid, SIGHUP), 0);
        do
            ck_assert_msg(text = next_notification(WAIT_MS), "no notification of a reload");
        while (!strstr(text, "RELOADING=1"));
        /* What Type=notify-reload wants to see: when, by the clock it compares with its own. */
        ck_assert_ptr_nonnull(strstr(text, "MONOTONIC_USEC="));
        wait_for_notification("READY=1");
        ck_assert_int_eq(http_get("/healthz").status, 200);
    }
}
END_TEST

START_TEST(test_systemd__a_daemon_that_is_idle_or_busy_feeds_the_watchdog)
{
    listen_for_notifications();
    handed.watchdog_usec = "300000";
    restart(NULL);
    wait_for_notification("READY=1");
    for (int i = 0; i < 5; i++)
        wait_for_notification("WATCHDOG=1");
    for (int i = 0; i < 5; i++) {
        plan_of(with_target(small_request(), "reference-queue", 2, (INT64_C(1) << 34) + 1024 * i), 201);
        wait_for_notification("WATCHDOG=1");
    }
    /* Of the client that asks, one connection is kept. */
    ck_assert_int_le(server_metric("blueprint_connections"), 2);
}
END_TEST

/* The daemon's threads of that name, at most `most`. */
static size_t threads_named(const char *name, pid_t *ret, size_t most)
{
    const char *path = keep_text("/proc/%d/task", (int)server.pid);
    size_t n = 0;
    DIR *directory = opendir(path);
    ck_assert_ptr_nonnull(directory);
    for (const struct dirent *entry; (entry = readdir(directory));) {
        char comm[32] = "";
        FILE *file = fopen(keep_text("%s/%.20s/comm", path, entry->d_name), "r");
        if (!file)
            continue;
        if (fscanf(file, "%31s", comm) == 1 && strcmp(comm, name) == 0 && n < most)
            ret[n++] = (pid_t)atoi(entry->d_name);
        fclose(file);
    }
    closedir(directory);
    return n;
}

/* Stops one thread, as a debugger would. False where that is not allowed. */
static bool freeze(pid_t thread)
{
    if (ptrace(PTRACE_SEIZE, thread, NULL, NULL)) {
        ck_assert_int_eq(errno, EPERM);
        fprintf(stderr, "threads cannot be stopped here: the watchdog is not tried on stuck ones\n");
        return false;
    }
    ck_assert_int_eq(ptrace(PTRACE_INTERRUPT, thread, NULL, NULL), 0);
    ck_assert_int_eq(waitpid(thread, NULL, __WALL), thread);
    return true;
}

static const struct {
    const char *thread, *complaint;
} stuck[] = {
    {"MHD-single", "STATUS=The HTTP server did not turn around"},
    {"bp-watch", "STATUS=The HTTP server did not turn around"},
    {"bp-writer", "STATUS=The writer did not turn around"},
    {"bp-worker", "STATUS=The workers did not turn around"},
};

START_TEST(test_systemd__a_stuck_thread_stops_the_feed)
{
    listen_for_notifications();
    handed.watchdog_usec = "900000";
    restart(NULL);
    wait_for_notification("WATCHDOG=1");
    pid_t thread;
    ck_assert_uint_eq(threads_named(stuck[_i].thread, &thread, 1), 1);
    if (!freeze(thread))
        return;
    /* One round may have been answered just before. */
    ck_assert_uint_le(wait_for_notification(stuck[_i].complaint), 2);
    for (const char *text; (text = next_notification(1000));)
        ck_assert_msg(!strstr(text, "WATCHDOG=1"), "fed with %s stopped", stuck[_i].thread);
    ck_assert_int_eq(ptrace(PTRACE_DETACH, thread, NULL, NULL), 0);
    wait_for_notification("WATCHDOG=1");
    wait_for_notification("STATUS=Serving ");
    ck_assert(server_logged(&server, "\"no sign of life, the watchdog is not fed\""));
    ck_assert(server_logged(&server, "\"everyone turns around again, the watchdog is fed\""));
}
END_TEST

/* Of localhost, for this test. */
static const char certificate[] = "-----BEGIN CERTIFICATE-----\n"
                                  "MIIBfjCCASWgAwIBAgIUDOoGEdnDXG+nsv3ihHFgCYwvA2owCgYIKoZIzj0EAwIw\n"
                                  "FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyOTIxMjQ0NFoYDzIxMjYxMTA1\n"
                                  "MjEyNDQ0WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO\n"
                                  "PQMBBwNCAAQoO3iXyxQSRV+0R2owG05gCrydP8kjDdfzmAcCyrmbG5iFuXaYtQ36\n"
                                  "h98S06ItzcOqTjqIiIF5WTDtOerf8/cno1MwUTAdBgNVHQ4EFgQUD5FESGc0og7N\n"
                                  "CZyM3KeDx47R7lYwHwYDVR0jBBgwFoAUD5FESGc0og7NCZyM3KeDx47R7lYwDwYD\n"
                                  "VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiAX/AENwsr1SAV7BJWoccik\n"
                                  "qEiafHmkpGHTmNIDw7MOCQIgbE8KGiXYK2retX4yl+/rDqFHb3DQ4NLLHVbsGoEG\n"
                                  "nDg=\n"
                                  "-----END CERTIFICATE-----\n";
static const char key[] = "-----BEGIN PRIVATE KEY-----\n"
                          "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgiqM1tY9WEZp7CYcB\n"
                          "YXHjmBVSljtxFdvZlWOKPRZz1b2hRANCAAQoO3iXyxQSRV+0R2owG05gCrydP8kj\n"
                          "DdfzmAcCyrmbG5iFuXaYtQ36h98S06ItzcOqTjqIiIF5WTDtOerf8/cn\n"
                          "-----END PRIVATE KEY-----\n";

static const char *write_file(const char *name, const char *text)
{
    const char *path = keep_text("%s/%s", server.directory, name);
    FILE *file = fopen(path, "w");
    ck_assert(file && fputs(text, file) >= 0 && fchmod(fileno(file), 0600) == 0 && fclose(file) == 0);
    return path;
}

/* With TLS the thread that serves the port is asked otherwise, and the Unix socket has one of its own. */
START_TEST(test_systemd__with_tls_every_thread_is_asked_as_well)
{
    const char *path = keep_text("%s/socket", server.directory);
    const char *cert = write_file("certificate.pem", certificate), *secret = write_file("key.pem", key);
    listen_for_notifications();
    handed.watchdog_usec = "900000";
    restart((const char *const[]){"--tls-certificate", cert, "--tls-key", secret, _i ? "--socket" : NULL, path, NULL});
    for (int i = 0; i < 5; i++)
        wait_for_notification("WATCHDOG=1");
    pid_t threads[2];
    ck_assert_uint_eq(threads_named("MHD-single", threads, 2), _i ? 2 : 1);
    pid_t thread = threads[_i == 2];
    if (!freeze(thread))
        return;
    ck_assert_uint_le(wait_for_notification("STATUS=The HTTP server did not turn around"), 2);
    ck_assert_int_eq(ptrace(PTRACE_DETACH, thread, NULL, NULL), 0);
    wait_for_notification("WATCHDOG=1");
}
END_TEST

/* ---- Sockets ---- */

static int listen_at(int family, const void *address, socklen_t size)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, address, size), 0);
    ck_assert_int_eq(listen(fd, 16), 0);
    return fd;
}

static int listen_on_tcp(uint32_t host)
{
    const struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(host)};
    return listen_at(AF_INET, &address, sizeof address);
}

static int listen_on_unix(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = keep_text("%s/%s", server.directory, name);
    ck_assert_uint_lt(strlen(path), sizeof address.sun_path);
    strcpy(address.sun_path, path);
    return listen_at(AF_UNIX, &address, sizeof address);
}

static void add_listener(int fd)
{
    handed.listeners[handed.n_listeners++] = fd;
}

static unsigned port_of(int fd)
{
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    return ntohs(address.sin_port);
}

/* Whoever connects to the listener's address is served. */
static void expect_service(int listener)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char answer[4096];
    size_t n = 0;
    static const char request[] = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(send(fd, request, sizeof request - 1, MSG_NOSIGNAL), (ssize_t)sizeof request - 1);
    for (ssize_t got; (got = read(fd, answer + n, sizeof answer - 1 - n)) > 0;)
        n += (size_t)got;
    close(fd);
    answer[n] = '\0';
    ck_assert_msg(strncmp(answer, "HTTP/1.1 200", 12) == 0, "%.200s", answer);
}

START_TEST(test_systemd__both_sockets_are_taken_over)
{
    int tcp = listen_on_tcp(INADDR_LOOPBACK), local = listen_on_unix("inherited");
    handed.names = _i ? "http:local" : "local:http";
    add_listener(_i ? tcp : local);
    add_listener(_i ? local : tcp);
    restart(NULL);
    ck_assert_str_eq(server.url, keep_text("http://127.0.0.1:%u", port_of(tcp)));
    expect_service(tcp);
    expect_service(local);
    plan_of(small_request(), 201);
    /* They outlive the daemon: who connects while it is down is served by the next. */
    server_stop(&server);
    server_restart(&server, NULL);
    expect_service(tcp);
    expect_service(local);
    plan_of(small_request(), 200);
}
END_TEST

START_TEST(test_systemd__either_socket_is_taken_over_alone)
{
    int fd = _i ? listen_on_tcp(INADDR_LOOPBACK) : listen_on_unix("inherited");
    add_listener(fd);
    restart(NULL);
    expect_service(fd);
    plan_of(small_request(), 201);
    ck_assert(!_i || strcmp(server.url, keep_text("http://127.0.0.1:%u", port_of(fd))) == 0);
}
END_TEST

static int a_datagram_socket(void)
{
    return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

static int a_socket_that_does_not_listen(void)
{
    return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int a_file(void)
{
    return open("/dev/null", O_RDWR | O_CLOEXEC);
}

static int a_socket_beyond_loopback(void)
{
    return listen_on_tcp(INADDR_ANY);
}

static int a_second_of_its_kind(void)
{
    add_listener(listen_on_unix("first"));
    return listen_on_unix("second");
}

static int (*const unusable[])(void) = {a_datagram_socket, a_socket_that_does_not_listen, a_file,
                                        a_socket_beyond_loopback, a_second_of_its_kind};

START_TEST(test_systemd__a_socket_that_is_no_use_is_refused_by_its_name)
{
    const char *log = keep_text("%s/other", server.directory), *database = keep_text("%s/other.db", server.directory);
    char text[2048] = "";
    struct stat status;
    add_listener(unusable[_i]());
    handed.names = handed.n_listeners == 2 ? "good:odd" : "odd";
    server_prepare = hand_over;
    ck_assert_int_eq(server_refuses(database, log, NULL), 2);
    FILE *file = fopen(log, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    ck_assert_msg(strstr(text, "\\\"odd\\\", taken over from systemd"), "%s", text);
    ck_assert_int_eq(stat(database, &status), -1);
}
END_TEST

Suite *suite_systemd(void)
{
    Suite *suite = suite_create("api systemd");
    TCase *tcase = server_tcase(suite, "systemd");
    tcase_add_test(tcase, test_systemd__is_told_ready_how_it_goes_and_stopping);
    tcase_add_test(tcase, test_systemd__is_told_of_a_reload_and_of_its_end);
    tcase_add_test(tcase, test_systemd__a_daemon_that_is_idle_or_busy_feeds_the_watchdog);
    tcase_add_loop_test(tcase, test_systemd__a_stuck_thread_stops_the_feed, 0, (int)(sizeof stuck / sizeof *stuck));
    tcase_add_loop_test(tcase, test_systemd__with_tls_every_thread_is_asked_as_well, 0, 3);
    tcase_add_loop_test(tcase, test_systemd__both_sockets_are_taken_over, 0, 2);
    tcase_add_loop_test(tcase, test_systemd__either_socket_is_taken_over_alone, 0, 2);
    tcase_add_loop_test(tcase, test_systemd__a_socket_that_is_no_use_is_refused_by_its_name, 0,
                        (int)(sizeof unusable / sizeof *unusable));
    return suite;
}
