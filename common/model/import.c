#include "common/model/import.h"

#include <string.h>

static bool is_listed(const char *const *list, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], key) == 0)
            return true;
    return false;
}

static void put(const char **list, size_t *n, const char *key)
{
    if (*n < BP_IMPORT_KEYS_MAX && !is_listed(list, *n, key))
        list[(*n)++] = key;
}

bool bp_import_is_used(const struct bp_import *import, const char *key)
{
    return is_listed(import->used, import->n_used, key);
}

void bp_import_spare(struct bp_import *import, const char *key)
{
    put(import->spared, &import->n_spared, key);
}

bool bp_import_is_spared(const struct bp_import *import, const char *key)
{
    return is_listed(import->spared, import->n_spared, key);
}

const json_t *bp_import_peek(const struct bp_import *import, const char *key)
{
    return bp_reader_get(&import->reader, key, false);
}

const json_t *bp_import_value(struct bp_import *import, const char *key)
{
    const json_t *value = bp_import_peek(import, key);
    if (value)
        put(import->used, &import->n_used, key);
    return json_is_null(value) ? NULL : value;
}

const json_t *bp_import_value_or_assumed(struct bp_import *import, const char *key)
{
    const json_t *value = bp_import_value(import, key);
    if (!value)
        put(import->assumed, &import->n_assumed, key);
    return value;
}

const char *bp_import_spelling(struct bp_import *import, const char *key, const char *alias)
{
    const json_t *value = bp_import_value(import, key), *other = bp_import_value(import, alias);
    if (json_integer_value(value) > 0 && other && !json_equal(value, other))
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
    return bp_import_value_or_assumed(import, key) ? bp_reader_uint(&import->reader, key, 1, BP_JSON_INT_MAX, 0)
                                                   : fallback;
}

uint64_t bp_import_count(struct bp_import *import, const char *key, uint64_t fallback)
{
    if (bp_import_value(import, key))
        return bp_reader_uint(&import->reader, key, 0, BP_JSON_INT_MAX, 0);
    if (bp_import_peek(import, key))
        return 0;
    put(import->assumed, &import->n_assumed, key);
    return fallback;
}

bool bp_import_flag(struct bp_import *import, const char *key, bool fallback)
{
    return bp_import_value_or_assumed(import, key) ? bp_reader_bool(&import->reader, key, fallback) : fallback;
}

bool bp_import_soft_cap(struct bp_import *import, const char *key, bool fallback)
{
    const json_t *value = bp_import_value(import, key);
    if (!value && bp_import_peek(import, key))
        return false;
    if (!value)
        put(import->assumed, &import->n_assumed, key);
    else if (!json_is_number(value))
        bp_reader_problem(&import->reader, BP_E_wrong_type, key, "must be a number or null");
    return value ? json_number_value(value) > 0 : fallback;
}

bool bp_import_dropout(struct bp_import *import, const char *key, bool fallback)
{
    const json_t *value = bp_import_value_or_assumed(import, key);
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

bool bp_import_tied(struct bp_import *import, bool fallback)
{
    static const char key[] = "tie_word_embeddings";
    const json_t *outer = import->around ? json_object_get(import->around, key) : NULL;
    return bp_import_flag(import, key, json_is_boolean(outer) ? json_is_true(outer) : fallback);
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
    const char *name =
        bp_import_value_or_assumed(import, key) ? bp_reader_string(&import->reader, key, false) : fallback;
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
    put(import->used, &import->n_used, key);
    if (has_problem(import, key))
        return; /* a value that could not be read switches nothing on */
    bp_reader_problem(&import->reader, BP_E_unsupported_feature, key, "%s is not modelled", what);
}
