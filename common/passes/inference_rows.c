#include "common/passes/inference_rows.h"

struct bp_row *bp_inference_add(struct bp_inference_builder *b, const char *name, enum bp_engine engine, uint32_t input,
                                const struct bp_inference_work *work)
{
    struct bp_calc *calc = &b->calc;
    bp_u128 e = b->s->e, e_kv = b->s->e_kv;
    struct bp_row *row = bp_block_add(b->block, name, engine);
    bp_row_reads(row, input);
    row->forward = bp_row_work_bytes(calc, work->operations,
                                     bp_add(calc, bp_mul(calc, work->read, e), bp_mul(calc, work->cache_read, e_kv)),
                                     bp_add(calc, bp_mul(calc, work->write, e), bp_mul(calc, work->cache_write, e_kv)));
    return row;
}

void bp_inference_parameters(struct bp_inference_builder *b, struct bp_row *row, bp_u128 parameters,
                             struct bp_tensor_shape shape)
{
    struct bp_calc *calc = &b->calc;
    struct bp_bytes *read = &row->forward.work.read;
    row->parameters = bp_bytes(calc, parameters).n;
    row->parameter_shape = shape;
    *read = bp_bytes_add(calc, *read, bp_bytes(calc, bp_mul(calc, parameters, b->s->e)));
    b->weights = bp_add(calc, b->weights, parameters);
}

struct bp_tensor_shape bp_inference_split_width(struct bp_inference_builder *b, bp_u128 width)
{
    return (struct bp_tensor_shape){3,
                                    {b->block->boundary.size[0], b->s->q, bp_mul(&b->calc, b->s->t, width)},
                                    {BP_AXIS_REPLICA, BP_AXIS_NONE, BP_AXIS_TENSOR}};
}

struct bp_tensor_shape bp_inference_whole_width(const struct bp_inference_builder *b, bp_u128 width)
{
    struct bp_tensor_shape shape = b->block->boundary;
    shape.size[2] = width;
    return shape;
}

struct bp_row *bp_inference_norm(struct bp_inference_builder *b, const char *name, uint32_t input, bp_u128 n,
                                 bp_u128 width)
{
    const struct bp_model *model = b->model;
    bool layernorm = model->norm == BP_NORM_LAYERNORM;
    unsigned vectors = model->norm_without_weight ? 0 : layernorm && !model->norm_without_bias ? 2 : 1;
    const struct bp_inference_work work = {.operations = bp_mul(&b->calc, layernorm ? 5 : 4, n), .read = n, .write = n};
    struct bp_row *row = bp_inference_add(b, name, BP_ENGINE_VECTOR, input, &work);
    if (vectors)
        bp_inference_parameters(b, row, bp_mul(&b->calc, vectors, width),
                                (struct bp_tensor_shape){2, {vectors, width}, {BP_AXIS_NONE, BP_AXIS_NONE}});
    row->output_shape = bp_inference_whole_width(b, width);
    return row;
}

/* 2mnk operations; a bias adds its k columns to P. */
struct bp_row *bp_inference_linear(struct bp_inference_builder *b, const char *name, uint32_t input, bp_u128 m,
                                   bp_u128 n, bp_u128 k, bool bias, enum bp_inference_split split)
{
    struct bp_calc *calc = &b->calc;
    bp_u128 t = b->s->t, rows = bp_add(calc, n, bias);
    const struct bp_inference_work work = {
        .operations = BP_PROD(calc, 2, m, n, k), .read = bp_mul(calc, m, n), .write = bp_mul(calc, m, k)};
    struct bp_row *row = bp_inference_add(b, name, BP_ENGINE_MATRIX, input, &work);
    const struct bp_tensor_shape shapes[] = {
        [BP_WHOLE] = {2, {rows, k}, {BP_AXIS_NONE, BP_AXIS_NONE}},
        [BP_BY_COLUMNS] = {2, {rows, bp_mul(calc, t, k)}, {BP_AXIS_NONE, BP_AXIS_TENSOR}},
        [BP_BY_ROWS] = {2, {bp_mul(calc, t, rows), k}, {BP_AXIS_TENSOR, BP_AXIS_NONE}},
    };
    bp_inference_parameters(b, row, bp_mul(calc, rows, k), shapes[split]);
    row->output_shape = split == BP_BY_COLUMNS ? bp_inference_split_width(b, k) : bp_inference_whole_width(b, k);
    return row;
}

struct bp_row *bp_inference_collective(struct bp_inference_builder *b, const char *name, uint32_t input,
                                       enum bp_axis axis, enum bp_collective kind, bp_u128 payload, bp_u128 ranks)
{
    struct bp_row *row = bp_block_add(b->block, name, BP_ENGINE_COLLECTIVE);
    bp_row_reads(row, input);
    row->axis = axis;
    row->forward = bp_row_collective(&b->calc, b->s, kind, payload, ranks);
    row->output_shape = b->block->boundary;
    return row;
}

struct bp_row *bp_inference_activation(struct bp_inference_builder *b, const char *name, uint32_t gate, uint32_t up,
                                       bp_u128 n)
{
    static const unsigned operations[] = {
        [BP_ACTIVATION_GELU] = 8, [BP_ACTIVATION_RELU] = 1, [BP_ACTIVATION_SWIGLU] = 9, [BP_ACTIVATION_GEGLU] = 9};
    struct bp_calc *calc = &b->calc;
    const struct bp_inference_work work = {.operations = bp_mul(calc, operations[b->kind->activation], n),
                                           .read = bp_mul(calc, b->s->gated ? 2 : 1, n),
                                           .write = n};
    struct bp_row *row = bp_inference_add(b, name, BP_ENGINE_VECTOR, b->s->gated ? gate : up, &work);
    bp_row_reads(row, up);
    return row;
}

uint32_t bp_inference_sum(struct bp_inference_builder *b, const char *name, uint32_t branch, uint32_t skip)
{
    const struct bp_inference_work work = {.operations = b->Y, .read = bp_mul(&b->calc, 2, b->Y), .write = b->Y};
    struct bp_row *row = bp_inference_add(b, name, BP_ENGINE_VECTOR, branch, &work);
    bp_row_reads(row, skip);
    row->output_shape = b->block->boundary;
    return bp_block_last(b->block);
}

uint32_t bp_inference_all_reduce(struct bp_inference_builder *b, const char *name, uint32_t input)
{
    if (b->s->t == 1)
        return input;
    bp_inference_collective(b, name, input, BP_AXIS_TENSOR, BP_COLLECTIVE_ALL_REDUCE, b->Y, b->s->t);
    return bp_block_last(b->block);
}

uint32_t bp_inference_mlp(struct bp_inference_builder *b, const struct bp_inference_mlp_names *names, uint32_t input,
                          bp_u128 width)
{
    const struct bp_symbols *s = b->s;
    bool bias = b->kind->mlp_bias;
    if (s->gated)
        bp_inference_linear(b, names->gate, input, b->bq, s->H, width, bias, BP_BY_COLUMNS);
    uint32_t gate = bp_block_last(b->block);
    bp_inference_linear(b, names->up, input, b->bq, s->H, width, bias, BP_BY_COLUMNS);
    uint32_t up = bp_block_last(b->block);
    bp_inference_activation(b, names->activation, gate, up, bp_mul(&b->calc, b->bq, width))->output_shape =
        bp_inference_split_width(b, width);
    bp_inference_linear(b, names->down, bp_block_last(b->block), b->bq, width, s->H, bias, BP_BY_ROWS);
    return bp_block_last(b->block);
}

bp_u128 bp_inference_scores(struct bp_inference_builder *b)
{
    return BP_PROD(&b->calc, b->s->b, b->s->h_l, b->s->q, b->s->c);
}

/* A softmax is 5 operations a score, as many for the score of a sink; a soft cap 3, a position bias one. */
struct bp_row *bp_inference_core(struct bp_inference_builder *b, uint32_t query, struct bp_inference_work work,
                                 bp_u128 width)
{
    const struct bp_symbols *s = b->s;
    struct bp_calc *calc = &b->calc;
    bool alibi = b->model->position == BP_POSITION_ALIBI, sinks = b->kind->sinks;
    unsigned per_score = 5 + (b->kind->soft_cap ? 3U : 0U) + (alibi ? 1U : 0U);
    bp_u128 of_sinks = sinks ? BP_PROD(calc, 5, b->bq, s->h_l) : 0;
    work.operations = BP_SUM(calc, work.operations, bp_mul(calc, per_score, bp_inference_scores(b)), of_sinks);
    struct bp_row *row = bp_inference_add(b, "attention.core", BP_ENGINE_MATRIX, query, &work);
    if (sinks)
        bp_inference_parameters(b, row, s->h_l,
                                (struct bp_tensor_shape){1, {bp_mul(calc, s->t, s->h_l)}, {BP_AXIS_TENSOR}});
    row->effect = (struct bp_effect){true, BP_ACCESS_READ};
    row->output_shape = bp_inference_split_width(b, width);
    return row;
}
