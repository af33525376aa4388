/* Reads the request of the independent recomputation. */
#include <string.h>

#include "tests/reference/reference.h"

static wide number(const json_t *object, const char *key, wide fallback)
{
    const json_t *value = json_object_get(object, key);
    return value ? (wide)json_integer_value(value) : fallback;
}

static bool flag(const json_t *object, const char *key, bool fallback)
{
    const json_t *value = json_object_get(object, key);
    return value ? json_is_true(value) : fallback;
}

static bool is(const json_t *object, const char *key, const char *word)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text && strcmp(text, word) == 0;
}

static wide dtype_bytes(const json_t *object, const char *key, wide fallback)
{
    if (is(object, key, "float8"))
        return 1;
    if (is(object, key, "float16") || is(object, key, "bfloat16"))
        return 2;
    return is(object, key, "float32") ? 4 : fallback;
}

static void read_model(const json_t *model, struct ref_request *ret)
{
    ret->H = number(model, "hidden_size", 0);
    ret->L = number(model, "num_hidden_layers", 0);
    ret->h = number(model, "num_attention_heads", 1);
    ret->k = number(model, "num_key_value_heads", ret->h);
    ret->d = number(model, "head_dim", ret->H / ret->h);
    ret->F = number(model, "intermediate_size", 0);
    ret->gated = is(model, "activation", "swiglu") || is(model, "activation", "geglu");
    ret->relu = is(model, "activation", "relu");
    ret->rmsnorm = is(model, "norm", "rmsnorm");
    ret->rope = is(model, "position", "rope");
    ret->bias = flag(model, "bias", false);
    ret->qkv_bias = flag(model, "qkv_bias", false);
    ret->qk_norm = flag(model, "qk_norm", false);
    ret->hidden_dropout = flag(model, "hidden_dropout", false);
    ret->attention_dropout = flag(model, "attention_dropout", false);
}

static void read_workload(const json_t *workload, struct ref_request *ret)
{
    ret->training = is(workload, "mode", "training");
    ret->prefill = is(workload, "phase", "prefill");
    ret->B = number(workload, "micro_batch_size", 0);
    ret->S = number(workload, "sequence_length", 0);
    ret->b = number(workload, "batch_size", 0);
    ret->c = number(workload, "context_length", 0);
    ret->e = dtype_bytes(workload, "dtype", 0);
    ret->g = dtype_bytes(workload, "gradient_dtype", 4);
}

static void read_strategy(const json_t *strategy, struct ref_request *ret)
{
    ret->t = number(strategy, "tensor_parallel", 1);
    ret->dp = number(strategy, "data_parallel", 1);
    ret->zero = number(strategy, "zero_stage", 0);
    ret->sequence_parallel = flag(strategy, "sequence_parallel", false);
    ret->gather_again = flag(strategy, "recompute_all_gather", ret->sequence_parallel);
    ret->recompute_activation = flag(strategy, "recompute_activation", false);
    ret->recompute = is(strategy, "recompute", "selective") ? REF_SELECTIVE
                     : is(strategy, "recompute", "full")    ? REF_FULL
                                                            : REF_KEEP_ALL;
}

bool ref_request_read(const json_t *body, struct ref_request *ret)
{
    const json_t *model = json_object_get(json_object_get(body, "model"), "transformer");
    const json_t *workload = json_object_get(body, "workload");
    if (!model || !workload)
        return false;
    memset(ret, 0, sizeof(*ret));
    read_model(model, ret);
    read_workload(workload, ret);
    read_strategy(json_object_get(body, "strategy"), ret);
    const json_t *target = json_object_get(body, "target");
    ret->has_target = target != NULL;
    ret->slots = is(target, "kind", "reference-slot");
    return ret->e != 0;
}
