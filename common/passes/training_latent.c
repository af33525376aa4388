/* Latent attention (DeepSeek-AI, "DeepSeek-V2", section 2.1), in its expanded form: queries, and keys and values, go
 * through low-rank latents. The projections down are on every rank, on its part of the sequence under sequence
 * parallelism; the latents are gathered, and the projections up are column-parallel by heads. Kept are the block's
 * input and the norm's output, the latents before and after their norm, the expanded query and key, the value and the
 * output.
 */
#include "common/passes/training_rows.h"

/* One latent: down, its norm, the gather, up to `width` elements a token of this rank. `beside` elements of the down
 * projection pass the norm by (the rotary part of the key). */
struct latent {
    const char *down, *norm, *collective, *up;
    bp_u128 rank, beside, width;
};

/* The boundary's shape with another width. */
static struct bp_tensor_shape own_shape(const struct bp_row_builder *b, bp_u128 width)
{
    struct bp_tensor_shape shape = b->block->boundary;
    shape.size[2] = width;
    return shape;
}

/* Returns the projection up; the row that holds what stands beside the latent goes to `ret_beside`. */
static uint32_t add_latent(struct bp_row_builder *b, const struct latent *latent, uint32_t input, uint32_t *ret_beside)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 tokens = bp_mul(calc, s->B, s->S), own_tokens = bp_div(calc, s->Xs, s->H);
    bp_u128 down_width = bp_add(calc, latent->rank, latent->beside);

    struct bp_row *row =
        bp_rows_linear(b, latent->down, input, own_tokens, s->H, down_width, b->kind->qkv_bias, BP_SPLIT_NONE);
    bp_row_shares(row);
    row->output_shape = own_shape(b, down_width);
    uint32_t down = bp_block_last(b->block);
    row = bp_rows_norm(b, latent->norm, down, bp_mul(calc, own_tokens, latent->rank), latent->rank);
    row->output_shape = own_shape(b, latent->rank);
    uint32_t normed = bp_block_last(b->block);
    uint32_t gathered = bp_rows_boundary(b, latent->collective, normed, BP_PLAIN, bp_mul(calc, tokens, down_width));
    if (latent->beside && gathered != normed)
        bp_row_reads(&b->block->rows[gathered], down);
    *ret_beside = gathered != normed ? gathered : down;
    row = bp_rows_linear(b, latent->up, gathered, tokens, latent->rank, latent->width, false, BP_SPLIT_COLUMNS);
    row->keeps_activation = !s->gathers_again;
    row->output_shape = bp_rows_split_width(b, latent->width);
    return bp_block_last(b->block);
}

/* Queries of a model without a query latent are projected at once, from the gathered input. */
static uint32_t add_query(struct bp_row_builder *b, uint32_t input, bp_u128 width)
{
    const struct bp_symbols *s = b->s;
    const struct bp_kind *kind = b->kind;
    uint32_t beside;
    if (kind->q_lora_rank) {
        const struct latent query = {"attention.query_down",
                                     "attention.query_latent_norm",
                                     "attention.query_latent_collective",
                                     "attention.query_up",
                                     kind->q_lora_rank,
                                     0,
                                     width};
        return add_latent(b, &query, input, &beside);
    }
    input = bp_training_gather(b, "attention.input_collective", input, true);
    struct bp_row *row =
        bp_rows_linear(b, "attention.query", input, bp_mul(&b->calc, s->B, s->S), s->H, width, false, BP_SPLIT_COLUMNS);
    row->keeps_activation = s->sequence_parallel && !s->gathers_again;
    row->owns_activation = s->sequence_parallel;
    row->output_shape = bp_rows_split_width(b, width);
    return bp_block_last(b->block);
}

uint32_t bp_training_latent_attention(struct bp_row_builder *b, uint32_t input)
{
    const struct bp_symbols *s = b->s;
    const struct bp_kind *kind = b->kind;
    struct bp_calc *calc = &b->calc;
    bp_u128 nope = kind->qk_nope_head_dim, rope = kind->qk_rope_head_dim, v = kind->v_head_dim;
    bp_u128 key = bp_add(calc, nope, rope), keys = bp_mul(calc, s->h_l, key), values = bp_mul(calc, s->h_l, v);
    bp_rows_fork(b, "attention.latent_fork", input, s->Xs, 2);
    input = bp_block_last(b->block);
    uint32_t query = add_query(b, input, keys), beside;
    const struct latent key_value = {"attention.key_value_down",
                                     "attention.key_value_latent_norm",
                                     "attention.key_value_latent_collective",
                                     "attention.key_value_up",
                                     kind->kv_lora_rank,
                                     rope,
                                     bp_mul(calc, s->h_l, bp_add(calc, nope, v))};
    uint32_t expanded = add_latent(b, &key_value, input, &beside);
    const struct bp_attention_operands operands = {
        .key = key,
        .queries = keys,
        .keys = keys,
        .value = v,
        .values = values,
        .contexts = values,
        .query_row = query,
        .key_row = expanded,
        .value_row = expanded,
        .key_part_row = rope ? beside : expanded,
    };
    return bp_training_attention_output(b, bp_training_attention_core(b, operands), values);
}
