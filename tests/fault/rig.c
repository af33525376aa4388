#include "tests/fault/rig.h"

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
#include "tests/api/expect.h"
#include "tests/fault/inspect.h"
#include "tests/lib/fault_vfs.h"
#include "tests/lib/service_fixture.h"

enum { ACKS_MAX = 16, QUEUE = 8, SETTLE_MS = 30000, FILES = 2 };

/* Numbers of load_request: fitting ones but for REJECTED. */
enum { FIRST = 0, REJECTED = 7, LEFT = 2, NEW = 5, LATER = 6, SECOND = 10, NEXT = 11 };

/* What was acknowledged, and the last plan of it with a snapshot. */
struct acks {
    struct ack at[ACKS_MAX];
    size_t n;
    char plan[BP_DIGEST_TEXT], snapshot[BP_DIGEST_TEXT];
};

/* What every run starts from: the database and its log as a killed process left them, and what it acknowledged. */
static struct {
    bool is_empty;
    unsigned char *bytes[FILES];
    size_t n[FILES];
    struct acks *acks; /* shared */
} origin;

static const char *const suffixes[FILES] = {"", "-wal"};

/* The run. */
static struct rig {
    struct service_fixture fixture;
    struct acks acks;
    const char *name;
    long n;
    const struct rig_faults *faults;
    struct rig_totals *totals;
    bool all_answered;
    unsigned long failed_syncs; /* before the run */
    const char *repeat;         /* a request of a plan that is there */
} rig;

#define RIG_ASSERT(condition, format, ...) ck_assert_msg(condition, "%s, %ld: " format, rig.name, rig.n, __VA_ARGS__)

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

static const char *member(const struct bp_answer *answer, const char *pointer)
{
    json_t *json = keep_json(json_loadb(answer->body, answer->n, 0, NULL));
    return json && has(json, pointer) ? text_at(json, pointer) : "";
}

static void acknowledge(const struct bp_answer *answer, enum ack_kind kind, const char *id_pointer,
                        unsigned long number)
{
    ck_assert_uint_lt(rig.acks.n, ACKS_MAX);
    struct ack *ack = &rig.acks.at[rig.acks.n++];
    *ack = (struct ack){.kind = kind, .number = number, .rejected = answer->status == 422};
    snprintf(ack->id, sizeof ack->id, "%s", member(answer, id_pointer));
    RIG_ASSERT(*ack->id, "an answer without id: %.300s", answer->body);
    if (kind == ACK_PLAN && !ack->rejected) {
        ack->has_proof = true;
        ack->proof = proof_of(keep_json(json_loadb(answer->body, answer->n, 0, NULL)));
    }
}

/* Faults are paused. The answer is one of a sound service, or says that it is not one. */
static bool judge(const char *step, const struct bp_answer *answer, int good)
{
    rig.totals->requests++;
    const bool is_good = answer->status == good;
    RIG_ASSERT(is_good || answer->status == 503, "%s: %d %.*s", step, answer->status, (int)answer->n, answer->body);
    rig.totals->acknowledged += is_good;
    rig.totals->unavailable += !is_good;
    rig.all_answered &= is_good;
    return is_good;
}

static bool sync_has_failed(void)
{
    return fault_vfs_failed_syncs() > rig.failed_syncs;
}

/* ---- The scenario ---- */

/* As client_wait, but that nothing is asserted, which takes memory, while faults are on. */
static void wait_for(struct client *client)
{
    while (client->waits && sem_wait(&client->woken))
        ;
    client->waits = false;
    rig.faults->pause(true);
    ck_assert_ptr_nonnull(client->answer);
}

static struct bp_answer *post(struct client *client, unsigned long number, bool async)
{
    const char *body = load_request(number);
    rig.faults->pause(false);
    client_post(&rig.fixture, client, body, async);
    wait_for(client);
    return client->answer;
}

/* A plan that was not there before. After a failed sync none may be acknowledged. */
static bool new_plan(const char *step, unsigned long number, bool async)
{
    struct client client;
    const bool distrusted = sync_has_failed();
    const struct bp_answer *answer = post(&client, number, async);
    const bool rejected = number % 8 == 7;
    const bool good = judge(step, answer, async ? 202 : rejected ? 422 : 201);
    if (good) {
        RIG_ASSERT(!distrusted, "%s was acknowledged after a failed sync", step);
        acknowledge(answer, async ? ACK_ACCEPTED : ACK_PLAN, rejected ? "/plan" : "/id", number);
        if (!async && !rejected) {
            memcpy(rig.acks.plan, member(answer, "/id"), sizeof rig.acks.plan);
            memcpy(rig.acks.snapshot, member(answer, "/snapshots/1/digest"), sizeof rig.acks.snapshot);
        }
    }
    client_done(&client);
    return good;
}

/* Pauses the faults. */
static void wait_until_settled(void)
{
    for (int i = 0; i < SETTLE_MS && bp_claims_count(&rig.fixture.service->claims); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    rig.faults->pause(true);
    RIG_ASSERT(bp_claims_count(&rig.fixture.service->claims) == 0, "%s", "something stays claimed for ever");
}

static void step_new(void)
{
    new_plan("a new plan", NEW, false);
}

static void step_second(void)
{
    new_plan("a second plan", SECOND, false);
}

static void step_rejected(void)
{
    new_plan("a plan to be rejected", REJECTED + 8, false);
}

static void step_later(void)
{
    new_plan("a plan for later", LATER, true);
    rig.faults->pause(false);
    wait_until_settled();
}

static void step_replay(void)
{
    struct client client;
    const bool distrusted = sync_has_failed();
    client_begin(&client);
    rig.faults->pause(false);
    client_take(&client, bp_service_replay_create(rig.fixture.service, rig.acks.plan, &client.waiter));
    wait_for(&client);
    if (judge("a replay", client.answer, 201)) {
        RIG_ASSERT(!distrusted, "%s", "a replay was acknowledged after a failed sync");
        RIG_ASSERT(strcmp(member(client.answer, "/verdict"), "identical") == 0, "%.900s", client.answer->body);
        acknowledge(client.answer, ACK_REPLAY, "/id", 0);
    }
    client_done(&client);
}

static struct bp_answer *read_plan(struct bp_waiter *waiter)
{
    (void)waiter;
    return bp_service_plan_get(rig.fixture.service, rig.acks.plan);
}

static struct bp_answer *read_prefix(struct bp_waiter *waiter)
{
    char prefix[16];
    (void)waiter;
    snprintf(prefix, sizeof prefix, "%.8s", rig.acks.plan + strlen("sha256:"));
    return bp_service_plan_get(rig.fixture.service, prefix);
}

static struct bp_answer *read_list(struct bp_waiter *waiter)
{
    char next[BP_STORE_CURSOR_TEXT];
    (void)waiter;
    return bp_service_plan_list(rig.fixture.service, &(struct bp_plan_query){.state = -1, .limit = 10}, next);
}

static struct bp_answer *read_snapshot(struct bp_waiter *waiter)
{
    (void)waiter;
    return bp_service_snapshot_get(rig.fixture.service, rig.acks.snapshot, false);
}

static struct bp_answer *read_lineage(struct bp_waiter *waiter)
{
    char next[BP_STORE_CURSOR_TEXT];
    (void)waiter;
    return bp_service_lineage(rig.fixture.service, rig.acks.snapshot, BP_STORE_ANCESTORS, 10, NULL, next);
}

static struct bp_answer *read_capacity(struct bp_waiter *waiter)
{
    return bp_service_capacity(rig.fixture.service, rig.acks.plan, waiter);
}

static struct bp_answer *read_replays(struct bp_waiter *waiter)
{
    char next[BP_STORE_CURSOR_TEXT];
    (void)waiter;
    return bp_service_replay_list(rig.fixture.service, rig.acks.plan, 10, NULL, next);
}

static struct bp_answer *read_repeat(struct bp_waiter *waiter)
{
    return bp_service_plan_create(rig.fixture.service, rig.repeat, strlen(rig.repeat), false, waiter);
}

static const struct {
    const char *name;
    struct bp_answer *(*read)(struct bp_waiter *waiter);
} reads[] = {
    {"a plan read", read_plan},          {"a prefix", read_prefix},   {"a list", read_list},
    {"a snapshot", read_snapshot},       {"a lineage", read_lineage}, {"a plan's capacity", read_capacity},
    {"a list of replays", read_replays}, {"a repeat", read_repeat},
};

static void step_reads(void)
{
    /* White space makes it another body, which is looked up in the store. */
    rig.repeat = keep_text(" %s", load_request(FIRST));
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
        struct client client;
        client_begin(&client);
        rig.faults->pause(false);
        client_take(&client, reads[i].read(&client.waiter));
        wait_for(&client);
        judge(reads[i].name, client.answer, 200);
        client_done(&client);
    }
}

/* Nothing fails just now: the next request succeeds, or the store says that it cannot be used any more, which makes the
 * daemon unready and end. */
static void step_next(void)
{
    struct bp_err err = {0};
    struct client client;
    const char *body = load_request(NEXT);
    const bool usable = bp_store_ready(rig.fixture.store.store, &err) == 0;
    RIG_ASSERT(usable || err.code == BP_E_storage_failed, "%s", err.message);
    RIG_ASSERT(!usable || !sync_has_failed(), "%s", "the store goes on after a failed sync");
    client_post(&rig.fixture, &client, body, false);
    client_wait(&client);
    rig.totals->requests++;
    if (usable) {
        RIG_ASSERT(client.answer->status == 201, "the next request: %d %.*s", client.answer->status,
                   (int)client.answer->n, client.answer->body);
        acknowledge(client.answer, ACK_PLAN, "/id", NEXT);
        rig.totals->acknowledged++;
    } else {
        RIG_ASSERT(client.answer->status == 503, "a failed store answers %d", client.answer->status);
        struct client readiness;
        client_ask_ready(&rig.fixture, &readiness);
        client_wait(&readiness);
        ck_assert_int_eq(readiness.answer->status, 503);
        ck_assert_str_eq(member(readiness.answer, "/code"), "storage_failed");
        client_done(&readiness);
        rig.totals->failed_stores++;
        rig.totals->unavailable++;
    }
    client_done(&client);
    /* What was accepted and left on disk is taken up, as the daemon does when it can write again. */
    if (usable) {
        RIG_ASSERT(bp_service_take_up_again(rig.fixture.service, &err) == 0, "%s", err.message);
        wait_until_settled();
    }
}

static bool start(struct bp_err *err)
{
    struct service_fixture *fixture = &rig.fixture;
    const struct bp_store_options options = {.path = fixture->store.path, .readers = 1};
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
    /* Without a database to begin with what matters is how one is made: the first two. */
    static void (*const steps[])(void) = {step_new, step_later, step_reads, step_rejected, step_replay, step_second};
    const size_t n_steps = origin.is_empty ? 2 : sizeof steps / sizeof *steps;
    struct bp_err err = {0};
    rig.faults->pause(false);
    const bool started = start(&err);
    if (started)
        wait_until_settled();
    rig.faults->pause(true);
    if (started) {
        for (size_t i = 0; i < n_steps; i++)
            steps[i]();
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

/* In a process that ends as a crash does: its log is not brought home, one accepted plan is not derived. */
static void make_origin(void)
{
    struct bp_err err = {0};
    ck_assert_msg(start(&err), "%s", err.message);
    ck_assert(new_plan("the first plan", FIRST, false));
    ck_assert(new_plan("a rejected plan", REJECTED, false));
    step_replay();
    service_fixture_block(&rig.fixture);
    struct client client;
    client_post(&rig.fixture, &client, load_request(LEFT), true);
    client_wait(&client);
    ck_assert_int_eq(client.answer->status, 202);
    acknowledge(client.answer, ACK_ACCEPTED, "/id", LEFT);
    *origin.acks = rig.acks;
    _exit(0);
}

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

void rig_prepare(bool empty)
{
    static struct rig_totals unused;
    bp_log_set_level((enum bp_log_level)(BP_LOG_ERROR + 1)); /* each fault is said there */
    origin.is_empty = empty;
    if (access("/dev/shm", W_OK) == 0) /* the disk is of this process's memory anyway */
        setenv("TMPDIR", "/dev/shm", 0);
    origin.acks = mmap(NULL, sizeof *origin.acks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(origin.acks, MAP_FAILED);
    if (empty)
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
    if (rig.faults->of_memory && ack->kind == ACK_ACCEPTED && strcmp(member(answer, "/state"), "failed") == 0)
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
    wait_until_settled();
    for (size_t i = 0; i < rig.acks.n; i++)
        ask_for(&rig.acks.at[i]);
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
    const unsigned long failed = faults->failed();
    faults->end();
    fault_vfs_power_cut((unsigned)n);
    RIG_ASSERT(failed || rig.all_answered, "%s", "nothing failed and not everything was answered");
    verify();
    totals->runs++;
    totals->injected += failed;
    end_run();
    return failed;
}
