/* The audit: what stands in the same transaction as what it records, how repeats are counted, what may not be done to
 * its rows and how they go. */
#include <check.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/lib/service_fixture.h"

/* ---- In the store ---- */

static struct store_fixture store;
static const char *const stages[] = {"{\"stage\":\"model\"}", "{\"stage\":\"distributed\"}"};

static void store_set_up(void)
{
    store_fixture_init(&store);
    store_fixture_open(&store);
}

static void store_tear_down(void)
{
    store_fixture_release(&store);
}

static struct bp_store_audit row_of(const char *caller, int64_t at, const struct bp_digest *plan)
{
    return (struct bp_store_audit){
        .at = at, .until = at + 5, .times = 3, .caller = caller, .origin = "unix", .action = "derive", .plan = plan};
}

static enum bp_code put_rows(const struct bp_store_audit *rows, size_t n)
{
    struct bp_store_unit unit = {.audit = rows, .n_audit = n};
    return store_fixture_commit(&store, &unit);
}

START_TEST(test_audit__a_row_says_all_of_it)
{
    struct bp_digest plan = digest_of_text("plan");
    const struct bp_store_audit rows[] = {row_of("token:a", 1000000, &plan), row_of("uid:1", 2000000, NULL)};
    ck_assert_int_eq(put_rows(rows, 2), BP_OK);
    ck_assert_int_eq(store_fixture_int(&store, "SELECT count(*) FROM audit_log WHERE seq = 1 AND times = 3 AND "
                                               "at = '1970-01-01T00:00:01.000Z' AND caller = 'token:a' AND "
                                               "origin = 'unix' AND action = 'derive' AND length(plan) = 71 AND "
                                               "'sha256:' || lower(hex(plan_id)) = plan"),
                     1);
    ck_assert_int_eq(store_fixture_int(&store, "SELECT count(*) FROM audit_log WHERE seq = 2 AND plan IS NULL"), 1);
}
END_TEST

/* Neither is there without the other. */
START_TEST(test_audit__a_plan_and_its_record_are_one_transaction)
{
    static struct sample sample;
    sample_init(&sample, "refused", stages, 2);
    struct bp_store_audit wrong = row_of("", 1, &sample.plan.id), right = row_of("uid:1", 1, &sample.plan.id);
    sample.unit.audit = &wrong;
    sample.unit.n_audit = 1;
    ck_assert_int_eq(sample_put(store.store, &sample), BP_E_internal);
    ck_assert_int_eq(store_fixture_int(&store, "SELECT count(*) FROM plans"), 0);
    ck_assert_int_eq(store_fixture_int(&store, "SELECT count(*) FROM audit"), 0);
    sample_release(&sample);
    sample_init(&sample, "taken", stages, 2);
    sample.unit.audit = &right;
    sample.unit.n_audit = 1;
    ck_assert_int_eq(sample_put(store.store, &sample), BP_OK);
    ck_assert_int_eq(store_fixture_int(&store, "SELECT count(*) FROM plans AS p JOIN audit AS a ON a.plan = p.id"), 1);
    sample_release(&sample);
    /* One that breaks a rule of its own takes its record with it. */
    sample_init(&sample, "broken", stages, 2);
    right.plan = &sample.plan.id;
    sample.plan.mode = NULL;
    sample.unit.audit = &right;
    sample.unit.n_audit = 1;
    ck_assert_int_eq(sample_put(store.store, &sample), BP_E_internal);
    ck_assert_int_eq(store_fixture_int(&store, "SELECT count(*) FROM audit"), 1);
    sample_release(&sample);
}
END_TEST

static bool sql_fails(const char *sql, const char *why)
{
    sqlite3 *database = NULL;
    char *message = NULL;
    ck_assert_int_eq(sqlite3_open_v2(store.path, &database, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    sqlite3_busy_timeout(database, 5000);
    int rc = sqlite3_exec(database, sql, NULL, NULL, &message);
    bool as_said = rc != SQLITE_OK && message && strstr(message, why);
    sqlite3_free(message);
    ck_assert_int_eq(sqlite3_close(database), SQLITE_OK);
    return as_said;
}

START_TEST(test_audit__rows_do_not_change_and_go_oldest_first)
{
    struct bp_store_audit rows[3];
    for (int i = 0; i < 3; i++)
        rows[i] = row_of("uid:1", i, NULL);
    ck_assert_int_eq(put_rows(rows, 3), BP_OK);
    ck_assert(sql_fails("UPDATE audit SET times = 4 WHERE seq = 1", "does not change"));
    ck_assert(sql_fails("DELETE FROM audit WHERE seq = 2", "oldest first"));
    ck_assert(sql_fails("DELETE FROM audit WHERE seq >= 2", "oldest first"));
    ck_assert(sql_fails("INSERT INTO audit VALUES (9, 5, 4, 1, 'uid:1', 'unix', 'derive', NULL)", "CHECK"));
    ck_assert(sql_fails("INSERT INTO audit VALUES (9, 5, 6, 0, 'uid:1', 'unix', 'derive', NULL)", "CHECK"));
    ck_assert(sql_fails("INSERT INTO audit VALUES (9, 5, 6, 1, 'uid:1', 'unix', '', NULL)", "CHECK"));
    ck_assert(sql_fails("INSERT INTO audit VALUES (9, 5, 6, 1, 'uid:1', 'unix', 'derive', x'00')", "CHECK"));
    ck_assert_int_eq(store_fixture_int(&store, "SELECT count(*) FROM audit WHERE times = 3"), 3);
    store_fixture_sql(&store, "DELETE FROM audit WHERE seq = 1");
    store_fixture_sql(&store, "DELETE FROM audit");
    ck_assert_int_eq(put_rows(rows, 1), BP_OK);
    ck_assert_int_eq(store_fixture_int(&store, "SELECT seq FROM audit"), 4); /* a number is not given twice */
}
END_TEST

START_TEST(test_audit__what_is_too_old_goes_a_bounded_number_at_a_time)
{
    enum { N = BP_STORE_AUDIT_FORGET_MAX + 10 };
    static struct bp_store_audit rows[N];
    for (int i = 0; i < N; i++)
        rows[i] = row_of("uid:1", i, NULL); /* each until five later */
    ck_assert_int_eq(put_rows(rows, N), BP_OK);
    struct bp_store_unit unit = {.audit_forget_before = 8};
    ck_assert_int_eq(store_fixture_commit(&store, &unit), BP_OK);
    ck_assert_uint_eq(unit.audit_forgotten, 3); /* those that ended at 5, 6, 7 */
    ck_assert_int_eq(store_fixture_int(&store, "SELECT min(at) FROM audit"), 3);
    ck_assert_int_eq(store_fixture_commit(&store, &unit), BP_OK);
    ck_assert_uint_eq(unit.audit_forgotten, 0);
    unit.audit_forget_before = N + 100;
    ck_assert_int_eq(store_fixture_commit(&store, &unit), BP_OK);
    ck_assert_uint_eq(unit.audit_forgotten, BP_STORE_AUDIT_FORGET_MAX);
    ck_assert_int_eq(store_fixture_int(&store, "SELECT count(*) FROM audit"), 7);
    ck_assert_int_eq(store_fixture_commit(&store, &unit), BP_OK);
    ck_assert_uint_eq(unit.audit_forgotten, 7);
    ck_assert_int_eq(store_fixture_commit(&store, &unit), BP_OK);
    ck_assert_uint_eq(unit.audit_forgotten, 0);
    /* A row of a clock that was wrong takes no younger ones with it. */
    rows[0] = row_of("uid:1", 1000000, NULL);
    ck_assert_int_eq(put_rows(rows, 2), BP_OK);
    ck_assert_int_eq(store_fixture_commit(&store, &unit), BP_OK);
    ck_assert_uint_eq(unit.audit_forgotten, 0);
}
END_TEST

/* ---- In the service ---- */

static struct service_fixture fixture;
static const struct bp_caller alice = {"token:alice", "192.0.2.7"}, bob = {"uid:7", "unix"};

static void set_up(void)
{
    service_fixture_init(&fixture, 4);
}

static void tear_down(void)
{
    service_fixture_release(&fixture);
}

static int64_t rows(const char *where)
{
    char sql[512];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM audit%s%s", *where ? " WHERE " : "", where);
    return store_fixture_int(&fixture.store, sql);
}

/* What was counted is stored when the unit after it is. */
static void flush(void)
{
    struct bp_store_unit unit = {0};
    bp_service_audit_tick(fixture.service);
    ck_assert_int_eq(store_fixture_commit(&fixture.store, &unit), BP_OK);
}

static int post_as(const struct bp_caller *caller, const char *body, bool async)
{
    struct client client;
    client_begin(&client);
    client.waiter.caller = *caller;
    client_take(&client, bp_service_plan_create(fixture.service, body, strlen(body),
                                                async ? BP_PATIENCE_NONE : BP_PATIENCE_FULL, &client.waiter));
    client_wait(&client);
    int status = client.answer->status;
    client_done(&client);
    return status;
}

START_TEST(test_audit__who_has_a_plan_derived_is_recorded_with_it)
{
    ck_assert_int_eq(post_as(&alice, request_text(1024, 0), false), 201);
    /* No tick: the row is there when the plan is. */
    ck_assert_int_eq(rows("caller = 'token:alice' AND origin = '192.0.2.7' AND action = 'derive' AND times = 1"), 1);
    ck_assert_int_eq(rows("plan = (SELECT id FROM plans)"), 1);
    ck_assert_int_eq(rows(""), 1);
    ck_assert_int_eq(post_as(&bob, request_text(2048, 8), false), 422); /* rejected, and kept */
    ck_assert_int_eq(rows("caller = 'uid:7' AND action = 'derive' AND plan = (SELECT id FROM plans WHERE state = "
                          "'rejected')"),
                     1);
    ck_assert_int_eq(post_as(&bob, "{}", false), 400); /* of no plan */
    flush();
    ck_assert_int_eq(rows(""), 2);
}
END_TEST

START_TEST(test_audit__acceptance_is_recorded_with_the_job_and_only_then)
{
    service_fixture_block(&fixture);
    ck_assert_int_eq(post_as(&alice, request_text(1024, 0), true), 202);
    ck_assert_int_eq(rows("action = 'accept' AND plan = (SELECT id FROM jobs)"), 1);
    ck_assert_int_eq(post_as(&bob, request_text(1024, 0), true), 202);
    service_fixture_unblock(&fixture);
    service_fixture_stop(&fixture);
    ck_assert_int_eq(rows("action = 'repeat' AND caller = 'uid:7'"), 1); /* a stop stores what was counted */
    ck_assert_int_eq(rows(""), 2);
}
END_TEST

START_TEST(test_audit__repeats_are_counted_by_caller_and_plan)
{
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(post_as(&alice, request_text(i ? 1024 : 2048, 0), false), 201);
    for (int i = 0; i < 20; i++) {
        const struct bp_caller *caller = i % 4 ? &alice : &bob;
        ck_assert_int_eq(post_as(caller, request_text(i % 2 ? 1024 : 2048, 0), false), 200);
    }
    ck_assert_int_eq(rows("action = 'repeat'"), 0);
    flush();
    ck_assert_int_eq(rows("action = 'repeat'"), 3);
    ck_assert_int_eq(rows("action = 'repeat' AND caller = 'uid:7' AND times = 5"), 1);
    ck_assert_int_eq(rows("action = 'repeat' AND caller = 'token:alice' AND times = 10"), 1);
    ck_assert_int_eq(rows("action = 'repeat' AND caller = 'token:alice' AND times = 5 AND until > at"), 1);
    /* A new second, a new row. */
    ck_assert_int_eq(post_as(&alice, request_text(1024, 0), false), 200);
    flush();
    ck_assert_int_eq(rows("action = 'repeat'"), 4);
    flush();
    ck_assert_int_eq(rows("action = 'repeat'"), 4);
}
END_TEST

START_TEST(test_audit__who_joins_is_recorded_too)
{
    struct client first, second;
    const char *body = request_text(1024, 0);
    service_fixture_block(&fixture);
    client_begin(&first);
    client_begin(&second);
    first.waiter.caller = alice;
    second.waiter.caller = bob;
    client_take(&first, bp_service_plan_create(fixture.service, body, strlen(body), BP_PATIENCE_FULL, &first.waiter));
    client_take(&second, bp_service_plan_create(fixture.service, body, strlen(body), BP_PATIENCE_FULL, &second.waiter));
    ck_assert(first.waits && second.waits);
    service_fixture_unblock(&fixture);
    client_wait(&first);
    client_wait(&second);
    client_done(&first);
    client_done(&second);
    flush();
    ck_assert_int_eq(rows("action = 'derive' AND caller = 'token:alice'"), 1);
    ck_assert_int_eq(rows("action = 'repeat' AND caller = 'uid:7' AND plan = (SELECT id FROM plans)"), 1);
}
END_TEST

START_TEST(test_audit__a_replay_is_recorded_with_it)
{
    struct client client;
    char id[BP_DIGEST_TEXT];
    ck_assert_int_eq(post_as(&alice, request_text(1024, 0), false), 201);
    struct bp_answer *list = bp_service_plan_list(fixture.service, &(struct bp_plan_query){.state = -1, .limit = 1},
                                                  (char[BP_STORE_CURSOR_TEXT]){0});
    const char *at = memmem(list->body, list->n, "sha256:", 7);
    snprintf(id, sizeof id, "%.71s", at);
    bp_answer_unref(list);
    client_begin(&client);
    client.waiter.caller = bob;
    client_take(&client, bp_service_replay_create(fixture.service, id, &client.waiter));
    client_wait(&client);
    ck_assert_int_eq(client.answer->status, 201);
    client_done(&client);
    ck_assert_int_eq(rows("action = 'replay' AND caller = 'uid:7' AND plan = (SELECT plan FROM replays)"), 1);
}
END_TEST

START_TEST(test_audit__more_different_repeats_than_are_counted_are_stored_at_once)
{
    for (unsigned i = 0; i < BP_AUDIT_BATCH + 5; i++) {
        char who[32];
        struct bp_caller caller = {who, "unix"};
        snprintf(who, sizeof who, "uid:%u", i);
        bp_audit_note(fixture.service, &caller, "repeat", NULL);
    }
    struct bp_store_unit unit = {0};
    ck_assert_int_eq(store_fixture_commit(&fixture.store, &unit), BP_OK);
    ck_assert_int_eq(rows(""), BP_AUDIT_BATCH);
    flush();
    ck_assert_int_eq(rows("times = 1"), BP_AUDIT_BATCH + 5);
    ck_assert_int_eq(store_fixture_int(&fixture.store, "SELECT count(DISTINCT caller) FROM audit"), BP_AUDIT_BATCH + 5);
}
END_TEST

START_TEST(test_audit__the_daemons_own_work_is_nobodys)
{
    const struct bp_caller nobody = {0};
    ck_assert_int_eq(post_as(&nobody, request_text(1024, 0), false), 201);
    ck_assert_int_eq(post_as(&nobody, request_text(1024, 0), false), 200);
    flush();
    ck_assert_int_eq(rows(""), 0);
}
END_TEST

START_TEST(test_audit__rows_are_kept_for_the_days_that_were_said)
{
    store_fixture_sql(&fixture.store,
                      "INSERT INTO audit (at, until, times, caller, origin, action) SELECT t, t, 1, 'uid:1', 'unix', "
                      "'derive' FROM (SELECT (unixepoch() - 86400 * d) * 1000000 AS t FROM (SELECT 12 AS d UNION ALL "
                      "SELECT 11 UNION ALL SELECT 9 UNION ALL SELECT 0))");
    fixture.service->audit_days = 0;
    flush();
    ck_assert_int_eq(rows(""), 4);
    fixture.service->audit_days = 10;
    flush();
    ck_assert_int_eq(rows(""), 2);
    ck_assert_int_eq(rows("seq > 2"), 2);
}
END_TEST

Suite *suite_audit(void)
{
    Suite *suite = suite_create("audit");
    TCase *in_store = tcase_create("store"), *in_service = tcase_create("service");
    tcase_set_timeout(in_service, 60);
    tcase_add_checked_fixture(in_store, store_set_up, store_tear_down);
    tcase_add_test(in_store, test_audit__a_row_says_all_of_it);
    tcase_add_test(in_store, test_audit__a_plan_and_its_record_are_one_transaction);
    tcase_add_test(in_store, test_audit__rows_do_not_change_and_go_oldest_first);
    tcase_add_test(in_store, test_audit__what_is_too_old_goes_a_bounded_number_at_a_time);
    suite_add_tcase(suite, in_store);
    tcase_add_checked_fixture(in_service, set_up, tear_down);
    tcase_add_test(in_service, test_audit__who_has_a_plan_derived_is_recorded_with_it);
    tcase_add_test(in_service, test_audit__acceptance_is_recorded_with_the_job_and_only_then);
    tcase_add_test(in_service, test_audit__repeats_are_counted_by_caller_and_plan);
    tcase_add_test(in_service, test_audit__who_joins_is_recorded_too);
    tcase_add_test(in_service, test_audit__a_replay_is_recorded_with_it);
    tcase_add_test(in_service, test_audit__more_different_repeats_than_are_counted_are_stored_at_once);
    tcase_add_test(in_service, test_audit__the_daemons_own_work_is_nobodys);
    tcase_add_test(in_service, test_audit__rows_are_kept_for_the_days_that_were_said);
    suite_add_tcase(suite, in_service);
    return suite;
}
