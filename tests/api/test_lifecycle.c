/* Starting, stopping, crashing and starting again; work that is answered later. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "tests/api/expect.h"
#include "tests/api/server.h"

enum { MANY = 48, WAIT_MS = 30000 };

/* One of many different requests. */
static json_t *request_number(int i)
{
    json_t *request = with_target(small_request(), i % 2 ? "reference-queue" : "reference-slot", 2, INT64_C(1) << 34);
    set_at(request, "/workload/sequence_length", json_integer(8 * (i + 1)));
    return request;
}

static void nap(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static json_t *wait_for(const char *target)
{
    for (int waited = 0; waited < WAIT_MS; waited += 10) {
        struct reply reply = http_get("%s", target);
        ck_assert_msg(reply.status == 200, "%s: %d %.500s", target, reply.status, reply.body);
        const char *state = text_at(reply.json, "/state");
        if (strcmp(state, "queued") != 0 && strcmp(state, "running") != 0)
            return reply.json;
        nap(10);
    }
    ck_abort_msg("%s is not done in time", target);
}

static struct reply post_async(json_t *request)
{
    const char *body = json_text(request);
    return http_call(&(struct call){.method = "POST",
                                    .target = "/v1/plans",
                                    .body = body,
                                    .n = strlen(body),
                                    .headers = {"Prefer: respond-async"}});
}

START_TEST(test_lifecycle__what_was_answered_is_there_after_a_restart)
{
    json_t *plan = plan_of(request_number(0), 201);
    struct reply before = http_get("/v1/plans/%s", text_at(plan, "/id"));
    if (_i)
        server_kill(&server);
    else
        server_stop(&server);
    server_restart(&server, NULL);
    struct reply after = http_get("/v1/plans/%s", text_at(plan, "/id"));
    ck_assert_int_eq(after.status, 200);
    ck_assert_str_eq(after.body, before.body);
    plan_of(request_number(0), 200);
    ck_assert_int_eq(server_metric("blueprint_plans_derived_total"), 0);
    for (size_t i = 0; i < 4; i++) {
        const char *digest = text_at(plan, keep_text("/snapshots/%zu/digest", i));
        ck_assert_int_eq(http_get("/v1/snapshots/%s", digest).status, 200);
    }
}
END_TEST

START_TEST(test_lifecycle__a_preference_to_be_answered_at_once_is_honoured)
{
    struct reply reply = post_async(request_number(1));
    ck_assert_msg(reply.status == 202, "status %d: %.500s", reply.status, reply.body);
    const char *location = http_header(&reply, "location");
    ck_assert_ptr_nonnull(location);
    ck_assert_str_eq(location, keep_text("/v1/plans/%s", text_at(reply.json, "/id")));
    json_t *plan = wait_for(location);
    ck_assert_str_eq(text_at(plan, "/state"), "committed");
    /* The same plan as without the preference. */
    ck_assert_str_eq(text_at(plan_of(request_number(1), 200), "/id"), text_at(plan, "/id"));
    struct reply again = post_async(request_number(1));
    ck_assert_int_eq(again.status, 200);
}
END_TEST

START_TEST(test_lifecycle__a_preference_does_not_hide_a_bad_request)
{
    json_t *request = request_number(0);
    set_at(request, "/workload/dtype", json_string("float64"));
    struct reply reply = post_async(request);
    expect_problem(&reply, 422, "unknown_value");
}
END_TEST

START_TEST(test_lifecycle__what_was_accepted_is_finished_after_a_crash)
{
    static const char *locations[MANY];
    for (int i = 0; i < MANY; i++) {
        struct reply reply = post_async(request_number(i));
        ck_assert_int_eq(reply.status, 202);
        locations[i] = http_header(&reply, "location");
    }
    server_kill(&server);
    server_restart(&server, NULL);
    for (int i = 0; i < MANY; i++)
        ck_assert_str_eq(text_at(wait_for(locations[i]), "/state"), "committed");
    ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM plans WHERE state = 'committed'"), MANY);
}
END_TEST

START_TEST(test_lifecycle__what_was_begun_twice_is_given_up_and_says_so)
{
    const char *locations[2];
    for (int i = 0; i < 2; i++) {
        struct reply reply = post_async(request_number(i));
        ck_assert_int_eq(reply.status, 202);
        locations[i] = http_header(&reply, "location");
        wait_for(locations[i]);
    }
    server_stop(&server);
    server_sql(&server, keep_text("DELETE FROM plan_snapshots; DELETE FROM plan_derivations; DELETE FROM plans;"
                                  "UPDATE jobs SET state = 'running', attempts = 1;"
                                  "UPDATE jobs SET attempts = 2 WHERE id = x'%s'",
                                  strchr(locations[0], ':') + 1));
    server_restart(&server, NULL);
    ck_assert_str_eq(text_at(wait_for(locations[1]), "/state"), "committed");
    json_t *plan = wait_for(locations[0]);
    ck_assert_str_eq(text_at(plan, "/state"), "failed");
    ck_assert_str_eq(text_at(plan, "/diagnostics/0/code"), "internal");
    ck_assert_str_eq(text_at(plan, "/diagnostics/0/path"), "");
    struct reply list = http_get("/v1/plans?state=failed");
    ck_assert_uint_eq(json_array_size(at(list.json, "/plans")), 1);
    expect_equal(at(list.json, "/plans/0/diagnostics"), at(plan, "/diagnostics"), "the diagnostics listed");
    ck_assert_int_eq(server_metric("blueprint_plans_failed_total"), 1);
    ck_assert(server_logged(&server, "\"jobs taken up again\",\"jobs\":1}"));
    plan_of(request_number(0), 201);
}
END_TEST

/* Whatever the moment, a plan is finished or said to be in flight. */
START_TEST(test_lifecycle__what_is_in_flight_is_listed_and_not_ready)
{
    static const char *locations[MANY];
    server_stop(&server);
    server_restart(&server, (const char *const[]){"--workers", "1", NULL});
    for (int i = 0; i < MANY; i++) {
        struct reply reply = post_async(request_number(i));
        ck_assert_int_eq(reply.status, 202);
        locations[i] = http_header(&reply, "location");
    }
    static const char *const states[] = {"queued", "running"};
    for (size_t i = 0; i < 2; i++) {
        struct reply list = http_get("/v1/plans?state=%s&limit=5", states[i]);
        ck_assert_uint_le(json_array_size(at(list.json, "/plans")), 5);
        ck_assert(json_is_null(at(list.json, "/next")));
        for (size_t j = 0; j < json_array_size(at(list.json, "/plans")); j++)
            ck_assert_str_eq(text_at(list.json, keep_text("/plans/%zu/state", j)), states[i]);
    }
    for (int i = 0; i < MANY; i++) {
        struct reply reply = http_post(keep_text("%s/replays", locations[i]), NULL);
        if (reply.status != 201)
            expect_problem(&reply, 409, "not_ready");
    }
    for (int i = 0; i < MANY; i++)
        wait_for(locations[i]);
    struct reply none = http_get("/v1/plans?state=queued");
    ck_assert_uint_eq(json_array_size(at(none.json, "/plans")), 0);
    struct reply paged = http_get("/v1/plans?state=queued&cursor=p1");
    ck_assert_int_eq(paged.status, 400);
    expect_error(&paged, "/cursor", "invalid_query");
}
END_TEST

/* In a child of its own, so that the requests are under way when the signal comes. */
static pid_t post_many(void)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child)
        return child;
    static struct call calls[MANY];
    static struct reply replies[MANY];
    for (int i = 0; i < MANY; i++) {
        const char *body = json_text(request_number(i));
        calls[i] = (struct call){.method = "POST", .target = "/v1/plans", .body = body, .n = strlen(body)};
    }
    http_call_together(calls, MANY, replies);
    int strange = 0, created = 0;
    for (int i = 0; i < MANY; i++) {
        created += replies[i].status == 201;
        strange += replies[i].status != 201 && replies[i].status != 503 && replies[i].status != 0;
    }
    FILE *file = fopen(keep_text("%s/created", server.directory), "w");
    if (!file || strange)
        _exit(1);
    fprintf(file, "%d", created);
    _exit(fclose(file) ? 1 : 0);
}

START_TEST(test_lifecycle__a_stop_while_busy_loses_nothing_that_was_answered)
{
    pid_t child = post_many();
    nap(5 * _i);
    server_stop(&server);
    struct server poster = {.pid = child};
    ck_assert_int_eq(server_wait(&poster), 0);
    int created = -1;
    FILE *file = fopen(keep_text("%s/created", server.directory), "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%d", &created), 1);
    fclose(file);
    server_restart(&server, NULL);
    ck_assert_int_ge(server_count(&server, "SELECT count(*) FROM plans WHERE state = 'committed'"), created);
    for (int i = 0; i < MANY; i++) {
        struct reply reply = post_plan(request_number(i));
        ck_assert(reply.status == 200 || reply.status == 201);
    }
}
END_TEST

START_TEST(test_lifecycle__a_second_daemon_on_the_database_is_refused)
{
    const char *log = keep_text("%s/other", server.directory);
    struct server other = {.pid = 0};
    snprintf(other.log, sizeof other.log, "%s", log);
    ck_assert_int_eq(server_refuses(server.database, log, NULL), 1);
    ck_assert(server_logged(&other, keep_text("process %d holds this database", (int)server.pid)));
    const char *alias = keep_text("%s/alias.db", server.directory);
    ck_assert_int_eq(symlink("blueprint.db", alias), 0);
    ck_assert_int_eq(server_refuses(alias, log, NULL), 1);
    const char *link_path = keep_text("%s/link.db", server.directory);
    ck_assert_int_eq(link(server.database, link_path), 0);
    ck_assert_int_eq(server_refuses(link_path, log, NULL), 1);
    ck_assert_int_eq(unlink(link_path), 0);
    /* The lock is on the file as well, which has no other lock where it is mounted elsewhere or somebody tidied up. */
    ck_assert_int_eq(unlink(keep_text("%s.lock", server.database)), 0);
    ck_assert_int_eq(server_refuses(server.database, log, NULL), 1);
    ck_assert(server_logged(&other, "another process holds this database"));
    ck_assert_int_eq(server_refuses(server.database, log, (const char *const[]){"--migrate", NULL}), 1);
    plan_of(request_number(0), 201);
}
END_TEST

/* What would be written to a file without a name is not acknowledged, and the next start has what was. */
START_TEST(test_lifecycle__a_database_that_is_moved_away_takes_no_more_plans)
{
    const char *moved = keep_text("%s/moved.db", server.directory);
    plan_of(request_number(0), 201);
    ck_assert_int_eq(rename(server.database, moved), 0);
    if (_i) { /* another one in its place is none of ours either */
        FILE *other = fopen(server.database, "w");
        ck_assert_ptr_nonnull(other);
        fclose(other);
    }
    struct reply reply = post_plan(request_number(1));
    expect_problem(&reply, 503, "storage_failed");
    ck_assert_int_eq(server_wait(&server), 1);
    ck_assert(server_logged(&server, "was moved or removed while it was in use"));
    ck_assert_int_eq(rename(moved, server.database), 0);
    server_restart(&server, NULL);
    plan_of(request_number(0), 200);
    plan_of(request_number(1), 201);
}
END_TEST

static const char *const bad_arguments[][3] = {
    {"--no-such-option", NULL},
    {"--workers", "0", NULL},
    {"--listen", "nowhere", NULL},
    {"--log-level", "loud", NULL},
    {"--queue", NULL},
    {"--config", "/nonexistent/file.ini", NULL},
    {"--dry-run", NULL},
    {"--migrate", "--verify", NULL},
};

START_TEST(test_lifecycle__a_bad_command_line_is_a_usage_error)
{
    const char *log = keep_text("%s/other", server.directory), *database = keep_text("%s/other.db", server.directory);
    struct stat status;
    ck_assert_int_eq(server_refuses(database, log, bad_arguments[_i]), 2);
    ck_assert_int_eq(stat(log, &status), 0);
    ck_assert_int_gt(status.st_size, 0);
    ck_assert_int_eq(stat(database, &status), -1);
}
END_TEST

START_TEST(test_lifecycle__a_database_that_cannot_be_opened_is_an_error)
{
    const char *log = keep_text("%s/other", server.directory);
    ck_assert_int_eq(server_refuses(keep_text("%s/no/such/directory.db", server.directory), log, NULL), 1);
}
END_TEST

START_TEST(test_lifecycle__a_schema_is_brought_up_to_date_without_serving)
{
    static const char *const dry[] = {"--dry-run", "--migrate", NULL}, *const migrate[] = {"--migrate", NULL};
    const char *log = keep_text("%s/other", server.directory), *database = keep_text("%s/new.db", server.directory);
    struct stat status;
    ck_assert_int_eq(server_refuses(database, log, dry), 0);
    ck_assert_int_eq(stat(database, &status), -1);
    ck_assert_int_eq(server_refuses(database, log, migrate), 0);
    ck_assert_int_eq(stat(database, &status), 0);
    /* Not the database of a daemon that runs. */
    ck_assert_int_eq(server_refuses(server.database, log, migrate), 1);
}
END_TEST

START_TEST(test_lifecycle__interrupt_stops_as_terminate_does)
{
    plan_of(request_number(0), 201);
    ck_assert_int_eq(kill(server.pid, SIGINT), 0);
    ck_assert_int_eq(server_wait(&server), 0);
}
END_TEST

START_TEST(test_lifecycle__clients_that_hang_up_harm_nobody)
{
    for (int i = 0; i < MANY; i++) {
        const char *body = json_text(request_number(i));
        const char *request = keep_text("POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                                        "Content-Length: %zu\r\n\r\n%s",
                                        strlen(body), body);
        /* Gone at once, after a moment, or with half of the request unsent. */
        http_raw(request, strlen(request) / (i % 3 == 2 ? 2 : 1), i % 3 == 1);
    }
    for (int i = 0; i < MANY; i++) {
        struct reply reply = post_plan(request_number(i));
        ck_assert_msg(reply.status == 200 || reply.status == 201, "status %d: %.300s", reply.status, reply.body);
    }
}
END_TEST

START_TEST(test_lifecycle__a_full_queue_says_to_come_again)
{
    static struct call calls[MANY];
    static struct reply replies[MANY];
    server_stop(&server);
    server_restart(&server, (const char *const[]){"--workers", "1", "--queue", "1", NULL});
    for (int i = 0; i < MANY; i++) {
        const char *body = json_text(request_number(i));
        calls[i] = (struct call){.method = "POST", .target = "/v1/plans", .body = body, .n = strlen(body)};
    }
    http_call_together(calls, MANY, replies);
    for (int i = 0; i < MANY; i++) {
        if (replies[i].status == 201)
            continue;
        expect_problem(&replies[i], 503, "queue_full");
        ck_assert_ptr_nonnull(http_header(&replies[i], "retry-after"));
        plan_of(request_number(i), 201); /* nothing was kept of it */
    }
    ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM plans WHERE state = 'committed'"), MANY);
}
END_TEST

/* The answer to a GET over the Unix socket at `path`. */
static const char *get_over(const char *path, const char *target)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    static char answer[65536];
    size_t n = 0;
    ck_assert_uint_lt(strlen(path), sizeof address.sun_path);
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    const char *request = keep_text("GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", target);
    ck_assert_int_eq(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    for (ssize_t got; (got = read(fd, answer + n, sizeof answer - 1 - n)) > 0;)
        n += (size_t)got;
    close(fd);
    answer[n] = '\0';
    return answer;
}

START_TEST(test_lifecycle__a_unix_socket_is_for_owner_and_group)
{
    const char *path = keep_text("%s/socket", server.directory);
    struct stat status;
    server_stop(&server);
    server_restart(&server, (const char *const[]){"--socket", path, NULL});
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_int_eq(status.st_mode & 07777, 0660);
    json_t *plan = plan_of(request_number(0), 201);
    const char *answer = get_over(path, keep_text("/v1/plans/%s", text_at(plan, "/id")));
    ck_assert_msg(strncmp(answer, "HTTP/1.1 200", 12) == 0, "%.300s", answer);
    ck_assert_ptr_nonnull(strstr(answer, "\"committed\""));
    server_stop(&server);
    /* One that a crash left behind is no obstacle. */
    server_restart(&server, (const char *const[]){"--socket", path, NULL});
    server_kill(&server);
    server_restart(&server, (const char *const[]){"--socket", path, NULL});
    ck_assert_ptr_nonnull(strstr(get_over(path, "/healthz"), "ok"));
    /* At the end it takes its own away, and none that has come into its place. */
    const char *away = keep_text("%s/away", server.directory);
    struct stat other;
    ck_assert_int_eq(rename(path, away), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    server_stop(&server);
    ck_assert_int_eq(stat(path, &other), 0);
    ck_assert_int_eq(unlink(path), 0);
    server_restart(&server, (const char *const[]){"--socket", path, NULL});
    server_stop(&server);
    ck_assert_int_eq(stat(path, &other), -1);
    server_restart(&server, NULL);
}
END_TEST

START_TEST(test_lifecycle__a_configuration_file_is_read_and_checked)
{
    const char *file = keep_text("%s/blueprintd.ini", server.directory), *log = keep_text("%s/other", server.directory);
    const struct {
        const char *text;
        int status;
    } cases[] = {
        {"workers = 2\nqueue = 8\nlog-level = warning\n", 0},
        {"workers = none\n", 2},
        {"colour = red\n", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *out = fopen(file, "w");
        ck_assert(out && fputs(cases[i].text, out) >= 0 && fclose(out) == 0);
        int status =
            server_refuses(server.database, log, (const char *const[]){"--config", file, "--check-config", NULL});
        ck_assert_msg(status == cases[i].status, "%s: %d", cases[i].text, status);
    }
}
END_TEST

Suite *suite_lifecycle(void)
{
    Suite *suite = suite_create("api lifecycle");
    TCase *tcase = server_tcase(suite, "lifecycle");
    tcase_add_loop_test(tcase, test_lifecycle__what_was_answered_is_there_after_a_restart, 0, 2);
    tcase_add_test(tcase, test_lifecycle__a_preference_to_be_answered_at_once_is_honoured);
    tcase_add_test(tcase, test_lifecycle__a_preference_does_not_hide_a_bad_request);
    tcase_add_test(tcase, test_lifecycle__what_was_accepted_is_finished_after_a_crash);
    tcase_add_test(tcase, test_lifecycle__what_was_begun_twice_is_given_up_and_says_so);
    tcase_add_test(tcase, test_lifecycle__what_is_in_flight_is_listed_and_not_ready);
    tcase_add_loop_test(tcase, test_lifecycle__a_stop_while_busy_loses_nothing_that_was_answered, 0, 6);
    tcase_add_test(tcase, test_lifecycle__a_second_daemon_on_the_database_is_refused);
    tcase_add_loop_test(tcase, test_lifecycle__a_database_that_is_moved_away_takes_no_more_plans, 0, 2);
    tcase_add_loop_test(tcase, test_lifecycle__a_bad_command_line_is_a_usage_error, 0,
                        (int)(sizeof bad_arguments / sizeof *bad_arguments));
    tcase_add_test(tcase, test_lifecycle__a_database_that_cannot_be_opened_is_an_error);
    tcase_add_test(tcase, test_lifecycle__clients_that_hang_up_harm_nobody);
    tcase_add_test(tcase, test_lifecycle__a_full_queue_says_to_come_again);
    tcase_add_test(tcase, test_lifecycle__a_unix_socket_is_for_owner_and_group);
    tcase_add_test(tcase, test_lifecycle__a_configuration_file_is_read_and_checked);
    tcase_add_test(tcase, test_lifecycle__a_schema_is_brought_up_to_date_without_serving);
    tcase_add_test(tcase, test_lifecycle__interrupt_stops_as_terminate_does);
    return suite;
}
