/* Reading, checking and normalising a request. What could not be read is 0 or its default from then on and passes
 * every later check, so that a problem is named once, and where it is. */
#include "common/request/request.h"

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

static const char *const workload_keys[][10] = {
    [READ_TRAINING] = {"mode", "dtype", "sequence_length", "micro_batch_size", "global_batch_size", "gradient_dtype"},
    [READ_INFERENCE] = {"mode", "dtype", "phase", "batch_size", "context_length"},
    [READ_EITHER] = {"mode", "dtype", "sequence_length", "micro_batch_size", "global_batch_size", "gradient_dtype",
                     "phase", "batch_size", "context_length"},
};

/* Keys that a job's strategy has beside. */
static const char *const job_strategy_keys[] = {"context_parallel", "expert_parallel", "expert_tensor_parallel", NULL};

static const char *const strategy_keys[][13] = {
    [READ_TRAINING] = {"tensor_parallel", "pipeline_parallel", "data_parallel", "sequence_parallel", "recompute",
                       "recompute_all_gather", "recompute_activation", "pipeline_schedule", "virtual_stages",
                       "zero_stage", "pipeline_layers"},
    [READ_INFERENCE] = {"tensor_parallel", "pipeline_parallel", "pipeline_layers", "replicas"},
    [READ_EITHER] = {"tensor_parallel", "pipeline_parallel", "data_parallel", "sequence_parallel", "recompute",
                     "recompute_all_gather", "recompute_activation", "pipeline_schedule", "virtual_stages",
                     "zero_stage", "pipeline_layers", "replicas"},
};

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

static enum reading workload_read(const struct bp_reader *reader, struct bp_workload *ret)
{
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
    json_array_foreach(runs, i, run) {
        json_int_t layers = json_integer_value(run);
        if (!json_is_integer(run))
            bp_reader_problem(reader, BP_E_wrong_type, key, "run %zu must be an integer", i);
        else if (layers < 0 || layers > UINT16_MAX)
            bp_reader_problem(reader, BP_E_out_of_range, key, "run %zu must be between 0 and %d", i, UINT16_MAX);
        else
            strategy->pipeline_layers[i] = (uint16_t)layers;
    }
    strategy->n_pipeline_layers = (uint32_t)json_array_size(runs);
}

static void refuse_unknown_strategy(const struct bp_reader *reader, enum reading reading, bool job)
{
    const char *known[sizeof strategy_keys[0] / sizeof *strategy_keys[0] + 4], **end = known;
    for (const char *const *key = strategy_keys[reading]; *key; key++)
        *end++ = *key;
    for (const char *const *key = job_strategy_keys; job && *key; key++)
        *end++ = *key;
    *end = NULL;
    bp_reader_refuse_unknown(reader, known);
}

static void strategy_read(const struct bp_reader *reader, enum reading reading, bool job, struct bp_strategy *ret)
{
    struct bp_strategy strategy = {
        .data_parallel = 1, .virtual_stages = 1, .context_parallel = 1, .expert_parallel = 1, .replicas = 1};
    refuse_unknown_strategy(reader, reading, job);
    strategy.tensor_parallel = read_degree(reader, "tensor_parallel", BP_TENSOR_PARALLEL_MAX);
    strategy.pipeline_parallel = read_degree(reader, "pipeline_parallel", BP_JSON_INT_MAX);
    strategy.expert_tensor_parallel = strategy.tensor_parallel;
    strategy.pipeline_schedule = default_schedule(&strategy);
    read_pipeline_layers(reader, &strategy);
    if (job) {
        strategy.context_parallel = read_degree(reader, "context_parallel", BP_JSON_INT_MAX);
        strategy.expert_parallel = read_degree(reader, "expert_parallel", BP_JSON_INT_MAX);
        if (bp_reader_get(reader, "expert_tensor_parallel", false))
            strategy.expert_tensor_parallel = read_degree(reader, "expert_tensor_parallel", BP_TENSOR_PARALLEL_MAX);
    }
    if (reading != READ_INFERENCE)
        read_training_strategy(reader, &strategy);
    if (reading != READ_TRAINING)
        strategy.replicas = read_degree(reader, "replicas", BP_JSON_INT_MAX);
    *ret = strategy;
}

void bp_strategy_read(const struct bp_reader *reader, enum bp_mode mode, struct bp_strategy *ret)
{
    strategy_read(reader, mode == BP_MODE_TRAINING ? READ_TRAINING : READ_INFERENCE, false, ret);
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

/* What the checks between values see. */
struct check {
    const struct bp_request *request;
    uint64_t position_offset;
    struct bp_problems *problems;
};

static void check_divides(const struct check *check, const char *path, const char *what, bp_u128 value,
                          const char *divisor_what, bp_u128 divisor)
{
    char text[BP_U128_TEXT], divisor_text[BP_U128_TEXT];
    if (divisor == 0 || value % divisor == 0)
        return;
    bp_u128_format(value, text);
    bp_u128_format(divisor, divisor_text);
    bp_problems_add(check->problems, BP_E_not_divisible, path, "%s %s is not divisible by %s %s", what, text,
                    divisor_what, divisor_text);
}

static void check_kind_tensor_parallel(const struct check *check, const struct bp_kind *kind)
{
    static const char path[] = "/strategy/tensor_parallel", degree[] = "tensor_parallel";
    uint64_t t = check->request->strategy.tensor_parallel, k = kind->num_key_value_heads;
    check_divides(check, path, "intermediate_size", kind->intermediate_size, degree, t);
    check_divides(check, path, "the shared experts' width", kind->shared_intermediate_size, degree, t);
    check_divides(check, path, "num_attention_heads", kind->num_attention_heads, degree, t);
    if (k && t && k % t != 0 && t % k != 0)
        bp_problems_add(check->problems, BP_E_not_divisible, path,
                        "neither num_key_value_heads %llu nor tensor_parallel %llu is divisible by the other",
                        (unsigned long long)k, (unsigned long long)t);
}

/* Experts have degrees of their own: expert_parallel divides their number, expert_tensor_parallel their width, both
 * together the ranks. Pairs are counted on a rank's part of the sequence. */
static void check_experts(const struct check *check, const struct bp_kind *kind)
{
    static const char path[] = "/strategy/expert_parallel", width_path[] = "/strategy/expert_tensor_parallel";
    const struct bp_strategy *strategy = &check->request->strategy;
    bool training = check->request->workload.mode == BP_MODE_TRAINING;
    bp_u128 copies = training ? (bp_u128)strategy->context_parallel * strategy->data_parallel : strategy->replicas;
    if (!kind->num_experts)
        return;
    check_divides(check, path, "the number of experts", kind->num_experts, "expert_parallel",
                  strategy->expert_parallel);
    check_divides(check, width_path, "the experts' width", kind->expert_intermediate_size, "expert_tensor_parallel",
                  strategy->expert_tensor_parallel);
    check_divides(check, path,
                  training ? "tensor_parallel * context_parallel * data_parallel" : "tensor_parallel * replicas",
                  strategy->tensor_parallel * copies, "expert_parallel * expert_tensor_parallel",
                  (bp_u128)strategy->expert_parallel * strategy->expert_tensor_parallel);
    if (training && strategy->tensor_parallel > 1 && !strategy->sequence_parallel)
        bp_problems_add(check->problems, BP_E_conflict, "/strategy/sequence_parallel",
                        "experts under tensor parallelism need sequence parallelism");
}

static void check_tensor_parallel(const struct check *check)
{
    static const char path[] = "/strategy/tensor_parallel", sequence_path[] = "/workload/sequence_length";
    const struct bp_model *model = &check->request->model;
    const struct bp_strategy *strategy = &check->request->strategy;
    uint64_t t = strategy->tensor_parallel, cp = strategy->context_parallel,
             S = check->request->workload.sequence_length;
    check_divides(check, path, "hidden_size", model->hidden_size, "tensor_parallel", t);
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        check_kind_tensor_parallel(check, &model->kinds[i]);
        check_experts(check, &model->kinds[i]);
    }
    if (cp > 1)
        check_divides(check, sequence_path, "sequence_length", S, "2 * context_parallel", 2 * (bp_u128)cp);
    if (strategy->sequence_parallel && t > 1 && cp && S % cp == 0)
        check_divides(check, sequence_path, cp > 1 ? "sequence_length / context_parallel" : "sequence_length", S / cp,
                      "tensor_parallel", t);
}

static void check_schedule(const struct check *check)
{
    const struct bp_strategy *strategy = &check->request->strategy;
    bool pipelined = strategy->pipeline_parallel != 1; /* 0: not known */
    if (strategy->pipeline_parallel > 1 && strategy->pipeline_schedule == BP_SCHEDULE_NONE)
        bp_problems_add(check->problems, BP_E_conflict, "/strategy/pipeline_schedule",
                        "a pipeline needs a schedule: 1f1b, interleaved or gpipe");
    if (strategy->virtual_stages > 1 && !pipelined)
        bp_problems_add(check->problems, BP_E_conflict, "/strategy/virtual_stages",
                        "more than one virtual stage needs pipeline_parallel > 1");
    else if (strategy->virtual_stages > 1 && strategy->pipeline_parallel &&
             strategy->pipeline_schedule != BP_SCHEDULE_INTERLEAVED)
        bp_problems_add(check->problems, BP_E_conflict, "/strategy/virtual_stages",
                        "more than one virtual stage needs the interleaved schedule");
}

/* Runs dealt by hand: one for each chunk of each stage, all of the model's layers together. */
static void check_dealt_layers(const struct check *check)
{
    static const char path[] = "/strategy/pipeline_layers";
    const struct bp_strategy *strategy = &check->request->strategy;
    uint64_t layers = check->request->model.num_hidden_layers, sum = 0;
    bp_u128 runs = (bp_u128)strategy->pipeline_parallel * strategy->virtual_stages;
    for (uint32_t i = 0; i < strategy->n_pipeline_layers; i++)
        sum += strategy->pipeline_layers[i];
    if (runs && runs != strategy->n_pipeline_layers)
        bp_problems_add(check->problems, BP_E_conflict, path,
                        "%u runs are not pipeline_parallel * virtual_stages of them", strategy->n_pipeline_layers);
    if (layers && sum != layers)
        bp_problems_add(check->problems, BP_E_conflict, path, "the runs add up to %llu layers, the model has %llu",
                        (unsigned long long)sum, (unsigned long long)layers);
}

static void check_layers(const struct check *check)
{
    if (check->request->strategy.n_pipeline_layers) {
        check_dealt_layers(check);
        return;
    }
    const struct bp_strategy *strategy = &check->request->strategy;
    bp_u128 layers = check->request->model.num_hidden_layers, p = strategy->pipeline_parallel;
    if (p && layers % p != 0)
        check_divides(check, "/strategy/pipeline_parallel", "num_hidden_layers", layers, "pipeline_parallel", p);
    else if (p > 1)
        check_divides(check, "/strategy/virtual_stages", "num_hidden_layers", layers,
                      "pipeline_parallel * virtual_stages", p * strategy->virtual_stages);
}

static void check_lengths(const struct check *check)
{
    const struct bp_workload *workload = &check->request->workload;
    uint64_t rows = check->request->model.max_position_embeddings, offset = check->position_offset;
    uint64_t length =
        workload->sequence_length > workload->context_length ? workload->sequence_length : workload->context_length;
    if (rows && length > rows - offset)
        bp_problems_add(check->problems, BP_E_conflict,
                        length == workload->sequence_length ? "/workload/sequence_length" : "/workload/context_length",
                        "%llu tokens are more than the %llu positions that the model has learned",
                        (unsigned long long)length, (unsigned long long)(rows - offset));
    check_divides(check, "/workload/global_batch_size", "global_batch_size", workload->global_batch_size,
                  "data_parallel * micro_batch_size",
                  (bp_u128)check->request->strategy.data_parallel * workload->micro_batch_size);
}

static void check_deployment(const struct check *check)
{
    uint64_t devices = check->request->deployment.devices, t = check->request->strategy.tensor_parallel;
    if (devices && devices < t)
        bp_problems_add(check->problems, BP_E_conflict, "/deployment/devices",
                        "%llu devices are fewer than tensor_parallel %llu", (unsigned long long)devices,
                        (unsigned long long)t);
}

void bp_request_check(const struct bp_request *request, uint64_t position_offset, struct bp_problems *problems)
{
    static void (*const checks[])(const struct check *) = {check_tensor_parallel, check_schedule, check_layers,
                                                           check_lengths, check_deployment};
    const struct check check = {request, position_offset, problems};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        checks[i](&check);
}

void bp_request_run_layers(const struct bp_request *request, uint64_t run, uint64_t *ret_first, uint64_t *ret_n)
{
    const struct bp_strategy *strategy = &request->strategy;
    uint64_t even = request->model.num_hidden_layers / (strategy->pipeline_parallel * strategy->virtual_stages);
    uint64_t first = 0;
    for (uint64_t i = 0; i < run && strategy->n_pipeline_layers; i++)
        first += strategy->pipeline_layers[i];
    *ret_first = strategy->n_pipeline_layers ? first : run * even;
    *ret_n = strategy->n_pipeline_layers ? strategy->pipeline_layers[run] : even;
}

static bool dealt_evenly(const struct bp_strategy *strategy)
{
    for (uint32_t i = 1; i < strategy->n_pipeline_layers; i++)
        if (strategy->pipeline_layers[i] != strategy->pipeline_layers[0])
            return false;
    return true;
}

void bp_strategy_normalise(struct bp_strategy *strategy)
{
    if (strategy->tensor_parallel == 1)
        strategy->sequence_parallel = false;
    if (!strategy->sequence_parallel || strategy->recompute == BP_RECOMPUTE_FULL)
        strategy->recompute_all_gather = strategy->sequence_parallel;
    if (strategy->data_parallel == 1 && strategy->context_parallel == 1)
        strategy->zero_stage = 0;
    if (strategy->pipeline_parallel == 1)
        strategy->pipeline_schedule = BP_SCHEDULE_NONE;
    if (dealt_evenly(strategy)) {
        memset(strategy->pipeline_layers, 0, sizeof strategy->pipeline_layers);
        strategy->n_pipeline_layers = 0;
    }
}

/* What the passes do not expand yet, where nothing else is wrong. */
static void refuse_unplanned(const struct bp_request *request, struct bp_problems *problems)
{
    const char *beyond = bp_model_beyond_form(&request->model);
    if (beyond && bp_problems_none(problems))
        bp_problems_add(problems, BP_E_unsupported_feature, "/model", "%s is not planned", beyond);
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
    strategy_read(&strategy, reading, job, &request.strategy);
    read_target(&reader, &request);
    read_deployment(&reader, &request);
    bp_request_check(&request, config.position_offset, problems);
    if (!job)
        refuse_unplanned(&request, problems);
    if (problems->out_of_memory)
        return -1;
    *ret_said = request.strategy;
    bp_strategy_normalise(&request.strategy);
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
