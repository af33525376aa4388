/* Clients that are slow, many, or half there: what each may take of the daemon's time and descriptors. */
#include <arpa/inet.h>
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "tests/api/expect.h"
#include "tests/api/server.h"
#include "tests/http/wire.h"

#define HOST "Host: x\r\n"
#define FIT "POST /v1/fit HTTP/1.1\r\n" HOST "Content-Type: application/json\r\n"
#define GET "GET /healthz HTTP/1.1\r\n" HOST "\r\n"

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void restart(const char *const *arguments)
{
    server_stop(&server);
    server_restart(&server, arguments);
}

static bool is_long(void)
{
    return getenv("BP_LONG") != NULL;
}

/* ---- Time ---- */

static const struct {
    const char *name, *start, *piece;
} drips[] = {
    {"the first line", "", "a"},
    {"a field", "GET /healthz HTTP/1.1\r\n" HOST "X: ", "a"},
    {"fields", "GET /healthz HTTP/1.1\r\n" HOST, "X: a\r\n"},
    {"a body", FIT "Content-Length: 100000\r\n\r\n", " "},
    {"chunks", FIT "Transfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n"},
    {"a trailer", FIT "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", "X: a\r\n"},
};

/* Never idle for long and never done: the time is for the whole request and not for each byte. */
START_TEST(test_limits__requests_that_drip_in_are_cut)
{
    enum { N = sizeof drips / sizeof *drips };
    struct wire_answer answer;
    double start, cut[N] = {0};
    int fds[N];
    restart((const char *const[]){"--receive-timeout", "2", NULL});
    start = now();
    for (size_t i = 0; i < N; i++) {
        fds[i] = wire_open();
        ck_assert(wire_send_text(fds[i], drips[i].start));
    }
    for (size_t n_cut = 0; n_cut < N && now() - start < WIRE_WAIT_MS / 1000; nap_ms(100))
        for (size_t i = 0; i < N; i++)
            if (cut[i] == 0 && !wire_send_text(fds[i], drips[i].piece)) {
                cut[i] = now() - start;
                n_cut++;
            }
    for (size_t i = 0; i < N; i++) {
        ck_assert_msg(cut[i] >= 1.9, "%s: cut after %.3f s", drips[i].name, cut[i]);
        ck_assert_int_eq(wire_read(fds[i], &answer, WIRE_WAIT_MS), WIRE_CLOSED);
        wire_close(fds[i]);
    }
    ck_assert_int_eq(server_metric("blueprint_deadlines_total"), N);
    ck_assert_int_eq(server_metric("blueprint_body_bytes"), 0);
    ck_assert_int_eq(wire_handled(NULL), 0);
}
END_TEST

/* One byte at a time, but whole in time. */
START_TEST(test_limits__a_slow_request_that_arrives_in_time_is_answered)
{
    int fd = wire_open();
    for (const char *at = GET; *at; at++) {
        ck_assert(wire_send(fd, at, 1));
        nap_ms(5);
    }
    wire_expect(fd, 200);
    wire_close(fd);
}
END_TEST

/* Asks for more answers than the sockets hold. */
static int ask_for_too_much(void)
{
    int fd = wire_open();
    ck_assert_int_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    while (wire_send_text(fd, "GET /openapi.json HTTP/1.1\r\n" HOST "\r\n"))
        continue;
    ck_assert_int_eq(errno, EAGAIN);
    return fd;
}

static bool is_cut(int fd)
{
    struct pollfd state = {.fd = fd, .events = POLLRDHUP};
    return poll(&state, 1, 0) > 0;
}

/* The times that are not configured, at their real length: 75 seconds between requests, 120 for an answer to be taken,
 * though it is all the time: the slow one takes too little for the kernel to ask for more. */
START_TEST(test_limits__clients_that_are_idle_or_do_not_read_are_cut)
{
    enum { IDLE, DEAF, SLOW, N };
    static const struct {
        double least, most;
    } seconds[N] = {[IDLE] = {70, 100}, [DEAF] = {115, 160}, [SLOW] = {115, 160}};
    double start, cut[N] = {0};
    int fds[N] = {wire_open(), ask_for_too_much(), ask_for_too_much()};
    ck_assert(wire_send_text(fds[IDLE], GET));
    wire_expect(fds[IDLE], 200);
    start = now();
    for (size_t n_cut = 0; n_cut < N && now() - start < 200; nap_ms(500)) {
        char some[16];
        if (cut[SLOW] == 0)
            ck_assert(recv(fds[SLOW], some, sizeof some, 0) != 0);
        for (size_t i = 0; i < N; i++)
            if (cut[i] == 0 && is_cut(fds[i])) {
                cut[i] = now() - start;
                n_cut++;
            }
    }
    for (size_t i = 0; i < N; i++) {
        ck_assert_msg(cut[i] >= seconds[i].least && cut[i] <= seconds[i].most, "client %zu: %.1f s", i, cut[i]);
        wire_close(fds[i]);
    }
    wire_await_at_most("blueprint_connections", 1);
}
END_TEST

/* ---- Half-closed ---- */

static int open_half_closed(const char *text)
{
    int fd = wire_open();
    ck_assert(wire_send_text(fd, text));
    ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
    return fd;
}

START_TEST(test_limits__the_end_of_a_stream_with_the_last_byte_is_no_hang_up)
{
    int fd = open_half_closed(GET GET);
    wire_expect(fd, 200);
    wire_expect(fd, 200);
    ck_assert(wire_closes(fd));
    wire_close(fd);
}
END_TEST

static const char *const halves[] = {"",
                                     "GET /hea",
                                     "GET /healthz HTTP/1.1\r\n" HOST,
                                     FIT "Content-Length: 10\r\n\r\n",
                                     FIT "Content-Length: 10\r\n\r\n{}",
                                     FIT "Transfer-Encoding: chunked\r\n\r\n2\r\n{}"};

START_TEST(test_limits__half_a_request_and_the_end_is_closed_without_an_answer)
{
    enum { N = sizeof halves / sizeof *halves };
    struct wire_answer answer;
    double start = now();
    int fds[N];
    for (size_t i = 0; i < N; i++)
        fds[i] = open_half_closed(halves[i]);
    for (size_t i = 0; i < N; i++) {
        ck_assert_int_eq(wire_read(fds[i], &answer, WIRE_WAIT_MS), WIRE_CLOSED);
        wire_close(fds[i]);
    }
    ck_assert_msg(now() - start < 20, "after %.1f s", now() - start); /* and not when it is late: that takes 30 */
    ck_assert_int_eq(wire_handled(NULL), 0);
}
END_TEST

/* ---- Many ---- */

static size_t descriptors_of(pid_t pid)
{
    DIR *directory = opendir(keep_text("/proc/%d/fd", (int)pid));
    size_t n = 0;
    ck_assert_ptr_nonnull(directory);
    while (readdir(directory))
        n++;
    closedir(directory);
    return n - 2; /* . and .. */
}

/* The limit of descriptors that leaves room for `spare` more: it is of their numbers, and lower ones may be free. */
static rlim_t limit_with_room_for(pid_t pid, size_t spare)
{
    rlim_t limit = 0;
    for (size_t n_free = 0;; limit++)
        if (access(keep_text("/proc/%d/fd/%d", (int)pid, (int)limit), F_OK) && n_free++ == spare)
            return limit;
}

/* Waits until the connections that were closed are closed there as well. */
static void settle(pid_t pid)
{
    size_t n = descriptors_of(pid);
    for (int quiet = 0; quiet < 50; quiet++) {
        nap_ms(10);
        if (descriptors_of(pid) != n)
            quiet = 0;
        n = descriptors_of(pid);
    }
}

/* As many descriptors as this process may have, at most `wanted`. */
static size_t room_for(size_t wanted)
{
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return limit.rlim_cur < wanted + 100 ? (size_t)limit.rlim_cur - 100 : wanted;
}

/* Begins to connect; where the kernel's queue is full it stays at that. */
static int begin_to_connect(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(strrchr(server.url, ':') + 1)),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_msg(fd >= 0, "%s", strerror(errno));
    ck_assert(connect(fd, (struct sockaddr *)&address, sizeof address) == 0 || errno == EINPROGRESS);
    return fd;
}

/* The daemon holds no more than it may, and who has something to say is answered when the idle ones have had their
 * time. */
START_TEST(test_limits__idle_connections_past_the_limit_do_not_keep_others_out)
{
    const size_t n = is_long() ? room_for(10000) : 120, limit = is_long() ? 4000 : 50;
    restart((const char *const[]){"--connections", keep_text("%zu", limit), "--receive-timeout", "1", NULL});
    const size_t before = descriptors_of(server.pid);
    int *fds = calloc(n, sizeof *fds);
    ck_assert_ptr_nonnull(fds);
    for (size_t i = 0; i < n; i++)
        fds[i] = begin_to_connect();
    size_t most = 0;
    for (int i = 0; i < 1000 && most < before + limit; i++) {
        size_t has = descriptors_of(server.pid);
        most = has > most ? has : most;
        nap_ms(1);
    }
    ck_assert_msg(most == before + limit, "%zu descriptors and %zu connections more", before, most - before);
    ck_assert_int_eq(http_get("/healthz").status, 200);
    ck_assert_int_ge(server_metric("blueprint_deadlines_total"), (long long)limit);
    ck_assert_uint_le(descriptors_of(server.pid), before + limit + 1); /* one is being closed */
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
    free(fds);
    wire_await_at_most("blueprint_connections", 1);
    ck_assert_uint_le(descriptors_of(server.pid), before + 1);
}
END_TEST

/* Tries to connect to the Unix socket; where there is no room it waits in the kernel's queue, or is refused by it. */
static int begin_to_connect_locally(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_ge(fd, 0);
    strcpy(address.sun_path, server.socket);
    ck_assert(connect(fd, (struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN);
    return fd;
}

/* Clients of both sockets come for the last places at once and leave again. The library was locked up for ever by one
 * that was handed to it when another had taken the last place meanwhile. */
START_TEST(test_limits__clients_of_both_sockets_come_for_the_last_places)
{
    enum { PLACES = 4, CLIENTS = 6 };
    snprintf(server.socket, sizeof server.socket, "%s/socket", server.directory);
    restart((const char *const[]){"--connections", keep_text("%d", PLACES), NULL});
    for (int round = 0; round < 400; round++) {
        int tcp[CLIENTS], local[CLIENTS];
        for (int i = 0; i < CLIENTS; i++) {
            local[i] = begin_to_connect_locally();
            tcp[i] = begin_to_connect();
        }
        nap_ms(1);
        for (int i = 0; i < CLIENTS; i++) {
            close(tcp[i]);
            close(local[i]);
        }
    }
    ck_assert_int_eq(http_get("/healthz").status, 200);
    int fd = begin_to_connect_locally();
    ck_assert(wire_send_text(fd, GET));
    wire_expect(fd, 200);
    wire_close(fd);
    wire_await_at_most("blueprint_connections", 1);
}
END_TEST

/* The library takes 128 events at a time and used to sleep on as many; nothing else happens meanwhile that would wake
 * it. The daemon stands still while they come in, so that they are there at once. */
START_TEST(test_limits__as_many_requests_at_once_as_are_taken_at_a_time_are_answered)
{
    static const size_t numbers[] = {127, 128, 129, 256, 384};
    int fds[384];
    const size_t n = numbers[_i];
    for (size_t i = 0; i < n; i++) {
        fds[i] = wire_open();
        ck_assert(wire_send_text(fds[i], GET));
        wire_expect(fds[i], 200);
    }
    nap_ms(100);
    ck_assert_int_eq(kill(server.pid, SIGSTOP), 0);
    for (size_t i = 0; i < n; i++)
        ck_assert(wire_send_text(fds[i], GET));
    nap_ms(100);
    ck_assert_int_eq(kill(server.pid, SIGCONT), 0);
    for (size_t i = 0; i < n; i++) {
        struct wire_answer answer;
        ck_assert_msg(wire_read(fds[i], &answer, 20000) == WIRE_ANSWER, "%zu of %zu is not answered", i, n);
        ck_assert_int_eq(answer.status, 200);
    }
    for (size_t i = 0; i < n; i++)
        wire_close(fds[i]);
}
END_TEST

/* A connection from an address of this machine to the server, which listens on one of that kind. */
static int open_from(const char *source)
{
    const uint16_t port = htons((uint16_t)atoi(strrchr(server.url, ':') + 1));
    struct sockaddr_in from = {.sin_family = AF_INET};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = port, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = port, .sin6_addr = in6addr_loopback};
    const bool is_v4 = inet_pton(AF_INET, source, &from.sin_addr) == 1;
    int fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    if (is_v4)
        ck_assert_int_eq(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    const struct sockaddr *address = is_v4 ? (struct sockaddr *)&to : (struct sockaddr *)&to6;
    ck_assert_int_eq(connect(fd, address, is_v4 ? sizeof to : sizeof to6), 0);
    return fd;
}

/* There are machines without IPv6. */
static bool has_v6(void)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0)
        close(fd);
    return bound;
}

/* Whether a connection from there is served. */
static bool is_served(int fd)
{
    struct wire_answer answer;
    return wire_send_text(fd, GET) && wire_read(fd, &answer, WIRE_WAIT_MS) == WIRE_ANSWER;
}

static const struct {
    const char *listen, *address, *other; /* one more, where there is one */
} homes[] = {{"127.0.0.1:0", "127.0.0.1", "127.0.0.2"}, {"[::1]:0", "::1", NULL}};

START_TEST(test_limits__one_address_has_no_more_than_its_connections)
{
    enum { LIMIT = 4, MORE = 3 };
    const char *address = homes[_i].address;
    int fds[LIMIT], other = -1;
    restart((const char *const[]){"--listen", homes[_i].listen, "--connections-per-address", "4", NULL});
    for (size_t i = 0; i < LIMIT; i++) {
        fds[i] = open_from(address);
        ck_assert(is_served(fds[i]));
    }
    for (size_t i = 0; i < MORE; i++) {
        int more = open_from(address);
        ck_assert(!is_served(more));
        wire_close(more);
    }
    if (homes[_i].other) {
        other = open_from(homes[_i].other);
        ck_assert(is_served(other));
    }
    for (size_t i = 0; i < LIMIT; i++)
        ck_assert(is_served(fds[i]));
    wire_close(fds[0]);
    bool served = false;
    for (int waited = 0; waited < WIRE_WAIT_MS && !served; waited += 10) {
        int again = open_from(address);
        served = is_served(again);
        wire_close(again);
        nap_ms(10);
    }
    ck_assert(served);
    for (size_t i = 1; i < LIMIT; i++)
        wire_close(fds[i]);
    if (other >= 0)
        wire_close(other);
    wire_await_at_most("blueprint_connections", 1);
    ck_assert_int_ge(server_metric("blueprint_crowded_connections_total"), MORE);
}
END_TEST

/* Not ours to prevent: a limit below what was there at the start, or descriptors taken elsewhere. */
START_TEST(test_limits__without_descriptors_clients_wait_and_are_served_later)
{
    enum { CLIENTS = 40 };
    const size_t spare = _i ? 8 : 0;
    struct rlimit limit, before;
    int fds[CLIENTS];
    plan_of(small_request(), 201);
    ck_assert_int_eq(prlimit(server.pid, RLIMIT_NOFILE, NULL, &before), 0);
    settle(server.pid);
    const size_t had = descriptors_of(server.pid);
    limit = (struct rlimit){.rlim_cur = limit_with_room_for(server.pid, spare), .rlim_max = before.rlim_max};
    ck_assert_int_eq(prlimit(server.pid, RLIMIT_NOFILE, &limit, NULL), 0);
    for (size_t i = 0; i < CLIENTS; i++) {
        fds[i] = wire_open();
        ck_assert(wire_send_text(fds[i], GET));
    }
    for (size_t i = 0; i < spare; i++)
        wire_expect(fds[i], 200);
    struct wire_answer answer;
    ck_assert_int_eq(wire_read(fds[spare], &answer, 300), WIRE_SILENCE);
    ck_assert_uint_eq(descriptors_of(server.pid), had + spare);
    if (spare == 0)
        ck_assert_int_eq(prlimit(server.pid, RLIMIT_NOFILE, &before, NULL), 0);
    /* Each that leaves makes room for one. */
    for (size_t i = 0; i < CLIENTS; i++) {
        if (i >= spare)
            wire_expect(fds[i], 200);
        wire_close(fds[i]);
    }
    json_t *request = small_request();
    set_at(request, "/workload/sequence_length", json_integer(512));
    plan_of(request, 201);
    ck_assert_int_eq(server_metric("blueprint_plans_derived_total"), 2);
    ck_assert_int_eq(prlimit(server.pid, RLIMIT_NOFILE, &before, NULL), 0);
}
END_TEST

Suite *suite_limits(void)
{
    Suite *suite = suite_create("http limits");
    TCase *tcase = server_tcase(suite, "limits");
    tcase_add_test(tcase, test_limits__requests_that_drip_in_are_cut);
    tcase_add_test(tcase, test_limits__a_slow_request_that_arrives_in_time_is_answered);
    tcase_add_test(tcase, test_limits__the_end_of_a_stream_with_the_last_byte_is_no_hang_up);
    tcase_add_test(tcase, test_limits__half_a_request_and_the_end_is_closed_without_an_answer);
    tcase_add_test(tcase, test_limits__idle_connections_past_the_limit_do_not_keep_others_out);
    tcase_add_test(tcase, test_limits__clients_of_both_sockets_come_for_the_last_places);
    tcase_add_loop_test(tcase, test_limits__as_many_requests_at_once_as_are_taken_at_a_time_are_answered, 0, 5);
    tcase_add_loop_test(tcase, test_limits__one_address_has_no_more_than_its_connections, 0, has_v6() ? 2 : 1);
    tcase_add_loop_test(tcase, test_limits__without_descriptors_clients_wait_and_are_served_later, 0, 2);
    if (is_long())
        tcase_add_test(tcase, test_limits__clients_that_are_idle_or_do_not_read_are_cut);
    return suite;
}
