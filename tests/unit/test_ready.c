/* Readiness: each probe fails for its own cause alone, the write is a real one, and asking often costs little. */
#include <check.h>
#include <sqlite3.h>
#include <string.h>
#include <time.h>

#include "tests/lib/fault_vfs.h"
#include "tests/lib/service_fixture.h"

enum { QUEUE = 2 };

static struct service_fixture fixture;

static void set_up(void)
{
    fault_vfs_install();
    service_fixture_init(&fixture, QUEUE);
}

static void tear_down(void)
{
    fault_vfs_set(NULL);
    service_fixture_release(&fixture);
}

/* As if the last write were long ago. */
static void forget_last_write(void)
{
    pthread_mutex_lock(&fixture.service->readiness.lock);
    fixture.service->readiness.ended_at = 0;
    pthread_mutex_unlock(&fixture.service->readiness.lock);
}

static const struct client *ask(void)
{
    static struct client client;
    if (client.answer)
        client_done(&client);
    client_ask_ready(&fixture, &client);
    client_wait(&client);
    return &client;
}

static uint64_t failures(enum bp_probe probe)
{
    return atomic_load(&fixture.metrics.cells[BP_CELLS_PROBE_FAILURES + (size_t)probe]);
}

static uint64_t commits(void)
{
    struct bp_store_stats stats;
    bp_store_stats(fixture.store.store, &stats);
    return stats.commits;
}

/* 503 of that code, at that probe and no other. */
static void expect_failed(const struct bp_answer *answer, enum bp_probe probe, const char *code)
{
    char path[64], member[64];
    ck_assert_int_eq(answer->status, 503);
    ck_assert_str_eq(answer_text(answer, "code"), code);
    for (size_t i = 0; i < BP_PROBE_N; i++) {
        const char *name = bp_metrics_label(BP_LABEL_PROBE, i);
        const bool fails = i == probe;
        snprintf(path, sizeof path, "\"path\":\"/probes/%s\"", name);
        snprintf(member, sizeof member, "\"%s\":\"%s\"", name, fails ? "failed" : "ok");
        ck_assert_msg(answer_has(answer, path) == fails, "%s: %.*s", name, (int)answer->n, answer->body);
        ck_assert_msg(answer_has(answer, member), "%s: %.*s", name, (int)answer->n, answer->body);
        ck_assert_uint_eq(failures((enum bp_probe)i), fails);
    }
}

static void expect_ready(void)
{
    const struct client *client = ask();
    ck_assert_msg(client->answer->status == 200, "%.*s", (int)client->answer->n, client->answer->body);
}

START_TEST(test_ready__the_answer_names_every_probe)
{
    const struct bp_answer *answer = ask()->answer;
    ck_assert_int_eq(answer->status, 200);
    ck_assert(answer_has(answer, "{\"status\":\"ready\",\"probes\":{\"write\":\"ok\",\"schema\":\"ok\",\"disk\":\"ok\","
                                 "\"wal\":\"ok\",\"queue\":\"ok\"}}"));
}
END_TEST

START_TEST(test_ready__a_write_is_on_disk_before_the_answer)
{
    const unsigned long syncs = fault_vfs_syncs();
    const uint64_t before = commits();
    struct bp_store_stats stats;
    expect_ready();
    bp_store_stats(fixture.store.store, &stats);
    ck_assert_uint_gt(fault_vfs_syncs(), syncs);
    ck_assert_uint_eq(stats.commits, before + 1);
    ck_assert_uint_gt(stats.wal_bytes, 4096); /* a frame, though nothing changed */
    ck_assert_uint_eq(atomic_load(&fixture.metrics.cells[BP_CELLS_COMMIT_UNITS]), 1);
}
END_TEST

START_TEST(test_ready__asking_often_writes_once_a_second_at_most)
{
    const uint64_t before = commits(), began = bp_clock_ns();
    uint64_t asked = 0;
    for (; asked < 2000; asked++)
        expect_ready();
    const uint64_t seconds = (bp_clock_ns() - began) / UINT64_C(1000000000);
    ck_assert_uint_ge(commits(), before + 1);
    ck_assert_uint_le(commits(), before + 1 + seconds);
    forget_last_write();
    const uint64_t then = commits();
    expect_ready();
    ck_assert_uint_eq(commits(), then + 1);
}
END_TEST

START_TEST(test_ready__a_full_disk_fails_the_write_and_passes)
{
    fault_vfs_set(&(struct fault){.call = FAULT_WRITE, .rc = SQLITE_FULL, .files = SQLITE_OPEN_WAL});
    expect_failed(ask()->answer, BP_PROBE_WRITE, "storage_failed");
    fault_vfs_set(NULL);
    ck_assert_int_eq(ask()->answer->status, 503); /* what came of the last one counts for a second */
    forget_last_write();
    expect_ready();
}
END_TEST

START_TEST(test_ready__a_failed_sync_fails_the_write_for_good)
{
    fault_vfs_set(&(struct fault){.call = FAULT_SYNC, .rc = SQLITE_IOERR_FSYNC, .files = SQLITE_OPEN_WAL});
    expect_failed(ask()->answer, BP_PROBE_WRITE, "storage_failed");
    fault_vfs_set(NULL);
    forget_last_write();
    ck_assert_int_eq(ask()->answer->status, 503);
}
END_TEST

START_TEST(test_ready__another_schema_is_seen_and_left_alone)
{
    store_fixture_sql(&fixture.store, "PRAGMA user_version = 99");
    expect_failed(ask()->answer, BP_PROBE_SCHEMA, "schema_newer");
    ck_assert_int_eq(store_fixture_int(&fixture.store, "PRAGMA user_version"), 99);
}
END_TEST

START_TEST(test_ready__too_little_room_is_said_before_it_is_none)
{
    fixture.service->disk_reserve = UINT64_MAX;
    expect_failed(ask()->answer, BP_PROBE_DISK, "disk_low");
    fixture.service->disk_reserve = 0;
    expect_ready();
}
END_TEST

START_TEST(test_ready__a_log_over_its_limit_is_a_probe_of_its_own)
{
    service_fixture_stop(&fixture);
    fixture.store.wal_limit = 1;
    service_fixture_start(&fixture, QUEUE);
    expect_failed(ask()->answer, BP_PROBE_WAL, "wal_full"); /* its own write is in the log */
}
END_TEST

START_TEST(test_ready__a_full_queue_is_a_probe_of_its_own)
{
    struct client clients[QUEUE];
    service_fixture_block(&fixture);
    for (unsigned i = 0; i < QUEUE; i++)
        client_post(&fixture, &clients[i], request_text(1024 + 8 * i, 0), false);
    const struct client *client = ask();
    expect_failed(client->answer, BP_PROBE_QUEUE, "queue_full");
    ck_assert_uint_gt(client->answer->retry_after, 0);
    service_fixture_unblock(&fixture);
    for (unsigned i = 0; i < QUEUE; i++) {
        client_wait(&clients[i]);
        client_done(&clients[i]);
    }
    expect_ready();
}
END_TEST

START_TEST(test_ready__several_failures_are_all_named)
{
    fixture.service->disk_reserve = UINT64_MAX;
    store_fixture_sql(&fixture.store, "PRAGMA user_version = 99");
    const struct bp_answer *answer = ask()->answer;
    ck_assert_int_eq(answer->status, 503);
    ck_assert(answer_has(answer, "\"path\":\"/probes/disk\""));
    ck_assert(answer_has(answer, "\"path\":\"/probes/schema\""));
    ck_assert(answer_has(answer, "\"write\":\"ok\""));
}
END_TEST

/* ---- A writer that does not come to it ---- */

static sqlite3 *hold_the_writer(void)
{
    sqlite3 *other;
    ck_assert_int_eq(sqlite3_open(fixture.store.path, &other), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    return other;
}

static void let_go(sqlite3 *other)
{
    ck_assert_int_eq(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_close(other), SQLITE_OK);
}

START_TEST(test_ready__who_waits_for_the_writer_too_long_is_told_so)
{
    struct client first, second;
    sqlite3 *other = hold_the_writer();
    client_ask_ready(&fixture, &first);
    ck_assert(first.waits);
    ck_assert_uint_eq(first.waiter.patience_seconds, 2);
    struct bp_answer *late = bp_service_lose_patience(fixture.service, &first.waiter);
    ck_assert_ptr_nonnull(late);
    expect_failed(late, BP_PROBE_WRITE, "storage_failed");
    ck_assert(answer_has(late, "has not written for 2 seconds"));
    bp_answer_unref(late);
    ck_assert_ptr_null(bp_service_lose_patience(fixture.service, &first.waiter)); /* waits no more */
    /* Who comes when it has been waited for that long is told at once. */
    pthread_mutex_lock(&fixture.service->readiness.lock);
    fixture.service->readiness.began_at -= UINT64_C(2000000000);
    pthread_mutex_unlock(&fixture.service->readiness.lock);
    client_ask_ready(&fixture, &second);
    ck_assert(!second.waits);
    ck_assert_int_eq(second.answer->status, 503);
    let_go(other);
    client_done(&second);
    const struct timespec moment = {.tv_nsec = 10000000};
    while (ask()->answer->status != 200) /* as soon as the writer gets through */
        nanosleep(&moment, NULL);
    ck_assert(!client_was_woken(&first));
}
END_TEST

START_TEST(test_ready__all_who_ask_meanwhile_share_one_write)
{
    enum { N = 5 };
    struct client clients[N];
    const uint64_t before = commits();
    sqlite3 *other = hold_the_writer();
    for (size_t i = 0; i < N; i++) {
        client_ask_ready(&fixture, &clients[i]);
        ck_assert(clients[i].waits);
    }
    ck_assert(bp_service_leave(fixture.service, &clients[2].waiter)); /* one hangs up */
    ck_assert(!bp_service_leave(fixture.service, &clients[2].waiter));
    let_go(other);
    for (size_t i = 0; i < N; i++)
        if (i != 2) {
            client_wait(&clients[i]);
            ck_assert_int_eq(clients[i].answer->status, 200);
            ck_assert(!bp_service_leave(fixture.service, &clients[i].waiter));
            client_done(&clients[i]);
        }
    ck_assert(!client_was_woken(&clients[2]));
    ck_assert_uint_eq(commits(), before + 1);
}
END_TEST

Suite *suite_ready(void)
{
    Suite *suite = suite_create("ready");
    TCase *tcase = tcase_create("ready");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, test_ready__the_answer_names_every_probe);
    tcase_add_test(tcase, test_ready__a_write_is_on_disk_before_the_answer);
    tcase_add_test(tcase, test_ready__asking_often_writes_once_a_second_at_most);
    tcase_add_test(tcase, test_ready__a_full_disk_fails_the_write_and_passes);
    tcase_add_test(tcase, test_ready__a_failed_sync_fails_the_write_for_good);
    tcase_add_test(tcase, test_ready__another_schema_is_seen_and_left_alone);
    tcase_add_test(tcase, test_ready__too_little_room_is_said_before_it_is_none);
    tcase_add_test(tcase, test_ready__a_log_over_its_limit_is_a_probe_of_its_own);
    tcase_add_test(tcase, test_ready__a_full_queue_is_a_probe_of_its_own);
    tcase_add_test(tcase, test_ready__several_failures_are_all_named);
    tcase_add_test(tcase, test_ready__who_waits_for_the_writer_too_long_is_told_so);
    tcase_add_test(tcase, test_ready__all_who_ask_meanwhile_share_one_write);
    suite_add_tcase(suite, tcase);
    return suite;
}
