/* The search for the smallest changes, and for the fewest devices. */
#include "common/view/fit.h"

#include <string.h>

const char *const bp_fit_paths[] = {
#define BP_FIT_FIELD(suffix, path) path,
    BP_FIT_FIELDS
#undef BP_FIT_FIELD
        NULL};

/* Work that a search may do, in units of about half a microsecond: beyond, it ends with what it found. A candidate
 * costs CANDIDATE of them, a request that is checked CHECK more. */
enum { BUDGET = 12000, CANDIDATE = 2, CHECK = 4, CHANGES_MAX = 5, VALUES_MAX = 24, EXPERT_PARALLEL_MAX = 1024 };

/* Values that a field may take. */
struct values {
    uint64_t at[VALUES_MAX];
    size_t n;
};

struct search {
    const struct bp_whole_job *base; /* as it was said */
    struct bp_whole_job *job;        /* the same as changed so far */
    uint64_t available;
    bp_u128 devices;
    struct bp_capacity_memo *memo;
    struct values values[BP_FIT_FIELD_N];
    struct bp_suggestion *found; /* and room for one more */
    struct bp_strategy fewest;   /* that of the fewest devices so far */
    size_t n_found;
    uint64_t spent;
};

/* ---- Fields as numbers ---- */

uint64_t bp_fit_value(const struct bp_whole_job *job, enum bp_fit_field field)
{
    const struct bp_strategy *strategy = &job->request.strategy;
    switch (field) {
    case BP_FIT_RECOMPUTE:
        return strategy->recompute;
    case BP_FIT_SEQUENCE_PARALLEL:
        return strategy->sequence_parallel;
    case BP_FIT_RECOMPUTE_ACTIVATION:
        return strategy->recompute_activation;
    case BP_FIT_ZERO_STAGE:
        return strategy->zero_stage;
    case BP_FIT_MICRO_BATCH_SIZE:
        return job->request.workload.micro_batch_size;
    case BP_FIT_PIPELINE_SCHEDULE:
        return strategy->pipeline_schedule;
    case BP_FIT_PREFILL_CHUNK:
        return job->prefill_chunk;
    case BP_FIT_EXPERT_PARALLEL:
        return strategy->expert_parallel;
    case BP_FIT_TENSOR_PARALLEL:
        return strategy->tensor_parallel;
    case BP_FIT_PIPELINE_PARALLEL:
        return strategy->pipeline_parallel;
    case BP_FIT_DATA_PARALLEL:
        return strategy->data_parallel;
    case BP_FIT_REPLICAS:
        return strategy->replicas;
    case BP_FIT_VIRTUAL_STAGES:
        return strategy->virtual_stages;
    case BP_FIT_PIPELINE_LAYERS:
    case BP_FIT_FIELD_N:
        break;
    }
    return strategy->n_pipeline_layers;
}

static void put(struct bp_whole_job *job, enum bp_fit_field field, uint64_t value)
{
    struct bp_strategy *strategy = &job->request.strategy;
    switch (field) {
    case BP_FIT_RECOMPUTE:
        strategy->recompute = (enum bp_recompute)value;
        break;
    case BP_FIT_SEQUENCE_PARALLEL:
        strategy->sequence_parallel = value;
        if (!job->said.recompute_all_gather)
            strategy->recompute_all_gather = value;
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
    case BP_FIT_EXPERT_PARALLEL:
        strategy->expert_parallel = value;
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

static bool same_value(const struct bp_whole_job *a, const struct bp_whole_job *b, enum bp_fit_field field)
{
    const struct bp_strategy *left = &a->request.strategy, *right = &b->request.strategy;
    bool same = bp_fit_value(a, field) == bp_fit_value(b, field);
    if (same && field == BP_FIT_PIPELINE_LAYERS)
        same = memcmp(left->pipeline_layers, right->pipeline_layers, sizeof left->pipeline_layers) == 0;
    return same;
}

/* ---- Which values a field may take ---- */

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
    uint64_t now = bp_fit_value(search->base, field);
    uint64_t most = field == BP_FIT_TENSOR_PARALLEL ? search->base->devices_per_node : model->num_hidden_layers;
    if (most > BP_TENSOR_PARALLEL_MAX)
        most = BP_TENSOR_PARALLEL_MAX;
    for (uint64_t value = 1; value <= most && value <= search->devices; value++) {
        bool possible = field == BP_FIT_PIPELINE_PARALLEL || splits_heads(model, value);
        if (value != now && possible && search->devices % value == 0)
            offer(values, value);
    }
    sort_by_ratio(values, now);
}

/* What divides the experts of every kind that has some. */
static void offer_expert_degrees(const struct search *search, struct values *values)
{
    const struct bp_model *model = &search->base->request.model;
    uint64_t now = search->base->request.strategy.expert_parallel, most = 0;
    for (uint32_t i = 0; i < model->n_kinds; i++)
        most = model->kinds[i].num_experts > most ? model->kinds[i].num_experts : most;
    for (uint64_t value = 1; value <= most && value <= EXPERT_PARALLEL_MAX; value++) {
        bool divides = value != now;
        for (uint32_t i = 0; i < model->n_kinds; i++)
            divides &= model->kinds[i].num_experts % value == 0;
        if (divides)
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
    case BP_FIT_EXPERT_PARALLEL:
        offer_expert_degrees(search, &values);
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
    bp_u128 step = (bp_u128)strategy->data_parallel * workload->micro_batch_size;
    struct bp_problems problems = {0};
    /* What most candidates fail at, before problems are put into words. */
    if (workload->mode == BP_MODE_TRAINING && workload->global_batch_size % step != 0)
        return false;
    bp_request_check(&job->request, job->position_offset, &problems);
    bool valid = bp_problems_none(&problems);
    bp_problems_release(&problems);
    if (valid && strategy->virtual_stages > 1)
        valid = workload->global_batch_size / step % strategy->pipeline_parallel == 0;
    return valid;
}

/* The schedule of a pipeline that came or went: one that was said stays where it can. */
static void follow_pipeline(const struct bp_whole_job *base, struct bp_strategy *strategy)
{
    const struct bp_strategy *before = &base->request.strategy;
    if (strategy->pipeline_parallel == 1)
        strategy->virtual_stages = 1;
    if (strategy->pipeline_parallel == 1 && !base->said.pipeline_schedule)
        strategy->pipeline_schedule = BP_SCHEDULE_NONE;
    else if (strategy->pipeline_parallel > 1 && strategy->pipeline_schedule == BP_SCHEDULE_NONE)
        strategy->pipeline_schedule = BP_SCHEDULE_1F1B;
    if (strategy->pipeline_parallel != before->pipeline_parallel || strategy->virtual_stages != before->virtual_stages)
        deal(strategy, base->request.model.num_hidden_layers);
}

/* Lets the rest of the strategy follow: the data-parallel degree (or the replicas) that pays for it, experts that are
 * divided as the rest, the pipeline. False when the devices do not divide, or a change has no effect. */
static bool follow(const struct search *search)
{
    const struct bp_strategy *base = &search->base->request.strategy;
    struct bp_strategy *strategy = &search->job->request.strategy;
    bool training = search->base->request.workload.mode == BP_MODE_TRAINING;
    bp_u128 group = (bp_u128)strategy->tensor_parallel * strategy->pipeline_parallel * strategy->context_parallel;
    if (search->devices % group != 0)
        return false;
    *(training ? &strategy->data_parallel : &strategy->replicas) = (uint64_t)(search->devices / group);
    if (!search->base->said.expert_tensor_parallel)
        strategy->expert_tensor_parallel = strategy->tensor_parallel;
    follow_pipeline(search->base, strategy);
    return !(strategy->tensor_parallel == 1 && strategy->sequence_parallel && !base->sequence_parallel) &&
           (strategy->zero_stage == base->zero_stage ||
            bp_strategy_holds_copies(strategy, &search->base->request.model));
}

/* What was changed, all of it; false when that is not `wanted` fields. */
static bool find_changes(const struct search *search, unsigned wanted, struct bp_suggestion *ret)
{
    const struct bp_whole_job *base = search->base;
    bool pipelined =
        base->request.strategy.pipeline_parallel > 1 && search->job->request.strategy.pipeline_parallel > 1;
    ret->n_changed = 0;
    for (enum bp_fit_field field = 0; field < BP_FIT_FIELD_N && ret->n_changed <= wanted; field++) {
        bool follows = field == BP_FIT_PIPELINE_SCHEDULE && !pipelined && !base->said.pipeline_schedule;
        ret->changed[field] = !follows && !same_value(base, search->job, field);
        ret->n_changed += ret->changed[field];
    }
    return ret->n_changed == wanted;
}

/* Whether a part of these changes was found to do already. */
static bool is_more_than_needed(const struct search *search)
{
    for (size_t i = 0; i < search->n_found; i++) {
        const struct bp_suggestion *found = &search->found[i];
        bool part = true;
        for (enum bp_fit_field field = 0; part && field < BP_FIT_FIELD_N; field++)
            part = !found->changed[field] || same_value(&found->job, search->job, field);
        if (part)
            return true;
    }
    return false;
}

/* What an evaluation costs: stages that are alike are looked at three times at most. */
static uint64_t cost_of(const struct bp_request *request)
{
    const struct bp_strategy *strategy = &request->strategy;
    uint64_t runs = strategy->n_pipeline_layers;
    if (request->model.n_kinds == 1 && (runs == 0 || strategy->virtual_stages == 1))
        return 3 + runs / 20;
    return strategy->pipeline_parallel * strategy->virtual_stages + request->model.num_hidden_layers / 100 +
           runs * runs / 500;
}

/* The total of the job as changed. -1: as bp_capacity_total, but a job too large to be stated, or whose rows are not
 * known over so many ranks, is one that never fits. */
static int evaluate(struct search *search, struct bp_bytes *ret, struct bp_err *err)
{
    struct bp_strategy said = search->job->request.strategy;
    struct bp_err found = {0};
    search->spent += cost_of(&search->job->request);
    bp_strategy_normalise(&search->job->request.strategy, &search->job->request.model);
    int result = bp_capacity_total(search->job, search->memo, search->available, ret, &found);
    search->job->request.strategy = said;
    if (result == 0)
        return 0;
    ret->n = UINT64_MAX;
    return found.code == BP_E_quantity_overflow || found.code == BP_E_out_of_range ||
                   found.code == BP_E_unsupported_feature
               ? 0
               : bp_fail(err, found.code, found.path, "%s", found.message);
}

static int judge(struct search *search, unsigned n_changed, struct bp_err *err)
{
    struct bp_suggestion *candidate = &search->found[search->n_found];
    if (!find_changes(search, n_changed, candidate) || is_more_than_needed(search))
        return 0;
    search->spent += CHECK;
    if (!is_valid(search->job))
        return 0;
    if (evaluate(search, &candidate->total, err) < 0)
        return -1;
    if (candidate->total.n > search->available)
        return 0;
    candidate->headroom.n = search->available - candidate->total.n;
    candidate->job = *search->job;
    search->n_found++;
    return 0;
}

/* `left` changes are to follow from those that were made. */
static int consider(struct search *search, unsigned left, unsigned n_changed, struct bp_err *err)
{
    const struct bp_strategy *base = &search->base->request.strategy, *strategy = &search->job->request.strategy;
    if (left && strategy->tensor_parallel == base->tensor_parallel &&
        strategy->pipeline_parallel == base->pipeline_parallel &&
        strategy->pipeline_schedule == base->pipeline_schedule)
        return 0;
    struct bp_strategy chosen = *strategy;
    search->spent += CANDIDATE;
    int result = follow(search) ? judge(search, n_changed, err) : 0;
    search->job->request.strategy = chosen;
    return result;
}

/* Every choice of values for the fields from `field` on, earlier fields changed first. `left` counts how many more
 * fields may change. */
static int walk(struct search *search, enum bp_fit_field field, unsigned left, unsigned n_changed, struct bp_err *err)
{
    if (search->n_found == BP_SUGGESTIONS_MAX || search->spent >= BUDGET)
        return 0;
    if (field > BP_FIT_PIPELINE_PARALLEL || left == 0)
        return consider(search, left, n_changed, err);
    const struct values *values = &search->values[field];
    for (size_t i = 0; i < values->n; i++) {
        struct bp_strategy before = search->job->request.strategy;
        uint64_t micro_batch_size = search->job->request.workload.micro_batch_size;
        uint64_t prefill_chunk = search->job->prefill_chunk;
        put(search->job, field, values->at[i]);
        int result = walk(search, field + 1, left - 1, n_changed, err);
        search->job->request.strategy = before;
        search->job->request.workload.micro_batch_size = micro_batch_size;
        search->job->prefill_chunk = prefill_chunk;
        if (result < 0)
            return -1;
    }
    return walk(search, field + 1, left, n_changed, err);
}

static int find_suggestions(struct search *search, struct bp_err *err)
{
    for (enum bp_fit_field field = 0; field <= BP_FIT_PIPELINE_PARALLEL; field++)
        search->values[field] = values_of(search, field);
    for (unsigned n = 1; n <= CHANGES_MAX && search->n_found == 0; n++)
        if (walk(search, 0, n, n, err) < 0)
            return -1;
    return 0;
}

/* ---- The fewest devices ---- */

/* The strategy that holds least at given degrees but for what is recomputed: one sequence a micro-batch, sequence
 * parallelism, ZeRO 3 where there is data parallelism. */
static void hold_least(const struct search *search, uint64_t t, uint64_t p, uint64_t dp)
{
    struct bp_whole_job *job = search->job;
    struct bp_strategy *strategy = &job->request.strategy;
    bool training = job->request.workload.mode == BP_MODE_TRAINING;
    strategy->tensor_parallel = strategy->expert_tensor_parallel = t;
    strategy->expert_parallel = strategy->context_parallel = strategy->virtual_stages = 1;
    strategy->pipeline_parallel = p;
    strategy->pipeline_schedule = p > 1 ? BP_SCHEDULE_1F1B : BP_SCHEDULE_NONE;
    deal(strategy, job->request.model.num_hidden_layers);
    if (!training) {
        strategy->replicas = 1;
        return;
    }
    strategy->data_parallel = dp;
    strategy->sequence_parallel = strategy->recompute_all_gather = t > 1;
    strategy->zero_stage = dp > 1 ? 3 : 0;
    job->request.workload.micro_batch_size = 1;
}

/* With one or other recomputation. */
static bool least_fits(struct search *search, uint64_t t, uint64_t p, uint64_t dp)
{
    bool training = search->base->request.workload.mode == BP_MODE_TRAINING;
    enum bp_recompute least = training ? BP_RECOMPUTE_SELECTIVE : BP_RECOMPUTE_NONE;
    enum bp_recompute most = training ? BP_RECOMPUTE_FULL : BP_RECOMPUTE_NONE;
    hold_least(search, t, p, dp);
    search->spent += CHECK;
    if (search->spent >= BUDGET || !is_valid(search->job))
        return false;
    for (enum bp_recompute recompute = least; recompute <= most; recompute++) {
        struct bp_bytes total;
        search->job->request.strategy.recompute = recompute;
        if (evaluate(search, &total, NULL) == 0 && total.n <= search->available) {
            search->fewest = search->job->request.strategy; /* each that fits is of fewer devices than the last */
            return true;
        }
    }
    return false;
}

/* The least data-parallel degree from `least` to `most` with which t and p fit: more ranks never hold more each. 0:
 * none. */
static uint64_t least_data_parallel(struct search *search, uint64_t t, uint64_t p, uint64_t least, uint64_t most)
{
    const struct bp_workload *workload = &search->base->request.workload;
    uint64_t batch = workload->mode == BP_MODE_TRAINING ? workload->global_batch_size : 1;
    uint64_t widest = most < batch ? most : batch;
    while (widest > 1 && batch % widest != 0)
        widest--;
    if (widest < least || !least_fits(search, t, p, widest))
        return 0;
    for (uint64_t dp = least; dp < widest; dp++)
        if (batch % dp == 0 && least_fits(search, t, p, dp))
            return dp;
    return widest;
}

/* However they are dealt, weights, gradients and optimizer state are somewhere. 0: more than can be counted. */
static uint64_t devices_for_the_state(const struct search *search)
{
    static const unsigned optimizer_bytes[] = {
        [BP_ADAM] = 8, [BP_ADAMW] = 8, [BP_SGD] = 0, [BP_SGD_MOMENTUM] = 4, [BP_ADAM_8BIT] = 2, [BP_ADAFACTOR] = 0};
    const struct bp_workload *workload = &search->base->request.workload;
    uint64_t each = bp_dtype_bytes(workload->dtype);
    struct bp_calc calc = {0};
    bp_u128 parameters;
    if (workload->mode == BP_MODE_TRAINING)
        each +=
            bp_dtype_bytes(workload->gradient_dtype) + optimizer_bytes[search->base->optimizer] + (each < 4 ? 4U : 0U);
    if (workload->n_block_kinds) /* not all of it is counted */
        return 1;
    if (bp_model_parameters(&search->base->request.model, &parameters, NULL) < 0)
        return 0;
    uint64_t bits = search->base->storage.element_bits ? search->base->storage.element_bits : 8 * each;
    bp_u128 bytes = bp_div_ceil(&calc, bp_mul(&calc, parameters, bits), 8);
    bp_u128 devices = bp_div_ceil(&calc, bytes, search->available);
    return bp_calc_ok(&calc) && devices <= BP_JSON_INT_MAX ? (uint64_t)devices : 0;
}

/* Degrees are looked through up to these bounds: a fit beyond them is not found. */
enum { FEWEST_PIPELINE_MAX = 64, FEWEST_DATA_MAX = 64 };

static uint64_t fewest_devices(struct search *search)
{
    const struct bp_model *model = &search->base->request.model;
    uint64_t least = devices_for_the_state(search), fewest = 0;
    uint64_t L = model->num_hidden_layers, p_most = L < FEWEST_PIPELINE_MAX ? L : FEWEST_PIPELINE_MAX;
    for (uint64_t t = 1; least && t <= search->base->devices_per_node && t <= BP_TENSOR_PARALLEL_MAX; t++)
        for (uint64_t p = 1; splits_heads(model, t) && p <= p_most; p++) {
            uint64_t most = fewest ? (fewest - 1) / (t * p) : FEWEST_DATA_MAX, from = (least + t * p - 1) / (t * p);
            uint64_t dp = from <= most ? least_data_parallel(search, t, p, from, most) : 0;
            fewest = dp ? t * p * dp : fewest;
        }
    return fewest;
}

/* Suggestions are changes of what was said. */
static int search_begin(const struct bp_whole_job *job, struct bp_arena *arena, struct search *ret, struct bp_err *err)
{
    struct bp_whole_job *both = bp_arena_array(arena, 2, sizeof *both);
    struct search search = {.devices = bp_whole_job_devices(job)};
    search.memo = bp_capacity_memo_new(arena);
    search.found = bp_arena_array(arena, BP_SUGGESTIONS_MAX + 1, sizeof *search.found);
    if (!both || !search.found || !search.memo)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for the suggestions");
    both[0] = *job;
    both[0].request.strategy = job->said.strategy;
    both[1] = both[0];
    search.base = &both[0];
    search.job = &both[1];
    *ret = search;
    return 0;
}

int bp_fit_of(const struct bp_whole_job *job, struct bp_arena *arena, struct bp_fit *ret, struct bp_err *err)
{
    struct bp_fit fit = {0};
    struct search search;
    if (search_begin(job, arena, &search, err) < 0 || bp_capacity_of(job, search.memo, arena, &fit.capacity, err) < 0)
        return -1;
    search.available = fit.capacity.available.n;
    if (!fit.capacity.fits && find_suggestions(&search, err) < 0)
        return -1;
    fit.said = search.base;
    fit.suggestions = search.found;
    fit.n_suggestions = search.n_found;
    search.spent = 0;
    fit.fewest_devices = job->has_memory ? fewest_devices(&search) : 0;
    fit.fewest_strategy = search.fewest;
    bp_strategy_normalise(&fit.fewest_strategy, &job->request.model);
    *ret = fit;
    return 0;
}
