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

static size_t word(const json_t *object, const char *key, const char *const *words)
{
    for (size_t i = 0; words[i]; i++)
        if (is(object, key, words[i]))
            return i;
    return 0;
}

static void read_attention(const json_t *kind, const struct ref_request *request, struct ref_kind *ret)
{
    static const char *const forms[] = {"head", "each_head", "span", "without_weight", NULL};
    ret->h = number(kind, "num_attention_heads", 1);
    if (is(kind, "attention", "latent")) {
        ret->l_q = number(kind, "q_lora_rank", 0);
        ret->l_kv = number(kind, "kv_lora_rank", 0);
        ret->n = number(kind, "qk_nope_head_dim", 0);
        ret->r = number(kind, "qk_rope_head_dim", 0);
        ret->v = number(kind, "v_head_dim", 0);
        ret->rotary = request->rope ? ret->r : 0;
        ret->k = ret->h;
        ret->d = ret->n + ret->r;
        return;
    }
    ret->k = number(kind, "num_key_value_heads", ret->h);
    ret->d = number(kind, "head_dim", request->H / ret->h);
    ret->rotary = number(kind, "rotary_dim", request->rope ? ret->d : 0);
    if (flag(kind, "qk_norm", false))
        ret->qk_norm = REF_QK_HEAD + (enum ref_qk_norm)word(kind, "qk_norm_form", forms);
    ret->qk_norm_bias =
        flag(kind, "qk_norm_bias", ret->qk_norm == REF_QK_HEAD && !request->rmsnorm && !request->norm_without_bias);
}

static void read_kind(const json_t *kind, const struct ref_request *request, struct ref_kind *ret)
{
    static const char *const places[] = {"before", "after", "after_residual", "around", "shared", NULL};
    const bool bias = flag(kind, "bias", false);
    memset(ret, 0, sizeof(*ret));
    read_attention(kind, request, ret);
    ret->F = number(kind, "intermediate_size", 0);
    ret->window = number(kind, "sliding_window", 0);
    ret->chunked = flag(kind, "chunked_attention", false);
    ret->E = number(kind, "num_experts", 0);
    ret->K = number(kind, "experts_per_token", 0);
    ret->F_e = number(kind, "expert_intermediate_size", 0);
    ret->F_s = number(kind, "shared_expert_intermediate_size", 0);
    ret->gated = is(kind, "activation", "swiglu") || is(kind, "activation", "geglu");
    ret->relu = is(kind, "activation", "relu");
    ret->parallel = is(kind, "residual", "parallel");
    ret->sinks = flag(kind, "attention_sinks", false);
    ret->soft_cap = flag(kind, "attention_soft_cap", false);
    ret->qkv_bias = bias || flag(kind, "qkv_bias", false);
    ret->output_bias = bias || flag(kind, "output_bias", false);
    ret->mlp_bias = bias || flag(kind, "mlp_bias", false);
    ret->router_bias = flag(kind, "router_bias", false);
    ret->expert_bias = flag(kind, "expert_bias", false);
    ret->shared_gate = flag(kind, "shared_expert_gate", false);
    ret->hidden_dropout = flag(kind, "hidden_dropout", false);
    ret->attention_dropout = flag(kind, "attention_dropout", false);
    ret->place = (enum ref_place)word(kind, "norm_place", places);
}

static bool is_planned(const json_t *names, const char *name)
{
    size_t i;
    json_t *item;
    json_array_foreach(names, i, item)
        if (strcmp(json_string_value(item), name) == 0)
            return true;
    return names == NULL;
}

/* Kinds stand in the order in which the layers first have them. */
static void read_kinds(const json_t *model, const json_t *planned, struct ref_request *ret)
{
    const json_t *kinds = json_object_get(model, "kinds"), *layers = json_object_get(model, "layers");
    size_t i, j, at;
    json_t *run, *kind;
    json_array_foreach(layers, i, run) {
        const char *name = json_string_value(json_object_get(run, "kind"));
        for (at = 0; at < ret->n_kinds && strcmp(ret->kinds[at].name, name) != 0; at++)
            ;
        if (at == ret->n_kinds && is_planned(planned, name)) {
            json_array_foreach(kinds, j, kind)
                if (is(kind, "name", name))
                    read_kind(kind, ret, &ret->kinds[at]);
            strncpy(ret->kinds[at].name, name, REF_KIND_NAME - 1);
            ret->n_kinds++;
        }
        if (at < ret->n_kinds)
            ret->kinds[at].layers += number(run, "count", 0);
    }
}

static void read_model(const json_t *model, const json_t *planned, struct ref_request *ret)
{
    ret->H = number(model, "hidden_size", 0);
    ret->L = number(model, "num_hidden_layers", 0);
    ret->rmsnorm = is(model, "norm", "rmsnorm");
    ret->norm_without_weight = flag(model, "norm_without_weight", false);
    /* an RMSNorm has no bias, nor has a norm without weights: there it says nothing */
    ret->norm_without_bias = flag(model, "norm_without_bias", false) && !ret->rmsnorm && !ret->norm_without_weight;
    ret->rope = is(model, "position", "rope");
    ret->alibi = is(model, "position", "alibi");
    if (json_object_get(model, "kinds")) {
        read_kinds(model, planned, ret);
        return;
    }
    read_kind(model, ret, &ret->kinds[0]);
    ret->kinds[0].layers = ret->L;
    ret->n_kinds = 1;
}

static void read_workload(const json_t *workload, struct ref_request *ret)
{
    ret->training = is(workload, "mode", "training");
    ret->prefill = is(workload, "phase", "prefill");
    ret->B = number(workload, "micro_batch_size", 0);
    ret->S_c = number(workload, "sequence_length", 0);
    ret->b = number(workload, "batch_size", 0);
    ret->c = number(workload, "context_length", 0);
    ret->e = dtype_bytes(workload, "dtype", 0);
    ret->g = dtype_bytes(workload, "gradient_dtype", 4);
    ret->e_kv = dtype_bytes(workload, "kv_cache_dtype", ret->e);
}

static void read_strategy(const json_t *strategy, struct ref_request *ret)
{
    static const char *const exchanges[] = {"ring", "all_gather", "a2a", NULL};
    ret->t = number(strategy, "tensor_parallel", 1);
    ret->dp = number(strategy, "data_parallel", 1);
    ret->cp = number(strategy, "context_parallel", 1);
    ret->exchange = (enum ref_exchange)word(strategy, "cp_comm", exchanges);
    ret->S = ret->S_c / ret->cp;
    ret->ep = number(strategy, "expert_parallel", 1);
    ret->etp = number(strategy, "expert_tensor_parallel", ret->t);
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
    read_model(model, json_object_get(workload, "block_kinds"), ret);
    read_workload(workload, ret);
    read_strategy(json_object_get(body, "strategy"), ret);
    const json_t *target = json_object_get(body, "target");
    ret->has_target = target != NULL;
    ret->slots = is(target, "kind", "reference-slot");
    return ret->e != 0;
}
