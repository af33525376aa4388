#include "common/passes/portable_block.h"

#include <string.h>

#include "common/passes/laws.h"

/* A plan on its way to a snapshot. */
struct planning {
    const struct bp_pass_input *input;
    const struct bp_distributed_ir *source;
    const char *rule;
    struct bp_arena *arena;
    const struct bp_id_maker *ids;
    struct bp_portable_task *tasks;
    struct bp_portable_buffer *buffers;
    uint32_t n_buffers;
    const struct bp_distributed_block *block; /* the one at hand, and where its entities stand */
    struct bp_distributed_program at;
    bool failed; /* memory ran out */
};

enum use { UNUSED, READ = 1, WRITE = 2, READ_WRITE = 3 };

static void *list_memory(struct planning *planning, size_t n, size_t size)
{
    void *memory = bp_arena_array(planning->arena, n, size);
    planning->failed |= !memory;
    return memory;
}

static bool lists(const struct bp_list *list, uint32_t member)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (list->at[i] == member)
            return true;
    return false;
}

/* The values of the block's boundary are its first. */
static uint32_t input_value(const struct planning *planning)
{
    return planning->at.values.first;
}

static uint32_t output_value(const struct planning *planning)
{
    return planning->at.values.first + 1;
}

static bool is_forward(const struct bp_distributed_task *task)
{
    return task->phase == BP_PHASE_FORWARD || task->phase == BP_PHASE_PREFILL || task->phase == BP_PHASE_DECODE;
}

static const struct bp_distributed_layer *layer_of(const struct planning *planning,
                                                   const struct bp_distributed_task *task)
{
    return &planning->source->layers[task->layer];
}

/* How each buffer is used (docs/formulas.md, "Portable plan"). */

static enum use use_input(const struct planning *planning, const struct bp_distributed_task *task)
{
    bool again = task->phase == BP_PHASE_RECOMPUTE || task->phase == BP_PHASE_RECOMMUNICATION;
    return (is_forward(task) || again) && lists(&task->inputs, input_value(planning)) ? READ : UNUSED;
}

static enum use use_output(const struct planning *planning, const struct bp_distributed_task *task)
{
    return lists(&task->outputs, output_value(planning)) ? WRITE : UNUSED;
}

static enum use use_weights(const struct planning *planning, const struct bp_distributed_task *task)
{
    if (layer_of(planning, task)->parameters == 0)
        return UNUSED;
    return task->phase == BP_PHASE_OPTIMIZER ? READ_WRITE : READ;
}

static enum use use_gradients(const struct planning *planning, const struct bp_distributed_task *task)
{
    (void)planning;
    return task->phase == BP_PHASE_WEIGHT_GRADIENT ? READ_WRITE : task->phase == BP_PHASE_OPTIMIZER ? READ : UNUSED;
}

static enum use use_optimizer_state(const struct planning *planning, const struct bp_distributed_task *task)
{
    (void)planning;
    return task->phase == BP_PHASE_OPTIMIZER ? READ_WRITE : UNUSED;
}

/* Under full recomputation the block's input is all that is kept. */
static enum use use_checkpoint(const struct planning *planning, const struct bp_distributed_task *task)
{
    if (task == &planning->source->tasks[planning->at.tasks.first])
        return WRITE;
    return !is_forward(task) && lists(&task->inputs, input_value(planning)) ? READ : UNUSED;
}

static enum use use_stored(const struct planning *planning, const struct bp_distributed_task *task)
{
    const struct bp_distributed_layer *layer = layer_of(planning, task);
    if (!layer->keeps_activation || layer->activation.n == 0 || task->phase == BP_PHASE_OPTIMIZER)
        return UNUSED;
    return is_forward(task) ? WRITE : READ;
}

static enum use use_working(const struct planning *planning, const struct bp_distributed_task *task)
{
    (void)planning;
    return task->phase == BP_PHASE_OPTIMIZER ? UNUSED : READ_WRITE;
}

static enum use use_kv_cache(const struct planning *planning, const struct bp_distributed_task *task)
{
    (void)planning;
    if (!task->effect.has)
        return UNUSED;
    return task->effect.access == BP_ACCESS_WRITE ? WRITE : READ;
}

static enum use use_workspace(const struct planning *planning, const struct bp_distributed_task *task)
{
    (void)planning;
    (void)task;
    return READ_WRITE;
}

static const struct buffer_rule {
    enum bp_memory_fact fact; /* the size; BP_MEMORY_N: the block's boundary */
    enum use (*use)(const struct planning *planning, const struct bp_distributed_task *task);
} buffer_rules[BP_BUFFER_ROLE_N] = {
    [BP_BUFFER_INPUT] = {BP_MEMORY_N, use_input},
    [BP_BUFFER_OUTPUT] = {BP_MEMORY_N, use_output},
    [BP_BUFFER_WEIGHTS] = {BP_MEMORY_WEIGHTS, use_weights},
    [BP_BUFFER_GRADIENTS] = {BP_MEMORY_GRADIENTS, use_gradients},
    [BP_BUFFER_OPTIMIZER_STATE] = {BP_MEMORY_OPTIMIZER, use_optimizer_state},
    [BP_BUFFER_ACTIVATION_CHECKPOINT] = {BP_MEMORY_ACTIVATION_CHECKPOINT, use_checkpoint},
    [BP_BUFFER_STORED_ACTIVATIONS] = {BP_MEMORY_STORED_ACTIVATIONS, use_stored},
    [BP_BUFFER_WORKING_ACTIVATIONS] = {BP_MEMORY_WORKING_ACTIVATIONS, use_working},
    [BP_BUFFER_KV_CACHE] = {BP_MEMORY_KV_CACHE, use_kv_cache},
    [BP_BUFFER_WORKSPACE] = {BP_MEMORY_WORKSPACE, use_workspace},
};

/* One rank's share of the block's input: its global shape over the axes that split it. */
static bp_u128 boundary_bytes(const struct planning *planning, struct bp_calc *calc)
{
    const struct bp_distributed_ir *source = planning->source;
    const struct bp_distributed_value *value = &source->values[input_value(planning)];
    bp_u128 bytes = bp_dtype_bytes(value->dtype);
    for (uint32_t i = 0; i < value->n_dims; i++)
        bytes =
            bp_div(calc, bp_mul(calc, bytes, value->shape[i]), bp_distributed_axis_size(source, value->sharding[i]));
    return bytes;
}

static bp_u128 buffer_bytes(const struct planning *planning, enum bp_buffer_role role, struct bp_calc *calc)
{
    const struct bp_bytes *memory = planning->block->memory.at;
    if (buffer_rules[role].fact == BP_MEMORY_N)
        return boundary_bytes(planning, calc);
    bp_u128 bytes = memory[buffer_rules[role].fact].n;
    /* What is stored already counts once. */
    if (role == BP_BUFFER_WORKING_ACTIVATIONS)
        bytes = bp_sub(calc, bytes, memory[BP_MEMORY_STORED_ACTIVATIONS].n);
    return bytes;
}

/* The sources of a buffer: the values whose bytes it holds, or the tasks that write it. */

static bool holds_value(const struct planning *planning, enum bp_buffer_role role, uint32_t value)
{
    static const char suffix[] = ".parameters";
    switch (role) {
    case BP_BUFFER_INPUT:
    case BP_BUFFER_ACTIVATION_CHECKPOINT:
        return value == input_value(planning);
    case BP_BUFFER_OUTPUT:
        return value == output_value(planning);
    case BP_BUFFER_WEIGHTS: {
        const char *name = planning->source->values[value].role;
        size_t n = strlen(name);
        return n >= sizeof suffix - 1 && strcmp(name + n - (sizeof suffix - 1), suffix) == 0;
    }
    default:
        return false;
    }
}

static struct bp_lineage buffer_lineage(struct planning *planning, enum bp_buffer_role role,
                                        const struct bp_list *producers)
{
    const struct bp_distributed_ir *source = planning->source;
    const struct bp_span values = planning->at.values;
    struct bp_id *sources = list_memory(planning, values.end - values.first + producers->n, sizeof *sources);
    uint32_t n = 0;
    if (!sources)
        return (struct bp_lineage){0};
    for (uint32_t i = values.first; i < values.end; i++)
        if (holds_value(planning, role, i))
            sources[n++] = source->values[i].id;
    for (uint32_t i = 0; n == 0 && i < producers->n; i++)
        sources[i] = source->tasks[producers->at[i]].id;
    return (struct bp_lineage){planning->rule, sources, n ? n : producers->n};
}

static struct bp_list tasks_that(struct planning *planning, enum bp_buffer_role role, enum use what)
{
    const struct bp_distributed_ir *source = planning->source;
    const struct bp_span tasks = planning->at.tasks;
    uint32_t *at = list_memory(planning, tasks.end - tasks.first, sizeof *at), n = 0;
    if (!at)
        return (struct bp_list){0};
    for (uint32_t i = tasks.first; i < tasks.end; i++)
        if (buffer_rules[role].use(planning, &source->tasks[i]) & what)
            at[n++] = i;
    return (struct bp_list){at, n};
}

static void add_block_buffers(struct planning *planning, struct bp_calc *calc)
{
    for (enum bp_buffer_role role = 0; role < BP_BUFFER_ROLE_N; role++) {
        struct bp_bytes size = bp_bytes(calc, buffer_bytes(planning, role, calc));
        if (size.n == 0)
            continue;
        uint32_t place = planning->n_buffers++;
        struct bp_list producers = tasks_that(planning, role, WRITE);
        planning->buffers[place] = (struct bp_portable_buffer){
            .id = bp_id_make(planning->ids, BP_ENTITY_BUFFER, place, bp_buffer_role_names[role]),
            .role = role,
            .block = planning->block->name,
            .storage = bp_buffer_role_storage[role],
            .size = size,
            .alignment = 16,
            .producers = producers,
            .consumers = tasks_that(planning, role, READ),
            .lineage = buffer_lineage(planning, role, &producers),
        };
    }
}

/* Each block has its own, block after block. A source that was altered may lack a block's input and output. */
static int add_buffers(struct planning *planning, struct bp_calc *calc, struct bp_err *err)
{
    for (uint32_t i = 0; i < planning->source->n_blocks; i++) {
        planning->block = &planning->source->blocks[i];
        planning->at = bp_distributed_program_of(planning->source, i);
        if (planning->at.values.end - planning->at.values.first < 2)
            return bp_fail(err, BP_E_structure_violated, "/values", "the block %s lacks its input or its output",
                           planning->block->name);
        add_block_buffers(planning, calc);
    }
    return 0;
}

/* Capabilities, and the implementations that would do. */
static const struct capability_rule {
    const char *layer; /* of this row only, or NULL */
    enum bp_engine engine;
    struct bp_capability capability;
} capability_rules[] = {
    {"attention.core", BP_ENGINE_MATRIX, {"attention", {"flash-attention", "paged-attention", "dense-attention"}, 3}},
    {NULL, BP_ENGINE_MATRIX, {"matrix-multiply", {"tensor-core", "matrix-engine"}, 2}},
    {NULL, BP_ENGINE_VECTOR, {"vector-elementwise", {"vector-engine"}, 1}},
    {NULL, BP_ENGINE_COLLECTIVE, {NULL, {"collective-library", "network-engine"}, 2}},
};

static struct bp_capability capability_of(const struct planning *planning, const struct bp_distributed_task *task)
{
    const struct capability_rule *rule = capability_rules;
    while (rule->engine != task->engine || (rule->layer && strcmp(rule->layer, layer_of(planning, task)->name) != 0))
        rule++;
    struct bp_capability capability = rule->capability;
    if (!capability.name)
        capability.name = bp_collective_names[task->collective];
    return capability;
}

static void add_tasks(struct planning *planning, struct bp_calc *calc)
{
    const struct bp_distributed_ir *source = planning->source;
    for (uint32_t i = 0; i < source->n_tasks; i++) {
        const struct bp_distributed_task *task = &source->tasks[i];
        planning->tasks[i] = (struct bp_portable_task){
            .id = bp_id_make(planning->ids, BP_ENTITY_TASK, i, task->name),
            .name = task->name,
            .layer = layer_of(planning, task)->name,
            .block = source->blocks[task->block].name,
            .phase = task->phase,
            .engine = task->engine,
            .kind = task->kind,
            .dependencies = task->dependencies,
            .n_ranks = source->strategy.tensor_parallel,
            .effect = task->effect,
            .work = task->work,
            .resources = {task->work.operations, bp_bytes_add(calc, task->work.read, task->work.write),
                          task->work.message},
            .capability = capability_of(planning, task),
            .lineage = {planning->rule, &task->id, 1},
        };
    }
}

/* A task lists its buffers in the order of the buffers: the transpose of producers and consumers. */
static void add_uses(struct planning *planning)
{
    uint32_t n_tasks = planning->source->n_tasks;
    uint32_t *reads = list_memory(planning, (size_t)n_tasks * planning->n_buffers, sizeof *reads);
    uint32_t *writes = list_memory(planning, (size_t)n_tasks * planning->n_buffers, sizeof *writes);
    if (!reads || !writes)
        return;
    for (uint32_t i = 0; i < n_tasks; i++) {
        planning->tasks[i].inputs.at = reads + (size_t)i * planning->n_buffers;
        planning->tasks[i].outputs.at = writes + (size_t)i * planning->n_buffers;
    }
    for (uint32_t place = 0; place < planning->n_buffers; place++) {
        const struct bp_portable_buffer *buffer = &planning->buffers[place];
        for (uint32_t i = 0; i < buffer->consumers.n; i++) {
            uint32_t task = buffer->consumers.at[i];
            reads[(size_t)task * planning->n_buffers + planning->tasks[task].inputs.n++] = place;
        }
        for (uint32_t i = 0; i < buffer->producers.n; i++) {
            uint32_t task = buffer->producers.at[i];
            writes[(size_t)task * planning->n_buffers + planning->tasks[task].outputs.n++] = place;
        }
    }
}

int bp_portable_block(const struct bp_pass_input *input, const char *rule, struct bp_arena *arena, struct bp_ir *ret,
                      struct bp_err *err)
{
    const struct bp_distributed_ir *source = input->source.as.distributed;
    struct planning planning = {.input = input, .source = source, .rule = rule, .arena = arena};
    struct bp_calc calc = {0};
    planning.ids = bp_id_maker_new(arena, &input->source_digest, NULL);
    planning.tasks = list_memory(&planning, source->n_tasks, sizeof *planning.tasks);
    planning.buffers = list_memory(&planning, (size_t)source->n_blocks * BP_BUFFER_ROLE_N, sizeof *planning.buffers);
    struct bp_portable_ir *ir = list_memory(&planning, 1, sizeof *ir);
    if (!planning.ids || planning.failed)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for the portable plan");
    add_tasks(&planning, &calc);
    if (add_buffers(&planning, &calc, err) < 0)
        return -1;
    add_uses(&planning);
    if (planning.failed)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for the portable plan");
    if (bp_calc_check(&calc, "/workload", "a buffer or a resource", err) < 0)
        return -1;
    *ir = (struct bp_portable_ir){.parent = input->source_digest,
                                  .tasks = planning.tasks,
                                  .n_tasks = source->n_tasks,
                                  .buffers = planning.buffers,
                                  .n_buffers = planning.n_buffers};
    *ret = (struct bp_ir){.stage = BP_STAGE_PORTABLE, .as.portable = ir};
    return 0;
}

/* sum_i w_i by phase. */
enum { F, R, W, M, VECTOR };
struct phase_sums {
    bp_u128 at[BP_PHASE_N][VECTOR];
};

static void add_to_phase(struct bp_gate *gate, struct bp_calc *calc, struct phase_sums *sums, enum bp_phase phase,
                         const struct bp_work *work)
{
    const bp_u128 vector[VECTOR] = {work->operations.n, work->read.n, work->write.n, work->message.n};
    if ((unsigned)phase >= BP_PHASE_N) {
        bp_gate_finding(gate, BP_E_law_violated, "/tasks", "a task is of no phase");
        return;
    }
    for (size_t i = 0; i < VECTOR; i++)
        sums->at[phase][i] = bp_add(calc, sums->at[phase][i], vector[i]);
}

/* sum_i w_i of the source = sum_i w_i of the target, phase by phase. */
static void compare_conservation(struct bp_gate *gate)
{
    const struct bp_distributed_ir *source = gate->source.as.distributed;
    const struct bp_portable_ir *target = gate->target.as.portable;
    struct phase_sums before = {0}, after = {0};
    struct bp_calc calc = {0};
    for (uint32_t i = 0; i < source->n_tasks; i++)
        add_to_phase(gate, &calc, &before, source->tasks[i].phase, &source->tasks[i].work);
    for (uint32_t i = 0; i < target->n_tasks; i++)
        add_to_phase(gate, &calc, &after, target->tasks[i].phase, &target->tasks[i].work);
    for (size_t phase = 0; phase < BP_PHASE_N; phase++)
        for (size_t i = 0; i < VECTOR; i++)
            bp_gate_equal(gate, "/tasks", &calc, before.at[phase][i], after.at[phase][i]);
}

static void compare_projections(struct bp_gate *gate)
{
    const struct bp_portable_ir *target = gate->target.as.portable;
    for (uint32_t i = 0; i < target->n_tasks; i++) {
        const struct bp_portable_task *task = &target->tasks[i];
        struct bp_calc calc = {0};
        bp_gate_equal(gate, "/tasks", &calc, task->work.operations.n, task->resources.compute.n);
        bp_gate_equal(gate, "/tasks", &calc, bp_add(&calc, task->work.read.n, task->work.write.n),
                      task->resources.memory.n);
        bp_gate_equal(gate, "/tasks", &calc, task->work.message.n, task->resources.network.n);
    }
}

static const struct bp_law conservation_laws[] = {
    {"law.work_conservation",
     "\\sum_i (F_i, R_i, W_i, M_i)_{\\mathrm{distributed}} = \\sum_i (F_i, R_i, W_i, M_i)_{\\mathrm{portable}}",
     "every plan, phase by phase", "docs/formulas.md, portable plan", bp_law_always, compare_conservation},
    {"law.resource_projection",
     "Q_{\\mathrm{compute}} = F_i, \\quad Q_{\\mathrm{memory}} = R_i + W_i, \\quad Q_{\\mathrm{network}} = M_i",
     "every task", "docs/formulas.md, portable plan", bp_law_always, compare_projections},
};
const struct bp_law_group bp_conservation_laws = BP_GROUP(conservation_laws);
