/* Megatron-LM's arguments as requests: what is carried over, listed and refused. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/importing.h"

START_TEST(test_megatron__gpt3_175b_comes_out_whole)
{
    import_options.vocab_size = 50257;
    ck_assert_str_eq(planned(import_gpt3),
                     "{'model':{'transformer':{'activation':'gelu','attention_dropout':true,'bias':true,"
                     "'embedding_dropout':true,'hidden_dropout':true,'hidden_size':12288,'intermediate_size':49152,"
                     "'max_position_embeddings':2048,'name':'megatron','norm':'layernorm','num_attention_heads':96,"
                     "'num_hidden_layers':96,'position':'learned','tie_word_embeddings':true,'vocab_size':50257}},"
                     "'strategy':{'data_parallel':2,'pipeline_parallel':16,'tensor_parallel':8},"
                     "'workload':{'dtype':'float16','global_batch_size':1536,'gradient_dtype':'float16',"
                     "'micro_batch_size':1,'mode':'training','sequence_length':2048}}");
    expect_left("--lr", "6.0e-5", "not of how much");
    expect_left("--rampup-batch-size", "16 16 5859375", "full batch");
    expect_left("--vocab-file", "gpt2 vocab.json", "of the data");
    expect_left("--data-path", "$DATA_PATH", "of the data");
    expect_left("--master_addr", "localhost", "launcher");
    expect_left("--master_port", "6000", "launcher");
    expect_left("CUDA_DEVICE_MAX_CONNECTIONS", "1", "environment");
    expect_left("--make-vocab-size-divisible-by", "128", "only a fit");
    ck_assert_ptr_null(left("--num-layers"));
    ck_assert_ptr_null(left("--nnodes"));
}
END_TEST

START_TEST(test_megatron__nothing_given_is_dropped)
{
    import_options.vocab_size = 50257;
    planned(import_gpt3);
    static const char *const carried[] = {"num-layers",
                                          "hidden-size",
                                          "num-attention-heads",
                                          "seq-length",
                                          "micro-batch-size",
                                          "global-batch-size",
                                          "fp16",
                                          "max-position-embeddings",
                                          "nproc_per_node",
                                          "nnodes",
                                          "tensor-model-parallel-size",
                                          "pipeline-model-parallel-size"};
    for (const char *at = strstr(import_gpt3, "--"); at; at = strstr(at + 2, "--")) {
        char name[64] = "--";
        size_t n = strcspn(at + 2, "= \n"), i = 0;
        memcpy(name + 2, at + 2, n);
        while (i < sizeof carried / sizeof *carried && strcmp(carried[i], name + 2) != 0)
            i++;
        ck_assert_msg((i < sizeof carried / sizeof *carried) != (left(name) != NULL), "%s", name);
    }
}
END_TEST

START_TEST(test_megatron__a_long_list_is_whole)
{
    char text[2000] = LEAST, name[16];
    for (int i = 0; i < 100; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "--x%d %d ", i, i);
    planned(text);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "--x%d", i);
        expect_left(name, name + 3, "not an argument that is known");
    }
}
END_TEST

/* Megatron-LM's example for Llama 3 8B, without its float8. */
#define LLAMA3                                                                                                         \
    "--use-mcore-models --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "          \
    "--group-query-attention --num-query-groups 8 --kv-channels 128 --seq-length 8192 "                                \
    "--max-position-embeddings 8192 --position-embedding-type rope --rotary-base 1000000 --rotary-percent 1.0 "        \
    "--attention-dropout 0.0 --hidden-dropout 0.0 --swiglu --init-method-std 0.0134 --attention-backend fused "        \
    "--apply-layernorm-1p --untie-embeddings-and-output-weights --disable-bias-linear --micro-batch-size 1 "           \
    "--global-batch-size 128 --bf16 --grad-reduce-in-bf16 --cross-entropy-loss-fusion --calculate-per-token-loss "     \
    "--tensor-model-parallel-size 1 --context-parallel-size 1 --sequence-parallel --use-distributed-optimizer "        \
    "--overlap-grad-reduce --overlap-param-gather --mock-data --tokenizer-type NullTokenizer --vocab-size 128256 "     \
    "--normalization=RMSNorm "

START_TEST(test_megatron__llama3_8b_comes_out_whole)
{
    import_options.world_size = 8;
    ck_assert_str_eq(planned(LLAMA3),
                     "{'model':{'transformer':{'activation':'swiglu','hidden_size':4096,'intermediate_size':14336,"
                     "'name':'megatron','norm':'rmsnorm','num_attention_heads':32,'num_hidden_layers':32,"
                     "'num_key_value_heads':8,'position':'rope','vocab_size':128257}},"
                     "'strategy':{'data_parallel':8,'zero_stage':1},"
                     "'workload':{'dtype':'bfloat16','global_batch_size':128,'gradient_dtype':'bfloat16',"
                     "'micro_batch_size':1,'mode':'training','sequence_length':8192}}");
    expect_left("--sequence-parallel", "", "as Megatron does without tensor parallelism");
    expect_left("--vocab-size", "128256", "NullTokenizer");
    expect_left("--max-position-embeddings", "8192", "no table");
    expect_left("--attention-backend", "fused", "every step of attention");
    ck_assert_str_eq(refused(LLAMA3 "--fp8-format hybrid --fp8-amax-history-len 1024"),
                     "unsupported_feature --fp8-format");
    ck_assert(some_message_has(&import_problems, "float8"));
    expect_left("--fp8-amax-history-len", "1024", "--fp8-format");
}
END_TEST

START_TEST(test_megatron__what_is_left_out_has_megatrons_defaults)
{
    ck_assert_str_eq(planned(LEAST), LEAST_MODEL("'strategy':{}," LEAST_WORK));
    expect_left("--world-size", "1", "one replica");
    expect_left("--global-batch-size", "2", "one micro-batch");
    static const struct {
        const char *more, *wanted;
    } defaults[] = {
        {"--swiglu", "'intermediate_size':128,"}, /* 4 * 64 * 2 / 3 is 170: two times 64 */
        {"--swiglu --ffn-hidden-size 200", "'intermediate_size':200,"},
        {"--squared-relu", "'activation':'relu'"},
        {"--quick-geglu", "'activation':'geglu'"},
        {"--group-query-attention", "'num_key_value_heads':1,"},
        {"--num-query-groups 4", "'num_attention_heads':8,'num_hidden_layers'"},
        {"--disable-bias-linear --add-qkv-bias", "'qkv_bias':true"},
        {"--qk-layernorm", "'qk_norm':true"},
        {"--kv-channels 16", "'head_dim':16"},
        {"--bf16", "'dtype':'bfloat16','global_batch_size':2,'micro"},
        {"--fp16 --accumulate-allreduce-grads-in-fp32", "'dtype':'float16','global_batch_size':2,'micro"},
        {"--use-rotary-position-embeddings --no-position-embedding", "'position':'rope'"},
        {"--position-embedding-type none", "'position':'none'"},
        {"--padded-vocab-size 128", "'vocab_size':128"},
        {"--hidden-dropout 0.", "'attention_dropout':true,'bias':true,'hidden_size'"},
        {"--attention-dropout 0e1", "'activation':'gelu','bias'"},
        {"--attention-dropout .5", "'attention_dropout':true"},
        {"--num-layers 16", "'num_hidden_layers':16"},
        {"--spec local --num-experts 0 --hidden-dropout 0.1", "'embedding_dropout':true"},
        {"--unheard-of -1 2 --also", "'strategy':{}"},
    };
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        char text[600];
        snprintf(text, sizeof text, LEAST "%s", defaults[i].more);
        const char *request = planned(text);
        ck_assert_msg(strstr(request, defaults[i].wanted) != NULL, "%s: %s", defaults[i].more, request);
    }
    expect_left("--unheard-of", "-1 2", "not an argument that is known");
    expect_left("--also", "", "not an argument that is known");
    planned(LEAST
            "--num-layers 12 --bf16 --grad-reduce-in-bf16 --accumulate-allreduce-grads-in-fp32 --cp-comm-type p2p");
    expect_left("--num-layers", "8", "the last one counts");
    expect_left("--accumulate-allreduce-grads-in-fp32", "", "switched off");
    expect_left("--cp-comm-type", "p2p", "no effect");
    planned(LEAST "--grad-reduce-in-bf16 --squared-relu --num-query-groups 4 --moe-router-topk 4 --sgd-momentum 0 "
                  "--expert-tensor-parallel-size 2 --data-parallel-sharding-strategy optim --recompute-num-layers 2 "
                  "--recompute-method block --account-for-loss-in-pipeline-split --padded-vocab-size 128");
    static const char *const without_effect[] = {"--grad-reduce-in-bf16",
                                                 "--num-query-groups",
                                                 "--moe-router-topk",
                                                 "--sgd-momentum",
                                                 "--expert-tensor-parallel-size",
                                                 "--data-parallel-sharding-strategy",
                                                 "--recompute-num-layers",
                                                 "--recompute-method",
                                                 "--account-for-loss-in-pipeline-split"};
    for (size_t i = 0; i < sizeof without_effect / sizeof *without_effect; i++) {
        ck_assert_msg(left(without_effect[i]) != NULL, "%s", without_effect[i]);
        ck_assert(strstr(left(without_effect[i])->why, "no effect"));
    }
    expect_left("--squared-relu", "", "planned as relu");
    expect_left("--vocab-size", "100", "padded size");
}
END_TEST

START_TEST(test_megatron__strategies_are_carried_over)
{
    static const struct {
        const char *more;
        uint64_t world;
        const char *strategy;
    } cases[] = {
        {"--tensor-model-parallel-size 2 --sequence-parallel --recompute-activations", 8,
         "{'data_parallel':4,'recompute':'selective','sequence_parallel':true,'tensor_parallel':2}"},
        {"--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", 0, "{'recompute':'full'}"},
        {"--recompute-granularity full --recompute-method uniform --recompute-modules mlp", 0, "{'recompute':'full'}"},
        {"--recompute-granularity full --recompute-activations", 0, "{'recompute':'selective'}"},
        {"--recompute-granularity selective --recompute-modules core_attn --recompute-num-layers 2", 0,
         "{'recompute':'selective'}"},
        {"--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", 2, "{'data_parallel':2,'zero_stage':2}"},
        {"--use-torch-fsdp2", 2, "{'data_parallel':2,'zero_stage':3}"},
        {"--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward", 2, "{'data_parallel':2,'zero_stage':2}"},
        {"--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2", 0,
         "{'pipeline_parallel':2,'pipeline_schedule':'interleaved','virtual_stages':2}"},
        {"--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 4 "
         "--microbatch-group-size-per-virtual-pipeline-stage 2",
         0, "{'pipeline_parallel':2,'pipeline_schedule':'interleaved','virtual_stages':4}"},
        {"--pipeline-model-parallel-size 4 --virtual_pipeline_model_parallel_size 2", 0,
         "{'pipeline_parallel':4,'pipeline_schedule':'interleaved','virtual_stages':2}"},
        {"--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 4", 0, "{'pipeline_parallel':2}"},
        {"--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 3",
         0, "{'pipeline_layers':[1,2,2,3],'pipeline_parallel':4}"},
        {"--pipeline-model-parallel-size 2 --decoder-last-pipeline-num-layers 2", 0,
         "{'pipeline_layers':[6,2],'pipeline_parallel':2}"},
        {"--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
         "--decoder-first-pipeline-num-layers 2",
         0, "{'pipeline_layers':[1,3,1,3],'pipeline_parallel':2,'pipeline_schedule':'interleaved','virtual_stages':2}"},
        {"--num-layers 7 --pipeline-model-parallel-size 2 --account-for-embedding-in-pipeline-split", 0,
         "{'pipeline_layers':[3,4],'pipeline_parallel':2}"},
        {"--num-layers 14 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 4 "
         "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
         0, "{'pipeline_layers':[3,4,4,3],'pipeline_parallel':2,'pipeline_schedule':'interleaved','virtual_stages':2}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[600];
        import_options.world_size = cases[i].world;
        snprintf(text, sizeof text, LEAST "%s", cases[i].more);
        const char *strategy = strstr(planned(text), "'strategy':") + strlen("'strategy':");
        ck_assert_msg(strncmp(strategy, cases[i].strategy, strlen(cases[i].strategy)) == 0, "%s: %s", cases[i].more,
                      strategy);
    }
}
END_TEST

START_TEST(test_megatron__the_launcher_says_how_many_ranks)
{
    static const struct {
        const char *launcher;
        const char *strategy;
    } cases[] = {
        {"WORLD_SIZE=6 python pretrain_gpt.py ", "'strategy':{'data_parallel':6}"},
        {"export WORLD_SIZE=6 X=1 torchrun --nproc_per_node 2 train.py ", "'strategy':{'data_parallel':6}"},
        {"torchrun --nproc-per-node=2 --nnodes=2 --standalone train.py ", "'strategy':{'data_parallel':4}"},
        {"torchrun --nproc_per_node 4 train.py ", "'strategy':{'data_parallel':4}"},
        {"torchrun --nproc_per_node 4 --nnodes 1:4 train.py ", "'strategy':{}"},
        {"torchrun --nproc_per_node $GPUS train.py ", "'strategy':{}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[600];
        snprintf(text, sizeof text, "%s" LEAST, cases[i].launcher);
        const char *request = planned(text);
        ck_assert_msg(strstr(request, cases[i].strategy) != NULL, "%s: %s", cases[i].launcher, request);
    }
    expect_left("--nproc_per_node", "$GPUS", "launcher");
    /* A script's name behind an argument of Megatron's is a value. */
    planned(LEAST "--save x.py");
    expect_left("--save", "x.py", "saving");
}
END_TEST

START_TEST(test_megatron__what_would_change_numbers_is_refused_by_name)
{
    static const struct {
        const char *more, *problems;
    } cases[] = {
        {"--num-experts 8 --moe-layer-freq 2", "unsupported_feature --moe-layer-freq"},
        {"--context-parallel-size 2 --cp-comm-type a2a+p2p", "unsupported_feature --cp-comm-type"},
        {"--expert-model-parallel-size 2", "conflict --expert-model-parallel-size"},
        {"--recompute-granularity selective --recompute-modules mlp core_attn",
         "unsupported_feature --recompute-modules"},
        {"--recompute-granularity selective --recompute-modules", "unsupported_feature --recompute-modules"},
        {"--recompute-granularity selective --recompute-method uniform", "conflict --recompute-method"},
        {"--recompute-granularity full", "missing_key --recompute-method"},
        {"--recompute-granularity full --recompute-method block --recompute-num-layers 1",
         "unsupported_feature --recompute-method"},
        {"--recompute-granularity full --recompute-method uniform --recompute-num-layers 2",
         "unsupported_feature --recompute-num-layers"},
        {"--recompute-granularity some", "unknown_value --recompute-granularity"},
        {"--optimizer sgd", "unsupported_feature --optimizer"},
        {"--optimizer muon", "unknown_value --optimizer"},
        {"--multi-latent-attention --mtp-num-layers 1 --window-size 128,0",
         "unsupported_feature --multi-latent-attention, unsupported_feature --mtp-num-layers, "
         "unsupported_feature --window-size"},
        {"--spec a b", "unsupported_feature --spec"},
        {"--checkpoint-activations", "unsupported_feature --checkpoint-activations"},
        {"--position-embedding-type relative", "unsupported_feature --position-embedding-type"},
        {"--no-position-embedding", "conflict --no-position-embedding"},
        {"--bf16 --fp16", "conflict --fp16"},
        {"--swiglu --squared-relu", "conflict --squared-relu"},
        {"--swiglu --quick-geglu", "conflict --quick-geglu"},
        {"--seq-length 64", "conflict --max-position-embeddings"},
        {"--num-attention-heads 7", "not_divisible --num-attention-heads"},
        {"--use-torch-fsdp2 --use-distributed-optimizer", "conflict --use-torch-fsdp2"},
        {"--pipeline-model-parallel-size 3 --num-layers-per-virtual-pipeline-stage 2",
         "not_divisible --num-layers-per-virtual-pipeline-stage"},
        {"--num-virtual-stages-per-pipeline-rank 2", "conflict --pipeline-model-parallel-size"},
        {"--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --no-overlap-p2p-communication",
         "conflict --pipeline-model-parallel-size"},
        {"--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
         "--num-layers-per-virtual-pipeline-stage 2",
         "conflict --num-layers-per-virtual-pipeline-stage"},
        {"--pipeline-model-parallel-size 2 --microbatch-group-size-per-virtual-pipeline-stage 4",
         "unsupported_feature --microbatch-group-size-per-virtual-pipeline-stage"},
        {"--decoder-first-pipeline-num-layers 2", "not_divisible --decoder-first-pipeline-num-layers"},
        {"--pipeline-model-parallel-size 4 --decoder-last-pipeline-num-layers 9",
         "not_divisible --decoder-last-pipeline-num-layers"},
        {"--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
         "--decoder-first-pipeline-num-layers 3",
         "not_divisible --decoder-first-pipeline-num-layers"},
        {"--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 2 "
         "--account-for-loss-in-pipeline-split",
         "conflict --decoder-first-pipeline-num-layers"},
        {"--pipeline-model-parallel-size 257 --decoder-first-pipeline-num-layers 2",
         "out_of_range --decoder-first-pipeline-num-layers"},
        {"--pipeline-model-parallel-size 200 --num-layers 300 --num-virtual-stages-per-pipeline-rank 2 "
         "--decoder-first-pipeline-num-layers 101",
         "out_of_range --decoder-first-pipeline-num-layers"},
        {"--pipeline-model-parallel-size 2 --account-for-loss-in-pipeline-split",
         "not_divisible --account-for-loss-in-pipeline-split"},
        {"--pipeline-model-parallel-size 9007199254740991 --tensor-model-parallel-size 9007199254740991",
         "out_of_range --pipeline-model-parallel-size"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[600];
        snprintf(text, sizeof text, LEAST "%s", cases[i].more);
        ck_assert_str_eq(refused(text), cases[i].problems);
    }
    import_options.world_size = 12;
    ck_assert_str_eq(refused(LEAST "--tensor-model-parallel-size 8"), "not_divisible --world-size");
}
END_TEST

/* Megatron-LM's Mixtral 8x7B. */
#define MIXTRAL                                                                                                        \
    "--disable-bias-linear --seq-length 4096 --max-position-embeddings 32768 --num-layers 32 --hidden-size 4096 "      \
    "--ffn-hidden-size 14336 --num-attention-heads 32 --init-method-std 0.01 --attention-dropout 0.0 "                 \
    "--hidden-dropout 0.0 --normalization RMSNorm --position-embedding-type rope --swiglu "                            \
    "--untie-embeddings-and-output-weights --group-query-attention --num-query-groups 8 --no-masked-softmax-fusion "   \
    "--no-position-embedding --num-experts 8 --expert-model-parallel-size 8 --moe-router-load-balancing-type "         \
    "aux_loss "                                                                                                        \
    "--moe-router-topk 2 --moe-aux-loss-coeff 1e-2 --moe-grouped-gemm --tokenizer-type Llama2Tokenizer "               \
    "--micro-batch-size 1 --global-batch-size 128 --bf16 --tensor-model-parallel-size 1 "                              \
    "--pipeline-model-parallel-size 4 --sequence-parallel --use-distributed-optimizer "

START_TEST(test_megatron__experts_are_those_of_the_form)
{
    import_options.vocab_size = 32000;
    import_options.world_size = 32;
    struct bp_whole_job job = fitted(MIXTRAL);
    ck_assert_uint_eq(job.request.strategy.expert_parallel, 8);
    ck_assert_uint_eq(job.request.strategy.data_parallel, 8);
    ck_assert_uint_eq(job.request.model.kinds[0].num_experts, 8);
    ck_assert_uint_eq(job.request.model.kinds[0].experts_per_token, 2);
    ck_assert_uint_eq(job.request.model.kinds[0].expert_intermediate_size, 14336);
    ck_assert_uint_eq(job.vocab_multiple, 128);
    ck_assert_uint_eq(job.memory.n, 80000000000);
    struct bp_parameter_count count;
    ck_assert_int_eq(bp_model_count(&job.request.model, &count, NULL), 0);
    ck_assert(count.total == UINT64_C(46702792704)); /* as published */
    ck_assert_ptr_null(left("--num-experts"));
    job = fitted(MIXTRAL "--qk-layernorm --moe-ffn-hidden-size 768 --expert-tensor-parallel-size 1");
    ck_assert_int_eq(job.request.model.kinds[0].qk_norm, BP_QK_NORM_HEAD);
    ck_assert_uint_eq(job.request.model.kinds[0].expert_intermediate_size, 768);
    job = fitted(MIXTRAL "--add-qkv-bias --moe-shared-expert-intermediate-size 8 --moe-router-enable-expert-bias");
    const struct bp_kind *kind = &job.request.model.kinds[0];
    ck_assert(kind->qkv_bias && !kind->output_bias && !kind->expert_bias && kind->score_correction_bias);
    ck_assert(kind->shared_intermediate_size == 8 && !kind->intermediate_size);
    job = fitted(LEAST "--num-experts 4");
    kind = &job.request.model.kinds[0];
    ck_assert(kind->qkv_bias && kind->output_bias && kind->expert_bias && kind->hidden_dropout);
    ck_assert_int_eq(kind->activation, BP_ACTIVATION_GELU);
    /* A plan request says the same. */
    import_options.form = BP_PEER_PLAN;
    ck_assert_int_eq(import_bytes(MIXTRAL "--context-parallel-size 2", sizeof MIXTRAL "--context-parallel-size 2" - 1),
                     0);
    ck_assert(bp_problems_none(&import_problems));
    json_t *body = json_loadb(imported.text.data, imported.text.len, 0, NULL);
    const json_t *strategy = json_object_get(body, "strategy");
    ck_assert_int_eq(json_integer_value(json_object_get(strategy, "expert_parallel")), 8);
    ck_assert_int_eq(json_integer_value(json_object_get(strategy, "context_parallel")), 2);
    ck_assert_ptr_null(json_object_get(strategy, "optimizer"));
    json_decref(body);
}
END_TEST

START_TEST(test_megatron__a_fit_has_optimizers_kernels_and_context_parallelism)
{
    struct bp_whole_job job = fitted(LEAST);
    ck_assert_int_eq(job.optimizer, BP_ADAM);
    ck_assert_int_eq(job.conventions.kernel, BP_KERNEL_TILED);
    ck_assert_uint_eq(job.vocab_multiple, 128);
    job = fitted(LEAST "--optimizer sgd --attention-backend unfused --context-parallel-size 2 --cp-comm-type allgather "
                       "--tensor-model-parallel-size 2 --make-vocab-size-divisible-by 64");
    ck_assert_int_eq(job.optimizer, BP_SGD_MOMENTUM);
    ck_assert_int_eq(job.conventions.kernel, BP_KERNEL_UNFUSED);
    ck_assert_int_eq(job.request.strategy.cp_comm, BP_CP_ALL_GATHER);
    ck_assert_uint_eq(job.request.strategy.context_parallel, 2);
    ck_assert_uint_eq(job.vocab_multiple, 128);
    expect_left("--world-size", "4", "one replica");
    job = fitted(LEAST "--optimizer sgd --sgd-momentum 0.0 --transformer-impl local --padded-vocab-size 128");
    ck_assert_int_eq(job.optimizer, BP_SGD);
    ck_assert_int_eq(job.conventions.kernel, BP_KERNEL_UNFUSED);
    ck_assert_uint_eq(job.vocab_multiple, 1);
    job = fitted(LEAST "--transformer-impl local --use-flash-attn --context-parallel-size 2");
    ck_assert_int_eq(job.conventions.kernel, BP_KERNEL_TILED);
    ck_assert_int_eq(job.request.strategy.cp_comm, BP_CP_RING);
    import_options.world_size = 6;
    ck_assert_str_eq(refused(LEAST "--context-parallel-size 2 --cp-comm-type p2p a2a"),
                     "unsupported_feature --cp-comm-type");
}
END_TEST

Suite *suite_import_megatron(void)
{
    Suite *suite = suite_create("import_megatron");
    TCase *tcase = tcase_create("import_megatron");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, import_begin, import_forget);
    tcase_add_test(tcase, test_megatron__gpt3_175b_comes_out_whole);
    tcase_add_test(tcase, test_megatron__nothing_given_is_dropped);
    tcase_add_test(tcase, test_megatron__a_long_list_is_whole);
    tcase_add_test(tcase, test_megatron__llama3_8b_comes_out_whole);
    tcase_add_test(tcase, test_megatron__what_is_left_out_has_megatrons_defaults);
    tcase_add_test(tcase, test_megatron__strategies_are_carried_over);
    tcase_add_test(tcase, test_megatron__the_launcher_says_how_many_ranks);
    tcase_add_test(tcase, test_megatron__what_would_change_numbers_is_refused_by_name);
    tcase_add_test(tcase, test_megatron__experts_are_those_of_the_form);
    tcase_add_test(tcase, test_megatron__a_fit_has_optimizers_kernels_and_context_parallelism);
    suite_add_tcase(suite, tcase);
    return suite;
}
