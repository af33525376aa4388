/* The capacity view of every model and every kind of block: parameters, experts, uneven pipelines, context parallelism.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/config.h"
#include "tests/unit/capacity_fixture.h"

#define GIB (UINT64_C(1) << 30)

static json_t *serve(const char *model, const char *phase, long long batch, long long context, const char *strategy)
{
    return fit_of("{'model': {'name': '%s'}, 'workload': {'mode': 'inference', 'phase': '%s', 'batch_size': %lld, "
                  "'context_length': %lld, 'dtype': 'bfloat16'}, 'strategy': {%s}, 'memory_bytes': 85899345920}",
                  model, phase, batch, context, strategy);
}

/* ---- Every model of the catalogue ---- */

/* Serving on one device holds the checkpoint: the tensors of the blocks and of the ends are the count's, at two bytes
 * where the dtype is not the one that a quantised checkpoint is of. */
START_TEST(test_capacity_models__tensors_are_the_parameters_of_every_model)
{
    const char *name = bp_catalogue[_i].name;
    json_t *answer = fit_of("{'model': {'name': '%s'}, 'workload': {'mode': 'inference', 'phase': 'decode', "
                            "'batch_size': 1, 'context_length': 1, 'dtype': 'float16'}, 'strategy': {}, "
                            "'memory_bytes': 85899345920}",
                            name);
    ck_assert_int_eq(number_at(answer, "/stages/0/components/weights"),
                     (json_int_t)(2 * decimal_at(answer, "/parameters/total")));
}
END_TEST

/* Where training has rows, the derivation itself holds them to the tensors: it fails otherwise. */
START_TEST(test_capacity_models__rows_are_the_tensors_of_every_model_that_trains)
{
    static const char *const refused[] = {"gpt-oss-120b"}; /* attention sinks */
    const char *name = bp_catalogue[_i].name;
    bool trains = true;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        trains &= strcmp(refused[i], name) != 0;
    static const char request[] =
        "{'model': {'name': '%s'}, 'workload': {'mode': 'training', 'sequence_length': 1024, 'micro_batch_size': 1, "
        "'global_batch_size': 8, 'dtype': 'bfloat16'}, 'strategy': {%s}, 'memory_bytes': 85899345920}";
    if (trains) {
        json_t *answer = fit_of(request, name, "'data_parallel': 8, 'recompute': 'full'");
        ck_assert_int_eq(number_at(answer, "/stages/0/components/weights"),
                         (json_int_t)(2 * decimal_at(answer, "/parameters/total")));
    } else {
        ck_assert_ptr_nonnull(strstr(fit_refusal(request, name, "'data_parallel': 8"), "unsupported_feature"));
    }
}
END_TEST

static const struct {
    const char *model;
    json_int_t bytes;
} kv_bytes[] = {{"llama-2-7b", 524288},     {"llama-3.1-8b", 131072}, {"llama-3.1-70b", 327680},
                {"llama-3.1-405b", 516096}, {"deepseek-v3", 70272},   {"qwen3-4b", 2 * 36 * 8 * 128 * 2}};

START_TEST(test_capacity_models__kv_bytes_a_token_are_the_published_ones)
{
    json_t *answer = serve(kv_bytes[_i].model, "decode", 1, 16, "'tensor_parallel': 1");
    ck_assert_int_eq(number_at(answer, "/kv_bytes_per_token"), kv_bytes[_i].bytes);
    ck_assert_int_eq(number_at(answer, "/stages/0/components/kv_cache"), 16 * kv_bytes[_i].bytes);
}
END_TEST

static const struct {
    const char *model, *strategy;
    double gib;
} measured[] = {{"llama-3.1-8b", "'tensor_parallel': 1", 14.99}, {"qwen3-32b", "'tensor_parallel': 2", 30.59}};

START_TEST(test_capacity_models__weights_are_what_servers_measure)
{
    json_t *answer = serve(measured[_i].model, "decode", 1, 1, measured[_i].strategy);
    double gib = (double)number_at(answer, "/stages/0/components/weights") / (double)GIB;
    ck_assert_double_eq_tol(gib, measured[_i].gib, measured[_i].gib / 100);
}
END_TEST

START_TEST(test_capacity_models__active_parameters_take_the_chosen_experts)
{
    json_t *answer = serve("mixtral-8x7b", "decode", 1, 1, "'tensor_parallel': 1");
    ck_decimal_eq(decimal_at(answer, "/parameters/active"), 12879925248);
    ck_decimal_eq(decimal_at(answer, "/parameters/active_without_embedding"), 12879925248 - 32000 * 4096);
    ck_decimal_eq(decimal_at(answer, "/parameters/components/experts"), (bp_u128)32 * 8 * 3 * 4096 * 14336);
}
END_TEST

/* ---- Experts ---- */

static json_t *mixtral(const char *strategy)
{
    return fit_of("{'model': {'name': 'mixtral-8x7b'}, 'workload': {'mode': 'training', 'sequence_length': 4096, "
                  "'micro_batch_size': 1, 'global_batch_size': 64, 'dtype': 'bfloat16'}, 'strategy': {%s}, "
                  "'memory_bytes': 85899345920}",
                  strategy);
}

static const struct {
    uint64_t t, ep, etp;
} grids[] = {{1, 1, 1}, {1, 8, 1}, {2, 1, 2}, {2, 4, 1}, {2, 2, 2}, {4, 8, 1}, {4, 2, 4}, {4, 1, 2}};

START_TEST(test_capacity_models__experts_divide_by_their_own_degrees_alone)
{
    uint64_t t = grids[_i].t, ep = grids[_i].ep, etp = grids[_i].etp, H = 4096, F = 14336;
    char strategy[256];
    snprintf(strategy, sizeof strategy,
             "'tensor_parallel': %llu, 'sequence_parallel': true, 'data_parallel': 8, 'expert_parallel': %llu, "
             "'expert_tensor_parallel': %llu, 'zero_stage': 1",
             (unsigned long long)t, (unsigned long long)ep, (unsigned long long)etp);
    json_t *answer = mixtral(strategy);
    uint64_t attention = (H * 32 * 128 * 2 + H * 8 * 128 * 2) / t, rest = 2 * H + 8 * H, experts = 8 * 3 * H * F;
    uint64_t block = attention + rest + experts / (ep * etp);
    ck_assert_int_eq(number_at(answer, "/stages/0/blocks_only/weights"), (json_int_t)(32 * 2 * block));
    /* Expert state shards over t*dp/(ep*etp) ranks, the rest over dp; each row divides here. */
    uint64_t expert_ranks = t * 8 / (ep * etp);
    uint64_t state = 12 * ((attention + rest) / 8 + experts / (ep * etp) / expert_ranks);
    ck_assert_int_eq(number_at(answer, "/stages/0/blocks_only/optimizer"), (json_int_t)(32 * state));
    ck_assert_str_eq(json_string_value(value_at(answer, "/assumptions/0")), "balanced_routing");
}
END_TEST

/* Activations are priced by routed pairs: two of eight experts a token, whatever the number of experts. */
START_TEST(test_capacity_models__activations_of_experts_are_those_of_pairs)
{
    json_t *answer = mixtral("'data_parallel': 8, 'expert_parallel': 8");
    json_t *skewed = fit_of("{'model': {'name': 'mixtral-8x7b'}, 'workload': {'mode': 'training', "
                            "'sequence_length': 4096, 'micro_batch_size': 1, 'global_batch_size': 64, "
                            "'dtype': 'bfloat16', 'imbalance_permille': 1500}, "
                            "'strategy': {'data_parallel': 8, 'expert_parallel': 8}, 'memory_bytes': 85899345920}");
    json_int_t X = 4096, H = 4096, F = 14336, pairs = 2 * X;
    json_int_t a = number_at(answer, "/stages/0/components/stored_activations");
    json_int_t b = number_at(skewed, "/stages/0/components/stored_activations");
    /* A pair keeps its input, gate and up, and what goes down. */
    ck_assert_int_eq(b - a, 32 * 2 * (pairs / 2) * (H + 3 * F));
    ck_assert_str_eq(json_string_value(value_at(skewed, "/assumptions/0")), "imbalanced_routing");
    ck_decimal_eq(decimal_at(answer, "/operations/per_step/model"), decimal_at(skewed, "/operations/per_step/model"));
    ck_assert(decimal_at(answer, "/operations/per_step/hardware") <
              decimal_at(skewed, "/operations/per_step/hardware"));
}
END_TEST

/* Two operations a weight that a token meets, two a score product, three passes. */
START_TEST(test_capacity_models__operations_of_experts_are_those_of_active_weights)
{
    json_t *answer = mixtral("'data_parallel': 8");
    bp_u128 tokens = 64 * 4096, H = 4096, F = 14336, d = 128, h = 32, k = 8;
    bp_u128 weights = 2 * H * d * (h + k) + 8 * H + 2 * 3 * H * F, scores = 2 * h * d * 4096;
    bp_u128 step = 3 * 2 * tokens * 32 * (weights + scores) + 6 * tokens * H * 32000;
    ck_decimal_eq(decimal_at(answer, "/operations/per_step/model"), step);
    ck_decimal_eq(decimal_at(answer, "/operations/per_step/hardware"), step);
}
END_TEST

/* ---- Stages of unlike blocks ---- */

START_TEST(test_capacity_models__deepseek_v3_lists_each_stage_s_true_blocks)
{
    json_t *answer =
        fit_of("{'model': {'name': 'deepseek-v3'}, 'workload': {'mode': 'training', 'sequence_length': 4096, "
               "'micro_batch_size': 1, 'global_batch_size': 128, 'dtype': 'bfloat16'}, 'strategy': "
               "{'pipeline_parallel': 4, 'data_parallel': 128, 'expert_parallel': 64, "
               "'pipeline_layers': [14, 16, 16, 15]}, 'memory_bytes': 85899345920}");
    static const json_int_t first[] = {0, 14, 30, 46}, last[] = {13, 29, 45, 60}, dense[] = {3, 0, 0, 0};
    json_int_t one_expert = number_at(answer, "/stages/1/blocks_only/weights") / 16;
    for (int stage = 0; stage < 4; stage++) {
        json_int_t layers = last[stage] - first[stage] + 1;
        ck_assert_uint_eq(json_array_size(value_at(answer, "/stages/%d/blocks", stage)), 1);
        ck_assert_int_eq(number_at(answer, "/stages/%d/blocks/0/0", stage), first[stage]);
        ck_assert_int_eq(number_at(answer, "/stages/%d/blocks/0/1", stage), last[stage]);
        ck_assert_int_eq(number_at(answer, "/stages/%d/kinds/dense", stage), dense[stage]);
        ck_assert_int_eq(number_at(answer, "/stages/%d/kinds/expert", stage), layers - dense[stage]);
        json_int_t dense_weights = 2 * INT64_C(583483392);
        ck_assert_int_eq(number_at(answer, "/stages/%d/blocks_only/weights", stage),
                         dense[stage] * dense_weights + (layers - dense[stage]) * one_expert);
    }
    /* Attention, norms, router with its correction, shared experts, and four of the 256 routed ones. */
    json_int_t routed = INT64_C(3) * 7168 * 2048;
    ck_assert_int_eq(one_expert, 2 * (INT64_C(11507286272) - 252 * routed));
    ck_assert_str_eq(json_string_value(value_at(answer, "/assumptions/1")), "latent_expanded");
}
END_TEST

/* What each kind holds and does adds up to what all do; the ends of the model are in each answer. */
START_TEST(test_capacity_models__named_kinds_are_counted_alone)
{
    static const char *const kinds[] = {"'dense', 'expert'", "'dense'", "'expert'"};
    json_t *of[3];
    for (int i = 0; i < 3; i++)
        of[i] = fit_of("{'model': {'name': 'deepseek-v3'}, 'workload': {'mode': 'training', 'sequence_length': 4096, "
                       "'micro_batch_size': 1, 'global_batch_size': 16, 'dtype': 'bfloat16', 'block_kinds': [%s]}, "
                       "'strategy': {'data_parallel': 8, 'expert_parallel': 8, 'zero_stage': 3}, 'memory_bytes': 1}",
                       kinds[i]);
    ck_assert_ptr_null(json_object_get(value_at(of[0], "/conventions"), "block_kinds"));
    ck_assert_str_eq(json_string_value(value_at(of[1], "/conventions/block_kinds/0")), "dense");
    static const char *const state[] = {"weights", "gradients", "optimizer"};
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(number_at(of[1], "/stages/0/blocks_only/%s", state[i]) +
                             number_at(of[2], "/stages/0/blocks_only/%s", state[i]),
                         number_at(of[0], "/stages/0/blocks_only/%s", state[i]));
    ck_assert_int_eq(number_at(of[1], "/stages/0/components/stored_activations") +
                         number_at(of[2], "/stages/0/components/stored_activations"),
                     number_at(of[0], "/stages/0/components/stored_activations"));
    bp_u128 head = (bp_u128)6 * 16 * 4096 * 7168 * 129280;
    ck_decimal_eq(decimal_at(of[1], "/operations/per_step/hardware") +
                      decimal_at(of[2], "/operations/per_step/hardware"),
                  decimal_at(of[0], "/operations/per_step/hardware") + head);
    ck_assert_int_eq(number_at(of[1], "/stages/0/blocks/0/1"), 2);
    ck_assert_int_eq(number_at(of[2], "/stages/0/blocks/0/0"), 3);
    ck_assert_int_eq(number_at(of[1], "/stages/0/kinds/dense"), 3);
    ck_assert_ptr_null(json_object_get(value_at(of[1], "/stages/0/kinds"), "expert"));
    ck_decimal_eq(decimal_at(of[1], "/parameters/total"), decimal_at(of[0], "/parameters/total"));
}
END_TEST

/* Every other layer has a window; alone those that have one are apart. */
START_TEST(test_capacity_models__layers_of_named_kinds_are_listed_as_they_lie)
{
    json_t *answer = fit_of("{'model': {'name': 'gemma-2-9b'}, 'workload': {'mode': 'inference', 'phase': 'decode', "
                            "'batch_size': 1, 'context_length': 8192, 'dtype': 'bfloat16', 'block_kinds': ['global']}, "
                            "'strategy': {}, 'memory_bytes': 85899345920}");
    json_t *blocks = value_at(answer, "/stages/0/blocks");
    ck_assert_uint_eq(json_array_size(blocks), 21);
    ck_assert(number_at(blocks, "/0/0") == 1 && number_at(blocks, "/0/1") == 1 && number_at(blocks, "/20/0") == 41);
    /* 21 layers of 8 key/value heads of 256, 8192 tokens. */
    ck_assert_int_eq(number_at(answer, "/stages/0/components/kv_cache"), 21LL * 2 * 8 * 256 * 2 * 8192);
    ck_assert_str_eq(fit_refusal("{'model': {'name': 'gemma-2-9b'}, 'workload': {'mode': 'inference', 'phase': "
                                 "'decode', 'batch_size': 1, 'context_length': 8, 'dtype': 'bfloat16', 'block_kinds': "
                                 "['dense']}, 'strategy': {}, 'memory_bytes': 1}"),
                     "unknown_value /workload/block_kinds/0");
}
END_TEST

START_TEST(test_capacity_models__405b_on_16_stages_has_fewer_blocks_at_its_ends)
{
    json_t *answer =
        fit_of("{'model': {'name': 'llama-3.1-405b'}, 'workload': {'mode': 'training', 'sequence_length': 8192, "
               "'micro_batch_size': 1, 'global_batch_size': 256, 'dtype': 'bfloat16'}, 'strategy': "
               "{'tensor_parallel': 8, 'sequence_parallel': true, 'pipeline_parallel': 16, 'data_parallel': 4, "
               "'pipeline_layers': [7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7]}, 'memory_bytes': 85899345920}");
    json_int_t next = 0, weights = number_at(answer, "/stages/1/blocks_only/weights");
    for (int stage = 0; stage < 16; stage++) {
        json_int_t layers = stage == 0 || stage == 15 ? 7 : 8;
        ck_assert_int_eq(number_at(answer, "/stages/%d/blocks/0/0", stage), next);
        next += layers;
        ck_assert_int_eq(number_at(answer, "/stages/%d/blocks/0/1", stage), next - 1);
        ck_assert_int_eq(number_at(answer, "/stages/%d/blocks_only/weights", stage), weights / 8 * layers);
        ck_assert_int_eq(number_at(answer, "/stages/%d/in_flight", stage), 16 - stage);
    }
    ck_assert_int_eq(next, 126);
}
END_TEST

START_TEST(test_capacity_models__chunks_dealt_by_hand_are_listed_by_stage)
{
    json_t *answer = fit_of(
        "{'model': {'transformer': {'name': 's', 'hidden_size': 64, 'num_hidden_layers': 9, "
        "'num_attention_heads': 8, 'intermediate_size': 256, 'vocab_size': 1000, 'activation': 'gelu', "
        "'norm': 'layernorm', 'position': 'rope'}}, 'workload': {'mode': 'training', 'sequence_length': 32, "
        "'micro_batch_size': 1, 'global_batch_size': 16, 'dtype': 'bfloat16'}, 'strategy': {'pipeline_parallel': 2, "
        "'pipeline_schedule': 'interleaved', 'virtual_stages': 2, 'pipeline_layers': [1, 2, 3, 3]}, "
        "'memory_bytes': 1000000000}");
    static const json_int_t runs[2][2][2] = {{{0, 0}, {3, 5}}, {{1, 2}, {6, 8}}};
    for (int stage = 0; stage < 2; stage++)
        for (int chunk = 0; chunk < 2; chunk++)
            for (int end = 0; end < 2; end++)
                ck_assert_int_eq(number_at(answer, "/stages/%d/blocks/%d/%d", stage, chunk, end),
                                 runs[stage][chunk][end]);
    /* Five passes of the first stage, 0 0 1 1 0: but the most is held when the second chunk has three of them. */
    ck_assert_int_eq(number_at(answer, "/stages/0/in_flight"), 5);
}
END_TEST

/* ---- Context parallelism ---- */

START_TEST(test_capacity_models__context_parallelism_divides_the_sequence)
{
    static const char request[] =
        "{'model': {'name': 'llama-3.1-8b'}, 'workload': {'mode': 'training', 'sequence_length': 32768, "
        "'micro_batch_size': 1, 'global_batch_size': 8, 'dtype': 'bfloat16'}, 'strategy': {%s}, "
        "'memory_bytes': 85899345920}";
    json_t *whole = fit_of(request, "'data_parallel': 4"), *parts = fit_of(request, "'context_parallel': 4");
    ck_assert_int_eq(number_at(parts, "/stages/0/components/stored_activations") * 4,
                     number_at(whole, "/stages/0/components/stored_activations"));
    ck_decimal_eq(decimal_at(parts, "/operations/per_step/hardware"),
                  decimal_at(whole, "/operations/per_step/hardware"));
    ck_assert_int_gt(number_at(parts, "/wire_bytes/context"), 0);
    ck_assert_int_eq(number_at(whole, "/wire_bytes/context"), 0);
    /* Two key and value shards go around. */
    json_t *exchanged = fit_of(request, "'context_parallel': 4, 'cp_comm': 'a2a'");
    ck_assert_int_eq(number_at(parts, "/stages/0/components/transient") -
                         number_at(exchanged, "/stages/0/components/transient"),
                     2 * 8192 * 2 * 8 * 128 * 2);
}
END_TEST

/* ---- What other blocks and ends add ---- */

static json_t *train(const char *config, const char *strategy)
{
    return fit_of("{'model': {'huggingface': {'hidden_size': 64, 'vocab_size': 1000, %s}}, 'workload': {'mode': "
                  "'training', 'sequence_length': 32, 'micro_batch_size': 1, 'global_batch_size': 1, 'dtype': "
                  "'bfloat16'}, 'strategy': {%s}, 'memory_bytes': 85899345920}",
                  config, strategy);
}

START_TEST(test_capacity_models__ends_hold_what_their_norms_read)
{
    json_int_t X = 32 * 64, logits = 32 * 1000;
    json_t *bloom = train("'model_type': 'bloom', 'n_layer': 2, 'n_head': 8", "'data_parallel': 1");
    ck_assert_int_eq(number_at(bloom, "/stages/0/components/embedding_activations"), 2 * X);
    ck_assert_int_eq(number_at(bloom, "/stages/0/components/head_activations"), 2 * 2 * X + 6 * logits);
    json_t *opt = train("'model_type': 'opt', 'num_hidden_layers': 2, 'num_attention_heads': 8, 'ffn_dim': 96, "
                        "'word_embed_proj_dim': 64, 'do_layer_norm_before': false, 'dropout': 0",
                        "'data_parallel': 1");
    ck_assert_int_eq(number_at(opt, "/stages/0/components/embedding_activations"), 0);
    ck_assert_int_eq(number_at(opt, "/stages/0/components/head_activations"), 2 * X + 6 * logits);
}
END_TEST

/* Forward, once more and backward, ten collectives of half of X a block; and the gradients of its four norms, and of
 * the final one. */
START_TEST(test_capacity_models__gradients_of_norms_after_the_branches_are_summed_too)
{
    json_t *answer = train("'model_type': 'gemma2', 'num_hidden_layers': 4, 'num_attention_heads': 8, "
                           "'num_key_value_heads': 2, 'head_dim': 8, 'intermediate_size': 96",
                           "'tensor_parallel': 2, 'sequence_parallel': true");
    ck_assert_int_eq(number_at(answer, "/wire_bytes/tensor"),
                     4 * (10 * 2 * 32 * 64 / 2 + 4 * 2 * 64 * 4 / 2) + 2 * 64 * 4 / 2);
    /* Two norms of two vectors and two biases a block; the norms of the embedding and before the head. */
    json_t *bloom =
        train("'model_type': 'bloom', 'n_layer': 2, 'n_head': 8", "'tensor_parallel': 2, 'sequence_parallel': true");
    ck_assert_int_eq(number_at(bloom, "/wire_bytes/tensor"),
                     2 * (10 * 2 * 32 * 64 / 2 + (2 * 2 + 2) * 64 * 4) + 2 * 2 * 64 * 4);
}
END_TEST

/* Without an exchange the widest rows of experts so narrow are their own, not a dispatch of 2 * 64 a pair. */
START_TEST(test_capacity_models__experts_on_one_rank_exchange_nothing)
{
    static const char config[] =
        "'model_type': 'qwen3_moe', 'num_hidden_layers': 1, 'num_attention_heads': 4, 'num_key_value_heads': 1, "
        "'head_dim': 8, 'num_experts': 4, 'num_experts_per_tok': 4, 'moe_intermediate_size': 8";
    json_t *answer = train(config, "'data_parallel': 1");
    ck_assert_int_eq(number_at(answer, "/stages/0/components/transient"), 2 * 32 * 4 * (64 + 8));
    ck_assert_int_eq(number_at(answer, "/wire_bytes/expert"), 0);
}
END_TEST

/* Norms that span all heads have rows on one rank alone: the search passes other degrees by. */
START_TEST(test_capacity_models__norms_that_span_heads_stay_on_one_rank)
{
    static const char request[] =
        "{'model': {'huggingface': {'model_type': 'olmo2', 'hidden_size': 4096, 'num_hidden_layers': 32, "
        "'num_attention_heads': 32, 'vocab_size': 100352}}, 'workload': {'mode': 'training', 'sequence_length': 4096, "
        "'micro_batch_size': 1, 'global_batch_size': 8, 'dtype': 'bfloat16'}, 'strategy': {%s}, "
        "'memory_bytes': 42949672960}";
    ck_assert_ptr_nonnull(
        strstr(fit_refusal(request, "'tensor_parallel': 2, 'data_parallel': 4"), "unsupported_feature"));
    json_t *answer = fit_of(request, "'data_parallel': 8");
    ck_assert(json_is_false(value_at(answer, "/fits_before_reserve")));
    const json_t *suggestions = value_at(answer, "/suggestions");
    ck_assert_uint_gt(json_array_size(suggestions), 0);
    for (size_t i = 0; i < json_array_size(suggestions); i++) {
        char *text = json_dumps(json_array_get(suggestions, i), 0);
        ck_assert_ptr_null(strstr(text, "tensor_parallel"));
        free(text);
    }
}
END_TEST

Suite *suite_capacity_models(void);
Suite *suite_capacity_models(void)
{
    Suite *suite = suite_create("capacity models");
    TCase *models = tcase_create("models"), *kinds = tcase_create("kinds");
    TCase *const all[] = {models, kinds};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tcase_add_checked_fixture(all[i], NULL, capacity_forget);
        suite_add_tcase(suite, all[i]);
    }
    int n_models = (int)bp_catalogue_n;
    tcase_add_loop_test(models, test_capacity_models__tensors_are_the_parameters_of_every_model, 0, n_models);
    tcase_add_loop_test(models, test_capacity_models__rows_are_the_tensors_of_every_model_that_trains, 0, n_models);
    tcase_add_loop_test(models, test_capacity_models__kv_bytes_a_token_are_the_published_ones, 0, 6);
    tcase_add_loop_test(models, test_capacity_models__weights_are_what_servers_measure, 0, 2);
    tcase_add_test(models, test_capacity_models__active_parameters_take_the_chosen_experts);
    tcase_add_loop_test(kinds, test_capacity_models__experts_divide_by_their_own_degrees_alone, 0, 8);
    tcase_add_test(kinds, test_capacity_models__activations_of_experts_are_those_of_pairs);
    tcase_add_test(kinds, test_capacity_models__operations_of_experts_are_those_of_active_weights);
    tcase_add_test(kinds, test_capacity_models__deepseek_v3_lists_each_stage_s_true_blocks);
    tcase_add_test(kinds, test_capacity_models__named_kinds_are_counted_alone);
    tcase_add_test(kinds, test_capacity_models__layers_of_named_kinds_are_listed_as_they_lie);
    tcase_add_test(kinds, test_capacity_models__405b_on_16_stages_has_fewer_blocks_at_its_ends);
    tcase_add_test(kinds, test_capacity_models__chunks_dealt_by_hand_are_listed_by_stage);
    tcase_add_test(kinds, test_capacity_models__context_parallelism_divides_the_sequence);
    tcase_add_test(kinds, test_capacity_models__ends_hold_what_their_norms_read);
    tcase_add_test(kinds, test_capacity_models__gradients_of_norms_after_the_branches_are_summed_too);
    tcase_add_test(kinds, test_capacity_models__experts_on_one_rank_exchange_nothing);
    tcase_add_test(kinds, test_capacity_models__norms_that_span_heads_stay_on_one_rank);
    return suite;
}
