/* What must hold between the values of a request. */
#include "common/request/check.h"

#include "common/request/support.h"

#include <stdio.h>
#include <string.h>

/* What the checks between values see. */
struct check {
    const struct bp_request *request;
    uint64_t position_offset;
    struct bp_problems *problems;
};

/* What holds between values is not held against one that could not be read. */
static bool unread(const struct check *check, const char *path)
{
    return bp_problems_unread(check->problems, path);
}

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

/* Both degrees together divide the ranks. What no expert_parallel makes even is expert_tensor_parallel's. */
static void check_expert_ranks(const struct check *check)
{
    const struct bp_strategy *strategy = &check->request->strategy;
    bool training = check->request->workload.mode == BP_MODE_TRAINING;
    bp_u128 copies = training ? (bp_u128)strategy->context_parallel * strategy->data_parallel : strategy->replicas;
    bp_u128 ranks = strategy->tensor_parallel * copies, width = strategy->expert_tensor_parallel;
    const char *what = training ? "tensor_parallel * context_parallel * data_parallel" : "tensor_parallel * replicas";
    if (unread(check, "/workload/mode"))
        return;
    if (width && ranks % width != 0)
        check_divides(check, "/strategy/expert_tensor_parallel", what, ranks, "expert_tensor_parallel", width);
    else
        check_divides(check, "/strategy/expert_parallel", what, ranks, "expert_parallel * expert_tensor_parallel",
                      strategy->expert_parallel * width);
}

/* Experts have degrees of their own: expert_parallel divides their number, expert_tensor_parallel their width. Pairs
 * are counted on a rank's part of the sequence. */
static void check_experts(const struct check *check, const struct bp_kind *kind)
{
    static const char path[] = "/strategy/expert_parallel", width_path[] = "/strategy/expert_tensor_parallel";
    const struct bp_strategy *strategy = &check->request->strategy;
    if (!kind->num_experts)
        return;
    check_divides(check, path, "the number of experts", kind->num_experts, "expert_parallel",
                  strategy->expert_parallel);
    check_divides(check, width_path, "the experts' width", kind->expert_intermediate_size, "expert_tensor_parallel",
                  strategy->expert_tensor_parallel);
}

static bool has_experts(const struct check *check)
{
    for (uint32_t i = 0; i < check->request->model.n_kinds; i++)
        if (check->request->model.kinds[i].num_experts)
            return true;
    return false;
}

static void check_expert_sequences(const struct check *check)
{
    static const char path[] = "/strategy/sequence_parallel";
    const struct bp_strategy *strategy = &check->request->strategy;
    if (check->request->workload.mode == BP_MODE_TRAINING && strategy->tensor_parallel > 1 &&
        !strategy->sequence_parallel && !unread(check, path) && !unread(check, "/workload/mode"))
        bp_problems_add(check->problems, BP_E_conflict, path,
                        "must be true: experts under tensor parallelism need sequence parallelism");
}

/* Exchanged by heads, every rank has whole heads of the sequence. */
static void check_exchange(const struct check *check, const struct bp_kind *kind)
{
    static const char path[] = "/strategy/context_parallel", degree[] = "context_parallel";
    const struct bp_strategy *strategy = &check->request->strategy;
    uint64_t t = strategy->tensor_parallel, h = kind->num_attention_heads, k = kind->num_key_value_heads;
    if (strategy->cp_comm != BP_CP_A2A || !t || h % t != 0)
        return;
    check_divides(check, path, "num_attention_heads / tensor_parallel", h / t, degree, strategy->context_parallel);
    check_divides(check, path, "key/value heads of a rank", k > t ? k / t : 1, degree, strategy->context_parallel);
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
        check_exchange(check, &model->kinds[i]);
    }
    if (has_experts(check)) {
        check_expert_ranks(check);
        check_expert_sequences(check);
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
    bool known = !unread(check, path);
    bp_u128 runs = (bp_u128)strategy->pipeline_parallel * strategy->virtual_stages;
    for (uint32_t i = 0; i < strategy->n_pipeline_layers; i++)
        sum += strategy->pipeline_layers[i];
    if (runs && runs != strategy->n_pipeline_layers)
        bp_problems_add(check->problems, BP_E_conflict, path,
                        "has %u runs, and pipeline_parallel * virtual_stages is %llu", strategy->n_pipeline_layers,
                        (unsigned long long)runs);
    if (layers && sum != layers && known)
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
        check_divides(check, "/strategy/pipeline_parallel", "pipeline_layers is not given, and num_hidden_layers",
                      layers, "pipeline_parallel", p);
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
    bp_problems_once(problems);
}

/* The tokens of a step are divided among the tensor group before they are sent to experts elsewhere. */
static void check_dispatch(const struct check *check)
{
    const struct bp_workload *workload = &check->request->workload;
    const struct bp_strategy *strategy = &check->request->strategy;
    uint64_t t = strategy->tensor_parallel;
    bool sent = strategy->expert_parallel > 1 || strategy->expert_tensor_parallel != t;
    if (sent && has_experts(check) && workload->mode == BP_MODE_INFERENCE)
        check_divides(check, "/workload/batch_size", "the number of tokens of a step",
                      (bp_u128)workload->batch_size * (workload->phase == BP_PREFILL ? workload->context_length : 1),
                      "tensor_parallel", t);
}

static bool is_planned(const struct bp_workload *workload, const struct bp_kind *kind)
{
    for (uint32_t i = 0; i < workload->n_block_kinds; i++)
        if (strcmp(workload->block_kinds[i], kind->name) == 0)
            return true;
    return workload->n_block_kinds == 0;
}

void bp_request_check_kinds(const struct bp_request *request, struct bp_problems *problems)
{
    const char *told = NULL;
    if (bp_problems_unread(problems, "/workload/mode"))
        return;
    for (uint32_t i = 0; i < request->model.n_kinds; i++) {
        const struct bp_kind *kind = &request->model.kinds[i];
        enum bp_mode mode = request->workload.mode;
        const char *unsupported = bp_unsupported_in_kind(kind, mode, request->strategy.tensor_parallel);
        if (!unsupported || unsupported == told || !is_planned(&request->workload, kind))
            continue;
        bool alone = bp_unsupported_in_kind(kind, mode, 1) != NULL;
        bp_problems_add(problems, BP_E_unsupported_feature, alone ? "/model" : "/strategy/tensor_parallel",
                        "%s: %s has no rows for it", unsupported, bp_mode_names[mode]);
        told = unsupported;
    }
}

void bp_request_check_rows(const struct bp_request *request, struct bp_problems *problems)
{
    const struct check check = {request, 0, problems};
    check_dispatch(&check);
    bp_request_check_kinds(request, problems);
}

static uint32_t kind_named(const struct bp_model *model, const char *name)
{
    uint32_t at = 0;
    while (at < model->n_kinds && strcmp(model->kinds[at].name, name) != 0)
        at++;
    return at;
}

static void refuse_kind(const struct bp_request *request, uint32_t place, struct bp_problems *problems)
{
    char path[64], known[BP_KINDS_MAX * (BP_KIND_NAME_MAX + 2)] = "";
    for (uint32_t i = 0; i < request->model.n_kinds; i++) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", request->model.kinds[i].name);
    }
    snprintf(path, sizeof path, "/workload/block_kinds/%u", place);
    bp_problems_add(problems, BP_E_unknown_value, path, "the model's kinds of block are %s", known);
}

void bp_request_settle_kinds(struct bp_request *request, struct bp_problems *problems)
{
    struct bp_workload *workload = &request->workload;
    const struct bp_model *model = &request->model;
    bool named[BP_KINDS_MAX + 1] = {false};
    uint32_t n = 0;
    for (uint32_t i = 0; i < workload->n_block_kinds; i++) {
        uint32_t at = kind_named(model, workload->block_kinds[i]);
        if (at == model->n_kinds && workload->block_kinds[i][0])
            refuse_kind(request, i, problems);
        named[at] = true;
    }
    memset(workload->block_kinds, 0, sizeof workload->block_kinds);
    for (uint32_t i = 0; i < model->n_kinds; i++)
        if (named[i])
            strcpy(workload->block_kinds[n++], model->kinds[i].name);
    if (n == model->n_kinds)
        memset(workload->block_kinds, 0, sizeof workload->block_kinds);
    workload->n_block_kinds = n == model->n_kinds ? 0 : n;
}

bool bp_request_has_kind(const struct bp_request *request, uint32_t kind)
{
    const struct bp_workload *workload = &request->workload;
    bool has = workload->n_block_kinds == 0;
    for (uint32_t i = 0; i < workload->n_block_kinds; i++)
        has |= strcmp(workload->block_kinds[i], request->model.kinds[kind].name) == 0;
    return has;
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
