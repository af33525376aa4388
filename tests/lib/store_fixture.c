#include "tests/lib/store_fixture.h"

#include <check.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void store_fixture_init(struct store_fixture *fixture)
{
    const char *tmp = getenv("TMPDIR");
    *fixture = (struct store_fixture){.store = NULL};
    snprintf(fixture->directory, sizeof fixture->directory, "%s/store-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(fixture->directory));
    snprintf(fixture->path, sizeof fixture->path, "%s/plans.db", fixture->directory);
}

void store_fixture_open(struct store_fixture *fixture)
{
    struct bp_err err = {0};
    struct bp_store_options options = {
        .path = fixture->path, .wal_limit = fixture->wal_limit, .observer = fixture->observer};
    ck_assert_msg(bp_store_open(&options, &fixture->store, &err) == 0, "%s", err.message);
}

void store_fixture_close(struct store_fixture *fixture)
{
    bp_store_close(fixture->store);
    fixture->store = NULL;
}

void store_fixture_release(struct store_fixture *fixture)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal", ".lock"};
    store_fixture_close(fixture);
    bp_arena_release(&fixture->arena);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char path[320];
        snprintf(path, sizeof path, "%s%s", fixture->path, suffixes[i]);
        unlink(path);
    }
    ck_assert_msg(rmdir(fixture->directory) == 0, "%s is not empty", fixture->directory);
}

static sqlite3 *open_aside(struct store_fixture *fixture)
{
    sqlite3 *handle;
    ck_assert_int_eq(sqlite3_open(fixture->path, &handle), SQLITE_OK);
    ck_assert_int_eq(sqlite3_db_config(handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL), SQLITE_OK);
    sqlite3_busy_timeout(handle, 2000);
    return handle;
}

void store_fixture_sql(struct store_fixture *fixture, const char *sql)
{
    sqlite3 *handle = open_aside(fixture);
    int rc = sqlite3_exec(handle, sql, NULL, NULL, NULL);
    ck_assert_msg(rc == SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(handle));
    sqlite3_close(handle);
}

int64_t store_fixture_int(struct store_fixture *fixture, const char *sql)
{
    sqlite3 *handle = open_aside(fixture);
    sqlite3_stmt *stmt;
    ck_assert_msg(sqlite3_prepare_v2(handle, sql, -1, &stmt, NULL) == SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(handle));
    ck_assert_msg(sqlite3_step(stmt) == SQLITE_ROW, "no row: %s", sql);
    int64_t value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(handle);
    return value;
}

struct bp_digest digest_of_text(const char *text)
{
    struct bp_digest digest;
    bp_digest_of(text, strlen(text), &digest);
    return digest;
}

static void sample_done(struct bp_store_unit *unit, const struct bp_err *err)
{
    struct sample *sample = unit->data;
    sample->err = err ? *err : (struct bp_err){0};
    sem_post(&sample->done);
}

static struct bp_store_text text_of(const char *text)
{
    return (struct bp_store_text){text, strlen(text)};
}

const char *const sample_stages[SAMPLE_STAGES] = {"{\"stage\":\"model\"}", "{\"stage\":\"distributed\"}",
                                                  "{\"stage\":\"portable\"}", "{\"stage\":\"concrete\"}"};
const char *const sample_family[SAMPLE_FAMILY][SAMPLE_STAGES] = {
    {"m", "d1", "p1", "c1"}, {"m", "d1", "p1", "c2"}, {"m", "d2", "p2", "c3"}};

static void init_stages(struct sample *sample, const char *const *texts, size_t n)
{
    static const char *const stages[] = {"model", "distributed", "portable", "concrete"};
    static const char *const passes[] = {"pass-1", "pass-2", "pass-3"};
    struct bp_store_packer *packer = bp_store_packer_new();
    for (size_t i = 0; i < n; i++) {
        struct bp_buf *packed = &sample->packed[i];
        ck_assert_int_eq(bp_store_pack(packer, texts[i], strlen(texts[i]), packed, NULL), 0);
        sample->snapshots[i] = (struct bp_store_snapshot){.digest = digest_of_text(texts[i]),
                                                          .stage = stages[i],
                                                          .schema = "blueprint.test/1",
                                                          .bytes = strlen(texts[i]),
                                                          .packed = {packed->data, packed->len}};
        if (i)
            sample->derivations[i - 1] = (struct bp_store_derivation){.pass = passes[i - 1],
                                                                      .revision = 1,
                                                                      .source = sample->snapshots[i - 1].digest,
                                                                      .target = sample->snapshots[i].digest,
                                                                      .evidence = sample->evidence,
                                                                      .n_evidence = 2};
    }
    sample->snapshots[0].evidence = sample->evidence;
    sample->snapshots[0].n_evidence = n ? 1 : 0;
    bp_store_packer_free(packer);
}

void sample_init(struct sample *sample, const char *id, const char *const *texts, size_t n)
{
    *sample =
        (struct sample){.evidence = {{"law.qkv", "law", "holds", 3}, {"portable.order", "structure", "holds", 7}}};
    init_stages(sample, texts, n);
    sample->plan = (struct bp_store_plan){.id = digest_of_text(id),
                                          .state = BP_STORE_COMMITTED,
                                          .created_at = 1000000,
                                          .committed_at = 2000000,
                                          .model = "tiny",
                                          .parameters = "340282366920938463463374607431768211455",
                                          .mode = "training",
                                          .request = text_of("{\"model\":{}}"),
                                          .facts = text_of("{\"tasks\":1}"),
                                          .snapshots = sample->snapshots,
                                          .n_snapshots = n,
                                          .derivations = sample->derivations,
                                          .n_derivations = n ? n - 1 : 0};
    sample->unit = (struct bp_store_unit){.plan = &sample->plan, .done = sample_done, .data = sample};
    sem_init(&sample->done, 0, 0);
}

void sample_release(struct sample *sample)
{
    for (size_t i = 0; i < SAMPLE_STAGES; i++)
        bp_buf_release(&sample->packed[i]);
    sem_destroy(&sample->done);
}

void sample_submit(struct bp_store *store, struct sample *sample)
{
    bp_store_submit(store, &sample->unit);
}

enum bp_code sample_wait(struct sample *sample)
{
    while (sem_wait(&sample->done) < 0)
        ;
    return sample->err.code;
}

enum bp_code sample_put(struct bp_store *store, struct sample *sample)
{
    sample_submit(store, sample);
    return sample_wait(sample);
}

void store_fixture_put(struct store_fixture *fixture, const char *id, const char *const *texts, size_t n)
{
    struct sample sample;
    sample_init(&sample, id, texts, n);
    ck_assert_msg(sample_put(fixture->store, &sample) == BP_OK, "%s", sample.err.message);
    sample_release(&sample);
}

void store_fixture_put_family(struct store_fixture *fixture)
{
    static const char *const ids[SAMPLE_FAMILY] = {"one", "two", "three"};
    for (size_t i = 0; i < SAMPLE_FAMILY; i++)
        store_fixture_put(fixture, ids[i], sample_family[i], SAMPLE_STAGES);
}

enum bp_code store_fixture_commit(struct store_fixture *fixture, struct bp_store_unit *unit)
{
    struct sample sample;
    sample_init(&sample, "", NULL, 0);
    unit->done = sample_done;
    unit->data = &sample;
    bp_store_submit(fixture->store, unit);
    enum bp_code code = sample_wait(&sample);
    sample_release(&sample);
    return code;
}
