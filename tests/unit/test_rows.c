/* The rows of blocks of every sort: parameters of every family; norms, halves side by side, scores. Numbers are those
 * of docs/formulas.md, worked out here. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "common/model/config.h"
#include "tests/unit/rows_fixture.h"

/* ---- Every family ---- */

#define SMALL(type) "{'model_type': '" type "', 'hidden_size': 64, 'num_hidden_layers': 8, 'vocab_size': 9, "
#define HEADS "'num_attention_heads': 8, 'num_key_value_heads': 2, 'head_dim': 16, "
#define NARROW "'intermediate_size': 96, "
#define EXPERTS "'num_experts': 4, 'num_experts_per_tok': 2, 'moe_intermediate_size': 10, "

static const char *const configs[] = {
    "{'model_type': 'bloom', 'n_embed': 64, 'n_layer': 2, 'vocab_size': 9}",
    SMALL("cohere") HEADS NARROW "'use_qk_norm': true, 'attention_bias': true}",
    SMALL("deepseek_v2") NARROW
    "'num_attention_heads': 8, 'num_experts_per_tok': 2, 'q_lora_rank': null, 'kv_lora_rank': 8, "
    "'n_routed_experts': 4, 'moe_intermediate_size': 10, 'first_k_dense_replace': 1, 'attention_bias': true}",
    SMALL("deepseek_v3") "'num_attention_heads': 8, 'q_lora_rank': 24, 'attention_bias': true}",
    SMALL("falcon") "'num_attention_heads': 8}",
    SMALL("falcon") "'num_attention_heads': 8, 'new_decoder_architecture': true, 'num_kv_heads': 4, 'bias': true}",
    SMALL("falcon") "'num_attention_heads': 8, 'alibi': true, 'parallel_attn': false, 'multi_query': false}",
    SMALL("gemma") HEADS NARROW "'hidden_act': 'gelu'}",
    SMALL("gemma2") HEADS NARROW "'sliding_window': 4}",
    SMALL("gemma3") HEADS NARROW "'sliding_window': 4}",
    SMALL("gemma3_text") HEADS NARROW "'sliding_window': 4}",
    SMALL("glm4_moe") HEADS NARROW "'attention_bias': true, 'use_qk_norm': true, 'partial_rotary_factor': 0.5}",
    "{'model_type': 'gpt2', 'n_embd': 64, 'n_layer': 2, 'n_head': 8, 'vocab_size': 9}",
    SMALL("gpt_neox") "'num_attention_heads': 8, 'intermediate_size': 96}",
    SMALL("gpt_neox") "'num_attention_heads': 8, 'intermediate_size': 96, 'attention_bias': false}",
    SMALL("gpt_oss") HEADS "'intermediate_size': 12, 'num_local_experts': 4}",
    "{'model_type': 'gptj', 'n_embd': 64, 'n_layer': 2, 'n_head': 4, 'vocab_size': 9, 'rotary_dim': 8}",
    SMALL("kimi_k2") "'architectures': ['DeepseekV3ForCausalLM'], 'num_attention_heads': 8}",
    SMALL("llama") HEADS NARROW "'attention_bias': true}",
    SMALL("llama") HEADS NARROW "'mlp_bias': true}",
    SMALL("llama4") HEADS NARROW "'intermediate_size_mlp': 48, 'interleave_moe_layer_step': 2}",
    SMALL("llama4_text") HEADS NARROW "'intermediate_size_mlp': 48}",
    SMALL("mistral") HEADS NARROW "'sliding_window': 4}",
    SMALL("mixtral") HEADS NARROW "'num_local_experts': 4}",
    SMALL("olmo2") "'num_attention_heads': 8, 'num_key_value_heads': 2, " NARROW "'attention_bias': false}",
    "{'model_type': 'opt', 'hidden_size': 64, 'num_hidden_layers': 2, 'num_attention_heads': 8, 'ffn_dim': 96, "
    "'vocab_size': 9, 'word_embed_proj_dim': 64, 'do_layer_norm_before': false}",
    "{'model_type': 'opt', 'hidden_size': 64, 'num_hidden_layers': 2, 'num_attention_heads': 8, 'ffn_dim': 96, "
    "'vocab_size': 9, 'word_embed_proj_dim': 64, 'layer_norm_elementwise_affine': false}",
    SMALL("phi") HEADS NARROW "'qk_layernorm': true}",
    SMALL("phi3") HEADS NARROW "'partial_rotary_factor': 0.5, 'sliding_window': 4}",
    SMALL("qwen2") HEADS NARROW "'use_sliding_window': true, 'sliding_window': 4, 'max_window_layers': 2}",
    SMALL("qwen2_moe") HEADS EXPERTS "'shared_expert_intermediate_size': 24, 'decoder_sparse_step': 2}",
    SMALL("qwen3") HEADS NARROW "'attention_bias': true}",
    SMALL("qwen3_moe") HEADS EXPERTS "'attention_bias': true}",
    SMALL("stablelm") HEADS NARROW "'qk_layernorm': true, 'use_qkv_bias': true}",
    SMALL("stablelm") HEADS NARROW "'use_parallel_residual': true}",
    SMALL("starcoder2") HEADS NARROW "'use_bias': true}",
};
enum { N_CONFIGS = sizeof configs / sizeof *configs };

#define BP_FAMILY(model_type, public_class, importer) model_type,
static const char *const families[] = {
#include "common/model/families.def"
};
#undef BP_FAMILY

START_TEST(test_rows__every_family_is_among_the_configs)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        char key[64];
        bool found = false;
        snprintf(key, sizeof key, "'model_type': '%s'", families[i]);
        for (size_t j = 0; j < N_CONFIGS; j++)
            found |= strstr(configs[j], key) != NULL;
        ck_assert_msg(found, "%s", families[i]);
    }
}
END_TEST

/* Each kind's rows, in every mode, have the parameters that are counted of it. */
static void expect_counted(void)
{
    const struct bp_model *model = &rows_request.model;
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const struct bp_kind *kind = &model->kinds[i];
        struct bp_parameter_count count;
        ck_assert_int_eq(bp_kind_count(model, kind, &count, NULL), 0);
        bp_u128 expected = count.total - (kind->score_correction_bias ? kind->num_experts : 0);
        for (int phase = 0; phase < 3; phase++) {
            if (phase == 0 && kind->sinks)
                continue;
            if (phase == 0)
                rows_training(1, 8);
            else
                rows_inference(phase == 1 ? BP_PREFILL : BP_DECODE, 1, 8);
            rows_derive(kind->name);
            ck_assert_msg(rows_parameters() == expected, "%s in phase %d: %llu, not %llu", kind->name, phase,
                          (unsigned long long)rows_parameters(), (unsigned long long)expected);
            ck_assert_uint_eq(rows_block.memory.at[BP_MEMORY_WEIGHTS].n, (uint64_t)(2 * expected));
        }
    }
}

START_TEST(test_rows__have_the_parameters_of_every_family)
{
    rows_of_config(configs[_i]);
    expect_counted();
}
END_TEST

START_TEST(test_rows__have_the_parameters_of_every_model_of_the_catalogue)
{
    rows_of_model(bp_catalogue[_i].name);
    expect_counted();
}
END_TEST

static bool has_experts(void)
{
    bool has = false;
    for (uint32_t i = 0; i < rows_request.model.n_kinds; i++)
        has |= rows_request.model.kinds[i].num_experts > 0;
    return has;
}

static void split(uint64_t t, uint64_t ep, uint64_t etp)
{
    rows_tensor_parallel(t);
    if (has_experts())
        rows_expert_parallel(ep, etp);
    else
        rows_expert_parallel(1, t);
}

/* The gate works every row out by itself: whole, and over groups of every sort. */
START_TEST(test_rows__of_every_family_pass_the_gate)
{
    rows_of_config(configs[_i]);
    const struct bp_kind *kind = &rows_request.model.kinds[0];
    struct bp_strategy *strategy = &rows_request.strategy;
    uint64_t t = kind->qk_norm == BP_QK_NORM_SPAN ? 1 : 2;
    if (!kind->sinks) {
        rows_training(1, 16);
        rows_commit();
        split(t, 2, t);
        strategy->data_parallel = 2;
        strategy->zero_stage = 1;
        rows_commit();
        strategy->recompute = BP_RECOMPUTE_FULL;
        rows_commit();
        rows_training(1, 16);
        strategy->context_parallel = 2;
        strategy->recompute = BP_RECOMPUTE_SELECTIVE;
        rows_commit();
    }
    rows_inference(BP_PREFILL, 2, 8);
    rows_request.workload.kv_cache_dtype = BP_DTYPE_FLOAT8;
    rows_commit();
    split(t, 2, 1);
    rows_commit();
    rows_inference(BP_DECODE, 2, 8);
    split(t, 1, t);
    rows_commit();
}
END_TEST

/* ---- Norms ---- */

/* Every parameter of a row is in its tensor: the product of its dimensions, those that ranks divide by as many. */
START_TEST(test_rows__tensors_hold_the_parameters)
{
    static const unsigned degrees[][3] = {{1, 1, 1}, {2, 1, 2}, {2, 2, 1}};
    for (size_t grid = 0; grid < 3; grid++)
        for (int training = 0; training < 2; training++) {
            rows_of_config(configs[_i]);
            const struct bp_kind *kind = &rows_request.model.kinds[0];
            uint64_t t = kind->qk_norm == BP_QK_NORM_SPAN ? 1 : degrees[grid][0];
            if (training && kind->sinks)
                continue;
            if (training)
                rows_training(1, 8);
            else
                rows_inference(BP_PREFILL, 1, 8);
            rows_tensor_parallel(t);
            rows_expert_parallel(degrees[grid][1], t == 1 ? 1 : degrees[grid][2]);
            rows_request.strategy.data_parallel = 4;
            rows_derive(kind->name);
            const uint64_t ranks[BP_AXIS_N] = {[BP_AXIS_TENSOR] = t,
                                               [BP_AXIS_EXPERT] = degrees[grid][1],
                                               [BP_AXIS_EXPERT_TENSOR] = t == 1 ? 1 : degrees[grid][2],
                                               [BP_AXIS_NONE] = 1};
            for (uint32_t i = 0; i < rows_block.n_rows; i++) {
                const struct bp_row *row = &rows_block.rows[i];
                bp_u128 held = row->parameters ? 1 : 0;
                for (uint32_t j = 0; row->parameters && j < row->parameter_shape.n_dims; j++) {
                    uint64_t n = ranks[row->parameter_shape.sharding[j]];
                    ck_assert(n > 0 && row->parameter_shape.size[j] % n == 0);
                    held *= row->parameter_shape.size[j] / n;
                }
                ck_assert_msg(held == row->parameters, "%s", row->name);
            }
        }
}
END_TEST

START_TEST(test_rows__gemma_norms_before_and_after_each_branch_and_caps_its_scores)
{
    rows_of_model("gemma-2-9b");
    rows_training(1, 8);
    rows_derive("sliding");
    ck_assert_str_eq(rows_names(),
                     "attention.residual_fork attention.norm attention.qkv_fork attention.query attention.key "
                     "attention.value attention.scores attention.soft_cap attention.softmax attention.context "
                     "attention.output attention.post_norm attention.residual mlp.residual_fork mlp.norm "
                     "mlp.gate_fork mlp.gate mlp.up mlp.activation mlp.down mlp.post_norm mlp.residual");
    ck_assert_str_eq(rows_inputs("attention.post_norm"), "attention.output");
    ck_assert_str_eq(rows_inputs("attention.residual"), "attention.post_norm attention.residual_fork");
    /* RMSNorm of X = 8 * 3584 in rows of 3584. */
    const bp_u128 X = 8 * 3584, H = 3584;
    const struct bp_row *norm = rows_named("attention.post_norm");
    expect_elements(&norm->forward, 4 * X, X + H, X);
    expect_elements(&norm->activation_gradient, 8 * X, 2 * X + H, X);
    expect_weight_gradient("attention.post_norm", 4 * X, 2 * X, H);
    expect_held("attention.post_norm", 2 * X, 2 * X, true, true);
    expect_held("attention.norm", 2 * X, 2 * X, false, false);
    /* 16 heads, 8 by 8 scores. */
    const struct bp_row *cap = rows_named("attention.soft_cap");
    expect_elements(&cap->forward, 3 * 1024, 1024, 1024);
    expect_elements(&cap->activation_gradient, 4 * 1024, 2 * 1024, 1024);
    ck_assert_int_eq(cap->operands, BP_NEEDS_ITSELF);
    expect_held("attention.soft_cap", 2048, 2048, true, true);
    /* Six tensors of X; query and key; capped scores; weights and value; what attention gave; gate and up; down's. */
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS,
                  2 * (6 * X + 8 * 6144 + 1024 + (1024 + 8 * 2048) + 8 * 4096 + 2 * 8 * 14336 + 8 * 14336));
    expect_memory(BP_MEMORY_WORKING_ACTIVATIONS, 1232896);
    rows_request.strategy.recompute = BP_RECOMPUTE_SELECTIVE;
    rows_derive("sliding");
    ck_assert(rows_named("attention.soft_cap")->recomputed && !rows_named("attention.post_norm")->recomputed);
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS, 1232896 - 2 * 2 * 1024);
}
END_TEST

/* With attention dropout the softmax stands for its output, and selective recomputation drops all of n. */
START_TEST(test_rows__selective_recomputation_drops_every_tensor_of_scores)
{
    rows_of_model("gemma-2-9b");
    rows_request.model.position = BP_POSITION_ALIBI;
    rows_request.model.kinds[0].attention_dropout = true;
    rows_training(1, 8);
    rows_derive("sliding");
    /* Capped scores, softmax, mask (a byte), weights. */
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS, 1232896 + 2 * 1024 + 1024);
    rows_request.strategy.recompute = BP_RECOMPUTE_SELECTIVE;
    rows_derive("sliding");
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS, 1232896 - 2 * 2 * 1024);
    ck_assert_str_eq(rows_inputs("attention.soft_cap"), "attention.position_bias");
}
END_TEST

START_TEST(test_rows__a_window_is_a_mask_in_training)
{
    rows_of_model("gemma-2-9b");
    rows_training(1, 8192); /* past the window of 4096 */
    rows_derive("sliding");
    bp_u128 products = (bp_u128)2 * 16 * 8192 * 8192 * 256;
    ck_assert(rows_named("attention.scores")->forward.work.operations.n == products);
    uint64_t stored = rows_block.memory.at[BP_MEMORY_STORED_ACTIVATIONS].n;
    rows_derive("global");
    ck_assert(rows_named("attention.scores")->forward.work.operations.n == products);
    ck_assert_uint_eq(rows_block.memory.at[BP_MEMORY_STORED_ACTIVATIONS].n, stored);
}
END_TEST

#define COHERE "{'model_type': 'cohere', 'hidden_size': 64, 'num_hidden_layers': 2, 'vocab_size': 9, "
START_TEST(test_rows__norms_of_query_and_key_have_the_weights_of_their_form)
{
    static const struct {
        const char *config;
        const char *query, *key; /* shapes of the weights, at t = 2; "" for none */
        unsigned operations;     /* forward, an element */
        uint64_t query_weights, key_weights, query_scale, key_scale;
    } forms[] = {
        {SMALL("qwen3") HEADS NARROW "'attention_bias': false}", "16", "16", 4, 16, 16, 16, 16},
        {SMALL("phi") HEADS NARROW "'qk_layernorm': true}", "2 16", "2 16", 9, 32, 32, 16, 16},
        {SMALL("stablelm") HEADS NARROW "'qk_layernorm': true}", "128@tensor", "32@tensor", 9, 64, 16, 64, 16},
        {SMALL("llama4_text") HEADS NARROW "'intermediate_size_mlp': 48}", "", "", 4, 0, 0, 0, 0},
    };
    const struct bp_row *row;
    rows_of_config(forms[_i].config);
    rows_training(1, 8);
    rows_tensor_parallel(2);
    rows_derive(rows_request.model.kinds[0].name);
    /* 4 of 8 query heads and 1 of 2 key heads, of 16. */
    const bp_u128 query = 8 * 4 * 16, key = 8 * 1 * 16;
    const unsigned backward = forms[_i].operations == 9 ? 14 : 8;
    row = rows_named("attention.query_norm");
    ck_assert_str_eq(rows_shape(&row->parameter_shape), forms[_i].query);
    expect_elements(&row->forward, forms[_i].operations * query, query + forms[_i].query_weights, query);
    expect_elements(&row->activation_gradient, backward * query, 2 * query + forms[_i].query_scale, query);
    ck_assert(row->weight_gradient.has == (forms[_i].query_weights > 0) &&
              row->optimizer.has == row->weight_gradient.has);
    ck_assert_uint_eq(row->parameters, forms[_i].query_weights);
    row = rows_named("attention.key_norm");
    ck_assert_str_eq(rows_shape(&row->parameter_shape), forms[_i].key);
    expect_elements(&row->activation_gradient, backward * key, 2 * key + forms[_i].key_scale, key);
    ck_assert_uint_eq(row->parameters, forms[_i].key_weights);
    expect_held("attention.key_norm", 2 * key, 2 * key, true, true);
}
END_TEST

#define OLMO2                                                                                                          \
    "{'model_type': 'olmo2', 'hidden_size': 64, 'num_hidden_layers': 2, 'vocab_size': 9, 'num_attention_heads': 8, "   \
    "'num_key_value_heads': 2, 'intermediate_size': 96, 'attention_bias': false}"

/* Without a norm before it a half reads its fork's own tensor, which is held once. */
START_TEST(test_rows__norms_after_the_branches_alone)
{
    rows_of_config(OLMO2);
    rows_training(1, 8);
    rows_derive("");
    ck_assert_str_eq(rows_names(),
                     "attention.residual_fork attention.qkv_fork attention.query attention.key attention.value "
                     "attention.query_norm attention.key_norm attention.scores attention.softmax attention.context "
                     "attention.output attention.post_norm attention.residual mlp.residual_fork mlp.gate_fork "
                     "mlp.gate mlp.up mlp.activation mlp.down mlp.post_norm mlp.residual");
    ck_assert_uint_eq(rows_named("attention.query_norm")->parameters, 8 * 8);
    ck_assert_uint_eq(rows_named("attention.key_norm")->parameters, 2 * 8);
    ck_assert_str_eq(rows_shape(&rows_named("attention.key_norm")->parameter_shape), "16");
    const bp_u128 X = 8 * 64, q = 8 * 64, k = 8 * 16, n = 8 * 64;
    expect_held("attention.residual_fork", 2 * X, 0, false, false);
    expect_held("attention.qkv_fork", 2 * X, 0, true, true);
    expect_held("mlp.residual_fork", 2 * X, 0, false, false);
    /* Block input, both norms' inputs, what the MLP reads; query and key before and after their norms. */
    const bp_u128 stored = 2 * (4 * X + 2 * (q + k) + (n + k) + q + 3 * 8 * 96);
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS, stored);
    expect_memory(BP_MEMORY_WORKING_ACTIVATIONS, stored);
    rows_tensor_parallel(2);
    struct bp_err err = rows_refused("");
    ck_assert_int_eq(err.code, BP_E_unsupported_feature);
}
END_TEST

START_TEST(test_rows__a_shard_that_is_gathered_is_held_by_its_fork)
{
    rows_of_config(OLMO2);
    rows_request.model.kinds[0].qk_norm = BP_QK_NORM_NONE;
    rows_training(1, 8);
    rows_tensor_parallel(2);
    const bp_u128 X = 8 * 64, Xs = X / 2, q = 8 * 32, k = 8 * 8, n = 4 * 64;
    /* Both forks' shards and both post norms' inputs; gathered tensors only when they are not gathered again. */
    const bp_u128 stored = 2 * (4 * Xs + (q + k) + (n + k) + q + 3 * 8 * 48);
    rows_derive("");
    expect_held("attention.residual_fork", 2 * Xs, 0, true, true);
    expect_held("attention.input_collective", 2 * Xs, 2 * X, false, false);
    expect_held("attention.qkv_fork", 2 * X, 0, false, true);
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS, stored);
    rows_request.strategy.recompute_all_gather = false;
    rows_derive("");
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS, stored + 2 * 2 * X);
}
END_TEST

START_TEST(test_rows__norms_after_the_residuals)
{
    rows_of_config(SMALL("llama") HEADS NARROW "'attention_bias': false}");
    rows_request.model.kinds[0].norm_place = BP_NORM_PLACE_AFTER_RESIDUAL;
    rows_request.model.kinds[0].hidden_dropout = true;
    rows_training(1, 8);
    rows_derive("");
    ck_assert_str_eq(rows_inputs("attention.post_norm"), "attention.residual");
    ck_assert_str_eq(rows_inputs("attention.residual"), "attention.output_dropout attention.residual_fork");
    ck_assert_str_eq(rows_inputs("mlp.residual_fork"), "attention.post_norm");
    ck_assert_str_eq(rows_inputs("mlp.post_norm"), "mlp.residual");
    ck_assert_str_eq(rows_block.rows[rows_block.n_rows - 1].name, "mlp.post_norm");
    ck_assert(!rows_has("attention.norm") && !rows_has("mlp.norm"));
    rows_inference(BP_DECODE, 3, 8);
    rows_derive("");
    ck_assert_str_eq(rows_names(), "attention.qkv attention.rope attention.kv_write attention.core attention.output "
                                   "attention.residual attention.post_norm mlp.gate mlp.up mlp.activation mlp.down "
                                   "mlp.residual mlp.post_norm");
    ck_assert_str_eq(rows_inputs("mlp.residual"), "mlp.down attention.post_norm");
    expect_elements(&rows_named("mlp.post_norm")->forward, 4 * 3 * 64, 3 * 64 + 64, 3 * 64);
}
END_TEST

START_TEST(test_rows__norms_without_bias_or_weight)
{
    rows_of_config(COHERE HEADS NARROW "'use_qk_norm': false}");
    rows_training(1, 8);
    rows_derive("");
    const bp_u128 X = 8 * 64;
    expect_elements(&rows_named("attention.norm")->forward, 9 * X, X + 64, X);
    expect_elements(&rows_named("attention.norm")->activation_gradient, 14 * X, 2 * X + 64, X);
    expect_weight_gradient("attention.norm", 7 * X, 2 * X, 64);
    ck_assert_str_eq(rows_shape(&rows_named("attention.norm")->parameter_shape), "64");
    rows_request.model.norm_without_weight = true;
    rows_derive("");
    const struct bp_row *norm = rows_named("attention.norm");
    expect_elements(&norm->forward, 9 * X, X, X);
    expect_elements(&norm->activation_gradient, 14 * X, 2 * X, X);
    ck_assert(!norm->weight_gradient.has && !norm->optimizer.has && norm->parameters == 0);
    rows_inference(BP_PREFILL, 1, 8);
    rows_derive("");
    expect_elements(&rows_named("attention.norm")->forward, 5 * X, X, X);
    ck_assert_uint_eq(rows_named("attention.norm")->parameters, 0);
    rows_request.model.norm_without_weight = false;
    rows_derive("");
    expect_elements(&rows_named("attention.norm")->forward, 5 * X, X + 64, X);
}
END_TEST

/* ---- Attention and MLP side by side ---- */

START_TEST(test_rows__phi_has_one_norm_for_both_branches)
{
    rows_of_model("phi-2");
    rows_training(1, 4);
    rows_tensor_parallel(2);
    rows_derive("");
    ck_assert_str_eq(rows_names(),
                     "attention.residual_fork attention.norm attention.input_collective block.fork attention.qkv_fork "
                     "attention.query attention.key attention.value attention.scores attention.softmax "
                     "attention.context attention.output mlp.up mlp.activation mlp.down block.sum "
                     "block.output_collective block.residual");
    const bp_u128 X = 4 * 2560, Xs = X / 2;
    expect_elements(&rows_named("attention.residual_fork")->activation_gradient, Xs, 2 * Xs, Xs);
    expect_elements(&rows_named("block.fork")->activation_gradient, X, 2 * X, X);
    ck_assert_str_eq(rows_inputs("attention.qkv_fork"), "block.fork");
    ck_assert_str_eq(rows_inputs("mlp.up"), "block.fork");
    ck_assert_str_eq(rows_inputs("block.sum"), "attention.output mlp.down");
    ck_assert_str_eq(rows_inputs("block.residual"), "block.output_collective attention.residual_fork");
    expect_elements(&rows_named("block.sum")->forward, X, 2 * X, X);
    expect_elements(&rows_named("block.residual")->forward, Xs, 2 * Xs, Xs);
    expect_collective("block.output_collective", BP_AXIS_TENSOR, 2, X, BP_COLLECTIVE_REDUCE_SCATTER,
                      BP_COLLECTIVE_ALL_GATHER);
    /* One tensor, which two branches read. */
    expect_held("block.fork", 2 * X, 0, false, true);
    expect_held("attention.qkv_fork", 2 * X, 0, false, false);
    expect_held("mlp.up", 2 * X, 2 * 4 * 5120, false, false);
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS,
                  2 * (2 * Xs + 4 * 2 * 1280 + (16 * 16 + 4 * 1280) + 4 * 1280 + 2 * 4 * 5120));
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS, 143872);
    rows_request.strategy.recompute_all_gather = false;
    rows_derive("");
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS, 143872 - 2 * Xs + 2 * X);
    rows_tensor_parallel(1);
    rows_derive("");
    ck_assert(!rows_has("block.output_collective") && !rows_has("attention.input_collective"));
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS, 287744);
    rows_request.strategy.recompute = BP_RECOMPUTE_FULL;
    rows_derive("");
    expect_memory(BP_MEMORY_ACTIVATION_CHECKPOINT, 2 * X);
    ck_assert(rows_named("block.sum")->recomputed);
}
END_TEST

START_TEST(test_rows__neox_has_a_norm_for_each_branch)
{
    rows_of_config(SMALL("gpt_neox") "'num_attention_heads': 8, 'intermediate_size': 96, 'hidden_dropout': 0.1}");
    rows_training(1, 8);
    rows_request.strategy.tensor_parallel = 2; /* without sequence parallelism */
    rows_derive("");
    ck_assert_str_eq(rows_names(),
                     "attention.residual_fork attention.norm attention.input_collective attention.qkv_fork "
                     "attention.query attention.key attention.value attention.scores attention.softmax "
                     "attention.context attention.output attention.output_dropout mlp.norm mlp.input_collective "
                     "mlp.up mlp.activation mlp.down mlp.output_dropout block.sum block.output_collective "
                     "block.residual");
    const bp_u128 X = 8 * 64;
    expect_elements(&rows_named("attention.residual_fork")->activation_gradient, 2 * X, 3 * X, X);
    ck_assert_str_eq(rows_inputs("mlp.norm"), "attention.residual_fork");
    ck_assert_str_eq(rows_inputs("block.sum"), "attention.output_dropout mlp.output_dropout");
    expect_held("mlp.output_dropout", X, 2 * X, true, true);
    expect_held("mlp.up", 2 * X, 2 * 8 * 48, true, true);
    expect_collective("block.output_collective", BP_AXIS_TENSOR, 2, X, BP_COLLECTIVE_ALL_REDUCE, BP_COLLECTIVE_NONE);
    /* The fork, both branches' inputs, masks of a byte. */
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS,
                  2 * (3 * X + 8 * 2 * 32 + (4 * 64 + 8 * 32) + 8 * 32 + 2 * 8 * 48) + 2 * X);
}
END_TEST

START_TEST(test_rows__what_has_no_rows_is_refused)
{
    rows_of_model("gpt-oss-120b");
    rows_training(1, 8);
    ck_assert_int_eq(rows_refused("global_expert").code, BP_E_unsupported_feature);
    rows_of_model("mixtral-8x7b");
    rows_training(1, 8);
    struct bp_kind *kind = &rows_request.model.kinds[0];
    kind->residual = BP_RESIDUAL_PARALLEL;
    ck_assert_int_eq(rows_refused("").code, BP_E_unsupported_feature);
    rows_inference(BP_PREFILL, 1, 8);
    ck_assert_int_eq(rows_refused("").code, BP_E_unsupported_feature);
    kind->residual = BP_RESIDUAL_SEQUENTIAL;
    kind->norm_place = BP_NORM_PLACE_SHARED;
    ck_assert_int_eq(rows_refused("").code, BP_E_unsupported_feature);
    kind->norm_place = BP_NORM_PLACE_BEFORE;
    kind->cross_attention = true;
    ck_assert_int_eq(rows_refused("").code, BP_E_unsupported_feature);
}
END_TEST

/* ---- Scores ---- */

START_TEST(test_rows__a_position_bias_has_a_row_of_its_own)
{
    rows_of_config("{'model_type': 'bloom', 'n_embed': 64, 'n_layer': 2, 'vocab_size': 9}");
    rows_training(2, 8);
    rows_derive("");
    const struct bp_row *bias = rows_named("attention.position_bias");
    const bp_u128 m = 2 * 8 * 8 * 8;
    ck_assert_str_eq(rows_inputs("attention.softmax"), "attention.position_bias");
    expect_elements(&bias->forward, m, m, m);
    ck_assert(!bias->activation_gradient.has && !bias->recomputed);
    expect_held("attention.position_bias", 2 * m, 2 * m, false, false);
    rows_request.strategy.recompute = BP_RECOMPUTE_SELECTIVE;
    rows_derive("");
    ck_assert(rows_named("attention.position_bias")->recomputed);
}
END_TEST

Suite *suite_rows(void);
Suite *suite_rows(void)
{
    Suite *suite = suite_create("rows");
    TCase *families_case = tcase_create("families"), *rows = tcase_create("rows");
    tcase_add_unchecked_fixture(families_case, NULL, rows_forget);
    tcase_add_checked_fixture(rows, NULL, rows_forget);
    suite_add_tcase(suite, families_case);
    suite_add_tcase(suite, rows);
    tcase_add_test(families_case, test_rows__every_family_is_among_the_configs);
    tcase_add_loop_test(families_case, test_rows__have_the_parameters_of_every_family, 0, N_CONFIGS);
    tcase_add_loop_test(families_case, test_rows__have_the_parameters_of_every_model_of_the_catalogue, 0,
                        (int)bp_catalogue_n);
    tcase_add_loop_test(families_case, test_rows__tensors_hold_the_parameters, 0, N_CONFIGS);
    tcase_add_loop_test(families_case, test_rows__of_every_family_pass_the_gate, 0, N_CONFIGS);
    tcase_add_test(rows, test_rows__gemma_norms_before_and_after_each_branch_and_caps_its_scores);
    tcase_add_test(rows, test_rows__selective_recomputation_drops_every_tensor_of_scores);
    tcase_add_test(rows, test_rows__a_window_is_a_mask_in_training);
    tcase_add_loop_test(rows, test_rows__norms_of_query_and_key_have_the_weights_of_their_form, 0, 4);
    tcase_add_test(rows, test_rows__norms_after_the_branches_alone);
    tcase_add_test(rows, test_rows__a_shard_that_is_gathered_is_held_by_its_fork);
    tcase_add_test(rows, test_rows__norms_after_the_residuals);
    tcase_add_test(rows, test_rows__norms_without_bias_or_weight);
    tcase_add_test(rows, test_rows__phi_has_one_norm_for_both_branches);
    tcase_add_test(rows, test_rows__neox_has_a_norm_for_each_branch);
    tcase_add_test(rows, test_rows__what_has_no_rows_is_refused);
    tcase_add_test(rows, test_rows__a_position_bias_has_a_row_of_its_own);
    return suite;
}
