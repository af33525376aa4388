/* Long jobs: a collection and replays of the history, beside one that a crash left; and pins. Of the plans some are
 * pinned, some are too young to go, some share snapshots with those that go. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "tests/fault/scenario.h"

/* Numbers of load_request. PINNED is, with LIKE_PINNED, of one model; so are OLD_REJECTED and YOUNG. YOUNG_CHANGED was
 * rejected, and does not come out again as it is stored. */
enum { PINNED = 1, LIKE_PINNED = 2, OLD_REJECTED = 7, TO_PIN = 10, YOUNG = 8, YOUNG_CHANGED = 15, NEXT = 13 };
static const unsigned long old[] = {PINNED, LIKE_PINNED, OLD_REJECTED, TO_PIN}, young[] = {YOUNG, YOUNG_CHANGED};
enum { N_OLD = 4, N_YOUNG = 2, N_PLANS = N_OLD + N_YOUNG, N_TO_GO = 3, TO_GO = 1 };

static const char collect[] = "{\"older_than_seconds\":86400}",
                  dry[] = "{\"older_than_seconds\":86400,\"dry_run\":true}";

/* ---- What a crash leaves ---- */

static void derive(const unsigned long *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ck_assert(rig_new_plan("a plan", numbers[i], numbers[i] == LIKE_PINNED));
    rig_settle();
}

static void ask_for_replay(const char *plan)
{
    struct client client;
    rig_begin(&client);
    rig_end(&client, bp_service_replay_create(rig.fixture.service, plan, &client.waiter));
    ck_assert_int_eq(client.answer->status, 201);
    client_done(&client);
}

/* As it is stored now. */
static void read_again(struct ack *ack)
{
    struct bp_answer *answer = bp_service_plan_get(rig.fixture.service, ack->id);
    ck_assert_int_eq(answer->status, 200);
    ack->kind = ACK_PLAN;
    ack->rejected = strcmp(rig_member(answer, "/state"), "rejected") == 0;
    ack->has_proof = true;
    ack->proof = proof_of(keep_json(json_loadb(answer->body, answer->n, 0, NULL)));
    bp_answer_unref(answer);
}

static bool pin(const char *step, const struct ack *ack)
{
    struct client client;
    const bool distrusted = rig_distrusts();
    rig_begin(&client);
    rig_end(&client, bp_service_pin(rig.fixture.service, ack->id, false, &client.waiter));
    const bool good = rig_judge(step, client.answer, 200);
    RIG_ASSERT(!good || !distrusted, "%s was acknowledged after a failed sync", step);
    client_done(&client);
    return good;
}

/* Begun with passes that there are no more: taken up again it begins anew, under another id. */
static void leave_job(void)
{
    const struct bp_store_job accept = {.id = digest_of_text("left"),
                                        .kind = "replays",
                                        .request = {"{}", 2},
                                        .passes = {"[]", 2},
                                        .created_at = bp_now_us()};
    const struct bp_store_job_change change = {.id = accept.id, .state = BP_STORE_JOB_RUNNING, .at = accept.created_at};
    struct bp_store_unit unit = {.accept = &accept, .change = &change};
    ck_assert_int_eq(store_fixture_commit(&rig.fixture.store, &unit), BP_OK);
    bp_digest_format(&accept.id, rig.acks.jobs[rig.acks.n_jobs++].id);
}

static void crash(void)
{
    derive(old, N_OLD);
    ask_for_replay(rig.acks.at[1].id);
    store_fixture_sql(&rig.fixture.store, "UPDATE plans SET created_at = created_at - 864000000000,"
                                          " committed_at = committed_at - 864000000000");
    derive(young, N_YOUNG);
    store_fixture_sql(&rig.fixture.store, "UPDATE plans SET request = replace(request, '\"memory_bytes\":1024',"
                                          " '\"memory_bytes\":1073741824') WHERE seq = (SELECT max(seq) FROM plans)");
    for (size_t i = 0; i < N_PLANS; i++)
        read_again(&rig.acks.at[i]);
    /* From here on what is in `at` must stay. */
    rig.acks.n_old = N_TO_GO;
    memcpy(rig.acks.old, &rig.acks.at[TO_GO], N_TO_GO * sizeof *rig.acks.old);
    memmove(&rig.acks.at[TO_GO], &rig.acks.at[N_OLD], N_YOUNG * sizeof *rig.acks.at);
    rig.acks.n -= N_TO_GO;
    ck_assert(pin("a pin", &rig.acks.at[0]));
    leave_job();
}

/* ---- Steps ---- */

/* Waits for the end of the job, or until it is left. */
static void begin_job(const char *step, const char *body, bool collects)
{
    struct client client;
    const bool distrusted = rig_distrusts();
    rig_begin(&client);
    rig_end(&client, (collects ? bp_service_collection_create
                               : bp_service_history_create)(rig.fixture.service, body, strlen(body), &client.waiter));
    if (rig_judge(step, client.answer, 202)) {
        RIG_ASSERT(!distrusted, "%s was acknowledged after a failed sync", step);
        ck_assert_uint_lt(rig.acks.n_jobs, JOBS_MAX);
        struct rig_job *job = &rig.acks.jobs[rig.acks.n_jobs++];
        *job = (struct rig_job){.collects = collects, .is_dry = body == dry};
        snprintf(job->id, sizeof job->id, "%s", rig_member(client.answer, "/id"));
    }
    client_done(&client);
    rig.faults->pause(false);
    rig_settle();
}

/* One of those that would go. */
static void step_pin(void)
{
    struct ack *to_pin = &rig.acks.old[rig.acks.n_old - 1];
    if (pin("another pin", to_pin)) {
        rig.acks.at[rig.acks.n++] = *to_pin;
        rig.acks.n_old--;
    }
}

static void step_dry(void)
{
    begin_job("a dry run", dry, true);
}

static void step_history(void)
{
    begin_job("replays of the history", "{\"since\":\"2000-01-01\"}", false);
}

static void step_collect(void)
{
    begin_job("a collection", collect, true);
}

static struct bp_answer *get_job(const struct rig_job *job)
{
    return (job->collects ? bp_service_collection_get : bp_service_history_get)(rig.fixture.service, job->id);
}

static void step_reads(void)
{
    char next[BP_STORE_CURSOR_TEXT];
    struct client client;
    rig_begin(&client);
    rig_judge("pins", rig_end(&client, bp_service_pin_list(rig.fixture.service, 10, NULL, next)), 200);
    client_done(&client);
    for (size_t i = 0; i < rig.acks.n_jobs; i++) {
        rig_begin(&client);
        rig_judge("a job", rig_end(&client, get_job(&rig.acks.jobs[i])), 200);
        client_done(&client);
    }
}

/* ---- What must be then ---- */

static json_int_t number(json_t *job, const char *pointer)
{
    return int_at(job, pointer);
}

/* The job as it ended, and its id; of one that was superseded the one it became. */
static json_t *ended_job(struct rig_job *job)
{
    struct bp_answer *answer = get_job(job);
    json_t *json = keep_json(json_loadb(answer->body, answer->n, 0, NULL));
    RIG_ASSERT(answer->status == 200, "%s was accepted: %d %.*s", job->id, answer->status, (int)answer->n,
               answer->body);
    bp_answer_unref(answer);
    if (strcmp(text_at(json, "/state"), "superseded") != 0)
        return json;
    snprintf(job->id, sizeof job->id, "%s", text_at(json, "/superseded_by"));
    return ended_job(job);
}

static bool is_there(const struct ack *ack)
{
    struct bp_answer *answer = bp_service_plan_get(rig.fixture.service, ack->id);
    const int status = answer->status;
    bp_answer_unref(answer);
    RIG_ASSERT(status == 200 || status == 404, "%s: %d", ack->id, status);
    return status == 200;
}

/* Of the model of TO_PIN there is no other plan: it takes a stage more with it than those that share theirs. */
static void verify_collection(json_t *job, bool is_dry, size_t n_gone)
{
    const bool takes_all = n_gone == N_TO_GO;
    const struct {
        const char *pointer;
        json_int_t n;
    } expected[] = {
        {"/plans", N_OLD},
        {"/removed/plans", (json_int_t)n_gone},
        {"/removed/snapshots", takes_all ? 9 : 5},
        {"/removed/derivations", takes_all ? 8 : 5},
        {"/removed/replays", 1},
        {"/removed/jobs", is_dry ? 0 : 1},
    };
    /* A dry run that went on later than the collection counts what is left. */
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const json_int_t n = number(job, expected[i].pointer);
        RIG_ASSERT(is_dry && rig.failed ? n <= expected[i].n : n == expected[i].n, "%s is not %lld: %s",
                   expected[i].pointer, (long long)expected[i].n, json_text(job));
    }
}

static json_int_t divergences_of(const struct rig_job *job)
{
    char next[BP_STORE_CURSOR_TEXT];
    struct bp_answer *answer = bp_service_divergences(rig.fixture.service, job->id, 10, NULL, next);
    RIG_ASSERT(answer->status == 200, "the divergences of %s: %d", job->id, answer->status);
    json_t *list = at(keep_json(json_loadb(answer->body, answer->n, 0, NULL)), "/divergences");
    for (size_t i = 0; i < json_array_size(list); i++)
        RIG_ASSERT(strcmp(text_at(json_array_get(list, i), "/state"), "rejected") == 0, "%s", json_text(list));
    bp_answer_unref(answer);
    return (json_int_t)json_array_size(list);
}

/* Those that a collection took meanwhile it did not see. */
static void verify_history(const struct rig_job *acknowledged, json_t *job)
{
    const json_int_t checked = number(job, "/checked"), identical = number(job, "/identical");
    RIG_ASSERT(number(job, "/divergent") == 1 && divergences_of(acknowledged) == 1, "%s", json_text(job));
    for (size_t i = 0; i < json_array_size(at(job, "/groups")); i++)
        RIG_ASSERT(number(json_array_get(at(job, "/groups"), i), "/plans") == 1, "%s", json_text(job));
    RIG_ASSERT(checked == identical + number(job, "/skipped") + 1 && checked <= number(job, "/plans"), "%s",
               json_text(job));
    RIG_ASSERT(identical >= N_OLD - N_TO_GO + N_YOUNG - 1 && number(job, "/plans") <= N_PLANS, "%s", json_text(job));
    RIG_ASSERT(rig.failed || (checked == N_PLANS && identical == N_PLANS - 1), "%s", json_text(job));
}

static bool is_pinned(const struct ack *ack)
{
    char next[BP_STORE_CURSOR_TEXT];
    struct bp_answer *answer = bp_service_pin_list(rig.fixture.service, N_PLANS, NULL, next);
    RIG_ASSERT(answer->status == 200, "the pins: %d", answer->status);
    const json_t *pins = at(keep_json(json_loadb(answer->body, answer->n, 0, NULL)), "/pins");
    bool found = false;
    for (size_t i = 0; i < json_array_size(pins); i++)
        found |= strcmp(text_at(json_array_get(pins, i), "/plan"), ack->id) == 0;
    bp_answer_unref(answer);
    return found;
}

static void verify(void)
{
    bool collected = false;
    /* A pin is kept when there was no memory but for its answer. */
    if (rig.failed && rig.acks.n_old == N_TO_GO && is_pinned(&rig.acks.old[N_TO_GO - 1]))
        rig.acks.n_old--;
    for (size_t i = 0; i < rig.acks.n_jobs; i++) {
        struct rig_job *acknowledged = &rig.acks.jobs[i];
        json_t *job = ended_job(acknowledged);
        const bool is_done = strcmp(text_at(job, "/state"), "done") == 0;
        RIG_ASSERT(is_done || (rig.failed && strcmp(text_at(job, "/state"), "failed") == 0), "%s", json_text(job));
        RIG_ASSERT(is_done || rig.faults->of_memory || *text_at(json_object_get(job, "problem"), "/message"),
                   "it does not say why: %s", json_text(job));
        collected |= acknowledged->collects && !acknowledged->is_dry && is_done;
        if (is_done && acknowledged->collects)
            verify_collection(job, acknowledged->is_dry, rig.acks.n_old);
        else if (is_done)
            verify_history(acknowledged, job);
    }
    for (size_t i = 0; i < rig.acks.n_old; i++)
        RIG_ASSERT(!collected || !is_there(&rig.acks.old[i]), "%s did not go", rig.acks.old[i].id);
}

static void (*const steps[])(void) = {step_pin, step_dry, step_history, step_collect, step_reads};

const struct rig_scenario rig_long_jobs = {
    .crash = crash, .steps = steps, .n_steps = sizeof steps / sizeof *steps, .next = NEXT, .verify = verify};
