/* Every kind of failure of the file system at every call of a scenario, the n-th alone and all from the n-th on, for
 * every n until nothing fails; then the power fails too. See rig.h for the scenario and for what must hold. */
#include <check.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/fault/rig.h"
#include "tests/lib/fault_vfs.h"

enum { MOST = 100000 };

/* Which runs of a row are part of the short form, too: with the n-th call failing alone, or all from it on; from a
 * database that a crash left, or from none. */
enum { CRASHED_ALL = 1, CRASHED_ONE = 2, NONE_ALL = 4, NONE_ONE = 8, EACH = 15 };

static const struct row {
    const char *name;
    unsigned in_short;
    struct fault fault;
} rows[] = {
    {"a write fails", CRASHED_ONE, {.call = FAULT_WRITE, .rc = SQLITE_IOERR_WRITE}},
    {"a write finds no room", CRASHED_ALL, {.call = FAULT_WRITE, .rc = SQLITE_FULL, .half = true}},
    {"a write stops half-way", 0, {.call = FAULT_WRITE, .rc = SQLITE_IOERR_WRITE, .half = true}},
    {"a sync fails", EACH, {.call = FAULT_SYNC, .rc = SQLITE_IOERR_FSYNC}},
    {"a read fails", CRASHED_ONE, {.call = FAULT_READ, .rc = SQLITE_IOERR_READ}},
    {"a truncation fails", EACH, {.call = FAULT_TRUNCATE, .rc = SQLITE_IOERR_TRUNCATE}},
    {"an open fails", EACH, {.call = FAULT_OPEN, .rc = SQLITE_CANTOPEN}},
    {"a size cannot be learnt", EACH, {.call = FAULT_SIZE, .rc = SQLITE_IOERR_FSTAT}},
    {"a lock fails", EACH, {.call = FAULT_LOCK, .rc = SQLITE_IOERR_LOCK}},
    {"the log's index cannot be mapped", EACH, {.call = FAULT_SHM_MAP, .rc = SQLITE_IOERR_SHMMAP}},
    {"the log's index finds no room", EACH, {.call = FAULT_SHM_MAP, .rc = SQLITE_IOERR_SHMSIZE}},
    {"a lock of the log's index fails", NONE_ONE, {.call = FAULT_SHM_LOCK, .rc = SQLITE_IOERR_SHMLOCK}},
    {"a deletion fails", EACH, {.call = FAULT_DELETE, .rc = SQLITE_IOERR_DELETE}},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static struct rig_totals *totals;

static void end(void)
{
    fault_vfs_set(NULL);
}

static const struct rig_faults faults = {.pause = fault_vfs_pause, .failed = fault_vfs_failed, .end = end};

static void set_up(void)
{
    fault_vfs_install();
}

static void run_row(const struct row *row, bool once)
{
    unsigned long failed = 1;
    long n = 0;
    for (; failed && n < MOST; n++) {
        struct fault fault = row->fault;
        fault.after = n;
        fault.once = once;
        fault_vfs_set(&fault);
        fault_vfs_pause(true);
        failed = rig_run(row->name, n, &faults, totals);
    }
    ck_assert_int_lt(n, MOST);
}

static void run(int i, bool empty, unsigned in_short)
{
    const struct row *row = &rows[i / 2];
    if (getenv("BP_LONG") || (row->in_short & in_short)) {
        rig_prepare(empty);
        run_row(row, i % 2);
        rig_release();
    }
}

START_TEST(test_vfs__whichever_call_fails_nothing_acknowledged_is_lost)
{
    run(_i, false, _i % 2 ? CRASHED_ONE : CRASHED_ALL);
}
END_TEST

START_TEST(test_vfs__whichever_call_fails_a_database_is_made_whole_or_not_at_all)
{
    run(_i, true, _i % 2 ? NONE_ONE : NONE_ALL);
    if (_i == 2 * N_ROWS - 1)
        rig_report("vfs", totals);
}
END_TEST

Suite *suite_vfs(void)
{
    Suite *suite = suite_create("vfs");
    TCase *tcase = tcase_create("vfs");
    totals = rig_totals_new();
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_loop_test(tcase, test_vfs__whichever_call_fails_nothing_acknowledged_is_lost, 0, 2 * N_ROWS);
    tcase_add_loop_test(tcase, test_vfs__whichever_call_fails_a_database_is_made_whole_or_not_at_all, 0, 2 * N_ROWS);
    suite_add_tcase(suite, tcase);
    return suite;
}
