/* The service on a real store: one derivation each, joining, refusing, leaving, and what survives a stop. */
#include <check.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/lib/fault_vfs.h"
#include "tests/lib/service_fixture.h"

static struct service_fixture fixture;
enum { QUEUE = 4 };

static void set_up(void)
{
    service_fixture_init(&fixture, QUEUE);
}

static void tear_down(void)
{
    service_fixture_release(&fixture);
}

static uint64_t derived(void)
{
    return service_fixture_count(&fixture, BP_COUNTER_PLANS_DERIVED);
}

static void restart(void)
{
    service_fixture_stop(&fixture);
    service_fixture_start(&fixture, QUEUE);
}

/* Posts, waits, gives the status; the plan's id into `ret_id` unless NULL. */
static int post(const char *body, char ret_id[BP_DIGEST_TEXT])
{
    struct client client;
    client_post(&fixture, &client, body, false);
    client_wait(&client);
    int status = client.answer->status;
    if (ret_id && status < 300)
        memcpy(ret_id, answer_text(client.answer, "id"), BP_DIGEST_TEXT);
    client_done(&client);
    return status;
}

/* The state of a plan as a GET sees it, "" when there is none. */
static const char *state_of(const char *id)
{
    struct bp_answer *answer = bp_service_plan_get(fixture.service, id);
    const char *state = answer_text(answer, "state");
    bp_answer_unref(answer);
    return state;
}

static void wait_until(const char *id, const char *state)
{
    for (int i = 0; i < 2000 && strcmp(state_of(id), state) != 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    ck_assert_str_eq(state_of(id), state);
}

/* ---- One derivation each ---- */

START_TEST(test_plan__is_created_once_and_answered_alike_after)
{
    struct client first, again;
    client_post(&fixture, &first, request_text(1024, UINT64_C(1) << 40), false);
    client_wait(&first);
    ck_assert_int_eq(first.answer->status, 201);
    ck_assert_str_eq(answer_text(first.answer, "state"), "committed");
    char location[128] = "/v1/plans/";
    strncat(location, answer_text(first.answer, "id"), 100);
    ck_assert_str_eq(first.answer->location, location);
    client_post(&fixture, &again, request_text(1024, UINT64_C(1) << 40), false);
    ck_assert(!again.waits);
    ck_assert_int_eq(again.answer->status, 200);
    ck_assert_uint_eq(again.answer->n, first.answer->n);
    ck_assert_int_eq(memcmp(again.answer->body, first.answer->body, first.answer->n), 0);
    ck_assert_uint_eq(derived(), 1);
    client_done(&first);
    client_done(&again);
}
END_TEST

START_TEST(test_plan__a_repeated_body_is_answered_from_its_digest)
{
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(post(request_text(1024, 0), NULL), i ? 200 : 201);
    /* The second looked into the store and kept its answer. */
    ck_assert_uint_eq(service_fixture_lookups(&fixture, BP_CACHE_BODIES, BP_CACHE_HIT), 2);
}
END_TEST

START_TEST(test_plan__many_copies_at_once_are_one_derivation)
{
    enum { COPIES = 64 };
    static struct client clients[COPIES];
    unsigned created = 0;
    service_fixture_block(&fixture);
    for (size_t i = 0; i < COPIES; i++)
        client_post(&fixture, &clients[i], request_text(2048, 0), false);
    ck_assert_uint_eq(bp_job_queue_depth(&fixture.service->queue), 1);
    service_fixture_unblock(&fixture);
    for (size_t i = 0; i < COPIES; i++) {
        client_wait(&clients[i]);
        created += clients[i].answer->status == 201;
        ck_assert(clients[i].answer->status == 200 || clients[i].answer->status == 201);
        ck_assert_uint_eq(clients[i].answer->n, clients[0].answer->n);
    }
    for (size_t i = 0; i < COPIES; i++)
        client_done(&clients[i]);
    ck_assert_uint_eq(created, 1);
    ck_assert_uint_eq(derived(), 1);
    ck_assert_uint_eq(service_fixture_count(&fixture, BP_COUNTER_PLANS_JOINED), COPIES - 1);
    ck_assert_int_eq(store_fixture_int(&fixture.store, "SELECT count(*) FROM plans"), 1);
}
END_TEST

START_TEST(test_plan__a_rejected_one_says_the_same_again_without_a_derivation)
{
    struct client first, again;
    client_post(&fixture, &first, request_text(1024, 1024), false);
    client_wait(&first);
    ck_assert_int_eq(first.answer->status, 422);
    ck_assert_str_eq(answer_text(first.answer, "code"), "capacity_exceeded");
    ck_assert_str_eq(state_of(answer_text(first.answer, "plan")), "rejected");
    restart();
    client_post(&fixture, &again, request_text(1024, 1024), false);
    client_wait(&again);
    ck_assert_int_eq(again.answer->status, 422);
    ck_assert_uint_eq(again.answer->n, first.answer->n);
    ck_assert_int_eq(memcmp(again.answer->body, first.answer->body, first.answer->n), 0);
    ck_assert_uint_eq(derived(), 1);
    client_done(&first);
    client_done(&again);
}
END_TEST

START_TEST(test_plan__a_failed_one_is_derived_again)
{
    char id[BP_DIGEST_TEXT];
    ck_assert_int_eq(post(request_text(1024, 0), id), 201);
    service_fixture_stop(&fixture);
    store_fixture_sql(&fixture.store, "UPDATE plans SET state = 'failed', diagnostics = '[]'");
    service_fixture_start(&fixture, QUEUE);
    ck_assert_str_eq(state_of(id), "failed");
    ck_assert_int_eq(post(request_text(1024, 0), NULL), 201);
    ck_assert_str_eq(state_of(id), "committed");
    ck_assert_uint_eq(derived(), 2);
}
END_TEST

START_TEST(test_plan__what_is_wrong_with_a_request_leaves_no_record)
{
    ck_assert_int_eq(post("", NULL), 400);
    ck_assert_int_eq(post("{\"model\":1}", NULL), 400);
    ck_assert_int_eq(post(request_text(0, 0), NULL), 422);
    ck_assert_uint_eq(bp_claims_count(&fixture.service->claims), 0);
    ck_assert_int_eq(store_fixture_int(&fixture.store, "SELECT count(*) FROM plans"), 0);
}
END_TEST

/* ---- Full, and leaving ---- */

START_TEST(test_plan__a_full_queue_refuses_and_forgets)
{
    struct client clients[QUEUE + 1];
    service_fixture_block(&fixture);
    for (unsigned i = 0; i <= QUEUE; i++)
        client_post(&fixture, &clients[i], request_text(1024 + 8 * i, 0), false);
    ck_assert(!clients[QUEUE].waits);
    ck_assert_int_eq(clients[QUEUE].answer->status, 503);
    ck_assert_str_eq(answer_text(clients[QUEUE].answer, "code"), "queue_full");
    ck_assert_uint_gt(clients[QUEUE].answer->retry_after, 0);
    ck_assert_uint_eq(bp_claims_count(&fixture.service->claims), QUEUE);
    struct client ready;
    client_ask_ready(&fixture, &ready);
    client_wait(&ready);
    ck_assert_int_eq(ready.answer->status, 503);
    ck_assert_str_eq(answer_text(ready.answer, "code"), "queue_full");
    ck_assert_uint_gt(ready.answer->retry_after, 0);
    client_done(&ready);
    service_fixture_unblock(&fixture);
    for (unsigned i = 0; i <= QUEUE; i++) {
        client_wait(&clients[i]);
        ck_assert_int_eq(clients[i].answer->status, i < QUEUE ? 201 : 503);
        client_done(&clients[i]);
    }
    ck_assert_int_eq(post(request_text(1024 + 8 * QUEUE, 0), NULL), 201);
}
END_TEST

START_TEST(test_plan__is_cancelled_when_the_last_who_waits_has_left)
{
    struct client one, two;
    service_fixture_block(&fixture);
    client_post(&fixture, &one, request_text(1024, 0), false);
    client_post(&fixture, &two, request_text(1024, 0), false);
    ck_assert(bp_service_leave(fixture.service, &one.waiter));
    ck_assert_uint_eq(bp_job_queue_depth(&fixture.service->queue), 1);
    ck_assert(bp_service_leave(fixture.service, &two.waiter));
    ck_assert_uint_eq(bp_job_queue_depth(&fixture.service->queue), 0);
    ck_assert_uint_eq(bp_claims_count(&fixture.service->claims), 0);
    ck_assert(!bp_service_leave(fixture.service, &two.waiter));
    service_fixture_unblock(&fixture);
    ck_assert_int_eq(post(request_text(1024, 0), NULL), 201); /* a claim of its own */
    ck_assert_uint_eq(derived(), 1);
    ck_assert_uint_eq(service_fixture_count(&fixture, BP_COUNTER_PLANS_CANCELLED), 1);
    ck_assert(!client_was_woken(&one) && !client_was_woken(&two));
    client_done(&one);
    client_done(&two);
}
END_TEST

START_TEST(test_plan__goes_on_for_those_who_stay)
{
    struct client one, two;
    service_fixture_block(&fixture);
    client_post(&fixture, &one, request_text(1024, 0), false);
    client_post(&fixture, &two, request_text(1024, 0), false);
    ck_assert(bp_service_leave(fixture.service, &one.waiter));
    service_fixture_unblock(&fixture);
    client_wait(&two);
    ck_assert_int_eq(two.answer->status, 200);
    ck_assert(!bp_service_leave(fixture.service, &two.waiter));
    ck_assert(!client_was_woken(&one));
    client_done(&one);
    client_done(&two);
}
END_TEST

START_TEST(test_errand__is_cancelled_when_its_waiter_left)
{
    char id[BP_DIGEST_TEXT];
    struct client client;
    ck_assert_int_eq(post(request_text(1024, 0), id), 201);
    service_fixture_block(&fixture);
    client_begin(&client);
    client_take(&client, bp_service_replay_create(fixture.service, id, &client.waiter));
    ck_assert(client.waits);
    ck_assert(bp_service_leave(fixture.service, &client.waiter));
    ck_assert_uint_eq(bp_job_queue_depth(&fixture.service->queue), 0);
    service_fixture_unblock(&fixture);
    client_done(&client);
}
END_TEST

/* ---- Durable work ---- */

START_TEST(test_durable__is_on_disk_before_it_is_answered_and_runs_after_a_stop)
{
    struct client client;
    char id[BP_DIGEST_TEXT];
    service_fixture_block(&fixture);
    client_post(&fixture, &client, request_text(1024, 0), true);
    client_wait(&client);
    ck_assert_int_eq(client.answer->status, 202);
    memcpy(id, answer_text(client.answer, "id"), sizeof id);
    ck_assert_str_eq(answer_text(client.answer, "state"), "queued");
    ck_assert_int_eq(store_fixture_int(&fixture.store, "SELECT count(*) FROM jobs WHERE state = 'queued'"), 1);
    ck_assert_str_eq(state_of(id), "queued");
    client_done(&client);
    /* A stop with the job still queued; the worker is let go once it can take no other job. */
    bp_job_queue_close(&fixture.service->queue);
    service_fixture_unblock(&fixture);
    service_fixture_stop(&fixture);
    ck_assert_int_eq(store_fixture_int(&fixture.store, "SELECT count(*) FROM plans"), 0);
    service_fixture_start(&fixture, QUEUE);
    wait_until(id, "committed");
    ck_assert_int_eq(store_fixture_int(&fixture.store, "SELECT count(*) FROM jobs WHERE state = 'done'"), 1);
    ck_assert_int_eq(store_fixture_int(&fixture.store, "SELECT max(attempts) FROM jobs"), 1);
}
END_TEST

START_TEST(test_durable__is_not_cancelled_by_who_leaves)
{
    struct client accepted, joined;
    char id[BP_DIGEST_TEXT];
    service_fixture_block(&fixture);
    client_post(&fixture, &accepted, request_text(1024, 0), true);
    client_wait(&accepted);
    memcpy(id, answer_text(accepted.answer, "id"), sizeof id);
    client_post(&fixture, &joined, request_text(1024, 0), false);
    ck_assert(bp_service_leave(fixture.service, &joined.waiter));
    ck_assert_str_eq(state_of(id), "queued");
    client_done(&joined);
    client_post(&fixture, &joined, request_text(1024, 0), true); /* it is accepted already */
    ck_assert(!joined.waits);
    ck_assert_int_eq(joined.answer->status, 202);
    service_fixture_unblock(&fixture);
    wait_until(id, "committed");
    client_done(&accepted);
    client_done(&joined);
}
END_TEST

START_TEST(test_durable__many_run_to_the_end_whatever_the_order)
{
    enum { JOBS = 24 };
    service_fixture_release(&fixture);
    service_fixture_init(&fixture, JOBS);
    char ids[JOBS][BP_DIGEST_TEXT];
    for (unsigned i = 0; i < JOBS; i++) {
        struct client client;
        client_post(&fixture, &client, request_text(1024 + 8 * i, 0), true);
        client_wait(&client);
        ck_assert_int_eq(client.answer->status, 202);
        memcpy(ids[i], answer_text(client.answer, "id"), BP_DIGEST_TEXT);
        client_done(&client);
    }
    restart();
    for (unsigned i = 0; i < JOBS; i++)
        wait_until(ids[i], "committed");
    ck_assert_int_eq(store_fixture_int(&fixture.store, "SELECT count(*) FROM jobs WHERE state <> 'done'"), 0);
}
END_TEST

START_TEST(test_durable__what_a_full_disk_left_behind_is_taken_up_again)
{
    struct client client;
    char id[BP_DIGEST_TEXT];
    struct bp_err err = {0};
    service_fixture_release(&fixture);
    fault_vfs_install();
    service_fixture_init(&fixture, QUEUE);
    service_fixture_block(&fixture);
    client_post(&fixture, &client, request_text(1024, 0), true);
    client_wait(&client);
    ck_assert_int_eq(client.answer->status, 202);
    memcpy(id, answer_text(client.answer, "id"), sizeof id);
    client_done(&client);
    fault_vfs_set(&(struct fault){.call = FAULT_WRITE, .rc = SQLITE_FULL, .files = SQLITE_OPEN_WAL});
    service_fixture_unblock(&fixture);
    while (bp_claims_count(&fixture.service->claims) > 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    ck_assert_str_eq(state_of(id), "queued");
    fault_vfs_set(NULL);
    ck_assert_int_eq(bp_service_take_up_again(fixture.service, &err), 0);
    wait_until(id, "committed");
    ck_assert_int_eq(store_fixture_int(&fixture.store, "SELECT count(*) FROM jobs WHERE state <> 'done'"), 0);
}
END_TEST

START_TEST(test_durable__begun_twice_and_never_ended_is_failed)
{
    struct client client;
    char id[BP_DIGEST_TEXT];
    client_post(&fixture, &client, request_text(1024, 0), true);
    client_wait(&client);
    memcpy(id, answer_text(client.answer, "id"), sizeof id);
    client_done(&client);
    wait_until(id, "committed");
    service_fixture_stop(&fixture);
    store_fixture_sql(&fixture.store, "PRAGMA foreign_keys = OFF; DELETE FROM plans;"
                                      "UPDATE jobs SET state = 'running', attempts = 2");
    service_fixture_start(&fixture, QUEUE);
    wait_until(id, "failed");
    ck_assert_uint_eq(service_fixture_count(&fixture, BP_COUNTER_PLANS_FAILED), 1);
    service_fixture_stop(&fixture);
    ck_assert_int_eq(store_fixture_int(&fixture.store, "SELECT count(*) FROM jobs WHERE state = 'failed'"), 1);
    service_fixture_start(&fixture, QUEUE);
    ck_assert_uint_eq(derived(), 1);
    /* It says why, wherever it is looked for. */
    struct bp_plan_query query = {.state = BP_PLAN_FAILED, .limit = 10};
    char next[BP_STORE_CURSOR_TEXT];
    struct bp_answer *got[] = {bp_service_plan_get(fixture.service, id),
                               bp_service_plan_list(fixture.service, &query, next)};
    for (size_t i = 0; i < 2; i++) {
        ck_assert(answer_has(got[i], id));
        ck_assert(answer_has(got[i], "\"code\":\"internal\""));
        ck_assert(answer_has(got[i], "\"message\":\"it was begun twice and never ended\""));
        bp_answer_unref(got[i]);
    }
    /* The next who asks has it tried again. */
    ck_assert_int_eq(post(request_text(1024, 0), NULL), 201);
    ck_assert_str_eq(state_of(id), "committed");
}
END_TEST

START_TEST(test_durable__whose_passes_changed_is_answered_at_its_old_id)
{
    static const char old[] = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
    struct client client;
    char id[BP_DIGEST_TEXT];
    service_fixture_block(&fixture);
    client_post(&fixture, &client, request_text(1024, 0), true);
    client_wait(&client);
    memcpy(id, answer_text(client.answer, "id"), sizeof id);
    client_done(&client);
    bp_job_queue_close(&fixture.service->queue);
    service_fixture_unblock(&fixture);
    service_fixture_stop(&fixture);
    store_fixture_sql(&fixture.store,
                      "UPDATE jobs SET id = x'1111111111111111111111111111111111111111111111111111111111111111'");
    service_fixture_start(&fixture, QUEUE);
    wait_until(old, "committed");
    struct bp_answer *answer = bp_service_plan_get(fixture.service, old);
    ck_assert_str_eq(answer_text(answer, "superseded_by"), id);
    ck_assert_str_eq(answer_text(answer, "id"), id);
    bp_answer_unref(answer);
    /* It stands for the new one wherever a plan is named. */
    client_begin(&client);
    client_take(&client, bp_service_replay_create(fixture.service, old, &client.waiter));
    client_wait(&client);
    ck_assert_int_eq(client.answer->status, 201);
    ck_assert_str_eq(answer_text(client.answer, "plan"), id);
    client_done(&client);
    client_begin(&client);
    client_take(&client, bp_service_diff(fixture.service, old, id, &client.waiter));
    client_wait(&client);
    ck_assert_int_eq(client.answer->status, 200);
    client_done(&client);
    char next[BP_STORE_CURSOR_TEXT];
    answer = bp_service_replay_list(fixture.service, old, 10, NULL, next);
    ck_assert(answer_has(answer, id));
    bp_answer_unref(answer);
}
END_TEST

/* ---- Snapshots ---- */

static void digest_of_stage(const char *id, const char *stage, char ret[BP_DIGEST_TEXT])
{
    struct bp_answer *answer = bp_service_plan_get(fixture.service, id);
    json_t *json = json_loadb(answer->body, answer->n, 0, NULL), *snapshot;
    size_t i;
    json_array_foreach(json_object_get(json, "snapshots"), i, snapshot)
        if (strcmp(json_string_value(json_object_get(snapshot, "stage")), stage) == 0)
            memcpy(ret, json_string_value(json_object_get(snapshot, "digest")), BP_DIGEST_TEXT);
    json_decref(json);
    bp_answer_unref(answer);
}

START_TEST(test_snapshot__kept_in_memory_is_checked_again_once_the_file_changed)
{
    char id[BP_DIGEST_TEXT], digest[BP_DIGEST_TEXT] = "";
    ck_assert_int_eq(post(request_text(1024, 0), id), 201);
    digest_of_stage(id, "portable", digest);
    struct bp_answer *answer = bp_service_snapshot_get(fixture.service, digest, false);
    ck_assert_int_eq(answer->status, 200);
    struct bp_answer *kept = bp_service_snapshot_get(fixture.service, digest, false);
    ck_assert_ptr_eq(kept, answer);
    bp_answer_unref(kept);
    struct bp_answer *not_modified = bp_answer_not_modified(answer);
    ck_assert_int_eq(not_modified->status, 304);
    ck_assert_str_eq(not_modified->etag, answer->etag);
    bp_answer_unref(not_modified);
    bp_answer_unref(answer);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    store_fixture_sql(&fixture.store,
                      "UPDATE snapshots SET data = CAST(substr(data, 1, length(data) - 1) || x'ff' AS BLOB)"
                      " WHERE stage = 'portable'");
    answer = bp_service_snapshot_get(fixture.service, digest, false);
    ck_assert_int_eq(answer->status, 500);
    ck_assert_str_eq(answer_text(answer, "code"), "snapshot_corrupt");
    bp_answer_unref(answer);
    ck_assert_uint_eq(service_fixture_count(&fixture, BP_COUNTER_SNAPSHOTS_CORRUPT), 1);
}
END_TEST

START_TEST(test_replay__is_stored_with_its_verdict)
{
    char id[BP_DIGEST_TEXT], next[BP_STORE_CURSOR_TEXT] = "";
    struct client client;
    ck_assert_int_eq(post(request_text(1024, UINT64_C(1) << 40), id), 201);
    client_begin(&client);
    client_take(&client, bp_service_replay_create(fixture.service, id, &client.waiter));
    client_wait(&client);
    ck_assert_int_eq(client.answer->status, 201);
    ck_assert_str_eq(answer_text(client.answer, "verdict"), "identical");
    struct bp_answer *read = bp_service_replay_get(fixture.service, strrchr(client.answer->location, '/') + 1);
    ck_assert_int_eq(read->status, 200);
    ck_assert_uint_eq(read->n, client.answer->n);
    ck_assert_int_eq(memcmp(read->body, client.answer->body, read->n), 0);
    bp_answer_unref(read);
    read = bp_service_replay_list(fixture.service, id, 10, NULL, next);
    ck_assert_ptr_nonnull(memmem(read->body, read->n, client.answer->body, client.answer->n));
    bp_answer_unref(read);
    client_done(&client);
}
END_TEST

Suite *suite_service(void)
{
    Suite *suite = suite_create("service");
    TCase *cases = tcase_create("service");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, test_plan__is_created_once_and_answered_alike_after);
    tcase_add_test(cases, test_plan__a_repeated_body_is_answered_from_its_digest);
    tcase_add_test(cases, test_plan__many_copies_at_once_are_one_derivation);
    tcase_add_test(cases, test_plan__a_rejected_one_says_the_same_again_without_a_derivation);
    tcase_add_test(cases, test_plan__a_failed_one_is_derived_again);
    tcase_add_test(cases, test_plan__what_is_wrong_with_a_request_leaves_no_record);
    tcase_add_test(cases, test_plan__a_full_queue_refuses_and_forgets);
    tcase_add_test(cases, test_plan__is_cancelled_when_the_last_who_waits_has_left);
    tcase_add_test(cases, test_plan__goes_on_for_those_who_stay);
    tcase_add_test(cases, test_errand__is_cancelled_when_its_waiter_left);
    tcase_add_test(cases, test_durable__is_on_disk_before_it_is_answered_and_runs_after_a_stop);
    tcase_add_test(cases, test_durable__is_not_cancelled_by_who_leaves);
    tcase_add_test(cases, test_durable__many_run_to_the_end_whatever_the_order);
    tcase_add_test(cases, test_durable__what_a_full_disk_left_behind_is_taken_up_again);
    tcase_add_test(cases, test_durable__begun_twice_and_never_ended_is_failed);
    tcase_add_test(cases, test_durable__whose_passes_changed_is_answered_at_its_old_id);
    tcase_add_test(cases, test_snapshot__kept_in_memory_is_checked_again_once_the_file_changed);
    tcase_add_test(cases, test_replay__is_stored_with_its_verdict);
    suite_add_tcase(suite, cases);
    return suite;
}
