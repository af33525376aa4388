/* Whether the HTTP server's threads turn around, on a real server whose thread is made to wait. */
#include <check.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "daemon/http/http.h"
#include "daemon/log.h"
#include "daemon/store/internal.h"
#include "tests/lib/store_fixture.h"

static struct store_fixture store;
static struct bp_metrics metrics;
static struct bp_service *service;
static struct bp_access *access_rules;
static struct bp_http *http;

static void set_up(void)
{
    static const struct bp_peer_rules peers;
    static const struct bp_limits limits;
    const struct bp_access_options options = {.tokens = "", .peers = &peers, .limits = &limits};
    struct bp_problems problems = {0};
    bp_log_set_level(BP_LOG_ERROR);
    store_fixture_init(&store);
    store_fixture_open(&store);
    const struct bp_service_options of_service = {
        .database = store.path, .workers = 1, .queue = 1, .store = store.store, .metrics = &metrics};
    ck_assert_int_eq(bp_service_start(&of_service, &service, NULL), 0);
    ck_assert_int_eq(bp_access_open(&options, &access_rules, &problems), 0);
}

static void tear_down(void)
{
    bp_service_stop(service);
    store_fixture_close(&store);
    bp_service_free(service);
    store_fixture_release(&store);
    bp_access_close(access_rules);
}

static bool answers_soon(void)
{
    for (int i = 0; i < 15000; i++, nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL))
        if (bp_http_has_answered(http))
            return true;
    return false;
}

/* Not for a while: what was asked had the time to turn around. */
static bool stays_silent(void)
{
    for (int i = 0; i < 100; i++, nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL))
        if (bp_http_has_answered(http))
            return false;
    return true;
}

static void start_http(void)
{
    const struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct bp_http_options options = {.listen = (const struct sockaddr *)&any,
                                            .listen_size = sizeof any,
                                            .socket = "",
                                            .unix_listener = -1,
                                            .tcp_listener = -1,
                                            .receive_seconds = 30,
                                            .answer_seconds = 60,
                                            .access = access_rules,
                                            .service = service,
                                            .metrics = &metrics};
    struct bp_err err = {0};
    ck_assert_msg(bp_http_start(&options, &http, &err) == 0, "%s", err.message);
}

/* A connection that asked for a plan, which the HTTP thread looks up itself. */
static int ask_for_plan(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static const char request[] = "GET /v1/plans/0123456789abcdef HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const char *colon = strrchr(bp_http_address(http), ':');
    address.sin_port = htons((in_port_t)strtoul(colon + 1, NULL, 10));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(send(fd, request, sizeof request - 1, 0), (ssize_t)sizeof request - 1);
    return fd;
}

START_TEST(test_heartbeat__the_http_server_answers_only_when_it_turns_around)
{
    struct bp_db *taken[4];
    char byte;
    start_http();
    struct bp_store_pool *pool = &store.store->pool;
    for (int i = 0; i < 20; i++) {
        bp_http_ask(http);
        ck_assert(answers_soon());
    }
    /* Without a connection to read with, the thread that serves a GET waits. */
    pool->deadline_ns = INT64_C(3600) * 1000000000;
    for (size_t i = 0; i < 4; i++)
        ck_assert_ptr_nonnull(taken[i] = bp_store_pool_take(pool, NULL));
    int fd = ask_for_plan();
    for (bool silent = false; !silent; silent = stays_silent())
        bp_http_ask(http);
    for (size_t i = 0; i < 4; i++)
        bp_store_pool_give(pool, taken[i]);
    ck_assert(answers_soon());
    ck_assert_int_eq(recv(fd, &byte, 1, 0), 1);
    close(fd);
    bp_http_stop(http, bp_clock_ns() + UINT64_C(10) * 1000000000);
}
END_TEST

Suite *suite_heartbeat_http(void)
{
    Suite *suite = suite_create("heartbeat of HTTP");
    TCase *tcase = tcase_create("server");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, test_heartbeat__the_http_server_answers_only_when_it_turns_around);
    suite_add_tcase(suite, tcase);
    return suite;
}
