/* What is seen of the daemon from outside: ids of requests, its log, its metrics, whether it is ready. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

#include "tests/api/expect.h"
#include "tests/api/server.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"

static void start_debug(void)
{
    static const char *const arguments[] = {"--log-level", "debug", NULL};
    server_start(&server, arguments);
}

static void stop(void)
{
    server_stop(&server);
    server_remove(&server);
    http_forget();
}

/* ---- Ids ---- */

START_TEST(test_observe__an_answer_says_the_id_of_its_request)
{
    const struct call calls[] = {
        {.method = "GET", .target = "/healthz", .headers = {"X-Request-Id: my-own:1"}},
        {.method = "POST", .target = "/v1/plans", .body = "{", .n = 1, .headers = {"X-Request-Id: my-own:1"}},
        {.method = "GET", .target = "/none", .headers = {"X-Request-Id: my-own:1"}},
        {.method = "DELETE", .target = "/healthz", .headers = {"X-Request-Id: my-own:1"}},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct reply reply = http_call(&calls[i]);
        ck_assert_ptr_nonnull(http_header(&reply, "x-request-id"));
        ck_assert_str_eq(http_header(&reply, "x-request-id"), "my-own:1");
        ck_assert_ptr_null(http_header(&reply, "traceresponse"));
    }
}
END_TEST

START_TEST(test_observe__an_id_that_is_not_sane_is_replaced)
{
    const char *const odd[] = {"X-Request-Id: a b", "X-Request-Id: \"quoted\"", "X-Request-Id: a\xff",
                               "X-Request-Id: <script>"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct reply reply = http_call(&(struct call){.method = "GET", .target = "/healthz", .headers = {odd[i]}});
        const char *id = http_header(&reply, "x-request-id");
        ck_assert_ptr_nonnull(id);
        ck_assert_msg(strspn(id, "0123456789abcdef") == 16 && id[16] == '\0', "%s", id);
    }
}
END_TEST

START_TEST(test_observe__a_traced_request_is_answered_with_its_span)
{
    struct reply reply = http_call(
        &(struct call){.method = "GET", .target = "/healthz", .headers = {"traceparent: 00-" TRACE "-" PARENT "-01"}});
    const char *response = http_header(&reply, "traceresponse");
    ck_assert_ptr_nonnull(response);
    ck_assert_uint_eq(strlen(response), 55);
    ck_assert_int_eq(strncmp(response, "00-" TRACE "-", 36), 0);
    ck_assert_int_ne(strncmp(response + 36, PARENT, 16), 0);
    ck_assert_str_eq(response + 52, "-01");
    reply = http_call(&(struct call){
        .method = "GET", .target = "/healthz", .headers = {"traceparent: 00-" TRACE "-" PARENT "-01-x"}});
    ck_assert_int_eq(reply.status, 200);
    ck_assert_ptr_null(http_header(&reply, "traceresponse"));
}
END_TEST

/* Answers are shared and ids are not: each gets its own, waited for or not. */
START_TEST(test_observe__requests_at_the_same_time_keep_their_ids)
{
    enum { N = 24 };
    struct call calls[N];
    struct reply replies[N];
    const char *request = json_text(small_request());
    for (int i = 0; i < N; i++)
        calls[i] = (struct call){.method = "POST",
                                 .target = "/v1/plans",
                                 .body = request,
                                 .n = strlen(request),
                                 .headers = {keep_text("X-Request-Id: request-%d", i)}};
    for (int round = 0; round < 3; round++) {
        http_call_together(calls, N, replies);
        for (int i = 0; i < N; i++)
            ck_assert_str_eq(http_header(&replies[i], "x-request-id"), keep_text("request-%d", i));
    }
}
END_TEST

/* An answer that caches may keep names a request only to whom it belongs. */
START_TEST(test_observe__immutable_answers_name_only_requests_that_have_a_name)
{
    json_t *plan = plan_of(small_request(), 201);
    const char *target = keep_text("/v1/snapshots/%s", text_at(plan, "/snapshots/0/digest"));
    struct reply plain = http_get("%s", target);
    struct reply named =
        http_call(&(struct call){.method = "GET", .target = target, .headers = {"X-Request-Id: mine"}});
    struct reply again = http_get("%s", target);
    ck_assert_int_eq(plain.status, 200);
    ck_assert_ptr_null(http_header(&plain, "x-request-id"));
    ck_assert_str_eq(http_header(&named, "x-request-id"), "mine");
    ck_assert_ptr_null(http_header(&again, "x-request-id"));
    ck_assert_str_eq(http_header(&named, "etag"), http_header(&plain, "etag"));
    ck_assert_uint_eq(named.n, plain.n);
}
END_TEST

/* ---- The log ---- */

static const char *text_or(json_t *line, const char *key, const char *fallback)
{
    const char *text = json_string_value(json_object_get(line, key));
    return text ? text : fallback;
}

/* Every line of the log must be an object; the first whose `key` is `value`, waited for, or NULL. */
static json_t *find_line(const char *key, const char *value)
{
    const struct timespec moment = {.tv_nsec = 20000000};
    for (int tries = 0; tries < 500; tries++) {
        static char text[65536];
        FILE *log = fopen(server.log, "r");
        ck_assert_ptr_nonnull(log);
        while (fgets(text, sizeof text, log)) {
            if (text[strlen(text) - 1] != '\n')
                break; /* being written */
            json_t *line = keep_json(json_loads(text, JSON_REJECT_DUPLICATES, NULL));
            ck_assert_msg(json_is_object(line), "%s", text);
            if (strcmp(text_or(line, key, ""), value) == 0) {
                fclose(log);
                return line;
            }
        }
        fclose(log);
        nanosleep(&moment, NULL);
    }
    return NULL;
}

START_TEST(test_observe__every_request_leaves_a_line_at_debug)
{
    const char *request = json_text(small_request());
    struct reply reply =
        http_call(&(struct call){.method = "POST",
                                 .target = "/v1/plans",
                                 .body = request,
                                 .n = strlen(request),
                                 .headers = {"X-Request-Id: one-plan", "traceparent: 00-" TRACE "-" PARENT "-00"}});
    json_t *line = find_line("message", "plan derived");
    ck_assert_ptr_nonnull(line);
    ck_assert_str_eq(text_or(line, "request_id", ""), "one-plan"); /* of a worker's thread */
    ck_assert_str_eq(text_or(line, "trace_id", ""), TRACE);
    ck_assert_str_eq(text_or(line, "plan", ""), text_at(reply.json, "/id"));
    line = find_line("route", "createPlan");
    ck_assert_ptr_nonnull(line);
    ck_assert_str_eq(text_or(line, "message", ""), "request");
    ck_assert_str_eq(text_or(line, "level", ""), "debug");
    ck_assert_str_eq(text_or(line, "request_id", ""), "one-plan");
    ck_assert_str_eq(text_or(line, "parent_id", ""), PARENT);
    ck_assert_ptr_nonnull(strstr(http_header(&reply, "traceresponse"), text_or(line, "span_id", "none")));
    ck_assert_str_eq(text_or(line, "target", ""), "/v1/plans");
    ck_assert_str_eq(text_or(line, "sent", ""), "yes");
    ck_assert_int_eq(json_integer_value(json_object_get(line, "status")), 201);
    ck_assert_int_eq(json_integer_value(json_object_get(line, "bytes")), (json_int_t)reply.n);
    ck_assert_int_gt(json_integer_value(json_object_get(line, "microseconds")), 0);
    http_get("/v1/plans/none");
    line = find_line("code", "invalid_id");
    ck_assert_ptr_nonnull(line);
    ck_assert_int_eq(json_integer_value(json_object_get(line, "status")), 400);
}
END_TEST

/* Lines stay lines, and the page of metrics stays one, whatever a client names. */
START_TEST(test_observe__hostile_targets_and_headers_break_nothing)
{
    static const char *const raw[] = {
        "GET /a\"}\\u0000{%0a%22 HTTP/1.1\r\nHost: a\r\nX-Request-Id: a\"b\r\nConnection: close\r\n\r\n",
        "GET /\xff\xfe\x80%ff HTTP/1.1\r\nHost: a\r\ntraceparent: 00-\xff\r\nConnection: close\r\n\r\n",
        "GET /v1/plans/%0a%22%7d?limit=%22%0a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "BREW\x7f /{route=\"x\"} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET /\x1b[2J HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof raw / sizeof *raw; i++)
        http_raw(raw[i], strlen(raw[i]), 5000);
    http_call(&(struct call){.method = "GET", .target = "/healthz", .headers = {"X-Request-Id: the-last"}});
    json_t *line = find_line("request_id", "the-last"); /* has read all lines before */
    ck_assert_ptr_nonnull(line);
    ck_assert_ptr_nonnull(find_line("target", "/a\"}\\u0000{%0a%22"));
    struct reply metrics = http_get("/metrics");
    for (const char *at = metrics.body; *at; at = strchr(at, '\n') + 1) {
        ck_assert_msg(strncmp(at, "# ", 2) == 0 || strncmp(at, "blueprint_", 10) == 0 ||
                          strncmp(at, "process_", 8) == 0,
                      "%.80s", at);
        ck_assert_ptr_nonnull(strchr(at, '\n'));
    }
    ck_assert_ptr_null(strstr(metrics.body, "BREW"));
    ck_assert_ptr_nonnull(strstr(metrics.body, "{route=\"none\","));
}
END_TEST

START_TEST(test_observe__requests_leave_no_line_at_info)
{
    http_call(&(struct call){.method = "GET", .target = "/healthz", .headers = {"X-Request-Id: unsaid"}});
    http_get("/healthz");
    ck_assert_ptr_nonnull(find_line("message", "serving")); /* there is a log, and it is not silent */
    ck_assert(!server_logged(&server, "unsaid"));
}
END_TEST

/* ---- Readiness ---- */

/* Asks until the answer has this status. */
static struct reply await_readiness(int status)
{
    const struct timespec moment = {.tv_nsec = 100000000};
    struct reply reply = http_get("/readyz");
    for (int tries = 0; reply.status != status && tries < 600; tries++) {
        nanosleep(&moment, NULL);
        reply = http_get("/readyz");
    }
    ck_assert_msg(reply.status == status, "%d %s", reply.status, reply.body);
    return reply;
}

START_TEST(test_observe__readiness_names_its_probes)
{
    struct reply reply = http_get("/readyz");
    ck_assert_int_eq(reply.status, 200);
    static const char *const probes[] = {"/probes/write", "/probes/schema", "/probes/disk", "/probes/wal",
                                         "/probes/queue"};
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++)
        ck_assert_str_eq(text_at(reply.json, probes[i]), "ok");
}
END_TEST

START_TEST(test_observe__a_disk_reserve_that_is_not_there_is_said)
{
    static const char *const arguments[] = {"--disk-reserve", "1073741824", NULL};
    server_stop(&server);
    server_restart(&server, arguments);
    struct reply reply = http_get("/readyz");
    expect_problem(&reply, 503, "disk_low");
    expect_error(&reply, "/probes/disk", "disk_low");
    ck_assert_str_eq(text_at(reply.json, "/probes/write"), "ok");
    plan_of(small_request(), 201); /* it works on all the same */
}
END_TEST

START_TEST(test_observe__a_file_system_that_is_full_is_said_until_there_is_room)
{
    static const char *const arguments[] = {"--disk-reserve", "0", NULL};
    static char block[65536];
    server_stop(&server);
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("small", server.directory, "tmpfs", 0, "size=1m")) {
        printf("observe: there can be no small file system here (%s): a full one is left out\n", strerror(errno));
        return;
    }
    server_restart(&server, arguments);
    await_readiness(200);
    const char *path = keep_text("%s/filling", server.directory);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    for (ssize_t n = sizeof block; n > 0;)
        n = write(fd, block, n == (ssize_t)sizeof block ? sizeof block : 1);
    close(fd);
    struct reply reply = await_readiness(503);
    expect_error(&reply, "/probes/write", "storage_failed");
    ck_assert_int_eq(unlink(path), 0);
    await_readiness(200);
    server_stop(&server);
    ck_assert_int_eq(umount2(server.directory, MNT_DETACH), 0);
}
END_TEST

Suite *suite_observe(void)
{
    Suite *suite = suite_create("observe");
    TCase *plain = server_tcase(suite, "plain"), *debug = tcase_create("debug");
    tcase_add_test(plain, test_observe__an_answer_says_the_id_of_its_request);
    tcase_add_test(plain, test_observe__an_id_that_is_not_sane_is_replaced);
    tcase_add_test(plain, test_observe__a_traced_request_is_answered_with_its_span);
    tcase_add_test(plain, test_observe__requests_at_the_same_time_keep_their_ids);
    tcase_add_test(plain, test_observe__immutable_answers_name_only_requests_that_have_a_name);
    tcase_add_test(plain, test_observe__requests_leave_no_line_at_info);
    tcase_add_test(plain, test_observe__readiness_names_its_probes);
    tcase_add_test(plain, test_observe__a_disk_reserve_that_is_not_there_is_said);
    tcase_add_test(plain, test_observe__a_file_system_that_is_full_is_said_until_there_is_room);
    tcase_add_checked_fixture(debug, start_debug, stop);
    tcase_set_timeout(debug, 240);
    tcase_add_test(debug, test_observe__every_request_leaves_a_line_at_debug);
    tcase_add_test(debug, test_observe__hostile_targets_and_headers_break_nothing);
    suite_add_tcase(suite, debug);
    return suite;
}
