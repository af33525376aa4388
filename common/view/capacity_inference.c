/* Inference: weights, the paged KV cache of the whole batch, the activations of one step. */
#include "common/view/capacity_run.h"

/* Activations stay at two bytes beside float8 weights. */
static bp_u128 activation_bytes(const struct bp_capacity_run *run)
{
    return run->request->workload.dtype == BP_DTYPE_FLOAT8 ? 2 : run->s.e;
}

/* Keys and values of this rank's heads; of latent attention the latent and the rotary key, on every rank. */
bp_u128 bp_capacity_kv_elements(struct bp_capacity_run *run, const struct bp_capacity_kind *kind)
{
    const struct bp_kind *shape = kind->s.kind;
    if (shape->attention == BP_ATTENTION_LATENT)
        return bp_add(&run->calc, shape->kv_lora_rank, shape->qk_rope_head_dim);
    return BP_PROD(&run->calc, 2, kind->s.d, kind->s.k_l);
}

/* A window keeps what its next tokens still see, a prefill chunk and a page more. */
static bp_u128 cached_tokens(struct bp_capacity_run *run, const struct bp_kind *shape)
{
    struct bp_calc *calc = &run->calc;
    bp_u128 c = run->request->workload.context_length, page = run->job->kv_block,
            whole = bp_mul(calc, bp_div_ceil(calc, c, page), page);
    if (!shape->window || run->job->conventions.window_kv == BP_WINDOW_KV_FULL)
        return whole;
    bp_u128 seen = bp_add(calc, shape->window - 1, run->job->prefill_chunk), least = c < seen ? c : seen;
    bp_u128 capped = bp_mul(calc, bp_add(calc, bp_div_ceil(calc, least, page), c > seen), page);
    return capped < whole ? capped : whole;
}

static bp_u128 kv_of_a_sequence(struct bp_capacity_run *run, const struct bp_capacity_kind *kind)
{
    return BP_PROD(&run->calc, bp_capacity_kv_elements(run, kind), cached_tokens(run, kind->s.kind),
                   bp_dtype_bytes(run->request->workload.kv_cache_dtype));
}

/* Tokens that one step takes through the blocks: the batch in decode, a chunk of it in prefill. */
static bp_u128 step_tokens(struct bp_capacity_run *run)
{
    bp_u128 tokens = bp_mul(&run->calc, run->s.b, run->s.q);
    if (run->request->workload.phase == BP_PREFILL && tokens > run->job->prefill_chunk)
        tokens = run->job->prefill_chunk;
    return tokens;
}

bp_u128 bp_capacity_own_pairs(struct bp_capacity_run *run, const struct bp_symbols *s, bp_u128 tokens)
{
    struct bp_calc *calc = &run->calc;
    bp_u128 pairs = BP_PROD(calc, tokens, s->K, run->job->imbalance_permille);
    return bp_div_ceil(calc, pairs, bp_mul(calc, 1000, s->routes_all ? 1 : s->t));
}

/* What the activation of a rank's experts reads. */
static bp_u128 width_of_experts(struct bp_capacity_run *run, const struct bp_symbols *s)
{
    struct bp_calc *calc = &run->calc;
    return BP_PROD(calc, s->gated ? 2 : 1, bp_capacity_own_pairs(run, s, step_tokens(run)), s->routes_all ? 1 : s->etp,
                   bp_div_ceil(calc, s->F_e, s->etp));
}

/* The widest intermediate of a step on this rank: what attention projects; the MLP's, or that of the experts; unfused,
 * its scores against c tokens, of which decode reads no more than a window. Decode reads latent attention in its
 * absorbed form. */
static bp_u128 widest_of_a_step(struct bp_capacity_run *run, const struct bp_capacity_kind *kind)
{
    const struct bp_symbols *s = &kind->s;
    const struct bp_kind *shape = s->kind;
    struct bp_calc *calc = &run->calc;
    bool unfused = run->job->conventions.kernel == BP_KERNEL_UNFUSED;
    bool latent = shape->attention == BP_ATTENTION_LATENT, decode = run->request->workload.phase == BP_DECODE;
    bp_u128 rope = shape->qk_rope_head_dim, nope = shape->qk_nope_head_dim, ups = s->gated ? 2 : 1;
    bp_u128 by_heads = bp_mul(calc, s->d, bp_add(calc, s->h_l, bp_mul(calc, 2, s->k_l)));
    bp_u128 absorbed = bp_mul(calc, s->h_l, BP_SUM(calc, shape->kv_lora_rank, rope));
    bp_u128 expanded = bp_mul(calc, s->h_l, BP_SUM(calc, 2 * (nope + rope), shape->v_head_dim));
    bp_u128 seen = decode && shape->window && shape->window < s->c ? shape->window : s->c;
    const bp_u128 widths[] = {
        latent ? (decode ? absorbed : expanded) : by_heads,
        bp_mul(calc, ups, bp_div_ceil(calc, s->E ? s->F_s : s->F, s->t)),
        unfused ? bp_mul(calc, s->h_l, seen) : 0,
    };
    bp_u128 widest = 0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        widest = widths[i] > widest ? widths[i] : widest;
    bp_u128 all = bp_mul(calc, widest, step_tokens(run)), experts = s->E ? width_of_experts(run, s) : 0;
    return experts > all ? experts : all;
}

void bp_capacity_inference_stage(struct bp_capacity_run *run, uint64_t stage, const struct bp_kind_counts *counts,
                                 struct bp_capacity_stage *ret)
{
    struct bp_calc *calc = &run->calc;
    struct bp_held blocks_only, state = bp_capacity_stage_state(run, stage, counts, &blocks_only);
    bp_u128 kv = 0, widest = 0, e = activation_bytes(run);
    for (uint32_t i = 0; i < run->n_kinds; i++) {
        bp_u128 width = counts->of[i] ? widest_of_a_step(run, &run->kinds[i]) : 0;
        kv = bp_add(calc, kv, bp_mul(calc, counts->of[i], kv_of_a_sequence(run, &run->kinds[i])));
        widest = width > widest ? width : widest;
    }
    bool last = stage == run->p - 1;
    bp_u128 boundary = BP_PROD(calc, step_tokens(run), run->s.H, e);
    const bp_u128 holdings[BP_HOLDING_N] = {
        [BP_HOLDING_WEIGHTS] = state.weights,
        [BP_HOLDING_KV_CACHE] = bp_mul(calc, kv, run->s.b),
        [BP_HOLDING_WORKSPACE] = bp_add(calc, boundary, bp_mul(calc, widest, e)),
        [BP_HOLDING_BOUNDARY] = boundary,
        [BP_HOLDING_LOGITS] = last ? BP_PROD(calc, 4, run->s.b, bp_capacity_vocabulary_share(run)) : 0,
    };
    for (size_t i = 0; i < BP_HOLDING_N; i++)
        ret->holdings[i] = bp_bytes(calc, holdings[i]);
    ret->blocks_only[0] = bp_bytes(calc, blocks_only.weights);
    ret->in_flight = 1;
}
