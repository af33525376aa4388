/* Training: activations of a block from its rows, in flight by the pipeline's schedule, and what is held for a moment.
 */
#include "common/view/capacity_run.h"

struct activations {
    bp_u128 stored, widest;
};

/* The reduction of stored activations, without the S*S tensors under a tiled kernel, which keeps one fp32 log-sum-exp a
 * score row instead (Dao et al., FlashAttention, section 3.1). */
static struct activations sum_activations(struct bp_capacity_run *run, const struct bp_symbols *s,
                                          const struct bp_block *block, enum bp_recompute recompute)
{
    struct bp_calc *calc = &run->calc;
    bool tiled = run->job->conventions.kernel == BP_KERNEL_TILED;
    bp_u128 all = 0, dropped = 0, widest = 0;
    for (uint32_t i = 0; i < block->n_rows; i++) {
        const struct bp_row *row = &block->rows[i];
        bp_u128 A = bp_sub(calc, row->activation.n, tiled ? row->scores_in_activation.n : 0);
        bp_u128 O = bp_sub(calc, row->output.n, tiled ? row->scores_in_output.n : 0);
        all = bp_add(calc, all, A);
        dropped = BP_SUM(calc, dropped, row->keeps_output ? 0 : O, row->keeps_activation ? 0 : A);
        bp_u128 both = bp_add(calc, A, O);
        widest = both > widest ? both : widest;
    }
    bp_u128 statistics = tiled && recompute == BP_RECOMPUTE_NONE ? BP_PROD(calc, 4, s->B, s->h_l, s->S) : 0;
    return (struct activations){bp_add(calc, bp_sub(calc, all, dropped), statistics), widest};
}

/* The tensors of the description are those of the rows. */
static bool same_parameters(struct bp_capacity_run *run, const struct bp_capacity_kind *kind,
                            const struct bp_block_facts *facts, const struct bp_block *block)
{
    bp_u128 described = 0, in_rows = 0;
    for (uint32_t i = 0; i < facts->n_tensors; i++)
        described = bp_add(&run->calc, described, facts->tensors[i].elements);
    for (uint32_t i = 0; i < block->n_rows; i++)
        in_rows = bp_add(&run->calc, in_rows, block->rows[i].parameters);
    /* The score correction is moved by the router's load, not by a gradient: it has no row. */
    return described == in_rows + (kind->s.kind->score_correction_bias ? kind->s.E : 0) || !bp_calc_ok(&run->calc);
}

/* The rows under the request's recomputation and, where that drops something, under none. */
int bp_capacity_training_facts(struct bp_capacity_run *run, const struct bp_capacity_kind *kind,
                               struct bp_block_facts *facts, struct bp_err *err)
{
    struct bp_block block;
    struct bp_request request = *run->request;
    struct bp_symbols s = kind->s;
    enum bp_recompute recompute = request.strategy.recompute;
    if (bp_training_block(&request, &s, &block, err) < 0)
        return -1;
    if (!same_parameters(run, kind, facts, &block))
        return bp_fail(err, BP_E_internal, "", "the rows and the description of a block differ in their parameters");
    struct activations now = sum_activations(run, &s, &block, recompute);
    facts->kept = now.stored;
    facts->widest = now.widest;
    facts->again = 0;
    if (recompute == BP_RECOMPUTE_NONE)
        return 0;
    request.strategy.recompute = BP_RECOMPUTE_NONE;
    s.gathers_again = s.sequence_parallel && request.strategy.recompute_all_gather;
    if (bp_training_block(&request, &s, &block, err) < 0)
        return -1;
    bp_u128 whole = sum_activations(run, &s, &block, BP_RECOMPUTE_NONE).stored;
    bool full = recompute == BP_RECOMPUTE_FULL;
    if (full)
        facts->kept = bp_mul(&run->calc, s.Xs, s.e);
    facts->again = full ? whole : bp_sub(&run->calc, whole, now.stored);
    return 0;
}

/* ---- In flight ---- */

static bp_u128 blocks_keep(struct bp_capacity_run *run, const struct bp_kind_counts *counts)
{
    bp_u128 bytes = 0;
    for (uint32_t i = 0; i < run->n_kinds; i++)
        bytes = bp_add(&run->calc, bytes, bp_mul(&run->calc, counts->of[i], run->kinds[i].facts->kept));
    return bytes;
}

/* What one micro-batch leaves in a chunk of the stage. */
static bp_u128 chunk_keeps(struct bp_capacity_run *run, uint64_t chunk, uint64_t stage)
{
    struct bp_kind_counts counts = bp_capacity_run_counts(run, chunk * run->p + stage);
    return blocks_keep(run, &counts);
}

/* The chunk of a forward pass: p micro-batches of one, then of the next. */
static uint64_t chunk_of(const struct bp_capacity_run *run, uint64_t pass)
{
    return pass / run->p % run->v;
}

/* What the first n forward passes keep. */
static bp_u128 first_passes_keep(struct bp_capacity_run *run, uint64_t stage, uint64_t n)
{
    struct bp_calc *calc = &run->calc;
    uint64_t p = run->p, period = p * run->v;
    bp_u128 held = 0;
    for (uint64_t chunk = 0; chunk < run->v; chunk++) {
        uint64_t rest = n % period > chunk * p ? n % period - chunk * p : 0;
        bp_u128 passes = bp_add(calc, bp_mul(calc, n / period, p), rest < p ? rest : p);
        held = bp_add(calc, held, bp_mul(calc, passes, chunk_keeps(run, chunk, stage)));
    }
    return held;
}

/* Chunk passes in Megatron's interleaved order (Narayanan et al., section 2.2): p micro-batches of a chunk, then of the
 * next; the warm-up fills, then each backward pass, in the reverse order of chunks, makes room for a forward one.
 * Chunks may keep different amounts, so that the peak is looked for over one period: it rises or falls evenly as long
 * as the same two chunks take turns. */
static bp_u128 interleaved_peak(struct bp_capacity_run *run, uint64_t stage, uint64_t *ret_in_flight)
{
    struct bp_calc *calc = &run->calc;
    uint64_t p = run->p, v = run->v, period = p * v;
    bp_u128 all = (bp_u128)run->micro_batches * v, window = 2 * (bp_u128)(p - stage - 1) + (bp_u128)(v - 1) * p + 1;
    uint64_t n = (uint64_t)(window < all ? window : all);
    *ret_in_flight = n;
    if (run->alike)
        return bp_mul(calc, n, chunk_keeps(run, 0, stage));
    uint64_t steps = (uint64_t)(all - n < period ? all - n : period);
    bp_u128 held = first_passes_keep(run, stage, n), peak = held;
    for (uint64_t step = 0, turns; step < steps; step += turns) {
        uint64_t until_backward = p - step % p, until_forward = p - (n + step) % p;
        turns = until_backward < until_forward ? until_backward : until_forward;
        turns = turns < steps - step ? turns : steps - step;
        bp_u128 freed = bp_mul(calc, turns, chunk_keeps(run, v - 1 - step / p, stage));
        bp_u128 kept = bp_mul(calc, turns, chunk_keeps(run, chunk_of(run, n + step), stage));
        held = bp_sub(calc, bp_add(calc, held, kept), freed);
        peak = held > peak ? held : peak;
    }
    return peak;
}

/* All blocks of the stage, min(m, p - s) times under 1F1B, m times under GPipe, once where there is no pipeline. */
static bp_u128 peak(struct bp_capacity_run *run, uint64_t stage, const struct bp_kind_counts *counts,
                    uint64_t *ret_in_flight)
{
    uint64_t m = run->micro_batches, ahead = run->p - stage, overlapped = m < ahead ? m : ahead;
    const uint64_t in_flight[] = {[BP_SCHEDULE_NONE] = 1,
                                  [BP_SCHEDULE_1F1B] = overlapped,
                                  [BP_SCHEDULE_INTERLEAVED] = overlapped,
                                  [BP_SCHEDULE_GPIPE] = m};
    if (run->v > 1)
        return interleaved_peak(run, stage, ret_in_flight);
    *ret_in_flight = in_flight[run->request->strategy.pipeline_schedule];
    return bp_mul(&run->calc, *ret_in_flight, blocks_keep(run, counts));
}

/* ---- The ends of the model ---- */

/* The dropout mask of each micro-batch whose first chunk is in flight. */
static bp_u128 embedding_activations(struct bp_capacity_run *run)
{
    bp_u128 m = run->micro_batches, window = run->v > 1 ? 2 * (bp_u128)run->p : run->p;
    bp_u128 held = m < window ? m : window;
    if (run->request->strategy.pipeline_schedule == BP_SCHEDULE_GPIPE)
        held = m;
    return run->request->model.embedding_dropout ? bp_mul(&run->calc, held, run->s.Xs) : 0;
}

/* The final norm's and the head's inputs and the logits of each micro-batch held, and one fp32 copy of the logits. */
static bp_u128 head_activations(struct bp_capacity_run *run)
{
    struct bp_calc *calc = &run->calc;
    bool gpipe = run->request->strategy.pipeline_schedule == BP_SCHEDULE_GPIPE;
    bp_u128 logits = BP_PROD(calc, run->s.B, run->s.S, bp_capacity_vocabulary_share(run));
    bp_u128 held = bp_mul(calc, run->s.e, BP_SUM(calc, run->s.Xs, run->s.Xs, logits));
    bp_u128 copy = run->job->conventions.loss == BP_LOSS_FP32_COPY ? bp_mul(calc, 4, logits) : 0;
    return bp_add(calc, bp_mul(calc, gpipe ? run->micro_batches : 1, held), copy);
}

/* ---- For a moment ---- */

/* ZeRO's units (embedding, block, head) in the order of a stage: the two largest that follow each other, the largest.
 */
struct units {
    bp_u128 last, pair, largest;
};

static void next_unit(struct bp_capacity_run *run, struct units *units, bp_u128 elements)
{
    bp_u128 pair = bp_add(&run->calc, units->last, elements);
    units->pair = pair > units->pair ? pair : units->pair;
    units->largest = elements > units->largest ? elements : units->largest;
    units->last = elements;
}

/* ZeRO 3 gathers the weights of two units, ZeRO 2 and 3 have the gradients of one unsharded (Rajbhandari et al.,
 * section 5). */
static bp_u128 zero_transient(struct bp_capacity_run *run, uint64_t stage, const struct bp_kind_counts *counts)
{
    struct bp_calc *calc = &run->calc;
    uint64_t zero = run->request->strategy.zero_stage;
    struct units units = {0};
    if (zero < 2)
        return 0;
    if (stage == 0)
        next_unit(run, &units, run->embedding.whole);
    /* Of blocks that are all alike the third and later ones add nothing. */
    for (uint64_t i = 0; run->n_kinds == 1 && i < counts->all && i < 2; i++)
        next_unit(run, &units, run->kinds[0].held.whole);
    for (uint64_t chunk = 0; run->n_kinds > 1 && chunk < run->v; chunk++) {
        uint64_t first, n;
        bp_request_run_layers(run->request, chunk * run->p + stage, &first, &n);
        for (uint64_t layer = first; layer < first + n; layer++)
            if (run->kinds[bp_capacity_kind_of(run, layer)].layers)
                next_unit(run, &units, run->kinds[bp_capacity_kind_of(run, layer)].held.whole);
    }
    if (stage == run->p - 1)
        next_unit(run, &units, run->head.whole);
    return bp_add(calc, bp_mul(calc, units.largest, run->s.g), zero == 3 ? bp_mul(calc, units.pair, run->s.e) : 0);
}

/* Keys and values of other ranks that attention holds under context parallelism: two shards on their way around a
 * ring, or all of them once gathered. Exchanged by heads, each rank holds as much as before. */
static bp_u128 context_transient(struct bp_capacity_run *run, const struct bp_symbols *s)
{
    struct bp_calc *calc = &run->calc;
    uint64_t cp = run->request->strategy.context_parallel;
    bool latent = s->kind->attention == BP_ATTENTION_LATENT;
    bp_u128 width = latent ? (bp_u128)s->kind->qk_nope_head_dim + s->kind->qk_rope_head_dim + s->kind->v_head_dim
                           : bp_mul(calc, 2, s->d);
    bp_u128 shard = BP_PROD(calc, s->B, s->S, latent ? s->h_l : s->k_l, width, s->e);
    const bp_u128 shards[] = {[BP_CP_RING] = 2, [BP_CP_ALL_GATHER] = cp, [BP_CP_A2A] = 0};
    return cp == 1 ? 0 : bp_mul(calc, shards[run->request->strategy.cp_comm], shard);
}

static bp_u128 backward_transient(struct bp_capacity_run *run, uint64_t stage, const struct bp_kind_counts *counts)
{
    bp_u128 again = 0, widest = 0, context = 0;
    for (uint32_t i = 0; i < run->n_kinds; i++) {
        const struct bp_block_facts *facts = run->kinds[i].facts;
        bp_u128 gathered = counts->of[i] ? context_transient(run, &run->kinds[i].s) : 0;
        context = gathered > context ? gathered : context;
        again = counts->of[i] && facts->again > again ? facts->again : again;
        widest = counts->of[i] && facts->widest > widest ? facts->widest : widest;
    }
    return BP_SUM(&run->calc, again, widest, context, zero_transient(run, stage, counts));
}

/* The larger of the backward peak and the optimizer step's, where fp32 gradients stand beside narrower ones. */
void bp_capacity_training_stage(struct bp_capacity_run *run, uint64_t stage, const struct bp_kind_counts *counts,
                                struct bp_capacity_stage *ret)
{
    struct bp_calc *calc = &run->calc;
    struct bp_held blocks_only, state = bp_capacity_stage_state(run, stage, counts, &blocks_only);
    bool full = run->request->strategy.recompute == BP_RECOMPUTE_FULL;
    bp_u128 kept = peak(run, stage, counts, &ret->in_flight), transient = backward_transient(run, stage, counts);
    bp_u128 embedding = stage == 0 ? embedding_activations(run) : 0;
    bp_u128 head = stage == run->p - 1 ? head_activations(run) : 0;
    bp_u128 activations = BP_SUM(calc, kept, embedding, head);
    bp_u128 step = run->s.g < 4 ? bp_mul(calc, 4, state.own) : 0;
    if (step > bp_add(calc, activations, transient))
        transient = bp_sub(calc, step, activations);
    const bp_u128 holdings[BP_HOLDING_N] = {
        [BP_HOLDING_WEIGHTS] = state.weights,
        [BP_HOLDING_GRADIENTS] = state.gradients,
        [BP_HOLDING_OPTIMIZER] = state.optimizer,
        [BP_HOLDING_STORED_ACTIVATIONS] = full ? 0 : kept,
        [BP_HOLDING_ACTIVATION_CHECKPOINTS] = full ? kept : 0,
        [BP_HOLDING_EMBEDDING_ACTIVATIONS] = embedding,
        [BP_HOLDING_HEAD_ACTIVATIONS] = head,
        [BP_HOLDING_TRANSIENT] = transient,
    };
    for (size_t i = 0; i < BP_HOLDING_N; i++)
        ret->holdings[i] = bp_bytes(calc, holdings[i]);
    ret->blocks_only[0] = bp_bytes(calc, blocks_only.weights);
    ret->blocks_only[1] = bp_bytes(calc, blocks_only.gradients);
    ret->blocks_only[2] = bp_bytes(calc, blocks_only.optimizer);
}
