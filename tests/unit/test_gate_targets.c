/* The gate over whole plans: the golden requests on every target; work that no pass emits yet but the binders take;
 * snapshots with wild values in them; and a gate that gets no memory. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/lib/fault_alloc.h"
#include "tests/unit/mutations.h"
#include "tests/unit/reading.h"

static const struct target_case {
    const char *kind;
} targets[] = {{NULL}, {"reference-queue"}, {"reference-slot"}};

static void set_target(json_t *request, const char *kind)
{
    if (!kind)
        return;
    json_object_set_new(request, "target", json_pack("{s:s}", "kind", kind));
    json_object_set_new(request, "deployment",
                        json_pack("{s:i,s:I}", "devices", 1024, "memory_bytes", (json_int_t)BP_JSON_INT_MAX));
}

static void expect_committed(const char *request_path, const char *kind)
{
    struct plan plan;
    json_t *request = json_of_file(request_path);
    set_target(request, kind);
    plan_derive(&plan, request, BP_PLAN_COMMITTED);
    ck_assert_uint_eq(plan.outcome.n_snapshots, kind ? BP_STAGE_N : BP_STAGE_CONCRETE);
    for (size_t i = 0; i < plan.outcome.n_derivations; i++)
        for (size_t j = 0; j < plan.outcome.derivations[i].n_evidence; j++)
            ck_assert_int_eq(plan.outcome.derivations[i].evidence[j].verdict, BP_HOLDS);
    plan_release(&plan);
    json_decref(request);
}

START_TEST(test_gate__golden_plans_pass_on_every_target)
{
    static const char golden[] = "tests/golden";
    size_t n = 0;
    DIR *directory = opendir(golden);
    ck_assert_msg(directory != NULL, "%s: run from the root of the sources", golden);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s/request.json", golden, entry->d_name);
        if (entry->d_name[0] == '.' || access(path, R_OK) != 0)
            continue;
        for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
            expect_committed(path, targets[i].kind);
        n++;
    }
    closedir(directory);
    ck_assert_uint_ge(n, 10);
}
END_TEST

/* A portable plan with a transfer and host tasks in it, as a pipeline across stages would have. */
static const struct hand_task {
    const char *name, *layer;
    enum bp_task_kind kind;
    enum bp_engine engine;
    struct bp_capability capability;
    uint64_t message;
} hand_tasks[] = {
    {"load", "load", BP_TASK_HOST, BP_ENGINE_VECTOR, {"host-copy", {"pinned-copy"}, 1}, 0},
    {"multiply",
     "multiply",
     BP_TASK_COMPUTE,
     BP_ENGINE_MATRIX,
     {"matrix-multiply", {"tensor-core", "matrix-engine"}, 2},
     0},
    {"send", "send", BP_TASK_TRANSFER, BP_ENGINE_VECTOR, {"transfer", {"direct-copy", "staged-copy"}, 2}, 64},
    {"sum.all_reduce",
     "sum",
     BP_TASK_COLLECTIVE,
     BP_ENGINE_COLLECTIVE,
     {"all_reduce", {"collective-library", "network-engine"}, 2},
     64},
    {"receive", "receive", BP_TASK_TRANSFER, BP_ENGINE_VECTOR, {"transfer", {"direct-copy", "staged-copy"}, 2}, 64},
    {"report", "report", BP_TASK_HOST, BP_ENGINE_VECTOR, {"host-copy", {"pinned-copy"}, 1}, 0},
};
enum { HAND_TASKS = sizeof hand_tasks / sizeof *hand_tasks };

struct hand {
    struct bp_portable_task tasks[HAND_TASKS];
    struct bp_portable_buffer buffers[2];
    struct bp_portable_ir ir;
    uint32_t all[HAND_TASKS], both[2];
    struct bp_id source;
};

/* Each task waits for the one before it; the first buffer is read by all and the second written by all. */
static void hand_make(struct hand *hand, struct bp_arena *arena, const struct bp_digest *parent)
{
    struct bp_id_maker *ids = bp_id_maker_new(arena, parent, NULL);
    hand->both[0] = 0, hand->both[1] = 1;
    hand->source = bp_id_make(ids, BP_ENTITY_TASK, 99, "by hand");
    struct bp_lineage lineage = {"by hand", &hand->source, 1};
    for (uint32_t i = 0; i < HAND_TASKS; i++) {
        const struct hand_task *of = &hand_tasks[i];
        hand->all[i] = i;
        hand->tasks[i] = (struct bp_portable_task){.id = bp_id_make(ids, BP_ENTITY_TASK, i, of->name),
                                                   .name = of->name,
                                                   .layer = of->layer,
                                                   .block = "dense",
                                                   .engine = of->engine,
                                                   .kind = of->kind,
                                                   .dependencies = {hand->all + i - (i > 0), i > 0},
                                                   .inputs = {hand->both, 1},
                                                   .outputs = {hand->both + 1, 1},
                                                   .n_ranks = 2,
                                                   .capability = of->capability,
                                                   .lineage = lineage,
                                                   .work = {.read = {32}, .write = {32}, .message = {of->message}},
                                                   .resources = {.memory = {64}, .network = {of->message}}};
    }
    for (uint32_t i = 0; i < 2; i++) {
        enum bp_buffer_role role = i ? BP_BUFFER_OUTPUT : BP_BUFFER_INPUT;
        struct bp_list users = {hand->all, HAND_TASKS}, nobody = {NULL, 0};
        hand->buffers[i] =
            (struct bp_portable_buffer){.id = bp_id_make(ids, BP_ENTITY_BUFFER, i, bp_buffer_role_names[role]),
                                        .role = role,
                                        .block = "dense",
                                        .storage = bp_buffer_role_storage[role],
                                        .size = {40},
                                        .alignment = 16,
                                        .producers = i ? users : nobody,
                                        .consumers = i ? nobody : users,
                                        .lineage = lineage};
    }
    hand->ir = (struct bp_portable_ir){*parent, hand->tasks, HAND_TASKS, hand->buffers, 2};
}

/* Binds the plan by hand as the pass of `plan` does, and leaves the gate over what came out. */
static struct bp_gate hand_bind(const struct plan *plan, const struct hand *hand, struct bp_arena *arena,
                                struct bp_problems *findings, struct bp_buf *bytes)
{
    const struct bp_pass *pass = plan->outcome.derivations[2].pass;
    struct bp_pass_input input = {.source = {BP_STAGE_PORTABLE, {.portable = &hand->ir}},
                                  .request = &plan->request,
                                  .fingerprints = &plan->outcome.fingerprints,
                                  .symbols = plan->symbols,
                                  .n_blocks = plan->n_blocks};
    struct bp_gate gate = {.request = input.request,
                           .fingerprints = input.fingerprints,
                           .blocks = input.symbols,
                           .n_blocks = input.n_blocks,
                           .rule = pass->rule,
                           .source = input.source,
                           .arena = arena,
                           .findings = findings,
                           .bytes = bytes,
                           .again = bytes};
    struct bp_err err = {0};
    ck_assert_int_eq(bp_ir_encode(&input.source, bytes, &err), 0);
    bp_digest_of(bytes->data, bytes->len, &input.source_digest);
    gate.source_digest = input.source_digest;
    bp_buf_clear(bytes);
    ck_assert_int_eq(pass->run(&input, arena, &gate.target, &err), 0);
    ck_assert_int_eq(bp_ir_encode(&gate.target, bytes, &err), 0);
    return gate;
}

static void expect_bound(enum plan_name name)
{
    struct plan plan;
    struct hand hand;
    struct bp_arena arena = {0};
    struct bp_problems findings = {0};
    struct bp_buf bytes = {0};
    struct bp_evidence evidence[BP_EVIDENCE_MAX];
    static const struct bp_check_group *const portable[] = {&bp_portable_checks};
    plan_of(&plan, name);
    const struct bp_pass *pass = plan.outcome.derivations[2].pass;
    hand_make(&hand, &arena, &plan.outcome.snapshots[BP_STAGE_DISTRIBUTED].digest);
    struct bp_gate by_hand = {.request = &plan.request,
                              .fingerprints = &plan.outcome.fingerprints,
                              .blocks = plan.symbols,
                              .n_blocks = plan.n_blocks,
                              .arena = &arena,
                              .findings = &findings,
                              .source_digest = hand.ir.parent,
                              .target = {BP_STAGE_PORTABLE, {.portable = &hand.ir}}};
    bp_gate_run(&by_hand, portable, 1, NULL, 0, evidence);
    ck_assert_msg(bp_problems_none(&findings), "%s", line_of(&findings));

    struct bp_gate gate = hand_bind(&plan, &hand, &arena, &findings, &bytes);
    bp_gate_run(&gate, pass->checks, pass->n_checks, pass->laws, pass->n_laws, evidence);
    ck_assert_msg(bp_problems_none(&findings), "%s", line_of(&findings));
    const struct bp_concrete_ir *ir = gate.target.as.concrete;
    static const uint32_t in_queue[] = {
        [BP_QUEUE_COMPUTE] = 1, [BP_QUEUE_COLLECTIVE] = 1, [BP_QUEUE_TRANSFER] = 2, [BP_QUEUE_HOST] = 2};
    for (size_t q = 0; q < BP_QUEUE_NONE; q++)
        ck_assert_uint_eq(ir->queues[q].n, ir->target == BP_TARGET_QUEUE ? in_queue[q] : 0);
    ck_assert_uint_eq(ir->n_routes, ir->target == BP_TARGET_SLOT ? 2 : 0);

    /* A host task that says it is a transfer: each target notices in its own way. */
    ((struct bp_concrete_command *)ir->commands)[0].kind = BP_TASK_TRANSFER;
    size_t n = bp_gate_run(&gate, pass->checks, pass->n_checks, NULL, 0, evidence);
    const char *noticed = ir->target == BP_TARGET_SLOT ? "slot.routes" : "queue.kind";
    ck_assert_int_eq(evidence_of(evidence, n, noticed)->verdict, BP_VIOLATED);
    bp_buf_release(&bytes);
    bp_problems_release(&findings);
    bp_arena_release(&arena);
    plan_release(&plan);
}

START_TEST(test_gate__transfers_and_host_tasks_pass_on_the_queue_target)
{
    expect_bound(PLAIN);
}
END_TEST

START_TEST(test_gate__transfers_and_host_tasks_pass_on_the_slot_target)
{
    expect_bound(SHARDED);
}
END_TEST

/* Values that no decoder lets through, in every member that some mutation touches. */
static const uint64_t wild[] = {0, 1, 7, UINT32_MAX - 1, UINT32_MAX, BP_JSON_INT_MAX, UINT64_MAX};

START_TEST(test_gate__no_value_stops_the_checks)
{
    for (int name = 0; name < PLAN_NAME_N; name++) {
        struct plan plan;
        plan_of(&plan, (enum plan_name)name);
        for (EACH_MUTATION(mutation)) {
            if (mutation->plan != (enum plan_name)name || mutation->spoil || mutation->text || mutation->is_count)
                continue;
            for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
                struct spoiled copy;
                struct bp_evidence evidence[BP_EVIDENCE_MAX];
                struct mutation wilder = *mutation;
                wilder.value = wild[i];
                spoiled_copy(&copy, &plan, mutation->stage);
                mutate(&wilder, &copy);
                ck_assert_uint_gt(spoiled_check(&copy, evidence), 0);
                spoiled_release(&copy);
            }
        }
        plan_release(&plan);
    }
}
END_TEST

/* Takes all the memory that the process may have, so that the next allocation fails; give it back before asserting. */
struct hoard {
    struct block {
        struct block *next;
    } * blocks;
    struct rlimit before;
};

static void hoard_all(struct hoard *hoard)
{
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &hoard->before);
    limit = hoard->before;
    limit.rlim_cur = 1;
    setrlimit(RLIMIT_AS, &limit);
    hoard->blocks = NULL;
    for (size_t size = (size_t)1 << 24; size >= sizeof(struct block); size /= 2)
        for (struct block *block; (block = malloc(size)); hoard->blocks = block)
            block->next = hoard->blocks;
}

static void hoard_return(struct hoard *hoard)
{
    setrlimit(RLIMIT_AS, &hoard->before);
    for (struct block *block = hoard->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
}

/* Runs the checks of the stage one by one without memory; counts those that said so. */
static size_t starve(struct spoiled *copy, const char **ret_wrong)
{
    size_t n_groups, n_starved = 0;
    const struct bp_check_group *const *groups = groups_of(copy->pass, &n_groups);
    for (size_t g = 0; g < n_groups; g++) {
        for (size_t i = 0; i < groups[g]->n; i++) {
            struct bp_arena empty = {0};
            struct bp_problems findings = {0};
            struct bp_evidence evidence;
            const struct bp_check_group one = {&groups[g]->at[i], 1, groups[g]->each_block}, *const only[] = {&one};
            copy->gate.arena = &empty;
            copy->gate.findings = &findings;
            bp_gate_run(&copy->gate, only, 1, NULL, 0, &evidence);
            if (findings.out_of_memory != (evidence.verdict == BP_VIOLATED))
                *ret_wrong = evidence.check;
            n_starved += findings.out_of_memory;
            bp_problems_release(&findings);
            bp_arena_release(&empty);
        }
    }
    copy->gate.arena = &copy->arena;
    copy->gate.findings = &copy->findings;
    return n_starved;
}

START_TEST(test_gate__a_check_without_memory_does_not_hold)
{
    static const size_t least[BP_STAGE_N] = {
        [BP_STAGE_MODEL] = 2, [BP_STAGE_DISTRIBUTED] = 12, [BP_STAGE_PORTABLE] = 6, [BP_STAGE_CONCRETE] = 5};
    for (int name = 0; name < PLAN_NAME_N; name++) {
        struct plan plan;
        plan_of(&plan, (enum plan_name)name);
        for (int stage = 0; stage < BP_STAGE_N; stage++) {
            struct spoiled copy;
            struct hoard hoard;
            const char *wrong = NULL;
            spoiled_copy(&copy, &plan, (enum bp_stage)stage);
            hoard_all(&hoard);
            size_t n_starved = starve(&copy, &wrong);
            hoard_return(&hoard);
            ck_assert_msg(!wrong, "%s", wrong);
            ck_assert_uint_ge(n_starved, least[stage]);
            spoiled_release(&copy);
        }
        plan_release(&plan);
    }
}
END_TEST

/* What is violated stays violated when there is no memory to say where. */
START_TEST(test_gate__a_violation_without_memory_is_not_lost)
{
    for (int name = 0; name < PLAN_NAME_N; name++) {
        struct plan plan;
        plan_of(&plan, (enum plan_name)name);
        for (EACH_MUTATION(mutation)) {
            if (mutation->plan != (enum plan_name)name)
                continue;
            struct spoiled copy;
            struct hoard hoard;
            const char *wrong = NULL;
            spoiled_copy(&copy, &plan, mutation->stage);
            mutate(mutation, &copy);
            hoard_all(&hoard);
            starve(&copy, &wrong);
            hoard_return(&hoard);
            ck_assert_msg(!wrong, "%s", wrong);
            spoiled_release(&copy);
        }
        plan_release(&plan);
    }
}
END_TEST

Suite *suite_gate_targets(void)
{
    Suite *suite = suite_create("gate_targets");
    TCase *core = tcase_create("plans");
    tcase_set_timeout(core, 60);
    tcase_add_test(core, test_gate__golden_plans_pass_on_every_target);
    tcase_add_test(core, test_gate__transfers_and_host_tasks_pass_on_the_queue_target);
    tcase_add_test(core, test_gate__transfers_and_host_tasks_pass_on_the_slot_target);
    tcase_add_test(core, test_gate__no_value_stops_the_checks);
    if (bp_fault_alloc_works()) { /* with glibc's allocator: others do not survive a process without memory */
        tcase_add_test(core, test_gate__a_check_without_memory_does_not_hold);
        tcase_add_test(core, test_gate__a_violation_without_memory_is_not_lost);
    }
    suite_add_tcase(suite, core);
    return suite;
}
