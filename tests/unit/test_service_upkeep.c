/* Long work in the service, and what it does to those who ask meanwhile. */
#include <check.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/service/chore.h"
#include "tests/lib/service_fixture.h"

enum { PLANS = 60, MANY = 64 };

static struct service_fixture fixture;

static void set_up(void)
{
    service_fixture_init(&fixture, MANY);
}

static void tear_down(void)
{
    service_fixture_release(&fixture);
}

static void post(unsigned number, int status)
{
    struct client client;
    client_post(&fixture, &client, request_text(64 * (1 + number), UINT64_C(1) << 40), false);
    client_wait(&client);
    ck_assert_int_eq(client.answer->status, status);
    client_done(&client);
}

/* Another process that writes: nothing is committed until it lets go. */
static sqlite3 *hold_the_writer(void)
{
    sqlite3 *handle;
    ck_assert_int_eq(sqlite3_open(fixture.store.path, &handle), SQLITE_OK);
    ck_assert_int_eq(sqlite3_busy_timeout(handle, 5000), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(handle, "PRAGMA wal_autocheckpoint = 0; BEGIN IMMEDIATE", NULL, NULL, NULL),
                     SQLITE_OK);
    return handle;
}

static void let_go(sqlite3 *handle, const char *sql)
{
    ck_assert_int_eq(sqlite3_exec(handle, sql, NULL, NULL, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(handle, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_close(handle), SQLITE_OK);
}

static void begin_history(struct client *client, unsigned year)
{
    char body[64];
    snprintf(body, sizeof body, "{\"since\":\"%04u-01-01\"}", year);
    client_begin(client);
    client_take(client, bp_service_history_create(fixture.service, body, strlen(body), &client->waiter));
}

static struct bp_answer *history(const char *id)
{
    struct bp_answer *answer = bp_service_history_get(fixture.service, id);
    ck_assert_int_eq(answer->status, 200);
    return answer;
}

START_TEST(test_service_upkeep__a_plan_goes_before_the_next_slice_and_the_same_job_is_joined)
{
    struct client client;
    char id[BP_DIGEST_TEXT];
    for (unsigned i = 0; i < PLANS; i++)
        post(i, 201);
    begin_history(&client, 1990);
    client_wait(&client);
    ck_assert_int_eq(client.answer->status, 202);
    snprintf(id, sizeof id, "%s", answer_text(client.answer, "id"));
    client_done(&client);
    begin_history(&client, 1990);
    client_wait(&client);
    ck_assert_int_eq(client.answer->status, 202);
    ck_assert_str_eq(answer_text(client.answer, "id"), id);
    client_done(&client);
    post(PLANS, 201);
    /* It was asked for after all the others were promised another look, and none of them waited for. */
    struct bp_answer *answer = history(id);
    ck_assert_str_eq(answer_text(answer, "state"), "running");
    bp_answer_unref(answer);
    for (answer = history(id); strcmp(answer_text(answer, "state"), "running") == 0; answer = history(id)) {
        bp_answer_unref(answer);
        usleep(1000);
    }
    ck_assert_str_eq(answer_text(answer, "state"), "done");
    ck_assert(answer_has(answer, "\"checked\":60,\"identical\":60,"));
    bp_answer_unref(answer);
}
END_TEST

START_TEST(test_service_upkeep__few_long_jobs_are_taken_at_a_time)
{
    struct client clients[4], fifth;
    sqlite3 *handle = hold_the_writer();
    for (unsigned i = 0; i < 4; i++)
        begin_history(&clients[i], 1990 + i);
    /* Until the fourth is with the writer as well. */
    while (bp_job_queue_depth(&fixture.service->queue) || atomic_load(&fixture.service->workers.n_busy))
        usleep(1000);
    begin_history(&fifth, 2000);
    client_wait(&fifth);
    ck_assert_int_eq(fifth.answer->status, 503);
    ck_assert_str_eq(answer_text(fifth.answer, "code"), "queue_full");
    client_done(&fifth);
    let_go(handle, "SELECT 1");
    for (unsigned i = 0; i < 4; i++) {
        client_wait(&clients[i]);
        ck_assert_int_eq(clients[i].answer->status, 202);
        client_done(&clients[i]);
    }
}
END_TEST

START_TEST(test_service_upkeep__a_replay_of_a_plan_that_goes_meanwhile_is_of_no_plan)
{
    struct client client;
    char id[BP_DIGEST_TEXT];
    client_post(&fixture, &client, request_text(64, UINT64_C(1) << 40), false);
    client_wait(&client);
    snprintf(id, sizeof id, "%s", answer_text(client.answer, "id"));
    client_done(&client);
    sqlite3 *handle = hold_the_writer();
    client_begin(&client);
    client_take(&client, bp_service_replay_create(fixture.service, id, &client.waiter));
    while (bp_job_queue_depth(&fixture.service->queue) || atomic_load(&fixture.service->workers.n_busy))
        usleep(1000);
    let_go(handle, "DELETE FROM plan_snapshots; DELETE FROM plan_derivations; DELETE FROM plans");
    client_wait(&client);
    ck_assert_int_eq(client.answer->status, 404);
    client_done(&client);
}
END_TEST

START_TEST(test_service_upkeep__a_cache_takes_nothing_that_was_read_before_it_forgot)
{
    struct bp_cache cache;
    struct bp_digest digest = digest_of_text("body");
    struct bp_answer *answer = bp_answer_static(200, BP_MEDIA_JSON, "{}", 2);
    ck_assert_int_eq(bp_cache_init(&cache, 4, 1 << 20, NULL), 0);
    uint64_t epoch = bp_cache_epoch(&cache);
    bp_cache_put(&cache, &digest, answer, 0, epoch);
    struct bp_answer *kept = bp_cache_get(&cache, &digest, NULL);
    ck_assert_ptr_eq(kept, answer);
    bp_answer_unref(kept);
    bp_cache_forget(&cache);
    ck_assert_ptr_null(bp_cache_get(&cache, &digest, NULL));
    ck_assert_uint_eq(bp_cache_bytes(&cache), 0);
    bp_cache_put(&cache, &digest, answer, 0, epoch);
    ck_assert_ptr_null(bp_cache_get(&cache, &digest, NULL));
    bp_cache_put(&cache, &digest, answer, 0, bp_cache_epoch(&cache));
    kept = bp_cache_get(&cache, &digest, NULL);
    ck_assert_ptr_eq(kept, answer);
    bp_answer_unref(kept);
    bp_answer_unref(answer);
    bp_cache_release(&cache);
}
END_TEST

Suite *suite_service_upkeep(void)
{
    const TTest *const tests[] = {
        test_service_upkeep__a_plan_goes_before_the_next_slice_and_the_same_job_is_joined,
        test_service_upkeep__few_long_jobs_are_taken_at_a_time,
        test_service_upkeep__a_replay_of_a_plan_that_goes_meanwhile_is_of_no_plan,
        test_service_upkeep__a_cache_takes_nothing_that_was_read_before_it_forgot,
    };
    Suite *suite = suite_create("service_upkeep");
    TCase *tcase = tcase_create("service_upkeep");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 120);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    return suite;
}
