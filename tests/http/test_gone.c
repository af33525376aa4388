/* Clients that are gone: at every phase of a request, in order or with a reset. Nothing may be left of them, and nobody
 * else may notice. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/api/expect.h"
#include "tests/api/server.h"
#include "tests/http/wire.h"

enum { ROUNDS = 40 };

static void nap_us(long us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static void go(int fd, bool with_reset)
{
    if (with_reset)
        wire_reset(fd);
    else
        wire_close(fd);
}

/* Nothing of what was begun is under way or held. */
static void expect_nothing_left(void)
{
    wire_await_at_most("blueprint_plans_in_flight", 0);
    wire_await_at_most("blueprint_waiters", 0);
    wire_await_at_most("blueprint_queue_depth", 0);
    wire_await_at_most("blueprint_connections", 1);
    wire_await_at_most("blueprint_body_bytes", 0);
    ck_assert_int_eq(http_get("/readyz").status, 200);
}

START_TEST(test_gone__in_the_middle_of_sending)
{
    const char *request = wire_post("/v1/plans", "Expect: 100-continue\r\n", wire_slow_plan(0));
    size_t n = strlen(request), head = (size_t)(strstr(request, "\r\n\r\n") - request) + 4;
    const size_t parts[] = {0, 1, 20, head - 1, head, head + 1, n - 1};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (int with_reset = 0; with_reset < 2; with_reset++) {
            int fd = wire_open();
            ck_assert(wire_send(fd, request, parts[i]));
            nap_us((long)(i % 3) * 1000);
            go(fd, with_reset);
        }
    expect_nothing_left();
    ck_assert_int_eq(wire_handled("createPlan"), 0);
    ck_assert_int_eq(server_metric("blueprint_plans_derived_total"), 0);
}
END_TEST

/* Its work waits for a worker: it leaves the queue. */
START_TEST(test_gone__before_the_derivation)
{
    enum { BEFORE = 150, GONE = 20 };
    static int before[BEFORE], gone[GONE];
    server_stop(&server);
    server_restart(&server, (const char *const[]){"--workers", "1", NULL});
    for (int i = 0; i < BEFORE; i++) {
        before[i] = wire_open();
        ck_assert(wire_send_text(before[i], wire_post("/v1/plans", "", wire_slow_plan(i))));
    }
    for (int i = 0; i < GONE; i++) {
        gone[i] = wire_open();
        ck_assert(wire_send_text(gone[i], wire_post("/v1/plans", "", wire_slow_plan(BEFORE + i))));
    }
    wire_await_at_least("blueprint_connections", BEFORE + GONE);
    wire_await_at_least("blueprint_waiters", GONE);
    for (int i = 0; i < GONE; i++)
        go(gone[i], i % 2);
    for (int i = 0; i < BEFORE; i++) {
        wire_expect(before[i], 201);
        wire_close(before[i]);
    }
    expect_nothing_left();
    long long cancelled = server_metric("blueprint_plans_cancelled_total");
    long long derived = server_metric("blueprint_plans_derived_total");
    ck_assert_msg(derived + cancelled <= BEFORE + GONE && derived >= BEFORE, "%lld derived, %lld cancelled", derived,
                  cancelled);
    ck_assert_int_gt(cancelled, 0);
    for (int i = 0; i < GONE; i++) { /* nothing was kept of it, or all */
        struct reply reply = post_plan(json_of(wire_slow_plan(BEFORE + i)));
        ck_assert_msg(reply.status == 200 || reply.status == 201, "%d: %.200s", reply.status, reply.body);
    }
    ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM plans WHERE state = 'committed'"), BEFORE + GONE);
}
END_TEST

/* Its work is being done, or being committed: it ends either way, whole or not at all. */
START_TEST(test_gone__during_the_derivation)
{
    for (int i = 0; i < ROUNDS; i++) {
        int fd = wire_open();
        ck_assert(wire_send_text(fd, wire_post("/v1/plans", "", wire_slow_plan(i))));
        nap_us(i * 500);
        go(fd, i % 2);
    }
    expect_nothing_left();
    ck_assert_int_gt(server_metric("blueprint_hang_ups_total"), 0);
    ck_assert_int_eq(server_metric("blueprint_plans_failed_total"), 0);
    for (int i = 0; i < ROUNDS; i++) {
        struct reply reply = post_plan(json_of(wire_slow_plan(i)));
        ck_assert_msg(reply.status == 200 || reply.status == 201, "%d: %.200s", reply.status, reply.body);
        ck_assert_int_eq(http_post(keep_text("/v1/plans/%s/replays", text_at(reply.json, "/id")), NULL).status, 201);
    }
    ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM plans WHERE state = 'committed'"), ROUNDS);
}
END_TEST

/* Of several who wait for one plan, some go: the others get it. */
START_TEST(test_gone__beside_others_who_wait_for_the_same)
{
    enum { CLIENTS = 16 };
    for (int round = 0; round < ROUNDS / 4; round++) {
        int fds[CLIENTS];
        for (int i = 0; i < CLIENTS; i++) {
            fds[i] = wire_open();
            ck_assert(wire_send_text(fds[i], wire_post("/v1/plans", "", wire_slow_plan(round))));
        }
        nap_us(round * 700);
        for (int i = 0; i < CLIENTS; i++)
            if ((i + round) % 3)
                go(fds[i], i % 2);
        for (int i = 0; i < CLIENTS; i++) {
            struct wire_answer answer;
            if ((i + round) % 3)
                continue;
            ck_assert_int_eq(wire_read(fds[i], &answer, WIRE_WAIT_MS), WIRE_ANSWER);
            ck_assert_msg(answer.status == 200 || answer.status == 201, "%d %s", answer.status, answer.code);
            wire_close(fds[i]);
        }
    }
    expect_nothing_left();
    ck_assert_int_eq(server_metric("blueprint_plans_derived_total"), ROUNDS / 4);
}
END_TEST

/* The answer is there, or half of it was taken. */
START_TEST(test_gone__after_the_derivation)
{
    for (int i = 0; i < ROUNDS / 4; i++) {
        int fd = wire_open();
        ck_assert(wire_send_text(fd, wire_post("/v1/plans", "", wire_slow_plan(i))));
        while (server_count(&server, "SELECT count(*) FROM plans") <= i)
            nap_us(2000);
        go(fd, i % 2);
        plan_of(json_of(wire_slow_plan(i)), 200);
    }
    for (int i = 0; i < ROUNDS; i++) {
        int fd = wire_open();
        for (int k = 0; k < 20; k++)
            ck_assert(wire_send_text(fd, "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"));
        nap_us(i * 200);
        go(fd, i % 2);
    }
    expect_nothing_left();
    ck_assert_int_eq(server_metric("blueprint_plans_derived_total"), ROUNDS / 4);
}
END_TEST

/* What was asked for after an answer that is not read is not run before that was taken. */
START_TEST(test_gone__with_a_second_request_behind_the_first)
{
    for (int i = 0; i < ROUNDS / 2; i++) {
        int fd = wire_open();
        ck_assert(wire_send_text(fd, wire_post("/v1/plans", "", wire_slow_plan(2 * i))));
        ck_assert(wire_send_text(fd, wire_post("/v1/plans", "", wire_slow_plan(2 * i + 1))));
        nap_us(i * 1000);
        go(fd, i % 2);
    }
    expect_nothing_left();
    ck_assert_int_le(server_metric("blueprint_plans_derived_total"), ROUNDS);
    ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM plans WHERE state != 'committed'"), 0);
}
END_TEST

Suite *suite_gone(void)
{
    Suite *suite = suite_create("http gone");
    TCase *tcase = server_tcase(suite, "gone");
    tcase_add_test(tcase, test_gone__in_the_middle_of_sending);
    tcase_add_test(tcase, test_gone__before_the_derivation);
    tcase_add_test(tcase, test_gone__during_the_derivation);
    tcase_add_test(tcase, test_gone__beside_others_who_wait_for_the_same);
    tcase_add_test(tcase, test_gone__after_the_derivation);
    tcase_add_test(tcase, test_gone__with_a_second_request_behind_the_first);
    return suite;
}
