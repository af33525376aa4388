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
    const struct bp_job *base;
    uint64_t available;
    bp_u128 devices;
    struct bp_capacity_memo *memo;
    struct bp_suggestion *found;
    size_t n_found, n_evaluated;
};

/* ---- Fields as numbers ---- */

static uint64_t get(const struct bp_job *job, enum bp_fit_field field)
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

static void put(struct bp_job *job, enum bp_fit_field field, uint64_t value)
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
    uint64_t now = get(search->base, field), most = BP_TENSOR_PARALLEL_MAX;
    if (field == BP_FIT_TENSOR_PARALLEL)
        most = search->base->devices_per_node;
    else if (model->num_hidden_layers < most)
        most = model->num_hidden_layers;
    for (uint64_t value = 1; value <= most && value <= search->devices; value++) {
        bool possible =
            field == BP_FIT_TENSOR_PARALLEL ? splits_heads(model, value) : model->num_hidden_layers % value == 0;
        if (value != now && possible && search->devices % value == 0)
            offer(values, value);
    }
    sort_by_ratio(values, now);
}

static struct values values_of(const struct search *search, enum bp_fit_field field)
{
    const struct bp_job *base = search->base;
    const struct bp_strategy *strategy = &base->request.strategy;
    bool training = base->request.workload.mode == BP_MODE_TRAINING;
    uint64_t now = get(base, field);
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

/* Lets the rest of the strategy follow: the data-parallel degree (or the replicas) that pays for it, the schedule of a
 * pipeline that came or went, blocks dealt evenly where the runs are others. False when nothing valid comes out. */
static bool settle(const struct search *search, struct bp_job *job)
{
    const struct bp_job *base = search->base;
    struct bp_strategy *strategy = &job->request.strategy;
    struct bp_workload *workload = &job->request.workload;
    bool training = workload->mode == BP_MODE_TRAINING;
    bp_u128 group = (bp_u128)strategy->tensor_parallel * strategy->pipeline_parallel;
    uint64_t p = strategy->pipeline_parallel, p_before = base->request.strategy.pipeline_parallel;
    if (search->devices % group != 0)
        return false;
    *(training ? &strategy->data_parallel : &strategy->replicas) = (uint64_t)(search->devices / group);
    if (training && p != p_before && (p == 1 || p_before == 1)) {
        strategy->pipeline_schedule = p == 1 ? BP_SCHEDULE_NONE : BP_SCHEDULE_1F1B;
        strategy->virtual_stages = 1;
    }
    if (p != p_before || strategy->virtual_stages != base->request.strategy.virtual_stages)
        strategy->n_pipeline_layers = 0;
    if (!strategy->n_pipeline_layers && job->request.model.num_hidden_layers % (p * strategy->virtual_stages) != 0)
        return false;
    if (!training)
        return true;
    bp_u128 step = (bp_u128)strategy->data_parallel * workload->micro_batch_size;
    if (workload->global_batch_size % step != 0)
        return false;
    bool inert = (strategy->tensor_parallel == 1 && strategy->sequence_parallel) ||
                 (strategy->data_parallel == 1 && strategy->zero_stage > 0);
    bool uneven = strategy->sequence_parallel && workload->sequence_length % strategy->tensor_parallel != 0;
    bool unfilled = strategy->virtual_stages > 1 && workload->global_batch_size / step % p != 0;
    return !inert && !uneven && !unfilled;
}

static void find_changes(const struct bp_job *base, const struct bp_job *job, struct bp_suggestion *suggestion)
{
    bool pipelined = base->request.strategy.pipeline_parallel > 1 && job->request.strategy.pipeline_parallel > 1;
    suggestion->n_changed = 0;
    for (enum bp_fit_field field = 0; field < BP_FIT_FIELD_N; field++) {
        bool follows = field == BP_FIT_PIPELINE_SCHEDULE && !pipelined;
        suggestion->changed[field] = !follows && get(base, field) != get(job, field);
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
            part = !found->changed[field] || get(&found->job, field) == get(&candidate->job, field);
        if (part)
            return true;
    }
    return false;
}

static int consider(struct search *search, const struct bp_job *job, unsigned n_changed, struct bp_err *err)
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
static int walk(struct search *search, const struct bp_job *job, enum bp_fit_field field, unsigned left,
                unsigned n_changed, struct bp_err *err)
{
    if (search->n_found == BP_SUGGESTIONS_MAX || search->n_evaluated >= EVALUATIONS_MAX)
        return 0;
    if (field > BP_FIT_PIPELINE_PARALLEL || left == 0)
        return consider(search, job, n_changed, err);
    struct values values = values_of(search, field);
    for (size_t i = 0; i < values.n; i++) {
        struct bp_job changed = *job;
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
    struct bp_job job = *search->base;
    struct bp_strategy *strategy = &job.request.strategy;
    bool training = job.request.workload.mode == BP_MODE_TRAINING;
    strategy->tensor_parallel = t;
    strategy->pipeline_parallel = p;
    strategy->n_pipeline_layers = 0;
    strategy->virtual_stages = 1;
    if (training) {
        bool sp = t > 1 && job.request.workload.sequence_length % t == 0;
        strategy->data_parallel = dp;
        strategy->sequence_parallel = strategy->recompute_all_gather = sp;
        strategy->pipeline_schedule = p > 1 ? BP_SCHEDULE_1F1B : BP_SCHEDULE_NONE;
        strategy->zero_stage = dp > 1 ? 3 : 0;
        job.request.workload.micro_batch_size = 1;
    } else {
        strategy->replicas = dp;
    }
    for (enum bp_recompute recompute = training ? BP_RECOMPUTE_SELECTIVE : 0;
         recompute <= (training ? BP_RECOMPUTE_FULL : 0); recompute++) {
        struct bp_bytes total;
        strategy->recompute = recompute;
        if (bp_capacity_total(&job, search->memo, &total, NULL) == 0 && total.n <= search->available)
            return true;
    }
    return false;
}

static bp_u128 fewest_devices(const struct search *search)
{
    const struct bp_request *request = &search->base->request;
    bool training = request->workload.mode == BP_MODE_TRAINING;
    uint64_t L = request->model.num_hidden_layers, batch = training ? request->workload.global_batch_size : 1;
    bp_u128 fewest = 0;
    for (uint64_t t = 1; t <= search->base->devices_per_node && t <= BP_TENSOR_PARALLEL_MAX; t++)
        for (uint64_t p = 1; splits_heads(&request->model, t) && p <= L && p <= BP_TENSOR_PARALLEL_MAX; p++)
            for (uint64_t dp = 1; L % p == 0 && dp <= batch; dp++) {
                bp_u128 devices = (bp_u128)t * p * dp;
                if (fewest && devices >= fewest)
                    break;
                if (batch % dp == 0 && least_fits(search, t, p, dp)) {
                    fewest = devices;
                    break;
                }
            }
    return fewest;
}

int bp_fit_of(const struct bp_job *job, struct bp_arena *arena, struct bp_fit *ret, struct bp_err *err)
{
    struct bp_fit fit = {0};
    if (bp_capacity_of(job, arena, &fit.capacity, err) < 0)
        return -1;
    struct search search = {.base = job, .available = fit.capacity.available.n, .devices = bp_job_devices(job)};
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
