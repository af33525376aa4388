/* model -> distributed: where everything came from, and that the bindings are those of the request. */
#include <string.h>

#include "common/gate/checks.h"

static const struct bp_distributed_ir *target(const struct bp_gate *gate)
{
    return gate->target.as.distributed;
}

static struct bp_gate_arrays sources(const struct bp_gate *gate)
{
    const struct bp_model_ir *ir = gate->source.as.model;
    return (struct bp_gate_arrays){.n = 2,
                                   .at = {BP_GATE_NAMED(VALUE, ir->values, ir->n_values, NULL),
                                          BP_GATE_NAMED(OPERATION, ir->operations, ir->n_operations, NULL)}};
}

static struct bp_gate_arrays derived(const struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    return (struct bp_gate_arrays){
        .n = 2,
        .at = {BP_GATE_DERIVED(VALUE, struct bp_distributed_value, ir->values, ir->n_values,
                               1U << BP_ENTITY_VALUE | 1U << BP_ENTITY_OPERATION),
               BP_GATE_DERIVED(TASK, struct bp_distributed_task, ir->tasks, ir->n_tasks, 1U << BP_ENTITY_OPERATION)}};
}

static void check_parent(struct bp_gate *gate)
{
    bp_gate_check_parent(gate, &target(gate)->parent);
}

static bool same_workload(const struct bp_workload *a, const struct bp_workload *b)
{
    bool same = a->mode == b->mode && a->dtype == b->dtype && a->sequence_length == b->sequence_length &&
                a->micro_batch_size == b->micro_batch_size && a->global_batch_size == b->global_batch_size &&
                a->gradient_dtype == b->gradient_dtype && a->phase == b->phase && a->batch_size == b->batch_size &&
                a->context_length == b->context_length && a->kv_cache_dtype == b->kv_cache_dtype &&
                a->n_block_kinds == b->n_block_kinds;
    for (uint32_t i = 0; same && i < a->n_block_kinds; i++)
        same = strcmp(a->block_kinds[i], b->block_kinds[i]) == 0;
    return same;
}

static bool same_strategy(const struct bp_strategy *a, const struct bp_strategy *b)
{
    return a->tensor_parallel == b->tensor_parallel && a->pipeline_parallel == b->pipeline_parallel &&
           a->data_parallel == b->data_parallel && a->sequence_parallel == b->sequence_parallel &&
           a->recompute_all_gather == b->recompute_all_gather && a->recompute_activation == b->recompute_activation &&
           a->recompute == b->recompute && a->pipeline_schedule == b->pipeline_schedule &&
           a->virtual_stages == b->virtual_stages && a->zero_stage == b->zero_stage && a->replicas == b->replicas &&
           a->context_parallel == b->context_parallel && a->cp_comm == b->cp_comm &&
           a->expert_parallel == b->expert_parallel && a->expert_tensor_parallel == b->expert_tensor_parallel &&
           a->n_pipeline_layers == b->n_pipeline_layers &&
           memcmp(a->pipeline_layers, b->pipeline_layers, sizeof a->pipeline_layers) == 0;
}

static void check_bindings(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    const struct bp_fingerprints *fingerprints = gate->fingerprints;
    const struct {
        const char *path;
        bool holds;
    } rules[] = {
        {"/bindings/workload", bp_digest_equal(&ir->workload_fingerprint, &fingerprints->workload)},
        {"/bindings/strategy", bp_digest_equal(&ir->strategy_fingerprint, &fingerprints->strategy)},
        {"/bindings", bp_digest_equal(&ir->binding, &fingerprints->distribution)},
        {"/workload", same_workload(&ir->workload, &gate->request->workload)},
        {"/strategy", same_strategy(&ir->strategy, &gate->request->strategy)},
    };
    for (size_t i = 0; i < BP_GATE_COUNT(rules); i++)
        BP_GATE_EXPECT(gate, rules[i].holds, BP_E_cross_stage_violated, rules[i].path,
                       "it is not what the request binds here");
}

static void check_mode(struct bp_gate *gate)
{
    BP_GATE_EXPECT(gate, target(gate)->workload.mode == gate->source.as.model->mode, BP_E_cross_stage_violated,
                   "/workload/mode", "the model's operation is of the other mode");
}

static void check_lineage(struct bp_gate *gate)
{
    const struct bp_gate_arrays to = derived(gate), from = sources(gate);
    bp_gate_check_lineage(gate, &to, &from);
}

static void check_coverage(struct bp_gate *gate)
{
    const struct bp_gate_arrays to = derived(gate), from = sources(gate);
    bp_gate_check_coverage(gate, &to, &from);
}

/* The id of the model value of a role, or NULL. */
static const struct bp_id *model_value(const struct bp_gate *gate, enum bp_model_role role)
{
    const struct bp_model_ir *model = gate->source.as.model;
    for (uint32_t i = 0; i < model->n_values; i++)
        if (model->values[i].role == role)
            return &model->values[i].id;
    return NULL;
}

static bool comes_from(const struct bp_lineage *lineage, const struct bp_id *source)
{
    return source && lineage->n_sources == 1 && bp_id_equal(&lineage->sources[0], source);
}

/* The block's input, output and KV cache are the model's; all else, every task included, comes from the operation. */
static void check_origins(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    const struct bp_model_ir *model = gate->source.as.model;
    const struct bp_id *operation = model->n_operations ? &model->operations[0].id : NULL;
    const struct {
        const char *role;
        const struct bp_id *source;
    } roles[] = {{"input", model_value(gate, BP_MODEL_INPUT)},
                 {"output", model_value(gate, BP_MODEL_OUTPUT)},
                 {"attention.kv_write.output", model_value(gate, BP_MODEL_KV_CACHE)}};
    for (uint32_t i = 0; i < ir->n_values; i++) {
        const struct bp_id *source = operation;
        for (size_t j = 0; j < BP_GATE_COUNT(roles); j++)
            if (strcmp(ir->values[i].role, roles[j].role) == 0)
                source = roles[j].source;
        BP_GATE_EXPECT(gate, comes_from(&ir->values[i].lineage, source), BP_E_cross_stage_violated,
                       bp_gate_path(gate, "/values/%u/lineage/sources", i), "%s does not come from there",
                       ir->values[i].role);
    }
    for (uint32_t i = 0; i < ir->n_tasks; i++)
        BP_GATE_EXPECT(gate, comes_from(&ir->tasks[i].lineage, operation), BP_E_cross_stage_violated,
                       bp_gate_path(gate, "/tasks/%u/lineage/sources", i), "%s does not come from there",
                       ir->tasks[i].name);
}

/* A block's input and output are [dp*B, S, H], with the ranks of a context-parallel group after the batch; in inference
 * [replicas*b, q, H]. Everything is of the workload's element type, but for the cache. */
static void check_boundary(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    const struct bp_symbols *s = gate->symbols;
    const struct bp_request *request = gate->request;
    const struct bp_strategy *strategy = &request->strategy;
    bool training = request->workload.mode == BP_MODE_TRAINING;
    struct bp_calc calc = {0};
    const struct {
        bool there;
        bp_u128 size;
        enum bp_axis axis;
    } dims[] = {
        {true, bp_mul(&calc, training ? strategy->data_parallel : strategy->replicas, s->B),
         training ? BP_AXIS_DATA : BP_AXIS_REPLICA},
        {strategy->context_parallel > 1, strategy->context_parallel, BP_AXIS_CONTEXT},
        {true, s->S, s->sequence_parallel ? BP_AXIS_TENSOR : BP_AXIS_NONE},
        {true, s->H, BP_AXIS_NONE},
    };
    for (BP_GATE_EACH(i, gate->at.values)) {
        const struct bp_distributed_value *value = &ir->values[i];
        bool cache = strcmp(value->role, "attention.kv_write.output") == 0;
        enum bp_dtype dtype = cache ? request->workload.kv_cache_dtype : request->workload.dtype;
        BP_GATE_EXPECT(gate, value->dtype == dtype, BP_E_cross_stage_violated,
                       bp_gate_path(gate, "/values/%u/dtype", i), "it is not of the workload's element type");
        if (strcmp(value->role, "input") != 0 && strcmp(value->role, "output") != 0)
            continue;
        uint32_t place = 0;
        for (size_t j = 0; j < BP_GATE_COUNT(dims); j++) {
            if (!dims[j].there)
                continue;
            BP_GATE_EXPECT(gate,
                           place < value->n_dims && value->shape[place] == dims[j].size &&
                               value->sharding[place] == dims[j].axis,
                           BP_E_cross_stage_violated, bp_gate_path(gate, "/values/%u/shape/%u", i, place),
                           "the workload and strategy give another size or axis here");
            place++;
        }
        BP_GATE_EXPECT(gate, value->n_dims == place, BP_E_cross_stage_violated,
                       bp_gate_path(gate, "/values/%u/shape", i), "%u dimensions", value->n_dims);
    }
}

static const struct bp_check rows[] = {
    {"distribute.parent", BP_CHECK_LINEAGE, "The parent digest is that of the model snapshot.", check_parent},
    {"distribute.bindings", BP_CHECK_CROSS_STAGE,
     "Workload and strategy, and their fingerprints, are those that the request binds.", check_bindings},
    {"distribute.mode", BP_CHECK_CROSS_STAGE, "The workload is of the mode of the model's operation.", check_mode},
    {"distribute.lineage", BP_CHECK_LINEAGE,
     "Every value and task names the rule and entities of the model snapshot, none twice.", check_lineage},
    {"distribute.coverage", BP_CHECK_LINEAGE, "Every operation and value of the model is the source of something.",
     check_coverage},
    {"distribute.origins", BP_CHECK_LINEAGE,
     "Input, output and KV cache come from the model's, everything else from its operation.", check_origins},
};
const struct bp_check_group bp_distribute_checks = BP_GATE_GROUP(rows);

static const struct bp_check block_rows[] = {
    {"distribute.boundary", BP_CHECK_CROSS_STAGE,
     "A block's input and output have the shape, the sharding and the element type of the workload and strategy.",
     check_boundary},
};
const struct bp_check_group bp_distribute_block_checks = BP_GATE_BLOCK_GROUP(block_rows);
