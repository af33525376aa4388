/* The capacity view of serving: the cache by heads, windows and latents, weights as a checkpoint stores them, the
 * largest batch. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/capacity_fixture.h"

static json_t *serve(const char *model, const char *phase, long long batch, long long context, const char *strategy)
{
    return fit_of("{'model': {'name': '%s'}, 'workload': {'mode': 'inference', 'phase': '%s', 'batch_size': %lld, "
                  "'context_length': %lld, 'dtype': 'bfloat16'}, 'strategy': {%s}, 'memory_bytes': 85899345920}",
                  model, phase, batch, context, strategy);
}
START_TEST(test_capacity_serving__the_cache_is_sized_by_head_dim)
{
    /* 32 heads of 128 are wider than the hidden size of 2560. */
    json_t *answer = serve("qwen3-4b", "decode", 4, 1000, "'tensor_parallel': 4");
    ck_assert_int_eq(number_at(answer, "/stages/0/components/kv_cache"), INT64_C(4) * 1008 * 36 * 2 * 2 * 128 * 2);
    /* More ranks than heads: each head is held by several. */
    json_t *replicated = serve("qwen3-4b", "decode", 4, 1000, "'tensor_parallel': 16");
    ck_assert_int_eq(number_at(replicated, "/stages/0/components/kv_cache"), INT64_C(4) * 1008 * 36 * 2 * 1 * 128 * 2);
}
END_TEST

static const struct {
    const char *model;
    json_int_t global_layers, sliding_layers, window, elements; /* of one layer and token */
} sliding[] = {{"gemma-2-9b", 21, 21, 4096, 2 * 8 * 256}, {"gpt-oss-120b", 18, 18, 128, 2 * 8 * 64}};

START_TEST(test_capacity_serving__sliding_layers_cap_their_cache)
{
    static const char request[] =
        "{'model': {'name': '%s'}, 'workload': {'mode': 'inference', 'phase': 'prefill', 'batch_size': 2, "
        "'context_length': 131072, 'dtype': 'bfloat16', 'prefill_chunk': 2048}, 'strategy': {'tensor_parallel': 1}, "
        "'memory_bytes': 85899345920, 'conventions': {'window_kv': '%s'}}";
    json_int_t elements = sliding[_i].elements, window = sliding[_i].window;
    json_int_t capped = (window - 1 + 2048 + 15) / 16 * 16 + 16;
    json_t *answer = fit_of(request, sliding[_i].model, "capped"), *whole = fit_of(request, sliding[_i].model, "full");
    ck_assert_int_eq(number_at(answer, "/stages/0/components/kv_cache"),
                     2 * 2 * elements * (sliding[_i].global_layers * 131072 + sliding[_i].sliding_layers * capped));
    ck_assert_int_eq(number_at(whole, "/stages/0/components/kv_cache"),
                     2 * 2 * elements * (sliding[_i].global_layers + sliding[_i].sliding_layers) * 131072);
    ck_assert_int_eq(number_at(answer, "/kv_bytes_per_token"), number_at(whole, "/kv_bytes_per_token"));
}
END_TEST

START_TEST(test_capacity_serving__decode_sees_a_window_where_there_is_one)
{
    json_t *near = serve("gpt-oss-120b", "decode", 1, 128, "'tensor_parallel': 1");
    json_t *far = serve("gpt-oss-120b", "decode", 1, 100128, "'tensor_parallel': 1");
    /* Scores and context of 18 global layers alone: 4 h d a context token. */
    ck_decimal_eq(decimal_at(far, "/operations/per_step/model") - decimal_at(near, "/operations/per_step/model"),
                  (bp_u128)18 * 4 * 64 * 64 * 100000);
}
END_TEST

/* A mask hides tokens from a prefill; their scores are there. */
START_TEST(test_capacity_serving__scores_of_a_prefill_are_of_all_tokens)
{
    static const char request[] =
        "{'model': {'transformer': {'name': 'w', 'hidden_size': 64, 'num_hidden_layers': 1, 'num_attention_heads': 8, "
        "'intermediate_size': 64, 'vocab_size': 100, 'activation': 'gelu', 'norm': 'rmsnorm', 'position': 'rope', "
        "'sliding_window': 512}}, 'workload': {'mode': 'inference', 'phase': '%s', 'batch_size': 1, 'context_length': "
        "2048, 'dtype': 'bfloat16', 'prefill_chunk': 256}, 'strategy': {}, 'memory_bytes': 85899345920, "
        "'conventions': {'attention_kernel': 'unfused'}}";
    json_t *prefill = fit_of(request, "prefill"), *decode = fit_of(request, "decode");
    ck_assert_int_eq(number_at(prefill, "/stages/0/components/workspace"), 2 * 256 * (64 + 8 * 2048));
    ck_assert_int_eq(number_at(decode, "/stages/0/components/workspace"), 2 * (64 + 8 * 512));
}
END_TEST

/* Three tokens on four ranks are six pairs: some rank has two. */
START_TEST(test_capacity_serving__pairs_of_experts_are_whole)
{
    json_t *answer = serve("mixtral-8x7b", "decode", 3, 16,
                           "'tensor_parallel': 4, 'expert_parallel': 4, 'expert_tensor_parallel': 1");
    ck_assert_int_eq(number_at(answer, "/stages/0/components/workspace"), 2 * (3 * 4096 + 2 * 2 * 14336));
}
END_TEST

/* A step of 8 tokens: how often its 8 * H * 2 bytes go once around the tensor group in all layers (an all-reduce is
 * twice), and what the ranks of the experts send. */
static const struct {
    const char *model, *strategy;
    json_int_t hidden, ranks, rounds, expert;
} sent[] = {
    {"llama-3.1-8b", "'tensor_parallel': 4", 4096, 4, 32 * 4, 0},
    {"llama-3.1-8b", "'tensor_parallel': 1", 4096, 1, 0, 0},
    /* Attention and MLP side by side are summed together. */
    {"pythia-6.9b", "'tensor_parallel': 4", 4096, 4, 32 * 2, 0},
    {"mixtral-8x7b", "'tensor_parallel': 4", 4096, 4, 32 * 4, 0},
    /* Four pairs a rank to another and back; the eight of both are gathered and their sums scattered. */
    {"mixtral-8x7b", "'tensor_parallel': 4, 'expert_parallel': 2, 'expert_tensor_parallel': 2", 4096, 4, 32 * 3,
     32 * 2 * (4 + 8) * 4096 * 2 / 2},
    /* Three layers are dense; shared experts are summed too. */
    {"deepseek-v3", "'tensor_parallel': 8, 'expert_parallel': 8, 'expert_tensor_parallel': 1", 7168, 8, 3 * 4 + 58 * 5,
     58 * 2 * 8 * 7168 * 2 / 8 * 7},
};

START_TEST(test_capacity_serving__bytes_on_the_wire_are_those_of_the_blocks_collectives)
{
    json_t *answer = serve(sent[_i].model, "decode", 8, 16, sent[_i].strategy);
    json_int_t n = sent[_i].ranks, M = 8 * sent[_i].hidden * 2;
    ck_assert_int_eq(number_at(answer, "/wire_bytes/tensor"), sent[_i].rounds * M * (n - 1) / n);
    ck_assert_int_eq(number_at(answer, "/wire_bytes/expert"), sent[_i].expert);
}
END_TEST

START_TEST(test_capacity_serving__latents_are_cached_on_every_rank)
{
    json_t *one = serve("deepseek-v3", "decode", 8, 4096, "'tensor_parallel': 1");
    json_t *eight = serve("deepseek-v3", "decode", 8, 4096, "'tensor_parallel': 8");
    ck_assert_int_eq(number_at(one, "/stages/0/components/kv_cache"), INT64_C(8) * 4096 * 70272);
    ck_assert_int_eq(number_at(eight, "/stages/0/components/kv_cache"), INT64_C(8) * 4096 * 70272);
    ck_assert_str_eq(json_string_value(value_at(one, "/assumptions/1")), "latent_absorbed");
}
END_TEST

START_TEST(test_capacity_serving__float8_is_of_block_linears_and_their_scales)
{
    static const char request[] =
        "{'model': {'name': 'llama-3.1-8b'}, 'workload': {'mode': 'inference', 'phase': 'decode', 'batch_size': 1, "
        "'context_length': 16, 'dtype': 'float8', 'kv_cache_dtype': '%s'}, 'strategy': {'tensor_parallel': 1}, "
        "'memory_bytes': 85899345920}";
    json_t *answer = fit_of(request, "bfloat16"), *narrow = fit_of(request, "float8");
    json_int_t H = 4096, F = 14336, V = 128256, linears = 32 * (2 * H * H + 2 * H * 1024 + 3 * H * F);
    json_int_t scales = linears / (128 * 128) * 4, norms = (2 * 32 + 1) * H;
    ck_assert_int_eq(number_at(answer, "/stages/0/components/weights"), linears + scales + 2 * (2 * V * H + norms));
    ck_assert_int_eq(number_at(answer, "/stages/0/components/kv_cache"), 16 * 131072);
    ck_assert_int_eq(number_at(narrow, "/stages/0/components/kv_cache"), 16 * 131072 / 2);
    ck_assert_int_eq(number_at(answer, "/stages/0/components/boundary"), H * 2);
}
END_TEST

static json_t *stored(const char *model, const char *dtype, const char *strategy)
{
    return fit_of("{'model': %s, 'workload': {'mode': 'inference', 'phase': 'decode', 'batch_size': 8, "
                  "'context_length': 16, 'dtype': '%s'}, 'strategy': {%s}, 'memory_bytes': 85899345920}",
                  model, dtype, strategy);
}

static bool ignores_storage(json_t *answer)
{
    json_t *ignored = value_at(answer, "/ignored"), *pointer;
    size_t i;
    bool found = false;
    json_array_foreach(ignored, i, pointer)
        found |= strcmp(json_string_value(pointer), "/quantization_config") == 0;
    return found;
}

/* gpt-oss-120b: H = F_e = 2880, 128 experts, 36 layers, V 201088, 64 heads of 64, 8 of keys. An expert's gate and up
 * are 2880*2880 each and so is down: 4 bits an element and 8 bits for each 32 inputs of an output, 4147200 + 259200
 * bytes, and a bias of 2 bytes an output. 128 * 3 * (4406400 + 5760) = 1694269440 bytes of experts a layer. At two
 * bytes an element the rest of the layer: attention 2*(2880*5120 + 5120 + 4096*2880 + 2880 + 64) = 53100288, router
 * 2*(2880*128 + 128) = 737536, norms 11520; and the ends 2*(2*201088*2880 + 2880). */
START_TEST(test_capacity_serving__mxfp4_experts_are_held_as_they_are_stored)
{
    const json_int_t experts = 1694269440, rest = 53100288 + 737536 + 11520, ends = 2 * (2 * 201088LL * 2880 + 2880);
    json_t *answer = stored("{'name': 'gpt-oss-120b'}", "bfloat16", "");
    ck_assert_int_eq(number_at(answer, "/stages/0/components/weights"), 36 * (experts + rest) + ends);
    ck_assert_int_eq(number_at(answer, "/stages/0/components/weights"), 65248815744);
    ck_assert_str_eq(json_string_value(value_at(answer, "/conventions/weights")), "mxfp4");
    ck_assert(!ignores_storage(answer));
    /* It fits one device of 80 GiB so, and two at two bytes. */
    ck_assert_int_eq(number_at(answer, "/fewest_devices"), 1);
    json_t *wide = stored("{'name': 'gpt-oss-120b'}", "float16", "");
    ck_assert_int_eq(number_at(wide, "/stages/0/components/weights"), 2 * 116829156672);
    ck_assert_str_eq(json_string_value(value_at(wide, "/conventions/weights")), "float16");
    ck_assert(ignores_storage(wide));
    ck_assert_int_gt(number_at(wide, "/fewest_devices"), 2);
    /* Eight ways an expert is 360 wide: the outputs of gate and up divide, the blocks of down's inputs round up, 12 for
     * 11.25. 16 experts of a rank: 16 * (2 * (2880*360/2 + 360*90 + 2*360) + (360*2880/2 + 2880*12 + 2*2880)). */
    json_t *divided = stored("{'name': 'gpt-oss-120b'}", "bfloat16",
                             "'tensor_parallel': 8, 'replicas': 8, 'expert_parallel': 8, 'expert_tensor_parallel': 8");
    json_int_t share = 16 * (2 * (518400 + 32400 + 720) + (518400 + 34560 + 5760));
    json_int_t attention = 2 * (2880 * 640 + 640 + 512 * 2880 + 2880 + 8);
    ck_assert_int_eq(number_at(divided, "/stages/0/components/weights"),
                     36 * (share + attention + 737536 + 11520) + 2 * (2 * 25136LL * 2880 + 2880));
}
END_TEST

/* DeepSeek-V3: every linear of a block but the router at one byte, and four for each 128 by 128 of it. Attention: 7168
 * by 1536, 1536 by 24576, 7168 by 576 (five blocks of outputs), 512 by 32768, 16384 by 7168: 187105280 + 4*11448 bytes.
 * Dense MLP 3*7168*18432 + 4*3*56*144, an expert 3*7168*2048 + 4*3*56*16. At two bytes norms 2*(2*7168 + 1536 + 512),
 * router 2*(7168*256 + 256) and the ends. Scales are the 41540496 that the checkpoint's listing has beside the elements
 * less the 702264 of the layer that predicts the next token but one. */
START_TEST(test_capacity_serving__fp8_linears_are_held_with_the_scales_of_their_blocks)
{
    const json_int_t attention = 187105280 + 4 * 11448, norms = 2 * (2 * 7168 + 1536 + 512);
    const json_int_t dense = 3 * 7168 * 18432 + 4 * 3 * 56 * 144, expert = 3 * 7168 * 2048 + 4 * 3 * 56 * 16;
    const json_int_t router = 2 * (7168 * 256 + 256), ends = 2 * (2 * 129280LL * 7168 + 7168);
    const json_int_t whole = 61 * (attention + norms) + 3 * dense + 58 * (257 * expert + router) + ends;
    const json_int_t scales = 61 * 11448 + 3 * 3 * 56 * 144 + 58 * 257 * 3 * 56 * 16;
    ck_assert_int_eq(scales, 41540496 - 702264);
    json_t *answer = stored("{'name': 'deepseek-v3'}", "bfloat16", "");
    ck_assert_int_eq(number_at(answer, "/stages/0/components/weights"), whole);
    ck_assert_int_eq(number_at(answer, "/stages/0/components/weights"), 673150582112);
    ck_assert_str_eq(json_string_value(value_at(answer, "/conventions/weights")), "fp8");
    ck_assert_int_eq(number_at(answer, "/stages/0/components/boundary"), 8 * 7168 * 2);
    json_t *wide = stored("{'name': 'deepseek-v3'}", "float16", "");
    ck_assert_int_eq(number_at(wide, "/stages/0/components/weights"), 2 * 671026419200);
}
END_TEST

#define MIXTRAL(rest)                                                                                                  \
    "{'huggingface': {'model_type': 'mixtral', 'hidden_size': 64, 'num_hidden_layers': 1, 'vocab_size': 10, "          \
    "'num_attention_heads': 8, 'intermediate_size': 100" rest "}}"

/* One scale a tensor; the older spelling; a method whose storage is not known; a checkpoint of another dtype. */
START_TEST(test_capacity_serving__storage_is_the_checkpoints_where_it_is_known)
{
    json_int_t plain = number_at(stored(MIXTRAL(""), "bfloat16", ""), "/stages/0/components/weights");
    json_int_t linears = 4 * 64 * 64 + 8 * 3 * 64 * 100, scales = 4 * (4 + 8 * 3);
    static const char *const whole[] = {MIXTRAL(", 'quantization_config': {'quant_method': 'fp8'}"),
                                        MIXTRAL(", 'compression_config': {'quant_method': 'fp8'}")};
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(number_at(stored(whole[i], "bfloat16", ""), "/stages/0/components/weights"),
                         plain - linears + scales);
    static const char *const unknown[] = {MIXTRAL(", 'quantization_config': {'quant_method': 'gptq', 'bits': 4}"),
                                          MIXTRAL(", 'torch_dtype': 'float16', 'quantization_config': "
                                                  "{'quant_method': 'fp8'}")};
    for (int i = 0; i < 2; i++) {
        json_t *answer = stored(unknown[i], "bfloat16", "");
        ck_assert_int_eq(number_at(answer, "/stages/0/components/weights"), plain);
        ck_assert(ignores_storage(answer));
    }
    ck_assert_int_eq(number_at(stored(unknown[1], "float16", ""), "/stages/0/components/weights"),
                     plain - linears + scales);
}
END_TEST

static json_t *served(long long batch, long long memory, const char *more)
{
    return fit_of(
        "{'model': {'name': 'llama-3.1-8b'}, 'workload': {'mode': 'inference', 'phase': 'decode', "
        "'batch_size': %lld, 'context_length': 8192, 'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 2, "
        "'pipeline_parallel': 2}, 'memory_bytes': %lld %s}",
        batch, memory, more);
}

START_TEST(test_capacity_serving__the_largest_batch_fits_and_one_more_does_not)
{
    const long long memory = INT64_C(24) * 1000000000;
    json_t *answer = served(1, memory, "");
    long long most = number_at(answer, "/max_batch");
    ck_assert_int_gt(most, 1);
    ck_assert(json_is_true(value_at(served(most, memory, ""), "/fits_before_reserve")));
    ck_assert(json_is_false(value_at(served(most + 1, memory, ""), "/fits_before_reserve")));
    /* Cache of whole pages, 16 layers a stage and 4 heads a rank, in what the fuller stage leaves. */
    json_int_t page = 16 * 16 * 2 * 4 * 128 * 2, tokens = number_at(answer, "/kv_tokens_that_fit"), least = 0;
    for (int stage = 0; stage < 2; stage++) {
        json_int_t other =
            number_at(answer, "/stages/%d/total", stage) - number_at(answer, "/stages/%d/components/kv_cache", stage);
        json_int_t here = (memory - other) / page * 16;
        least = stage == 0 || here < least ? here : least;
    }
    ck_assert_int_eq(tokens, least);
}
END_TEST

START_TEST(test_capacity_serving__logits_are_the_last_stage_s_and_of_last_tokens)
{
    json_t *answer = serve("llama-3.1-8b", "prefill", 3, 20000, "'tensor_parallel': 2, 'pipeline_parallel': 2");
    ck_assert_int_eq(number_at(answer, "/stages/0/components/logits"), 0);
    ck_assert_int_eq(number_at(answer, "/stages/1/components/logits"), 4 * 3 * 128256 / 2);
    /* A step takes a chunk of the tokens. */
    ck_assert_int_eq(number_at(answer, "/stages/0/components/boundary"), 8192 * 4096 * 2);
    ck_assert(json_is_null(value_at(answer, "/operations/per_token")));
}
END_TEST

Suite *suite_capacity_serving(void);
Suite *suite_capacity_serving(void)
{
    Suite *suite = suite_create("capacity serving");
    TCase *cache = tcase_create("cache"), *weights = tcase_create("weights"), *batch = tcase_create("batch");
    TCase *const all[] = {cache, weights, batch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tcase_add_checked_fixture(all[i], NULL, capacity_forget);
        suite_add_tcase(suite, all[i]);
    }
    tcase_add_test(cache, test_capacity_serving__the_cache_is_sized_by_head_dim);
    tcase_add_loop_test(cache, test_capacity_serving__sliding_layers_cap_their_cache, 0, 2);
    tcase_add_test(cache, test_capacity_serving__decode_sees_a_window_where_there_is_one);
    tcase_add_test(batch, test_capacity_serving__scores_of_a_prefill_are_of_all_tokens);
    tcase_add_test(batch, test_capacity_serving__pairs_of_experts_are_whole);
    tcase_add_loop_test(batch, test_capacity_serving__bytes_on_the_wire_are_those_of_the_blocks_collectives, 0,
                        (int)(sizeof sent / sizeof *sent));
    tcase_add_test(cache, test_capacity_serving__latents_are_cached_on_every_rank);
    tcase_add_test(weights, test_capacity_serving__mxfp4_experts_are_held_as_they_are_stored);
    tcase_add_test(weights, test_capacity_serving__fp8_linears_are_held_with_the_scales_of_their_blocks);
    tcase_add_test(weights, test_capacity_serving__storage_is_the_checkpoints_where_it_is_known);
    tcase_add_test(weights, test_capacity_serving__float8_is_of_block_linears_and_their_scales);
    tcase_add_test(batch, test_capacity_serving__the_largest_batch_fits_and_one_more_does_not);
    tcase_add_test(batch, test_capacity_serving__logits_are_the_last_stage_s_and_of_last_tokens);
    return suite;
}
