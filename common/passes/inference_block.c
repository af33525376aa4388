/* The inference block as a table of rows (docs/formulas.md, "Inference block"): one phase, q query tokens against c
 * visible ones; q = c in prefill, q = 1 in decode. The fused QKV projection and the KV cache follow serving engines;
 * the attention core is Vaswani et al., "Attention Is All You Need", section 3.2.1, with an explicit softmax.
 */
#include "common/passes/block.h"

struct builder {
    struct bp_block *block;
    const struct bp_model *model;
    const struct bp_kind *kind; /* of the block */
    const struct bp_symbols *s;
    struct bp_calc calc;
    bp_u128 R;       /* replicas */
    bp_u128 bq;      /* query tokens */
    bp_u128 Y;       /* b*q*H */
    bp_u128 weights; /* sum of P */
};

static struct bp_row *add_row(struct builder *b, const char *name, enum bp_engine engine, uint32_t input,
                              bp_u128 operations, bp_u128 read, bp_u128 write)
{
    struct bp_row *row = bp_block_add(b->block, name, engine);
    bp_row_reads(row, input);
    row->forward = bp_row_work(&b->calc, operations, read, write, b->s->e);
    return row;
}

static void row_parameters(struct builder *b, struct bp_row *row, bp_u128 parameters, struct bp_tensor_shape shape)
{
    row->parameters = bp_bytes(&b->calc, parameters).n;
    row->parameter_shape = shape;
    b->weights = bp_add(&b->calc, b->weights, parameters);
}

/* [R*b, q, width], split over the tensor group along the last dimension. */
static struct bp_tensor_shape split_width(struct builder *b, bp_u128 width)
{
    return (struct bp_tensor_shape){3,
                                    {b->block->boundary.size[0], b->s->q, bp_mul(&b->calc, b->s->t, width)},
                                    {BP_AXIS_REPLICA, BP_AXIS_NONE, BP_AXIS_TENSOR}};
}

/* A norm of n elements in rows of `width`; qk_norm has one for query and one for key, hence `sets`. */
static uint32_t add_norm(struct builder *b, const char *name, uint32_t input, bp_u128 n, bp_u128 width, bp_u128 sets)
{
    struct bp_calc *calc = &b->calc;
    bool layernorm = b->model->norm == BP_NORM_LAYERNORM;
    bp_u128 vectors = bp_mul(calc, sets, layernorm ? 2 : 1), P = bp_mul(calc, vectors, width);
    struct bp_row *row =
        add_row(b, name, BP_ENGINE_VECTOR, input, bp_mul(calc, layernorm ? 5 : 4, n), bp_add(calc, n, P), n);
    row_parameters(b, row, P, (struct bp_tensor_shape){2, {vectors, width}, {BP_AXIS_NONE, BP_AXIS_NONE}});
    row->output_shape = b->block->boundary;
    return bp_block_last(b->block);
}

/* [bq,n] x [n,k]: 2bqnk operations; a bias adds its k columns to P. */
enum split { SPLIT_COLUMNS, SPLIT_ROWS };

static uint32_t add_linear(struct builder *b, const char *name, uint32_t input, bp_u128 n, bp_u128 k, bool bias,
                           enum split split)
{
    struct bp_calc *calc = &b->calc;
    bp_u128 t = b->s->t, rows = bp_add(calc, n, bias), P = bp_mul(calc, rows, k);
    struct bp_row *row = add_row(b, name, BP_ENGINE_MATRIX, input, BP_PROD(calc, 2, b->bq, n, k),
                                 bp_add(calc, bp_mul(calc, b->bq, n), P), bp_mul(calc, b->bq, k));
    bool columns = split == SPLIT_COLUMNS;
    row_parameters(b, row, P,
                   columns ? (struct bp_tensor_shape){2, {rows, bp_mul(calc, t, k)}, {BP_AXIS_NONE, BP_AXIS_TENSOR}}
                           : (struct bp_tensor_shape){2, {bp_mul(calc, t, rows), k}, {BP_AXIS_TENSOR, BP_AXIS_NONE}});
    row->output_shape = columns ? split_width(b, k) : b->block->boundary;
    return bp_block_last(b->block);
}

/* The sum over the tensor group, where there is one, and the residual. */
static uint32_t add_half_end(struct builder *b, const char *all_reduce, const char *residual, uint32_t input,
                             uint32_t skip)
{
    if (b->s->t > 1) {
        struct bp_row *row = bp_block_add(b->block, all_reduce, BP_ENGINE_COLLECTIVE);
        bp_row_reads(row, input);
        row->forward = bp_row_collective(&b->calc, b->s, BP_COLLECTIVE_ALL_REDUCE, b->Y, b->s->t);
        row->output_shape = b->block->boundary;
        input = bp_block_last(b->block);
    }
    struct bp_row *row = add_row(b, residual, BP_ENGINE_VECTOR, input, b->Y, bp_mul(&b->calc, 2, b->Y), b->Y);
    bp_row_reads(row, skip);
    row->output_shape = b->block->boundary;
    return bp_block_last(b->block);
}

static uint32_t add_attention(struct builder *b)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 query_width = bp_mul(calc, s->d, s->h_l), kv_width = BP_PROD(calc, 2, s->d, s->k_l);
    bp_u128 rotated_width = bp_mul(calc, s->d, bp_add(calc, s->h_l, s->k_l));
    bp_u128 rotated = bp_mul(calc, b->bq, rotated_width), bc = bp_mul(calc, s->b, s->c);
    bp_u128 scores = BP_PROD(calc, s->b, s->h_l, s->q, s->c);

    uint32_t norm = add_norm(b, "attention.norm", BP_BLOCK_INPUT, b->Y, s->H, 1);
    uint32_t qkv = add_linear(b, "attention.qkv", norm, s->H, bp_add(calc, query_width, kv_width), b->kind->qkv_bias,
                              SPLIT_COLUMNS);
    uint32_t heads = qkv; /* where query and key come from */
    if (b->kind->qk_norm) {
        heads = add_norm(b, "attention.qk_norm", heads, rotated, s->d, 2);
        b->block->rows[heads].output_shape = split_width(b, rotated_width);
    }
    if (b->model->position == BP_POSITION_ROPE) {
        struct bp_row *row =
            add_row(b, "attention.rope", BP_ENGINE_VECTOR, heads, bp_mul(calc, 6, rotated), rotated, rotated);
        row->output_shape = split_width(b, rotated_width);
        heads = bp_block_last(b->block);
    }

    bp_u128 written = bp_mul(calc, b->bq, kv_width);
    struct bp_row *row = add_row(b, "attention.kv_write", BP_ENGINE_VECTOR, qkv, 0, written, written);
    if (heads != qkv)
        bp_row_reads(row, heads);
    row->effect = (struct bp_effect){true, BP_ACCESS_WRITE};
    row->writes_kv_cache = true;
    row->output_shape = (struct bp_tensor_shape){3,
                                                 {b->block->boundary.size[0], s->c, bp_mul(calc, s->t, kv_width)},
                                                 {BP_AXIS_REPLICA, BP_AXIS_NONE, BP_AXIS_TENSOR}};
    uint32_t cache = bp_block_last(b->block);

    row = add_row(b, "attention.core", BP_ENGINE_MATRIX, heads,
                  bp_add(calc, BP_PROD(calc, 4, scores, s->d), bp_mul(calc, 5, scores)),
                  bp_add(calc, bp_mul(calc, b->bq, query_width), bp_mul(calc, bc, kv_width)),
                  bp_mul(calc, b->bq, query_width));
    bp_row_reads(row, cache);
    row->effect = (struct bp_effect){true, BP_ACCESS_READ};
    row->output_shape = split_width(b, query_width);

    uint32_t output =
        add_linear(b, "attention.output", bp_block_last(b->block), query_width, s->H, b->kind->output_bias, SPLIT_ROWS);
    return add_half_end(b, "attention.all_reduce", "attention.residual", output, BP_BLOCK_INPUT);
}

static void add_mlp(struct builder *b, uint32_t skip)
{
    static const unsigned operations[] = {
        [BP_ACTIVATION_GELU] = 8, [BP_ACTIVATION_RELU] = 1, [BP_ACTIVATION_SWIGLU] = 9, [BP_ACTIVATION_GEGLU] = 9};
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 F_l = bp_div(calc, s->F, s->t), f = bp_mul(calc, b->bq, F_l);
    bool bias = b->kind->mlp_bias;

    uint32_t norm = add_norm(b, "mlp.norm", skip, b->Y, s->H, 1);
    uint32_t gate = s->gated ? add_linear(b, "mlp.gate", norm, s->H, F_l, bias, SPLIT_COLUMNS) : norm;
    uint32_t up = add_linear(b, "mlp.up", norm, s->H, F_l, bias, SPLIT_COLUMNS);
    struct bp_row *row =
        add_row(b, "mlp.activation", BP_ENGINE_VECTOR, s->gated ? gate : up,
                bp_mul(calc, operations[b->kind->activation], f), bp_mul(calc, s->gated ? 2 : 1, f), f);
    if (s->gated)
        bp_row_reads(row, up);
    row->output_shape = split_width(b, F_l);
    uint32_t down = add_linear(b, "mlp.down", bp_block_last(b->block), F_l, s->H, bias, SPLIT_ROWS);
    add_half_end(b, "mlp.all_reduce", "mlp.residual", down, skip);
}

/* Weights; the cache C_KV = 2bcdk_l*e; the boundary D = Ye; and the workspace bound D + e*max(bqr, s, f or 2f), which
 * assumes that no target has chosen an implementation of attention.core yet: the scores are materialised. */
static void sum_memory(struct builder *b)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bp_u128 widths[] = {
        BP_PROD(calc, b->bq, s->d, bp_add(calc, s->h_l, bp_mul(calc, 2, s->k_l))),
        BP_PROD(calc, s->b, s->h_l, s->q, s->c),
        BP_PROD(calc, s->gated ? 2 : 1, b->bq, bp_div(calc, s->F, s->t)),
    };
    bp_u128 largest = 0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        largest = widths[i] > largest ? widths[i] : largest;
    const struct {
        enum bp_memory_fact fact;
        bp_u128 elements;
    } held[] = {
        {BP_MEMORY_WEIGHTS, b->weights},
        {BP_MEMORY_KV_CACHE, BP_PROD(calc, 2, s->b, s->c, s->d, s->k_l)},
        {BP_MEMORY_WORKSPACE, bp_add(calc, b->Y, largest)},
        {BP_MEMORY_BOUNDARY, b->Y},
    };
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        b->block->memory.at[held[i].fact] = bp_bytes(calc, bp_mul(calc, held[i].elements, s->e));
}

int bp_inference_block(const struct bp_request *request, const struct bp_symbols *s, struct bp_block *ret,
                       struct bp_err *err)
{
    struct builder b = {
        .block = ret, .model = &request->model, .kind = s->kind, .s = s, .R = request->strategy.replicas};
    b.bq = bp_mul(&b.calc, s->b, s->q);
    b.Y = bp_mul(&b.calc, b.bq, s->H);
    *ret = (struct bp_block){
        .boundary = {3, {bp_mul(&b.calc, b.R, s->b), s->q, s->H}, {BP_AXIS_REPLICA, BP_AXIS_NONE, BP_AXIS_NONE}},
        .forward_phase = request->workload.phase == BP_PREFILL ? BP_PHASE_PREFILL : BP_PHASE_DECODE};
    add_mlp(&b, add_attention(&b));
    sum_memory(&b);
    return bp_calc_check(&b.calc, "/workload", "the work or memory of the block", err);
}
