/* The texts that Megatron-LM's arguments come in: words, YAML, malformed and hostile ones. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fault_alloc.h"
#include "tests/unit/importing.h"

START_TEST(test_megatron__what_is_missing_or_malformed_is_named)
{
    ck_assert_str_eq(refused("--bf16"), "missing_key --seq-length, missing_key --micro-batch-size, "
                                        "missing_key --num-layers, missing_key --hidden-size, "
                                        "missing_key --num-attention-heads, missing_key --max-position-embeddings, "
                                        "missing_key --vocab-size");
    static const struct {
        const char *more, *problems, *message;
    } cases[] = {
        {"--num-layers 96x", "wrong_type --num-layers", "line 1, column 140: \"96x\" is not a whole number"},
        {"--num-layers ''", "wrong_type --num-layers", "\"\" is not"},
        {"--num-layers 0", "out_of_range --num-layers", "between 1 and"},
        {"--num-layers -4", "wrong_type --num-layers", "-4"},
        {"--num-layers 9007199254740992", "out_of_range --num-layers", "9007199254740991"},
        {"--num-layers 99999999999999999999999999999999999999", "out_of_range --num-layers", "between"},
        {"--num-layers $LAYERS", "wrong_type --num-layers", "$LAYERS"},
        {"--num-layers", "missing_key --num-layers", "needs a value"},
        {"--num-layers --bf16", "missing_key --num-layers", "needs a value"},
        {"--bf16=1", "wrong_type --bf16", "takes no value"},
        {"--bf16 1", "invalid_request ", "1 is neither an argument"},
        {"--num-layers 8 9", "invalid_request ", "9 is neither"},
        {"-x", "invalid_request ", "-x is neither"},
        {"--hidden-dropout often", "wrong_type --hidden-dropout", "often"},
        {"--hidden-dropout -0.1", "wrong_type --hidden-dropout", "at least 0"},
        {"--hidden-dropout 1e", "wrong_type --hidden-dropout", "1e"},
        {"--hidden-dropout .", "wrong_type --hidden-dropout", "."},
        {"--hidden-size 9007199254740991", "out_of_range --hidden-size, not_divisible --num-attention-heads", "2^53"},
        {"--num-query-groups 0 --group-query-attention", "out_of_range --num-query-groups", "between 1"},
        {"--unknown ${ARGS[@]}", "invalid_request --unknown", "${ARGS[@]} would be expanded"},
        {"--bf16 $ARGS", "invalid_request ", "$ARGS is neither"},
        {"--data-path a $B", "invalid_request --data-path", "$B would be expanded"},
        {"--lr ${ARGS[*]}", "invalid_request --lr", "would be expanded"},
        {"--a$B", "invalid_request --a$B", "name would be expanded"},
        {"--cp-comm-type a2a+p2p --context-parallel-size 2", "unsupported_feature --cp-comm-type", "p2p"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[600];
        snprintf(text, sizeof text, LEAST "%s", cases[i].more);
        ck_assert_str_eq(refused(text), cases[i].problems);
        ck_assert_msg(some_message_has(&import_problems, cases[i].message), "%s: %s", cases[i].more,
                      import_problems.at[0].message);
    }
}
END_TEST

START_TEST(test_megatron__words_are_a_shells)
{
    ck_assert_str_eq(refused("''"), "invalid_request ");
    planned("# --bf16\n" LEAST
            "--save a\\ b\"c d\"'e \\f' --load \"g\\\"h\\i\\\n\\$j\" --split a#b --data-path \\\n x\\\r\n y"
            "\t''\r\n--log-interval=1=2 # end");
    expect_left("--save", "a bc de \\f", "saving");
    expect_left("--load", "g\"h\\i$j", "saving");
    expect_left("--split", "a#b", "data");
    expect_left("--data-path", "x y ", "data");
    expect_left("--log-interval", "1=2", "watching");
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"--save 'a\n b", "line 1, column 8: a quote that is not closed"},
        {"\n --save \"a", "line 2, column 9: a quote that is not closed"},
        {"--save \"a\\", "a backslash at the end"},
        {"--save a\\", "a backslash at the end"},
        {"--lr 1 | tee log", "line 1, column 8: more than the words of one command"},
        {"--lr 1; rm x", "more than the words"},
        {"--lr 1 2>&1", "more than the words"},
        {"--lr $(cat x)", "more than the words"},
        {"--lr `cat x`", "more than the words"},
        {"--lr \"`cat x`\"", "a command within the command"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        refused(cases[i].text);
        ck_assert_msg(some_message_has(&import_problems, cases[i].message), "%s: %s", cases[i].text,
                      line_of(&import_problems));
    }
    ck_assert_int_eq(import_bytes("--lr\0 1", 7), 0);
    ck_assert(some_message_has(&import_problems, "a NUL byte"));
    ck_assert_int_eq(import_bytes("", 0), 0);
    ck_assert(some_message_has(&import_problems, "is required"));
}
END_TEST

/* The shape of Megatron-LM's example YAML, with groups, nulls and lists. */
static const char yaml[] = "# WARNING: Yaml configs is currently an experimental feature\n"
                           "language_model:\n"
                           "  # model architecture\n"
                           "  num_layers: 24\n"
                           "  hidden_size: 1024\n"
                           "  num_attention_heads: 16\n"
                           "  num_query_groups: null\n"
                           "  ffn_hidden_size: null\n"
                           "  kv_channels: ~\n"
                           "  hidden_dropout: 0.0\n"
                           "  attention_dropout: 0.0\n"
                           "  fp32_residual_connection: False\n"
                           "  layernorm_epsilon: 1.e-5\n"
                           "  add_bias_linear: False\n"
                           "  add_qkv_bias: False\n"
                           "  activation_func: swiglu\n"
                           "  num_moe_experts: null\n"
                           "  fp8: null\n"
                           "  recompute_granularity: null\n"
                           "  distribute_saved_activations: null\n"
                           "  normalization: \"LayerNorm\"  # alt value supported by TE: \"RMSNorm\"\n"
                           "  moe_router_topk: 2\n"
                           "model_parallel:\n"
                           "  tensor_model_parallel_size: 1\n"
                           "  context_parallel_size: 1\n"
                           "  pipeline_model_parallel_size: 1\n"
                           "  virtual_pipeline_model_parallel_size: null\n"
                           "  sequence_parallel: True\n"
                           "  expert_model_parallel_size: 1\n"
                           "  fp16: False\n"
                           "  bf16: True\n"
                           "  cpu_offloading: False\n"
                           "  cpu_offloading_num_layers: 0\n"
                           "  grad-scale-func: null\n"
                           "spec: null\n"
                           "micro_batch_size: 2\n"
                           "global_batch_size: 128\n"
                           "rampup_batch_size: [32, 32, 65324160] \n"
                           "add_position_embedding: False\n"
                           "group_query_attention: False\n"
                           "untie_embeddings_and_output_weights: True\n"
                           "position_embedding_type: rope\n"
                           "rotary_percent: 0.5\n"
                           "swiglu: True\n"
                           "max_position_embeddings: 4096\n"
                           "accumulate_allreduce_grads_in_fp32: False\n"
                           "use_distributed_optimizer: False\n"
                           "split: '99,1,0'\n"
                           "seq_length: 4096\n"
                           "make_vocab_size_divisible_by: 128\n"
                           "dunno: {deeper: [1, x]}\n";

START_TEST(test_megatron__yaml_is_read_by_groups)
{
    import_options.vocab_size = 32000;
    ck_assert_str_eq(planned(yaml),
                     "{'model':{'transformer':{'activation':'swiglu','hidden_size':1024,'intermediate_size':2688,"
                     "'name':'megatron','norm':'layernorm','num_attention_heads':16,'num_hidden_layers':24,"
                     "'position':'rope','vocab_size':32000}},'strategy':{},'workload':{'dtype':'bfloat16',"
                     "'global_batch_size':128,'micro_batch_size':2,'mode':'training','sequence_length':4096}}");
    expect_left("sequence_parallel", "True", "without tensor parallelism");
    expect_left("rampup_batch_size", "32 32 65324160", "full batch");
    expect_left("deeper", "1 x", "not an argument that is known");
    expect_left("layernorm_epsilon", "1.e-5", "not of how much");
    expect_left("--accumulate-allreduce-grads-in-fp32", "", "switched on");
    ck_assert_ptr_null(left("spec"));
    ck_assert_ptr_null(left("fp32_residual_connection"));
}
END_TEST

#define YAML                                                                                                           \
    "num-layers: 8\nhidden-size: 64\nnum-attention-heads: 8\nseq-length: 32\nmax-position-embeddings: 32\n"            \
    "micro-batch-size: 2\nvocab-size: 100\n"

START_TEST(test_megatron__yaml_says_what_the_command_line_says)
{
    ck_assert_str_eq(planned(YAML), LEAST_MODEL("'strategy':{}," LEAST_WORK));
    ck_assert_str_eq(planned("---\n" YAML "...\n"), LEAST_MODEL("'strategy':{}," LEAST_WORK));
    ck_assert_ptr_nonnull(strstr(planned(YAML "num_query_groups: 2\n"), "'num_key_value_heads':2"));
    ck_assert_ptr_nonnull(strstr(planned(YAML "activation_func: squaredrelu\n"), "'relu'"));
    expect_left("activation_func", "squaredrelu", "planned as relu");
    ck_assert_ptr_nonnull(strstr(planned(YAML "qk_layernorm: yes\nfp8: None\n"), "'qk_norm':true"));
    static const struct {
        const char *more, *problems, *message;
    } cases[] = {
        {"swiglu: maybe\n", "wrong_type swiglu", "line 8, column 1: must be true or false"},
        {"num_query_groups: [1, 2]\n", "wrong_type num_query_groups", "needs one value"},
        {"swiglu: []\n", "wrong_type swiglu", "needs one value"},
        {"g:\n  num_layers: 8\n", "duplicate_key ", "line 9, column 3: an argument that was given before"},
        {"x: 1\nx: 2\n", "duplicate_key ", "line 9"},
        {"encoder_num_layers: 8\n", "duplicate_key ", "given before"},
        {"fp8: hybrid\n", "unsupported_feature fp8", "float8"},
        {"cpu_offloading: True\n", "unsupported_feature cpu_offloading", "offloading"},
        {"x: &a 1\ny: *a\n", "unsupported_feature ", "line 9, column 4: an alias"},
        {"x: [[1]]\n", "too_deep ", "a list within a list"},
        {"x: [{a: 1}]\n", "too_deep ", "a list within a list"},
        {"a: {a: {a: {a: {a: {a: {a: {a: {b: 1}}}}}}}}\n", "too_deep ", "nest too deep"},
        {"? [a]\n: 1\n", "wrong_type ", "a key must be a name"},
        {"a: b: c\n", "invalid_request ", "line 8"},
        {"a: \"b\n", "invalid_request ", "line"},
        {"a: \"b\\0c\"\n", "invalid_request ", "a NUL character"},
        {"a: '\xff'\n", "invalid_request ", "UTF-8"},
        {"---\na: 1\n", "unsupported_feature ", "a second document"},
        {"--bf16\n", "invalid_request ", "line"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[600];
        snprintf(text, sizeof text, YAML "%s", cases[i].more);
        ck_assert_str_eq(refused(text), cases[i].problems);
        ck_assert_msg(some_message_has(&import_problems, cases[i].message), "%s: %s", cases[i].more,
                      import_problems.at[0].message);
    }
    ck_assert_str_eq(refused("--- [a]\n"), "wrong_type ");
    ck_assert_str_eq(refused("--- a\n"), "wrong_type ");
    ck_assert_str_eq(refused("---\n"), "wrong_type ");
}
END_TEST

/* Hostile sizes end in a refusal, soon. */
START_TEST(test_megatron__no_text_is_too_much)
{
    enum { N = BP_PEER_TEXT_MAX };
    static const struct {
        const char *head, *unit;
        size_t times;
        const char *problem;
    } cases[] = {
        {"", "--a ", 5000, "out_of_range "},       {"", "--num-layers 1 ", N / 15, "out_of_range "},
        {"--data-path ", "x ", N / 2 - 8, NULL},   {"", "'", N - 1, NULL},
        {"a: ", "[", N - 8, "too_deep "},          {"", "a: {", N / 4, "too_deep "},
        {"a: &a ", "[*a, ", N / 5 - 2, NULL},      {"a:\n", "? ", N / 2 - 4, NULL},
        {"a: \"", "x", N - 8, "invalid_request "},
    };
    char *text = malloc(N + 1);
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].head), unit = strlen(cases[i].unit);
        memcpy(text, cases[i].head, n);
        for (size_t j = 0; j < cases[i].times; j++, n += unit)
            memcpy(text + n, cases[i].unit, unit);
        ck_assert_uint_le(n, N);
        ck_assert_int_eq(import_bytes(text, n), 0);
        ck_assert(import_problems.n > 0);
        if (cases[i].problem)
            ck_assert_str_eq(line_of(&import_problems), cases[i].problem);
    }
    for (unsigned n = 0; n < 4097; n++) { /* distinct keys, of which each is looked for among the others */
        char line[32];
        int length = snprintf(line, sizeof line, "k%u: 1\n", n);
        memcpy(text + (n ? strlen(text) : 0), line, (size_t)length + 1);
    }
    ck_assert_str_eq(refused(text), "out_of_range ");
    memset(text, 'a', N + 1);
    ck_assert_int_eq(import_bytes(text, N + 1), 0);
    ck_assert_str_eq(line_of(&import_problems), "out_of_range ");
    free(text);
}
END_TEST

/* Each allocation in turn fails: the import says so, and nothing else. */
START_TEST(test_megatron__memory_that_runs_out_is_said)
{
    static const char *const texts[] = {import_gpt3, yaml, LEAST "--num-layers 9 --squared-relu"};
    import_options.vocab_size = 32000;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int result = -1;
        for (long n = 0; result < 0; n++) {
            import_forget();
            bp_fault_alloc_after(n);
            result = bp_megatron_import((struct bp_peer_text){texts[i], strlen(texts[i])}, &import_options,
                                        &import_arena, &import_problems, &imported);
            ck_assert(bp_fault_alloc_off() == (result < 0));
        }
        ck_assert(imported.text.len > 0);
    }
}
END_TEST

Suite *suite_import_texts(void)
{
    Suite *suite = suite_create("import_texts");
    TCase *tcase = tcase_create("import_texts");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, import_begin, import_forget);
    tcase_add_test(tcase, test_megatron__what_is_missing_or_malformed_is_named);
    tcase_add_test(tcase, test_megatron__words_are_a_shells);
    tcase_add_test(tcase, test_megatron__yaml_is_read_by_groups);
    tcase_add_test(tcase, test_megatron__yaml_says_what_the_command_line_says);
    tcase_add_test(tcase, test_megatron__no_text_is_too_much);
    tcase_add_test(tcase, test_megatron__memory_that_runs_out_is_said);
    suite_add_tcase(suite, tcase);
    return suite;
}
