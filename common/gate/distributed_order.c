/* Order of the distributed stage: phases and rows in emission order, and what each task waits for. */
#include <string.h>

#include "common/gate/distributed.h"

static const struct bp_distributed_ir *target(const struct bp_gate *gate)
{
    return gate->target.as.distributed;
}

static bool is_training(const struct bp_distributed_ir *ir)
{
    return ir->workload.mode == BP_MODE_TRAINING;
}

/* The parts of a block in emission order; recomputation and backward each mix two phases. */
enum part { FORWARD, AGAIN, BACKWARD, UPDATE, NO_PART };

static enum part part_of(const struct bp_distributed_task *task)
{
    static const enum part parts[BP_PHASE_N] = {
        [BP_PHASE_FORWARD] = FORWARD,          [BP_PHASE_RECOMPUTE] = AGAIN,
        [BP_PHASE_RECOMMUNICATION] = AGAIN,    [BP_PHASE_ACTIVATION_GRADIENT] = BACKWARD,
        [BP_PHASE_WEIGHT_GRADIENT] = BACKWARD, [BP_PHASE_OPTIMIZER] = UPDATE,
        [BP_PHASE_PREFILL] = FORWARD,          [BP_PHASE_DECODE] = FORWARD,
    };
    return task->phase < BP_PHASE_N ? parts[task->phase] : NO_PART;
}

/* The block's input and output are its first two values. */
static uint32_t block_input(const struct bp_gate *gate)
{
    return gate->at.values.first;
}

static uint32_t block_output(const struct bp_gate *gate)
{
    return gate->at.values.first + 1;
}

/* What reads nothing that a task made: a forward task of the block's input. */
static bool reads_block_input(const struct bp_gate *gate, const struct bp_distributed_task *task)
{
    return part_of(task) == FORWARD && bp_gate_list_has(&task->inputs, block_input(gate));
}

void bp_gate_check_topology(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    for (BP_GATE_EACH(i, gate->at.tasks))
        bp_gate_check_dependencies(gate, &ir->tasks[i].dependencies, "tasks", i, gate->at.tasks.first,
                                   reads_block_input(gate, &ir->tasks[i]));
}

/* Whether a phase belongs to the workload, and a collective or a computation to the phase. */
static bool phase_fits(const struct bp_distributed_ir *ir, const struct bp_distributed_task *task)
{
    if (!is_training(ir))
        return task->phase == (ir->workload.phase == BP_PREFILL ? BP_PHASE_PREFILL : BP_PHASE_DECODE);
    switch (task->phase) {
    case BP_PHASE_FORWARD:
    case BP_PHASE_ACTIVATION_GRADIENT:
        return true;
    case BP_PHASE_RECOMMUNICATION:
        return task->kind == BP_TASK_COLLECTIVE;
    case BP_PHASE_RECOMPUTE:
    case BP_PHASE_WEIGHT_GRADIENT:
    case BP_PHASE_OPTIMIZER:
        return task->kind != BP_TASK_COLLECTIVE;
    default:
        return false;
    }
}

void bp_gate_check_phases(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    for (BP_GATE_EACH(i, gate->at.tasks)) {
        const struct bp_distributed_task *task = &ir->tasks[i];
        BP_GATE_EXPECT(gate, phase_fits(ir, task), BP_E_structure_violated, bp_gate_path(gate, "/tasks/%u/phase", i),
                       "no %s is in this phase", task->kind == BP_TASK_COLLECTIVE ? "collective" : "computation");
        BP_GATE_EXPECT(gate, i == gate->at.tasks.first || part_of(task) >= part_of(task - 1), BP_E_structure_violated,
                       bp_gate_path(gate, "/tasks/%u/phase", i), "the phase comes before that of the task before");
    }
}

/* Within a part rows come in table order; backward in reverse, a row's weight gradient after its activation gradient.
 */
static bool rows_in_order(const struct bp_distributed_task *before, const struct bp_distributed_task *task)
{
    if (part_of(before) != part_of(task))
        return true;
    if (part_of(task) != BACKWARD)
        return before->layer < task->layer;
    return task->layer < before->layer ||
           (task->layer == before->layer && before->phase == BP_PHASE_ACTIVATION_GRADIENT &&
            task->phase == BP_PHASE_WEIGHT_GRADIENT);
}

void bp_gate_check_order(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    for (uint32_t i = gate->at.tasks.first + 1; i < gate->at.tasks.end; i++)
        BP_GATE_EXPECT(gate, rows_in_order(&ir->tasks[i - 1], &ir->tasks[i]), BP_E_structure_violated,
                       bp_gate_path(gate, "/tasks/%u/layer", i), "the row is out of the order of its phase");
}

/* Who wrote each value, in the forward part and again; BP_GATE_NOWHERE for nobody. */
struct writers {
    uint32_t *forward, *again;
};

static bool find_writers(struct bp_gate *gate, struct writers *ret)
{
    const struct bp_distributed_ir *ir = target(gate);
    uint32_t *places = bp_arena_array(gate->arena, 2 * (size_t)ir->n_values, sizeof *places);
    if (!places) {
        bp_gate_no_memory(gate);
        return false;
    }
    memset(places, 0xff, 2 * (size_t)ir->n_values * sizeof *places);
    *ret = (struct writers){places, places + ir->n_values};
    for (BP_GATE_EACH(i, gate->at.tasks)) {
        enum part part = part_of(&ir->tasks[i]);
        const struct bp_list *outputs = &ir->tasks[i].outputs;
        for (uint32_t j = 0; j < outputs->n && (part == FORWARD || part == AGAIN); j++)
            if (outputs->at[j] < ir->n_values)
                (part == FORWARD ? ret->forward : ret->again)[outputs->at[j]] = i;
    }
    return true;
}

static uint32_t writer_of_output(const struct bp_gate *gate, const struct writers *writers)
{
    return block_output(gate) < gate->at.values.end ? writers->forward[block_output(gate)] : BP_GATE_NOWHERE;
}

/* Counts, of the tasks in `writers` that wrote a task's inputs, how many are different and whether it waits for each.
 */
static uint32_t count_awaited(const struct bp_distributed_ir *ir, const struct bp_distributed_task *task,
                              const uint32_t *writers, bool *all_awaited)
{
    uint32_t n = 0;
    for (uint32_t j = 0; j < task->inputs.n; j++) {
        uint32_t value = task->inputs.at[j], writer = value < ir->n_values ? writers[value] : BP_GATE_NOWHERE;
        if (writer == BP_GATE_NOWHERE)
            continue;
        bool again = false;
        for (uint32_t k = 0; k < j; k++)
            again |= task->inputs.at[k] < ir->n_values && writers[task->inputs.at[k]] == writer;
        n += !again;
        *all_awaited &= bp_gate_list_has(&task->dependencies, writer);
    }
    return n;
}

/* What is done again waits for the block's output when nothing it needs is made again. */
void bp_gate_check_dataflow(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    struct writers writers;
    if (!find_writers(gate, &writers))
        return;
    uint32_t last = writer_of_output(gate, &writers), n_forward = 0;
    for (BP_GATE_EACH(i, gate->at.tasks)) {
        const struct bp_distributed_task *task = &ir->tasks[i];
        enum part part = part_of(task);
        n_forward += part == FORWARD;
        if (part != FORWARD && part != AGAIN)
            continue;
        bool awaited = true;
        uint32_t n = count_awaited(ir, task, part == FORWARD ? writers.forward : writers.again, &awaited);
        if (part == AGAIN && n == 0) {
            awaited = bp_gate_list_has(&task->dependencies, last);
            n = 1;
        }
        BP_GATE_EXPECT(gate, awaited && task->dependencies.n == n, BP_E_structure_violated,
                       bp_gate_path(gate, "/tasks/%u/dependencies", i),
                       awaited ? "it waits for more than what made its inputs"
                               : "it does not wait for all that made its inputs");
    }
    BP_GATE_EXPECT(gate, n_forward > 0 && last == gate->at.tasks.first + n_forward - 1, BP_E_structure_violated,
                   "/tasks", "the block's output is not written by the last forward task");
}

/* Who makes the gradient of what. A set of the block's tasks is `words` long, a bit each. */
struct gradients {
    size_t words;
    uint32_t first, last; /* task of the block; the forward task that writes its output */
    uint32_t *outputs;    /* of each row, what its forward task writes; BP_GATE_NOWHERE when it does nothing forward */
    uint64_t *asked;      /* of each value: the activation gradients of the rows that read it, looked through those that
                           * have none; of what the last forward task writes, that task */
    uint64_t *summed;     /* of each task: itself or, when its row does nothing forward, those that it sums */
};

static uint64_t *asked_of(const struct gradients *gradients, uint32_t value)
{
    return gradients->asked + value * gradients->words;
}

static uint64_t *summed_by(const struct gradients *gradients, uint32_t task)
{
    return gradients->summed + (task - gradients->first) * gradients->words;
}

static void set_add(const struct gradients *gradients, uint64_t *set, uint32_t task)
{
    set[(task - gradients->first) / 64] |= UINT64_C(1) << (task - gradients->first) % 64;
}

static void set_union(const struct gradients *gradients, uint64_t *set, const uint64_t *other)
{
    for (size_t i = 0; i < gradients->words; i++)
        set[i] |= other[i];
}

static bool set_meets(const struct gradients *gradients, const uint64_t *set, const uint64_t *other)
{
    bool meets = false;
    for (size_t i = 0; i < gradients->words; i++)
        meets |= (set[i] & other[i]) != 0;
    return meets;
}

static bool set_covers(const struct gradients *gradients, const uint64_t *set, const uint64_t *other)
{
    bool covers = true;
    for (size_t i = 0; i < gradients->words; i++)
        covers &= (other[i] & ~set[i]) == 0;
    return covers;
}

/* Of what an earlier task makes: whether it is a gradient, the forward task's of the block's output among them. */
static bool is_gradient(const struct bp_distributed_ir *ir, const struct gradients *gradients, uint32_t place,
                        uint32_t before)
{
    return place >= gradients->first && place < before &&
           (place == gradients->last || ir->tasks[place].phase == BP_PHASE_ACTIVATION_GRADIENT);
}

/* From the last row to the first: readers come after what they read. */
static void find_asked(struct bp_gate *gate, const uint32_t *own, struct gradients *ret)
{
    const struct bp_distributed_ir *ir = target(gate);
    for (uint32_t i = gate->at.tasks.end; i-- > gate->at.tasks.first;) {
        const struct bp_distributed_task *task = &ir->tasks[i];
        if (part_of(task) != FORWARD || task->layer >= ir->n_layers || ret->outputs[task->layer] == BP_GATE_NOWHERE)
            continue;
        uint64_t *output = asked_of(ret, ret->outputs[task->layer]);
        if (i == ret->last)
            set_add(ret, output, i);
        for (uint32_t j = 0; j < task->inputs.n; j++)
            if (task->inputs.at[j] >= ir->n_values)
                continue;
            else if (own[task->layer] == BP_GATE_NOWHERE)
                set_union(ret, asked_of(ret, task->inputs.at[j]), output);
            else
                set_add(ret, asked_of(ret, task->inputs.at[j]), own[task->layer]);
    }
}

static void find_summed(struct bp_gate *gate, struct gradients *ret)
{
    const struct bp_distributed_ir *ir = target(gate);
    for (BP_GATE_EACH(i, gate->at.tasks)) {
        const struct bp_distributed_task *task = &ir->tasks[i];
        bool sums =
            part_of(task) == BACKWARD && task->layer < ir->n_layers && ret->outputs[task->layer] == BP_GATE_NOWHERE;
        if (!sums)
            set_add(ret, summed_by(ret, i), i);
        for (uint32_t j = 0; j < task->dependencies.n && sums; j++)
            if (is_gradient(ir, ret, task->dependencies.at[j], i))
                set_union(ret, summed_by(ret, i), summed_by(ret, task->dependencies.at[j]));
    }
}

static bool find_gradients(struct bp_gate *gate, const struct writers *writers, struct gradients *ret)
{
    const struct bp_distributed_ir *ir = target(gate);
    const size_t n_tasks = gate->at.tasks.end - gate->at.tasks.first, words = n_tasks / 64 + 1;
    *ret = (struct gradients){
        .words = words,
        .first = gate->at.tasks.first,
        .last = writer_of_output(gate, writers),
        .outputs = bp_arena_array(gate->arena, ir->n_layers, sizeof *ret->outputs),
        .asked = bp_arena_array(gate->arena, ir->n_values, words * sizeof *ret->asked),
        .summed = bp_arena_array(gate->arena, n_tasks, words * sizeof *ret->summed),
    };
    uint32_t *own = bp_arena_array(gate->arena, ir->n_layers, sizeof *own);
    if (!ret->outputs || !ret->asked || !ret->summed || !own) {
        bp_gate_no_memory(gate);
        return false;
    }
    memset(ret->outputs, 0xff, ir->n_layers * sizeof *ret->outputs);
    memset(own, 0xff, ir->n_layers * sizeof *own);
    for (BP_GATE_EACH(i, gate->at.tasks)) {
        const struct bp_distributed_task *task = &ir->tasks[i];
        if (task->layer >= ir->n_layers)
            continue;
        if (part_of(task) == FORWARD && task->outputs.n > 0 && task->outputs.at[task->outputs.n - 1] < ir->n_values)
            ret->outputs[task->layer] = task->outputs.at[task->outputs.n - 1];
        if (task->phase == BP_PHASE_ACTIVATION_GRADIENT)
            own[task->layer] = i;
    }
    find_asked(gate, own, ret);
    find_summed(gate, ret);
    return true;
}

/* Whether task `i` waits for gradients that make up the gradient of its row's output, each of which has a part in it.
 * What does nothing forward sums the gradients of those that read through it: a fork of several, a collective of some.
 * Counts those gradients. */
static bool waits_for_gradient(struct bp_gate *gate, const struct gradients *gradients, uint32_t i, uint32_t *ret_n)
{
    const struct bp_distributed_ir *ir = target(gate);
    const struct bp_distributed_task *task = &ir->tasks[i];
    const uint32_t output = task->layer < ir->n_layers ? gradients->outputs[task->layer] : BP_GATE_NOWHERE;
    const uint64_t *asked = output == BP_GATE_NOWHERE ? NULL : asked_of(gradients, output);
    uint64_t *has = bp_arena_array(gate->arena, gradients->words, sizeof *has);
    bool all_asked = true;
    if (!has) {
        bp_gate_no_memory(gate);
        return true;
    }
    for (uint32_t j = 0; j < task->dependencies.n; j++) {
        const uint32_t place = task->dependencies.at[j];
        if (!is_gradient(ir, gradients, place, i))
            continue;
        ++*ret_n;
        set_union(gradients, has, summed_by(gradients, place));
        all_asked &= !asked || set_meets(gradients, summed_by(gradients, place), asked);
    }
    if (!asked)
        return *ret_n >= (task->kind == BP_TASK_COLLECTIVE ? 1 : 2);
    return all_asked && set_covers(gradients, has, asked);
}

/* A backward task waits for the gradients of its row's output (for the block's own, the forward task that made it), a
 * fork for those it sums, and for whatever makes again the values it reads; for nothing else, never for a weight
 * gradient. */
void bp_gate_check_backward(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    struct writers writers;
    struct gradients gradients;
    if (!find_writers(gate, &writers) || !find_gradients(gate, &writers, &gradients))
        return;
    for (BP_GATE_EACH(i, gate->at.tasks)) {
        const struct bp_distributed_task *task = &ir->tasks[i];
        if (part_of(task) != BACKWARD)
            continue;
        bool awaited = true;
        uint32_t n_again = count_awaited(ir, task, writers.again, &awaited), n_gradients = 0;
        bool right = waits_for_gradient(gate, &gradients, i, &n_gradients);
        BP_GATE_EXPECT(gate, awaited, BP_E_structure_violated, bp_gate_path(gate, "/tasks/%u/dependencies", i),
                       "it does not wait for what makes its operands again");
        BP_GATE_EXPECT(gate, right && n_gradients > 0 && n_gradients + n_again == task->dependencies.n,
                       BP_E_structure_violated, bp_gate_path(gate, "/tasks/%u/dependencies", i), "%s",
                       right ? "it waits for more than its gradient and operands"
                             : "it does not wait for the gradient of its row's output");
    }
}

/* An optimizer task overwrites its row's weights: it waits for all that reads them after the forward part, and for the
 * gradient that it applies. */
void bp_gate_check_updates(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    uint32_t *readers = bp_arena_array(gate->arena, ir->n_layers, sizeof *readers);
    if (!readers) {
        bp_gate_no_memory(gate);
        return;
    }
    for (BP_GATE_EACH(i, gate->at.tasks)) {
        const struct bp_distributed_task *task = &ir->tasks[i];
        if (task->layer >= ir->n_layers)
            continue;
        if (part_of(task) == AGAIN || part_of(task) == BACKWARD)
            readers[task->layer]++;
        if (part_of(task) != UPDATE)
            continue;
        uint32_t n_own = 0;
        for (uint32_t j = 0; j < task->dependencies.n; j++) {
            uint32_t place = task->dependencies.at[j];
            n_own += place < i && ir->tasks[place].layer == task->layer && part_of(&ir->tasks[place]) != FORWARD;
        }
        BP_GATE_EXPECT(gate, n_own == readers[task->layer] && n_own == task->dependencies.n, BP_E_structure_violated,
                       bp_gate_path(gate, "/tasks/%u/dependencies", i),
                       "it does not wait for exactly the %u tasks of its row after the forward part",
                       readers[task->layer]);
    }
}
