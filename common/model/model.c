#include "common/model/model.h"

#include <stddef.h>
#include <string.h>

const char *const bp_activation_names[] = {"gelu", "relu", "swiglu", "geglu", NULL};
const char *const bp_norm_names[] = {"layernorm", "rmsnorm", NULL};
const char *const bp_position_names[] = {"learned", "rope", "none", "alibi", NULL};
const char *const bp_attention_names[] = {"heads", "latent", NULL};
const char *const bp_qk_norm_names[] = {"none", "head", "each_head", "span", "without_weight", NULL};
const char *const bp_norm_place_names[] = {"before", "after", "after_residual", "around", "shared", NULL};
const char *const bp_residual_names[] = {"sequential", "parallel", NULL};

/* Those that the form may name. */
static const char *const form_positions[] = {"learned", "rope", "none", NULL};

const char *const bp_transformer_keys[] = {
    "activation",
    "attention_dropout",
    "bias",
    "embedding_dropout",
    "head_dim",
    "hidden_dropout",
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "name",
    "norm",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "position",
    "qk_norm",
    "qkv_bias",
    "tie_word_embeddings",
    "vocab_size",
    NULL,
};

bool bp_kind_gated(const struct bp_kind *kind)
{
    return kind->activation == BP_ACTIVATION_SWIGLU || kind->activation == BP_ACTIVATION_GEGLU;
}

bool bp_kind_bias(const struct bp_kind *kind)
{
    return kind->qkv_bias && kind->output_bias && kind->mlp_bias;
}

/* The form is of one kind of block, the first. */
static const struct {
    const char *key;
    size_t offset;
} required_sizes[] = {
    {"hidden_size", offsetof(struct bp_model, hidden_size)},
    {"num_hidden_layers", offsetof(struct bp_model, num_hidden_layers)},
    {"num_attention_heads", offsetof(struct bp_model, kinds[0].num_attention_heads)},
    {"intermediate_size", offsetof(struct bp_model, kinds[0].intermediate_size)},
    {"vocab_size", offsetof(struct bp_model, vocab_size)},
};

static const struct {
    const char *key;
    size_t offset;
} flags[] = {
    {"qkv_bias", offsetof(struct bp_model, kinds[0].qkv_bias)},
    {"hidden_dropout", offsetof(struct bp_model, kinds[0].hidden_dropout)},
    {"attention_dropout", offsetof(struct bp_model, kinds[0].attention_dropout)},
    {"embedding_dropout", offsetof(struct bp_model, embedding_dropout)},
    {"tie_word_embeddings", offsetof(struct bp_model, tie_word_embeddings)},
};

static void read_name(const struct bp_reader *reader, struct bp_model *model)
{
    const char *name = bp_reader_string(reader, "name", false);
    if (!name)
        return;
    size_t n = strlen(name);
    if (n == 0 || n >= BP_MODEL_NAME_MAX)
        bp_reader_problem(reader, BP_E_out_of_range, "name", "must have 1 to %d bytes", BP_MODEL_NAME_MAX - 1);
    else
        memcpy(model->name, name, n + 1);
}

/* What cannot be read stays 0, so that no later check blames another key for it. */
static void read_sizes(const struct bp_reader *reader, struct bp_model *model)
{
    for (size_t i = 0; i < sizeof required_sizes / sizeof *required_sizes; i++) {
        uint64_t *size = (uint64_t *)(void *)((char *)model + required_sizes[i].offset);
        *size = bp_reader_get(reader, required_sizes[i].key, true)
                    ? bp_reader_uint(reader, required_sizes[i].key, 1, BP_JSON_INT_MAX, 0)
                    : 0;
    }
}

static void read_heads(const struct bp_reader *reader, struct bp_model *model)
{
    struct bp_kind *kind = &model->kinds[0];
    uint64_t heads = kind->num_attention_heads;
    uint64_t kv_heads = bp_reader_uint(reader, "num_key_value_heads", 1, BP_JSON_INT_MAX, heads);
    if (kv_heads && heads % kv_heads != 0)
        bp_reader_problem(reader, BP_E_not_divisible, "num_key_value_heads",
                          "num_attention_heads %llu is not divisible by num_key_value_heads %llu",
                          (unsigned long long)heads, (unsigned long long)kv_heads);
    kind->num_key_value_heads = kv_heads;
    if (bp_reader_get(reader, "head_dim", false)) {
        kind->head_dim = bp_reader_uint(reader, "head_dim", 1, BP_JSON_INT_MAX, 0);
    } else if (heads && model->hidden_size % heads != 0) {
        bp_reader_problem(reader, BP_E_not_divisible, "num_attention_heads",
                          "hidden_size %llu is not divisible by num_attention_heads %llu, and head_dim is not given",
                          (unsigned long long)model->hidden_size, (unsigned long long)heads);
    } else if (heads) {
        kind->head_dim = model->hidden_size / heads;
    }
}

static void read_positions(const struct bp_reader *reader, struct bp_model *model)
{
    size_t before = reader->problems->n;
    model->position = (enum bp_position)bp_reader_enum(reader, "position", form_positions, -1);
    bool learned = model->position == BP_POSITION_LEARNED && reader->problems->n == before;
    bp_reader_get(reader, "max_position_embeddings", learned);
    uint64_t rows = bp_reader_uint(reader, "max_position_embeddings", 1, BP_JSON_INT_MAX, 0);
    model->max_position_embeddings = learned ? rows : 0;
    model->kinds[0].rotary_dim = model->position == BP_POSITION_ROPE ? model->kinds[0].head_dim : 0;
}

static void read_flags(const struct bp_reader *reader, struct bp_model *model)
{
    struct bp_kind *kind = &model->kinds[0];
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        *(bool *)((char *)model + flags[i].offset) = bp_reader_bool(reader, flags[i].key, false);
    if (bp_reader_bool(reader, "bias", false)) /* every linear, these three included */
        kind->qkv_bias = kind->output_bias = kind->mlp_bias = true;
    kind->qk_norm = bp_reader_bool(reader, "qk_norm", false) ? BP_QK_NORM_HEAD : BP_QK_NORM_NONE;
    kind->qk_norm_bias = kind->qk_norm == BP_QK_NORM_HEAD && model->norm == BP_NORM_LAYERNORM;
}

void bp_model_read(const struct bp_reader *reader, struct bp_model *ret)
{
    struct bp_model model = {.n_kinds = 1, .kinds = {{.name = "dense"}}};
    bp_reader_refuse_unknown(reader, bp_transformer_keys);
    read_name(reader, &model);
    read_sizes(reader, &model);
    model.kinds[0].layers = model.num_hidden_layers;
    read_heads(reader, &model);
    model.kinds[0].activation = (enum bp_activation)bp_reader_enum(reader, "activation", bp_activation_names, -1);
    model.norm = (enum bp_norm)bp_reader_enum(reader, "norm", bp_norm_names, -1);
    read_positions(reader, &model);
    read_flags(reader, &model);
    *ret = model;
}

/* What the form has no key for, of the model and of its one kind. */
const char *bp_model_beyond_form(const struct bp_model *model)
{
    const struct bp_kind *kind = &model->kinds[0];
    bool qk_norm = kind->qk_norm == BP_QK_NORM_HEAD;
    const struct {
        bool there;
        const char *what;
    } beyond[] = {
        {model->n_kinds != 1, "blocks of several kinds"},
        {kind->num_experts > 0, "a mixture of experts"},
        {kind->attention != BP_ATTENTION_HEADS, "latent attention"},
        {kind->window > 0, "attention within a window"},
        {kind->residual != BP_RESIDUAL_SEQUENTIAL, "attention and MLP side by side"},
        {kind->norm_place != BP_NORM_PLACE_BEFORE, "norms that do not stand one before each branch"},
        {(kind->qk_norm != BP_QK_NORM_NONE && !qk_norm) ||
             kind->qk_norm_bias != (qk_norm && model->norm == BP_NORM_LAYERNORM),
         "these query and key norms"},
        {kind->rotary_dim != (model->position == BP_POSITION_ROPE ? kind->head_dim : 0),
         "a rotary embedding of part of the head"},
        {!bp_kind_bias(kind) && (kind->output_bias || kind->mlp_bias), "a bias of some linears"},
        {kind->sinks, "attention sinks"},
        {kind->soft_cap || model->final_soft_cap, "a soft cap"},
        {kind->cross_attention, "cross-attention"},
        {model->position == BP_POSITION_ALIBI, "a position bias of the scores"},
        {model->norm_without_weight, "a norm without weights"},
        {model->norm_without_bias && model->norm == BP_NORM_LAYERNORM, "a layer norm without bias"},
        {model->final_norm_absent, "a model without final norm"},
        {model->embedding_norm, "a norm of the embedding"},
        {model->word_embed_proj_dim > 0, "a word embedding of another width than the hidden size"},
        {model->head_bias, "a head with a bias"},
        {model->num_nextn_predict_layers > 0, "prediction of several tokens"},
    };
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++)
        if (beyond[i].there)
            return beyond[i].what;
    return NULL;
}

static void write_flag(struct bp_writer *writer, const char *key, bool value)
{
    if (value) {
        bp_writer_key(writer, key);
        bp_writer_bool(writer, true);
    }
}

static void write_size(struct bp_writer *writer, const char *key, uint64_t value)
{
    bp_writer_key(writer, key);
    bp_writer_uint(writer, value);
}

static void write_word(struct bp_writer *writer, const char *key, const char *word)
{
    bp_writer_key(writer, key);
    bp_writer_string(writer, word);
}

static bool head_dim_is_quotient(const struct bp_model *model)
{
    return (bp_u128)model->kinds[0].head_dim * model->kinds[0].num_attention_heads == model->hidden_size;
}

void bp_model_write(struct bp_writer *writer, const struct bp_model *model, bool with_name)
{
    const struct bp_kind *kind = &model->kinds[0];
    bool bias = bp_kind_bias(kind);
    bp_writer_object(writer);
    write_word(writer, "activation", bp_activation_names[kind->activation]);
    write_flag(writer, "attention_dropout", kind->attention_dropout);
    write_flag(writer, "bias", bias);
    write_flag(writer, "embedding_dropout", model->embedding_dropout);
    if (!head_dim_is_quotient(model))
        write_size(writer, "head_dim", kind->head_dim);
    write_flag(writer, "hidden_dropout", kind->hidden_dropout);
    write_size(writer, "hidden_size", model->hidden_size);
    write_size(writer, "intermediate_size", kind->intermediate_size);
    if (model->position == BP_POSITION_LEARNED)
        write_size(writer, "max_position_embeddings", model->max_position_embeddings);
    if (with_name)
        write_word(writer, "name", model->name);
    write_word(writer, "norm", bp_norm_names[model->norm]);
    write_size(writer, "num_attention_heads", kind->num_attention_heads);
    write_size(writer, "num_hidden_layers", model->num_hidden_layers);
    if (kind->num_key_value_heads != kind->num_attention_heads)
        write_size(writer, "num_key_value_heads", kind->num_key_value_heads);
    write_word(writer, "position", bp_position_names[model->position]);
    write_flag(writer, "qk_norm", kind->qk_norm == BP_QK_NORM_HEAD);
    write_flag(writer, "qkv_bias", kind->qkv_bias && !bias);
    write_flag(writer, "tie_word_embeddings", model->tie_word_embeddings);
    write_size(writer, "vocab_size", model->vocab_size);
    bp_writer_end(writer);
}
