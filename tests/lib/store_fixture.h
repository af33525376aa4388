/* A store in a directory of its own, and plans to put into it. For tests: every failure here ends the test. */
#ifndef BP_TESTS_STORE_FIXTURE_H
#define BP_TESTS_STORE_FIXTURE_H

#include <semaphore.h>

#include "daemon/store/store.h"

struct store_fixture {
    char directory[256], path[300];
    uint64_t wal_limit;                /* of the next opening; 0: the default */
    struct bp_store_observer observer; /* of the next opening */
    struct bp_store *store;
    struct bp_arena arena;
};

/* Makes the directory, below $TMPDIR or /tmp; opens nothing. */
void store_fixture_init(struct store_fixture *fixture);
void store_fixture_open(struct store_fixture *fixture);
void store_fixture_close(struct store_fixture *fixture);
/* Closes, frees, removes the directory. */
void store_fixture_release(struct store_fixture *fixture);

/* Runs SQL on a connection of its own, outside of the store. */
void store_fixture_sql(struct store_fixture *fixture, const char *sql);
/* The first column of the first row, as an integer. */
int64_t store_fixture_int(struct store_fixture *fixture, const char *sql);

enum { SAMPLE_STAGES = 4, SAMPLE_FAMILY = 3 };

/* Texts of a plan's stages; and of three plans that share: the second all but its last snapshot with the first, the
 * third the model alone. */
extern const char *const sample_stages[SAMPLE_STAGES], *const sample_family[SAMPLE_FAMILY][SAMPLE_STAGES];

/* A plan of up to four stages whose snapshots are the texts given, each derived from the one before by the pass
 * "pass-1", "pass-2" ... */
struct sample {
    struct bp_store_plan plan;
    struct bp_store_snapshot snapshots[SAMPLE_STAGES];
    struct bp_store_derivation derivations[SAMPLE_STAGES - 1];
    struct bp_store_evidence evidence[2];
    struct bp_buf packed[SAMPLE_STAGES];
    struct bp_store_unit unit;
    sem_t done;
    struct bp_err err; /* BP_OK when it was committed */
};

/* `id` is digested to the plan's id. The texts must live as long as the sample. */
void sample_init(struct sample *sample, const char *id, const char *const *texts, size_t n);
void sample_release(struct sample *sample);

/* Submits the sample's unit; waits; gives the code. */
void sample_submit(struct bp_store *store, struct sample *sample);
enum bp_code sample_wait(struct sample *sample);
enum bp_code sample_put(struct bp_store *store, struct sample *sample);

/* One plan put and forgotten. */
void store_fixture_put(struct store_fixture *fixture, const char *id, const char *const *texts, size_t n);

/* Those of sample_family, under "one", "two" and "three". */
void store_fixture_put_family(struct store_fixture *fixture);

/* Any unit but a plan's. */
enum bp_code store_fixture_commit(struct store_fixture *fixture, struct bp_store_unit *unit);

struct bp_digest digest_of_text(const char *text);

#endif
