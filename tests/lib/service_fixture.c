#include "tests/lib/service_fixture.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"

void service_fixture_start(struct service_fixture *fixture, unsigned queue)
{
    struct bp_err err = {0};
    fixture->store.observer = bp_service_store_observer(&fixture->metrics);
    store_fixture_open(&fixture->store);
    const struct bp_service_options options = {.database = fixture->store.path,
                                               .workers = 1,
                                               .queue = queue,
                                               .store = fixture->store.store,
                                               .metrics = &fixture->metrics};
    ck_assert_msg(bp_service_start(&options, &fixture->service, &err) == 0, "%s", err.message);
    ck_assert_msg(bp_service_recover(fixture->service, &err) == 0, "%s", err.message);
}

void service_fixture_stop(struct service_fixture *fixture)
{
    bp_service_stop(fixture->service);
    store_fixture_close(&fixture->store);
    bp_service_free(fixture->service);
    fixture->service = NULL;
}

void service_fixture_init(struct service_fixture *fixture, unsigned queue)
{
    memset(fixture, 0, sizeof *fixture);
    bp_log_set_level(BP_LOG_ERROR);
    sem_init(&fixture->blocked, 0, 0);
    sem_init(&fixture->unblocked, 0, 0);
    store_fixture_init(&fixture->store);
    service_fixture_start(fixture, queue);
}

void service_fixture_release(struct service_fixture *fixture)
{
    service_fixture_stop(fixture);
    store_fixture_release(&fixture->store);
    sem_destroy(&fixture->blocked);
    sem_destroy(&fixture->unblocked);
}

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore))
        ;
}

static void run_blocker(struct bp_job *job, struct bp_worker *worker)
{
    struct service_fixture *fixture =
        (struct service_fixture *)(void *)((char *)job - offsetof(struct service_fixture, blocker));
    (void)worker;
    sem_post(&fixture->blocked);
    wait_for(&fixture->unblocked);
}

void service_fixture_block(struct service_fixture *fixture)
{
    fixture->blocker = (struct bp_job){.lane = BP_LANE_PLANS, .run = run_blocker};
    ck_assert_int_eq(bp_job_queue_push(&fixture->service->queue, &fixture->blocker, true, NULL), 0);
    wait_for(&fixture->blocked);
}

void service_fixture_unblock(struct service_fixture *fixture)
{
    sem_post(&fixture->unblocked);
}

uint64_t service_fixture_count(const struct service_fixture *fixture, enum bp_counter counter)
{
    return atomic_load(&fixture->metrics.counters[counter]);
}

uint64_t service_fixture_lookups(const struct service_fixture *fixture, enum bp_cache_kind cache,
                                 enum bp_cache_result result)
{
    return atomic_load(&fixture->metrics.cells[BP_CELLS_CACHE + (size_t)cache * BP_LABEL_RESULT_N + (size_t)result]);
}

static void on_wake(struct bp_waiter *waiter, struct bp_answer *answer)
{
    struct client *client = (struct client *)(void *)waiter;
    client->answer = answer;
    sem_post(&client->woken);
}

void client_begin(struct client *client)
{
    *client = (struct client){.waiter = {.wake = on_wake, .caller = {"uid:0", "unix"}}};
    sem_init(&client->woken, 0, 0);
}

void client_take(struct client *client, struct bp_answer *answer)
{
    client->waits = !answer;
    if (answer)
        client->answer = answer;
}

void client_post(struct service_fixture *fixture, struct client *client, const char *body, bool async)
{
    client_begin(client);
    client_take(client, bp_service_plan_create(fixture->service, body, strlen(body),
                                               async ? BP_PATIENCE_NONE : BP_PATIENCE_FULL, &client->waiter));
}

void client_post_patiently(struct service_fixture *fixture, struct client *client, const char *body)
{
    client_begin(client);
    client_take(client,
                bp_service_plan_create(fixture->service, body, strlen(body), BP_PATIENCE_SOME, &client->waiter));
}

void client_ask_ready(struct service_fixture *fixture, struct client *client)
{
    client_begin(client);
    client_take(client, bp_service_ready(fixture->service, &client->waiter));
}

void client_wait(struct client *client)
{
    if (client->waits)
        wait_for(&client->woken);
    client->waits = false;
    ck_assert_ptr_nonnull(client->answer);
}

bool client_was_woken(struct client *client)
{
    int value = 0;
    sem_getvalue(&client->woken, &value);
    return value > 0;
}

void client_done(struct client *client)
{
    bp_answer_unref(client->answer);
    client->answer = NULL;
    sem_destroy(&client->woken);
}

const char *answer_text(const struct bp_answer *answer, const char *key)
{
    static char text[512];
    json_t *json = json_loadb(answer->body, answer->n, 0, NULL);
    ck_assert_msg(json != NULL, "%.*s", (int)answer->n, answer->body);
    const char *value = json_string_value(json_object_get(json, key));
    snprintf(text, sizeof text, "%s", value ? value : "");
    json_decref(json);
    return text;
}

bool answer_has(const struct bp_answer *answer, const char *text)
{
    return memmem(answer->body, answer->n, text, strlen(text)) != NULL;
}

const char *request_text(unsigned sequence_length, uint64_t memory_bytes)
{
    static char text[1024], target[256];
    snprintf(target, sizeof target,
             ",\"target\":{\"kind\":\"reference-queue\"},\"deployment\":{\"devices\":8,\"memory_bytes\":%llu}",
             (unsigned long long)memory_bytes);
    snprintf(text, sizeof text,
             "{\"model\":{\"name\":\"llama-2-7b\"},\"workload\":{\"mode\":\"training\",\"sequence_length\":%u,"
             "\"micro_batch_size\":1,\"global_batch_size\":8,\"dtype\":\"bfloat16\"},"
             "\"strategy\":{\"tensor_parallel\":8,\"data_parallel\":8}%s}",
             sequence_length, memory_bytes ? target : "");
    return text;
}
