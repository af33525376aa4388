/* The service when memory runs out, on the HTTP thread and on a worker: every allocation fails, alone or with all that
 * follow, and it answers and forgets. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/lib/fault_alloc.h"
#include "tests/lib/service_fixture.h"

static struct service_fixture fixture;
static char plan[BP_DIGEST_TEXT], snapshot[BP_DIGEST_TEXT], replay[BP_DIGEST_TEXT];

static void set_up(void)
{
    struct client client;
    service_fixture_init(&fixture, 8);
    client_post(&fixture, &client, request_text(512, 0), false);
    client_wait(&client);
    memcpy(plan, answer_text(client.answer, "id"), sizeof plan);
    json_t *json = json_loadb(client.answer->body, client.answer->n, 0, NULL);
    const json_t *first = json_array_get(json_object_get(json, "snapshots"), 0);
    memcpy(snapshot, json_string_value(json_object_get(first, "digest")), sizeof snapshot);
    json_decref(json);
    client_done(&client);
    client_begin(&client);
    client_take(&client, bp_service_replay_create(fixture.service, plan, &client.waiter));
    client_wait(&client);
    memcpy(replay, answer_text(client.answer, "id"), sizeof replay);
    client_done(&client);
}

static void tear_down(void)
{
    service_fixture_release(&fixture);
}

static const struct bp_caller caller = {"token:test", "unix"};

static struct bp_answer *call_create(struct client *client)
{
    client->waiter.caller = caller;
    const char *body = request_text(1024, 0);
    return bp_service_plan_create(fixture.service, body, strlen(body), BP_PATIENCE_FULL, &client->waiter);
}

static struct bp_answer *call_accept(struct client *client)
{
    client->waiter.caller = caller;
    const char *body = request_text(2048, 0);
    return bp_service_plan_create(fixture.service, body, strlen(body), BP_PATIENCE_NONE, &client->waiter);
}

static struct bp_answer *call_refused(struct client *client)
{
    static const char body[] = "{\"model\":{\"huggingface\":{\"model_type\":\"x\"}},\"strategy\":1}";
    return bp_service_plan_create(fixture.service, body, sizeof body - 1, BP_PATIENCE_FULL, &client->waiter);
}

static struct bp_answer *call_get(struct client *client)
{
    (void)client;
    return bp_service_plan_get(fixture.service, plan);
}

static struct bp_answer *call_list(struct client *client)
{
    char next[BP_STORE_CURSOR_TEXT];
    (void)client;
    return bp_service_plan_list(fixture.service, &(struct bp_plan_query){.state = -1, .limit = 10}, next);
}

static struct bp_answer *call_snapshot(struct client *client)
{
    (void)client;
    return bp_service_snapshot_get(fixture.service, snapshot, false);
}

static struct bp_answer *call_lineage(struct client *client)
{
    char next[BP_STORE_CURSOR_TEXT];
    (void)client;
    return bp_service_lineage(fixture.service, snapshot, BP_STORE_DESCENDANTS, 10, NULL, next);
}

static struct bp_answer *call_trace(struct client *client)
{
    return bp_service_trace(fixture.service, plan, "value:00000000", &client->waiter);
}

static struct bp_answer *call_replay(struct client *client)
{
    return bp_service_replay_create(fixture.service, plan, &client->waiter);
}

static struct bp_answer *call_replay_get(struct client *client)
{
    (void)client;
    return bp_service_replay_get(fixture.service, replay);
}

static struct bp_answer *call_models(struct client *client)
{
    (void)client;
    return bp_service_model_list();
}

static struct bp_answer *call_passes(struct client *client)
{
    (void)client;
    return bp_service_pass_list();
}

static const struct {
    const char *name;
    struct bp_answer *(*call)(struct client *client);
} calls[] = {
    {"create", call_create}, {"accept", call_accept},         {"refused", call_refused}, {"get", call_get},
    {"list", call_list},     {"snapshot", call_snapshot},     {"lineage", call_lineage}, {"trace", call_trace},
    {"replay", call_replay}, {"replay get", call_replay_get}, {"models", call_models},   {"passes", call_passes},
};

static void fail_from(long n, bool once)
{
    if (once)
        bp_fault_alloc_once(n);
    else
        bp_fault_alloc_after(n);
}

/* Without memory the answer is 503, or the one it would have been; nothing is left claimed or queued. */
START_TEST(test_service__answers_whichever_allocation_fails)
{
    if (!bp_fault_alloc_works())
        return;
    bool failed = true;
    for (long n = 0; failed; n++) {
        struct client client;
        client_begin(&client);
        fail_from(n, _i % 2);
        struct bp_answer *answer = calls[_i / 2].call(&client);
        failed = bp_fault_alloc_off();
        client_take(&client, answer);
        bool was_refused = answer != NULL;
        client_wait(&client);
        ck_assert_msg(!failed || !was_refused || client.answer->status == 503 || client.answer->status < 300 ||
                          client.answer->status == 422,
                      "%s, allocation %ld: %d", calls[_i / 2].name, n, client.answer->status);
        client_done(&client);
        ck_assert_msg(n < 100000, "%s never ends", calls[_i / 2].name);
    }
    /* What was accepted runs on after its answer. */
    for (int i = 0; i < 2000 && bp_claims_count(&fixture.service->claims); i++)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    ck_assert_uint_eq(bp_claims_count(&fixture.service->claims), 0);
    ck_assert_uint_eq(bp_job_queue_depth(&fixture.service->queue), 0);
}
END_TEST

/* ---- On the worker ---- */

static struct bp_job arming, disarming;
static long n_pass;
static bool has_failed, is_once;
static sem_t disarmed;

static void arm(struct bp_job *job, struct bp_worker *worker)
{
    (void)job, (void)worker;
    fail_from(n_pass, is_once);
}

static void disarm(struct bp_job *job, struct bp_worker *worker)
{
    (void)job, (void)worker;
    has_failed = bp_fault_alloc_off();
    sem_post(&disarmed);
}

static void push(struct bp_job *job, void (*run)(struct bp_job *, struct bp_worker *))
{
    *job = (struct bp_job){.lane = BP_LANE_PLANS, .run = run};
    ck_assert_int_eq(bp_job_queue_push(&fixture.service->queue, job, true, NULL), 0);
}

START_TEST(test_service__a_worker_without_memory_is_503_and_the_next_try_succeeds)
{
    if (!bp_fault_alloc_works())
        return;
    sem_init(&disarmed, 0, 0);
    has_failed = true;
    is_once = _i;
    long n_unavailable = 0;
    for (n_pass = 0; has_failed; n_pass++) {
        struct client client;
        service_fixture_block(&fixture);
        push(&arming, arm);
        client_post(&fixture, &client, request_text(4096, UINT64_C(1) << 40), false);
        push(&disarming, disarm);
        service_fixture_unblock(&fixture);
        client_wait(&client);
        while (sem_wait(&disarmed))
            ;
        ck_assert_msg(client.answer->status == 201 || (has_failed && client.answer->status == 503),
                      "allocation %ld: %d", n_pass, client.answer->status);
        n_unavailable += client.answer->status == 503;
        client_done(&client);
        ck_assert_uint_eq(bp_claims_count(&fixture.service->claims), 0);
    }
    sem_destroy(&disarmed);
    ck_assert_int_gt(n_unavailable, 10);
}
END_TEST

Suite *suite_service_faults(void)
{
    Suite *suite = suite_create("service faults");
    TCase *cases = tcase_create("memory");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, test_service__answers_whichever_allocation_fails, 0,
                        (int)(2 * sizeof calls / sizeof *calls));
    tcase_add_loop_test(cases, test_service__a_worker_without_memory_is_503_and_the_next_try_succeeds, 0, 2);
    suite_add_tcase(suite, cases);
    return suite;
}
