/* The decoders of all stages, and the replay of a plan with the decoded snapshot in place of the stored one: what
 * decodes encodes to its own canonical form; a replay (of one in eight) never takes one snapshot for another.
 *
 * Inputs are mutations of the corpus and of the snapshots of two real plans, which are made here when it starts. */
#include <string.h>

#include "common/pipeline.h"
#include "tests/fuzz/fuzz.h"

static const char *const requests[] = {
    "{\"model\":{\"transformer\":{\"hidden_size\":64,\"intermediate_size\":256,\"name\":\"s\",\"num_attention_heads\":"
    "8,"
    "\"num_hidden_layers\":4,\"vocab_size\":1000,\"activation\":\"swiglu\",\"norm\":\"rmsnorm\",\"position\":\"rope\"}}"
    ","
    "\"strategy\":{\"tensor_parallel\":2,\"sequence_parallel\":true},\"workload\":{\"dtype\":\"bfloat16\","
    "\"global_batch_size\":8,\"micro_batch_size\":2,\"mode\":\"training\",\"sequence_length\":32},"
    "\"target\":{\"kind\":\"reference-queue\"},\"deployment\":{\"devices\":2,\"memory_bytes\":17179869184}}",
    "{\"model\":{\"transformer\":{\"hidden_size\":64,\"intermediate_size\":256,\"name\":\"s\",\"num_attention_heads\":"
    "8,"
    "\"num_hidden_layers\":4,\"vocab_size\":1000,\"activation\":\"gelu\",\"norm\":\"layernorm\",\"position\":\"rope\"}}"
    ","
    "\"strategy\":{\"tensor_parallel\":2},\"workload\":{\"dtype\":\"float16\",\"batch_size\":1,\"context_length\":64,"
    "\"phase\":\"decode\",\"mode\":\"inference\"},"
    "\"target\":{\"kind\":\"reference-slot\"},\"deployment\":{\"devices\":2,\"memory_bytes\":17179869184}}",
};
enum { PLANS = sizeof requests / sizeof *requests, REPLAYED_OF = 8, SHORT = 1024 };

static struct {
    struct bp_arena arena;
    struct bp_request request;
    struct bp_outcome outcome;
    struct bp_buf canonical;
} plans[PLANS];

static void make_plan(size_t i)
{
    struct bp_err err = {0};
    struct bp_problems problems = {0};
    struct bp_config config;
    json_t *body = bp_json_parse(requests[i], strlen(requests[i]), NULL, &err);
    FUZZ_EXPECT(bp_request_read(body, &plans[i].arena, &problems, &plans[i].request, &config) == 0, "no memory");
    FUZZ_EXPECT(bp_problems_none(&problems), "%s: %s", problems.at[0].path, problems.at[0].message);
    FUZZ_EXPECT(bp_pipeline_run(&plans[i].request, NULL, &plans[i].arena, &plans[i].outcome, &err) == 0, "%s",
                err.message);
    FUZZ_EXPECT(plans[i].outcome.state == BP_PLAN_COMMITTED, "not committed");
    struct bp_writer writer = {.out = &plans[i].canonical};
    bp_request_write(&writer, &plans[i].request);
    FUZZ_EXPECT(bp_writer_finish(&writer, &err) == 0, "%s", err.message);
    bp_problems_release(&problems);
    json_decref(body);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    for (size_t i = 0; i < PLANS; i++)
        make_plan(i);
    return 0;
}

/* Replays a plan whose snapshot of `stage` says `bytes` and has their digest. */
static void replay_with(size_t plan, enum bp_stage stage, const struct bp_buf *bytes)
{
    struct bp_stored_snapshot stored[BP_STAGE_N];
    struct bp_replay replay;
    struct bp_err err = {0};
    const struct bp_outcome *outcome = &plans[plan].outcome;
    for (size_t i = 0; i < outcome->n_snapshots; i++) {
        const struct bp_snapshot *snapshot = &outcome->snapshots[i];
        const struct bp_pass *pass = i ? outcome->derivations[i - 1].pass : NULL;
        const struct bp_buf *text = i == stage ? bytes : &snapshot->bytes;
        stored[i] = (struct bp_stored_snapshot){.stage = (enum bp_stage)i,
                                                .digest = snapshot->digest,
                                                .bytes = text->data,
                                                .n = text->len,
                                                .pass = pass ? pass->name : NULL,
                                                .revision = pass ? pass->revision : 0};
    }
    bp_digest_of(bytes->data, bytes->len, &stored[stage].digest);
    const bool same = bp_digest_equal(&stored[stage].digest, &outcome->snapshots[stage].digest);
    FUZZ_EXPECT(bp_pipeline_replay(plans[plan].canonical.data, plans[plan].canonical.len, stored, outcome->n_snapshots,
                                   &replay, &err) == 0,
                "%s", err.message);
    FUZZ_EXPECT(replay.identical == same, "a replay that is %s", replay.identical ? "identical" : "divergent");
}

static void check_stage(enum bp_stage stage, const uint8_t *data, size_t n)
{
    struct bp_arena arena = {0};
    struct bp_ir ir;
    struct bp_buf encoded = {0}, again = {0};
    struct bp_err err = {0};
    if (bp_ir_decode(stage, (const char *)data, n, &arena, &ir, &err) < 0) {
        FUZZ_EXPECT(err.code != BP_E_out_of_memory && err.code != BP_E_internal && *err.message, "%s", err.message);
    } else {
        FUZZ_EXPECT(bp_ir_encode(&ir, &encoded, &err) == 0, "%s", err.message);
        FUZZ_EXPECT(bp_ir_decode(stage, encoded.data, encoded.len, &arena, &ir, &err) == 0, "%s", err.message);
        FUZZ_EXPECT(bp_ir_encode(&ir, &again, &err) == 0, "%s", err.message);
        fuzz_expect_same(&encoded, &again, "a snapshot, decoded and encoded");
        bp_buf_clear(&again);
        FUZZ_EXPECT(fuzz_canonical((const char *)data, n, &again), "a number that cannot be written was decoded");
        fuzz_expect_same(&encoded, &again, "a snapshot and its canonical form");
        struct bp_digest digest;
        bp_digest_of(encoded.data, encoded.len, &digest);
        if (digest.bytes[0] % REPLAYED_OF == 0)
            replay_with(digest.bytes[1] % PLANS, stage, &encoded);
    }
    bp_buf_release(&encoded);
    bp_buf_release(&again);
    bp_arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    /* As the stage that it says it is; a short one as any. */
    for (size_t stage = 0; stage < BP_STAGE_N; stage++)
        if (n < SHORT || memmem(data, n, bp_stage_schemas[stage], strlen(bp_stage_schemas[stage])))
            check_stage((enum bp_stage)stage, data, n);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed)
{
    const struct bp_buf *real = &plans[seed / 64 % PLANS].outcome.snapshots[seed / 128 % BP_STAGE_N].bytes;
    if (seed % 64 == 0 && real->len <= most) {
        memcpy(data, real->data, real->len);
        n = real->len;
    }
    return fuzz_mutate_json(data, n, most, seed);
}
