/* Plan requests: what is refused and where, what normalises to what, what identifies what. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/request/request.h"
#include "tests/unit/reading.h"

#define MODEL                                                                                                          \
    "'model': {'transformer': {'name': 'm', 'hidden_size': 64, 'num_hidden_layers': 12, 'num_attention_heads': 8, "    \
    "'num_key_value_heads': 2, 'intermediate_size': 96, 'vocab_size': 50, 'activation': 'swiglu', "                    \
    "'norm': 'rmsnorm', 'position': 'learned', 'max_position_embeddings': 128}}"
#define WORK                                                                                                           \
    "'workload': {'mode': 'training', 'sequence_length': 128, 'micro_batch_size': 2, 'global_batch_size': 24, "        \
    "'dtype': 'bfloat16'}"
#define SERVE                                                                                                          \
    "'workload': {'mode': 'inference', 'phase': 'decode', 'batch_size': 3, 'context_length': 128, 'dtype': 'float8'}"
#define TARGET ", 'target': {'kind': 'reference-queue'}, 'deployment': {'devices': 8, 'memory_bytes': 1000}"
#define TRAIN(strategy) "{" MODEL ", " WORK ", 'strategy': {" strategy "}}"
#define INFER(strategy) "{" MODEL ", " SERVE ", 'strategy': {" strategy "}}"

static struct bp_arena arena;
static struct bp_problems problems;

static struct bp_request read_text(const char *text)
{
    struct bp_request request = {0};
    struct bp_config config = {0};
    json_t *body = json_of(text);
    bp_problems_release(&problems);
    ck_assert_int_eq(bp_request_read(body, &arena, &problems, &request, &config), 0);
    json_decref(body);
    return request;
}

static struct bp_request valid(const char *text)
{
    struct bp_request request = read_text(text);
    ck_assert_msg(problems.n == 0, "%s", line_of(&problems));
    return request;
}

static const char *written(const struct bp_request *request)
{
    struct bp_buf buf = {0};
    struct bp_writer writer = {.out = &buf};
    bp_request_write(&writer, request);
    return canonical(&writer);
}

static const char *written_strategy(const struct bp_request *request)
{
    struct bp_buf buf = {0};
    struct bp_writer writer = {.out = &buf};
    bp_strategy_write(&writer, &request->strategy, request->workload.mode);
    return canonical(&writer);
}

static const char *written_workload(const struct bp_request *request)
{
    struct bp_buf buf = {0};
    struct bp_writer writer = {.out = &buf};
    bp_workload_write(&writer, &request->workload);
    return canonical(&writer);
}

static const struct {
    const char *request, *problems;
} refusals[] = {
    /* form */
    {"[]", "wrong_type "},
    {"{}", "missing_key /model, missing_key /workload, missing_key /strategy"},
    {"{" MODEL ", " WORK ", 'strategy': {}, 'hints': {}}", "unknown_key /hints"},
    {"{" MODEL ", 'workload': 1, 'strategy': null}", "wrong_type /workload, wrong_type /strategy"},
    {"{" MODEL ", " WORK ", 'strategy': {}, 'target': 1, 'deployment': []}",
     "wrong_type /target, wrong_type /deployment"},
    {"{" MODEL ", 'workload': {}, 'strategy': {}}", "missing_key /workload/mode, missing_key /workload/dtype"},
    {"{" MODEL ", 'workload': {'mode': 'serving', 'dtype': 'int8', 'phase': 'x', 'batch_size': '1', 'width': 1}, "
     "'strategy': {'replicas': 0, 'zero_stage': 9, 'speed': 1}}",
     "unknown_value /workload/mode, unknown_key /workload/width, unknown_value /workload/dtype, "
     "unknown_value /workload/phase, wrong_type /workload/batch_size, unknown_key /strategy/speed, "
     "out_of_range /strategy/zero_stage, out_of_range /strategy/replicas"},
    {"{" MODEL ", 'workload': {'mode': 'training'}, 'strategy': {}}",
     "missing_key /workload/dtype, missing_key /workload/sequence_length, missing_key /workload/micro_batch_size, "
     "missing_key /workload/global_batch_size"},
    {"{" MODEL ", 'workload': {'mode': 'inference'}, 'strategy': {}}",
     "missing_key /workload/dtype, missing_key /workload/phase, missing_key /workload/batch_size, "
     "missing_key /workload/context_length"},
    {"{" MODEL ", 'workload': {'mode': 'inference', 'phase': 'prefill', 'batch_size': 1, 'context_length': 1, "
     "'dtype': 'float16', 'gradient_dtype': 'float32', 'sequence_length': 1}, 'strategy': {}}",
     "unknown_key /workload/gradient_dtype, unknown_key /workload/sequence_length"},
    {"{" MODEL ", 'workload': {'mode': 'training', 'sequence_length': 0, 'micro_batch_size': -1, "
     "'global_batch_size': 9007199254740992, 'dtype': 2, 'gradient_dtype': 'double', 'phase': 'decode'}, "
     "'strategy': {}}",
     "unknown_key /workload/phase, wrong_type /workload/dtype, out_of_range /workload/sequence_length, "
     "out_of_range /workload/micro_batch_size, out_of_range /workload/global_batch_size, "
     "unknown_value /workload/gradient_dtype"},
    /* ranges and types of the strategy */
    {TRAIN("'tensor_parallel': 0"), "out_of_range /strategy/tensor_parallel"},
    {TRAIN("'tensor_parallel': 1025"), "out_of_range /strategy/tensor_parallel"},
    {TRAIN("'tensor_parallel': 1e3"), "wrong_type /strategy/tensor_parallel"},
    {TRAIN("'tensor_parallel': null"), "wrong_type /strategy/tensor_parallel"},
    {TRAIN("'pipeline_parallel': -1"), "out_of_range /strategy/pipeline_parallel"},
    {TRAIN("'pipeline_parallel': '2', 'virtual_stages': 2"), "wrong_type /strategy/pipeline_parallel"},
    {TRAIN("'data_parallel': 0"), "out_of_range /strategy/data_parallel"},
    {TRAIN("'sequence_parallel': 1, 'tensor_parallel': 2"), "wrong_type /strategy/sequence_parallel"},
    {TRAIN("'recompute': true"), "wrong_type /strategy/recompute"},
    {TRAIN("'recompute': 'some'"), "unknown_value /strategy/recompute"},
    {TRAIN("'recompute_all_gather': 'yes'"), "wrong_type /strategy/recompute_all_gather"},
    {TRAIN("'recompute_activation': 0"), "wrong_type /strategy/recompute_activation"},
    {TRAIN("'pipeline_schedule': 'zb'"), "unknown_value /strategy/pipeline_schedule"},
    {TRAIN("'pipeline_schedule': 'zb', 'pipeline_parallel': 2, 'virtual_stages': 2"),
     "unknown_value /strategy/pipeline_schedule"},
    {TRAIN("'virtual_stages': 0"), "out_of_range /strategy/virtual_stages"},
    {TRAIN("'zero_stage': 4"), "out_of_range /strategy/zero_stage"},
    {TRAIN("'zero_stage': -1"), "out_of_range /strategy/zero_stage"},
    {TRAIN("'replicas': 1"), "unknown_key /strategy/replicas"},
    {INFER("'replicas': 0"), "out_of_range /strategy/replicas"},
    {INFER("'data_parallel': 1, 'zero_stage': 0"),
     "unknown_key /strategy/data_parallel, unknown_key /strategy/zero_stage"},
    /* divisibility */
    {TRAIN("'tensor_parallel': 3"), "not_divisible /strategy/tensor_parallel, not_divisible /strategy/tensor_parallel, "
                                    "not_divisible /strategy/tensor_parallel"},
    {TRAIN("'tensor_parallel': 64"),
     "not_divisible /strategy/tensor_parallel, not_divisible /strategy/tensor_parallel"},
    {INFER("'tensor_parallel': 16"), "not_divisible /strategy/tensor_parallel"},
    {TRAIN("'pipeline_parallel': 5"), "not_divisible /strategy/pipeline_parallel"},
    {INFER("'pipeline_parallel': 5"), "not_divisible /strategy/pipeline_parallel"},
    {TRAIN("'pipeline_parallel': 4, 'virtual_stages': 2, 'pipeline_schedule': 'interleaved'"),
     "not_divisible /strategy/virtual_stages"},
    {TRAIN("'data_parallel': 5"), "not_divisible /workload/global_batch_size"},
    {TRAIN("'data_parallel': 9007199254740991"), "not_divisible /workload/global_batch_size"},
    {"{'model': {'transformer': {'name': 'm', 'hidden_size': 64, 'num_hidden_layers': 12, 'num_attention_heads': 8, "
     "'intermediate_size': 64, 'vocab_size': 50, 'activation': 'gelu', 'norm': 'layernorm', 'position': 'rope'}}, "
     "'workload': {'mode': 'training', 'sequence_length': 9, 'micro_batch_size': 1, 'global_batch_size': 1, "
     "'dtype': 'float32'}, 'strategy': {'tensor_parallel': 2, 'sequence_parallel': true}}",
     "not_divisible /workload/sequence_length"},
    {"{'model': {'transformer': {'name': 'm', 'hidden_size': 72, 'num_hidden_layers': 12, 'num_attention_heads': 12, "
     "'num_key_value_heads': 6, 'intermediate_size': 72, 'vocab_size': 50, 'activation': 'gelu', "
     "'norm': 'layernorm', 'position': 'rope'}}, " SERVE ", 'strategy': {'tensor_parallel': 4}}",
     "not_divisible /strategy/tensor_parallel"},
    /* what does not fit together */
    {TRAIN("'pipeline_schedule': 'none', 'pipeline_parallel': 2"), "conflict /strategy/pipeline_schedule"},
    {TRAIN("'virtual_stages': 2"), "conflict /strategy/virtual_stages"},
    {TRAIN("'virtual_stages': 2, 'pipeline_schedule': 'interleaved'"), "conflict /strategy/virtual_stages"},
    {TRAIN("'virtual_stages': 2, 'pipeline_parallel': 2"), "conflict /strategy/virtual_stages"},
    {TRAIN("'virtual_stages': 2, 'pipeline_parallel': 2, 'pipeline_schedule': 'gpipe'"),
     "conflict /strategy/virtual_stages"},
    {"{" MODEL ", 'workload': {'mode': 'training', 'sequence_length': 129, 'micro_batch_size': 2, "
     "'global_batch_size': 24, 'dtype': 'bfloat16'}, 'strategy': {}}",
     "conflict /workload/sequence_length"},
    {"{" MODEL ", 'workload': {'mode': 'inference', 'phase': 'decode', 'batch_size': 3, 'context_length': 129, "
     "'dtype': 'float8'}, 'strategy': {}}",
     "conflict /workload/context_length"},
    {"{'model': {'huggingface': {'model_type': 'opt', 'hidden_size': 24, 'num_hidden_layers': 2, 'vocab_size': 9, "
     "'max_position_embeddings': 16}}, 'workload': {'mode': 'inference', 'phase': 'prefill', 'batch_size': 3, "
     "'context_length': 17, 'dtype': 'float8'}, 'strategy': {}}",
     "conflict /workload/context_length"},
    /* target and deployment */
    {"{" MODEL ", " WORK ", 'strategy': {}, 'target': {'kind': 'reference-slot'}}", "missing_key /deployment"},
    {"{" MODEL ", " WORK ", 'strategy': {}, 'deployment': {'devices': 1, 'memory_bytes': 1}}", "conflict /deployment"},
    {"{" MODEL ", " WORK ", 'strategy': {}, 'target': {'kind': 'none'}, 'deployment': {'devices': 1, "
     "'memory_bytes': 1}}",
     "unknown_value /target/kind"},
    {"{" MODEL ", " WORK ", 'strategy': {}, 'target': {'revision': 1}, 'deployment': {'hosts': 1}}",
     "unknown_key /target/revision, missing_key /target/kind, unknown_key /deployment/hosts, "
     "missing_key /deployment/devices, missing_key /deployment/memory_bytes"},
    {"{" MODEL ", " WORK ", 'strategy': {'tensor_parallel': 2}, 'target': {'kind': 'reference-queue'}, "
     "'deployment': {'devices': 1, 'memory_bytes': 0}}",
     "out_of_range /deployment/memory_bytes, conflict /deployment/devices"},
    /* everything at once, through the form, the model and what holds between values */
    {"{'model': {'huggingface': {'model_type': 'mistral', 'hidden_size': 64, 'num_hidden_layers': 7, 'vocab_size': 9, "
     "'intermediate_size': 33}}, 'workload': {'mode': 'training', 'sequence_length': 9, 'micro_batch_size': 2, "
     "'global_batch_size': 9, 'dtype': 'bf16'}, 'strategy': {'tensor_parallel': 2, 'pipeline_parallel': 2, "
     "'sequence_parallel': true, 'virtual_stages': 3, 'colour': 1}, 'target': {'kind': 'reference-queue'}, "
     "'deployment': {'devices': 1, 'memory_bytes': 1}}",
     "unknown_value /workload/dtype, "
     "unknown_key /strategy/colour, not_divisible /strategy/tensor_parallel, not_divisible /workload/sequence_length, "
     "conflict /strategy/virtual_stages, not_divisible /strategy/pipeline_parallel, "
     "not_divisible /workload/global_batch_size, conflict /deployment/devices"},
};

START_TEST(test_request__every_problem_is_named_where_it_is)
{
    read_text(refusals[_i].request);
    ck_assert_str_eq(line_of(&problems), refusals[_i].problems);
    for (size_t i = 0; i < problems.n; i++)
        ck_assert_str_ne(problems.at[i].message, "");
}
END_TEST

START_TEST(test_request__a_division_names_both_numbers)
{
    read_text(TRAIN("'tensor_parallel': 3"));
    ck_assert(some_message_has(&problems, "hidden_size 64 is not divisible by tensor_parallel 3"));
    ck_assert(some_message_has(&problems, "num_attention_heads 8 is not divisible"));
    ck_assert(some_message_has(&problems, "num_key_value_heads 2 nor tensor_parallel 3"));
}
END_TEST

START_TEST(test_request__a_sequence_may_use_the_whole_position_table)
{
    valid("{'model': {'huggingface': {'model_type': 'opt', 'hidden_size': 24, 'num_hidden_layers': 2, 'vocab_size': 9, "
          "'max_position_embeddings': 16}}, 'workload': {'mode': 'inference', 'phase': 'prefill', 'batch_size': 3, "
          "'context_length': 16, 'dtype': 'float8'}, 'strategy': {}}");
}
END_TEST

/* Strategies, and their canonical form: what has no effect or is the default is left out. */
static const struct {
    const char *request, *strategy;
} normal_forms[] = {
    {TRAIN(""), "{}"},
    {TRAIN("'tensor_parallel': 1, 'pipeline_parallel': 1, 'data_parallel': 1, 'sequence_parallel': false, "
           "'recompute': 'none', 'recompute_all_gather': false, 'pipeline_schedule': 'none', 'virtual_stages': 1, "
           "'zero_stage': 0, 'recompute_activation': false"),
     "{}"},
    {TRAIN("'sequence_parallel': true, 'recompute_all_gather': true"), "{}"},
    {TRAIN("'sequence_parallel': true, 'recompute_all_gather': false"), "{}"},
    {TRAIN("'tensor_parallel': 2, 'recompute_all_gather': true"), "{'tensor_parallel':2}"},
    {TRAIN("'tensor_parallel': 2, 'sequence_parallel': true"), "{'sequence_parallel':true,'tensor_parallel':2}"},
    {TRAIN("'tensor_parallel': 2, 'sequence_parallel': true, 'recompute_all_gather': true"),
     "{'sequence_parallel':true,'tensor_parallel':2}"},
    {TRAIN("'tensor_parallel': 2, 'sequence_parallel': true, 'recompute_all_gather': false"),
     "{'recompute_all_gather':false,'sequence_parallel':true,'tensor_parallel':2}"},
    {TRAIN("'tensor_parallel': 2, 'sequence_parallel': true, 'recompute_all_gather': false, 'recompute': 'full'"),
     "{'recompute':'full','sequence_parallel':true,'tensor_parallel':2}"},
    {TRAIN("'tensor_parallel': 2, 'sequence_parallel': true, 'recompute_all_gather': false, 'recompute': 'selective'"),
     "{'recompute':'selective','recompute_all_gather':false,'sequence_parallel':true,'tensor_parallel':2}"},
    {TRAIN("'zero_stage': 3"), "{}"},
    {TRAIN("'zero_stage': 3, 'data_parallel': 2"), "{'data_parallel':2,'zero_stage':3}"},
    {TRAIN("'pipeline_schedule': 'interleaved'"), "{}"},
    {TRAIN("'pipeline_schedule': 'gpipe'"), "{}"},
    {TRAIN("'pipeline_schedule': '1f1b', 'pipeline_parallel': 2"), "{'pipeline_parallel':2}"},
    {TRAIN("'pipeline_schedule': 'gpipe', 'pipeline_parallel': 2"),
     "{'pipeline_parallel':2,'pipeline_schedule':'gpipe'}"},
    {TRAIN("'pipeline_schedule': 'interleaved', 'pipeline_parallel': 2, 'virtual_stages': 3"),
     "{'pipeline_parallel':2,'pipeline_schedule':'interleaved','virtual_stages':3}"},
    {TRAIN("'recompute_activation': true"), "{'recompute_activation':true}"},
    {INFER(""), "{}"},
    {INFER("'replicas': 1, 'pipeline_parallel': 1"), "{}"},
    {INFER("'replicas': 4, 'pipeline_parallel': 2, 'tensor_parallel': 8"),
     "{'pipeline_parallel':2,'replicas':4,'tensor_parallel':8}"},
};

START_TEST(test_request__fields_without_effect_come_out_at_their_defaults)
{
    struct bp_request request = valid(normal_forms[_i].request);
    ck_assert_str_eq(written_strategy(&request), normal_forms[_i].strategy);
}
END_TEST

START_TEST(test_request__the_canonical_form_reads_as_the_same_request)
{
    struct bp_request request = valid(normal_forms[_i].request);
    char *text = strdup(written(&request));
    struct bp_request again = valid(text);
    ck_assert_str_eq(written(&again), text);
    ck_assert_mem_eq(&again.workload, &request.workload, sizeof again.workload);
    ck_assert(again.strategy.recompute_all_gather == request.strategy.recompute_all_gather &&
              again.strategy.sequence_parallel == request.strategy.sequence_parallel &&
              again.strategy.pipeline_schedule == request.strategy.pipeline_schedule &&
              again.strategy.zero_stage == request.strategy.zero_stage);
    free(text);
}
END_TEST

START_TEST(test_request__bindings_read_back_as_they_were_written)
{
    struct bp_request request = valid(normal_forms[_i].request);
    struct bp_request again = request;
    json_t *strategy = json_of(written_strategy(&request)), *workload = json_of(written_workload(&request));
    struct bp_reader strategy_reader = bp_reader_of(strategy, "/strategy", &problems);
    struct bp_reader workload_reader = bp_reader_of(workload, "/workload", &problems);
    again.strategy = (struct bp_strategy){0};
    again.workload = (struct bp_workload){0};
    bp_strategy_read(&strategy_reader, request.workload.mode, &again.strategy);
    bp_workload_read(&workload_reader, &again.workload);
    ck_assert_str_eq(line_of(&problems), "");
    char *text = strdup(written(&request));
    ck_assert_str_eq(written(&again), text);
    free(text);
    json_decref(strategy);
    json_decref(workload);
}
END_TEST

START_TEST(test_request__canonical_text_of_a_training_request)
{
    struct bp_request request =
        valid("{" MODEL ", 'workload': {'mode': 'training', 'sequence_length': 128, 'micro_batch_size': 2, "
              "'global_batch_size': 24, 'dtype': 'bfloat16', 'gradient_dtype': 'bfloat16'}, 'strategy': "
              "{'tensor_parallel': 8, 'data_parallel': 3}" TARGET "}");
    ck_assert_str_eq(
        written(&request),
        "{'deployment':{'devices':8,'memory_bytes':1000},'model':{'transformer':{'activation':'swiglu',"
        "'hidden_size':64,'intermediate_size':96,'max_position_embeddings':128,'name':'m','norm':'rmsnorm',"
        "'num_attention_heads':8,'num_hidden_layers':12,'num_key_value_heads':2,'position':'learned',"
        "'vocab_size':50}},'strategy':{'data_parallel':3,'tensor_parallel':8},'target':{'kind':'reference-queue'},"
        "'workload':{'dtype':'bfloat16','global_batch_size':24,'gradient_dtype':'bfloat16','micro_batch_size':2,"
        "'mode':'training','sequence_length':128}}");
}
END_TEST

START_TEST(test_request__canonical_text_of_an_inference_request)
{
    struct bp_request request = valid(INFER("'replicas': 2"));
    const char *tail = "'strategy':{'replicas':2},'workload':{'batch_size':3,'context_length':128,'dtype':'float8',"
                       "'mode':'inference','phase':'decode'}}";
    const char *text = written(&request);
    ck_assert_ptr_null(strstr(text, "deployment"));
    ck_assert_str_eq(strstr(text, "'strategy'"), tail);
}
END_TEST

START_TEST(test_request__default_gradient_dtype_is_float32_and_left_out)
{
    struct bp_request request = valid(TRAIN(""));
    ck_assert_int_eq(request.workload.gradient_dtype, BP_DTYPE_FLOAT32);
    ck_assert_ptr_null(strstr(written(&request), "gradient_dtype"));
}
END_TEST

START_TEST(test_request__element_sizes)
{
    static const uint64_t bytes[] = {1, 2, 2, 4};
    for (int i = 0; bp_dtype_names[i]; i++)
        ck_assert_uint_eq(bp_dtype_bytes((enum bp_dtype)i), bytes[i]);
}
END_TEST

START_TEST(test_request__a_lost_problem_is_not_a_success)
{
    struct bp_request request = {0};
    struct bp_config config = {0};
    json_t *body = json_of("{" WORK ", 'strategy': {}}");
    problems.out_of_memory = true;
    ck_assert_int_eq(bp_request_read(body, &arena, &problems, &request, &config), -1);
    json_decref(body);
    bp_problems_release(&problems);
    body = json_of(TRAIN(""));
    problems.out_of_memory = true;
    ck_assert_int_eq(bp_request_read(body, &arena, &problems, &request, &config), -1);
    json_decref(body);
}
END_TEST

static void release(void)
{
    bp_problems_release(&problems);
    bp_arena_release(&arena);
}

#define LOOP(tcase, test, table) tcase_add_loop_test(tcase, test, 0, (int)(sizeof table / sizeof *table))

Suite *suite_request(void)
{
    Suite *suite = suite_create("request");
    TCase *tcase = tcase_create("request");
    tcase_add_checked_fixture(tcase, NULL, release);
    LOOP(tcase, test_request__every_problem_is_named_where_it_is, refusals);
    tcase_add_test(tcase, test_request__a_division_names_both_numbers);
    tcase_add_test(tcase, test_request__a_sequence_may_use_the_whole_position_table);
    LOOP(tcase, test_request__fields_without_effect_come_out_at_their_defaults, normal_forms);
    LOOP(tcase, test_request__the_canonical_form_reads_as_the_same_request, normal_forms);
    LOOP(tcase, test_request__bindings_read_back_as_they_were_written, normal_forms);
    tcase_add_test(tcase, test_request__canonical_text_of_a_training_request);
    tcase_add_test(tcase, test_request__canonical_text_of_an_inference_request);
    tcase_add_test(tcase, test_request__default_gradient_dtype_is_float32_and_left_out);
    tcase_add_test(tcase, test_request__element_sizes);
    tcase_add_test(tcase, test_request__a_lost_problem_is_not_a_success);
    suite_add_tcase(suite, tcase);
    return suite;
}
