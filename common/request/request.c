/* Reading, checking and normalising a request. What could not be read is 0 or its default from then on and passes
 * every later check, so that a problem is named once, and where it is. */
#include "common/request/check.h"

#include <stdio.h>
#include <string.h>

const char *const bp_mode_names[] = {"training", "inference", NULL};
const char *const bp_dtype_names[] = {"float8", "float16", "bfloat16", "float32", NULL};
const char *const bp_inference_phase_names[] = {"prefill", "decode", NULL};
const char *const bp_recompute_names[] = {"none", "selective", "full", NULL};
const char *const bp_schedule_names[] = {"none", "1f1b", "interleaved", "gpipe", NULL};
const char *const bp_cp_comm_names[] = {"ring", "all_gather", "a2a", NULL};
const char *const bp_target_kind_names[] = {"none", "reference-queue", "reference-slot", NULL};

uint64_t bp_dtype_bytes(enum bp_dtype dtype)
{
    static const uint64_t bytes[] = {1, 2, 2, 4};
    return bytes[dtype];
}

/* The mode an object is read in. When a request does not say it, the keys of both are known and none is required:
 * the missing mode is the problem. */
enum reading { READ_TRAINING, READ_INFERENCE, READ_EITHER };

static const char *const workload_keys[][13] = {
    [READ_TRAINING] = {"mode", "dtype", "sequence_length", "micro_batch_size", "global_batch_size", "gradient_dtype",
                       "block_kinds", "kv_cache_dtype"},
    [READ_INFERENCE] = {"mode", "dtype", "phase", "batch_size", "context_length", "kv_cache_dtype", "block_kinds"},
    [READ_EITHER] = {"mode", "dtype", "sequence_length", "micro_batch_size", "global_batch_size", "gradient_dtype",
                     "phase", "batch_size", "context_length", "kv_cache_dtype", "block_kinds"},
};

static const char *const strategy_keys[][18] = {
    [READ_TRAINING] = {"tensor_parallel", "pipeline_parallel", "data_parallel", "sequence_parallel", "recompute",
                       "recompute_all_gather", "recompute_activation", "pipeline_schedule", "virtual_stages",
                       "zero_stage", "pipeline_layers", "context_parallel", "cp_comm", "expert_parallel",
                       "expert_tensor_parallel"},
    [READ_INFERENCE] = {"tensor_parallel", "pipeline_parallel", "pipeline_layers", "replicas", "expert_parallel",
                        "expert_tensor_parallel", "context_parallel", "cp_comm"},
    [READ_EITHER] = {"tensor_parallel", "pipeline_parallel", "data_parallel", "sequence_parallel", "recompute",
                     "recompute_all_gather", "recompute_activation", "pipeline_schedule", "virtual_stages",
                     "zero_stage", "pipeline_layers", "context_parallel", "cp_comm", "expert_parallel",
                     "expert_tensor_parallel", "replicas"},
};

/* Keys that both modes know, so that the problem says what is wrong with them in this one. */
static void refuse_for_mode(const struct bp_reader *reader, const char *const *keys, enum bp_mode mode)
{
    for (; *keys; keys++)
        if (bp_reader_get(reader, *keys, false))
            bp_reader_problem(reader, BP_E_conflict, *keys, "has no meaning in %s", bp_mode_names[mode]);
}

static uint64_t read_size(const struct bp_reader *reader, const char *key, bool required)
{
    bp_reader_get(reader, key, required);
    return bp_reader_uint(reader, key, 1, BP_JSON_INT_MAX, 0);
}

static enum reading read_mode(const struct bp_reader *reader, enum bp_mode *ret)
{
    int mode = bp_reader_enum(reader, "mode", bp_mode_names, -1);
    const char *said = json_string_value(bp_reader_get(reader, "mode", false));
    *ret = (enum bp_mode)mode;
    if (!said || strcmp(said, bp_mode_names[mode]) != 0)
        return READ_EITHER;
    return mode == BP_MODE_TRAINING ? READ_TRAINING : READ_INFERENCE;
}

/* A reader of the members of an array, by their place. */
static struct bp_reader members_of(const struct bp_reader *reader, const char *key)
{
    struct bp_reader members = {.problems = reader->problems};
    bp_reader_pointer(reader, key, members.pointer);
    return members;
}

static void read_kind_name(const struct bp_reader *members, size_t at, const json_t *kind, char ret[BP_KIND_NAME_MAX])
{
    const char *name = json_string_value(kind);
    char place[24];
    snprintf(place, sizeof place, "%zu", at);
    if (!name)
        bp_reader_problem(members, BP_E_wrong_type, place, "must be a string");
    else if (!*name || strlen(name) >= BP_KIND_NAME_MAX)
        bp_reader_problem(members, BP_E_unknown_value, place, "no kind of block has this name");
    else
        strcpy(ret, name);
}

static void read_block_kinds(const struct bp_reader *reader, struct bp_workload *workload)
{
    static const char key[] = "block_kinds";
    const json_t *kinds = bp_reader_get(reader, key, false), *kind;
    size_t i, n = json_array_size(kinds);
    if (!kinds)
        return;
    if (!json_is_array(kinds) || n == 0 || n > BP_KINDS_MAX) {
        bp_reader_problem(reader, json_is_array(kinds) ? BP_E_out_of_range : BP_E_wrong_type, key,
                          "must be an array of 1 to %d names of kinds of block", BP_KINDS_MAX);
        return;
    }
    const struct bp_reader members = members_of(reader, key);
    json_array_foreach(kinds, i, kind)
        read_kind_name(&members, i, kind, workload->block_kinds[i]);
    workload->n_block_kinds = (uint32_t)n;
}

static void read_cache(const struct bp_reader *reader, struct bp_workload *workload)
{
    workload->kv_cache_dtype =
        (enum bp_dtype)bp_reader_enum(reader, "kv_cache_dtype", bp_dtype_names, (int)workload->dtype);
}

static enum reading workload_read(const struct bp_reader *reader, struct bp_workload *ret)
{
    static const char *const of_inference[] = {"kv_cache_dtype", NULL};
    struct bp_workload workload = {0};
    enum reading reading = read_mode(reader, &workload.mode);
    bool training = reading == READ_TRAINING, inference = reading == READ_INFERENCE;
    bp_reader_refuse_unknown(reader, workload_keys[reading]);
    workload.dtype = (enum bp_dtype)bp_reader_enum(reader, "dtype", bp_dtype_names, -1);
    if (!inference) {
        workload.sequence_length = read_size(reader, "sequence_length", training);
        workload.micro_batch_size = read_size(reader, "micro_batch_size", training);
        workload.global_batch_size = read_size(reader, "global_batch_size", training);
        workload.gradient_dtype =
            (enum bp_dtype)bp_reader_enum(reader, "gradient_dtype", bp_dtype_names, BP_DTYPE_FLOAT32);
    }
    if (!training) {
        int fallback = inference ? -1 : BP_PREFILL;
        workload.phase = (enum bp_inference_phase)bp_reader_enum(reader, "phase", bp_inference_phase_names, fallback);
        workload.batch_size = read_size(reader, "batch_size", inference);
        workload.context_length = read_size(reader, "context_length", inference);
    }
    workload.kv_cache_dtype = workload.dtype;
    if (training)
        refuse_for_mode(reader, of_inference, BP_MODE_TRAINING);
    else
        read_cache(reader, &workload);
    read_block_kinds(reader, &workload);
    *ret = workload;
    return reading;
}

void bp_workload_read(const struct bp_reader *reader, struct bp_workload *ret)
{
    workload_read(reader, ret);
}

static uint64_t read_degree(const struct bp_reader *reader, const char *key, uint64_t most)
{
    return bp_reader_get(reader, key, false) ? bp_reader_uint(reader, key, 1, most, 0) : 1;
}

static enum bp_schedule default_schedule(const struct bp_strategy *strategy)
{
    return strategy->pipeline_parallel > 1 ? BP_SCHEDULE_1F1B : BP_SCHEDULE_NONE;
}

static enum bp_schedule read_schedule(const struct bp_reader *reader, const struct bp_strategy *strategy)
{
    static const char key[] = "pipeline_schedule";
    if (!bp_reader_get(reader, key, false))
        return default_schedule(strategy);
    /* One that cannot be read must fit any degree: interleaved does. */
    return (enum bp_schedule)bp_reader_enum(reader, key, bp_schedule_names, BP_SCHEDULE_INTERLEAVED);
}

static void read_training_strategy(const struct bp_reader *reader, struct bp_strategy *strategy)
{
    strategy->data_parallel = read_degree(reader, "data_parallel", BP_JSON_INT_MAX);
    strategy->context_parallel = read_degree(reader, "context_parallel", BP_JSON_INT_MAX);
    strategy->cp_comm = (enum bp_cp_comm)bp_reader_enum(reader, "cp_comm", bp_cp_comm_names, BP_CP_RING);
    strategy->sequence_parallel = bp_reader_bool(reader, "sequence_parallel", false);
    strategy->recompute = (enum bp_recompute)bp_reader_enum(reader, "recompute", bp_recompute_names, BP_RECOMPUTE_NONE);
    strategy->recompute_all_gather = bp_reader_bool(reader, "recompute_all_gather", strategy->sequence_parallel);
    strategy->recompute_activation = bp_reader_bool(reader, "recompute_activation", false);
    strategy->pipeline_schedule = read_schedule(reader, strategy);
    strategy->virtual_stages = read_degree(reader, "virtual_stages", BP_JSON_INT_MAX);
    strategy->zero_stage = bp_reader_uint(reader, "zero_stage", 0, 3, 0);
}

static void read_pipeline_layers(const struct bp_reader *reader, struct bp_strategy *strategy)
{
    static const char key[] = "pipeline_layers";
    const json_t *runs = bp_reader_get(reader, key, false), *run;
    size_t i;
    if (!runs)
        return;
    if (!json_is_array(runs) || json_array_size(runs) == 0 || json_array_size(runs) > BP_RUNS_MAX) {
        bp_reader_problem(reader, json_is_array(runs) ? BP_E_out_of_range : BP_E_wrong_type, key,
                          "must be an array of 1 to %d numbers of layers", BP_RUNS_MAX);
        return;
    }
    const struct bp_reader members = members_of(reader, key);
    json_array_foreach(runs, i, run) {
        json_int_t layers = json_integer_value(run);
        char place[24];
        snprintf(place, sizeof place, "%zu", i);
        if (!json_is_integer(run))
            bp_reader_problem(&members, BP_E_wrong_type, place, "must be an integer");
        else if (layers < 0 || layers > UINT16_MAX)
            bp_reader_problem(&members, BP_E_out_of_range, place, "must be between 0 and %d", UINT16_MAX);
        else
            strategy->pipeline_layers[i] = (uint16_t)layers;
    }
    strategy->n_pipeline_layers = (uint32_t)json_array_size(runs);
}

static void strategy_read(const struct bp_reader *reader, enum reading reading, struct bp_strategy *ret)
{
    static const char *const of_training[] = {"context_parallel", "cp_comm", NULL};
    struct bp_strategy strategy = {
        .data_parallel = 1, .virtual_stages = 1, .context_parallel = 1, .expert_parallel = 1, .replicas = 1};
    bp_reader_refuse_unknown(reader, strategy_keys[reading]);
    strategy.tensor_parallel = read_degree(reader, "tensor_parallel", BP_TENSOR_PARALLEL_MAX);
    strategy.pipeline_parallel = read_degree(reader, "pipeline_parallel", BP_JSON_INT_MAX);
    strategy.expert_tensor_parallel = strategy.tensor_parallel;
    strategy.pipeline_schedule = default_schedule(&strategy);
    read_pipeline_layers(reader, &strategy);
    strategy.expert_parallel = read_degree(reader, "expert_parallel", BP_JSON_INT_MAX);
    if (bp_reader_get(reader, "expert_tensor_parallel", false))
        strategy.expert_tensor_parallel = read_degree(reader, "expert_tensor_parallel", BP_TENSOR_PARALLEL_MAX);
    if (reading == READ_INFERENCE)
        refuse_for_mode(reader, of_training, BP_MODE_INFERENCE);
    else
        read_training_strategy(reader, &strategy);
    if (reading != READ_TRAINING)
        strategy.replicas = read_degree(reader, "replicas", BP_JSON_INT_MAX);
    *ret = strategy;
}

void bp_strategy_read(const struct bp_reader *reader, enum bp_mode mode, struct bp_strategy *ret)
{
    strategy_read(reader, mode == BP_MODE_TRAINING ? READ_TRAINING : READ_INFERENCE, ret);
}

static void read_target(const struct bp_reader *request, struct bp_request *ret)
{
    static const char *const known[] = {"kind", NULL};
    if (!bp_reader_get(request, "target", false))
        return;
    struct bp_reader reader = bp_reader_object(request, "target", true);
    bp_reader_refuse_unknown(&reader, known);
    ret->target.kind = (enum bp_target_kind)(bp_reader_enum(&reader, "kind", bp_target_kind_names + 1, -1) + 1);
}

static void read_deployment(const struct bp_reader *request, struct bp_request *ret)
{
    static const char *const known[] = {"devices", "memory_bytes", NULL};
    bool bound = ret->target.kind != BP_TARGET_NONE;
    if (!bp_reader_get(request, "deployment", bound))
        return;
    if (!bound)
        bp_reader_problem(request, BP_E_conflict, "deployment", "a deployment needs a target");
    struct bp_reader reader = bp_reader_object(request, "deployment", true);
    bp_reader_refuse_unknown(&reader, known);
    ret->deployment.devices = read_size(&reader, "devices", true);
    ret->deployment.memory.n = read_size(&reader, "memory_bytes", true);
}

static bool dealt_evenly(const struct bp_strategy *strategy)
{
    for (uint32_t i = 1; i < strategy->n_pipeline_layers; i++)
        if (strategy->pipeline_layers[i] != strategy->pipeline_layers[0])
            return false;
    return true;
}

static bool has_experts(const struct bp_model *model)
{
    for (uint32_t i = 0; i < model->n_kinds; i++)
        if (model->kinds[i].num_experts)
            return true;
    return false;
}

/* Experts are spread over fewer ranks of the tensor group than the rest where their degrees are less than its own. */
bool bp_strategy_holds_copies(const struct bp_strategy *strategy, const struct bp_model *model)
{
    bp_u128 expert_ranks = (bp_u128)strategy->expert_parallel * strategy->expert_tensor_parallel;
    return strategy->data_parallel > 1 || strategy->context_parallel > 1 ||
           (has_experts(model) && expert_ranks < strategy->tensor_parallel);
}

void bp_strategy_normalise(struct bp_strategy *strategy, const struct bp_model *model)
{
    if (strategy->context_parallel == 1)
        strategy->cp_comm = BP_CP_RING;
    if (!has_experts(model)) {
        strategy->expert_parallel = 1;
        strategy->expert_tensor_parallel = strategy->tensor_parallel;
    }
    if (strategy->tensor_parallel == 1)
        strategy->sequence_parallel = false;
    if (!strategy->sequence_parallel || strategy->recompute == BP_RECOMPUTE_FULL)
        strategy->recompute_all_gather = strategy->sequence_parallel;
    if (!bp_strategy_holds_copies(strategy, model))
        strategy->zero_stage = 0;
    if (strategy->pipeline_parallel == 1)
        strategy->pipeline_schedule = BP_SCHEDULE_NONE;
    if (dealt_evenly(strategy)) {
        memset(strategy->pipeline_layers, 0, sizeof strategy->pipeline_layers);
        strategy->n_pipeline_layers = 0;
    }
}

static int request_read(const json_t *body, bool job, struct bp_arena *arena, struct bp_problems *problems,
                        struct bp_request *ret, struct bp_strategy *ret_said, struct bp_config *ret_config)
{
    static const char *const known[] = {"model", "workload", "strategy", "target", "deployment", NULL};
    struct bp_request request = {0};
    struct bp_config config = {0};
    struct bp_reader reader = bp_reader_of(body, "", problems);
    bp_reader_refuse_unknown(&reader, known);
    const json_t *model = bp_reader_get(&reader, "model", true);
    if (model && bp_config_resolve(model, "/model", arena, problems, &config))
        return -1;
    request.model = config.model;
    struct bp_reader workload = bp_reader_object(&reader, "workload", true);
    enum reading reading = workload_read(&workload, &request.workload);
    struct bp_reader strategy = bp_reader_object(&reader, "strategy", true);
    strategy_read(&strategy, reading, &request.strategy);
    read_target(&reader, &request);
    read_deployment(&reader, &request);
    if (config.has_parameters)
        bp_request_settle_kinds(&request, problems);
    bp_request_check(&request, config.position_offset, problems);
    if (!job)
        bp_request_check_rows(&request, problems);
    if (problems->out_of_memory)
        return -1;
    *ret_said = request.strategy;
    bp_strategy_normalise(&request.strategy, &request.model);
    *ret = request;
    *ret_config = config;
    return 0;
}

int bp_request_read(const json_t *body, struct bp_arena *arena, struct bp_problems *problems, struct bp_request *ret,
                    struct bp_config *ret_config)
{
    struct bp_strategy said;
    return request_read(body, false, arena, problems, ret, &said, ret_config);
}

int bp_request_read_for_job(const json_t *body, struct bp_arena *arena, struct bp_problems *problems,
                            struct bp_request *ret, struct bp_strategy *ret_said, struct bp_config *ret_config)
{
    return request_read(body, true, arena, problems, ret, ret_said, ret_config);
}
