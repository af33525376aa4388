/* Every kind of failure of the file system at every call of a scenario, the n-th alone and all from the n-th on, for
 * every n until nothing fails; then the power fails too. See rig.h for the scenario and for what must hold. */
#include <check.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/fault/rig.h"
#include "tests/lib/fault_vfs.h"

/* The short form leaves out most n of the long jobs, others in each run. */
enum { MOST = 100000, SHORT_STEP = 5 };

/* Which runs of a row are part of the short form, too: with the n-th call failing alone, or all from it on; from a
 * database that a crash left, or from none; or with long jobs. */
enum { CRASHED_ALL = 1, CRASHED_ONE = 2, NONE_ALL = 4, NONE_ONE = 8, JOBS_ALL = 16, JOBS_ONE = 32, EACH = 15 };

static const struct row {
    const char *name;
    unsigned in_short;
    struct fault fault;
} rows[] = {
    {"a write fails", CRASHED_ONE, {.call = FAULT_WRITE, .rc = SQLITE_IOERR_WRITE}},
    {"a write finds no room", CRASHED_ALL | JOBS_ALL, {.call = FAULT_WRITE, .rc = SQLITE_FULL, .half = true}},
    {"a write stops half-way", 0, {.call = FAULT_WRITE, .rc = SQLITE_IOERR_WRITE, .half = true}},
    {"a sync fails", EACH | JOBS_ALL | JOBS_ONE, {.call = FAULT_SYNC, .rc = SQLITE_IOERR_FSYNC}},
    {"a read fails", CRASHED_ONE, {.call = FAULT_READ, .rc = SQLITE_IOERR_READ}},
    {"a truncation fails", EACH | JOBS_ONE, {.call = FAULT_TRUNCATE, .rc = SQLITE_IOERR_TRUNCATE}},
    {"an open fails", EACH, {.call = FAULT_OPEN, .rc = SQLITE_CANTOPEN}},
    {"a size cannot be learnt", EACH, {.call = FAULT_SIZE, .rc = SQLITE_IOERR_FSTAT}},
    {"a lock fails", EACH, {.call = FAULT_LOCK, .rc = SQLITE_IOERR_LOCK}},
    {"the log's index cannot be mapped", EACH, {.call = FAULT_SHM_MAP, .rc = SQLITE_IOERR_SHMMAP}},
    {"the log's index finds no room", EACH, {.call = FAULT_SHM_MAP, .rc = SQLITE_IOERR_SHMSIZE}},
    {"a lock of the log's index fails", NONE_ONE, {.call = FAULT_SHM_LOCK, .rc = SQLITE_IOERR_SHMLOCK}},
    {"a deletion fails", EACH, {.call = FAULT_DELETE, .rc = SQLITE_IOERR_DELETE}},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static struct rig_totals *totals, *job_totals;

static void end(void)
{
    fault_vfs_set(NULL);
}

static const struct rig_faults faults = {.pause = fault_vfs_pause, .failed = fault_vfs_failed, .end = end};

static void set_up(void)
{
    fault_vfs_install();
}

static void run_row(const struct row *row, bool once, long step, struct rig_totals *to)
{
    unsigned long failed = 1;
    srand48(time(NULL));
    long n = lrand48() % step;
    for (; failed && n < MOST; n += step) {
        struct fault fault = row->fault;
        fault.after = n;
        fault.once = once;
        fault_vfs_set(&fault);
        fault_vfs_pause(true);
        failed = rig_run(row->name, n, &faults, to);
    }
    ck_assert_int_lt(n, MOST);
}

static void run(int i, const struct rig_scenario *scenario, unsigned in_short)
{
    const struct row *row = &rows[i / 2];
    const bool is_long = getenv("BP_LONG") != NULL, is_of_jobs = scenario == &rig_long_jobs;
    if (is_long || (row->in_short & in_short)) {
        rig_prepare(scenario);
        run_row(row, i % 2, is_of_jobs && !is_long ? SHORT_STEP : 1, is_of_jobs ? job_totals : totals);
        rig_release();
    }
}

START_TEST(test_vfs__whichever_call_fails_nothing_acknowledged_is_lost)
{
    run(_i, &rig_plans, _i % 2 ? CRASHED_ONE : CRASHED_ALL);
}
END_TEST

START_TEST(test_vfs__whichever_call_fails_a_database_is_made_whole_or_not_at_all)
{
    run(_i, &rig_no_database, _i % 2 ? NONE_ONE : NONE_ALL);
    if (_i == 2 * N_ROWS - 1)
        rig_report("vfs", totals);
}
END_TEST

START_TEST(test_vfs__whichever_call_fails_a_long_job_takes_no_more_than_it_may_and_ends)
{
    run(_i, &rig_long_jobs, _i % 2 ? JOBS_ONE : JOBS_ALL);
    if (_i == 2 * N_ROWS - 1)
        rig_report("vfs, long jobs", job_totals);
}
END_TEST

static void add_case(Suite *suite, const char *name, const TTest *const *tests, size_t n)
{
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, 900);
    tcase_add_checked_fixture(tcase, set_up, NULL);
    for (size_t i = 0; i < n; i++)
        tcase_add_loop_test(tcase, tests[i], 0, 2 * N_ROWS);
    suite_add_tcase(suite, tcase);
}

Suite *suite_vfs(void)
{
    const TTest *const plans[] = {test_vfs__whichever_call_fails_nothing_acknowledged_is_lost,
                                  test_vfs__whichever_call_fails_a_database_is_made_whole_or_not_at_all};
    const TTest *const jobs[] = {test_vfs__whichever_call_fails_a_long_job_takes_no_more_than_it_may_and_ends};
    Suite *suite = suite_create("vfs");
    totals = rig_totals_new();
    job_totals = rig_totals_new();
    add_case(suite, "plans", plans, sizeof plans / sizeof *plans);
    add_case(suite, "jobs", jobs, sizeof jobs / sizeof *jobs);
    return suite;
}
