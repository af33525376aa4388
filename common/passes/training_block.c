/* The training block as a table of rows in dataflow order (docs/formulas.md, "Training block"): the dense MLP, and how
 * the halves are put together. What is kept and what is done again follows Korthikanti et al., "Reducing Activation
 * Recomputation in Large Transformer Models", sections 4 and 5. Attention is in training_attention.c and
 * training_latent.c, the MLP of experts in training_experts.c.
 */
#include "common/passes/training_rows.h"

#include "common/request/support.h"

/* The rows of either half that are named alike. */
struct half {
    const char *fork, *norm, *input_collective, *output_collective, *post_norm, *dropout, *residual;
};
static const struct half attention_half = {
    "attention.residual_fork", "attention.norm",           "attention.input_collective", "attention.output_collective",
    "attention.post_norm",     "attention.output_dropout", "attention.residual"};
static const struct half mlp_half = {"mlp.residual_fork",     "mlp.norm",      "mlp.input_collective",
                                     "mlp.output_collective", "mlp.post_norm", "mlp.output_dropout",
                                     "mlp.residual"};
static const struct bp_mlp_names mlp_names = {"mlp.gate_fork", "mlp.gate", "mlp.up", "mlp.activation", "mlp.down"};

/* Up (and gate), activation, down. */
uint32_t bp_training_mlp(struct bp_row_builder *b, const struct bp_mlp_names *names, uint32_t input, bp_u128 width,
                         bool held)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 BS = bp_mul(calc, s->B, s->S);
    bool bias = b->kind->mlp_bias;
    struct bp_row *row;
    if (s->gated) {
        row = bp_rows_fork(b, names->gate_fork, input, s->X, 2);
        row->keeps_activation = !s->gathers_again;
        if (held)
            bp_row_shares(row);
        input = bp_block_last(b->block);
        row = bp_rows_linear(b, names->gate, input, BS, s->H, width, bias, BP_SPLIT_COLUMNS);
        bp_row_shares(row);
        row->output_shape = bp_rows_split_width(b, width);
    }
    uint32_t gate = bp_block_last(b->block);
    row = bp_rows_linear(b, names->up, input, BS, s->H, width, bias, BP_SPLIT_COLUMNS);
    row->keeps_activation = !s->gathers_again;
    if (s->gated || held)
        bp_row_shares(row);
    row->output_shape = bp_rows_split_width(b, width);
    row = bp_rows_activation(b, names->activation, gate, bp_block_last(b->block), bp_mul(calc, BS, width));
    row->output_shape = bp_rows_split_width(b, width);
    row = bp_rows_linear(b, names->down, bp_block_last(b->block), BS, width, s->H, bias, BP_SPLIT_ROWS);
    row->keeps_activation = !b->strategy->recompute_activation;
    row->output_shape = bp_rows_whole_hidden(b);
    return bp_block_last(b->block);
}

/* The collective's own part of the tensor is the fork's. */
uint32_t bp_training_gather(struct bp_row_builder *b, const char *name, uint32_t input, bool is_fork)
{
    uint32_t gathered = bp_rows_boundary(b, name, input, BP_PLAIN, b->s->X);
    if (is_fork && b->s->sequence_parallel) {
        b->block->rows[input].keeps_activation = b->block->rows[input].owns_activation = true;
        bp_row_shares(&b->block->rows[gathered]);
    }
    return gathered;
}

static uint32_t add_block_norm(struct bp_row_builder *b, const char *name, uint32_t input, bool held)
{
    struct bp_row *row = bp_rows_norm(b, name, input, b->s->Xs, b->s->H);
    if (held)
        bp_row_shares(row);
    row->output_shape = b->block->boundary;
    return bp_block_last(b->block);
}

/* A half begins with its fork and, where the block has one there, its norm; without it the rows that follow keep the
 * fork's tensor. */
static uint32_t begin_half(struct bp_row_builder *b, const struct half *half, uint32_t input, uint32_t *ret_fork)
{
    enum bp_norm_place place = b->kind->norm_place;
    struct bp_row *row = bp_rows_fork(b, half->fork, input, b->s->Xs, 2);
    *ret_fork = bp_block_last(b->block);
    if (place == BP_NORM_PLACE_BEFORE || place == BP_NORM_PLACE_AROUND)
        return add_block_norm(b, half->norm, *ret_fork, true);
    bp_row_shares(row);
    return *ret_fork;
}

static uint32_t add_dropout(struct bp_row_builder *b, const char *name, uint32_t input, bp_u128 n)
{
    if (!b->kind->hidden_dropout)
        return input;
    bp_rows_dropout(b, name, input, n)->output_shape = b->block->rows[input].output_shape;
    return bp_block_last(b->block);
}

/* The norm of the branch, the dropout, the sum with what came past the half, the norm of the sum. */
static uint32_t end_half(struct bp_row_builder *b, const struct half *half, uint32_t input, uint32_t fork)
{
    enum bp_norm_place place = b->kind->norm_place;
    if (place == BP_NORM_PLACE_AFTER || place == BP_NORM_PLACE_AROUND)
        input = add_block_norm(b, half->post_norm, input, false);
    input = add_dropout(b, half->dropout, input, b->s->Xs);
    bp_rows_residual(b, half->residual, input, fork, b->s->Xs)->output_shape = b->block->boundary;
    if (place == BP_NORM_PLACE_AFTER_RESIDUAL)
        return add_block_norm(b, half->post_norm, bp_block_last(b->block), false);
    return bp_block_last(b->block);
}

static uint32_t add_attention_half(struct bp_row_builder *b)
{
    const struct half *half = &attention_half;
    uint32_t fork, input = begin_half(b, half, BP_BLOCK_INPUT, &fork);
    uint32_t output = b->kind->attention == BP_ATTENTION_LATENT
                          ? bp_training_latent_attention(b, input)
                          : bp_training_heads_attention(
                                b, bp_training_gather(b, half->input_collective, input, input == fork), false);
    return end_half(b, half, bp_rows_boundary(b, half->output_collective, output, BP_CONJUGATE, b->s->X), fork);
}

static void add_mlp_half(struct bp_row_builder *b, uint32_t input)
{
    const struct half *half = &mlp_half;
    uint32_t fork, output;
    input = begin_half(b, half, input, &fork);
    if (b->kind->num_experts) {
        output = bp_training_experts(b, input);
    } else {
        input = bp_training_gather(b, half->input_collective, input, input == fork);
        output = bp_training_mlp(b, &mlp_names, input, bp_div(&b->calc, b->s->F, b->s->t), false);
        output = bp_rows_boundary(b, half->output_collective, output, BP_CONJUGATE, b->s->X);
    }
    end_half(b, half, output, fork);
}

/* Attention and MLP side by side (Wang and Komatsuzaki, "GPT-J-6B"): both read the block's input, and their sums over
 * the tensor group are one. */
static void add_parallel_halves(struct bp_row_builder *b)
{
    const struct bp_symbols *s = b->s;
    bool one_norm = b->kind->norm_place == BP_NORM_PLACE_SHARED;
    bp_rows_fork(b, attention_half.fork, BP_BLOCK_INPUT, s->Xs, one_norm ? 2 : 3);
    uint32_t fork = bp_block_last(b->block);
    uint32_t input = add_block_norm(b, attention_half.norm, fork, true);
    input = bp_training_gather(b, attention_half.input_collective, input, false);
    if (one_norm) {
        bp_rows_fork(b, "block.fork", input, s->X, 2)->keeps_activation = !s->gathers_again;
        input = bp_block_last(b->block);
    }
    uint32_t attention = bp_training_heads_attention(b, input, one_norm);
    attention = add_dropout(b, attention_half.dropout, attention, s->X);
    if (!one_norm) {
        input = add_block_norm(b, mlp_half.norm, fork, true);
        input = bp_training_gather(b, mlp_half.input_collective, input, false);
    }
    uint32_t mlp = bp_training_mlp(b, &mlp_names, input, bp_div(&b->calc, s->F, s->t), one_norm);
    mlp = add_dropout(b, mlp_half.dropout, mlp, s->X);
    bp_rows_residual(b, "block.sum", attention, mlp, s->X)->output_shape = bp_rows_whole_hidden(b);
    input = bp_rows_boundary(b, "block.output_collective", bp_block_last(b->block), BP_CONJUGATE, s->X);
    bp_rows_residual(b, "block.residual", input, fork, s->Xs)->output_shape = b->block->boundary;
}

/* C_act = sum(A - O[O not kept] - A[A not kept]), every A first, since partial sums can dip below zero; full
 * recomputation keeps the block's input instead. */
static void sum_activations(struct bp_row_builder *b)
{
    const struct bp_block *block = b->block;
    struct bp_calc *calc = &b->calc;
    bp_u128 all = 0, dropped = 0, working = 0;
    for (uint32_t i = 0; i < block->n_rows; i++) {
        const struct bp_row *row = &block->rows[i];
        all = bp_add(calc, all, row->activation.n);
        dropped =
            BP_SUM(calc, dropped, row->keeps_output ? 0 : row->output.n, row->keeps_activation ? 0 : row->activation.n);
        working = bp_add(calc, working, row->owns_activation ? row->activation.n : 0);
    }
    bool full = b->strategy->recompute == BP_RECOMPUTE_FULL;
    struct bp_bytes *memory = b->block->memory.at;
    memory[BP_MEMORY_STORED_ACTIVATIONS] = bp_bytes(calc, full ? 0 : bp_sub(calc, all, dropped));
    memory[BP_MEMORY_ACTIVATION_CHECKPOINT] = bp_rows_elements(b, full ? b->s->Xs : 0);
    memory[BP_MEMORY_WORKING_ACTIVATIONS] = bp_bytes(calc, working);
}

int bp_training_block(const struct bp_request *request, const struct bp_symbols *s, struct bp_block *ret,
                      struct bp_err *err)
{
    struct bp_row_builder b = {
        .block = ret, .model = &request->model, .kind = s->kind, .strategy = &request->strategy, .s = s};
    const char *unsupported = bp_unsupported_in_kind(s->kind, BP_MODE_TRAINING, request->strategy.tensor_parallel);
    if (unsupported)
        return bp_fail(err, BP_E_unsupported_feature, "/model", "training has no rows for %s", unsupported);
    /* Rows are cleared as they are added. */
    ret->n_rows = 0;
    ret->memory = (struct bp_memory){0};
    ret->forward_phase = BP_PHASE_FORWARD;
    ret->boundary =
        (struct bp_tensor_shape){3,
                                 {bp_mul(&b.calc, request->strategy.data_parallel, s->B), s->S, s->H},
                                 {BP_AXIS_DATA, s->sequence_parallel ? BP_AXIS_TENSOR : BP_AXIS_NONE, BP_AXIS_NONE}};
    if (s->kind->residual == BP_RESIDUAL_PARALLEL)
        add_parallel_halves(&b);
    else
        add_mlp_half(&b, add_attention_half(&b));
    sum_activations(&b);
    return bp_calc_check(&b.calc, "/workload", "the work or memory of the block", err);
}
