/* Families of one kind of block that attends fully or within one window, and computes attention and MLP one after the
 * other. One function a family, named after the public modelling class whose tensors it describes. */
#include "common/model/import.h"

void bp_gpt2_lm_head_model(struct bp_import *import)
{
    struct bp_model *model = &import->model;
    struct bp_kind *kind = &model->kinds[0];
    bp_import_gpt_sizes(import, 12);
    model->position = BP_POSITION_LEARNED;
    model->max_position_embeddings =
        bp_import_size(import, bp_import_spelling(import, "n_positions", "max_position_embeddings"), 1024);
    model->norm = BP_NORM_LAYERNORM;
    kind->qkv_bias = kind->output_bias = kind->mlp_bias = true;
    kind->activation = bp_import_activation(import, "activation_function", "gelu_new", false);
    kind->hidden_dropout = bp_import_dropout(import, "resid_pdrop", true);
    kind->attention_dropout = bp_import_dropout(import, "attn_pdrop", true);
    model->embedding_dropout = bp_import_dropout(import, "embd_pdrop", true);
    model->tie_word_embeddings = bp_import_tied(import, true);
    kind->cross_attention = bp_import_flag(import, "add_cross_attention", false);
    if (kind->cross_attention)
        bp_import_refuse(import, "add_cross_attention", "cross-attention");
}

/* OPT embeds tokens in `word_embed_proj_dim` columns and projects them to the hidden size and back, without bias. */
static void opt_word_embedding(struct bp_import *import)
{
    struct bp_model *model = &import->model;
    uint64_t width = bp_import_size(import, "word_embed_proj_dim", model->hidden_size);
    if (!width || !model->hidden_size || width == model->hidden_size)
        return;
    model->word_embed_proj_dim = width;
}

static void opt_norms(struct bp_import *import)
{
    struct bp_model *model = &import->model;
    bool before = bp_import_flag(import, "do_layer_norm_before", true);
    bool final_removed = bp_import_flag(import, "_remove_final_layer_norm", false);
    model->norm_without_weight = !bp_import_flag(import, "layer_norm_elementwise_affine", true);
    model->final_norm_absent = !before || final_removed;
    if (!before)
        model->kinds[0].norm_place = BP_NORM_PLACE_AFTER_RESIDUAL;
}

void bp_opt_for_causal_lm(struct bp_import *import)
{
    struct bp_model *model = &import->model;
    struct bp_kind *kind = &model->kinds[0];
    static const char heads_key[] = "num_attention_heads", positions_key[] = "max_position_embeddings";
    bp_import_sizes(import, 0);
    kind->num_attention_heads = kind->num_key_value_heads = bp_import_size(import, heads_key, 12);
    bp_import_split_heads(import, heads_key);
    kind->intermediate_size = bp_import_size(import, "ffn_dim", 3072);
    model->position = BP_POSITION_LEARNED;
    import->position_offset = 2; /* the class's table begins with two rows that no token uses */
    model->max_position_embeddings = bp_import_size(import, positions_key, 2048);
    if (model->max_position_embeddings > BP_JSON_INT_MAX - import->position_offset)
        bp_reader_problem(&import->reader, BP_E_out_of_range, positions_key, "the table has two rows more than this");
    else if (model->max_position_embeddings)
        model->max_position_embeddings += import->position_offset;
    model->norm = BP_NORM_LAYERNORM;
    kind->qkv_bias = kind->output_bias = kind->mlp_bias = bp_import_flag(import, "enable_bias", true);
    kind->activation = bp_import_activation(import, "activation_function", "relu", false);
    kind->hidden_dropout = bp_import_dropout(import, "dropout", true);
    kind->attention_dropout = bp_import_dropout(import, "attention_dropout", false);
    model->tie_word_embeddings = bp_import_tied(import, true);
    opt_word_embedding(import);
    opt_norms(import);
}

void bp_llama_for_causal_lm(struct bp_import *import)
{
    struct bp_kind *kind = &import->model.kinds[0];
    bp_import_llama(import, (struct bp_llama_defaults){.intermediate_size = 11008});
    kind->qkv_bias = kind->output_bias = bp_import_flag(import, "attention_bias", false);
    kind->mlp_bias = bp_import_flag(import, "mlp_bias", false);
    bp_import_window(import, 0, true);
}

void bp_mistral_for_causal_lm(struct bp_import *import)
{
    bp_import_llama(import, (struct bp_llama_defaults){.kv_heads = 8, .intermediate_size = 14336});
    bp_import_window(import, 4096, true);
}

/* The first `max_window_layers` attend fully, where layer_types does not say which. */
static void qwen_window(struct bp_import *import)
{
    if (!bp_import_window(import, 4096, false) || !bp_import_layers(import))
        return;
    if (bp_import_layer_types(import, "sliding_attention"))
        return;
    uint64_t full = bp_import_count(import, "max_window_layers", 28);
    for (uint64_t i = full; i < import->model.num_hidden_layers; i++)
        import->layers[i] |= BP_LAYER_LOCAL;
}

void bp_qwen2_for_causal_lm(struct bp_import *import)
{
    bp_import_llama(import, (struct bp_llama_defaults){.kv_heads = 32, .intermediate_size = 22016});
    import->model.kinds[0].qkv_bias = true;
    qwen_window(import);
}

void bp_qwen3_for_causal_lm(struct bp_import *import)
{
    bp_import_llama(import, (struct bp_llama_defaults){.kv_heads = 32, .head_dim = 128, .intermediate_size = 22016});
    import->model.kinds[0].qk_norm = BP_QK_NORM_HEAD;
    bp_import_attention_bias(import, false);
    qwen_window(import);
}

/* Its projections of query, key and value are one tensor, as are gate and up: the same numbers. */
void bp_phi3_for_causal_lm(struct bp_import *import)
{
    struct bp_model *model = &import->model;
    bp_import_llama(import, (struct bp_llama_defaults){.intermediate_size = 8192});
    model->kinds[0].hidden_dropout = bp_import_dropout(import, "resid_pdrop", false);
    model->embedding_dropout = bp_import_dropout(import, "embd_pdrop", false);
    bp_import_rotary(import, "partial_rotary_factor", 1);
    bp_import_window(import, 0, true);
}

void bp_starcoder2_for_causal_lm(struct bp_import *import)
{
    struct bp_model *model = &import->model;
    struct bp_kind *kind = &model->kinds[0];
    static const char heads_key[] = "num_attention_heads";
    bp_import_sizes(import, 0);
    kind->num_attention_heads = bp_import_size(import, heads_key, 24);
    bp_import_kv_heads(import, 2);
    bp_import_head_dim(import, heads_key, 0);
    kind->intermediate_size = bp_import_size(import, "intermediate_size", 12288);
    model->position = BP_POSITION_ROPE;
    bp_import_rotary(import, NULL, 1);
    model->norm = BP_NORM_LAYERNORM;
    kind->qkv_bias = kind->output_bias = kind->mlp_bias = bp_import_flag(import, "use_bias", true);
    kind->activation = bp_import_activation(import, "hidden_act", "gelu_pytorch_tanh", false);
    kind->hidden_dropout = bp_import_dropout(import, "residual_dropout", false);
    kind->attention_dropout = bp_import_dropout(import, "attention_dropout", false);
    model->embedding_dropout = bp_import_dropout(import, "embedding_dropout", false);
    model->tie_word_embeddings = bp_import_tied(import, true);
    bp_import_window(import, 0, true);
}

/* Norms stand after each branch, and those of query and key span all their heads. */
void bp_olmo2_for_causal_lm(struct bp_import *import)
{
    struct bp_kind *kind = &import->model.kinds[0];
    bp_import_llama(import, (struct bp_llama_defaults){.intermediate_size = 11008});
    kind->norm_place = BP_NORM_PLACE_AFTER;
    kind->qk_norm = BP_QK_NORM_SPAN;
    bp_import_attention_bias(import, false);
}
