#include "common/view/explain.h"

#include "common/view/capacity_write.h"

static void write_sizes(struct bp_writer *writer, const struct bp_kind *kind)
{
    const struct {
        const char *key;
        uint64_t value;
    } sizes[] = {
        {"num_attention_heads", kind->num_attention_heads},
        {"num_key_value_heads", kind->num_key_value_heads},
        {"head_dim", kind->head_dim},
        {"q_lora_rank", kind->q_lora_rank},
        {"kv_lora_rank", kind->kv_lora_rank},
        {"qk_nope_head_dim", kind->qk_nope_head_dim},
        {"qk_rope_head_dim", kind->qk_rope_head_dim},
        {"v_head_dim", kind->v_head_dim},
        {"window", kind->window},
        {"intermediate_size", kind->intermediate_size},
        {"num_experts", kind->num_experts},
        {"experts_per_token", kind->experts_per_token},
        {"expert_intermediate_size", kind->expert_intermediate_size},
        {"shared_intermediate_size", kind->shared_intermediate_size},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value)
            bp_writer_put_uint(writer, sizes[i].key, sizes[i].value);
}

static void write_features(struct bp_writer *writer, const struct bp_kind *kind)
{
    const struct {
        const char *key;
        bool has;
    } features[] = {
        {"chunked", kind->chunked},         {"sinks", kind->sinks},
        {"soft_cap", kind->soft_cap},       {"cross_attention", kind->cross_attention},
        {"shared_gate", kind->shared_gate}, {"router_bias", kind->router_bias},
        {"expert_bias", kind->expert_bias}, {"score_correction_bias", kind->score_correction_bias},
        {"qkv_bias", kind->qkv_bias},       {"output_bias", kind->output_bias},
        {"mlp_bias", kind->mlp_bias},
    };
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (features[i].has)
            bp_writer_put_bool(writer, features[i].key, true);
}

/* Sizes and features that a kind does not have are left out. */
static int write_kind(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind,
                      struct bp_err *err)
{
    struct bp_parameter_count count;
    if (bp_kind_count(model, kind, &count, err) < 0)
        return -1;
    bp_writer_object(writer);
    bp_writer_put_string(writer, "kind", kind->name);
    bp_writer_put_uint(writer, "layers", kind->layers);
    bp_writer_key(writer, "parameters");
    bp_writer_decimal(writer, count.total);
    bp_writer_key(writer, "active");
    bp_writer_decimal(writer, count.active);
    bp_writer_put_string(writer, "attention", bp_attention_names[kind->attention]);
    bp_writer_put_string(writer, "activation", bp_activation_names[kind->activation]);
    bp_writer_put_string(writer, "norms", bp_norm_place_names[kind->norm_place]);
    bp_writer_put_string(writer, "qk_norm", kind->qk_norm ? bp_qk_norm_names[kind->qk_norm] : NULL);
    bp_writer_put_string(writer, "residual", bp_residual_names[kind->residual]);
    write_sizes(writer, kind);
    write_features(writer, kind);
    bp_writer_end(writer);
    return 0;
}

static void write_quantisation(struct bp_writer *writer, const struct bp_quantisation *quantisation)
{
    bp_writer_key(writer, "quantisation");
    if (!quantisation->method) {
        bp_writer_null(writer);
        return;
    }
    bp_writer_object(writer);
    bp_writer_put_string(writer, "method", quantisation->method);
    bp_writer_put_uint(writer, "element_bits", quantisation->element_bits);
    bp_writer_put_uint(writer, "scale_bits", quantisation->scale_bits);
    bp_writer_put_uint(writer, "block_rows", quantisation->block_rows);
    bp_writer_put_uint(writer, "block_columns", quantisation->block_columns);
    bp_writer_put_bool(writer, "experts_only", quantisation->experts_only);
    bp_writer_end(writer);
}

static void write_pointers(struct bp_writer *writer, const char *key, const char *const *pointers, size_t n)
{
    bp_writer_key(writer, key);
    bp_writer_array(writer);
    for (size_t i = 0; i < n; i++)
        bp_writer_string(writer, pointers[i]);
    bp_writer_end(writer);
}

static void write_refused(struct bp_writer *writer, const struct bp_config *config)
{
    bp_writer_key(writer, "refused");
    bp_writer_array(writer);
    for (size_t i = 0; i < config->n_refused; i++) {
        bp_writer_object(writer);
        bp_writer_put_string(writer, "path", config->refused[i].pointer);
        bp_writer_put_string(writer, "message", config->refused[i].message);
        bp_writer_end(writer);
    }
    bp_writer_end(writer);
}

int bp_explain_write(struct bp_writer *writer, const struct bp_config *config, struct bp_err *err)
{
    enum { CACHE_BYTES = 2 };
    struct bp_calc calc = {0};
    struct bp_bytes kv = bp_bytes(&calc, bp_mul(&calc, CACHE_BYTES, config->kv_elements));
    if (bp_calc_check(&calc, "", "the KV cache of a token", err))
        return -1;
    bp_writer_object(writer);
    bp_writer_put_string(writer, "name", config->model.name);
    bp_writer_put_string(writer, "family", config->family);
    bp_writer_put_string(writer, "class", config->public_class);
    bp_writer_put_string(writer, "dtype", config->dtype);
    write_quantisation(writer, &config->quantisation);
    bp_writer_put_uint(writer, "hidden_size", config->model.hidden_size);
    bp_writer_put_uint(writer, "num_hidden_layers", config->model.num_hidden_layers);
    bp_writer_put_uint(writer, "vocab_size", config->model.vocab_size);
    bp_writer_put_bool(writer, "tie_word_embeddings", config->model.tie_word_embeddings);
    bp_writer_key(writer, "parameters");
    bp_parameters_write(writer, &config->count);
    bp_writer_key(writer, "kinds");
    bp_writer_array(writer);
    for (uint32_t i = 0; i < config->model.n_kinds; i++)
        if (write_kind(writer, &config->model, &config->model.kinds[i], err) < 0)
            return -1;
    bp_writer_end(writer);
    bp_writer_put_uint(writer, "kv_bytes_per_token", kv.n);
    write_pointers(writer, "ignored", config->ignored, config->n_ignored);
    write_pointers(writer, "assumed", config->assumed, config->n_assumed);
    write_refused(writer, config);
    bp_writer_end(writer);
    return 0;
}
