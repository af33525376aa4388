/* Memory that runs out, at every allocation: the n-th fails alone, or all from the n-th on, for every n until none
 * does. First what computes: parse, passes, gate, encoders, facts, replay. Then the whole service on its store (rig.h),
 * with malloc's, SQLite's and jansson's allocator in turn; there the short form leaves out most n, others in each run,
 * and BP_LONG none.
 */
#include <check.h>
#include <glob.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/json.h"
#include "common/pipeline.h"
#include "common/view/plan.h"
#include "tests/fault/rig.h"
#include "tests/lib/fault_alloc.h"
#include "tests/lib/fault_vfs.h"

enum { MOST = 1000000, SHORT_RUNS = 60, SHORT_JOB_RUNS = 10 };

static struct rig_totals *totals, *job_totals, *computed;

static const char *const allocators[] = {
    [BP_FAULT_MALLOC] = "malloc", [BP_FAULT_SQLITE] = "SQLite's", [BP_FAULT_JANSSON] = "jansson's"};

/* malloc cannot fail under a sanitizer; the others can. */
static bool can_fail(enum bp_fault_allocator allocator)
{
    return allocator != BP_FAULT_MALLOC || bp_fault_alloc_works();
}

static void set_up(void)
{
    bp_fault_alloc_install();
    fault_vfs_install();
}

/* ---- Computing ---- */

static char *read_file(const char *path, size_t *ret_n)
{
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s", path);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    *ret_n = (size_t)ftell(file);
    char *text = malloc(*ret_n + 1);
    ck_assert_ptr_nonnull(text);
    rewind(file);
    ck_assert_uint_eq(fread(text, 1, *ret_n, file), *ret_n);
    text[*ret_n] = '\0';
    fclose(file);
    return text;
}

/* What came out of a request: of the same request always the same. */
struct derived {
    struct bp_digest id, stages[BP_STAGE_N], facts;
    size_t n_stages;
};

static int note_facts(const struct bp_outcome *outcome, struct derived *ret, struct bp_err *err)
{
    struct bp_facts facts;
    struct bp_buf text = {0};
    struct bp_writer writer = {.out = &text, .any_order = true};
    int result = bp_plan_facts(outcome, &facts, err) < 0 ? -1 : 0;
    if (result == 0) {
        bp_facts_write(&writer, &facts);
        result = bp_writer_finish(&writer, err);
    }
    if (result == 0)
        bp_digest_of(text.data, text.len, &ret->facts);
    bp_buf_release(&text);
    return result;
}

/* As a stored plan is replayed. */
static int replay(const struct bp_request *request, const struct bp_outcome *outcome, struct bp_err *err)
{
    struct bp_buf text = {0};
    struct bp_writer writer = {.out = &text};
    struct bp_replay replayed = {0};
    struct bp_stored_snapshot stored[BP_STAGE_N] = {{0}};
    for (size_t i = 0; i < outcome->n_snapshots; i++) {
        const struct bp_snapshot *snapshot = &outcome->snapshots[i];
        stored[i] = (struct bp_stored_snapshot){.stage = snapshot->ir.stage,
                                                .digest = snapshot->digest,
                                                .bytes = snapshot->bytes.data,
                                                .n = snapshot->bytes.len};
        if (i) {
            stored[i].pass = outcome->derivations[i - 1].pass->name;
            stored[i].revision = outcome->derivations[i - 1].pass->revision;
        }
    }
    bp_request_write(&writer, request);
    int result = bp_writer_finish(&writer, err);
    if (result == 0 &&
        (result = bp_pipeline_replay(text.data, text.len, stored, outcome->n_snapshots, &replayed, err)) == 0 &&
        !replayed.identical)
        result = bp_fail(err, BP_E_internal, "", "the replay is divergent");
    bp_buf_release(&text);
    return result;
}

static int note_outcome(const struct bp_request *request, const struct bp_outcome *outcome, struct derived *ret,
                        struct bp_err *err)
{
    if (outcome->state != BP_PLAN_COMMITTED)
        return bp_fail(err, outcome->diagnostics.n ? outcome->diagnostics.at[0].code : BP_E_internal, "",
                       "not committed: %s", outcome->diagnostics.n ? outcome->diagnostics.at[0].message : "");
    ret->n_stages = outcome->n_snapshots;
    for (size_t i = 0; i < outcome->n_snapshots; i++)
        ret->stages[i] = outcome->snapshots[i].digest;
    return note_facts(outcome, ret, err) < 0 ? -1 : replay(request, outcome, err);
}

static int run_request(const struct bp_request *request, struct bp_arena *arena, struct derived *ret,
                       struct bp_err *err)
{
    struct bp_outcome outcome;
    if (bp_pipeline_plan_id(request, &ret->id, err) || bp_pipeline_run(request, NULL, arena, &outcome, err))
        return -1;
    int result = note_outcome(request, &outcome, ret, err);
    bp_outcome_release(&outcome);
    return result;
}

static int read_request(const char *text, size_t n, struct bp_arena *arena, struct bp_request *ret, struct bp_err *err)
{
    struct bp_json_position position;
    struct bp_problems problems = {0};
    struct bp_config config;
    json_t *json = bp_json_parse(text, n, &position, err);
    if (!json)
        return -1;
    int result = bp_request_read(json, arena, &problems, ret, &config);
    if (result < 0 || problems.out_of_memory)
        result = bp_fail(err, BP_E_out_of_memory, "", "no memory for the request");
    else if (!bp_problems_none(&problems))
        result = bp_fail(err, problems.at[0].code, problems.at[0].path, "%s", problems.at[0].message);
    bp_problems_release(&problems);
    json_decref(json);
    return result;
}

static int derive(const char *text, size_t n, struct derived *ret, struct bp_err *err)
{
    struct bp_arena arena = {0};
    struct bp_request request;
    int result = read_request(text, n, &arena, &request, err);
    if (result == 0)
        result = run_request(&request, &arena, ret, err);
    bp_arena_release(&arena);
    return result;
}

/* To the end: until nothing fails. What comes out all the same is what comes out else. */
static void sweep(const char *path, const char *text, size_t n_text, enum bp_fault_allocator allocator, bool once)
{
    struct derived expected = {0};
    struct bp_err err = {0};
    unsigned long failed = 1;
    ck_assert_msg(derive(text, n_text, &expected, &err) == 0, "%s: %s", path, err.message);
    for (long n = 0; failed; n++) {
        struct derived actual = {0};
        err = (struct bp_err){0};
        bp_fault_alloc_begin(allocator, n, once);
        const int result = derive(text, n_text, &actual, &err);
        bp_fault_alloc_end();
        failed = bp_fault_alloc_failed();
        ck_assert_msg(result == 0 ? memcmp(&actual, &expected, sizeof actual) == 0
                                  : failed && err.code == BP_E_out_of_memory,
                      "%s, %s allocation %ld: %d %s %s", path, allocators[allocator], n, result, bp_code_name(err.code),
                      err.message);
        computed->runs++;
        computed->injected += failed;
        ck_assert_int_lt(n, MOST);
    }
}

START_TEST(test_memory__a_request_is_derived_right_or_not_at_all)
{
    static const enum bp_fault_allocator which[] = {BP_FAULT_MALLOC, BP_FAULT_JANSSON};
    const enum bp_fault_allocator allocator = which[_i / 2];
    glob_t cases;
    if (!can_fail(allocator))
        return;
    ck_assert_int_eq(glob("tests/golden/*/request.json", 0, NULL, &cases), 0);
    for (size_t i = 0; i < cases.gl_pathc; i++) {
        size_t n;
        char *text = read_file(cases.gl_pathv[i], &n);
        sweep(cases.gl_pathv[i], text, n, allocator, _i % 2);
        free(text);
    }
    globfree(&cases);
    if (_i == 3) {
        printf("check-faults: derivation: %lu allocations failed in %lu runs; a wrong answer: 0\n", computed->injected,
               computed->runs);
        fflush(stdout);
    }
}
END_TEST

/* ---- The service ---- */

static const struct rig_faults faults = {
    .pause = bp_fault_alloc_pause, .failed = bp_fault_alloc_failed, .end = bp_fault_alloc_end, .of_memory = true};

static unsigned long run_one(enum bp_fault_allocator allocator, long n, bool once, struct rig_totals *to)
{
    bp_fault_alloc_begin(allocator, n, once);
    bp_fault_alloc_pause(true);
    return rig_run(allocators[allocator], n, &faults, to);
}

/* How many allocations the scenario has, about. */
static long length_of(enum bp_fault_allocator allocator, struct rig_totals *to)
{
    long n = 1;
    while (run_one(allocator, n, true, to))
        n *= 2;
    return n;
}

/* `i` says which allocator, and whether one fails or all. In the short form there are about `runs`. */
static void run_service(int i, const struct rig_scenario *scenario, int runs, struct rig_totals *to)
{
    const enum bp_fault_allocator allocator = (enum bp_fault_allocator)(i / 2);
    if (!can_fail(allocator))
        return;
    rig_prepare(scenario);
    const long step = getenv("BP_LONG") ? 1 : 1 + length_of(allocator, to) / runs;
    srand48(time(NULL));
    long n = lrand48() % step;
    while (run_one(allocator, n, i % 2, to)) {
        n += step == 1 ? 1 : 1 + lrand48() % (2 * step - 1);
        ck_assert_int_lt(n, MOST);
    }
    rig_release();
}

START_TEST(test_memory__whichever_allocation_fails_nothing_acknowledged_is_lost)
{
    run_service(_i, &rig_plans, SHORT_RUNS, totals);
    if (_i == 5)
        rig_report("memory", totals);
}
END_TEST

START_TEST(test_memory__whichever_allocation_fails_a_long_job_takes_no_more_than_it_may_and_ends)
{
    if (getenv("BP_LONG") || _i % 2 == _i / 2 % 2) /* of two one in the short form */
        run_service(_i, &rig_long_jobs, SHORT_JOB_RUNS, job_totals);
    if (_i == 5)
        rig_report("memory, long jobs", job_totals);
}
END_TEST

Suite *suite_memory(void)
{
    Suite *suite = suite_create("memory");
    TCase *tcase = tcase_create("memory"), *jobs = tcase_create("jobs");
    totals = rig_totals_new();
    job_totals = rig_totals_new();
    computed = rig_totals_new();
    tcase_set_timeout(tcase, 900);
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_loop_test(tcase, test_memory__a_request_is_derived_right_or_not_at_all, 0, 4);
    tcase_add_loop_test(tcase, test_memory__whichever_allocation_fails_nothing_acknowledged_is_lost, 0, 6);
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(jobs, 3600);
    tcase_add_checked_fixture(jobs, set_up, NULL);
    tcase_add_loop_test(jobs, test_memory__whichever_allocation_fails_a_long_job_takes_no_more_than_it_may_and_ends, 0,
                        6);
    suite_add_tcase(suite, jobs);
    return suite;
}
