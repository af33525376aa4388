/* What keeps a store in order: the check of a whole file, copies of it, taking plans out of it. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/store_fixture.h"

static struct store_fixture fixture;
static const char *const stages[] = {"{\"stage\":\"model\"}", "{\"stage\":\"distributed\"}", "{\"stage\":\"portable\"}",
                                     "{\"stage\":\"concrete\"}"};

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
    struct bp_digest portable = digest_of_text(stages[2]);
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
    store_fixture_put(&fixture, "plan", stages, 4);
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
    store_fixture_put(&fixture, "plan", stages, 4);
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
    store_fixture_put(&fixture, "one", stages, 4);
    store_fixture_put(&fixture, "two", stages, 3);
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
    store_fixture_put(&fixture, "plan", stages, 4);
    ck_assert_msg(bp_store_backup(fixture.store, to, &backup, &err) == 0, "%s", err.message);
    ck_assert_uint_gt(backup.pages, 0);
    ck_assert_uint_eq(backup.pages, backup.all_pages);
    store_fixture_put(&fixture, "later", stages, 3);
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
    store_fixture_put(&fixture, "plan", stages, 4);
    ck_assert_int_eq(bp_store_backup(fixture.store, to, &backup, &err), -1);
    ck_assert_int_eq(err.code, BP_E_stopping);
    ck_assert_int_ne(access(to, F_OK), 0);
    err = (struct bp_err){0};
    ck_assert_int_eq(bp_store_backup(fixture.store, fixture.path, &(struct bp_store_backup){0}, &err), -1);
    ck_assert_int_eq(err.code, BP_E_storage_failed);
    ck_assert_int_eq(store_fixture_int(&fixture, "SELECT count(*) FROM plans"), 1);
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
