/* Attention of the training block (docs/formulas.md): by heads of keys and values, and the core that latent attention
 * shares. What is kept and what is done again follows Korthikanti et al., "Reducing Activation Recomputation in Large
 * Transformer Models", section 5; context parallelism follows Liu et al., "Ring Attention", and Jacobs et al.,
 * "DeepSpeed-Ulysses".
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
        const char *name, *norm;
        bp_u128 heads;
    } projections[] = {{"attention.query", "attention.query_norm", s->h_l},
                       {"attention.key", "attention.key_norm", s->k_l},
                       {"attention.value", NULL, s->k_l}};
    uint32_t at[3];
    for (size_t i = 0; i < 3; i++) {
        bp_u128 width = bp_mul(calc, projections[i].heads, s->d);
        struct bp_row *row =
            bp_rows_linear(b, projections[i].name, input, BS, s->H, width, b->kind->qkv_bias, BP_SPLIT_COLUMNS);
        bp_row_shares(row);
        row->output_shape = bp_rows_split_width(b, width);
        at[i] = bp_block_last(b->block);
    }
    for (size_t i = 0; b->kind->qk_norm && i < 2; i++) {
        bp_u128 width = bp_mul(calc, projections[i].heads, s->d);
        struct bp_row *row =
            bp_rows_head_norm(b, projections[i].norm, at[i], bp_mul(calc, BS, width), projections[i].heads);
        row->output_shape = bp_rows_split_width(b, width);
        at[i] = bp_block_last(b->block);
    }
    return (struct heads){at[0], at[1], at[2]};
}

/* Of a rank's tokens under context parallelism `width` elements each, `tokens` of them; `ranks` divide the heads. */
static struct bp_tensor_shape token_shape(struct bp_row_builder *b, bp_u128 tokens, bp_u128 width, bp_u128 ranks)
{
    struct bp_tensor_shape shape = bp_rows_split_width(b, width);
    shape.size[1] = tokens;
    shape.size[2] = bp_div(&b->calc, shape.size[2], ranks);
    return shape;
}

/* Every rank's keys and values, by ring or at once: gathered again for the backward pass, where their gradients are
 * summed. */
static void gather_context(struct bp_row_builder *b, struct bp_attention_operands *operands)
{
    const struct bp_symbols *s = b->s;
    bp_u128 width = bp_add(&b->calc, operands->keys, operands->values);
    const struct bp_exchange exchange = {"attention.context_collective",
                                         BP_AXIS_CONTEXT,
                                         BP_COLLECTIVE_ALL_GATHER,
                                         BP_COLLECTIVE_REDUCE_SCATTER,
                                         BP_PROD(&b->calc, s->B, s->S_c, width),
                                         s->cp};
    struct bp_row *row = bp_rows_exchange(b, &exchange, operands->key_row);
    bp_row_reads(row, operands->value_row);
    bp_row_reads(row, operands->key_part_row);
    bp_row_shares(row);
    row->recomputed = true;
    row->output_shape = token_shape(b, s->S_c, width, 1);
    operands->key_row = operands->value_row = operands->key_part_row = bp_block_last(b->block);
}

/* A rank's part of the sequence for some of the heads, all of the sequence. */
static void exchange_heads(struct bp_row_builder *b, struct bp_attention_operands *operands)
{
    const struct bp_symbols *s = b->s;
    bp_u128 width = BP_SUM(&b->calc, operands->queries, operands->keys, operands->values);
    const struct bp_exchange exchange = {"attention.context_exchange",
                                         BP_AXIS_CONTEXT,
                                         BP_COLLECTIVE_ALL_TO_ALL,
                                         BP_COLLECTIVE_ALL_TO_ALL,
                                         BP_PROD(&b->calc, s->B, s->S, width),
                                         s->cp};
    struct bp_row *row = bp_rows_exchange(b, &exchange, operands->query_row);
    bp_row_reads(row, operands->key_row);
    bp_row_reads(row, operands->value_row);
    bp_row_reads(row, operands->key_part_row);
    bp_row_shares(row);
    row->output_shape = token_shape(b, s->S_c, width, s->cp);
    operands->query_row = operands->key_row = operands->value_row = operands->key_part_row = bp_block_last(b->block);
}

static uint32_t return_heads(struct bp_row_builder *b, bp_u128 width)
{
    const struct bp_symbols *s = b->s;
    const struct bp_exchange exchange = {"attention.context_return",
                                         BP_AXIS_CONTEXT,
                                         BP_COLLECTIVE_ALL_TO_ALL,
                                         BP_COLLECTIVE_ALL_TO_ALL,
                                         BP_PROD(&b->calc, s->B, s->S, width),
                                         s->cp};
    bp_rows_exchange(b, &exchange, bp_block_last(b->block))->output_shape = bp_rows_split_width(b, width);
    return bp_block_last(b->block);
}

/* What stands between the products of attention: rows of n scores each, dropped by selective recomputation. */
struct scores {
    bp_u128 n;
    bool again, dropout;
    struct bp_tensor_shape shape;
};

static void add_products_with_keys(struct bp_row_builder *b, const struct bp_attention_operands *operands,
                                   const struct scores *scores, bp_u128 keys_seen)
{
    struct bp_calc *calc = &b->calc;
    bp_u128 BS = bp_mul(calc, b->s->B, b->s->S), queries = bp_mul(calc, BS, operands->queries);
    const struct bp_product product = {BP_PROD(calc, 2, scores->n, operands->key),
                                       bp_add(calc, queries, bp_mul(calc, keys_seen, operands->keys)),
                                       bp_add(calc, queries, bp_mul(calc, BS, operands->keys)), scores->n};
    struct bp_row *row = bp_rows_product(b, "attention.scores", operands->query_row, operands->key_row, &product);
    bp_row_reads(row, operands->key_part_row);
    row->recomputed = scores->again;
    row->keeps_output = !(scores->again && scores->dropout);
    row->scores_in_output = row->output;
    row->output_shape = scores->shape;
}

/* A bias by distance, which has no weights; a soft cap, whose output its gradient is made of. */
static void add_adjustments(struct bp_row_builder *b, const struct scores *scores)
{
    struct bp_row *row;
    if (b->model->position == BP_POSITION_ALIBI) {
        row = bp_rows_elementwise(b, "attention.position_bias", bp_block_last(b->block), scores->n, 1, 0, 1);
        row->activation_gradient = (struct bp_row_work){0};
        row->operands = BP_NEEDS_NOTHING;
        bp_row_shares(row);
        row->recomputed = scores->again;
        row->scores_in_activation = row->scores_in_output = row->output;
        row->output_shape = scores->shape;
    }
    if (b->kind->soft_cap) {
        row = bp_rows_elementwise(b, "attention.soft_cap", bp_block_last(b->block), scores->n, 3, 4, 1);
        row->operands = BP_NEEDS_ITSELF;
        row->recomputed = scores->again;
        row->keeps_activation = !scores->again;
        row->scores_in_activation = row->scores_in_output = row->output;
        row->output_shape = scores->shape;
    }
}

static void add_weighting(struct bp_row_builder *b, const struct scores *scores)
{
    struct bp_row *row = bp_rows_softmax(b, "attention.softmax", bp_block_last(b->block), scores->n);
    row->recomputed = scores->again;
    row->keeps_activation = row->owns_activation = scores->dropout;
    row->keeps_output = !scores->again;
    row->scores_in_activation = row->scores_in_output = row->output;
    row->output_shape = scores->shape;
    if (scores->dropout) {
        row = bp_rows_dropout(b, "attention.dropout", bp_block_last(b->block), scores->n);
        row->recomputed = scores->again;
        row->keeps_activation = !scores->again;
        row->scores_in_activation = row->activation;
        row->scores_in_output = row->output;
        row->output_shape = scores->shape;
    }
}

/* n scores of `key` products each, and as many weights of values: the products are 2n times that. */
uint32_t bp_training_attention_core(struct bp_row_builder *b, struct bp_attention_operands operands)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bool exchanged = s->cp > 1 && b->strategy->cp_comm == BP_CP_A2A, gathered = s->cp > 1 && !exchanged;
    if (exchanged)
        exchange_heads(b, &operands);
    else if (gathered)
        gather_context(b, &operands);
    bp_u128 BS = bp_mul(calc, s->B, s->S), seen = gathered ? bp_mul(calc, s->B, s->S_c) : BS;
    bp_u128 heads = bp_div(calc, bp_mul(calc, s->t, s->h_l), exchanged ? s->cp : 1);
    const struct scores scores = {BP_PROD(calc, s->B, s->h_l, s->S, s->S_c),
                                  b->strategy->recompute != BP_RECOMPUTE_NONE,
                                  b->kind->attention_dropout,
                                  {4,
                                   {b->block->boundary.size[0], heads, exchanged ? s->S_c : s->S, s->S_c},
                                   {BP_AXIS_DATA, BP_AXIS_TENSOR, BP_AXIS_NONE, BP_AXIS_NONE}}};
    add_products_with_keys(b, &operands, &scores, seen);
    add_adjustments(b, &scores);
    add_weighting(b, &scores);

    const struct bp_product product = {
        BP_PROD(calc, 2, scores.n, operands.value), bp_add(calc, scores.n, bp_mul(calc, seen, operands.values)),
        bp_add(calc, scores.n, bp_mul(calc, BS, operands.values)), bp_mul(calc, BS, operands.contexts)};
    struct bp_row *row = bp_rows_product(b, "attention.context", bp_block_last(b->block), operands.value_row, &product);
    row->scores_in_activation = bp_rows_elements(b, scores.n);
    row->output_shape = token_shape(b, exchanged ? s->S_c : s->S, operands.contexts, exchanged ? s->cp : 1);
    return exchanged ? return_heads(b, operands.contexts) : bp_block_last(b->block);
}

uint32_t bp_training_attention_output(struct bp_row_builder *b, uint32_t context, bp_u128 width)
{
    struct bp_row *row = bp_rows_linear(b, "attention.output", context, bp_mul(&b->calc, b->s->B, b->s->S), width,
                                        b->s->H, b->kind->output_bias, BP_SPLIT_ROWS);
    row->output_shape = bp_rows_whole_hidden(b);
    return bp_block_last(b->block);
}

uint32_t bp_training_heads_attention(struct bp_row_builder *b, uint32_t input, bool held)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    struct bp_row *row = bp_rows_fork(b, "attention.qkv_fork", input, s->X, 3);
    row->keeps_activation = !s->gathers_again;
    if (held)
        bp_row_shares(row);
    struct heads heads = add_projections(b, bp_block_last(b->block));
    bp_u128 queries = bp_mul(calc, s->h_l, s->d), keys = bp_mul(calc, s->k_l, s->d);
    const struct bp_attention_operands operands = {
        .key = s->d,
        .queries = queries,
        .keys = keys,
        .value = s->d,
        .values = keys,
        .contexts = queries,
        .query_row = heads.query,
        .key_row = heads.key,
        .value_row = heads.value,
        .key_part_row = heads.key,
    };
    return bp_training_attention_output(b, bp_training_attention_core(b, operands), queries);
}
