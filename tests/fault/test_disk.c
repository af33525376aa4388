/* The real daemon on disks and files in the states in which they are found: what it says, and that it leaves what it
 * cannot read as it was. */
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/api/expect.h"
#include "tests/api/server.h"
#include "tests/fault/files.h"
#include "tests/fault/inspect.h"
#include "tests/fault/load.h"

enum { PLANS = 6, PAGE = 4096, MEMORY = 4 << 20 };

static struct ack acks[64];
static size_t n_acks;

/* Posts the request of a number; what is acknowledged is noted. Returns the status. */
static int post(unsigned long number)
{
    struct reply reply = http_post("/v1/plans", load_request(number));
    const bool rejected = reply.status == 422;
    if (reply.status == 201 || rejected) {
        ck_assert_uint_lt(n_acks, sizeof acks / sizeof *acks);
        struct ack *ack = &acks[n_acks++];
        *ack = (struct ack){.kind = ACK_PLAN, .number = number, .rejected = rejected};
        snprintf(ack->id, sizeof ack->id, "%s", text_at(reply.json, rejected ? "/plan" : "/id"));
    }
    return reply.status;
}

static void make_plans(void)
{
    for (unsigned long i = 0; i < PLANS; i++)
        ck_assert_int_eq(post(i), 201);
}

static const char *beside(const char *suffix)
{
    return keep_text("%s%s", server.database, suffix);
}

/* Everything that was acknowledged is there, and whole. */
static void expect_all(void)
{
    for (size_t i = 0; i < n_acks; i++) {
        struct reply reply = http_get("/v1/plans/%s", acks[i].id);
        ck_assert_msg(reply.status == 200, "%s was acknowledged: %d", acks[i].id, reply.status);
    }
    struct inspection inspection = inspect(server.database, acks, n_acks);
    ck_assert_msg(inspection.n_faults == 0, "%s", inspection.first);
}

/* A way to start the daemon that must end with status 1, say why in its log (NULL: elsewhere), and leave every byte. */
static void expect_refusal(const char *const *arguments, const char *says)
{
    struct server other = server;
    struct kept database = keep_file(server.database), log = keep_file(beside("-wal"));
    snprintf(other.log, sizeof other.log, "%s/refusal", server.directory);
    unlink(other.log);
    ck_assert_int_eq(server_refuses(server.database, other.log, arguments), 1);
    ck_assert_msg(!says || server_logged(&other, says), "nothing is said of \"%s\": %s", says,
                  (const char *)keep_file(other.log).bytes);
    expect_unchanged(&database);
    expect_unchanged(&log);
    kept_release(&database);
    kept_release(&log);
}

/* ---- The log ---- */

static void kill_with_log(void)
{
    make_plans();
    server_kill(&server);
    ck_assert_uint_gt(file_size(beside("-wal")), 32 + 8 * (24 + PAGE));
}

START_TEST(test_disk__a_missing_index_of_the_log_is_made_again)
{
    kill_with_log();
    ck_assert_int_eq(unlink(beside("-shm")), 0);
    server_restart(&server, NULL);
    expect_all();
    ck_assert_int_eq(post(PLANS), 201);
}
END_TEST

/* Torn over a log that the database has all of, and that was to be cut off before: nothing is lost with it. One page
 * that the database has otherwise, and it is. */
START_TEST(test_disk__a_damaged_head_of_a_log_brought_home_is_no_loss)
{
    sqlite3 *database = NULL;
    kill_with_log();
    struct kept log = keep_file(beside("-wal"));
    ck_assert_int_eq(sqlite3_open(server.database, &database), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(database, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_close(database), SQLITE_OK);
    write_file(beside("-wal"), log.bytes, log.n);
    kept_release(&log);
    flip(beside("-wal"), 17);
    const size_t last = file_size(beside("-wal")) - 1;
    flip(beside("-wal"), last);
    expect_refusal(NULL, "the head of the write-ahead log is damaged");
    flip(beside("-wal"), last);
    server_restart(&server, NULL);
    expect_all();
    ck_assert_int_eq(post(PLANS), 201);
    expect_all();
}
END_TEST

/* Cut within its last commit, as a crash cuts it that comes before the sync: that commit was never there, the rest is,
 * and whole. */
START_TEST(test_disk__a_log_cut_within_its_last_commit_has_all_before)
{
    kill_with_log();
    ck_assert_int_eq(truncate(beside("-wal"), (off_t)file_size(beside("-wal")) - 1000), 0);
    n_acks--;
    server_restart(&server, NULL);
    expect_all();
    ck_assert_int_eq(post(PLANS - 1), 201);
    expect_all();
}
END_TEST

/* Damaged before that, and acknowledged commits could not be read: they are not dropped. */
START_TEST(test_disk__a_log_damaged_before_its_end_is_refused_and_kept)
{
    static const char *const migrate[] = {"--migrate", NULL}, *const verify[] = {"--verify", NULL};
    static const char *const *const ways[] = {NULL, migrate, verify};
    kill_with_log();
    const size_t places[] = {32 + 100, 32 + 3 * (24 + PAGE) + 16, 32 + 2 * (24 + PAGE) + 8};
    flip(beside("-wal"), places[_i % 3]);
    expect_refusal(ways[_i / 3], "write-ahead log is damaged at frame");
}
END_TEST

START_TEST(test_disk__a_log_with_a_damaged_head_is_refused_and_kept)
{
    kill_with_log();
    flip(beside("-wal"), 17);
    expect_refusal(NULL, "the head of the write-ahead log is damaged");
    overwrite(beside("-wal"), 0, "\0\0\0\0", 4);
    expect_refusal(NULL, "the head of the write-ahead log is damaged");
}
END_TEST

/* ---- The file ---- */

START_TEST(test_disk__an_empty_file_with_a_log_beside_it_is_refused_and_the_log_kept)
{
    kill_with_log();
    if (_i)
        ck_assert_int_eq(unlink(server.database), 0);
    else
        ck_assert_int_eq(truncate(server.database, 0), 0);
    expect_refusal(NULL, "its database is empty or gone");
}
END_TEST

START_TEST(test_disk__an_empty_file_becomes_a_database_and_it_is_said)
{
    server_stop(&server);
    ck_assert(server_logged(&server, "a new database was made"));
    unlink(server.log);
    server_restart(&server, NULL);
    ck_assert(!server_logged(&server, "a new database was made"));
    server_stop(&server);
    ck_assert_int_eq(truncate(server.database, 0), 0);
    server_restart(&server, NULL);
    ck_assert(server_logged(&server, "a new database was made"));
    ck_assert_int_eq(post(0), 201);
}
END_TEST

static void foreign_database(void)
{
    sqlite3 *database = NULL;
    ck_assert_int_eq(sqlite3_open(server.database, &database), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(database, "CREATE TABLE notes (text)", NULL, NULL, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_close(database), SQLITE_OK);
}

static void foreign_database_of_an_application(void)
{
    sqlite3 *database = NULL;
    ck_assert_int_eq(sqlite3_open(server.database, &database), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(database,
                                  "PRAGMA application_id = 77; PRAGMA user_version = 1; CREATE TABLE notes (text)",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    ck_assert_int_eq(sqlite3_close(database), SQLITE_OK);
}

static void text_file(void)
{
    const char *text = keep_text("%s%*s", "these are notes\n", 3 * PAGE, "");
    write_file(server.database, text, strlen(text));
}

static void short_file(void)
{
    write_file(server.database, "notes", 5);
}

static void directory(void)
{
    ck_assert_int_eq(mkdir(server.database, 0700), 0);
}

static const struct {
    void (*make)(void);
    const char *says;
} foreign[] = {
    {foreign_database, "is a database of another program"},
    {foreign_database_of_an_application, "is a database of another program"},
    {text_file, "file is not a database"},
    {short_file, "file is not a database"},
    {directory, "is not a file"},
};

START_TEST(test_disk__a_file_that_is_not_ours_is_refused_and_untouched)
{
    server_stop(&server);
    ck_assert_int_eq(unlink(server.database), 0);
    unlink(beside("-wal"));
    unlink(beside("-shm"));
    foreign[_i].make();
    struct stat before, after;
    ck_assert_int_eq(stat(server.database, &before), 0);
    expect_refusal(NULL, foreign[_i].says);
    ck_assert_int_eq(stat(server.database, &after), 0);
    ck_assert_int_eq(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    ck_assert(access(beside("-wal"), F_OK) != 0);
}
END_TEST

static unsigned page_of(const char *name)
{
    return (unsigned)server_count(&server, keep_text("SELECT rootpage FROM sqlite_schema WHERE name = '%s'", name));
}

static void spoil_page(unsigned page, size_t offset, size_t n)
{
    static const unsigned char garbage[PAGE] = {0xde, 0xad, 0xbe, 0xef};
    overwrite(server.database, (size_t)(page - 1) * PAGE + offset, garbage, n);
}

/* The first page, what it says of the tables, or an index that a start counts. */
START_TEST(test_disk__a_corrupt_page_that_a_start_needs_is_refused_and_kept)
{
    make_plans();
    const unsigned page = page_of("sqlite_autoindex_snapshots_1");
    server_stop(&server);
    spoil_page(_i == 2 ? page : 1, _i == 1 ? 100 : 0, _i == 0 ? 16 : 1000);
    expect_refusal(NULL, _i == 0 ? "file is not a database" : "malformed");
    expect_refusal(NULL, "blueprint.db: ");
}
END_TEST

/* Any other page: what is on it is not answered, the rest is; --verify finds it, and so does who writes to it, which
 * ends the daemon. */
START_TEST(test_disk__a_corrupt_page_is_found_by_who_comes_to_it)
{
    static const char *const verify[] = {"--verify", NULL};
    make_plans();
    const unsigned page = page_of("edges");
    struct reply plan = http_get("/v1/plans/%s", acks[0].id);
    const char *digest = text_at(plan.json, "/snapshots/0/digest");
    server_stop(&server);
    spoil_page(page, 0, PAGE);
    expect_refusal(verify, NULL); /* what it found is on its standard output */
    server_restart(&server, NULL);
    struct reply lineage = http_get("/v1/snapshots/%s/lineage?direction=descendants", digest);
    expect_problem(&lineage, 503, "storage_failed");
    ck_assert_int_eq(http_get("/v1/snapshots/%s", digest).status, 200);
    ck_assert_int_eq(http_get("/v1/plans/%s", acks[0].id).status, 200);
    struct kept database = keep_file(server.database);
    struct reply refused = http_post("/v1/plans", load_request(PLANS));
    expect_problem(&refused, 503, "storage_failed");
    ck_assert_int_eq(server_wait(&server), 1);
    ck_assert(server_logged(&server, "malformed"));
    expect_unchanged(&database);
    kept_release(&database);
}
END_TEST

/* ---- Where nothing can be written ---- */

/* The database on a file system of its own, which ends with the test. */
static const char *move_to_memory(void)
{
    const char *mounted = keep_text("%s/mounted", server.directory);
    if (!own_mounts())
        return NULL;
    make_plans();
    server_stop(&server);
    mount_memory(mounted, MEMORY);
    const char *database = keep_text("%s/blueprint.db", mounted);
    copy_file(server.database, database);
    snprintf(server.database, sizeof server.database, "%s", database);
    return mounted;
}

START_TEST(test_disk__a_read_only_directory_is_refused)
{
    const char *mounted = move_to_memory();
    if (!mounted)
        return;
    remount_read_only(mounted);
    expect_refusal(NULL, "Read-only file system");
    ck_assert_uint_eq(file_size(beside(".lock")), 0);
    unmount(mounted);
}
END_TEST

START_TEST(test_disk__a_read_only_file_is_refused)
{
    const char *mounted = move_to_memory();
    if (!mounted)
        return;
    bind_read_only(server.database);
    expect_refusal(NULL, "cannot be written to");
    unmount(mounted);
}
END_TEST

static int post_until_full(unsigned long *number)
{
    int status;
    while ((status = post(*number)) == 201 || status == 422)
        ck_assert_uint_lt(++*number, PLANS + 50);
    return status;
}

START_TEST(test_disk__a_full_disk_refuses_and_goes_on_when_there_is_room)
{
    const char *mounted = move_to_memory();
    unsigned long number = PLANS;
    if (!mounted)
        return;
    server_restart(&server, (const char *const[]){"--disk-reserve", "0", NULL});
    for (int i = 0; i < 2; i++) {
        const char *ballast = keep_text("%s/ballast", mounted);
        fill_up(ballast, 64 << 10);
        ck_assert_int_eq(post_until_full(&number), 503);
        struct reply again = http_post("/v1/plans", load_request(number));
        expect_problem(&again, 503, "storage_failed");
        ck_assert_msg(strstr(again.body, "full"), "%s", again.body);
        /* What is there can be read. */
        ck_assert_int_eq(http_get("/v1/plans/%s", acks[0].id).status, 200);
        ck_assert_int_eq(unlink(ballast), 0);
        const int status = post(number++);
        ck_assert(status == 201 || status == 422);
        ck_assert_int_eq(http_get("/readyz").status, 200);
        expect_all();
    }
    server_stop(&server);
    server_restart(&server, NULL);
    expect_all();
    server_stop(&server);
    unmount(mounted);
}
END_TEST

START_TEST(test_disk__a_start_on_a_full_disk_is_refused_and_changes_nothing)
{
    const char *mounted = move_to_memory();
    if (!mounted)
        return;
    fill_up(keep_text("%s/ballast", mounted), 0);
    expect_refusal(NULL, "No space left on device");
    ck_assert_int_eq(unlink(keep_text("%s/ballast", mounted)), 0);
    server_restart(&server, NULL);
    expect_all();
    server_stop(&server);
    unmount(mounted);
}
END_TEST

/* Not for want of room: the file may not grow any more, which is an error that nobody expects. The store is not trusted
 * any more, though writes work again, until the daemon is started again. */
START_TEST(test_disk__a_write_that_fails_ends_the_daemon_and_loses_nothing)
{
    make_plans();
    const struct rlimit limit = {.rlim_cur = file_size(beside("-wal")) + 3 * PAGE, .rlim_max = RLIM_INFINITY},
                        none = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    unsigned long number = PLANS;
    ck_assert_int_eq(prlimit(server.pid, RLIMIT_FSIZE, &limit, NULL), 0);
    ck_assert_int_eq(post_until_full(&number), 503);
    ck_assert_int_eq(prlimit(server.pid, RLIMIT_FSIZE, &none, NULL), 0);
    struct reply refused = http_post("/v1/plans", load_request(number));
    ck_assert_msg(refused.status == 503 || refused.status == 0, "%d", refused.status); /* or the daemon has gone */
    ck_assert_int_eq(server_wait(&server), 1);
    ck_assert(server_logged(&server, "the store failed"));
    server_restart(&server, NULL);
    expect_all();
    ck_assert_int_eq(http_get("/readyz").status, 200);
    const int status = post(number);
    ck_assert(status == 201 || status == 422);
}
END_TEST

/* ---- A reader that stays ---- */

/* Another process with a read transaction on the database, until it is told to go by the closing of `*ret_end`. */
static pid_t begin_reading(int *ret_end)
{
    int begun[2], end[2];
    char byte = 0;
    ck_assert_int_eq(pipe(begun), 0);
    ck_assert_int_eq(pipe(end), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        sqlite3 *database = NULL;
        close(end[1]);
        if (sqlite3_open_v2(server.database, &database, SQLITE_OPEN_READONLY, NULL) ||
            sqlite3_exec(database, "BEGIN; SELECT count(*) FROM plans", NULL, NULL, NULL) ||
            write(begun[1], &byte, 1) != 1 || read(end[0], &byte, 1) != 0)
            _exit(1);
        _exit(sqlite3_exec(database, "COMMIT", NULL, NULL, NULL) || sqlite3_close(database));
    }
    ck_assert_int_eq(read(begun[0], &byte, 1), 1);
    close(begun[0]), close(begun[1]), close(end[0]);
    *ret_end = end[1];
    return pid;
}

START_TEST(test_disk__a_reader_that_stays_stops_new_work_at_the_limit_of_the_log_until_it_leaves)
{
    static const char *const limit[] = {"--wal-limit", "16", NULL};
    enum { LIMIT = 16 << 20, SLACK = 1 << 20, MANY = 20000, PATIENCE_MS = 60000 };
    server_stop(&server);
    server_restart(&server, limit);
    make_plans();
    struct server reader = {.pid = 0};
    int end, status;
    unsigned long number = PLANS;
    reader.pid = begin_reading(&end);
    while ((status = http_post("/v1/plans", load_request(number)).status) == 201 || status == 422) {
        ck_assert_uint_lt(++number, MANY);
        if (number % 50 == 0)
            http_forget();
    }
    struct reply refused = http_post("/v1/plans", load_request(number));
    expect_problem(&refused, 503, "wal_full");
    ck_assert_ptr_nonnull(http_header(&refused, "retry-after"));
    struct reply readiness = http_get("/readyz");
    ck_assert_int_eq(readiness.status, 503);
    ck_assert_ptr_nonnull(strstr(readiness.body, "wal_full"));
    ck_assert_uint_ge(file_size(beside("-wal")), LIMIT);
    ck_assert_uint_lt(file_size(beside("-wal")), LIMIT + SLACK);
    ck_assert_int_ge(server_metric("blueprint_wal_bytes"), LIMIT);
    ck_assert_int_eq(http_get("/v1/plans/%s", acks[0].id).status, 200);
    ck_assert_int_eq(http_post("/v1/plans", load_request(acks[0].number)).status, 200);
    close(end);
    ck_assert_int_eq(server_wait(&reader), 0);
    for (int ms = 0; ms < PATIENCE_MS && http_get("/readyz").status != 200; ms += 10)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    ck_assert_int_eq(http_get("/readyz").status, 200);
    ck_assert_uint_eq(file_size(beside("-wal")), 0);
    ck_assert_int_eq(server_metric("blueprint_wal_bytes"), 0);
    status = post(number);
    ck_assert(status == 201 || status == 422);
    expect_all();
}
END_TEST

#define N(array) (int)(sizeof(array) / sizeof *(array))

Suite *suite_disk(void)
{
    Suite *suite = suite_create("disk");
    TCase *tcase = server_tcase(suite, "disk");
    tcase_add_test(tcase, test_disk__a_missing_index_of_the_log_is_made_again);
    tcase_add_test(tcase, test_disk__a_log_cut_within_its_last_commit_has_all_before);
    tcase_add_loop_test(tcase, test_disk__a_log_damaged_before_its_end_is_refused_and_kept, 0, 9);
    tcase_add_test(tcase, test_disk__a_log_with_a_damaged_head_is_refused_and_kept);
    tcase_add_test(tcase, test_disk__a_damaged_head_of_a_log_brought_home_is_no_loss);
    tcase_add_loop_test(tcase, test_disk__an_empty_file_with_a_log_beside_it_is_refused_and_the_log_kept, 0, 2);
    tcase_add_test(tcase, test_disk__an_empty_file_becomes_a_database_and_it_is_said);
    tcase_add_loop_test(tcase, test_disk__a_file_that_is_not_ours_is_refused_and_untouched, 0, N(foreign));
    tcase_add_loop_test(tcase, test_disk__a_corrupt_page_that_a_start_needs_is_refused_and_kept, 0, 3);
    tcase_add_test(tcase, test_disk__a_corrupt_page_is_found_by_who_comes_to_it);
    tcase_add_test(tcase, test_disk__a_read_only_directory_is_refused);
    tcase_add_test(tcase, test_disk__a_read_only_file_is_refused);
    tcase_add_test(tcase, test_disk__a_full_disk_refuses_and_goes_on_when_there_is_room);
    tcase_add_test(tcase, test_disk__a_start_on_a_full_disk_is_refused_and_changes_nothing);
    tcase_add_test(tcase, test_disk__a_write_that_fails_ends_the_daemon_and_loses_nothing);
    tcase_add_test(tcase, test_disk__a_reader_that_stays_stops_new_work_at_the_limit_of_the_log_until_it_leaves);
    return suite;
}
