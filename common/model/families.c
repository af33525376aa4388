/* One function a family, named after the public modelling class whose tensors it counts. */
#include "common/model/import.h"

static bp_u128 affine_width(const struct bp_model *model)
{
    return model->norm == BP_NORM_LAYERNORM ? 2 * (bp_u128)model->hidden_size : model->hidden_size;
}

static void add_per_layer(struct bp_import *import, bp_u128 parameters)
{
    import->added =
        bp_add(&import->calc, import->added, bp_mul(&import->calc, import->model.num_hidden_layers, parameters));
}

/* Biases of query, key, value and output, which the rows can express only together with those of the MLP. */
static void refuse_bias_of_attention_alone(struct bp_import *import)
{
    const struct bp_model *model = &import->model;
    bp_u128 columns =
        BP_SUM(&import->calc, model->num_attention_heads, model->num_key_value_heads, model->num_key_value_heads);
    add_per_layer(import, bp_add(&import->calc, bp_mul(&import->calc, columns, model->head_dim), model->hidden_size));
    bp_import_refuse(import, "attention_bias", "a bias of the attention but not of the MLP");
}

/* Query, key, value, output of the cross-attention and its norm. */
static void refuse_cross_attention(struct bp_import *import)
{
    bp_u128 H = import->model.hidden_size;
    add_per_layer(import, BP_SUM(&import->calc, BP_PROD(&import->calc, 4, H, H), 4 * H, 2 * H));
    bp_import_refuse(import, "add_cross_attention", "cross-attention");
}

static uint64_t four_times(struct bp_import *import, const char *key, uint64_t hidden)
{
    uint64_t width = bp_import_size(import, key, hidden <= BP_JSON_INT_MAX / 4 ? 4 * hidden : 0);
    if (hidden > BP_JSON_INT_MAX / 4 && !bp_import_value(import, key))
        bp_reader_problem(&import->reader, BP_E_out_of_range, key, "four times the hidden size is out of range");
    return width;
}

void bp_gpt2_lm_head_model(struct bp_import *import)
{
    struct bp_model *model = &import->model;
    const char *heads_key = bp_import_spelling(import, "n_head", "num_attention_heads");
    model->hidden_size = bp_import_required(import, bp_import_spelling(import, "n_embd", "hidden_size"));
    model->num_hidden_layers = bp_import_required(import, bp_import_spelling(import, "n_layer", "num_hidden_layers"));
    model->vocab_size = bp_import_required(import, "vocab_size");
    model->num_attention_heads = model->num_key_value_heads = bp_import_size(import, heads_key, 12);
    bp_import_split_heads(import, heads_key);
    model->intermediate_size = four_times(import, "n_inner", model->hidden_size);
    model->position = BP_POSITION_LEARNED;
    model->max_position_embeddings =
        bp_import_size(import, bp_import_spelling(import, "n_positions", "max_position_embeddings"), 1024);
    model->norm = BP_NORM_LAYERNORM;
    model->bias = true;
    model->activation = bp_import_activation(import, "activation_function", "gelu_new", false);
    model->hidden_dropout = bp_import_dropout(import, "resid_pdrop", true);
    model->attention_dropout = bp_import_dropout(import, "attn_pdrop", true);
    model->embedding_dropout = bp_import_dropout(import, "embd_pdrop", true);
    model->tie_word_embeddings = bp_import_flag(import, "tie_word_embeddings", true);
    if (bp_import_flag(import, "add_cross_attention", false))
        refuse_cross_attention(import);
}

/* OPT embeds tokens in `word_embed_proj_dim` columns and projects them to the hidden size and back, without bias. */
static void opt_word_embedding(struct bp_import *import)
{
    const struct bp_model *model = &import->model;
    struct bp_calc *calc = &import->calc;
    uint64_t width = bp_import_size(import, "word_embed_proj_dim", model->hidden_size);
    bp_u128 tables = model->tie_word_embeddings ? 1 : 2;
    if (!width || !model->hidden_size || width == model->hidden_size)
        return;
    import->added = BP_SUM(calc, import->added, BP_PROD(calc, tables, model->vocab_size, width),
                           BP_PROD(calc, 2, width, model->hidden_size));
    import->absent = bp_add(calc, import->absent, BP_PROD(calc, tables, model->vocab_size, model->hidden_size));
    bp_import_refuse(import, "word_embed_proj_dim", "a word embedding of another width than the hidden size");
}

static void opt_norms(struct bp_import *import)
{
    bool before = bp_import_flag(import, "do_layer_norm_before", true);
    bool final_removed = bp_import_flag(import, "_remove_final_layer_norm", false);
    bool affine = bp_import_flag(import, "layer_norm_elementwise_affine", true);
    bp_u128 width = affine_width(&import->model), norms = before && !final_removed ? 0 : 1;
    if (!affine)
        norms = bp_add(&import->calc, bp_mul(&import->calc, 2, import->model.num_hidden_layers), 1);
    import->absent = bp_add(&import->calc, import->absent, bp_mul(&import->calc, norms, width));
    if (!before)
        bp_import_refuse(import, "do_layer_norm_before", "a norm after the residual");
    if (before && final_removed)
        bp_import_refuse(import, "_remove_final_layer_norm", "a model without final norm");
    if (!affine)
        bp_import_refuse(import, "layer_norm_elementwise_affine", "a norm without weights");
}

void bp_opt_for_causal_lm(struct bp_import *import)
{
    struct bp_model *model = &import->model;
    static const char heads_key[] = "num_attention_heads", positions_key[] = "max_position_embeddings";
    model->hidden_size = bp_import_required(import, "hidden_size");
    model->num_hidden_layers = bp_import_required(import, "num_hidden_layers");
    model->vocab_size = bp_import_required(import, "vocab_size");
    model->num_attention_heads = model->num_key_value_heads = bp_import_size(import, heads_key, 12);
    bp_import_split_heads(import, heads_key);
    model->intermediate_size = bp_import_size(import, "ffn_dim", 3072);
    model->position = BP_POSITION_LEARNED;
    import->position_offset = 2; /* the class's table begins with two rows that no token uses */
    model->max_position_embeddings = bp_import_size(import, positions_key, 2048);
    if (model->max_position_embeddings > BP_JSON_INT_MAX - import->position_offset)
        bp_reader_problem(&import->reader, BP_E_out_of_range, positions_key, "the table has two rows more than this");
    else if (model->max_position_embeddings)
        model->max_position_embeddings += import->position_offset;
    model->norm = BP_NORM_LAYERNORM;
    model->bias = bp_import_flag(import, "enable_bias", true);
    model->activation = bp_import_activation(import, "activation_function", "relu", false);
    model->hidden_dropout = bp_import_dropout(import, "dropout", true);
    model->attention_dropout = bp_import_dropout(import, "attention_dropout", false);
    model->tie_word_embeddings = bp_import_flag(import, "tie_word_embeddings", true);
    opt_word_embedding(import);
    opt_norms(import);
}

void bp_gpt_neox_for_causal_lm(struct bp_import *import)
{
    struct bp_model *model = &import->model;
    static const char heads_key[] = "num_attention_heads";
    model->hidden_size = bp_import_required(import, "hidden_size");
    model->num_hidden_layers = bp_import_required(import, "num_hidden_layers");
    model->vocab_size = bp_import_required(import, "vocab_size");
    model->num_attention_heads = model->num_key_value_heads = bp_import_size(import, heads_key, 64);
    bp_import_split_heads(import, heads_key);
    model->intermediate_size = bp_import_size(import, "intermediate_size", 24576);
    model->position = BP_POSITION_ROPE;
    model->norm = BP_NORM_LAYERNORM;
    model->activation = bp_import_activation(import, "hidden_act", "gelu", false);
    model->attention_dropout = bp_import_dropout(import, "attention_dropout", false);
    model->hidden_dropout = bp_import_dropout(import, "hidden_dropout", false);
    model->embedding_dropout = model->hidden_dropout;
    model->tie_word_embeddings = bp_import_flag(import, "tie_word_embeddings", false);
    model->bias = bp_import_flag(import, "attention_bias", true);
    if (!model->bias) {
        add_per_layer(import, (bp_u128)model->intermediate_size + model->hidden_size);
        bp_import_refuse(import, "attention_bias", "a bias of the MLP but not of the attention");
    }
    if (bp_import_flag(import, "use_parallel_residual", true))
        bp_import_refuse(import, "use_parallel_residual", "attention and MLP side by side");
    bp_import_rotary(import, "rotary_pct", false);
}

/* Class defaults of the families built like Llama: RMSNorm, rotary positions, a gated MLP, no dropout but of the
 * scores. 0 key/value heads: as many as heads; head size 0: the quotient. */
struct llama_defaults {
    uint64_t kv_heads, head_dim, intermediate_size;
};

static void llama_like(struct bp_import *import, struct llama_defaults defaults)
{
    struct bp_model *model = &import->model;
    static const char heads_key[] = "num_attention_heads";
    model->hidden_size = bp_import_required(import, "hidden_size");
    model->num_hidden_layers = bp_import_required(import, "num_hidden_layers");
    model->vocab_size = bp_import_required(import, "vocab_size");
    model->num_attention_heads = bp_import_size(import, heads_key, 32);
    bp_import_kv_heads(import, defaults.kv_heads ? defaults.kv_heads : model->num_attention_heads);
    bp_import_head_dim(import, heads_key, defaults.head_dim);
    model->intermediate_size = bp_import_size(import, "intermediate_size", defaults.intermediate_size);
    model->position = BP_POSITION_ROPE;
    model->norm = BP_NORM_RMSNORM;
    model->activation = bp_import_activation(import, "hidden_act", "silu", true);
    model->attention_dropout = bp_import_dropout(import, "attention_dropout", false);
    model->tie_word_embeddings = bp_import_flag(import, "tie_word_embeddings", false);
}

void bp_llama_for_causal_lm(struct bp_import *import)
{
    struct bp_model *model = &import->model;
    llama_like(import, (struct llama_defaults){.intermediate_size = 11008});
    bool attention_bias = bp_import_flag(import, "attention_bias", false);
    bool mlp_bias = bp_import_flag(import, "mlp_bias", false);
    model->bias = attention_bias && mlp_bias;
    if (attention_bias && !mlp_bias)
        refuse_bias_of_attention_alone(import);
    if (mlp_bias && !attention_bias) {
        add_per_layer(import,
                      BP_SUM(&import->calc, bp_mul(&import->calc, 2, model->intermediate_size), model->hidden_size));
        bp_import_refuse(import, "mlp_bias", "a bias of the MLP but not of the attention");
    }
    bp_import_window(import, false, true);
}

void bp_mistral_for_causal_lm(struct bp_import *import)
{
    llama_like(import, (struct llama_defaults){.kv_heads = 8, .intermediate_size = 14336});
    bp_import_window(import, true, true);
}

void bp_qwen2_for_causal_lm(struct bp_import *import)
{
    llama_like(import, (struct llama_defaults){.kv_heads = 32, .intermediate_size = 22016});
    import->model.qkv_bias = true;
    bp_import_window(import, true, false);
}

void bp_qwen3_for_causal_lm(struct bp_import *import)
{
    llama_like(import, (struct llama_defaults){.kv_heads = 32, .head_dim = 128, .intermediate_size = 22016});
    import->model.qk_norm = true;
    if (bp_import_flag(import, "attention_bias", false))
        refuse_bias_of_attention_alone(import);
    bp_import_window(import, true, false);
}
