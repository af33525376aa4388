/* The store when the disk is full or fails, and when others stay in its way. */
#include <check.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/store/internal.h"
#include "tests/lib/fault_alloc.h"
#include "tests/lib/fault_vfs.h"
#include "tests/lib/store_fixture.h"

static struct store_fixture fixture;
static const struct fault log_full = {.call = FAULT_WRITE, .rc = SQLITE_FULL, .files = SQLITE_OPEN_WAL},
                          log_write = {.call = FAULT_WRITE, .rc = SQLITE_IOERR_WRITE, .files = SQLITE_OPEN_WAL},
                          log_sync = {.call = FAULT_SYNC, .rc = SQLITE_IOERR_FSYNC, .files = SQLITE_OPEN_WAL},
                          database_sync = {.call = FAULT_SYNC, .rc = SQLITE_IOERR_FSYNC, .files = SQLITE_OPEN_MAIN_DB};

static void set_up(void)
{
    fault_vfs_install();
    store_fixture_init(&fixture);
    store_fixture_open(&fixture);
}

static void tear_down(void)
{
    fault_vfs_set(NULL);
    store_fixture_release(&fixture);
}

static enum bp_code put(const char *id)
{
    struct sample sample;
    sample_init(&sample, id, sample_stages, 2);
    enum bp_code code = sample_put(fixture.store, &sample);
    sample_release(&sample);
    return code;
}

static enum bp_code readiness(void)
{
    struct bp_err err = {0};
    bp_store_ready(fixture.store, &err);
    return err.code;
}

static bool has_plan(const char *id)
{
    struct bp_store_plan plan;
    struct bp_digest digest = digest_of_text(id);
    struct bp_err err = {0};
    bool has = bp_store_plan_read(fixture.store, &digest, &fixture.arena, &plan, &err) == 0;
    ck_assert(has || err.code == BP_E_not_found);
    return has;
}

/* A plan whose snapshot is n bytes that do not compress. */
static enum bp_code put_large(const char *id, size_t n)
{
    struct sample sample;
    char *text = malloc(n + 1);
    unsigned state = 1;
    for (const char *c = id; *c; c++)
        state = state * 31 + (unsigned char)*c;
    for (size_t i = 0; i < n; i++) {
        state = state * 1103515245 + 12345;
        text[i] = (char)(1 + (state >> 16) % 127);
    }
    text[n] = '\0';
    const char *texts[] = {text};
    sample_init(&sample, id, texts, 1);
    enum bp_code code = sample_put(fixture.store, &sample);
    sample_release(&sample);
    free(text);
    return code;
}

/* ---- Full ---- */

START_TEST(test_store_faults__a_full_disk_fails_the_unit_and_nothing_more)
{
    ck_assert_int_eq(put("before"), BP_OK);
    fault_vfs_set(&log_full);
    ck_assert_int_eq(put("during"), BP_E_storage_failed);
    ck_assert_int_eq(readiness(), BP_OK);
    ck_assert(has_plan("before"));
    ck_assert(!has_plan("during"));
    fault_vfs_set(NULL);
    ck_assert_int_eq(put("during"), BP_OK);
    ck_assert(has_plan("during"));
    struct bp_store_stats stats;
    bp_store_stats(fixture.store, &stats);
    ck_assert_uint_eq(stats.failed_units, 1);
    ck_assert_uint_eq(stats.plans[BP_STORE_COMMITTED], 2);
    ck_assert_uint_eq(stats.snapshots, 2);
}
END_TEST

START_TEST(test_store_faults__a_database_at_its_largest_size_fails_the_unit_and_nothing_more)
{
    struct bp_db *db = &fixture.store->writer.db; /* the writer waits */
    ck_assert_int_eq(put("before"), BP_OK);
    ck_assert_int_eq(bp_db_exec(db, "PRAGMA max_page_count = 60", NULL), 0);
    ck_assert_int_eq(put_large("large", 1000000), BP_E_storage_failed);
    ck_assert_int_eq(readiness(), BP_OK);
    ck_assert(!has_plan("large"));
    ck_assert_int_eq(put("small"), BP_OK);
    ck_assert_int_eq(bp_db_exec(db, "PRAGMA max_page_count = 1000000", NULL), 0);
    ck_assert_int_eq(put_large("large", 1000000), BP_OK);
    ck_assert_int_eq(store_fixture_int(&fixture, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"), 1);
}
END_TEST

/* ---- Failing ---- */

static void check_failed_for_good(const struct fault *fault)
{
    ck_assert_int_eq(put("before"), BP_OK);
    fault_vfs_set(fault);
    ck_assert_int_eq(put("during"), BP_E_storage_failed);
    ck_assert_int_eq(readiness(), BP_E_storage_failed);
    /* The disk works again, the connection is still not believed. */
    fault_vfs_set(NULL);
    ck_assert_int_eq(put("after"), BP_E_storage_failed);
    ck_assert(has_plan("before"));
    ck_assert(!has_plan("after"));
    /* A new start is. What failed may have reached the disk; then it is whole. */
    store_fixture_close(&fixture);
    store_fixture_open(&fixture);
    ck_assert_int_eq(readiness(), BP_OK);
    ck_assert(has_plan("before"));
    ck_assert(!has_plan("after"));
    ck_assert_int_eq(put("during"), BP_OK);
    ck_assert(has_plan("during"));
    ck_assert_int_eq(store_fixture_int(&fixture, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"), 1);
}

START_TEST(test_store_faults__after_a_failed_sync_nothing_is_acknowledged)
{
    check_failed_for_good(&log_sync);
}
END_TEST

START_TEST(test_store_faults__after_a_failed_write_nothing_is_acknowledged)
{
    check_failed_for_good(&log_write);
}
END_TEST

START_TEST(test_store_faults__every_unit_of_a_failed_group_is_told)
{
    struct sample samples[5];
    char id[] = "plan 0";
    fault_vfs_set(&log_sync);
    for (int i = 0; i < 5; i++) {
        id[5] = (char)('0' + i);
        sample_init(&samples[i], id, sample_stages, 2);
        sample_submit(fixture.store, &samples[i]);
    }
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(sample_wait(&samples[i]), BP_E_storage_failed);
    for (int i = 0; i < 5; i++)
        sample_release(&samples[i]);
}
END_TEST

START_TEST(test_store_faults__a_failed_sync_in_a_checkpoint_ends_the_trust)
{
    fault_vfs_set(&database_sync);
    /* What is committed meanwhile is in the log, whose syncs work. */
    ck_assert_int_eq(put_large("a", 5000000), BP_OK);
    enum bp_code code = put_large("b", 5000000);
    ck_assert(code == BP_OK || code == BP_E_storage_failed);
    for (int i = 0; i < 500 && readiness() == BP_OK; i++)
        usleep(10000);
    ck_assert_int_eq(readiness(), BP_E_storage_failed);
    fault_vfs_set(NULL);
    store_fixture_close(&fixture);
    store_fixture_open(&fixture);
    ck_assert(has_plan("a"));
}
END_TEST

START_TEST(test_store_faults__a_store_whose_first_checkpoint_fails_does_not_open)
{
    struct bp_store *store;
    struct bp_store_options options = {.path = fixture.path};
    struct bp_err err = {0};
    ck_assert_int_eq(put("before"), BP_OK);
    fault_vfs_set(&log_sync);
    ck_assert_int_eq(put("during"), BP_E_storage_failed);
    store_fixture_close(&fixture); /* leaves the log as a crash would */
    fault_vfs_set(&database_sync);
    ck_assert_int_eq(bp_store_open(&options, &store, &err), -1);
    ck_assert_int_eq(err.code, BP_E_storage_failed);
    fault_vfs_set(NULL);
    store_fixture_open(&fixture);
    ck_assert(has_plan("before"));
}
END_TEST

START_TEST(test_store_faults__each_group_is_synced_before_its_callback)
{
    for (int i = 0; i < 5; i++) {
        char id[] = {'p', (char)('0' + i), '\0'};
        unsigned long before = fault_vfs_syncs();
        ck_assert_int_eq(put(id), BP_OK);
        ck_assert_uint_gt(fault_vfs_syncs(), before);
    }
}
END_TEST

/* A process that is killed with what it was told on disk, and no close. */
START_TEST(test_store_faults__what_was_acknowledged_outlives_a_kill)
{
    store_fixture_close(&fixture);
    pid_t child = fork();
    if (child == 0) {
        store_fixture_open(&fixture);
        _exit(put("acknowledged") == BP_OK ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    store_fixture_open(&fixture);
    ck_assert(has_plan("acknowledged"));
    struct bp_store_stats stats;
    bp_store_stats(fixture.store, &stats);
    ck_assert_uint_eq(stats.wal_bytes, 0);
}
END_TEST

/* ---- Others in the way ---- */

static sqlite3 *begin_reading(void)
{
    sqlite3 *handle;
    ck_assert_int_eq(sqlite3_open_v2(fixture.path, &handle, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_db_config(handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(handle, "BEGIN; SELECT count(*) FROM plans", NULL, NULL, NULL), SQLITE_OK);
    return handle;
}

START_TEST(test_store_faults__over_the_limit_of_the_log_new_work_waits_for_the_foreign_reader)
{
    struct bp_store_options options = {.path = fixture.path, .wal_limit = 12 << 20};
    char id[] = "plan 0";
    store_fixture_close(&fixture);
    ck_assert_int_eq(bp_store_open(&options, &fixture.store, NULL), 0);
    ck_assert_int_eq(put("before"), BP_OK);
    sqlite3 *reader = begin_reading();
    for (int i = 0; i < 5; i++) {
        id[5] = (char)('0' + i);
        ck_assert_int_eq(put_large(id, 4000000), BP_OK); /* what was accepted is written all the same */
    }
    ck_assert_int_eq(readiness(), BP_E_wal_full);
    sqlite3_close(reader);
    for (int i = 0; i < 500 && readiness() != BP_OK; i++)
        usleep(10000);
    ck_assert_int_eq(readiness(), BP_OK);
    struct bp_store_stats stats;
    bp_store_stats(fixture.store, &stats);
    ck_assert_uint_eq(stats.wal_bytes, 0);
    ck_assert_uint_gt(stats.busy_checkpoints, 0);
}
END_TEST

START_TEST(test_store_faults__the_log_stays_small)
{
    char id[] = "plan 0";
    struct bp_store_stats stats;
    for (int i = 0; i < 8; i++) {
        id[5] = (char)('0' + i);
        ck_assert_int_eq(put_large(id, 4000000), BP_OK);
        bp_store_stats(fixture.store, &stats);
        ck_assert_uint_lt(stats.wal_bytes, 16 << 20);
    }
    ck_assert_uint_ge(stats.checkpoints, 2);
}
END_TEST

START_TEST(test_store_faults__a_read_has_a_deadline)
{
    struct bp_store_options options = {.path = fixture.path, .read_deadline_ms = 50};
    store_fixture_close(&fixture);
    /* A list whose filter must look at every row of many. */
    store_fixture_sql(&fixture, "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) "
                                "INSERT INTO plans SELECT i, CAST(printf('%032d', i) AS BLOB), 'committed', 0, 0, 'm', "
                                "'1', 'training', NULL, NULL, '{}' FROM n");
    ck_assert_int_eq(bp_store_open(&options, &fixture.store, NULL), 0);
    struct bp_store_plan_filter filter = {.model = "m", .mode = "inference"};
    struct bp_store_plan_page page;
    struct bp_err err = {0};
    int64_t begun = bp_monotonic_ns();
    ck_assert_int_eq(bp_store_plan_list(fixture.store, &filter, 50, NULL, &fixture.arena, &page, &err), -1);
    ck_assert_int_eq(err.code, BP_E_deadline_exceeded);
    ck_assert_int_lt(bp_monotonic_ns() - begun, 1000000000);
    /* The connection is as good as before. */
    ck_assert_int_eq(put("after"), BP_OK);
    ck_assert(has_plan("after"));
}
END_TEST

/* ---- Memory ---- */

static void set_up_without_memory(void)
{
    bp_fault_alloc_install();
    set_up();
}

/* A read is a transaction, which may not find the memory to end: the next read of its connection must not meet it. */
START_TEST(test_store_faults__a_read_that_had_no_memory_is_the_only_one)
{
    const struct bp_store_options options = {.path = fixture.path, .readers = 1};
    const struct bp_digest id = digest_of_text("read");
    unsigned long failed = 1, reads_failed = 0;
    ck_assert_int_eq(put("read"), BP_OK);
    for (long n = 0; failed; n++) {
        struct bp_store_plan plan;
        struct bp_err err = {0};
        store_fixture_close(&fixture); /* what is prepared takes no memory */
        ck_assert_int_eq(bp_store_open(&options, &fixture.store, NULL), 0);
        bp_fault_alloc_begin(BP_FAULT_SQLITE, n, _i);
        const int result = bp_store_plan_read(fixture.store, &id, &fixture.arena, &plan, &err);
        bp_fault_alloc_end();
        failed = bp_fault_alloc_failed();
        ck_assert(result == 0 || err.code == BP_E_out_of_memory);
        reads_failed += result < 0;
        ck_assert_msg(has_plan("read"), "after allocation %ld", n);
    }
    ck_assert_uint_gt(reads_failed, 10);
}
END_TEST

Suite *suite_store_faults(void)
{
    const TTest *const tests[] = {
        test_store_faults__a_full_disk_fails_the_unit_and_nothing_more,
        test_store_faults__a_database_at_its_largest_size_fails_the_unit_and_nothing_more,
        test_store_faults__after_a_failed_sync_nothing_is_acknowledged,
        test_store_faults__after_a_failed_write_nothing_is_acknowledged,
        test_store_faults__every_unit_of_a_failed_group_is_told,
        test_store_faults__a_failed_sync_in_a_checkpoint_ends_the_trust,
        test_store_faults__a_store_whose_first_checkpoint_fails_does_not_open,
        test_store_faults__each_group_is_synced_before_its_callback,
        test_store_faults__what_was_acknowledged_outlives_a_kill,
        test_store_faults__over_the_limit_of_the_log_new_work_waits_for_the_foreign_reader,
        test_store_faults__the_log_stays_small,
        test_store_faults__a_read_has_a_deadline,
    };
    Suite *suite = suite_create("store_faults");
    TCase *tcase = tcase_create("store_faults"), *memory = tcase_create("memory");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(memory, set_up_without_memory, tear_down);
    tcase_set_timeout(memory, 60);
    tcase_add_loop_test(memory, test_store_faults__a_read_that_had_no_memory_is_the_only_one, 0, 2);
    suite_add_tcase(suite, memory);
    return suite;
}
