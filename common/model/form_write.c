/* The keys of the transformer form, and its canonical text. */
#include "common/model/form.h"

#include <stddef.h>
#include <string.h>

uint64_t bp_form_usual_rotary_dim(const struct bp_model *model, const struct bp_kind *kind)
{
    if (model->position != BP_POSITION_ROPE)
        return 0;
    return kind->attention == BP_ATTENTION_LATENT ? kind->qk_rope_head_dim : kind->head_dim;
}

bool bp_form_usual_qk_norm_bias(const struct bp_model *model, const struct bp_kind *kind)
{
    return kind->qk_norm == BP_QK_NORM_HEAD && model->norm == BP_NORM_LAYERNORM && !model->norm_without_bias;
}

static void write_true(struct bp_writer *writer, const char *key)
{
    bp_writer_put_bool(writer, key, true);
}

static void write_bias(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind)
{
    (void)model;
    if (bp_kind_bias(kind))
        write_true(writer, "bias");
}

static void write_mlp_bias(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind)
{
    (void)model;
    if (kind->mlp_bias && !bp_kind_bias(kind))
        write_true(writer, "mlp_bias");
}

static void write_output_bias(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind)
{
    (void)model;
    if (kind->output_bias && !bp_kind_bias(kind))
        write_true(writer, "output_bias");
}

static void write_qkv_bias(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind)
{
    (void)model;
    if (kind->qkv_bias && !bp_kind_bias(kind))
        write_true(writer, "qkv_bias");
}

/* Latent attention has head sizes and key/value heads that follow from its own dimensions. */
static void write_head_dim(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind)
{
    bool quotient = (bp_u128)kind->head_dim * kind->num_attention_heads == model->hidden_size;
    if (kind->attention == BP_ATTENTION_HEADS && !quotient)
        bp_writer_put_uint(writer, "head_dim", kind->head_dim);
}

static void write_kv_heads(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind)
{
    (void)model;
    if (kind->attention == BP_ATTENTION_HEADS && kind->num_key_value_heads != kind->num_attention_heads)
        bp_writer_put_uint(writer, "num_key_value_heads", kind->num_key_value_heads);
}

static void write_rotary_dim(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind)
{
    if (kind->rotary_dim != bp_form_usual_rotary_dim(model, kind))
        bp_writer_put_uint(writer, "rotary_dim", kind->rotary_dim);
}

static void write_qk_norm(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind)
{
    (void)model;
    if (kind->qk_norm != BP_QK_NORM_NONE)
        write_true(writer, "qk_norm");
}

static void write_qk_norm_bias(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind)
{
    if (kind->qk_norm_bias == bp_form_usual_qk_norm_bias(model, kind))
        return;
    bp_writer_put_bool(writer, "qk_norm_bias", kind->qk_norm_bias);
}

static void write_qk_norm_form(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind)
{
    (void)model;
    if (kind->qk_norm > BP_QK_NORM_HEAD)
        bp_writer_put_string(writer, "qk_norm_form", bp_qk_norm_names[kind->qk_norm]);
}

static void write_max_positions(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind)
{
    (void)kind;
    if (model->position == BP_POSITION_LEARNED)
        bp_writer_put_uint(writer, "max_position_embeddings", model->max_position_embeddings);
}

static void write_keys(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind,
                       unsigned scopes);

static void write_kinds(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind)
{
    (void)kind;
    if (model->n_kinds == 1)
        return;
    bp_writer_key(writer, "kinds");
    bp_writer_array(writer);
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        bp_writer_object(writer);
        write_keys(writer, model, &model->kinds[i], BP_FORM_KIND | BP_FORM_KIND_NAME);
        bp_writer_end(writer);
    }
    bp_writer_end(writer);
}

/* Runs as long as they go. */
static void write_layers(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind)
{
    (void)kind;
    if (model->n_kinds == 1)
        return;
    bp_writer_key(writer, "layers");
    bp_writer_array(writer);
    for (uint64_t first = 0, next; first < model->num_hidden_layers; first = next) {
        const uint8_t at = model->layer_kinds[first];
        for (next = first; next < model->num_hidden_layers && model->layer_kinds[next] == at; next++)
            ;
        bp_writer_object(writer);
        bp_writer_put_uint(writer, "count", next - first);
        bp_writer_put_string(writer, "kind", model->kinds[at].name);
        bp_writer_end(writer);
    }
    bp_writer_end(writer);
}

static void write_label(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind)
{
    (void)kind;
    bp_writer_put_string(writer, "name", model->name);
}

static void write_kind_name(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind)
{
    (void)model;
    bp_writer_put_string(writer, "name", kind->name);
}

/* Words are read and written as numbers of that size. */
_Static_assert(sizeof(enum bp_activation) == sizeof(int), "an enum is as large as an int");

#define OF_MODEL(member) .scope = BP_FORM_MODEL, .offset = offsetof(struct bp_model, member)
#define OF_KIND(member) .scope = BP_FORM_KIND, .offset = offsetof(struct bp_kind, member)
#define SIZE .sort = BP_FORM_SIZE
#define SIZE_OR_NONE .sort = BP_FORM_SIZE_OR_NONE
#define FLAG .sort = BP_FORM_FLAG
#define WORD(names, default_word) .sort = BP_FORM_WORD, .words = (names), .usual = (default_word)
#define OWN(scopes, writes) .scope = (scopes), .sort = BP_FORM_OWN, .write = (writes)

const struct bp_form_key bp_form_keys[] = {
    {"activation", OF_KIND(activation), WORD(bp_activation_names, -1)},
    {"attention", OF_KIND(attention), WORD(bp_attention_names, BP_ATTENTION_HEADS)},
    {"attention_dropout", OF_KIND(attention_dropout), FLAG},
    {"attention_sinks", OF_KIND(sinks), FLAG},
    {"attention_soft_cap", OF_KIND(soft_cap), FLAG},
    {"bias", OWN(BP_FORM_KIND, write_bias)},
    {"chunked_attention", OF_KIND(chunked), FLAG},
    {"cross_attention", OF_KIND(cross_attention), FLAG},
    {"embedding_dropout", OF_MODEL(embedding_dropout), FLAG},
    {"embedding_norm", OF_MODEL(embedding_norm), FLAG},
    {"expert_bias", OF_KIND(expert_bias), FLAG},
    {"expert_intermediate_size", OF_KIND(expert_intermediate_size), SIZE_OR_NONE},
    {"experts_per_token", OF_KIND(experts_per_token), SIZE_OR_NONE},
    {"final_norm_absent", OF_MODEL(final_norm_absent), FLAG},
    {"final_soft_cap", OF_MODEL(final_soft_cap), FLAG},
    {"head_bias", OF_MODEL(head_bias), FLAG},
    {"head_dim", OWN(BP_FORM_KIND, write_head_dim)},
    {"hidden_dropout", OF_KIND(hidden_dropout), FLAG},
    {"hidden_size", OF_MODEL(hidden_size), SIZE},
    {"intermediate_size", OF_KIND(intermediate_size), SIZE_OR_NONE},
    {"kinds", OWN(BP_FORM_MODEL, write_kinds)},
    {"kv_lora_rank", OF_KIND(kv_lora_rank), SIZE_OR_NONE},
    {"layers", OWN(BP_FORM_MODEL, write_layers)},
    {"max_position_embeddings", OWN(BP_FORM_MODEL, write_max_positions)},
    {"mlp_bias", OWN(BP_FORM_KIND, write_mlp_bias)},
    {"name", OWN(BP_FORM_LABEL, write_label)},
    {"name", OWN(BP_FORM_KIND_NAME, write_kind_name)},
    {"norm", OF_MODEL(norm), WORD(bp_norm_names, -1)},
    {"norm_place", OF_KIND(norm_place), WORD(bp_norm_place_names, BP_NORM_PLACE_BEFORE)},
    {"norm_without_bias", OF_MODEL(norm_without_bias), FLAG},
    {"norm_without_weight", OF_MODEL(norm_without_weight), FLAG},
    {"num_attention_heads", OF_KIND(num_attention_heads), SIZE},
    {"num_experts", OF_KIND(num_experts), SIZE_OR_NONE},
    {"num_hidden_layers", OF_MODEL(num_hidden_layers), SIZE},
    {"num_key_value_heads", OWN(BP_FORM_KIND, write_kv_heads)},
    {"num_nextn_predict_layers", OF_MODEL(num_nextn_predict_layers), SIZE_OR_NONE},
    {"output_bias", OWN(BP_FORM_KIND, write_output_bias)},
    {"position", OF_MODEL(position), WORD(bp_position_names, -1)},
    {"q_lora_rank", OF_KIND(q_lora_rank), SIZE_OR_NONE},
    {"qk_nope_head_dim", OF_KIND(qk_nope_head_dim), SIZE_OR_NONE},
    {"qk_norm", OWN(BP_FORM_KIND, write_qk_norm)},
    {"qk_norm_bias", OWN(BP_FORM_KIND, write_qk_norm_bias)},
    {"qk_norm_form", OWN(BP_FORM_KIND, write_qk_norm_form)},
    {"qk_rope_head_dim", OF_KIND(qk_rope_head_dim), SIZE_OR_NONE},
    {"qkv_bias", OWN(BP_FORM_KIND, write_qkv_bias)},
    {"residual", OF_KIND(residual), WORD(bp_residual_names, BP_RESIDUAL_SEQUENTIAL)},
    {"rotary_dim", OWN(BP_FORM_KIND, write_rotary_dim)},
    {"router_bias", OF_KIND(router_bias), FLAG},
    {"score_correction_bias", OF_KIND(score_correction_bias), FLAG},
    {"shared_expert_gate", OF_KIND(shared_gate), FLAG},
    {"shared_expert_intermediate_size", OF_KIND(shared_intermediate_size), SIZE_OR_NONE},
    {"sliding_window", OF_KIND(window), SIZE_OR_NONE},
    {"tie_word_embeddings", OF_MODEL(tie_word_embeddings), FLAG},
    {"v_head_dim", OF_KIND(v_head_dim), SIZE_OR_NONE},
    {"vocab_size", OF_MODEL(vocab_size), SIZE},
    {"word_embed_proj_dim", OF_MODEL(word_embed_proj_dim), SIZE_OR_NONE},
};
const size_t bp_form_keys_n = sizeof bp_form_keys / sizeof *bp_form_keys;

static void write_plain(struct bp_writer *writer, const struct bp_form_key *key, const void *at)
{
    uint64_t size;
    int word;
    switch (key->sort) {
    case BP_FORM_SIZE:
    case BP_FORM_SIZE_OR_NONE:
        memcpy(&size, at, sizeof size);
        if (size || key->sort == BP_FORM_SIZE)
            bp_writer_put_uint(writer, key->key, size);
        break;
    case BP_FORM_FLAG:
        if (*(const bool *)at)
            write_true(writer, key->key);
        break;
    case BP_FORM_WORD:
        memcpy(&word, at, sizeof word);
        if (word != key->usual)
            bp_writer_put_string(writer, key->key, key->words[word]);
        break;
    case BP_FORM_OWN:
        break;
    }
}

static void write_keys(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind,
                       unsigned scopes)
{
    for (size_t i = 0; i < bp_form_keys_n; i++) {
        const struct bp_form_key *key = &bp_form_keys[i];
        const char *whole = key->scope == BP_FORM_MODEL ? (const char *)model : (const char *)kind;
        if (!(key->scope & scopes))
            continue;
        if (key->write)
            key->write(writer, model, kind);
        else
            write_plain(writer, key, whole + key->offset);
    }
}

void bp_model_write(struct bp_writer *writer, const struct bp_model *model, bool with_name)
{
    unsigned scopes = BP_FORM_MODEL | (with_name ? BP_FORM_LABEL : 0U) | (model->n_kinds == 1 ? BP_FORM_KIND : 0U);
    bp_writer_object(writer);
    write_keys(writer, model, &model->kinds[0], scopes);
    bp_writer_end(writer);
}
