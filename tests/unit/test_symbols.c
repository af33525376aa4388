#include <check.h>

#include "common/request/symbols.h"

static const struct bp_model grouped = {
    .hidden_size = 64,
    .num_hidden_layers = 3,
    .vocab_size = 50,
    .n_kinds = 1,
    .kinds = {{.name = "dense",
               .layers = 3,
               .num_attention_heads = 8,
               .num_key_value_heads = 2,
               .head_dim = 8,
               .intermediate_size = 96,
               .activation = BP_ACTIVATION_SWIGLU}},
};

static struct bp_workload training(void)
{
    return (struct bp_workload){.mode = BP_MODE_TRAINING,
                                .dtype = BP_DTYPE_BFLOAT16,
                                .gradient_dtype = BP_DTYPE_FLOAT32,
                                .sequence_length = 32,
                                .micro_batch_size = 3,
                                .global_batch_size = 30};
}

static struct bp_strategy strategy(uint64_t t)
{
    return (struct bp_strategy){.tensor_parallel = t,
                                .pipeline_parallel = 1,
                                .data_parallel = 5,
                                .virtual_stages = 1,
                                .context_parallel = 1,
                                .expert_parallel = 1,
                                .expert_tensor_parallel = t,
                                .replicas = 1};
}

static struct bp_symbols symbols_of(const struct bp_model *model, const struct bp_workload *workload,
                                    const struct bp_strategy *parallel)
{
    struct bp_symbols symbols;
    ck_assert_int_eq(bp_symbols_of(model, 0, workload, parallel, &symbols, NULL), 0);
    return symbols;
}

START_TEST(test_symbols__of_a_training_request)
{
    struct bp_workload workload = training();
    struct bp_strategy parallel = strategy(4);
    struct bp_symbols got = symbols_of(&grouped, &workload, &parallel);
    ck_assert(got.B == 3 && got.S == 32 && got.H == 64 && got.F == 96 && got.h == 8 && got.k == 2 && got.d == 8);
    ck_assert(got.t == 4 && got.h_l == 2 && got.dp == 5 && got.e == 2 && got.g == 4);
    ck_assert(got.X == 3 * 32 * 64 && got.Xs == got.X);
    ck_assert(got.b == 0 && got.q == 0 && got.c == 0);
    ck_assert(got.gated && !got.heads_are_plain && !got.sequence_parallel && !got.gathers_again);
}
END_TEST

START_TEST(test_symbols__key_value_heads_are_split_or_replicated)
{
    static const struct {
        uint64_t k, t, k_l;
    } rows[] = {{8, 1, 8}, {8, 4, 2}, {8, 8, 1}, {2, 8, 1}, {1, 1, 1}, {4, 4, 1}};
    struct bp_workload workload = training();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bp_model model = grouped;
        struct bp_strategy parallel = strategy(rows[i].t);
        model.kinds[0].num_key_value_heads = rows[i].k;
        ck_assert(symbols_of(&model, &workload, &parallel).k_l == rows[i].k_l);
    }
}
END_TEST

START_TEST(test_symbols__sequence_parallelism_splits_only_with_tensor_parallelism)
{
    struct bp_workload workload = training();
    struct bp_strategy parallel = strategy(4);
    parallel.sequence_parallel = true;
    struct bp_symbols four = symbols_of(&grouped, &workload, &parallel);
    ck_assert(four.sequence_parallel && four.Xs == four.X / 4);
    parallel.tensor_parallel = 1;
    struct bp_symbols one = symbols_of(&grouped, &workload, &parallel);
    ck_assert(!one.sequence_parallel && one.Xs == one.X);
}
END_TEST

START_TEST(test_symbols__the_gather_is_repeated_under_full_or_on_request)
{
    static const struct {
        bool sp, again, expected;
        enum bp_recompute recompute;
    } rows[] = {
        {true, true, true, BP_RECOMPUTE_NONE},    {true, false, false, BP_RECOMPUTE_SELECTIVE},
        {true, false, true, BP_RECOMPUTE_FULL},   {false, true, false, BP_RECOMPUTE_NONE},
        {false, false, false, BP_RECOMPUTE_FULL},
    };
    struct bp_workload workload = training();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bp_strategy parallel = strategy(4);
        parallel.sequence_parallel = rows[i].sp;
        parallel.recompute_all_gather = rows[i].again;
        parallel.recompute = rows[i].recompute;
        ck_assert_int_eq(symbols_of(&grouped, &workload, &parallel).gathers_again, rows[i].expected);
    }
}
END_TEST

START_TEST(test_symbols__of_an_inference_request)
{
    struct bp_workload workload = {.mode = BP_MODE_INFERENCE,
                                   .dtype = BP_DTYPE_FLOAT32,
                                   .phase = BP_PREFILL,
                                   .batch_size = 3,
                                   .context_length = 32};
    struct bp_strategy parallel = strategy(2);
    struct bp_symbols prefill = symbols_of(&grouped, &workload, &parallel);
    ck_assert(prefill.b == 3 && prefill.q == 32 && prefill.c == 32 && prefill.B == 3 && prefill.S == 32);
    ck_assert(prefill.X == 3 * 32 * 64 && prefill.Xs == prefill.X && prefill.e == 4 && prefill.dp == 1);
    workload.phase = BP_DECODE;
    struct bp_symbols decode = symbols_of(&grouped, &workload, &parallel);
    ck_assert(decode.q == 1 && decode.c == 32 && decode.S == 1 && decode.X == 3 * 64);
}
END_TEST

/* A token that is decoded sees its window; what is cached has a type of its own. */
START_TEST(test_symbols__a_window_bounds_what_a_decoded_token_sees)
{
    struct bp_workload workload = {.mode = BP_MODE_INFERENCE,
                                   .dtype = BP_DTYPE_FLOAT32,
                                   .kv_cache_dtype = BP_DTYPE_FLOAT8,
                                   .phase = BP_PREFILL,
                                   .batch_size = 3,
                                   .context_length = 32};
    struct bp_strategy parallel = strategy(2);
    struct bp_model model = grouped;
    model.kinds[0].window = 20;
    struct bp_symbols prefill = symbols_of(&model, &workload, &parallel);
    ck_assert(prefill.c == 32 && prefill.q == 32 && prefill.e_kv == 1);
    workload.phase = BP_DECODE;
    ck_assert(symbols_of(&model, &workload, &parallel).c == 20);
    workload.context_length = 12;
    ck_assert(symbols_of(&model, &workload, &parallel).c == 12);
}
END_TEST

static struct bp_model routed(void)
{
    struct bp_model model = grouped;
    model.kinds[0].num_experts = 8;
    model.kinds[0].experts_per_token = 3;
    model.kinds[0].expert_intermediate_size = 16;
    return model;
}

/* 96 tokens over t = 4 under sequence parallelism; 24 of a rank, 72 pairs of them, etp times as many to compute. */
START_TEST(test_symbols__pairs_of_a_training_rank)
{
    struct bp_workload workload = training();
    struct bp_strategy parallel = strategy(4);
    struct bp_model model = routed();
    parallel.sequence_parallel = true;
    parallel.expert_parallel = 5;
    parallel.expert_tensor_parallel = 2;
    struct bp_symbols got = symbols_of(&model, &workload, &parallel);
    ck_assert(got.own_tokens == 24 && got.own_pairs == 72 && got.pairs == 144 && got.expert_dp == 2 && got.cp == 1);
    parallel.context_parallel = 2;
    got = symbols_of(&model, &workload, &parallel);
    ck_assert(got.S == 16 && got.S_c == 32 && got.cp == 2 && got.dp == 10);
    ck_assert(got.own_tokens == 12 && got.own_pairs == 36 && got.pairs == 72 && got.expert_dp == 4);
}
END_TEST

START_TEST(test_symbols__pairs_of_a_step_of_inference)
{
    struct bp_workload workload = {.mode = BP_MODE_INFERENCE,
                                   .dtype = BP_DTYPE_BFLOAT16,
                                   .phase = BP_DECODE,
                                   .batch_size = 8,
                                   .context_length = 32};
    struct bp_strategy parallel = strategy(4);
    struct bp_model model = routed();
    struct bp_symbols got = symbols_of(&model, &workload, &parallel);
    ck_assert(got.routes_all && got.own_tokens == 8 && got.own_pairs == 24 && got.pairs == 24);
    parallel.expert_parallel = 2;
    parallel.expert_tensor_parallel = 2;
    got = symbols_of(&model, &workload, &parallel);
    ck_assert(!got.routes_all && got.own_tokens == 2 && got.own_pairs == 6 && got.pairs == 12);
    workload.batch_size = 6; /* does not divide */
    got = symbols_of(&model, &workload, &parallel);
    ck_assert(got.own_tokens == 0 && got.own_pairs == 0 && got.pairs == 0);
}
END_TEST

START_TEST(test_symbols__plain_heads_share_nothing_and_fill_the_width)
{
    struct bp_workload workload = training();
    struct bp_strategy parallel = strategy(1);
    struct bp_model model = grouped;
    model.kinds[0].num_key_value_heads = 8;
    ck_assert(symbols_of(&model, &workload, &parallel).heads_are_plain);
    model.kinds[0].head_dim = 16;
    ck_assert(!symbols_of(&model, &workload, &parallel).heads_are_plain);
}
END_TEST

START_TEST(test_symbols__too_many_elements_are_an_overflow)
{
    struct bp_workload workload = training();
    struct bp_strategy parallel = strategy(1);
    struct bp_model model = grouped;
    struct bp_symbols symbols = {.B = 77};
    struct bp_err err = {0};
    workload.sequence_length = workload.micro_batch_size = model.hidden_size = BP_JSON_INT_MAX;
    ck_assert_int_eq(bp_symbols_of(&model, 0, &workload, &parallel, &symbols, &err), -1);
    ck_assert_int_eq(err.code, BP_E_quantity_overflow);
    ck_assert(symbols.B == 77);
}
END_TEST

Suite *suite_symbols(void)
{
    Suite *suite = suite_create("symbols");
    TCase *tcase = tcase_create("symbols");
    tcase_add_test(tcase, test_symbols__of_a_training_request);
    tcase_add_test(tcase, test_symbols__key_value_heads_are_split_or_replicated);
    tcase_add_test(tcase, test_symbols__sequence_parallelism_splits_only_with_tensor_parallelism);
    tcase_add_test(tcase, test_symbols__the_gather_is_repeated_under_full_or_on_request);
    tcase_add_test(tcase, test_symbols__of_an_inference_request);
    tcase_add_test(tcase, test_symbols__a_window_bounds_what_a_decoded_token_sees);
    tcase_add_test(tcase, test_symbols__pairs_of_a_training_rank);
    tcase_add_test(tcase, test_symbols__pairs_of_a_step_of_inference);
    tcase_add_test(tcase, test_symbols__plain_heads_share_nothing_and_fill_the_width);
    tcase_add_test(tcase, test_symbols__too_many_elements_are_an_overflow);
    suite_add_tcase(suite, tcase);
    return suite;
}
