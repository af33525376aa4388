/* The rows of attention: latents, context parallelism, and what a step of inference does to scores and cache, with
 * numbers of docs/formulas.md worked out here. */
#include <check.h>

#include "tests/unit/rows_fixture.h"

/* DeepSeek-V3: 128 heads of 128 + 64 and 128, latents of 1536 and 512, hidden 7168. */
static const bp_u128 H = 7168, lq = 1536, lkv = 512, nope = 128, rope = 64, v = 128;

/* ---- Latents in training ---- */

START_TEST(test_rows_attention__latents_are_expanded_in_training)
{
    rows_of_model("deepseek-v3");
    rows_training(1, 4);
    rows_derive("dense");
    ck_assert_str_eq(rows_names(),
                     "attention.residual_fork attention.norm attention.latent_fork attention.query_down "
                     "attention.query_latent_norm attention.query_up attention.key_value_down "
                     "attention.key_value_latent_norm attention.key_value_up attention.scores attention.softmax "
                     "attention.context attention.output attention.residual mlp.residual_fork mlp.norm mlp.gate_fork "
                     "mlp.gate mlp.up mlp.activation mlp.down mlp.residual");
    const bp_u128 X = 4 * H, n = 128 * 16, q = 4 * 128 * (nope + rope);
    ck_assert_str_eq(rows_inputs("attention.scores"),
                     "attention.query_up attention.key_value_up attention.key_value_down");
    ck_assert_str_eq(rows_inputs("attention.context"), "attention.softmax attention.key_value_up");
    expect_elements(&rows_named("attention.query_down")->forward, 2 * 4 * H * lq, X + H * lq, 4 * lq);
    expect_held("attention.query_down", 2 * X, 2 * 4 * lq, false, false);
    expect_elements(&rows_named("attention.query_latent_norm")->forward, 4 * 4 * lq, 4 * lq + lq, 4 * lq);
    expect_elements(&rows_named("attention.query_up")->forward, 2 * 4 * lq * 24576, 4 * lq + lq * 24576, 4 * 24576);
    expect_held("attention.query_up", 2 * 4 * lq, 2 * q, true, true);
    expect_elements(&rows_named("attention.key_value_down")->forward, 2 * 4 * H * 576, X + H * 576, 4 * 576);
    expect_elements(&rows_named("attention.key_value_latent_norm")->activation_gradient, 8 * 4 * lkv, 2 * 4 * lkv + lkv,
                    4 * lkv);
    expect_elements(&rows_named("attention.key_value_up")->forward, 2 * 4 * lkv * 32768, 4 * lkv + lkv * 32768,
                    4 * 32768);
    expect_elements(&rows_named("attention.scores")->forward, 2 * n * 192, 2 * q, n);
    expect_elements(&rows_named("attention.context")->forward, 2 * n * v, n + 4 * 128 * v, 4 * 128 * v);
    expect_elements(&rows_named("attention.output")->forward, 2 * 4 * 16384 * H, 4 * 16384 + 16384 * H, X);
    /* Input and norm's output, latents before and after their norms, query and key, weights and value, the output; the
     * MLP as ever. */
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS,
                  2 * (2 * X + 2 * 4 * (lq + lkv) + 2 * q + (n + 4 * 16384) + 4 * 16384 + 2 * X + 3 * 4 * 18432));
}
END_TEST

START_TEST(test_rows_attention__latents_are_gathered_under_sequence_parallelism)
{
    rows_of_model("deepseek-v3");
    rows_training(1, 16);
    rows_tensor_parallel(8);
    rows_derive("dense");
    /* Two tokens of this rank, 16 heads. */
    expect_elements(&rows_named("attention.query_down")->forward, 2 * 2 * H * lq, 2 * H + H * lq, 2 * lq);
    expect_collective("attention.query_latent_collective", BP_AXIS_TENSOR, 8, 16 * lq, BP_COLLECTIVE_ALL_GATHER,
                      BP_COLLECTIVE_REDUCE_SCATTER);
    expect_collective("attention.key_value_latent_collective", BP_AXIS_TENSOR, 8, 16 * (lkv + rope),
                      BP_COLLECTIVE_ALL_GATHER, BP_COLLECTIVE_REDUCE_SCATTER);
    ck_assert_str_eq(rows_inputs("attention.key_value_latent_collective"),
                     "attention.key_value_latent_norm attention.key_value_down");
    ck_assert_str_eq(rows_inputs("attention.scores"),
                     "attention.query_up attention.key_value_up attention.key_value_latent_collective");
    expect_held("attention.key_value_latent_collective", 2 * 2 * (lkv + rope), 2 * 16 * (lkv + rope), true, true);
    expect_held("attention.key_value_up", 2 * 16 * lkv, 2 * 16 * 16 * (nope + v), false, true);
    expect_elements(&rows_named("attention.query_up")->forward, 2 * 16 * lq * 3072, 16 * lq + lq * 3072, 16 * 3072);
    rows_request.strategy.recompute_all_gather = false;
    rows_derive("dense");
    expect_held("attention.key_value_latent_collective", 2 * 2 * (lkv + rope), 2 * 16 * (lkv + rope), false, true);
    expect_held("attention.key_value_up", 2 * 16 * lkv, 2 * 16 * 16 * (nope + v), true, true);
}
END_TEST

#define LITE                                                                                                           \
    "{'model_type': 'deepseek_v2', 'hidden_size': 64, 'num_hidden_layers': 2, 'vocab_size': 9, "                       \
    "'num_attention_heads': 4, 'num_experts_per_tok': 2, 'q_lora_rank': null, 'kv_lora_rank': 8, "                     \
    "'qk_nope_head_dim': 6, 'qk_rope_head_dim': 2, 'v_head_dim': 5, 'n_routed_experts': null, "                        \
    "'intermediate_size': 96, 'attention_bias': true}"

START_TEST(test_rows_attention__queries_without_a_latent_share_the_fork_s_tensor)
{
    rows_of_config(LITE);
    rows_training(1, 8);
    rows_derive("");
    const bp_u128 X = 8 * 64, Xs = X / 2;
    /* No bias: only the projections into latents have one. */
    expect_elements(&rows_named("attention.query")->forward, 2 * 8 * 64 * 32, X + 64 * 32, 8 * 32);
    expect_elements(&rows_named("attention.key_value_down")->forward, 2 * 8 * 64 * 10, X + 65 * 10, 8 * 10);
    expect_held("attention.query", 2 * X, 2 * 8 * 32, false, false);
    rows_tensor_parallel(2);
    rows_derive("");
    expect_held("attention.latent_fork", 2 * Xs, 0, true, true);
    expect_held("attention.input_collective", 2 * Xs, 2 * X, false, false);
    expect_held("attention.query", 2 * X, 2 * 8 * 16, false, true);
    uint64_t again = rows_block.memory.at[BP_MEMORY_STORED_ACTIVATIONS].n;
    rows_request.strategy.recompute_all_gather = false;
    rows_derive("");
    expect_held("attention.query", 2 * X, 2 * 8 * 16, true, true);
    /* Gathered: the query's input beside its shard, the latent in place of its shard with the rotary part, the MLP's.
     */
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS, again + 2 * (X + 8 * 8 - 4 * 10 + X - Xs));
}
END_TEST

/* The rotary key passes the norm and the projection up by; without sequence parallelism no collective stands between,
 * and what would have is looked through. */
START_TEST(test_rows_attention__what_scores_of_latents_wait_for)
{
    rows_of_config(LITE);
    rows_training(1, 8);
    ck_assert_str_eq(rows_waits("attention.scores.forward"), "attention.query.forward "
                                                             "attention.key_value_down.forward "
                                                             "attention.key_value_up.forward");
    ck_assert_str_eq(rows_waits("attention.key_value_down.activation_gradient"),
                     "attention.scores.activation_gradient attention.key_value_latent_norm.activation_gradient");
    rows_tensor_parallel(2);
    ck_assert_str_eq(rows_waits("attention.scores.forward"),
                     "attention.query.forward attention.key_value_latent_collective.forward.all_gather "
                     "attention.key_value_up.forward");
    ck_assert_str_eq(
        rows_waits("attention.scores.activation_gradient"),
        "attention.key_value_latent_collective.recommunication.all_gather attention.softmax.activation_gradient");
    rows_request.strategy.sequence_parallel = rows_request.strategy.recompute_all_gather = false;
    ck_assert_str_eq(rows_waits("attention.scores.forward"),
                     "attention.query.forward attention.key_value_down.forward "
                     "attention.key_value_latent_norm.forward attention.key_value_up.forward");
    ck_assert_str_eq(rows_waits("attention.key_value_down.activation_gradient"),
                     "attention.key_value_latent_collective.activation_gradient.all_reduce "
                     "attention.key_value_latent_norm.activation_gradient");
}
END_TEST

/* ---- Latents in inference ---- */

START_TEST(test_rows_attention__prefill_expands_latents)
{
    rows_of_model("deepseek-v3");
    rows_inference(BP_PREFILL, 2, 8);
    rows_tensor_parallel(4);
    rows_request.workload.kv_cache_dtype = BP_DTYPE_FLOAT8;
    rows_derive("dense");
    ck_assert_str_eq(rows_names(),
                     "attention.norm attention.query_down attention.query_latent_norm attention.query_up "
                     "attention.key_value_down attention.key_value_latent_norm attention.rope attention.kv_write "
                     "attention.key_value_up attention.core attention.output attention.all_reduce attention.residual "
                     "mlp.norm mlp.gate mlp.up mlp.activation mlp.down mlp.all_reduce mlp.residual");
    /* 16 tokens, 32 heads, 2 * 8 * 8 scores a head. */
    const bp_u128 T = 16, h = 32, s = 2 * 32 * 64, m = 16 * 64 * 33;
    expect_elements(&rows_named("attention.query_down")->forward, 2 * T * H * lq, T * H + H * lq, T * lq);
    expect_elements(&rows_named("attention.query_up")->forward, 2 * T * lq * h * 192, T * lq + lq * h * 192,
                    T * h * 192);
    expect_elements(&rows_named("attention.key_value_latent_norm")->forward, 4 * T * lkv, T * lkv + lkv, T * lkv);
    expect_elements(&rows_named("attention.rope")->forward, 6 * m, m, m);
    ck_assert_str_eq(rows_inputs("attention.rope"), "attention.query_up attention.key_value_down");
    /* The cache holds one byte an element. */
    expect_bytes(&rows_named("attention.kv_write")->forward, 0, 2 * T * 576, T * 576);
    ck_assert_str_eq(rows_inputs("attention.kv_write"), "attention.key_value_latent_norm attention.rope");
    expect_bytes(&rows_named("attention.key_value_up")->forward, 2 * T * lkv * h * 256, T * lkv + 2 * lkv * h * 256,
                 2 * T * h * 256);
    ck_assert_str_eq(rows_inputs("attention.key_value_up"), "attention.kv_write");
    ck_assert(rows_named("attention.key_value_up")->effect.has &&
              rows_named("attention.key_value_up")->effect.access == BP_ACCESS_READ);
    expect_bytes(&rows_named("attention.core")->forward, 2 * s * 192 + 2 * s * 128 + 5 * s,
                 2 * (T * h * 192 + T * h * 256) + T * 64, 2 * T * h * 128);
    ck_assert_str_eq(rows_inputs("attention.core"),
                     "attention.query_up attention.rope attention.key_value_up attention.kv_write");
    expect_elements(&rows_named("attention.output")->forward, 2 * T * 4096 * H, T * 4096 + 4096 * H, T * H);
    expect_memory(BP_MEMORY_KV_CACHE, 2 * 8 * 576);
    /* Query, key and value of every head, 16 * 32 * (2 * 192 + 128), are the widest. */
    expect_memory(BP_MEMORY_WORKSPACE, 2 * (T * H + T * h * 512));
    ck_assert_str_eq(rows_shape(&rows_named("attention.kv_write")->output_shape), "2@replica 8 576");
}
END_TEST

START_TEST(test_rows_attention__decode_meets_latents_with_absorbed_queries)
{
    rows_of_model("deepseek-v3");
    rows_inference(BP_DECODE, 2, 1000);
    rows_tensor_parallel(4);
    rows_derive("dense");
    const bp_u128 h = 32, s = 2 * 32 * 1000;
    ck_assert(!rows_has("attention.key_value_up"));
    expect_elements(&rows_named("attention.query_absorb")->forward, 2 * 2 * h * nope * lkv,
                    2 * h * nope + h * nope * lkv, 2 * h * lkv);
    ck_assert_str_eq(rows_inputs("attention.query_absorb"), "attention.query_up");
    expect_elements(&rows_named("attention.core")->forward, 2 * s * 576 + 2 * s * 512 + 5 * s,
                    2 * h * 576 + 2 * 1000 * 576, 2 * h * lkv);
    ck_assert_str_eq(rows_inputs("attention.core"), "attention.query_absorb attention.rope attention.kv_write");
    expect_elements(&rows_named("attention.value_up")->forward, 2 * 2 * h * lkv * v, 2 * h * lkv + h * lkv * v,
                    2 * h * v);
    ck_assert_str_eq(rows_inputs("attention.output"), "attention.value_up");
    ck_assert_str_eq(rows_shape(&rows_named("attention.query_absorb")->parameter_shape), "512 16384@tensor");
    ck_assert_str_eq(rows_shape(&rows_named("attention.value_up")->parameter_shape), "512 16384@tensor");
    expect_memory(BP_MEMORY_KV_CACHE, 2 * 2 * 1000 * 576);
    /* The scores are wider than absorbed queries, 2 * 32 * 576. */
    expect_memory(BP_MEMORY_WORKSPACE, 2 * (2 * H + s));
}
END_TEST

/* ---- Scores, rotation and cache in inference ---- */

START_TEST(test_rows_attention__falcon_serves_both_branches_with_one_sum)
{
    rows_of_model("falcon-7b");
    rows_inference(BP_DECODE, 3, 10);
    rows_request.workload.kv_cache_dtype = BP_DTYPE_FLOAT32;
    rows_derive("");
    ck_assert_str_eq(rows_names(),
                     "attention.norm attention.qkv attention.rope attention.kv_write attention.core attention.output "
                     "mlp.up mlp.activation mlp.down block.sum block.residual");
    ck_assert_str_eq(rows_inputs("mlp.up"), "attention.norm");
    ck_assert_str_eq(rows_inputs("block.sum"), "attention.output mlp.down");
    ck_assert_str_eq(rows_inputs("block.residual"), "block.sum input");
    const bp_u128 Y = 3 * 4544;
    expect_elements(&rows_named("block.sum")->forward, Y, 2 * Y, Y);
    expect_elements(&rows_named("block.residual")->forward, Y, 2 * Y, Y);
    expect_elements(&rows_named("attention.qkv")->forward, 2 * Y * 4672, Y + 4544 * 4672, 3 * 4672);
    /* One key and one value of 64, four bytes an element in the cache. */
    expect_bytes(&rows_named("attention.kv_write")->forward, 0, 2 * 3 * 128, 4 * 3 * 128);
    expect_bytes(&rows_named("attention.core")->forward, (4 * 64 + 5) * 3 * 71 * 10, 2 * Y + 4 * 3 * 10 * 128, 2 * Y);
    expect_memory(BP_MEMORY_KV_CACHE, 4 * 3 * 10 * 128);
    expect_memory(BP_MEMORY_WORKSPACE, 2 * (Y + 3 * 18176));
}
END_TEST

START_TEST(test_rows_attention__the_sum_of_both_branches_is_reduced_once)
{
    rows_of_model("pythia-6.9b");
    rows_inference(BP_PREFILL, 1, 4);
    rows_tensor_parallel(2);
    rows_derive("");
    ck_assert_str_eq(rows_names(),
                     "attention.norm attention.qkv attention.rope attention.kv_write attention.core attention.output "
                     "mlp.norm mlp.up mlp.activation mlp.down block.sum block.all_reduce block.residual");
    ck_assert_str_eq(rows_inputs("mlp.norm"), "input");
    expect_collective("block.all_reduce", BP_AXIS_TENSOR, 2, 4 * 4096, BP_COLLECTIVE_ALL_REDUCE, BP_COLLECTIVE_NONE);
    /* A quarter of each head of 128 rotates, 16 query and 16 key heads. */
    expect_elements(&rows_named("attention.rope")->forward, 6 * 4 * 32 * 32, 4 * 32 * 32, 4 * 32 * 32);
}
END_TEST

START_TEST(test_rows_attention__a_soft_cap_and_a_position_bias_are_of_the_core)
{
    rows_of_model("gemma-2-9b");
    rows_inference(BP_DECODE, 1, 10000);
    rows_derive("sliding");
    ck_assert_str_eq(rows_names(),
                     "attention.norm attention.qkv attention.rope attention.kv_write attention.core attention.output "
                     "attention.post_norm attention.residual mlp.norm mlp.gate mlp.up mlp.activation mlp.down "
                     "mlp.post_norm mlp.residual");
    const bp_u128 near = 16 * 4096, far = 16 * 10000;
    expect_elements(&rows_named("attention.core")->forward, near * (4 * 256 + 5 + 3), 4096 + 2 * 4096 * 2048, 4096);
    expect_memory(BP_MEMORY_KV_CACHE, 2 * 2 * 4096 * 2048);
    rows_derive("global");
    expect_elements(&rows_named("attention.core")->forward, far * (4 * 256 + 5 + 3), 4096 + 2 * 10000 * 2048, 4096);
    rows_request.model.position = BP_POSITION_ALIBI;
    rows_derive("global");
    ck_assert(!rows_has("attention.rope"));
    expect_elements(&rows_named("attention.core")->forward, far * (4 * 256 + 5 + 3 + 1), 4096 + 2 * 10000 * 2048, 4096);
}
END_TEST

START_TEST(test_rows_attention__layers_without_rotation_have_no_row_of_it)
{
    rows_of_config("{'model_type': 'llama4_text', 'hidden_size': 64, 'num_hidden_layers': 8, 'vocab_size': 9, "
                   "'num_attention_heads': 8, 'num_key_value_heads': 2, 'head_dim': 16, 'attention_chunk_size': 4}");
    rows_inference(BP_DECODE, 1, 8);
    rows_derive("global_expert");
    ck_assert(!rows_has("attention.rope") && !rows_has("attention.qk_norm"));
    rows_derive("chunked_expert");
    ck_assert(rows_has("attention.rope") && rows_symbols.c == 4);
    expect_elements(&rows_named("attention.qk_norm")->forward, 4 * 160, 160, 160);
    ck_assert_uint_eq(rows_named("attention.qk_norm")->parameters, 0);
}
END_TEST

/* ---- Context parallelism ---- */

static void divide_context(enum bp_cp_comm comm)
{
    rows_of_config("{'model_type': 'llama', 'hidden_size': 64, 'num_hidden_layers': 2, 'vocab_size': 9, "
                   "'num_attention_heads': 8, 'num_key_value_heads': 4, 'head_dim': 8, 'intermediate_size': 96}");
    rows_training(1, 16);
    rows_request.strategy.context_parallel = 2;
    rows_request.strategy.cp_comm = comm;
    rows_request.strategy.data_parallel = 3;
    rows_request.strategy.zero_stage = 1;
    rows_derive("");
}

START_TEST(test_rows_attention__keys_and_values_of_all_ranks_are_gathered)
{
    divide_context(_i ? BP_CP_ALL_GATHER : BP_CP_RING);
    /* 8 of 16 tokens of this rank. */
    const bp_u128 X = 8 * 64, n = 8 * 8 * 16, q = 8 * 64, k = 8 * 32, all = 16 * 32;
    expect_collective("attention.context_collective", BP_AXIS_CONTEXT, 2, 16 * 64, BP_COLLECTIVE_ALL_GATHER,
                      BP_COLLECTIVE_REDUCE_SCATTER);
    ck_assert(rows_named("attention.context_collective")->recomputed);
    expect_held("attention.context_collective", 2 * 2 * k, 2 * 2 * all, false, false);
    ck_assert_str_eq(rows_inputs("attention.context_collective"), "attention.key attention.value");
    ck_assert_str_eq(rows_inputs("attention.scores"), "attention.query attention.context_collective");
    ck_assert_str_eq(rows_inputs("attention.context"), "attention.softmax attention.context_collective");
    expect_elements(&rows_named("attention.scores")->forward, 2 * n * 8, q + all, n);
    expect_elements(&rows_named("attention.scores")->activation_gradient, 4 * n * 8, q + all + n, q + all);
    expect_held("attention.scores", 2 * (q + k), 2 * n, true, true);
    expect_elements(&rows_named("attention.context")->forward, 2 * n * 8, n + all, q);
    expect_elements(&rows_named("attention.context")->activation_gradient, 4 * n * 8, n + all + q, n + all);
    expect_held("attention.context", 2 * (n + k), 2 * q, true, true);
    expect_elements(&rows_named("attention.norm")->forward, 4 * X, X + 64, X);
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS, 2 * (4 * X + q + k + n + k + q + 3 * 8 * 96));
    /* Six ranks hold the same parameters. */
    expect_bytes(&rows_named("attention.norm")->optimizer, 11 * 11, 11 * 16, 11 * 14);
    ck_assert_str_eq(rows_shape(&rows_block.boundary), "3@data 8 64");
    ck_assert_str_eq(rows_shape(&rows_named("attention.context_collective")->output_shape), "3@data 16 64@tensor");
}
END_TEST

/* Keys are gathered once more for the backward pass, whatever else is done again. */
START_TEST(test_rows_attention__what_gathered_keys_wait_for)
{
    divide_context(BP_CP_RING);
    ck_assert_str_eq(rows_waits("attention.context_collective.recommunication.all_gather"), "mlp.residual.forward");
    ck_assert_str_eq(rows_waits("attention.scores.activation_gradient"),
                     "attention.context_collective.recommunication.all_gather attention.softmax.activation_gradient");
    ck_assert_str_eq(rows_waits("attention.context_collective.activation_gradient.reduce_scatter"),
                     "attention.context.activation_gradient attention.scores.activation_gradient");
    ck_assert_str_eq(rows_waits("attention.key.activation_gradient"),
                     "attention.context_collective.activation_gradient.reduce_scatter");
    rows_request.strategy.recompute = BP_RECOMPUTE_FULL;
    ck_assert_str_eq(rows_waits("attention.context_collective.recommunication.all_gather"),
                     "attention.key.recompute attention.value.recompute");
}
END_TEST

START_TEST(test_rows_attention__heads_are_exchanged_for_tokens)
{
    divide_context(BP_CP_A2A);
    const bp_u128 X = 8 * 64, n = 8 * 8 * 16, q = 8 * 64, k = 8 * 32;
    expect_collective("attention.context_exchange", BP_AXIS_CONTEXT, 2, q + 2 * k, BP_COLLECTIVE_ALL_TO_ALL,
                      BP_COLLECTIVE_ALL_TO_ALL);
    expect_collective("attention.context_return", BP_AXIS_CONTEXT, 2, q, BP_COLLECTIVE_ALL_TO_ALL,
                      BP_COLLECTIVE_ALL_TO_ALL);
    ck_assert(!rows_named("attention.context_exchange")->recomputed);
    expect_held("attention.context_exchange", 2 * (q + 2 * k), 2 * (q + 2 * k), false, false);
    expect_held("attention.context_return", 2 * q, 2 * q, false, true);
    ck_assert_str_eq(rows_inputs("attention.context_exchange"), "attention.query attention.key attention.value");
    ck_assert_str_eq(rows_inputs("attention.scores"), "attention.context_exchange");
    ck_assert_str_eq(rows_inputs("attention.output"), "attention.context_return");
    expect_elements(&rows_named("attention.scores")->forward, 2 * n * 8, q + k, n);
    expect_elements(&rows_named("attention.context")->forward, 2 * n * 8, n + k, q);
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS, 2 * (4 * X + q + k + n + k + q + 3 * 8 * 96));
    /* 4 of 8 heads, all 16 tokens. */
    ck_assert_str_eq(rows_shape(&rows_named("attention.scores")->output_shape), "3@data 4@tensor 16 16");
}
END_TEST

START_TEST(test_rows_attention__expanded_latents_are_gathered_over_the_context)
{
    rows_of_config(LITE);
    rows_training(1, 16);
    rows_request.strategy.context_parallel = 2;
    rows_derive("");
    /* 4 heads of 6 + 2 and 5. */
    expect_collective("attention.context_collective", BP_AXIS_CONTEXT, 2, 16 * 4 * 13, BP_COLLECTIVE_ALL_GATHER,
                      BP_COLLECTIVE_REDUCE_SCATTER);
    ck_assert_str_eq(rows_inputs("attention.context_collective"), "attention.key_value_up attention.key_value_down");
    expect_elements(&rows_named("attention.scores")->forward, (bp_u128)2 * 4 * 8 * 16 * 8, 8 * 32 + 16 * 32,
                    4 * 8 * 16);
    expect_held("attention.scores", 2 * 2 * 8 * 32, 2 * 4 * 8 * 16, true, true);
    expect_elements(&rows_named("attention.context")->forward, (bp_u128)2 * 4 * 8 * 16 * 5, 4 * 8 * 16 + 16 * 20,
                    8 * 20);
    rows_request.strategy.cp_comm = BP_CP_A2A;
    rows_derive("");
    expect_collective("attention.context_exchange", BP_AXIS_CONTEXT, 2, 8 * 4 * (2 * 8 + 5), BP_COLLECTIVE_ALL_TO_ALL,
                      BP_COLLECTIVE_ALL_TO_ALL);
}
END_TEST

Suite *suite_rows_attention(void);
Suite *suite_rows_attention(void)
{
    Suite *suite = suite_create("rows of attention");
    TCase *tcase = tcase_create("attention");
    tcase_add_checked_fixture(tcase, NULL, rows_forget);
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, test_rows_attention__latents_are_expanded_in_training);
    tcase_add_test(tcase, test_rows_attention__latents_are_gathered_under_sequence_parallelism);
    tcase_add_test(tcase, test_rows_attention__queries_without_a_latent_share_the_fork_s_tensor);
    tcase_add_test(tcase, test_rows_attention__what_scores_of_latents_wait_for);
    tcase_add_test(tcase, test_rows_attention__what_gathered_keys_wait_for);
    tcase_add_test(tcase, test_rows_attention__prefill_expands_latents);
    tcase_add_test(tcase, test_rows_attention__decode_meets_latents_with_absorbed_queries);
    tcase_add_test(tcase, test_rows_attention__falcon_serves_both_branches_with_one_sum);
    tcase_add_test(tcase, test_rows_attention__the_sum_of_both_branches_is_reduced_once);
    tcase_add_test(tcase, test_rows_attention__a_soft_cap_and_a_position_bias_are_of_the_core);
    tcase_add_test(tcase, test_rows_attention__layers_without_rotation_have_no_row_of_it);
    tcase_add_loop_test(tcase, test_rows_attention__keys_and_values_of_all_ranks_are_gathered, 0, 2);
    tcase_add_test(tcase, test_rows_attention__heads_are_exchanged_for_tokens);
    tcase_add_test(tcase, test_rows_attention__expanded_latents_are_gathered_over_the_context);
    return suite;
}
