/* Who asked for which plan. What a request has stored carries its record in the same unit; requests that store nothing,
 * repeats above all, are counted here and stored as a row for each caller and plan, about every second. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/service/internal.h"

enum { BUCKETS = 2 * BP_AUDIT_BATCH };
static const int64_t day_us = INT64_C(86400000000);
static const uint64_t prune_every_ns = UINT64_C(60) * 1000000000;

/* Requests that are the same but for their time. */
struct repeat {
    struct bp_audit_record record;
    unsigned next; /* in its bucket; 0: none, else one more than the index */
};

struct bp_audit_batch {
    struct bp_store_unit unit;
    struct bp_service *service;
    size_t n;
    unsigned buckets[BUCKETS];
    struct repeat repeats[BP_AUDIT_BATCH];
    struct bp_store_audit rows[BP_AUDIT_BATCH];
};

/* ---- One record ---- */

void bp_audit_fill(struct bp_audit_record *record, const struct bp_caller *caller, const char *action,
                   const struct bp_digest *plan)
{
    *record = (struct bp_audit_record){.action = action, .has_plan = plan != NULL};
    if (caller->who) {
        snprintf(record->who, sizeof record->who, "%s", caller->who);
        snprintf(record->from, sizeof record->from, "%s", caller->from);
    }
    if (plan)
        record->plan = *plan;
    record->at = record->until = bp_now_us();
    record->times = 1;
    bp_log_current(&record->about);
}

bool bp_audit_row(const struct bp_audit_record *record, struct bp_store_audit *ret)
{
    if (!*record->who)
        return false;
    *ret = (struct bp_store_audit){
        .at = record->at,
        .until = record->until,
        .times = record->times,
        .caller = record->who,
        .origin = record->from,
        .action = record->action,
        .plan = record->has_plan ? &record->plan : NULL,
    };
    return true;
}

void bp_audit_log(const struct bp_audit_record *record)
{
    char plan[BP_DIGEST_TEXT];
    const bool is_of_one = record->times == 1 && *record->about.request_id;
    if (!*record->who)
        return;
    if (record->has_plan)
        bp_digest_format(&record->plan, plan);
    if (is_of_one)
        bp_log_about(&record->about);
    bp_log(BP_LOG_INFO, "audit",
           BP_LOG_FIELDS(BP_LOG_TEXT("caller", record->who), BP_LOG_TEXT("origin", record->from),
                         BP_LOG_TEXT("action", record->action), BP_LOG_UINT("times", record->times),
                         BP_LOG_TEXT(record->has_plan ? "plan" : NULL, plan)));
    if (is_of_one)
        bp_log_about(NULL);
}

/* ---- Counting repeats ---- */

static unsigned hash_of(const struct bp_caller *caller, const struct bp_digest *plan)
{
    uint64_t hash = 0;
    if (plan)
        memcpy(&hash, plan->bytes, sizeof hash);
    for (const char *at = caller->who; *at; at++)
        hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    return (unsigned)(hash >> 32) % BUCKETS;
}

static bool is_of(const struct bp_audit_record *record, const struct bp_caller *caller, const char *action,
                  const struct bp_digest *plan)
{
    return record->action == action && record->has_plan == (plan != NULL) &&
           (!plan || bp_digest_equal(&record->plan, plan)) && strcmp(record->who, caller->who) == 0 &&
           strcmp(record->from, caller->from) == 0;
}

/* True when the batch has no room for another. */
static bool count(struct bp_audit_batch *batch, const struct bp_caller *caller, const char *action,
                  const struct bp_digest *plan)
{
    unsigned *head = &batch->buckets[hash_of(caller, plan)];
    for (unsigned i = *head; i; i = batch->repeats[i - 1].next) {
        struct bp_audit_record *record = &batch->repeats[i - 1].record;
        if (!is_of(record, caller, action, plan))
            continue;
        record->times++;
        int64_t now = bp_now_us();
        if (now > record->until) /* a clock may step back */
            record->until = now;
        return false;
    }
    bp_audit_fill(&batch->repeats[batch->n].record, caller, action, plan);
    batch->repeats[batch->n].next = *head;
    *head = (unsigned)++batch->n;
    return batch->n == BP_AUDIT_BATCH;
}

/* No memory to count it: the log alone has it. */
static void lose(const struct bp_caller *caller, const char *action, const struct bp_digest *plan)
{
    struct bp_audit_record record;
    bp_audit_fill(&record, caller, action, plan);
    *record.about.request_id = '\0'; /* the thread stays about it */
    bp_log(BP_LOG_ERROR, "no memory to store a record of the audit", NULL);
    bp_audit_log(&record);
}

/* ---- Storing ---- */

/* On the writer. */
static void batch_stored(struct bp_store_unit *unit, const struct bp_err *err)
{
    struct bp_audit_batch *batch = unit->data;
    if (err) /* the log has them at least */
        bp_log_err(BP_LOG_ERROR, "records of the audit could not be stored", err);
    for (size_t i = 0; i < batch->n; i++)
        bp_audit_log(&batch->repeats[i].record);
    free(batch);
}

static void submit(struct bp_service *service, struct bp_audit_batch *batch)
{
    size_t n = 0;
    for (size_t i = 0; i < batch->n; i++)
        n += bp_audit_row(&batch->repeats[i].record, &batch->rows[n]);
    batch->unit = (struct bp_store_unit){.audit = batch->rows, .n_audit = n, .done = batch_stored, .data = batch};
    bp_store_submit(service->store, &batch->unit);
}

void bp_audit_note(struct bp_service *service, const struct bp_caller *caller, const char *action,
                   const struct bp_digest *plan)
{
    struct bp_audit *audit = &service->audit;
    struct bp_audit_batch *full = NULL;
    if (!caller->who)
        return;
    pthread_mutex_lock(&audit->lock);
    if (!audit->filling)
        audit->filling = calloc(1, sizeof *audit->filling);
    bool lost = !audit->filling;
    if (!lost && count(audit->filling, caller, action, plan)) {
        full = audit->filling;
        audit->filling = NULL;
    }
    pthread_mutex_unlock(&audit->lock);
    if (lost)
        lose(caller, action, plan);
    if (full)
        submit(service, full);
}

void bp_audit_flush(struct bp_service *service)
{
    struct bp_audit *audit = &service->audit;
    pthread_mutex_lock(&audit->lock);
    struct bp_audit_batch *batch = audit->filling;
    audit->filling = NULL;
    pthread_mutex_unlock(&audit->lock);
    if (batch)
        submit(service, batch);
}

/* ---- Forgetting ---- */

/* On the writer. */
static void pruned(struct bp_store_unit *unit, const struct bp_err *err)
{
    struct bp_service *service = unit->data;
    if (err)
        bp_log_err(BP_LOG_ERROR, "old records of the audit could not be taken out", err);
    /* There may be more of them when as many went as may go at once. */
    atomic_store(&service->audit.next_prune_ns,
                 bp_clock_ns() + (!err && unit->audit_forgotten == BP_STORE_AUDIT_FORGET_MAX ? 0 : prune_every_ns));
    atomic_store(&service->audit.is_pruning, false);
}

static void prune(struct bp_service *service)
{
    struct bp_audit *audit = &service->audit;
    if (!service->audit_days || bp_clock_ns() < atomic_load(&audit->next_prune_ns) ||
        atomic_exchange(&audit->is_pruning, true))
        return;
    audit->prune = (struct bp_store_unit){
        .audit_forget_before = bp_now_us() - (int64_t)service->audit_days * day_us,
        .done = pruned,
        .data = service,
    };
    bp_store_submit(service->store, &audit->prune);
}

void bp_service_audit_tick(struct bp_service *service)
{
    bp_audit_flush(service);
    prune(service);
}

void bp_service_audit_call(struct bp_service *service, const struct bp_caller *caller, const char *action)
{
    bp_audit_note(service, caller, action, NULL);
}
