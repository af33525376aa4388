/* The audit: who asked for which plan, when, from where. Internal to the service.
 *
 * A request that has something stored puts its record into the same unit, so that neither is there without the other.
 * A request that is answered with what is there already has nothing to wait for; its record is counted with those that
 * are the same and stored within about a second, so a crash can lose the last of those. Every row that is stored is a
 * line of the log as well.
 */
#ifndef BP_SERVICE_AUDIT_H
#define BP_SERVICE_AUDIT_H

#include <pthread.h>
#include <stdatomic.h>

#include "daemon/access/caller.h"
#include "daemon/log.h"
#include "daemon/store/store.h"

struct bp_service;
struct bp_audit_batch;

/* Different repeats that are counted before they are stored, a second over or not. */
enum { BP_AUDIT_BATCH = 1024 };

struct bp_audit_record {
    char who[BP_CALLER_WHO], from[BP_CALLER_FROM]; /* of a caller; "" for the daemon itself */
    const char *action;                            /* static */
    bool has_plan;
    struct bp_digest plan;
    int64_t at, until;
    uint64_t times;
    struct bp_log_context about; /* the first of the requests */
};

struct bp_audit {
    pthread_mutex_t lock; /* of `filling` alone; inside it no other is taken */
    struct bp_audit_batch *filling;
    atomic_uint_fast64_t next_prune_ns; /* CLOCK_MONOTONIC */
    atomic_bool is_pruning;             /* `prune` is with the writer */
    struct bp_store_unit prune;
};

/* The request of now that the calling thread is about. `plan` NULL: it is of no one plan. */
void bp_audit_fill(struct bp_audit_record *record, const struct bp_caller *caller, const char *action,
                   const struct bp_digest *plan);

/* The record as a row, which borrows it; false when the daemon itself asked: that is not recorded. */
bool bp_audit_row(const struct bp_audit_record *record, struct bp_store_audit *ret);

/* The line of a record that was stored, which is about its request where that is one; none when the daemon itself
 * asked.
 */
void bp_audit_log(const struct bp_audit_record *record);

/* Counts a request that stores nothing. Any thread. */
void bp_audit_note(struct bp_service *service, const struct bp_caller *caller, const char *action,
                   const struct bp_digest *plan);

/* Hands what was counted to the writer. Any thread. */
void bp_audit_flush(struct bp_service *service);

#endif
