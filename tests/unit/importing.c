#include "tests/unit/importing.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/json.h"

struct bp_arena import_arena;
struct bp_problems import_problems;
struct bp_peer_request imported;
struct bp_peer_options import_options;

void import_begin(void)
{
    import_options = (struct bp_peer_options){0};
}

void import_forget(void)
{
    bp_buf_release(&imported.text);
    bp_problems_release(&import_problems);
    bp_arena_release(&import_arena);
    imported = (struct bp_peer_request){0};
    import_problems = (struct bp_problems){0};
    import_arena = (struct bp_arena){0};
}

int import_bytes(const char *text, size_t n)
{
    import_forget();
    return bp_megatron_import((struct bp_peer_text){text, n}, &import_options, &import_arena, &import_problems,
                              &imported);
}

static struct bp_peer_text quoted(char *text)
{
    for (char *c = text; *c; c++)
        if (*c == '\'')
            *c = '"';
    return (struct bp_peer_text){text, strlen(text)};
}

int import_pair(const char *application, const char *execution)
{
    char *app = strdup(application), *exe = strdup(execution);
    import_forget();
    int result =
        bp_calculon_import(quoted(app), quoted(exe), &import_options, &import_arena, &import_problems, &imported);
    free(app);
    free(exe);
    return result;
}

static void expect_no_problem(void)
{
    ck_assert_msg(import_problems.n == 0, "%s: %s", line_of(&import_problems),
                  import_problems.n ? import_problems.at[0].message : "");
}

static json_t *imported_body(void)
{
    struct bp_json_position position;
    expect_no_problem();
    json_t *body = bp_json_parse(imported.text.data, imported.text.len, &position, NULL);
    ck_assert_ptr_nonnull(body);
    return body;
}

const char *import_as_plan(void)
{
    struct bp_request request;
    struct bp_config config;
    struct bp_buf buf = {0};
    struct bp_writer writer = {.out = &buf};
    json_t *body = imported_body();
    ck_assert_int_eq(bp_request_read(body, &import_arena, &import_problems, &request, &config), 0);
    json_decref(body);
    expect_no_problem();
    bp_request_write(&writer, &request);
    return canonical(&writer);
}

struct bp_whole_job import_as_job(void)
{
    struct bp_whole_job job;
    struct bp_config config;
    json_t *body = imported_body();
    ck_assert_int_eq(bp_whole_job_read(body, &import_arena, &import_problems, &job, &config), 0);
    json_decref(body);
    expect_no_problem();
    return job;
}

const char *planned(const char *text)
{
    ck_assert_int_eq(import_bytes(text, strlen(text)), 0);
    return import_as_plan();
}

struct bp_whole_job fitted(const char *text)
{
    import_options.form = BP_PEER_FIT;
    import_options.memory_bytes = 80000000000;
    ck_assert_int_eq(import_bytes(text, strlen(text)), 0);
    return import_as_job();
}

const char *refused(const char *text)
{
    ck_assert_int_eq(import_bytes(text, strlen(text)), 0);
    ck_assert_uint_eq(imported.text.len, 0);
    return line_of(&import_problems);
}

const struct bp_leftover *left(const char *name)
{
    for (size_t i = 0; i < imported.n_leftovers; i++)
        if (strcmp(imported.leftovers[i].name, name) == 0)
            return &imported.leftovers[i];
    return NULL;
}

void expect_left(const char *name, const char *value, const char *why)
{
    const struct bp_leftover *found = left(name);
    ck_assert_msg(found != NULL, "%s is not listed", name);
    ck_assert_str_eq(found->value, value);
    ck_assert_msg(strstr(found->why, why) != NULL, "%s: %s", name, found->why);
}

/* The set of Megatron-LM's examples for GPT-3 175B, with what its script takes from the environment. */
const char import_gpt3[] = "#!/bin/bash\n"
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
