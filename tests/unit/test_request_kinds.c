/* What a request says of models of several kinds of block, of experts and of context parallelism. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/request/request.h"
#include "tests/unit/reading.h"

static struct bp_arena arena;
static struct bp_problems problems;

/* As a whole job's, which takes what the passes do not expand yet. */
static struct bp_request read_job(const char *text)
{
    struct bp_request request = {0};
    struct bp_strategy said;
    struct bp_config config = {0};
    json_t *body = json_of(text);
    bp_problems_release(&problems);
    ck_assert_int_eq(bp_request_read_for_job(body, &arena, &problems, &request, &said, &config), 0);
    json_decref(body);
    return request;
}

static void read_plan(const char *text)
{
    struct bp_request request = {0};
    struct bp_config config = {0};
    json_t *body = json_of(text);
    bp_problems_release(&problems);
    ck_assert_int_eq(bp_request_read(body, &arena, &problems, &request, &config), 0);
    json_decref(body);
}

static const char *canonical_of(const struct bp_request *request, bool workload)
{
    struct bp_buf buf = {0};
    struct bp_writer writer = {.out = &buf};
    if (workload)
        bp_workload_write(&writer, &request->workload);
    else
        bp_strategy_write(&writer, &request->strategy, request->workload.mode);
    const char *text = canonical(&writer);
    return bp_arena_strndup(&arena, text, strlen(text));
}

#define BLOCK "'num_attention_heads': 8, 'num_key_value_heads': 4, 'activation': 'swiglu', "
#define OF_DENSE BLOCK "'intermediate_size': 96"
#define OF_EXPERTS BLOCK "'num_experts': 8, 'experts_per_token': 2, 'expert_intermediate_size': 12"
#define MODEL(members)                                                                                                 \
    "'model': {'transformer': {'name': 'm', 'hidden_size': 64, 'num_hidden_layers': 4, 'vocab_size': 50, 'norm': "     \
    "'rmsnorm', 'position': 'rope', " members "}}"
#define DENSE MODEL(OF_DENSE)
#define EXPERTS MODEL(OF_EXPERTS)
#define MIXED                                                                                                          \
    MODEL("'kinds': [{'name': 'dense', " OF_DENSE "}, {'name': 'expert', " OF_EXPERTS "}, {'name': 'wide', " BLOCK     \
          "'intermediate_size': 192}], 'layers': [{'count': 1, 'kind': 'dense'}, {'count': 2, 'kind': 'expert'}, "     \
          "{'count': 1, 'kind': 'wide'}]")
#define TRAIN(model, workload, strategy)                                                                               \
    "{" model ", 'workload': {'mode': 'training', 'sequence_length': 64, 'micro_batch_size': 1, "                      \
    "'global_batch_size': 8, 'dtype': 'bfloat16'" workload "}, 'strategy': {" strategy "}}"
#define SERVE_OF(phase, batch, model, workload, strategy)                                                              \
    "{" model ", 'workload': {'mode': 'inference', 'phase': '" phase "', 'batch_size': " batch ", 'context_length': "  \
    "66, 'dtype': 'bfloat16'" workload "}, 'strategy': {" strategy "}}"
#define SERVE(model, workload, strategy) SERVE_OF("decode", "4", model, workload, strategy)

static const struct {
    const char *request, *strategy;
} strategies[] = {
    {TRAIN(DENSE, "", "'context_parallel': 2"), "{'context_parallel':2}"},
    {TRAIN(DENSE, "", "'context_parallel': 2, 'cp_comm': 'ring'"), "{'context_parallel':2}"},
    {TRAIN(DENSE, "", "'context_parallel': 2, 'cp_comm': 'a2a'"), "{'context_parallel':2,'cp_comm':'a2a'}"},
    {TRAIN(DENSE, "", "'context_parallel': 1, 'cp_comm': 'all_gather'"), "{}"},
    {TRAIN(DENSE, "", "'context_parallel': 2, 'zero_stage': 1"), "{'context_parallel':2,'zero_stage':1}"},
    {TRAIN(DENSE, "", "'expert_parallel': 3, 'expert_tensor_parallel': 5"), "{}"},
    {TRAIN(EXPERTS, "", "'data_parallel': 4, 'expert_parallel': 4"), "{'data_parallel':4,'expert_parallel':4}"},
    {TRAIN(EXPERTS, "", "'tensor_parallel': 2, 'sequence_parallel': true, 'expert_tensor_parallel': 2"),
     "{'sequence_parallel':true,'tensor_parallel':2}"},
    {TRAIN(EXPERTS, "",
           "'tensor_parallel': 2, 'sequence_parallel': true, 'expert_tensor_parallel': 1, 'expert_parallel': 2"),
     "{'expert_parallel':2,'expert_tensor_parallel':1,'sequence_parallel':true,'tensor_parallel':2}"},
    {SERVE(EXPERTS, "", "'replicas': 2, 'expert_parallel': 2"), "{'expert_parallel':2,'replicas':2}"},
    {SERVE(MIXED, "", "'tensor_parallel': 2, 'expert_tensor_parallel': 1, 'expert_parallel': 2"),
     "{'expert_parallel':2,'expert_tensor_parallel':1,'tensor_parallel':2}"},
    {SERVE(DENSE, "", "'replicas': 2, 'expert_parallel': 2"), "{'replicas':2}"},
};

START_TEST(test_request_kinds__degrees_without_effect_are_left_out)
{
    struct bp_request request = read_job(strategies[_i].request);
    ck_assert_str_eq(line_of(&problems), "");
    const char *text = canonical_of(&request, false);
    ck_assert_str_eq(text, strategies[_i].strategy);
    struct bp_strategy again;
    json_t *value = json_of(text);
    struct bp_reader reader = bp_reader_of(value, "", &problems);
    bp_strategy_read(&reader, request.workload.mode, &again);
    ck_assert_str_eq(line_of(&problems), "");
    ck_assert(again.context_parallel == request.strategy.context_parallel);
    ck_assert(again.cp_comm == request.strategy.cp_comm && again.expert_parallel == request.strategy.expert_parallel);
    ck_assert(again.expert_tensor_parallel == request.strategy.expert_tensor_parallel);
    json_decref(value);
}
END_TEST

static const struct {
    const char *request, *kinds, *cache;
} workloads[] = {
    {SERVE(MIXED, "", ""), NULL, NULL},
    {SERVE(MIXED, ", 'block_kinds': ['dense', 'expert', 'wide']", ""), NULL, NULL},
    {SERVE(MIXED, ", 'block_kinds': ['wide', 'expert', 'dense']", ""), NULL, NULL},
    {SERVE(MIXED, ", 'block_kinds': ['wide', 'dense']", ""), "'block_kinds':['dense','wide']", NULL},
    {SERVE(MIXED, ", 'block_kinds': ['expert', 'expert']", ""), "'block_kinds':['expert']", NULL},
    {SERVE(DENSE, ", 'block_kinds': ['dense']", ""), NULL, NULL},
    {SERVE(EXPERTS, ", 'block_kinds': ['expert']", ""), NULL, NULL},
    {TRAIN(MIXED, ", 'block_kinds': ['wide']", ""), "'block_kinds':['wide']", NULL},
    {SERVE(DENSE, ", 'kv_cache_dtype': 'bfloat16'", ""), NULL, NULL},
    {SERVE(DENSE, ", 'kv_cache_dtype': 'float8'", ""), NULL, "'kv_cache_dtype':'float8'"},
};

START_TEST(test_request_kinds__kinds_come_in_the_models_order_and_all_of_them_are_none)
{
    struct bp_request request = read_job(workloads[_i].request);
    ck_assert_str_eq(line_of(&problems), "");
    const char *text = canonical_of(&request, true);
    ck_assert_int_eq(strstr(text, "block_kinds") != NULL, workloads[_i].kinds != NULL);
    ck_assert_int_eq(strstr(text, "kv_cache_dtype") != NULL, workloads[_i].cache != NULL);
    ck_assert_ptr_nonnull(strstr(text, workloads[_i].kinds ? workloads[_i].kinds : ""));
    ck_assert_ptr_nonnull(strstr(text, workloads[_i].cache ? workloads[_i].cache : ""));
    struct bp_workload again;
    json_t *value = json_of(text);
    struct bp_reader reader = bp_reader_of(value, "", &problems);
    bp_workload_read(&reader, &again);
    ck_assert_str_eq(line_of(&problems), "");
    ck_assert_mem_eq(&again, &request.workload, sizeof again);
    json_decref(value);
}
END_TEST

/* Of any request. */
static const struct {
    const char *request, *problems;
} refusals[] = {
    {SERVE(MIXED, ", 'block_kinds': ['dense', 'sparse', 'm']", ""),
     "unknown_value /workload/block_kinds/1, unknown_value /workload/block_kinds/2"},
    {SERVE(MIXED, ", 'block_kinds': []", ""), "out_of_range /workload/block_kinds"},
    {SERVE(MIXED, ", 'block_kinds': 'dense'", ""), "wrong_type /workload/block_kinds"},
    {SERVE(MIXED, ", 'block_kinds': [1]", ""), "wrong_type /workload/block_kinds/0"},
    {SERVE(MIXED, ", 'block_kinds': ['abcdefghijklmnopqrstuvwxyz']", ""), "unknown_value /workload/block_kinds/0"},
    {SERVE(DENSE, ", 'kv_cache_dtype': 'int8'", ""), "unknown_value /workload/kv_cache_dtype"},
    {TRAIN(DENSE, ", 'kv_cache_dtype': 'float8'", ""), "conflict /workload/kv_cache_dtype"},
    {SERVE(DENSE, "", "'context_parallel': 2, 'cp_comm': 'ring'"),
     "conflict /strategy/context_parallel, conflict /strategy/cp_comm"},
    {TRAIN(DENSE, "", "'cp_comm': 'tree'"), "unknown_value /strategy/cp_comm"},
    {TRAIN(DENSE, "", "'context_parallel': 0"), "out_of_range /strategy/context_parallel"},
    {TRAIN(DENSE, "", "'context_parallel': 3"), "not_divisible /workload/sequence_length"},
    {TRAIN(DENSE, "", "'context_parallel': 8, 'cp_comm': 'a2a'"), "not_divisible /strategy/context_parallel"},
    {TRAIN(DENSE, "", "'context_parallel': 16, 'cp_comm': 'a2a'"),
     "not_divisible /strategy/context_parallel, not_divisible /strategy/context_parallel"},
    {TRAIN(DENSE, "", "'context_parallel': 4, 'cp_comm': 'a2a', 'tensor_parallel': 2"),
     "not_divisible /strategy/context_parallel"},
    {TRAIN(EXPERTS, "", "'data_parallel': 8, 'expert_parallel': 16"),
     "not_divisible /strategy/expert_parallel, not_divisible /strategy/expert_parallel"},
    {TRAIN(EXPERTS, "", "'expert_parallel': 2"), "not_divisible /strategy/expert_parallel"},
    {TRAIN(EXPERTS, "", "'tensor_parallel': 8"),
     "not_divisible /strategy/expert_tensor_parallel, conflict /strategy/sequence_parallel"},
    {SERVE(EXPERTS, "", "'expert_tensor_parallel': 0"), "out_of_range /strategy/expert_tensor_parallel"},
    {SERVE(EXPERTS, "", "'expert_parallel': 2"), "not_divisible /strategy/expert_parallel"},
};

START_TEST(test_request_kinds__every_problem_is_named_where_it_is)
{
    read_job(refusals[_i].request);
    ck_assert_str_eq(line_of(&problems), refusals[_i].problems);
    read_plan(refusals[_i].request);
    ck_assert_str_eq(line_of(&problems), refusals[_i].problems);
}
END_TEST

START_TEST(test_request_kinds__an_unknown_kind_is_told_the_known_ones)
{
    read_plan(SERVE(MIXED, ", 'block_kinds': ['sparse']", ""));
    ck_assert(some_message_has(&problems, "dense, expert, wide"));
}
END_TEST

#define GPT_OSS                                                                                                        \
    "'model': {'huggingface': {'model_type': 'gpt_oss', 'hidden_size': 64, 'num_hidden_layers': 4, 'vocab_size': 9, "  \
    "'sliding_window': null}}"
#define SPAN MODEL(OF_DENSE ", 'qk_norm': true, 'qk_norm_form': 'span'")

/* Of a plan alone. */
static const struct {
    const char *request, *problems;
} plan_refusals[] = {
    {SERVE(SPAN, "", "'tensor_parallel': 2"), "unsupported_feature /strategy/tensor_parallel"},
    {TRAIN(GPT_OSS, "", ""), "unsupported_feature /model"},
    {SERVE_OF("decode", "3", EXPERTS, "", "'tensor_parallel': 2, 'expert_tensor_parallel': 1, 'expert_parallel': 2"),
     "not_divisible /workload/batch_size"},
    {SERVE_OF("prefill", "1", EXPERTS, "", "'tensor_parallel': 4, 'replicas': 2, 'expert_parallel': 2"),
     "not_divisible /workload/batch_size"},
};

START_TEST(test_request_kinds__what_no_row_of_a_plan_holds_is_refused_of_plans)
{
    read_plan(plan_refusals[_i].request);
    ck_assert_str_eq(line_of(&problems), plan_refusals[_i].problems);
    read_job(plan_refusals[_i].request);
    ck_assert_str_eq(line_of(&problems), "");
}
END_TEST

static void release(void)
{
    bp_problems_release(&problems);
    bp_arena_release(&arena);
}

#define LOOP(tcase, test, table) tcase_add_loop_test(tcase, test, 0, (int)(sizeof table / sizeof *table))

Suite *suite_request_kinds(void)
{
    Suite *suite = suite_create("request_kinds");
    TCase *tcase = tcase_create("request_kinds");
    tcase_add_checked_fixture(tcase, NULL, release);
    LOOP(tcase, test_request_kinds__degrees_without_effect_are_left_out, strategies);
    LOOP(tcase, test_request_kinds__kinds_come_in_the_models_order_and_all_of_them_are_none, workloads);
    LOOP(tcase, test_request_kinds__every_problem_is_named_where_it_is, refusals);
    tcase_add_test(tcase, test_request_kinds__an_unknown_kind_is_told_the_known_ones);
    LOOP(tcase, test_request_kinds__what_no_row_of_a_plan_holds_is_refused_of_plans, plan_refusals);
    suite_add_tcase(suite, tcase);
    return suite;
}
