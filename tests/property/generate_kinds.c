/* Requests whose models have blocks of other kinds. */
#include <stdio.h>

#include "tests/property/generate.h"

/* What the strategy asks of a model. */
struct degrees {
    uint64_t t, cp, ep, etp;
    bool a2a, training, dealt; /* dealt: the tokens of an inference step are divided among the tensor group */
};

static bool chance(struct gen *gen, unsigned percent)
{
    return gen_chance(gen, percent);
}

static void put_text(json_t *object, const char *key, const char *word)
{
    json_object_set_new(object, key, json_string(word));
}

static uint64_t divisor_of(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static void put_qk_norm(struct gen *gen, json_t *kind, const struct degrees *degrees, bool rms)
{
    static const char *const forms[] = {"head", "each_head", "without_weight", "span"};
    if (!gen_put_flag(gen, kind, "qk_norm", 60))
        return;
    const uint64_t form = gen_range(gen, 0, degrees->t == 1 ? 3 : 2);
    if (form || chance(gen, 50))
        put_text(kind, "qk_norm_form", forms[form]);
    if (form != 2 && !rms)
        gen_put_flag(gen, kind, "qk_norm_bias", 50);
}

static void put_heads(struct gen *gen, json_t *kind, const struct degrees *degrees, bool rope, bool rms)
{
    const uint64_t t = degrees->t, whole = t * (degrees->a2a ? degrees->cp : 1);
    uint64_t k = whole * gen_range(gen, 1, 2), h = k * gen_range(gen, 1, 3), d = gen_range(gen, 1, 40);
    if (!degrees->a2a && chance(gen, 30)) {
        for (k = gen_range(gen, 1, t); t % k;)
            k--;
        h = t * gen_range(gen, 1, 3);
    }
    gen_put(kind, "num_attention_heads", h);
    gen_put_or_not(gen, kind, "num_key_value_heads", k, h);
    gen_put(kind, "head_dim", d);
    if (rope && chance(gen, 40))
        gen_put(kind, "rotary_dim", gen_range(gen, 0, d));
    put_qk_norm(gen, kind, degrees, rms);
    if (!degrees->training)
        gen_put_flag(gen, kind, "attention_sinks", 25);
}

static void put_latent(struct gen *gen, json_t *kind, const struct degrees *degrees)
{
    put_text(kind, "attention", "latent");
    gen_put(kind, "num_attention_heads", degrees->t * (degrees->a2a ? degrees->cp : 1) * gen_range(gen, 1, 3));
    if (chance(gen, 60))
        gen_put(kind, "q_lora_rank", gen_range(gen, 1, 60));
    gen_put(kind, "kv_lora_rank", gen_range(gen, 1, 60));
    gen_put(kind, "qk_nope_head_dim", gen_range(gen, 1, 40));
    gen_put(kind, "qk_rope_head_dim", gen_range(gen, 1, 20));
    gen_put(kind, "v_head_dim", gen_range(gen, 1, 40));
    if (!degrees->training)
        gen_put_flag(gen, kind, "attention_sinks", 15);
}

static void put_experts(struct gen *gen, json_t *kind, const struct degrees *degrees, unsigned bits)
{
    const uint64_t E = degrees->ep * gen_range(gen, 1, 4);
    gen_put(kind, "num_experts", E);
    gen_put(kind, "experts_per_token", gen_range(gen, 1, E));
    gen_put(kind, "expert_intermediate_size", gen_multiple(gen, degrees->etp, bits));
    gen_put_flag(gen, kind, "router_bias", 40);
    gen_put_flag(gen, kind, "expert_bias", 40);
    gen_put_flag(gen, kind, "score_correction_bias", 20);
    if (chance(gen, 50))
        return;
    gen_put(kind, "shared_expert_intermediate_size", gen_multiple(gen, degrees->t, bits));
    gen_put_flag(gen, kind, "shared_expert_gate", 50);
}

static void put_branches(struct gen *gen, json_t *kind, bool parallel)
{
    static const char *const places[] = {"before", "after", "after_residual", "around"};
    static const char *const of_parallel[] = {"before", "shared"};
    if (parallel)
        put_text(kind, "residual", "parallel");
    gen_put_word(gen, kind, "norm_place", parallel ? of_parallel : places, parallel ? 2 : 4);
}

/* The keys of one kind. */
static void put_kind(struct gen *gen, json_t *kind, const struct degrees *degrees, const json_t *model, unsigned bits)
{
    static const char *const activations[] = {"gelu", "relu", "swiglu", "geglu"};
    static const char *const flags[] = {"bias",           "qkv_bias",          "output_bias",       "mlp_bias",
                                        "hidden_dropout", "attention_dropout", "attention_soft_cap"};
    const char *position = json_string_value(json_object_get(model, "position"));
    const bool rms = json_string_value(json_object_get(model, "norm"))[0] == 'r';
    const bool parallel = chance(gen, 25), latent = !parallel && chance(gen, 40);
    put_branches(gen, kind, parallel);
    gen_put_word(gen, kind, "activation", activations, 4);
    if (latent)
        put_latent(gen, kind, degrees);
    else
        put_heads(gen, kind, degrees, position[0] == 'r', rms);
    if (!parallel && chance(gen, 55))
        put_experts(gen, kind, degrees, bits);
    else
        gen_put(kind, "intermediate_size", gen_multiple(gen, degrees->t, bits));
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        gen_put_flag(gen, kind, flags[i], 30);
    if (chance(gen, 30)) {
        gen_put(kind, "sliding_window", gen_magnitude(gen, bits));
        gen_put_flag(gen, kind, "chunked_attention", 30);
    }
}

static json_t *run_of(uint64_t count, unsigned kind)
{
    return json_pack("{s:I, s:o}", "count", (json_int_t)count, "kind", json_sprintf("kind_%u", kind));
}

/* The layers take turns, beginning with any kind. */
static void put_kinds(struct gen *gen, json_t *model, json_t *workload, const struct degrees *degrees, unsigned bits)
{
    const unsigned n = (unsigned)gen_range(gen, 2, 3), first = (unsigned)gen_range(gen, 0, n - 1);
    json_t *kinds = json_array(), *layers = json_array(), *planned = json_array();
    uint64_t total = 0;
    for (unsigned i = 0; i < n; i++) {
        json_t *kind = json_object();
        json_object_set_new(kind, "name", json_sprintf("kind_%u", i));
        put_kind(gen, kind, degrees, model, bits);
        json_array_append_new(kinds, kind);
    }
    for (unsigned i = 0; i < 2 * n; i++) {
        const uint64_t count = gen_range(gen, 1, 5);
        json_array_append_new(layers, run_of(count, (first + i) % n));
        total += count;
    }
    for (unsigned i = 0; i < n; i++)
        if (chance(gen, 60))
            json_array_append_new(planned, json_sprintf("kind_%u", n - 1 - i));
    json_object_set_new(model, "kinds", kinds);
    json_object_set_new(model, "layers", layers);
    gen_put(model, "num_hidden_layers", total);
    if (json_array_size(planned) && chance(gen, 40))
        json_object_set(workload, "block_kinds", planned);
    json_decref(planned);
}

static json_t *model_of(struct gen *gen, const struct degrees *degrees, json_t *workload, uint64_t positions,
                        unsigned bits)
{
    static const char *const norms[] = {"layernorm", "rmsnorm"}, *const words[] = {"learned", "rope", "none", "alibi"};
    json_t *model = json_object();
    put_text(model, "name", "of-kinds");
    gen_put(model, "hidden_size", gen_multiple(gen, degrees->t, bits));
    gen_put(model, "vocab_size", gen_magnitude(gen, 17));
    gen_put_word(gen, model, "norm", norms, 2);
    gen_put_flag(gen, model, "norm_without_bias", 30);
    gen_put_flag(gen, model, "norm_without_weight", 15);
    gen_put_word(gen, model, "position", words, 4);
    if (json_string_value(json_object_get(model, "position"))[0] == 'l')
        gen_put(model, "max_position_embeddings", positions);
    if (chance(gen, 40)) {
        put_kinds(gen, model, workload, degrees, bits);
        return model;
    }
    gen_put(model, "num_hidden_layers", gen_range(gen, 1, 40));
    put_kind(gen, model, degrees, model, bits);
    return model;
}

static void put_training(struct gen *gen, const struct degrees *degrees, uint64_t dp, json_t *workload,
                         json_t *strategy, unsigned bits)
{
    static const char *const recomputes[] = {"none", "selective", "full"};
    static const char *const exchanges[] = {"ring", "all_gather"};
    const uint64_t B = gen_magnitude(gen, 4);
    /* 2 cp divides the sequence, and t the rank's share of it */
    gen_put(workload, "sequence_length", gen_multiple(gen, 2 * degrees->cp * degrees->t, bits));
    gen_put(workload, "micro_batch_size", B);
    gen_put(workload, "global_batch_size", gen_multiple(gen, B * dp, 4));
    if (chance(gen, 50))
        gen_put_word(gen, workload, "gradient_dtype", gen_dtypes, 4);
    gen_put_or_not(gen, strategy, "data_parallel", dp, 1);
    gen_put_or_not(gen, strategy, "context_parallel", degrees->cp, 1);
    if (degrees->a2a)
        put_text(strategy, "cp_comm", "a2a");
    else if (chance(gen, 60))
        gen_put_word(gen, strategy, "cp_comm", exchanges, 2);
    json_object_set_new(strategy, "sequence_parallel", json_true()); /* which experts need */
    if (chance(gen, 80))
        gen_put_word(gen, strategy, "recompute", recomputes, 3);
    if (chance(gen, 50))
        json_object_set_new(strategy, "recompute_all_gather", json_boolean(chance(gen, 50)));
    gen_put_flag(gen, strategy, "recompute_activation", 40);
    gen_put_or_not(gen, strategy, "zero_stage", gen_range(gen, 0, 3), 0);
}

static void put_inference(struct gen *gen, const struct degrees *degrees, uint64_t replicas, json_t *workload,
                          json_t *strategy, unsigned bits)
{
    static const char *const phases[] = {"prefill", "decode"};
    gen_put_word(gen, workload, "phase", phases, 2);
    gen_put(workload, "batch_size", degrees->dealt ? gen_multiple(gen, degrees->t, 4) : gen_magnitude(gen, 6));
    gen_put(workload, "context_length", gen_magnitude(gen, bits));
    if (chance(gen, 60))
        gen_put_word(gen, workload, "kv_cache_dtype", gen_dtypes, 4);
    gen_put_or_not(gen, strategy, "replicas", replicas, 1);
}

static bool any_experts(const json_t *model)
{
    size_t i;
    json_t *kind;
    json_array_foreach(json_object_get(model, "kinds"), i, kind)
        if (json_object_get(kind, "num_experts"))
            return true;
    return json_object_get(model, "num_experts") != NULL;
}

static struct degrees degrees_of(struct gen *gen, bool training)
{
    static const uint64_t tensor[] = {1, 1, 1, 2, 2, 3, 4, 6, 8}, some[] = {1, 1, 2, 3, 4};
    struct degrees degrees = {.t = tensor[gen_range(gen, 0, 8)], .cp = 1, .training = training};
    if (training && chance(gen, 50)) {
        degrees.cp = gen_range(gen, 2, 4);
        degrees.a2a = chance(gen, 35);
    }
    degrees.ep = some[gen_range(gen, 0, 4)];
    degrees.etp = chance(gen, 50) ? degrees.t : some[gen_range(gen, 0, 4)];
    degrees.dealt = !training && (degrees.ep != 1 || degrees.etp != degrees.t);
    return degrees;
}

json_t *gen_request_of_kinds(struct gen *gen, const struct gen_shape *shape)
{
    static const char *const targets[] = {"reference-queue", "reference-slot"};
    const struct degrees degrees = degrees_of(gen, shape->training);
    const uint64_t experts = degrees.ep * degrees.etp;
    const uint64_t copies = experts / divisor_of(experts, degrees.t * degrees.cp) * gen_range(gen, 1, 5);
    json_t *workload = json_object(), *strategy = json_object(), *request = json_object();
    put_text(workload, "mode", shape->training ? "training" : "inference");
    gen_put_word(gen, workload, "dtype", gen_dtypes, 4);
    gen_put_or_not(gen, strategy, "tensor_parallel", degrees.t, 1);
    gen_put_or_not(gen, strategy, "expert_parallel", degrees.ep, 1);
    gen_put_or_not(gen, strategy, "expert_tensor_parallel", degrees.etp, degrees.t);
    if (shape->training)
        put_training(gen, &degrees, copies, workload, strategy, shape->bits);
    else
        put_inference(gen, &degrees, copies, workload, strategy, shape->bits);
    const json_int_t positions =
        json_integer_value(json_object_get(workload, shape->training ? "sequence_length" : "context_length"));
    json_t *model = model_of(gen, &degrees, workload, (uint64_t)positions, shape->bits);
    if (!any_experts(model) && chance(gen, 40))
        json_object_set_new(strategy, "sequence_parallel", json_boolean(false));
    if (!shape->training)
        json_object_del(strategy, "sequence_parallel");
    json_object_set_new(request, "model", json_pack("{s:o}", "transformer", model));
    json_object_set_new(request, "workload", workload);
    json_object_set_new(request, "strategy", strategy);
    if (shape->target) {
        json_object_set_new(request, "target", json_object());
        gen_put_word(gen, json_object_get(request, "target"), "kind", targets, 2);
        json_object_set_new(request, "deployment",
                            json_pack("{s:I, s:I}", "devices", (json_int_t)(degrees.t + gen_range(gen, 0, 3)),
                                      "memory_bytes", (json_int_t)((UINT64_C(1) << 53) - 1)));
    }
    return request;
}
