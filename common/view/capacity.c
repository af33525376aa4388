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

uint64_t bp_capacity_run_blocks(const struct bp_capacity_run *run, uint64_t place)
{
    const struct bp_strategy *strategy = &run->request->strategy;
    return strategy->n_pipeline_layers ? strategy->pipeline_layers[place]
                                       : run->request->model.num_hidden_layers / (run->p * run->v);
}

uint64_t bp_capacity_stage_blocks(const struct bp_capacity_run *run, uint64_t stage)
{
    uint64_t blocks = 0;
    for (uint64_t chunk = 0; chunk < run->v; chunk++)
        blocks += bp_capacity_run_blocks(run, chunk * run->p + stage);
    return blocks;
}

/* How each mode derives a block and a stage. */
static const struct {
    int (*facts)(struct bp_capacity_run *run, struct bp_err *err);
    void (*stage)(struct bp_capacity_run *run, uint64_t stage, struct bp_capacity_stage *ret);
} modes[] = {[BP_MODE_TRAINING] = {bp_capacity_training_facts, bp_capacity_training_stage},
             [BP_MODE_INFERENCE] = {bp_capacity_inference_facts, bp_capacity_inference_stage}};

struct bp_capacity_memo *bp_capacity_memo_new(struct bp_arena *arena)
{
    return bp_arena_array(arena, 1, sizeof(struct bp_capacity_memo));
}

static bool remembers(const struct bp_memo_entry *entry, const struct bp_request *request)
{
    const struct bp_strategy *strategy = &request->strategy;
    return entry->tensor_parallel == strategy->tensor_parallel &&
           entry->micro_batch_size == request->workload.micro_batch_size &&
           entry->sequence_parallel == strategy->sequence_parallel &&
           entry->recompute_all_gather == strategy->recompute_all_gather &&
           entry->recompute_activation == strategy->recompute_activation && entry->recompute == strategy->recompute;
}

static int find_facts(struct bp_capacity_run *run, struct bp_capacity_memo *memo, struct bp_err *err)
{
    const struct bp_strategy *strategy = &run->request->strategy;
    for (size_t i = 0; memo && i < memo->n; i++)
        if (remembers(&memo->entries[i], run->request)) {
            run->block = memo->entries[i].facts;
            return 0;
        }
    if (modes[run->request->workload.mode].facts(run, err) < 0)
        return -1;
    if (memo && memo->n < BP_MEMO_ENTRIES && bp_calc_ok(&run->calc))
        memo->entries[memo->n++] = (struct bp_memo_entry){strategy->tensor_parallel,
                                                          run->request->workload.micro_batch_size,
                                                          strategy->sequence_parallel,
                                                          strategy->recompute_all_gather,
                                                          strategy->recompute_activation,
                                                          strategy->recompute,
                                                          run->block};
    return 0;
}

static int begin(const struct bp_job *job, struct bp_capacity_memo *memo, struct bp_capacity_run *run,
                 struct bp_err *err)
{
    const struct bp_request *request = &job->request;
    const struct bp_workload *workload = &request->workload;
    const struct bp_strategy *strategy = &request->strategy;
    *run = (struct bp_capacity_run){.job = job,
                                    .request = request,
                                    .p = strategy->pipeline_parallel,
                                    .v = strategy->virtual_stages,
                                    .micro_batches = 1};
    if (bp_symbols_of(&request->model, 0, workload, strategy, &run->s, err) < 0)
        return -1;
    if (workload->mode == BP_MODE_TRAINING)
        run->micro_batches = workload->global_batch_size / (strategy->data_parallel * workload->micro_batch_size);
    if (run->v > 1 && run->micro_batches % run->p != 0)
        return bp_fail(err, BP_E_not_divisible, "/workload/global_batch_size",
                       "an interleaved schedule needs a multiple of %llu micro-batches, not %llu",
                       (unsigned long long)run->p, (unsigned long long)run->micro_batches);
    if (find_facts(run, memo, err) < 0)
        return -1;
    bp_capacity_hold(run);
    return 0;
}

static struct bp_bytes evaluate_stage(struct bp_capacity_run *run, uint64_t place, struct bp_capacity_stage *stage)
{
    *stage = (struct bp_capacity_stage){0};
    modes[run->request->workload.mode].stage(run, place, stage);
    for (size_t i = 0; i < BP_HOLDING_N; i++)
        stage->total = bp_bytes_add(&run->calc, stage->total, stage->components[i]);
    return stage->total;
}

/* Where blocks are dealt evenly no stage between holds more than the second: it has no ends and the fewest behind it.
 */
static bool may_bind(const struct bp_capacity_run *run, uint64_t stage)
{
    return run->request->strategy.n_pipeline_layers || stage < 2 || stage == run->p - 1;
}

int bp_capacity_total(const struct bp_job *job, struct bp_capacity_memo *memo, struct bp_bytes *ret, struct bp_err *err)
{
    struct bp_capacity_run run;
    struct bp_capacity_stage stage;
    struct bp_bytes total = {0};
    if (begin(job, memo, &run, err) < 0)
        return -1;
    for (uint64_t place = 0; place < run.p; place++) {
        if (!may_bind(&run, place))
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
    const struct bp_job *job = run->job;
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

int bp_capacity_of(const struct bp_job *job, struct bp_arena *arena, struct bp_capacity *ret, struct bp_err *err)
{
    struct bp_capacity_run run;
    struct bp_capacity answer = {0};
    if (begin(job, NULL, &run, err) < 0)
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
