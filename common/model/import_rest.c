/* What no family has read: the keys that would change the numbers derived, wherever they appear. */
#include <stddef.h>
#include <string.h>

#include "common/model/import.h"

/* Keys that change what would be derived, wherever they appear, unless the family reads them itself. A value is
 * harmless when it is null, false, 0 or empty, and by `harmless` in one more case. */
enum harmless { NOTHING_ELSE, ONE, SAME_AS_KIND, FULL_ATTENTION };
static const struct {
    const char *key;
    enum harmless harmless;
    size_t offset; /* in struct bp_kind, for SAME_AS_KIND */
    const char *what;
} features[] = {
    {"activation_dropout", NOTHING_ELSE, 0, "dropout within the MLP"},
    {"add_cross_attention", NOTHING_ELSE, 0, "cross-attention"},
    {"alibi", NOTHING_ELSE, 0, "a position bias of the scores"},
    {"attention_bias", NOTHING_ELSE, 0, "a bias that this class does not have"},
    {"attention_chunk_size", NOTHING_ELSE, 0, "chunked attention"},
    {"attn_logit_softcapping", NOTHING_ELSE, 0, "a soft cap"},
    {"clip_qkv", NOTHING_ELSE, 0, "clipping of query, key and value"},
    {"embd_pdrop", NOTHING_ELSE, 0, "dropout that this class does not have"},
    {"ffn_dim", SAME_AS_KIND, offsetof(struct bp_kind, intermediate_size), "this feed-forward width"},
    {"final_logit_softcapping", NOTHING_ELSE, 0, "a soft cap"},
    {"head_dim", SAME_AS_KIND, offsetof(struct bp_kind, head_dim), "this head size"},
    {"hidden_dropout", NOTHING_ELSE, 0, "dropout that this class does not have"},
    {"intermediate_size", SAME_AS_KIND, offsetof(struct bp_kind, intermediate_size), "this feed-forward width"},
    {"is_encoder_decoder", NOTHING_ELSE, 0, "an encoder"},
    {"kv_lora_rank", NOTHING_ELSE, 0, "latent attention"},
    {"layer_types", FULL_ATTENTION, 0, "attention that is not full"},
    {"layerdrop", NOTHING_ELSE, 0, "dropping of layers"},
    {"mlp_bias", NOTHING_ELSE, 0, "a bias that this class does not have"},
    {"moe_num_experts", NOTHING_ELSE, 0, "a mixture of experts"},
    {"mtp", NOTHING_ELSE, 0, "prediction of several tokens"},
    {"multi_query", NOTHING_ELSE, 0, "this sharing of key/value heads"},
    {"n_inner", SAME_AS_KIND, offsetof(struct bp_kind, intermediate_size), "this feed-forward width"},
    {"n_routed_experts", NOTHING_ELSE, 0, "a mixture of experts"},
    {"n_shared_experts", NOTHING_ELSE, 0, "a mixture of experts"},
    {"num_experts", NOTHING_ELSE, 0, "a mixture of experts"},
    {"num_key_value_heads", SAME_AS_KIND, offsetof(struct bp_kind, num_key_value_heads),
     "this number of key/value heads"},
    {"num_local_experts", NOTHING_ELSE, 0, "a mixture of experts"},
    {"num_nextn_predict_layers", NOTHING_ELSE, 0, "prediction of several tokens"},
    {"parallel_attn", NOTHING_ELSE, 0, "attention and MLP side by side"},
    {"partial_rotary_factor", ONE, 0, "a rotary embedding of part of the head"},
    {"pruned_heads", NOTHING_ELSE, 0, "pruning of heads"},
    {"q_lora_rank", NOTHING_ELSE, 0, "latent attention"},
    {"qk_layernorm", NOTHING_ELSE, 0, "query and key norms that this class does not have"},
    {"qkv_bias", NOTHING_ELSE, 0, "a bias that this class does not have"},
    {"reorder_and_upcast_attn", NOTHING_ELSE, 0, "attention in another type than the rest"},
    {"resid_pdrop", NOTHING_ELSE, 0, "dropout that this class does not have"},
    {"rotary_pct", ONE, 0, "a rotary embedding of part of the head"},
    {"sliding_window", NOTHING_ELSE, 0, "a sliding window"},
    {"text_config", NOTHING_ELSE, 0, "a language model within another config"},
    {"use_parallel_residual", NOTHING_ELSE, 0, "attention and MLP side by side"},
    {"use_qk_norm", NOTHING_ELSE, 0, "query and key norms that this class does not have"},
    {"vision_config", NOTHING_ELSE, 0, "a vision tower"},
};

static bool is_one_number(const json_t *value)
{
    return json_is_number(value) && !(json_number_value(value) < 1 || json_number_value(value) > 1);
}

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
    json_array_foreach(value, i, item)
        if (!json_is_string(item) || strcmp(json_string_value(item), "full_attention") != 0)
            return false;
    return json_is_array(value);
}

static bool is_harmless(const struct bp_import *import, const json_t *value, enum harmless harmless, size_t offset)
{
    const uint64_t *size = (const uint64_t *)(const void *)((const char *)&import->model.kinds[0] + offset);
    switch (harmless) {
    case ONE:
        return is_one_number(value);
    case SAME_AS_KIND:
        return *size == 0 || json_is_null(value) ||
               (json_is_integer(value) && (uint64_t)json_integer_value(value) == *size);
    case FULL_ATTENTION:
        return is_nothing(value) || all_full_attention(value);
    default:
        return is_nothing(value);
    }
}

/* The classes of one family differ in their heads, and so in their parameters. */
void bp_import_refuse_class(struct bp_import *import, const char *public_class)
{
    const json_t *classes = bp_import_value(import, "architectures");
    size_t i;
    json_t *item;
    json_array_foreach(classes, i, item)
        if (json_is_string(item) && strcmp(json_string_value(item), public_class) == 0)
            return;
    if (classes && !is_nothing(classes)) {
        import->other_class = true;
        bp_reader_problem(&import->reader, BP_E_unsupported_feature, "architectures",
                          "of this model_type only %s is modelled", public_class);
    }
}

void bp_import_refuse_rest(struct bp_import *import, const char *public_class)
{
    if (public_class)
        bp_import_refuse_class(import, public_class);
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        const json_t *value = bp_import_peek(import, features[i].key);
        if (value && !bp_import_is_used(import, features[i].key) && !bp_import_is_spared(import, features[i].key) &&
            !is_harmless(import, value, features[i].harmless, features[i].offset))
            bp_import_refuse(import, features[i].key, features[i].what);
    }
    bp_import_refuse_rope_shares(import);
}
