/* Parameters and KV cache of every family, against what is published. */
#include <check.h>
#include <string.h>

#include "common/model/config.h"
#include "tests/unit/form_fixture.h"
#include "tests/unit/reading.h"

static struct bp_arena arena;
static struct bp_problems problems;

static struct bp_config imported(const json_t *value)
{
    struct bp_config config = {0};
    bp_problems_release(&problems);
    ck_assert_int_eq(bp_config_import(value, "", &arena, &problems, &config), 0);
    return config;
}

static struct bp_config import_text(const char *text)
{
    json_t *value = json_of(text);
    struct bp_config config = imported(value);
    json_decref(value);
    return config;
}

static const char *decimal(bp_u128 value)
{
    static char text[BP_U128_TEXT];
    bp_u128_format(value, text);
    return text;
}

/* Element counts of the checkpoints' tensors as the public hub lists them. Of gemma-3-4b, 12b and 27b and of the Llama
 * 4 models it is the listed count without vision tower and projector; GLM-4.5's are listed with the layer that predicts
 * the next token but one, DeepSeek's and Kimi's without. */
static const struct {
    const char *name, *parameters, *config;
} published[] = {
    {"qwen3-30b-a3b", "30532122624",
     "{'model_type': 'qwen3_moe', 'hidden_size': 2048, 'num_hidden_layers': 48, 'num_attention_heads': 32, "
     "'num_key_value_heads': 4, 'head_dim': 128, 'intermediate_size': 6144, 'moe_intermediate_size': 768, "
     "'num_experts': 128, 'num_experts_per_tok': 8, 'vocab_size': 151936, 'tie_word_embeddings': false}"},
    {"qwen1.5-moe-a2.7b", "14315784192",
     "{'model_type': 'qwen2_moe', 'hidden_size': 2048, 'num_hidden_layers': 24, 'num_attention_heads': 16, "
     "'num_key_value_heads': 16, 'intermediate_size': 5632, 'moe_intermediate_size': 1408, "
     "'shared_expert_intermediate_size': 5632, 'num_experts': 60, 'num_experts_per_tok': 4, 'vocab_size': 151936}"},
    {"gpt-oss-20b", "20914757184",
     "{'model_type': 'gpt_oss', 'hidden_size': 2880, 'num_hidden_layers': 24, 'num_local_experts': 32, "
     "'vocab_size': 201088}"},
    {"mixtral-8x22b", "140620634112",
     "{'model_type': 'mixtral', 'hidden_size': 6144, 'num_hidden_layers': 56, 'num_attention_heads': 48, "
     "'num_key_value_heads': 8, 'intermediate_size': 16384, 'vocab_size': 32000}"},
    {"mixtral-8x22b-inst", "140630071296",
     "{'model_type': 'mixtral', 'hidden_size': 6144, 'num_hidden_layers': 56, 'num_attention_heads': 48, "
     "'num_key_value_heads': 8, 'intermediate_size': 16384, 'vocab_size': 32768}"},
    {"gemma-2b", "2506172416",
     "{'model_type': 'gemma', 'hidden_size': 2048, 'num_hidden_layers': 18, 'num_attention_heads': 8, "
     "'num_key_value_heads': 1, 'head_dim': 256, 'intermediate_size': 16384, 'vocab_size': 256000, 'hidden_act': "
     "'gelu', 'hidden_activation': 'gelu_pytorch_tanh'}"},
    {"gemma-7b", "8537680896",
     "{'model_type': 'gemma', 'hidden_size': 3072, 'num_hidden_layers': 28, 'vocab_size': 256000, 'hidden_act': "
     "'gelu'}"},
    {"gemma-2-2b", "2614341888",
     "{'model_type': 'gemma2', 'hidden_size': 2304, 'num_hidden_layers': 26, 'vocab_size': 256000}"},
    {"gemma-2-27b", "27227128320",
     "{'model_type': 'gemma2', 'hidden_size': 4608, 'num_hidden_layers': 46, 'num_attention_heads': 32, "
     "'num_key_value_heads': 16, 'head_dim': 128, 'intermediate_size': 36864, 'vocab_size': 256000}"},
    {"gemma-3-1b", "999885952",
     "{'model_type': 'gemma3_text', 'hidden_size': 1152, 'num_hidden_layers': 26, 'num_attention_heads': 4, "
     "'num_key_value_heads': 1, 'head_dim': 256, 'intermediate_size': 6912, 'vocab_size': 262144, "
     "'sliding_window': 512}"},
    {"gemma-3-270m", "268098176",
     "{'model_type': 'gemma3_text', 'hidden_size': 640, 'num_hidden_layers': 18, 'num_attention_heads': 4, "
     "'num_key_value_heads': 1, 'head_dim': 256, 'intermediate_size': 2048, 'vocab_size': 262144, "
     "'sliding_window': 512}"},
    {"gemma-3-4b", "3880263168",
     "{'model_type': 'gemma3', 'architectures': ['Gemma3ForConditionalGeneration'], 'text_config': {'hidden_size':"
     " 2560, 'intermediate_size': 10240, 'model_type': 'gemma3_text', 'num_hidden_layers': 34, 'sliding_window': "
     "1024}, 'vision_config': {'hidden_size': 1152}}"},
    {"gemma-3-12b", "11766034176",
     "{'model_type': 'gemma3', 'text_config': {'hidden_size': 3840, 'intermediate_size': 15360, 'model_type': "
     "'gemma3_text', 'num_attention_heads': 16, 'num_hidden_layers': 48, 'num_key_value_heads': 8, "
     "'sliding_window': 1024}}"},
    {"gemma-3-27b", "27009346304",
     "{'model_type': 'gemma3', 'text_config': {'hidden_size': 5376, 'intermediate_size': 21504, 'model_type': "
     "'gemma3_text', 'num_attention_heads': 32, 'num_hidden_layers': 62, 'num_key_value_heads': 16, 'head_dim': "
     "128, 'sliding_window': 1024}}"},
    {"phi-1.5", "1418270720",
     "{'model_type': 'phi', 'hidden_size': 2048, 'num_hidden_layers': 24, 'vocab_size': 51200}"},
    {"phi-3-mini", "3821079552",
     "{'model_type': 'phi3', 'hidden_size': 3072, 'num_hidden_layers': 32, 'num_attention_heads': 32, "
     "'num_key_value_heads': 32, 'intermediate_size': 8192, 'vocab_size': 32064, 'sliding_window': 2047}"},
    {"phi-3-medium", "13960238080",
     "{'model_type': 'phi3', 'hidden_size': 5120, 'num_hidden_layers': 40, 'num_attention_heads': 40, "
     "'num_key_value_heads': 10, 'intermediate_size': 17920, 'vocab_size': 32064}"},
    {"phi-4", "14659507200",
     "{'model_type': 'phi3', 'hidden_size': 5120, 'num_hidden_layers': 40, 'num_attention_heads': 40, "
     "'num_key_value_heads': 10, 'intermediate_size': 17920, 'vocab_size': 100352}"},
    {"phi-4-mini", "3836021760",
     "{'model_type': 'phi3', 'hidden_size': 3072, 'num_hidden_layers': 32, 'num_attention_heads': 24, "
     "'num_key_value_heads': 8, 'intermediate_size': 8192, 'vocab_size': 200064, 'tie_word_embeddings': true, "
     "'partial_rotary_factor': 0.75}"},
    {"falcon-40b", "41303293952",
     "{'model_type': 'falcon', 'hidden_size': 8192, 'num_hidden_layers': 60, 'num_attention_heads': 128, "
     "'num_kv_heads': 8, 'new_decoder_architecture': true, 'vocab_size': 65024}"},
    {"falcon-180b", "179522565120",
     "{'model_type': 'falcon', 'hidden_size': 14848, 'num_hidden_layers': 80, 'num_attention_heads': 232, "
     "'num_kv_heads': 8, 'new_decoder_architecture': true, 'vocab_size': 65024, 'tie_word_embeddings': false}"},
    {"falcon-rw-1b", "1311625216",
     "{'model_type': 'falcon', 'hidden_size': 2048, 'n_layer': 24, 'n_head': 32, 'alibi': true, 'bias': true, "
     "'multi_query': false, 'parallel_attn': false, 'vocab_size': 50304}"},
    {"gpt-j-6b", "6050882784",
     "{'model_type': 'gptj', 'n_embd': 4096, 'n_layer': 28, 'n_head': 16, 'rotary_dim': 64, 'vocab_size': 50400}"},
    {"bloom-560m", "559214592",
     "{'model_type': 'bloom', 'n_embed': 1024, 'n_layer': 24, 'num_attention_heads': 16, 'vocab_size': 250880}"},
    {"bloom-1b1", "1065314304",
     "{'model_type': 'bloom', 'n_embed': 1536, 'n_layer': 24, 'num_attention_heads': 16, 'vocab_size': 250880}"},
    {"bloom-1b7", "1722408960",
     "{'model_type': 'bloom', 'n_embed': 2048, 'n_layer': 24, 'num_attention_heads': 16, 'vocab_size': 250880}"},
    {"bloom-3b", "3002557440",
     "{'model_type': 'bloom', 'n_embed': 2560, 'n_layer': 30, 'num_attention_heads': 32, 'vocab_size': 250880}"},
    {"bloom-7b1", "7069016064",
     "{'model_type': 'bloom', 'n_embed': 4096, 'n_layer': 30, 'num_attention_heads': 32, 'vocab_size': 250880}"},
    {"bloom", "176247271424",
     "{'model_type': 'bloom', 'n_embed': 14336, 'n_layer': 70, 'num_attention_heads': 112, 'vocab_size': 250880}"},
    {"stablelm-3b-4e1t", "2795443200",
     "{'model_type': 'stablelm', 'hidden_size': 2560, 'num_hidden_layers': 32, 'vocab_size': 50304}"},
    {"stablelm-2-1.6b", "1644515328",
     "{'model_type': 'stablelm', 'hidden_size': 2048, 'intermediate_size': 5632, 'num_hidden_layers': 24, "
     "'vocab_size': 100352, 'use_qkv_bias': true}"},
    {"starcoder2-3b", "3030371328",
     "{'model_type': 'starcoder2', 'hidden_size': 3072, 'num_hidden_layers': 30, 'vocab_size': 49152}"},
    {"starcoder2-7b", "7173923840",
     "{'model_type': 'starcoder2', 'hidden_size': 4608, 'intermediate_size': 18432, 'num_attention_heads': 36, "
     "'num_key_value_heads': 4, 'num_hidden_layers': 32, 'vocab_size': 49152}"},
    {"command-r", "34980831232",
     "{'model_type': 'cohere', 'hidden_size': 8192, 'num_hidden_layers': 40, 'vocab_size': 256000}"},
    {"command-r-plus", "103810674688",
     "{'model_type': 'cohere', 'hidden_size': 12288, 'intermediate_size': 33792, 'num_attention_heads': 96, "
     "'num_key_value_heads': 8, 'num_hidden_layers': 64, 'use_qk_norm': true, 'vocab_size': 256000}"},
    {"aya-23-8b", "8028033024",
     "{'model_type': 'cohere', 'hidden_size': 4096, 'intermediate_size': 14336, 'num_attention_heads': 32, "
     "'num_key_value_heads': 8, 'num_hidden_layers': 32, 'vocab_size': 256000}"},
    {"olmo2-7b", "7298617344",
     "{'model_type': 'olmo2', 'hidden_size': 4096, 'num_hidden_layers': 32, 'intermediate_size': 11008, "
     "'vocab_size': 100352}"},
    {"olmo2-13b", "13716198400",
     "{'model_type': 'olmo2', 'hidden_size': 5120, 'num_hidden_layers': 40, 'num_attention_heads': 40, "
     "'intermediate_size': 13824, 'vocab_size': 100352}"},
    {"olmo2-1b", "1484916736",
     "{'model_type': 'olmo2', 'hidden_size': 2048, 'num_hidden_layers': 16, 'num_attention_heads': 16, "
     "'num_key_value_heads': 16, 'intermediate_size': 8192, 'vocab_size': 100352}"},
    {"olmo2-32b", "32234279936",
     "{'model_type': 'olmo2', 'hidden_size': 5120, 'num_hidden_layers': 64, 'num_attention_heads': 40, "
     "'num_key_value_heads': 8, 'intermediate_size': 27648, 'vocab_size': 100352}"},
    {"deepseek-v2-lite", "15706484224",
     "{'model_type': 'deepseek_v2', 'hidden_size': 2048, 'num_hidden_layers': 27, 'num_attention_heads': 16, "
     "'q_lora_rank': null, 'kv_lora_rank': 512, 'intermediate_size': 10944, 'moe_intermediate_size': 1408, "
     "'n_routed_experts': 64, 'n_shared_experts': 2, 'num_experts_per_tok': 6, 'first_k_dense_replace': 1, "
     "'vocab_size': 102400}"},
    {"deepseek-v2", "235741434880",
     "{'model_type': 'deepseek_v2', 'hidden_size': 5120, 'num_hidden_layers': 60, 'num_attention_heads': 128, "
     "'q_lora_rank': 1536, 'kv_lora_rank': 512, 'intermediate_size': 12288, 'moe_intermediate_size': 1536, "
     "'n_routed_experts': 160, 'n_shared_experts': 2, 'num_experts_per_tok': 6, 'first_k_dense_replace': 1, "
     "'vocab_size': 102400}"},
    {"kimi-k2", "1026408232448",
     "{'model_type': 'kimi_k2', 'architectures': ['DeepseekV3ForCausalLM'], 'hidden_size': 7168, "
     "'num_hidden_layers': 61, 'num_attention_heads': 64, 'q_lora_rank': 1536, 'kv_lora_rank': 512, "
     "'intermediate_size': 18432, 'moe_intermediate_size': 2048, 'n_routed_experts': 384, 'n_shared_experts': 1, "
     "'num_experts_per_tok': 8, 'first_k_dense_replace': 1, 'vocab_size': 163840}"},
    {"scout", "107769861120",
     "{'model_type': 'llama4', 'text_config': {'model_type': 'llama4_text', 'hidden_size': 5120, "
     "'num_hidden_layers': 48, 'num_local_experts': 16, 'vocab_size': 202048, 'no_rope_layers': []}}"},
    {"maverick", "400711848960",
     "{'model_type': 'llama4', 'text_config': {'model_type': 'llama4_text', 'hidden_size': 5120, "
     "'num_hidden_layers': 48, 'num_local_experts': 128, 'interleave_moe_layer_step': 2, 'vocab_size': 202048, "
     "'use_qk_norm': false}}"},
    {"glm-4.5-air+mtp", "110468824832",
     "{'model_type': 'glm4_moe', 'mtp': true, 'num_nextn_predict_layers': 1, 'hidden_size': 4096, "
     "'num_hidden_layers': 46, 'num_attention_heads': 96, 'num_key_value_heads': 8, 'head_dim': 128, "
     "'intermediate_size': 10944, 'moe_intermediate_size': 1408, 'n_routed_experts': 128, 'attention_bias': true, "
     "'use_qk_norm': false, 'vocab_size': 151552}"},
    {"glm-4.5-air", "106852251264",
     "{'model_type': 'glm4_moe', 'num_nextn_predict_layers': 1, 'hidden_size': 4096, 'num_hidden_layers': 46, "
     "'num_attention_heads': 96, 'num_key_value_heads': 8, 'head_dim': 128, 'intermediate_size': 10944, "
     "'moe_intermediate_size': 1408, 'n_routed_experts': 128, 'attention_bias': true, 'use_qk_norm': false, "
     "'vocab_size': 151552}"},
    {"glm-4.5+mtp", "358337791296",
     "{'model_type': 'glm4_moe', 'mtp': true, 'num_nextn_predict_layers': 1, 'hidden_size': 5120, "
     "'num_hidden_layers': 92, 'num_attention_heads': 96, 'num_key_value_heads': 8, 'head_dim': 128, "
     "'intermediate_size': 12288, 'moe_intermediate_size': 1536, 'n_routed_experts': 160, 'first_k_dense_replace':"
     " 3, 'attention_bias': true, 'use_qk_norm': true, 'vocab_size': 151552}"},
};

START_TEST(test_families__published_totals_come_out_exactly)
{
    struct bp_config config = import_text(published[_i].config);
    ck_assert_msg(config.has_parameters, "%s: %s", published[_i].name, line_of(&problems));
    ck_assert_msg(strcmp(decimal(config.count.total), published[_i].parameters) == 0, "%s has %s parameters",
                  published[_i].name, decimal(config.count.total));
}
END_TEST

START_TEST(test_families__the_transformer_form_says_all_of_them)
{
    struct bp_config config = import_text(published[_i].config);
    expect_form_says_it_all(&config.model, &arena);
}
END_TEST

START_TEST(test_families__components_and_kinds_sum_to_the_total)
{
    struct bp_config config = import_text(published[_i].config);
    const struct bp_model *model = &config.model;
    bp_u128 sum = 0, blocks = 0, routed = 0;
    uint64_t layers = 0;
    for (int i = 0; i < BP_COMPONENT_N; i++)
        sum += config.count.components[i];
    ck_assert(sum == config.count.total);
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        struct bp_parameter_count block;
        ck_assert_int_eq(bp_kind_count(model, &model->kinds[i], &block, NULL), 0);
        blocks += model->kinds[i].layers * block.total;
        routed += model->kinds[i].layers * (block.total - block.active);
        layers += model->kinds[i].layers;
    }
    ck_assert_uint_eq(layers, model->num_hidden_layers);
    ck_assert(blocks < config.count.total);
    if (!model->num_nextn_predict_layers)
        ck_assert(config.count.total - config.count.active == routed);
    for (uint64_t i = 0; model->layer_kinds && i < layers; i++)
        ck_assert_uint_lt(model->layer_kinds[i], model->n_kinds);
}
END_TEST

/* The public models of tests/models. Active counts: gpt-oss's card says 5.13B, its embedding left out; Qwen's 22B. The
 * KV cache of one token, elements: at two bytes what the models' papers and cards give. */
static const struct {
    const char *file, *active, *active_without_embedding;
    uint64_t kv_elements;
} files[] = {
    {"deepseek-v3", "37552297472", "36625618432", 70272 / 2},
    {"falcon-7b", "6921720704", "6921720704", 4096},
    {"gemma-2-9b", "9241705984", "9241705984", 172032},
    {"gpt-oss-120b", "5711982912", "5132849472", 36864},
    {"llama-2-7b", "6738415616", "6607343616", 524288 / 2},
    {"llama-3.1-405b", "405853388800", "403752042496", 516096 / 2},
    {"llama-3.1-70b", "70553706496", "69503033344", 327680 / 2},
    {"llama-3.1-8b", "8030261248", "7504924672", 131072 / 2},
    {"mixtral-8x7b", "12879925248", "12748853248", 65536},
    {"qwen3-235b-a22b", "22190763520", "21568433664", 96256},
    {"qwen3-4b", "4022468096", "4022468096", 73728},
};

START_TEST(test_families__active_parameters_and_kv_cache_are_exact)
{
    char path[128];
    snprintf(path, sizeof path, "tests/models/%s.json", files[_i].file);
    json_t *file = json_of_file(path);
    struct bp_config config = imported(json_object_get(file, "config"));
    ck_assert_str_eq(decimal(config.count.active), files[_i].active);
    ck_assert_str_eq(decimal(config.count.active_without_embedding), files[_i].active_without_embedding);
    ck_assert(config.kv_elements == files[_i].kv_elements);
    json_decref(file);
}
END_TEST

/* By component; gpt-oss's card: 0.96B attention, 1.16B embedding and head, 114.71B MLP. */
START_TEST(test_families__components_are_what_the_card_says)
{
    static const char *const expected[] = {"579133440",    "0",        "955805184", "0",
                                           "114701598720", "13275648", "210240",    "579133440"};
    json_t *file = json_of_file("tests/models/gpt-oss-120b.json");
    struct bp_config config = imported(json_object_get(file, "config"));
    for (int i = 0; i < BP_COMPONENT_N; i++)
        ck_assert_msg(strcmp(decimal(config.count.components[i]), expected[i]) == 0, "%s: %s", bp_component_names[i],
                      decimal(config.count.components[i]));
    json_decref(file);
}
END_TEST

/* The hub lists 684531386000 elements for DeepSeek-V3: those counted with its prediction layer, and one scale for each
 * block of 128 by 128 of its linears, 41540496. */
START_TEST(test_families__a_prediction_layer_counts_only_when_asked_for)
{
    json_t *file = json_of_file("tests/models/deepseek-v3.json"), *value = json_object_get(file, "config");
    json_object_set_new(value, "mtp", json_true());
    struct bp_config with = imported(value);
    ck_assert_str_eq(decimal(with.count.total + 41540496), "684531386000");
    ck_assert(with.kv_elements == 70272 / 2);
    json_object_set_new(value, "mtp", json_false());
    struct bp_config without = imported(value);
    ck_assert_str_eq(decimal(without.count.total), "671026419200");
    bool ignored = false;
    for (size_t i = 0; i < without.n_ignored; i++)
        ignored |= strcmp(without.ignored[i], "/num_nextn_predict_layers") == 0;
    ck_assert(ignored);
    json_decref(file);
}
END_TEST

static void release(void)
{
    bp_problems_release(&problems);
    bp_arena_release(&arena);
}

#define LOOP(tcase, test, table) tcase_add_loop_test(tcase, test, 0, (int)(sizeof table / sizeof *table))

Suite *suite_families(void)
{
    Suite *suite = suite_create("families");
    TCase *tcase = tcase_create("families");
    tcase_add_checked_fixture(tcase, NULL, release);
    LOOP(tcase, test_families__published_totals_come_out_exactly, published);
    LOOP(tcase, test_families__the_transformer_form_says_all_of_them, published);
    LOOP(tcase, test_families__components_and_kinds_sum_to_the_total, published);
    LOOP(tcase, test_families__active_parameters_and_kv_cache_are_exact, files);
    tcase_add_test(tcase, test_families__components_are_what_the_card_says);
    tcase_add_test(tcase, test_families__a_prediction_layer_counts_only_when_asked_for);
    suite_add_tcase(suite, tcase);
    return suite;
}
