/* The way from the schema of every release to the newest. tests/fault/schema has a database of each, as its own daemon
 * left it when it was killed, with what that daemon said of it (make.py there made them); whatever fixtures there are
 * are taken. */
#include <glob.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/store/internal.h"
#include "tests/api/expect.h"
#include "tests/api/server.h"
#include "tests/fault/files.h"
#include "tests/fault/inspect.h"
#include "tests/fault/rig.h"
#include "tests/lib/fault_vfs.h"

enum { SETTLE_MS = 60000, MOST = 10000, FROM_NOTHING = 1 };

static glob_t fixtures;

/* Of all tests, in shared memory: rounds, those that came within a migration, failures injected. */
static unsigned long *kills;

static void find_fixtures(void)
{
    if (glob("tests/fault/schema/*.db", 0, NULL, &fixtures) != 0)
        abort();
}

/* The fixture of a loop's index; what is past the last is no database at all. */
static const char *fixture_of(int i)
{
    return (size_t)i < fixtures.gl_pathc ? fixtures.gl_pathv[i] : NULL;
}

static unsigned version_of(const char *fixture)
{
    return fixture ? (unsigned)strtoul(strrchr(fixture, '/') + 1, NULL, 10) : 0;
}

static void put_fixture(const char *fixture, const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        unlink(keep_text("%s%s", path, suffixes[i]));
    if (fixture)
        copy_file(fixture, path);
}

/* ---- Looking from outside ---- */

static const char *text_of(const char *path, const char *sql)
{
    sqlite3 *database = NULL;
    sqlite3_stmt *statement = NULL;
    ck_assert_int_eq(sqlite3_open_v2(path, &database, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_busy_timeout(database, 5000), SQLITE_OK);
    ck_assert_msg(sqlite3_prepare_v2(database, sql, -1, &statement, NULL) == SQLITE_OK, "%s: %s", sql,
                  sqlite3_errmsg(database));
    ck_assert_msg(sqlite3_step(statement) == SQLITE_ROW, "%s: %s", sql, sqlite3_errmsg(database));
    const char *text = (const char *)sqlite3_column_text(statement, 0);
    text = keep_text("%s", text ? text : "");
    sqlite3_finalize(statement);
    ck_assert_int_eq(sqlite3_close(database), SQLITE_OK);
    return text;
}

static unsigned schema_version(const char *path)
{
    return (unsigned)strtoul(text_of(path, "PRAGMA user_version"), NULL, 10);
}

static const char *schema_text(const char *path)
{
    return text_of(path, "SELECT group_concat(type || ' ' || name || ' ' || coalesce(sql, ''), char(10)) FROM "
                         "(SELECT * FROM sqlite_schema ORDER BY type, name)");
}

/* Everything that the first schema keeps, but for the progress of jobs: no row of it may change. */
static const char *contents(const char *path)
{
    return text_of(path, "SELECT group_concat(line, char(10)) FROM ("
                         "SELECT hex(digest) || stage || schema || bytes || hex(data) AS line FROM snapshots UNION ALL "
                         "SELECT hex(id) || state || created_at || committed_at || model || parameters || mode || "
                         "coalesce(facts, '') || coalesce(diagnostics, '') || request FROM plans UNION ALL "
                         "SELECT hex(id) || hex(plan) || verdict || created_at || record FROM replays UNION ALL "
                         "SELECT plan || ' ' || position || ' ' || snapshot FROM plan_snapshots UNION ALL "
                         "SELECT plan || ' ' || position || ' ' || derivation FROM plan_derivations UNION ALL "
                         "SELECT source || ' ' || target || ' ' || derivation FROM edges UNION ALL "
                         "SELECT derivation || ' ' || position || check_id || verdict FROM evidence UNION ALL "
                         "SELECT snapshot || ' ' || position || check_id || verdict FROM snapshot_evidence UNION ALL "
                         "SELECT pass || revision || ' ' || source || ' ' || target FROM derivations UNION ALL "
                         "SELECT hex(id) || kind || state || attempts || passes || request FROM jobs)");
}

static void expect_sound(const char *path)
{
    ck_assert_str_eq(text_of(path, "SELECT group_concat(integrity_check) FROM pragma_integrity_check"), "ok");
    ck_assert_str_eq(text_of(path, "SELECT count(*) FROM pragma_foreign_key_check"), "0");
}

/* ---- The daemon on an older file ---- */

/* What was said once is said again; there may be more by now. */
static void expect_within(json_t *old, json_t *now, const char *where)
{
    const char *key;
    json_t *value;
    ck_assert_msg(json_typeof(old) == json_typeof(now), "%s: %s became %s", where, json_text(old), json_text(now));
    if (json_is_object(old)) {
        json_object_foreach(old, key, value) {
            ck_assert_msg(json_object_get(now, key) != NULL, "%s/%s is gone", where, key);
            expect_within(value, json_object_get(now, key), keep_text("%s/%s", where, key));
        }
    } else if (json_is_array(old)) {
        ck_assert_msg(json_array_size(old) == json_array_size(now), "%s: another length", where);
        for (size_t i = 0; i < json_array_size(old); i++)
            expect_within(json_array_get(old, i), json_array_get(now, i), keep_text("%s/%zu", where, i));
    } else {
        ck_assert_msg(json_equal(old, now), "%s: %s became %s", where, json_text(old), json_text(now));
    }
}

static void expect_said(json_t *said, const char *what)
{
    size_t i;
    json_t *old;
    json_array_foreach(at(said, keep_text("/%s", what)), i, old) {
        struct reply reply = http_get("/v1/%s/%s", what, text_at(old, "/id"));
        ck_assert_msg(reply.status == 200, "%s %s: %d", what, text_at(old, "/id"), reply.status);
        expect_within(old, reply.json, text_at(old, "/id"));
    }
}

static void wait_until_settled(void)
{
    for (int waited = 0; waited < SETTLE_MS; waited += 5) {
        if (server_count(&server, "SELECT count(*) FROM jobs WHERE state IN ('queued', 'running')") == 0)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    ck_abort_msg("what was accepted is not done in time");
}

/* What the older daemon accepted and did not come to is derived by this one. */
static void expect_accepted(json_t *said)
{
    size_t i;
    json_t *id;
    json_array_foreach(at(said, "/accepted"), i, id) {
        struct reply reply = http_get("/v1/plans/%s", json_string_value(id));
        ck_assert_msg(reply.status == 200 && strcmp(text_at(reply.json, "/state"), "committed") == 0, "%s: %.400s",
                      json_string_value(id), reply.body);
    }
}

/* Refused with status 1, and not a byte is another. */
static void expect_refusal(const char *const *arguments, int status, const char *says)
{
    struct server other = server;
    struct kept database = keep_file(server.database), log = keep_file(keep_text("%s-wal", server.database));
    snprintf(other.log, sizeof other.log, "%s/refusal", server.directory);
    unlink(other.log);
    ck_assert_int_eq(server_refuses(server.database, other.log, arguments), status);
    ck_assert_msg(!says || server_logged(&other, says), "nothing is said of \"%s\"", says);
    expect_unchanged(&database);
    expect_unchanged(&log);
    kept_release(&database);
    kept_release(&log);
}

static const char *const migrate[] = {"--migrate", NULL}, *const dry_run[] = {"--migrate", "--dry-run", NULL},
                         *const verify[] = {"--verify", NULL};

START_TEST(test_schema__a_database_of_every_release_is_brought_up_to_date)
{
    const char *fixture = fixture_of(_i);
    json_t *said = json_file("%.*s.json", (int)strlen(fixture) - 3, fixture);
    server_stop(&server);
    const char *newest = schema_text(server.database);
    const unsigned known = schema_version(server.database);
    put_fixture(fixture, server.database);
    ck_assert_uint_eq(schema_version(server.database), version_of(fixture));
    if (version_of(fixture) < known)
        expect_refusal(verify, 1, "migrate it first");
    expect_refusal(dry_run, 0, NULL);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t upgraded = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    server_restart(&server, NULL);
    ck_assert_uint_eq(schema_version(server.database), known);
    ck_assert_str_eq(schema_text(server.database), newest);
    expect_said(said, "plans");
    expect_said(said, "replays");
    wait_until_settled();
    expect_accepted(said);
    struct reply replay = http_post(keep_text("/v1/plans/%s/replays", text_at(said, "/plans/0/id")), NULL);
    ck_assert_int_eq(replay.status, 201);
    struct inspection inspection = inspect_since(server.database, upgraded, NULL, 0);
    ck_assert_msg(inspection.n_faults == 0, "%s", inspection.first);
    server_stop(&server);
    ck_assert_int_eq(server_refuses(server.database, keep_text("%s/verify", server.directory), verify), 0);
}
END_TEST

START_TEST(test_schema__a_newer_one_is_refused_and_untouched)
{
    static const char *const *const ways[] = {NULL, migrate, dry_run, verify};
    server_stop(&server);
    const unsigned known = schema_version(server.database);
    text_of(server.database, "PRAGMA user_version");
    sqlite3 *database = NULL;
    ck_assert_int_eq(sqlite3_open(server.database, &database), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(database, keep_text("PRAGMA user_version = %u", known + 1), NULL, NULL, NULL),
                     SQLITE_OK);
    ck_assert_int_eq(sqlite3_close(database), SQLITE_OK);
    expect_refusal(ways[_i], 1, keep_text("this program knows up to %u", known));
}
END_TEST

/* ---- Killed, or failing, in between ---- */

/* The old schema or the new one, or one of those between them, and in each case everything that was there. */
static void expect_old_or_new(const char *path, const char *fixture, const char *before, const char *old,
                              const char *newest, unsigned known)
{
    if (file_size(path) == 0) {
        ck_assert_ptr_null(fixture);
        return;
    }
    const unsigned version = schema_version(path);
    ck_assert_msg(version >= version_of(fixture) && version <= known, "it is of schema %u", version);
    expect_sound(path);
    if (version == version_of(fixture))
        ck_assert_str_eq(schema_text(path), old);
    if (version == known)
        ck_assert_str_eq(schema_text(path), newest);
    if (fixture)
        ck_assert_msg(strcmp(contents(path), before) == 0, "rows are not as they were");
}

START_TEST(test_schema__killed_at_any_moment_of_a_migration_it_is_the_old_or_the_new)
{
    const char *fixture = fixture_of(_i), *log = keep_text("%s/migrations", server.directory);
    const int rounds = getenv("BP_LONG") ? 200 : 12;
    unsigned short random[3] = {(unsigned short)time(NULL), (unsigned short)_i, 5};
    server_stop(&server);
    const char *newest = schema_text(server.database);
    const unsigned known = schema_version(server.database);
    put_fixture(fixture, server.database);
    const char *before = fixture ? contents(server.database) : "", *old = fixture ? schema_text(server.database) : "";
    int64_t longest_us = 20000; /* as long as a migration takes, as of the last one */
    for (int round = 0; round < rounds; round++) {
        put_fixture(fixture, server.database);
        server_start_and_kill(&server, (unsigned)(nrand48(random) % longest_us), migrate);
        expect_old_or_new(server.database, fixture, before, old, newest, known);
        kills[0]++;
        kills[1] += file_size(keep_text("%s-wal", server.database)) > 0;
        const int64_t begun = bp_monotonic_ns();
        ck_assert_int_eq(server_refuses(server.database, log, migrate), 0);
        longest_us = 1 + (bp_monotonic_ns() - begun) / 1000;
        ck_assert_uint_eq(schema_version(server.database), known);
        ck_assert_str_eq(schema_text(server.database), newest);
    }
    server_restart(&server, NULL);
    if (fixture)
        expect_said(json_file("%.*s.json", (int)strlen(fixture) - 3, fixture), "plans");
}
END_TEST

/* The same in this process, at every write and every sync, after each of which the power fails. */
static unsigned long migrate_failing(const char *path, const struct fault *fault)
{
    unsigned from, to;
    struct bp_err err = {0};
    fault_vfs_disk_begin();
    fault_vfs_set(fault);
    const int result = bp_store_migrate(path, false, &from, &to, &err);
    const unsigned long failed = fault_vfs_failed();
    fault_vfs_set(NULL);
    fault_vfs_power_cut((unsigned)fault->after);
    ck_assert_msg(result == 0 || (failed && err.code == BP_E_storage_failed), "%s", err.message);
    return failed;
}

START_TEST(test_schema__whichever_write_or_sync_of_a_migration_fails_it_is_the_old_or_the_new)
{
    static const struct fault faults[] = {{.call = FAULT_WRITE, .rc = SQLITE_IOERR_WRITE},
                                          {.call = FAULT_WRITE, .rc = SQLITE_FULL, .half = true},
                                          {.call = FAULT_SYNC, .rc = SQLITE_IOERR_FSYNC}};
    const char *fixture = fixture_of(_i / 3), *path = keep_text("%s/failing.db", server.directory);
    unsigned from, to;
    fault_vfs_install();
    server_stop(&server);
    const char *newest = schema_text(server.database);
    const unsigned known = schema_version(server.database);
    put_fixture(fixture, path);
    const char *before = fixture ? contents(path) : "", *old = fixture ? schema_text(path) : "";
    unsigned long failed = 1;
    for (long n = 0; failed; n++) {
        struct fault fault = faults[_i % 3];
        fault.after = n;
        put_fixture(fixture, path);
        failed = migrate_failing(path, &fault);
        kills[2] += failed;
        expect_old_or_new(path, fixture, before, old, newest, known);
        ck_assert_int_eq(bp_store_migrate(path, false, &from, &to, NULL), 0);
        ck_assert_str_eq(schema_text(path), newest);
        if (fixture)
            ck_assert_msg(strcmp(contents(path), before) == 0, "rows are not as they were");
        ck_assert_int_lt(n, MOST);
    }
    if ((size_t)_i == 3 * (fixtures.gl_pathc + FROM_NOTHING) - 1) {
        printf("check-faults: schema: %zu fixtures; %lu kills during a migration, %lu of them with some "
               "of it "
               "in the log; %lu failures injected into migrations; lost: 0\n",
               fixtures.gl_pathc, kills[0], kills[1], kills[2]);
        fflush(stdout);
    }
}
END_TEST

Suite *suite_schema(void)
{
    Suite *suite = suite_create("schema");
    TCase *tcase = server_tcase(suite, "schema");
    find_fixtures();
    const int n = (int)fixtures.gl_pathc;
    kills = (unsigned long *)(void *)rig_totals_new();
    tcase_add_loop_test(tcase, test_schema__a_database_of_every_release_is_brought_up_to_date, 0, n);
    tcase_add_loop_test(tcase, test_schema__a_newer_one_is_refused_and_untouched, 0, 4);
    tcase_add_loop_test(tcase, test_schema__killed_at_any_moment_of_a_migration_it_is_the_old_or_the_new, 0,
                        n + FROM_NOTHING);
    tcase_add_loop_test(tcase, test_schema__whichever_write_or_sync_of_a_migration_fails_it_is_the_old_or_the_new, 0,
                        3 * (n + FROM_NOTHING));
    return suite;
}
