/* The search for the smallest changes, and for the fewest devices. */
#include "common/view/fit.h"

#include <string.h>

const char *const bp_fit_paths[] = {
#define BP_FIT_FIELD(suffix, path) path,
    BP_FIT_FIELDS
#undef BP_FIT_FIELD
        NULL};

/* Derived jobs that a search may look at: beyond, it ends with what it found. */
enum { EVALUATIONS_MAX = 3000, CHANGES_MAX = 5, VALUES_MAX = 24 };

struct search {
    const struct bp_whole_job *base;
    uint64_t available;
    bp_u128 devices;
    struct bp_capacity_memo *memo;
    struct bp_suggestion *found;
    size_t n_found, n_evaluated;
};

/* ---- Fields as numbers ---- */

uint64_t bp_fit_value(const struct bp_whole_job *job, enum bp_fit_field field)
{
    const struct bp_strategy *strategy = &job->request.strategy;
    const uint64_t values[BP_FIT_FIELD_N] = {
        [BP_FIT_RECOMPUTE] = strategy->recompute,
        [BP_FIT_SEQUENCE_PARALLEL] = strategy->sequence_parallel,
        [BP_FIT_RECOMPUTE_ACTIVATION] = strategy->recompute_activation,
        [BP_FIT_ZERO_STAGE] = strategy->zero_stage,
        [BP_FIT_MICRO_BATCH_SIZE] = job->request.workload.micro_batch_size,
        [BP_FIT_PIPELINE_SCHEDULE] = strategy->pipeline_schedule,
        [BP_FIT_PREFILL_CHUNK] = job->prefill_chunk,
        [BP_FIT_TENSOR_PARALLEL] = strategy->tensor_parallel,
        [BP_FIT_PIPELINE_PARALLEL] = strategy->pipeline_parallel,
        [BP_FIT_DATA_PARALLEL] = strategy->data_parallel,
        [BP_FIT_REPLICAS] = strategy->replicas,
        [BP_FIT_VIRTUAL_STAGES] = strategy->virtual_stages,
        [BP_FIT_PIPELINE_LAYERS] = strategy->n_pipeline_layers,
    };
    return values[field];
}

static void put(struct bp_whole_job *job, enum bp_fit_field field, uint64_t value)
{
    struct bp_strategy *strategy = &job->request.strategy;
    switch (field) {
    case BP_FIT_RECOMPUTE:
        strategy->recompute = (enum bp_recompute)value;
        break;
    case BP_FIT_SEQUENCE_PARALLEL:
        strategy->sequence_parallel = strategy->recompute_all_gather = value;
        break;
    case BP_FIT_RECOMPUTE_ACTIVATION:
        strategy->recompute_activation = value;
        break;
    case BP_FIT_ZERO_STAGE:
        strategy->zero_stage = value;
        break;
    case BP_FIT_MICRO_BATCH_SIZE:
        job->request.workload.micro_batch_size = value;
        break;
    case BP_FIT_PIPELINE_SCHEDULE:
        strategy->pipeline_schedule = (enum bp_schedule)value;
        strategy->virtual_stages = 1;
        break;
    case BP_FIT_PREFILL_CHUNK:
        job->prefill_chunk = value;
        break;
    case BP_FIT_TENSOR_PARALLEL:
        strategy->tensor_parallel = value;
        break;
    case BP_FIT_PIPELINE_PARALLEL:
        strategy->pipeline_parallel = value;
        break;
    default:
        break;
    }
}

/* ---- Which values a field may take ---- */

struct values {
    uint64_t at[VALUES_MAX];
    size_t n;
};

static void offer(struct values *values, uint64_t value)
{
    if (values->n < VALUES_MAX)
        values->at[values->n++] = value;
}

/* Nearer to the request first. */
static void sort_by_ratio(struct values *values, uint64_t from)
{
    for (size_t i = 1; i < values->n; i++)
        for (size_t j = i; j > 0; j--) {
            bp_u128 a = values->at[j - 1], b = values->at[j];
            bp_u128 a_up = a > from ? a : from, a_down = a > from ? from : a;
            bp_u128 b_up = b > from ? b : from, b_down = b > from ? from : b;
            if (a_up * b_down < b_up * a_down || (a_up * b_down == b_up * a_down && a < b))
                break;
            values->at[j - 1] = (uint64_t)b;
            values->at[j] = (uint64_t)a;
        }
}

static bool splits_kind(const struct bp_kind *kind, uint64_t t)
{
    uint64_t k = kind->num_key_value_heads;
    return kind->intermediate_size % t == 0 && kind->shared_intermediate_size % t == 0 &&
           kind->num_attention_heads % t == 0 && (k % t == 0 || t % k == 0);
}

static bool splits_heads(const struct bp_model *model, uint64_t t)
{
    bool splits = model->hidden_size % t == 0;
    for (uint32_t i = 0; splits && i < model->n_kinds; i++)
        splits = splits_kind(&model->kinds[i], t);
    return splits;
}

static void offer_degrees(const struct search *search, enum bp_fit_field field, struct values *values)
{
    const struct bp_model *model = &search->base->request.model;
    uint64_t now = bp_fit_value(search->base, field), most = BP_TENSOR_PARALLEL_MAX;
    if (field == BP_FIT_TENSOR_PARALLEL)
        most = search->base->devices_per_node;
    else if (model->num_hidden_layers < most)
        most = model->num_hidden_layers;
    for (uint64_t value = 1; value <= most && value <= search->devices; value++) {
        bool possible = field == BP_FIT_PIPELINE_PARALLEL || splits_heads(model, value);
        if (value != now && possible && search->devices % value == 0)
            offer(values, value);
    }
    sort_by_ratio(values, now);
}

static struct values values_of(const struct search *search, enum bp_fit_field field)
{
    const struct bp_whole_job *base = search->base;
    const struct bp_strategy *strategy = &base->request.strategy;
    bool training = base->request.workload.mode == BP_MODE_TRAINING;
    uint64_t now = bp_fit_value(base, field);
    struct values values = {0};
    switch (field) {
    case BP_FIT_RECOMPUTE:
        for (uint64_t value = now + 1; training && value <= BP_RECOMPUTE_FULL; value++)
            offer(&values, value);
        break;
    case BP_FIT_SEQUENCE_PARALLEL:
    case BP_FIT_RECOMPUTE_ACTIVATION:
        if (training && !now)
            offer(&values, true);
        break;
    case BP_FIT_ZERO_STAGE:
        for (uint64_t value = now + 1; training && value <= 3; value++)
            offer(&values, value);
        break;
    case BP_FIT_MICRO_BATCH_SIZE:
        for (uint64_t parts = 2; training && parts <= now && parts <= 4096; parts++)
            if (now % parts == 0)
                offer(&values, now / parts);
        break;
    case BP_FIT_PIPELINE_SCHEDULE:
        if (training && strategy->pipeline_parallel > 1 && now != BP_SCHEDULE_1F1B)
            offer(&values, BP_SCHEDULE_1F1B);
        break;
    case BP_FIT_PREFILL_CHUNK:
        for (uint64_t value = now / 2; !training && base->request.workload.phase == BP_PREFILL && value >= 256;
             value /= 2)
            offer(&values, value);
        break;
    case BP_FIT_TENSOR_PARALLEL:
    case BP_FIT_PIPELINE_PARALLEL:
        offer_degrees(search, field, &values);
        break;
    default:
        break;
    }
    return values;
}

/* ---- Candidates ---- */

/* Deals L layers over the stages as evenly as can be: what is left over goes to the stages after the first, one each.
 */
static void deal(struct bp_strategy *strategy, uint64_t layers)
{
    uint64_t runs = strategy->pipeline_parallel * strategy->virtual_stages, even = layers / runs, rest = layers % runs;
    strategy->n_pipeline_layers = 0;
    memset(strategy->pipeline_layers, 0, sizeof strategy->pipeline_layers);
    if (rest == 0 || runs > BP_RUNS_MAX || even >= UINT16_MAX)
        return;
    for (uint64_t i = 0; i < runs; i++)
        strategy->pipeline_layers[i] = (uint16_t)(even + (i >= 1 && i <= rest));
    strategy->n_pipeline_layers = (uint32_t)runs;
}

/* All that is asked of a request holds, and an interleaved schedule fills its stages. */
static bool is_valid(const struct bp_whole_job *job)
{
    const struct bp_strategy *strategy = &job->request.strategy;
    const struct bp_workload *workload = &job->request.workload;
    struct bp_problems problems = {0};
    bp_request_check(&job->request, job->position_offset, &problems);
    bool valid = bp_problems_none(&problems);
    bp_problems_release(&problems);
    if (valid && strategy->virtual_stages > 1)
        valid = workload->global_batch_size / (strategy->data_parallel * workload->micro_batch_size) %
                    strategy->pipeline_parallel ==
                0;
    return valid;
}

/* Lets the rest of the strategy follow: the data-parallel degree (or the replicas) that pays for it, experts that were
 * divided as the rest, the schedule of a pipeline that came or went, the runs of blocks. False when nothing valid comes
 * out. */
static bool settle(const struct search *search, struct bp_whole_job *job)
{
    const struct bp_strategy *base = &search->base->request.strategy;
    struct bp_strategy *strategy = &job->request.strategy;
    bool training = job->request.workload.mode == BP_MODE_TRAINING;
    bp_u128 group = (bp_u128)strategy->tensor_parallel * strategy->pipeline_parallel * strategy->context_parallel;
    uint64_t p = strategy->pipeline_parallel;
    if (search->devices % group != 0)
        return false;
    *(training ? &strategy->data_parallel : &strategy->replicas) = (uint64_t)(search->devices / group);
    if (base->expert_tensor_parallel == base->tensor_parallel)
        strategy->expert_tensor_parallel = strategy->tensor_parallel;
    if (p != base->pipeline_parallel && (p == 1 || base->pipeline_parallel == 1)) {
        strategy->pipeline_schedule = p == 1 ? BP_SCHEDULE_NONE : BP_SCHEDULE_1F1B;
        strategy->virtual_stages = 1;
    }
    if (p != base->pipeline_parallel || strategy->virtual_stages != base->virtual_stages)
        deal(strategy, job->request.model.num_hidden_layers);
    bool inert = (strategy->tensor_parallel == 1 && strategy->sequence_parallel) ||
                 (strategy->data_parallel * strategy->context_parallel == 1 && strategy->zero_stage > 0);
    return !inert && is_valid(job);
}

static void find_changes(const struct bp_whole_job *base, const struct bp_whole_job *job,
                         struct bp_suggestion *suggestion)
{
    bool pipelined = base->request.strategy.pipeline_parallel > 1 && job->request.strategy.pipeline_parallel > 1;
    suggestion->n_changed = 0;
    for (enum bp_fit_field field = 0; field < BP_FIT_FIELD_N; field++) {
        bool follows = field == BP_FIT_PIPELINE_SCHEDULE && !pipelined;
        suggestion->changed[field] = !follows && bp_fit_value(base, field) != bp_fit_value(job, field);
        suggestion->n_changed += suggestion->changed[field];
    }
}

/* Whether a part of these changes was found to do already. */
static bool is_more_than_needed(const struct search *search, const struct bp_suggestion *candidate)
{
    for (size_t i = 0; i < search->n_found; i++) {
        const struct bp_suggestion *found = &search->found[i];
        bool part = true;
        for (enum bp_fit_field field = 0; part && field < BP_FIT_FIELD_N; field++)
            part = !found->changed[field] || bp_fit_value(&found->job, field) == bp_fit_value(&candidate->job, field);
        if (part)
            return true;
    }
    return false;
}

static int consider(struct search *search, const struct bp_whole_job *job, unsigned n_changed, struct bp_err *err)
{
    struct bp_suggestion candidate = {.job = *job};
    struct bp_err found = {0};
    if (!settle(search, &candidate.job))
        return 0;
    find_changes(search->base, &candidate.job, &candidate);
    if (candidate.n_changed != n_changed || is_more_than_needed(search, &candidate))
        return 0;
    search->n_evaluated++;
    if (bp_capacity_total(&candidate.job, search->memo, &candidate.total, &found) < 0)
        return found.code == BP_E_quantity_overflow ? 0 : bp_fail(err, found.code, found.path, "%s", found.message);
    if (candidate.total.n > search->available)
        return 0;
    candidate.headroom.n = search->available - candidate.total.n;
    search->found[search->n_found++] = candidate;
    return 0;
}

/* Every choice of values for the fields from `field` on, earlier fields changed first. `left` counts how many more
 * fields may change. */
static int walk(struct search *search, const struct bp_whole_job *job, enum bp_fit_field field, unsigned left,
                unsigned n_changed, struct bp_err *err)
{
    if (search->n_found == BP_SUGGESTIONS_MAX || search->n_evaluated >= EVALUATIONS_MAX)
        return 0;
    if (field > BP_FIT_PIPELINE_PARALLEL || left == 0)
        return consider(search, job, n_changed, err);
    struct values values = values_of(search, field);
    for (size_t i = 0; i < values.n; i++) {
        struct bp_whole_job changed = *job;
        put(&changed, field, values.at[i]);
        if (walk(search, &changed, field + 1, left - 1, n_changed, err) < 0)
            return -1;
    }
    return walk(search, job, field + 1, left, n_changed, err);
}

/* ---- The fewest devices ---- */

/* The strategies that hold least at given degrees: one sequence a micro-batch, sequence parallelism, and one or other
 * recomputation; ZeRO 3 where there is data parallelism. */
static bool least_fits(const struct search *search, uint64_t t, uint64_t p, uint64_t dp)
{
    struct bp_whole_job job = *search->base;
    struct bp_strategy *strategy = &job.request.strategy;
    bool training = job.request.workload.mode == BP_MODE_TRAINING;
    enum bp_recompute least = training ? BP_RECOMPUTE_SELECTIVE : BP_RECOMPUTE_NONE;
    enum bp_recompute most = training ? BP_RECOMPUTE_FULL : BP_RECOMPUTE_NONE;
    strategy->tensor_parallel = strategy->expert_tensor_parallel = t;
    strategy->expert_parallel = strategy->context_parallel = strategy->virtual_stages = 1;
    strategy->pipeline_parallel = p;
    strategy->pipeline_schedule = p > 1 ? BP_SCHEDULE_1F1B : BP_SCHEDULE_NONE;
    deal(strategy, job.request.model.num_hidden_layers);
    if (training) {
        strategy->data_parallel = dp;
        strategy->sequence_parallel = strategy->recompute_all_gather = t > 1;
        strategy->zero_stage = dp > 1 ? 3 : 0;
        job.request.workload.micro_batch_size = 1;
    }
    if (!is_valid(&job))
        return false;
    for (enum bp_recompute recompute = least; recompute <= most; recompute++) {
        struct bp_bytes total;
        strategy->recompute = recompute;
        if (bp_capacity_total(&job, search->memo, &total, NULL) == 0 && total.n <= search->available)
            return true;
    }
    return false;
}

/* The least data-parallel degree, at most `most`, with which t and p fit: more ranks never hold more each. 0: none. */
static uint64_t least_data_parallel(const struct search *search, uint64_t t, uint64_t p, uint64_t most, uint64_t batch)
{
    uint64_t widest = most < batch ? most : batch;
    while (widest > 1 && batch % widest != 0)
        widest--;
    if (widest == 0 || !least_fits(search, t, p, widest))
        return 0;
    for (uint64_t dp = 1; dp < widest; dp++)
        if (batch % dp == 0 && least_fits(search, t, p, dp))
            return dp;
    return widest;
}

/* Degrees are looked through up to these bounds: a fit beyond them is not found. */
enum { FEWEST_PIPELINE_MAX = 64, FEWEST_DATA_MAX = 64 };

static uint64_t fewest_devices(const struct search *search)
{
    const struct bp_request *request = &search->base->request;
    bool training = request->workload.mode == BP_MODE_TRAINING;
    uint64_t batch = training ? request->workload.global_batch_size : 1, fewest = 0;
    uint64_t L = request->model.num_hidden_layers, p_most = L < FEWEST_PIPELINE_MAX ? L : FEWEST_PIPELINE_MAX;
    for (uint64_t t = 1; t <= search->base->devices_per_node && t <= BP_TENSOR_PARALLEL_MAX; t++)
        for (uint64_t p = 1; splits_heads(&request->model, t) && p <= p_most; p++) {
            uint64_t most = fewest ? (fewest - 1) / (t * p) : FEWEST_DATA_MAX;
            uint64_t dp = most ? least_data_parallel(search, t, p, most, batch) : 0;
            fewest = dp ? t * p * dp : fewest;
        }
    return fewest;
}

int bp_fit_of(const struct bp_whole_job *job, struct bp_arena *arena, struct bp_fit *ret, struct bp_err *err)
{
    struct bp_fit fit = {0};
    if (bp_capacity_of(job, arena, &fit.capacity, err) < 0)
        return -1;
    if (!job->has_memory) {
        *ret = fit;
        return 0;
    }
    struct search search = {.base = job, .available = fit.capacity.available.n, .devices = bp_whole_job_devices(job)};
    search.memo = bp_capacity_memo_new(arena);
    search.found = bp_arena_array(arena, BP_SUGGESTIONS_MAX, sizeof *search.found);
    if (!search.found || !search.memo)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for the suggestions");
    for (unsigned n = 1; !fit.capacity.fits && n <= CHANGES_MAX && search.n_found == 0; n++)
        if (walk(&search, job, 0, n, n, err) < 0)
            return -1;
    fit.suggestions = search.found;
    fit.n_suggestions = search.n_found;
    fit.fewest_devices = fewest_devices(&search);
    *ret = fit;
    return 0;
}
