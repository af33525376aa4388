/* Who asked for which plan, as the database and the log of a real daemon say it. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/api/access_fixture.h"
#include "tests/api/expect.h"
#include "tests/api/server.h"

static struct reply post_by(json_t *request, const char *header, const char *prefer, const char *socket)
{
    const char *body = json_text(request);
    return http_call(&(struct call){.method = "POST",
                                    .target = "/v1/plans",
                                    .body = body,
                                    .n = strlen(body),
                                    .headers = {header, prefer},
                                    .socket = socket});
}

static long long rows(const char *where)
{
    return server_count(&server, keep_text("SELECT count(*) FROM audit_log WHERE %s", where));
}

/* Repeats are stored within about a second. */
static void wait_for_row(const char *where)
{
    for (int i = 0; i < 3000 && rows(where) == 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    ck_assert_msg(rows(where) == 1, "%s: %lld rows", where, rows(where));
}

START_TEST(test_audit__names_tokens_and_users_and_where_they_came_from)
{
    struct made_token ci = make_token("ci", "plan,read", ""), peer = make_token("peer", "plan", "");
    const char *tokens = write_file("tokens", keep_text("%s%s", ci.line, peer.line), 0600);
    const char *path = keep_text("%s/socket", server.directory);
    server_stop(&server);
    server_restart(&server, (const char *const[]){"--tokens", tokens, "--socket", path, NULL});
    struct reply reply = post_by(small_request(), ci.header, NULL, NULL);
    ck_assert_int_eq(reply.status, 201);
    const char *id = text_at(reply.json, "/id");
    /* As soon as it is answered, for it is in the same transaction. */
    ck_assert_int_eq(rows(keep_text("caller = 'token:ci' AND origin = '127.0.0.1' AND action = 'derive' AND times = 1 "
                                    "AND plan = '%s'",
                                    id)),
                     1);
    wait_for_log("\"message\":\"audit\",\"caller\":\"token:ci\",\"origin\":\"127.0.0.1\",\"action\":\"derive\"");
    ck_assert_int_eq(rows("1"), 1);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(post_by(small_request(), NULL, NULL, path).status, 200);
    wait_for_row(keep_text("caller = 'uid:%u' AND origin = 'unix' AND action = 'repeat' AND plan = '%s' AND times = 3",
                           (unsigned)geteuid(), id));
    reply = http_call(
        &(struct call){.method = "POST", .target = keep_text("/v1/plans/%s/replays", id), .headers = {peer.header}});
    ck_assert_int_eq(reply.status, 201);
    ck_assert_int_eq(rows(keep_text("caller = 'token:peer' AND action = 'replay' AND plan = '%s'", id)), 1);
    json_t *other = small_request();
    set_at(other, "/workload/sequence_length", json_integer(4096));
    ck_assert_int_eq(post_by(other, ci.header, "Prefer: respond-async", NULL).status, 202);
    ck_assert_int_eq(rows("caller = 'token:ci' AND action = 'accept'"), 1);
}
END_TEST

/* Whether some line of the log has each. */
static bool logged_together(const char *a, const char *b)
{
    char line[4096];
    bool found = false;
    FILE *file = fopen(server.log, "r");
    ck_assert_ptr_nonnull(file);
    while (!found && fgets(line, sizeof line, file))
        found = strstr(line, "\"message\":\"audit\"") && strstr(line, a) && strstr(line, b);
    fclose(file);
    return found;
}

static void expect_logged_together(const char *action, const char *id)
{
    for (int i = 0; i < 3000 && !logged_together(action, id); i++)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    ck_assert_msg(logged_together(action, id), "no line of the audit has %s and %s", action, id);
}

START_TEST(test_audit__a_line_of_the_log_has_the_id_of_its_request)
{
    struct reply plan = post_by(small_request(), "X-Request-Id: the-first", NULL, NULL);
    ck_assert_int_eq(plan.status, 201);
    expect_logged_together("\"action\":\"derive\"", "\"request_id\":\"the-first\"");
    json_t *other = small_request();
    set_at(other, "/workload/sequence_length", json_integer(4096));
    ck_assert_int_eq(post_by(other, "X-Request-Id: for-later", "Prefer: respond-async", NULL).status, 202);
    expect_logged_together("\"action\":\"accept\"", "\"request_id\":\"for-later\"");
    ck_assert_int_eq(http_call(&(struct call){.method = "POST",
                                              .target = keep_text("/v1/plans/%s/replays", text_at(plan.json, "/id")),
                                              .headers = {"X-Request-Id: once-more"}})
                         .status,
                     201);
    expect_logged_together("\"action\":\"replay\"", "\"request_id\":\"once-more\"");
    ck_assert_int_eq(post_by(small_request(), "X-Request-Id: again", NULL, NULL).status, 200);
    expect_logged_together("\"action\":\"repeat\"", "\"request_id\":\"again\"");
    ck_assert(!logged_together("\"action\":\"derive\"", "\"request_id\":\"again\""));
}
END_TEST

START_TEST(test_audit__what_administrators_do_is_recorded)
{
    struct made_token operator= make_token("operator", "admin", ""), planner = make_token("planner", "plan", "");
    const char *tokens = write_file("tokens", keep_text("%s%s", operator.line, planner.line), 0600);
    access_restart((const char *const[]){"--tokens", tokens, NULL});
    struct call call = {.method = "POST", .target = "/v1/admin/backups", .headers = {planner.header}};
    ck_assert_int_eq(http_call(&call).status, 403);
    call.headers[0] = operator.header;
    ck_assert_int_lt(http_call(&call).status, 300);
    ck_assert_int_eq(get_as("/v1/admin/pins", &operator).status, 200);
    server_stop(&server);
    ck_assert_int_eq(rows("caller = 'token:operator' AND action = 'createBackup' AND plan IS NULL"), 1);
    ck_assert_int_eq(rows("1"), 1);
}
END_TEST

START_TEST(test_audit__what_is_refused_or_only_read_leaves_no_row)
{
    json_t *plan = plan_of(small_request(), 201);
    ck_assert_int_eq(http_post("/v1/plans", "{}").status, 400);
    ck_assert_int_eq(http_get("/v1/plans/%s", text_at(plan, "/id")).status, 200);
    ck_assert_int_eq(http_get("/v1/plans/%s/capacity", text_at(plan, "/id")).status, 200);
    server_stop(&server); /* which stores what is counted */
    ck_assert_int_eq(rows("1"), 1);
    ck_assert_int_eq(rows("caller = 'anonymous' AND origin = '127.0.0.1'"), 1);
}
END_TEST

/* Stores, in a file that no daemon has, a row of so many days ago. */
static void insert_old(const char *caller, int days)
{
    server_sql(&server, keep_text("INSERT INTO audit (at, until, times, caller, origin, action) SELECT t, t, 1, '%s', "
                                  "'unix', 'repeat' FROM (SELECT (unixepoch() - 86400 * %d) * 1000000 AS t)",
                                  caller, days));
}

static void wait_until_gone(const char *caller)
{
    const char *where = keep_text("caller = '%s'", caller);
    for (int i = 0; i < 3000 && rows(where); i++)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    ck_assert_int_eq(rows(where), 0);
}

START_TEST(test_audit__rows_go_when_they_are_too_old_and_not_before)
{
    server_stop(&server);
    insert_old("uid:1", 401);
    insert_old("uid:2", 399);
    server_restart(&server, NULL);
    plan_of(small_request(), 201);
    wait_until_gone("uid:1");
    server_stop(&server);
    ck_assert_int_eq(rows("1"), 2);
    server_restart(&server, (const char *const[]){"--audit-days", "398", NULL});
    wait_until_gone("uid:2");
    server_stop(&server);
    ck_assert_int_eq(rows("1"), 1);
    ck_assert_int_eq(rows("caller = 'anonymous'"), 1);
}
END_TEST

Suite *suite_audit(void)
{
    Suite *suite = suite_create("api audit");
    TCase *tcase = server_tcase(suite, "audit");
    tcase_add_test(tcase, test_audit__names_tokens_and_users_and_where_they_came_from);
    tcase_add_test(tcase, test_audit__a_line_of_the_log_has_the_id_of_its_request);
    tcase_add_test(tcase, test_audit__what_administrators_do_is_recorded);
    tcase_add_test(tcase, test_audit__what_is_refused_or_only_read_leaves_no_row);
    tcase_add_test(tcase, test_audit__rows_go_when_they_are_too_old_and_not_before);
    return suite;
}
