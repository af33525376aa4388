/* Latent attention in inference (DeepSeek-AI, "DeepSeek-V2", section 2.1): the cache holds one latent and one rotated
 * key a token, the same on every rank. Prefill expands the keys and values of its heads from it; decode takes the query
 * to the latents instead, and the weighted latents to values, so that nothing is expanded.
 */
#include "common/passes/inference_rows.h"

struct widths {
    bp_u128 nope, rope, value, latent, cached; /* of a head, a head, a head, a token, a token */
};

/* The query of every head, through its latent where there is one. */
static uint32_t add_query(struct bp_inference_builder *b, uint32_t input, bp_u128 width)
{
    const struct bp_kind *kind = b->kind;
    bp_u128 rank = kind->q_lora_rank;
    if (!rank) {
        bp_inference_linear(b, "attention.query", input, b->bq, b->s->H, width, false, BP_BY_COLUMNS);
        return bp_block_last(b->block);
    }
    bp_inference_linear(b, "attention.query_down", input, b->bq, b->s->H, rank, kind->qkv_bias, BP_WHOLE);
    bp_inference_norm(b, "attention.query_latent_norm", bp_block_last(b->block), bp_mul(&b->calc, b->bq, rank), rank);
    bp_inference_linear(b, "attention.query_up", bp_block_last(b->block), b->bq, rank, width, false, BP_BY_COLUMNS);
    return bp_block_last(b->block);
}

/* Query heads and the one key. */
static uint32_t add_rope(struct bp_inference_builder *b, uint32_t query, uint32_t down, bp_u128 rope)
{
    struct bp_calc *calc = &b->calc;
    bp_u128 width = bp_mul(calc, rope, bp_add(calc, b->s->h_l, 1)), n = bp_mul(calc, b->bq, width);
    const struct bp_inference_work work = {.operations = bp_mul(calc, 6, n), .read = n, .write = n};
    struct bp_row *row = bp_inference_add(b, "attention.rope", BP_ENGINE_VECTOR, query, &work);
    bp_row_reads(row, down);
    row->output_shape = bp_inference_split_width(b, width);
    return bp_block_last(b->block);
}

static uint32_t add_kv_write(struct bp_inference_builder *b, const struct widths *w, uint32_t normed, uint32_t key)
{
    bp_u128 n = bp_mul(&b->calc, b->bq, w->cached);
    const struct bp_inference_work work = {.read = n, .cache_write = n};
    struct bp_row *row = bp_inference_add(b, "attention.kv_write", BP_ENGINE_VECTOR, normed, &work);
    bp_row_reads(row, key);
    row->effect = (struct bp_effect){true, BP_ACCESS_WRITE};
    row->writes_kv_cache = true;
    row->output_shape = bp_inference_whole_width(b, w->cached);
    row->output_shape.size[1] = b->s->c;
    return bp_block_last(b->block);
}

/* Keys and values of c tokens, for the heads of one rank. */
static uint32_t add_expansion(struct bp_inference_builder *b, const struct widths *w, uint32_t cache)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 width = bp_mul(calc, s->h_l, bp_add(calc, w->nope, w->value));
    const struct bp_inference_work work = {.operations = BP_PROD(calc, 2, b->bc, w->latent, width),
                                           .cache_read = bp_mul(calc, b->bc, w->latent),
                                           .write = bp_mul(calc, b->bc, width)};
    struct bp_row *row = bp_inference_add(b, "attention.key_value_up", BP_ENGINE_MATRIX, cache, &work);
    bp_inference_parameters(
        b, row, bp_mul(calc, w->latent, width),
        (struct bp_tensor_shape){2, {w->latent, bp_mul(calc, s->t, width)}, {BP_AXIS_NONE, BP_AXIS_TENSOR}});
    row->effect = (struct bp_effect){true, BP_ACCESS_READ};
    row->output_shape = bp_inference_split_width(b, width);
    row->output_shape.size[1] = s->c;
    return bp_block_last(b->block);
}

static uint32_t add_expanded_core(struct bp_inference_builder *b, const struct widths *w, uint32_t query,
                                  uint32_t rotated, uint32_t cache)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    uint32_t expanded = add_expansion(b, w, cache);
    bp_u128 key = bp_add(calc, w->nope, w->rope), scores = bp_inference_scores(b);
    bp_u128 queries = BP_PROD(calc, b->bq, s->h_l, key);
    bp_u128 keys_and_values = BP_PROD(calc, b->bc, s->h_l, bp_add(calc, w->nope, w->value));
    const struct bp_inference_work work = {.operations = BP_PROD(calc, 2, scores, bp_add(calc, key, w->value)),
                                           .read = bp_add(calc, queries, keys_and_values),
                                           .cache_read = bp_mul(calc, b->bc, w->rope),
                                           .write = BP_PROD(calc, b->bq, s->h_l, w->value)};
    struct bp_row *row = bp_inference_core(b, query, work, bp_mul(calc, s->h_l, w->value));
    bp_row_reads(row, rotated);
    bp_row_reads(row, expanded);
    bp_row_reads(row, cache);
    return bp_block_last(b->block);
}

/* bq tokens of h_l heads through one head's part of a weight of h_l times n by k. */
static uint32_t add_by_head(struct bp_inference_builder *b, const char *name, uint32_t input, bp_u128 n, bp_u128 k,
                            bp_u128 latent)
{
    struct bp_calc *calc = &b->calc;
    bp_u128 heads = bp_mul(calc, b->bq, b->s->h_l), per_head = bp_mul(calc, n, k);
    bp_u128 columns = BP_PROD(calc, b->s->t, b->s->h_l, bp_div(calc, per_head, latent));
    const struct bp_inference_work work = {.operations = BP_PROD(calc, 2, heads, per_head),
                                           .read = bp_mul(calc, heads, n),
                                           .write = bp_mul(calc, heads, k)};
    struct bp_row *row = bp_inference_add(b, name, BP_ENGINE_MATRIX, input, &work);
    bp_inference_parameters(b, row, bp_mul(calc, b->s->h_l, per_head),
                            (struct bp_tensor_shape){2, {latent, columns}, {BP_AXIS_NONE, BP_AXIS_TENSOR}});
    row->output_shape = bp_inference_split_width(b, bp_mul(calc, b->s->h_l, k));
    return bp_block_last(b->block);
}

static uint32_t add_absorbed_core(struct bp_inference_builder *b, const struct widths *w, uint32_t query,
                                  uint32_t rotated, uint32_t cache)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    uint32_t absorbed = add_by_head(b, "attention.query_absorb", query, w->nope, w->latent, w->latent);
    bp_u128 heads = bp_mul(calc, b->bq, s->h_l);
    const struct bp_inference_work work = {
        .operations = BP_PROD(calc, 2, bp_inference_scores(b), bp_add(calc, w->cached, w->latent)),
        .read = bp_mul(calc, heads, w->cached),
        .cache_read = bp_mul(calc, b->bc, w->cached),
        .write = bp_mul(calc, heads, w->latent)};
    struct bp_row *row = bp_inference_core(b, absorbed, work, bp_mul(calc, s->h_l, w->latent));
    bp_row_reads(row, rotated);
    bp_row_reads(row, cache);
    return add_by_head(b, "attention.value_up", bp_block_last(b->block), w->latent, w->value, w->latent);
}

uint32_t bp_inference_latent_attention(struct bp_inference_builder *b, uint32_t input)
{
    const struct bp_kind *kind = b->kind;
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    struct widths w = {kind->qk_nope_head_dim, kind->qk_rope_head_dim, kind->v_head_dim, kind->kv_lora_rank, 0};
    w.cached = bp_add(calc, w.latent, w.rope);
    uint32_t query = add_query(b, input, bp_mul(calc, s->h_l, bp_add(calc, w.nope, w.rope)));
    bp_inference_linear(b, "attention.key_value_down", input, b->bq, s->H, w.cached, kind->qkv_bias, BP_WHOLE);
    uint32_t down = bp_block_last(b->block);
    bp_inference_norm(b, "attention.key_value_latent_norm", down, bp_mul(calc, b->bq, w.latent), w.latent);
    uint32_t normed = bp_block_last(b->block);
    uint32_t rotated = query, key = down;
    if (b->model->position == BP_POSITION_ROPE && w.rope && kind->rotary_dim)
        rotated = key = add_rope(b, query, down, w.rope);
    uint32_t cache = add_kv_write(b, &w, normed, key);
    uint32_t context =
        b->decode ? add_absorbed_core(b, &w, query, rotated, cache) : add_expanded_core(b, &w, query, rotated, cache);
    bp_inference_linear(b, "attention.output", context, b->bq, bp_mul(calc, s->h_l, w.value), s->H, kind->output_bias,
                        BP_BY_ROWS);
    return bp_block_last(b->block);
}
