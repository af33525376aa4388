#include "common/model/import.h"

#include <stddef.h>
#include <string.h>

bool bp_import_is_used(const struct bp_import *import, const char *key)
{
    for (size_t i = 0; i < import->n_used; i++)
        if (strcmp(import->used[i], key) == 0)
            return true;
    return false;
}

static void use(struct bp_import *import, const char *key)
{
    if (import->n_used < BP_IMPORT_KEYS_MAX && !bp_import_is_used(import, key))
        import->used[import->n_used++] = key;
}

static void assume(struct bp_import *import, const char *key)
{
    if (import->n_assumed < BP_IMPORT_KEYS_MAX)
        import->assumed[import->n_assumed++] = key;
}

/* The member, null and all; marks nothing. */
static const json_t *peek(const struct bp_import *import, const char *key)
{
    return bp_reader_get(&import->reader, key, false);
}

const json_t *bp_import_value(struct bp_import *import, const char *key)
{
    const json_t *value = peek(import, key);
    if (value)
        use(import, key);
    return json_is_null(value) ? NULL : value;
}

/* As bp_import_value, and an absent key is assumed. */
static const json_t *value_or_assumed(struct bp_import *import, const char *key)
{
    const json_t *value = bp_import_value(import, key);
    if (!value)
        assume(import, key);
    return value;
}

const char *bp_import_spelling(struct bp_import *import, const char *key, const char *alias)
{
    const json_t *value = bp_import_value(import, key), *other = bp_import_value(import, alias);
    if (value && other && !json_equal(value, other))
        bp_reader_problem(&import->reader, BP_E_conflict, alias, "is another spelling of %s and differs from it", key);
    return !value && other ? alias : key;
}

uint64_t bp_import_required(struct bp_import *import, const char *key)
{
    if (bp_import_value(import, key))
        return bp_reader_uint(&import->reader, key, 1, BP_JSON_INT_MAX, 0);
    bp_reader_problem(&import->reader, BP_E_missing_key, key, "is required");
    return 0;
}

uint64_t bp_import_size(struct bp_import *import, const char *key, uint64_t fallback)
{
    return value_or_assumed(import, key) ? bp_reader_uint(&import->reader, key, 1, BP_JSON_INT_MAX, 0) : fallback;
}

bool bp_import_flag(struct bp_import *import, const char *key, bool fallback)
{
    return value_or_assumed(import, key) ? bp_reader_bool(&import->reader, key, fallback) : fallback;
}

bool bp_import_dropout(struct bp_import *import, const char *key, bool fallback)
{
    const json_t *value = value_or_assumed(import, key);
    if (!value)
        return fallback;
    if (!json_is_number(value)) {
        bp_reader_problem(&import->reader, BP_E_wrong_type, key, "must be a number");
        return false;
    }
    double probability = json_number_value(value);
    if (probability < 0 || probability > 1)
        bp_reader_problem(&import->reader, BP_E_out_of_range, key, "must be between 0 and 1");
    return probability > 0;
}

/* Public names of activations, and the row that each is in a plain and in a gated MLP (-1: none). GELU's
 * approximations are one row: what they cost is a convention of the row. */
static const struct {
    const char *name;
    int plain, gated;
} activations[] = {
    {"gelu", BP_ACTIVATION_GELU, BP_ACTIVATION_GEGLU},
    {"gelu_accurate", BP_ACTIVATION_GELU, BP_ACTIVATION_GEGLU},
    {"gelu_fast", BP_ACTIVATION_GELU, BP_ACTIVATION_GEGLU},
    {"gelu_new", BP_ACTIVATION_GELU, BP_ACTIVATION_GEGLU},
    {"gelu_python", BP_ACTIVATION_GELU, BP_ACTIVATION_GEGLU},
    {"gelu_pytorch_tanh", BP_ACTIVATION_GELU, BP_ACTIVATION_GEGLU},
    {"relu", BP_ACTIVATION_RELU, -1},
    {"silu", -1, BP_ACTIVATION_SWIGLU},
    {"swish", -1, BP_ACTIVATION_SWIGLU},
};

enum bp_activation bp_import_activation(struct bp_import *import, const char *key, const char *fallback, bool gated)
{
    enum bp_activation unknown = gated ? BP_ACTIVATION_SWIGLU : BP_ACTIVATION_GELU;
    const char *name = value_or_assumed(import, key) ? bp_reader_string(&import->reader, key, false) : fallback;
    if (!name)
        return unknown;
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++) {
        int row = gated ? activations[i].gated : activations[i].plain;
        if (row >= 0 && strcmp(activations[i].name, name) == 0)
            return (enum bp_activation)row;
    }
    bp_import_refuse(import, key, gated ? "this activation in a gated MLP" : "this activation in a plain MLP");
    return unknown;
}

void bp_import_kv_heads(struct bp_import *import, uint64_t fallback)
{
    static const char key[] = "num_key_value_heads";
    uint64_t heads = import->model.num_attention_heads;
    uint64_t kv_heads = bp_import_size(import, key, json_is_null(peek(import, key)) ? heads : fallback);
    if (kv_heads && heads % kv_heads != 0)
        bp_reader_problem(&import->reader, BP_E_not_divisible, key, "%llu heads are not divisible by it (%llu)",
                          (unsigned long long)heads, (unsigned long long)kv_heads);
    import->model.num_key_value_heads = kv_heads;
}

void bp_import_split_heads(struct bp_import *import, const char *heads_key)
{
    uint64_t hidden = import->model.hidden_size, heads = import->model.num_attention_heads;
    if (!heads)
        return;
    if (hidden % heads != 0)
        bp_reader_problem(&import->reader, BP_E_not_divisible, heads_key,
                          "a hidden size of %llu is not divisible by %llu heads", (unsigned long long)hidden,
                          (unsigned long long)heads);
    import->model.head_dim = hidden / heads;
}

void bp_import_head_dim(struct bp_import *import, const char *heads_key, uint64_t fallback)
{
    import->model.head_dim = bp_import_size(import, "head_dim", fallback);
    bool given = bp_import_value(import, "head_dim") != NULL;
    if (!given && !fallback)
        bp_import_split_heads(import, heads_key);
}

static bool has_problem(const struct bp_import *import, const char *key)
{
    const struct bp_problems *problems = import->reader.problems;
    char pointer[BP_POINTER_MAX];
    bp_reader_pointer(&import->reader, key, pointer);
    for (size_t i = 0; i < problems->n; i++)
        if (strcmp(problems->at[i].path, pointer) == 0)
            return true;
    return false;
}

void bp_import_refuse(struct bp_import *import, const char *key, const char *what)
{
    use(import, key);
    if (has_problem(import, key))
        return; /* a value that could not be read switches nothing on */
    bp_reader_problem(&import->reader, BP_E_unsupported_feature, key, "%s is not modelled", what);
}

static bool is_one(const json_t *value)
{
    return json_is_number(value) && !(json_number_value(value) < 1 || json_number_value(value) > 1);
}

/* The newer configs put the rotary embedding's share of the head into an object, under two names. */
static const char *const rope_keys[] = {"rope_parameters", "rope_scaling"};
static const char share_key[] = "partial_rotary_factor";

static const json_t *rope_share(const struct bp_import *import, const char *key)
{
    const json_t *rope = peek(import, key);
    const json_t *share = json_is_object(rope) ? json_object_get(rope, share_key) : NULL;
    return json_is_null(share) ? NULL : share;
}

void bp_import_rotary(struct bp_import *import, const char *key, bool whole_by_default)
{
    const json_t *value = bp_import_value(import, key);
    if (!value && (rope_share(import, rope_keys[0]) || rope_share(import, rope_keys[1])))
        return; /* bp_import_refuse_rest looks at it */
    if (!value)
        assume(import, key);
    if (value && !json_is_number(value))
        bp_reader_problem(&import->reader, BP_E_wrong_type, key, "must be a number");
    else if (!(value ? is_one(value) : whole_by_default))
        bp_import_refuse(import, key, "a rotary embedding of part of the head");
}

static void refuse_rope_share(struct bp_import *import, const char *key)
{
    const json_t *share = rope_share(import, key);
    if (!share)
        return;
    use(import, key);
    if (!is_one(share)) {
        struct bp_reader rope = bp_reader_object(&import->reader, key, false);
        bp_reader_problem(&rope, BP_E_unsupported_feature, share_key,
                          "a rotary embedding of part of the head is not modelled");
    }
}

void bp_import_window(struct bp_import *import, bool window_by_default, bool used_by_default)
{
    static const char key[] = "sliding_window", use_key[] = "use_sliding_window";
    /* Of the two keys a class need not have both: what is not there is assumed only where it decides something. */
    const json_t *given = peek(import, key);
    bool has_window = given ? bp_import_value(import, key) != NULL : window_by_default;
    if (json_is_integer(given))
        bp_reader_uint(&import->reader, key, 1, BP_JSON_INT_MAX, 0);
    else if (has_window && given)
        bp_reader_problem(&import->reader, BP_E_wrong_type, key, "must be an integer or null");
    if (!has_window)
        return;
    bool used =
        bp_import_value(import, use_key) ? bp_reader_bool(&import->reader, use_key, used_by_default) : used_by_default;
    if (!used_by_default && !peek(import, use_key))
        assume(import, use_key);
    if (!given && used)
        assume(import, key);
    if (used)
        bp_import_refuse(import, key, "a sliding window");
}

/* Keys that change what would be derived, wherever they appear, unless the family reads them itself. A value is
 * harmless when it is null, false, 0 or empty, and by `harmless` in one more case. */
enum harmless { NOTHING_ELSE, ONE, SAME_AS_MODEL, FULL_ATTENTION };
static const struct {
    const char *key;
    enum harmless harmless;
    size_t offset; /* in struct bp_model, for SAME_AS_MODEL */
    const char *what;
} features[] = {
    {"activation_dropout", NOTHING_ELSE, 0, "dropout within the MLP"},
    {"add_cross_attention", NOTHING_ELSE, 0, "cross-attention"},
    {"alibi", NOTHING_ELSE, 0, "a position bias of the scores"},
    {"attention_bias", NOTHING_ELSE, 0, "a bias that this class does not have"},
    {"attention_chunk_size", NOTHING_ELSE, 0, "chunked attention"},
    {"attn_logit_softcapping", NOTHING_ELSE, 0, "a soft cap"},
    {"clip_qkv", NOTHING_ELSE, 0, "clipping of query, key and value"},
    {"compression_config", NOTHING_ELSE, 0, "quantisation"},
    {"embd_pdrop", NOTHING_ELSE, 0, "dropout that this class does not have"},
    {"ffn_dim", SAME_AS_MODEL, offsetof(struct bp_model, intermediate_size), "this feed-forward width"},
    {"final_logit_softcapping", NOTHING_ELSE, 0, "a soft cap"},
    {"head_dim", SAME_AS_MODEL, offsetof(struct bp_model, head_dim), "this head size"},
    {"hidden_dropout", NOTHING_ELSE, 0, "dropout that this class does not have"},
    {"intermediate_size", SAME_AS_MODEL, offsetof(struct bp_model, intermediate_size), "this feed-forward width"},
    {"is_encoder_decoder", NOTHING_ELSE, 0, "an encoder"},
    {"kv_lora_rank", NOTHING_ELSE, 0, "latent attention"},
    {"layer_types", FULL_ATTENTION, 0, "attention that is not full"},
    {"layerdrop", NOTHING_ELSE, 0, "dropping of layers"},
    {"mlp_bias", NOTHING_ELSE, 0, "a bias that this class does not have"},
    {"moe_num_experts", NOTHING_ELSE, 0, "a mixture of experts"},
    {"multi_query", NOTHING_ELSE, 0, "this sharing of key/value heads"},
    {"n_inner", SAME_AS_MODEL, offsetof(struct bp_model, intermediate_size), "this feed-forward width"},
    {"n_routed_experts", NOTHING_ELSE, 0, "a mixture of experts"},
    {"n_shared_experts", NOTHING_ELSE, 0, "a mixture of experts"},
    {"num_experts", NOTHING_ELSE, 0, "a mixture of experts"},
    {"num_key_value_heads", SAME_AS_MODEL, offsetof(struct bp_model, num_key_value_heads),
     "this number of key/value heads"},
    {"num_local_experts", NOTHING_ELSE, 0, "a mixture of experts"},
    {"num_nextn_predict_layers", NOTHING_ELSE, 0, "prediction of several tokens"},
    {"parallel_attn", NOTHING_ELSE, 0, "attention and MLP side by side"},
    {"partial_rotary_factor", ONE, 0, "a rotary embedding of part of the head"},
    {"pruned_heads", NOTHING_ELSE, 0, "pruning of heads"},
    {"q_lora_rank", NOTHING_ELSE, 0, "latent attention"},
    {"qk_layernorm", NOTHING_ELSE, 0, "query and key norms that this class does not have"},
    {"qkv_bias", NOTHING_ELSE, 0, "a bias that this class does not have"},
    {"quantization_config", NOTHING_ELSE, 0, "quantisation"},
    {"reorder_and_upcast_attn", NOTHING_ELSE, 0, "attention in another type than the rest"},
    {"resid_pdrop", NOTHING_ELSE, 0, "dropout that this class does not have"},
    {"rotary_pct", ONE, 0, "a rotary embedding of part of the head"},
    {"sliding_window", NOTHING_ELSE, 0, "a sliding window"},
    {"text_config", NOTHING_ELSE, 0, "a language model within another config"},
    {"use_parallel_residual", NOTHING_ELSE, 0, "attention and MLP side by side"},
    {"use_qk_norm", NOTHING_ELSE, 0, "query and key norms that this class does not have"},
    {"vision_config", NOTHING_ELSE, 0, "a vision tower"},
};

static bool is_nothing(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_NULL:
    case JSON_FALSE:
        return true;
    case JSON_INTEGER:
    case JSON_REAL:
        return !(json_number_value(value) < 0 || json_number_value(value) > 0);
    case JSON_OBJECT:
        return json_object_size(value) == 0;
    case JSON_ARRAY:
        return json_array_size(value) == 0;
    default:
        return false;
    }
}

static bool all_full_attention(const json_t *value)
{
    size_t i;
    json_t *item;
    json_array_foreach(value, i, item) if (!json_is_string(item) ||
                                           strcmp(json_string_value(item), "full_attention") != 0) return false;
    return json_is_array(value);
}

static bool is_harmless(const struct bp_import *import, const json_t *value, enum harmless harmless, size_t offset)
{
    const uint64_t *size = (const uint64_t *)(const void *)((const char *)&import->model + offset);
    switch (harmless) {
    case ONE:
        return is_one(value);
    case SAME_AS_MODEL:
        return *size == 0 || json_is_null(value) ||
               (json_is_integer(value) && (uint64_t)json_integer_value(value) == *size);
    case FULL_ATTENTION:
        return is_nothing(value) || all_full_attention(value);
    default:
        return is_nothing(value);
    }
}

/* The classes of one family differ in their heads, and so in their parameters. */
static void refuse_other_class(struct bp_import *import, const char *public_class)
{
    const json_t *classes = bp_import_value(import, "architectures");
    size_t i;
    json_t *item;
    json_array_foreach(classes, i,
                       item) if (json_is_string(item) && strcmp(json_string_value(item), public_class) == 0) return;
    if (classes && !is_nothing(classes)) {
        import->other_class = true;
        bp_reader_problem(&import->reader, BP_E_unsupported_feature, "architectures",
                          "of this model_type only %s is modelled", public_class);
    }
}

void bp_import_refuse_rest(struct bp_import *import, const char *public_class)
{
    refuse_other_class(import, public_class);
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        const json_t *value = peek(import, features[i].key);
        if (value && !bp_import_is_used(import, features[i].key) &&
            !is_harmless(import, value, features[i].harmless, features[i].offset))
            bp_import_refuse(import, features[i].key, features[i].what);
    }
    for (size_t i = 0; i < sizeof rope_keys / sizeof *rope_keys; i++)
        refuse_rope_share(import, rope_keys[i]);
}
