/* The inference block as a table of rows (docs/formulas.md, "Inference block"): one phase, q query tokens against c
 * visible ones; q = c in prefill, q = 1 in decode. The fused QKV projection and the KV cache follow serving engines;
 * the attention core is Vaswani et al., "Attention Is All You Need", section 3.2.1, with an explicit softmax. Latent
 * attention is in inference_latent.c, the MLP of experts in inference_experts.c.
 */
#include "common/passes/inference_rows.h"

#include "common/request/support.h"

/* Norms of query and key in one row, a vector or two of each. */
static uint32_t add_head_norm(struct bp_inference_builder *b, uint32_t input, bp_u128 heads)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    enum bp_qk_norm form = b->kind->qk_norm;
    unsigned vectors = b->kind->qk_norm_bias ? 2 : 1, of_query_and_key = 2 * vectors;
    bp_u128 width = bp_mul(calc, s->d, heads), n = bp_mul(calc, b->bq, width);
    const struct bp_inference_work work = {
        .operations = bp_mul(calc, b->model->norm == BP_NORM_LAYERNORM ? 5 : 4, n), .read = n, .write = n};
    struct bp_row *row = bp_inference_add(b, "attention.qk_norm", BP_ENGINE_VECTOR, input, &work);
    if (form == BP_QK_NORM_HEAD)
        bp_inference_parameters(b, row, bp_mul(calc, of_query_and_key, s->d),
                                (struct bp_tensor_shape){2, {of_query_and_key, s->d}, {BP_AXIS_NONE, BP_AXIS_NONE}});
    else if (form == BP_QK_NORM_EACH_HEAD || form == BP_QK_NORM_SPAN)
        bp_inference_parameters(
            b, row, bp_mul(calc, vectors, width),
            (struct bp_tensor_shape){2, {vectors, bp_mul(calc, s->t, width)}, {BP_AXIS_NONE, BP_AXIS_TENSOR}});
    row->output_shape = bp_inference_split_width(b, width);
    return bp_block_last(b->block);
}

/* Rotates `rotary_dim` elements of each head. */
static uint32_t add_rope(struct bp_inference_builder *b, uint32_t input, bp_u128 heads)
{
    struct bp_calc *calc = &b->calc;
    bp_u128 width = bp_mul(calc, b->kind->rotary_dim, heads), n = bp_mul(calc, b->bq, width);
    const struct bp_inference_work work = {.operations = bp_mul(calc, 6, n), .read = n, .write = n};
    bp_inference_add(b, "attention.rope", BP_ENGINE_VECTOR, input, &work)->output_shape =
        bp_inference_split_width(b, width);
    return bp_block_last(b->block);
}

/* Values come from the projection, keys from what was last done to the heads. */
static uint32_t add_kv_write(struct bp_inference_builder *b, uint32_t qkv, uint32_t heads, bp_u128 width)
{
    bp_u128 n = bp_mul(&b->calc, b->bq, width);
    const struct bp_inference_work work = {.read = n, .cache_write = n};
    struct bp_row *row = bp_inference_add(b, "attention.kv_write", BP_ENGINE_VECTOR, qkv, &work);
    bp_row_reads(row, heads);
    row->effect = (struct bp_effect){true, BP_ACCESS_WRITE};
    row->writes_kv_cache = true;
    row->output_shape = bp_inference_split_width(b, width);
    row->output_shape.size[1] = b->s->c;
    return bp_block_last(b->block);
}

static uint32_t add_heads_attention(struct bp_inference_builder *b, uint32_t input)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 query_width = bp_mul(calc, s->d, s->h_l), kv_width = BP_PROD(calc, 2, s->d, s->k_l);
    bp_u128 heads = bp_add(calc, s->h_l, s->k_l), queries = bp_mul(calc, b->bq, query_width);
    bp_inference_linear(b, "attention.qkv", input, b->bq, s->H, bp_add(calc, query_width, kv_width), b->kind->qkv_bias,
                        BP_BY_COLUMNS);
    uint32_t qkv = bp_block_last(b->block), from = qkv;
    if (b->kind->qk_norm)
        from = add_head_norm(b, from, heads);
    if (b->model->position == BP_POSITION_ROPE && b->kind->rotary_dim)
        from = add_rope(b, from, heads);
    uint32_t cache = add_kv_write(b, qkv, from, kv_width);
    const struct bp_inference_work work = {.operations = BP_PROD(calc, 4, bp_inference_scores(b), s->d),
                                           .read = queries,
                                           .cache_read = bp_mul(calc, b->bc, kv_width),
                                           .write = queries};
    bp_row_reads(bp_inference_core(b, from, work, query_width), cache);
    bp_inference_linear(b, "attention.output", bp_block_last(b->block), b->bq, query_width, s->H, b->kind->output_bias,
                        BP_BY_ROWS);
    return bp_block_last(b->block);
}

static uint32_t add_attention(struct bp_inference_builder *b, uint32_t input)
{
    return b->kind->attention == BP_ATTENTION_LATENT ? bp_inference_latent_attention(b, input)
                                                     : add_heads_attention(b, input);
}

static uint32_t add_dense_mlp(struct bp_inference_builder *b, uint32_t input)
{
    static const struct bp_inference_mlp_names names = {"mlp.gate", "mlp.up", "mlp.activation", "mlp.down"};
    return bp_inference_mlp(b, &names, input, bp_div(&b->calc, b->s->F, b->s->t));
}

static uint32_t add_block_norm(struct bp_inference_builder *b, const char *name, uint32_t input)
{
    bp_inference_norm(b, name, input, b->Y, b->s->H);
    return bp_block_last(b->block);
}

static uint32_t begin_half(struct bp_inference_builder *b, const char *norm, uint32_t input)
{
    enum bp_norm_place place = b->kind->norm_place;
    bool before = place == BP_NORM_PLACE_BEFORE || place == BP_NORM_PLACE_AROUND;
    return before ? add_block_norm(b, norm, input) : input;
}

/* The norm of the branch, the sum with what came past the half, the norm of the sum. */
static uint32_t end_half(struct bp_inference_builder *b, const char *post_norm, const char *residual, uint32_t input,
                         uint32_t skip)
{
    enum bp_norm_place place = b->kind->norm_place;
    if (place == BP_NORM_PLACE_AFTER || place == BP_NORM_PLACE_AROUND)
        input = add_block_norm(b, post_norm, input);
    input = bp_inference_sum(b, residual, input, skip);
    return place == BP_NORM_PLACE_AFTER_RESIDUAL ? add_block_norm(b, post_norm, input) : input;
}

static void add_halves(struct bp_inference_builder *b)
{
    uint32_t output = add_attention(b, begin_half(b, "attention.norm", BP_BLOCK_INPUT));
    output = bp_inference_all_reduce(b, "attention.all_reduce", output);
    uint32_t skip = end_half(b, "attention.post_norm", "attention.residual", output, BP_BLOCK_INPUT);
    uint32_t input = begin_half(b, "mlp.norm", skip);
    bool whole = false;
    output = b->kind->num_experts ? bp_inference_experts(b, input, &whole) : add_dense_mlp(b, input);
    if (!whole)
        output = bp_inference_all_reduce(b, "mlp.all_reduce", output);
    end_half(b, "mlp.post_norm", "mlp.residual", output, skip);
}

/* Attention and MLP side by side: both read the block's input, and their sums over the tensor group are one. */
static void add_parallel_halves(struct bp_inference_builder *b)
{
    uint32_t input = add_block_norm(b, "attention.norm", BP_BLOCK_INPUT);
    uint32_t attention = add_attention(b, input);
    if (b->kind->norm_place != BP_NORM_PLACE_SHARED)
        input = add_block_norm(b, "mlp.norm", BP_BLOCK_INPUT);
    uint32_t sum = bp_inference_sum(b, "block.sum", attention, add_dense_mlp(b, input));
    bp_inference_sum(b, "block.residual", bp_inference_all_reduce(b, "block.all_reduce", sum), BP_BLOCK_INPUT);
}

/* What attention projects of a token: query, key and value; of latents, expanded to heads or met by absorbed queries.
 */
static bp_u128 projected_width(struct bp_inference_builder *b)
{
    const struct bp_symbols *s = b->s;
    const struct bp_kind *kind = b->kind;
    struct bp_calc *calc = &b->calc;
    bp_u128 rope = kind->qk_rope_head_dim, key = bp_add(calc, kind->qk_nope_head_dim, rope);
    if (kind->attention != BP_ATTENTION_LATENT)
        return bp_mul(calc, s->d, bp_add(calc, s->h_l, bp_mul(calc, 2, s->k_l)));
    return bp_mul(calc, s->h_l,
                  b->decode ? bp_add(calc, kind->kv_lora_rank, rope)
                            : bp_add(calc, bp_mul(calc, 2, key), kind->v_head_dim));
}

/* The largest intermediate of the block in elements: what attention projects, the scores, what stands before the MLP's
 * activation. */
static bp_u128 widest(struct bp_inference_builder *b)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 ups = s->gated ? 2 : 1;
    const bp_u128 intermediates[] = {
        bp_mul(calc, b->bq, projected_width(b)),
        bp_inference_scores(b),
        BP_PROD(calc, ups, b->bq, bp_div(calc, s->E ? s->F_s : s->F, s->t)),
        s->E ? BP_PROD(calc, ups, s->pairs, bp_div(calc, s->F_e, s->etp)) : 0,
    };
    bp_u128 most = 0;
    for (size_t i = 0; i < sizeof intermediates / sizeof *intermediates; i++)
        most = intermediates[i] > most ? intermediates[i] : most;
    return most;
}

/* Weights; the cache; the boundary D = Ye; and the workspace bound, D and the widest intermediate, which assumes that
 * no target has chosen an implementation of attention.core yet: the scores are materialised. */
static void sum_memory(struct bp_inference_builder *b)
{
    const struct bp_symbols *s = b->s;
    const struct bp_kind *kind = b->kind;
    struct bp_calc *calc = &b->calc;
    bool latent = kind->attention == BP_ATTENTION_LATENT;
    bp_u128 cached = latent ? bp_add(calc, kind->kv_lora_rank, kind->qk_rope_head_dim) : BP_PROD(calc, 2, s->d, s->k_l);
    const struct {
        enum bp_memory_fact fact;
        bp_u128 elements, bytes;
    } held[] = {
        {BP_MEMORY_WEIGHTS, b->weights, s->e},
        {BP_MEMORY_KV_CACHE, bp_mul(calc, b->bc, cached), s->e_kv},
        {BP_MEMORY_WORKSPACE, bp_add(calc, b->Y, widest(b)), s->e},
        {BP_MEMORY_BOUNDARY, b->Y, s->e},
    };
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        b->block->memory.at[held[i].fact] = bp_bytes(calc, bp_mul(calc, held[i].elements, held[i].bytes));
}

int bp_inference_block(const struct bp_request *request, const struct bp_symbols *s, struct bp_block *ret,
                       struct bp_err *err)
{
    struct bp_inference_builder b = {.block = ret,
                                     .model = &request->model,
                                     .kind = s->kind,
                                     .s = s,
                                     .R = request->strategy.replicas,
                                     .decode = request->workload.phase == BP_DECODE};
    const char *unsupported = bp_unsupported_in_kind(s->kind, BP_MODE_INFERENCE, request->strategy.tensor_parallel);
    if (unsupported)
        return bp_fail(err, BP_E_unsupported_feature, "/model", "inference has no rows for %s", unsupported);
    if (s->kind->num_experts && !s->own_tokens)
        return bp_fail(err, BP_E_internal, "/workload", "the tokens of a step do not divide over the tensor group");
    b.bq = bp_mul(&b.calc, s->b, s->q);
    b.bc = bp_mul(&b.calc, s->b, s->c);
    b.Y = bp_mul(&b.calc, b.bq, s->H);
    /* Rows are cleared as they are added. */
    ret->n_rows = 0;
    ret->memory = (struct bp_memory){0};
    ret->forward_phase = b.decode ? BP_PHASE_DECODE : BP_PHASE_PREFILL;
    ret->boundary = (struct bp_tensor_shape){
        3, {bp_mul(&b.calc, b.R, s->b), s->q, s->H}, {BP_AXIS_REPLICA, BP_AXIS_NONE, BP_AXIS_NONE}};
    if (s->kind->residual == BP_RESIDUAL_PARALLEL)
        add_parallel_halves(&b);
    else
        add_halves(&b);
    sum_memory(&b);
    return bp_calc_check(&b.calc, "/workload", "the work or memory of the block", err);
}
