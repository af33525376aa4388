/* The store as a whole: opening, committing, sharing, failing. Real files. */
#include <check.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/store_fixture.h"

static struct store_fixture fixture;
static const char *const other_target[] = {"{\"stage\":\"model\"}", "{\"stage\":\"distributed\"}",
                                           "{\"stage\":\"portable\"}", "{\"stage\":\"concrete\",\"slot\":1}"};

static void set_up(void)
{
    store_fixture_init(&fixture);
    store_fixture_open(&fixture);
}

static void tear_down(void)
{
    store_fixture_release(&fixture);
}

static void reopen(void)
{
    store_fixture_close(&fixture);
    store_fixture_open(&fixture);
}

static enum bp_code open_again(struct bp_err *err)
{
    struct bp_store *second = NULL;
    struct bp_store_options options = {.path = fixture.path};
    *err = (struct bp_err){0};
    if (bp_store_open(&options, &second, err) == 0)
        bp_store_close(second);
    return err->code;
}

static char *file_contents(const char *path, size_t *ret_n)
{
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    struct stat status;
    ck_assert_int_eq(fstat(fileno(file), &status), 0);
    *ret_n = (size_t)status.st_size;
    char *bytes = malloc(*ret_n + 1);
    ck_assert_uint_eq(fread(bytes, 1, *ret_n, file), *ret_n);
    fclose(file);
    return bytes;
}

/* ---- Committing ---- */

static void check_text(struct bp_store_text text, const char *expected)
{
    ck_assert_str_eq(text.at, expected);
    ck_assert_uint_eq(text.n, strlen(expected));
}

static void check_is_first(const struct bp_store_plan *plan)
{
    ck_assert_int_eq(plan->state, BP_STORE_COMMITTED);
    ck_assert_int_eq(plan->created_at, 1000000);
    ck_assert_int_eq(plan->committed_at, 2000000);
    ck_assert_str_eq(plan->model, "tiny");
    ck_assert_str_eq(plan->parameters, "340282366920938463463374607431768211455");
    ck_assert_str_eq(plan->mode, "training");
    check_text(plan->request, "{\"model\":{}}");
    check_text(plan->facts, "{\"tasks\":1}");
    ck_assert_ptr_null(plan->diagnostics.at);
    ck_assert_uint_eq(plan->n_snapshots, 4);
    ck_assert_uint_eq(plan->n_derivations, 3);
    for (size_t i = 0; i < 4; i++) {
        struct bp_digest digest = digest_of_text(sample_stages[i]);
        ck_assert(bp_digest_equal(&plan->snapshots[i].digest, &digest));
        ck_assert_uint_eq(plan->snapshots[i].bytes, strlen(sample_stages[i]));
        ck_assert_uint_eq(plan->snapshots[i].n_evidence, i == 0);
    }
    ck_assert_str_eq(plan->snapshots[3].stage, "concrete");
    const struct bp_store_derivation *last = &plan->derivations[2];
    ck_assert_str_eq(last->pass, "pass-3");
    ck_assert_uint_eq(last->revision, 1);
    ck_assert(bp_digest_equal(&last->source, &plan->snapshots[2].digest));
    ck_assert(bp_digest_equal(&last->target, &plan->snapshots[3].digest));
    ck_assert_uint_eq(last->n_evidence, 2);
    ck_assert_str_eq(last->evidence[1].check, "portable.order");
    ck_assert_str_eq(last->evidence[1].kind, "structure");
    ck_assert_str_eq(last->evidence[1].verdict, "holds");
    ck_assert_uint_eq(last->evidence[1].compared, 7);
}

static void read_first(void)
{
    struct bp_err err = {0};
    struct bp_store_plan plan;
    struct bp_digest id = digest_of_text("first");
    ck_assert_msg(bp_store_plan_read(fixture.store, &id, &fixture.arena, &plan, &err) == 0, "%s", err.message);
    ck_assert(bp_digest_equal(&plan.id, &id));
    check_is_first(&plan);
}

START_TEST(test_store__what_was_committed_is_read_back_whole)
{
    store_fixture_put(&fixture, "first", sample_stages, 4);
    read_first();
}
END_TEST

START_TEST(test_store__what_was_committed_survives_a_close)
{
    store_fixture_put(&fixture, "first", sample_stages, 4);
    reopen();
    read_first();
    struct bp_store_stats stats;
    bp_store_stats(fixture.store, &stats);
    ck_assert_uint_eq(stats.plans[BP_STORE_COMMITTED], 1);
    ck_assert_uint_eq(stats.snapshots, 4);
    ck_assert_uint_eq(stats.derivations, 3);
    ck_assert_uint_eq(stats.wal_bytes, 0);
}
END_TEST

START_TEST(test_store__plans_share_snapshots_and_derivations)
{
    store_fixture_put(&fixture, "first", sample_stages, 4);
    store_fixture_put(&fixture, "second", other_target, 4);
    ck_assert_int_eq(store_fixture_int(&fixture, "SELECT count(*) FROM snapshots"), 5);
    ck_assert_int_eq(store_fixture_int(&fixture, "SELECT count(*) FROM derivations"), 4);
    ck_assert_int_eq(store_fixture_int(&fixture, "SELECT count(*) FROM edges"), 4);
    ck_assert_int_eq(store_fixture_int(&fixture, "SELECT count(*) FROM evidence"), 8);
    ck_assert_int_eq(store_fixture_int(&fixture, "SELECT count(*) FROM plan_snapshots"), 8);
    struct bp_store_stats stats;
    bp_store_stats(fixture.store, &stats);
    ck_assert_uint_eq(stats.snapshots, 5);
    ck_assert_uint_eq(stats.derivations, 4);
    ck_assert_uint_eq(stats.plans[BP_STORE_COMMITTED], 2);
    read_first();
}
END_TEST

START_TEST(test_store__a_finished_plan_is_not_written_twice)
{
    struct sample again;
    store_fixture_put(&fixture, "first", sample_stages, 4);
    sample_init(&again, "first", sample_stages, 4);
    again.plan.state = BP_STORE_FAILED;
    ck_assert_int_eq(sample_put(fixture.store, &again), BP_OK);
    ck_assert(again.unit.existed);
    ck_assert_int_eq(store_fixture_int(&fixture, "SELECT count(*) FROM plans"), 1);
    read_first();
    sample_release(&again);
}
END_TEST

START_TEST(test_store__a_failed_plan_is_replaced_and_keeps_its_replays)
{
    struct sample failed;
    sample_init(&failed, "first", sample_stages, 2);
    failed.plan.state = BP_STORE_FAILED;
    failed.plan.diagnostics = (struct bp_store_text){"[]", 2};
    ck_assert_int_eq(sample_put(fixture.store, &failed), BP_OK);
    struct bp_store_replay replay = {
        .id = digest_of_text("replay"), .plan = failed.plan.id, .verdict = "divergent", .record = {"[]", 2}};
    struct bp_store_unit unit = {.replay = &replay};
    ck_assert_int_eq(store_fixture_commit(&fixture, &unit), BP_OK);
    store_fixture_put(&fixture, "first", sample_stages, 4);
    read_first();
    struct bp_store_stats stats;
    bp_store_stats(fixture.store, &stats);
    ck_assert_uint_eq(stats.plans[BP_STORE_FAILED], 0);
    ck_assert_uint_eq(stats.plans[BP_STORE_COMMITTED], 1);
    ck_assert_uint_eq(stats.replays, 1);
    sample_release(&failed);
}
END_TEST

/* What another connection sees of the plan at the moment of the callback. */
static int64_t seen_in_callback = -1;
static sem_t seen;

static void look_aside(struct bp_store_unit *unit, const struct bp_err *err)
{
    (void)unit;
    ck_assert_ptr_null(err);
    seen_in_callback = store_fixture_int(&fixture, "SELECT count(*) FROM plans");
    sem_post(&seen);
}

START_TEST(test_store__the_callback_comes_after_the_commit)
{
    struct sample sample;
    sample_init(&sample, "first", sample_stages, 4);
    sample.unit.done = look_aside;
    sem_init(&seen, 0, 0);
    sample_submit(fixture.store, &sample);
    sem_wait(&seen);
    ck_assert_int_eq(seen_in_callback, 1);
    sample_release(&sample);
}
END_TEST

/* A gate that the first unit's callback holds shut, so that what is submitted meanwhile forms one group. */
static sem_t gate;

static void wait_at_gate(struct bp_store_unit *unit, const struct bp_err *err)
{
    (void)unit;
    (void)err;
    sem_wait(&gate);
}

static void hold_writer(struct sample *holder)
{
    sem_init(&gate, 0, 0);
    sample_init(holder, "holder", NULL, 0);
    holder->unit.done = wait_at_gate;
    sample_submit(fixture.store, holder);
    struct bp_store_stats stats;
    do
        bp_store_stats(fixture.store, &stats);
    while (stats.commits == 0);
}

START_TEST(test_store__what_waits_is_committed_as_one_group)
{
    struct sample holder, samples[10];
    struct bp_store_stats before, after;
    char id[] = "plan 0";
    hold_writer(&holder);
    bp_store_stats(fixture.store, &before);
    for (int i = 0; i < 10; i++) {
        id[5] = (char)('0' + i);
        sample_init(&samples[i], id, sample_stages, 4);
        sample_submit(fixture.store, &samples[i]);
    }
    sem_post(&gate);
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(sample_wait(&samples[i]), BP_OK);
    bp_store_stats(fixture.store, &after);
    ck_assert_uint_eq(after.commits - before.commits, 1);
    ck_assert_uint_eq(after.units - before.units, 10);
    for (int i = 0; i < 10; i++)
        sample_release(&samples[i]);
    sample_release(&holder);
}
END_TEST

START_TEST(test_store__a_unit_that_breaks_a_rule_fails_alone)
{
    struct sample holder, good, bad, good_too;
    hold_writer(&holder);
    sample_init(&good, "good", sample_stages, 4);
    sample_init(&bad, "bad", other_target, 4);
    bad.derivations[1].source = digest_of_text("nothing that is stored");
    sample_init(&good_too, "good, too", sample_stages, 3);
    sample_submit(fixture.store, &good);
    sample_submit(fixture.store, &bad);
    sample_submit(fixture.store, &good_too);
    sem_post(&gate);
    ck_assert_int_eq(sample_wait(&good), BP_OK);
    ck_assert_int_eq(sample_wait(&bad), BP_E_internal);
    ck_assert_int_eq(sample_wait(&good_too), BP_OK);
    ck_assert_int_eq(store_fixture_int(&fixture, "SELECT count(*) FROM plans"), 3);
    ck_assert_int_eq(store_fixture_int(&fixture, "SELECT count(*) FROM snapshots"), 4);
    ck_assert_int_eq(bp_store_ready(fixture.store, NULL), 0);
    sample_release(&holder);
    sample_release(&good);
    sample_release(&bad);
    sample_release(&good_too);
}
END_TEST

enum { SUBMITTERS = 4, PLANS_EACH = 50 };

static void *submit_many(void *data)
{
    const char *name = data;
    for (int i = 0; i < PLANS_EACH; i++) {
        char id[64], text[64];
        snprintf(id, sizeof id, "%s %d", name, i);
        snprintf(text, sizeof text, "{\"concrete\":\"%s %d\"}", name, i);
        const char *texts[] = {sample_stages[0], sample_stages[1], sample_stages[2], text};
        store_fixture_put(&fixture, id, texts, 4);
        struct bp_buf bytes = {0};
        struct bp_digest digest = digest_of_text(text);
        ck_assert_int_eq(bp_store_snapshot_read(fixture.store, &digest, &bytes, NULL), 0);
        bp_buf_release(&bytes);
    }
    return NULL;
}

START_TEST(test_store__many_threads_submit_and_read)
{
    static char names[SUBMITTERS][16];
    pthread_t threads[SUBMITTERS];
    for (int i = 0; i < SUBMITTERS; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        ck_assert_int_eq(pthread_create(&threads[i], NULL, submit_many, names[i]), 0);
    }
    for (int i = 0; i < SUBMITTERS; i++)
        pthread_join(threads[i], NULL);
    struct bp_store_stats stats;
    bp_store_stats(fixture.store, &stats);
    ck_assert_uint_eq(stats.plans[BP_STORE_COMMITTED], SUBMITTERS * PLANS_EACH);
    ck_assert_uint_eq(stats.snapshots, 3 + SUBMITTERS * PLANS_EACH);
    ck_assert_uint_eq(stats.queued, 0);
}
END_TEST

/* ---- Opening ---- */

START_TEST(test_store__a_second_holder_is_refused_with_the_pid_of_the_first)
{
    struct bp_err err;
    char expected[64], link[320];
    snprintf(expected, sizeof expected, "process %ld ", (long)getpid());
    ck_assert_int_eq(open_again(&err), BP_E_database_locked);
    ck_assert_msg(strstr(err.message, expected), "%s", err.message);
    /* Nor by another name of the same file. */
    snprintf(link, sizeof link, "%s/link.db", fixture.directory);
    ck_assert_int_eq(symlink(fixture.path, link), 0);
    struct bp_store *second;
    struct bp_store_options options = {.path = link};
    err = (struct bp_err){0};
    ck_assert_int_eq(bp_store_open(&options, &second, &err), -1);
    ck_assert_int_eq(err.code, BP_E_database_locked);
    unlink(link);
    /* The refusal took nothing away from the first. */
    store_fixture_put(&fixture, "first", sample_stages, 4);
    store_fixture_close(&fixture);
    ck_assert_int_eq(open_again(&err), BP_OK);
}
END_TEST

START_TEST(test_store__a_newer_schema_is_refused_and_the_file_untouched)
{
    struct bp_err err;
    size_t n_before, n_after;
    store_fixture_put(&fixture, "first", sample_stages, 4);
    store_fixture_close(&fixture);
    store_fixture_sql(&fixture, "PRAGMA user_version = 9999; PRAGMA wal_checkpoint(TRUNCATE)");
    char *before = file_contents(fixture.path, &n_before);
    ck_assert_int_eq(open_again(&err), BP_E_schema_newer);
    char *after = file_contents(fixture.path, &n_after);
    ck_assert_uint_eq(n_before, n_after);
    ck_assert_mem_eq(before, after, n_before);
    free(before);
    free(after);
}
END_TEST

START_TEST(test_store__a_newer_schema_still_in_the_log_is_refused_and_both_untouched)
{
    struct bp_err err;
    size_t n_before, n_after, n_wal_before, n_wal_after;
    char wal[320];
    store_fixture_close(&fixture);
    store_fixture_sql(&fixture, "PRAGMA user_version = 9999");
    snprintf(wal, sizeof wal, "%s-wal", fixture.path);
    char *before = file_contents(fixture.path, &n_before), *wal_before = file_contents(wal, &n_wal_before);
    ck_assert_uint_gt(n_wal_before, 0);
    ck_assert_int_eq(open_again(&err), BP_E_schema_newer);
    char *after = file_contents(fixture.path, &n_after), *wal_after = file_contents(wal, &n_wal_after);
    ck_assert_uint_eq(n_before, n_after);
    ck_assert_mem_eq(before, after, n_before);
    ck_assert_uint_eq(n_wal_before, n_wal_after);
    ck_assert_mem_eq(wal_before, wal_after, n_wal_before);
    free(before);
    free(after);
    free(wal_before);
    free(wal_after);
}
END_TEST

START_TEST(test_store__a_file_of_another_program_is_refused)
{
    struct bp_err err;
    store_fixture_close(&fixture);
    store_fixture_sql(&fixture, "PRAGMA application_id = 1");
    ck_assert_int_eq(open_again(&err), BP_E_storage_failed);
    FILE *file = fopen(fixture.path, "wb");
    fputs("this is not a database, but long enough to look at: ..........................................", file);
    fclose(file);
    ck_assert_int_eq(open_again(&err), BP_E_storage_failed);
}
END_TEST

START_TEST(test_store__migrating_from_nothing_and_telling_without_doing)
{
    unsigned from = 99, to = 0;
    store_fixture_close(&fixture);
    ck_assert_int_eq(unlink(fixture.path), 0);
    ck_assert_int_eq(bp_store_migrate(fixture.path, true, &from, &to, NULL), 0);
    ck_assert_uint_eq(from, 0);
    ck_assert_uint_ge(to, 1);
    ck_assert_int_eq(access(fixture.path, F_OK), -1);
    ck_assert_int_eq(bp_store_migrate(fixture.path, false, &from, &to, NULL), 0);
    ck_assert_uint_eq(from, 0);
    ck_assert_int_eq(store_fixture_int(&fixture, "PRAGMA user_version"), to);
    ck_assert_int_eq(bp_store_migrate(fixture.path, false, &from, &to, NULL), 0);
    ck_assert_uint_eq(from, to);
    store_fixture_open(&fixture);
    store_fixture_put(&fixture, "first", sample_stages, 4);
    read_first();
}
END_TEST

START_TEST(test_store__every_table_is_strict)
{
    ck_assert_int_eq(store_fixture_int(&fixture, "SELECT count(*) FROM pragma_table_list WHERE type = 'table' AND "
                                                 "schema = 'main' AND name NOT LIKE 'sqlite_%' AND NOT strict"),
                     0);
    ck_assert_int_ge(store_fixture_int(&fixture, "SELECT count(*) FROM pragma_table_list WHERE strict"), 9);
}
END_TEST

START_TEST(test_store__the_shell_views_answer)
{
    char sql[512], hex[65];
    struct bp_digest digest = digest_of_text(sample_stages[0]);
    bp_hex(digest.bytes, sizeof digest.bytes, hex);
    store_fixture_put(&fixture, "first", sample_stages, 4);
    store_fixture_put(&fixture, "second", other_target, 4);
    snprintf(sql, sizeof sql,
             "SELECT count(*) FROM plan_stages WHERE stage = 'model' AND snapshot = x'%s' AND digest = 'sha256:%s'",
             hex, hex);
    ck_assert_int_eq(store_fixture_int(&fixture, sql), 2);
    ck_assert_int_eq(store_fixture_int(&fixture, "SELECT count(*) FROM pass_outputs WHERE pass = 'pass-3' AND "
                                                 "revision = 1 AND target_stage = 'concrete' AND checks = 2"),
                     2);
    ck_assert_int_eq(store_fixture_int(&fixture, "SELECT count(*) FROM pass_outputs WHERE revision = 2"), 0);
    ck_assert_int_eq(
        store_fixture_int(&fixture, "SELECT created_at = '1970-01-01T00:00:01.000Z' FROM plan_stages LIMIT 1"), 1);
}
END_TEST

START_TEST(test_store__times_are_rfc_3339)
{
    static const struct {
        int64_t at;
        const char *text;
    } rows[] = {{0, "1970-01-01T00:00:00.000000Z"},
                {1709210096000042, "2024-02-29T12:34:56.000042Z"},
                {-1, "1969-12-31T23:59:59.999999Z"},
                {INT64_MAX, "9999-12-31T23:59:59.999999Z"},
                {INT64_MIN, "0000-01-01T00:00:00.000000Z"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[BP_TIME_TEXT];
        bp_time_format(rows[i].at, text);
        ck_assert_str_eq(text, rows[i].text);
    }
}
END_TEST

Suite *suite_store(void)
{
    Suite *suite = suite_create("store");
    TCase *tcase = tcase_create("store");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_store__what_was_committed_is_read_back_whole);
    tcase_add_test(tcase, test_store__what_was_committed_survives_a_close);
    tcase_add_test(tcase, test_store__plans_share_snapshots_and_derivations);
    tcase_add_test(tcase, test_store__a_finished_plan_is_not_written_twice);
    tcase_add_test(tcase, test_store__a_failed_plan_is_replaced_and_keeps_its_replays);
    tcase_add_test(tcase, test_store__the_callback_comes_after_the_commit);
    tcase_add_test(tcase, test_store__what_waits_is_committed_as_one_group);
    tcase_add_test(tcase, test_store__a_unit_that_breaks_a_rule_fails_alone);
    tcase_add_test(tcase, test_store__many_threads_submit_and_read);
    tcase_add_test(tcase, test_store__a_second_holder_is_refused_with_the_pid_of_the_first);
    tcase_add_test(tcase, test_store__a_newer_schema_is_refused_and_the_file_untouched);
    tcase_add_test(tcase, test_store__a_newer_schema_still_in_the_log_is_refused_and_both_untouched);
    tcase_add_test(tcase, test_store__a_file_of_another_program_is_refused);
    tcase_add_test(tcase, test_store__migrating_from_nothing_and_telling_without_doing);
    tcase_add_test(tcase, test_store__every_table_is_strict);
    tcase_add_test(tcase, test_store__the_shell_views_answer);
    tcase_add_test(tcase, test_store__times_are_rfc_3339);
    suite_add_tcase(suite, tcase);
    return suite;
}
