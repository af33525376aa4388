/* Canonical forms of the bindings and of the whole request, and the digests made of them. */
#include "common/request/request.h"

static void write_uint_but(struct bp_writer *writer, const char *key, uint64_t value, uint64_t usual)
{
    if (value != usual)
        bp_writer_put_uint(writer, key, value);
}

static void write_bool_but(struct bp_writer *writer, const char *key, bool value, bool usual)
{
    if (value != usual)
        bp_writer_put_bool(writer, key, value);
}

static void write_block_kinds(struct bp_writer *writer, const struct bp_workload *workload)
{
    if (workload->n_block_kinds == 0)
        return;
    bp_writer_key(writer, "block_kinds");
    bp_writer_array(writer);
    for (uint32_t i = 0; i < workload->n_block_kinds; i++)
        bp_writer_string(writer, workload->block_kinds[i]);
    bp_writer_end(writer);
}

void bp_workload_write(struct bp_writer *writer, const struct bp_workload *workload)
{
    bp_writer_object(writer);
    if (workload->mode == BP_MODE_TRAINING) {
        write_block_kinds(writer, workload);
        bp_writer_put_string(writer, "dtype", bp_dtype_names[workload->dtype]);
        bp_writer_put_uint(writer, "global_batch_size", workload->global_batch_size);
        if (workload->gradient_dtype != BP_DTYPE_FLOAT32)
            bp_writer_put_string(writer, "gradient_dtype", bp_dtype_names[workload->gradient_dtype]);
        bp_writer_put_uint(writer, "micro_batch_size", workload->micro_batch_size);
        bp_writer_put_string(writer, "mode", bp_mode_names[workload->mode]);
        bp_writer_put_uint(writer, "sequence_length", workload->sequence_length);
    } else {
        bp_writer_put_uint(writer, "batch_size", workload->batch_size);
        write_block_kinds(writer, workload);
        bp_writer_put_uint(writer, "context_length", workload->context_length);
        bp_writer_put_string(writer, "dtype", bp_dtype_names[workload->dtype]);
        if (workload->kv_cache_dtype != workload->dtype)
            bp_writer_put_string(writer, "kv_cache_dtype", bp_dtype_names[workload->kv_cache_dtype]);
        bp_writer_put_string(writer, "mode", bp_mode_names[workload->mode]);
        bp_writer_put_string(writer, "phase", bp_inference_phase_names[workload->phase]);
    }
    bp_writer_end(writer);
}

static void write_pipeline_layers(struct bp_writer *writer, const struct bp_strategy *strategy)
{
    if (strategy->n_pipeline_layers == 0)
        return;
    bp_writer_key(writer, "pipeline_layers");
    bp_writer_array(writer);
    for (uint32_t i = 0; i < strategy->n_pipeline_layers; i++)
        bp_writer_uint(writer, strategy->pipeline_layers[i]);
    bp_writer_end(writer);
}

static void write_expert_degrees(struct bp_writer *writer, const struct bp_strategy *strategy)
{
    write_uint_but(writer, "expert_parallel", strategy->expert_parallel, 1);
    write_uint_but(writer, "expert_tensor_parallel", strategy->expert_tensor_parallel, strategy->tensor_parallel);
}

static void write_training_strategy(struct bp_writer *writer, const struct bp_strategy *strategy)
{
    enum bp_schedule schedule = strategy->pipeline_parallel > 1 ? BP_SCHEDULE_1F1B : BP_SCHEDULE_NONE;
    write_uint_but(writer, "context_parallel", strategy->context_parallel, 1);
    if (strategy->cp_comm != BP_CP_RING)
        bp_writer_put_string(writer, "cp_comm", bp_cp_comm_names[strategy->cp_comm]);
    write_uint_but(writer, "data_parallel", strategy->data_parallel, 1);
    write_expert_degrees(writer, strategy);
    write_pipeline_layers(writer, strategy);
    write_uint_but(writer, "pipeline_parallel", strategy->pipeline_parallel, 1);
    if (strategy->pipeline_schedule != schedule)
        bp_writer_put_string(writer, "pipeline_schedule", bp_schedule_names[strategy->pipeline_schedule]);
    if (strategy->recompute != BP_RECOMPUTE_NONE)
        bp_writer_put_string(writer, "recompute", bp_recompute_names[strategy->recompute]);
    write_bool_but(writer, "recompute_activation", strategy->recompute_activation, false);
    write_bool_but(writer, "recompute_all_gather", strategy->recompute_all_gather, strategy->sequence_parallel);
    write_bool_but(writer, "sequence_parallel", strategy->sequence_parallel, false);
    write_uint_but(writer, "tensor_parallel", strategy->tensor_parallel, 1);
    write_uint_but(writer, "virtual_stages", strategy->virtual_stages, 1);
    write_uint_but(writer, "zero_stage", strategy->zero_stage, 0);
}

void bp_strategy_write(struct bp_writer *writer, const struct bp_strategy *strategy, enum bp_mode mode)
{
    bp_writer_object(writer);
    if (mode == BP_MODE_TRAINING) {
        write_training_strategy(writer, strategy);
    } else {
        write_expert_degrees(writer, strategy);
        write_pipeline_layers(writer, strategy);
        write_uint_but(writer, "pipeline_parallel", strategy->pipeline_parallel, 1);
        write_uint_but(writer, "replicas", strategy->replicas, 1);
        write_uint_but(writer, "tensor_parallel", strategy->tensor_parallel, 1);
    }
    bp_writer_end(writer);
}

static void target_write(struct bp_writer *writer, const struct bp_target *target)
{
    bp_writer_object(writer);
    bp_writer_put_string(writer, "kind", bp_target_kind_names[target->kind]);
    bp_writer_end(writer);
}

static void deployment_write(struct bp_writer *writer, const struct bp_deployment *deployment)
{
    bp_writer_object(writer);
    bp_writer_put_uint(writer, "devices", deployment->devices);
    bp_writer_put_uint(writer, "memory_bytes", deployment->memory.n);
    bp_writer_end(writer);
}

void bp_request_write(struct bp_writer *writer, const struct bp_request *request)
{
    bool bound = request->target.kind != BP_TARGET_NONE;
    bp_writer_object(writer);
    if (bound) {
        bp_writer_key(writer, "deployment");
        deployment_write(writer, &request->deployment);
    }
    bp_writer_key(writer, "model");
    bp_writer_object(writer);
    bp_writer_key(writer, "transformer");
    bp_model_write(writer, &request->model, true);
    bp_writer_end(writer);
    bp_writer_key(writer, "strategy");
    bp_strategy_write(writer, &request->strategy, request->workload.mode);
    if (bound) {
        bp_writer_key(writer, "target");
        target_write(writer, &request->target);
    }
    bp_writer_key(writer, "workload");
    bp_workload_write(writer, &request->workload);
    bp_writer_end(writer);
}

static void write_model(struct bp_writer *writer, const struct bp_request *request)
{
    bp_model_write(writer, &request->model, false);
}

static void write_workload(struct bp_writer *writer, const struct bp_request *request)
{
    bp_workload_write(writer, &request->workload);
}

static void write_strategy(struct bp_writer *writer, const struct bp_request *request)
{
    bp_strategy_write(writer, &request->strategy, request->workload.mode);
}

static void write_distribution(struct bp_writer *writer, const struct bp_request *request)
{
    bp_writer_object(writer);
    bp_writer_key(writer, "strategy");
    write_strategy(writer, request);
    bp_writer_key(writer, "workload");
    write_workload(writer, request);
    bp_writer_end(writer);
}

static void write_target(struct bp_writer *writer, const struct bp_request *request)
{
    target_write(writer, &request->target);
}

static void write_deployment(struct bp_writer *writer, const struct bp_request *request)
{
    deployment_write(writer, &request->deployment);
}

static void write_binding(struct bp_writer *writer, const struct bp_request *request)
{
    bp_writer_object(writer);
    bp_writer_key(writer, "deployment");
    write_deployment(writer, request);
    bp_writer_key(writer, "target");
    write_target(writer, request);
    bp_writer_end(writer);
}

static const struct {
    void (*write)(struct bp_writer *writer, const struct bp_request *request);
    size_t offset; /* in struct bp_fingerprints */
    bool needs_target;
} fingerprints[] = {
    {write_model, offsetof(struct bp_fingerprints, transformer), false},
    {write_workload, offsetof(struct bp_fingerprints, workload), false},
    {write_strategy, offsetof(struct bp_fingerprints, strategy), false},
    {write_distribution, offsetof(struct bp_fingerprints, distribution), false},
    {write_target, offsetof(struct bp_fingerprints, target), true},
    {write_deployment, offsetof(struct bp_fingerprints, deployment), true},
    {write_binding, offsetof(struct bp_fingerprints, binding), true},
};

int bp_request_fingerprints(const struct bp_request *request, struct bp_fingerprints *ret, struct bp_err *err)
{
    struct bp_fingerprints result = {0};
    struct bp_buf text = {0};
    int failed = 0;
    for (size_t i = 0; i < sizeof fingerprints / sizeof *fingerprints && !failed; i++) {
        if (fingerprints[i].needs_target && request->target.kind == BP_TARGET_NONE)
            continue;
        struct bp_writer writer = {.out = &text};
        bp_buf_clear(&text);
        fingerprints[i].write(&writer, request);
        failed = bp_writer_finish(&writer, err);
        if (!failed)
            bp_digest_of(text.data, text.len, (struct bp_digest *)(void *)((char *)&result + fingerprints[i].offset));
    }
    bp_buf_release(&text);
    if (failed)
        return -1;
    *ret = result;
    return 0;
}

int bp_plan_id(const struct bp_request *request, const struct bp_pass_revision *passes, size_t n_passes,
               struct bp_digest *ret, struct bp_err *err)
{
    struct bp_buf text = {0};
    struct bp_writer writer = {.out = &text};
    bp_writer_object(&writer);
    bp_writer_key(&writer, "passes");
    bp_writer_array(&writer);
    for (size_t i = 0; i < n_passes; i++) {
        bp_writer_object(&writer);
        bp_writer_put_string(&writer, "name", passes[i].name);
        bp_writer_put_uint(&writer, "revision", passes[i].revision);
        bp_writer_end(&writer);
    }
    bp_writer_end(&writer);
    bp_writer_key(&writer, "request");
    bp_request_write(&writer, request);
    bp_writer_end(&writer);
    int failed = bp_writer_finish(&writer, err);
    if (!failed)
        bp_digest_of(text.data, text.len, ret);
    bp_buf_release(&text);
    return failed;
}
