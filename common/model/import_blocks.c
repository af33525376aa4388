/* The parts of a block that several classes describe with the same keys. */
#include <string.h>

#include "common/model/import.h"

void bp_import_sizes(struct bp_import *import, uint64_t vocab_by_default)
{
    static const char vocab_key[] = "vocab_size";
    import->model.hidden_size = bp_import_required(import, "hidden_size");
    import->model.num_hidden_layers = bp_import_required(import, "num_hidden_layers");
    import->model.vocab_size =
        vocab_by_default ? bp_import_size(import, vocab_key, vocab_by_default) : bp_import_required(import, vocab_key);
}

uint64_t bp_import_four_times_hidden(struct bp_import *import, const char *key)
{
    uint64_t hidden = import->model.hidden_size;
    bool fits = hidden <= BP_JSON_INT_MAX / 4;
    uint64_t width = bp_import_size(import, key, fits ? 4 * hidden : 0);
    if (!fits && !bp_import_value(import, key))
        bp_reader_problem(&import->reader, BP_E_out_of_range, key, "four times the hidden size is out of range");
    return width;
}

void bp_import_gpt_sizes(struct bp_import *import, uint64_t heads)
{
    struct bp_model *model = &import->model;
    struct bp_kind *kind = &model->kinds[0];
    const char *heads_key = bp_import_spelling(import, "n_head", "num_attention_heads");
    model->hidden_size = bp_import_required(import, bp_import_spelling(import, "n_embd", "hidden_size"));
    model->num_hidden_layers = bp_import_required(import, bp_import_spelling(import, "n_layer", "num_hidden_layers"));
    model->vocab_size = bp_import_required(import, "vocab_size");
    kind->num_attention_heads = kind->num_key_value_heads = bp_import_size(import, heads_key, heads);
    bp_import_split_heads(import, heads_key);
    kind->intermediate_size = bp_import_four_times_hidden(import, "n_inner");
}

void bp_import_kv_heads(struct bp_import *import, uint64_t fallback)
{
    static const char key[] = "num_key_value_heads";
    uint64_t heads = import->model.kinds[0].num_attention_heads;
    uint64_t kv_heads = bp_import_size(import, key, json_is_null(bp_import_peek(import, key)) ? heads : fallback);
    if (kv_heads && heads % kv_heads != 0)
        bp_reader_problem(&import->reader, BP_E_not_divisible, key, "%llu heads are not divisible by it (%llu)",
                          (unsigned long long)heads, (unsigned long long)kv_heads);
    import->model.kinds[0].num_key_value_heads = kv_heads;
}

void bp_import_split_heads(struct bp_import *import, const char *heads_key)
{
    uint64_t hidden = import->model.hidden_size, heads = import->model.kinds[0].num_attention_heads;
    if (!heads)
        return;
    if (hidden % heads != 0)
        bp_reader_problem(&import->reader, BP_E_not_divisible, heads_key,
                          "a hidden size of %llu is not divisible by %llu heads", (unsigned long long)hidden,
                          (unsigned long long)heads);
    import->model.kinds[0].head_dim = hidden / heads;
}

void bp_import_head_dim(struct bp_import *import, const char *heads_key, uint64_t fallback)
{
    import->model.kinds[0].head_dim = bp_import_size(import, "head_dim", fallback);
    bool given = bp_import_value(import, "head_dim") != NULL;
    if (!given && !fallback)
        bp_import_split_heads(import, heads_key);
}

void bp_import_llama(struct bp_import *import, struct bp_llama_defaults defaults)
{
    struct bp_model *model = &import->model;
    struct bp_kind *kind = &model->kinds[0];
    static const char heads_key[] = "num_attention_heads";
    bp_import_sizes(import, defaults.vocab_size);
    kind->num_attention_heads = bp_import_size(import, heads_key, defaults.heads ? defaults.heads : 32);
    bp_import_kv_heads(import, defaults.kv_heads ? defaults.kv_heads : kind->num_attention_heads);
    bp_import_head_dim(import, heads_key, defaults.head_dim);
    if (defaults.intermediate_size)
        kind->intermediate_size = bp_import_size(import, "intermediate_size", defaults.intermediate_size);
    model->position = BP_POSITION_ROPE;
    bp_import_rotary(import, NULL, 1);
    model->norm = BP_NORM_RMSNORM;
    kind->activation = bp_import_activation(import, defaults.activation_key ? defaults.activation_key : "hidden_act",
                                            defaults.activation ? defaults.activation : "silu", true);
    kind->attention_dropout = bp_import_dropout(import, "attention_dropout", false);
    model->tie_word_embeddings = bp_import_tied(import, defaults.tied);
}

void bp_import_attention_bias(struct bp_import *import, bool fallback)
{
    struct bp_kind *kind = &import->model.kinds[0];
    kind->qkv_bias = kind->output_bias = bp_import_flag(import, "attention_bias", fallback);
}

/* The newer configs put the rotary embedding's share of the head into an object, under two names. */
static const char *const rope_keys[] = {"rope_parameters", "rope_scaling"};
static const char share_key[] = "partial_rotary_factor";

static const json_t *share_within(const struct bp_import *import, const char *key)
{
    const json_t *rope = bp_import_peek(import, key);
    const json_t *share = json_is_object(rope) ? json_object_get(rope, share_key) : NULL;
    return json_is_null(share) ? NULL : share;
}

static bool is_whole(double share)
{
    return !(share < 1 || share > 1);
}

void bp_import_refuse_rope_shares(struct bp_import *import)
{
    for (size_t i = 0; i < sizeof rope_keys / sizeof *rope_keys; i++) {
        const json_t *share = share_within(import, rope_keys[i]);
        if (!share || bp_import_is_used(import, rope_keys[i]))
            continue;
        bp_import_value(import, rope_keys[i]);
        struct bp_reader rope = bp_reader_object(&import->reader, rope_keys[i], false);
        if (!json_is_number(share) || !is_whole(json_number_value(share)))
            bp_reader_problem(&rope, BP_E_unsupported_feature, share_key,
                              "a rotary embedding of part of the head is not modelled of this class");
    }
}

/* The classes round down, in doubles. */
static void rotate(struct bp_import *import, const struct bp_reader *reader, const char *key, const json_t *share)
{
    struct bp_kind *kind = &import->model.kinds[0];
    double value = json_number_value(share);
    if (!json_is_number(share))
        bp_reader_problem(reader, BP_E_wrong_type, key, "must be a number");
    else if (value < 0 || value > 1)
        bp_reader_problem(reader, BP_E_out_of_range, key, "must be between 0 and 1");
    else
        kind->rotary_dim = (uint64_t)((double)kind->head_dim * value);
}

void bp_import_rotary(struct bp_import *import, const char *key, double fallback)
{
    const json_t *value = key ? bp_import_value(import, key) : NULL;
    for (size_t i = 0; i < sizeof rope_keys / sizeof *rope_keys; i++) {
        const json_t *within = share_within(import, rope_keys[i]);
        if (!within)
            continue;
        if (value && !json_equal(value, within))
            bp_reader_problem(&import->reader, BP_E_conflict, key, "differs from that of %s", rope_keys[i]);
        bp_import_value(import, rope_keys[i]);
        struct bp_reader rope = bp_reader_object(&import->reader, rope_keys[i], false);
        rotate(import, &rope, share_key, within);
        return;
    }
    if (value) {
        rotate(import, &import->reader, key, value);
        return;
    }
    if (key)
        bp_import_value_or_assumed(import, key);
    import->model.kinds[0].rotary_dim = (uint64_t)((double)import->model.kinds[0].head_dim * fallback);
}

bool bp_import_window(struct bp_import *import, uint64_t window_by_default, bool used_by_default)
{
    static const char key[] = "sliding_window", use_key[] = "use_sliding_window";
    /* Of the two keys a class need not have both: what is not there is assumed only where it decides something. */
    const json_t *given = bp_import_peek(import, key);
    bool has_window = given ? bp_import_value(import, key) != NULL : window_by_default > 0;
    uint64_t window = window_by_default;
    if (json_is_integer(given))
        window = bp_reader_uint(&import->reader, key, 1, BP_JSON_INT_MAX, 0);
    else if (has_window && given)
        bp_reader_problem(&import->reader, BP_E_wrong_type, key, "must be an integer or null");
    if (!has_window)
        return false;
    bool used =
        bp_import_value(import, use_key) ? bp_reader_bool(&import->reader, use_key, used_by_default) : used_by_default;
    if (!used_by_default && !bp_import_peek(import, use_key))
        bp_import_value_or_assumed(import, use_key);
    if (!given && used)
        bp_import_value_or_assumed(import, key);
    if (used)
        import->model.kinds[0].window = window;
    return used;
}

void bp_import_experts(struct bp_import *import, const struct bp_import_experts *keys)
{
    struct bp_kind *kind = &import->model.kinds[0];
    uint64_t count = bp_import_count(import, keys->count_key, keys->count);
    uint64_t taken = keys->taken || !count ? bp_import_size(import, keys->taken_key, keys->taken)
                                           : bp_import_required(import, keys->taken_key);
    uint64_t width = bp_import_size(import, keys->width_key, keys->width);
    const json_t *said = bp_import_peek(import, keys->count_key);
    bool says_none = json_is_null(said) || (json_is_integer(said) && json_integer_value(said) == 0);
    if (says_none && !count && !kind->intermediate_size)
        bp_reader_problem(&import->reader, BP_E_out_of_range, keys->count_key,
                          "must be at least 1: blocks of this family have no MLP but experts");
    if (!count)
        return;
    if (taken > count)
        bp_reader_problem(&import->reader, BP_E_out_of_range, keys->taken_key, "there are %llu experts",
                          (unsigned long long)count);
    kind->num_experts = count;
    kind->experts_per_token = taken;
    kind->expert_intermediate_size = width;
}

void bp_import_next_token_layers(struct bp_import *import)
{
    static const char key[] = "num_nextn_predict_layers", switch_key[] = "mtp";
    if (bp_import_value(import, switch_key) && bp_reader_bool(&import->reader, switch_key, false))
        import->model.num_nextn_predict_layers = bp_import_count(import, key, 0);
    else
        bp_import_spare(import, key);
}
