#include "tests/property/generate.h"

#include <stdlib.h>

#define LARGEST ((UINT64_C(1) << 53) - 1)

uint64_t gen_next(struct gen *gen)
{
    uint64_t z = gen->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t gen_range(struct gen *gen, uint64_t least, uint64_t most)
{
    return least + gen_next(gen) % (most - least + 1);
}

bool gen_chance(struct gen *gen, unsigned percent)
{
    return gen_next(gen) % 100 < percent;
}

static unsigned setting(const char *name, unsigned fallback)
{
    const char *text = getenv(name);
    return text && *text ? (unsigned)strtoul(text, NULL, 10) : fallback;
}

unsigned gen_cases(unsigned usual)
{
    const unsigned percent = setting("BP_PROPERTY_CASES", getenv("BP_LONG") ? 1000 : 100);
    const uint64_t scaled = (uint64_t)usual * percent / 100;
    return scaled ? (unsigned)scaled : 1;
}

struct gen gen_of_case(unsigned i)
{
    struct gen gen = {((uint64_t)setting("BP_PROPERTY_SEED", 1) << 32) + i};
    gen.state = gen_next(&gen);
    return gen;
}

uint64_t gen_magnitude(struct gen *gen, unsigned bits)
{
    return gen_next(gen) >> (64 - gen_range(gen, 1, bits)) | 1;
}

/* A gen_multiple of `of`, not past what JSON can say. */
uint64_t gen_multiple(struct gen *gen, uint64_t of, unsigned bits)
{
    uint64_t times = gen_magnitude(gen, bits);
    return times > LARGEST / of ? LARGEST / of * of : times * of;
}

void gen_put(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

void gen_put_or_not(struct gen *gen, json_t *object, const char *key, uint64_t value, uint64_t fallback)
{
    if (value != fallback || gen_chance(gen, 50))
        gen_put(object, key, value);
}

bool gen_put_flag(struct gen *gen, json_t *object, const char *key, unsigned percent)
{
    bool value = gen_chance(gen, percent);
    if (value || gen_chance(gen, 30))
        json_object_set_new(object, key, json_boolean(value));
    return value;
}

void gen_put_word(struct gen *gen, json_t *object, const char *key, const char *const *words, uint64_t n)
{
    json_object_set_new(object, key, json_string(words[gen_range(gen, 0, n - 1)]));
}

/* Query and key/value heads that t ranks can share: k and t multiples one of the other, h of both. */
static void put_heads(struct gen *gen, json_t *model, uint64_t t, unsigned bits, uint64_t *ret_h)
{
    uint64_t k = gen_range(gen, 1, t);
    while (t % k)
        k--;
    if (gen_chance(gen, 50))
        k = t * gen_range(gen, 1, 4);
    uint64_t h = gen_multiple(gen, k > t ? k : t, bits > 8 ? 3 + bits / 8 : 3);
    if (gen_chance(gen, 30))
        k = h;
    gen_put(model, "num_attention_heads", h);
    gen_put_or_not(gen, model, "num_key_value_heads", k, h);
    *ret_h = h;
}

static json_t *model_of(struct gen *gen, const struct gen_shape *shape, uint64_t t, uint64_t layers, uint64_t positions)
{
    static const char *const activations[] = {"gelu", "relu", "swiglu", "geglu"};
    static const char *const norms[] = {"layernorm", "rmsnorm"};
    json_t *model = json_object();
    uint64_t h, H;
    put_heads(gen, model, t, shape->bits, &h);
    if (gen_chance(gen, 50)) {
        H = gen_multiple(gen, h, shape->bits); /* h is a gen_multiple of t */
        if (gen_chance(gen, 30))
            gen_put(model, "head_dim", H / h);
    } else {
        H = gen_multiple(gen, t, shape->bits);
        gen_put(model, "head_dim", gen_magnitude(gen, shape->bits > 40 ? shape->bits - 20 : 8));
    }
    json_object_set_new(model, "name", json_sprintf("model-%u", (unsigned)gen_range(gen, 0, 9)));
    gen_put(model, "hidden_size", H);
    gen_put(model, "num_hidden_layers", layers);
    gen_put(model, "vocab_size", gen_magnitude(gen, 17));
    if (gen_chance(gen, 30) && H <= LARGEST / 4)
        gen_put(model, "intermediate_size", 4 * H);
    else
        gen_put(model, "intermediate_size", gen_multiple(gen, t, shape->bits));
    gen_put_word(gen, model, "activation", activations, 4);
    gen_put_word(gen, model, "norm", norms, 2);
    switch (gen_range(gen, 0, 2)) {
    case 0:
        json_object_set_new(model, "position", json_string("learned"));
        gen_put(model, "max_position_embeddings", positions + (positions < LARGEST ? gen_range(gen, 0, 1) : 0));
        break;
    case 1:
        json_object_set_new(model, "position", json_string("rope"));
        if (gen_chance(gen, 30))
            gen_put(model, "max_position_embeddings", 1);
        break;
    default:
        json_object_set_new(model, "position", json_string("none"));
    }
    static const char *const flags[] = {"bias",
                                        "qkv_bias",
                                        "qk_norm",
                                        "hidden_dropout",
                                        "attention_dropout",
                                        "embedding_dropout",
                                        "tie_word_embeddings"};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        gen_put_flag(gen, model, flags[i], 50);
    return model;
}

const char *const gen_dtypes[] = {"float8", "float16", "bfloat16", "float32"};

/* Pipeline degree, schedule and stages; returns what the layers must divide by. */
static uint64_t put_pipeline(struct gen *gen, json_t *strategy)
{
    static const char *const schedules[] = {"1f1b", "gpipe", "interleaved"};
    uint64_t pp = gen_chance(gen, 40) ? gen_range(gen, 2, 16) : 1, stages = 1;
    gen_put_or_not(gen, strategy, "pipeline_parallel", pp, 1);
    if (pp > 1 && gen_chance(gen, 70)) {
        gen_put_word(gen, strategy, "pipeline_schedule", schedules, 3);
        const char *schedule = json_string_value(json_object_get(strategy, "pipeline_schedule"));
        if (schedule[0] == 'i')
            stages = gen_range(gen, 1, 4);
        gen_put_or_not(gen, strategy, "virtual_stages", stages, 1);
    } else if (pp == 1 && gen_chance(gen, 20)) {
        json_object_set_new(strategy, "pipeline_schedule", json_string("none"));
    }
    return pp * stages;
}

static void put_training(struct gen *gen, const struct gen_shape *shape, uint64_t t, json_t *workload, json_t *strategy)
{
    static const char *const recomputes[] = {"none", "selective", "full"};
    const bool sp = gen_put_flag(gen, strategy, "sequence_parallel", 60);
    gen_put(workload, "sequence_length", sp ? gen_multiple(gen, t, shape->bits) : gen_magnitude(gen, shape->bits));
    const uint64_t B = gen_magnitude(gen, shape->bits > 20 ? shape->bits / 2 : 4);
    const uint64_t dp = gen_chance(gen, 60) ? gen_magnitude(gen, shape->bits > 20 ? 16 : 7) : 1;
    gen_put(workload, "micro_batch_size", B);
    gen_put(workload, "global_batch_size", gen_multiple(gen, B * dp, 4));
    gen_put_or_not(gen, strategy, "data_parallel", dp, 1);
    if (gen_chance(gen, 50))
        gen_put_word(gen, workload, "gradient_dtype", gen_dtypes, 4);
    if (gen_chance(gen, 80))
        gen_put_word(gen, strategy, "recompute", recomputes, 3);
    if (gen_chance(gen, 50))
        json_object_set_new(strategy, "recompute_all_gather", json_boolean(gen_chance(gen, 50)));
    gen_put_flag(gen, strategy, "recompute_activation", 40);
    gen_put_or_not(gen, strategy, "zero_stage", gen_range(gen, 0, 3), 0);
}

static void put_inference(struct gen *gen, const struct gen_shape *shape, json_t *workload, json_t *strategy)
{
    static const char *const phases[] = {"prefill", "decode"};
    gen_put_word(gen, workload, "phase", phases, 2);
    gen_put(workload, "batch_size", gen_magnitude(gen, shape->bits > 20 ? shape->bits / 2 : 6));
    gen_put(workload, "context_length", gen_magnitude(gen, shape->bits));
    gen_put_or_not(gen, strategy, "replicas", gen_chance(gen, 30) ? gen_range(gen, 1, 64) : 1, 1);
}

static uint64_t integer(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

json_t *gen_request(struct gen *gen, const struct gen_shape *shape)
{
    static const uint64_t degrees[] = {1, 1, 2, 2, 3, 4, 4, 6, 8, 8, 16, 64};
    static const char *const kinds[] = {"reference-queue", "reference-slot"};
    const uint64_t t = degrees[gen_range(gen, 0, sizeof(degrees) / sizeof(degrees[0]) - 1)];
    json_t *workload = json_object(), *strategy = json_object(), *request = json_object();
    json_object_set_new(workload, "mode", json_string(shape->training ? "training" : "inference"));
    gen_put_word(gen, workload, "dtype", gen_dtypes, 4);
    gen_put_or_not(gen, strategy, "tensor_parallel", t, 1);
    const uint64_t stages = shape->training ? put_pipeline(gen, strategy) : gen_range(gen, 1, 4);
    if (shape->training)
        put_training(gen, shape, t, workload, strategy);
    else {
        put_inference(gen, shape, workload, strategy);
        gen_put_or_not(gen, strategy, "pipeline_parallel", stages, 1);
    }
    const uint64_t positions = integer(workload, shape->training ? "sequence_length" : "context_length");
    json_object_set_new(
        request, "model",
        json_pack("{s:o}", "transformer", model_of(gen, shape, t, gen_multiple(gen, stages, 5), positions)));
    json_object_set_new(request, "workload", workload);
    json_object_set_new(request, "strategy", strategy);
    if (shape->target) {
        json_object_set_new(request, "target", json_object());
        gen_put_word(gen, json_object_get(request, "target"), "kind", kinds, 2);
        json_object_set_new(request, "deployment",
                            json_pack("{s:I, s:I}", "devices", (json_int_t)(t + gen_range(gen, 0, 3)), "memory_bytes",
                                      (json_int_t)LARGEST));
    }
    return request;
}
