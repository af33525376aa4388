/* Replays and jobs: what the store keeps beside plans. */
#include <check.h>

#include "tests/lib/store_fixture.h"

static struct store_fixture fixture;

static void set_up(void)
{
    store_fixture_init(&fixture);
    store_fixture_open(&fixture);
}

static void tear_down(void)
{
    store_fixture_release(&fixture);
}

static enum bp_code put_replay(const char *id, const char *plan)
{
    struct bp_store_replay replay = {.id = digest_of_text(id),
                                     .plan = digest_of_text(plan),
                                     .verdict = "identical",
                                     .record = {"[{}]", 4},
                                     .created_at = 5};
    struct bp_store_unit unit = {.replay = &replay};
    return store_fixture_commit(&fixture, &unit);
}

START_TEST(test_store_jobs__replays_are_found_by_id_and_by_plan)
{
    static const char *const ids[] = {"r1", "r2", "r3"};
    struct bp_store_replay replay;
    struct bp_store_replay_page page;
    struct bp_digest plan = digest_of_text("plan"), id = digest_of_text("r2");
    store_fixture_put(&fixture, "plan", NULL, 0);
    store_fixture_put(&fixture, "other", NULL, 0);
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(put_replay(ids[i], "plan"), BP_OK);
    ck_assert_int_eq(put_replay("r4", "other"), BP_OK);
    ck_assert_int_eq(put_replay("r5", "no such plan"), BP_E_internal);
    ck_assert_int_eq(bp_store_replay_read(fixture.store, &id, &fixture.arena, &replay, NULL), 0);
    ck_assert(bp_digest_equal(&replay.plan, &plan));
    ck_assert_str_eq(replay.verdict, "identical");
    ck_assert_str_eq(replay.record.at, "[{}]");
    ck_assert_int_eq(replay.created_at, 5);
    ck_assert_int_eq(bp_store_replay_list(fixture.store, &plan, 2, NULL, &fixture.arena, &page, NULL), 0);
    ck_assert_uint_eq(page.n, 2);
    ck_assert(bp_digest_equal(&page.replays[1].id, &id));
    ck_assert_int_eq(bp_store_replay_list(fixture.store, &plan, 2, page.next, &fixture.arena, &page, NULL), 0);
    ck_assert_uint_eq(page.n, 1);
    id = digest_of_text("r1");
    ck_assert(bp_digest_equal(&page.replays[0].id, &id));
    ck_assert_str_eq(page.next, "");
    id = digest_of_text("r5");
    ck_assert_int_eq(bp_store_replay_read(fixture.store, &id, &fixture.arena, &replay, NULL), -1);
}
END_TEST

static enum bp_code accept(const char *id, bool *ret_existed)
{
    struct bp_store_job job = {
        .id = digest_of_text(id), .kind = "plan", .request = {"{\"r\":1}", 7}, .passes = {"[]", 2}, .created_at = 10};
    struct bp_store_unit unit = {.accept = &job};
    enum bp_code code = store_fixture_commit(&fixture, &unit);
    *ret_existed = unit.existed;
    return code;
}

static enum bp_code step(const char *id, enum bp_store_job_state state)
{
    struct bp_store_job_change change = {
        .id = digest_of_text(id), .state = state, .superseded_by = digest_of_text("new"), .at = 20};
    struct bp_store_unit unit = {.change = &change};
    return store_fixture_commit(&fixture, &unit);
}

static struct bp_store_job read_job(const char *id)
{
    struct bp_store_job job;
    struct bp_digest digest = digest_of_text(id);
    ck_assert_int_eq(bp_store_job_read(fixture.store, &digest, &fixture.arena, &job, NULL), 0);
    return job;
}

START_TEST(test_store_jobs__attempts_are_counted_before_running_and_survive_a_restart)
{
    bool existed;
    ck_assert_int_eq(accept("a", &existed), BP_OK);
    ck_assert(!existed);
    ck_assert_uint_eq(read_job("a").attempts, 0);
    ck_assert_int_eq(step("a", BP_STORE_JOB_RUNNING), BP_OK);
    store_fixture_close(&fixture);
    store_fixture_open(&fixture);
    struct bp_store_job job = read_job("a");
    ck_assert_int_eq(job.state, BP_STORE_JOB_RUNNING);
    ck_assert_uint_eq(job.attempts, 1);
    ck_assert_str_eq(job.request.at, "{\"r\":1}");
    ck_assert_str_eq(job.kind, "plan");
    ck_assert_int_eq(job.updated_at, 20);
    ck_assert_int_eq(step("a", BP_STORE_JOB_RUNNING), BP_OK);
    ck_assert_uint_eq(read_job("a").attempts, 2);
}
END_TEST

START_TEST(test_store_jobs__states_only_move_forward)
{
    static const enum bp_store_job_state ends[] = {BP_STORE_JOB_DONE, BP_STORE_JOB_FAILED, BP_STORE_JOB_SUPERSEDED};
    bool existed;
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(accept("a", &existed), BP_OK);
        ck_assert(!existed);
        ck_assert_int_eq(accept("a", &existed), BP_OK);
        ck_assert(existed);
        ck_assert_int_eq(step("a", BP_STORE_JOB_QUEUED), BP_E_internal);
        ck_assert_int_eq(step("a", BP_STORE_JOB_RUNNING), BP_OK);
        ck_assert_int_eq(step("a", ends[i]), BP_OK);
        for (int next = 0; next < BP_STORE_JOB_STATE_N; next++)
            ck_assert_int_eq(step("a", (enum bp_store_job_state)next), BP_E_internal);
        struct bp_store_job job = read_job("a");
        ck_assert_int_eq(job.state, ends[i]);
        ck_assert_uint_eq(job.attempts, 1);
        ck_assert_int_eq(job.has_superseded_by, ends[i] == BP_STORE_JOB_SUPERSEDED);
    }
    struct bp_digest superseded_by = digest_of_text("new");
    struct bp_store_job job = read_job("a");
    ck_assert(bp_digest_equal(&job.superseded_by, &superseded_by));
    ck_assert_int_eq(step("unknown", BP_STORE_JOB_DONE), BP_E_internal);
}
END_TEST

START_TEST(test_store_jobs__unfinished_jobs_are_listed_in_order_of_acceptance)
{
    static const char *const ids[] = {"a", "b", "c", "d", "e"};
    struct bp_store_job_page page;
    struct bp_store_stats stats;
    bool existed;
    for (size_t i = 0; i < 5; i++)
        ck_assert_int_eq(accept(ids[i], &existed), BP_OK);
    ck_assert_int_eq(step("b", BP_STORE_JOB_DONE), BP_OK);
    ck_assert_int_eq(step("c", BP_STORE_JOB_RUNNING), BP_OK);
    bp_store_stats(fixture.store, &stats);
    ck_assert_uint_eq(stats.jobs_unfinished, 4);
    ck_assert_int_eq(bp_store_jobs_unfinished(fixture.store, 0, 3, &fixture.arena, &page, NULL), 0);
    ck_assert_uint_eq(page.n, 3);
    static const char *const expected[] = {"a", "c", "d"};
    for (size_t i = 0; i < 3; i++) {
        struct bp_digest id = digest_of_text(expected[i]);
        ck_assert(bp_digest_equal(&page.jobs[i].id, &id));
    }
    ck_assert_int_eq(bp_store_jobs_unfinished(fixture.store, page.jobs[2].seq, 3, &fixture.arena, &page, NULL), 0);
    ck_assert_uint_eq(page.n, 1);
}
END_TEST

Suite *suite_store_jobs(void)
{
    const TTest *const tests[] = {
        test_store_jobs__replays_are_found_by_id_and_by_plan,
        test_store_jobs__attempts_are_counted_before_running_and_survive_a_restart,
        test_store_jobs__states_only_move_forward,
        test_store_jobs__unfinished_jobs_are_listed_in_order_of_acceptance,
    };
    Suite *suite = suite_create("store_jobs");
    TCase *tcase = tcase_create("store_jobs");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    return suite;
}
