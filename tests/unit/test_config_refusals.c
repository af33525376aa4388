/* What an importer refuses, where, and that it counts what it refuses for a feature. */
#include <check.h>
#include <string.h>

#include "common/model/config.h"
#include "tests/unit/form_fixture.h"
#include "tests/unit/reading.h"

static struct bp_arena arena;
static struct bp_problems problems;

static struct bp_config resolve(const char *text)
{
    struct bp_config config = {0};
    json_t *value = json_of(text);
    bp_problems_release(&problems);
    ck_assert_int_eq(bp_config_resolve(value, "/model", &arena, &problems, &config), 0);
    json_decref(value);
    return config;
}

static struct bp_config resolve_config(const char *members)
{
    char text[2048];
    snprintf(text, sizeof text, "{'huggingface': {%s, 'vocab_size': 9}}", members);
    return resolve(text);
}

#define GPT2 "'model_type': 'gpt2', 'n_embd': 24, 'n_layer': 2"
#define OPT "'model_type': 'opt', 'hidden_size': 24, 'num_hidden_layers': 2"
#define NEOX "'model_type': 'gpt_neox', 'hidden_size': 64, 'num_hidden_layers': 2, 'use_parallel_residual': false"
#define LLAMA "'model_type': 'llama', 'hidden_size': 64, 'num_hidden_layers': 2"
#define MISTRAL "'model_type': 'mistral', 'hidden_size': 64, 'num_hidden_layers': 2"
#define QWEN2 "'model_type': 'qwen2', 'hidden_size': 64, 'num_hidden_layers': 2"
#define QWEN3 "'model_type': 'qwen3', 'hidden_size': 64, 'num_hidden_layers': 2"

/* The config's members, and the keys refused as features, in order. */
static const struct {
    const char *members, *keys;
} features[] = {
    {GPT2 ", 'activation_function': 'quick_gelu'", "activation_function"},
    {GPT2 ", 'activation_function': 'silu'", "activation_function"},
    {GPT2 ", 'add_cross_attention': true", "add_cross_attention"},
    {GPT2 ", 'reorder_and_upcast_attn': true", "reorder_and_upcast_attn"},
    {GPT2 ", 'pruned_heads': {'1': [0]}", "pruned_heads"},
    {GPT2 ", 'num_key_value_heads': 1", "num_key_value_heads"},
    {GPT2 ", 'intermediate_size': 95", "intermediate_size"},
    {GPT2 ", 'sliding_window': 8", "sliding_window"},
    {GPT2 ", 'architectures': ['GPT2Model']", "architectures"},
    {OPT ", 'layerdrop': 0.1", "layerdrop"},
    {OPT ", 'activation_dropout': 0.1", "activation_dropout"},
    {NEOX ", 'head_dim': 2", "head_dim"},
    {LLAMA ", 'hidden_act': 'relu'", "hidden_act"},
    {LLAMA ", 'hidden_act': 'xielu'", "hidden_act"},
    {LLAMA ", 'partial_rotary_factor': 0.5", "partial_rotary_factor"},
    {LLAMA ", 'partial_rotary_factor': 'x'", "partial_rotary_factor"},
    {LLAMA ", 'num_local_experts': 8", "num_local_experts"},
    {LLAMA ", 'num_experts': 1", "num_experts"},
    {LLAMA ", 'kv_lora_rank': 8", "kv_lora_rank"},
    {LLAMA ", 'add_cross_attention': true", "add_cross_attention"},
    {LLAMA ", 'layer_types': ['full_attention', 'sliding_attention']", "layer_types"},
    {LLAMA ", 'layer_types': [1]", "layer_types"},
    {LLAMA ", 'layer_types': 'full_attention'", "layer_types"},
    {LLAMA ", 'resid_pdrop': 0.1", "resid_pdrop"},
    {LLAMA ", 'ffn_dim': 5", "ffn_dim"},
    {LLAMA ", 'text_config': {'hidden_size': 1}", "text_config"},
    {LLAMA ", 'final_logit_softcapping': 30.0", "final_logit_softcapping"},
    {LLAMA ", 'use_qk_norm': true", "use_qk_norm"},
    {MISTRAL ", 'sliding_window': null, 'attention_bias': true", "attention_bias"},
};

START_TEST(test_config__a_feature_without_rows_is_refused_at_its_key_and_counted)
{
    char expected[512] = "", keys[256];
    snprintf(keys, sizeof keys, "%s", features[_i].keys);
    for (char *key = strtok(keys, " "); key; key = strtok(NULL, " "))
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected),
                 "%sunsupported_feature /model/huggingface/%s", *expected ? ", " : "", key);
    struct bp_config config = resolve_config(features[_i].members);
    ck_assert_str_eq(line_of(&problems), expected);
    ck_assert_int_eq(config.has_parameters, strcmp(features[_i].keys, "architectures") != 0);
    /* What is refused is not called ignored. */
    for (size_t i = 0; i < config.n_ignored; i++)
        ck_assert_ptr_null(strstr(features[_i].keys, config.ignored[i] + 1));
}
END_TEST

/* What was described by no form once. */
static const struct {
    const char *members;
} described[] = {
    {OPT ", 'do_layer_norm_before': false"},
    {OPT ", 'word_embed_proj_dim': 12, 'do_layer_norm_before': false"},
    {OPT ", '_remove_final_layer_norm': true"},
    {OPT ", 'layer_norm_elementwise_affine': false"},
    {NEOX ", 'attention_bias': false"},
    {"'model_type': 'gpt_neox', 'hidden_size': 64, 'num_hidden_layers': 2"},
    {NEOX ", 'rotary_pct': 0.5"},
    {NEOX ", 'rope_parameters': {'partial_rotary_factor': 0.25}"},
    {LLAMA ", 'attention_bias': true"},
    {LLAMA ", 'mlp_bias': true"},
    {LLAMA ", 'sliding_window': 8"},
    {LLAMA ", 'rope_scaling': {'partial_rotary_factor': 0.5}"},
    {LLAMA ", 'quantization_config': {'quant_method': 'fp8'}"},
    {LLAMA ", 'compression_config': {'quant_method': 'compressed-tensors'}"},
    {MISTRAL},
    {MISTRAL ", 'use_sliding_window': true"},
    {QWEN2 ", 'use_sliding_window': true, 'sliding_window': 8"},
    {QWEN3 ", 'attention_bias': true"},
    {QWEN3 ", 'use_sliding_window': true"},
};

START_TEST(test_config__a_feature_that_the_form_has_is_taken)
{
    struct bp_config config = resolve_config(described[_i].members);
    ck_assert_str_eq(line_of(&problems), "");
    ck_assert(config.has_parameters && config.n_refused == 0);
    expect_form_says_it_all(&config.model, &arena);
}
END_TEST

static const struct {
    const char *members;
} harmless[] = {
    {GPT2 ", 'intermediate_size': 96, 'head_dim': 2, 'num_key_value_heads': 12, 'pruned_heads': {}"},
    {GPT2 ", 'architectures': ['GPT2LMHeadModel'], 'add_cross_attention': false, 'head_dim': null"},
    {GPT2 ", 'architectures': []"},
    {OPT ", 'layerdrop': 0.0, 'activation_dropout': 0, 'word_embed_proj_dim': 24, 'is_encoder_decoder': false"},
    {LLAMA ", 'num_experts': 0, 'partial_rotary_factor': 1.0, 'layer_types': [], 'use_sliding_window': true"},
    {LLAMA ", 'rope_scaling': {'partial_rotary_factor': null}, 'rope_parameters': null, 'alibi': false"},
    {QWEN2 ", 'sliding_window': 4096, 'use_sliding_window': false, 'max_window_layers': 28"},
    {QWEN3 ", 'sliding_window': 4096"},
};

START_TEST(test_config__a_feature_that_is_off_is_not_refused)
{
    struct bp_config config = resolve_config(harmless[_i].members);
    ck_assert_str_eq(line_of(&problems), "");
    ck_assert(config.has_parameters);
}
END_TEST

#define AT " /model/huggingface/"

static const struct {
    const char *members, *problems;
} broken[] = {
    {"'model_type': 'gpt2'", "missing_key" AT "n_embd, missing_key" AT "n_layer"},
    {"'model_type': 'opt'", "missing_key" AT "hidden_size, missing_key" AT "num_hidden_layers"},
    {"'model_type': 'gpt_neox', 'rotary_pct': 1, 'use_parallel_residual': false",
     "missing_key" AT "hidden_size, missing_key" AT "num_hidden_layers"},
    {"'model_type': 'llama'", "missing_key" AT "hidden_size, missing_key" AT "num_hidden_layers"},
    {"'model_type': 'llama', 'hidden_size': null, 'num_hidden_layers': 0",
     "missing_key" AT "hidden_size, out_of_range" AT "num_hidden_layers"},
    {"'hidden_size': 64", "missing_key" AT "model_type"},
    {"'model_type': 7", "wrong_type" AT "model_type"},
    {"'model_type': 'mamba', 'hidden_size': 'x'", "unknown_model_type" AT "model_type"},
    {GPT2 ", 'n_head': 5", "not_divisible" AT "n_head"},
    {GPT2 ", 'hidden_size': 25", "conflict" AT "hidden_size"},
    {"'model_type': 'gpt2', 'n_embd': 9007199254740984, 'n_layer': 1, 'n_head': 8", "out_of_range" AT "n_inner"},
    {GPT2 ", 'attn_pdrop': '0.1'", "wrong_type" AT "attn_pdrop"},
    {GPT2 ", 'attn_pdrop': -0.1, 'embd_pdrop': 1.5", "out_of_range" AT "attn_pdrop, out_of_range" AT "embd_pdrop"},
    {GPT2 ", 'tie_word_embeddings': 'yes'", "wrong_type" AT "tie_word_embeddings"},
    {OPT ", 'max_position_embeddings': 9007199254740991", "out_of_range" AT "max_position_embeddings"},
    {OPT ", 'max_position_embeddings': true", "wrong_type" AT "max_position_embeddings"},
    {OPT ", 'word_embed_proj_dim': -1", "out_of_range" AT "word_embed_proj_dim"},
    {NEOX ", 'hidden_act': 1", "wrong_type" AT "hidden_act"},
    {"'model_type': 'gpt_neox', 'hidden_size': 64, 'num_hidden_layers': 2, 'use_parallel_residual': 0, "
     "'rotary_pct': '1'",
     "wrong_type" AT "use_parallel_residual, wrong_type" AT "rotary_pct"},
    {NEOX ", 'rotary_pct': 1.5", "out_of_range" AT "rotary_pct"},
    {LLAMA ", 'rope_scaling': {'partial_rotary_factor': -0.5}", "out_of_range" AT "rope_scaling/partial_rotary_factor"},
    {LLAMA ", 'rope_parameters': {'partial_rotary_factor': '1'}",
     "wrong_type" AT "rope_parameters/partial_rotary_factor"},
    {"'model_type': 'phi', 'hidden_size': 64, 'num_hidden_layers': 2, 'partial_rotary_factor': 0.5, "
     "'rope_parameters': {'partial_rotary_factor': 1.0}",
     "conflict" AT "partial_rotary_factor"},
    {LLAMA ", 'num_key_value_heads': 5", "not_divisible" AT "num_key_value_heads"},
    {LLAMA ", 'num_attention_heads': 48", "not_divisible" AT "num_attention_heads"},
    {LLAMA ", 'intermediate_size': 1.5, 'head_dim': 9007199254740992",
     "out_of_range" AT "head_dim, wrong_type" AT "intermediate_size"},
    {LLAMA ", 'sliding_window': 'x'", "wrong_type" AT "sliding_window"},
    {LLAMA ", 'sliding_window': 0", "out_of_range" AT "sliding_window"},
    {QWEN2 ", 'num_attention_heads': 16", "not_divisible" AT "num_key_value_heads"},
    {QWEN2 ", 'use_sliding_window': 1", "wrong_type" AT "use_sliding_window"},
    {"'model_type': 'llama', 'hidden_size': 9007199254740991, 'num_hidden_layers': 9007199254740991, "
     "'head_dim': 9007199254740991, 'num_attention_heads': 9007199254740991, 'num_key_value_heads': null",
     "quantity_overflow /model/huggingface"},
};

START_TEST(test_config__what_cannot_be_read_is_named_and_not_counted)
{
    struct bp_config config = resolve_config(broken[_i].members);
    ck_assert_str_eq(line_of(&problems), broken[_i].problems);
    ck_assert(!config.has_parameters);
}
END_TEST

START_TEST(test_config__an_unknown_model_type_lists_the_known_ones)
{
    resolve("{'huggingface': {'model_type': 'mamba'}}");
    ck_assert(some_message_has(&problems, "known: bloom, cohere, deepseek_v2,"));
    ck_assert(some_message_has(&problems, "stablelm, starcoder2"));
}
END_TEST

#define FORM                                                                                                           \
    "'hidden_size': 64, 'num_hidden_layers': 3, 'num_attention_heads': 8, 'intermediate_size': 100, "                  \
    "'vocab_size': 50, 'activation': 'gelu', 'norm': 'layernorm', 'position': 'none'"

#define BLOCK "'num_attention_heads': 8, 'activation': 'relu', 'intermediate_size': 9"

static const struct {
    const char *model, *problems;
} forms[] = {
    {"7", "wrong_type /model"},
    {"{}", "missing_key /model"},
    {"{'size': 1}", "unknown_key /model/size, missing_key /model"},
    {"{'name': 'gpt2', 'transformer': {}}", "conflict /model"},
    {"{'name': 'gpt2', 'extra': {}}", "unknown_key /model/extra"},
    {"{'name': 'gpt-5'}", "unknown_model /model/name"},
    {"{'name': 7}", "wrong_type /model/name"},
    {"{'name': 'mistral-7b-v0.1'}", ""},
    {"{'name': 'pythia-6.9b'}", ""},
    {"{'transformer': {" FORM ", 'name': 'm', 'cross_attention': true}}",
     "unsupported_feature /model/transformer/cross_attention"},
    {"{'transformer': {'name': 'm', 'hidden_size': 64, 'num_hidden_layers': 3, 'vocab_size': 9, 'norm': 'rmsnorm', "
     "'position': 'none', 'kinds': [{'name': 'a', " BLOCK "}, {'name': 'b', " BLOCK ", 'cross_attention': true}], "
     "'layers': [{'count': 2, 'kind': 'b'}, {'count': 1, 'kind': 'a'}]}}",
     "unsupported_feature /model/transformer/kinds/1/cross_attention"},
    {"{'huggingface': []}", "wrong_type /model/huggingface"},
    {"{'transformer': null}", "wrong_type /model/transformer"},
    {"{'transformer': {" FORM "}}", "missing_key /model/transformer/name"},
    {"{'transformer': {" FORM ", 'name': 'm', 'experts': 2}}", "unknown_key /model/transformer/experts"},
    {"{'transformer': {'name': 'm', 'hidden_size': 9007199254740991, 'num_hidden_layers': 9007199254740991, "
     "'num_attention_heads': 1, 'intermediate_size': 9007199254740991, 'vocab_size': 50, 'activation': 'gelu', "
     "'norm': 'layernorm', 'position': 'none'}}",
     "quantity_overflow /model/transformer"},
};

START_TEST(test_config__a_model_has_one_of_three_forms)
{
    resolve(forms[_i].model);
    ck_assert_str_eq(line_of(&problems), forms[_i].problems);
}
END_TEST

START_TEST(test_config__an_unknown_name_is_answered_with_the_whole_catalogue)
{
    resolve("{'name': 'gpt-5'}");
    ck_assert_uint_eq(problems.n, 1);
    for (size_t i = 0; i < bp_catalogue_n; i++)
        ck_assert_ptr_nonnull(strstr(problems.at[0].message, bp_catalogue[i].name));
}
END_TEST

START_TEST(test_config__a_refused_form_is_counted_and_says_what_is_refused)
{
    struct bp_config config = resolve("{'transformer': {" FORM ", 'name': 'm', 'cross_attention': true}}");
    ck_assert(config.has_parameters && config.n_refused == 1);
    ck_assert_str_eq(config.refused[0].pointer, "/cross_attention");
}
END_TEST

START_TEST(test_config__the_transformer_form_has_no_family_of_its_own)
{
    struct bp_config config = resolve("{'transformer': {" FORM ", 'name': 'mine'}}");
    ck_assert_str_eq(line_of(&problems), "");
    ck_assert_str_eq(config.family, "transformer");
    ck_assert_str_eq(config.model.name, "mine");
    ck_assert(config.has_parameters && config.n_assumed == 0 && config.n_ignored == 0 && config.position_offset == 0);
}
END_TEST

START_TEST(test_config__a_lost_problem_is_not_a_success)
{
    struct bp_config config = {0};
    json_t *value = json_of("{'name': 'gpt2'}");
    problems.out_of_memory = true;
    ck_assert_int_eq(bp_config_resolve(value, "/model", &arena, &problems, &config), -1);
    ck_assert_ptr_null(config.family);
    json_decref(value);
}
END_TEST

static void release(void)
{
    bp_problems_release(&problems);
    bp_arena_release(&arena);
}

#define LOOP(tcase, test, table) tcase_add_loop_test(tcase, test, 0, (int)(sizeof table / sizeof *table))

Suite *suite_config_refusals(void)
{
    Suite *suite = suite_create("config_refusals");
    TCase *tcase = tcase_create("config_refusals");
    tcase_add_checked_fixture(tcase, NULL, release);
    LOOP(tcase, test_config__a_feature_without_rows_is_refused_at_its_key_and_counted, features);
    LOOP(tcase, test_config__a_feature_that_the_form_has_is_taken, described);
    LOOP(tcase, test_config__a_feature_that_is_off_is_not_refused, harmless);
    LOOP(tcase, test_config__what_cannot_be_read_is_named_and_not_counted, broken);
    tcase_add_test(tcase, test_config__an_unknown_model_type_lists_the_known_ones);
    LOOP(tcase, test_config__a_model_has_one_of_three_forms, forms);
    tcase_add_test(tcase, test_config__an_unknown_name_is_answered_with_the_whole_catalogue);
    tcase_add_test(tcase, test_config__a_refused_form_is_counted_and_says_what_is_refused);
    tcase_add_test(tcase, test_config__the_transformer_form_has_no_family_of_its_own);
    tcase_add_test(tcase, test_config__a_lost_problem_is_not_a_success);
    suite_add_tcase(suite, tcase);
    return suite;
}
