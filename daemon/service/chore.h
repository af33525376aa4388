/* Long work that is on disk before it is promised and goes on after a restart: a job of the store that is done in
 * slices. A slice is some milliseconds of a worker or of the store's writer; between two of them plans go first. What a
 * slice did is committed with the place it came to, so a crash costs what was not committed and nothing is done twice.
 *
 * A chore is owned by the queue, a worker and the writer in turn. */
#ifndef BP_SERVICE_CHORE_H
#define BP_SERVICE_CHORE_H

#include "daemon/service/internal.h"

/* A slice goes on to no other plan after that. */
#define BP_SLICE_NS (INT64_C(10) * 1000000)

enum { BP_CHORE_TALLIES_MAX = 8, BP_CHORE_DIVERGENCES_MAX = 32, BP_CHORE_KIND_N = 2 };

struct bp_chore;

struct bp_chore_kind {
    const char *name; /* the job's kind */
    enum bp_long_job metric;
    const char *progress; /* the tally that comes near that of "plans" */
    bool of_passes;       /* what it does depends on the revisions of the passes */
    /* Reads the request; adds every problem. */
    void (*read)(struct bp_chore *chore, const json_t *request, struct bp_problems *problems);
    void (*write)(const struct bp_chore *chore, struct bp_writer *writer); /* the request in canonical form */
    /* A slice, on a worker: adds to the chore's tallies and divergences and moves its place, or fills in its
     * collection.
     */
    int (*slice)(struct bp_chore *chore, struct bp_err *err);
    /* Writes the members of the answer that are this kind's own. */
    int (*view)(struct bp_service *service, const struct bp_chore *chore, const struct bp_store_job *job,
                const struct bp_store_tally_page *tallies, struct bp_arena *arena, struct bp_writer *writer,
                struct bp_err *err);
};
extern const struct bp_chore_kind bp_collection_kind, bp_history_kind;

struct bp_chore {
    struct bp_job job; /* first */
    struct bp_service *service;
    const struct bp_chore_kind *kind;
    struct bp_digest id;
    int64_t created_at;
    struct bp_buf request_text, passes_text, problem;
    struct bp_chore *next; /* under the claims' lock, with `on_disk` */
    bool on_disk;

    /* The request. */
    uint64_t older_than; /* seconds */
    bool dry_run, has_since;
    int64_t since;

    /* Since the last commit. */
    struct bp_store_place place;
    struct bp_store_tally tallies[BP_CHORE_TALLIES_MAX];
    size_t n_tallies;
    struct bp_store_divergence divergences[BP_CHORE_DIVERGENCES_MAX];
    size_t n_divergences;
    struct bp_arena arena; /* of the divergences */
    uint64_t committed_at; /* CLOCK_MONOTONIC, ns */
    bool collects, ended;

    struct bp_store_unit unit;
    struct bp_store_job accept;
    struct bp_store_job_change change;
    struct bp_store_progress progress;
    struct bp_store_collection collection;
};

void bp_chore_free(struct bp_chore *chore); /* one that is not under way */

/* How many are under way. */
size_t bp_chores_count(struct bp_service *service);

void bp_chore_tally(struct bp_chore *chore, const char *name, uint64_t n);
uint64_t bp_tally_of(const struct bp_store_tally_page *tallies, const char *name);

/* What slices are made of. The first one: counts the plans that finished from `from` on and before `until` as its
 * "plans", and sets out from there. */
int bp_chore_count(struct bp_chore *chore, int64_t from, int64_t until, struct bp_err *err);

/* Another one: `visit` for one plan after the other, oldest first, until there are no more that finished before
 * `until`, or it has been long enough. */
int bp_chore_walk(struct bp_chore *chore, int64_t until,
                  int (*visit)(struct bp_chore *chore, const struct bp_store_plan_name *plan, struct bp_err *err),
                  struct bp_err *err);

/* A POST of a chore of that kind: 202 once it is on disk. The same while it is under way is that one. */
struct bp_answer *bp_chore_create(struct bp_service *service, const struct bp_chore_kind *kind, const char *body,
                                  size_t n, struct bp_waiter *waiter);

/* NULL: there is no such kind. */
const struct bp_chore_kind *bp_chore_kind_of(const char *name);

/* Of a job on disk, to be read or to be taken up. NULL: `err` says why not. */
struct bp_chore *bp_chore_of_job(struct bp_service *service, const struct bp_chore_kind *kind,
                                 const struct bp_store_job *job, struct bp_err *err);

/* How a chore stands, wherever it is. */
struct bp_answer *bp_chore_answer(struct bp_service *service, const struct bp_chore_kind *kind,
                                  const struct bp_digest *id, int status);
struct bp_answer *bp_chore_get(struct bp_service *service, const struct bp_chore_kind *kind, const char *id);

/* The job that `text` names, of that kind; false: in `*ret_refusal` why not. */
bool bp_chore_find(struct bp_service *service, const struct bp_chore_kind *kind, const char *text,
                   struct bp_arena *arena, struct bp_store_job *ret, struct bp_answer **ret_refusal);

/* Takes up a job of a chore's kind that is on disk, unless it is in hand. `*ret_known` is false when there is no such
 * kind. */
int bp_chore_take_up(struct bp_service *service, const struct bp_store_job *job, unsigned attempts_max, bool *ret_known,
                     uint64_t *ret_taken, struct bp_err *err);

#endif
