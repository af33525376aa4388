#include "common/gate/distributed.h"

#include <string.h>

/* Value 1 is the block's output, which the last forward task writes beside its row's. */
enum { BLOCK_OUTPUT = 1 };

/* A row as the values and tasks of the snapshot show it. */
struct row {
    const struct bp_distributed_task *forward; /* NULL when it does nothing forward */
    bp_u128 inputs, parameters, output; /* elements that a rank holds of what the forward task reads and writes */
    bool has_output;
    uint32_t parameters_value; /* BP_GATE_NOWHERE when it has none */
    bool is_dropout, is_residual;
};

struct view {
    const struct bp_distributed_ir *ir;
    struct bp_gate_held held;
    const struct row *rows; /* of each of the layers */
};

static bool is_forward(const struct bp_distributed_task *task)
{
    return task->phase == BP_PHASE_FORWARD || task->phase == BP_PHASE_PREFILL || task->phase == BP_PHASE_DECODE;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static void see_forward(const struct bp_distributed_ir *ir, const struct bp_gate_held *held,
                        const struct bp_distributed_task *task, struct row *row)
{
    struct bp_calc calc = {0};
    row->forward = task;
    for (uint32_t j = 0; j < task->inputs.n; j++) {
        uint32_t value = task->inputs.at[j];
        if (value >= ir->n_values)
            continue;
        bp_u128 *sum = held->is_parameters[value] ? &row->parameters : &row->inputs;
        *sum = bp_add(&calc, *sum, held->elements[value]);
        if (held->is_parameters[value])
            row->parameters_value = value;
    }
    for (uint32_t j = 0; j < task->outputs.n; j++) {
        uint32_t value = task->outputs.at[j];
        if (value != BLOCK_OUTPUT && value < ir->n_values) {
            row->output = held->elements[value];
            row->has_output = true;
        }
    }
}

static bool see(struct bp_gate *gate, struct view *ret)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    struct row *rows = bp_arena_array(gate->arena, ir->n_layers, sizeof *rows);
    struct bp_gate_held held;
    if (!rows) {
        bp_gate_no_memory(gate);
        return false;
    }
    if (!bp_gate_hold(gate, &held))
        return false;
    for (uint32_t i = 0; i < ir->n_layers; i++) {
        rows[i].parameters_value = BP_GATE_NOWHERE;
        rows[i].is_dropout = ends_with(ir->layers[i].name, "dropout");
        rows[i].is_residual = ends_with(ir->layers[i].name, ".residual");
    }
    for (uint32_t i = 0; i < ir->n_tasks; i++)
        if (is_forward(&ir->tasks[i]) && ir->tasks[i].layer < ir->n_layers)
            see_forward(ir, &held, &ir->tasks[i], &rows[ir->tasks[i].layer]);
    *ret = (struct view){ir, held, rows};
    return true;
}

/* One number of the work of task `i`. */
static void expect(struct bp_gate *gate, uint32_t i, const char *key, const struct bp_calc *calc, bp_u128 expected,
                   bp_u128 actual)
{
    BP_GATE_EXPECT(gate, bp_calc_ok(calc) && expected == actual, BP_E_structure_violated,
                   bp_gate_path(gate, "/tasks/%u/work/%s", i, key), "it is not what the task's values give");
}

/* A row with parts of the fused query, key and value reads those parts only. */
static bool reads_a_part(const struct view *view, const struct bp_distributed_task *task)
{
    static const char *const fused[] = {"attention.qkv.output", "attention.qk_norm.output", "attention.rope.output"};
    for (uint32_t j = 0; j < task->inputs.n; j++)
        for (size_t k = 0; k < BP_GATE_COUNT(fused); k++)
            if (task->inputs.at[j] < view->ir->n_values &&
                strcmp(view->ir->values[task->inputs.at[j]].role, fused[k]) == 0)
                return true;
    return false;
}

static bool writes_a_part(const struct bp_distributed_task *task)
{
    return task->effect.has && task->effect.access == BP_ACCESS_WRITE;
}

static bp_u128 least(bp_u128 a, bp_u128 b)
{
    return a < b ? a : b;
}

void bp_gate_check_forward_traffic(struct bp_gate *gate)
{
    struct view view;
    bp_u128 e = gate->symbols->e;
    if (!see(gate, &view))
        return;
    for (uint32_t i = 0; i < view.ir->n_tasks; i++) {
        const struct bp_distributed_task *task = &view.ir->tasks[i];
        if (!is_forward(task) || task->kind == BP_TASK_COLLECTIVE || task->layer >= view.ir->n_layers)
            continue;
        const struct row *row = &view.rows[task->layer];
        struct bp_calc calc = {0};
        bp_u128 read = bp_mul(&calc, bp_add(&calc, row->inputs, row->parameters), e);
        bp_u128 write = bp_add(&calc, bp_mul(&calc, row->output, e), row->is_dropout ? row->output : 0);
        bp_u128 has_read = task->work.read.n, has_written = task->work.write.n;
        expect(gate, i, "read_bytes", &calc, reads_a_part(&view, task) ? least(read, has_read) : read, has_read);
        expect(gate, i, "write_bytes", &calc, writes_a_part(task) ? least(write, has_written) : write, has_written);
        BP_GATE_EXPECT(gate, row->has_output, BP_E_structure_violated, bp_gate_path(gate, "/tasks/%u/outputs", i),
                       "it does not write its row's output");
    }
}

void bp_gate_check_repeats(struct bp_gate *gate)
{
    struct view view;
    if (!see(gate, &view))
        return;
    for (uint32_t i = 0; i < view.ir->n_tasks; i++) {
        const struct bp_distributed_task *task = &view.ir->tasks[i];
        bool again = task->phase == BP_PHASE_RECOMPUTE || task->phase == BP_PHASE_RECOMMUNICATION;
        if (!again || task->layer >= view.ir->n_layers)
            continue;
        const struct bp_distributed_task *first = view.rows[task->layer].forward;
        bool same = first && bp_work_equal(&task->work, &first->work) && task->kind == first->kind &&
                    task->engine == first->engine && task->collective == first->collective;
        BP_GATE_EXPECT(gate, same, BP_E_structure_violated, bp_gate_path(gate, "/tasks/%u/work", i),
                       "it is not the work of its row's forward task");
        /* The block's output, which stands before every row's, is not written again. */
        bool same_values = first && bp_gate_list_equal(&task->inputs, &first->inputs) && task->outputs.n == 1 &&
                           first->outputs.n > 0 && task->outputs.at[0] == first->outputs.at[first->outputs.n - 1];
        BP_GATE_EXPECT(gate, same_values, BP_E_structure_violated, bp_gate_path(gate, "/tasks/%u/outputs", i),
                       "it does not make the row's output from the row's inputs again");
    }
}

/* A fork sums the gradients of its users: it reads one more than it adds. */
static void expect_fork(struct bp_gate *gate, const struct view *view, uint32_t i)
{
    const struct bp_distributed_task *task = &view->ir->tasks[i];
    struct bp_calc calc = {0};
    bp_u128 added = bp_mul(&calc, task->work.operations.n, gate->symbols->e);
    expect(gate, i, "write_bytes", &calc, view->ir->layers[task->layer].activation.n, task->work.write.n);
    expect(gate, i, "read_bytes", &calc, bp_add(&calc, added, task->work.write.n), task->work.read.n);
}

/* Beside its output's gradient a row without parameters reads its inputs, a dropout its mask; one with parameters at
 * most both and these. It writes the gradient of its inputs. */
static void expect_activation_gradient(struct bp_gate *gate, const struct row *row, uint32_t i,
                                       const struct bp_distributed_task *task)
{
    struct bp_calc calc = {0};
    bp_u128 e = gate->symbols->e, output = bp_mul(&calc, row->output, e);
    bp_u128 operands = row->is_dropout ? row->output : bp_mul(&calc, row->inputs, e);
    bp_u128 most = BP_SUM(&calc, output, operands, bp_mul(&calc, row->parameters, e)), read = task->work.read.n;
    bool exact = row->parameters == 0;
    expect(gate, i, "read_bytes", &calc, exact || read < output ? most : least(most, read), read);
    expect(gate, i, "write_bytes", &calc, bp_mul(&calc, row->inputs, e), task->work.write.n);
    if (task->engine == BP_ENGINE_MATRIX)
        expect(gate, i, "operations", &calc, bp_mul(&calc, exact ? 2 : 1, row->forward->work.operations.n),
               task->work.operations.n);
}

static void expect_weight_gradient(struct bp_gate *gate, const struct row *row, uint32_t i,
                                   const struct bp_distributed_task *task)
{
    struct bp_calc calc = {0};
    bp_u128 e = gate->symbols->e;
    expect(gate, i, "read_bytes", &calc, bp_mul(&calc, bp_add(&calc, row->inputs, row->output), e), task->work.read.n);
    expect(gate, i, "write_bytes", &calc, bp_mul(&calc, row->parameters, gate->symbols->g), task->work.write.n);
    if (task->engine == BP_ENGINE_MATRIX)
        expect(gate, i, "operations", &calc, row->forward->work.operations.n, task->work.operations.n);
    /* The row's inputs, without its parameters. */
    uint32_t n = 0;
    for (uint32_t j = 0; j < row->forward->inputs.n; j++)
        n += row->forward->inputs.at[j] != row->parameters_value;
    bool same = task->inputs.n == n;
    for (uint32_t j = 0; j < task->inputs.n; j++)
        same &= bp_gate_list_has(&row->forward->inputs, task->inputs.at[j]);
    BP_GATE_EXPECT(gate, same, BP_E_structure_violated, bp_gate_path(gate, "/tasks/%u/inputs", i),
                   "they are not the inputs of its row");
}

void bp_gate_check_gradient_work(struct bp_gate *gate)
{
    struct view view;
    if (!see(gate, &view))
        return;
    for (uint32_t i = 0; i < view.ir->n_tasks; i++) {
        const struct bp_distributed_task *task = &view.ir->tasks[i];
        if (task->kind == BP_TASK_COLLECTIVE || task->layer >= view.ir->n_layers)
            continue;
        const struct row *row = &view.rows[task->layer];
        if (task->phase == BP_PHASE_ACTIVATION_GRADIENT && !row->forward)
            expect_fork(gate, &view, i);
        else if (task->phase == BP_PHASE_ACTIVATION_GRADIENT)
            expect_activation_gradient(gate, row, i, task);
        else if (task->phase == BP_PHASE_WEIGHT_GRADIENT && row->forward)
            expect_weight_gradient(gate, row, i, task);
    }
}

/* Adam on `own` parameters: 11 operations each; reads gradient, state and, without an fp32 master copy in the state,
 * the weights; writes state and weights. */
void bp_gate_check_optimizer_work(struct bp_gate *gate)
{
    struct view view;
    const struct bp_symbols *s = gate->symbols;
    if (!see(gate, &view))
        return;
    for (uint32_t i = 0; i < view.ir->n_tasks; i++) {
        const struct bp_distributed_task *task = &view.ir->tasks[i];
        if (task->phase != BP_PHASE_OPTIMIZER || task->layer >= view.ir->n_layers)
            continue;
        struct bp_calc calc = {0};
        bool sharded = view.ir->strategy.zero_stage >= 1, has_master = s->e < 4;
        bp_u128 P = view.ir->layers[task->layer].parameters;
        bp_u128 own = bp_div_ceil(&calc, P, sharded ? view.ir->strategy.data_parallel : 1);
        bp_u128 state = bp_mul(&calc, own, has_master ? 12 : 8), weights = bp_mul(&calc, own, s->e);
        expect(gate, i, "operations", &calc, bp_mul(&calc, own, 11), task->work.operations.n);
        expect(gate, i, "read_bytes", &calc, BP_SUM(&calc, bp_mul(&calc, own, s->g), state, has_master ? 0 : weights),
               task->work.read.n);
        expect(gate, i, "write_bytes", &calc, bp_add(&calc, state, weights), task->work.write.n);
        const uint32_t value = view.rows[task->layer].parameters_value;
        bool in_place =
            task->inputs.n == 1 && task->inputs.at[0] == value && task->outputs.n == 1 && task->outputs.at[0] == value;
        BP_GATE_EXPECT(gate, in_place, BP_E_structure_violated, bp_gate_path(gate, "/tasks/%u/outputs", i),
                       "it does not update its row's parameters in place");
    }
}

/* A and O of a row that a collective makes up: the payload, or this rank's share of it. */
static void expect_collective_row(struct bp_gate *gate, uint32_t i, const struct bp_distributed_layer *layer)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_u128 payload = bp_mul(&calc, s->X, s->e), share = bp_mul(&calc, s->Xs, s->e), A = layer->activation.n;
    BP_GATE_EXPECT(gate, layer->output.n == payload, BP_E_structure_violated,
                   bp_gate_path(gate, "/layers/%u/output_bytes", i), "it is not the payload of the collective");
    BP_GATE_EXPECT(gate, A == share || (!s->sequence_parallel && A == 0), BP_E_structure_violated,
                   bp_gate_path(gate, "/layers/%u/activation_bytes", i), "it is not what the collective would keep");
}

/* Of a dropout the mask is kept, a byte an element; of a sum one input, which is as large as the output. */
static void expect_row(struct bp_gate *gate, uint32_t i, const struct bp_distributed_layer *layer,
                       const struct row *row)
{
    struct bp_calc calc = {0};
    bp_u128 output = bp_mul(&calc, row->output, gate->symbols->e);
    bp_u128 activation = row->is_dropout    ? row->output
                         : row->is_residual ? output
                                            : bp_mul(&calc, row->inputs, gate->symbols->e);
    BP_GATE_EXPECT(gate, layer->output.n == output, BP_E_structure_violated,
                   bp_gate_path(gate, "/layers/%u/output_bytes", i), "it is not what a rank holds of the output");
    BP_GATE_EXPECT(gate, layer->activation.n == activation, BP_E_structure_violated,
                   bp_gate_path(gate, "/layers/%u/activation_bytes", i), "it is not what a rank holds of the inputs");
}

/* The row of each collective, whichever phase it is in, counts as one; the rest by their forward computation. */
void bp_gate_check_activations(struct bp_gate *gate)
{
    struct view view;
    if (!see(gate, &view))
        return;
    bool *collective = bp_arena_array(gate->arena, view.ir->n_layers, sizeof *collective);
    if (!collective) {
        bp_gate_no_memory(gate);
        return;
    }
    for (uint32_t i = 0; i < view.ir->n_tasks; i++)
        if (view.ir->tasks[i].layer < view.ir->n_layers)
            collective[view.ir->tasks[i].layer] |= view.ir->tasks[i].kind == BP_TASK_COLLECTIVE;
    for (uint32_t i = 0; view.ir->workload.mode == BP_MODE_TRAINING && i < view.ir->n_layers; i++) {
        if (collective[i])
            expect_collective_row(gate, i, &view.ir->layers[i]);
        else if (view.rows[i].forward)
            expect_row(gate, i, &view.ir->layers[i], &view.rows[i]);
    }
}
