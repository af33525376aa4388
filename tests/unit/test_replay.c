/* Replay against what a store may come to say: nothing of it is taken for granted. */
#include <check.h>
#include <string.h>

#include "common/pipeline.h"

static const char training[] =
    "{\"model\":{\"name\":\"gpt2\"},\"workload\":{\"mode\":\"training\",\"sequence_length\":64,\"micro_batch_size\":1,"
    "\"global_batch_size\":2,\"dtype\":\"float16\"},\"strategy\":{\"tensor_parallel\":2},\"target\":{\"kind\":"
    "\"reference-queue\"},\"deployment\":{\"devices\":2,\"memory_bytes\":8589934592}}";

/* A plan as a store keeps it. */
static struct bp_arena arena;
static struct bp_outcome outcome;
static struct bp_request request;
static struct bp_buf canonical;
static struct bp_stored_snapshot stored[BP_STAGE_N];

static void derive(void)
{
    struct bp_json_position position;
    struct bp_problems problems = {0};
    struct bp_config config;
    struct bp_err err = {0};
    json_t *body = bp_json_parse(training, strlen(training), &position, &err);
    ck_assert_ptr_nonnull(body);
    ck_assert_int_eq(bp_request_read(body, &arena, &problems, &request, &config), 0);
    ck_assert_msg(bp_problems_none(&problems), "%s", problems.n ? problems.at[0].message : "");
    ck_assert_int_eq(bp_pipeline_run(&request, NULL, &arena, &outcome, &err), 0);
    ck_assert_uint_eq(outcome.n_snapshots, BP_STAGE_N);
    struct bp_writer writer = {.out = &canonical};
    bp_request_write(&writer, &request);
    ck_assert_int_eq(bp_writer_finish(&writer, &err), 0);
    for (size_t i = 0; i < BP_STAGE_N; i++)
        stored[i] = (struct bp_stored_snapshot){.stage = outcome.snapshots[i].ir.stage,
                                                .digest = outcome.snapshots[i].digest,
                                                .bytes = outcome.snapshots[i].bytes.data,
                                                .n = outcome.snapshots[i].bytes.len,
                                                .pass = i ? outcome.derivations[i - 1].pass->name : NULL,
                                                .revision = i ? outcome.derivations[i - 1].pass->revision : 0};
    json_decref(body);
    bp_problems_release(&problems);
}

static void release(void)
{
    bp_outcome_release(&outcome);
    bp_buf_release(&canonical);
    bp_arena_release(&arena);
}

static struct bp_replay replay(const struct bp_stored_snapshot *rows, size_t n)
{
    struct bp_replay verdict;
    struct bp_err err = {0};
    ck_assert_msg(bp_pipeline_replay(canonical.data, canonical.len, rows, n, &verdict, &err) == 0, "%s", err.message);
    return verdict;
}

START_TEST(test_replay__what_was_stored_comes_out_again)
{
    struct bp_replay verdict = replay(stored, BP_STAGE_N);
    ck_assert(verdict.identical);
    ck_assert_uint_eq(verdict.n_stages, BP_STAGE_N);
}
END_TEST

START_TEST(test_replay__rows_in_another_order_are_divergent)
{
    for (size_t a = 0; a < BP_STAGE_N; a++)
        for (size_t b = a + 1; b < BP_STAGE_N; b++) {
            struct bp_stored_snapshot rows[BP_STAGE_N];
            memcpy(rows, stored, sizeof rows);
            rows[a] = stored[b];
            rows[b] = stored[a];
            ck_assert_msg(!replay(rows, BP_STAGE_N).identical, "%zu and %zu", a, b);
        }
}
END_TEST

START_TEST(test_replay__a_missing_row_is_divergent)
{
    for (size_t gone = 0; gone + 1 < BP_STAGE_N; gone++) {
        struct bp_stored_snapshot rows[BP_STAGE_N];
        size_t n = 0;
        for (size_t i = 0; i < BP_STAGE_N; i++)
            if (i != gone)
                rows[n++] = stored[i];
        ck_assert_msg(!replay(rows, n).identical, "%zu", gone);
    }
}
END_TEST

START_TEST(test_replay__a_wrong_stage_or_pass_is_divergent)
{
    for (size_t i = 0; i < BP_STAGE_N; i++) {
        struct bp_stored_snapshot rows[BP_STAGE_N];
        for (enum bp_stage stage = 0; stage < BP_STAGE_N; stage++) {
            memcpy(rows, stored, sizeof rows);
            rows[i].stage = stage;
            ck_assert_msg(replay(rows, BP_STAGE_N).identical == (stage == stored[i].stage), "%zu as %d", i, (int)stage);
        }
        for (size_t j = 0; i && j < bp_passes_n; j++) {
            memcpy(rows, stored, sizeof rows);
            rows[i].pass = bp_passes[j]->name;
            bool same = strcmp(rows[i].pass, stored[i].pass) == 0;
            ck_assert_msg(replay(rows, BP_STAGE_N).identical == same, "%zu by %s", i, rows[i].pass);
        }
    }
}
END_TEST

START_TEST(test_replay__a_request_that_lacks_a_binding_is_divergent)
{
    struct bp_err err = {0};
    request.target.kind = _i ? BP_TARGET_SLOT : BP_TARGET_NONE;
    if (!_i)
        request.deployment = (struct bp_deployment){0};
    bp_buf_clear(&canonical);
    struct bp_writer writer = {.out = &canonical};
    bp_request_write(&writer, &request);
    ck_assert_int_eq(bp_writer_finish(&writer, &err), 0);
    struct bp_replay verdict = replay(stored, BP_STAGE_N);
    ck_assert(!verdict.identical);
    ck_assert(verdict.stages[BP_STAGE_PORTABLE].identical);
    ck_assert(!verdict.stages[BP_STAGE_CONCRETE].identical);
}
END_TEST

START_TEST(test_replay__a_request_that_does_not_parse_is_our_fault)
{
    static const char *const texts[] = {"", "{", "[1e999", "{\"a\":1,\"a\":1}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct bp_replay verdict;
        struct bp_err err = {0};
        ck_assert_int_eq(bp_pipeline_replay(texts[i], strlen(texts[i]), stored, BP_STAGE_N, &verdict, &err), -1);
        ck_assert_int_eq(err.code, BP_E_internal);
    }
}
END_TEST

Suite *suite_replay(void)
{
    Suite *suite = suite_create("replay");
    TCase *tcase = tcase_create("replay");
    tcase_add_checked_fixture(tcase, derive, release);
    tcase_add_test(tcase, test_replay__what_was_stored_comes_out_again);
    tcase_add_test(tcase, test_replay__rows_in_another_order_are_divergent);
    tcase_add_test(tcase, test_replay__a_missing_row_is_divergent);
    tcase_add_test(tcase, test_replay__a_wrong_stage_or_pass_is_divergent);
    tcase_add_loop_test(tcase, test_replay__a_request_that_lacks_a_binding_is_divergent, 0, 2);
    tcase_add_test(tcase, test_replay__a_request_that_does_not_parse_is_our_fault);
    suite_add_tcase(suite, tcase);
    return suite;
}
