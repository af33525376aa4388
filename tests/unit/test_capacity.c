/* The capacity view of training, held to what is published. */
#include <check.h>
#include <stdio.h>

#include "tests/unit/capacity_fixture.h"

#define GIB (UINT64_C(1) << 30)

/* ---- Korthikanti et al., Figure 1 ---- */

struct paper_row {
    const char *name;
    uint64_t H, h, L, t, p, micro, v, batch;
    double state, none, both;                 /* GiB */
    double only_sp, only_selective, sp, full; /* percent of none */
};
static const struct paper_row paper[] = {
    {"22B", 6144, 64, 48, 8, 1, 4, 1, 4, 45.5625, 59.25, 9.5625, 66.84, 49.42, 16.18, 7.64},
    {"175B", 12288, 96, 96, 8, 8, 1, 3, 64, 45.5625, 66.84375, 12.3515625, 62.04, 56.53, 18.49, 8.71},
    {"530B", 20480, 128, 105, 8, 35, 1, 3, 280, 31.640625, 114.0234375, 23.076171875, 58.31, 62.04, 20.27, 9.42},
    {"1T", 25600, 160, 128, 8, 64, 1, 1, 512, 32.958984375, 131.25, 26.5625, 58.31, 62.04, 20.27, 9.42},
};
enum { N_PAPER = sizeof paper / sizeof *paper };

static json_t *paper_fit(const struct paper_row *row, const char *strategy)
{
    return fit_of(
        "{'model': {'transformer': {'name': 'gpt', 'hidden_size': %llu, 'num_hidden_layers': %llu, "
        "'num_attention_heads': %llu, 'intermediate_size': %llu, 'vocab_size': 51200, 'activation': 'gelu', "
        "'norm': 'layernorm', 'position': 'learned', 'max_position_embeddings': 2048, 'hidden_dropout': true, "
        "'attention_dropout': true, 'embedding_dropout': true, 'tie_word_embeddings': true}}, "
        "'workload': {'mode': 'training', 'sequence_length': 2048, 'micro_batch_size': %llu, "
        "'global_batch_size': %llu, 'dtype': 'float16'}, "
        "'strategy': {'tensor_parallel': %llu, 'pipeline_parallel': %llu, 'virtual_stages': %llu, "
        "'pipeline_schedule': '%s', %s}, "
        "'memory_bytes': 85899345920, 'conventions': {'attention_kernel': 'unfused'}}",
        (unsigned long long)row->H, (unsigned long long)row->L, (unsigned long long)row->h,
        (unsigned long long)(4 * row->H), (unsigned long long)row->micro, (unsigned long long)row->batch,
        (unsigned long long)row->t, (unsigned long long)row->p, (unsigned long long)row->v,
        row->v > 1   ? "interleaved"
        : row->p > 1 ? "1f1b"
                     : "none",
        strategy);
}

static const char none[] = "'recompute': 'none'", sp[] = "'sequence_parallel': true",
                  selective[] = "'recompute': 'selective'",
                  both[] = "'recompute': 'selective', 'sequence_parallel': true", full[] = "'recompute': 'full'";

static void ck_gib(json_int_t bytes, double expected)
{
    ck_assert_int_eq(bytes, (json_int_t)(expected * (double)GIB)); /* the papers' figures are exact in binary */
}

START_TEST(test_capacity__figure_1_bit_for_bit)
{
    const struct paper_row *row = &paper[_i];
    json_t *plain = paper_fit(row, none), *less = paper_fit(row, both);
    json_int_t layers = (json_int_t)(row->L / row->p), norms = 18 * 4 * (json_int_t)row->H * layers;
    const char *const state[] = {"weights", "gradients", "optimizer"};
    json_int_t sum = 0;
    for (size_t i = 0; i < 3; i++)
        sum += number_at(plain, "/stages/0/blocks_only/%s", state[i]);
    ck_gib(sum - norms, row->state);
    ck_gib(number_at(plain, "/stages/0/components/stored_activations"), row->none);
    ck_gib(number_at(less, "/stages/0/components/stored_activations"), row->both);
}
END_TEST

static void ck_percent(json_t *part, const char *component, json_t *whole, double expected)
{
    double share = 100.0 * (double)number_at(part, "/stages/0/components/%s", component) /
                   (double)number_at(whole, "/stages/0/components/stored_activations");
    ck_assert_double_eq_tol(share, expected, 0.15);
}

START_TEST(test_capacity__figure_7_within_0_15_points)
{
    const struct paper_row *row = &paper[_i];
    json_t *whole = paper_fit(row, none);
    ck_percent(paper_fit(row, sp), "stored_activations", whole, row->only_sp);
    ck_percent(paper_fit(row, selective), "stored_activations", whole, row->only_selective);
    ck_percent(paper_fit(row, both), "stored_activations", whole, row->sp);
    ck_percent(paper_fit(row, full), "activation_checkpoints", whole, row->full);
}
END_TEST

/* ---- Rajbhandari et al., Table 1: a model of exactly 7.5e9 parameters whose rows 64 divides ---- */

static const struct {
    int stage;
    json_int_t bytes;
} zero[] = {{0, 120000000000}, {1, 31406250000}, {2, 16640625000}, {3, 1875000000}};

START_TEST(test_capacity__zero_holds_what_its_table_says)
{
    json_t *answer =
        fit_of("{'model': {'transformer': {'name': 'gpt', 'hidden_size': 3840, 'num_hidden_layers': 42, "
               "'num_attention_heads': 30, 'intermediate_size': 15360, 'vocab_size': 17680, "
               "'activation': 'gelu', 'norm': 'rmsnorm', 'position': 'none', 'tie_word_embeddings': true}}, "
               "'workload': {'mode': 'training', 'sequence_length': 1024, 'micro_batch_size': 1, "
               "'global_batch_size': 64, 'dtype': 'float16', 'gradient_dtype': 'float16'}, "
               "'strategy': {'data_parallel': 64, 'zero_stage': %d}, 'memory_bytes': 32000000000}",
               zero[_i].stage);
    ck_decimal_eq(decimal_at(answer, "/parameters/total"), 7500000000);
    ck_assert_int_eq(number_at(answer, "/stages/0/components/weights") +
                         number_at(answer, "/stages/0/components/gradients") +
                         number_at(answer, "/stages/0/components/optimizer"),
                     zero[_i].bytes);
}
END_TEST

/* ---- Operations ---- */

static json_t *narayanan(const char *recompute)
{
    return fit_of("{'model': {'transformer': {'name': 'gpt', 'hidden_size': 12288, 'num_hidden_layers': 80, "
                  "'num_attention_heads': 96, 'intermediate_size': 49152, 'vocab_size': 51200, 'activation': 'gelu', "
                  "'norm': 'layernorm', 'position': 'learned', 'max_position_embeddings': 2048, 'bias': true, "
                  "'tie_word_embeddings': true}}, "
                  "'workload': {'mode': 'training', 'sequence_length': 2048, 'micro_batch_size': 1, "
                  "'global_batch_size': 2304, 'dtype': 'float16'}, "
                  "'strategy': {'tensor_parallel': 8, 'pipeline_parallel': 8, 'data_parallel': 24, 'recompute': '%s'}, "
                  "'memory_bytes': 85899345920}",
                  recompute);
}

START_TEST(test_capacity__narayanans_hardware_and_model_operations)
{
    json_t *answer = narayanan("full"), *kept = narayanan("none");
    ck_decimal_eq(decimal_at(answer, "/parameters/total"), (bp_u128)145622237184 + 24576);
    ck_decimal_eq(decimal_at(answer, "/operations/per_step/hardware"), 5641682123048878080);
    ck_decimal_eq(decimal_at(answer, "/operations/per_step/model"), 4235714614379151360);
    ck_decimal_eq(decimal_at(kept, "/operations/per_step/hardware"), 4235714614379151360);
    ck_decimal_eq(decimal_at(answer, "/operations/per_token/model"), 4235714614379151360 / (2304 * 2048));
}
END_TEST

/* 24BSH^2 + 4BS^2H a layer and forward pass, of which full recomputation does four, and 6BSHV for the head. */
START_TEST(test_capacity__operations_past_64_bits_are_exact)
{
    struct paper_row row = paper[N_PAPER - 1];
    row.batch = 3072;
    json_t *answer = paper_fit(&row, full);
    bp_u128 B = 3072, S = 2048, H = row.H, layer = 24 * B * S * H * H + 4 * B * S * S * H;
    bp_u128 hardware = 4 * row.L * layer + 6 * B * S * H * 51200;
    ck_assert(hardware >> 64 > 0);
    ck_decimal_eq(decimal_at(answer, "/operations/per_step/hardware"), hardware);
    ck_decimal_eq(decimal_at(answer, "/operations/per_step/model"), hardware - row.L * layer);
}
END_TEST

START_TEST(test_capacity__causal_attention_halves_scores_and_nothing_else)
{
    static const char request[] =
        "{'model': {'name': 'llama-3.1-8b'}, 'workload': {'mode': 'training', 'sequence_length': 8192, "
        "'micro_batch_size': 1, 'global_batch_size': 8, 'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 4, "
        "'data_parallel': 2}, 'memory_bytes': 85899345920, 'conventions': {'attention': '%s'}}";
    json_t *whole = fit_of(request, "full"), *halved = fit_of(request, "causal");
    /* 4BS^2H a layer and forward pass, three times. */
    bp_u128 scores = (bp_u128)3 * 32 * 4 * 8 * 8192 * 8192 * 4096;
    const char *const counts[] = {"/operations/per_step/hardware", "/operations/per_step/model"};
    for (size_t i = 0; i < 2; i++)
        ck_decimal_eq(decimal_at(whole, counts[i]) - decimal_at(halved, counts[i]), scores / 2);
    ck_assert_int_eq(number_at(whole, "/total"), number_at(halved, "/total"));
}
END_TEST

/* ---- Ends of the model ---- */

static json_t *small(const char *model, const char *workload, const char *strategy)
{
    return fit_of("{'model': {'transformer': {'name': 's', 'hidden_size': 64, 'num_hidden_layers': 8, "
                  "'num_attention_heads': 8, 'intermediate_size': 256, 'vocab_size': 1000, 'activation': 'gelu', "
                  "'norm': 'layernorm', 'position': 'rope', %s}}, "
                  "'workload': {'mode': 'training', 'sequence_length': 32, 'micro_batch_size': 1, "
                  "'global_batch_size': 16, 'dtype': 'bfloat16' %s}, 'strategy': {%s}, 'memory_bytes': 1000000000}",
                  model, workload, strategy);
}

START_TEST(test_capacity__a_tied_embedding_counts_once_and_its_head_is_still_computed)
{
    static const char tied[] = "'tie_word_embeddings': true", untied[] = "'tie_word_embeddings': false";
    json_t *one = small(tied, "", "'data_parallel': 2"), *two = small(untied, "", "'data_parallel': 2");
    json_int_t table = 1000 * 64 * 2;
    ck_assert_int_eq(number_at(two, "/stages/0/components/weights") - number_at(one, "/stages/0/components/weights"),
                     table);
    ck_decimal_eq(decimal_at(one, "/operations/per_step/hardware"), decimal_at(two, "/operations/per_step/hardware"));
    ck_decimal_eq(decimal_at(two, "/parameters/total") - decimal_at(one, "/parameters/total"), 1000 * 64);
    /* With a pipeline the last stage has a copy, whose gradient is summed with the first's. */
    json_t *piped = small(tied, "", "'pipeline_parallel': 2, 'data_parallel': 2");
    json_t *apart = small(untied, "", "'pipeline_parallel': 2, 'data_parallel': 2");
    for (int stage = 0; stage < 2; stage++)
        ck_assert_int_eq(number_at(piped, "/stages/%d/components/weights", stage),
                         number_at(apart, "/stages/%d/components/weights", stage));
    ck_assert_int_eq(number_at(piped, "/wire_bytes/data") - number_at(apart, "/wire_bytes/data"), 1000 * 64 * 4);
}
END_TEST

START_TEST(test_capacity__the_vocabulary_is_padded_and_divided)
{
    json_t *padded = small("'tie_word_embeddings': true", "", "'tensor_parallel': 8, 'vocab_multiple': 1024");
    json_t *plain = small("'tie_word_embeddings': true", "", "'tensor_parallel': 8");
    ck_assert_int_eq(number_at(padded, "/stages/0/components/weights") -
                         number_at(plain, "/stages/0/components/weights"),
                     (1024 - 1000) / 8 * 64 * 2);
    ck_decimal_eq(decimal_at(padded, "/operations/per_step/hardware") -
                      decimal_at(plain, "/operations/per_step/hardware"),
                  (bp_u128)6 * 16 * 32 * 64 * 24);
    ck_decimal_eq(decimal_at(padded, "/operations/per_step/model"), decimal_at(plain, "/operations/per_step/model"));
    ck_decimal_eq(decimal_at(padded, "/parameters/total"), decimal_at(plain, "/parameters/total"));
}
END_TEST

START_TEST(test_capacity__the_loss_holds_an_fp32_copy_of_the_logits_unless_told)
{
    json_t *copied = small("'bias': false", "", "'data_parallel': 2");
    /* Inputs of the final norm and of the head, logits, and the copy. */
    json_int_t logits = 32 * 1000;
    ck_assert_int_eq(number_at(copied, "/stages/0/components/head_activations"),
                     2 * 32 * 64 * 2 + logits * 2 + logits * 4);
    ck_assert_int_eq(number_at(copied, "/stages/0/components/embedding_activations"), 0);
    json_t *dropped = small("'embedding_dropout': true", "", "'pipeline_parallel': 4");
    ck_assert_int_eq(number_at(dropped, "/stages/0/components/embedding_activations"), 4 * 32 * 64);
    ck_assert_int_eq(number_at(dropped, "/stages/1/components/embedding_activations"), 0);
}
END_TEST

/* ---- In flight ---- */

static const struct {
    const char *strategy;
    json_int_t in_flight[4];
} schedules[] = {
    {"'pipeline_schedule': '1f1b'", {4, 3, 2, 1}},
    {"'pipeline_schedule': 'gpipe'", {16, 16, 16, 16}},
    {"'pipeline_schedule': 'interleaved', 'virtual_stages': 2", {11, 9, 7, 5}},
};

START_TEST(test_capacity__in_flight_follows_the_schedule)
{
    char strategy[256];
    snprintf(strategy, sizeof strategy, "'pipeline_parallel': 4, %s", schedules[_i].strategy);
    json_t *answer = small("'bias': false", "", strategy);
    json_t *whole = small("'bias': false", "", "'data_parallel': 1");
    json_int_t block = number_at(whole, "/stages/0/components/stored_activations") / 8;
    json_int_t blocks_a_pass = _i == 2 ? 1 : 2;
    for (int stage = 0; stage < 4; stage++) {
        json_int_t in_flight = schedules[_i].in_flight[stage];
        ck_assert_int_eq(number_at(answer, "/stages/%d/in_flight", stage), in_flight);
        ck_assert_int_eq(number_at(answer, "/stages/%d/components/stored_activations", stage),
                         in_flight * blocks_a_pass * block);
    }
    ck_assert_int_eq(number_at(answer, "/binding_stage"), _i == 1 ? 3 : 0);
}
END_TEST

/* Chunks that hold different numbers of blocks, pass by pass: p forward passes of a chunk, then of the next; after the
 * warm-up a backward pass, chunks in the reverse order, before each further forward one. */
static json_int_t most_blocks(const int *runs, int p, int v, int stage, int m)
{
    int all = m * v, window = 2 * (p - stage - 1) + (v - 1) * p + 1, n = window < all ? window : all;
    int held = 0, most = 0;
    for (int pass = 0; pass < all; pass++) {
        if (pass >= n)
            held -= runs[(v - 1 - (pass - n) / p % v) * p + stage];
        held += runs[pass / p % v * p + stage];
        most = held > most ? held : most;
    }
    return most;
}

START_TEST(test_capacity__unlike_chunks_are_held_as_they_come)
{
    static const int deals[][8] = {
        {1, 2, 3, 2}, {3, 1, 1, 3}, {2, 2, 1, 3}, {1, 1, 1, 1, 1, 1, 1, 1}, {0, 1, 3, 1, 1, 0, 1, 1}};
    static const int stages[] = {2, 2, 2, 4, 2};
    const int *runs = deals[_i];
    int p = stages[_i], v = _i < 3 ? 2 : 8 / p;
    char strategy[256];
    int n = snprintf(strategy, sizeof strategy,
                     "'pipeline_parallel': %d, 'virtual_stages': %d, 'pipeline_schedule': "
                     "'interleaved', 'pipeline_layers': [",
                     p, v);
    for (int i = 0; i < p * v; i++)
        n += snprintf(strategy + n, sizeof strategy - (size_t)n, "%s%d", i ? ", " : "", runs[i]);
    snprintf(strategy + n, sizeof strategy - (size_t)n, "]");
    json_t *answer = small("'bias': false", "", strategy), *whole = small("'bias': false", "", "'data_parallel': 1");
    json_int_t block = number_at(whole, "/stages/0/components/stored_activations") / 8;
    for (int stage = 0; stage < p; stage++)
        ck_assert_int_eq(number_at(answer, "/stages/%d/components/stored_activations", stage),
                         most_blocks(runs, p, v, stage, 16) * block);
}
END_TEST

START_TEST(test_capacity__one_micro_batch_is_held_without_a_pipeline)
{
    ck_assert_int_eq(number_at(small("'bias': false", "", "'data_parallel': 1"), "/stages/0/in_flight"), 1);
}
END_TEST

/* ---- Kernels and optimizers ---- */

START_TEST(test_capacity__a_tiled_kernel_keeps_no_square_but_its_sums)
{
    static const char request[] =
        "{'model': {'name': 'llama-3.1-8b'}, 'workload': {'mode': 'training', 'sequence_length': 8192, "
        "'micro_batch_size': 1, 'global_batch_size': 8, 'dtype': 'bfloat16'}, 'strategy': {'data_parallel': 8}, "
        "'memory_bytes': 85899345920, 'conventions': {'attention_kernel': '%s'}}";
    json_t *tiled = fit_of(request, "tiled"), *unfused = fit_of(request, "unfused");
    /* Without dropout the softmax's output alone is kept of the squares; instead, fp32 sums of 32 heads. */
    json_int_t squares = INT64_C(32) * 8192 * 8192 * 2, sums = INT64_C(4) * 32 * 8192;
    ck_assert_int_eq(number_at(unfused, "/stages/0/components/stored_activations") -
                         number_at(tiled, "/stages/0/components/stored_activations"),
                     32 * (squares - sums));
}
END_TEST

static const struct {
    const char *name;
    json_int_t bytes; /* of state beside the master copy, for an 8192 x 8192 matrix of its own */
} optimizers[] = {{"adam", INT64_C(8) << 26},
                  {"adamw", INT64_C(8) << 26},
                  {"sgd", 0},
                  {"sgd-momentum", INT64_C(4) << 26},
                  {"adam-8bit", (INT64_C(2) << 26) + 8 * (INT64_C(1) << 26) / 2048},
                  {"adafactor", 4 * (8192 + 8192)}};

/* Two models that differ by the matrices of one layer: query and output are 8192 x 8192, key and value too. */
START_TEST(test_capacity__optimizers_hold_what_they_are_known_for)
{
    static const char request[] =
        "{'model': {'transformer': {'name': 'o', 'hidden_size': 8192, 'num_hidden_layers': %d, "
        "'num_attention_heads': 64, 'intermediate_size': 8192, 'vocab_size': 8, 'activation': 'gelu', "
        "'norm': 'rmsnorm', 'position': 'none'}}, 'workload': {'mode': 'training', 'sequence_length': 8, "
        "'micro_batch_size': 1, 'global_batch_size': 1, 'dtype': 'bfloat16'}, 'strategy': {'optimizer': '%s'}, "
        "'memory_bytes': 85899345920}";
    json_int_t one = number_at(fit_of(request, 1, optimizers[_i].name), "/stages/0/components/optimizer");
    json_int_t two = number_at(fit_of(request, 2, optimizers[_i].name), "/stages/0/components/optimizer");
    const bool factored = _i == 5, plain8 = _i == 4;
    json_int_t norms = 2 * (factored ? 4 * 8192 : plain8 ? 2 * 8192 + 8 * 4 : optimizers[_i].bytes >> 26 << 13);
    json_int_t master = 4 * (6 * (INT64_C(1) << 26) + 2 * 8192);
    ck_assert_int_eq(two - one, 6 * optimizers[_i].bytes + norms + master);
}
END_TEST

/* ---- For a moment ---- */

START_TEST(test_capacity__an_fp32_step_beside_narrow_gradients_is_seen)
{
    json_t *wide = small("'bias': false", "", "'data_parallel': 1");
    json_t *narrow = small("'bias': false", ", 'gradient_dtype': 'bfloat16'", "'data_parallel': 1");
    json_int_t P = number_at(narrow, "/stages/0/components/weights") / 2;
    ck_assert_int_eq(number_at(narrow, "/stages/0/components/gradients"), 2 * P);
    ck_assert_int_eq(number_at(wide, "/stages/0/components/gradients"), 4 * P);
    json_int_t activations = number_at(narrow, "/stages/0/components/stored_activations") +
                             number_at(narrow, "/stages/0/components/head_activations");
    json_int_t backward = number_at(wide, "/stages/0/components/transient");
    json_int_t step = 4 * P > activations + backward ? 4 * P - activations : backward;
    ck_assert_int_eq(number_at(narrow, "/stages/0/components/transient"), step);
}
END_TEST

START_TEST(test_capacity__recomputation_brings_back_what_it_dropped_for_a_moment)
{
    json_t *kept = small("'bias': false", "", "'data_parallel': 1");
    json_t *again = small("'bias': false", "", "'recompute': 'full'");
    json_int_t block = number_at(kept, "/stages/0/components/stored_activations") / 8;
    ck_assert_int_eq(number_at(again, "/stages/0/components/activation_checkpoints"), 8 * 32 * 64 * 2);
    ck_assert_int_eq(number_at(again, "/stages/0/components/stored_activations"), 0);
    ck_assert_int_eq(
        number_at(again, "/stages/0/components/transient") - number_at(kept, "/stages/0/components/transient"), block);
}
END_TEST

/* ---- On the wire ---- */

START_TEST(test_capacity__bytes_on_the_wire_are_those_of_rings)
{
    /* X = 32 * 64 elements; 16 micro-batches over 8, 4 and 2 ranks. */
    json_t *plain = small("'bias': false", "", "'tensor_parallel': 4");
    json_int_t M = 32 * 64 * 2, blocks = 8, m = 16;
    /* Two all-reduces forward, two backward, in each block. */
    ck_assert_int_eq(number_at(plain, "/wire_bytes/tensor"), blocks * m * 4 * (2 * M * 3 / 4));
    /* With a sequence-parallel gather and scatter as much; and once a step the sums of the gradients of every norm, the
     * final one's too. */
    json_t *split =
        small("'bias': false", "", "'tensor_parallel': 4, 'sequence_parallel': true, 'recompute_all_gather': false");
    json_int_t norms = (blocks * 2 + 1) * (2 * (2 * 64 * 4) * 3 / 4);
    ck_assert_int_eq(number_at(split, "/wire_bytes/tensor"), blocks * m * 4 * (2 * M * 3 / 4) + norms);
    /* Gathering again in the backward pass: twice a block. */
    json_t *again = small("'bias': false", "", "'tensor_parallel': 4, 'sequence_parallel': true");
    ck_assert_int_eq(number_at(again, "/wire_bytes/tensor") - number_at(split, "/wire_bytes/tensor"),
                     blocks * m * 2 * (M * 3 / 4));
    /* The first stage sends on, the last sends back, those between both. */
    json_t *piped = small("'bias': false", "", "'pipeline_parallel': 4");
    ck_assert_int_eq(number_at(piped, "/binding_stage"), 0);
    ck_assert_int_eq(number_at(piped, "/wire_bytes/pipeline"), m * M);
    json_t *piped_split =
        small("'bias': false", "", "'pipeline_parallel': 4, 'tensor_parallel': 2, 'sequence_parallel': true");
    ck_assert_int_eq(number_at(piped_split, "/wire_bytes/pipeline"), m * M / 2);
    ck_assert_int_eq(number_at(plain, "/wire_bytes/data"), 0);
    ck_assert_int_eq(number_at(plain, "/wire_bytes/pipeline"), 0);
}
END_TEST

START_TEST(test_capacity__zero_reduces_and_gathers_as_often_as_it_must)
{
    char strategy[64];
    snprintf(strategy, sizeof strategy, "'data_parallel': 4, 'zero_stage': %d", _i);
    json_t *answer = small("'bias': false", "", strategy), *one = small("'bias': false", "", "'data_parallel': 1");
    json_int_t P = number_at(one, "/stages/0/components/weights") / 2, m = 4;
    json_int_t gradients = P * 4 * 3 / 4, parameters = P * 2 * 3 / 4;
    const json_int_t sent[] = {2 * gradients, gradients + parameters, m * gradients + parameters,
                               m * gradients + 2 * m * parameters};
    ck_assert_int_eq(number_at(answer, "/wire_bytes/data"), sent[_i]);
}
END_TEST

/* A head's bias is of its row, as a block's are of theirs: one share of both, not a share of each. */
START_TEST(test_capacity__a_bias_is_sharded_with_its_row)
{
    static const char request[] =
        "{'model': {'transformer': {'name': 's', 'hidden_size': 64, 'num_hidden_layers': 1, 'num_attention_heads': 8, "
        "'intermediate_size': 256, 'vocab_size': 1000, 'activation': 'gelu', 'norm': 'layernorm', 'position': 'rope', "
        "'head_bias': %s}}, 'workload': {'mode': 'training', 'sequence_length': 32, 'micro_batch_size': 1, "
        "'global_batch_size': 3, 'dtype': 'bfloat16'}, 'strategy': {'data_parallel': 3, 'zero_stage': 1}, "
        "'memory_bytes': 1000000000}";
    json_t *with = fit_of(request, "true"), *without = fit_of(request, "false");
    ck_assert_int_eq(number_at(with, "/stages/0/components/optimizer") -
                         number_at(without, "/stages/0/components/optimizer"),
                     12 * ((1000 * 64 + 1000 + 2) / 3 - (1000 * 64 + 2) / 3));
}
END_TEST

START_TEST(test_capacity__a_total_is_the_sum_of_its_components)
{
    json_t *answer = small("'embedding_dropout': true, 'hidden_dropout': true", "",
                           "'pipeline_parallel': 4, 'tensor_parallel': 2, 'recompute': 'selective', 'zero_stage': 3, "
                           "'data_parallel': 2");
    for (int stage = 0; stage < 4; stage++) {
        const char *name;
        json_t *bytes;
        json_int_t sum = 0;
        json_object_foreach(value_at(answer, "/stages/%d/components", stage), name, bytes)
            sum += json_integer_value(bytes);
        ck_assert_int_eq(number_at(answer, "/stages/%d/total", stage), sum);
        ck_assert_int_le(sum, number_at(answer, "/total"));
    }
    ck_assert_int_eq(number_at(answer, "/total"),
                     number_at(answer, "/stages/%lld/total", (long long)number_at(answer, "/binding_stage")));
    ck_assert_str_eq(json_string_value(value_at(answer, "/assumptions/0")), "zero_with_pipeline");
}
END_TEST

Suite *suite_capacity(void);
Suite *suite_capacity(void)
{
    Suite *suite = suite_create("capacity");
    TCase *published = tcase_create("published"), *rules = tcase_create("rules");
    tcase_add_checked_fixture(published, NULL, capacity_forget);
    tcase_add_checked_fixture(rules, NULL, capacity_forget);
    tcase_add_loop_test(published, test_capacity__figure_1_bit_for_bit, 0, N_PAPER);
    tcase_add_loop_test(published, test_capacity__figure_7_within_0_15_points, 0, N_PAPER);
    tcase_add_loop_test(published, test_capacity__zero_holds_what_its_table_says, 0, 4);
    tcase_add_test(published, test_capacity__narayanans_hardware_and_model_operations);
    tcase_add_test(published, test_capacity__operations_past_64_bits_are_exact);
    tcase_add_test(rules, test_capacity__causal_attention_halves_scores_and_nothing_else);
    tcase_add_test(rules, test_capacity__a_tied_embedding_counts_once_and_its_head_is_still_computed);
    tcase_add_test(rules, test_capacity__the_vocabulary_is_padded_and_divided);
    tcase_add_test(rules, test_capacity__the_loss_holds_an_fp32_copy_of_the_logits_unless_told);
    tcase_add_loop_test(rules, test_capacity__in_flight_follows_the_schedule, 0, 3);
    tcase_add_loop_test(rules, test_capacity__unlike_chunks_are_held_as_they_come, 0, 5);
    tcase_add_test(rules, test_capacity__bytes_on_the_wire_are_those_of_rings);
    tcase_add_loop_test(rules, test_capacity__zero_reduces_and_gathers_as_often_as_it_must, 0, 4);
    tcase_add_test(rules, test_capacity__one_micro_batch_is_held_without_a_pipeline);
    tcase_add_test(rules, test_capacity__a_tiled_kernel_keeps_no_square_but_its_sums);
    tcase_add_loop_test(rules, test_capacity__optimizers_hold_what_they_are_known_for, 0, 6);
    tcase_add_test(rules, test_capacity__an_fp32_step_beside_narrow_gradients_is_seen);
    tcase_add_test(rules, test_capacity__recomputation_brings_back_what_it_dropped_for_a_moment);
    tcase_add_test(rules, test_capacity__a_bias_is_sharded_with_its_row);
    tcase_add_test(rules, test_capacity__a_total_is_the_sum_of_its_components);
    suite_add_tcase(suite, published);
    suite_add_tcase(suite, rules);
    return suite;
}
