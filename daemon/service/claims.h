/* The join table: which plans are in flight, and who waits for each.
 *
 * Whoever asks for a plan asks here first. The first claims it; whoever comes before the claim falls joins. A claim
 * falls only when its outcome is visible in the store, so that nothing is derived twice. One lock guards the table, the
 * waiters of every claim, and the errands' one.
 */
#ifndef BP_SERVICE_CLAIMS_H
#define BP_SERVICE_CLAIMS_H

#include <pthread.h>

#include "common/pipeline.h"
#include "daemon/jobs/queue.h"
#include "daemon/service/audit.h"
#include "daemon/service/waiter.h"
#include "daemon/store/store.h"

#define BP_CLAIM_BUCKETS 1024

struct bp_service;

/* Where a durable claim is on its way to disk. */
enum bp_acceptance { BP_NOT_DURABLE, BP_ACCEPTING, BP_ACCEPTED };

/* A plan in flight. Its owner (the HTTP thread, the queue, a worker, the writer, in that order) fills it in; the parts
 * under the lock are marked. */
struct bp_claim {
    struct bp_job job;
    struct bp_service *service;
    struct bp_digest id;
    int64_t created_at;
    struct bp_arena arena;
    struct bp_request request;
    struct bp_buf request_text; /* canonical */
    struct bp_buf passes_text;  /* JSON, for the jobs table */
    char parameters[48];        /* decimal */

    /* Under the lock. */
    struct bp_claim *next_in_bucket;
    struct bp_waiter *waiters;
    struct bp_claim *next_parked;
    bool in_table, has_begun;
    enum bp_acceptance acceptance;

    bool is_durable,
        attempt_counted; /* the owner's: there is a job on disk or about to be; this run is counted there */
    struct bp_store_unit unit;
    struct bp_audit_record asked; /* by the claimant */
    struct bp_store_audit audit;
    struct bp_store_job accept;
    struct bp_store_job_change change;
    struct bp_plan_result *result; /* what the worker made of it */
};

/* What a reader sees of a claim. */
struct bp_claim_view {
    struct bp_digest id;
    enum bp_plan_state state;
    int64_t created_at;
    char model[BP_MODEL_NAME_MAX], parameters[48];
    enum bp_mode mode;
};
struct bp_claims {
    pthread_mutex_t lock;
    struct bp_claim *buckets[BP_CLAIM_BUCKETS];
    size_t n, n_durable;
    size_t n_begun;                        /* durable ones whose attempt is counted, or being counted */
    struct bp_claim *parked, *last_parked; /* durable ones that wait for one of those to end, in order */
};

void bp_claims_init(struct bp_claims *claims);
void bp_claims_release(struct bp_claims *claims); /* frees what is left in it; nobody may be waiting */

enum bp_join { BP_JOIN_CLAIMED, BP_JOIN_JOINED, BP_JOIN_ACCEPTED };

/* Joins the claim of that plan, or claims it with `fresh`, whose claimant the waiter (or NULL) then is. A waiter that
 * wants acceptance of a claim that is on disk already does not join: BP_JOIN_ACCEPTED, and `*ret_view` is that claim.
 */
enum bp_join bp_claims_join(struct bp_claims *claims, struct bp_claim *fresh, struct bp_waiter *waiter,
                            struct bp_claim_view *ret_view);

/* The claim is to be durable; false when `limit` of them are in flight already. */
bool bp_claims_make_durable(struct bp_claims *claims, struct bp_claim *claim, size_t limit);

/* The claim is on disk: takes off it the waiters that want no more than that, to be woken without the lock. */
struct bp_waiter *bp_claims_accepted(struct bp_claims *claims, struct bp_claim *claim);

/* The waiter wants no more than acceptance from now on. True when its claim is on disk: it is off it then, and
 * `*ret_view` is the claim. */
bool bp_claims_settle(struct bp_claims *claims, struct bp_waiter *waiter, struct bp_claim_view *ret_view);

/* A durable claim is about to begin: true when its attempt may be counted now; else it is parked. Few are begun at a
 * time, so that a stop finds few whose attempt was counted for nothing. */
bool bp_claims_begin(struct bp_claims *claims, struct bp_claim *claim, size_t limit);

/* The claim, which has fallen, is over: returns a parked one that may begin now, or NULL. */
struct bp_claim *bp_claims_end(struct bp_claims *claims, struct bp_claim *claim);

/* Takes the claim out of the table and all waiters off it, to be woken without the lock. */
struct bp_waiter *bp_claims_fall(struct bp_claims *claims, struct bp_claim *claim);

/* The waiter goes; see bp_service_leave. A claim that nobody waits for any more is cancelled unless it is durable, with
 * the writer, or its `queue` gave it to a worker, which then finds it cancelled. Adds 1 to `*ret_cancelled` then. */
bool bp_claims_leave(struct bp_claims *claims, struct bp_job_queue *queue, struct bp_waiter *waiter,
                     unsigned *ret_cancelled);

/* Frees a claim that its worker found cancelled. */
void bp_claims_discard(struct bp_claims *claims, struct bp_claim *claim);

/* The view of a claim: its owner, or under the lock. */
struct bp_claim_view bp_claim_view(const struct bp_claim *claim);

/* The view of the claim of that id, if there is one. */
bool bp_claims_view(struct bp_claims *claims, const struct bp_digest *id, struct bp_claim_view *ret);

/* The newest claims of some kind: at most `limit`, newest first. */
struct bp_claim_views {
    struct bp_claim_view **at, *slots;
    size_t n, limit;
};

/* Room for `limit` of them in `arena`. */
int bp_claim_views_init(struct bp_claim_views *views, size_t limit, struct bp_arena *arena, struct bp_err *err);

/* Adds a copy of the view unless `limit` newer ones are there, at the cost of the oldest. */
void bp_claim_views_add(struct bp_claim_views *views, const struct bp_claim_view *view);

/* Adds every claim that `wanted`, which is called under the lock, wants. */
void bp_claims_list(struct bp_claims *claims, bool (*wanted)(const void *data, const struct bp_claim_view *view),
                    const void *data, struct bp_claim_views *views);

/* The ids in flight that begin with these hex digits: at most `n` of them; returns how many there are. */
size_t bp_claims_find(struct bp_claims *claims, const char *hex, struct bp_digest *ret, size_t n);

size_t bp_claims_count(struct bp_claims *claims);

/* A claim of the request, which is copied; the arena is taken over. NULL when memory ran out; the arena is released
 * then. */
struct bp_claim *bp_claim_new(struct bp_service *service, const struct bp_digest *id, const struct bp_request *request,
                              struct bp_arena *arena, struct bp_err *err);
void bp_claim_free(struct bp_claim *claim); /* it is in no table; NULL does nothing */

/* plan_work.c: NULL does nothing. */
void bp_plan_result_free(struct bp_plan_result *result);

#endif
