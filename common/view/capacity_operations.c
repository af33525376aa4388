/* Operations of a whole step: products on the matrix engine, as executed and as the model asks for them. */
#include "common/view/capacity_run.h"

#include <string.h>

static bool is_score_product(const struct bp_row *row)
{
    return strcmp(row->name, "attention.scores") == 0 || strcmp(row->name, "attention.context") == 0;
}

/* Training, as executed: one block, one rank, one micro-batch, with what is done again. */
static bp_u128 executed(struct bp_capacity_run *run, const struct bp_block *block)
{
    struct bp_calc *calc = &run->calc;
    bool causal = run->job->conventions.attention == BP_ATTENTION_CAUSAL;
    bp_u128 sum = 0;
    for (uint32_t i = 0; i < block->n_rows; i++) {
        const struct bp_row *row = &block->rows[i];
        if (row->engine != BP_ENGINE_MATRIX)
            continue;
        bp_u128 forward = row->forward.work.operations.n;
        bp_u128 all = BP_SUM(calc, forward, row->recomputed ? forward : 0, row->activation_gradient.work.operations.n,
                             row->weight_gradient.work.operations.n);
        sum = bp_add(calc, sum, causal && is_score_product(row) ? bp_div(calc, all, 2) : all);
    }
    return sum;
}

/* Weights that one token meets in attention, each head once. */
static bp_u128 attention_weights(struct bp_capacity_run *run, const struct bp_capacity_kind *kind)
{
    const struct bp_symbols *s = &kind->s;
    const struct bp_kind *shape = s->kind;
    struct bp_calc *calc = &run->calc;
    if (shape->attention != BP_ATTENTION_LATENT)
        return BP_PROD(calc, s->H, s->d, bp_mul(calc, 2, bp_add(calc, s->h, s->k)));
    bp_u128 nope = shape->qk_nope_head_dim, rope = shape->qk_rope_head_dim, v = shape->v_head_dim;
    bp_u128 q = shape->q_lora_rank, kv = shape->kv_lora_rank;
    bp_u128 query = q ? bp_mul(calc, q, bp_add(calc, s->H, bp_mul(calc, s->h, nope + rope)))
                      : BP_PROD(calc, s->H, s->h, nope + rope);
    return BP_SUM(calc, query, bp_mul(calc, s->H, kv + rope), BP_PROD(calc, kv, s->h, nope + v),
                  BP_PROD(calc, s->h, v, s->H));
}

/* Weights that one token meets in the MLP: of the experts the K it is sent to, and those that every token takes. */
static bp_u128 mlp_weights(struct bp_capacity_run *run, const struct bp_capacity_kind *kind)
{
    const struct bp_symbols *s = &kind->s;
    struct bp_calc *calc = &run->calc;
    bp_u128 matrices = s->gated ? 3 : 2;
    if (!s->E)
        return BP_PROD(calc, matrices, s->H, s->F);
    return bp_mul(calc, s->H,
                  BP_SUM(calc, s->E, BP_PROD(calc, matrices, s->K, s->F_e), bp_mul(calc, matrices, s->F_s),
                         s->kind->shared_gate));
}

/* Products of one token with one context token: scores and weighted values. Decode reads latents as they are cached. */
static bp_u128 score_products(struct bp_capacity_run *run, const struct bp_capacity_kind *kind)
{
    const struct bp_symbols *s = &kind->s;
    const struct bp_kind *shape = s->kind;
    struct bp_calc *calc = &run->calc;
    bool decode = run->request->workload.mode == BP_MODE_INFERENCE && run->request->workload.phase == BP_DECODE;
    bp_u128 key = s->d, value = s->d;
    if (shape->attention == BP_ATTENTION_LATENT) {
        key = (decode ? shape->kv_lora_rank : shape->qk_nope_head_dim) + shape->qk_rope_head_dim;
        value = decode ? shape->kv_lora_rank : shape->v_head_dim;
    }
    return bp_mul(calc, s->h, bp_add(calc, key, value));
}

/* Two operations a weight and a token, two a score product; causal attention halves the scores (Narayanan et al.,
 * appendix). In decode a windowed layer sees its window. */
static bp_u128 ideal(struct bp_capacity_run *run, const struct bp_capacity_kind *kind, bp_u128 tokens, bp_u128 context)
{
    struct bp_calc *calc = &run->calc;
    bool causal = run->job->conventions.attention == BP_ATTENTION_CAUSAL && kind->s.q != 1;
    uint64_t window = kind->s.kind->window;
    bp_u128 seen = kind->s.q == 1 && window && window < context ? window : context;
    bp_u128 weights = bp_add(calc, attention_weights(run, kind), mlp_weights(run, kind));
    bp_u128 scores = BP_PROD(calc, causal ? 1 : 2, seen, score_products(run, kind));
    return bp_mul(calc, tokens, bp_add(calc, bp_mul(calc, 2, weights), scores));
}

/* Sums over the kinds of the model, a block each, times its layers. */
static bp_u128 ideal_of_all(struct bp_capacity_run *run, bp_u128 tokens, bp_u128 context)
{
    bp_u128 sum = 0;
    for (uint32_t i = 0; i < run->n_kinds; i++) {
        bp_u128 one = ideal(run, &run->kinds[i], tokens, context);
        sum = bp_add(&run->calc, sum, bp_mul(&run->calc, one, run->kinds[i].layers));
    }
    return sum;
}

/* Per token where that comes out even: in prefill the head takes the last tokens alone, and routing off its balance
 * rounds up. */
static void divide_by_tokens(struct bp_capacity_run *run, struct bp_capacity *answer, bp_u128 tokens)
{
    const struct bp_job_operations *step = &answer->per_step;
    answer->has_per_token = tokens && step->hardware % tokens == 0 && step->model % tokens == 0;
    if (!answer->has_per_token)
        return;
    answer->per_token.hardware = bp_div(&run->calc, step->hardware, tokens);
    answer->per_token.model = bp_div(&run->calc, step->model, tokens);
}

/* The head is never done again: 2BSHV forward, twice that backward. */
static int training_operations(struct bp_capacity_run *run, struct bp_capacity *answer, struct bp_err *err)
{
    const struct bp_symbols *s = &run->s;
    struct bp_calc *calc = &run->calc;
    bp_u128 tokens = BP_PROD(calc, run->request->workload.global_batch_size, s->S_c),
            V = run->request->model.vocab_size;
    bp_u128 padded = bp_mul(calc, bp_capacity_vocabulary_share(run), s->t), hardware = 0;
    for (uint32_t i = 0; i < run->n_kinds; i++) {
        struct bp_block block;
        if (!run->kinds[i].layers)
            continue;
        if (bp_training_block(run->request, &run->kinds[i].s, &block, err) < 0)
            return -1;
        hardware = bp_add(calc, hardware, bp_mul(calc, run->kinds[i].layers, executed(run, &block)));
    }
    answer->per_step.hardware =
        bp_add(calc, BP_PROD(calc, hardware, s->t, run->micro_batches, s->dp), BP_PROD(calc, 6, tokens, s->H, padded));
    answer->per_step.model =
        bp_add(calc, bp_mul(calc, 3, ideal_of_all(run, tokens, s->S_c)), BP_PROD(calc, 6, tokens, s->H, V));
    divide_by_tokens(run, answer, tokens);
    return 0;
}

/* Key/value heads, and the projections into latents, that several ranks of the tensor group compute alike. */
static bp_u128 replicated_weights(struct bp_capacity_run *run, const struct bp_capacity_kind *kind)
{
    const struct bp_symbols *s = &kind->s;
    const struct bp_kind *shape = s->kind;
    struct bp_calc *calc = &run->calc;
    if (shape->attention == BP_ATTENTION_LATENT)
        return BP_PROD(calc, s->t - 1, s->H,
                       BP_SUM(calc, shape->q_lora_rank, shape->kv_lora_rank, shape->qk_rope_head_dim));
    return BP_PROD(calc, 2, s->H, s->d, bp_sub(calc, bp_mul(calc, s->k_l, s->t), s->k));
}

/* The head takes the last token of each sequence. */
static void inference_operations(struct bp_capacity_run *run, struct bp_capacity *answer)
{
    const struct bp_symbols *s = &run->s;
    struct bp_calc *calc = &run->calc;
    bp_u128 replicas = run->request->strategy.replicas, tokens = BP_PROD(calc, replicas, s->b, s->q);
    bp_u128 padded = bp_mul(calc, bp_capacity_vocabulary_share(run), s->t), last_tokens = bp_mul(calc, replicas, s->b);
    bp_u128 model = ideal_of_all(run, tokens, run->request->workload.context_length), replicated = 0;
    for (uint32_t i = 0; i < run->n_kinds; i++)
        replicated =
            bp_add(calc, replicated, bp_mul(calc, run->kinds[i].layers, replicated_weights(run, &run->kinds[i])));
    answer->per_step.model = bp_add(calc, model, BP_PROD(calc, 2, last_tokens, s->H, run->request->model.vocab_size));
    answer->per_step.hardware =
        BP_SUM(calc, model, BP_PROD(calc, 2, tokens, replicated), BP_PROD(calc, 2, last_tokens, s->H, padded));
    divide_by_tokens(run, answer, tokens);
}

int bp_capacity_operations(struct bp_capacity_run *run, struct bp_capacity *answer, struct bp_err *err)
{
    if (run->request->workload.mode == BP_MODE_TRAINING)
        return training_operations(run, answer, err);
    inference_operations(run, answer);
    return 0;
}
