/* The capacity view of job.md: facts of one block, stages from the blocks, the answer from the stages. */
#include "common/view/capacity_run.h"

const char *const bp_holding_names[] = {
#define BP_HOLDING(suffix, name, training, inference) name,
    BP_HOLDINGS
#undef BP_HOLDING
        NULL};

bool bp_holding_in(enum bp_holding component, enum bp_mode mode)
{
    static const bool in[][2] = {
#define BP_HOLDING(suffix, name, training, inference) {training, inference},
        BP_HOLDINGS
#undef BP_HOLDING
    };
    return in[component][mode == BP_MODE_INFERENCE];
}

uint32_t bp_capacity_kind_of(const struct bp_capacity_run *run, uint64_t layer)
{
    const uint8_t *kinds = run->request->model.layer_kinds;
    return kinds ? kinds[layer] : 0;
}

struct bp_kind_counts bp_capacity_run_counts(const struct bp_capacity_run *run, uint64_t place)
{
    struct bp_kind_counts counts = {0};
    uint64_t first;
    bp_request_run_layers(run->request, place, &first, &counts.all);
    if (run->n_kinds == 1)
        counts.of[0] = counts.all;
    else
        for (uint64_t layer = first; layer < first + counts.all; layer++)
            counts.of[bp_capacity_kind_of(run, layer)]++;
    for (uint32_t i = 0; i < run->n_kinds; i++)
        if (run->kinds[i].layers == 0) {
            counts.all -= counts.of[i];
            counts.of[i] = 0;
        }
    return counts;
}

struct bp_kind_counts bp_capacity_stage_counts(const struct bp_capacity_run *run, uint64_t stage)
{
    struct bp_kind_counts counts = {0};
    if (run->alike) {
        counts.of[0] = counts.all = run->request->model.num_hidden_layers / run->p;
        return counts;
    }
    for (uint64_t chunk = 0; chunk < run->v; chunk++) {
        struct bp_kind_counts more = bp_capacity_run_counts(run, chunk * run->p + stage);
        for (uint32_t i = 0; i < run->n_kinds; i++)
            counts.of[i] += more.of[i];
        counts.all += more.all;
    }
    return counts;
}

/* In inference nothing is kept from one step to the next but the cache. */
static int no_facts(struct bp_capacity_run *run, const struct bp_capacity_kind *kind, struct bp_block_facts *facts,
                    struct bp_err *err)
{
    (void)run;
    (void)kind;
    (void)facts;
    (void)err;
    return 0;
}

/* How each mode derives a block and a stage. */
static const struct {
    int (*facts)(struct bp_capacity_run *run, const struct bp_capacity_kind *kind, struct bp_block_facts *facts,
                 struct bp_err *err);
    void (*stage)(struct bp_capacity_run *run, uint64_t stage, const struct bp_kind_counts *counts,
                  struct bp_capacity_stage *ret);
} modes[] = {[BP_MODE_TRAINING] = {bp_capacity_training_facts, bp_capacity_training_stage},
             [BP_MODE_INFERENCE] = {no_facts, bp_capacity_inference_stage}};

struct bp_capacity_memo *bp_capacity_memo_new(struct bp_arena *arena)
{
    return bp_arena_array(arena, 1, sizeof(struct bp_capacity_memo));
}

static bool remembers(const struct bp_memo_entry *entry, uint32_t kind, const struct bp_request *request)
{
    const struct bp_strategy *strategy = &request->strategy;
    return entry->kind == kind && entry->tensor_parallel == strategy->tensor_parallel &&
           entry->context_parallel == strategy->context_parallel &&
           entry->expert_parallel == strategy->expert_parallel &&
           entry->expert_tensor_parallel == strategy->expert_tensor_parallel &&
           entry->micro_batch_size == request->workload.micro_batch_size &&
           entry->sequence_parallel == strategy->sequence_parallel &&
           entry->recompute_all_gather == strategy->recompute_all_gather &&
           entry->recompute_activation == strategy->recompute_activation && entry->recompute == strategy->recompute;
}

static int find_facts(struct bp_capacity_run *run, uint32_t place, struct bp_err *err)
{
    const struct bp_strategy *strategy = &run->request->strategy;
    struct bp_capacity_memo *memo = run->memo;
    struct bp_capacity_kind *kind = &run->kinds[place];
    static const struct bp_block_facts none;
    if (!kind->layers) { /* not asked for: it need not even have rows */
        kind->facts = &none;
        return 0;
    }
    for (size_t i = 0; i < memo->n; i++)
        if (remembers(&memo->entries[i], place, run->request)) {
            kind->facts = &memo->entries[i].facts;
            return 0;
        }
    struct bp_memo_entry *entry = &memo->entries[memo->n < BP_MEMO_ENTRIES ? memo->n : BP_MEMO_ENTRIES + place];
    bp_capacity_find_tensors(run, kind, &entry->facts);
    if (modes[run->request->workload.mode].facts(run, kind, &entry->facts, err) < 0)
        return -1;
    entry->kind = place;
    entry->tensor_parallel = strategy->tensor_parallel;
    entry->context_parallel = strategy->context_parallel;
    entry->expert_parallel = strategy->expert_parallel;
    entry->expert_tensor_parallel = strategy->expert_tensor_parallel;
    entry->micro_batch_size = run->request->workload.micro_batch_size;
    entry->sequence_parallel = strategy->sequence_parallel;
    entry->recompute_all_gather = strategy->recompute_all_gather;
    entry->recompute_activation = strategy->recompute_activation;
    entry->recompute = strategy->recompute;
    kind->facts = &entry->facts;
    /* What overflowed is not to be found again: it would look like a number. */
    memo->n += memo->n < BP_MEMO_ENTRIES && bp_calc_ok(&run->calc);
    return 0;
}

/* Pairs of the busiest rank, in whole ones for each rank of its expert tensor group. */
static void imbalance(struct bp_capacity_run *run, struct bp_symbols *s)
{
    struct bp_calc *calc = &run->calc;
    bp_u128 permille = run->job->imbalance_permille;
    if (permille == 1000 || !s->pairs || run->request->workload.mode != BP_MODE_TRAINING)
        return;
    s->own_pairs = bp_div_ceil(calc, bp_mul(calc, s->pairs, permille), bp_mul(calc, 1000, s->etp));
    s->pairs = bp_mul(calc, s->etp, s->own_pairs);
}

static int begin(const struct bp_whole_job *job, struct bp_capacity_memo *memo, struct bp_capacity_run *run,
                 struct bp_err *err)
{
    const struct bp_request *request = &job->request;
    const struct bp_workload *workload = &request->workload;
    const struct bp_strategy *strategy = &request->strategy;
    run->job = job;
    run->request = request;
    run->memo = memo;
    run->p = strategy->pipeline_parallel;
    run->v = strategy->virtual_stages;
    run->micro_batches = 1;
    run->n_kinds = request->model.n_kinds;
    run->alike = run->n_kinds == 1 && strategy->n_pipeline_layers == 0;
    run->calc = (struct bp_calc){0};
    run->embedding = run->head = (struct bp_held){0};
    if (run->p > BP_STAGES_MAX || run->v > BP_JOB_RUNS_MAX / run->p)
        return bp_fail(err, BP_E_out_of_range, "/strategy/pipeline_parallel",
                       "a job of more than %d pipeline stages, or %d runs of blocks, is not looked at", BP_STAGES_MAX,
                       BP_JOB_RUNS_MAX);
    for (uint32_t i = 0; i < run->n_kinds; i++)
        if (bp_symbols_of(&request->model, i, workload, strategy, &run->kinds[i].s, err) < 0)
            return -1;
    for (uint32_t i = 0; i < run->n_kinds; i++) {
        imbalance(run, &run->kinds[i].s);
        run->kinds[i].layers = bp_request_has_kind(request, i) ? request->model.kinds[i].layers : 0;
    }
    run->s = run->kinds[0].s;
    if (workload->mode == BP_MODE_TRAINING)
        run->micro_batches = workload->global_batch_size / (strategy->data_parallel * workload->micro_batch_size);
    if (run->v > 1 && run->micro_batches % run->p != 0)
        return bp_fail(err, BP_E_not_divisible, "/workload/global_batch_size",
                       "an interleaved schedule needs a multiple of %llu micro-batches, not %llu",
                       (unsigned long long)run->p, (unsigned long long)run->micro_batches);
    for (uint32_t i = 0; i < run->n_kinds; i++)
        if (find_facts(run, i, err) < 0)
            return -1;
    bp_capacity_hold(run);
    return 0;
}

static struct bp_bytes evaluate_stage(struct bp_capacity_run *run, uint64_t place, struct bp_capacity_stage *stage)
{
    struct bp_kind_counts counts = bp_capacity_stage_counts(run, place);
    *stage = (struct bp_capacity_stage){0};
    modes[run->request->workload.mode].stage(run, place, &counts, stage);
    for (size_t i = 0; i < BP_HOLDING_N; i++)
        stage->total = bp_bytes_add(&run->calc, stage->total, stage->holdings[i]);
    return stage->total;
}

/* Where blocks are alike and no stage after the second has more of them than it, none between it and the last holds
 * more: it has no ends, and the fewest stages behind it. */
static bool second_leads(const struct bp_capacity_run *run)
{
    const struct bp_strategy *strategy = &run->request->strategy;
    bool leads = run->n_kinds == 1 && run->v == 1;
    for (uint32_t i = 2; leads && i < strategy->n_pipeline_layers; i++)
        leads = strategy->pipeline_layers[i] <= strategy->pipeline_layers[1];
    return leads || (run->n_kinds == 1 && strategy->n_pipeline_layers == 0);
}

int bp_capacity_total(const struct bp_whole_job *job, struct bp_capacity_memo *memo, uint64_t most,
                      struct bp_bytes *ret, struct bp_err *err)
{
    struct bp_capacity_run run;
    struct bp_capacity_stage stage;
    struct bp_bytes total = {0};
    if (begin(job, memo, &run, err) < 0)
        return -1;
    bool skips = second_leads(&run);
    for (uint64_t place = 0; place < run.p && total.n <= most; place++) {
        if (skips && place > 1 && place < run.p - 1)
            continue;
        struct bp_bytes bytes = evaluate_stage(&run, place, &stage);
        total = bytes.n > total.n ? bytes : total;
    }
    if (bp_calc_check(&run.calc, "", "the memory of the job", err) < 0)
        return -1;
    *ret = total;
    return 0;
}

/* What the caller leaves for the job of each device's memory. */
static void compare_with_memory(struct bp_capacity_run *run, struct bp_capacity *answer)
{
    const struct bp_whole_job *job = run->job;
    bp_u128 usable = (bp_u128)job->memory.n * job->utilization_permille / 1000;
    answer->fits = true;
    if (!job->has_memory)
        return;
    answer->available.n = usable > job->reserve.n ? (uint64_t)usable - job->reserve.n : 0;
    answer->fits = answer->total.n <= answer->available.n;
    if (answer->fits)
        answer->headroom.n = answer->available.n - answer->total.n;
    else
        answer->shortfall.n = answer->total.n - answer->available.n;
}

/* A stored plan may be of what a job has no account of: no number is better than one that leaves something out. */
static int refuse_uncounted(const struct bp_whole_job *job, struct bp_err *err)
{
    struct bp_problems problems = {0};
    int result = 0;
    bp_whole_job_check(job, &problems);
    if (problems.n)
        result = bp_fail(err, problems.at[0].code, problems.at[0].path, "%s", problems.at[0].message);
    else if (problems.out_of_memory)
        result = bp_fail(err, BP_E_out_of_memory, "", "no memory for what is wrong with the job");
    bp_problems_release(&problems);
    return result;
}

int bp_capacity_of(const struct bp_whole_job *job, struct bp_capacity_memo *memo, struct bp_arena *arena,
                   struct bp_capacity *ret, struct bp_err *err)
{
    struct bp_capacity_run run;
    struct bp_capacity answer = {0};
    if (refuse_uncounted(job, err) < 0 || begin(job, memo, &run, err) < 0)
        return -1;
    answer.n_stages = run.p;
    answer.stages = bp_arena_array(arena, run.p, sizeof *answer.stages);
    if (!answer.stages)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for the stages");
    for (uint64_t place = 0; place < run.p; place++) {
        struct bp_bytes total = evaluate_stage(&run, place, &answer.stages[place]);
        if (total.n > answer.total.n) {
            answer.total = total;
            answer.binding_stage = place;
        }
    }
    compare_with_memory(&run, &answer);
    if (bp_capacity_step(&run, &answer, err) < 0 || bp_calc_check(&run.calc, "", "the memory of the job", err) < 0)
        return -1;
    *ret = answer;
    return 0;
}
