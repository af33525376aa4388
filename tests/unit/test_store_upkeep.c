/* What keeps a store in order: the check of a whole file, copies of it, taking plans out of it. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/embedded.h"
#include "tests/lib/store_fixture.h"

extern const struct bp_embedded bp_migrations[];

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

/* ---- Verifying ---- */

struct found {
    int n, n_digests;
};

static void note_defect(void *data, const struct bp_store_defect *defect)
{
    struct found *found = data;
    struct bp_digest portable = digest_of_text(sample_stages[2]);
    char key[BP_DIGEST_TEXT];
    bp_digest_format(&portable, key);
    found->n++;
    found->n_digests += strcmp(defect->table, "snapshots") == 0 && strcmp(defect->key, key) == 0;
}

static enum bp_code verify(struct found *found, struct bp_store_verified *done)
{
    struct bp_err err = {0};
    const struct bp_store_verifier verifier = {.defect = note_defect, .data = found};
    *found = (struct found){0};
    return bp_store_verify(fixture.path, &verifier, done, &err) < 0 ? err.code : BP_OK;
}

START_TEST(test_store_upkeep__verify_tells_everything_that_was_altered)
{
    struct found found;
    struct bp_store_verified done;
    store_fixture_put(&fixture, "plan", sample_stages, 4);
    ck_assert_int_eq(verify(&found, &done), BP_OK);
    ck_assert_uint_eq(done.snapshots, 4);
    ck_assert_uint_eq(done.derivations, 3);
    ck_assert_uint_eq(done.edges, 3);
    ck_assert_uint_eq(done.evidence, 7);
    ck_assert_uint_eq(done.plans, 1);
    ck_assert_uint_eq(done.defects, 0);
    ck_assert_int_eq(found.n, 0);
    store_fixture_sql(&fixture, "UPDATE snapshots SET data = x'28b52ffd' WHERE stage = 'portable'");
    ck_assert_int_eq(verify(&found, &done), BP_OK);
    ck_assert_uint_eq(done.defects, 1);
    ck_assert_int_eq(found.n_digests, 1);
    store_fixture_sql(&fixture, "PRAGMA foreign_keys = OFF; DELETE FROM snapshots WHERE stage = 'model'");
    ck_assert_int_eq(verify(&found, &done), BP_OK);
    ck_assert_uint_gt(done.defects, 1);
    ck_assert_int_eq(found.n, (int)done.defects);
    ck_assert_int_eq(found.n_digests, 1);
}
END_TEST

START_TEST(test_store_upkeep__verify_ends_when_it_is_told_to)
{
    atomic_bool stop = true;
    struct bp_err err = {0};
    struct found found = {0};
    struct bp_store_verified done;
    const struct bp_store_verifier verifier = {.defect = note_defect, .data = &found, .stop = &stop};
    store_fixture_put(&fixture, "plan", sample_stages, 4);
    ck_assert_int_eq(bp_store_verify(fixture.path, &verifier, &done, &err), -1);
    ck_assert_int_eq(err.code, BP_E_deadline_exceeded);
}
END_TEST

START_TEST(test_store_upkeep__a_reader_of_a_file_in_use_sees_the_plans_in_their_order)
{
    struct bp_store *reader;
    const struct bp_store_plan_name *names;
    struct bp_store_place after = {0};
    size_t n = 0;
    store_fixture_put(&fixture, "one", sample_stages, 4);
    store_fixture_put(&fixture, "two", sample_stages, 3);
    store_fixture_sql(&fixture, "UPDATE plans SET committed_at = 9 WHERE seq = 2");
    ck_assert_int_eq(bp_store_open_reader(fixture.path, &reader, NULL), 0);
    ck_assert_int_eq(bp_store_plans_after(reader, &after, 1, &fixture.arena, &names, &n, NULL), 0);
    ck_assert_uint_eq(n, 1);
    struct bp_digest two = digest_of_text("two"), one = digest_of_text("one");
    ck_assert(bp_digest_equal(&names[0].id, &two));
    after = names[0].place;
    ck_assert_int_eq(bp_store_plans_after(reader, &after, 9, &fixture.arena, &names, &n, NULL), 0);
    ck_assert_uint_eq(n, 1);
    ck_assert(bp_digest_equal(&names[0].id, &one));
    bp_store_close(reader);
    ck_assert_int_eq(bp_store_open_reader("/nowhere/at/all", &reader, NULL), -1);
}
END_TEST

/* ---- Backups ---- */

START_TEST(test_store_upkeep__a_backup_is_a_database_of_the_moment_it_was_begun)
{
    char to[340];
    struct bp_store_backup backup = {0};
    struct bp_store *copy;
    struct found found = {0};
    struct bp_store_verified done;
    struct bp_err err = {0};
    const struct bp_store_verifier verifier = {.defect = note_defect, .data = &found};
    snprintf(to, sizeof to, "%s.copy", fixture.path);
    store_fixture_put(&fixture, "plan", sample_stages, 4);
    ck_assert_msg(bp_store_backup(fixture.store, to, &backup, &err) == 0, "%s", err.message);
    ck_assert_uint_gt(backup.pages, 0);
    ck_assert_uint_eq(backup.pages, backup.all_pages);
    store_fixture_put(&fixture, "later", sample_stages, 3);
    ck_assert_int_eq(bp_store_verify(to, &verifier, &done, NULL), 0);
    ck_assert_uint_eq(done.plans, 1);
    ck_assert_uint_eq(done.defects, 0);
    const struct bp_store_options options = {.path = to};
    ck_assert_int_eq(bp_store_open(&options, &copy, NULL), 0);
    struct bp_digest id = digest_of_text("plan");
    struct bp_store_plan plan;
    ck_assert_int_eq(bp_store_plan_read(copy, &id, &fixture.arena, &plan, NULL), 0);
    ck_assert_uint_eq(plan.n_snapshots, 4);
    bp_store_close(copy);
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        snprintf(to, sizeof to, "%s.copy%s", fixture.path, suffixes[i]);
        unlink(to);
    }
}
END_TEST

START_TEST(test_store_upkeep__a_backup_that_cannot_be_made_leaves_nothing_and_touches_nothing)
{
    char to[340];
    atomic_bool stop = true;
    struct bp_store_backup backup = {.stop = &stop};
    struct bp_err err = {0};
    snprintf(to, sizeof to, "%s.copy", fixture.path);
    store_fixture_put(&fixture, "plan", sample_stages, 4);
    ck_assert_int_eq(bp_store_backup(fixture.store, to, &backup, &err), -1);
    ck_assert_int_eq(err.code, BP_E_stopping);
    ck_assert_int_ne(access(to, F_OK), 0);
    err = (struct bp_err){0};
    ck_assert_int_eq(bp_store_backup(fixture.store, fixture.path, &(struct bp_store_backup){0}, &err), -1);
    ck_assert_int_eq(err.code, BP_E_storage_failed);
    ck_assert_int_eq(store_fixture_int(&fixture, "SELECT count(*) FROM plans"), 1);
}
END_TEST

/* ---- Taking plans out ---- */

static void accept_job(const char *id, const char *kind)
{
    struct bp_store_job job = {
        .id = digest_of_text(id), .kind = kind, .request = {"{}", 2}, .passes = {"[]", 2}, .created_at = 10};
    struct bp_store_job_change change = {.id = job.id, .state = BP_STORE_JOB_RUNNING, .at = 11};
    struct bp_store_unit unit = {.accept = &job, .change = &change};
    ck_assert_int_eq(store_fixture_commit(&fixture, &unit), BP_OK);
}

static struct bp_store_collection collect(struct bp_store_place from, int64_t budget_ns)
{
    struct bp_store_collection collection = {
        .job = digest_of_text("gc"), .at = 20, .before = INT64_MAX, .budget_ns = budget_ns, .from = from};
    struct bp_store_unit unit = {.collection = &collection};
    ck_assert_int_eq(store_fixture_commit(&fixture, &unit), BP_OK);
    return collection;
}

static int64_t rows(const char *table)
{
    char sql[128];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", table);
    return store_fixture_int(&fixture, sql);
}

static void expect_rows(int64_t plans, int64_t snapshots, int64_t derivations)
{
    struct bp_store_stats stats;
    struct found found;
    struct bp_store_verified done;
    ck_assert_int_eq(rows("plans"), plans);
    ck_assert_int_eq(rows("snapshots"), snapshots);
    ck_assert_int_eq(rows("derivations"), derivations);
    ck_assert_int_eq(rows("edges"), derivations);
    ck_assert_int_eq(rows("evidence"), 2 * derivations);
    ck_assert_int_eq(rows("snapshot_evidence"), plans > 0);
    bp_store_stats(fixture.store, &stats);
    ck_assert_uint_eq(stats.plans[BP_STORE_COMMITTED], (uint64_t)plans);
    ck_assert_uint_eq(stats.snapshots, (uint64_t)snapshots);
    ck_assert_uint_eq(stats.derivations, (uint64_t)derivations);
    ck_assert_int_eq(verify(&found, &done), BP_OK);
    ck_assert_uint_eq(done.defects, 0);
}

START_TEST(test_store_upkeep__a_collection_takes_whole_plans_one_after_the_other)
{
    struct bp_store_place from = {0, 1};
    struct bp_store_tally_page tallies;
    store_fixture_put_family(&fixture);
    accept_job("gc", "collections");
    /* No time: one plan each. */
    struct bp_store_collection step = collect(from, 0);
    ck_assert_uint_eq(step.plans, 1);
    ck_assert(!step.ended);
    expect_rows(2, 7, 6);
    step = collect(step.place, 0);
    expect_rows(1, 4, 3);
    step = collect(step.place, INT64_C(10000000000));
    ck_assert(step.ended);
    expect_rows(0, 0, 0);
    struct bp_digest id = digest_of_text("gc");
    struct bp_store_job job;
    ck_assert_int_eq(bp_store_job_read(fixture.store, &id, &fixture.arena, &job, NULL), 0);
    ck_assert_int_eq(job.place.seq, 3);
    ck_assert_uint_eq(job.attempts, 1);
    ck_assert_int_eq(bp_store_tallies(fixture.store, job.seq, &fixture.arena, &tallies, NULL), 0);
    uint64_t plans = 0;
    for (size_t i = 0; i < tallies.n; i++)
        if (strcmp(tallies.tallies[i].name, "removed_plans") == 0)
            plans = tallies.tallies[i].n;
    ck_assert_uint_eq(plans, 3);
}
END_TEST

/* Two units that the writer finds at once. */
struct together {
    struct bp_store_unit first, second;
    enum bp_code codes[2];
    sem_t told;
};

static void note_code(struct bp_store_unit *unit, const struct bp_err *err)
{
    struct together *together = unit->data;
    together->codes[unit == &together->second] = err ? err->code : BP_OK;
    sem_post(&together->told);
}

static void submit_both(struct bp_store_unit *unit, const struct bp_err *err)
{
    struct together *together = unit->data;
    (void)err;
    bp_store_submit(fixture.store, &together->first);
    bp_store_submit(fixture.store, &together->second);
}

/* A plan goes while it is replayed: the replay cannot be stored, and undoes the group that it is in. */
START_TEST(test_store_upkeep__a_collection_whose_group_is_undone_takes_the_same_again)
{
    const struct bp_digest id = digest_of_text("one");
    const struct bp_store_replay replay = {
        .id = digest_of_text("replay"), .plan = id, .verdict = "identical", .record = {"[]", 2}, .created_at = 12};
    struct bp_store_collection collection = {
        .job = digest_of_text("gc"), .at = 20, .before = INT64_MAX, .from = {0, 1}};
    struct together together = {.first = {.collection = &collection, .done = note_code, .data = &together},
                                .second = {.replay = &replay, .done = note_code, .data = &together}};
    struct bp_store_unit probe = {.probe = true, .done = submit_both, .data = &together};
    struct bp_store_plan plan;
    struct bp_err err = {0};
    store_fixture_put_family(&fixture);
    accept_job("gc", "collections");
    sem_init(&together.told, 0, 0);
    bp_store_submit(fixture.store, &probe);
    for (int i = 0; i < 2; i++)
        while (sem_wait(&together.told))
            ;
    ck_assert_int_eq(together.codes[0], BP_OK);
    ck_assert_int_eq(together.codes[1], BP_E_internal);
    ck_assert_uint_eq(collection.plans, 1);
    ck_assert_int_eq(bp_store_plan_read(fixture.store, &id, &fixture.arena, &plan, &err), -1);
    ck_assert_int_eq(err.code, BP_E_not_found);
    expect_rows(2, 7, 6);
    sem_destroy(&together.told);
}
END_TEST

START_TEST(test_store_upkeep__a_pin_keeps_its_plan_and_is_there_once)
{
    struct bp_store_pin pin = {.plan = digest_of_text("two"), .at = 5};
    struct bp_store_unit unit = {.pin = &pin};
    struct bp_store_pin_page page;
    store_fixture_put_family(&fixture);
    ck_assert_int_eq(store_fixture_commit(&fixture, &unit), BP_OK);
    ck_assert(!pin.missing);
    pin.at = 9;
    ck_assert_int_eq(store_fixture_commit(&fixture, &unit), BP_OK);
    ck_assert_int_eq(pin.at, 5);
    ck_assert_int_eq(bp_store_pin_list(fixture.store, 9, NULL, &fixture.arena, &page, NULL), 0);
    ck_assert_uint_eq(page.n, 1);
    accept_job("gc", "collections");
    ck_assert(collect((struct bp_store_place){0, 1}, INT64_C(10000000000)).ended);
    expect_rows(1, 4, 3);
    pin.remove = true;
    ck_assert_int_eq(store_fixture_commit(&fixture, &unit), BP_OK);
    ck_assert(!pin.missing);
    ck_assert_int_eq(store_fixture_commit(&fixture, &unit), BP_OK);
    ck_assert(pin.missing);
    struct bp_store_pin none = {.plan = digest_of_text("no such plan")};
    unit.pin = &none;
    ck_assert_int_eq(store_fixture_commit(&fixture, &unit), BP_OK);
    ck_assert(none.missing);
    ck_assert_int_eq(rows("pins"), 0);
}
END_TEST

START_TEST(test_store_upkeep__what_a_plan_takes_with_it_is_what_a_dry_run_says)
{
    struct bp_store_place after = {0};
    const struct bp_store_plan_name *names;
    size_t n;
    uint64_t snapshots = 0, derivations = 0, bytes = 0;
    struct bp_store_pin pin = {.plan = digest_of_text("three"), .at = 5};
    struct bp_store_unit unit = {.pin = &pin};
    store_fixture_put_family(&fixture);
    ck_assert_int_eq(store_fixture_commit(&fixture, &unit), BP_OK);
    ck_assert_int_eq(bp_store_plans_after(fixture.store, &after, 9, &fixture.arena, &names, &n, NULL), 0);
    ck_assert_uint_eq(n, 3);
    for (size_t i = 0; i < n; i++) {
        struct bp_store_takings takings;
        ck_assert_int_eq(bp_store_plan_takings(fixture.store, &names[i], INT64_MAX, &takings, NULL), 0);
        ck_assert_int_eq(takings.takes, i < 2);
        snapshots += takings.snapshots;
        derivations += takings.derivations;
        bytes += takings.bytes;
    }
    ck_assert_uint_eq(snapshots, 4);
    ck_assert_uint_eq(derivations, 4);
    ck_assert_uint_gt(bytes, 0);
    struct bp_store_takings young;
    ck_assert_int_eq(bp_store_plan_takings(fixture.store, &names[0], 1, &young, NULL), 0);
    ck_assert(!young.takes);
}
END_TEST

START_TEST(test_store_upkeep__another_try_at_a_failed_plan_leaves_nothing_of_the_first)
{
    struct sample first, second;
    static const char *const other[] = {"m", "d3", "p3"};
    sample_init(&first, "plan", sample_family[0], 3);
    first.plan.state = BP_STORE_FAILED;
    first.plan.facts = (struct bp_store_text){0};
    first.plan.diagnostics = (struct bp_store_text){"[]", 2};
    ck_assert_int_eq(sample_put(fixture.store, &first), BP_OK);
    sample_init(&second, "plan", other, 3);
    ck_assert_int_eq(sample_put(fixture.store, &second), BP_OK);
    expect_rows(1, 3, 2);
    sample_release(&first);
    sample_release(&second);
}
END_TEST

START_TEST(test_store_upkeep__jobs_of_operators_go_with_what_they_found)
{
    const char *const checks[] = {"law.a", "law.b"};
    const struct bp_store_tally tally = {"checked", 7};
    const struct bp_store_divergence divergence = {.plan = digest_of_text("one"),
                                                   .pass = "pass-1",
                                                   .revision = 1,
                                                   .current_revision = 2,
                                                   .checks = checks,
                                                   .n_checks = 2,
                                                   .record = {"{}", 2}};
    const struct bp_store_divergence other = {.plan = digest_of_text("two"), .pass = "", .record = {"{\"b\":1}", 7}};
    const struct bp_store_divergence both[] = {divergence, other};
    struct bp_store_progress progress = {.job = digest_of_text("all"),
                                         .at = 12,
                                         .place = {3, 4},
                                         .tallies = &tally,
                                         .n_tallies = 1,
                                         .divergences = both,
                                         .n_divergences = 2};
    struct bp_store_unit unit = {.progress = &progress};
    struct bp_store_group_page groups;
    struct bp_store_divergence_page page;
    struct bp_store_job job;
    accept_job("all", "replays");
    ck_assert_int_eq(store_fixture_commit(&fixture, &unit), BP_OK);
    progress.n_divergences = 1;
    ck_assert_int_eq(store_fixture_commit(&fixture, &unit), BP_OK);
    ck_assert_int_eq(bp_store_job_read(fixture.store, &progress.job, &fixture.arena, &job, NULL), 0);
    ck_assert_int_eq(job.place.committed_at, 3);
    ck_assert_int_eq(job.place.seq, 4);
    ck_assert_int_eq(bp_store_groups(fixture.store, job.seq, 9, &fixture.arena, &groups, NULL), 0);
    ck_assert_uint_eq(groups.n, 3);
    ck_assert_str_eq(groups.groups[0].check, "law.a");
    ck_assert_uint_eq(groups.groups[0].plans, 2);
    ck_assert_uint_eq(groups.groups[0].current_revision, 2);
    ck_assert_str_eq(groups.groups[2].pass, "");
    ck_assert_int_eq(bp_store_divergences(fixture.store, job.seq, 2, NULL, &fixture.arena, &page, NULL), 0);
    ck_assert_uint_eq(page.n, 2);
    ck_assert_str_eq(page.records[1].at, "{\"b\":1}");
    ck_assert_int_eq(bp_store_divergences(fixture.store, job.seq, 2, page.next, &fixture.arena, &page, NULL), 0);
    ck_assert_uint_eq(page.n, 1);
    ck_assert_str_eq(page.next, "");

    struct bp_store_job_change change = {.id = job.id, .state = BP_STORE_JOB_DONE, .at = 15};
    struct bp_store_unit end = {.change = &change};
    ck_assert_int_eq(store_fixture_commit(&fixture, &end), BP_OK);
    /* States only move forward: one that is done makes no progress. */
    ck_assert_int_eq(store_fixture_commit(&fixture, &unit), BP_E_internal);
    accept_job("gc", "collections");
    ck_assert(collect((struct bp_store_place){0, 1}, INT64_C(10000000000)).ended);
    ck_assert_int_eq(rows("jobs"), 1); /* the one that runs */
    ck_assert_int_eq(rows("divergences") + rows("divergence_groups"), 0);
}
END_TEST

/* A database of the first release, with a job that it accepted and one that ended. */
START_TEST(test_store_upkeep__jobs_of_the_first_schema_are_taken_over)
{
    struct bp_store_job job;
    struct bp_digest id = digest_of_text("old");
    char text[BP_DIGEST_TEXT], sql[1024];
    store_fixture_close(&fixture);
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        snprintf(sql, sizeof sql, "%s%s", fixture.path, suffixes[i]);
        unlink(sql);
    }
    ck_assert_str_eq(bp_migrations[0].name, "0001_initial.sql");
    store_fixture_sql(&fixture, (const char *)bp_migrations[0].bytes);
    bp_digest_format(&id, text);
    snprintf(sql, sizeof sql,
             "PRAGMA user_version = 1; PRAGMA application_id = 1651536484; INSERT INTO jobs VALUES "
             "(1, x'%s', 'plan', 'running', 1, 10, 11, NULL, '[]', '{\"r\":1}')",
             text + strlen("sha256:"));
    store_fixture_sql(&fixture, sql);
    store_fixture_open(&fixture);
    ck_assert_int_eq(bp_store_job_read(fixture.store, &id, &fixture.arena, &job, NULL), 0);
    ck_assert_int_eq(job.state, BP_STORE_JOB_RUNNING);
    ck_assert_uint_eq(job.attempts, 1);
    ck_assert_str_eq(job.request.at, "{\"r\":1}");
    ck_assert_int_eq(job.place.committed_at, 0);
    ck_assert_int_eq(job.place.seq, 0);
    struct bp_store_stats stats;
    bp_store_stats(fixture.store, &stats);
    ck_assert_uint_eq(stats.jobs_unfinished, 1);
}
END_TEST

START_TEST(test_store_upkeep__times_are_read_as_they_are_written)
{
    static const struct {
        const char *text;
        int64_t at;
    } good[] = {
        {"1970-01-01", 0},
        {"1970-01-02T00:00:00Z", INT64_C(86400000000)},
        {"2026-01-31T23:59:59.000001Z", INT64_C(1769903999000001)},
        {"2024-02-29T12:00:00.5Z", INT64_C(1709208000500000)},
    };
    static const char *const bad[] = {"",
                                      "2026",
                                      "2026-1-31",
                                      "2026-02-29",
                                      "2026-13-01",
                                      "2026-01-31T",
                                      "2026-01-31T24:00:00Z",
                                      "2026-01-31T23:59:59",
                                      "2026-01-31T23:59:59.Z",
                                      "2026-01-31T23:59:59+01:00",
                                      "2026-01-31 23:59:59Z",
                                      "2026-01-31x"};
    int64_t at;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ck_assert_msg(bp_time_parse(good[i].text, &at), "%s", good[i].text);
        ck_assert_int_eq(at, good[i].at);
    }
    char text[BP_TIME_TEXT];
    bp_time_format(INT64_C(1769903999000001), text);
    ck_assert_str_eq(text, good[2].text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!bp_time_parse(bad[i], &at), "%s", bad[i]);
}
END_TEST

Suite *suite_store_upkeep(void)
{
    const TTest *const tests[] = {
        test_store_upkeep__verify_tells_everything_that_was_altered,
        test_store_upkeep__verify_ends_when_it_is_told_to,
        test_store_upkeep__a_reader_of_a_file_in_use_sees_the_plans_in_their_order,
        test_store_upkeep__a_backup_is_a_database_of_the_moment_it_was_begun,
        test_store_upkeep__a_backup_that_cannot_be_made_leaves_nothing_and_touches_nothing,
        test_store_upkeep__a_collection_takes_whole_plans_one_after_the_other,
        test_store_upkeep__a_collection_whose_group_is_undone_takes_the_same_again,
        test_store_upkeep__a_pin_keeps_its_plan_and_is_there_once,
        test_store_upkeep__what_a_plan_takes_with_it_is_what_a_dry_run_says,
        test_store_upkeep__another_try_at_a_failed_plan_leaves_nothing_of_the_first,
        test_store_upkeep__jobs_of_operators_go_with_what_they_found,
        test_store_upkeep__jobs_of_the_first_schema_are_taken_over,
        test_store_upkeep__times_are_read_as_they_are_written,
    };
    Suite *suite = suite_create("store_upkeep");
    TCase *tcase = tcase_create("store_upkeep");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    return suite;
}
