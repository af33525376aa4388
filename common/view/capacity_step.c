/* A whole step of the job: bytes on the wire, and what a memory still takes. */
#include "common/view/capacity_run.h"

#include <string.h>

/* ---- Bytes on the wire ---- */

/* What one of n ranks sends of M bytes around a ring: each step passes one of n shares on. */
static bp_u128 ring(struct bp_capacity_run *run, bp_u128 M, bp_u128 n, unsigned rounds)
{
    return BP_PROD(&run->calc, rounds, n - 1, bp_div_ceil(&run->calc, M, n));
}

enum { GATHER_OR_SCATTER = 1, ALL_REDUCE = 2 };

static bp_u128 collective(struct bp_capacity_run *run, const struct bp_row_work *work, bp_u128 ranks)
{
    if (!work->has || work->collective == BP_COLLECTIVE_NONE)
        return 0;
    unsigned rounds = work->collective == BP_COLLECTIVE_ALL_REDUCE ? ALL_REDUCE : GATHER_OR_SCATTER;
    return ring(run, work->work.message.n, ranks, rounds);
}

/* A gradient that several ranks of the tensor group hold in parts: `elements` of it, over `ranks` that share it. */
struct shared_gradient {
    bp_u128 elements, ranks;
};

static bool named(const struct bp_row *row, const char *first, const char *second)
{
    return strcmp(row->name, first) == 0 || strcmp(row->name, second) == 0;
}

/* Norms of all heads alike always; under sequence parallelism what works on a part of the sequence with whole weights:
 * block norms, the biases of row-parallel linears, the router, the projections into latents and their norms. Replicated
 * key/value heads over the t/k ranks that hold one. */
static struct shared_gradient shared_gradient(struct bp_capacity_run *run, const struct bp_symbols *s,
                                              const struct bp_row *row)
{
    bool sp = s->sequence_parallel;
    if (s->kind->qk_norm == BP_QK_NORM_HEAD && named(row, "attention.query_norm", "attention.key_norm"))
        return (struct shared_gradient){row->parameters, s->t};
    if (sp && (named(row, "attention.norm", "mlp.norm") || named(row, "attention.post_norm", "mlp.post_norm")))
        return (struct shared_gradient){row->parameters, s->t};
    if (sp && row->bias && (named(row, "attention.output", "mlp.down") || named(row, "shared.down", "")))
        return (struct shared_gradient){s->H, s->t};
    if (sp &&
        (named(row, "moe.router", "shared.scale") || named(row, "attention.query_down", "attention.key_value_down") ||
         named(row, "attention.query_latent_norm", "attention.key_value_latent_norm")))
        return (struct shared_gradient){row->parameters, s->t};
    if (s->t > s->k && (named(row, "attention.key", "attention.value") || named(row, "attention.key_norm", "")))
        return (struct shared_gradient){row->parameters, bp_div(&run->calc, s->t, s->k)};
    return (struct shared_gradient){0, 1};
}

/* What one block of a kind sends in a step over the tensor group and that of its experts. What goes over the context
 * parallel group has a function of its own. */
static void add_block_bytes(struct bp_capacity_run *run, const struct bp_symbols *s, const struct bp_block *block,
                            bp_u128 blocks, bp_u128 *tensor, bp_u128 *expert)
{
    struct bp_calc *calc = &run->calc;
    for (uint32_t i = 0; i < block->n_rows; i++) {
        const struct bp_row *row = &block->rows[i];
        const bp_u128 group[BP_AXIS_N] = {
            [BP_AXIS_TENSOR] = s->t, [BP_AXIS_EXPERT] = s->ep, [BP_AXIS_EXPERT_TENSOR] = s->etp};
        bp_u128 ranks = group[row->axis];
        if (row->axis == BP_AXIS_CONTEXT)
            continue;
        bp_u128 forward = collective(run, &row->forward, ranks);
        bp_u128 a_micro_batch =
            BP_SUM(calc, forward, row->recomputed ? forward : 0, collective(run, &row->activation_gradient, ranks));
        struct shared_gradient shared = shared_gradient(run, s, row);
        bp_u128 a_step = s->t > 1 ? ring(run, bp_mul(calc, shared.elements, s->g), shared.ranks, ALL_REDUCE) : 0;
        bp_u128 *sum = row->axis == BP_AXIS_TENSOR ? tensor : expert;
        *sum = bp_add(calc, *sum,
                      bp_mul(calc, blocks, bp_add(calc, bp_mul(calc, a_micro_batch, run->micro_batches), a_step)));
    }
}

/* The norms at the model's ends work on a part of the sequence as those of blocks do. */
static bp_u128 end_norm_bytes(struct bp_capacity_run *run, uint64_t stage)
{
    struct bp_calc *calc = &run->calc;
    bp_u128 first = stage == 0 ? bp_capacity_end_norm(run, false) : 0;
    bp_u128 last = stage == run->p - 1 ? bp_capacity_end_norm(run, true) : 0;
    if (!run->s.sequence_parallel || run->s.t == 1)
        return 0;
    return bp_add(calc, ring(run, bp_mul(calc, first, run->s.g), run->s.t, ALL_REDUCE),
                  ring(run, bp_mul(calc, last, run->s.g), run->s.t, ALL_REDUCE));
}

/* Context parallelism: each rank's keys and values go around to every query, forward and again backward, where their
 * gradients go around too; repeated where attention is done again. Ring attention and all-gather send as much (Liu et
 * al., "Ring Attention", section 3); all-to-all exchanges queries, keys, values and outputs by heads instead (Jacobs et
 * al., "DeepSpeed-Ulysses", section 3). */
static bp_u128 context_bytes(struct bp_capacity_run *run, uint64_t stage)
{
    struct bp_calc *calc = &run->calc;
    const struct bp_strategy *strategy = &run->request->strategy;
    bp_u128 cp = strategy->context_parallel, bytes = 0;
    bool a2a = run->request->strategy.cp_comm == BP_CP_A2A;
    unsigned forwards = strategy->recompute == BP_RECOMPUTE_NONE ? 1 : 2;
    struct bp_kind_counts counts = bp_capacity_stage_counts(run, stage);
    for (uint32_t i = 0; i < run->n_kinds && cp > 1; i++) {
        const struct bp_symbols *s = &run->kinds[i].s;
        bool latent = s->kind->attention == BP_ATTENTION_LATENT;
        bp_u128 key = latent ? s->kind->qk_nope_head_dim + s->kind->qk_rope_head_dim : s->d;
        bp_u128 value = latent ? s->kind->v_head_dim : s->d, kv_heads = latent ? s->h_l : s->k_l;
        bp_u128 shard = BP_PROD(calc, s->B, s->S, kv_heads, bp_add(calc, key, value), s->e);
        bp_u128 queries = BP_PROD(calc, s->B, s->S, s->h_l, bp_add(calc, key, value), s->e);
        bp_u128 once =
            a2a ? ring(run, bp_add(calc, shard, queries), cp, GATHER_OR_SCATTER) : bp_mul(calc, shard, cp - 1);
        bp_u128 backward = a2a ? once : bp_mul(calc, 2, once);
        bytes = bp_add(calc, bytes, bp_mul(calc, counts.of[i], bp_add(calc, bp_mul(calc, forwards, once), backward)));
    }
    return bp_mul(calc, bytes, run->micro_batches);
}

/* The boundary goes on to the next run of blocks, its gradient back to the one before; the first and the last run of
 * the model have no such neighbour. */
static bp_u128 pipeline_bytes(struct bp_capacity_run *run, uint64_t stage)
{
    struct bp_calc *calc = &run->calc;
    bp_u128 forward = run->v - (stage == run->p - 1), backward = run->v - (stage == 0);
    return BP_PROD(calc, bp_add(calc, forward, backward), run->micro_batches, run->s.Xs, run->s.e);
}

/* Gradients are all-reduced once a step; ZeRO 1 reduce-scatters them and gathers the parameters once; ZeRO 2 and 3
 * reduce every micro-batch; ZeRO 3 gathers the parameters in each forward and backward pass (Rajbhandari et al.,
 * section 7). A tied embedding that two stages hold is summed between them. */
static bp_u128 data_bytes(struct bp_capacity_run *run, uint64_t stage)
{
    struct bp_calc *calc = &run->calc;
    static const struct {
        unsigned gradient_rounds, parameter_gathers;
        bool every_micro_batch, gathers_every_micro_batch;
    } stages[] = {{ALL_REDUCE, 0, false, false},
                  {GATHER_OR_SCATTER, 1, false, false},
                  {GATHER_OR_SCATTER, 1, true, false},
                  {GATHER_OR_SCATTER, 2, true, true}};
    uint64_t zero = run->request->strategy.zero_stage;
    bp_u128 m = run->micro_batches, reductions = stages[zero].every_micro_batch ? m : 1;
    bp_u128 gathers = bp_mul(calc, stages[zero].parameter_gathers, stages[zero].gathers_every_micro_batch ? m : 1);
    struct bp_kind_counts counts = bp_capacity_stage_counts(run, stage);
    bp_u128 dense = 0, experts = 0, expert_ranks = 1;
    bool first = stage == 0, last = stage == run->p - 1;
    for (uint32_t i = 0; i < run->n_kinds; i++) {
        const struct bp_block_facts *facts = run->kinds[i].facts;
        for (uint32_t j = 0; j < facts->n_tensors; j++) {
            const struct bp_tensor *tensor = &facts->tensors[j];
            bp_u128 P = bp_mul(calc, counts.of[i], tensor->elements);
            bool expert = tensor->expert;
            *(expert ? &experts : &dense) = bp_add(calc, expert ? experts : dense, P);
            expert_ranks = expert ? run->kinds[i].s.expert_dp : expert_ranks;
        }
    }
    dense = BP_SUM(calc, dense, first ? run->embedding.whole : 0, last ? run->head.whole : 0);
    bp_u128 bytes = 0;
    const struct {
        bp_u128 elements, ranks;
    } groups[] = {{dense, run->s.dp}, {experts, expert_ranks}};
    for (size_t i = 0; i < 2; i++) {
        bp_u128 gradients =
            ring(run, bp_mul(calc, groups[i].elements, run->s.g), groups[i].ranks, stages[zero].gradient_rounds);
        bp_u128 parameters = ring(run, bp_mul(calc, groups[i].elements, run->s.e), groups[i].ranks, GATHER_OR_SCATTER);
        bytes = BP_SUM(calc, bytes, bp_mul(calc, reductions, gradients), bp_mul(calc, gathers, parameters));
    }
    bool copied = run->request->model.tie_word_embeddings && run->p > 1 && (first || last);
    bp_u128 embedding = BP_PROD(calc, bp_capacity_vocabulary_share(run), run->s.H, run->s.g);
    return bp_add(calc, bytes, copied ? ring(run, embedding, 2, ALL_REDUCE) : 0);
}

/* ---- What a memory still takes ---- */

/* Tokens of KV cache, in whole pages, that the stage with the least room takes beside all else. */
static uint64_t kv_tokens_that_fit(struct bp_capacity_run *run, const struct bp_capacity *answer)
{
    struct bp_calc *calc = &run->calc;
    bp_u128 least = BP_JSON_INT_MAX, page = run->job->kv_block;
    for (uint64_t i = 0; i < answer->n_stages; i++) {
        const struct bp_capacity_stage *stage = &answer->stages[i];
        struct bp_kind_counts counts = bp_capacity_stage_counts(run, i);
        bp_u128 elements = 0;
        for (uint32_t j = 0; j < run->n_kinds; j++)
            elements = bp_add(calc, elements, bp_mul(calc, counts.of[j], bp_capacity_kv_elements(run, &run->kinds[j])));
        bp_u128 page_bytes = BP_PROD(calc, elements, page, bp_dtype_bytes(run->request->workload.kv_cache_dtype));
        uint64_t other = stage->total.n - stage->holdings[BP_HOLDING_KV_CACHE].n;
        bp_u128 room = answer->available.n > other ? answer->available.n - other : 0;
        bp_u128 tokens = page_bytes ? room / page_bytes * page : least;
        least = tokens < least ? tokens : least;
    }
    return (uint64_t)least;
}

static bool batch_fits(const struct bp_capacity_run *run, uint64_t batch, uint64_t available)
{
    struct bp_whole_job job = *run->job;
    struct bp_bytes total;
    job.request.workload.batch_size = batch;
    return bp_capacity_total(&job, run->memo, available, &total, NULL) == 0 && total.n <= available;
}

/* The total never falls as the batch grows: the largest batch lies where it first passes the memory. */
static uint64_t max_batch(const struct bp_capacity_run *run, uint64_t available)
{
    uint64_t fits = 0, too_many = 1;
    while (too_many < BP_JSON_INT_MAX && batch_fits(run, too_many, available)) {
        fits = too_many;
        too_many *= 2;
    }
    while (too_many - fits > 1) {
        uint64_t middle = fits + (too_many - fits) / 2;
        *(batch_fits(run, middle, available) ? &fits : &too_many) = middle;
    }
    return fits;
}

static int training_wire(struct bp_capacity_run *run, uint64_t stage, struct bp_wire *ret, struct bp_err *err)
{
    struct bp_calc *calc = &run->calc;
    struct bp_kind_counts counts = bp_capacity_stage_counts(run, stage);
    bp_u128 tensor = 0, expert = 0;
    for (uint32_t i = 0; i < run->n_kinds; i++) {
        struct bp_block block;
        if (!counts.of[i])
            continue;
        if (bp_training_block(run->request, &run->kinds[i].s, &block, err) < 0)
            return -1;
        add_block_bytes(run, &run->kinds[i].s, &block, counts.of[i], &tensor, &expert);
    }
    ret->tensor = bp_bytes(calc, bp_add(calc, tensor, end_norm_bytes(run, stage)));
    ret->expert = bp_bytes(calc, expert);
    ret->pipeline = bp_bytes(calc, pipeline_bytes(run, stage));
    ret->data = bp_bytes(calc, data_bytes(run, stage));
    ret->context = bp_bytes(calc, context_bytes(run, stage));
    return 0;
}

/* Rounds around the tensor group in one block of a step of inference: each half is summed, both at once where they
 * stand side by side. Tokens that were dealt out to the group are gathered again, and what shared experts made is
 * summed by itself. */
static unsigned rounds_of_a_block(const struct bp_symbols *s)
{
    if (s->E && !s->routes_all)
        return ALL_REDUCE + GATHER_OR_SCATTER + (s->F_s ? ALL_REDUCE : 0);
    return s->kind->residual == BP_RESIDUAL_PARALLEL ? ALL_REDUCE : 2 * ALL_REDUCE;
}

/* Pairs go to their experts' ranks and come back, and are gathered there and their sums scattered. */
static bp_u128 exchange_of_a_block(struct bp_capacity_run *run, const struct bp_symbols *s, bp_u128 tokens, bp_u128 e)
{
    struct bp_calc *calc = &run->calc;
    if (!s->E || s->routes_all)
        return 0;
    bp_u128 own = BP_PROD(calc, bp_capacity_own_pairs(run, s, tokens), s->H, e), all = bp_mul(calc, own, s->etp);
    return bp_mul(calc, 2,
                  bp_add(calc, ring(run, own, s->ep, GATHER_OR_SCATTER), ring(run, all, s->etp, GATHER_OR_SCATTER)));
}

static void inference_wire(struct bp_capacity_run *run, uint64_t stage, struct bp_wire *ret)
{
    struct bp_calc *calc = &run->calc;
    struct bp_kind_counts counts = bp_capacity_stage_counts(run, stage);
    bp_u128 e = run->request->workload.dtype == BP_DTYPE_FLOAT8 ? 2 : run->s.e, tensor = 0, expert = 0;
    bp_u128 tokens = bp_mul(calc, run->s.b, run->s.q), boundary = BP_PROD(calc, tokens, run->s.H, e);
    for (uint32_t i = 0; i < run->n_kinds; i++) {
        const struct bp_symbols *s = &run->kinds[i].s;
        bp_u128 sums = ring(run, boundary, s->t, rounds_of_a_block(s)),
                exchange = exchange_of_a_block(run, s, tokens, e);
        tensor = bp_add(calc, tensor, bp_mul(calc, counts.of[i], sums));
        expert = bp_add(calc, expert, bp_mul(calc, counts.of[i], exchange));
    }
    ret->tensor = bp_bytes(calc, tensor);
    ret->expert = bp_bytes(calc, expert);
    ret->pipeline = bp_bytes(calc, stage == run->p - 1 ? 0 : boundary);
}

int bp_capacity_step(struct bp_capacity_run *run, struct bp_capacity *answer, struct bp_err *err)
{
    bp_u128 kv = 0;
    bool training = run->request->workload.mode == BP_MODE_TRAINING;
    if (training && training_wire(run, answer->binding_stage, &answer->wire, err) < 0)
        return -1;
    if (!training)
        inference_wire(run, answer->binding_stage, &answer->wire);
    if (bp_capacity_operations(run, answer, err) < 0 || bp_model_kv_elements(&run->request->model, &kv, err) < 0)
        return -1;
    answer->kv_per_token =
        bp_bytes(&run->calc, bp_mul(&run->calc, kv, bp_dtype_bytes(run->request->workload.kv_cache_dtype)));
    if (!training && run->job->has_memory) {
        answer->kv_tokens_that_fit = kv_tokens_that_fit(run, answer);
        answer->max_batch = max_batch(run, answer->available.n);
    }
    return 0;
}
