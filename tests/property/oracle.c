#include "tests/property/oracle.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum kind { SIZE, FLAG, WORD, NAME, OBJECT };
enum mode { ANY = 0, TRAINING = 1, INFERENCE = 2 };

struct key {
    const char *name;
    enum kind kind;
    bool required;
    enum mode mode; /* the only mode that knows it */
    int64_t least, most;
    const char *words; /* with a space after each */
};

#define LARGEST ((INT64_C(1) << 53) - 1)
#define SIZES 1, LARGEST, NULL

static const char dtypes[] = "float8 float16 bfloat16 float32 ";

static const struct key request_keys[] = {
    {"model", OBJECT, true, ANY, 0, 0, NULL},       {"workload", OBJECT, true, ANY, 0, 0, NULL},
    {"strategy", OBJECT, true, ANY, 0, 0, NULL},    {"target", OBJECT, false, ANY, 0, 0, NULL},
    {"deployment", OBJECT, false, ANY, 0, 0, NULL}, {0},
};
static const struct key model_keys[] = {
    {"transformer", OBJECT, true, ANY, 0, 0, NULL},
    {"name", NAME, false, ANY, 0, 0, NULL},
    {"huggingface", OBJECT, false, ANY, 0, 0, NULL},
    {0},
};
static const struct key transformer_keys[] = {
    {"name", NAME, true, ANY, 1, 127, NULL},
    {"hidden_size", SIZE, true, ANY, SIZES},
    {"num_hidden_layers", SIZE, true, ANY, SIZES},
    {"num_attention_heads", SIZE, true, ANY, SIZES},
    {"num_key_value_heads", SIZE, false, ANY, SIZES},
    {"head_dim", SIZE, false, ANY, SIZES},
    {"intermediate_size", SIZE, true, ANY, SIZES},
    {"vocab_size", SIZE, true, ANY, SIZES},
    {"max_position_embeddings", SIZE, false, ANY, SIZES},
    {"activation", WORD, true, ANY, 0, 0, "gelu relu swiglu geglu "},
    {"norm", WORD, true, ANY, 0, 0, "layernorm rmsnorm "},
    {"position", WORD, true, ANY, 0, 0, "learned rope none "},
    {"bias", FLAG, false, ANY, 0, 0, NULL},
    {"qkv_bias", FLAG, false, ANY, 0, 0, NULL},
    {"qk_norm", FLAG, false, ANY, 0, 0, NULL},
    {"hidden_dropout", FLAG, false, ANY, 0, 0, NULL},
    {"attention_dropout", FLAG, false, ANY, 0, 0, NULL},
    {"embedding_dropout", FLAG, false, ANY, 0, 0, NULL},
    {"tie_word_embeddings", FLAG, false, ANY, 0, 0, NULL},
    {0},
};
static const struct key workload_keys[] = {
    {"mode", WORD, true, ANY, 0, 0, "training inference "},    {"dtype", WORD, true, ANY, 0, 0, dtypes},
    {"sequence_length", SIZE, true, TRAINING, SIZES},          {"micro_batch_size", SIZE, true, TRAINING, SIZES},
    {"global_batch_size", SIZE, true, TRAINING, SIZES},        {"gradient_dtype", WORD, false, TRAINING, 0, 0, dtypes},
    {"phase", WORD, true, INFERENCE, 0, 0, "prefill decode "}, {"batch_size", SIZE, true, INFERENCE, SIZES},
    {"context_length", SIZE, true, INFERENCE, SIZES},          {0},
};
static const struct key strategy_keys[] = {
    {"tensor_parallel", SIZE, false, ANY, 1, 1024, NULL},
    {"pipeline_parallel", SIZE, false, ANY, SIZES},
    {"data_parallel", SIZE, false, TRAINING, SIZES},
    {"sequence_parallel", FLAG, false, TRAINING, 0, 0, NULL},
    {"recompute", WORD, false, TRAINING, 0, 0, "none selective full "},
    {"recompute_all_gather", FLAG, false, TRAINING, 0, 0, NULL},
    {"recompute_activation", FLAG, false, TRAINING, 0, 0, NULL},
    {"pipeline_schedule", WORD, false, TRAINING, 0, 0, "none 1f1b interleaved gpipe "},
    {"virtual_stages", SIZE, false, TRAINING, SIZES},
    {"zero_stage", SIZE, false, TRAINING, 0, 3, NULL},
    {"replicas", SIZE, false, INFERENCE, SIZES},
    {0},
};
static const struct key target_keys[] = {
    {"kind", WORD, true, ANY, 0, 0, "reference-queue reference-slot "},
    {0},
};
static const struct key deployment_keys[] = {
    {"devices", SIZE, true, ANY, SIZES},
    {"memory_bytes", SIZE, true, ANY, SIZES},
    {0},
};

enum object { REQUEST, MODEL, TRANSFORMER, WORKLOAD, STRATEGY, TARGET, DEPLOYMENT };
const char *const oracle_objects[] = {"",          "/model",  "/model/transformer", "/workload",
                                      "/strategy", "/target", "/deployment"};
static const struct key *const keys[] = {request_keys,  model_keys,  transformer_keys, workload_keys,
                                         strategy_keys, target_keys, deployment_keys};

const char *oracle_key(size_t object, size_t i)
{
    for (size_t k = 0; keys[object][k].name; k++)
        if (k == i)
            return keys[object][k].name;
    return NULL;
}

bool oracle_has(const struct oracle *oracle, const char *code, const char *path)
{
    for (size_t i = 0; i < oracle->n; i++)
        if (strcmp(oracle->at[i].code, code) == 0 && strcmp(oracle->at[i].path, path) == 0)
            return true;
    return false;
}

void oracle_add(struct oracle *oracle, const char *code, const char *path)
{
    if (oracle_has(oracle, code, path) || oracle->n == ORACLE_MAX)
        return;
    oracle->at[oracle->n].code = code;
    snprintf(oracle->at[oracle->n++].path, sizeof(oracle->at[0].path), "%s", path);
}

static void add_if(struct oracle *oracle, bool wrong, const char *code, const char *path)
{
    if (wrong)
        oracle_add(oracle, code, path);
}

/* RFC 6901. */
static void member(enum object object, const char *key, char path[96])
{
    size_t n = (size_t)snprintf(path, 96, "%s/", oracle_objects[object]);
    for (; *key && n < 93; key++) {
        if (*key == '~' || *key == '/')
            path[n++] = '~';
        path[n++] = *key == '~' ? '0' : *key == '/' ? '1' : *key;
    }
    path[n] = '\0';
}

static bool is_word_of(const char *word, const char *words)
{
    char with_space[64];
    snprintf(with_space, sizeof(with_space), "%s ", word);
    const char *found = strstr(words, with_space);
    return found && (found == words || found[-1] == ' ');
}

/* The code of what is wrong with one value, or NULL. */
static const char *wrong_value(const struct key *key, const json_t *value)
{
    switch (key->kind) {
    case SIZE:
        if (!json_is_integer(value))
            return "wrong_type";
        return json_integer_value(value) < key->least || json_integer_value(value) > key->most ? "out_of_range" : NULL;
    case FLAG:
        return json_is_boolean(value) ? NULL : "wrong_type";
    case WORD:
        if (!json_is_string(value))
            return "wrong_type";
        return is_word_of(json_string_value(value), key->words) ? NULL : "unknown_value";
    case NAME:
        if (!json_is_string(value))
            return "wrong_type";
        return json_string_length(value) < 1 || json_string_length(value) > 127 ? "out_of_range" : NULL;
    default:
        return json_is_object(value) ? NULL : "wrong_type";
    }
}

struct oracle_reading {
    const json_t *objects[ORACLE_OBJECTS];
    enum mode mode; /* ANY: it is not said */
    struct oracle *oracle;
};

static const struct key *find_key(const struct oracle_reading *reading, enum object object, const char *name)
{
    for (const struct key *key = keys[object]; key->name; key++)
        if (strcmp(key->name, name) == 0 && (key->mode == ANY || reading->mode == ANY || key->mode == reading->mode))
            return key;
    return NULL;
}

static void read_object(const struct oracle_reading *reading, enum object object)
{
    char path[96];
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)reading->objects[object], name, value) {
        const struct key *key = find_key(reading, object, name);
        member(object, name, path);
        if (!key)
            oracle_add(reading->oracle, "unknown_key", path);
        else if (wrong_value(key, value))
            oracle_add(reading->oracle, wrong_value(key, value), path);
    }
    for (const struct key *key = keys[object]; key->name && reading->objects[object]; key++) {
        member(object, key->name, path);
        if (key->required && (key->mode == ANY || key->mode == reading->mode) &&
            !json_object_get(reading->objects[object], key->name))
            oracle_add(reading->oracle, "missing_key", path);
    }
}

/* A number that is there and can be read; 0 when it is there and cannot; else `absent`. */
static uint64_t size_of(const struct oracle_reading *reading, enum object object, const char *name, uint64_t absent)
{
    const struct key *key = find_key(reading, object, name);
    const json_t *value = key ? json_object_get(reading->objects[object], name) : NULL;
    if (!value)
        return absent;
    return wrong_value(key, value) ? 0 : (uint64_t)json_integer_value(value);
}

static bool is(const struct oracle_reading *reading, enum object object, const char *name, const char *word)
{
    const json_t *value = find_key(reading, object, name) ? json_object_get(reading->objects[object], name) : NULL;
    return json_is_string(value) && strcmp(json_string_value(value), word) == 0;
}

static bool uneven(uint64_t value, uint64_t by)
{
    return by != 0 && value % by != 0;
}

static void check_model(const struct oracle_reading *reading)
{
    struct oracle *oracle = reading->oracle;
    const uint64_t H = size_of(reading, TRANSFORMER, "hidden_size", 0);
    const uint64_t h = size_of(reading, TRANSFORMER, "num_attention_heads", 0);
    const uint64_t k = size_of(reading, TRANSFORMER, "num_key_value_heads", h);
    add_if(oracle, uneven(h, k), "not_divisible", "/model/transformer/num_key_value_heads");
    add_if(oracle, !json_object_get(reading->objects[TRANSFORMER], "head_dim") && uneven(H, h), "not_divisible",
           "/model/transformer/num_attention_heads");
    if (is(reading, TRANSFORMER, "position", "learned") &&
        !json_object_get(reading->objects[TRANSFORMER], "max_position_embeddings"))
        oracle_add(oracle, "missing_key", "/model/transformer/max_position_embeddings");
}

static void check_tensor_parallel(const struct oracle_reading *reading)
{
    static const char path[] = "/strategy/tensor_parallel";
    struct oracle *oracle = reading->oracle;
    const uint64_t t = size_of(reading, STRATEGY, "tensor_parallel", 1);
    const uint64_t h = size_of(reading, TRANSFORMER, "num_attention_heads", 0);
    const uint64_t k = size_of(reading, TRANSFORMER, "num_key_value_heads", h);
    add_if(oracle, uneven(size_of(reading, TRANSFORMER, "hidden_size", 0), t), "not_divisible", path);
    add_if(oracle, uneven(size_of(reading, TRANSFORMER, "intermediate_size", 0), t), "not_divisible", path);
    add_if(oracle, uneven(h, t), "not_divisible", path);
    add_if(oracle, uneven(k, t) && uneven(t, k), "not_divisible", path);
    const json_t *sp = find_key(reading, STRATEGY, "sequence_parallel")
                           ? json_object_get(reading->objects[STRATEGY], "sequence_parallel")
                           : NULL;
    add_if(oracle, json_is_true(sp) && uneven(size_of(reading, WORKLOAD, "sequence_length", 0), t), "not_divisible",
           "/workload/sequence_length");
    const uint64_t devices = size_of(reading, DEPLOYMENT, "devices", 0);
    add_if(oracle, devices != 0 && devices < t, "conflict", "/deployment/devices");
}

static void check_pipeline(const struct oracle_reading *reading)
{
    struct oracle *oracle = reading->oracle;
    const uint64_t pp = size_of(reading, STRATEGY, "pipeline_parallel", 1);
    const uint64_t stages = size_of(reading, STRATEGY, "virtual_stages", 1);
    const uint64_t layers = size_of(reading, TRANSFORMER, "num_hidden_layers", 0);
    const json_t *schedule = find_key(reading, STRATEGY, "pipeline_schedule")
                                 ? json_object_get(reading->objects[STRATEGY], "pipeline_schedule")
                                 : NULL;
    const bool readable = !schedule || !wrong_value(find_key(reading, STRATEGY, "pipeline_schedule"), schedule);
    const bool interleaved = is(reading, STRATEGY, "pipeline_schedule", "interleaved") || !readable;
    add_if(oracle, pp > 1 && is(reading, STRATEGY, "pipeline_schedule", "none"), "conflict",
           "/strategy/pipeline_schedule");
    add_if(oracle, stages > 1 && (pp == 1 || (pp > 1 && !interleaved)), "conflict", "/strategy/virtual_stages");
    if (uneven(layers, pp))
        oracle_add(oracle, "not_divisible", "/strategy/pipeline_parallel");
    else if (pp > 1)
        add_if(oracle, stages != 0 && layers / pp % stages != 0, "not_divisible", "/strategy/virtual_stages");
}

static void check_lengths(const struct oracle_reading *reading)
{
    struct oracle *oracle = reading->oracle;
    const uint64_t S = size_of(reading, WORKLOAD, "sequence_length", 0);
    const uint64_t c = size_of(reading, WORKLOAD, "context_length", 0);
    const uint64_t rows = is(reading, TRANSFORMER, "position", "learned")
                              ? size_of(reading, TRANSFORMER, "max_position_embeddings", 0)
                              : 0;
    add_if(oracle, rows != 0 && S >= c && S > rows, "conflict", "/workload/sequence_length");
    add_if(oracle, rows != 0 && S < c && c > rows, "conflict", "/workload/context_length");
    const uint64_t dp = size_of(reading, STRATEGY, "data_parallel", 1);
    const uint64_t B = size_of(reading, WORKLOAD, "micro_batch_size", 0);
    add_if(oracle, uneven(size_of(reading, WORKLOAD, "global_batch_size", 0), dp * B), "not_divisible",
           "/workload/global_batch_size");
}

static const json_t *object_of(const json_t *value)
{
    return json_is_object(value) ? value : NULL;
}

/* The three forms of a model exclude each other, so one is read only when it stands alone. */
static void read_model(struct oracle_reading *reading)
{
    const json_t *model = reading->objects[MODEL];
    size_t forms = 0;
    for (const struct key *key = model_keys; key->name; key++)
        forms += json_object_get(model, key->name) != NULL;
    const char *name;
    json_t *value;
    char path[96];
    json_object_foreach((json_t *)(uintptr_t)model, name, value) {
        (void)value;
        member(MODEL, name, path);
        add_if(reading->oracle, !find_key(reading, MODEL, name), "unknown_key", path);
    }
    add_if(reading->oracle, model && forms == 0, "missing_key", "/model");
    add_if(reading->oracle, forms > 1, "conflict", "/model");
    const json_t *transformer = forms == 1 ? json_object_get(model, "transformer") : NULL;
    add_if(reading->oracle, transformer && !json_is_object(transformer), "wrong_type", "/model/transformer");
    reading->objects[TRANSFORMER] = object_of(transformer);
}

void oracle_of(const json_t *body, struct oracle *ret)
{
    struct oracle_reading reading = {.oracle = ret};
    ret->n = 0;
    reading.objects[REQUEST] = body;
    reading.objects[MODEL] = object_of(json_object_get(body, "model"));
    reading.objects[WORKLOAD] = object_of(json_object_get(body, "workload"));
    reading.objects[STRATEGY] = object_of(json_object_get(body, "strategy"));
    reading.objects[TARGET] = object_of(json_object_get(body, "target"));
    reading.objects[DEPLOYMENT] = object_of(json_object_get(body, "deployment"));
    reading.mode = is(&reading, WORKLOAD, "mode", "training")    ? TRAINING
                   : is(&reading, WORKLOAD, "mode", "inference") ? INFERENCE
                                                                 : ANY;
    read_object(&reading, REQUEST);
    read_model(&reading);
    for (enum object object = TRANSFORMER; object <= DEPLOYMENT; object++)
        read_object(&reading, object);
    const bool target = json_object_get(body, "target"), deployment = json_object_get(body, "deployment");
    add_if(ret, target && !deployment, "missing_key", "/deployment");
    add_if(ret, deployment && !target, "conflict", "/deployment");
    check_model(&reading);
    check_tensor_parallel(&reading);
    check_pipeline(&reading);
    check_lengths(&reading);
}
