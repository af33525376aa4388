/* distributed -> portable: the work is conserved vector by vector, and so is everything else about a task; buffers are
 * the memory facts, used as the table of roles says. */
#include <string.h>

#include "common/gate/distributed.h"

static const struct bp_portable_ir *target(const struct bp_gate *gate)
{
    return gate->target.as.portable;
}

static const struct bp_distributed_ir *source(const struct bp_gate *gate)
{
    return gate->source.as.distributed;
}

/* Tasks are compared by place; how many both have. */
static uint32_t n_pairs(const struct bp_gate *gate)
{
    uint32_t a = target(gate)->n_tasks, b = source(gate)->n_tasks;
    return a < b ? a : b;
}

static const char *layer_of(const struct bp_distributed_ir *ir, const struct bp_distributed_task *task)
{
    return task->layer < ir->n_layers ? ir->layers[task->layer].name : "";
}

static struct bp_gate_arrays sources(const struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = source(gate);
    return (struct bp_gate_arrays){.n = 2,
                                   .at = {BP_GATE_NAMED(VALUE, ir->values, ir->n_values, NULL),
                                          BP_GATE_NAMED(TASK, ir->tasks, ir->n_tasks, NULL)}};
}

static struct bp_gate_arrays derived(const struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    return (struct bp_gate_arrays){
        .n = 2,
        .at = {BP_GATE_DERIVED(TASK, struct bp_portable_task, ir->tasks, ir->n_tasks, 1U << BP_ENTITY_TASK),
               BP_GATE_DERIVED(BUFFER, struct bp_portable_buffer, ir->buffers, ir->n_buffers,
                               1U << BP_ENTITY_TASK | 1U << BP_ENTITY_VALUE)}};
}

static void check_parent(struct bp_gate *gate)
{
    bp_gate_check_parent(gate, &target(gate)->parent);
}

static void check_lineage(struct bp_gate *gate)
{
    const struct bp_gate_arrays to = derived(gate), from = sources(gate);
    bp_gate_check_lineage(gate, &to, &from);
}

/* Each portable task comes from the distributed task of its place, and from that alone. */
static void check_coverage(struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    const struct bp_distributed_ir *from = source(gate);
    for (uint32_t i = 0; i < n_pairs(gate); i++) {
        const struct bp_lineage *lineage = &ir->tasks[i].lineage;
        BP_GATE_EXPECT(gate, lineage->n_sources == 1 && bp_id_equal(&lineage->sources[0], &from->tasks[i].id),
                       BP_E_cross_stage_violated, bp_gate_path(gate, "/tasks/%u/lineage/sources", i),
                       "it does not come from /tasks/%u of the source alone", i);
    }
    BP_GATE_EXPECT(gate, ir->n_tasks == from->n_tasks, BP_E_cross_stage_violated, "/tasks", "%u tasks come from %u",
                   ir->n_tasks, from->n_tasks);
}

/* Whether the buffer is of the block at hand. */
static bool is_here(const struct bp_gate *gate, const struct bp_portable_buffer *buffer)
{
    return buffer->role < BP_BUFFER_ROLE_N && strcmp(buffer->block, gate->symbols->kind->name) == 0;
}

/* Whether the buffer of a role holds a value's bytes: the block's input and output are its first values, and weights
 * are all that are a row's parameters. */
static bool holds_values(enum bp_buffer_role role)
{
    return role == BP_BUFFER_INPUT || role == BP_BUFFER_ACTIVATION_CHECKPOINT || role == BP_BUFFER_OUTPUT ||
           role == BP_BUFFER_WEIGHTS;
}

static bool holds_value(const struct bp_gate *gate, enum bp_buffer_role role, uint32_t value)
{
    static const char suffix[] = ".parameters";
    const char *name = source(gate)->values[value].role;
    size_t n = strlen(name), m = sizeof suffix - 1;
    if (role == BP_BUFFER_WEIGHTS)
        return n > m && strcmp(name + n - m, suffix) == 0;
    return value == gate->at.values.first + (role == BP_BUFFER_OUTPUT);
}

static bool comes_from_its_bytes(const struct bp_gate *gate, const struct bp_portable_buffer *buffer)
{
    const struct bp_distributed_ir *from = source(gate);
    const struct bp_lineage *lineage = &buffer->lineage;
    uint32_t n = 0;
    if (holds_values(buffer->role)) {
        for (BP_GATE_EACH(i, gate->at.values)) {
            if (!holds_value(gate, buffer->role, i))
                continue;
            if (n >= lineage->n_sources || !bp_id_equal(&lineage->sources[n], &from->values[i].id))
                return false;
            n++;
        }
        return n == lineage->n_sources;
    }
    for (; n < buffer->producers.n && n < lineage->n_sources; n++) {
        uint32_t task = buffer->producers.at[n];
        if (task >= from->n_tasks || !bp_id_equal(&lineage->sources[n], &from->tasks[task].id))
            return false;
    }
    return n == lineage->n_sources && n == buffer->producers.n;
}

static void check_origins(struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_buffers; i++)
        if (is_here(gate, &ir->buffers[i]))
            BP_GATE_EXPECT(gate, comes_from_its_bytes(gate, &ir->buffers[i]), BP_E_cross_stage_violated,
                           bp_gate_path(gate, "/buffers/%u/lineage/sources", i),
                           "they are not what the buffer holds the bytes of");
}

static void check_tasks(struct bp_gate *gate)
{
    const struct bp_distributed_ir *from = source(gate);
    for (uint32_t i = 0; i < n_pairs(gate); i++) {
        const struct bp_portable_task *a = &target(gate)->tasks[i];
        const struct bp_distributed_task *b = &from->tasks[i];
        const struct {
            const char *key;
            bool holds;
        } rules[] = {{"name", strcmp(a->name, b->name) == 0},
                     {"layer", strcmp(a->layer, layer_of(from, b)) == 0},
                     {"block", b->block < from->n_blocks && strcmp(a->block, from->blocks[b->block].name) == 0},
                     {"phase", a->phase == b->phase},
                     {"engine", a->engine == b->engine},
                     {"kind", a->kind == b->kind},
                     {"capabilities/0/name", b->kind != BP_TASK_COLLECTIVE || b->collective >= BP_COLLECTIVE_N ||
                                                 strcmp(a->capability.name, bp_collective_names[b->collective]) == 0}};
        for (size_t j = 0; j < BP_GATE_COUNT(rules); j++)
            BP_GATE_EXPECT(gate, rules[j].holds, BP_E_cross_stage_violated,
                           bp_gate_path(gate, "/tasks/%u/%s", i, rules[j].key), "it is not that of %s", b->name);
    }
}

static void check_work(struct bp_gate *gate)
{
    for (uint32_t i = 0; i < n_pairs(gate); i++) {
        const struct bp_work *a = &target(gate)->tasks[i].work, *b = &source(gate)->tasks[i].work;
        const struct {
            const char *key;
            bp_u128 planned, distributed;
        } parts[] = {{"operations", a->operations.n, b->operations.n},
                     {"read_bytes", a->read.n, b->read.n},
                     {"write_bytes", a->write.n, b->write.n},
                     {"message_bytes", a->message.n, b->message.n}};
        for (size_t j = 0; j < BP_GATE_COUNT(parts); j++)
            BP_GATE_EXPECT(gate, parts[j].planned == parts[j].distributed, BP_E_cross_stage_violated,
                           bp_gate_path(gate, "/tasks/%u/workload/%s", i, parts[j].key), "the work is not that of %s",
                           source(gate)->tasks[i].name);
    }
}

static void check_ranks(struct bp_gate *gate)
{
    uint64_t ranks = source(gate)->strategy.tensor_parallel;
    for (uint32_t i = 0; i < target(gate)->n_tasks; i++)
        BP_GATE_EXPECT(gate, target(gate)->tasks[i].n_ranks == ranks, BP_E_cross_stage_violated,
                       bp_gate_path(gate, "/tasks/%u/ranks", i), "it does not run on the %llu ranks of the group",
                       (unsigned long long)ranks);
}

static void check_effects(struct bp_gate *gate)
{
    for (uint32_t i = 0; i < n_pairs(gate); i++) {
        const struct bp_effect *a = &target(gate)->tasks[i].effect, *b = &source(gate)->tasks[i].effect;
        BP_GATE_EXPECT(gate, a->has == b->has && (!a->has || a->access == b->access), BP_E_cross_stage_violated,
                       bp_gate_path(gate, "/tasks/%u/effects", i), "the effect is not that of %s",
                       source(gate)->tasks[i].name);
    }
}

static void check_dependencies(struct bp_gate *gate)
{
    for (uint32_t i = 0; i < n_pairs(gate); i++)
        BP_GATE_EXPECT(gate,
                       bp_gate_list_equal(&target(gate)->tasks[i].dependencies, &source(gate)->tasks[i].dependencies),
                       BP_E_cross_stage_violated, bp_gate_path(gate, "/tasks/%u/dependencies", i),
                       "it does not wait for what %s waits for", source(gate)->tasks[i].name);
}

/* How large the buffer of a role must be; 0: there is none. */
static bp_u128 size_of_role(const struct bp_gate *gate, enum bp_buffer_role role, struct bp_calc *calc)
{
    static const enum bp_memory_fact facts[BP_BUFFER_ROLE_N] = {
        [BP_BUFFER_WEIGHTS] = BP_MEMORY_WEIGHTS,
        [BP_BUFFER_GRADIENTS] = BP_MEMORY_GRADIENTS,
        [BP_BUFFER_OPTIMIZER_STATE] = BP_MEMORY_OPTIMIZER,
        [BP_BUFFER_ACTIVATION_CHECKPOINT] = BP_MEMORY_ACTIVATION_CHECKPOINT,
        [BP_BUFFER_STORED_ACTIVATIONS] = BP_MEMORY_STORED_ACTIVATIONS,
        [BP_BUFFER_WORKING_ACTIVATIONS] = BP_MEMORY_WORKING_ACTIVATIONS,
        [BP_BUFFER_KV_CACHE] = BP_MEMORY_KV_CACHE,
        [BP_BUFFER_WORKSPACE] = BP_MEMORY_WORKSPACE,
    };
    const struct bp_bytes *memory = source(gate)->blocks[gate->block].memory.at;
    if (role == BP_BUFFER_INPUT || role == BP_BUFFER_OUTPUT)
        return bp_mul(calc, gate->symbols->Xs, gate->symbols->e);
    bp_u128 shared = role == BP_BUFFER_WORKING_ACTIVATIONS ? memory[BP_MEMORY_STORED_ACTIVATIONS].n : 0;
    return bp_sub(calc, memory[facts[role]].n, shared);
}

static void check_buffer_sizes(struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    bool there[BP_BUFFER_ROLE_N] = {false};
    for (uint32_t i = 0; i < ir->n_buffers; i++) {
        if (!is_here(gate, &ir->buffers[i]))
            continue;
        struct bp_calc calc = {0};
        bp_u128 size = size_of_role(gate, ir->buffers[i].role, &calc);
        there[ir->buffers[i].role] = true;
        bp_gate_exact(gate, BP_E_cross_stage_violated, bp_gate_path(gate, "/buffers/%u/size_bytes", i), &calc, size,
                      ir->buffers[i].size.n);
    }
    for (uint32_t role = 0; role < BP_BUFFER_ROLE_N; role++) {
        struct bp_calc calc = {0};
        bool wanted = size_of_role(gate, role, &calc) > 0;
        BP_GATE_EXPECT(gate, there[role] || !wanted, BP_E_cross_stage_violated, "/buffers",
                       "there is no buffer for %s of %s", bp_buffer_role_names[role], gate->symbols->kind->name);
    }
}

/* Buffers come block by block, in the order of the blocks. */
static void check_blocks(struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    const struct bp_distributed_ir *from = source(gate);
    uint32_t block = 0;
    for (uint32_t i = 0; i < ir->n_buffers; i++) {
        while (block < from->n_blocks && strcmp(ir->buffers[i].block, from->blocks[block].name) != 0)
            block++;
        BP_GATE_EXPECT(gate, block < from->n_blocks, BP_E_cross_stage_violated,
                       bp_gate_path(gate, "/buffers/%u/block", i), "it does not stand with a block of the source");
    }
}

/* How a task uses the buffer of a role (docs/formulas.md, "Portable plan"), in bits. */
enum { USES_NOT = 0, READS = 1, WRITES = 2, READS_WRITES = READS | WRITES };

struct user {
    const struct bp_distributed_ir *ir;
    const struct bp_distributed_task *task;
    uint32_t input;   /* the value that is the block's input */
    bool first, last; /* of the block's forward part */
    bool forward, again, update;
};

static const struct bp_distributed_layer *row_of(const struct user *user)
{
    static const struct bp_distributed_layer none;
    return user->task->layer < user->ir->n_layers ? &user->ir->layers[user->task->layer] : &none;
}

/* The block's input goes to what begins the block, and past it to what adds it to the rest. */
static bool takes_block_input(const struct user *user)
{
    return bp_gate_list_has(&user->task->inputs, user->input);
}

static unsigned use_input(const struct user *user)
{
    return (user->forward || user->again) && takes_block_input(user) ? READS : USES_NOT;
}

static unsigned use_output(const struct user *user)
{
    return user->last ? WRITES : USES_NOT;
}

static unsigned use_weights(const struct user *user)
{
    if (row_of(user)->parameters == 0)
        return USES_NOT;
    return user->update ? READS_WRITES : READS;
}

static unsigned use_gradients(const struct user *user)
{
    if (user->task->phase == BP_PHASE_WEIGHT_GRADIENT)
        return READS_WRITES;
    return user->update ? READS : USES_NOT;
}

static unsigned use_optimizer_state(const struct user *user)
{
    return user->update ? READS_WRITES : USES_NOT;
}

/* The checkpoint is the block's input: what recomputation begins from, and what the gradients of the rows that read
 * it need. */
static unsigned use_checkpoint(const struct user *user)
{
    if (user->forward)
        return user->first ? WRITES : USES_NOT;
    return !user->update && takes_block_input(user) ? READS : USES_NOT;
}

static unsigned use_stored(const struct user *user)
{
    const struct bp_distributed_layer *row = row_of(user);
    if (!row->keeps_activation || row->activation.n == 0 || user->update)
        return USES_NOT;
    return user->forward ? WRITES : READS;
}

static unsigned use_working(const struct user *user)
{
    return user->update ? USES_NOT : READS_WRITES;
}

static unsigned use_kv_cache(const struct user *user)
{
    static const unsigned uses[] = {
        [BP_ACCESS_READ] = READS, [BP_ACCESS_WRITE] = WRITES, [BP_ACCESS_READ_WRITE] = READS_WRITES};
    const struct bp_effect *effect = &user->task->effect;
    return effect->has && effect->access < BP_ACCESS_N ? uses[effect->access] : USES_NOT;
}

static unsigned use_workspace(const struct user *user)
{
    (void)user;
    return READS_WRITES;
}

static unsigned (*const uses_of_roles[BP_BUFFER_ROLE_N])(const struct user *user) = {
    [BP_BUFFER_INPUT] = use_input,
    [BP_BUFFER_OUTPUT] = use_output,
    [BP_BUFFER_WEIGHTS] = use_weights,
    [BP_BUFFER_GRADIENTS] = use_gradients,
    [BP_BUFFER_OPTIMIZER_STATE] = use_optimizer_state,
    [BP_BUFFER_ACTIVATION_CHECKPOINT] = use_checkpoint,
    [BP_BUFFER_STORED_ACTIVATIONS] = use_stored,
    [BP_BUFFER_WORKING_ACTIVATIONS] = use_working,
    [BP_BUFFER_KV_CACHE] = use_kv_cache,
    [BP_BUFFER_WORKSPACE] = use_workspace,
};

static bool is_forward(const struct bp_distributed_task *task)
{
    return task->phase == BP_PHASE_FORWARD || task->phase == BP_PHASE_PREFILL || task->phase == BP_PHASE_DECODE;
}

static struct user user_of(const struct bp_gate *gate, uint32_t i, uint32_t n_forward)
{
    const struct bp_distributed_ir *ir = source(gate);
    const struct bp_distributed_task *task = &ir->tasks[i];
    uint32_t in_block = i - gate->at.tasks.first;
    return (struct user){.ir = ir,
                         .task = task,
                         .input = gate->at.values.first,
                         .first = in_block == 0,
                         .last = in_block + 1 == n_forward,
                         .forward = is_forward(task),
                         .again = task->phase == BP_PHASE_RECOMPUTE || task->phase == BP_PHASE_RECOMMUNICATION,
                         .update = task->phase == BP_PHASE_OPTIMIZER};
}

/* `uses` has a place for each buffer; lists may name one twice. */
static void note_uses(const struct bp_list *list, unsigned use, uint32_t n_buffers, unsigned *uses)
{
    for (uint32_t j = 0; j < list->n; j++)
        if (list->at[j] < n_buffers)
            uses[list->at[j]] |= use;
}

static void check_access(struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    const struct bp_distributed_ir *from = source(gate);
    uint32_t n_forward = 0;
    for (BP_GATE_EACH(i, gate->at.tasks))
        n_forward += is_forward(&from->tasks[i]);
    unsigned *uses = bp_arena_array(gate->arena, ir->n_buffers, sizeof *uses);
    if (!uses) {
        bp_gate_no_memory(gate);
        return;
    }
    for (uint32_t i = gate->at.tasks.first; i < gate->at.tasks.end && i < ir->n_tasks; i++) {
        struct user user = user_of(gate, i, n_forward);
        memset(uses, 0, ir->n_buffers * sizeof *uses);
        note_uses(&ir->tasks[i].inputs, READS, ir->n_buffers, uses);
        note_uses(&ir->tasks[i].outputs, WRITES, ir->n_buffers, uses);
        for (uint32_t j = 0; j < ir->n_buffers; j++) {
            enum bp_buffer_role role = ir->buffers[j].role;
            bool here = is_here(gate, &ir->buffers[j]);
            unsigned wanted = here ? uses_of_roles[role](&user) : USES_NOT;
            BP_GATE_EXPECT(gate, uses[j] == wanted, BP_E_cross_stage_violated,
                           bp_gate_path(gate, "/tasks/%u/%s", i, (uses[j] ^ wanted) & READS ? "inputs" : "outputs"),
                           "%s %s %s", ir->tasks[i].name,
                           wanted & ~uses[j] ? "does not use, as it must," : "uses, as it must not,",
                           here ? bp_buffer_role_names[role] : "a buffer of another block");
        }
    }
}

/* Capacity in inference: the cache for every visible token, and room for unfused scores until a target chooses. */
static void check_capacity(struct bp_gate *gate)
{
    static const struct {
        enum bp_buffer_role role;
        bp_u128 (*formula)(struct bp_calc *calc, const struct bp_gate *gate);
    } bounds[] = {{BP_BUFFER_KV_CACHE, bp_gate_kv_cache}, {BP_BUFFER_WORKSPACE, bp_gate_workspace}};
    const struct bp_portable_ir *ir = target(gate);
    if (source(gate)->workload.mode != BP_MODE_INFERENCE)
        return;
    for (size_t i = 0; i < BP_GATE_COUNT(bounds); i++) {
        struct bp_calc calc = {0};
        bp_u128 bound = bounds[i].formula(&calc, gate), held = 0;
        for (uint32_t j = 0; j < ir->n_buffers; j++)
            if (is_here(gate, &ir->buffers[j]) && ir->buffers[j].role == bounds[i].role)
                held = ir->buffers[j].size.n;
        bp_gate_exact(gate, BP_E_cross_stage_violated, "/buffers", &calc, bound, held);
    }
}

#define X BP_CHECK_CROSS_STAGE
static const struct bp_check rows[] = {
    {"plan.parent", BP_CHECK_LINEAGE, "The parent digest is that of the distributed snapshot.", check_parent},
    {"plan.lineage", BP_CHECK_LINEAGE,
     "Every task and buffer names the rule and entities of the distributed snapshot, none twice.", check_lineage},
    {"plan.coverage", BP_CHECK_LINEAGE, "Every distributed task is the source of one portable task, in its place.",
     check_coverage},
    {"plan.tasks", X, "Name, row, phase, engine, kind and collective are kept, task by task.", check_tasks},
    {"plan.work", X, "The work vector of every task is kept, number by number.", check_work},
    {"plan.ranks", X, "Every task runs on the ranks of the tensor group.", check_ranks},
    {"plan.effects", X, "Effects are kept.", check_effects},
    {"plan.dependencies", X, "Dependencies are kept.", check_dependencies},
    {"plan.blocks", X, "Buffers stand block by block, in the order of the blocks.", check_blocks},
};
const struct bp_check_group bp_plan_checks = BP_GATE_GROUP(rows);

static const struct bp_check block_rows[] = {
    {"plan.origins", BP_CHECK_LINEAGE,
     "A buffer comes from the values whose bytes it holds, or else from the tasks that write it.", check_origins},
    {"plan.buffer_sizes", X, "There is a buffer for every memory fact and boundary that is not zero, of that size.",
     check_buffer_sizes},
    {"plan.access", X, "Every task reads and writes exactly the buffers that the table of roles says.", check_access},
    {"plan.capacity", BP_CHECK_CAPACITY, "In inference KV cache and workspace are what the symbols give.",
     check_capacity},
};
const struct bp_check_group bp_plan_block_checks = BP_GATE_BLOCK_GROUP(block_rows);
