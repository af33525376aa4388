#include "common/gate/distributed.h"

#include <string.h>

/* A row as the values and tasks of the snapshot show it; in elements that a rank holds. */
struct row {
    const struct bp_distributed_task *forward; /* NULL when it does nothing forward */
    bp_u128 inputs, parameters, output;        /* what the forward task reads and writes, whole or in part */
    bp_u128 keeps;                             /* of the inputs, for the backward pass */
    bp_u128 cache_reads, cache_writes, cache_holds;
    bp_u128 holds;                           /* of the output value */
    uint32_t parameters_value, output_value; /* BP_GATE_NOWHERE when it has none */
    bool is_dropout, is_residual, is_softmax, is_soft_cap, is_top_k, is_permute, is_unpermute, is_bias;
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

static void see_forward(struct bp_gate *gate, const struct bp_gate_held *held, const struct bp_distributed_task *task,
                        struct row *row)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
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
        if (value != gate->at.values.first + 1 && value < ir->n_values) {
            row->output = row->holds = held->elements[value];
            row->output_value = value;
        }
    }
    row->keeps = row->inputs;
    struct bp_gate_part part = {0};
    if (bp_gate_takes_part(gate, ir->layers[task->layer].name, &calc, &part)) {
        row->inputs = part.reads;
        row->keeps = part.keeps;
        row->output = part.writes;
        row->cache_reads = part.cache_reads;
        row->cache_writes = part.cache_writes;
        row->cache_holds = part.cache_holds;
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
    for (BP_GATE_EACH(i, gate->at.layers)) {
        const char *name = ir->layers[i].name;
        rows[i].parameters_value = rows[i].output_value = BP_GATE_NOWHERE;
        rows[i].is_dropout = ends_with(name, "dropout");
        rows[i].is_residual =
            ends_with(name, ".residual") || strcmp(name, "block.sum") == 0 || strcmp(name, "shared.add") == 0;
        rows[i].is_softmax = ends_with(name, "softmax");
        rows[i].is_soft_cap = strcmp(name, "attention.soft_cap") == 0;
        rows[i].is_top_k = strcmp(name, "moe.top_k") == 0;
        rows[i].is_permute = strcmp(name, "moe.permute") == 0;
        rows[i].is_unpermute = strcmp(name, "moe.unpermute") == 0;
        rows[i].is_bias = strcmp(name, "attention.position_bias") == 0;
    }
    for (BP_GATE_EACH(i, gate->at.tasks))
        if (is_forward(&ir->tasks[i]) && ir->tasks[i].layer < ir->n_layers)
            see_forward(gate, &held, &ir->tasks[i], &rows[ir->tasks[i].layer]);
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

static bp_u128 cache_bytes(const struct bp_gate *gate)
{
    return bp_dtype_bytes(gate->request->workload.kv_cache_dtype);
}

/* A dropout writes its mask beside. */
static bp_u128 written(const struct bp_gate *gate, const struct row *row, struct bp_calc *calc)
{
    return BP_SUM(calc, bp_mul(calc, row->output, gate->symbols->e), row->is_dropout ? row->output : 0,
                  bp_mul(calc, row->cache_writes, cache_bytes(gate)));
}

static bp_u128 read_once(const struct bp_gate *gate, const struct row *row, struct bp_calc *calc)
{
    return bp_add(calc, bp_mul(calc, bp_add(calc, row->inputs, row->parameters), gate->symbols->e),
                  bp_mul(calc, row->cache_reads, cache_bytes(gate)));
}

/* What a rank has after a collective: its share of what is scattered, else all of the payload. */
static bp_u128 received(const struct bp_gate *gate, const struct bp_distributed_task *task, struct bp_calc *calc)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    bp_u128 payload = bp_gate_payload(gate, ir->layers[task->layer].name, calc);
    bool scatters = task->collective == BP_COLLECTIVE_REDUCE_SCATTER;
    return scatters ? bp_div(calc, payload, bp_distributed_axis_size(ir, task->axis)) : payload;
}

static void expect_output(struct bp_gate *gate, uint32_t i, const struct row *row,
                          const struct bp_distributed_task *task)
{
    struct bp_calc calc = {0};
    bp_u128 holds = task->kind == BP_TASK_COLLECTIVE ? received(gate, task, &calc) : row->cache_holds;
    BP_GATE_EXPECT(gate, row->output_value != BP_GATE_NOWHERE, BP_E_structure_violated,
                   bp_gate_path(gate, "/tasks/%u/outputs", i), "it does not write its row's output");
    if (row->output_value != BP_GATE_NOWHERE)
        bp_gate_exact(gate, BP_E_structure_violated, bp_gate_path(gate, "/values/%u/shape", row->output_value), &calc,
                      holds ? holds : row->output, row->holds);
}

void bp_gate_check_forward_traffic(struct bp_gate *gate)
{
    struct view view;
    if (!see(gate, &view))
        return;
    for (BP_GATE_EACH(i, gate->at.tasks)) {
        const struct bp_distributed_task *task = &view.ir->tasks[i];
        if (!is_forward(task) || task->layer >= view.ir->n_layers)
            continue;
        const struct row *row = &view.rows[task->layer];
        expect_output(gate, i, row, task);
        if (task->kind == BP_TASK_COLLECTIVE)
            continue;
        struct bp_calc calc = {0};
        expect(gate, i, "read_bytes", &calc, read_once(gate, row, &calc), task->work.read.n);
        expect(gate, i, "write_bytes", &calc, written(gate, row, &calc), task->work.write.n);
    }
}

void bp_gate_check_repeats(struct bp_gate *gate)
{
    struct view view;
    if (!see(gate, &view))
        return;
    for (BP_GATE_EACH(i, gate->at.tasks)) {
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

/* A fork sums the gradients of its users, and waits for each: it reads one more than it adds. */
static void expect_fork(struct bp_gate *gate, const struct view *view, uint32_t i)
{
    const struct bp_distributed_task *task = &view->ir->tasks[i];
    struct bp_calc calc = {0};
    bp_u128 read = bp_add(&calc, bp_mul(&calc, task->work.operations.n, gate->symbols->e), task->work.write.n);
    expect(gate, i, "write_bytes", &calc, view->ir->layers[task->layer].activation.n, task->work.write.n);
    expect(gate, i, "read_bytes", &calc, read, task->work.read.n);
    BP_GATE_EXPECT(gate, bp_mul(&calc, task->dependencies.n, task->work.write.n) == read, BP_E_structure_violated,
                   bp_gate_path(gate, "/tasks/%u/dependencies", i),
                   "it does not wait for as many gradients as it sums");
}

/* The n*k weights of a product [m,n] x [n,k], without a bias, from 2mnk, mn and mk; of every local expert, as each pair
 * meets the weights of one. */
static bp_u128 weights_of_product(const struct bp_gate *gate, const struct row *row, struct bp_calc *calc)
{
    bp_u128 mnk = bp_div(calc, row->forward->work.operations.n, 2);
    bp_u128 weights = bp_div(calc, mnk, bp_div(calc, bp_mul(calc, row->inputs, row->output), mnk));
    bool experts = gate->target.as.distributed->values[row->parameters_value].n_dims == 3;
    return experts ? bp_mul(calc, weights, bp_div(calc, gate->symbols->E, gate->symbols->ep)) : weights;
}

/* Vectors of a norm: its scale and, of a layer norm that has one, its bias; of query and key as the kind says. */
static bp_u128 norm_vectors(const struct bp_gate *gate, const struct row *row)
{
    const struct bp_model *model = &gate->request->model;
    const char *name = gate->target.as.distributed->layers[row->forward->layer].name;
    if (strcmp(name, "attention.query_norm") == 0 || strcmp(name, "attention.key_norm") == 0)
        return gate->symbols->kind->qk_norm_bias ? 2 : 1;
    return model->norm == BP_NORM_LAYERNORM && !model->norm_without_bias ? 2 : 1;
}

/* What an activation gradient reads beside its output's gradient, in bytes: a product with weights these, a dropout its
 * mask, a norm its input and its scale, a permutation back nothing, one that keeps its output or its choice that, any
 * other row its inputs. */
static bp_u128 operands_of(struct bp_gate *gate, const struct row *row, struct bp_calc *calc)
{
    bp_u128 e = gate->symbols->e, routed = row->output / (gate->symbols->H ? gate->symbols->H : 1);
    if (row->is_dropout)
        return row->output;
    if (row->is_unpermute)
        return 0;
    if (row->is_softmax || row->is_soft_cap || row->is_top_k)
        return bp_mul(calc, row->output, e);
    if (row->is_permute)
        return bp_mul(calc, routed, e);
    if (row->parameters == 0)
        return bp_mul(calc, row->inputs, e);
    if (row->forward->engine == BP_ENGINE_MATRIX)
        return bp_mul(calc, weights_of_product(gate, row, calc), e);
    return bp_mul(calc, bp_add(calc, row->inputs, bp_div(calc, row->parameters, norm_vectors(gate, row))), e);
}

/* Those operands as values: what keeps its own output reads that, a permutation the choice, the last it reads. */
static bool reads_operands(const struct row *row, const struct bp_list *inputs)
{
    const struct bp_list *forward = &row->forward->inputs;
    if (row->is_unpermute)
        return inputs->n == 0;
    if (row->is_permute)
        return inputs->n == 1 && forward->n > 0 && inputs->at[0] == forward->at[forward->n - 1];
    if (row->is_dropout || row->is_softmax || row->is_soft_cap || row->is_top_k)
        return inputs->n == 1 && inputs->at[0] == row->output_value;
    if (row->parameters > 0 && row->forward->engine == BP_ENGINE_MATRIX)
        return inputs->n == 1 && inputs->at[0] == row->parameters_value;
    return bp_gate_list_equal(inputs, forward);
}

static void expect_activation_gradient(struct bp_gate *gate, const struct row *row, uint32_t i,
                                       const struct bp_distributed_task *task)
{
    struct bp_calc calc = {0};
    bp_u128 e = gate->symbols->e, output = bp_mul(&calc, row->output, e);
    bp_u128 read = bp_add(&calc, output, operands_of(gate, row, &calc));
    expect(gate, i, "read_bytes", &calc, read, task->work.read.n);
    expect(gate, i, "write_bytes", &calc, bp_mul(&calc, row->inputs, e), task->work.write.n);
    if (task->engine == BP_ENGINE_MATRIX)
        expect(gate, i, "operations", &calc,
               bp_mul(&calc, row->parameters > 0 ? 1 : 2, row->forward->work.operations.n), task->work.operations.n);
    BP_GATE_EXPECT(gate, reads_operands(row, &task->inputs), BP_E_structure_violated,
                   bp_gate_path(gate, "/tasks/%u/inputs", i), "they are not what its row's gradient is made of");
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
    for (BP_GATE_EACH(i, gate->at.tasks)) {
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
    for (BP_GATE_EACH(i, gate->at.tasks)) {
        const struct bp_distributed_task *task = &view.ir->tasks[i];
        if (task->phase != BP_PHASE_OPTIMIZER || task->layer >= view.ir->n_layers)
            continue;
        struct bp_calc calc = {0};
        bool sharded = view.ir->strategy.zero_stage >= 1, has_master = s->e < 4;
        bp_u128 P = view.ir->layers[task->layer].parameters;
        bp_u128 own = bp_div_ceil(&calc, P, sharded ? bp_gate_replicas(gate, task->layer) : 1);
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

/* O of a row that a collective makes up is its payload, of one that scatters over an expert's tensor group this rank's
 * share; A is what the rank put in: the same, or its share of what is gathered; of a plain tensor boundary without
 * sequence parallelism nothing. */
static void expect_collective_row(struct bp_gate *gate, uint32_t i, const struct bp_distributed_layer *layer,
                                  const struct bp_distributed_task *task)
{
    const struct bp_symbols *s = gate->symbols;
    struct bp_calc calc = {0};
    bp_u128 payload = bp_mul(&calc, bp_gate_payload(gate, layer->name, &calc), s->e);
    bp_u128 ranks = bp_distributed_axis_size(gate->target.as.distributed, task->axis);
    bool tensor = task->axis == BP_AXIS_TENSOR, scatters = strcmp(layer->name, "moe.scatter") == 0;
    bool exchanges = task->collective == BP_COLLECTIVE_ALL_TO_ALL;
    bp_u128 share = ranks && !exchanges ? bp_div(&calc, payload, ranks) : 0, A = layer->activation.n;
    bool fits = tensor      ? A == (s->sequence_parallel ? share : payload) || (!s->sequence_parallel && A == 0)
                : exchanges ? A == payload
                            : A == (scatters ? payload : share);
    BP_GATE_EXPECT(gate, bp_calc_ok(&calc) && layer->output.n == (scatters ? share : payload), BP_E_structure_violated,
                   bp_gate_path(gate, "/layers/%u/output_bytes", i), "it is not the payload of the collective");
    BP_GATE_EXPECT(gate, fits, BP_E_structure_violated, bp_gate_path(gate, "/layers/%u/activation_bytes", i),
                   "it is not what the collective would keep");
}

/* Of a dropout the mask is kept, a byte an element; of what is read as its output one tensor as large as that. A fork
 * has no output, and its activation is held to its gradient. */
static void expect_row(struct bp_gate *gate, uint32_t i, const struct bp_distributed_layer *layer,
                       const struct row *row)
{
    struct bp_calc calc = {0};
    bp_u128 output = bp_mul(&calc, row->output, gate->symbols->e);
    bp_u128 activation = row->is_dropout ? row->output
                         : row->is_residual || row->is_softmax || row->is_soft_cap || row->is_top_k || row->is_bias
                             ? output
                             : bp_mul(&calc, row->keeps, gate->symbols->e);
    BP_GATE_EXPECT(gate, layer->output.n == output, BP_E_structure_violated,
                   bp_gate_path(gate, "/layers/%u/output_bytes", i), "it is not what a rank holds of the output");
    BP_GATE_EXPECT(gate, !row->forward || layer->activation.n == activation, BP_E_structure_violated,
                   bp_gate_path(gate, "/layers/%u/activation_bytes", i), "it is not what a rank holds of the inputs");
}

/* Inference keeps nothing for a backward pass. */
static void expect_nothing_kept(struct bp_gate *gate, uint32_t i, const struct bp_distributed_layer *layer)
{
    bool nothing = layer->activation.n == 0 && layer->output.n == 0 && !layer->keeps_activation &&
                   !layer->keeps_output && !layer->owns_activation;
    BP_GATE_EXPECT(gate, nothing, BP_E_structure_violated, bp_gate_path(gate, "/layers/%u", i),
                   "inference keeps no activation");
}

/* The row of each collective, whichever phase it is in, counts as one; the rest by their forward computation. */
void bp_gate_check_activations(struct bp_gate *gate)
{
    struct view view;
    if (!see(gate, &view))
        return;
    const struct bp_distributed_task **collectives =
        bp_arena_array(gate->arena, view.ir->n_layers, sizeof *collectives);
    if (!collectives) {
        bp_gate_no_memory(gate);
        return;
    }
    for (BP_GATE_EACH(i, gate->at.tasks))
        if (view.ir->tasks[i].layer < view.ir->n_layers && view.ir->tasks[i].kind == BP_TASK_COLLECTIVE)
            collectives[view.ir->tasks[i].layer] = &view.ir->tasks[i];
    for (BP_GATE_EACH(i, gate->at.layers)) {
        if (view.ir->workload.mode != BP_MODE_TRAINING)
            expect_nothing_kept(gate, i, &view.ir->layers[i]);
        else if (collectives[i])
            expect_collective_row(gate, i, &view.ir->layers[i], collectives[i]);
        else
            expect_row(gate, i, &view.ir->layers[i], &view.rows[i]);
    }
}
