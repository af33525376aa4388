/* Families whose blocks compute attention and MLP side by side, or place norms, positions and biases in ways of their
 * own. One function a family, named after the public modelling class whose tensors it describes. */
#include "common/model/import.h"

static void side_by_side(struct bp_import *import, enum bp_norm_place norms)
{
    import->model.kinds[0].residual = BP_RESIDUAL_PARALLEL;
    import->model.kinds[0].norm_place = norms;
}

void bp_gpt_neox_for_causal_lm(struct bp_import *import)
{
    struct bp_model *model = &import->model;
    struct bp_kind *kind = &model->kinds[0];
    static const char heads_key[] = "num_attention_heads";
    bp_import_sizes(import, 0);
    kind->num_attention_heads = kind->num_key_value_heads = bp_import_size(import, heads_key, 64);
    bp_import_split_heads(import, heads_key);
    kind->intermediate_size = bp_import_size(import, "intermediate_size", 24576);
    model->position = BP_POSITION_ROPE;
    model->norm = BP_NORM_LAYERNORM;
    kind->activation = bp_import_activation(import, "hidden_act", "gelu", false);
    kind->attention_dropout = bp_import_dropout(import, "attention_dropout", false);
    kind->hidden_dropout = bp_import_dropout(import, "hidden_dropout", false);
    model->embedding_dropout = kind->hidden_dropout;
    model->tie_word_embeddings = bp_import_tied(import, false);
    kind->qkv_bias = kind->output_bias = bp_import_flag(import, "attention_bias", true);
    kind->mlp_bias = true;
    if (bp_import_flag(import, "use_parallel_residual", true))
        side_by_side(import, BP_NORM_PLACE_BEFORE); /* two norms all the same */
    bp_import_rotary(import, "rotary_pct", 0.25);
}

void bp_gptj_for_causal_lm(struct bp_import *import)
{
    struct bp_model *model = &import->model;
    struct bp_kind *kind = &model->kinds[0];
    bp_import_gpt_sizes(import, 16);
    model->position = BP_POSITION_ROPE;
    bool whole = json_is_null(bp_import_peek(import, "rotary_dim"));
    kind->rotary_dim = whole ? kind->head_dim : bp_import_size(import, "rotary_dim", 64);
    if (kind->head_dim && kind->rotary_dim > kind->head_dim)
        bp_reader_problem(&import->reader, BP_E_out_of_range, "rotary_dim", "a head has %llu elements",
                          (unsigned long long)kind->head_dim);
    model->norm = BP_NORM_LAYERNORM;
    kind->mlp_bias = model->head_bias = true;
    kind->activation = bp_import_activation(import, "activation_function", "gelu_new", false);
    kind->hidden_dropout = bp_import_dropout(import, "resid_pdrop", false);
    kind->attention_dropout = bp_import_dropout(import, "attn_pdrop", false);
    model->embedding_dropout = bp_import_dropout(import, "embd_pdrop", false);
    model->tie_word_embeddings = bp_import_tied(import, false);
    side_by_side(import, BP_NORM_PLACE_SHARED);
}

void bp_phi_for_causal_lm(struct bp_import *import)
{
    struct bp_model *model = &import->model;
    struct bp_kind *kind = &model->kinds[0];
    static const char heads_key[] = "num_attention_heads";
    bp_import_sizes(import, 0);
    kind->num_attention_heads = bp_import_size(import, heads_key, 32);
    bp_import_kv_heads(import, kind->num_attention_heads);
    bp_import_head_dim(import, heads_key, 0);
    kind->intermediate_size = bp_import_size(import, "intermediate_size", 8192);
    model->position = BP_POSITION_ROPE;
    bp_import_rotary(import, "partial_rotary_factor", 0.5);
    model->norm = BP_NORM_LAYERNORM;
    kind->qkv_bias = kind->output_bias = kind->mlp_bias = model->head_bias = true;
    kind->qk_norm = bp_import_flag(import, "qk_layernorm", false) ? BP_QK_NORM_HEAD : BP_QK_NORM_NONE;
    kind->qk_norm_bias = kind->qk_norm == BP_QK_NORM_HEAD;
    kind->activation = bp_import_activation(import, "hidden_act", "gelu_new", false);
    kind->hidden_dropout = bp_import_dropout(import, "resid_pdrop", false);
    kind->attention_dropout = bp_import_dropout(import, "attention_dropout", false);
    model->embedding_dropout = bp_import_dropout(import, "embd_pdrop", false);
    model->tie_word_embeddings = bp_import_tied(import, false);
    side_by_side(import, BP_NORM_PLACE_SHARED);
}

/* Key/value heads: their number in the newer architecture; one with multi_query, whatever that says; else the heads. */
static void falcon_heads(struct bp_import *import, bool newer)
{
    struct bp_kind *kind = &import->model.kinds[0];
    const char *heads_key = bp_import_spelling(import, "num_attention_heads", "n_head");
    const char *kv_key = bp_import_spelling(import, "num_kv_heads", "n_head_kv");
    bool one = bp_import_flag(import, "multi_query", true);
    uint64_t heads = bp_import_size(import, heads_key, 71);
    kind->num_attention_heads = heads;
    kind->num_key_value_heads = newer ? bp_import_size(import, kv_key, heads) : one ? 1 : heads;
    bp_import_split_heads(import, heads_key);
    if (kind->num_key_value_heads && heads % kind->num_key_value_heads != 0)
        bp_reader_problem(&import->reader, BP_E_not_divisible, kv_key, "%llu heads are not divisible by it (%llu)",
                          (unsigned long long)heads, (unsigned long long)kind->num_key_value_heads);
}

static void falcon_norms(struct bp_import *import, bool newer)
{
    static const char norms_key[] = "num_ln_in_parallel_attn";
    bool parallel = bp_import_flag(import, "parallel_attn", true);
    bool two = bp_import_value(import, norms_key) ? bp_reader_uint(&import->reader, norms_key, 1, 2, 1) == 2 : newer;
    if (parallel)
        side_by_side(import, two ? BP_NORM_PLACE_BEFORE : BP_NORM_PLACE_SHARED);
}

void bp_falcon_for_causal_lm(struct bp_import *import)
{
    struct bp_model *model = &import->model;
    struct bp_kind *kind = &model->kinds[0];
    bool newer = bp_import_flag(import, "new_decoder_architecture", false);
    model->hidden_size = bp_import_required(import, bp_import_spelling(import, "hidden_size", "n_embed"));
    model->num_hidden_layers = bp_import_required(import, bp_import_spelling(import, "num_hidden_layers", "n_layer"));
    model->vocab_size = bp_import_required(import, "vocab_size");
    falcon_heads(import, newer);
    falcon_norms(import, newer);
    kind->intermediate_size = bp_import_four_times_hidden(import, "ffn_hidden_size");
    model->position = bp_import_flag(import, "alibi", false) ? BP_POSITION_ALIBI : BP_POSITION_ROPE;
    if (model->position == BP_POSITION_ROPE)
        bp_import_rotary(import, NULL, 1);
    model->norm = BP_NORM_LAYERNORM;
    kind->qkv_bias = kind->output_bias = kind->mlp_bias = bp_import_flag(import, "bias", false);
    kind->activation = bp_import_activation(import, "activation", "gelu", false);
    kind->hidden_dropout = bp_import_dropout(import, "hidden_dropout", false);
    kind->attention_dropout = bp_import_dropout(import, "attention_dropout", false);
    model->tie_word_embeddings = bp_import_tied(import, true);
}

void bp_bloom_for_causal_lm(struct bp_import *import)
{
    struct bp_model *model = &import->model;
    struct bp_kind *kind = &model->kinds[0];
    const char *heads_key = bp_import_spelling(import, "n_head", "num_attention_heads");
    model->hidden_size = bp_import_required(import, bp_import_spelling(import, "hidden_size", "n_embed"));
    model->num_hidden_layers = bp_import_required(import, bp_import_spelling(import, "n_layer", "num_hidden_layers"));
    model->vocab_size = bp_import_required(import, "vocab_size");
    kind->num_attention_heads = kind->num_key_value_heads = bp_import_size(import, heads_key, 8);
    bp_import_split_heads(import, heads_key);
    if (model->hidden_size > BP_JSON_INT_MAX / 4)
        bp_reader_problem(&import->reader, BP_E_out_of_range, "hidden_size", "four times this is out of range");
    kind->intermediate_size = 4 * model->hidden_size;
    model->position = BP_POSITION_ALIBI;
    model->norm = BP_NORM_LAYERNORM;
    model->embedding_norm = true;
    kind->qkv_bias = kind->output_bias = kind->mlp_bias = true;
    kind->activation = BP_ACTIVATION_GELU;
    kind->hidden_dropout = bp_import_dropout(import, "hidden_dropout", false);
    kind->attention_dropout = bp_import_dropout(import, "attention_dropout", false);
    model->tie_word_embeddings = bp_import_tied(import, true);
}

/* Each head of query and key has a norm with weights of its own, without bias. */
static void norms_of_each_head(struct bp_import *import, const char *key)
{
    if (bp_import_flag(import, key, false))
        import->model.kinds[0].qk_norm = BP_QK_NORM_EACH_HEAD;
}

void bp_stablelm_for_causal_lm(struct bp_import *import)
{
    struct bp_model *model = &import->model;
    struct bp_kind *kind = &model->kinds[0];
    bp_import_llama(import, (struct bp_llama_defaults){.kv_heads = 32, .intermediate_size = 6912});
    model->norm = BP_NORM_LAYERNORM;
    kind->qkv_bias = bp_import_flag(import, "use_qkv_bias", false);
    norms_of_each_head(import, "qk_layernorm");
    kind->hidden_dropout = bp_import_dropout(import, "hidden_dropout", false);
    if (kind->hidden_dropout)
        bp_import_refuse(import, "hidden_dropout", "dropout after the MLP alone");
    if (bp_import_flag(import, "use_parallel_residual", false))
        side_by_side(import, BP_NORM_PLACE_SHARED);
    bp_import_rotary(import, "partial_rotary_factor", 0.25);
}

void bp_cohere_for_causal_lm(struct bp_import *import)
{
    struct bp_model *model = &import->model;
    bp_import_llama(import, (struct bp_llama_defaults){.heads = 64, .intermediate_size = 22528, .tied = true});
    model->norm = BP_NORM_LAYERNORM;
    model->norm_without_bias = true;
    norms_of_each_head(import, "use_qk_norm");
    bp_import_attention_bias(import, false);
    side_by_side(import, BP_NORM_PLACE_SHARED);
}
