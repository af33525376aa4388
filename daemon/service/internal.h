/* What the files of the service share. */
#ifndef BP_SERVICE_INTERNAL_H
#define BP_SERVICE_INTERNAL_H

#include "common/pipeline.h"
#include "common/view/plan.h"
#include "daemon/jobs/workers.h"
#include "daemon/service/audit.h"
#include "daemon/service/cache.h"
#include "daemon/service/claims.h"
#include "daemon/service/service.h"

/* The one backup there is. Its thread and the HTTP thread share it. */
enum bp_backup_state { BP_BACKUP_NONE, BP_BACKUP_COPYING, BP_BACKUP_VERIFYING, BP_BACKUP_READY, BP_BACKUP_FAILED };
struct bp_backup {
    pthread_mutex_t lock; /* a leaf: nothing is taken under it */
    enum bp_backup_state state;
    struct bp_digest id;
    int64_t created_at;
    uint64_t began_at, ended_at; /* CLOCK_MONOTONIC, ns */
    struct {
        uint64_t at, took, bytes; /* since 1970, and how long: ns. 0: there was none */
    } last;                       /* that was ready */
    int fd;                       /* of the file, which has no name; -1 */
    uint64_t bytes;
    struct bp_digest digest; /* of the file */
    struct bp_err err;
    struct bp_store_backup copy; /* what it counts is read without the lock */
    atomic_bool stop;
    pthread_t thread;
    bool has_thread; /* the HTTP thread's */
};

/* Whether the store writes. */
struct bp_readiness {
    pthread_mutex_t lock;
    struct bp_store_unit unit; /* the writer's while in flight */
    bool in_flight;
    uint64_t began_at, ended_at; /* the last write, CLOCK_MONOTONIC, ns; 0: never */
    struct bp_err err;           /* that it ended with */
    bool schema_differs;
    struct bp_waiter *first; /* who waits for it */
};

struct bp_service {
    struct bp_store *store;
    struct bp_metrics *metrics;
    struct bp_job_queue queue;
    struct bp_workers workers;
    struct bp_claims claims;
    struct bp_readiness readiness;
    uint64_t disk_reserve;
    struct bp_cache bodies;    /* digest of a raw body: the 200 of its committed plan */
    struct bp_cache snapshots; /* digest: the canonical bytes, checked */
    struct bp_backup backup;
    struct bp_chore *chores;      /* under way, in no order; under the claims' lock */
    atomic_uint_fast64_t n_named; /* makes ids differ */
    atomic_bool left_behind;      /* an accepted job is on disk that no claim stands for */
    struct bp_audit audit;
    unsigned audit_days; /* 0: the audit is kept for ever */

    /* The HTTP thread's: which version of the database files was seen last. */
    char *files[2]; /* the database and its write-ahead log */
    struct {
        int64_t changed_at, size;
    } seen[2];
    uint64_t version, looked_at;
};

/* ---- ready.c ---- */

bool bp_readiness_leave(struct bp_service *service, struct bp_waiter *waiter);

/* The answer for who waited too long; NULL when it is just being woken or waits for something else. */
struct bp_answer *bp_readiness_lose_patience(struct bp_service *service, struct bp_waiter *waiter);

/* ---- service.c ---- */

/* Microseconds since 1970, as the store counts. */
int64_t bp_now_us(void);

/* What a worker keeps between jobs. */
struct bp_service_worker {
    struct bp_store_packer *packer;
};

/* ---- record.c: plans as JSON ---- */

/* The plan of a store's record, `with_derivations` or as a list shows it. */
void bp_record_write(struct bp_writer *writer, const struct bp_store_plan *plan, bool with_derivations);

/* A plan in flight. */
void bp_record_view_write(struct bp_writer *writer, const struct bp_claim_view *view);

/* The answer to whoever asked for the plan: `status` with the record, the model_extra members (or NULL) within its
 * `model`. `record` is the text of bp_record_write. */
struct bp_answer *bp_record_answer(int status, const char *record, size_t n, const char *model_extra);

/* The answer that a stored plan is to a POST: 200, 422 of a rejected one. */
struct bp_answer *bp_record_repeat(const struct bp_store_plan *plan, const char *model_extra);

/* problem+json of a plan that was rejected or failed. */
struct bp_answer *bp_record_refusal(const struct bp_digest *id, const struct bp_problems *diagnostics);

/* The refusal of a request that was read: every problem, and what could be counted of a model that is not modelled. */
struct bp_answer *bp_record_request_refusal(const struct bp_problems *problems, const struct bp_config *config);

/* The JSON members `family`, `ignored` and `assumed`; owned by the caller; NULL when memory ran out. */
char *bp_record_model_extra(const struct bp_config *config);

/* ---- plan_work.c: on workers and the store's writer ---- */

/* Hands a claim that is in the table to the workers. On failure it is still the caller's. */
int bp_plan_enqueue(struct bp_claim *claim, struct bp_err *err);

/* Puts a durable claim's request on disk as a job, in place of the job `supersedes` when that is not NULL; then answers
 * 202 to the waiters that want no more and hands it to the workers. */
void bp_plan_accept(struct bp_claim *claim, const struct bp_digest *supersedes);

/* The answer to who is content with acceptance. */
struct bp_answer *bp_plan_accepted(const struct bp_claim_view *view, const char *model_extra);

/* Takes what a waiter brought from it, and wakes it. */
void bp_service_wake(struct bp_waiter *waiter, struct bp_answer *answer);

/* Marks a durable claim's job failed and commits its failed plan, of which `err` is the diagnostic; `done` as of a
 * store unit, whose data is the claim. */
void bp_plan_store_failure(struct bp_claim *claim, const struct bp_err *err,
                           void (*done)(struct bp_store_unit *unit, const struct bp_err *err));

/* ---- plan_read.c ---- */

/* A plan by what a URL calls it: the one under which its job was taken up when the passes had changed. */
struct bp_plan_place {
    struct bp_digest named, id; /* these differ when it was superseded */
    bool in_flight;             /* queued or running: in a claim, or on disk until the next start */
};

/* False: in `*ret_refusal` why not. */
bool bp_plan_find(struct bp_service *service, const char *text, struct bp_plan_place *ret,
                  struct bp_answer **ret_refusal);

/* The same for what needs a plan that is finished: one in flight is not_ready. */
bool bp_plan_find_finished(struct bp_service *service, const char *text, struct bp_digest *ret,
                           struct bp_answer **ret_refusal);

/* How a job of kind "plan" looks to a reader. */
int bp_plan_job_view(const struct bp_store_job *job, struct bp_arena *arena, struct bp_claim_view *ret,
                     struct bp_err *err);

/* ---- errand.c: work of a worker for one waiter ---- */

struct bp_errand {
    struct bp_job job;
    struct bp_service *service;
    struct bp_waiter *waiter; /* under the claims' lock; NULL when it left */
    /* On a worker: the answer, or NULL when bp_errand_finish will be called later. */
    struct bp_answer *(*run)(struct bp_errand *errand);
    struct bp_digest plan, other;
    char entity[64];
    struct bp_buf body;     /* of a fit request */
    struct bp_chore *chore; /* to be accepted */
    struct bp_store_pin pin;
    /* A replay's, until it is stored. */
    enum bp_replay_verdict verdict;
    struct bp_store_unit unit;
    struct bp_store_replay replay;
    struct bp_audit_record asked;
    struct bp_store_audit audit;
    struct bp_buf record;
};

/* Queues a copy of the errand for the waiter and takes over its buffers. NULL when it was queued, else the refusal. */
struct bp_answer *bp_errand_start(struct bp_service *service, const struct bp_errand *errand, struct bp_waiter *waiter);

/* Wakes the waiter, if there still is one, and frees the errand. */
void bp_errand_finish(struct bp_errand *errand, struct bp_answer *answer);

bool bp_errand_leave(struct bp_service *service, struct bp_waiter *waiter);

/* ---- replay.c ---- */

/* Derives a stored plan again, stage by stage. -1: its request is none, it cannot be read, or memory ran out. */
int bp_replay_run(struct bp_service *service, const struct bp_store_plan *plan, struct bp_replay *ret,
                  struct bp_err *err);

/* ---- snapshots.c ---- */

/* Says in the log and counts that the stored bytes of a snapshot are not those of its digest. */
void bp_snapshot_report_corrupt(struct bp_service *service, const struct bp_digest *digest);

/* Reads all of a plan's snapshots, checked, and decodes them into `arena`. */
struct bp_trace_plan;
int bp_snapshots_decode(struct bp_service *service, const struct bp_store_plan *plan, struct bp_arena *arena,
                        struct bp_trace_plan *ret, struct bp_err *err);

/* ---- backup.c ---- */

/* Also removes what a backup left that did not end. */
void bp_backup_init(struct bp_service *service);
void bp_backup_stop(struct bp_service *service); /* waits for its thread */
void bp_backup_release(struct bp_service *service);
void bp_backup_gauges(struct bp_service *service, uint64_t gauges[BP_GAUGE_N]);

/* ---- service.c ---- */

/* An id for what has no content of its own to be named after: the digest of the canonical array [of, time in
 * microseconds, running number]. */
int bp_service_name(struct bp_service *service, const char *of, int64_t at, struct bp_digest *ret, struct bp_err *err);

/* Logs an error of the work for a job, on another thread than its worker's. */
void bp_service_log_err(const struct bp_job *job, const char *message, const struct bp_err *err);

/* The body that was written, or the problem: `err` when it is set already, else what the writer finds. */
struct bp_answer *bp_service_written(struct bp_writer *writer, int status, struct bp_err *err);

/* Sets in the answer to what finds the lane full when to come again. Returns the answer. */
struct bp_answer *bp_service_come_again(struct bp_service *service, enum bp_job_lane lane, struct bp_answer *answer);

/* The member `next` of a page: the cursor or null. */
void bp_service_write_next(struct bp_writer *writer, const char *next);

/* The id that `text` names; false: in `*ret_refusal` why not. */
bool bp_service_find(struct bp_service *service, enum bp_store_kind kind, const char *text, struct bp_digest *ret,
                     struct bp_answer **ret_refusal);

/* ---- recovery.c ---- */

/* The request of a job of kind "plan". */
int bp_service_job_request(const struct bp_store_job *job, struct bp_arena *arena, struct bp_request *ret,
                           struct bp_err *err);

/* A request as it is stored: canonical JSON that was read before. */
int bp_service_stored_request(const struct bp_store_text *text, struct bp_arena *arena, struct bp_request *ret,
                              struct bp_err *err);

#endif
