/* Structure of the distributed stage: what a block on a logical mesh must be, whichever rows it was made of. The
 * groups are: identity, words and blocks; collectives and effects; the order of tasks and what they wait for
 * (distributed_order.c); work (distributed_work.c, and distributed_rows.c for what the values do not tell); values and
 * sharding (distributed_values.c); memory (distributed_memory.c). */
#include "common/gate/distributed.h"

#include <string.h>

static const struct bp_distributed_ir *target(const struct bp_gate *gate)
{
    return gate->target.as.distributed;
}

static bool is_training(const struct bp_distributed_ir *ir)
{
    return ir->workload.mode == BP_MODE_TRAINING;
}

static const char *value_name(const struct bp_gate *gate, uint32_t i)
{
    return target(gate)->values[i].role;
}

static const char *task_name(const struct bp_gate *gate, uint32_t i)
{
    return target(gate)->tasks[i].name;
}

static const char *layer_name(const struct bp_gate *gate, uint32_t i)
{
    return target(gate)->layers[i].name;
}

static struct bp_gate_arrays entities(const struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    return (struct bp_gate_arrays){.n = 2,
                                   .at = {BP_GATE_NAMED(VALUE, ir->values, ir->n_values, value_name),
                                          BP_GATE_NAMED(TASK, ir->tasks, ir->n_tasks, task_name)}};
}

static void check_ids(struct bp_gate *gate)
{
    const struct bp_gate_arrays arrays = entities(gate);
    bp_gate_check_ids(gate, &gate->fingerprints->distribution, &arrays);
}

static void check_unique_ids(struct bp_gate *gate)
{
    const struct bp_gate_arrays arrays = entities(gate);
    bp_gate_check_unique_ids(gate, &arrays);
}

static void check_names(struct bp_gate *gate)
{
    bp_gate_check_names(gate, "values", "role", gate->at.values, value_name);
    bp_gate_check_names(gate, "layers", "name", gate->at.layers, layer_name);
    bp_gate_check_names(gate, "tasks", "name", gate->at.tasks, task_name);
}

/* Takes `part` off the front of `*text`. */
static bool take(const char **text, const char *part)
{
    size_t n = strlen(part);
    if (strncmp(*text, part, n) != 0)
        return false;
    *text += n;
    return true;
}

static bool name_fits(const struct bp_distributed_ir *ir, const struct bp_distributed_task *task)
{
    const char *text = task->name;
    if (task->layer >= ir->n_layers || !take(&text, ir->layers[task->layer].name))
        return false;
    if (is_training(ir)) {
        if (task->phase >= BP_PHASE_N || !take(&text, ".") || !take(&text, bp_phase_names[task->phase]))
            return false;
        bool collective = task->collective > BP_COLLECTIVE_NONE && task->collective < BP_COLLECTIVE_N;
        if (collective && (!take(&text, ".") || !take(&text, bp_collective_names[task->collective])))
            return false;
    }
    return *text == '\0';
}

static void check_task_names(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    for (BP_GATE_EACH(i, gate->at.tasks))
        BP_GATE_EXPECT(gate, name_fits(ir, &ir->tasks[i]), BP_E_structure_violated,
                       bp_gate_path(gate, "/tasks/%u/name", i), "%s is not named after its row, phase and collective",
                       ir->tasks[i].name);
}

static void check_references(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    for (BP_GATE_EACH(i, gate->at.tasks)) {
        const struct bp_distributed_task *task = &ir->tasks[i];
        BP_GATE_EXPECT(gate, task->layer >= gate->at.layers.first && task->layer < gate->at.layers.end,
                       BP_E_structure_violated, bp_gate_path(gate, "/tasks/%u/layer", i), "the block has no row %u",
                       task->layer);
        bp_gate_check_list(gate, &task->inputs, gate->at.values, "tasks", i, "inputs");
        bp_gate_check_list(gate, &task->outputs, gate->at.values, "tasks", i, "outputs");
    }
}

/* Every row does something; in training those with parameters, and no others, have them updated. */
static void check_layers(struct bp_gate *gate)
{
    struct counts {
        uint32_t tasks, weight_gradients, optimizers;
    };
    const struct bp_distributed_ir *ir = target(gate);
    struct counts *counts = bp_arena_array(gate->arena, ir->n_layers, sizeof *counts);
    if (!counts) {
        bp_gate_no_memory(gate);
        return;
    }
    for (BP_GATE_EACH(i, gate->at.tasks)) {
        const struct bp_distributed_task *task = &ir->tasks[i];
        if (task->layer >= ir->n_layers)
            continue;
        counts[task->layer].tasks++;
        counts[task->layer].weight_gradients += task->phase == BP_PHASE_WEIGHT_GRADIENT;
        counts[task->layer].optimizers += task->phase == BP_PHASE_OPTIMIZER;
    }
    for (BP_GATE_EACH(i, gate->at.layers)) {
        uint32_t updates = is_training(ir) && ir->layers[i].parameters > 0;
        BP_GATE_EXPECT(gate, counts[i].tasks > 0, BP_E_structure_violated, bp_gate_path(gate, "/layers/%u", i),
                       "the row has no task");
        BP_GATE_EXPECT(gate, counts[i].weight_gradients == updates && counts[i].optimizers == updates,
                       BP_E_structure_violated, bp_gate_path(gate, "/layers/%u/parameters", i),
                       "%u weight gradients and %u optimizer tasks, not %u of each", counts[i].weight_gradients,
                       counts[i].optimizers, updates);
    }
}

static void check_engines(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    for (BP_GATE_EACH(i, gate->at.tasks)) {
        const struct bp_distributed_task *task = &ir->tasks[i];
        bool collective = task->kind == BP_TASK_COLLECTIVE;
        BP_GATE_EXPECT(gate, collective || task->kind == BP_TASK_COMPUTE, BP_E_structure_violated,
                       bp_gate_path(gate, "/tasks/%u/body/kind", i), "it is neither computation nor collective");
        BP_GATE_EXPECT(gate, task->engine < BP_ENGINE_N && (task->engine == BP_ENGINE_COLLECTIVE) == collective,
                       BP_E_structure_violated, bp_gate_path(gate, "/tasks/%u/engine", i),
                       "the engine is not that of %s", collective ? "a collective" : "a computation");
        bool named = task->collective > BP_COLLECTIVE_NONE && task->collective < BP_COLLECTIVE_N;
        BP_GATE_EXPECT(gate, collective ? named : task->collective == BP_COLLECTIVE_NONE, BP_E_structure_violated,
                       bp_gate_path(gate, "/tasks/%u/body/collective", i), "%s",
                       collective ? "the collective has no kind" : "a computation has a collective's kind");
    }
}

/* Without sequence parallelism the tensor group all-reduces, with it it gathers and scatters; so do an expert's tensor
 * group and, by ring or all-gather, the context-parallel group. Experts exchange. What a rank of a split batch gave to
 * the experts is gathered again in inference. */
static bool collective_fits(const struct bp_gate *gate, const struct bp_distributed_task *task)
{
    const struct bp_distributed_ir *ir = target(gate);
    bool all_reduce = task->collective == BP_COLLECTIVE_ALL_REDUCE,
         exchange = task->collective == BP_COLLECTIVE_ALL_TO_ALL;
    switch (task->axis) {
    case BP_AXIS_TENSOR:
        if (!is_training(ir) && task->layer < ir->n_layers &&
            strcmp(ir->layers[task->layer].name, "moe.output_collective") == 0)
            return task->collective == BP_COLLECTIVE_ALL_GATHER;
        return !exchange && all_reduce == !gate->symbols->sequence_parallel;
    case BP_AXIS_EXPERT:
        return exchange;
    case BP_AXIS_EXPERT_TENSOR:
        return !exchange && !all_reduce;
    case BP_AXIS_CONTEXT:
        return !all_reduce && exchange == (ir->strategy.cp_comm == BP_CP_A2A);
    default:
        return false;
    }
}

static void check_collectives(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    for (BP_GATE_EACH(i, gate->at.tasks)) {
        const struct bp_distributed_task *task = &ir->tasks[i];
        bool reduces = task->collective == BP_COLLECTIVE_ALL_REDUCE || task->collective == BP_COLLECTIVE_REDUCE_SCATTER;
        BP_GATE_EXPECT(gate, task->reduces == reduces, BP_E_structure_violated,
                       bp_gate_path(gate, "/tasks/%u/body/reduction", i), "it %s", reduces ? "sums" : "does not sum");
        if (task->kind != BP_TASK_COLLECTIVE) {
            BP_GATE_EXPECT(gate, task->axis == BP_AXIS_NONE, BP_E_structure_violated,
                           bp_gate_path(gate, "/tasks/%u/body/axis", i), "a computation has no group");
            continue;
        }
        BP_GATE_EXPECT(gate, collective_fits(gate, task), BP_E_structure_violated,
                       bp_gate_path(gate, "/tasks/%u/body/collective", i), "not a collective of this strategy");
        BP_GATE_EXPECT(gate, bp_distributed_axis_size(ir, task->axis) > 1, BP_E_structure_violated,
                       bp_gate_path(gate, "/tasks/%u/body/axis", i), "a group of one has no collectives");
    }
}

/* The payload of the row; what is read and written of it on one rank. */
static void check_traffic(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    for (BP_GATE_EACH(i, gate->at.tasks)) {
        const struct bp_distributed_task *task = &ir->tasks[i];
        if (task->kind != BP_TASK_COLLECTIVE) {
            BP_GATE_EXPECT(gate, task->work.message.n == 0, BP_E_structure_violated,
                           bp_gate_path(gate, "/tasks/%u/work/message_bytes", i), "only a collective sends");
            continue;
        }
        struct bp_calc calc = {0};
        const char *row = task->layer < ir->n_layers ? ir->layers[task->layer].name : "";
        bp_u128 payload = bp_mul(&calc, bp_gate_payload(gate, row, &calc), gate->symbols->e);
        bp_u128 ranks = bp_distributed_axis_size(ir, task->axis);
        bool gathers = task->collective == BP_COLLECTIVE_ALL_GATHER;
        bool scatters = task->collective == BP_COLLECTIVE_REDUCE_SCATTER;
        bp_u128 share = ranks && (gathers || scatters) ? bp_div(&calc, payload, ranks) : 0;
        const struct {
            const char *key;
            bp_u128 expected;
            uint64_t actual;
        } sides[] = {{"message_bytes", payload, task->work.message.n},
                     {"read_bytes", gathers ? share : payload, task->work.read.n},
                     {"write_bytes", scatters ? share : payload, task->work.write.n}};
        for (size_t j = 0; j < BP_GATE_COUNT(sides); j++)
            BP_GATE_EXPECT(gate, bp_calc_ok(&calc) && sides[j].actual == sides[j].expected, BP_E_structure_violated,
                           bp_gate_path(gate, "/tasks/%u/work/%s", i, sides[j].key),
                           "%llu bytes are not what the payload gives", (unsigned long long)sides[j].actual);
    }
}

/* The KV cache is state of inference alone: kv_write writes it; core reads it, and in prefill what expands latents. */
static bool reads_cache(const struct bp_distributed_ir *ir, const char *row)
{
    return !is_training(ir) && (strcmp(row, "attention.core") == 0 || strcmp(row, "attention.key_value_up") == 0);
}

static void check_effects(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    uint32_t n_writers = 0, n_readers = 0;
    for (BP_GATE_EACH(i, gate->at.tasks)) {
        const struct bp_distributed_task *task = &ir->tasks[i];
        const char *row = task->layer < ir->n_layers ? ir->layers[task->layer].name : "";
        bool writes = !is_training(ir) && strcmp(row, "attention.kv_write") == 0, reads = reads_cache(ir, row);
        n_writers += writes;
        n_readers += reads;
        bool fits = task->effect.has == (writes || reads) &&
                    (!task->effect.has || task->effect.access == (writes ? BP_ACCESS_WRITE : BP_ACCESS_READ));
        BP_GATE_EXPECT(gate, fits, BP_E_structure_violated, bp_gate_path(gate, "/tasks/%u/effects", i), "%s",
                       writes  ? "it writes the KV cache"
                       : reads ? "it reads the KV cache"
                               : "it has no effect");
    }
    uint32_t writers = !is_training(ir),
             readers = writers * (ir->latent_attention == BP_LATENT_EXPANDED &&
                                          gate->symbols->kind->attention == BP_ATTENTION_LATENT
                                      ? 2
                                      : 1);
    BP_GATE_EXPECT(gate, n_writers == writers && n_readers == readers, BP_E_structure_violated, "/tasks",
                   "%u tasks write the KV cache and %u read it, not %u and %u", n_writers, n_readers, writers, readers);
}

/* Whether places of an array stand block by block, in order: `block_of` of each is no less than that of the one before.
 */
static void expect_together(struct bp_gate *gate, const char *array, uint32_t n,
                            uint32_t (*block_of)(const struct bp_distributed_ir *, uint32_t))
{
    const struct bp_distributed_ir *ir = target(gate);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t block = block_of(ir, i), before = i > 0 ? block_of(ir, i - 1) : 0;
        BP_GATE_EXPECT(gate, block < ir->n_blocks && block >= before, BP_E_structure_violated,
                       bp_gate_path(gate, "/%s/%u/block", array, i), "it does not stand with its block");
    }
}

static uint32_t block_of_value(const struct bp_distributed_ir *ir, uint32_t i)
{
    return ir->values[i].block;
}

static uint32_t block_of_layer(const struct bp_distributed_ir *ir, uint32_t i)
{
    return ir->layers[i].block;
}

static uint32_t block_of_task(const struct bp_distributed_ir *ir, uint32_t i)
{
    return ir->tasks[i].block;
}

static void check_blocks(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    BP_GATE_EXPECT(gate, ir->n_blocks == gate->n_blocks, BP_E_structure_violated, "/blocks", "%u blocks, not %u",
                   ir->n_blocks, gate->n_blocks);
    for (uint32_t i = 0; i < ir->n_blocks && i < gate->n_blocks; i++) {
        const struct bp_kind *kind = gate->blocks[i].kind;
        BP_GATE_EXPECT(gate, strcmp(ir->blocks[i].name, kind->name) == 0, BP_E_structure_violated,
                       bp_gate_path(gate, "/blocks/%u/name", i), "the block here is %s", kind->name);
        BP_GATE_EXPECT(gate, ir->blocks[i].layers == kind->layers, BP_E_structure_violated,
                       bp_gate_path(gate, "/blocks/%u/layers", i), "the model has %llu layers of it",
                       (unsigned long long)kind->layers);
    }
    expect_together(gate, "values", ir->n_values, block_of_value);
    expect_together(gate, "layers", ir->n_layers, block_of_layer);
    expect_together(gate, "tasks", ir->n_tasks, block_of_task);
}

static void check_stamps(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    bool experts = false, latent = false;
    for (uint32_t i = 0; i < gate->n_blocks; i++) {
        experts |= gate->blocks[i].kind->num_experts > 0;
        latent |= gate->blocks[i].kind->attention == BP_ATTENTION_LATENT;
    }
    bool decode = !is_training(ir) && ir->workload.phase == BP_DECODE;
    enum bp_latent_form form = !latent ? BP_LATENT_NONE : decode ? BP_LATENT_ABSORBED : BP_LATENT_EXPANDED;
    BP_GATE_EXPECT(gate, ir->balanced_routing == experts, BP_E_structure_violated, "/assumptions",
                   experts ? "experts are counted under balanced routing" : "no block has experts");
    BP_GATE_EXPECT(gate, ir->latent_attention == form, BP_E_structure_violated, "/conventions/latent_attention",
                   "it is not the form that is counted");
}

#define S BP_CHECK_STRUCTURE
static const struct bp_check snapshot_rows[] = {
    {"distributed.ids", S, "Every id is made of the model snapshot, the strategy and workload, the place and the name.",
     check_ids},
    {"distributed.unique_ids", S, "No two entities share an id.", check_unique_ids},
    {"distributed.blocks", S,
     "The blocks are those that are planned, with the layers the model has of each; their entities stand together, in "
     "the order of the blocks.",
     check_blocks},
    {"distributed.mesh", S, "The mesh has the axes of the mode, in order, with the sizes of the strategy.",
     bp_gate_check_mesh},
    {"distributed.sharding", S, "Every dimension divides over its axis, and no axis splits two.",
     bp_gate_check_sharding},
    {"distributed.stamps", S,
     "What is assumed of routing, and how latent attention is counted, is stamped where a block has them, and only "
     "there.",
     check_stamps},
    {"distributed.memory_totals", S, "What stands for the snapshot is the sum over its blocks.",
     bp_gate_check_memory_totals},
};
const struct bp_check_group bp_distributed_checks = BP_GATE_GROUP(snapshot_rows);

static const struct bp_check program_rows[] = {
    {"distributed.names", S, "Tasks, rows and roles have names, and no two of a block the same.", check_names},
    {"distributed.task_names", S, "A task is named after its row, its phase and its collective.", check_task_names},
    {"distributed.references", S, "Every row and value that a task names exists; its lists ascend without repeats.",
     check_references},
    {"distributed.topology", S,
     "Tasks wait for earlier tasks of their block only, listed in order and once; only what reads the block's input "
     "may "
     "wait for nothing.",
     bp_gate_check_topology},
    {"distributed.phases", S, "Phases are those of the mode, in emission order, and suit the task.",
     bp_gate_check_phases},
    {"distributed.order", S, "Rows come in table order in each phase, backward in reverse.", bp_gate_check_order},
    {"distributed.layers", S, "Every row has a task; exactly the rows with parameters are updated.", check_layers},
    {"distributed.engines", S, "The collective engine runs the collectives and nothing else.", check_engines},
    {"distributed.collectives", S,
     "A group of one has no collectives; their kinds are those of the strategy, and they sum when their kind does.",
     check_collectives},
    {"distributed.traffic", S,
     "A collective carries its row's payload and reads and writes its share; nothing else sends.", check_traffic},
    {"distributed.effects", S,
     "In inference one task writes the KV cache, and core reads it, in prefill beside what expands latents; in "
     "training "
     "none does.",
     check_effects},
    {"distributed.dataflow", S,
     "A forward task waits for exactly the tasks that wrote its inputs; a repeated one for those that write them "
     "again, "
     "or else for the block's output.",
     bp_gate_check_dataflow},
    {"distributed.backward", S,
     "A backward task waits for its output's gradient, for all that makes its operands again, and for nothing else.",
     bp_gate_check_backward},
    {"distributed.updates", S, "An optimizer task waits for exactly its row's tasks after the forward part.",
     bp_gate_check_updates},
    {"distributed.forward_traffic", S,
     "A forward computation reads once what a rank holds of its inputs, and writes once what it holds of its output; "
     "the output of a collective holds what arrives, the cache all that attention sees.",
     bp_gate_check_forward_traffic},
    {"distributed.repeats", S, "What is done again is what was done forward.", bp_gate_check_repeats},
    {"distributed.gradient_work", S,
     "A gradient writes what its row read, reads its operands and its output's gradient, and multiplies as often as "
     "forward.",
     bp_gate_check_gradient_work},
    {"distributed.optimizer_work", S, "An optimizer task does Adam's work on a rank's own share of the parameters.",
     bp_gate_check_optimizer_work},
    {"distributed.activations", S, "A row's activation and output are what a rank holds of its inputs and its output.",
     bp_gate_check_activations},
    {"distributed.values", S, "Input and output come first, then in table order each row's parameters and output.",
     bp_gate_check_values},
    {"distributed.parameters", S, "What a rank holds of a row's parameters is exactly P elements.",
     bp_gate_check_parameters},
    {"distributed.memory_mode", S, "Facts of the other mode are zero.", bp_gate_check_memory_mode},
    {"distributed.memory_states", S,
     "Weights, gradients and optimizer state are the sums over the rows, each sharded as its ZeRO stage says.",
     bp_gate_check_memory_states},
    {"distributed.memory_stored", S,
     "Stored activations are the sum of what the rows keep; full recomputation keeps the block's input instead.",
     bp_gate_check_memory_stored},
    {"distributed.memory_working", S, "Working activations are the sum over the rows that share with no other.",
     bp_gate_check_memory_working},
    {"distributed.memory_bound", S, "Stored activations are never more than working ones.", bp_gate_check_memory_bound},
    {"distributed.memory_inference", S, "KV cache, boundary and workspace are what the symbols give.",
     bp_gate_check_memory_inference},
};
const struct bp_check_group bp_program_checks = BP_GATE_BLOCK_GROUP(program_rows);
