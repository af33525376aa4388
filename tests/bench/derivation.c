/* Derivation of a 175B training plan to four encoded, digested, compressed snapshots, on one core. */
#include <stdio.h>
#include <string.h>

#include "common/pipeline.h"
#include "daemon/store/store.h"
#include "tests/bench/bench.h"

enum { RUNS = 300, TARGET = 400 };

enum part { WHOLE, PASSES, ENCODE, DIGEST, COMPRESS, PARTS };

static void read_plan(uint64_t index, struct bp_arena *arena, struct bp_request *ret)
{
    char body[BENCH_REQUEST_MAX];
    struct bp_problems problems = {0};
    struct bp_config config;
    struct bp_json_position position;
    struct bp_err err = {0};
    json_t *value = bp_json_parse(body, bench_plan_body(index, body, sizeof(body)), &position, &err);
    if (!value || bp_request_read(value, arena, &problems, ret, &config) < 0 || !bp_problems_none(&problems))
        bench_die("the request is refused: %s", problems.n ? problems.at[0].message : err.message);
    json_decref(value);
}

/* The passes alone, from the snapshots of the outcome. */
static double time_passes(const struct bp_request *request, const struct bp_outcome *outcome)
{
    struct bp_arena arena = {0};
    struct bp_symbols symbols[BP_KINDS_MAX];
    uint32_t n_blocks;
    struct bp_err err = {0};
    struct bp_ir ir;
    if (bp_symbols_of_blocks(request, symbols, &n_blocks, &err) < 0)
        bench_die("%s", err.message);
    const double start = bench_now();
    for (size_t i = 0; i < outcome->n_derivations; i++) {
        struct bp_pass_input input = {.source = outcome->snapshots[i].ir,
                                      .source_digest = outcome->snapshots[i].digest,
                                      .request = request,
                                      .fingerprints = &outcome->fingerprints,
                                      .symbols = symbols,
                                      .n_blocks = n_blocks};
        if (outcome->derivations[i].pass->run(&input, &arena, &ir, &err) < 0)
            bench_die("%s", err.message);
    }
    const double seconds = bench_now() - start;
    bp_arena_release(&arena);
    return seconds;
}

static double time_encoding(const struct bp_outcome *outcome)
{
    struct bp_buf out = {0};
    struct bp_err err = {0};
    const double start = bench_now();
    for (size_t i = 0; i < outcome->n_snapshots; i++) {
        bp_buf_clear(&out);
        if (bp_ir_encode(&outcome->snapshots[i].ir, &out, &err) < 0)
            bench_die("%s", err.message);
    }
    const double seconds = bench_now() - start;
    bp_buf_release(&out);
    return seconds;
}

static double time_digests(const struct bp_outcome *outcome)
{
    struct bp_digest digest;
    const double start = bench_now();
    for (size_t i = 0; i < outcome->n_snapshots; i++)
        bp_digest_of(outcome->snapshots[i].bytes.data, outcome->snapshots[i].bytes.len, &digest);
    return bench_now() - start;
}

/* Into memory that a worker would have already. */
static double compress(const struct bp_outcome *outcome, struct bp_store_packer *packer, size_t *ret_packed)
{
    static struct bp_buf out;
    struct bp_err err = {0};
    const double start = bench_now();
    for (size_t i = 0; i < outcome->n_snapshots; i++)
        if (bp_store_pack(packer, outcome->snapshots[i].bytes.data, outcome->snapshots[i].bytes.len, &out, &err) < 0)
            bench_die("%s", err.message);
    const double seconds = bench_now() - start;
    *ret_packed = out.len;
    bp_buf_clear(&out);
    return seconds;
}

/* One plan, as a worker makes it, and then its parts alone. */
static void measure(uint64_t index, struct bp_store_packer *packer, double parts[PARTS], size_t *ret_bytes,
                    size_t *ret_packed)
{
    struct bp_arena arena = {0}, of_request = {0};
    struct bp_request request;
    struct bp_outcome outcome;
    struct bp_err err = {0};
    read_plan(index, &of_request, &request);
    const double start = bench_now();
    if (bp_pipeline_run(&request, NULL, &arena, &outcome, &err) < 0 || outcome.state != BP_PLAN_COMMITTED)
        bench_die("the plan did not commit: %s", err.message);
    const double derived = bench_now() - start;
    parts[COMPRESS] = compress(&outcome, packer, ret_packed);
    parts[WHOLE] = derived + parts[COMPRESS];
    parts[PASSES] = time_passes(&request, &outcome);
    parts[ENCODE] = time_encoding(&outcome);
    parts[DIGEST] = time_digests(&outcome);
    *ret_bytes = 0;
    for (size_t i = 0; i < outcome.n_snapshots; i++)
        *ret_bytes += outcome.snapshots[i].bytes.len;
    bp_outcome_release(&outcome);
    bp_arena_release(&arena);
    bp_arena_release(&of_request);
}

void bench_derivation(void)
{
    static const char *const names[PARTS] = {"", "the passes", "encoding", "digests", "compression, zstd level 1"};
    static double seconds[PARTS][RUNS], floors[RUNS];
    struct bp_store_packer *packer = bp_store_packer_new();
    double medians[PARTS], parts[PARTS];
    size_t bytes = 0, packed = 0;
    for (size_t i = 0; i < RUNS; i++) {
        measure(i, packer, parts, &bytes, &packed);
        for (size_t k = 0; k < PARTS; k++)
            seconds[k][i] = parts[k] * 1e6;
        floors[i] = seconds[DIGEST][i] + seconds[COMPRESS][i];
    }
    bp_store_packer_free(packer);
    bench_print_row(&(struct bench_row){"175B training plan to four packed snapshots, one core", "us", seconds[WHOLE],
                                        floors, RUNS, 0});
    for (size_t k = 0; k < PARTS; k++)
        medians[k] = bench_median(seconds[k], RUNS);
    bench_note("target %d us%s; the baseline is digest and compression of the same %zu bytes (%zu packed)", TARGET,
               medians[WHOLE] <= TARGET ? "" : ": MISSED", bytes, packed);
    double rest = medians[WHOLE];
    for (size_t k = PASSES; k < PARTS; k++) {
        bench_note("%-42s %8.1f us", names[k], medians[k]);
        rest -= medians[k];
    }
    bench_note("%-42s %8.1f us", "the gate, second runs included, and the rest", rest);
}
