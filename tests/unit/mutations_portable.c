#include "tests/unit/mutations.h"

static struct bp_portable_task *task(struct spoiled *copy, const char *name)
{
    return (struct bp_portable_task *)&copy->portable->tasks[place_of(copy, BP_ENTITY_TASK, name)];
}

static struct bp_portable_buffer *buffer(struct spoiled *copy, const char *role)
{
    return (struct bp_portable_buffer *)&copy->portable->buffers[place_of(copy, BP_ENTITY_BUFFER, role)];
}

static void share_id(struct spoiled *copy)
{
    buffer(copy, "output")->id = buffer(copy, "input")->id;
}

static void share_name(struct spoiled *copy)
{
    task(copy, "mlp.down.forward")->name = task(copy, "mlp.up.forward")->name;
}

static void use_no_buffer(struct spoiled *copy)
{
    task(copy, "mlp.up.forward")->outputs = list_of(copy, 1, (uint32_t[]){99});
}

static void be_used_by_nobody_known(struct spoiled *copy)
{
    buffer(copy, "input")->consumers = list_of(copy, 2, (uint32_t[]){1, 0});
}

static void wait_for_a_later(struct spoiled *copy)
{
    task(copy, "mlp.up.forward")->dependencies =
        list_of(copy, 1, (uint32_t[]){place_of(copy, BP_ENTITY_TASK, "mlp.down.forward")});
}

static void wait_for_the_first(struct spoiled *copy)
{
    task(copy, "mlp.up.forward")->dependencies = list_of(copy, 1, (uint32_t[]){0});
}

static void name_no_producer(struct spoiled *copy)
{
    buffer(copy, "output")->producers.n = 0;
}

static void stand_unused(struct spoiled *copy)
{
    struct bp_portable_task *last = task(copy, "mlp.residual.forward");
    buffer(copy, "output")->producers.n = 0;
    last->outputs = list_of(copy, 1, (uint32_t[]){place_of(copy, BP_ENTITY_BUFFER, "working_activations")});
}

static void change_places(struct spoiled *copy)
{
    struct bp_portable_buffer *a = buffer(copy, "input"), *b = buffer(copy, "output"), kept = *a;
    *a = *b;
    *b = kept;
}

static void lose_the_last_buffer(struct spoiled *copy)
{
    copy->portable->n_buffers--;
}

static void lose_the_last_task(struct spoiled *copy)
{
    copy->portable->n_tasks--;
}

static void come_from_another(struct spoiled *copy)
{
    task(copy, "mlp.up.forward")->lineage = task(copy, "mlp.down.forward")->lineage;
}

static void come_from_nowhere(struct spoiled *copy)
{
    buffer(copy, "input")->lineage.sources = bp_arena_array(&copy->arena, 1, sizeof(struct bp_id));
}

static void come_from_a_value(struct spoiled *copy)
{
    task(copy, "mlp.up.forward")->lineage = buffer(copy, "input")->lineage;
}

static void come_from_one_less(struct spoiled *copy)
{
    buffer(copy, "gradients")->lineage.n_sources--;
}

static void weights_from_the_input(struct spoiled *copy)
{
    buffer(copy, "weights")->lineage = buffer(copy, "input")->lineage;
}

static void come_from_a_reader(struct spoiled *copy)
{
    buffer(copy, "gradients")->lineage = task(copy, "attention.norm.forward")->lineage;
}

/* The first task reads and writes what it should not, and not what it should. */
static void use_all(struct spoiled *copy)
{
    task(copy, "attention.norm.forward")->inputs = list_of(copy, 1, (uint32_t[]){1});
}

static void stand_apart(struct spoiled *copy)
{
    struct bp_portable_task *tasks = (struct bp_portable_task *)copy->portable->tasks;
    tasks[1].block = "sparse";
}

#define P(check) .id = check, .stage = BP_STAGE_PORTABLE
#define OF_TASK(task_name) .part = TASK, .name = task_name
#define OF_BUFFER(role_name) .part = BUFFER, .name = role_name
#define T struct bp_portable_task
#define B struct bp_portable_buffer
static const struct mutation rows[] = {
    {P("portable.ids"), .path = "/tasks/%u/id", OF_TASK("mlp.up.forward"), FLIP(T, id.hash)},
    {P("portable.ids"), .path = "/buffers/%u/id", OF_BUFFER("weights"), FLIP(B, id.hash)},
    {P("portable.unique_ids"), .path = "/buffers/1/id", .spoil = share_id},
    {P("portable.blocks"), .path = "/tasks/%u/block", OF_TASK("attention.norm.forward"), TEXT(T, block, "")},
    {P("portable.blocks"), .spoil = stand_apart},
    {P("portable.names"), .spoil = share_name},
    {P("portable.names"), .path = "/tasks/%u/name", OF_TASK("mlp.up.forward"), TEXT(T, name, "")},
    {P("portable.references"), .spoil = use_no_buffer},
    {P("portable.references"), .path = "/buffers/0/consumers/1", .spoil = be_used_by_nobody_known},
    {P("portable.topology"), .spoil = wait_for_a_later},
    {P("portable.kinds"), .path = "/tasks/%u/kind", OF_TASK("mlp.up.forward"), SET(T, kind, 99)},
    {P("portable.kinds"), .path = "/tasks/%u/engine", OF_TASK("mlp.up.forward"), SET(T, engine, BP_ENGINE_COLLECTIVE)},
    {P("portable.kinds"), .path = "/tasks/%u/phase", OF_TASK("mlp.up.forward"), SET(T, phase, 99)},
    {P("portable.kinds"), .path = "/tasks/%u/ranks", OF_TASK("mlp.up.forward"), SET(T, n_ranks, 0)},
    {P("portable.flow"), .path = "/buffers/1/producers", .spoil = name_no_producer},
    {P("portable.flow"), .path = "/buffers/0/consumers", OF_BUFFER("input"), COUNT(B, consumers.n, 1)},
    {P("portable.flow"), .path = "/buffers/1", .spoil = stand_unused},
    {P("portable.buffer_order"), .path = "/buffers/1/role", .spoil = change_places},
    {P("portable.buffer_order"), .path = "/buffers/1/role", OF_BUFFER("output"), SET(B, role, BP_BUFFER_INPUT)},
    {P("portable.buffer_order"), .path = "/buffers/1/role", OF_BUFFER("output"), SET(B, role, 99)},
    {P("portable.buffer_sizes"), .path = "/buffers/%u/size_bytes", OF_BUFFER("weights"), SET(B, size, 0)},
    {P("portable.buffer_sizes"), .path = "/buffers/%u/size_bytes", OF_BUFFER("weights"),
     SET(B, size, BP_JSON_INT_MAX + 1)},
    {P("portable.alignment"), .path = "/buffers/%u/alignment_bytes", OF_BUFFER("weights"), SET(B, alignment, 8)},
    {P("portable.storage"), .path = "/buffers/%u/storage", OF_BUFFER("weights"), SET(B, storage, BP_STORAGE_TRANSIENT)},
    {P("portable.totals"), .path = "/workload", OF_TASK("mlp.up.forward"), SET(T, work.write, BP_JSON_INT_MAX)},
    {P("portable.resources"), .path = "/tasks/%u/resources/compute", OF_TASK("mlp.up.forward"),
     FLIP(T, resources.compute)},
    {P("portable.resources"), .path = "/tasks/%u/resources/memory", OF_TASK("mlp.up.forward"),
     FLIP(T, resources.memory)},
    {P("portable.resources"), .path = "/tasks/%u/resources/network", OF_TASK("mlp.up.forward"),
     FLIP(T, resources.network)},
    {P("portable.capabilities"), .path = "/tasks/%u/capabilities/0", OF_TASK("mlp.up.forward"),
     TEXT(T, capability.name, "matrix-divide")},
    {P("portable.capabilities"), .path = "/tasks/%u/capabilities/0", OF_TASK("mlp.up.forward"),
     SET(T, capability.n_alternatives, 1)},
    {P("portable.capabilities"), .path = "/tasks/%u/capabilities/0", OF_TASK("mlp.up.forward"),
     TEXT(T, capability.alternatives[1], "abacus")},
    {P("portable.capabilities"), .path = "/tasks/%u/capabilities/0",
     OF_TASK("mlp.output_collective.forward.all_reduce"), TEXT(T, capability.name, "all_gather")},
    {P("portable.capabilities"), .path = "/tasks/%u/capabilities/0",
     OF_TASK("mlp.output_collective.forward.all_reduce"), TEXT(T, capability.name, "broadcast")},
    {P("portable.capabilities"), .plan = DECODE, .path = "/tasks/%u/capabilities/0", OF_TASK("attention.core"),
     TEXT(T, capability.alternatives[2], "sparse-attention")},
    {P("plan.parent"), .path = "/parents/0", FLIP(struct bp_portable_ir, parent)},
    {P("plan.lineage"), .path = "/buffers/0/lineage/sources/0", .spoil = come_from_nowhere},
    {P("plan.lineage"), .spoil = come_from_a_value},
    {P("plan.lineage"), .path = "/buffers/0/lineage/rule", OF_BUFFER("input"), TEXT(B, lineage.rule, "")},
    {P("plan.coverage"), .spoil = come_from_another},
    {P("plan.coverage"), .path = "/tasks", .spoil = lose_the_last_task},
    {P("plan.origins"), .spoil = come_from_one_less},
    {P("plan.origins"), .spoil = come_from_a_reader},
    {P("plan.origins"), .path = "/buffers/2/lineage/sources", .spoil = weights_from_the_input},
    {P("plan.origins"), .path = "/buffers/%u/lineage/sources", OF_BUFFER("weights"), COUNT(B, lineage.n_sources, 1)},
    {P("plan.tasks"), .path = "/tasks/%u/name", OF_TASK("mlp.up.forward"), TEXT(T, name, "mlp.up.forth")},
    {P("plan.blocks"), .path = "/buffers/%u/block", OF_BUFFER("weights"), TEXT(B, block, "sparse")},
    {P("plan.tasks"), .path = "/tasks/%u/block", OF_TASK("mlp.up.forward"), TEXT(T, block, "sparse")},
    {P("plan.tasks"), .path = "/tasks/%u/layer", OF_TASK("mlp.up.forward"), TEXT(T, layer, "mlp")},
    {P("plan.tasks"), .path = "/tasks/%u/phase", OF_TASK("mlp.up.forward"), SET(T, phase, BP_PHASE_RECOMPUTE)},
    {P("plan.tasks"), .path = "/tasks/%u/engine", OF_TASK("mlp.up.forward"), SET(T, engine, BP_ENGINE_VECTOR)},
    {P("plan.tasks"), .path = "/tasks/%u/kind", OF_TASK("mlp.up.forward"), SET(T, kind, BP_TASK_HOST)},
    {P("plan.tasks"), .path = "/tasks/%u/capabilities/0/name", OF_TASK("mlp.output_collective.forward.all_reduce"),
     TEXT(T, capability.name, "all_gather")},
    {P("plan.work"), .path = "/tasks/%u/workload/operations", OF_TASK("mlp.up.forward"), FLIP(T, work.operations)},
    {P("plan.work"), .path = "/tasks/%u/workload/read_bytes", OF_TASK("mlp.up.forward"), FLIP(T, work.read)},
    {P("plan.work"), .path = "/tasks/%u/workload/write_bytes", OF_TASK("mlp.up.forward"), FLIP(T, work.write)},
    {P("plan.work"), .path = "/tasks/%u/workload/message_bytes", OF_TASK("mlp.up.forward"), FLIP(T, work.message)},
    {P("plan.ranks"), .path = "/tasks/%u/ranks", OF_TASK("mlp.up.forward"), SET(T, n_ranks, 3)},
    {P("plan.effects"), .path = "/tasks/%u/effects", OF_TASK("mlp.up.forward"), FLIP(T, effect.has)},
    {P("plan.effects"), .plan = DECODE, .path = "/tasks/%u/effects", OF_TASK("attention.core"),
     SET(T, effect.access, BP_ACCESS_WRITE)},
    {P("plan.dependencies"), .spoil = wait_for_the_first},
    {P("plan.buffer_sizes"), .path = "/buffers/%u/size_bytes", OF_BUFFER("working_activations"), FLIP(B, size)},
    {P("plan.buffer_sizes"), .path = "/buffers/0/size_bytes", OF_BUFFER("input"), FLIP(B, size)},
    {P("plan.buffer_sizes"), .path = "/buffers", .spoil = lose_the_last_buffer},
    {P("plan.buffer_sizes"), .path = "/buffers/0/size_bytes", OF_BUFFER("input"), SET(B, role, BP_BUFFER_KV_CACHE)},
    {P("plan.access"), .path = "/tasks/0/inputs", .spoil = use_all},
    {P("plan.access"), .path = "/tasks/%u/outputs", OF_TASK("mlp.up.weight_gradient"), COUNT(T, outputs.n, 0)},
    {P("plan.access"), .plan = FULL, .path = "/tasks/%u/inputs", OF_TASK("attention.norm.recompute"),
     COUNT(T, inputs.n, 0)},
    {P("plan.access"), .plan = DECODE, .path = "/tasks/%u/inputs", OF_TASK("attention.core"), COUNT(T, inputs.n, 0)},
    {P("plan.capacity"), .plan = DECODE, .path = "/buffers", OF_BUFFER("workspace"), FLIP(B, size)},
    {P("plan.capacity"), .plan = PREFILL, .path = "/buffers", OF_BUFFER("kv_cache"), FLIP(B, size)},
};
const struct mutation_group portable_mutations = MUTATIONS(rows);
