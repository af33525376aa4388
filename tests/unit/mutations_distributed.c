#include "tests/unit/mutations.h"

static struct bp_distributed_task *task(struct spoiled *copy, const char *name)
{
    return (struct bp_distributed_task *)&copy->distributed->tasks[place_of(copy, BP_ENTITY_TASK, name)];
}

static struct bp_distributed_value *value(struct spoiled *copy, const char *role)
{
    return (struct bp_distributed_value *)&copy->distributed->values[place_of(copy, BP_ENTITY_VALUE, role)];
}

static void share_id(struct spoiled *copy)
{
    task(copy, "mlp.up.forward")->id = task(copy, "mlp.down.forward")->id;
}

static void share_name(struct spoiled *copy)
{
    task(copy, "mlp.down.forward")->name = task(copy, "mlp.up.forward")->name;
}

static void read_beyond(struct spoiled *copy)
{
    task(copy, "mlp.up.forward")->inputs = list_of(copy, 2, (uint32_t[]){3, 999});
}

static void wait_for_itself(struct spoiled *copy)
{
    task(copy, "mlp.up.forward")->dependencies =
        list_of(copy, 1, (uint32_t[]){place_of(copy, BP_ENTITY_TASK, "mlp.up.forward")});
}

static void wait_twice(struct spoiled *copy)
{
    task(copy, "mlp.residual.forward")->dependencies = list_of(copy, 2, (uint32_t[]){1, 1});
}

static void wait_for_the_first(struct spoiled *copy)
{
    task(copy, "mlp.down.forward")->dependencies = list_of(copy, 1, (uint32_t[]){0});
}

static void wait_for_one_more(struct spoiled *copy)
{
    uint32_t up = place_of(copy, BP_ENTITY_TASK, "mlp.activation.forward");
    task(copy, "mlp.down.forward")->dependencies = list_of(copy, 2, (uint32_t[]){0, up});
}

/* Anywhere in the forward part instead of the end of it. */
static void repeat_too_soon(struct spoiled *copy)
{
    task(copy, "attention.norm.recompute")->dependencies = list_of(copy, 1, (uint32_t[]){0});
}

static void forget_the_repeat(struct spoiled *copy)
{
    uint32_t gradient = place_of(copy, BP_ENTITY_TASK, "mlp.activation.activation_gradient");
    task(copy, "mlp.up.weight_gradient")->dependencies = list_of(copy, 1, (uint32_t[]){gradient});
}

static void forget_the_gradient(struct spoiled *copy)
{
    uint32_t again = place_of(copy, BP_ENTITY_TASK, "mlp.norm.recompute");
    task(copy, "mlp.up.weight_gradient")->dependencies = list_of(copy, 1, (uint32_t[]){again});
}

static void wait_for_another_gradient(struct spoiled *copy)
{
    uint32_t dropout = place_of(copy, BP_ENTITY_TASK, "mlp.output_dropout.activation_gradient");
    task(copy, "mlp.up.activation_gradient")->dependencies = list_of(copy, 1, (uint32_t[]){dropout});
}

/* Of what scores and expansion both read. */
static void wait_for_half_a_gradient(struct spoiled *copy)
{
    task(copy, "attention.key_value_down.activation_gradient")->dependencies.n = 1;
}

static void wait_for_a_weight_gradient(struct spoiled *copy)
{
    struct bp_distributed_task *task_of = task(copy, "attention.residual_fork.activation_gradient");
    uint32_t norm = place_of(copy, BP_ENTITY_TASK, "attention.norm.activation_gradient");
    task_of->dependencies = list_of(copy, 2, (uint32_t[]){norm, norm + 1});
}

static void read_one_less(struct spoiled *copy)
{
    task(copy, "mlp.up.weight_gradient")->inputs.n--;
}

static void read_another(struct spoiled *copy)
{
    task(copy, "mlp.up.weight_gradient")->inputs = list_of(copy, 1, (uint32_t[]){1});
}

static void keep_the_output_in(struct spoiled *copy)
{
    struct bp_list *outputs = &task(copy, "mlp.residual")->outputs;
    *outputs = list_of(copy, 1, outputs->at + 1);
}

static void sum_one_less(struct spoiled *copy)
{
    task(copy, "attention.qkv_fork.activation_gradient")->dependencies.n--;
}

static void need_the_input(struct spoiled *copy)
{
    task(copy, "attention.softmax.activation_gradient")->inputs = task(copy, "attention.softmax.forward")->inputs;
}

static void need_no_weights(struct spoiled *copy)
{
    task(copy, "mlp.up.activation_gradient")->inputs = list_of(copy, 1, (uint32_t[]){0});
}

static void update_another(struct spoiled *copy)
{
    task(copy, "mlp.up.optimizer")->outputs = task(copy, "mlp.down.optimizer")->outputs;
}

static void write_nothing(struct spoiled *copy)
{
    task(copy, "mlp.up.forward")->outputs.n = 0;
}

static void write_again_elsewhere(struct spoiled *copy)
{
    task(copy, "mlp.up.recompute")->outputs = task(copy, "mlp.down.recompute")->outputs;
}

static void update_too_soon(struct spoiled *copy)
{
    task(copy, "mlp.up.optimizer")->dependencies.n--;
}

static void lose_the_writer(struct spoiled *copy)
{
    task(copy, "attention.kv_write")->layer = place_of_row(copy, "attention.qkv");
}

/* Twice the batch, evenly over the same ranks. */
static void widen(struct spoiled *copy)
{
    value(copy, "mlp.up.output")->shape[0] *= 2;
}

static void split_over_stages(struct spoiled *copy)
{
    value(copy, "mlp.up.output")->sharding[1] = BP_AXIS_PIPELINE;
}

static void split_twice(struct spoiled *copy)
{
    value(copy, "attention.query.output")->sharding[1] = BP_AXIS_TENSOR;
}

static void swap_roles(struct spoiled *copy)
{
    struct bp_distributed_value *a = value(copy, "mlp.up.output"), *b = value(copy, "mlp.up.parameters");
    const char *role = a->role;
    a->role = b->role;
    b->role = role;
}

static void come_from_nowhere(struct spoiled *copy)
{
    struct bp_id *id = bp_arena_array(&copy->arena, 1, sizeof *id);
    task(copy, "mlp.up.forward")->lineage.sources = id;
}

static void come_from_a_value(struct spoiled *copy)
{
    task(copy, "mlp.up.forward")->lineage = value(copy, "input")->lineage;
}

static void come_from_it_twice(struct spoiled *copy)
{
    struct bp_lineage *lineage = &value(copy, "input")->lineage;
    struct bp_id *ids = bp_arena_array(&copy->arena, 2, sizeof *ids);
    ids[0] = ids[1] = lineage->sources[0];
    *lineage = (struct bp_lineage){lineage->rule, ids, 2};
}

/* The model's input becomes the source of nothing. */
static void input_from_the_operation(struct spoiled *copy)
{
    value(copy, "input")->lineage = task(copy, "mlp.up.forward")->lineage;
}

static void output_from_the_input(struct spoiled *copy)
{
    value(copy, "output")->lineage = value(copy, "input")->lineage;
}

static void run_differently(struct spoiled *copy)
{
    copy->again.data[copy->again.len / 2] ^= 1;
}

static void run_shorter(struct spoiled *copy)
{
    copy->again.len--;
}

static void run_once(struct spoiled *copy)
{
    copy->gate.again = NULL;
}

#define D(check) .id = check, .stage = BP_STAGE_DISTRIBUTED
#define OF_TASK(task_name) .part = TASK, .name = task_name
#define OF_VALUE(role_name) .part = VALUE, .name = role_name
#define OF_ROW(row_name) .part = LAYER, .name = row_name
#define T struct bp_distributed_task
#define V struct bp_distributed_value
#define L struct bp_distributed_layer
#define MEMORY(fact)                                                                                                   \
    .part = BLOCK, .at = offsetof(struct bp_distributed_block, memory) + BP_MEMORY_##fact * sizeof(struct bp_bytes)
static const struct mutation rows[] = {
    {D("distributed.ids"), .path = "/tasks/%u/id", OF_TASK("mlp.up.forward"), FLIP(T, id.hash)},
    {D("distributed.ids"), .path = "/values/%u/id", OF_VALUE("mlp.up.output"), FLIP(V, id.hash)},
    {D("distributed.unique_ids"), .spoil = share_id},
    {D("distributed.names"), .spoil = share_name},
    {D("distributed.names"), .path = "/layers/%u/name", OF_ROW("mlp.up"), TEXT(L, name, "")},
    {D("distributed.task_names"), .path = "/tasks/%u/name", OF_TASK("mlp.up.forward"),
     TEXT(T, name, "mlp.up.backward")},
    {D("distributed.task_names"), .path = "/tasks/%u/name", OF_TASK("mlp.output_collective.forward.all_reduce"),
     TEXT(T, name, "mlp.output_collective.forward")},
    {D("distributed.task_names"), .plan = DECODE, .path = "/tasks/%u/name", OF_TASK("mlp.up"),
     TEXT(T, name, "mlp.upper")},
    {D("distributed.references"), .path = "/tasks/%u/layer", OF_TASK("mlp.up.forward"), SET(T, layer, 999)},
    {D("distributed.references"), .spoil = read_beyond},
    {D("distributed.topology"), .spoil = wait_for_itself},
    {D("distributed.topology"), .spoil = wait_twice},
    {D("distributed.topology"), .path = "/tasks/%u/dependencies", OF_TASK("mlp.up.forward"),
     COUNT(T, dependencies.n, 0)},
    {D("distributed.phases"), .path = "/tasks/%u/phase", OF_TASK("mlp.up.forward"), SET(T, phase, BP_PHASE_DECODE)},
    {D("distributed.phases"), .path = "/tasks/%u/phase", OF_TASK("mlp.up.forward"), SET(T, phase, 99)},
    {D("distributed.phases"), .path = "/tasks/%u/phase", OF_TASK("mlp.up.optimizer"), SET(T, phase, BP_PHASE_FORWARD)},
    {D("distributed.phases"), .plan = FULL, .path = "/tasks/%u/phase", OF_TASK("mlp.up.recompute"),
     SET(T, phase, BP_PHASE_RECOMMUNICATION)},
    {D("distributed.phases"), .plan = DECODE, .path = "/tasks/%u/phase", OF_TASK("mlp.up"),
     SET(T, phase, BP_PHASE_PREFILL)},
    {D("distributed.order"), .path = "/tasks/%u/layer", OF_TASK("mlp.up.forward"), SET(T, layer, 1)},
    {D("distributed.order"), .path = "/tasks/%u/layer", OF_TASK("mlp.norm.activation_gradient"), SET(T, layer, 99)},
    {D("distributed.layers"), .path = "/layers/%u/parameters", OF_ROW("mlp.up"), SET(L, parameters, 0)},
    {D("distributed.layers"), .path = "/layers/0", OF_TASK("attention.residual_fork.activation_gradient"),
     SET(T, layer, 1)},
    {D("distributed.engines"), .path = "/tasks/%u/engine", OF_TASK("mlp.up.forward"),
     SET(T, engine, BP_ENGINE_COLLECTIVE)},
    {D("distributed.engines"), .path = "/tasks/%u/body/kind", OF_TASK("mlp.up.forward"), SET(T, kind, BP_TASK_HOST)},
    {D("distributed.engines"), .path = "/tasks/%u/body/collective", OF_TASK("mlp.up.forward"),
     SET(T, collective, BP_COLLECTIVE_ALL_GATHER)},
    {D("distributed.engines"), .path = "/tasks/%u/body/collective", OF_TASK("mlp.output_collective.forward.all_reduce"),
     SET(T, collective, BP_COLLECTIVE_NONE)},
    {D("distributed.collectives"), .path = "/tasks/%u/body/reduction",
     OF_TASK("mlp.output_collective.forward.all_reduce"), FLIP(T, reduces)},
    {D("distributed.collectives"), .plan = SHARDED, .path = "/tasks/%u/body/collective",
     OF_TASK("mlp.output_collective.forward.reduce_scatter"), SET(T, collective, BP_COLLECTIVE_ALL_REDUCE)},
    {D("distributed.traffic"), .path = "/tasks/%u/work/message_bytes",
     OF_TASK("mlp.output_collective.forward.all_reduce"), FLIP(T, work.message)},
    {D("distributed.traffic"), .path = "/tasks/%u/work/message_bytes", OF_TASK("mlp.up.forward"),
     FLIP(T, work.message)},
    {D("distributed.traffic"), .plan = SHARDED, .path = "/tasks/%u/work/read_bytes",
     OF_TASK("mlp.input_collective.forward.all_gather"), FLIP(T, work.read)},
    {D("distributed.traffic"), .plan = SHARDED, .path = "/tasks/%u/work/write_bytes",
     OF_TASK("mlp.output_collective.forward.reduce_scatter"), FLIP(T, work.write)},
    {D("distributed.effects"), .plan = DECODE, .path = "/tasks/%u/effects", OF_TASK("attention.core"),
     FLIP(T, effect.has)},
    {D("distributed.effects"), .plan = DECODE, .path = "/tasks/%u/effects", OF_TASK("attention.kv_write"),
     SET(T, effect.access, BP_ACCESS_READ)},
    {D("distributed.effects"), .plan = DECODE, .path = "/tasks", .spoil = lose_the_writer},
    {D("distributed.effects"), .path = "/tasks/%u/effects", OF_TASK("mlp.up.forward"), FLIP(T, effect.has)},
    {D("distributed.dataflow"), .spoil = wait_for_the_first},
    {D("distributed.dataflow"), .spoil = wait_for_one_more},
    {D("distributed.dataflow"), .plan = FULL, .spoil = repeat_too_soon},
    {D("distributed.dataflow"), .plan = PREFILL, .path = "/tasks", .spoil = keep_the_output_in},
    {D("distributed.backward"), .plan = FULL, .spoil = forget_the_repeat},
    {D("distributed.backward"), .plan = FULL, .spoil = forget_the_gradient},
    {D("distributed.backward"), .spoil = wait_for_a_weight_gradient},
    {D("distributed.backward"), .spoil = wait_for_another_gradient},
    {D("distributed.backward"), .plan = LATENT, .spoil = wait_for_half_a_gradient},
    {D("distributed.updates"), .spoil = update_too_soon},
    {D("distributed.forward_traffic"), .path = "/tasks/%u/work/read_bytes", OF_TASK("mlp.up.forward"),
     FLIP(T, work.read)},
    {D("distributed.forward_traffic"), .path = "/tasks/%u/work/write_bytes", OF_TASK("mlp.output_dropout.forward"),
     FLIP(T, work.write)},
    {D("distributed.forward_traffic"), .path = "/tasks/%u/work/write_bytes", OF_TASK("mlp.up.forward"),
     FLIP(T, work.write)},
    {D("distributed.forward_traffic"), .plan = DECODE, .path = "/tasks/%u/work/read_bytes", OF_TASK("attention.rope"),
     SET(T, work.read, BP_JSON_INT_MAX)},
    {D("distributed.forward_traffic"), .plan = DECODE, .path = "/tasks/%u/work/write_bytes",
     OF_TASK("attention.kv_write"), SET(T, work.write, BP_JSON_INT_MAX)},
    {D("distributed.forward_traffic"), .plan = DECODE, .path = "/values/%u/shape",
     OF_VALUE("attention.kv_write.output"), SET(V, shape[1], 49)},
    {D("distributed.forward_traffic"), .plan = DECODE, .path = "/values/%u/shape", OF_VALUE("attention.rope.output"),
     SET(V, shape[1], 2)},
    {D("distributed.forward_traffic"), .plan = SHARDED, .path = "/values/%u/shape",
     OF_VALUE("mlp.output_collective.output"), SET(V, shape[0], 8)},
    {D("distributed.forward_traffic"), .plan = LATENT, .path = "/values/%u/shape", OF_VALUE("moe.dispatch.output"),
     SET(V, shape[2], 65)},
    {D("distributed.forward_traffic"), .spoil = write_nothing},
    {D("distributed.repeats"), .plan = FULL, .path = "/tasks/%u/work", OF_TASK("mlp.up.recompute"), FLIP(T, work.read)},
    {D("distributed.repeats"), .plan = FULL, .path = "/tasks/%u/work", OF_TASK("mlp.up.recompute"),
     SET(T, engine, BP_ENGINE_VECTOR)},
    {D("distributed.repeats"), .plan = FULL, .spoil = write_again_elsewhere},
    {D("distributed.gradient_work"), .path = "/tasks/%u/work/read_bytes",
     OF_TASK("attention.scores.activation_gradient"), FLIP(T, work.read)},
    {D("distributed.gradient_work"), .path = "/tasks/%u/work/read_bytes",
     OF_TASK("mlp.output_dropout.activation_gradient"), FLIP(T, work.read)},
    {D("distributed.gradient_work"), .path = "/tasks/%u/work/read_bytes", OF_TASK("mlp.up.activation_gradient"),
     SET(T, work.read, 0)},
    {D("distributed.gradient_work"), .path = "/tasks/%u/work/write_bytes", OF_TASK("mlp.norm.activation_gradient"),
     FLIP(T, work.write)},
    {D("distributed.gradient_work"), .path = "/tasks/%u/work/operations",
     OF_TASK("attention.context.activation_gradient"), FLIP(T, work.operations)},
    {D("distributed.gradient_work"), .path = "/tasks/%u/work/read_bytes",
     OF_TASK("mlp.residual_fork.activation_gradient"), FLIP(T, work.operations)},
    {D("distributed.gradient_work"), .path = "/tasks/%u/work/write_bytes",
     OF_TASK("attention.qkv_fork.activation_gradient"), FLIP(T, work.write)},
    {D("distributed.gradient_work"), .path = "/tasks/%u/work/read_bytes", OF_TASK("mlp.norm.weight_gradient"),
     FLIP(T, work.read)},
    {D("distributed.gradient_work"), .path = "/tasks/%u/work/write_bytes", OF_TASK("mlp.up.weight_gradient"),
     FLIP(T, work.write)},
    {D("distributed.gradient_work"), .path = "/tasks/%u/work/operations", OF_TASK("mlp.up.weight_gradient"),
     FLIP(T, work.operations)},
    {D("distributed.gradient_work"), .spoil = read_one_less},
    {D("distributed.gradient_work"), .spoil = sum_one_less},
    {D("distributed.gradient_work"), .spoil = need_the_input},
    {D("distributed.gradient_work"), .spoil = need_no_weights},
    {D("distributed.gradient_work"), .path = "/tasks/%u/inputs", OF_TASK("attention.scores.activation_gradient"),
     COUNT(T, inputs.n, 1)},
    {D("distributed.gradient_work"), .path = "/tasks/%u/work/read_bytes", OF_TASK("mlp.norm.activation_gradient"),
     FLIP(T, work.read)},
    {D("distributed.gradient_work"), .spoil = read_another},
    {D("distributed.optimizer_work"), .path = "/tasks/%u/work/operations", OF_TASK("mlp.up.optimizer"),
     FLIP(T, work.operations)},
    {D("distributed.optimizer_work"), .plan = SHARDED, .path = "/tasks/%u/work/read_bytes", OF_TASK("mlp.up.optimizer"),
     FLIP(T, work.read)},
    {D("distributed.optimizer_work"), .plan = FULL, .path = "/tasks/%u/work/write_bytes", OF_TASK("mlp.up.optimizer"),
     FLIP(T, work.write)},
    {D("distributed.optimizer_work"), .spoil = update_another},
    {D("distributed.activations"), .path = "/layers/%u/activation_bytes", OF_ROW("mlp.up"), FLIP(L, activation)},
    {D("distributed.activations"), .path = "/layers/%u/output_bytes", OF_ROW("mlp.up"), FLIP(L, output)},
    {D("distributed.activations"), .path = "/layers/%u/activation_bytes", OF_ROW("mlp.output_dropout"),
     FLIP(L, activation)},
    {D("distributed.activations"), .path = "/layers/%u/activation_bytes", OF_ROW("mlp.residual"), FLIP(L, activation)},
    {D("distributed.activations"), .path = "/layers/%u/activation_bytes", OF_ROW("mlp.output_collective"),
     FLIP(L, activation)},
    {D("distributed.activations"), .plan = SHARDED, .path = "/layers/%u/activation_bytes",
     OF_ROW("mlp.output_collective"), SET(L, activation, 0)},
    {D("distributed.activations"), .path = "/layers/%u/output_bytes", OF_ROW("mlp.output_collective"), FLIP(L, output)},
    {D("distributed.activations"), .spoil = widen},
    {D("distributed.activations"), .path = "/layers/%u/output_bytes", OF_ROW("mlp.residual_fork"), FLIP(L, output)},
    {D("distributed.activations"), .plan = DECODE, .path = "/layers/%u", OF_ROW("mlp.up"), FLIP(L, keeps_output)},
    {D("distributed.mesh"), .path = "/mesh/axes", SET(struct bp_distributed_ir, n_axes, 2)},
    {D("distributed.mesh"), .path = "/mesh/axes/2/name", SET(struct bp_distributed_ir, axes[2].axis, BP_AXIS_REPLICA)},
    {D("distributed.mesh"), .path = "/mesh/axes/0/size", SET(struct bp_distributed_ir, axes[0].size, 4)},
    {D("distributed.mesh"), .plan = DECODE, .path = "/mesh/axes/2/size",
     SET(struct bp_distributed_ir, axes[2].size, 1)},
    {D("distributed.values"), .path = "/values/1/role", OF_VALUE("output"), TEXT(V, role, "result")},
    {D("distributed.values"), .path = "/values/%u/role", OF_VALUE("mlp.up.output"),
     TEXT(V, role, "mlp.sideways.output")},
    {D("distributed.values"), .path = "/values/%u/role", OF_VALUE("mlp.up.output"), TEXT(V, role, ".output")},
    {D("distributed.values"), .spoil = swap_roles},
    {D("distributed.values"), .path = "/values", COUNT(struct bp_distributed_ir, n_values, 1)},
    {D("distributed.sharding"), .path = "/values/%u/sharding/0", OF_VALUE("mlp.up.output"),
     SET(V, sharding[0], BP_AXIS_REPLICA)},
    {D("distributed.sharding"), .path = "/values/%u/shape/2", OF_VALUE("mlp.up.output"), SET(V, shape[2], 255)},
    {D("distributed.sharding"), .path = "/values/%u/shape/1", OF_VALUE("mlp.up.output"), SET(V, shape[1], 0)},
    {D("distributed.sharding"), .path = "/values/%u/shape", OF_VALUE("mlp.up.output"), SET(V, n_dims, 6)},
    {D("distributed.sharding"), .spoil = split_twice},
    {D("distributed.sharding"), .spoil = split_over_stages},
    {D("distributed.parameters"), .path = "/values/%u/shape", OF_VALUE("mlp.up.parameters"), FLIP(V, shape[0])},
    {D("distributed.parameters"), .path = "/values/%u/shape", OF_VALUE("mlp.up.parameters"), SET(V, shape[1], 257)},
    {D("distributed.parameters"), .path = "/layers/0/parameters", OF_ROW("attention.residual_fork"),
     SET(L, parameters, 3)},
    {D("distributed.blocks"), .path = "/blocks/0/name", .part = BLOCK,
     TEXT(struct bp_distributed_block, name, "sparse")},
    {D("distributed.blocks"), .path = "/blocks/0/layers", .part = BLOCK, FLIP(struct bp_distributed_block, layers)},
    {D("distributed.blocks"), .path = "/blocks", COUNT(struct bp_distributed_ir, n_blocks, 0)},
    {D("distributed.blocks"), .path = "/tasks/%u/block", OF_TASK("mlp.up.forward"), SET(T, block, 1)},
    {D("distributed.blocks"), .path = "/values/%u/block", OF_VALUE("mlp.up.output"), SET(V, block, 1)},
    {D("distributed.blocks"), .path = "/layers/%u/block", OF_ROW("mlp.up"), SET(L, block, 1)},
    {D("distributed.stamps"), .path = "/assumptions", FLIP(struct bp_distributed_ir, balanced_routing)},
    {D("distributed.stamps"), .path = "/conventions/latent_attention",
     SET(struct bp_distributed_ir, latent_attention, BP_LATENT_EXPANDED)},
    {D("distributed.memory_totals"), .path = "/memory/weights",
     .at = offsetof(struct bp_distributed_ir, memory) + BP_MEMORY_WEIGHTS * sizeof(struct bp_bytes)},
    {D("distributed.memory_mode"), .path = "/blocks/0/memory/kv_cache", MEMORY(KV_CACHE)},
    {D("distributed.memory_mode"), .plan = DECODE, .path = "/blocks/0/memory/gradients", MEMORY(GRADIENTS)},
    {D("distributed.memory_states"), .path = "/blocks/0/memory/weights", MEMORY(WEIGHTS)},
    {D("distributed.memory_states"), .plan = SHARDED, .path = "/blocks/0/memory/optimizer", MEMORY(OPTIMIZER)},
    {D("distributed.memory_states"), .plan = FULL, .path = "/blocks/0/memory/gradients", MEMORY(GRADIENTS)},
    {D("distributed.memory_states"), .plan = DECODE, .path = "/blocks/0/memory/weights", MEMORY(WEIGHTS)},
    {D("distributed.memory_stored"), .path = "/blocks/0/memory/stored_activations", MEMORY(STORED_ACTIVATIONS)},
    {D("distributed.memory_stored"), .path = "/blocks/0/memory/stored_activations", OF_ROW("mlp.up"),
     FLIP(L, keeps_activation)},
    {D("distributed.memory_stored"), .plan = FULL, .path = "/blocks/0/memory/activation_checkpoint",
     MEMORY(ACTIVATION_CHECKPOINT)},
    {D("distributed.memory_working"), .path = "/blocks/0/memory/working_activations", OF_ROW("mlp.up"),
     FLIP(L, owns_activation)},
    {D("distributed.memory_bound"), .path = "/blocks/0/memory/stored_activations", MEMORY(STORED_ACTIVATIONS),
     .size = 8, .value = BP_JSON_INT_MAX},
    {D("distributed.memory_inference"), .plan = DECODE, .path = "/blocks/0/memory/kv_cache", MEMORY(KV_CACHE)},
    {D("distributed.memory_inference"), .plan = PREFILL, .path = "/blocks/0/memory/workspace", MEMORY(WORKSPACE)},
    {D("distributed.memory_inference"), .plan = PREFILL, .path = "/blocks/0/memory/boundary", MEMORY(BOUNDARY)},
    {D("distribute.parent"), .path = "/parents/0", FLIP(struct bp_distributed_ir, parent)},
    {D("distribute.bindings"), .path = "/bindings/workload", FLIP(struct bp_distributed_ir, workload_fingerprint)},
    {D("distribute.bindings"), .path = "/bindings/strategy", FLIP(struct bp_distributed_ir, strategy_fingerprint)},
    {D("distribute.bindings"), .path = "/bindings", FLIP(struct bp_distributed_ir, binding)},
    {D("distribute.bindings"), .path = "/workload", FLIP(struct bp_distributed_ir, workload.micro_batch_size)},
    {D("distribute.bindings"), .path = "/strategy", FLIP(struct bp_distributed_ir, strategy.zero_stage)},
    {D("distribute.mode"), .path = "/workload/mode", FLIP(struct bp_distributed_ir, workload.mode)},
    {D("distribute.lineage"), .path = "/tasks/%u/lineage/rule", OF_TASK("mlp.up.forward"),
     TEXT(T, lineage.rule, "made up")},
    {D("distribute.lineage"), .path = "/tasks/%u/lineage/sources", OF_TASK("mlp.up.forward"),
     COUNT(T, lineage.n_sources, 0)},
    {D("distribute.lineage"), .spoil = come_from_nowhere},
    {D("distribute.lineage"), .spoil = come_from_a_value},
    {D("distribute.lineage"), .path = "/values/0/lineage/sources/1", .spoil = come_from_it_twice},
    {D("distribute.coverage"), .path = "", .spoil = input_from_the_operation},
    {D("distribute.origins"), .path = "/values/1/lineage/sources", .spoil = output_from_the_input},
    {D("distribute.origins"), .spoil = come_from_a_value},
    {D("distribute.boundary"), .path = "/values/0/shape/0", OF_VALUE("input"), SET(V, shape[0], 2)},
    {D("distribute.boundary"), .path = "/values/1/shape", OF_VALUE("output"), SET(V, n_dims, 2)},
    {D("distribute.boundary"), .plan = SHARDED, .path = "/values/1/shape/1", OF_VALUE("output"),
     SET(V, sharding[1], BP_AXIS_NONE)},
    {D("distribute.boundary"), .path = "/values/%u/dtype", OF_VALUE("mlp.up.output"), FLIP(V, dtype)},
    {D("replay.bytes"), .spoil = run_differently},
    {D("replay.bytes"), .spoil = run_shorter},
    {D("replay.bytes"), .path = "", .spoil = run_once},
};
const struct mutation_group distributed_mutations = MUTATIONS(rows);
