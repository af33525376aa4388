#include "common/request/job.h"

#include "common/request/check.h"

#include <string.h>

const char *const bp_optimizer_names[] = {"adam", "adamw", "sgd", "sgd-momentum", "adam-8bit", "adafactor", NULL};
const char *const bp_attention_count_names[] = {"full", "causal", NULL};
const char *const bp_operations_count_names[] = {"hardware", "model", NULL};
const char *const bp_kernel_names[] = {"tiled", "unfused", NULL};
const char *const bp_loss_names[] = {"fp32_copy", "in_place", NULL};
const char *const bp_window_kv_names[] = {"capped", "full", NULL};

/* The keys that a fit request has beside a plan request's, by the object they stand in. */
static const char *const fit_keys[] = {
    "memory_bytes", "reserve_bytes", "utilization_permille", "world_size", "devices_per_node", "conventions", NULL};
static const char *const fit_strategy_keys[] = {"optimizer", "vocab_multiple", NULL};
static const char *const fit_workload_keys[] = {"kv_block", "prefill_chunk", "imbalance_permille", NULL};

/* A plan's keys that a fit has not. */
static const char *const bindings[] = {"target", "deployment", NULL};

bp_u128 bp_whole_job_devices(const struct bp_whole_job *job)
{
    struct bp_calc calc = {0};
    const struct bp_strategy *strategy = &job->request.strategy;
    bp_u128 devices = BP_PROD(&calc, strategy->tensor_parallel, strategy->pipeline_parallel, strategy->data_parallel,
                              strategy->context_parallel, strategy->replicas);
    return bp_calc_ok(&calc) ? devices : ~(bp_u128)0;
}

void bp_whole_job_of(const struct bp_request *request, struct bp_whole_job *ret)
{
    *ret = (struct bp_whole_job){.request = *request,
                                 .vocab_multiple = 1,
                                 .kv_block = 16,
                                 .prefill_chunk = 8192,
                                 .utilization_permille = 1000,
                                 .imbalance_permille = 1000,
                                 .has_memory = request->target.kind != BP_TARGET_NONE,
                                 .memory = request->deployment.memory,
                                 .devices_per_node = 8};
    const struct bp_strategy *strategy = &request->strategy;
    ret->said = (struct bp_said){.strategy = *strategy,
                                 .pipeline_schedule =
                                     strategy->pipeline_parallel > 1 && strategy->pipeline_schedule != BP_SCHEDULE_1F1B,
                                 .recompute_all_gather = strategy->recompute_all_gather != strategy->sequence_parallel};
    ret->request.target = (struct bp_target){BP_TARGET_NONE};
    ret->request.deployment = (struct bp_deployment){0};
}

/* The plan request within a fit request: the same object without the keys that only a job has. */
static json_t *without(const json_t *object, const char *const *keys)
{
    json_t *copy = bp_json_copy_object(object);
    for (; copy && *keys; keys++)
        json_object_del(copy, *keys);
    return copy;
}

/* The degree that a world size decides when the strategy leaves it out. */
static const char *free_degree(const json_t *mode)
{
    const char *text = json_string_value(mode);
    return text && strcmp(text, bp_mode_names[BP_MODE_INFERENCE]) == 0 ? "replicas" : "data_parallel";
}

static json_int_t degree(const json_t *strategy, const char *key)
{
    const json_t *value = json_object_get(strategy, key);
    return value ? json_integer_value(value) : 1;
}

/* Sets that degree, where the rest of the strategy divides the world size. What does not fit is told later. */
static int derive_degree(const json_t *body, json_t *request)
{
    json_t *strategy = json_object_get(request, "strategy");
    const char *key = free_degree(json_object_get(json_object_get(request, "workload"), "mode"));
    json_int_t world = json_integer_value(json_object_get(body, "world_size"));
    static const char *const others[] = {"tensor_parallel", "pipeline_parallel", "context_parallel"};
    if (!json_is_object(strategy) || json_object_get(strategy, key) || world < 1)
        return 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        json_int_t other = degree(strategy, others[i]);
        if (other < 1 || world % other != 0)
            return 0;
        world /= other;
    }
    return json_object_set_new(strategy, key, json_integer(world));
}

static json_t *plan_request(const json_t *body)
{
    static const struct {
        const char *key;
        const char *const *job_keys;
    } objects[] = {{"strategy", fit_strategy_keys}, {"workload", fit_workload_keys}};
    json_t *request = without(body, fit_keys);
    for (const char *const *key = bindings; request && *key; key++)
        json_object_del(request, *key); /* refused below, whatever they say */
    for (size_t i = 0; request && i < sizeof objects / sizeof *objects; i++) {
        const json_t *object = json_object_get(request, objects[i].key);
        json_t *copy = json_is_object(object) ? without(object, objects[i].job_keys) : NULL;
        if (json_is_object(object) && (!copy || json_object_set_new(request, objects[i].key, copy) < 0)) {
            json_decref(request);
            return NULL;
        }
    }
    if (request && derive_degree(body, request) < 0) {
        json_decref(request);
        return NULL;
    }
    return request;
}

/* A member of an object that the plan request's reader has judged already: no second problem about its type. */
static struct bp_reader member(const struct bp_reader *reader, const char *key)
{
    struct bp_reader none = {.problems = reader->problems};
    const json_t *value = bp_reader_get(reader, key, false);
    return json_is_object(value) ? bp_reader_object(reader, key, false) : none;
}

static void read_conventions(const struct bp_reader *body, struct bp_conventions *ret)
{
    static const char *const known[] = {"attention", "operations", "attention_kernel", "loss", "window_kv", NULL};
    struct bp_reader reader = bp_reader_object(body, "conventions", false);
    bp_reader_refuse_unknown(&reader, known);
    ret->attention =
        (enum bp_attention_count)bp_reader_enum(&reader, "attention", bp_attention_count_names, BP_ATTENTION_FULL);
    ret->operations = (enum bp_operations_count)bp_reader_enum(&reader, "operations", bp_operations_count_names,
                                                               BP_OPERATIONS_HARDWARE);
    ret->kernel = (enum bp_kernel)bp_reader_enum(&reader, "attention_kernel", bp_kernel_names, BP_KERNEL_TILED);
    ret->loss = (enum bp_loss)bp_reader_enum(&reader, "loss", bp_loss_names, BP_LOSS_FP32_COPY);
    ret->window_kv = (enum bp_window_kv)bp_reader_enum(&reader, "window_kv", bp_window_kv_names, BP_WINDOW_KV_CAPPED);
}

static void refuse_for_mode(const struct bp_reader *reader, const char *const *keys, const char *mode)
{
    for (; *keys; keys++)
        if (bp_reader_get(reader, *keys, false))
            bp_reader_problem(reader, BP_E_conflict, *keys, "has no meaning in %s", mode);
}

static void read_mode_keys(const struct bp_reader *body, struct bp_whole_job *job)
{
    static const char *const training_only[] = {"optimizer", NULL};
    static const char *const inference_only[] = {"kv_block", "prefill_chunk", NULL};
    struct bp_reader strategy = member(body, "strategy"), workload = member(body, "workload");
    bool training = job->request.workload.mode == BP_MODE_TRAINING;
    bool known = !bp_problems_unread(body->problems, "/workload/mode");
    if (known && training)
        refuse_for_mode(&workload, inference_only, "training");
    else if (known)
        refuse_for_mode(&strategy, training_only, "inference");
    job->optimizer = (enum bp_optimizer)bp_reader_enum(&strategy, "optimizer", bp_optimizer_names, BP_ADAM);
    job->vocab_multiple = bp_reader_uint(&strategy, "vocab_multiple", 1, BP_JSON_INT_MAX, 1);
    job->kv_block = bp_reader_uint(&workload, "kv_block", 1, BP_JSON_INT_MAX, 16);
    job->prefill_chunk = bp_reader_uint(&workload, "prefill_chunk", 1, BP_JSON_INT_MAX, 8192);
    job->imbalance_permille = bp_reader_uint(&workload, "imbalance_permille", 1000, BP_IMBALANCE_PERMILLE_MAX, 1000);
}

/* Whether every degree that the world size is the product of could be read. */
static bool knows_degrees(const struct bp_problems *problems)
{
    static const char *const paths[] = {"/workload/mode",
                                        "/strategy/tensor_parallel",
                                        "/strategy/pipeline_parallel",
                                        "/strategy/context_parallel",
                                        "/strategy/data_parallel",
                                        "/strategy/replicas"};
    bool knows = true;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        knows &= !bp_problems_unread(problems, paths[i]);
    return knows;
}

static void check_world_size(const struct bp_reader *body, const struct bp_whole_job *job)
{
    uint64_t world = bp_reader_uint(body, "world_size", 1, BP_JSON_INT_MAX, 0);
    bp_u128 devices = bp_whole_job_devices(job);
    char text[BP_U128_TEXT];
    bp_u128_format(devices, text);
    if (world && knows_degrees(body->problems) && devices != world)
        bp_reader_problem(body, BP_E_conflict, "world_size",
                          "the strategy's tensor_parallel, pipeline_parallel, context_parallel and %s make %s devices",
                          job->request.workload.mode == BP_MODE_TRAINING ? "data_parallel" : "replicas", text);
}

void bp_whole_job_check(const struct bp_whole_job *job, struct bp_problems *problems)
{
    static const char path[] = "/model", dtype_path[] = "/workload/dtype";
    const struct bp_workload *workload = &job->request.workload;
    const struct bp_model *model = &job->request.model;
    bool training = workload->mode == BP_MODE_TRAINING;
    if (model->word_embed_proj_dim)
        bp_problems_add(problems, BP_E_unsupported_feature, path,
                        "a word embedding of another width than the hidden size is not modelled here");
    if (model->num_nextn_predict_layers)
        bp_problems_add(problems, BP_E_unsupported_feature, path, "prediction of several tokens is not modelled here");
    if (training) /* what inference holds is told from the description, without rows */
        bp_request_check_kinds(&job->request, problems);
    if (training && workload->dtype == BP_DTYPE_FLOAT8 && !bp_problems_unread(problems, dtype_path) &&
        !bp_problems_unread(problems, "/workload/mode"))
        bp_problems_add(problems, BP_E_unsupported_feature, dtype_path, "training in float8 is not modelled");
}

/* What a checkpoint of quantised weights is otherwise of. */
static bool is_of_checkpoint(const struct bp_config *config, enum bp_dtype dtype)
{
    return strcmp(config->dtype ? config->dtype : bp_dtype_names[BP_DTYPE_BFLOAT16], bp_dtype_names[dtype]) == 0;
}

/* Weights are served as the checkpoint stores them, where that is known and the request is of the checkpoint's dtype.
 * The key is not called ignored then. */
static void take_storage(struct bp_whole_job *job, struct bp_config *config)
{
    const struct bp_workload *workload = &job->request.workload;
    size_t n = 0;
    if (workload->mode != BP_MODE_INFERENCE || !config->quantisation.element_bits ||
        !is_of_checkpoint(config, workload->dtype))
        return;
    job->storage = config->quantisation;
    for (size_t i = 0; i < config->n_ignored; i++)
        if (!strstr(config->ignored[i], "/quantization_config") && !strstr(config->ignored[i], "/compression_config"))
            config->ignored[n++] = config->ignored[i];
    config->n_ignored = n;
}

static struct bp_said said_of(const struct bp_reader *body, const struct bp_strategy *strategy)
{
    struct bp_reader reader = member(body, "strategy");
    return (struct bp_said){.strategy = *strategy,
                            .pipeline_schedule = bp_reader_get(&reader, "pipeline_schedule", false) != NULL,
                            .recompute_all_gather = bp_reader_get(&reader, "recompute_all_gather", false) != NULL,
                            .expert_tensor_parallel = bp_reader_get(&reader, "expert_tensor_parallel", false) != NULL};
}

static void check_runs(const struct bp_strategy *strategy, struct bp_problems *problems)
{
    uint64_t p = strategy->pipeline_parallel;
    if (p > BP_STAGES_MAX)
        bp_problems_add(problems, BP_E_out_of_range, "/strategy/pipeline_parallel", "must be at most %d here",
                        BP_STAGES_MAX);
    else if (p && strategy->virtual_stages > BP_JOB_RUNS_MAX / p)
        bp_problems_add(problems, BP_E_out_of_range, "/strategy/virtual_stages",
                        "times pipeline_parallel must be at most %d here", BP_JOB_RUNS_MAX);
}

int bp_whole_job_read(const json_t *body, struct bp_arena *arena, struct bp_problems *problems,
                      struct bp_whole_job *ret, struct bp_config *ret_config)
{
    struct bp_problems none = {0};
    struct bp_reader reader = bp_reader_of(body, "", json_is_object(body) ? problems : &none);
    struct bp_request request;
    struct bp_strategy said;
    bp_problems_release(&none);
    json_t *plan = json_is_object(body) ? plan_request(body) : json_incref((json_t *)(uintptr_t)body);
    if (!plan)
        return -1;
    int result = bp_request_read_for_job(plan, arena, problems, &request, &said, ret_config);
    json_decref(plan);
    if (result < 0)
        return -1;
    struct bp_whole_job job;
    bp_whole_job_of(&request, &job);
    job.position_offset = ret_config->position_offset;
    for (const char *const *key = bindings; reader.object && *key; key++)
        if (bp_reader_get(&reader, *key, false))
            bp_reader_problem(&reader, BP_E_conflict, *key,
                              "is of a plan; in a fit memory_bytes says what a device has");
    if (reader.object) {
        job.said = said_of(&reader, &said);
        bp_whole_job_check(&job, problems);
        take_storage(&job, ret_config);
        read_mode_keys(&reader, &job);
        read_conventions(&reader, &job.conventions);
        job.has_memory = true;
        job.has_allowance = bp_reader_get(&reader, "reserve_bytes", false) != NULL ||
                            bp_reader_get(&reader, "utilization_permille", false) != NULL;
        job.memory.n = bp_reader_uint_required(&reader, "memory_bytes", 1, BP_JSON_INT_MAX);
        job.reserve.n = bp_reader_uint(&reader, "reserve_bytes", 0, BP_JSON_INT_MAX, 0);
        job.utilization_permille = bp_reader_uint(&reader, "utilization_permille", 1, 1000, 1000);
        job.devices_per_node = bp_reader_uint(&reader, "devices_per_node", 1, BP_JSON_INT_MAX, 8);
        check_world_size(&reader, &job);
        check_runs(&job.request.strategy, problems);
    }
    *ret = job;
    return 0;
}
