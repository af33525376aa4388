/* The request parser and normaliser: what is refused is explained; what is accepted has a canonical form that reads as
 * the same request, with the same id and fingerprints, and one in sixteen of the small ones is derived. */
#include <string.h>

#include "common/pipeline.h"
#include "tests/fuzz/fuzz.h"

struct reading {
    struct bp_arena arena;
    struct bp_problems problems;
    struct bp_request request;
    struct bp_config config;
    struct bp_digest id;
    struct bp_buf canonical;
};

static bool read_body(struct reading *reading, const json_t *body)
{
    *reading = (struct reading){0};
    FUZZ_EXPECT(bp_request_read(body, &reading->arena, &reading->problems, &reading->request, &reading->config) == 0,
                "no memory");
    fuzz_expect_explained(&reading->problems);
    return bp_problems_none(&reading->problems);
}

static void write_canonical(struct reading *reading)
{
    struct bp_err err = {0};
    struct bp_writer writer = {.out = &reading->canonical};
    bp_request_write(&writer, &reading->request);
    FUZZ_EXPECT(bp_writer_finish(&writer, &err) == 0, "%s", err.message);
    FUZZ_EXPECT(bp_pipeline_plan_id(&reading->request, &reading->id, &err) == 0, "%s", err.message);
}

static void reading_release(struct reading *reading)
{
    bp_buf_release(&reading->canonical);
    bp_problems_release(&reading->problems);
    bp_arena_release(&reading->arena);
}

static void expect_same_again(const struct reading *first)
{
    struct reading second;
    struct bp_err err = {0};
    struct bp_fingerprints a, b;
    json_t *body = bp_json_parse(first->canonical.data, first->canonical.len, NULL, &err);
    FUZZ_EXPECT(body != NULL, "%s", err.message);
    FUZZ_EXPECT(read_body(&second, body), "%s at %s of %.*s", second.problems.at[0].message, second.problems.at[0].path,
                (int)first->canonical.len, first->canonical.data);
    write_canonical(&second);
    fuzz_expect_same(&first->canonical, &second.canonical, "the canonical form of a canonical form");
    FUZZ_EXPECT(bp_digest_equal(&first->id, &second.id), "another id");
    FUZZ_EXPECT(bp_request_fingerprints(&first->request, &a, &err) == 0, "%s", err.message);
    FUZZ_EXPECT(bp_request_fingerprints(&second.request, &b, &err) == 0, "%s", err.message);
    FUZZ_EXPECT(memcmp(&a, &b, sizeof a) == 0, "other fingerprints");
    json_decref(body);
    reading_release(&second);
}

/* No request that was accepted fails for a reason of ours. */
static void derive_some(struct reading *reading)
{
    struct bp_outcome outcome;
    struct bp_err err = {0};
    if (reading->id.bytes[0] % 16 || reading->request.strategy.tensor_parallel > 8)
        return;
    FUZZ_EXPECT(bp_pipeline_run(&reading->request, NULL, &reading->arena, &outcome, &err) == 0, "%s", err.message);
    FUZZ_EXPECT(outcome.state == BP_PLAN_COMMITTED || outcome.state == BP_PLAN_REJECTED, "%s at %s of %.*s",
                outcome.diagnostics.at[0].message, outcome.diagnostics.at[0].path, (int)reading->canonical.len,
                reading->canonical.data);
    bp_outcome_release(&outcome);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct reading reading;
    json_t *body = fuzz_parse(data, n);
    if (!body)
        return 0;
    if (read_body(&reading, body)) {
        write_canonical(&reading);
        expect_same_again(&reading);
        derive_some(&reading);
    }
    reading_release(&reading);
    json_decref(body);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed)
{
    return fuzz_mutate_json(data, n, most, seed);
}
