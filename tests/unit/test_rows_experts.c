/* The rows of experts, in training and in inference, with numbers of docs/formulas.md worked out here. */
#include <check.h>

#include "tests/unit/rows_fixture.h"

/* ---- Training ---- */

START_TEST(test_rows_experts__mixtral_on_one_rank_exchanges_nothing)
{
    rows_of_model("mixtral-8x7b");
    rows_training(1, 16);
    rows_derive("");
    ck_assert_str_eq(rows_names(),
                     "attention.residual_fork attention.norm attention.qkv_fork attention.query attention.key "
                     "attention.value attention.scores attention.softmax attention.context attention.output "
                     "attention.residual mlp.residual_fork mlp.norm moe.fork moe.router moe.router_softmax moe.top_k "
                     "moe.permute moe.gate_fork moe.gate moe.up moe.activation moe.down moe.unpermute mlp.residual");
    const bp_u128 X = 16 * 4096, N = 2 * 16, H = 4096, F = 14336;
    expect_elements(&rows_named("moe.fork")->activation_gradient, X, 2 * X, X);
    expect_elements(&rows_named("moe.router")->forward, 2 * 16 * H * 8, X + H * 8, 16 * 8);
    expect_held("moe.router", 2 * X, 2 * 16 * 8, false, false);
    expect_elements(&rows_named("moe.router_softmax")->forward, 5 * 128, 128, 128);
    expect_held("moe.router_softmax", 2 * 128, 2 * 128, true, true);
    /* Two of eight logits a token; backward the choice says where its gradient goes. */
    expect_elements(&rows_named("moe.top_k")->forward, 128, 128, 32);
    expect_elements(&rows_named("moe.top_k")->activation_gradient, 32, 64, 128);
    expect_held("moe.top_k", 64, 64, true, true);
    ck_assert_int_eq(rows_named("moe.top_k")->operands, BP_NEEDS_ITSELF);
    ck_assert_str_eq(rows_inputs("moe.permute"), "moe.fork moe.top_k");
    expect_elements(&rows_named("moe.permute")->forward, 0, X + 32, 2 * X);
    expect_elements(&rows_named("moe.permute")->activation_gradient, X, 2 * X + 32, X + 32);
    expect_held("moe.permute", 0, 2 * 2 * X, true, true);
    ck_assert_int_eq(rows_named("moe.permute")->operands, BP_NEEDS_LAST_INPUT);
    expect_elements(&rows_named("moe.unpermute")->forward, X, 2 * X, X);
    expect_elements(&rows_named("moe.unpermute")->activation_gradient, 0, X, 2 * X);
    expect_held("moe.unpermute", 0, 2 * X, true, true);
    expect_held("moe.gate_fork", 2 * 2 * X, 0, true, true);
    /* Pairs meet one expert's weights each, and all weights are read. */
    expect_elements(&rows_named("moe.up")->forward, 2 * N * H * F, N * H + 8 * H * F, N * F);
    expect_elements(&rows_named("moe.up")->activation_gradient, 2 * N * H * F, 8 * H * F + N * F, N * H);
    expect_weight_gradient("moe.up", 2 * N * H * F, N * H + N * F, 8 * H * F);
    expect_elements(&rows_named("moe.down")->forward, 2 * N * F * H, N * F + 8 * F * H, N * H);
    expect_elements(&rows_named("moe.activation")->forward, 9 * N * F, 2 * N * F, N * F);
    ck_assert_str_eq(rows_shape(&rows_named("moe.up")->parameter_shape), "8@expert 4096 14336@expert_tensor");
    ck_assert_str_eq(rows_shape(&rows_named("moe.down")->parameter_shape), "8@expert 14336@expert_tensor 4096");
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS, 3883328);
    expect_memory(BP_MEMORY_WORKING_ACTIVATIONS, 3883328);
}
END_TEST

START_TEST(test_rows_experts__pairs_go_to_their_experts_and_come_back)
{
    rows_of_model("mixtral-8x7b");
    rows_training(1, 16);
    rows_tensor_parallel(2);
    rows_expert_parallel(4, 1);
    rows_request.strategy.data_parallel = 4;
    rows_request.strategy.zero_stage = 1;
    rows_derive("");
    /* 8 tokens of this rank, 16 pairs of them, 16 to compute; two of the eight experts. */
    const bp_u128 H = 4096, F = 14336, Xs = 8 * H, P = 2 * H * F;
    expect_elements(&rows_named("moe.router")->forward, 2 * 8 * H * 8, Xs + H * 8, 8 * 8);
    expect_elements(&rows_named("moe.permute")->forward, 0, Xs + 16, 16 * H);
    expect_collective("moe.dispatch", BP_AXIS_EXPERT, 4, 16 * H, BP_COLLECTIVE_ALL_TO_ALL, BP_COLLECTIVE_ALL_TO_ALL);
    expect_collective("moe.combine", BP_AXIS_EXPERT, 4, 16 * H, BP_COLLECTIVE_ALL_TO_ALL, BP_COLLECTIVE_ALL_TO_ALL);
    expect_held("moe.dispatch", 2 * 16 * H, 2 * 16 * H, false, true);
    ck_assert(!rows_has("moe.gather") && !rows_has("moe.scatter"));
    ck_assert_str_eq(rows_inputs("moe.dispatch"), "moe.permute");
    ck_assert_str_eq(rows_inputs("moe.gate_fork"), "moe.dispatch");
    ck_assert_str_eq(rows_inputs("moe.unpermute"), "moe.combine");
    expect_elements(&rows_named("moe.gate")->forward, 2 * 16 * H * F, 16 * H + P, 16 * F);
    /* Two ranks hold the same experts, four the rest. */
    expect_bytes(&rows_named("moe.gate")->optimizer, 11 * (P / 2), P / 2 * 16, P / 2 * 14);
    expect_bytes(&rows_named("moe.router")->optimizer, 11 * (H * 8 / 4), H * 8 / 4 * 16, H * 8 / 4 * 14);
}
END_TEST

START_TEST(test_rows_experts__an_expert_s_tensor_group_gathers_and_scatters)
{
    rows_of_model("mixtral-8x7b");
    rows_training(1, 16);
    rows_tensor_parallel(2);
    rows_expert_parallel(2, 2);
    rows_request.strategy.data_parallel = 2;
    rows_derive("");
    const bp_u128 H = 4096, F = 7168;
    expect_collective("moe.dispatch", BP_AXIS_EXPERT, 2, 16 * H, BP_COLLECTIVE_ALL_TO_ALL, BP_COLLECTIVE_ALL_TO_ALL);
    expect_collective("moe.gather", BP_AXIS_EXPERT_TENSOR, 2, 32 * H, BP_COLLECTIVE_ALL_GATHER,
                      BP_COLLECTIVE_REDUCE_SCATTER);
    expect_held("moe.gather", 2 * 16 * H, 2 * 32 * H, false, true);
    expect_collective("moe.scatter", BP_AXIS_EXPERT_TENSOR, 2, 32 * H, BP_COLLECTIVE_REDUCE_SCATTER,
                      BP_COLLECTIVE_ALL_GATHER);
    expect_held("moe.scatter", 2 * 32 * H, 2 * 16 * H, false, true);
    expect_elements(&rows_named("moe.up")->forward, 2 * 32 * H * F, 32 * H + 4 * H * F, 32 * F);
    expect_elements(&rows_named("moe.down")->forward, 2 * 32 * F * H, 32 * F + 4 * F * H, 32 * H);
    ck_assert_str_eq(rows_shape(&rows_named("moe.down")->parameter_shape), "8@expert 14336@expert_tensor 4096");
    /* Both halves' collectives are the tensor group's. */
    ck_assert_int_eq(rows_named("attention.input_collective")->axis, BP_AXIS_TENSOR);
    ck_assert(!rows_has("mlp.input_collective") && !rows_has("mlp.output_collective"));
}
END_TEST

#define QWEN2_MOE                                                                                                      \
    "{'model_type': 'qwen2_moe', 'hidden_size': 64, 'num_hidden_layers': 2, 'vocab_size': 9, "                         \
    "'num_attention_heads': 8, 'num_key_value_heads': 2, 'num_experts': 4, 'num_experts_per_tok': 2, "                 \
    "'moe_intermediate_size': 10, 'shared_expert_intermediate_size': 24, 'intermediate_size': 96}"

START_TEST(test_rows_experts__shared_experts_are_scaled_and_added)
{
    rows_of_config(QWEN2_MOE);
    rows_training(1, 8);
    rows_derive("");
    const bp_u128 X = 8 * 64;
    ck_assert_str_eq(rows_inputs("shared.gate_fork"), "moe.fork");
    ck_assert_str_eq(rows_inputs("shared.scale"), "moe.fork");
    ck_assert_str_eq(rows_inputs("shared.scaling"), "shared.down shared.scale");
    ck_assert_str_eq(rows_inputs("shared.add"), "shared.scaling moe.unpermute");
    expect_elements(&rows_named("moe.fork")->activation_gradient, 3 * X, 4 * X, X);
    expect_elements(&rows_named("shared.scale")->forward, 2 * 8 * 64, X + 64, 8);
    expect_elements(&rows_named("shared.scaling")->forward, X, X + 8, X);
    expect_elements(&rows_named("shared.scaling")->activation_gradient, 2 * X, 2 * X + 8, X + 8);
    ck_assert_int_eq(rows_named("shared.scaling")->operands, BP_NEEDS_INPUTS);
    expect_held("shared.scaling", 2 * (X + 8), 2 * X, true, true);
    expect_held("shared.scale", 2 * X, 2 * 8, false, false);
    /* The norm's output is moe.fork's to hold. */
    expect_held("moe.fork", 2 * X, 0, true, true);
    expect_held("shared.gate_fork", 2 * X, 0, false, false);
    /* The attention: X, X, query and key, weights and value, its output; the router: softmax and choice; experts:
     * input, gate and up, and down's; shared: gate and up, down's, and what is scaled. */
    const bp_u128 attention = 2 * X + 8 * (64 + 16) + (8 * 64 + 8 * 16) + 8 * 64;
    const bp_u128 experts = 2 * X + 8 * 4 + 16 + 16 * 64 + 3 * 16 * 10 + 3 * 8 * 24 + X + 8;
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS, 2 * (attention + experts));
    expect_memory(BP_MEMORY_WORKING_ACTIVATIONS, 2 * (attention + experts));
}
END_TEST

START_TEST(test_rows_experts__a_gathered_input_of_shared_experts_is_held_beside_its_shard)
{
    rows_of_config(QWEN2_MOE);
    rows_training(1, 8);
    rows_tensor_parallel(2);
    rows_derive("");
    const bp_u128 X = 8 * 64, Xs = X / 2;
    expect_held("moe.fork", 2 * Xs, 0, true, true);
    expect_held("shared.input_collective", 2 * Xs, 2 * X, false, false);
    expect_held("shared.gate_fork", 2 * X, 0, false, true);
    expect_collective("shared.input_collective", BP_AXIS_TENSOR, 2, X, BP_COLLECTIVE_ALL_GATHER,
                      BP_COLLECTIVE_REDUCE_SCATTER);
    expect_collective("shared.output_collective", BP_AXIS_TENSOR, 2, X, BP_COLLECTIVE_REDUCE_SCATTER,
                      BP_COLLECTIVE_ALL_GATHER);
    expect_elements(&rows_named("shared.scale")->forward, 2 * 4 * 64, Xs + 64, 4);
    uint64_t again = rows_block.memory.at[BP_MEMORY_STORED_ACTIVATIONS].n;
    rows_request.strategy.recompute_all_gather = false;
    rows_derive("");
    expect_held("shared.gate_fork", 2 * X, 0, true, true);
    /* Gathered: what attention reads in place of its shard, what shared experts read beside theirs. */
    expect_memory(BP_MEMORY_STORED_ACTIVATIONS, again + 2 * (X - Xs) + 2 * X);
}
END_TEST

/* Backward the choice says where the copies' gradients belong, not the tokens. */
START_TEST(test_rows_experts__what_a_permutation_waits_for)
{
    rows_of_config(QWEN2_MOE);
    rows_training(1, 8);
    rows_request.strategy.recompute = BP_RECOMPUTE_FULL;
    ck_assert_str_eq(rows_waits("moe.permute.forward"), "mlp.norm.forward moe.top_k.forward");
    ck_assert_str_eq(rows_waits("moe.permute.recompute"), "mlp.norm.recompute moe.top_k.recompute");
    ck_assert_str_eq(rows_waits("moe.permute.activation_gradient"),
                     "moe.top_k.recompute moe.gate_fork.activation_gradient");
    ck_assert_str_eq(rows_waits("moe.top_k.activation_gradient"),
                     "moe.top_k.recompute moe.permute.activation_gradient");
    ck_assert_str_eq(rows_waits("moe.unpermute.activation_gradient"), "mlp.residual.forward");
    ck_assert_str_eq(rows_waits("moe.fork.activation_gradient"),
                     "shared.scale.activation_gradient shared.gate_fork.activation_gradient "
                     "moe.permute.activation_gradient moe.router.activation_gradient");
    ck_assert_str_eq(rows_waits("shared.scaling.activation_gradient"),
                     "mlp.residual.forward shared.down.recompute shared.scale.recompute");
}
END_TEST

/* ---- Inference ---- */

START_TEST(test_rows_experts__a_tensor_group_serves_its_part_of_every_expert)
{
    rows_of_model("qwen3-235b-a22b");
    rows_inference(BP_DECODE, 4, 100);
    rows_tensor_parallel(4);
    rows_derive("");
    ck_assert_str_eq(rows_names(),
                     "attention.norm attention.qkv attention.qk_norm attention.rope attention.kv_write attention.core "
                     "attention.output attention.all_reduce attention.residual mlp.norm moe.router "
                     "moe.router_softmax moe.top_k moe.permute moe.gate moe.up moe.activation moe.down moe.unpermute "
                     "mlp.all_reduce mlp.residual");
    const bp_u128 H = 4096, Y = 4 * H, F = 1536 / 4, N = 4 * 8;
    expect_elements(&rows_named("moe.router")->forward, 2 * 4 * H * 128, Y + H * 128, 4 * 128);
    expect_elements(&rows_named("moe.router_softmax")->forward, 5 * 512, 512, 512);
    expect_elements(&rows_named("moe.top_k")->forward, 512, 512, N);
    expect_elements(&rows_named("moe.permute")->forward, 0, Y + N, N * H);
    expect_elements(&rows_named("moe.gate")->forward, 2 * N * H * F, N * H + 128 * H * F, N * F);
    expect_elements(&rows_named("moe.activation")->forward, 9 * N * F, 2 * N * F, N * F);
    expect_elements(&rows_named("moe.down")->forward, 2 * N * F * H, N * F + 128 * F * H, N * H);
    expect_elements(&rows_named("moe.unpermute")->forward, 7 * Y, N * H, Y);
    expect_collective("mlp.all_reduce", BP_AXIS_TENSOR, 4, Y, BP_COLLECTIVE_ALL_REDUCE, BP_COLLECTIVE_NONE);
    ck_assert_str_eq(rows_inputs("moe.permute"), "mlp.norm moe.top_k");
    /* 2N F_e/etp = 24576 elements are wider than the projections 4 * 18 * 128 and the scores 4 * 16 * 100. */
    expect_memory(BP_MEMORY_WORKSPACE, 2 * (Y + 2 * N * F));
}
END_TEST

START_TEST(test_rows_experts__served_tokens_are_dealt_out_under_expert_parallelism)
{
    rows_of_config(QWEN2_MOE);
    rows_inference(BP_PREFILL, 2, 8);
    rows_tensor_parallel(2);
    rows_expert_parallel(2, 1);
    rows_request.strategy.replicas = 3;
    rows_derive("");
    ck_assert_str_eq(rows_names(),
                     "attention.norm attention.qkv attention.rope attention.kv_write attention.core attention.output "
                     "attention.all_reduce attention.residual mlp.norm moe.router moe.router_softmax moe.top_k "
                     "moe.permute moe.dispatch moe.gate moe.up moe.activation moe.down moe.combine moe.unpermute "
                     "moe.output_collective shared.gate shared.up shared.activation shared.down shared.all_reduce "
                     "shared.scale shared.scaling shared.add mlp.residual");
    /* 16 tokens, 8 of this rank; 16 pairs of them; 16 to compute, with two experts. */
    const bp_u128 H = 64, Y = 16 * H;
    expect_elements(&rows_named("mlp.norm")->forward, 4 * Y, Y + H, Y);
    expect_elements(&rows_named("moe.router")->forward, 2 * 8 * H * 4, 8 * H + H * 4, 8 * 4);
    expect_elements(&rows_named("moe.top_k")->forward, 32, 32, 16);
    expect_elements(&rows_named("moe.permute")->forward, 0, 8 * H + 16, 16 * H);
    expect_collective("moe.dispatch", BP_AXIS_EXPERT, 2, 16 * H, BP_COLLECTIVE_ALL_TO_ALL, BP_COLLECTIVE_NONE);
    expect_elements(&rows_named("moe.up")->forward, 2 * 16 * H * 10, 16 * H + 2 * H * 10, 16 * 10);
    expect_elements(&rows_named("moe.unpermute")->forward, 8 * H, 16 * H, 8 * H);
    expect_collective("moe.output_collective", BP_AXIS_TENSOR, 2, Y, BP_COLLECTIVE_ALL_GATHER, BP_COLLECTIVE_NONE);
    expect_elements(&rows_named("shared.up")->forward, 2 * 16 * H * 12, Y + H * 12, 16 * 12);
    expect_collective("shared.all_reduce", BP_AXIS_TENSOR, 2, Y, BP_COLLECTIVE_ALL_REDUCE, BP_COLLECTIVE_NONE);
    expect_elements(&rows_named("shared.scale")->forward, 2 * 16 * H, Y + H, 16);
    expect_elements(&rows_named("shared.scaling")->forward, Y, Y + 16, Y);
    expect_elements(&rows_named("shared.add")->forward, Y, 2 * Y, Y);
    ck_assert_str_eq(rows_inputs("shared.add"), "shared.scaling moe.output_collective");
    ck_assert_str_eq(rows_inputs("mlp.residual"), "shared.add attention.residual");
    ck_assert_str_eq(rows_shape(&rows_named("moe.permute")->output_shape), "3@replica 32@tensor 64");
    ck_assert_str_eq(rows_shape(&rows_named("moe.unpermute")->output_shape), "3@replica 16@tensor 64");
}
END_TEST

START_TEST(test_rows_experts__a_step_that_does_not_divide_is_no_number)
{
    rows_of_config(QWEN2_MOE);
    rows_inference(BP_DECODE, 3, 8);
    rows_tensor_parallel(2);
    rows_derive(""); /* all of them route all */
    rows_expert_parallel(2, 1);
    rows_request.strategy.replicas = 2;
    ck_assert_int_eq(rows_refused("").code, BP_E_internal);
}
END_TEST

START_TEST(test_rows_experts__an_expert_s_tensor_group_gathers_what_is_served)
{
    rows_of_config(QWEN2_MOE);
    rows_inference(BP_PREFILL, 2, 8);
    rows_tensor_parallel(2);
    rows_expert_parallel(2, 2);
    rows_request.strategy.replicas = 2;
    rows_derive("");
    const bp_u128 H = 64;
    expect_collective("moe.dispatch", BP_AXIS_EXPERT, 2, 16 * H, BP_COLLECTIVE_ALL_TO_ALL, BP_COLLECTIVE_NONE);
    expect_collective("moe.gather", BP_AXIS_EXPERT_TENSOR, 2, 32 * H, BP_COLLECTIVE_ALL_GATHER, BP_COLLECTIVE_NONE);
    expect_collective("moe.scatter", BP_AXIS_EXPERT_TENSOR, 2, 32 * H, BP_COLLECTIVE_REDUCE_SCATTER,
                      BP_COLLECTIVE_NONE);
    expect_elements(&rows_named("moe.up")->forward, 2 * 32 * H * 5, 32 * H + 2 * H * 5, 32 * 5);
}
END_TEST

START_TEST(test_rows_experts__gpt_oss_has_sinks_and_a_bias_of_every_linear)
{
    rows_of_model("gpt-oss-120b");
    rows_inference(BP_DECODE, 2, 1000);
    rows_tensor_parallel(2);
    rows_derive("global_expert");
    const bp_u128 H = 2880, F = 1440, N = 2 * 4, s = 2 * 32 * 1000;
    const struct bp_row *core = rows_named("attention.core");
    expect_elements(&core->forward, 4 * s * 64 + 5 * s + 5 * 2 * 32, 2 * 32 * 64 + 2 * 2 * 1000 * 64 * 4 + 32,
                    2 * 32 * 64);
    ck_assert_uint_eq(core->parameters, 32);
    ck_assert_str_eq(rows_shape(&core->parameter_shape), "64@tensor");
    expect_elements(&rows_named("moe.router")->forward, 2 * 2 * H * 128, 2 * H + (H + 1) * 128, 2 * 128);
    expect_elements(&rows_named("moe.gate")->forward, 2 * N * H * F, N * H + 128 * (H + 1) * F, N * F);
    expect_elements(&rows_named("moe.down")->forward, 2 * N * F * H, N * F + 128 * (F + 1) * H, N * H);
    ck_assert_str_eq(rows_shape(&rows_named("moe.gate")->parameter_shape), "128@expert 2881 2880@expert_tensor");
    ck_assert_str_eq(rows_shape(&rows_named("moe.down")->parameter_shape), "128@expert 2882@expert_tensor 2880");
    expect_memory(BP_MEMORY_KV_CACHE, 2 * 2 * 2 * 1000 * 64 * 4);
    /* The other kind sees its window of 128, and caches no more. */
    rows_derive("sliding_expert");
    ck_assert(rows_symbols.c == 128);
    expect_elements(&rows_named("attention.core")->forward, (4 * 64 + 5) * 2 * 32 * 128 + 5 * 2 * 32,
                    2 * 32 * 64 + 2 * 2 * 128 * 64 * 4 + 32, 2 * 32 * 64);
    expect_memory(BP_MEMORY_KV_CACHE, 2 * 2 * 2 * 128 * 64 * 4);
    rows_inference(BP_PREFILL, 2, 1000);
    rows_derive("sliding_expert");
    ck_assert(rows_symbols.c == 1000);
    expect_memory(BP_MEMORY_KV_CACHE, 2 * 2 * 2 * 1000 * 64 * 8);
}
END_TEST

Suite *suite_rows_experts(void);
Suite *suite_rows_experts(void)
{
    Suite *suite = suite_create("rows of experts");
    TCase *tcase = tcase_create("experts");
    tcase_add_checked_fixture(tcase, NULL, rows_forget);
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, test_rows_experts__mixtral_on_one_rank_exchanges_nothing);
    tcase_add_test(tcase, test_rows_experts__pairs_go_to_their_experts_and_come_back);
    tcase_add_test(tcase, test_rows_experts__an_expert_s_tensor_group_gathers_and_scatters);
    tcase_add_test(tcase, test_rows_experts__shared_experts_are_scaled_and_added);
    tcase_add_test(tcase, test_rows_experts__a_gathered_input_of_shared_experts_is_held_beside_its_shard);
    tcase_add_test(tcase, test_rows_experts__what_a_permutation_waits_for);
    tcase_add_test(tcase, test_rows_experts__a_tensor_group_serves_its_part_of_every_expert);
    tcase_add_test(tcase, test_rows_experts__served_tokens_are_dealt_out_under_expert_parallelism);
    tcase_add_test(tcase, test_rows_experts__a_step_that_does_not_divide_is_no_number);
    tcase_add_test(tcase, test_rows_experts__an_expert_s_tensor_group_gathers_what_is_served);
    tcase_add_test(tcase, test_rows_experts__gpt_oss_has_sinks_and_a_bias_of_every_linear);
    return suite;
}
