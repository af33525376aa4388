#include "tests/fault/scenario.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/log.h"
#include "tests/fault/inspect.h"
#include "tests/lib/fault_vfs.h"

enum { QUEUE = 8, SETTLE_MS = 30000, FILES = 2 };

/* What every run starts from: the database and its log as a killed process left them, and what it acknowledged. */
static struct {
    const struct rig_scenario *scenario;
    unsigned char *bytes[FILES];
    size_t n[FILES];
    struct rig_acks *acks; /* shared */
} origin;

static const char *const suffixes[FILES] = {"", "-wal"};

struct rig rig;

struct rig_totals *rig_totals_new(void)
{
    void *memory = mmap(NULL, sizeof(struct rig_totals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

void rig_report(const char *suite, const struct rig_totals *t)
{
    printf("check-faults: %s: %lu failures injected in %lu runs: %lu requests, %lu of them acknowledged, %lu answered "
           "503; "
           "the start refused: %lu, the store failed for good: %lu; lost: 0\n",
           suite, t->injected, t->runs, t->requests, t->acknowledged, t->unavailable, t->refused_starts,
           t->failed_stores);
    fflush(stdout);
}

/* ---- Answers ---- */

const char *rig_member(const struct bp_answer *answer, const char *pointer)
{
    json_t *json = keep_json(json_loadb(answer->body, answer->n, 0, NULL));
    return json && has(json, pointer) ? text_at(json, pointer) : "";
}

void rig_acknowledge(const struct bp_answer *answer, enum ack_kind kind, const char *id_pointer, unsigned long number)
{
    ck_assert_uint_lt(rig.acks.n, ACKS_MAX);
    struct ack *ack = &rig.acks.at[rig.acks.n++];
    *ack = (struct ack){.kind = kind, .number = number, .rejected = answer->status == 422};
    snprintf(ack->id, sizeof ack->id, "%s", rig_member(answer, id_pointer));
    RIG_ASSERT(*ack->id, "an answer without id: %.300s", answer->body);
    if (kind == ACK_PLAN && !ack->rejected) {
        ack->has_proof = true;
        ack->proof = proof_of(keep_json(json_loadb(answer->body, answer->n, 0, NULL)));
    }
}

bool rig_judge(const char *step, const struct bp_answer *answer, int good)
{
    rig.totals->requests++;
    const bool is_good = answer->status == good;
    RIG_ASSERT(is_good || answer->status == 503, "%s: %d %.*s", step, answer->status, (int)answer->n, answer->body);
    rig.totals->acknowledged += is_good;
    rig.totals->unavailable += !is_good;
    rig.all_answered &= is_good;
    return is_good;
}

bool rig_distrusts(void)
{
    return fault_vfs_failed_syncs() > rig.failed_syncs;
}

/* ---- The scenario ---- */

void rig_begin(struct client *client)
{
    client_begin(client);
    rig.faults->pause(false);
}

/* As client_wait, but that nothing is asserted, which takes memory, while faults are on. */
struct bp_answer *rig_end(struct client *client, struct bp_answer *answer)
{
    client_take(client, answer);
    while (client->waits && sem_wait(&client->woken))
        ;
    client->waits = false;
    rig.faults->pause(true);
    ck_assert_ptr_nonnull(client->answer);
    return client->answer;
}

bool rig_new_plan(const char *step, unsigned long number, bool async)
{
    struct client client;
    const bool distrusted = rig_distrusts();
    const char *body = load_request(number);
    rig_begin(&client);
    const struct bp_answer *answer =
        rig_end(&client, bp_service_plan_create(rig.fixture.service, body, strlen(body),
                                                async ? BP_PATIENCE_NONE : BP_PATIENCE_FULL, &client.waiter));
    const bool rejected = number % 8 == 7;
    const bool good = rig_judge(step, answer, async ? 202 : rejected ? 422 : 201);
    if (good) {
        RIG_ASSERT(!distrusted, "%s was acknowledged after a failed sync", step);
        rig_acknowledge(answer, async ? ACK_ACCEPTED : ACK_PLAN, rejected ? "/plan" : "/id", number);
        if (!async && !rejected) {
            memcpy(rig.acks.plan, rig_member(answer, "/id"), sizeof rig.acks.plan);
            memcpy(rig.acks.snapshot, rig_member(answer, "/snapshots/1/digest"), sizeof rig.acks.snapshot);
        }
    }
    client_done(&client);
    return good;
}

static bool is_settled(void)
{
    struct bp_service *service = rig.fixture.service;
    pthread_mutex_lock(&service->claims.lock);
    const bool settled = !service->chores;
    pthread_mutex_unlock(&service->claims.lock);
    return settled && bp_claims_count(&service->claims) == 0;
}

void rig_settle(void)
{
    for (int i = 0; i < SETTLE_MS && !is_settled(); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    rig.faults->pause(true);
    RIG_ASSERT(is_settled(), "%s", "something stays under way for ever");
}

/* Nothing fails just now: the next request succeeds, or the store says that it cannot be used any more, which makes the
 * daemon unready and end. */
static void step_next(void)
{
    struct bp_err err = {0};
    struct client client;
    const char *body = load_request(origin.scenario->next);
    const bool usable = bp_store_ready(rig.fixture.store.store, &err) == 0;
    RIG_ASSERT(usable || err.code == BP_E_storage_failed, "%s", err.message);
    RIG_ASSERT(!usable || !rig_distrusts(), "%s", "the store goes on after a failed sync");
    client_post(&rig.fixture, &client, body, false);
    client_wait(&client);
    rig.totals->requests++;
    if (usable) {
        RIG_ASSERT(client.answer->status == 201, "the next request: %d %.*s", client.answer->status,
                   (int)client.answer->n, client.answer->body);
        rig_acknowledge(client.answer, ACK_PLAN, "/id", origin.scenario->next);
        rig.totals->acknowledged++;
    } else {
        RIG_ASSERT(client.answer->status == 503, "a failed store answers %d %.*s", client.answer->status,
                   (int)client.answer->n, client.answer->body);
        struct client readiness;
        client_ask_ready(&rig.fixture, &readiness);
        client_wait(&readiness);
        ck_assert_int_eq(readiness.answer->status, 503);
        ck_assert_str_eq(rig_member(readiness.answer, "/code"), "storage_failed");
        client_done(&readiness);
        rig.totals->failed_stores++;
        rig.totals->unavailable++;
    }
    client_done(&client);
    /* What was accepted and left on disk is taken up, as the daemon does when it can write again. */
    if (usable) {
        RIG_ASSERT(bp_service_take_up_again(rig.fixture.service, &err) == 0, "%s", err.message);
        rig_settle();
    }
}

static bool start(struct bp_err *err)
{
    struct service_fixture *fixture = &rig.fixture;
    const struct bp_store_options options = {
        .path = fixture->store.path, .readers = 1, .observer = fixture->store.observer};
    if (bp_store_open(&options, &fixture->store.store, err))
        return false;
    const struct bp_service_options service = {.database = fixture->store.path,
                                               .workers = 1,
                                               .queue = QUEUE,
                                               .store = fixture->store.store,
                                               .metrics = &fixture->metrics};
    return bp_service_start(&service, &fixture->service, err) == 0 && bp_service_recover(fixture->service, err) == 0;
}

static void stop(void)
{
    bp_service_stop(rig.fixture.service);
    store_fixture_close(&rig.fixture.store);
    bp_service_free(rig.fixture.service);
    rig.fixture.service = NULL;
}

static void play(void)
{
    const struct rig_scenario *scenario = origin.scenario;
    struct bp_err err = {0};
    rig.faults->pause(false);
    const bool started = start(&err);
    if (started)
        rig_settle();
    rig.faults->pause(true);
    if (started) {
        for (size_t i = 0; i < scenario->n_steps; i++)
            scenario->steps[i]();
        step_next();
    } else {
        RIG_ASSERT(bp_code_kind(err.code) == BP_KIND_ENVIRONMENT && *err.message, "the start: %s: %s",
                   bp_code_name(err.code), err.message);
        rig.all_answered = false;
        rig.totals->refused_starts++;
    }
    rig.faults->pause(false);
    stop();
}

/* ---- Before and after ---- */

static char *path_of(size_t file)
{
    return keep_text("%s%s", rig.fixture.store.path, suffixes[file]);
}

static void read_file(size_t file)
{
    FILE *in = fopen(path_of(file), "rb");
    if (!in)
        return;
    ck_assert_int_eq(fseek(in, 0, SEEK_END), 0);
    origin.n[file] = (size_t)ftell(in);
    origin.bytes[file] = malloc(origin.n[file] + 1);
    ck_assert_ptr_nonnull(origin.bytes[file]);
    rewind(in);
    ck_assert_uint_eq(fread(origin.bytes[file], 1, origin.n[file], in), origin.n[file]);
    fclose(in);
}

static void write_file(size_t file)
{
    if (!origin.bytes[file])
        return;
    FILE *out = fopen(path_of(file), "wb");
    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(origin.bytes[file], 1, origin.n[file], out), origin.n[file]);
    ck_assert_int_eq(fclose(out), 0);
}

static void no_pause(bool paused)
{
    (void)paused;
}

static const struct rig_faults no_faults = {.pause = no_pause};

static void begin_run(const char *name, long n, const struct rig_faults *faults, struct rig_totals *totals)
{
    rig = (struct rig){.name = name,
                       .n = n,
                       .faults = faults,
                       .totals = totals,
                       .all_answered = true,
                       .failed_syncs = fault_vfs_failed_syncs()};
    sem_init(&rig.fixture.blocked, 0, 0);
    sem_init(&rig.fixture.unblocked, 0, 0);
    store_fixture_init(&rig.fixture.store);
}

static void end_run(void)
{
    store_fixture_release(&rig.fixture.store);
    sem_destroy(&rig.fixture.blocked);
    sem_destroy(&rig.fixture.unblocked);
    http_forget();
}

/* In a process of its own, which ends as one that is killed. */
static void make_origin(void)
{
    struct bp_err err = {0};
    ck_assert_msg(start(&err), "%s", err.message);
    origin.scenario->crash();
    *origin.acks = rig.acks;
    _exit(0);
}

void rig_prepare(const struct rig_scenario *scenario)
{
    static struct rig_totals unused;
    bp_log_set_level((enum bp_log_level)(BP_LOG_ERROR + 1)); /* each fault is said there */
    origin.scenario = scenario;
    if (access("/dev/shm", W_OK) == 0) /* the disk is of this process's memory anyway */
        setenv("TMPDIR", "/dev/shm", 0);
    origin.acks = mmap(NULL, sizeof *origin.acks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(origin.acks, MAP_FAILED);
    if (!scenario->crash)
        return;
    begin_run("the origin", 0, &no_faults, &unused);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        /* Large pages: fewer calls to fail one after the other. */
        store_fixture_sql(&rig.fixture.store, "PRAGMA page_size = 16384; VACUUM");
        make_origin();
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    for (size_t i = 0; i < FILES; i++)
        read_file(i);
    ck_assert_uint_gt(origin.n[1], 0);
    end_run();
}

void rig_release(void)
{
    for (size_t i = 0; i < FILES; i++)
        free(origin.bytes[i]);
    munmap(origin.acks, sizeof *origin.acks);
}

/* An accepted plan for whose derivation there was no memory: the next who asks for it gets it. */
static void ask_again(const struct ack *ack)
{
    struct client client;
    client_post(&rig.fixture, &client, load_request(ack->number), false);
    client_wait(&client);
    RIG_ASSERT(client.answer->status == 201, "%s asked for again: %d %.*s", ack->id, client.answer->status,
               (int)client.answer->n, client.answer->body);
    client_done(&client);
}

static void ask_for(const struct ack *ack)
{
    struct bp_answer *answer = ack->kind == ACK_REPLAY ? bp_service_replay_get(rig.fixture.service, ack->id)
                                                       : bp_service_plan_get(rig.fixture.service, ack->id);
    RIG_ASSERT(answer->status == 200, "%s was acknowledged: %d %.*s", ack->id, answer->status, (int)answer->n,
               answer->body);
    if (rig.faults->of_memory && ack->kind == ACK_ACCEPTED && strcmp(rig_member(answer, "/state"), "failed") == 0)
        ask_again(ack);
    if (ack->has_proof) {
        struct bp_digest proof = proof_of(keep_json(json_loadb(answer->body, answer->n, 0, NULL)));
        RIG_ASSERT(bp_digest_equal(&proof, &ack->proof), "%s is not what was acknowledged: %.*s", ack->id,
                   (int)answer->n, answer->body);
    }
    bp_answer_unref(answer);
}

/* Everything works again: what was acknowledged is there, and what is there is whole. */
static void verify(void)
{
    struct bp_err err = {0};
    RIG_ASSERT(start(&err), "the start on a sound disk: %s", err.message);
    rig_settle();
    for (size_t i = 0; i < rig.acks.n; i++)
        ask_for(&rig.acks.at[i]);
    if (origin.scenario->verify)
        origin.scenario->verify();
    stop();
    struct inspection inspection = inspect(rig.fixture.store.path, rig.acks.at, rig.acks.n);
    RIG_ASSERT(inspection.n_faults == 0, "%s", inspection.first);
}

unsigned long rig_run(const char *name, long n, const struct rig_faults *faults, struct rig_totals *totals)
{
    begin_run(name, n, faults, totals);
    for (size_t i = 0; i < FILES; i++)
        write_file(i);
    rig.acks = *origin.acks;
    fault_vfs_disk_begin();
    play();
    rig.failed = faults->failed();
    faults->end();
    fault_vfs_power_cut((unsigned)n);
    RIG_ASSERT(rig.failed || rig.all_answered, "%s", "nothing failed and not everything was answered");
    verify();
    totals->runs++;
    totals->injected += rig.failed;
    end_run();
    return rig.failed;
}
