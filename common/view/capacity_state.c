/* Parameters, gradients and optimizer state of the tensors a stage holds, row by row. */
#include "common/view/capacity_run.h"

/* Adds `times` of one to another. */
static void held_add(struct bp_capacity_run *run, struct bp_held *to, const struct bp_held *held, bp_u128 times)
{
    struct bp_calc *calc = &run->calc;
    to->whole = bp_add(calc, to->whole, bp_mul(calc, times, held->whole));
    to->own = bp_add(calc, to->own, bp_mul(calc, times, held->own));
    to->weights = bp_add(calc, to->weights, bp_mul(calc, times, held->weights));
    to->gradients = bp_add(calc, to->gradients, bp_mul(calc, times, held->gradients));
    to->optimizer = bp_add(calc, to->optimizer, bp_mul(calc, times, held->optimizer));
}

/* Optimizer state of a tensor of which this rank owns `own` elements (Rajbhandari et al., section 3.1; Dettmers et al.,
 * "8-bit Optimizers via Block-wise Quantization", blocks of 2,048; Shazeer and Stern, "Adafactor", section 3), and the
 * fp32 master copy beside weights of fewer than four bytes. */
static bp_u128 optimizer_bytes(struct bp_capacity_run *run, const struct bp_tensor *tensor, bp_u128 own)
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
        bytes = BP_PROD(calc, 4, tensor->copies, BP_SUM(calc, tensor->n, tensor->k, tensor->bias ? tensor->k : 0));
        break;
    }
    return run->s.e < 4 ? bp_add(calc, bytes, bp_mul(calc, 4, own)) : bytes;
}

/* As a checkpoint stores a linear: its elements packed, a scale for each block of them; its biases are of the dtype. A
 * tensor here has its outputs in columns. */
static bp_u128 stored_bytes(struct bp_capacity_run *run, const struct bp_tensor *tensor)
{
    const struct bp_quantisation *storage = &run->job->storage;
    struct bp_calc *calc = &run->calc;
    bp_u128 rows = storage->block_rows ? storage->block_rows : tensor->k;
    bp_u128 columns = storage->block_columns ? storage->block_columns : tensor->n;
    bp_u128 blocks = bp_mul(calc, bp_div_ceil(calc, tensor->k, rows), bp_div_ceil(calc, tensor->n, columns));
    bp_u128 bits = bp_add(calc, BP_PROD(calc, tensor->n, tensor->k, storage->element_bits),
                          bp_mul(calc, blocks, storage->scale_bits));
    bp_u128 bytes = bp_add(calc, bp_div_ceil(calc, bits, 8), tensor->bias ? bp_mul(calc, tensor->k, run->s.e) : 0);
    return bp_mul(calc, tensor->copies, bytes);
}

/* float8 quantises the linears of the blocks, with an fp32 scale a tile of 128 by 128; all else stays at two bytes. */
static bp_u128 weight_bytes(struct bp_capacity_run *run, const struct bp_tensor *tensor, bp_u128 elements)
{
    struct bp_calc *calc = &run->calc;
    const struct bp_quantisation *storage = &run->job->storage;
    if (storage->element_bits && tensor->linear && (tensor->expert || !storage->experts_only))
        return stored_bytes(run, tensor);
    if (run->request->workload.dtype != BP_DTYPE_FLOAT8)
        return bp_mul(calc, elements, run->s.e);
    if (!tensor->linear)
        return bp_mul(calc, elements, 2);
    bp_u128 tiles = bp_mul(calc, bp_div_ceil(calc, tensor->n, 128), bp_div_ceil(calc, tensor->k, 128));
    bp_u128 biases = tensor->bias ? bp_mul(calc, tensor->copies, tensor->k) : 0;
    return BP_SUM(calc, elements, biases, BP_PROD(calc, 4, tensor->copies, tiles));
}

/* shard(P) = ceil(P / ranks) is the largest rank's share of a row. */
static void hold(struct bp_capacity_run *run, struct bp_held *held, const struct bp_tensor *tensor, bp_u128 ranks)
{
    struct bp_calc *calc = &run->calc;
    uint64_t zero = run->request->strategy.zero_stage;
    bp_u128 P = tensor->elements, shard = bp_div_ceil(calc, P, ranks);
    bp_u128 own = zero >= 1 ? shard : P;
    held->whole = bp_add(calc, held->whole, P);
    held->own = bp_add(calc, held->own, own);
    held->weights = bp_add(calc, held->weights, weight_bytes(run, tensor, zero >= 3 ? shard : P));
    held->gradients = bp_add(calc, held->gradients, bp_mul(calc, zero >= 2 ? shard : P, run->s.g));
    held->optimizer = bp_add(calc, held->optimizer, optimizer_bytes(run, tensor, own));
}

/* ceil(V/t), V first rounded up to the vocabulary's multiple. */
bp_u128 bp_capacity_vocabulary_share(struct bp_capacity_run *run)
{
    struct bp_calc *calc = &run->calc;
    bp_u128 multiple = run->job->vocab_multiple;
    bp_u128 padded = bp_mul(calc, bp_div_ceil(calc, run->request->model.vocab_size, multiple), multiple);
    return bp_div_ceil(calc, padded, run->s.t);
}

static struct bp_tensor matrix(struct bp_capacity_run *run, bp_u128 rows)
{
    bp_u128 H = run->s.H;
    return (struct bp_tensor){.copies = 1, .n = rows, .k = H, .elements = bp_mul(&run->calc, rows, H)};
}

static struct bp_tensor vector(bp_u128 n)
{
    return (struct bp_tensor){.copies = 1, .n = n, .elements = n};
}

bp_u128 bp_capacity_end_norm(struct bp_capacity_run *run, bool last)
{
    const struct bp_model *model = &run->request->model;
    bool there = last ? !model->final_norm_absent && !model->norm_without_weight : model->embedding_norm;
    unsigned vectors = model->norm == BP_NORM_LAYERNORM && !model->norm_without_bias ? 2 : 1;
    return there ? bp_mul(&run->calc, vectors, run->s.H) : 0;
}

/* The output head with its bias, which is of its row; where the embedding is the head, the bias alone. */
static struct bp_tensor head_of(struct bp_capacity_run *run, bp_u128 V)
{
    const struct bp_model *model = &run->request->model;
    struct bp_calc *calc = &run->calc;
    if (model->tie_word_embeddings && run->p == 1)
        return vector(model->head_bias ? V : 0);
    struct bp_tensor head = {.copies = 1, .n = run->s.H, .k = V, .bias = model->head_bias};
    head.elements = bp_add(calc, bp_mul(calc, head.n, V), head.bias ? V : 0);
    return head;
}

/* First stage: token embedding, its norm and learned positions. Last stage: final norm and output head; a tied head is
 * the embedding itself on one stage and a copy on another. */
static void hold_ends(struct bp_capacity_run *run)
{
    const struct bp_model *model = &run->request->model;
    bp_u128 V = bp_capacity_vocabulary_share(run), ranks = run->s.dp;
    const struct bp_tensor table = matrix(run, V), positions = matrix(run, model->max_position_embeddings);
    const struct bp_tensor first_norm = vector(bp_capacity_end_norm(run, false));
    const struct bp_tensor final_norm = vector(bp_capacity_end_norm(run, true)), head = head_of(run, V);
    hold(run, &run->embedding, &table, ranks);
    hold(run, &run->embedding, &first_norm, ranks);
    if (model->position == BP_POSITION_LEARNED)
        hold(run, &run->embedding, &positions, ranks);
    hold(run, &run->head, &final_norm, ranks);
    hold(run, &run->head, &head, ranks);
}

void bp_capacity_hold(struct bp_capacity_run *run)
{
    for (uint32_t i = 0; i < run->n_kinds; i++) {
        struct bp_capacity_kind *kind = &run->kinds[i];
        kind->held = (struct bp_held){0};
        for (uint32_t j = 0; j < kind->facts->n_tensors; j++)
            hold(run, &kind->held, &kind->facts->tensors[j],
                 kind->facts->tensors[j].expert ? kind->s.expert_dp : kind->s.dp);
    }
    hold_ends(run);
}

struct bp_held bp_capacity_stage_state(struct bp_capacity_run *run, uint64_t stage, const struct bp_kind_counts *counts,
                                       struct bp_held *ret_blocks_only)
{
    struct bp_held blocks = {0}, all;
    for (uint32_t i = 0; i < run->n_kinds; i++)
        held_add(run, &blocks, &run->kinds[i].held, counts->of[i]);
    all = *ret_blocks_only = blocks;
    if (stage == 0)
        held_add(run, &all, &run->embedding, 1);
    if (stage == run->p - 1)
        held_add(run, &all, &run->head, 1);
    return all;
}
