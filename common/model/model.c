#include "common/model/model.h"

#include <stddef.h>
#include <string.h>

const char *const bp_activation_names[] = {"gelu", "relu", "swiglu", "geglu", NULL};
const char *const bp_norm_names[] = {"layernorm", "rmsnorm", NULL};
const char *const bp_position_names[] = {"learned", "rope", "none", NULL};

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

bool bp_model_gated(const struct bp_model *model)
{
    return model->activation == BP_ACTIVATION_SWIGLU || model->activation == BP_ACTIVATION_GEGLU;
}

static const struct {
    const char *key;
    size_t offset;
} required_sizes[] = {
    {"hidden_size", offsetof(struct bp_model, hidden_size)},
    {"num_hidden_layers", offsetof(struct bp_model, num_hidden_layers)},
    {"num_attention_heads", offsetof(struct bp_model, num_attention_heads)},
    {"intermediate_size", offsetof(struct bp_model, intermediate_size)},
    {"vocab_size", offsetof(struct bp_model, vocab_size)},
};

static const struct {
    const char *key;
    size_t offset;
} flags[] = {
    {"bias", offsetof(struct bp_model, bias)},
    {"qkv_bias", offsetof(struct bp_model, qkv_bias)},
    {"qk_norm", offsetof(struct bp_model, qk_norm)},
    {"hidden_dropout", offsetof(struct bp_model, hidden_dropout)},
    {"attention_dropout", offsetof(struct bp_model, attention_dropout)},
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
    uint64_t heads = model->num_attention_heads;
    uint64_t kv_heads = bp_reader_uint(reader, "num_key_value_heads", 1, BP_JSON_INT_MAX, heads);
    if (kv_heads && heads % kv_heads != 0)
        bp_reader_problem(reader, BP_E_not_divisible, "num_key_value_heads",
                          "num_attention_heads %llu is not divisible by num_key_value_heads %llu",
                          (unsigned long long)heads, (unsigned long long)kv_heads);
    model->num_key_value_heads = kv_heads;
    if (bp_reader_get(reader, "head_dim", false)) {
        model->head_dim = bp_reader_uint(reader, "head_dim", 1, BP_JSON_INT_MAX, 0);
    } else if (heads && model->hidden_size % heads != 0) {
        bp_reader_problem(reader, BP_E_not_divisible, "num_attention_heads",
                          "hidden_size %llu is not divisible by num_attention_heads %llu, and head_dim is not given",
                          (unsigned long long)model->hidden_size, (unsigned long long)heads);
    } else if (heads) {
        model->head_dim = model->hidden_size / heads;
    }
}

static void read_positions(const struct bp_reader *reader, struct bp_model *model)
{
    size_t before = reader->problems->n;
    model->position = (enum bp_position)bp_reader_enum(reader, "position", bp_position_names, -1);
    bool learned = model->position == BP_POSITION_LEARNED && reader->problems->n == before;
    bp_reader_get(reader, "max_position_embeddings", learned);
    uint64_t rows = bp_reader_uint(reader, "max_position_embeddings", 1, BP_JSON_INT_MAX, 0);
    model->max_position_embeddings = learned ? rows : 0;
}

void bp_model_read(const struct bp_reader *reader, struct bp_model *ret)
{
    struct bp_model model = {0};
    bp_reader_refuse_unknown(reader, bp_transformer_keys);
    read_name(reader, &model);
    read_sizes(reader, &model);
    read_heads(reader, &model);
    model.activation = (enum bp_activation)bp_reader_enum(reader, "activation", bp_activation_names, -1);
    model.norm = (enum bp_norm)bp_reader_enum(reader, "norm", bp_norm_names, -1);
    read_positions(reader, &model);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        *(bool *)((char *)&model + flags[i].offset) = bp_reader_bool(reader, flags[i].key, false);
    model.qkv_bias = model.qkv_bias && !model.bias; /* every linear includes these three */
    *ret = model;
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
    return (bp_u128)model->head_dim * model->num_attention_heads == model->hidden_size;
}

void bp_model_write(struct bp_writer *writer, const struct bp_model *model, bool with_name)
{
    bp_writer_object(writer);
    write_word(writer, "activation", bp_activation_names[model->activation]);
    write_flag(writer, "attention_dropout", model->attention_dropout);
    write_flag(writer, "bias", model->bias);
    write_flag(writer, "embedding_dropout", model->embedding_dropout);
    if (!head_dim_is_quotient(model))
        write_size(writer, "head_dim", model->head_dim);
    write_flag(writer, "hidden_dropout", model->hidden_dropout);
    write_size(writer, "hidden_size", model->hidden_size);
    write_size(writer, "intermediate_size", model->intermediate_size);
    if (model->position == BP_POSITION_LEARNED)
        write_size(writer, "max_position_embeddings", model->max_position_embeddings);
    if (with_name)
        write_word(writer, "name", model->name);
    write_word(writer, "norm", bp_norm_names[model->norm]);
    write_size(writer, "num_attention_heads", model->num_attention_heads);
    write_size(writer, "num_hidden_layers", model->num_hidden_layers);
    if (model->num_key_value_heads != model->num_attention_heads)
        write_size(writer, "num_key_value_heads", model->num_key_value_heads);
    write_word(writer, "position", bp_position_names[model->position]);
    write_flag(writer, "qk_norm", model->qk_norm);
    write_flag(writer, "qkv_bias", model->qkv_bias);
    write_flag(writer, "tie_word_embeddings", model->tie_word_embeddings);
    write_size(writer, "vocab_size", model->vocab_size);
    bp_writer_end(writer);
}

/* The parameters of one block without tensor parallelism. */
static bp_u128 block_parameters(const struct bp_model *model, struct bp_calc *calc)
{
    bp_u128 H = model->hidden_size, F = model->intermediate_size, d = model->head_dim;
    bp_u128 query = bp_mul(calc, model->num_attention_heads, d), key = bp_mul(calc, model->num_key_value_heads, d);
    bp_u128 per_norm = model->norm == BP_NORM_LAYERNORM ? 2 : 1;
    bp_u128 into_mlp = bp_model_gated(model) ? 2 : 1;
    bp_u128 qkv = BP_SUM(calc, query, key, key);
    bp_u128 total = BP_SUM(calc, bp_mul(calc, H, qkv), bp_mul(calc, query, H), BP_PROD(calc, into_mlp + 1, H, F),
                           BP_PROD(calc, 2, per_norm, H));
    if (model->bias)
        total = BP_SUM(calc, total, qkv, H, bp_mul(calc, into_mlp, F), H);
    else if (model->qkv_bias)
        total = bp_add(calc, total, qkv);
    if (model->qk_norm)
        total = bp_add(calc, total, BP_PROD(calc, 2, per_norm, d));
    return total;
}

int bp_model_parameters(const struct bp_model *model, bp_u128 *ret, struct bp_err *err)
{
    struct bp_calc calc = {0};
    bp_u128 H = model->hidden_size;
    bp_u128 vocabulary = bp_mul(&calc, model->vocab_size, H);
    bp_u128 total =
        BP_SUM(&calc, bp_mul(&calc, model->num_hidden_layers, block_parameters(model, &calc)), vocabulary,
               bp_mul(&calc, model->max_position_embeddings, H), model->norm == BP_NORM_LAYERNORM ? 2 * H : H);
    if (!model->tie_word_embeddings)
        total = bp_add(&calc, total, vocabulary);
    if (bp_calc_check(&calc, "", "the number of parameters", err))
        return -1;
    *ret = total;
    return 0;
}
