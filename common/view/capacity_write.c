#include "common/view/capacity_write.h"

/* What a device holds beside, and what is assumed of the framework (job.md). */
static const char *const excluded[] = {
    "CUDA context",
    "cuBLAS workspace",
    "NCCL buffers",
    "CUDA graphs",
    "allocator fragmentation",
    "attention masks and rope tables",
    "PyTorch DDP bucket copies",
    "pipeline receive buffers",
    "what eager PyTorch keeps beyond the fused norm and activation kernels assumed",
};

static void write_decimal(struct bp_writer *writer, const char *key, bp_u128 value)
{
    bp_writer_key(writer, key);
    bp_writer_decimal(writer, value);
}

static void write_digest(struct bp_writer *writer, const char *key, const struct bp_digest *digest)
{
    bp_writer_key(writer, key);
    if (digest)
        bp_writer_digest(writer, digest);
    else
        bp_writer_null(writer);
}

static void write_words(struct bp_writer *writer, const char *key, const char *const *words, size_t n)
{
    bp_writer_key(writer, key);
    bp_writer_array(writer);
    for (size_t i = 0; i < n; i++)
        bp_writer_string(writer, words[i]);
    bp_writer_end(writer);
}

/* ---- How it was counted ---- */

static void write_block_kinds(struct bp_writer *writer, const struct bp_workload *workload)
{
    const char *names[BP_KINDS_MAX];
    for (uint32_t i = 0; i < workload->n_block_kinds; i++)
        names[i] = workload->block_kinds[i];
    write_words(writer, "block_kinds", names, workload->n_block_kinds);
}

static void write_conventions(struct bp_writer *writer, const struct bp_whole_job *job)
{
    const struct bp_conventions *conventions = &job->conventions;
    const struct bp_workload *workload = &job->request.workload;
    bp_writer_key(writer, "conventions");
    bp_writer_object(writer);
    if (workload->n_block_kinds)
        write_block_kinds(writer, workload);
    bp_writer_put_string(writer, "attention", bp_attention_count_names[conventions->attention]);
    bp_writer_put_string(writer, "operations", bp_operations_count_names[conventions->operations]);
    bp_writer_put_string(writer, "attention_kernel", bp_kernel_names[conventions->kernel]);
    if (workload->mode == BP_MODE_TRAINING) {
        bp_writer_put_string(writer, "loss", bp_loss_names[conventions->loss]);
        bp_writer_put_string(writer, "optimizer", bp_optimizer_names[job->optimizer]);
        bp_writer_put_string(writer, "gradient_dtype", bp_dtype_names[workload->gradient_dtype]);
        if (job->request.strategy.context_parallel > 1)
            bp_writer_put_string(writer, "cp_comm", bp_cp_comm_names[job->request.strategy.cp_comm]);
    } else {
        bp_writer_put_string(writer, "weights",
                             job->storage.element_bits ? job->storage.method : bp_dtype_names[workload->dtype]);
        bp_writer_put_string(writer, "window_kv", bp_window_kv_names[conventions->window_kv]);
        bp_writer_put_string(writer, "kv_cache_dtype", bp_dtype_names[workload->kv_cache_dtype]);
        bp_writer_put_uint(writer, "kv_block", job->kv_block);
        bp_writer_put_uint(writer, "prefill_chunk", job->prefill_chunk);
    }
    bp_writer_end(writer);
}

static void write_assumptions(struct bp_writer *writer, const struct bp_whole_job *job)
{
    const struct bp_model *model = &job->request.model;
    const struct bp_strategy *strategy = &job->request.strategy;
    const struct bp_workload *workload = &job->request.workload;
    bool absorbed = workload->mode == BP_MODE_INFERENCE && workload->phase == BP_DECODE;
    bool experts = false, latent = false;
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        experts |= model->kinds[i].num_experts > 0;
        latent |= model->kinds[i].attention == BP_ATTENTION_LATENT;
    }
    const struct {
        bool holds;
        const char *name;
    } all[] = {
        {experts && job->imbalance_permille == 1000, "balanced_routing"},
        {experts && job->imbalance_permille != 1000, "imbalanced_routing"},
        {latent && absorbed, "latent_absorbed"},
        {latent && !absorbed, "latent_expanded"},
        {strategy->zero_stage >= 2 && strategy->pipeline_parallel > 1, "zero_with_pipeline"},
    };
    const char *names[sizeof all / sizeof *all];
    size_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].holds)
            names[n++] = all[i].name;
    write_words(writer, "assumptions", names, n);
}

static void write_lists(struct bp_writer *writer, const struct bp_config *config)
{
    write_words(writer, "assumed", config ? config->assumed : NULL, config ? config->n_assumed : 0);
    write_words(writer, "ignored", config ? config->ignored : NULL, config ? config->n_ignored : 0);
    write_words(writer, "excluded", excluded, sizeof excluded / sizeof *excluded);
}

void bp_parameters_write(struct bp_writer *writer, const struct bp_parameter_count *count)
{
    bp_writer_object(writer);
    write_decimal(writer, "total", count->total);
    write_decimal(writer, "active", count->active);
    write_decimal(writer, "active_without_embedding", count->active_without_embedding);
    bp_writer_key(writer, "components");
    bp_writer_object(writer);
    for (size_t i = 0; i < BP_COMPONENT_N; i++)
        write_decimal(writer, bp_component_names[i], count->components[i]);
    bp_writer_end(writer);
    bp_writer_end(writer);
}

/* ---- Stages ---- */

/* The layers of [first, first + n) that the request is about, first and last of each run of them. */
static void write_runs(struct bp_writer *writer, const struct bp_request *request, uint64_t first, uint64_t n,
                       uint64_t *of_kind)
{
    const uint8_t *kinds = request->model.layer_kinds;
    for (uint64_t layer = first, next; layer < first + n; layer = next) {
        bool counted = !kinds || bp_request_has_kind(request, kinds[layer]);
        next = kinds ? layer : first + n;
        while (next < first + n && bp_request_has_kind(request, kinds[next]) == counted)
            of_kind[kinds[next++]] += counted;
        if (!counted)
            continue;
        bp_writer_array(writer);
        bp_writer_uint(writer, layer);
        bp_writer_uint(writer, next - 1);
        bp_writer_end(writer);
    }
}

/* Its runs of layers, and how many blocks of each kind are among them. */
static void write_blocks(struct bp_writer *writer, const struct bp_request *request, uint64_t stage)
{
    const struct bp_model *model = &request->model;
    uint64_t of_kind[BP_KINDS_MAX] = {0};
    bp_writer_key(writer, "blocks");
    bp_writer_array(writer);
    for (uint64_t chunk = 0; chunk < request->strategy.virtual_stages; chunk++) {
        uint64_t first, n;
        bp_request_run_layers(request, chunk * request->strategy.pipeline_parallel + stage, &first, &n);
        write_runs(writer, request, first, n, of_kind);
    }
    bp_writer_end(writer);
    if (!model->layer_kinds)
        return;
    bp_writer_key(writer, "kinds");
    bp_writer_object(writer);
    for (uint32_t i = 0; i < model->n_kinds; i++)
        if (bp_request_has_kind(request, i))
            bp_writer_put_uint(writer, model->kinds[i].name, of_kind[i]);
    bp_writer_end(writer);
}

static void write_stage(struct bp_writer *writer, const struct bp_request *request,
                        const struct bp_capacity_stage *stage, uint64_t place)
{
    enum bp_mode mode = request->workload.mode;
    bp_writer_object(writer);
    bp_writer_put_uint(writer, "stage", place);
    write_blocks(writer, request, place);
    bp_writer_put_uint(writer, "in_flight", stage->in_flight);
    bp_writer_key(writer, "components");
    bp_writer_object(writer);
    for (enum bp_holding holding = 0; holding < BP_HOLDING_N; holding++)
        if (bp_holding_in(holding, mode))
            bp_writer_put_uint(writer, bp_holding_names[holding], stage->holdings[holding].n);
    bp_writer_end(writer);
    bp_writer_key(writer, "blocks_only");
    bp_writer_object(writer);
    for (size_t i = 0; i < (mode == BP_MODE_TRAINING ? 3U : 1U); i++)
        bp_writer_put_uint(writer, bp_holding_names[i], stage->blocks_only[i].n);
    bp_writer_end(writer);
    bp_writer_put_uint(writer, "total", stage->total.n);
    bp_writer_end(writer);
}

static void write_stages(struct bp_writer *writer, const struct bp_whole_job *job, const struct bp_capacity *capacity)
{
    bp_writer_key(writer, "stages");
    bp_writer_array(writer);
    for (uint64_t place = 0; place < capacity->n_stages; place++)
        write_stage(writer, &job->request, &capacity->stages[place], place);
    bp_writer_end(writer);
    bp_writer_put_uint(writer, "binding_stage", capacity->binding_stage);
    bp_writer_put_uint(writer, "total", capacity->total.n);
}

/* ---- Fitting ---- */

static void write_field(struct bp_writer *writer, const struct bp_whole_job *job, enum bp_fit_field field)
{
    const struct bp_strategy *strategy = &job->request.strategy;
    switch (field) {
    case BP_FIT_RECOMPUTE:
        bp_writer_string(writer, bp_recompute_names[strategy->recompute]);
        break;
    case BP_FIT_SEQUENCE_PARALLEL:
    case BP_FIT_RECOMPUTE_ACTIVATION:
        bp_writer_bool(writer, bp_fit_value(job, field));
        break;
    case BP_FIT_PIPELINE_SCHEDULE:
        bp_writer_string(writer, bp_schedule_names[strategy->pipeline_schedule]);
        break;
    case BP_FIT_PIPELINE_LAYERS:
        if (strategy->n_pipeline_layers == 0) {
            bp_writer_null(writer);
            break;
        }
        bp_writer_array(writer);
        for (uint32_t i = 0; i < strategy->n_pipeline_layers; i++)
            bp_writer_uint(writer, strategy->pipeline_layers[i]);
        bp_writer_end(writer);
        break;
    default:
        bp_writer_uint(writer, bp_fit_value(job, field));
        break;
    }
}

static void write_suggestion(struct bp_writer *writer, const struct bp_whole_job *said,
                             const struct bp_suggestion *suggestion)
{
    bp_writer_object(writer);
    bp_writer_key(writer, "changes");
    bp_writer_array(writer);
    for (enum bp_fit_field field = 0; field < BP_FIT_FIELD_N; field++) {
        if (!suggestion->changed[field])
            continue;
        bp_writer_object(writer);
        bp_writer_put_string(writer, "path", bp_fit_paths[field]);
        bp_writer_key(writer, "from");
        write_field(writer, said, field);
        bp_writer_key(writer, "to");
        write_field(writer, &suggestion->job, field);
        bp_writer_end(writer);
    }
    bp_writer_end(writer);
    bp_writer_put_uint(writer, "total", suggestion->total.n);
    bp_writer_put_uint(writer, "headroom", suggestion->headroom.n);
    bp_writer_end(writer);
}

/* The verdict has another name where nothing was set aside for what is excluded. */
static void write_verdict(struct bp_writer *writer, const struct bp_whole_job *job, const struct bp_fit *fit)
{
    const struct bp_capacity *capacity = &fit->capacity;
    bp_writer_put_uint(writer, "memory_bytes", job->memory.n);
    bp_writer_put_uint(writer, "reserve_bytes", job->reserve.n);
    bp_writer_put_uint(writer, "utilization_permille", job->utilization_permille);
    bp_writer_put_bool(writer, job->has_allowance ? "fits" : "fits_before_reserve", capacity->fits);
    bp_writer_put_uint(writer, "headroom", capacity->headroom.n);
    bp_writer_put_uint(writer, "shortfall", capacity->shortfall.n);
    bp_writer_key(writer, "suggestions");
    bp_writer_array(writer);
    for (size_t i = 0; i < fit->n_suggestions; i++)
        write_suggestion(writer, fit->said, &fit->suggestions[i]);
    bp_writer_end(writer);
    bp_writer_put_uint(writer, "fewest_devices", fit->fewest_devices);
    bp_writer_key(writer, "fewest_strategy");
    if (fit->fewest_devices)
        bp_strategy_write(writer, &fit->fewest_strategy, job->request.workload.mode);
    else
        bp_writer_null(writer);
    if (job->request.workload.mode == BP_MODE_INFERENCE) {
        bp_writer_put_uint(writer, "kv_tokens_that_fit", capacity->kv_tokens_that_fit);
        bp_writer_put_uint(writer, "max_batch", capacity->max_batch);
    }
}

/* ---- The step ---- */

static void write_counts(struct bp_writer *writer, const char *key, const struct bp_job_operations *operations)
{
    bp_writer_key(writer, key);
    bp_writer_object(writer);
    write_decimal(writer, "hardware", operations->hardware);
    write_decimal(writer, "model", operations->model);
    bp_writer_end(writer);
}

static void write_step(struct bp_writer *writer, const struct bp_capacity *capacity)
{
    const struct bp_wire *wire = &capacity->wire;
    bp_writer_key(writer, "operations");
    bp_writer_object(writer);
    write_counts(writer, "per_step", &capacity->per_step);
    if (capacity->has_per_token) {
        write_counts(writer, "per_token", &capacity->per_token);
    } else {
        bp_writer_key(writer, "per_token");
        bp_writer_null(writer);
    }
    bp_writer_end(writer);
    bp_writer_key(writer, "wire_bytes");
    bp_writer_object(writer);
    bp_writer_put_uint(writer, "tensor", wire->tensor.n);
    bp_writer_put_uint(writer, "pipeline", wire->pipeline.n);
    bp_writer_put_uint(writer, "data", wire->data.n);
    bp_writer_put_uint(writer, "expert", wire->expert.n);
    bp_writer_put_uint(writer, "context", wire->context.n);
    bp_writer_end(writer);
}

int bp_capacity_write(struct bp_writer *writer, const struct bp_capacity_answer *answer, struct bp_err *err)
{
    const struct bp_whole_job *job = answer->job;
    const struct bp_capacity *capacity = &answer->fit->capacity;
    struct bp_parameter_count count;
    if (bp_model_count(&job->request.model, &count, err) < 0)
        return -1;
    bp_writer_object(writer);
    write_digest(writer, "plan", answer->plan);
    write_digest(writer, "portable", answer->portable);
    bp_writer_put_uint(writer, "revision", BP_CAPACITY_REVISION);
    write_conventions(writer, job);
    write_assumptions(writer, job);
    write_lists(writer, answer->config);
    bp_writer_key(writer, "parameters");
    bp_parameters_write(writer, &count);
    bp_writer_put_uint(writer, "kv_bytes_per_token", capacity->kv_per_token.n);
    write_stages(writer, job, capacity);
    if (job->has_memory) {
        write_verdict(writer, job, answer->fit);
    } else {
        bp_writer_key(writer, "memory_bytes");
        bp_writer_null(writer);
    }
    write_step(writer, capacity);
    bp_writer_end(writer);
    return 0;
}
