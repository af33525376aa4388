/* Whether a job fits: what is suggested keeps its promises, and what is refused is named. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "common/view/capacity_write.h"
#include "tests/lib/fault_alloc.h"
#include "tests/unit/capacity_fixture.h"
#include "tests/unit/reading.h"

/* ---- Suggestions ---- */

static const char *const jobs[] = {
    /* 405B at 512 devices, from several starts. */
    "{'model': {'name': 'llama-3.1-405b'}, 'workload': {'mode': 'training', 'sequence_length': 8192, "
    "'micro_batch_size': 1, 'global_batch_size': 512, 'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 8, "
    "'data_parallel': 64}, 'memory_bytes': 85899345920}",
    "{'model': {'name': 'llama-3.1-405b'}, 'workload': {'mode': 'training', 'sequence_length': 8192, "
    "'micro_batch_size': 1, 'global_batch_size': 512, 'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 8, "
    "'sequence_parallel': true, 'pipeline_parallel': 16, 'data_parallel': 4, "
    "'pipeline_layers': [7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7]}, 'memory_bytes': 85899345920, "
    "'reserve_bytes': 4294967296}",
    "{'model': {'name': 'llama-3.1-405b'}, 'workload': {'mode': 'training', 'sequence_length': 8192, "
    "'micro_batch_size': 1, 'global_batch_size': 512, 'dtype': 'bfloat16'}, 'strategy': {}, 'world_size': 512, "
    "'memory_bytes': 85899345920, 'utilization_permille': 900}",
    /* Inert fields that come to life: ZeRO at one rank, a schedule without a pipeline, a gather without its condition.
     */
    "{'model': {'name': 'llama-3.1-8b'}, 'workload': {'mode': 'training', 'sequence_length': 8192, "
    "'micro_batch_size': 4, 'global_batch_size': 64, 'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 8, "
    "'zero_stage': 3, 'recompute_all_gather': false}, 'memory_bytes': 24000000000}",
    "{'model': {'name': 'llama-3.1-8b'}, 'workload': {'mode': 'training', 'sequence_length': 8192, "
    "'micro_batch_size': 1, 'global_batch_size': 64, 'dtype': 'bfloat16'}, 'strategy': {'data_parallel': 8, "
    "'pipeline_schedule': 'gpipe'}, 'memory_bytes': 24000000000}",
    "{'model': {'name': 'llama-3.1-8b'}, 'workload': {'mode': 'training', 'sequence_length': 8192, "
    "'micro_batch_size': 2, 'global_batch_size': 64, 'dtype': 'bfloat16'}, 'strategy': {'pipeline_parallel': 4, "
    "'pipeline_schedule': 'gpipe', 'data_parallel': 2}, 'memory_bytes': 60000000000}",
    "{'model': {'name': 'llama-3.1-8b'}, 'workload': {'mode': 'training', 'sequence_length': 8192, "
    "'micro_batch_size': 1, 'global_batch_size': 64, 'dtype': 'bfloat16'}, 'strategy': {'pipeline_parallel': 2, "
    "'pipeline_schedule': 'interleaved', 'virtual_stages': 4, 'data_parallel': 2, 'pipeline_layers': "
    "[4, 4, 4, 4, 4, 4, 4, 4]}, 'memory_bytes': 60000000000}",
    "{'model': {'name': 'llama-3.1-8b'}, 'workload': {'mode': 'training', 'sequence_length': 32768, "
    "'micro_batch_size': 1, 'global_batch_size': 64, 'dtype': 'bfloat16'}, 'strategy': {'context_parallel': 2, "
    "'data_parallel': 8}, 'memory_bytes': 64000000000}",
    /* Experts, with a degree of their own that was said. */
    "{'model': {'name': 'mixtral-8x7b'}, 'workload': {'mode': 'training', 'sequence_length': 4096, "
    "'micro_batch_size': 2, 'global_batch_size': 128, 'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 4, "
    "'sequence_parallel': true, 'data_parallel': 8, 'expert_parallel': 4, 'expert_tensor_parallel': 1}, "
    "'memory_bytes': 85899345920}",
    "{'model': {'name': 'deepseek-v3'}, 'workload': {'mode': 'training', 'sequence_length': 4096, "
    "'micro_batch_size': 1, 'global_batch_size': 15360, 'dtype': 'bfloat16'}, 'strategy': {'pipeline_parallel': 16, "
    "'data_parallel': 128, 'expert_parallel': 64, 'zero_stage': 1, 'pipeline_layers': "
    "[4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1]}, 'memory_bytes': 85899345920}",
    "{'model': {'name': 'mixtral-8x7b'}, 'workload': {'mode': 'training', 'sequence_length': 4096, "
    "'micro_batch_size': 1, 'global_batch_size': 128, 'dtype': 'bfloat16'}, 'strategy': {'data_parallel': 64, "
    "'zero_stage': 1}, 'memory_bytes': 85899345920}",
    /* Experts of which the ranks of one tensor group hold copies, that ZeRO shards with no data parallelism at all. */
    "{'model': {'name': 'mixtral-8x7b'}, 'workload': {'mode': 'training', 'sequence_length': 4096, "
    "'micro_batch_size': 1, 'global_batch_size': 8, 'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 8, "
    "'sequence_parallel': true, 'expert_tensor_parallel': 1}, 'memory_bytes': 200000000000}",
    /* Serving. */
    "{'model': {'name': 'llama-3.1-70b'}, 'workload': {'mode': 'inference', 'phase': 'prefill', 'batch_size': 8, "
    "'context_length': 32768, 'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 2, 'replicas': 4}, "
    "'memory_bytes': 85899345920}",
    "{'model': {'name': 'llama-3.1-8b'}, 'workload': {'mode': 'inference', 'phase': 'prefill', 'batch_size': 1, "
    "'context_length': 16384, 'dtype': 'bfloat16', 'prefill_chunk': 16384}, 'strategy': {'tensor_parallel': 1}, "
    "'memory_bytes': 19000000000}",
};
enum { N_JOBS = sizeof jobs / sizeof *jobs };

static json_t *job_of(const char *text)
{
    return json_of(text);
}

/* Sets, or takes out, what a change says. */
static void apply(json_t *request, const json_t *change)
{
    char object[64], key[64];
    const char *path = json_string_value(value_at(change, "/path"));
    ck_assert_int_eq(sscanf(path, "/%63[^/]/%63s", object, key), 2);
    json_t *to = value_at(change, "/to"), *from = value_at(change, "/from"), *holder = json_object_get(request, object);
    ck_assert(!json_equal(from, to));
    /* `from` is what the request says, where it says it. */
    if (json_object_get(holder, key))
        ck_assert(json_equal(json_object_get(holder, key), from));
    if (json_is_null(to))
        json_object_del(holder, key);
    else
        json_object_set(holder, key, to);
}

static json_int_t degree(const json_t *request, const char *key)
{
    const json_t *value = json_object_get(json_object_get(request, "strategy"), key);
    return value ? json_integer_value(value) : 1;
}

static json_int_t devices(const json_t *request)
{
    json_int_t world = json_integer_value(json_object_get(request, "world_size"));
    json_int_t product = degree(request, "tensor_parallel") * degree(request, "pipeline_parallel") *
                         degree(request, "context_parallel") * degree(request, "data_parallel") *
                         degree(request, "replicas");
    return world && product < world ? world : product;
}

START_TEST(test_fit__a_suggestion_fits_by_exactly_what_it_promises)
{
    json_t *request = job_of(jobs[_i]), *answer = fit_of_json(request);
    const json_t *suggestions = value_at(answer, "/suggestions");
    ck_assert_int_gt(number_at(answer, "/shortfall"), 0);
    ck_assert_int_eq(number_at(answer, "/headroom"), 0);
    ck_assert_uint_gt(json_array_size(suggestions), 0);
    for (size_t i = 0; i < json_array_size(suggestions); i++) {
        const json_t *suggestion = json_array_get(suggestions, i), *changes = value_at(suggestion, "/changes");
        json_t *changed = json_deep_copy(request);
        for (size_t j = 0; j < json_array_size(changes); j++)
            apply(changed, json_array_get(changes, j));
        ck_assert_int_eq(devices(changed), devices(request));
        json_t *now = fit_of_json(changed);
        ck_assert_int_eq(number_at(now, "/total"), number_at(suggestion, "/total"));
        ck_assert_int_eq(number_at(now, "/headroom"), number_at(suggestion, "/headroom"));
        ck_assert_int_eq(number_at(now, "/shortfall"), 0);
        ck_assert_uint_eq(json_array_size(value_at(now, "/suggestions")), 0);
        json_decref(changed);
    }
    json_decref(request);
}
END_TEST

static bool has_change(const json_t *suggestion, const json_t *change)
{
    const json_t *changes = value_at(suggestion, "/changes");
    for (size_t i = 0; i < json_array_size(changes); i++)
        if (json_equal(json_array_get(changes, i), change))
            return true;
    return false;
}

START_TEST(test_fit__no_suggestion_holds_another_and_the_fewest_changes_come)
{
    json_t *request = job_of(jobs[_i]), *answer = fit_of_json(request);
    const json_t *suggestions = value_at(answer, "/suggestions");
    json_decref(request);
    for (size_t i = 0; i < json_array_size(suggestions); i++)
        for (size_t j = 0; j < json_array_size(suggestions); j++) {
            const json_t *a = json_array_get(suggestions, i), *b = json_array_get(suggestions, j);
            const json_t *changes = value_at(a, "/changes");
            ck_assert_uint_eq(json_array_size(changes), json_array_size(value_at(b, "/changes")));
            size_t shared = 0;
            for (size_t k = 0; k < json_array_size(changes); k++)
                shared += has_change(b, json_array_get(changes, k));
            ck_assert(i == j || shared < json_array_size(changes));
        }
}
END_TEST

/* With any one of its changes left out a suggestion is no request, or does not fit. */
START_TEST(test_fit__no_part_of_a_suggestion_would_do)
{
    json_t *request = job_of(jobs[_i]), *answer = fit_of_json(request);
    const json_t *suggestions = value_at(answer, "/suggestions");
    for (size_t i = 0; i < json_array_size(suggestions); i++) {
        const json_t *changes = value_at(json_array_get(suggestions, i), "/changes");
        for (size_t left_out = 0; left_out < json_array_size(changes); left_out++) {
            const char *path = json_string_value(value_at(changes, "/%zu/path", left_out));
            /* The world size would decide it anyhow. */
            if (json_object_get(request, "world_size") && strcmp(path, "/strategy/data_parallel") == 0)
                continue;
            json_t *changed = json_deep_copy(request);
            for (size_t j = 0; j < json_array_size(changes); j++)
                if (j != left_out)
                    apply(changed, json_array_get(changes, j));
            if (devices(changed) == devices(request) && fit_refusal_of_json(changed)[0] == '\0')
                ck_assert_int_gt(number_at(fit_of_json(changed), "/shortfall"), 0);
            json_decref(changed);
        }
    }
    json_decref(request);
}
END_TEST

/* Whether the only change of some suggestion is of this field. */
static bool suggests_alone(json_t *answer, const char *path)
{
    const json_t *suggestions = value_at(answer, "/suggestions");
    bool alone = false;
    for (size_t i = 0; i < json_array_size(suggestions); i++)
        alone |= json_array_size(value_at(suggestions, "/%zu/changes", i)) == 1 &&
                 strcmp(json_string_value(value_at(suggestions, "/%zu/changes/0/path", i)), path) == 0;
    return alone;
}

START_TEST(test_fit__experts_may_be_spread)
{
    ck_assert(suggests_alone(fit_of("%s", jobs[10]), "/strategy/expert_parallel"));
}
END_TEST

START_TEST(test_fit__copies_of_experts_within_a_tensor_group_may_be_sharded)
{
    json_t *answer = fit_of("%s", jobs[11]);
    ck_assert(suggests_alone(answer, "/strategy/zero_stage"));
    /* Where the experts are divided as the rest is, no rank holds what another holds. */
    ck_assert(!suggests_alone(fit_of("{'model': {'name': 'mixtral-8x7b'}, 'workload': {'mode': 'training', "
                                     "'sequence_length': 4096, 'micro_batch_size': 1, 'global_batch_size': 8, "
                                     "'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 8, "
                                     "'sequence_parallel': true}, 'memory_bytes': 100000000000}"),
                              "/strategy/zero_stage"));
}
END_TEST

START_TEST(test_fit__tensor_parallelism_stays_within_a_node)
{
    static const char request[] =
        "{'model': {'name': 'llama-3.1-70b'}, 'workload': {'mode': 'inference', 'phase': 'decode', 'batch_size': 1, "
        "'context_length': 4096, 'dtype': 'bfloat16'}, 'strategy': {'replicas': 8}, 'memory_bytes': 30000000000, "
        "'devices_per_node': %d}";
    json_t *small = fit_of(request, 4), *large = fit_of(request, 8);
    json_t *const both[] = {small, large};
    json_int_t widest[2] = {0};
    for (size_t i = 0; i < 2; i++) {
        const json_t *suggestions = value_at(both[i], "/suggestions");
        for (size_t j = 0; j < json_array_size(suggestions); j++) {
            const json_t *changes = value_at(json_array_get(suggestions, j), "/changes");
            for (size_t k = 0; k < json_array_size(changes); k++) {
                const json_t *change = json_array_get(changes, k);
                if (strcmp(json_string_value(value_at(change, "/path")), "/strategy/tensor_parallel") == 0 &&
                    number_at(change, "/to") > widest[i])
                    widest[i] = number_at(change, "/to");
            }
        }
    }
    ck_assert_int_le(widest[0], 4);
    ck_assert_int_eq(widest[1], 8);
}
END_TEST

/* ---- The fewest devices ---- */

START_TEST(test_fit__the_fewest_devices_hold_the_state_and_some_strategy_on_them_fits)
{
    json_t *answer = fit_of("%s", jobs[0]);
    json_int_t fewest = number_at(answer, "/fewest_devices");
    ck_assert_int_eq(fewest, 96);
    /* 18 bytes a parameter are more than 85 such devices have. */
    ck_assert(18 * decimal_at(answer, "/parameters/total") > (bp_u128)85 * 85899345920);
    json_t *there = fit_of("{'model': {'name': 'llama-3.1-405b'}, 'workload': {'mode': 'training', "
                           "'sequence_length': 8192, 'micro_batch_size': 1, 'global_batch_size': 512, "
                           "'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 8, 'sequence_parallel': true, "
                           "'pipeline_parallel': 3, 'data_parallel': 4, 'zero_stage': 3, 'recompute': 'full'}, "
                           "'memory_bytes': 85899345920}");
    ck_assert_int_eq(number_at(there, "/fewest_devices"), fewest);
    ck_assert(json_is_true(value_at(there, "/fits_before_reserve")));
}
END_TEST

/* The strategy that is named, taken as a request of as many devices as are named. */
static void check_fewest(const char *text)
{
    json_t *request = job_of(text), *answer = fit_of("%s", text), *workload = json_object_get(request, "workload");
    json_int_t fewest = number_at(answer, "/fewest_devices");
    ck_assert_int_gt(fewest, 0);
    json_object_set(request, "strategy", (json_t *)(uintptr_t)value_at(answer, "/fewest_strategy"));
    if (json_object_get(workload, "micro_batch_size"))
        json_object_set_new(workload, "micro_batch_size", json_integer(1));
    json_object_set_new(request, "world_size", json_integer(fewest));
    json_t *there = fit_of_json(request);
    ck_assert_int_eq(number_at(there, "/shortfall"), 0);
    ck_assert_int_eq(number_at(there, "/fewest_devices"), fewest);
    ck_assert(json_equal(value_at(there, "/fewest_strategy"), value_at(answer, "/fewest_strategy")));
    json_decref(request);
}

START_TEST(test_fit__the_strategy_of_the_fewest_devices_fits_on_them)
{
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        check_fewest(jobs[i]);
    check_fewest("{'model': {'name': 'mixtral-8x7b'}, 'workload': {'mode': 'inference', 'phase': 'prefill', "
                 "'batch_size': 4, 'context_length': 1024, 'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 2, "
                 "'replicas': 4, 'expert_parallel': 8, 'expert_tensor_parallel': 1}, 'memory_bytes': 25769803776}");
    check_fewest("{'model': {'name': 'llama-3.1-8b'}, 'workload': {'mode': 'training', 'sequence_length': 8192, "
                 "'micro_batch_size': 2, 'global_batch_size': 64, 'dtype': 'bfloat16'}, 'strategy': {"
                 "'context_parallel': 4, 'cp_comm': 'a2a', 'tensor_parallel': 2, 'pipeline_parallel': 4, "
                 "'pipeline_schedule': 'interleaved', 'virtual_stages': 2, 'recompute_activation': true}, "
                 "'memory_bytes': 25769803776}");
}
END_TEST

START_TEST(test_fit__one_device_is_enough_for_a_small_model)
{
    json_t *answer = fit_of("{'model': {'name': 'gpt2'}, 'workload': {'mode': 'training', 'sequence_length': 1024, "
                            "'micro_batch_size': 1, 'global_batch_size': 8, 'dtype': 'bfloat16'}, "
                            "'strategy': {'data_parallel': 8}, 'memory_bytes': 85899345920, 'reserve_bytes': 1}");
    ck_assert_int_eq(number_at(answer, "/fewest_devices"), 1);
    ck_assert(json_is_true(value_at(answer, "/fits")));
    ck_assert_int_eq(number_at(answer, "/headroom") + number_at(answer, "/total"), 85899345920 - 1);
    ck_assert_uint_eq(json_array_size(value_at(answer, "/suggestions")), 0);
}
END_TEST

START_TEST(test_fit__nothing_is_found_in_a_memory_that_is_gone)
{
    json_t *answer = fit_of("{'model': {'name': 'gpt2'}, 'workload': {'mode': 'training', 'sequence_length': 1024, "
                            "'micro_batch_size': 1, 'global_batch_size': 8, 'dtype': 'bfloat16'}, "
                            "'strategy': {'data_parallel': 8}, 'memory_bytes': 1000, 'reserve_bytes': 2000}");
    ck_assert_int_eq(number_at(answer, "/fewest_devices"), 0);
    ck_assert(json_is_null(value_at(answer, "/fewest_strategy")));
    ck_assert_int_eq(number_at(answer, "/shortfall"), number_at(answer, "/total"));
    ck_assert_uint_eq(json_array_size(value_at(answer, "/suggestions")), 0);
}
END_TEST

/* ---- Bounds ---- */

START_TEST(test_fit__models_and_pipelines_of_any_size_are_answered_soon)
{
    json_t *answer =
        fit_of("{'model': {'transformer': {'name': 'tall', 'hidden_size': 64, 'num_hidden_layers': 4294967296, "
               "'num_attention_heads': 8, 'intermediate_size': 64, 'vocab_size': 8, 'activation': 'gelu', "
               "'norm': 'rmsnorm', 'position': 'none'}}, 'workload': {'mode': 'training', 'sequence_length': 8, "
               "'micro_batch_size': 1, 'global_batch_size': 1024, 'dtype': 'bfloat16'}, 'strategy': "
               "{'pipeline_parallel': 1024, 'pipeline_schedule': 'interleaved', 'virtual_stages': 4, "
               "'zero_stage': 3}, 'devices_per_node': 1024, 'memory_bytes': 85899345920}");
    ck_assert_uint_eq(json_array_size(value_at(answer, "/stages")), 1024);
    ck_assert_str_eq(fit_refusal("{'model': {'name': 'gpt2'}, 'workload': {'mode': 'training', "
                                 "'sequence_length': 1024, 'micro_batch_size': 1, 'global_batch_size': 8, "
                                 "'dtype': 'bfloat16'}, 'strategy': {'pipeline_parallel': 2048, "
                                 "'pipeline_layers': [1]}, 'memory_bytes': 1000}"),
                     "conflict /strategy/pipeline_layers, conflict /strategy/pipeline_layers, "
                     "out_of_range /strategy/pipeline_parallel");
}
END_TEST

/* Degrees past those that there are are not looked for, however many devices there are to look through. */
START_TEST(test_fit__nodes_and_worlds_of_any_size_are_answered_soon)
{
    json_t *answer = fit_of("{'model': {'name': 'gpt2'}, 'workload': {'mode': 'training', 'sequence_length': 1024, "
                            "'micro_batch_size': 1, 'global_batch_size': 1099511627776, 'dtype': 'bfloat16'}, "
                            "'strategy': {'data_parallel': 1099511627776}, 'devices_per_node': 9007199254740991, "
                            "'memory_bytes': 1000000}");
    ck_assert(json_is_false(value_at(answer, "/fits_before_reserve")));
    ck_assert_int_eq(number_at(answer, "/fewest_devices"), 0);
}
END_TEST

/* ---- Refusals ---- */

static const char whole[] =
    "{'model': {'name': 'gpt2'}, 'workload': {'mode': 'training', 'sequence_length': 1024, 'micro_batch_size': 1, "
    "'global_batch_size': 8, 'dtype': 'bfloat16'}, 'strategy': {'data_parallel': 8}, 'memory_bytes': 85899345920}";

static const struct {
    const char *path, *value, *problems;
} refusals[] = {
    {"/memory_bytes", NULL, "missing_key /memory_bytes"},
    {"/memory_bytes", "0", "out_of_range /memory_bytes"},
    {"/memory_bytes", "'80GB'", "wrong_type /memory_bytes"},
    {"/reserve_bytes", "-1", "out_of_range /reserve_bytes"},
    {"/utilization_permille", "1001", "out_of_range /utilization_permille"},
    {"/utilization_permille", "0.9", "wrong_type /utilization_permille"},
    {"/devices_per_node", "0", "out_of_range /devices_per_node"},
    {"/world_size", "9", "conflict /world_size"},
    {"/target", "{'kind': 'reference-queue'}", "conflict /target"},
    {"/deployment", "{'devices': 8, 'memory_bytes': 1}", "conflict /deployment"},
    {"/colour", "1", "unknown_key /colour"},
    {"/conventions", "[]", "wrong_type /conventions"},
    {"/conventions", "{'attention': 'half'}", "unknown_value /conventions/attention"},
    {"/conventions", "{'kernel': 'tiled'}", "unknown_key /conventions/kernel"},
    {"/conventions", "{'loss': 1}", "wrong_type /conventions/loss"},
    {"/strategy/optimizer", "'lion'", "unknown_value /strategy/optimizer"},
    {"/strategy/vocab_multiple", "0", "out_of_range /strategy/vocab_multiple"},
    {"/strategy/cp_comm", "'tree'", "unknown_value /strategy/cp_comm"},
    {"/strategy/context_parallel", "3", "not_divisible /workload/sequence_length"},
    {"/workload/kv_block", "16", "conflict /workload/kv_block"},
    {"/workload/kv_cache_dtype", "'float8'", "conflict /workload/kv_cache_dtype"},
    {"/workload/imbalance_permille", "999", "out_of_range /workload/imbalance_permille"},
    {"/workload/dtype", "'float8'", "unsupported_feature /workload/dtype"},
    {"/workload/dtype", "'bf16'", "unknown_value /workload/dtype"},
    {"/workload/dtype", "8", "wrong_type /workload/dtype"},
    {"/workload",
     "{'mode': 'inference', 'phase': 'decode', 'batch_size': 1, 'context_length': 16, 'dtype': 'bfloat16'}",
     "unknown_key /strategy/data_parallel"},
    {"/strategy", "7", "wrong_type /strategy"},
    {"/model", "{'name': 'nobody'}", "unknown_model /model/name"},
    {"/model", "{'name': 'gpt-oss-120b'}", "unsupported_feature /model"},
};

START_TEST(test_fit__every_problem_is_named_where_it_is)
{
    char object[64] = "", key[64] = "";
    json_t *request = job_of(whole), *holder = request;
    const char *path = refusals[_i].path;
    if (sscanf(path, "/%63[^/]/%63s", object, key) == 2)
        holder = json_object_get(request, object);
    else
        snprintf(key, sizeof key, "%s", path + 1);
    if (refusals[_i].value) {
        char text[256];
        snprintf(text, sizeof text, "{'v': %s}", refusals[_i].value);
        json_t *value = json_of(text);
        json_object_set(holder, key, json_object_get(value, "v"));
        json_decref(value);
    } else {
        json_object_del(holder, key);
    }
    const char *problems = fit_refusal_of_json(request);
    ck_assert_str_eq(problems, refusals[_i].problems);
    json_decref(request);
}
END_TEST

/* A kind that is not asked for is not in the way, nor in the bytes. */
START_TEST(test_fit__a_kind_without_rows_that_is_left_out_is_not_refused)
{
    static const char request[] =
        "{'model': {'transformer': {'name': 'm', 'hidden_size': 64, 'num_hidden_layers': 4, 'vocab_size': 128, "
        "'norm': 'rmsnorm', 'position': 'rope', 'kinds': [{'name': 'a', 'num_attention_heads': 4, 'activation': "
        "'swiglu', 'intermediate_size': 128}, {'name': 'b', 'num_attention_heads': 4, 'activation': 'swiglu', "
        "'intermediate_size': 128, 'attention_sinks': %s}], 'layers': [{'count': 2, 'kind': 'a'}, {'count': 2, 'kind': "
        "'b'}]}}, 'workload': {'mode': 'training', 'sequence_length': 64, 'micro_batch_size': 1, 'global_batch_size': "
        "8, 'dtype': 'bfloat16', 'block_kinds': ['%s']}, 'strategy': {'data_parallel': 8}, 'memory_bytes': 1000000}";
    json_t *with = fit_of(request, "true", "a"), *without = fit_of(request, "false", "a");
    ck_assert(json_equal(value_at(with, "/stages"), value_at(without, "/stages")));
    ck_assert(json_equal(value_at(with, "/operations"), value_at(without, "/operations")));
    ck_assert(json_equal(value_at(with, "/wire_bytes"), value_at(without, "/wire_bytes")));
    ck_assert_str_eq(fit_refusal(request, "true", "b"), "unsupported_feature /model");
}
END_TEST

START_TEST(test_fit__several_problems_are_named_at_once)
{
    ck_assert_str_eq(
        fit_refusal("{'model': {'name': 'gpt2'}, 'workload': {'mode': 'inference', 'phase': 'decode', "
                    "'batch_size': 1, 'context_length': 5000, 'dtype': 'bfloat16', 'kv_block': 0}, "
                    "'strategy': {'tensor_parallel': 5, 'optimizer': 'adam'}, 'memory_bytes': -1}"),
        "not_divisible /strategy/tensor_parallel, not_divisible /strategy/tensor_parallel, "
        "not_divisible /strategy/tensor_parallel, not_divisible /strategy/tensor_parallel, "
        "conflict /workload/context_length, conflict /strategy/optimizer, out_of_range /workload/kv_block, "
        "out_of_range /memory_bytes");
    ck_assert_str_eq(fit_refusal("[]"), "wrong_type ");
    ck_assert_str_eq(fit_refusal("{}"), "missing_key /model, missing_key /workload, missing_key /strategy, "
                                        "missing_key /memory_bytes");
}
END_TEST

/* Micro-batches must fill an interleaved pipeline; a job must be countable. */
START_TEST(test_fit__what_only_the_derivation_finds_is_refused_too)
{
    static const char request[] =
        "{'model': {'name': 'gpt2'}, 'workload': {'mode': 'training', 'sequence_length': 1024, "
        "'micro_batch_size': 1, 'global_batch_size': 9, 'dtype': 'bfloat16'}, 'strategy': {'pipeline_parallel': 2, "
        "'pipeline_schedule': 'interleaved', 'virtual_stages': 2}, 'memory_bytes': 1000}";
    ck_assert_str_eq(fit_refusal("%s", request), "not_divisible /workload/global_batch_size");
    ck_assert_str_eq(
        fit_refusal("{'model': {'transformer': {'name': 'w', 'hidden_size': 9007199254740991, 'num_hidden_layers': 1, "
                    "'num_attention_heads': 1, 'intermediate_size': 9007199254740991, 'vocab_size': 9007199254740991, "
                    "'activation': 'gelu', 'norm': 'rmsnorm', 'position': 'none'}}, 'workload': {'mode': 'training', "
                    "'sequence_length': 9007199254740991, 'micro_batch_size': 1, 'global_batch_size': 1, "
                    "'dtype': 'bfloat16'}, 'strategy': {}, 'memory_bytes': 1000}"),
        "quantity_overflow /workload");
}
END_TEST

START_TEST(test_fit__a_server_s_experts_share_its_ranks)
{
    static const char request[] =
        "{'model': {'name': 'mixtral-8x7b'}, 'workload': {'mode': 'inference', 'phase': 'decode', 'batch_size': 1, "
        "'context_length': 16, 'dtype': 'bfloat16'}, 'strategy': {'tensor_parallel': 4, %s}, "
        "'memory_bytes': 85899345920}";
    ck_assert_str_eq(fit_refusal(request, "'expert_parallel': 8"), "not_divisible /strategy/expert_parallel");
    ck_assert_str_eq(fit_refusal(request, "'context_parallel': 2"), "conflict /strategy/context_parallel");
    json_t *by_width = fit_of(request, "'expert_parallel': 1");
    json_t *by_number = fit_of(request, "'expert_parallel': 4, 'expert_tensor_parallel': 1");
    ck_assert_int_eq(number_at(by_width, "/stages/0/components/weights"),
                     number_at(by_number, "/stages/0/components/weights"));
}
END_TEST

/* Routing off its balance rounds up to whole pairs: no count a token is made up. */
START_TEST(test_fit__operations_a_token_are_said_where_they_are_whole)
{
    json_t *answer =
        fit_of("{'model': {'name': 'mixtral-8x7b'}, 'workload': {'mode': 'training', 'sequence_length': 11, "
               "'micro_batch_size': 1, 'global_batch_size': 1, 'dtype': 'bfloat16', 'imbalance_permille': 1001}, "
               "'strategy': {}, 'memory_bytes': 85899345920}");
    ck_assert(json_is_null(value_at(answer, "/operations/per_token")));
}
END_TEST

/* One fit of jobs[0] whose allocations after the first n fail: its error's code, BP_OK for an answer. */
static enum bp_code fit_with_memory_for(const json_t *request, long n, bool *ret_failed)
{
    static struct bp_whole_job job;
    struct bp_arena arena = {0};
    struct bp_problems problems = {0};
    struct bp_config config = {0};
    struct bp_fit fit;
    struct bp_err err = {0};
    struct bp_buf text = {0};
    struct bp_writer writer = {.out = &text, .any_order = true};
    const struct bp_capacity_answer answer = {.job = &job, .config = &config, .fit = &fit};
    bp_fault_alloc_after(n);
    if (bp_whole_job_read(request, &arena, &problems, &job, &config) < 0 || problems.out_of_memory)
        err.code = BP_E_out_of_memory;
    else if (problems.n)
        err.code = problems.at[0].code;
    else if (bp_fit_of(&job, &arena, &fit, &err) == 0 && bp_capacity_write(&writer, &answer, &err) == 0)
        bp_writer_finish(&writer, &err);
    *ret_failed = bp_fault_alloc_off();
    bp_buf_release(&text);
    bp_problems_release(&problems);
    bp_arena_release(&arena);
    return err.code;
}

/* However far memory reaches, a fit ends in its answer or in out_of_memory. */
START_TEST(test_fit__memory_that_runs_out_is_said_so)
{
    json_t *request = job_of(jobs[0]);
    bool failed = true;
    long n = 0;
    for (; failed && n < 10000; n++) {
        enum bp_code code = fit_with_memory_for(request, n, &failed);
        ck_assert_msg(code == BP_OK || (failed && code == BP_E_out_of_memory), "%ld: %s", n, bp_code_name(code));
    }
    ck_assert(!failed);
    ck_assert_int_ge(n, bp_fault_alloc_works() ? 10 : 1);
    json_decref(request);
}
END_TEST

START_TEST(test_fit__the_world_size_decides_the_degree_left_out)
{
    json_t *answer = fit_of("{'model': {'name': 'gpt2'}, 'workload': {'mode': 'training', 'sequence_length': 1024, "
                            "'micro_batch_size': 1, 'global_batch_size': 8, 'dtype': 'bfloat16'}, 'strategy': "
                            "{'tensor_parallel': 2, 'zero_stage': 1}, 'world_size': 16, "
                            "'memory_bytes': 85899345920}");
    json_t *said = fit_of("{'model': {'name': 'gpt2'}, 'workload': {'mode': 'training', 'sequence_length': 1024, "
                          "'micro_batch_size': 1, 'global_batch_size': 8, 'dtype': 'bfloat16'}, 'strategy': "
                          "{'tensor_parallel': 2, 'zero_stage': 1, 'data_parallel': 8}, "
                          "'memory_bytes': 85899345920}");
    ck_assert(json_equal(answer, said));
}
END_TEST

Suite *suite_fit(void);
Suite *suite_fit(void)
{
    Suite *suite = suite_create("fit");
    TCase *suggestions = tcase_create("suggestions"), *requests = tcase_create("requests");
    tcase_add_checked_fixture(suggestions, NULL, capacity_forget);
    tcase_add_checked_fixture(requests, NULL, capacity_forget);
    tcase_add_loop_test(suggestions, test_fit__a_suggestion_fits_by_exactly_what_it_promises, 0, N_JOBS);
    tcase_add_loop_test(suggestions, test_fit__no_suggestion_holds_another_and_the_fewest_changes_come, 0, N_JOBS);
    tcase_add_loop_test(suggestions, test_fit__no_part_of_a_suggestion_would_do, 0, N_JOBS);
    tcase_add_test(suggestions, test_fit__experts_may_be_spread);
    tcase_add_test(suggestions, test_fit__copies_of_experts_within_a_tensor_group_may_be_sharded);
    tcase_add_test(suggestions, test_fit__tensor_parallelism_stays_within_a_node);
    tcase_add_test(suggestions, test_fit__the_fewest_devices_hold_the_state_and_some_strategy_on_them_fits);
    tcase_add_test(suggestions, test_fit__the_strategy_of_the_fewest_devices_fits_on_them);
    tcase_add_test(suggestions, test_fit__one_device_is_enough_for_a_small_model);
    tcase_add_test(suggestions, test_fit__nothing_is_found_in_a_memory_that_is_gone);
    tcase_add_test(requests, test_fit__models_and_pipelines_of_any_size_are_answered_soon);
    tcase_add_test(requests, test_fit__nodes_and_worlds_of_any_size_are_answered_soon);
    tcase_add_loop_test(requests, test_fit__every_problem_is_named_where_it_is, 0,
                        (int)(sizeof refusals / sizeof *refusals));
    tcase_add_test(requests, test_fit__several_problems_are_named_at_once);
    tcase_add_test(requests, test_fit__what_only_the_derivation_finds_is_refused_too);
    tcase_add_test(requests, test_fit__a_server_s_experts_share_its_ranks);
    tcase_add_test(requests, test_fit__operations_a_token_are_said_where_they_are_whole);
    tcase_add_test(requests, test_fit__memory_that_runs_out_is_said_so);
    tcase_add_test(requests, test_fit__the_world_size_decides_the_degree_left_out);
    tcase_add_test(requests, test_fit__a_kind_without_rows_that_is_left_out_is_not_refused);
    suite_add_tcase(suite, suggestions);
    suite_add_tcase(suite, requests);
    return suite;
}
