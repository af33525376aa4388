/* Calculon's application and execution as requests: what is carried over, listed and refused. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/fault_alloc.h"
#include "tests/unit/importing.h"

/* Calculon's models/megatron-1T.json and examples/3072_t4_p64_d12_mbs4_full.json. */
#define MEGATRON_1T                                                                                                    \
    "{'hidden': 25600, 'feedforward': 102400, 'seq_size': 2048, 'attn_heads': 160, 'attn_size': 160, "                 \
    "'num_blocks': 128}"
#define FULL_3072                                                                                                      \
    "{'num_procs': 3072, 'tensor_par': 4, 'pipeline_par': 64, 'data_par': 12, 'tensor_par_net': 0, "                   \
    "'pipeline_par_net': 1, 'data_par_net': 1, 'batch_size': 3072, 'microbatch_size': 4, 'datatype': 'float16', "      \
    "'fused_activation': true, 'attention_type': 'multihead', 'activation_recompute': 'full', "                        \
    "'pipeline_interleaving': 1, 'optimizer_sharding': true, 'tensor_par_comm_type': 'rs_ag', "                        \
    "'tensor_par_overlap': 'none', 'seq_par_ag_redo': false, 'data_par_overlap': false, 'weight_offload': false, "     \
    "'activations_offload': false, 'optimizer_offload': false, 'training': true}"
#define MODEL_1T                                                                                                       \
    "{'model':{'transformer':{'activation':'gelu','attention_dropout':true,'bias':true,'hidden_dropout':true,"         \
    "'hidden_size':25600,'intermediate_size':102400,'max_position_embeddings':2048,'name':'calculon',"                 \
    "'norm':'layernorm','num_attention_heads':160,'num_hidden_layers':128,'position':'learned',"                       \
    "'tie_word_embeddings':true,'vocab_size':51200}},"

/* One line of an execution that trains, with all that is required; `more` ends it. */
#define TRAIN(t, p, d, batch, more)                                                                                    \
    "{'training': true, 'tensor_par': " #t ", 'pipeline_par': " #p ", 'data_par': " #d ", 'batch_size': " #batch       \
    ", 'microbatch_size': 1, 'datatype': 'bfloat16'" more "}"
#define SMALL                                                                                                          \
    "{'name': 'small', 'hidden': 64, 'feedforward': 256, 'seq_size': 32, 'attn_heads': 8, 'attn_size': 8, "            \
    "'num_blocks': 10}"

static const char *pair(const char *application, const char *execution)
{
    ck_assert_int_eq(import_pair(application, execution), 0);
    return import_as_plan();
}

static const char *pair_refused(const char *application, const char *execution)
{
    ck_assert_int_eq(import_pair(application, execution), 0);
    ck_assert_uint_eq(imported.text.len, 0);
    return line_of(&import_problems);
}

static void expect_strategy(const char *execution, const char *strategy)
{
    const char *request = pair(SMALL, execution), *found = strstr(request, "'strategy':");
    ck_assert_msg(strncmp(found + strlen("'strategy':"), strategy, strlen(strategy)) == 0, "%s: %s", execution, found);
}

START_TEST(test_calculon__its_trillion_parameters_come_out_whole)
{
    ck_assert_str_eq(pair(MEGATRON_1T, FULL_3072),
                     MODEL_1T "'strategy':{'data_parallel':12,'pipeline_parallel':64,'recompute':'full',"
                              "'sequence_parallel':true,'tensor_parallel':4,'zero_stage':1},"
                              "'workload':{'dtype':'float16','global_batch_size':3072,'micro_batch_size':4,"
                              "'mode':'training','sequence_length':2048}}");
    expect_left("vocab_size", "51200", "parameter count");
    expect_left("fused_activation", "true", "no effect");
    expect_left("tensor_par_net", "0", "of the network");
    expect_left("pipeline_par_net", "1", "of the network");
    expect_left("data_par_net", "1", "of the network");
    expect_left("tensor_par_overlap", "\"none\"", "pace");
    expect_left("data_par_overlap", "false", "pace");
    ck_assert_uint_eq(imported.n_leftovers, 7);
}
END_TEST

/* 12LH^2 + 13LH + (V + S)H as Calculon counts, and the final norm, which it does not. */
START_TEST(test_calculon__parameters_are_its_own_and_the_final_norm)
{
    struct bp_parameter_count count;
    import_options.form = BP_PEER_FIT;
    import_options.memory_bytes = 80000000000;
    ck_assert_int_eq(import_pair(MEGATRON_1T, FULL_3072), 0);
    struct bp_whole_job job = import_as_job();
    ck_assert_int_eq(bp_model_count(&job.request.model, &count, NULL), 0);
    ck_assert(count.total == UINT64_C(1008038707200) + 2 * 25600);
    ck_assert_int_eq(job.conventions.kernel, BP_KERNEL_UNFUSED);
    ck_assert_int_eq(job.optimizer, BP_ADAM);
}
END_TEST

/* Calculon's validation/175B_seqsel.json, of Megatron's measured runs. */
START_TEST(test_calculon__selective_recomputation_is_carried_over)
{
    ck_assert_str_eq(
        pair("{'hidden': 12288, 'feedforward': 49152, 'seq_size': 2048, 'attn_heads': 96, 'attn_size': 128, "
             "'num_blocks': 96}",
             "{'num_procs': 64, 'tensor_par': 8, 'pipeline_par': 8, 'data_par': 1, 'tensor_par_net': 1, "
             "'pipeline_par_net': 2, 'data_par_net': 2, 'batch_size': 64, 'microbatch_size': 1, "
             "'datatype': 'float16', 'activation_recompute': 'attn_only', 'pipeline_interleaving': 3, "
             "'optimizer_sharding': false, 'tensor_par_comm_type': 'rs_ag', 'seq_par_ag_redo': true, "
             "'data_par_overlap': false, 'weight_offload': false, 'activations_offload': false, "
             "'optimizer_offload': false, 'training': true}"),
        "{'model':{'transformer':{'activation':'gelu','attention_dropout':true,'bias':true,'hidden_dropout':true,"
        "'hidden_size':12288,'intermediate_size':49152,'max_position_embeddings':2048,'name':'calculon',"
        "'norm':'layernorm','num_attention_heads':96,'num_hidden_layers':96,'position':'learned',"
        "'tie_word_embeddings':true,'vocab_size':51200}},"
        "'strategy':{'pipeline_parallel':8,'pipeline_schedule':'interleaved','recompute':'selective',"
        "'sequence_parallel':true,'tensor_parallel':8,'virtual_stages':3},"
        "'workload':{'dtype':'float16','global_batch_size':64,'micro_batch_size':1,'mode':'training',"
        "'sequence_length':2048}}");
}
END_TEST

START_TEST(test_calculon__strategies_are_carried_over)
{
    expect_strategy(TRAIN(2, 1, 1, 4, ", 'num_procs': 2, 'tensor_par_comm_type': 'rs_ag'"),
                    "{'recompute_all_gather':false,'sequence_parallel':true,'tensor_parallel':2}");
    expect_strategy(TRAIN(2, 1, 1, 4, ", 'num_procs': 2, 'tensor_par_comm_type': 'p2p_rs_ag'"),
                    "{'tensor_parallel':2}");
    expect_left("tensor_par_comm_type", "\"p2p_rs_ag\"", "between stages");
    expect_left("name", "\"small\"", "label");
    expect_strategy(TRAIN(1, 1, 2, 4, ", 'num_procs': 2, 'tensor_par_comm_type': 'rs_ag', 'fused_activation': true"),
                    "{'data_parallel':2,'recompute_activation':true}");
    expect_left("tensor_par_comm_type", "\"rs_ag\"", "no effect");
    expect_left("fused_activation", "true", "as many bytes");
    /* Layers that do not divide are the first stages'. */
    expect_strategy(TRAIN(1, 4, 1, 4, ", 'num_procs': 4"), "{'pipeline_layers':[3,3,2,2],'pipeline_parallel':4}");
    ck_assert_ptr_nonnull(
        strstr(pair(SMALL, TRAIN(1, 1, 1, 4, ", 'num_procs': 1, 'attention_type': 'multiquery', 'new': [1, {'a': 2}]")),
               "'num_key_value_heads':1"));
    expect_left("new", "[1,{\"a\":2}]", "not a key that is known");
    import_options.vocab_size = 100;
    ck_assert_ptr_nonnull(strstr(pair(SMALL, TRAIN(1, 1, 1, 4, ", 'num_procs': 1")), "'vocab_size':100"));
    ck_assert_ptr_null(left("vocab_size"));
}
END_TEST

START_TEST(test_calculon__inference_is_a_prefill)
{
    static const char execution[] =
        "{'num_procs': 8, 'tensor_par': 2, 'pipeline_par': 2, 'data_par': 2, 'batch_size': 16, 'microbatch_size': 4, "
        "'datatype': 'float8', 'training': false, 'fused_activation': true, 'pipeline_interleaving': 1, "
        "'optimizer_sharding': false}";
    const char *request = pair(SMALL, execution);
    ck_assert_ptr_nonnull(strstr(request,
                                 "'strategy':{'pipeline_parallel':2,'replicas':2,'tensor_parallel':2},"
                                 "'workload':{'batch_size':4,'context_length':32,'dtype':'float8','mode':'inference',"
                                 "'phase':'prefill'}}"));
    expect_left("batch_size", "16", "one micro-batch");
    expect_left("fused_activation", "true", "no effect");
    import_options.form = BP_PEER_FIT;
    import_options.memory_bytes = 1000000;
    ck_assert_int_eq(import_pair(SMALL, execution), 0);
    ck_assert_int_eq(import_as_job().request.workload.mode, BP_MODE_INFERENCE);
}
END_TEST

START_TEST(test_calculon__what_would_change_numbers_is_refused_by_key)
{
    static const struct {
        const char *application, *execution, *problems;
    } cases[] = {
        {SMALL, "{}",
         "missing_key execution/training, missing_key execution/num_procs, missing_key execution/tensor_par, "
         "missing_key execution/pipeline_par, missing_key execution/data_par, missing_key execution/batch_size, "
         "missing_key execution/microbatch_size, missing_key execution/datatype"},
        {"{}", TRAIN(1, 1, 1, 4, ", 'num_procs': 1"),
         "missing_key application/hidden, missing_key application/feedforward, missing_key application/attn_heads, "
         "missing_key application/attn_size, missing_key application/num_blocks, missing_key application/seq_size"},
        {"[]", "1", "wrong_type application, wrong_type execution"},
        {SMALL, "{'a': }", "invalid_json execution"},
        {"{'a': 1, 'a': 2}", "", "duplicate_key application, empty_body execution"},
        {SMALL, TRAIN(1, 1, 1, 4, ", 'num_procs': 2"), "conflict execution/num_procs"},
        {SMALL, TRAIN(9007199254740991, 5, 9007199254740991, 4, ", 'num_procs': 2"), "conflict execution/num_procs"},
        {SMALL, TRAIN(1e3, 1, 1, 4, ", 'num_procs': 2"), "wrong_type execution/tensor_par"},
        {SMALL, TRAIN(1, 1, 1, 99999999999999999999, ", 'num_procs': 1"), "out_of_range execution/batch_size"},
        {SMALL, TRAIN(1, 1, 1, 4, ", 'num_procs': 1, 'weight_offload': true, 'optimizer_offload': 1"),
         "unsupported_feature execution/weight_offload, wrong_type execution/optimizer_offload"},
        {SMALL, TRAIN(1, 1, 1, 4, ", 'num_procs': 1, 'in_network_reduction': true"),
         "unsupported_feature execution/in_network_reduction"},
        {SMALL, TRAIN(1, 1, 1, 4, ", 'num_procs': 1, 'activation_recompute': 'some', 'attention_type': 'x'"),
         "unknown_value execution/attention_type, unknown_value execution/activation_recompute"},
        {SMALL, TRAIN(2, 1, 1, 4, ", 'num_procs': 2, 'seq_par_ag_redo': true, 'tensor_par_comm_type': 'ar'"),
         "conflict execution/seq_par_ag_redo"},
        {SMALL,
         TRAIN(2, 1, 1, 4,
               ", 'num_procs': 2, 'seq_par_ag_redo': true, 'tensor_par_comm_type': 'rs_ag', "
               "'activation_recompute': 'full'"),
         "conflict execution/seq_par_ag_redo"},
        {SMALL, TRAIN(1, 4, 1, 4, ", 'num_procs': 4, 'pipeline_interleaving': 3"),
         "not_divisible execution/pipeline_interleaving"},
        {SMALL, TRAIN(1, 300, 1, 4, ", 'num_procs': 300"), "out_of_range execution/pipeline_par"},
        {SMALL,
         "{'num_procs': 1, 'tensor_par': 1, 'pipeline_par': 1, 'data_par': 1, 'batch_size': 1, 'microbatch_size': 1, "
         "'datatype': 'float16', 'training': false, 'activation_recompute': 'full'}",
         "conflict execution/activation_recompute"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_str_eq(pair_refused(cases[i].application, cases[i].execution), cases[i].problems);
    import_options.world_size = 8;
    ck_assert_str_eq(pair_refused(SMALL, TRAIN(1, 1, 1, 4, ", 'num_procs': 1")), "conflict execution/num_procs");
    ck_assert_str_eq(pair_refused(SMALL, "{'a':\n b}"), "invalid_json execution");
    ck_assert(some_message_has(&import_problems, "line 2, column"));
}
END_TEST

START_TEST(test_calculon__no_text_is_too_long)
{
    static char text[BP_PEER_TEXT_MAX + 2];
    memset(text, '[', sizeof text - 1);
    ck_assert_str_eq(pair_refused(SMALL, text), "out_of_range execution");
    text[BP_PEER_TEXT_MAX] = '\0';
    ck_assert_str_eq(pair_refused(SMALL, text), "too_deep execution");
}
END_TEST

START_TEST(test_calculon__memory_that_runs_out_is_said)
{
    char application[] = MEGATRON_1T, execution[] = FULL_3072;
    for (char *c = application; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    for (char *c = execution; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    int result = -1;
    for (long n = 0; result < 0; n++) {
        import_forget();
        bp_fault_alloc_after(n);
        result = bp_calculon_import((struct bp_peer_text){application, strlen(application)},
                                    (struct bp_peer_text){execution, strlen(execution)}, &import_options, &import_arena,
                                    &import_problems, &imported);
        ck_assert(bp_fault_alloc_off() == (result < 0));
    }
    ck_assert(imported.text.len > 0);
}
END_TEST

Suite *suite_import_calculon(void)
{
    Suite *suite = suite_create("import_calculon");
    TCase *tcase = tcase_create("import_calculon");
    tcase_add_checked_fixture(tcase, import_begin, import_forget);
    tcase_add_test(tcase, test_calculon__its_trillion_parameters_come_out_whole);
    tcase_add_test(tcase, test_calculon__parameters_are_its_own_and_the_final_norm);
    tcase_add_test(tcase, test_calculon__selective_recomputation_is_carried_over);
    tcase_add_test(tcase, test_calculon__strategies_are_carried_over);
    tcase_add_test(tcase, test_calculon__inference_is_a_prefill);
    tcase_add_test(tcase, test_calculon__what_would_change_numbers_is_refused_by_key);
    tcase_add_test(tcase, test_calculon__no_text_is_too_long);
    tcase_add_test(tcase, test_calculon__memory_that_runs_out_is_said);
    suite_add_tcase(suite, tcase);
    return suite;
}
