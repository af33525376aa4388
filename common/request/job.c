#include "common/request/job.h"

const char *const bp_optimizer_names[] = {"adam", "adamw", "sgd", "sgd-momentum", "adam-8bit", "adafactor", NULL};
const char *const bp_attention_count_names[] = {"full", "causal", NULL};
const char *const bp_operations_count_names[] = {"hardware", "model", NULL};
const char *const bp_kernel_names[] = {"tiled", "unfused", NULL};
const char *const bp_loss_names[] = {"fp32_copy", "in_place", NULL};

uint64_t bp_job_runs(const struct bp_job *job)
{
    return job->request.strategy.pipeline_parallel * job->request.strategy.virtual_stages;
}

void bp_job_of(const struct bp_request *request, struct bp_job *ret)
{
    *ret = (struct bp_job){.request = *request,
                           .vocab_multiple = 1,
                           .kv_cache_dtype = request->workload.dtype,
                           .kv_block = 16,
                           .prefill_chunk = 8192,
                           .utilization_permille = 1000,
                           .devices_per_node = 8};
    ret->request.target = (struct bp_target){BP_TARGET_NONE};
    ret->request.deployment = (struct bp_deployment){0};
}
