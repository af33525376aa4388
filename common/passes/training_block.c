/* The training block as a table of rows in dataflow order (docs/formulas.md, "Training block"): attention by heads, the
 * dense MLP, and how the halves are put together. What is kept and what is done again follows Korthikanti et al.,
 * "Reducing Activation Recomputation in Large Transformer Models", sections 4 and 5. Latent attention is in
 * training_latent.c, the MLP of experts in training_experts.c.
 */
#include "common/passes/training_rows.h"

/* Query, key and value from one gathered input, and their norms. */
struct heads {
    uint32_t query, key, value;
};

static struct heads add_projections(struct bp_row_builder *b, uint32_t input)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 BS = bp_mul(calc, s->B, s->S);
    const struct {
        const char *name;
        bp_u128 width;
    } projections[] = {{"attention.query", bp_mul(calc, s->h_l, s->d)},
                       {"attention.key", bp_mul(calc, s->k_l, s->d)},
                       {"attention.value", bp_mul(calc, s->k_l, s->d)}};
    uint32_t at[3];
    for (size_t i = 0; i < 3; i++) {
        struct bp_row *row = bp_rows_linear(b, projections[i].name, input, BS, s->H, projections[i].width,
                                            b->kind->qkv_bias, BP_SPLIT_COLUMNS);
        row->keeps_activation = row->owns_activation = false;
        row->output_shape = bp_rows_split_width(b, projections[i].width);
        at[i] = bp_block_last(b->block);
    }
    static const char *const norms[] = {"attention.query_norm", "attention.key_norm"};
    for (size_t i = 0; b->kind->qk_norm && i < 2; i++) {
        struct bp_row *row = bp_rows_norm(b, norms[i], at[i], bp_mul(calc, BS, projections[i].width), s->d);
        row->output_shape = bp_rows_split_width(b, projections[i].width);
        at[i] = bp_block_last(b->block);
    }
    return (struct heads){at[0], at[1], at[2]};
}

/* Scores, softmax, dropout, context: what selective recomputation drops (Korthikanti et al., section 5). Widths are
 * those of one rank: `key_width` elements a query token and `keys` a key token enter the scores, `values` the context.
 * With n scores of `per_score` elements each the products are 2n*per_score operations. */
uint32_t bp_training_attention_core(struct bp_row_builder *b, const struct bp_attention_widths *widths, uint32_t query,
                                    uint32_t key, uint32_t value)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bool dropout = b->kind->attention_dropout, again = b->strategy->recompute != BP_RECOMPUTE_NONE;
    bp_u128 n = BP_PROD(calc, s->B, s->h_l, s->S, s->S_c), BS = bp_mul(calc, s->B, s->S);
    struct bp_tensor_shape scores = {4,
                                     {b->block->boundary.size[0], bp_mul(calc, s->t, s->h_l), s->S, s->S_c},
                                     {BP_AXIS_DATA, BP_AXIS_TENSOR, BP_AXIS_NONE, BP_AXIS_NONE}};

    struct bp_row *row = bp_rows_product(b, "attention.scores", query, key, BP_PROD(calc, 2, n, widths->key),
                                         bp_mul(calc, BS, bp_add(calc, widths->queries, widths->keys)), n);
    row->recomputed = again;
    row->keeps_output = !(again && dropout);
    row->scores_in_output = row->output;
    row->output_shape = scores;

    row = bp_rows_softmax(b, "attention.softmax", bp_block_last(b->block), n);
    row->recomputed = again;
    row->keeps_activation = row->owns_activation = dropout;
    row->keeps_output = !again;
    row->scores_in_activation = row->scores_in_output = row->output;
    row->output_shape = scores;

    if (dropout) {
        row = bp_rows_dropout(b, "attention.dropout", bp_block_last(b->block), n);
        row->recomputed = again;
        row->keeps_activation = !again;
        row->scores_in_activation = row->activation;
        row->scores_in_output = row->output;
        row->output_shape = scores;
    }
    row = bp_rows_product(b, "attention.context", bp_block_last(b->block), value, BP_PROD(calc, 2, n, widths->value),
                          bp_add(calc, n, bp_mul(calc, BS, widths->values)), bp_mul(calc, BS, widths->contexts));
    row->scores_in_activation = bp_rows_elements(b, n);
    row->output_shape = bp_rows_split_width(b, widths->contexts);
    return bp_block_last(b->block);
}

uint32_t bp_training_attention_output(struct bp_row_builder *b, uint32_t context, bp_u128 width, uint32_t skip)
{
    static const char *const end[] = {"attention.output_collective", "attention.output_dropout", "attention.residual"};
    struct bp_row *row = bp_rows_linear(b, "attention.output", context, bp_mul(&b->calc, b->s->B, b->s->S), width,
                                        b->s->H, b->kind->output_bias, BP_SPLIT_ROWS);
    row->output_shape = bp_rows_whole_hidden(b);
    return bp_rows_half_end(b, end, bp_block_last(b->block), skip);
}

/* Either half begins with its fork and its norm. The fork's place goes to `ret_skip`. */
uint32_t bp_training_half_begin(struct bp_row_builder *b, const char *fork, const char *norm, uint32_t input,
                                uint32_t *ret_skip)
{
    bp_rows_fork(b, fork, input, b->s->Xs, 2);
    *ret_skip = bp_block_last(b->block);
    struct bp_row *row = bp_rows_norm(b, norm, *ret_skip, b->s->Xs, b->s->H);
    row->keeps_activation = row->owns_activation = false;
    row->output_shape = b->block->boundary;
    return bp_block_last(b->block);
}

static uint32_t add_attention(struct bp_row_builder *b)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    uint32_t skip;
    uint32_t input = bp_training_half_begin(b, "attention.residual_fork", "attention.norm", BP_BLOCK_INPUT, &skip);
    input = bp_rows_boundary(b, "attention.input_collective", input, BP_PLAIN, s->X);
    bp_rows_fork(b, "attention.qkv_fork", input, s->X, 3)->keeps_activation = !s->gathers_again;
    struct heads heads = add_projections(b, bp_block_last(b->block));
    bp_u128 query_width = bp_mul(calc, s->h_l, s->d), key_width = bp_mul(calc, s->k_l, s->d);
    const struct bp_attention_widths widths = {s->d, query_width, key_width, s->d, key_width, query_width};
    uint32_t context = bp_training_attention_core(b, &widths, heads.query, heads.key, heads.value);
    return bp_training_attention_output(b, context, query_width, skip);
}

/* Up (and gate), activation, down on a gathered input: a whole MLP of one rank's `width`. */
uint32_t bp_training_mlp(struct bp_row_builder *b, const struct bp_mlp_names *names, uint32_t input, bp_u128 width)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 BS = bp_mul(calc, s->B, s->S);
    bool bias = b->kind->mlp_bias;
    struct bp_row *row;
    if (s->gated) {
        bp_rows_fork(b, names->gate_fork, input, s->X, 2)->keeps_activation = !s->gathers_again;
        input = bp_block_last(b->block);
        row = bp_rows_linear(b, names->gate, input, BS, s->H, width, bias, BP_SPLIT_COLUMNS);
        row->keeps_activation = row->owns_activation = false;
        row->output_shape = bp_rows_split_width(b, width);
    }
    uint32_t gate = bp_block_last(b->block);
    row = bp_rows_linear(b, names->up, input, BS, s->H, width, bias, BP_SPLIT_COLUMNS);
    row->keeps_activation = !s->gated && !s->gathers_again;
    row->owns_activation = !s->gated;
    row->output_shape = bp_rows_split_width(b, width);
    row = bp_rows_activation(b, names->activation, gate, bp_block_last(b->block), bp_mul(calc, BS, width));
    row->output_shape = bp_rows_split_width(b, width);
    row = bp_rows_linear(b, names->down, bp_block_last(b->block), BS, width, s->H, bias, BP_SPLIT_ROWS);
    row->keeps_activation = !b->strategy->recompute_activation;
    row->output_shape = bp_rows_whole_hidden(b);
    return bp_block_last(b->block);
}

static void add_dense_mlp(struct bp_row_builder *b, uint32_t input)
{
    static const struct bp_mlp_names names = {"mlp.gate_fork", "mlp.gate", "mlp.up", "mlp.activation", "mlp.down"};
    static const char *const end[] = {"mlp.output_collective", "mlp.output_dropout", "mlp.residual"};
    uint32_t skip;
    input = bp_training_half_begin(b, "mlp.residual_fork", "mlp.norm", input, &skip);
    input = bp_rows_boundary(b, "mlp.input_collective", input, BP_PLAIN, b->s->X);
    uint32_t down = bp_training_mlp(b, &names, input, bp_div(&b->calc, b->s->F, b->s->t));
    bp_rows_half_end(b, end, down, skip);
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
    /* Rows are cleared as they are added. */
    ret->n_rows = 0;
    ret->memory = (struct bp_memory){0};
    ret->forward_phase = BP_PHASE_FORWARD;
    ret->boundary =
        (struct bp_tensor_shape){3,
                                 {bp_mul(&b.calc, s->dp, s->B), s->S, s->H},
                                 {BP_AXIS_DATA, s->sequence_parallel ? BP_AXIS_TENSOR : BP_AXIS_NONE, BP_AXIS_NONE}};
    bool latent = s->kind->attention == BP_ATTENTION_LATENT;
    uint32_t attention = latent ? bp_training_latent_attention(&b) : add_attention(&b);
    if (s->kind->num_experts)
        bp_training_experts(&b, attention);
    else
        add_dense_mlp(&b, attention);
    sum_activations(&b);
    return bp_calc_check(&b.calc, "/workload", "the work or memory of the block", err);
}
