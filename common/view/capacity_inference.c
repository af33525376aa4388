/* Inference: weights, the paged KV cache of the whole batch, the activations of one step. */
#include "common/view/capacity_run.h"

int bp_capacity_inference_facts(struct bp_capacity_run *run, struct bp_err *err)
{
    struct bp_block block;
    struct bp_pass_input input = {.request = run->request, .symbols = &run->s};
    if (bp_inference_block(&input, &block, err) < 0)
        return -1;
    for (uint32_t i = 0; i < block.n_rows; i++)
        if (block.rows[i].parameters)
            bp_capacity_add_tensor(run, &block.rows[i]);
    return 0;
}

/* Tokens that one step takes through the blocks: the batch in decode, a chunk of it in prefill. */
static bp_u128 step_tokens(struct bp_capacity_run *run)
{
    bp_u128 tokens = bp_mul(&run->calc, run->s.b, run->s.q);
    if (run->request->workload.phase == BP_PREFILL && tokens > run->job->prefill_chunk)
        tokens = run->job->prefill_chunk;
    return tokens;
}

/* The widest intermediate of one token: query, key and value; the MLP's; unfused, its scores against c tokens. */
static bp_u128 widest_of_a_token(struct bp_capacity_run *run)
{
    const struct bp_symbols *s = &run->s;
    struct bp_calc *calc = &run->calc;
    bool unfused = run->job->conventions.kernel == BP_KERNEL_UNFUSED;
    const bp_u128 widths[] = {
        bp_mul(calc, s->d, bp_add(calc, s->h_l, bp_mul(calc, 2, s->k_l))),
        bp_mul(calc, s->gated ? 2 : 1, bp_div(calc, s->F, s->t)),
        unfused ? bp_mul(calc, s->h_l, s->c) : 0,
    };
    bp_u128 widest = 0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        widest = widths[i] > widest ? widths[i] : widest;
    return widest;
}

void bp_capacity_inference_stage(struct bp_capacity_run *run, uint64_t place, struct bp_capacity_stage *ret)
{
    const struct bp_symbols *s = &run->s;
    struct bp_calc *calc = &run->calc;
    uint64_t blocks = bp_capacity_stage_blocks(run, place);
    bool first = place == 0, last = place == run->p - 1;
    struct bp_held held = {0};
    bp_held_add(run, &held, &run->one_block, blocks);
    ret->blocks_only[0] = bp_bytes(calc, held.weights);
    bp_held_add(run, &held, &run->embedding, first);
    bp_held_add(run, &held, &run->head, last);

    bp_u128 page = run->job->kv_block, tokens = bp_mul(calc, bp_div_ceil(calc, s->c, page), page);
    bp_u128 kv = BP_PROD(calc, 2, s->d, s->k_l, s->b, tokens, blocks, bp_dtype_bytes(run->job->kv_cache_dtype));
    bp_u128 boundary = BP_PROD(calc, step_tokens(run), s->H, s->e);
    bp_u128 intermediate = BP_PROD(calc, step_tokens(run), widest_of_a_token(run), s->e);

    ret->in_flight = 1;
    ret->components[BP_COMPONENT_WEIGHTS] = bp_bytes(calc, held.weights);
    ret->components[BP_COMPONENT_KV_CACHE] = bp_bytes(calc, kv);
    ret->components[BP_COMPONENT_WORKSPACE] = bp_bytes(calc, bp_add(calc, boundary, intermediate));
    ret->components[BP_COMPONENT_BOUNDARY] = bp_bytes(calc, boundary);
    ret->components[BP_COMPONENT_LOGITS] =
        bp_bytes(calc, last ? BP_PROD(calc, 4, s->b, bp_capacity_vocabulary_share(run)) : 0);
}
