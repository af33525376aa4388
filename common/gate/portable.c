/* Structure of the portable stage: a task graph over abstract buffers, each task with its exact work. */
#include <string.h>

#include "common/gate/checks.h"

static const struct bp_portable_ir *target(const struct bp_gate *gate)
{
    return gate->target.as.portable;
}

static const char *task_name(const struct bp_gate *gate, uint32_t i)
{
    return target(gate)->tasks[i].name;
}

static const char *buffer_name(const struct bp_gate *gate, uint32_t i)
{
    enum bp_buffer_role role = target(gate)->buffers[i].role;
    return role < BP_BUFFER_ROLE_N ? bp_buffer_role_names[role] : NULL;
}

static struct bp_gate_arrays entities(const struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    return (struct bp_gate_arrays){.n = 2,
                                   .at = {BP_GATE_NAMED(TASK, ir->tasks, ir->n_tasks, task_name),
                                          BP_GATE_NAMED(BUFFER, ir->buffers, ir->n_buffers, buffer_name)}};
}

static void check_ids(struct bp_gate *gate)
{
    const struct bp_gate_arrays arrays = entities(gate);
    bp_gate_check_ids(gate, NULL, &arrays);
}

static void check_unique_ids(struct bp_gate *gate)
{
    const struct bp_gate_arrays arrays = entities(gate);
    bp_gate_check_unique_ids(gate, &arrays);
}

/* The tasks from `first` on that are of one block. */
static struct bp_span block_from(const struct bp_portable_ir *ir, uint32_t first)
{
    struct bp_span span = {first, first + 1};
    while (span.end < ir->n_tasks && strcmp(ir->tasks[span.end].block, ir->tasks[first].block) == 0)
        span.end++;
    return span;
}

/* Each block's tasks stand together: no two runs are of the same block. */
static void check_blocks(struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    struct bp_gate_index index;
    if (!bp_gate_index_init(gate, ir->n_tasks, &index))
        return;
    for (struct bp_span span = {0}; span.end < ir->n_tasks;) {
        span = block_from(ir, span.end);
        const char *block = ir->tasks[span.first].block;
        BP_GATE_EXPECT(gate, *block && bp_gate_index_put(&index, block, strlen(block), span.first) == span.first,
                       BP_E_structure_violated, bp_gate_path(gate, "/tasks/%u/block", span.first),
                       "the block %s stands before already", block);
    }
}

static void check_names(struct bp_gate *gate)
{
    for (struct bp_span span = {0}; span.end < target(gate)->n_tasks;) {
        span = block_from(target(gate), span.end);
        bp_gate_check_names(gate, "tasks", "name", span, task_name);
    }
}

static void check_references(struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_tasks; i++) {
        bp_gate_check_list(gate, &ir->tasks[i].inputs, (struct bp_span){0, ir->n_buffers}, "tasks", i, "inputs");
        bp_gate_check_list(gate, &ir->tasks[i].outputs, (struct bp_span){0, ir->n_buffers}, "tasks", i, "outputs");
    }
    for (uint32_t i = 0; i < ir->n_buffers; i++) {
        bp_gate_check_list(gate, &ir->buffers[i].producers, (struct bp_span){0, ir->n_tasks}, "buffers", i,
                           "producers");
        bp_gate_check_list(gate, &ir->buffers[i].consumers, (struct bp_span){0, ir->n_tasks}, "buffers", i,
                           "consumers");
    }
}

/* Whether a task reads the block's input. */
static bool may_begin(const struct bp_portable_ir *ir, const struct bp_portable_task *task)
{
    for (uint32_t j = 0; j < task->inputs.n; j++)
        if (task->inputs.at[j] < ir->n_buffers && ir->buffers[task->inputs.at[j]].role == BP_BUFFER_INPUT)
            return true;
    return false;
}

static void check_topology(struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    for (struct bp_span span = {0}; span.end < ir->n_tasks;) {
        span = block_from(ir, span.end);
        for (BP_GATE_EACH(i, span))
            bp_gate_check_dependencies(gate, &ir->tasks[i].dependencies, "tasks", i, span.first,
                                       may_begin(ir, &ir->tasks[i]));
    }
}

static void check_kinds(struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_tasks; i++) {
        const struct bp_portable_task *task = &ir->tasks[i];
        BP_GATE_EXPECT(gate, task->kind < BP_TASK_KIND_N, BP_E_structure_violated,
                       bp_gate_path(gate, "/tasks/%u/kind", i), "there is no kind %d", (int)task->kind);
        BP_GATE_EXPECT(gate, task->phase < BP_PHASE_N, BP_E_structure_violated,
                       bp_gate_path(gate, "/tasks/%u/phase", i), "there is no phase %d", (int)task->phase);
        bool collective = task->kind == BP_TASK_COLLECTIVE;
        BP_GATE_EXPECT(gate, task->engine < BP_ENGINE_N && (task->engine == BP_ENGINE_COLLECTIVE) == collective,
                       BP_E_structure_violated, bp_gate_path(gate, "/tasks/%u/engine", i),
                       "the collective engine runs the collectives and nothing else");
        BP_GATE_EXPECT(gate, task->n_ranks > 0, BP_E_structure_violated, bp_gate_path(gate, "/tasks/%u/ranks", i),
                       "it runs on no rank");
    }
}

/* What tasks and buffers say of each other, one bit a task and buffer; NULL when memory ran out. */
static unsigned char *uses_by_tasks(struct bp_gate *gate, bool outputs)
{
    const struct bp_portable_ir *ir = target(gate);
    unsigned char *uses = bp_arena_array(gate->arena, ir->n_tasks, ir->n_buffers);
    if (!uses) {
        bp_gate_no_memory(gate);
        return NULL;
    }
    for (uint32_t i = 0; i < ir->n_tasks; i++) {
        const struct bp_list *list = outputs ? &ir->tasks[i].outputs : &ir->tasks[i].inputs;
        for (uint32_t j = 0; j < list->n; j++)
            if (list->at[j] < ir->n_buffers)
                uses[(size_t)list->at[j] * ir->n_tasks + i] = 1;
    }
    return uses;
}

/* Whether a buffer's list names exactly the tasks that use it so. */
static bool names_exactly(const struct bp_list *list, const unsigned char *uses, uint32_t n_tasks)
{
    uint32_t n_users = 0;
    for (uint32_t i = 0; i < n_tasks; i++)
        n_users += uses[i];
    for (uint32_t j = 0; j < list->n; j++)
        if (list->at[j] >= n_tasks || !uses[list->at[j]])
            return false;
    return list->n == n_users;
}

static void check_flow(struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    const unsigned char *writes = uses_by_tasks(gate, true), *reads = uses_by_tasks(gate, false);
    if (!writes || !reads)
        return;
    for (uint32_t i = 0; i < ir->n_buffers; i++) {
        const struct bp_portable_buffer *buffer = &ir->buffers[i];
        size_t row = (size_t)i * ir->n_tasks;
        BP_GATE_EXPECT(gate, names_exactly(&buffer->producers, writes + row, ir->n_tasks), BP_E_structure_violated,
                       bp_gate_path(gate, "/buffers/%u/producers", i), "they are not the tasks that write it");
        BP_GATE_EXPECT(gate, names_exactly(&buffer->consumers, reads + row, ir->n_tasks), BP_E_structure_violated,
                       bp_gate_path(gate, "/buffers/%u/consumers", i), "they are not the tasks that read it");
        BP_GATE_EXPECT(gate, buffer->producers.n + buffer->consumers.n > 0, BP_E_structure_violated,
                       bp_gate_path(gate, "/buffers/%u", i), "no task uses it");
    }
}

static void check_buffer_order(struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_buffers; i++) {
        enum bp_buffer_role role = ir->buffers[i].role;
        bool first = i == 0 || strcmp(ir->buffers[i].block, ir->buffers[i - 1].block) != 0;
        BP_GATE_EXPECT(gate, role < BP_BUFFER_ROLE_N && (first || role > ir->buffers[i - 1].role),
                       BP_E_structure_violated, bp_gate_path(gate, "/buffers/%u/role", i),
                       "the role stands before already, or out of order");
    }
}

static void check_buffer_sizes(struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_buffers; i++)
        BP_GATE_EXPECT(gate, ir->buffers[i].size.n > 0 && ir->buffers[i].size.n <= BP_JSON_INT_MAX,
                       BP_E_structure_violated, bp_gate_path(gate, "/buffers/%u/size_bytes", i),
                       "%llu is not the size of a buffer", (unsigned long long)ir->buffers[i].size.n);
}

static void check_alignment(struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_buffers; i++)
        BP_GATE_EXPECT(gate, ir->buffers[i].alignment == 16, BP_E_structure_violated,
                       bp_gate_path(gate, "/buffers/%u/alignment_bytes", i), "a portable buffer is aligned to 16");
}

static void check_storage(struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_buffers; i++) {
        enum bp_buffer_role role = ir->buffers[i].role;
        bool fits = role < BP_BUFFER_ROLE_N && ir->buffers[i].storage == bp_buffer_role_storage[role];
        BP_GATE_EXPECT(gate, fits, BP_E_structure_violated, bp_gate_path(gate, "/buffers/%u/storage", i),
                       "it is not the storage of the role");
    }
}

/* Q_compute = F, Q_memory = R + W, Q_network = M. */
static void check_resources(struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_tasks; i++) {
        const struct bp_work *work = &ir->tasks[i].work;
        const struct bp_resources *needs = &ir->tasks[i].resources;
        struct bp_calc calc = {0};
        bp_u128 memory = bp_add(&calc, work->read.n, work->write.n);
        const struct {
            const char *key;
            bp_u128 projection, needed;
        } rules[] = {{"compute", work->operations.n, needs->compute.n},
                     {"memory", memory, needs->memory.n},
                     {"network", work->message.n, needs->network.n}};
        for (size_t j = 0; j < BP_GATE_COUNT(rules); j++)
            BP_GATE_EXPECT(gate, rules[j].projection == rules[j].needed, BP_E_structure_violated,
                           bp_gate_path(gate, "/tasks/%u/resources/%s", i, rules[j].key),
                           "it is not the projection of the work vector");
    }
}

static const struct bp_capability matrix = {"matrix-multiply", {"tensor-core", "matrix-engine"}, 2},
                                  vector = {"vector-elementwise", {"vector-engine"}, 1},
                                  attention = {"attention",
                                               {"flash-attention", "paged-attention", "dense-attention"},
                                               3},
                                  collective = {"", {"collective-library", "network-engine"}, 2};

/* The capability that a computation or a collective needs; NULL for transfers and host tasks, which say themselves.
 * A collective's is named after its kind, in training the last word of the task's name. */
static const struct bp_capability *capability_of(const struct bp_portable_task *task)
{
    if (task->kind == BP_TASK_COLLECTIVE)
        return &collective;
    if (task->kind != BP_TASK_COMPUTE)
        return NULL;
    if (strcmp(task->layer, "attention.core") == 0)
        return &attention;
    return task->engine == BP_ENGINE_MATRIX ? &matrix : &vector;
}

static bool names_collective(const struct bp_portable_task *task)
{
    const char *word = strrchr(task->name, '.');
    bool inference = task->phase == BP_PHASE_PREFILL || task->phase == BP_PHASE_DECODE;
    for (int kind = BP_COLLECTIVE_NONE + 1; kind < BP_COLLECTIVE_N; kind++)
        if (strcmp(task->capability.name, bp_collective_names[kind]) == 0)
            return inference || (word && strcmp(word + 1, task->capability.name) == 0);
    return false;
}

static bool capability_fits(const struct bp_portable_task *task)
{
    const struct bp_capability *wanted = capability_of(task), *has = &task->capability;
    if (!wanted)
        return *has->name && has->n_alternatives > 0 && has->n_alternatives <= BP_GATE_COUNT(has->alternatives);
    if (wanted == &collective ? !names_collective(task) : strcmp(has->name, wanted->name) != 0)
        return false;
    if (has->n_alternatives != wanted->n_alternatives)
        return false;
    for (uint32_t i = 0; i < wanted->n_alternatives; i++)
        if (strcmp(has->alternatives[i], wanted->alternatives[i]) != 0)
            return false;
    return true;
}

static void check_capabilities(struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_tasks; i++)
        BP_GATE_EXPECT(gate, capability_fits(&ir->tasks[i]), BP_E_structure_violated,
                       bp_gate_path(gate, "/tasks/%u/capabilities/0", i),
                       "it is not the capability that the engine, the row or the collective asks for");
}

/* What a plan sums up of its tasks is stated as JSON integers too. */
static void check_totals(struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = target(gate);
    struct bp_bytes totals[3] = {{0}};
    struct bp_ops operations = {0};
    struct bp_calc calc = {0};
    for (uint32_t i = 0; i < ir->n_tasks; i++) {
        const struct bp_work *work = &ir->tasks[i].work;
        const struct bp_bytes bytes[] = {work->read, work->write, work->message};
        operations = bp_ops_add(&calc, operations, work->operations);
        for (size_t j = 0; j < BP_GATE_COUNT(bytes); j++)
            totals[j] = bp_bytes_add(&calc, totals[j], bytes[j]);
    }
    BP_GATE_EXPECT(gate, bp_calc_ok(&calc), BP_E_quantity_overflow, "/workload",
                   "the operations or bytes of the block are too many to be stated exactly");
}

#define S BP_CHECK_STRUCTURE
static const struct bp_check rows[] = {
    {"portable.ids", S, "Every id is made of the distributed snapshot, the place and the name or role.", check_ids},
    {"portable.unique_ids", S, "No two entities share an id.", check_unique_ids},
    {"portable.blocks", S, "The tasks of a block stand together.", check_blocks},
    {"portable.names", S, "Tasks have names, and no two of a block the same.", check_names},
    {"portable.references", S, "Every task and buffer that is named exists; lists ascend without repeats.",
     check_references},
    {"portable.topology", S,
     "Tasks wait for earlier tasks of their block only, listed in order and once; only what reads the block's input "
     "may "
     "wait for nothing.",
     check_topology},
    {"portable.kinds", S, "Kinds, phases and engines are known, and the collective engine runs the collectives.",
     check_kinds},
    {"portable.flow", S, "A buffer's producers and consumers are exactly the tasks that write and read it.",
     check_flow},
    {"portable.buffer_order", S, "The buffers of a block come in the order of the roles, each role once.",
     check_buffer_order},
    {"portable.buffer_sizes", S, "No buffer is empty.", check_buffer_sizes},
    {"portable.alignment", S, "Buffers are aligned to 16 bytes.", check_alignment},
    {"portable.storage", S, "The storage of a buffer is that of its role.", check_storage},
    {"portable.resources", S, "Resource requirements are the projections of the work vector.", check_resources},
    {"portable.capabilities", S, "A task asks for the capability of its engine, row or collective.",
     check_capabilities},
    {"portable.totals", BP_CHECK_CAPACITY, "The totals of the block can be stated as JSON integers.", check_totals},
};
const struct bp_check_group bp_portable_checks = BP_GATE_GROUP(rows);
