/* More work than there are workers: what is refused and until when, what a client's own deadline does, and that a stop
 * answers everybody. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/api/expect.h"
#include "tests/api/server.h"
#include "tests/http/wire.h"

/* Slow plans that one worker needs some seconds for. */
enum { BACKLOG = 700, CLIENTS_MAX = 1000 };

static int fds[CLIENTS_MAX];

static void restart(const char *const *arguments)
{
    server_stop(&server);
    server_restart(&server, arguments);
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

/* Slow plans from number `first` on, each asked for by a client of its own. */
static void post_slow(int *ret_fds, int first, int n, const char *headers)
{
    for (int i = 0; i < n; i++) {
        ret_fds[i] = wire_open();
        ck_assert(wire_send_text(ret_fds[i], wire_post("/v1/plans", headers, wire_slow_plan(first + i))));
    }
}

static void leave(const int *of, int n)
{
    for (int i = 0; i < n; i++)
        wire_reset(of[i]);
}

/* One worker, and that many slow plans before it; however slow it is, nobody's time is over. */
static void make_backlog(int n)
{
    restart((const char *const[]){"--workers", "1", "--queue", "1024", "--answer-timeout", "3600", NULL});
    post_slow(fds, 0, n, "");
    wire_await_at_least("blueprint_waiters", n / 2);
}

/* ---- Deadlines ---- */

START_TEST(test_pressure__what_nobody_waits_for_any_more_leaves_the_queue_underived)
{
    enum { LATE = 10, AHEAD = 150 };
    int late[LATE];
    make_backlog(AHEAD);
    post_slow(late, BACKLOG, LATE, "Prefer: wait=0\r\n");
    for (int i = 0; i < LATE; i++) {
        struct wire_answer answer = wire_expect(late[i], 503);
        ck_assert_str_eq(answer.code, "deadline_exceeded");
        ck_assert_str_eq(answer.applied, "wait=0");
        ck_assert_str_ne(answer.retry_after, "");
    }
    ck_assert_int_eq(server_metric("blueprint_plans_cancelled_total"), LATE);
    ck_assert_int_le(server_metric("blueprint_queue_depth"), AHEAD);
    for (int i = 0; i < AHEAD; i++) {
        wire_expect(fds[i], 201);
        wire_close(fds[i]);
    }
    ck_assert_int_eq(server_metric("blueprint_plans_derived_total"), AHEAD);
    ck_assert_int_eq(server_metric("blueprint_queue_depth"), 0);
    ck_assert_int_eq(server_metric("blueprint_plans_in_flight"), 0);
    ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM plans"), AHEAD);
    /* The connection goes on, and so does the request without its deadline. */
    ck_assert(wire_send_text(late[0], wire_post("/v1/plans", "", wire_slow_plan(BACKLOG))));
    wire_expect(late[0], 201);
    for (int i = 0; i < LATE; i++)
        wire_close(late[i]);
}
END_TEST

START_TEST(test_pressure__the_queue_shrinks_when_clients_leave)
{
    make_backlog(BACKLOG);
    leave(fds, BACKLOG);
    double start = now();
    wire_await_at_most("blueprint_plans_in_flight", 0);
    wire_await_at_most("blueprint_waiters", 0);
    ck_assert_int_eq(server_metric("blueprint_queue_depth"), 0);
    long long derived = server_metric("blueprint_plans_derived_total");
    long long cancelled = server_metric("blueprint_plans_cancelled_total");
    ck_assert_msg(derived + cancelled >= BACKLOG / 2, "%lld derived, %lld cancelled", derived, cancelled);
    ck_assert_msg(cancelled > derived, "%lld derived in %.1f s, %lld cancelled", derived, now() - start, cancelled);
}
END_TEST

START_TEST(test_pressure__a_request_timeout_bounds_the_wait)
{
    make_backlog(BACKLOG);
    int late = wire_open();
    double start = now();
    ck_assert(wire_send_text(late, wire_post("/v1/plans", "Request-Timeout: 1\r\n", wire_slow_plan(BACKLOG))));
    struct wire_answer answer = wire_expect(late, 503);
    ck_assert_str_eq(answer.code, "deadline_exceeded");
    ck_assert_str_eq(answer.applied, "");
    ck_assert_msg(now() - start >= 0.99, "after %.3f s", now() - start);
    /* Errands wait behind plans, and no longer than they are told to. */
    ck_assert(wire_send_text(late, wire_post("/v1/fit", "Prefer: wait=0\r\n",
                                             "{\"model\": {\"name\": \"llama-2-7b\"}, \"workload\": {\"mode\":"
                                             " \"inference\", \"phase\": \"decode\", \"batch_size\": 1,"
                                             " \"context_length\": 16, \"dtype\": \"float16\"}, \"strategy\": {},"
                                             " \"memory_bytes\": 85899345920}")));
    answer = wire_expect(late, 503);
    ck_assert_str_eq(answer.applied, "wait=0");
    wire_close(late);
    leave(fds, BACKLOG);
}
END_TEST

START_TEST(test_pressure__the_daemon_bounds_what_a_client_asks_for)
{
    restart((const char *const[]){"--workers", "1", "--queue", "1024", "--answer-timeout", "1", NULL});
    post_slow(fds, 0, BACKLOG, "Request-Timeout: 3600\r\n");
    int n_late = 0;
    for (int i = 0; i < BACKLOG; i++) {
        struct wire_answer answer;
        ck_assert_int_eq(wire_read(fds[i], &answer, WIRE_WAIT_MS), WIRE_ANSWER);
        ck_assert(answer.status == 201 || strcmp(answer.code, "deadline_exceeded") == 0);
        n_late += answer.status == 503;
        wire_close(fds[i]);
    }
    ck_assert_int_gt(n_late, 0);
    ck_assert_int_ge(server_metric("blueprint_plans_cancelled_total"), n_late / 2);
}
END_TEST

START_TEST(test_pressure__an_accepted_plan_is_answered_after_the_wait_or_when_it_is_there)
{
    make_backlog(BACKLOG);
    int one = wire_open();
    const char *headers = "Prefer: respond-async, wait=1\r\n", *body = wire_slow_plan(BACKLOG);
    double start = now();
    ck_assert(wire_send_text(one, wire_post("/v1/plans", headers, body)));
    struct wire_answer answer = wire_expect(one, 202);
    ck_assert_msg(now() - start >= 0.99, "after %.3f s", now() - start);
    ck_assert_str_eq(answer.applied, "respond-async, wait=1");
    ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM jobs"), 1);
    /* It is in flight and on disk: whoever does not wait is told so at once. */
    ck_assert(wire_send_text(one, wire_post("/v1/plans", "Prefer: respond-async\r\n", body)));
    ck_assert_str_eq(wire_expect(one, 202).applied, "respond-async");
    leave(fds, BACKLOG);
    wire_await_at_most("blueprint_plans_in_flight", 0);
    ck_assert(wire_send_text(one, wire_post("/v1/plans", headers, body)));
    ck_assert_str_eq(wire_expect(one, 200).applied, "");
    /* Soon enough is no 202. */
    headers = "Prefer: respond-async, wait=60\r\n";
    ck_assert(wire_send_text(one, wire_post("/v1/plans", headers, wire_slow_plan(BACKLOG + 1))));
    wire_expect(one, 201);
    wire_close(one);
}
END_TEST

START_TEST(test_pressure__a_timeout_that_is_none_is_refused)
{
    static const char *const headers[] = {"Request-Timeout: 0\r\n", "Request-Timeout: 5s\r\n", "Request-Timeout:\r\n",
                                          "Request-Timeout: 5\r\nRequest-Timeout: 5\r\n"};
    int one = wire_open();
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        ck_assert(wire_send_text(one, wire_post("/v1/plans", headers[i], wire_slow_plan(0))));
        ck_assert_str_eq(wire_expect(one, 400).code, "invalid_header");
    }
    wire_close(one);
    ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM plans"), 0);
}
END_TEST

/* ---- Full ---- */

START_TEST(test_pressure__a_full_queue_says_when_by_how_fast_it_drains)
{
    int n = 100, n_refused = 0;
    struct wire_answer refusal = {0};
    restart((const char *const[]){"--workers", "1", "--queue", "256", "--answer-timeout", "3600", NULL});
    post_slow(fds, 0, n, "");
    wire_await_at_least("blueprint_plans_derived_total", 40); /* how fast it drains is known */
    while (server_metric("blueprint_queue_full_total") == 0) {
        ck_assert_int_lt(n, CLIENTS_MAX);
        post_slow(&fds[n], n, 1, "");
        n++;
    }
    double start = now();
    for (int i = 0; i < n; i++) {
        struct wire_answer answer;
        ck_assert_int_eq(wire_read(fds[i], &answer, WIRE_WAIT_MS), WIRE_ANSWER);
        ck_assert(answer.status == 201 || strcmp(answer.code, "queue_full") == 0);
        n_refused += answer.status == 503;
        refusal = answer.status == 503 ? answer : refusal;
        wire_close(fds[i]);
    }
    double took = now() - start;
    ck_assert_int_ge(n_refused, 1);
    int seconds = atoi(refusal.retry_after);
    ck_assert_msg(seconds >= 1 && seconds <= 60, "Retry-After: %s", refusal.retry_after);
    ck_assert_msg(seconds <= 2 + 6 * took && took <= 2 + 6 * seconds, "told %d s, took %.2f s", seconds, took);
    ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM plans WHERE state = 'committed'"), n - n_refused);
}
END_TEST

/* ---- Stop ---- */

/* Every client that waits when the stop comes has an answer: its plan, or, where there is no time for that, 503. None
 * is cut off, none waits longer than the stop may take, and what was answered 201 is there. */
static void stop_with(int n, const char *seconds, int *ret_created, int *ret_refused)
{
    restart((const char *const[]){"--workers", "1", "--queue", "2000", "--answer-timeout", "3600", "--stop-timeout",
                                  seconds, NULL});
    post_slow(fds, 0, n, "");
    wire_await_at_least("blueprint_waiters", n / 2);
    wire_await_at_least("blueprint_connections", n);
    /* Nobody is in the middle of a request any more. */
    double start = now();
    long long handled = 0;
    while (handled < n && now() - start < 60)
        handled = server_metric("blueprint_waiters") + wire_handled("createPlan");
    ck_assert_int_ge(handled, n);
    ck_assert_int_eq(kill(server.pid, SIGTERM), 0);
    *ret_created = *ret_refused = 0;
    for (int i = 0; i < n; i++) {
        struct wire_answer answer = {0};
        ck_assert_msg(wire_read(fds[i], &answer, 300000) == WIRE_ANSWER, "client %d of %d has no answer", i, n);
        *ret_created += answer.status == 201;
        *ret_refused += answer.status == 503 && strcmp(answer.code, "stopping") == 0;
    }
    double took = now() - start;
    ck_assert_int_eq(server_wait(&server), 0);
    ck_assert_msg(took < atoi(seconds) + 30, "%.1f s", took);
    for (int i = 0; i < n; i++)
        wire_close(fds[i]);
    ck_assert_int_eq(*ret_created + *ret_refused, n);
    server_restart(&server, NULL);
    ck_assert_int_ge(server_count(&server, "SELECT count(*) FROM plans WHERE state = 'committed'"), *ret_created);
}

static int waiting_clients(void)
{
    return getenv("BP_LONG") ? 1000 : 200;
}

START_TEST(test_pressure__a_stop_with_time_enough_answers_everybody_with_the_plan)
{
    int created, refused;
    stop_with(waiting_clients(), "300", &created, &refused);
    ck_assert_int_eq(created, waiting_clients());
}
END_TEST

START_TEST(test_pressure__a_stop_without_time_refuses_who_still_waits)
{
    static const char *const seconds[] = {"0", "1"};
    int created, refused;
    stop_with(waiting_clients(), seconds[_i], &created, &refused);
    if (_i == 0)
        ck_assert_int_gt(refused, 0);
}
END_TEST

Suite *suite_pressure(void)
{
    Suite *suite = suite_create("http pressure");
    TCase *tcase = server_tcase(suite, "pressure");
    tcase_add_test(tcase, test_pressure__what_nobody_waits_for_any_more_leaves_the_queue_underived);
    tcase_add_test(tcase, test_pressure__the_queue_shrinks_when_clients_leave);
    tcase_add_test(tcase, test_pressure__a_request_timeout_bounds_the_wait);
    tcase_add_test(tcase, test_pressure__the_daemon_bounds_what_a_client_asks_for);
    tcase_add_test(tcase, test_pressure__an_accepted_plan_is_answered_after_the_wait_or_when_it_is_there);
    tcase_add_test(tcase, test_pressure__a_timeout_that_is_none_is_refused);
    tcase_add_test(tcase, test_pressure__a_full_queue_says_when_by_how_fast_it_drains);
    tcase_add_test(tcase, test_pressure__a_stop_with_time_enough_answers_everybody_with_the_plan);
    tcase_add_loop_test(tcase, test_pressure__a_stop_without_time_refuses_who_still_waits, 0, 2);
    return suite;
}
