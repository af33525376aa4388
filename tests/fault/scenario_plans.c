/* Plans: new ones, one for later, one that is rejected, every way to read, a replay; beside what a crash left. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "tests/fault/scenario.h"

/* Numbers of load_request: fitting ones but for REJECTED. */
enum { FIRST = 0, REJECTED = 7, LEFT = 2, NEW = 5, LATER = 6, SECOND = 10, NEXT = 11 };

static void step_new(void)
{
    rig_new_plan("a new plan", NEW, false);
}

static void step_second(void)
{
    rig_new_plan("a second plan", SECOND, false);
}

static void step_rejected(void)
{
    rig_new_plan("a plan to be rejected", REJECTED + 8, false);
}

static void step_later(void)
{
    rig_new_plan("a plan for later", LATER, true);
    rig.faults->pause(false);
    rig_settle();
}

static void step_replay(void)
{
    struct client client;
    const bool distrusted = rig_distrusts();
    rig_begin(&client);
    rig_end(&client, bp_service_replay_create(rig.fixture.service, rig.acks.plan, &client.waiter));
    if (rig_judge("a replay", client.answer, 201)) {
        RIG_ASSERT(!distrusted, "%s", "a replay was acknowledged after a failed sync");
        RIG_ASSERT(strcmp(rig_member(client.answer, "/verdict"), "identical") == 0, "%.900s", client.answer->body);
        rig_acknowledge(client.answer, ACK_REPLAY, "/id", 0);
    }
    client_done(&client);
}

static const char *repeat; /* a request of a plan that is there */

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
    return bp_service_plan_create(rig.fixture.service, repeat, strlen(repeat), false, waiter);
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
    repeat = keep_text(" %s", load_request(FIRST));
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
        struct client client;
        rig_begin(&client);
        rig_end(&client, reads[i].read(&client.waiter));
        rig_judge(reads[i].name, client.answer, 200);
        client_done(&client);
    }
}

/* What is in the log is not brought home, one accepted plan is not derived. */
static void crash(void)
{
    ck_assert(rig_new_plan("the first plan", FIRST, false));
    ck_assert(rig_new_plan("a rejected plan", REJECTED, false));
    step_replay();
    service_fixture_block(&rig.fixture);
    ck_assert(rig_new_plan("a plan that is left", LEFT, true));
}

/* Without a database to begin with what matters is how one is made. */
static void (*const first_steps[])(void) = {step_new, step_later};
static void (*const steps[])(void) = {step_new, step_later, step_reads, step_rejected, step_replay, step_second};

const struct rig_scenario rig_no_database = {
    .steps = first_steps, .n_steps = sizeof first_steps / sizeof *first_steps, .next = NEXT};
const struct rig_scenario rig_plans = {
    .crash = crash, .steps = steps, .n_steps = sizeof steps / sizeof *steps, .next = NEXT};
