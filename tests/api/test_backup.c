/* Backups: copies of the database that are taken while it is written to. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/digest.h"
#include "tests/api/command.h"
#include "tests/api/expect.h"
#include "tests/api/relay.h"
#include "tests/api/server.h"

enum { PLANS = 12, LOOKS_MAX = 100000 };

static json_t *numbered(unsigned number)
{
    json_t *request = with_target(small_request(), "reference-queue", 2, INT64_C(1) << 40);
    set_at(request, "/workload/sequence_length", json_integer(64 * (1 + (json_int_t)number)));
    return request;
}

static const char *file_here(const char *name)
{
    return keep_text("%s/%s", server.directory, name);
}

/* Another daemon, on the file. */
static struct server serve(const char *file)
{
    struct server other = server;
    other.pid = 0;
    other.socket[0] = '\0';
    snprintf(other.database, sizeof other.database, "%s", file);
    snprintf(other.log, sizeof other.log, "%s/other.log", server.directory);
    server_restart(&other, NULL);
    return other;
}

/* A client that writes until it is killed. */
static pid_t begin_writing(void)
{
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (unsigned number = 1000;; number++)
        post_plan(numbered(number));
}

START_TEST(test_backup__taken_under_load_it_opens_with_a_daemon_and_serves_every_plan)
{
    const char *file = file_here("copy.db"), *texts[PLANS], *ids[PLANS];
    for (unsigned i = 0; i < PLANS; i++) {
        ids[i] = text_at(plan_of(numbered(i), 201), "/id");
        texts[i] = http_get("/v1/plans/%s", ids[i]).body;
    }
    pid_t writer = begin_writing();
    long long before = server_count(&server, "SELECT count(*) FROM plans");
    while (server_count(&server, "SELECT count(*) FROM plans") < before + 3)
        usleep(1000);
    struct run taken = RUN_ADMIN("backup", file);
    ck_assert_int_eq(kill(writer, SIGKILL), 0);
    expect_status(&taken, 0);
    expect_text(taken.out, "digest       sha256:");
    struct stat status;
    ck_assert_int_eq(stat(file, &status), 0);
    ck_assert_int_eq(status.st_mode & 0777, 0600);

    struct server other = serve(file), original = server;
    ck_assert_int_ge(server_count(&other, "SELECT count(*) FROM plans"), before);
    server = other;
    for (unsigned i = 0; i < PLANS; i++)
        ck_assert_str_eq(http_get("/v1/plans/%s", ids[i]).body, texts[i]);
    struct reply replay = http_post(keep_text("/v1/plans/%s/replays", ids[0]), NULL);
    ck_assert_str_eq(text_at(replay.json, "/verdict"), "identical");
    server_stop(&server);
    server = original;
}
END_TEST

/* How many files there are of the test's own directory whose names begin so. */
static int files_like(const char *begin)
{
    FILE *list = popen(keep_text("ls -a %s", server.directory), "r");
    char name[256];
    int n = 0;
    ck_assert_ptr_nonnull(list);
    while (fgets(name, sizeof name, list))
        n += strncmp(name, begin, strlen(begin)) == 0;
    pclose(list);
    return n;
}

START_TEST(test_backup__a_file_that_is_there_is_left_alone_unless_told)
{
    const char *file = file_here("copy.db");
    plan_of(numbered(0), 201);
    FILE *there = fopen(file, "w");
    ck_assert(there && fputs("dear", there) >= 0 && fclose(there) == 0);
    struct run refused = RUN_ADMIN("backup", file);
    expect_status(&refused, 2);
    expect_text(refused.err, "--force");
    struct stat status;
    ck_assert_int_eq(stat(file, &status), 0);
    ck_assert_int_eq(status.st_size, 4);
    struct run forced = RUN_ADMIN("backup", "--force", file);
    expect_status(&forced, 0);
    ck_assert_int_eq(stat(file, &status), 0);
    ck_assert_int_gt(status.st_size, 4096);
    ck_assert_int_eq(files_like("copy.db"), 1);
    ck_assert_int_eq(files_like("blueprint.db.backup"), 0);
    struct run nowhere = RUN_ADMIN("backup", file_here("no/such/directory/copy.db"));
    expect_status(&nowhere, 5);
}
END_TEST

/* What the way to the client does to the file, with what status that ends, and what is said. */
static const struct {
    enum relay_harm harm;
    int status;
    const char *said;
} ways[] = {
    {RELAY_NONE, 0, ""},
    {RELAY_FLIP, 5, "what arrived is not the backup"},
    {RELAY_CUT, 3, "bytes remaining to read"},
    {RELAY_CUT_LAST, 3, "1 bytes remaining to read"},
    {RELAY_SHORTEN, 5, "what arrived is not the backup"},
};

START_TEST(test_backup__what_arrives_damaged_or_cut_short_is_refused_and_no_file_is_there)
{
    const char *file = file_here("copy.db"), *dear = file_here("dear.db");
    const bool is_good = ways[_i].status == 0;
    plan_of(numbered(0), 201);
    FILE *there = fopen(dear, "w");
    ck_assert(there && fputs("dear", there) >= 0 && fclose(there) == 0);
    struct relay relay = relay_begin(ways[_i].harm);
    const char *by_relay = keep_text("unix:%s", relay.socket);
    struct run taken = run((const char *const[WORDS_MAX]){"--server", by_relay, "admin", "backup", file}, NULL);
    expect_status(&taken, ways[_i].status);
    expect_text(taken.err, ways[_i].said);
    ck_assert_int_eq(files_like("copy.db"), is_good);
    struct run forced =
        run((const char *const[WORDS_MAX]){"--server", by_relay, "admin", "backup", "--force", dear}, NULL);
    expect_status(&forced, ways[_i].status);
    struct stat status;
    ck_assert_int_eq(stat(dear, &status), 0);
    ck_assert_int_eq(status.st_size == 4, !is_good);
    ck_assert_int_eq(files_like("dear.db"), 1);
    relay_end(&relay);
    /* The daemon's copy was good, and a better way gets it. */
    struct run direct = RUN_ADMIN("backup", "--force", file);
    expect_status(&direct, 0);
}
END_TEST

static json_t *wait_for(const struct reply *begun)
{
    ck_assert_int_eq(begun->status, 202);
    for (int looks = 0; looks < LOOKS_MAX; looks++) {
        struct reply reply = http_get("%s", http_header(begun, "location"));
        ck_assert_int_eq(reply.status, 200);
        const char *state = text_at(reply.json, "/state");
        if (strcmp(state, "ready") == 0 || strcmp(state, "failed") == 0)
            return reply.json;
    }
    ck_abort_msg("the backup does not end");
}

START_TEST(test_backup__the_file_is_the_one_of_the_digest_and_goes_when_it_is_let_go)
{
    plan_of(numbered(0), 201);
    struct reply begun = http_post("/v1/admin/backups", NULL);
    json_t *backup = wait_for(&begun);
    ck_assert_str_eq(text_at(backup, "/state"), "ready");
    const char *id = text_at(backup, "/id");
    struct reply file = http_get("/v1/admin/backups/%.19s/file", id);
    ck_assert_int_eq(file.status, 200);
    ck_assert_str_eq(http_header(&file, "content-type"), "application/vnd.sqlite3");
    ck_assert_int_eq((json_int_t)file.n, int_at(backup, "/bytes"));
    struct bp_digest digest;
    char text[BP_DIGEST_TEXT];
    bp_digest_of(file.body, file.n, &digest);
    bp_digest_format(&digest, text);
    ck_assert_str_eq(text, text_at(backup, "/digest"));
    ck_assert_mem_eq(file.body, "SQLite format 3", 16);

    struct reply dropped =
        http_call(&(struct call){.method = "DELETE", .target = keep_text("/v1/admin/backups/%s", id)});
    ck_assert_int_eq(dropped.status, 204);
    struct reply gone = http_get("/v1/admin/backups/%s/file", id);
    expect_problem(&gone, 404, "not_found");
    struct reply bad = http_get("/v1/admin/backups/x");
    expect_problem(&bad, 400, "invalid_id");
}
END_TEST

START_TEST(test_backup__of_a_damaged_database_it_fails_and_says_where)
{
    plan_of(numbered(0), 201);
    server_stop(&server);
    server_sql(&server, "UPDATE snapshots SET data = zeroblob(9) WHERE stage = 'portable'");
    server_restart(&server, NULL);
    struct run refused = RUN_ADMIN("backup", file_here("copy.db"));
    expect_status(&refused, 1);
    expect_text(refused.err, "the stored bytes do not unpack");
    ck_assert_int_eq(files_like("copy.db"), 0);
    ck_assert_int_eq(files_like("blueprint.db.backup"), 0);
    struct reply begun = http_post("/v1/admin/backups", NULL);
    json_t *backup = wait_for(&begun);
    struct reply file = http_get("/v1/admin/backups/%s/file", text_at(backup, "/id"));
    expect_problem(&file, 503, "storage_failed");
}
END_TEST

static long long backups(const char *outcome)
{
    return server_metric(keep_text("blueprint_long_jobs_ended_total{kind=\"backup\",outcome=\"%s\"}", outcome));
}

START_TEST(test_backup__metrics_tell_of_the_last_that_was_good)
{
    static const char *const of_last[] = {"blueprint_backup_timestamp_seconds", "blueprint_backup_seconds",
                                          "blueprint_backup_bytes"};
    plan_of(numbered(0), 201);
    const char *none = http_get("/metrics").body;
    for (size_t i = 0; i < sizeof of_last / sizeof *of_last; i++)
        ck_assert_ptr_null(strstr(none, of_last[i]));
    ck_assert_int_eq(backups("done"), 0);
    struct reply begun = http_post("/v1/admin/backups", NULL);
    json_t *backup = wait_for(&begun);
    ck_assert_int_eq(backups("done"), 1);
    ck_assert_int_eq(server_metric("blueprint_long_jobs"), 0);
    ck_assert_int_eq(server_metric("blueprint_backup_bytes"), int_at(backup, "/bytes"));
    const double at = strtod(strstr(http_get("/metrics").body, "\nblueprint_backup_timestamp_seconds ") + 36, NULL);
    ck_assert_double_lt((double)time(NULL) - at, 60);
    ck_assert_double_lt(at - (double)time(NULL), 1.5);
    ck_assert_double_gt(strtod(strstr(http_get("/metrics").body, "\nblueprint_backup_seconds ") + 26, NULL), 0);
    /* One that fails is counted, and is no good one. */
    server_stop(&server);
    server_sql(&server, "UPDATE snapshots SET data = zeroblob(9) WHERE stage = 'portable'");
    server_restart(&server, NULL);
    struct reply again = http_post("/v1/admin/backups", NULL);
    ck_assert_str_eq(text_at(wait_for(&again), "/state"), "failed");
    ck_assert_int_eq(backups("failed"), 1);
    ck_assert_int_eq(backups("done"), 0);
    ck_assert_ptr_null(strstr(http_get("/metrics").body, of_last[0]));
}
END_TEST

START_TEST(test_backup__what_a_crash_left_of_one_is_removed_at_the_next_start)
{
    plan_of(numbered(0), 201);
    server_kill(&server);
    FILE *left = fopen(file_here("blueprint.db.backup"), "w");
    ck_assert(left && fputs("half", left) >= 0 && fclose(left) == 0);
    server_restart(&server, NULL);
    ck_assert_int_eq(files_like("blueprint.db.backup"), 0);
    ck_assert_int_eq(http_get("/v1/plans").status, 200);
}
END_TEST

START_TEST(test_backup__who_may_not_operate_the_daemon_gets_none)
{
    plan_of(numbered(0), 201);
    struct run refused = RUN("admin", "backup", file_here("copy.db"));
    expect_status(&refused, 4);
    expect_text(refused.err, "scope_missing");
    ck_assert_int_eq(files_like("copy.db"), 0);
}
END_TEST

START_TEST(test_backup__a_daemon_that_stops_while_one_is_made_stops)
{
    for (unsigned i = 0; i < PLANS; i++)
        plan_of(numbered(i), 201);
    ck_assert_int_eq(http_post("/v1/admin/backups", NULL).status, 202);
    server_stop(&server);
    ck_assert_int_eq(files_like("blueprint.db.backup"), 0);
}
END_TEST

Suite *suite_backup(void)
{
    const TTest *const tests[] = {
        test_backup__taken_under_load_it_opens_with_a_daemon_and_serves_every_plan,
        test_backup__a_file_that_is_there_is_left_alone_unless_told,
        test_backup__the_file_is_the_one_of_the_digest_and_goes_when_it_is_let_go,
        test_backup__of_a_damaged_database_it_fails_and_says_where,
        test_backup__metrics_tell_of_the_last_that_was_good,
        test_backup__what_a_crash_left_of_one_is_removed_at_the_next_start,
        test_backup__who_may_not_operate_the_daemon_gets_none,
        test_backup__a_daemon_that_stops_while_one_is_made_stops,
    };
    Suite *suite = suite_create("backup");
    TCase *tcase = server_admin_tcase(suite, "backup");
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(tcase, tests[i]);
    tcase_add_loop_test(tcase, test_backup__what_arrives_damaged_or_cut_short_is_refused_and_no_file_is_there, 0,
                        (int)(sizeof ways / sizeof *ways));
    return suite;
}
