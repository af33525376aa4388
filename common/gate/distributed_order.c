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

/* How many gradients a row's output has where no fork sums all of them into one: one of each product of activations and
 * each collective that reads it, and one of all else that does. */
static uint32_t gradients_of(const struct bp_gate *gate, uint32_t layer, uint32_t value)
{
    const struct bp_distributed_ir *ir = target(gate);
    uint32_t apart = 0, summed = 0;
    for (BP_GATE_EACH(i, gate->at.tasks)) {
        const struct bp_distributed_task *task = &ir->tasks[i];
        if (part_of(task) != FORWARD || task->layer == layer || task->layer >= ir->n_layers ||
            !bp_gate_list_has(&task->inputs, value))
            continue;
        bool product = task->engine == BP_ENGINE_MATRIX && ir->layers[task->layer].parameters == 0;
        *(product || task->kind == BP_TASK_COLLECTIVE ? &apart : &summed) += 1;
    }
    return apart + summed > 0 ? apart + (summed > 0) : 1;
}

/* The value that a row's forward task writes; BP_GATE_NOWHERE for none. */
static uint32_t output_of(const struct bp_gate *gate, uint32_t layer)
{
    const struct bp_distributed_ir *ir = target(gate);
    for (BP_GATE_EACH(i, gate->at.tasks)) {
        const struct bp_distributed_task *task = &ir->tasks[i];
        if (task->layer == layer && part_of(task) == FORWARD && task->outputs.n > 0)
            return task->outputs.at[task->outputs.n - 1];
    }
    return BP_GATE_NOWHERE;
}

/* A backward task waits for the gradients of its row's output (for the block's own, the forward task that made it), a
 * fork for those it sums, and for whatever makes again the values it reads; for nothing else, never for a weight
 * gradient. */
void bp_gate_check_backward(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = target(gate);
    struct writers writers;
    if (!find_writers(gate, &writers))
        return;
    uint32_t last = writer_of_output(gate, &writers);
    for (BP_GATE_EACH(i, gate->at.tasks)) {
        const struct bp_distributed_task *task = &ir->tasks[i];
        if (part_of(task) != BACKWARD)
            continue;
        bool awaited = true;
        uint32_t n_again = count_awaited(ir, task, writers.again, &awaited), n_gradients = 0;
        for (uint32_t j = 0; j < task->dependencies.n; j++) {
            uint32_t place = task->dependencies.at[j];
            n_gradients += place < i && (place == last || ir->tasks[place].phase == BP_PHASE_ACTIVATION_GRADIENT);
        }
        BP_GATE_EXPECT(gate, awaited, BP_E_structure_violated, bp_gate_path(gate, "/tasks/%u/dependencies", i),
                       "it does not wait for what makes its operands again");
        uint32_t output = output_of(gate, task->layer);
        /* What does nothing forward sums the gradients of those that read through it: a fork of several, a collective
         * of some. */
        bool sums = output == BP_GATE_NOWHERE;
        uint32_t least = task->kind == BP_TASK_COLLECTIVE ? 1 : 2;
        bool right =
            sums ? n_gradients >= least : n_gradients == 1 || n_gradients == gradients_of(gate, task->layer, output);
        bool fits = right && n_gradients + n_again == task->dependencies.n;
        BP_GATE_EXPECT(gate, fits, BP_E_structure_violated, bp_gate_path(gate, "/tasks/%u/dependencies", i), "%s",
                       n_gradients ? "it waits for more than its gradient and operands" : "it waits for no gradient");
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
