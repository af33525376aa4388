/* Megatron-LM's arguments as requests: what is carried over, listed and refused. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/request/import_peer.h"
#include "common/request/job.h"
#include "tests/lib/fault_alloc.h"
#include "tests/unit/reading.h"

static struct bp_arena arena;
static struct bp_problems problems;
static struct bp_peer_request imported;
static struct bp_peer_options options;

static void forget(void)
{
    bp_buf_release(&imported.text);
    bp_problems_release(&problems);
    bp_arena_release(&arena);
    imported = (struct bp_peer_request){0};
    problems = (struct bp_problems){0};
}

static void begin(void)
{
    options = (struct bp_peer_options){0};
}

static int import_bytes(const char *text, size_t n)
{
    forget();
    return bp_megatron_import((struct bp_peer_text){text, n}, &options, &arena, &problems, &imported);
}

/* The request's canonical form, with ' for ", which the daemon's own reader makes of what was imported. */
static const char *planned(const char *text)
{
    struct bp_request request;
    struct bp_config config;
    struct bp_json_position position;
    struct bp_buf buf = {0};
    struct bp_writer writer = {.out = &buf};
    ck_assert_int_eq(import_bytes(text, strlen(text)), 0);
    ck_assert_msg(problems.n == 0, "%s: %s", line_of(&problems), problems.n ? problems.at[0].message : "");
    json_t *body = bp_json_parse(imported.text.data, imported.text.len, &position, NULL);
    ck_assert_ptr_nonnull(body);
    ck_assert_int_eq(bp_request_read(body, &arena, &problems, &request, &config), 0);
    json_decref(body);
    ck_assert_msg(problems.n == 0, "%s", line_of(&problems));
    bp_request_write(&writer, &request);
    return canonical(&writer);
}

static struct bp_whole_job fitted(const char *text)
{
    struct bp_whole_job job;
    struct bp_config config;
    struct bp_json_position position;
    options.form = BP_PEER_FIT;
    options.memory_bytes = 80000000000;
    ck_assert_int_eq(import_bytes(text, strlen(text)), 0);
    ck_assert_msg(problems.n == 0, "%s: %s", line_of(&problems), problems.n ? problems.at[0].message : "");
    json_t *body = bp_json_parse(imported.text.data, imported.text.len, &position, NULL);
    ck_assert_ptr_nonnull(body);
    ck_assert_int_eq(bp_whole_job_read(body, &arena, &problems, &job, &config), 0);
    json_decref(body);
    ck_assert_msg(problems.n == 0, "%s: %s", line_of(&problems), problems.n ? problems.at[0].message : "");
    return job;
}

static const char *refused(const char *text)
{
    ck_assert_int_eq(import_bytes(text, strlen(text)), 0);
    ck_assert_uint_eq(imported.text.len, 0);
    return line_of(&problems);
}

static const struct bp_leftover *left(const char *name)
{
    for (size_t i = 0; i < imported.n_leftovers; i++)
        if (strcmp(imported.leftovers[i].name, name) == 0)
            return &imported.leftovers[i];
    return NULL;
}

static void expect_left(const char *name, const char *value, const char *why)
{
    const struct bp_leftover *found = left(name);
    ck_assert_msg(found != NULL, "%s is not listed", name);
    ck_assert_str_eq(found->value, value);
    ck_assert_msg(strstr(found->why, why) != NULL, "%s: %s", name, found->why);
}

/* The least that says a model, and a vocabulary. */
#define LEAST                                                                                                          \
    "--num-layers 8 --hidden-size 64 --num-attention-heads 8 --seq-length 32 --max-position-embeddings 32 "            \
    "--micro-batch-size 2 --vocab-size 100 "
#define LEAST_MODEL(more)                                                                                              \
    "{'model':{'transformer':{'activation':'gelu','attention_dropout':true,'bias':true,'embedding_dropout':true,"      \
    "'hidden_dropout':true,'hidden_size':64,'intermediate_size':256,'max_position_embeddings':32,'name':'megatron',"   \
    "'norm':'layernorm','num_attention_heads':8,'num_hidden_layers':8,'position':'learned',"                           \
    "'tie_word_embeddings':true,'vocab_size':100}}," more "}"
#define LEAST_WORK                                                                                                     \
    "'workload':{'dtype':'float32','global_batch_size':2,'micro_batch_size':2,'mode':'training','sequence_length':32}"

/* The set of Megatron-LM's examples for GPT-3 175B, with what its script takes from the environment. */
static const char gpt3[] = "#!/bin/bash\n"
                           "CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nproc_per_node 8 --nnodes 32 \\\n"
                           "    --master_addr=localhost --master_port 6000 pretrain_gpt.py \\\n"
                           "    --num-layers 96 --hidden-size 12288 --num-attention-heads 96 \\\n"
                           "    --seq-length 2048 --max-position-embeddings 2048 \\\n"
                           "    --attention-backend auto # Can use (flash/fused/unfused/local)\n"
                           "    --micro-batch-size 1 --global-batch-size 1536 --rampup-batch-size 16 16 5859375\n"
                           "    --train-iters 500000 --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95\n"
                           "    --init-method-std 0.006 --clip-grad 1.0 --fp16 --lr 6.0e-5 --lr-decay-style cosine\n"
                           "    --min-lr 6.0e-6 --lr-warmup-fraction .001 --lr-decay-iters 430000\n"
                           "    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16\n"
                           "    --data-path $DATA_PATH --vocab-file 'gpt2 vocab.json' --merge-file \"$MERGES\"\n"
                           "    --split 949,50,1 --log-interval 100 --save-interval 10000 --eval-interval 1000\n"
                           "    --save ckpt --load ckpt --eval-iters 10 --tensorboard-dir logs\n";

START_TEST(test_megatron__gpt3_175b_comes_out_whole)
{
    begin();
    options.vocab_size = 50257;
    ck_assert_str_eq(planned(gpt3),
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
    begin();
    options.vocab_size = 50257;
    planned(gpt3);
    static const char *const carried[] = {
        "num-layers",       "hidden-size",       "num-attention-heads", "seq-length",
        "micro-batch-size", "global-batch-size", "fp16",                "max-position-embeddings",
        "nproc_per_node",   "nnodes",            "tensor-model-parallel-size", "pipeline-model-parallel-size"};
    for (const char *at = strstr(gpt3, "--"); at; at = strstr(at + 2, "--")) {
        char name[64] = "--";
        size_t n = strcspn(at + 2, "= \n"), i = 0;
        memcpy(name + 2, at + 2, n);
        while (i < sizeof carried / sizeof *carried && strcmp(carried[i], name + 2) != 0)
            i++;
        ck_assert_msg((i < sizeof carried / sizeof *carried) != (left(name) != NULL), "%s", name);
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
    begin();
    options.world_size = 8;
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
    ck_assert(some_message_has(&problems, "float8"));
    expect_left("--fp8-amax-history-len", "1024", "--fp8-format");
}
END_TEST

START_TEST(test_megatron__what_is_left_out_has_megatrons_defaults)
{
    begin();
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
    planned(LEAST "--num-layers 12 --bf16 --grad-reduce-in-bf16 --accumulate-allreduce-grads-in-fp32 --cp-comm-type p2p");
    expect_left("--num-layers", "8", "the last one counts");
    expect_left("--accumulate-allreduce-grads-in-fp32", "", "switched off");
    expect_left("--cp-comm-type", "p2p", "no effect");
    planned(LEAST "--grad-reduce-in-bf16 --squared-relu --num-query-groups 4 --moe-router-topk 4 --sgd-momentum 0 "
                  "--expert-tensor-parallel-size 2 --data-parallel-sharding-strategy optim --recompute-num-layers 2 "
                  "--recompute-method block --account-for-loss-in-pipeline-split --padded-vocab-size 128");
    static const char *const without_effect[] = {"--grad-reduce-in-bf16", "--num-query-groups", "--moe-router-topk",
                                                 "--sgd-momentum", "--expert-tensor-parallel-size",
                                                 "--data-parallel-sharding-strategy", "--recompute-num-layers",
                                                 "--recompute-method", "--account-for-loss-in-pipeline-split"};
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
         0,
         "{'pipeline_layers':[1,3,1,3],'pipeline_parallel':2,'pipeline_schedule':'interleaved','virtual_stages':2}"},
        {"--num-layers 7 --pipeline-model-parallel-size 2 --account-for-embedding-in-pipeline-split", 0,
         "{'pipeline_layers':[3,4],'pipeline_parallel':2}"},
        {"--num-layers 14 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 4 "
         "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
         0,
         "{'pipeline_layers':[3,4,4,3],'pipeline_parallel':2,'pipeline_schedule':'interleaved','virtual_stages':2}"},
    };
    begin();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[600];
        options.world_size = cases[i].world;
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
    begin();
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
        {"--num-experts 8", "unsupported_feature --num-experts, unsupported_feature --disable-bias-linear, "
                            "unsupported_feature --normalization, unsupported_feature --swiglu, "
                            "unsupported_feature --position-embedding-type, unsupported_feature --hidden-dropout, "
                            "unsupported_feature --attention-dropout"},
        {"--context-parallel-size 2", "unsupported_feature --context-parallel-size"},
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
    begin();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[600];
        snprintf(text, sizeof text, LEAST "%s", cases[i].more);
        ck_assert_str_eq(refused(text), cases[i].problems);
    }
    options.world_size = 12;
    ck_assert_str_eq(refused(LEAST "--tensor-model-parallel-size 8"), "not_divisible --world-size");
}
END_TEST

START_TEST(test_megatron__what_is_missing_or_malformed_is_named)
{
    begin();
    ck_assert_str_eq(refused("--bf16"), "missing_key --seq-length, missing_key --micro-batch-size, "
                                        "missing_key --num-layers, missing_key --hidden-size, "
                                        "missing_key --num-attention-heads, missing_key --max-position-embeddings, "
                                        "missing_key --vocab-size");
    static const struct {
        const char *more, *problems, *message;
    } cases[] = {
        {"--num-layers 96x", "wrong_type --num-layers", "line 1, column 127: \"96x\" is not a whole number"},
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
        {"--cp-comm-type a2a+p2p --context-parallel-size 2",
         "unsupported_feature --context-parallel-size, unsupported_feature --cp-comm-type", "p2p"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[600];
        snprintf(text, sizeof text, LEAST "%s", cases[i].more);
        ck_assert_str_eq(refused(text), cases[i].problems);
        ck_assert_msg(some_message_has(&problems, cases[i].message), "%s: %s", cases[i].more, problems.at[0].message);
    }
}
END_TEST

START_TEST(test_megatron__words_are_a_shells)
{
    begin();
    planned("# --bf16\n" LEAST "--save a\\ b\"c d\"'e \\f' --load \"g\\\"h\\i\\\n\\$j\" --split a#b --data-path \\\n x\\\r\n y"
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
        ck_assert_msg(some_message_has(&problems, cases[i].message), "%s: %s", cases[i].text, line_of(&problems));
    }
    ck_assert_int_eq(import_bytes("--lr\0 1", 7), 0);
    ck_assert(some_message_has(&problems, "a NUL byte"));
    ck_assert_int_eq(import_bytes("", 0), 0);
    ck_assert(some_message_has(&problems, "is required"));
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
    begin();
    options.vocab_size = 32000;
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
    begin();
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
        ck_assert_msg(some_message_has(&problems, cases[i].message), "%s: %s", cases[i].more, problems.at[0].message);
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
        {"", "--a ", 5000, "out_of_range "},
        {"", "--num-layers 1 ", N / 15, "out_of_range "},
        {"--data-path ", "x ", N / 2 - 8, NULL},
        {"", "'", N - 1, NULL},
        {"a: ", "[", N - 8, "too_deep "},
        {"", "a: {", N / 4, "too_deep "},
        {"a: &a ", "[*a, ", N / 5 - 2, NULL},
        {"a:\n", "? ", N / 2 - 4, NULL},
        {"a: \"", "x", N - 8, "invalid_request "},
    };
    char *text = malloc(N + 1);
    begin();
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].head), unit = strlen(cases[i].unit);
        memcpy(text, cases[i].head, n);
        for (size_t j = 0; j < cases[i].times; j++, n += unit)
            memcpy(text + n, cases[i].unit, unit);
        ck_assert_uint_le(n, N);
        ck_assert_int_eq(import_bytes(text, n), 0);
        ck_assert(problems.n > 0);
        if (cases[i].problem)
            ck_assert_str_eq(line_of(&problems), cases[i].problem);
    }
    for (unsigned n = 0; n < 4097; n++) { /* distinct keys, of which each is looked for among the others */
        char line[32];
        int length = snprintf(line, sizeof line, "k%u: 1\n", n);
        memcpy(text + (n ? strlen(text) : 0), line, (size_t)length + 1);
    }
    ck_assert_str_eq(refused(text), "out_of_range ");
    memset(text, 'a', N + 1);
    ck_assert_int_eq(import_bytes(text, N + 1), 0);
    ck_assert_str_eq(line_of(&problems), "out_of_range ");
    free(text);
}
END_TEST

/* Megatron-LM's Mixtral 8x7B, whose experts only a fit can carry. */
#define MIXTRAL                                                                                                        \
    "--disable-bias-linear --seq-length 4096 --max-position-embeddings 32768 --num-layers 32 --hidden-size 4096 "      \
    "--ffn-hidden-size 14336 --num-attention-heads 32 --init-method-std 0.01 --attention-dropout 0.0 "                 \
    "--hidden-dropout 0.0 --normalization RMSNorm --position-embedding-type rope --swiglu "                            \
    "--untie-embeddings-and-output-weights --group-query-attention --num-query-groups 8 --no-masked-softmax-fusion "   \
    "--no-position-embedding --num-experts 8 --expert-model-parallel-size 8 --moe-router-load-balancing-type aux_loss "\
    "--moe-router-topk 2 --moe-aux-loss-coeff 1e-2 --moe-grouped-gemm --tokenizer-type Llama2Tokenizer "               \
    "--micro-batch-size 1 --global-batch-size 128 --bf16 --tensor-model-parallel-size 1 "                              \
    "--pipeline-model-parallel-size 4 --sequence-parallel --use-distributed-optimizer "

START_TEST(test_megatron__a_fit_carries_what_a_plan_cannot)
{
    begin();
    options.vocab_size = 32000;
    options.world_size = 32;
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
    expect_left("--num-experts", "8", "mixtral");
    job = fitted(MIXTRAL "--qk-layernorm --moe-ffn-hidden-size 768 --expert-tensor-parallel-size 1");
    ck_assert_int_eq(job.request.model.kinds[0].qk_norm, BP_QK_NORM_HEAD);
    ck_assert_uint_eq(job.request.model.kinds[0].expert_intermediate_size, 768);
    options.form = BP_PEER_FIT;
    ck_assert_str_eq(refused(MIXTRAL "--add-qkv-bias --moe-shared-expert-intermediate-size 8 --moe-layer-freq 2"),
                     "unsupported_feature --add-qkv-bias, unsupported_feature --moe-shared-expert-intermediate-size, "
                     "unsupported_feature --moe-layer-freq");
    options.form = BP_PEER_PLAN;
    ck_assert_str_eq(refused(MIXTRAL), "unsupported_feature --num-experts");
}
END_TEST

START_TEST(test_megatron__a_fit_has_optimizers_kernels_and_context_parallelism)
{
    begin();
    struct bp_whole_job job = fitted(LEAST);
    ck_assert_int_eq(job.optimizer, BP_ADAM);
    ck_assert_int_eq(job.conventions.kernel, BP_KERNEL_TILED);
    ck_assert_uint_eq(job.vocab_multiple, 128);
    job = fitted(LEAST "--optimizer sgd --attention-backend unfused --context-parallel-size 2 --cp-comm-type allgather "
                       "--tensor-model-parallel-size 2 --make-vocab-size-divisible-by 64");
    ck_assert_int_eq(job.optimizer, BP_SGD_MOMENTUM);
    ck_assert_int_eq(job.conventions.kernel, BP_KERNEL_UNFUSED);
    ck_assert_int_eq(job.cp_comm, BP_CP_ALL_GATHER);
    ck_assert_uint_eq(job.request.strategy.context_parallel, 2);
    ck_assert_uint_eq(job.vocab_multiple, 128);
    expect_left("--world-size", "4", "one replica");
    job = fitted(LEAST "--optimizer sgd --sgd-momentum 0.0 --transformer-impl local --padded-vocab-size 128");
    ck_assert_int_eq(job.optimizer, BP_SGD);
    ck_assert_int_eq(job.conventions.kernel, BP_KERNEL_UNFUSED);
    ck_assert_uint_eq(job.vocab_multiple, 1);
    job = fitted(LEAST "--transformer-impl local --use-flash-attn --context-parallel-size 2");
    ck_assert_int_eq(job.conventions.kernel, BP_KERNEL_TILED);
    ck_assert_int_eq(job.cp_comm, BP_CP_RING);
    options.world_size = 6;
    ck_assert_str_eq(refused(LEAST "--context-parallel-size 2 --cp-comm-type p2p a2a"),
                     "unsupported_feature --cp-comm-type");
}
END_TEST

/* Each allocation in turn fails: the import says so, and nothing else. */
START_TEST(test_megatron__memory_that_runs_out_is_said)
{
    static const char *const texts[] = {gpt3, yaml, LEAST "--num-layers 9 --squared-relu"};
    begin();
    options.vocab_size = 32000;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int result = -1;
        for (long n = 0; result < 0; n++) {
            forget();
            bp_fault_alloc_after(n);
            result = bp_megatron_import((struct bp_peer_text){texts[i], strlen(texts[i])}, &options, &arena, &problems,
                                        &imported);
            ck_assert(bp_fault_alloc_off() == (result < 0));
        }
        ck_assert(imported.text.len > 0);
    }
}
END_TEST

Suite *suite_import_megatron(void)
{
    Suite *suite = suite_create("import_megatron");
    TCase *tcase = tcase_create("import_megatron");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, NULL, forget);
    tcase_add_test(tcase, test_megatron__gpt3_175b_comes_out_whole);
    tcase_add_test(tcase, test_megatron__nothing_given_is_dropped);
    tcase_add_test(tcase, test_megatron__llama3_8b_comes_out_whole);
    tcase_add_test(tcase, test_megatron__what_is_left_out_has_megatrons_defaults);
    tcase_add_test(tcase, test_megatron__strategies_are_carried_over);
    tcase_add_test(tcase, test_megatron__the_launcher_says_how_many_ranks);
    tcase_add_test(tcase, test_megatron__what_would_change_numbers_is_refused_by_name);
    tcase_add_test(tcase, test_megatron__what_is_missing_or_malformed_is_named);
    tcase_add_test(tcase, test_megatron__words_are_a_shells);
    tcase_add_test(tcase, test_megatron__yaml_is_read_by_groups);
    tcase_add_test(tcase, test_megatron__yaml_says_what_the_command_line_says);
    tcase_add_test(tcase, test_megatron__no_text_is_too_much);
    tcase_add_test(tcase, test_megatron__a_fit_carries_what_a_plan_cannot);
    tcase_add_test(tcase, test_megatron__a_fit_has_optimizers_kernels_and_context_parallelism);
    tcase_add_test(tcase, test_megatron__memory_that_runs_out_is_said);
    suite_add_tcase(suite, tcase);
    return suite;
}
