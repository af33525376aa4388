/* The kinds of block that a config describes, what each feature adds to the count, and where it is refused. */
#include <check.h>
#include <string.h>

#include "common/model/config.h"
#include "tests/unit/form_fixture.h"
#include "tests/unit/reading.h"

static struct bp_arena arena;
static struct bp_problems problems;

/* `base` and `added` are members; either may be a whole that ends without a brace. */
static struct bp_config import_members(const char *base, const char *added)
{
    struct bp_config config = {0};
    char text[2048];
    snprintf(text, sizeof text, "{%s%s}", base, added);
    json_t *value = json_of(text);
    bp_problems_release(&problems);
    ck_assert_int_eq(bp_config_import(value, "", &arena, &problems, &config), 0);
    json_decref(value);
    return config;
}

/* "name x layers, ..." */
static const char *kinds_of(const struct bp_model *model)
{
    static char line[512];
    line[0] = '\0';
    for (uint32_t i = 0; i < model->n_kinds; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), "%s%s x %llu", i ? ", " : "", model->kinds[i].name,
                 (unsigned long long)model->kinds[i].layers);
    return line;
}

/* One letter a layer: the first of its kind's position, a, b, ... */
static const char *layers_of(const struct bp_model *model)
{
    static char line[64];
    memset(line, 0, sizeof line);
    for (uint64_t i = 0; model->layer_kinds && i < model->num_hidden_layers && i < sizeof line - 1; i++)
        line[i] = (char)('a' + model->layer_kinds[i]);
    return line;
}

#define SMALL(type, L) "'model_type': '" type "', 'hidden_size': 64, 'num_hidden_layers': " #L ", 'vocab_size': 9"
#define HEADS ", 'num_attention_heads': 8, 'num_key_value_heads': 2, 'head_dim': 8"
#define BLOOM "'model_type': 'bloom', 'n_embed': 64, 'n_layer': 2, 'vocab_size': 9"
#define COHERE SMALL("cohere", 2) HEADS
#define DEEPSEEK2                                                                                                      \
    SMALL("deepseek_v2", 4)                                                                                            \
    ", 'num_attention_heads': 8, 'num_experts_per_tok': 2, 'q_lora_rank': 16, "                                        \
    "'kv_lora_rank': 8, 'n_routed_experts': 4, 'moe_intermediate_size': 10"
#define DEEPSEEK3 SMALL("deepseek_v3", 8) ", 'num_attention_heads': 8"
#define FALCON SMALL("falcon", 2) ", 'num_attention_heads': 8"
#define GEMMA2 SMALL("gemma2", 4)
#define GEMMA3 SMALL("gemma3_text", 8)
#define GLM4 SMALL("glm4_moe", 4) HEADS
#define GPT_OSS SMALL("gpt_oss", 4)
#define GPTJ "'model_type': 'gptj', 'n_embd': 1024, 'n_layer': 2, 'vocab_size': 9"
#define LLAMA4 SMALL("llama4_text", 8)
#define MIXTRAL SMALL("mixtral", 2) HEADS
#define OLMO2 SMALL("olmo2", 2) HEADS
#define PHI SMALL("phi", 2) HEADS
#define PHI3 SMALL("phi3", 2) HEADS
#define QWEN2_MOE SMALL("qwen2_moe", 6) HEADS
#define QWEN3_MOE SMALL("qwen3_moe", 6) HEADS
#define STABLELM SMALL("stablelm", 2) ", 'num_attention_heads': 8, 'num_key_value_heads': 2"
#define STARCODER2 SMALL("starcoder2", 2) HEADS

static const struct {
    const char *base, *added, *kinds, *layers;
} patterns[] = {
    {MIXTRAL, "", "expert x 2", ""},
    {MIXTRAL, ", 'sliding_window': 8", "sliding_expert x 2", ""},
    {SMALL("mistral", 3), "", "sliding x 3", ""},
    {SMALL("qwen3", 4), "", "dense x 4", ""},
    {SMALL("qwen3", 4), ", 'use_sliding_window': true, 'max_window_layers': 3", "global x 3, sliding x 1", "aaab"},
    {SMALL("qwen2", 4), ", 'use_sliding_window': true, 'max_window_layers': 0", "sliding x 4", ""},
    {SMALL("qwen2", 2), ", 'use_sliding_window': true, 'layer_types': ['sliding_attention', 'full_attention']",
     "sliding x 1, global x 1", "ab"},
    {QWEN2_MOE, "", "expert x 6", ""},
    {QWEN2_MOE, ", 'decoder_sparse_step': 2", "dense x 3, expert x 3", "ababab"},
    {QWEN2_MOE, ", 'mlp_only_layers': [0, 5]", "dense x 2, expert x 4", "abbbba"},
    {QWEN2_MOE, ", 'num_experts': 0", "dense x 6", ""},
    {QWEN3_MOE, ", 'use_sliding_window': true", "sliding_expert x 6", ""},
    {QWEN2_MOE, ", 'use_sliding_window': true", "sliding_expert x 3, global_expert x 3", "ababab"},
    {QWEN2_MOE, ", 'use_sliding_window': true, 'max_window_layers': 2", "sliding_expert x 1, global_expert x 5",
     "abbbbb"},
    {QWEN3_MOE, ", 'use_sliding_window': true, 'mlp_only_layers': [1]", "sliding_expert x 5, sliding_dense x 1",
     "abaaaa"},
    {QWEN3_MOE,
     ", 'use_sliding_window': true, 'layer_types': ['full_attention', 'sliding_attention', 'full_attention', "
     "'full_attention', 'full_attention', 'full_attention']",
     "global_expert x 5, sliding_expert x 1", "abaaaa"},
    {GPT_OSS, "", "sliding_expert x 2, global_expert x 2", "abab"},
    {GPT_OSS, ", 'sliding_window': null", "expert x 4", ""},
    {GPT_OSS,
     ", 'layer_types': ['full_attention', 'sliding_attention', 'sliding_attention', "
     "'sliding_attention']",
     "global_expert x 1, sliding_expert x 3", "abbb"},
    {GEMMA2, "", "sliding x 2, global x 2", "abab"},
    {GEMMA2, ", 'sliding_window': null", "dense x 4", ""},
    {GEMMA3, "", "sliding x 7, global x 1", "aaaaabaa"},
    {GEMMA3, ", 'sliding_window_pattern': 2", "sliding x 4, global x 4", "abababab"},
    {SMALL("gemma3_text", 2), ", 'layer_types': ['full_attention', 'sliding_attention']", "global x 1, sliding x 1",
     "ab"},
    {DEEPSEEK2, "", "expert x 4", ""},
    {DEEPSEEK2, ", 'first_k_dense_replace': 1", "dense x 1, expert x 3", "abbb"},
    {DEEPSEEK2, ", 'moe_layer_freq': 2", "expert x 2, dense x 2", "abab"},
    {SMALL("deepseek_v2", 2), ", 'n_routed_experts': null", "dense x 2", ""},
    {DEEPSEEK3, "", "dense x 3, expert x 5", "aaabbbbb"},
    {SMALL("kimi_k2", 3) ", 'architectures': ['DeepseekV3ForCausalLM']", ", 'first_k_dense_replace': 1",
     "dense x 1, expert x 2", "abb"},
    {GLM4, "", "dense x 1, expert x 3", "abbb"},
    {LLAMA4, "", "chunked_expert x 6, global_expert x 2", "aaabaaab"},
    {LLAMA4, ", 'interleave_moe_layer_step': 2", "chunked_dense x 4, chunked_expert x 2, global_expert x 2",
     "abacabac"},
    {LLAMA4, ", 'moe_layers': [7], 'no_rope_layers': [1, 1, 1, 1, 1, 1, 1, 0]", "chunked_dense x 7, global_expert x 1",
     "aaaaaaab"},
    {LLAMA4, ", 'no_rope_layers': [], 'attention_chunk_size': null", "expert x 6, expert_nope x 2", "aaabaaab"},
    {SMALL("llama4_text", 2), ", 'layer_types': ['full_attention', 'chunked_attention']",
     "global_expert x 1, chunked_expert x 1", "ab"},
};

START_TEST(test_kinds__layers_are_of_the_kinds_that_the_config_says)
{
    struct bp_config config = import_members(patterns[_i].base, patterns[_i].added);
    ck_assert_msg(config.has_parameters, "%s", line_of(&problems));
    ck_assert_str_eq(kinds_of(&config.model), patterns[_i].kinds);
    ck_assert_str_eq(layers_of(&config.model), patterns[_i].layers);
}
END_TEST

START_TEST(test_kinds__a_kind_has_what_its_layers_have_and_no_more)
{
    struct bp_config config = import_members(LLAMA4, ", 'interleave_moe_layer_step': 2");
    const struct bp_kind *dense = &config.model.kinds[0], *expert = &config.model.kinds[1];
    const struct bp_kind *global = &config.model.kinds[2];
    ck_assert(dense->intermediate_size == 16384 && !dense->num_experts && !dense->shared_intermediate_size);
    ck_assert(!expert->intermediate_size && expert->num_experts == 16 && expert->experts_per_token == 1);
    ck_assert(expert->expert_intermediate_size == 8192 && expert->shared_intermediate_size == 8192);
    ck_assert(expert->window == 8192 && expert->chunked && expert->rotary_dim == 128);
    ck_assert(expert->qk_norm == BP_QK_NORM_WITHOUT_WEIGHT);
    ck_assert(!global->window && !global->chunked && !global->rotary_dim && global->qk_norm == BP_QK_NORM_NONE);

    config = import_members(DEEPSEEK3, "");
    dense = &config.model.kinds[0], expert = &config.model.kinds[1];
    ck_assert(dense->attention == BP_ATTENTION_LATENT && dense->q_lora_rank == 1536 && dense->kv_lora_rank == 512);
    ck_assert(dense->head_dim == 192 && dense->rotary_dim == 64 && dense->v_head_dim == 128);
    ck_assert(dense->num_key_value_heads == 8 && !dense->score_correction_bias && expert->score_correction_bias);

    config = import_members(GEMMA2, "");
    ck_assert(config.model.kinds[0].norm_place == BP_NORM_PLACE_AROUND && config.model.kinds[0].soft_cap);
    ck_assert(config.model.kinds[0].window == 4096 && config.model.final_soft_cap);
    ck_assert(config.model.tie_word_embeddings && config.model.kinds[0].activation == BP_ACTIVATION_GEGLU);
}
END_TEST

START_TEST(test_kinds__a_share_of_the_head_rotates)
{
    static const struct {
        const char *base, *added;
        uint64_t rotary_dim, head_dim;
    } rows[] = {
        {PHI, "", 4, 8},
        {PHI, ", 'partial_rotary_factor': 0.4", 3, 8},
        {PHI, ", 'rope_parameters': {'partial_rotary_factor': 0.25}", 2, 8},
        {PHI3, ", 'rope_scaling': {'partial_rotary_factor': 0.75}", 6, 8},
        {GLM4, "", 4, 8},
        {STABLELM, "", 2, 8},
        {GPTJ, "", 64, 64},
        {GPTJ, ", 'rotary_dim': 32", 32, 64},
        {GPTJ, ", 'rotary_dim': null", 64, 64},
        {FALCON, "", 8, 8},
        {FALCON, ", 'alibi': true", 0, 8},
        {BLOOM, "", 0, 8},
        {SMALL("gpt_neox", 2) ", 'num_attention_heads': 1", "", 16, 64},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bp_config config = import_members(rows[i].base, rows[i].added);
        ck_assert_uint_eq(config.model.kinds[0].rotary_dim, rows[i].rotary_dim);
        ck_assert_uint_eq(config.model.kinds[0].head_dim, rows[i].head_dim);
    }
}
END_TEST

/* What a member adds to the count (or takes from it), by hand: H 64, V 9, 2 layers unless said, h 8, k 2, d 8. */
static const struct {
    const char *base, *added;
    long long more;
} differences[] = {
    {COHERE, ", 'attention_bias': true", 2 * (64 + 2 * 16 + 64)},
    {COHERE, ", 'use_qk_norm': true", 2 * (8 + 2) * 8},
    {COHERE, ", 'tie_word_embeddings': false", 9 * 64},
    {PHI, ", 'qk_layernorm': true", 2 * 2 * 2 * 8},
    {PHI, ", 'tie_word_embeddings': true", -9 * 64},
    {STABLELM, ", 'use_qkv_bias': true", 2 * (64 + 2 * 16)},
    {STABLELM, ", 'qk_layernorm': true", 2 * (8 + 2) * 8},
    {STABLELM, ", 'use_parallel_residual': true", -2 * 2 * 64},
    {OLMO2, ", 'attention_bias': true", 2 * (64 + 2 * 16 + 64)},
    {STARCODER2, ", 'use_bias': false", -2 * (64 + 2 * 16 + 64 + 12288 + 64)},
    {FALCON, ", 'bias': true", 2 * (64 + 2 * 8 + 64 + 256 + 64)},
    {FALCON, ", 'multi_query': false", 2 * 2 * 64 * (64 - 8)},
    {FALCON, ", 'parallel_attn': false", 2 * 2 * 64},
    {FALCON, ", 'num_ln_in_parallel_attn': 2", 2 * 2 * 64},
    {FALCON, ", 'new_decoder_architecture': true", 2 * (2 * 64 * (64 - 8) + 2 * 64)},
    {FALCON, ", 'new_decoder_architecture': true, 'n_head_kv': 2", 2 * (2 * 64 * (16 - 8) + 2 * 64)},
    {FALCON, ", 'num_kv_heads': 2", 0},
    {FALCON, ", 'ffn_hidden_size': 100", -2 * 2 * 64 * 156},
    {FALCON, ", 'alibi': true", 0},
    {GPTJ, ", 'n_inner': 100", -2 * (2 * 1024 * 3996 + 3996)},
    {PHI3, ", 'resid_pdrop': 0.5", 0},
    {QWEN2_MOE, ", 'qkv_bias': false", -6 * (64 + 2 * 16)},
    {QWEN2_MOE, ", 'shared_expert_intermediate_size': 100", -6 * 3 * 64 * (5632 - 100)},
    {QWEN2_MOE, ", 'num_experts': 61", 6 * (3 * 64 * 1408 + 64)},
    {QWEN3_MOE, ", 'attention_bias': true", 6 * (64 + 2 * 16 + 64)},
    {GPT_OSS, ", 'attention_bias': false", -4 * (4096 + 2 * 512 + 64)},
    {GPT_OSS, ", 'num_local_experts': 129", 4 * (3 * 64 * 2880 + 2 * 2880 + 64 + 64 + 1)},
    {GEMMA2, ", 'attention_bias': true", 4 * (2048 + 2 * 1024 + 64)},
    {GEMMA3, ", 'final_logit_softcapping': 30.0", 0},
    {DEEPSEEK2, ", 'n_shared_experts': 3", 4 * 3 * 64 * 10},
    {DEEPSEEK2, ", 'attention_bias': true", 4 * (16 + 8 + 64 + 64)},
    {DEEPSEEK2, ", 'v_head_dim': 64", -4 * 64 * 8 * (8 + 64)},
    {GLM4, ", 'attention_bias': true", 4 * (64 + 2 * 16)},
    {GLM4, ", 'use_qk_norm': true", 4 * 2 * 8},
    {LLAMA4, ", 'use_qk_norm': false", 0},
    {LLAMA4, ", 'attention_bias': true", 8 * (5120 + 2 * 1024 + 64)},
};

START_TEST(test_kinds__each_feature_adds_exactly_its_tensors)
{
    struct bp_config plain = import_members(differences[_i].base, "");
    ck_assert_msg(plain.has_parameters, "%s", line_of(&problems));
    struct bp_config with = import_members(differences[_i].base, differences[_i].added);
    ck_assert_msg(with.has_parameters, "%s", line_of(&problems));
    ck_assert_int_eq((long long)with.count.total - (long long)plain.count.total, differences[_i].more);
}
END_TEST

/* H 64, h 8, queries of 192 and keys from 8 + 64: without a query rank one projection stands where two and a norm did.
 */
START_TEST(test_kinds__a_null_query_rank_projects_queries_at_once)
{
    struct bp_config ranked = import_members(DEEPSEEK2, "");
    struct bp_config whole = import_members(
        SMALL("deepseek_v2", 4), ", 'num_attention_heads': 8, 'num_experts_per_tok': 2, 'q_lora_rank': null, "
                                 "'kv_lora_rank': 8, 'n_routed_experts': 4, 'moe_intermediate_size': 10");
    ck_assert_uint_eq(whole.model.kinds[0].q_lora_rank, 0);
    ck_assert(whole.count.total - ranked.count.total == 4 * (64 * 8 * 192 - 64 * 16 - 16 - 16 * 8 * 192));
    ck_assert(ranked.kv_elements == 4 * (8 + 64) && whole.kv_elements == ranked.kv_elements);
}
END_TEST

static const struct {
    const char *base, *added;
} taken[] = {
    {BLOOM, ""},
    {COHERE, ""},
    {COHERE, ", 'use_qk_norm': true, 'attention_bias': true"},
    {DEEPSEEK2, ""},
    {DEEPSEEK3, ", 'attention_bias': true"},
    {FALCON, ""},
    {FALCON, ", 'alibi': true"},
    {FALCON, ", 'parallel_attn': false"},
    {SMALL("gemma", 2), ""},
    {SMALL("gemma", 2), ", 'attention_bias': true"},
    {GEMMA2, ""},
    {GEMMA2, ", 'attn_logit_softcapping': null, 'final_logit_softcapping': null, 'sliding_window': null"},
    {GEMMA3, ""},
    {GLM4, ""},
    {GPT_OSS, ""},
    {GPTJ, ""},
    {GPTJ, ", 'rotary_dim': 32"},
    {LLAMA4, ""},
    {LLAMA4, ", 'num_local_experts': 0, 'attention_chunk_size': null"},
    {LLAMA4, ", 'num_local_experts': 0, 'attention_chunk_size': null, 'no_rope_layers': [1, 1, 1, 1, 1, 1, 1, 1]"},
    {LLAMA4, ", 'num_local_experts': 0, 'attention_chunk_size': null, 'no_rope_layers': [1, 1, 1, 1, 1, 1, 1, 1], "
             "'use_qk_norm': false"},
    {MIXTRAL, ""},
    {MIXTRAL, ", 'quantization_config': {'quant_method': 'gptq'}"},
    {OLMO2, ""},
    {PHI, ""},
    {PHI3, ""},
    {PHI3, ", 'partial_rotary_factor': 0.75, 'sliding_window': 8"},
    {QWEN2_MOE, ""},
    {QWEN2_MOE, ", 'num_experts': 0"},
    {QWEN3_MOE, ", 'use_sliding_window': true"},
    {STABLELM, ""},
    {STABLELM, ", 'partial_rotary_factor': 1, 'use_qkv_bias': true"},
    {STABLELM, ", 'partial_rotary_factor': 1, 'use_parallel_residual': true"},
    {STARCODER2, ", 'residual_dropout': 0.1, 'embedding_dropout': 0.1"},
    {STARCODER2, ", 'use_bias': false"},
    {STARCODER2, ", 'sliding_window': 4096"},
    {DEEPSEEK3, ", 'mtp': true, 'num_nextn_predict_layers': 1"},
};

/* What is planned is digested as the form alone, so that must say everything. */
START_TEST(test_kinds__what_a_config_says_is_wholly_in_the_form)
{
    struct bp_config config = import_members(taken[_i].base, taken[_i].added);
    ck_assert_str_eq(line_of(&problems), "");
    ck_assert(config.has_parameters && config.n_refused == 0);
    expect_form_says_it_all(&config.model, &arena);
}
END_TEST

/* The keys refused, in order. */
static const struct {
    const char *base, *added, *keys;
} refusals[] = {
    {MIXTRAL, ", 'mtp': true", "mtp"},
    {STABLELM, ", 'hidden_dropout': 0.1, 'qk_layernorm': true", "hidden_dropout"},
    {GPTJ, ", 'rope_parameters': {'partial_rotary_factor': 0.5}", "rope_parameters/partial_rotary_factor"},
    {COHERE, ", 'clip_qkv': 8, 'n_shared_experts': 1", "clip_qkv n_shared_experts"},
};

START_TEST(test_kinds__what_the_rows_do_not_model_is_refused_at_its_key)
{
    char expected[512] = "", keys[256];
    snprintf(keys, sizeof keys, "%s", refusals[_i].keys);
    struct bp_config config = import_members(refusals[_i].base, refusals[_i].added);
    size_t n = 0;
    for (char *key = strtok(keys, " "); key; key = strtok(NULL, " "), n++) {
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "%sunsupported_feature /%s",
                 *expected ? ", " : "", key);
        ck_assert_uint_lt(n, config.n_refused);
        ck_assert_str_eq(config.refused[n].pointer + 1, key);
        ck_assert_ptr_nonnull(strstr(config.refused[n].message, "is not modelled"));
    }
    ck_assert_str_eq(line_of(&problems), expected);
    ck_assert_uint_eq(config.n_refused, n);
    ck_assert(config.has_parameters);
}
END_TEST

static const struct {
    const char *base, *added, *problems;
} broken[] = {
    {SMALL("deepseek_v2", 2), "", "missing_key /num_experts_per_tok"},
    {DEEPSEEK3, ", 'num_experts_per_tok': 257", "out_of_range /num_experts_per_tok"},
    {DEEPSEEK3, ", 'n_shared_experts': 9007199254740991", "out_of_range /n_shared_experts"},
    {DEEPSEEK3, ", 'q_lora_rank': -1", "out_of_range /q_lora_rank"},
    {DEEPSEEK3, ", 'mtp': 1", "wrong_type /mtp"},
    {QWEN3_MOE, ", 'mlp_only_layers': 7", "wrong_type /mlp_only_layers"},
    {QWEN3_MOE, ", 'mlp_only_layers': [6]", "out_of_range /mlp_only_layers"},
    {QWEN3_MOE, ", 'mlp_only_layers': ['x']", "out_of_range /mlp_only_layers"},
    {QWEN3_MOE, ", 'decoder_sparse_step': 0", "out_of_range /decoder_sparse_step"},
    {QWEN3_MOE, ", 'num_experts': 4, 'num_local_experts': 8, 'num_experts_per_tok': 2", "conflict /num_local_experts"},
    {GPT_OSS, ", 'layer_types': ['full_attention']", "conflict /layer_types"},
    {GPT_OSS, ", 'layer_types': 7", "wrong_type /layer_types"},
    {GEMMA2, ", 'attn_logit_softcapping': '50'", "wrong_type /attn_logit_softcapping"},
    {LLAMA4, ", 'no_rope_layers': [1, 0]", "conflict /no_rope_layers"},
    {FALCON, ", 'new_decoder_architecture': true, 'num_kv_heads': 3", "not_divisible /num_kv_heads"},
    {FALCON, ", 'n_head': 4", "conflict /n_head"},
    {FALCON, ", 'num_ln_in_parallel_attn': 3", "out_of_range /num_ln_in_parallel_attn"},
    {"'model_type': 'bloom', 'n_layer': 1, 'vocab_size': 9", ", 'n_embed': 9007199254740984",
     "out_of_range /hidden_size"},
    {"'model_type': 'mixtral', 'hidden_size': 64, 'vocab_size': 9", ", 'num_hidden_layers': 0",
     "out_of_range /num_hidden_layers"},
    {"'model_type': 'gpt_oss', 'hidden_size': 64, 'vocab_size': 9", ", 'num_hidden_layers': 4097",
     "out_of_range /num_hidden_layers"},
    {"'model_type': 'mixtral', 'hidden_size': 64, 'vocab_size': 9, 'num_hidden_layers': 2", ", 'num_local_experts': 0",
     "out_of_range /num_local_experts"},
    {"'model_type': 'mixtral', 'hidden_size': 64, 'vocab_size': 9, 'num_hidden_layers': 2",
     ", 'num_local_experts': null", "out_of_range /num_local_experts"},
    {"'model_type': 'gpt_oss', 'hidden_size': 64, 'vocab_size': 9, 'num_hidden_layers': 2", ", 'num_experts': 0",
     "out_of_range /num_experts"},
    {"'model_type': 'llama4_text', 'hidden_size': 64, 'vocab_size': 9", "", "missing_key /num_hidden_layers"},
    {"'model_type': 'other', 'text_config': {'model_type': 'neither'}", "",
     "unknown_model_type /text_config/model_type"},
    {"'model_type': 'other', 'text_config': {'hidden_size': 64}", "", "unknown_model_type /model_type"},
    {"'model_type': 'gemma3', 'text_config': {}", "",
     "missing_key /text_config/hidden_size, missing_key /text_config/num_hidden_layers"},
};

START_TEST(test_kinds__what_cannot_be_read_is_named_and_not_counted)
{
    struct bp_config config = import_members(broken[_i].base, broken[_i].added);
    const char *line = line_of(&problems);
    ck_assert(!config.has_parameters);
    /* Features may be refused beside it. */
    const char *at = strstr(line, broken[_i].problems);
    ck_assert_msg(at != NULL, "%s", line);
}
END_TEST

#define TEXT "'hidden_size': 64, 'num_hidden_layers': 2"

START_TEST(test_kinds__a_language_model_within_another_config_is_read_by_itself)
{
    struct bp_config config =
        import_members("'model_type': 'gemma3', 'architectures': ['Gemma3ForConditionalGeneration'], "
                       "'vision_config': {'hidden_size': 7}, 'torch_dtype': 'bfloat16', 'eos': 1",
                       ", 'text_config': {" TEXT ", 'eos': 2, 'rope_scaling': {'factor': 8}}");
    ck_assert_str_eq(config.family, "gemma3");
    ck_assert_str_eq(config.public_class, "Gemma3ForConditionalGeneration");
    ck_assert_str_eq(config.dtype, "bfloat16");
    ck_assert_uint_eq(config.model.vocab_size, 262208);
    ck_assert(config.model.kinds[0].num_attention_heads == 8 && config.model.kinds[0].num_key_value_heads == 4);
    ck_assert_str_eq(line_of(&problems), "");
    static const char *const ignored[] = {"/eos", "/text_config/eos", "/text_config/rope_scaling", "/torch_dtype",
                                          "/vision_config"};
    ck_assert_uint_eq(config.n_ignored, sizeof ignored / sizeof *ignored);
    for (size_t i = 0; i < config.n_ignored; i++)
        ck_assert_str_eq(config.ignored[i], ignored[i]);
    ck_assert_str_eq(config.assumed[0], "/text_config/attention_bias");
    ck_assert_uint_eq(config.n_refused, 0);
}
END_TEST

START_TEST(test_kinds__what_is_around_a_language_model_counts_where_it_must)
{
    static const char text[] = ", 'text_config': {'model_type': 'llama', 'vocab_size': 9, " TEXT "}";
    struct bp_config plain = import_members("'model_type': 'llava'", text);
    ck_assert_str_eq(line_of(&problems), "");
    ck_assert_str_eq(plain.family, "llama");
    struct bp_config tied = import_members("'model_type': 'llava', 'tie_word_embeddings': true", text);
    ck_assert(plain.count.total - tied.count.total == 9 * 64);
    ck_assert_uint_eq(tied.n_ignored, 0);
    struct bp_config stored =
        import_members("'model_type': 'llava', 'quantization_config': {'quant_method': 'awq'}", text);
    ck_assert_str_eq(line_of(&problems), "");
    ck_assert_str_eq(stored.quantisation.method, "awq");
    struct bp_config other = import_members("'model_type': 'llama4', 'architectures': ['Llama4Model']",
                                            ", 'text_config': {'vocab_size': 9, " TEXT "}");
    ck_assert_ptr_nonnull(strstr(line_of(&problems), "unsupported_feature /architectures"));
    ck_assert(!other.has_parameters);
}
END_TEST

START_TEST(test_kinds__how_the_checkpoint_is_stored_is_recorded)
{
    struct bp_config config = import_members(MIXTRAL, ", 'dtype': 'bfloat16', 'quantization_config': {'quant_method': "
                                                      "'fp8', 'weight_block_size': [128, 64]}");
    ck_assert_str_eq(config.dtype, "bfloat16");
    ck_assert_str_eq(config.quantisation.method, "fp8");
    ck_assert(config.quantisation.element_bits == 8 && config.quantisation.scale_bits == 32);
    ck_assert(config.quantisation.block_rows == 128 && config.quantisation.block_columns == 64);
    ck_assert(!config.quantisation.experts_only && config.has_parameters);
    config = import_members(GPT_OSS, ", 'quantization_config': {'quant_method': 'mxfp4'}");
    ck_assert(config.quantisation.element_bits == 4 && config.quantisation.scale_bits == 8);
    ck_assert(config.quantisation.block_rows == 1 && config.quantisation.block_columns == 32);
    ck_assert(config.quantisation.experts_only);
    config = import_members(MIXTRAL, ", 'quantization_config': {'quant_method': 'gptq'}");
    ck_assert_str_eq(config.quantisation.method, "gptq");
    ck_assert_uint_eq(config.quantisation.element_bits, 0);
    config = import_members(MIXTRAL, "");
    ck_assert(!config.dtype && !config.quantisation.method);
}
END_TEST

static void release(void)
{
    bp_problems_release(&problems);
    bp_arena_release(&arena);
}

#define LOOP(tcase, test, table) tcase_add_loop_test(tcase, test, 0, (int)(sizeof table / sizeof *table))

Suite *suite_kinds(void)
{
    Suite *suite = suite_create("kinds");
    TCase *tcase = tcase_create("kinds");
    tcase_add_checked_fixture(tcase, NULL, release);
    LOOP(tcase, test_kinds__layers_are_of_the_kinds_that_the_config_says, patterns);
    tcase_add_test(tcase, test_kinds__a_kind_has_what_its_layers_have_and_no_more);
    tcase_add_test(tcase, test_kinds__a_share_of_the_head_rotates);
    LOOP(tcase, test_kinds__each_feature_adds_exactly_its_tensors, differences);
    tcase_add_test(tcase, test_kinds__a_null_query_rank_projects_queries_at_once);
    LOOP(tcase, test_kinds__what_the_rows_do_not_model_is_refused_at_its_key, refusals);
    LOOP(tcase, test_kinds__what_a_config_says_is_wholly_in_the_form, taken);
    LOOP(tcase, test_kinds__what_cannot_be_read_is_named_and_not_counted, broken);
    tcase_add_test(tcase, test_kinds__a_language_model_within_another_config_is_read_by_itself);
    tcase_add_test(tcase, test_kinds__what_is_around_a_language_model_counts_where_it_must);
    tcase_add_test(tcase, test_kinds__how_the_checkpoint_is_stored_is_recorded);
    suite_add_tcase(suite, tcase);
    return suite;
}
