/* A whole step of the job: operations, bytes on the wire, and what a memory still takes. */
#include "common/view/capacity_run.h"

#include <string.h>

/* ---- Operations ---- */

static bool is_score_product(const struct bp_row *row)
{
    return strcmp(row->name, "attention.scores") == 0 || strcmp(row->name, "attention.context") == 0;
}

/* Matrix operations of one block, one rank and one micro-batch, as executed. */
static bp_u128 executed(struct bp_capacity_run *run, const struct bp_block *block)
{
    bool causal = run->job->conventions.attention == BP_ATTENTION_CAUSAL;
    bp_u128 sum = 0;
    for (uint32_t i = 0; i < block->n_rows; i++) {
        const struct bp_row *row = &block->rows[i];
        if (row->engine != BP_ENGINE_MATRIX)
            continue;
        struct bp_calc *calc = &run->calc;
        bp_u128 forward = row->forward.work.operations.n;
        bp_u128 all = BP_SUM(calc, forward, row->recomputed ? forward : 0, row->activation_gradient.work.operations.n,
                             row->weight_gradient.work.operations.n);
        sum = bp_add(calc, sum, causal && is_score_product(row) ? bp_div(calc, all, 2) : all);
    }
    return sum;
}

/* Products of one block for `tokens` query tokens against `context` each, the whole model's heads once (Narayanan et
 * al., appendix). */
static bp_u128 ideal(struct bp_capacity_run *run, bp_u128 tokens, bp_u128 context)
{
    const struct bp_symbols *s = &run->s;
    struct bp_calc *calc = &run->calc;
    bp_u128 heads = BP_PROD(calc, s->d, bp_add(calc, bp_mul(calc, 2, s->h), bp_mul(calc, 2, s->k)));
    bp_u128 weights = bp_mul(calc, s->H, bp_add(calc, heads, bp_mul(calc, s->gated ? 3 : 2, s->F)));
    bp_u128 causal = run->job->conventions.attention == BP_ATTENTION_CAUSAL ? 1 : 2;
    bp_u128 scores = BP_PROD(calc, 2, causal, context, s->h, s->d);
    return bp_mul(calc, tokens, bp_add(calc, bp_mul(calc, 2, weights), scores));
}

/* The head is never recomputed: 2BSHV forward, twice that backward. */
static void training_operations(struct bp_capacity_run *run, const struct bp_block *block, struct bp_capacity *answer)
{
    const struct bp_symbols *s = &run->s;
    struct bp_calc *calc = &run->calc;
    bp_u128 L = run->request->model.num_hidden_layers, V = run->request->model.vocab_size;
    bp_u128 padded = bp_mul(calc, bp_capacity_vocabulary_share(run), s->t);
    bp_u128 tokens = BP_PROD(calc, run->request->workload.global_batch_size, s->S);
    bp_u128 micro_batches = bp_mul(calc, run->micro_batches, s->dp);
    answer->per_step.hardware = bp_add(calc, BP_PROD(calc, executed(run, block), s->t, micro_batches, L),
                                       BP_PROD(calc, 6, tokens, s->H, padded));
    answer->per_step.model =
        bp_add(calc, BP_PROD(calc, 3, ideal(run, tokens, s->S), L), BP_PROD(calc, 6, tokens, s->H, V));
    answer->has_per_token = true;
    answer->per_token.hardware = bp_div(calc, answer->per_step.hardware, tokens);
    answer->per_token.model = bp_div(calc, answer->per_step.model, tokens);
}

/* The core row counts its softmax too, so products are counted here; the head takes the last token of each sequence. */
static void inference_operations(struct bp_capacity_run *run, struct bp_capacity *answer)
{
    const struct bp_symbols *s = &run->s;
    struct bp_calc *calc = &run->calc;
    bp_u128 replicas = run->request->strategy.replicas, L = run->request->model.num_hidden_layers;
    bp_u128 tokens = BP_PROD(calc, replicas, s->b, s->q), V = run->request->model.vocab_size;
    bp_u128 padded = bp_mul(calc, bp_capacity_vocabulary_share(run), s->t);
    bp_u128 last_tokens = bp_mul(calc, replicas, s->b);
    bp_u128 copies = bp_sub(calc, bp_mul(calc, s->k_l, s->t), s->k); /* key/value heads held more than once */
    bp_u128 model = bp_mul(calc, ideal(run, tokens, s->c), L);
    answer->per_step.model = bp_add(calc, model, BP_PROD(calc, 2, last_tokens, s->H, V));
    answer->per_step.hardware = BP_SUM(calc, model, BP_PROD(calc, 4, tokens, s->H, s->d, copies, L),
                                       BP_PROD(calc, 2, last_tokens, s->H, padded));
    answer->has_per_token = s->q == 1;
    if (answer->has_per_token) {
        answer->per_token.hardware = bp_div(calc, answer->per_step.hardware, tokens);
        answer->per_token.model = bp_div(calc, answer->per_step.model, tokens);
    }
}

/* ---- Bytes on the wire ---- */

/* What one of n ranks sends of M bytes around a ring: each step passes one of n shares on. */
static bp_u128 ring(struct bp_capacity_run *run, bp_u128 M, bp_u128 n, unsigned rounds)
{
    return BP_PROD(&run->calc, rounds, n - 1, bp_div_ceil(&run->calc, M, n));
}

enum { GATHER_OR_SCATTER = 1, ALL_REDUCE = 2 };

static bp_u128 collective(struct bp_capacity_run *run, const struct bp_row_work *work)
{
    if (!work->has || work->collective == BP_COLLECTIVE_NONE)
        return 0;
    unsigned rounds = work->collective == BP_COLLECTIVE_ALL_REDUCE ? ALL_REDUCE : GATHER_OR_SCATTER;
    return ring(run, work->work.message.n, run->s.t, rounds);
}

/* A gradient that several ranks of the tensor group hold in parts: `elements` of it, over `ranks` that share it. */
struct shared_gradient {
    bp_u128 elements, ranks;
};

static bool named(const struct bp_row *row, const char *first, const char *second)
{
    return strcmp(row->name, first) == 0 || strcmp(row->name, second) == 0;
}

/* Head norms always; block norms and the biases of row-parallel linears under sequence parallelism, over the group.
 * Replicated key/value heads over the t/k ranks that hold one. */
static struct shared_gradient shared_gradient(struct bp_capacity_run *run, const struct bp_row *row)
{
    const struct bp_symbols *s = &run->s;
    bool sp = s->sequence_parallel;
    if (named(row, "attention.query_norm", "attention.key_norm") || (sp && named(row, "attention.norm", "mlp.norm")))
        return (struct shared_gradient){row->parameters, s->t};
    if (sp && row->bias && named(row, "attention.output", "mlp.down"))
        return (struct shared_gradient){s->H, s->t};
    if (s->t > s->k && named(row, "attention.key", "attention.value"))
        return (struct shared_gradient){row->parameters, bp_div(&run->calc, s->t, s->k)};
    return (struct shared_gradient){0, 1};
}

static bp_u128 tensor_bytes(struct bp_capacity_run *run, const struct bp_block *block, bp_u128 blocks)
{
    struct bp_calc *calc = &run->calc;
    bool training = run->request->workload.mode == BP_MODE_TRAINING;
    bp_u128 a_micro_batch = 0, a_step = 0;
    for (uint32_t i = 0; i < block->n_rows && run->s.t > 1; i++) {
        const struct bp_row *row = &block->rows[i];
        bp_u128 forward = collective(run, &row->forward);
        a_micro_batch = BP_SUM(calc, a_micro_batch, forward, row->recomputed ? forward : 0,
                               collective(run, &row->activation_gradient));
        struct shared_gradient shared = shared_gradient(run, row);
        if (training)
            a_step = bp_add(calc, a_step, ring(run, bp_mul(calc, shared.elements, run->s.g), shared.ranks, ALL_REDUCE));
    }
    return bp_mul(calc, blocks, bp_add(calc, bp_mul(calc, a_micro_batch, run->micro_batches), a_step));
}

/* The boundary goes on to the next run of blocks, its gradient back to the one before; the first and the last run of
 * the model have no such neighbour. */
static bp_u128 pipeline_bytes(struct bp_capacity_run *run, uint64_t stage)
{
    struct bp_calc *calc = &run->calc;
    bool training = run->request->workload.mode == BP_MODE_TRAINING;
    bp_u128 forward = run->v - (stage == run->p - 1), backward = training ? run->v - (stage == 0) : 0;
    return BP_PROD(calc, bp_add(calc, forward, backward), run->micro_batches, run->s.Xs, run->s.e);
}

/* Gradients are all-reduced once a step; ZeRO 1 reduce-scatters them and gathers the parameters once; ZeRO 2 and 3
 * reduce every micro-batch; ZeRO 3 gathers the parameters in each forward and backward pass (Rajbhandari et al.,
 * section 7). A tied embedding that two stages hold is summed between them. */
static bp_u128 data_bytes(struct bp_capacity_run *run, uint64_t stage)
{
    struct bp_calc *calc = &run->calc;
    bp_u128 m = run->micro_batches, dp = run->s.dp;
    const struct {
        unsigned gradient_rounds, parameter_gathers;
        bool every_micro_batch, gathers_every_micro_batch;
    } stages[] = {{ALL_REDUCE, 0, false, false},
                  {GATHER_OR_SCATTER, 1, false, false},
                  {GATHER_OR_SCATTER, 1, true, false},
                  {GATHER_OR_SCATTER, 2, true, true}},
      zero = stages[run->request->strategy.zero_stage];
    bool first = stage == 0, last = stage == run->p - 1;
    struct bp_held held = {0};
    bp_held_add(run, &held, &run->one_block, bp_capacity_stage_blocks(run, stage));
    bp_held_add(run, &held, &run->embedding, first);
    bp_held_add(run, &held, &run->head, last);
    bp_u128 gradients = ring(run, bp_mul(calc, held.whole, run->s.g), dp, zero.gradient_rounds);
    bp_u128 parameters = ring(run, bp_mul(calc, held.whole, run->s.e), dp, GATHER_OR_SCATTER);
    bp_u128 bytes = bp_add(calc, bp_mul(calc, zero.every_micro_batch ? m : 1, gradients),
                           BP_PROD(calc, zero.parameter_gathers, zero.gathers_every_micro_batch ? m : 1, parameters));
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
        bp_u128 page_bytes = BP_PROD(calc, 2, run->s.d, run->s.k_l, page, bp_capacity_stage_blocks(run, i),
                                     bp_dtype_bytes(run->job->kv_cache_dtype));
        uint64_t other = stage->total.n - stage->components[BP_HOLDING_KV_CACHE].n;
        bp_u128 room = answer->available.n > other ? answer->available.n - other : 0;
        bp_u128 tokens = page_bytes ? room / page_bytes * page : least;
        least = tokens < least ? tokens : least;
    }
    return (uint64_t)least;
}

static bool batch_fits(const struct bp_capacity_run *run, uint64_t batch, uint64_t available)
{
    struct bp_job job = *run->job;
    struct bp_bytes total;
    job.request.workload.batch_size = batch;
    return bp_capacity_total(&job, NULL, &total, NULL) == 0 && total.n <= available;
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

int bp_capacity_step(struct bp_capacity_run *run, struct bp_capacity *answer, struct bp_err *err)
{
    struct bp_calc *calc = &run->calc;
    struct bp_block block;
    struct bp_pass_input input = {.request = run->request, .symbols = &run->s};
    bool training = run->request->workload.mode == BP_MODE_TRAINING;
    uint64_t stage = answer->binding_stage;
    if ((training ? bp_training_block : bp_inference_block)(&input, &block, err) < 0)
        return -1;
    answer->wire_tensor = bp_bytes(calc, tensor_bytes(run, &block, bp_capacity_stage_blocks(run, stage)));
    answer->wire_pipeline = bp_bytes(calc, pipeline_bytes(run, stage));
    answer->kv_per_token = bp_bytes(calc, BP_PROD(calc, 2, run->s.k, run->s.d, run->request->model.num_hidden_layers,
                                                  bp_dtype_bytes(run->job->kv_cache_dtype)));
    if (training) {
        training_operations(run, &block, answer);
        answer->wire_data = bp_bytes(calc, data_bytes(run, stage));
        return 0;
    }
    inference_operations(run, answer);
    if (run->job->has_memory) {
        answer->kv_tokens_that_fit = kv_tokens_that_fit(run, answer);
        answer->max_batch = max_batch(run, answer->available.n);
    }
    return 0;
}
