/* Families of experts, with what else their blocks have: latent attention, windows and chunks, sinks. One function a
 * family, named after the public modelling class whose tensors it describes. */
#include "common/model/import.h"

void bp_mixtral_for_causal_lm(struct bp_import *import)
{
    bp_import_llama(import, (struct bp_llama_defaults){.kv_heads = 8});
    bp_import_experts(import,
                      &(struct bp_import_experts){bp_import_spelling(import, "num_local_experts", "num_experts"), 8,
                                                  "num_experts_per_tok", 2, "intermediate_size", 14336});
    bp_import_window(import, 0, true);
}

/* Every `decoder_sparse_step`-th layer has experts, but for those that mlp_only_layers lists. */
static void sparse_layers(struct bp_import *import)
{
    uint64_t step = bp_import_size(import, "decoder_sparse_step", 1);
    uint8_t *layers = bp_import_layers(import);
    if (!layers || !import->model.kinds[0].num_experts)
        return;
    for (uint64_t i = 0; step && i < import->model.num_hidden_layers; i++)
        if ((i + 1) % step == 0)
            layers[i] |= BP_LAYER_EXPERT;
    if (!bp_import_layer_list(import, "mlp_only_layers", 0, BP_LAYER_EXPERT))
        bp_import_value_or_assumed(import, "mlp_only_layers");
}

/* A window that is switched on is that of the layers which layer_types lists. Without the list qwen2_moe has it in
 * every other of the first `max_window_layers`, which the class makes of its configs; qwen3_moe in all. */
static void sparse_window(struct bp_import *import, bool every_other)
{
    if (!bp_import_window(import, 4096, false) || !import->layers)
        return;
    if (bp_import_layer_types(import, "sliding_attention"))
        return;
    uint64_t n = import->model.num_hidden_layers,
             most = every_other ? bp_import_count(import, "max_window_layers", 28) : n;
    for (uint64_t i = 0; i < n && i < most; i += every_other ? 2 : 1)
        import->layers[i] |= BP_LAYER_LOCAL;
}

void bp_qwen2_moe_for_causal_lm(struct bp_import *import)
{
    struct bp_kind *kind = &import->model.kinds[0];
    bp_import_llama(import, (struct bp_llama_defaults){.heads = 16, .kv_heads = 16, .intermediate_size = 5632});
    kind->qkv_bias = bp_import_flag(import, "qkv_bias", true);
    bp_import_experts(import, &(struct bp_import_experts){"num_experts", 60, "num_experts_per_tok", 4,
                                                          "moe_intermediate_size", 1408});
    kind->shared_intermediate_size = bp_import_size(import, "shared_expert_intermediate_size", 5632);
    kind->shared_gate = true;
    sparse_layers(import);
    sparse_window(import, true);
}

void bp_qwen3_moe_for_causal_lm(struct bp_import *import)
{
    bp_import_llama(import, (struct bp_llama_defaults){.kv_heads = 4, .intermediate_size = 6144});
    import->model.kinds[0].qk_norm = BP_QK_NORM_HEAD;
    bp_import_attention_bias(import, false);
    bp_import_experts(import,
                      &(struct bp_import_experts){bp_import_spelling(import, "num_experts", "num_local_experts"), 128,
                                                  "num_experts_per_tok", 8, "moe_intermediate_size", 768});
    sparse_layers(import);
    sparse_window(import, false);
}

void bp_gpt_oss_for_causal_lm(struct bp_import *import)
{
    struct bp_kind *kind = &import->model.kinds[0];
    bp_import_llama(import, (struct bp_llama_defaults){.heads = 64, .kv_heads = 8, .head_dim = 64});
    bp_import_attention_bias(import, true);
    bp_import_experts(
        import, &(struct bp_import_experts){bp_import_spelling(import, "num_local_experts", "num_experts"), 128,
                                            bp_import_spelling(import, "num_experts_per_tok", "experts_per_token"), 4,
                                            "intermediate_size", 2880});
    kind->router_bias = kind->expert_bias = kind->sinks = true;
    bool window = bp_import_window(import, 128, true);
    uint8_t *layers = bp_import_layers(import);
    bool listed = window && layers && bp_import_layer_types(import, "sliding_attention");
    for (uint64_t i = 0; layers && i < import->model.num_hidden_layers; i++)
        layers[i] |= (uint8_t)(BP_LAYER_EXPERT | (window && !listed && i % 2 == 0 ? BP_LAYER_LOCAL : 0));
}

/* Class defaults of DeepSeek's blocks. 0 experts a token: required. */
struct deepseek_defaults {
    uint64_t heads, intermediate_size, first_dense;
    struct bp_import_experts experts;
    uint64_t shared;
};

static void latent_attention(struct bp_import *import, uint64_t heads)
{
    struct bp_kind *kind = &import->model.kinds[0];
    static const char query_key[] = "q_lora_rank", key_key[] = "kv_lora_rank";
    kind->attention = BP_ATTENTION_LATENT;
    kind->num_attention_heads = kind->num_key_value_heads = bp_import_size(import, "num_attention_heads", heads);
    bp_import_spare(import, "num_key_value_heads"); /* every head has its own key and value */
    bp_import_spare(import, "head_dim");            /* which the class makes the rotary part */
    kind->q_lora_rank = bp_import_count(import, query_key, 1536);
    kind->kv_lora_rank = bp_import_size(import, key_key, 512);
    kind->qk_nope_head_dim = bp_import_size(import, "qk_nope_head_dim", 128);
    kind->qk_rope_head_dim = bp_import_size(import, "qk_rope_head_dim", 64);
    kind->v_head_dim = bp_import_size(import, "v_head_dim", 128);
    kind->head_dim = kind->qk_nope_head_dim + kind->qk_rope_head_dim;
    kind->rotary_dim = kind->qk_rope_head_dim;
}

/* The experts that every token takes are as one of their widths together. */
static void shared_experts(struct bp_import *import, uint64_t fallback)
{
    static const char key[] = "n_shared_experts";
    struct bp_kind *kind = &import->model.kinds[0];
    uint64_t n = bp_import_count(import, key, fallback), width = kind->expert_intermediate_size;
    if (width && n > BP_JSON_INT_MAX / width)
        bp_reader_problem(&import->reader, BP_E_out_of_range, key, "their width together is out of range");
    else
        kind->shared_intermediate_size = n * width;
}

/* The first layers are dense; of the others every `moe_layer_freq`-th has experts, a key of the first configs. */
static void experts_after(struct bp_import *import, uint64_t first_dense)
{
    static const char every_key[] = "moe_layer_freq";
    uint64_t first = bp_import_count(import, "first_k_dense_replace", first_dense);
    uint64_t every = bp_import_value(import, every_key) ? bp_import_size(import, every_key, 1) : 1;
    uint8_t *layers = bp_import_layers(import);
    if (!layers || !import->model.kinds[0].num_experts || !every)
        return;
    for (uint64_t i = first; i < import->model.num_hidden_layers; i++)
        if (i % every == 0)
            layers[i] |= BP_LAYER_EXPERT;
}

static void deepseek(struct bp_import *import, const struct deepseek_defaults *defaults)
{
    struct bp_model *model = &import->model;
    struct bp_kind *kind = &model->kinds[0];
    bp_import_sizes(import, 0);
    latent_attention(import, defaults->heads);
    kind->intermediate_size = bp_import_size(import, "intermediate_size", defaults->intermediate_size);
    model->position = BP_POSITION_ROPE;
    model->norm = BP_NORM_RMSNORM;
    kind->activation = bp_import_activation(import, "hidden_act", "silu", true);
    kind->attention_dropout = bp_import_dropout(import, "attention_dropout", false);
    model->tie_word_embeddings = bp_import_tied(import, false);
    bp_import_attention_bias(import, false);
    bp_import_experts(import, &defaults->experts);
    shared_experts(import, defaults->shared);
    experts_after(import, defaults->first_dense);
    bp_import_next_token_layers(import);
}

void bp_deepseek_v2_for_causal_lm(struct bp_import *import)
{
    static const struct deepseek_defaults defaults = {
        32, 11008, 0, {"n_routed_experts", 64, "num_experts_per_tok", 0, "moe_intermediate_size", 1407}, 2};
    deepseek(import, &defaults);
}

void bp_deepseek_v3_for_causal_lm(struct bp_import *import)
{
    static const struct deepseek_defaults defaults = {
        128, 18432, 3, {"n_routed_experts", 256, "num_experts_per_tok", 8, "moe_intermediate_size", 2048}, 1};
    import->model.kinds[0].score_correction_bias = true;
    deepseek(import, &defaults);
}

void bp_glm4_moe_for_causal_lm(struct bp_import *import)
{
    struct bp_kind *kind = &import->model.kinds[0];
    bp_import_llama(import, (struct bp_llama_defaults){.heads = 96, .kv_heads = 8, .intermediate_size = 10944});
    bp_import_rotary(import, "partial_rotary_factor", 0.5);
    kind->qkv_bias = bp_import_flag(import, "attention_bias", false); /* not of the output */
    kind->qk_norm = bp_import_flag(import, "use_qk_norm", false) ? BP_QK_NORM_HEAD : BP_QK_NORM_NONE;
    kind->score_correction_bias = true;
    bp_import_experts(import, &(struct bp_import_experts){"n_routed_experts", 128, "num_experts_per_tok", 8,
                                                          "moe_intermediate_size", 1408});
    shared_experts(import, 1);
    experts_after(import, 1);
    bp_import_next_token_layers(import);
}

/* Layers without rotation attend fully, the others within chunks, where the config does not say which do what. */
static void llama4_attention(struct bp_import *import)
{
    static const char chunk_key[] = "attention_chunk_size", list_key[] = "no_rope_layers";
    const json_t *list = bp_import_value(import, list_key), *rotated = json_array_size(list) ? list : NULL;
    uint64_t interval = rotated ? 0 : bp_import_size(import, "no_rope_layer_interval", 4);
    uint64_t chunk = bp_import_count(import, chunk_key, 8192), n = import->model.num_hidden_layers;
    import->model.kinds[0].window = chunk;
    import->model.kinds[0].chunked = chunk > 0;
    if (rotated && json_array_size(rotated) < n)
        bp_reader_problem(&import->reader, BP_E_conflict, list_key, "must have a member for each of %llu layers",
                          (unsigned long long)n);
    bool listed = bp_import_layer_types(import, "chunked_attention");
    for (uint64_t i = 0; i < n; i++) {
        bool rope = rotated ? json_integer_value(json_array_get(rotated, i)) != 0 : interval && (i + 1) % interval != 0;
        if (!rope)
            import->layers[i] |= BP_LAYER_WITHOUT_ROPE;
        if (rope && chunk && !listed)
            import->layers[i] |= BP_LAYER_LOCAL;
    }
}

static void llama4_experts(struct bp_import *import)
{
    struct bp_kind *kind = &import->model.kinds[0];
    kind->intermediate_size = bp_import_size(import, "intermediate_size_mlp", 16384);
    bp_import_experts(import, &(struct bp_import_experts){"num_local_experts", 16, "num_experts_per_tok", 1,
                                                          "intermediate_size", 8192});
    kind->shared_intermediate_size = kind->expert_intermediate_size;
    if (bp_import_layer_list(import, "moe_layers", BP_LAYER_EXPERT, 0))
        return;
    uint64_t step = bp_import_size(import, "interleave_moe_layer_step", 1);
    for (uint64_t i = 0; step && i < import->model.num_hidden_layers; i++)
        if ((i + 1) % step == 0)
            import->layers[i] |= BP_LAYER_EXPERT;
}

void bp_llama4_for_causal_lm(struct bp_import *import)
{
    struct bp_kind *kind = &import->model.kinds[0];
    bp_import_llama(import, (struct bp_llama_defaults){.heads = 40, .kv_heads = 8, .head_dim = 128});
    if (bp_import_flag(import, "use_qk_norm", true))
        kind->qk_norm = BP_QK_NORM_WITHOUT_WEIGHT;
    bp_import_attention_bias(import, false);
    if (!bp_import_layers(import))
        return;
    llama4_experts(import);
    llama4_attention(import);
}
