/* Training: activations of a block from its rows, in flight by the pipeline's schedule, and what is held for a moment. */
#include "common/view/capacity_run.h"

struct activations {
    bp_u128 stored, widest;
};

/* The seed's reduction, without the S*S tensors under a tiled kernel, which keeps one fp32 log-sum-exp a score row
 * instead (Dao et al., FlashAttention, section 3.1). */
static struct activations sum_activations(struct bp_capacity_run *run, const struct bp_block *block, enum bp_recompute recompute)
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
    bp_u128 statistics = tiled && recompute == BP_RECOMPUTE_NONE ? BP_PROD(calc, 4, run->s.B, run->s.h_l, run->s.S) : 0;
    return (struct activations){bp_add(calc, bp_sub(calc, all, dropped), statistics), widest};
}

/* The rows under the request's recomputation and, where that drops something, under none. */
int bp_capacity_training_facts(struct bp_capacity_run *run, struct bp_err *err)
{
    struct bp_block *block = &(struct bp_block){0};
    struct bp_request request = *run->request;
    struct bp_symbols s = run->s;
    struct bp_pass_input input = {.request = &request, .symbols = &s};
    enum bp_recompute recompute = request.strategy.recompute;
    if (bp_training_block(&input, block, err) < 0)
        return -1;
    for (uint32_t i = 0; i < block->n_rows; i++)
        if (block->rows[i].parameters)
            bp_capacity_add_tensor(run, &block->rows[i]);
    struct activations kept = sum_activations(run, block, recompute);
    run->block.widest = kept.widest;
    if (recompute == BP_RECOMPUTE_NONE) {
        run->block.stored = kept.stored;
        return 0;
    }
    request.strategy.recompute = BP_RECOMPUTE_NONE;
    s.gathers_again = s.sequence_parallel && request.strategy.recompute_all_gather;
    if (bp_training_block(&input, block, err) < 0)
        return -1;
    struct activations whole = sum_activations(run, block, BP_RECOMPUTE_NONE);
    if (recompute == BP_RECOMPUTE_FULL) {
        run->block.checkpoint = bp_mul(&run->calc, run->s.Xs, run->s.e);
        run->block.again = whole.stored;
    } else {
        run->block.stored = kept.stored;
        run->block.again = bp_sub(&run->calc, whole.stored, kept.stored);
    }
    return 0;
}

/* Block passes (blocks times micro-batches) whose activations a stage holds at the peak of its schedule: all of its
 * blocks min(m, p - s) times under 1F1B, m times under GPipe, once where there is no pipeline (Narayanan et al.,
 * section 2.2). Interleaved, chunk passes in Megatron's order: the warm-up fills, then each backward pass makes room
 * for a forward one; chunks may hold different numbers of blocks, so that the peak is looked for over one period. */
static bp_u128 interleaved_peak(struct bp_capacity_run *run, uint64_t stage, uint64_t *ret_in_flight)
{
    uint64_t p = run->p, v = run->v;
    bp_u128 all = (bp_u128)run->micro_batches * v, window = 2 * (bp_u128)(p - stage - 1) + (bp_u128)(v - 1) * p + 1;
    uint64_t n = (uint64_t)(window < all ? window : all), period = p * v;
    bp_u128 held = 0, peak = 0;
    for (uint64_t pass = 0; pass < n; pass++)
        held = bp_add(&run->calc, held, bp_capacity_run_blocks(run, pass % period / p * p + stage));
    peak = held;
    for (uint64_t step = 0; step < period && (bp_u128)n + step < all; step++) {
        held = bp_sub(&run->calc, held, bp_capacity_run_blocks(run, (v - 1 - step % period / p) * p + stage));
        held = bp_add(&run->calc, held, bp_capacity_run_blocks(run, (n + step) % period / p * p + stage));
        peak = held > peak ? held : peak;
    }
    *ret_in_flight = n;
    return peak;
}

static bp_u128 peak_passes(struct bp_capacity_run *run, uint64_t stage, uint64_t *ret_in_flight)
{
    uint64_t m = run->micro_batches, ahead = run->p - stage, flights = 1;
    switch (run->request->strategy.pipeline_schedule) {
    case BP_SCHEDULE_INTERLEAVED:
        if (run->v > 1)
            return interleaved_peak(run, stage, ret_in_flight);
        flights = m < ahead ? m : ahead;
        break;
    case BP_SCHEDULE_1F1B:
        flights = m < ahead ? m : ahead;
        break;
    case BP_SCHEDULE_GPIPE:
        flights = m;
        break;
    case BP_SCHEDULE_NONE:
        break;
    }
    *ret_in_flight = flights;
    return bp_mul(&run->calc, flights, bp_capacity_stage_blocks(run, stage));
}

/* Micro-batches whose embedding dropout mask stage 0 holds: those whose first chunk is in flight. */
static bp_u128 masks_in_flight(const struct bp_capacity_run *run)
{
    bp_u128 m = run->micro_batches, p = run->p;
    bp_u128 window = run->v > 1 ? 2 * p : p;
    if (run->request->strategy.pipeline_schedule == BP_SCHEDULE_GPIPE)
        return m;
    return run->p == 1 ? 1 : m < window ? m : window;
}

static bp_u128 embedding_activations(struct bp_capacity_run *run)
{
    return run->request->model.embedding_dropout ? bp_mul(&run->calc, masks_in_flight(run), run->s.Xs) : 0;
}

/* The final norm's and the head's inputs and the logits of each micro-batch held, and one fp32 copy of the logits. */
static bp_u128 head_activations(struct bp_capacity_run *run)
{
    struct bp_calc *calc = &run->calc;
    bool gpipe = run->p > 1 && run->request->strategy.pipeline_schedule == BP_SCHEDULE_GPIPE;
    bp_u128 logits = BP_PROD(calc, run->s.B, run->s.S, bp_capacity_vocabulary_share(run));
    bp_u128 held = bp_mul(calc, run->s.e, BP_SUM(calc, run->s.Xs, run->s.Xs, logits));
    bp_u128 copy = run->job->conventions.loss == BP_LOSS_FP32_COPY ? bp_mul(calc, 4, logits) : 0;
    return bp_add(calc, bp_mul(calc, gpipe ? run->micro_batches : 1, held), copy);
}

/* ZeRO gathers units (embedding, block, head) for a moment: stage 3 the weights of the two largest that follow each
 * other, stages 2 and 3 the gradients of one. */
static bp_u128 zero_transient(struct bp_capacity_run *run, bool first, bool last, uint64_t blocks)
{
    struct bp_calc *calc = &run->calc;
    uint64_t zero = run->request->strategy.zero_stage;
    bp_u128 embedding = first ? run->embedding.whole : 0, block = blocks ? run->one_block.whole : 0;
    bp_u128 head = last ? run->head.whole : 0;
    bp_u128 ends = embedding > head ? embedding : head, largest = ends > block ? ends : block;
    bp_u128 pair = bp_add(calc, block, blocks > 1 && block > ends ? block : ends);
    if (zero < 2 || run->s.dp == 1)
        return 0;
    return bp_add(calc, bp_mul(calc, largest, run->s.g), zero == 3 ? bp_mul(calc, pair, run->s.e) : 0);
}

static void set(struct bp_capacity_run *run, struct bp_capacity_stage *stage, enum bp_component component, bp_u128 bytes)
{
    stage->components[component] = bp_bytes(&run->calc, bytes);
}

/* The larger of the backward peak and the optimizer step's, whose fp32 gradients stand beside narrower ones. */
void bp_capacity_training_stage(struct bp_capacity_run *run, uint64_t place, struct bp_capacity_stage *ret)
{
    struct bp_calc *calc = &run->calc;
    bool first = place == 0, last = place == run->p - 1;
    uint64_t blocks = bp_capacity_stage_blocks(run, place);
    struct bp_held blocks_only = {0}, state = {0};
    bp_held_add(run, &blocks_only, &run->one_block, blocks);
    state = blocks_only;
    bp_held_add(run, &state, &run->embedding, first);
    bp_held_add(run, &state, &run->head, last);

    bp_u128 passes = peak_passes(run, place, &ret->in_flight);
    bp_u128 stored = bp_mul(calc, passes, run->block.stored), kept = bp_mul(calc, passes, run->block.checkpoint);
    bp_u128 ends = bp_add(calc, first ? embedding_activations(run) : 0, last ? head_activations(run) : 0);
    bp_u128 transient = blocks ? bp_add(calc, run->block.again, run->block.widest) : 0;
    transient = bp_add(calc, transient, zero_transient(run, first, last, blocks));
    bp_u128 activations = BP_SUM(calc, stored, kept, ends);
    bp_u128 step = run->s.g < 4 ? bp_mul(calc, 4, state.own) : 0;
    if (step > bp_add(calc, activations, transient))
        transient = bp_sub(calc, step, activations);

    set(run, ret, BP_COMPONENT_WEIGHTS, state.weights);
    set(run, ret, BP_COMPONENT_GRADIENTS, state.gradients);
    set(run, ret, BP_COMPONENT_OPTIMIZER, state.optimizer);
    set(run, ret, BP_COMPONENT_STORED_ACTIVATIONS, stored);
    set(run, ret, BP_COMPONENT_ACTIVATION_CHECKPOINTS, kept);
    set(run, ret, BP_COMPONENT_EMBEDDING_ACTIVATIONS, first ? embedding_activations(run) : 0);
    set(run, ret, BP_COMPONENT_HEAD_ACTIVATIONS, last ? head_activations(run) : 0);
    set(run, ret, BP_COMPONENT_TRANSIENT, transient);
    ret->blocks_only[0] = bp_bytes(calc, blocks_only.weights);
    ret->blocks_only[1] = bp_bytes(calc, blocks_only.gradients);
    ret->blocks_only[2] = bp_bytes(calc, blocks_only.optimizer);
}
