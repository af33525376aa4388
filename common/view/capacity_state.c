/* Parameters, gradients and optimizer state of the tensors a stage holds, row by row. */
#include "common/view/capacity_run.h"

void bp_held_add(struct bp_capacity_run *run, struct bp_held *to, const struct bp_held *held, bp_u128 times)
{
    struct bp_calc *calc = &run->calc;
    to->whole = bp_add(calc, to->whole, bp_mul(calc, times, held->whole));
    to->own = bp_add(calc, to->own, bp_mul(calc, times, held->own));
    to->weights = bp_add(calc, to->weights, bp_mul(calc, times, held->weights));
    to->gradients = bp_add(calc, to->gradients, bp_mul(calc, times, held->gradients));
    to->optimizer = bp_add(calc, to->optimizer, bp_mul(calc, times, held->optimizer));
}

/* Optimizer state of a tensor of n rows and k columns (k = 0: a vector of n) of which this rank owns `own` elements
 * (Rajbhandari et al., section 3.1; Dettmers et al., 8-bit Optimizers; Shazeer and Stern, Adafactor), and the fp32
 * master copy beside weights of fewer than four bytes. */
static bp_u128 optimizer_bytes(struct bp_capacity_run *run, bp_u128 own, bp_u128 n, bp_u128 k)
{
    struct bp_calc *calc = &run->calc;
    bp_u128 bytes = 0;
    switch (run->job->optimizer) {
    case BP_ADAM:
    case BP_ADAMW:
        bytes = bp_mul(calc, 8, own);
        break;
    case BP_SGD:
        break;
    case BP_SGD_MOMENTUM:
        bytes = bp_mul(calc, 4, own);
        break;
    case BP_ADAM_8BIT:
        bytes = own < 4096 ? bp_mul(calc, 8, own)
                           : bp_add(calc, bp_mul(calc, 2, own), bp_mul(calc, 8, bp_div_ceil(calc, own, 2048)));
        break;
    case BP_ADAFACTOR:
        bytes = bp_mul(calc, 4, bp_add(calc, n, k));
        break;
    }
    return run->s.e < 4 ? bp_add(calc, bytes, bp_mul(calc, 4, own)) : bytes;
}

/* A bias shares the shard of its matrix. */
static void hold(struct bp_capacity_run *run, struct bp_held *held, const struct bp_tensor *tensor)
{
    struct bp_calc *calc = &run->calc;
    bp_u128 n = tensor->n, k = tensor->k;
    uint64_t zero = run->request->strategy.zero_stage;
    bp_u128 P = bp_add(calc, k ? bp_mul(calc, n, k) : n, tensor->bias ? k : 0);
    bp_u128 shard = bp_div_ceil(calc, P, run->s.dp), own = zero >= 1 ? shard : P;
    held->whole = bp_add(calc, held->whole, P);
    held->own = bp_add(calc, held->own, own);
    held->weights = bp_add(calc, held->weights, bp_mul(calc, zero >= 3 ? shard : P, run->s.e));
    held->gradients = bp_add(calc, held->gradients, bp_mul(calc, zero >= 2 ? shard : P, run->s.g));
    bp_u128 vector = tensor->bias && run->job->optimizer == BP_ADAFACTOR ? bp_mul(calc, 4, k) : 0;
    held->optimizer = BP_SUM(calc, held->optimizer, optimizer_bytes(run, own, n, k), vector);
}

void bp_capacity_add_tensor(struct bp_capacity_run *run, const struct bp_row *row)
{
    const struct bp_tensor_shape *shape = &row->parameter_shape;
    struct bp_tensor *tensor = &run->block.tensors[run->block.n_tensors++];
    bp_u128 local[2] = {shape->size[0], shape->n_dims > 1 ? shape->size[1] : 0};
    for (uint32_t i = 0; i < shape->n_dims && i < 2; i++)
        if (shape->sharding[i] == BP_AXIS_TENSOR)
            local[i] = bp_div(&run->calc, local[i], run->s.t);
    *tensor = row->engine == BP_ENGINE_MATRIX ? (struct bp_tensor){local[0] - row->bias, local[1], row->bias}
                                              : (struct bp_tensor){.n = row->parameters};
}

static bp_u128 norm_vectors(const struct bp_model *model)
{
    return model->norm == BP_NORM_LAYERNORM ? 2 : 1;
}

/* ceil(V/t), V first rounded up to the vocabulary's multiple. */
bp_u128 bp_capacity_vocabulary_share(struct bp_capacity_run *run)
{
    struct bp_calc *calc = &run->calc;
    bp_u128 multiple = run->job->vocab_multiple;
    bp_u128 padded = bp_mul(calc, bp_div_ceil(calc, run->request->model.vocab_size, multiple), multiple);
    return bp_div_ceil(calc, padded, run->s.t);
}

/* Stage 0: token embedding and learned positions. Last stage: final norm and output head; a tied head is the embedding
 * itself on one stage and a copy on another. */
void bp_capacity_hold(struct bp_capacity_run *run)
{
    const struct bp_model *model = &run->request->model;
    const struct bp_tensor table = {.n = bp_capacity_vocabulary_share(run), .k = run->s.H};
    const struct bp_tensor positions = {.n = model->max_position_embeddings, .k = run->s.H};
    const struct bp_tensor norm = {.n = bp_mul(&run->calc, norm_vectors(model), run->s.H)};
    for (uint32_t i = 0; i < run->block.n_tensors; i++)
        hold(run, &run->one_block, &run->block.tensors[i]);
    hold(run, &run->embedding, &table);
    if (model->position == BP_POSITION_LEARNED)
        hold(run, &run->embedding, &positions);
    hold(run, &run->head, &norm);
    if (!model->tie_word_embeddings || run->p > 1)
        hold(run, &run->head, &table);
}
