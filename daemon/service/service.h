/* What the routes do: joins the pipeline, the jobs and the store.
 *
 * Every function that returns an answer gives the caller a reference. Those that take a waiter may return NULL instead:
 * then waiter->wake brings the answer, once, from a worker or the store's writer, unless bp_service_leave came first.
 * Called from the HTTP thread but for start, drain and stop, and bp_service_leave, which any thread may call.
 *
 * Locks, in the order in which they nest: the HTTP layer's connections, the service, the queue; a cache's; the
 * readiness's. No lock is held while a waiter is woken.
 */
#ifndef BP_SERVICE_SERVICE_H
#define BP_SERVICE_SERVICE_H

#include "daemon/metrics.h"
#include "daemon/service/waiter.h"
#include "daemon/store/store.h"

struct bp_service;

struct bp_service_options {
    const char *database; /* the store's file, for seeing that somebody else wrote to it */
    unsigned workers, queue;
    unsigned audit_days; /* that the audit is kept; 0: for ever */
    struct bp_store *store;
    struct bp_metrics *metrics;
    uint64_t disk_reserve; /* bytes to be free where the database is, for the daemon to be ready */
};

/* Starts the workers. */
int bp_service_start(const struct bp_service_options *options, struct bp_service **ret, struct bp_err *err);

/* Takes up what was accepted and not finished before. Before anything is served. */
int bp_service_recover(struct bp_service *service, struct bp_err *err);

/* Takes up what was accepted and then left on disk, because the store could not write, once it can. Main thread, every
 * now and then. */
int bp_service_take_up_again(struct bp_service *service, struct bp_err *err);

/* Records a call that is of no one plan. `action` is static. */
void bp_service_audit_call(struct bp_service *service, const struct bp_caller *caller, const char *action);

/* Stores what the audit has counted, and takes out of it what is too old. Main thread, every second. */
void bp_service_audit_tick(struct bp_service *service);

/* Waits until nothing is in flight, at most until `deadline_ns` of CLOCK_MONOTONIC. Nobody may come meanwhile. */
void bp_service_drain(struct bp_service *service, uint64_t deadline_ns);

/* Ends the running jobs and leaves the queued ones: what was accepted durably is on disk. Nobody may be waiting. The
 * store must be closed, which ends what is with its writer, before the service is freed. NULL does nothing. */
void bp_service_stop(struct bp_service *service);
void bp_service_free(struct bp_service *service);

/* The waiter goes. True: it will not be woken. False: it has been or is just being woken. */
bool bp_service_leave(struct bp_service *service, struct bp_waiter *waiter);

/* ---- Plans ---- */

/* How long the caller of a plan waits for it: till the end; until bp_service_lose_patience, from when on it is content
 * with a 202; or not at all when a 202 can be given. With less than full patience a plan to be derived is put on disk
 * first. */
enum bp_patience { BP_PATIENCE_FULL, BP_PATIENCE_SOME, BP_PATIENCE_NONE };

/* A POST of a request. */
struct bp_answer *bp_service_plan_create(struct bp_service *service, const char *body, size_t n,
                                         enum bp_patience patience, struct bp_waiter *waiter);

/* The waiter, which had some patience, has none any more. When its plan is on disk as an accepted one the answer is the
 * 202, and the waiter has left; else NULL: it waits on, for that or for the plan. Any thread. */
struct bp_answer *bp_service_lose_patience(struct bp_service *service, struct bp_waiter *waiter);

/* `id` as it stands in the URL: a digest or a prefix of one. */
struct bp_answer *bp_service_plan_get(struct bp_service *service, const char *id);

/* Which plans; NULL: any. The state is of enum bp_plan_state, -1 for any finished one; those in flight are listed,
 * without pages, when asked for. `ret_next` is the cursor of the next page or "". */
struct bp_plan_query {
    int state;
    const char *model, *mode, *cursor;
    size_t limit;
};
struct bp_answer *bp_service_plan_list(struct bp_service *service, const struct bp_plan_query *query,
                                       char ret_next[BP_STORE_CURSOR_TEXT]);

struct bp_answer *bp_service_trace(struct bp_service *service, const char *plan, const char *entity,
                                   struct bp_waiter *waiter);
struct bp_answer *bp_service_diff(struct bp_service *service, const char *a, const char *b, struct bp_waiter *waiter);

/* ---- The whole job ---- */

/* Whether a job fits, of a POST's body. */
struct bp_answer *bp_service_fit(struct bp_service *service, const char *body, size_t n, struct bp_waiter *waiter);

/* What a stored plan's job holds. */
struct bp_answer *bp_service_capacity(struct bp_service *service, const char *plan, struct bp_waiter *waiter);

/* ---- Replays ---- */

struct bp_answer *bp_service_replay_create(struct bp_service *service, const char *plan, struct bp_waiter *waiter);
struct bp_answer *bp_service_replay_get(struct bp_service *service, const char *id);
struct bp_answer *bp_service_replay_list(struct bp_service *service, const char *plan, size_t limit, const char *cursor,
                                         char ret_next[BP_STORE_CURSOR_TEXT]);

/* ---- Snapshots ---- */

/* The canonical bytes. `validate_only`: the caller means to compare the ETag, so bytes that were checked once need not
 * be checked against what is stored now. */
struct bp_answer *bp_service_snapshot_get(struct bp_service *service, const char *digest, bool validate_only);
struct bp_answer *bp_service_lineage(struct bp_service *service, const char *digest, enum bp_store_direction direction,
                                     size_t limit, const char *cursor, char ret_next[BP_STORE_CURSOR_TEXT]);

/* ---- For who operates it ---- */

/* One backup at a time: begins to make one unless that is under way, how it stands, its bytes once it is verified, and
 * the end of it. */
struct bp_answer *bp_service_backup_create(struct bp_service *service);
struct bp_answer *bp_service_backup_get(struct bp_service *service, const char *id);
struct bp_answer *bp_service_backup_file(struct bp_service *service, const char *id);
struct bp_answer *bp_service_backup_drop(struct bp_service *service, const char *id);

/* Collections of old plans, of a POST's body {"older_than_seconds", "dry_run"}; and pins, which keep plans. */
struct bp_answer *bp_service_collection_create(struct bp_service *service, const char *body, size_t n,
                                               struct bp_waiter *waiter);
struct bp_answer *bp_service_collection_get(struct bp_service *service, const char *id);
struct bp_answer *bp_service_pin(struct bp_service *service, const char *plan, bool remove, struct bp_waiter *waiter);
struct bp_answer *bp_service_pin_list(struct bp_service *service, size_t limit, const char *cursor,
                                      char ret_next[BP_STORE_CURSOR_TEXT]);

/* Replays of the history, of a POST's body {"since"}; and the plans that did not come out as they are stored. */
struct bp_answer *bp_service_history_create(struct bp_service *service, const char *body, size_t n,
                                            struct bp_waiter *waiter);
struct bp_answer *bp_service_history_get(struct bp_service *service, const char *id);
struct bp_answer *bp_service_divergences(struct bp_service *service, const char *id, size_t limit, const char *cursor,
                                         char ret_next[BP_STORE_CURSOR_TEXT]);

/* Collections and replays of the history, last accepted first. */
struct bp_answer *bp_service_job_list(struct bp_service *service, size_t limit, const char *cursor,
                                      char ret_next[BP_STORE_CURSOR_TEXT]);

/* Forgets the backup that nobody took in time. Main thread, every now and then. */
void bp_service_tidy_up(struct bp_service *service);

/* ---- What is built in ---- */

struct bp_answer *bp_service_pass_list(void);
struct bp_answer *bp_service_pass_get(const char *name);
struct bp_answer *bp_service_model_list(void);
struct bp_answer *bp_service_model_get(const char *name);

/* ---- How it is ---- */

/* 200 when new work would be taken now, else the problems that stand in its way; either names every probe. The store
 * writes for it, at most once a second, and else what came of the last write counts. */
struct bp_answer *bp_service_ready(struct bp_service *service, struct bp_waiter *waiter);

/* What the store tells of its commits and checkpoints goes into the metrics. */
struct bp_store_observer bp_service_store_observer(struct bp_metrics *metrics);

/* Asks the workers to turn around once; whether every one gets on, as daemon/jobs/workers.h says. */
void bp_service_ask(struct bp_service *service);
bool bp_service_gets_on(struct bp_service *service, uint64_t now_ns);

/* Fills in the samples the service knows of and leaves the others. */
void bp_service_gauges(struct bp_service *service, uint64_t gauges[BP_GAUGE_N]);

#endif
