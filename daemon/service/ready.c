/* Whether the daemon takes new work, by trying: each probe is asked, and the write is a real one, of the
 * store's writer. It is shared by all who ask meanwhile, and done at most once a second, so that who asks often puts no
 * load on the disk. */
#include <stdio.h>
#include <string.h>

#include "daemon/service/internal.h"

static const uint64_t again_ns = UINT64_C(1000000000);
enum { WRITER_SECONDS = 2 }; /* for the writer to do it */

/* ---- The probes ---- */

/* What was found, copied out of the lock. */
struct findings {
    struct bp_service *service;
    struct bp_err write;
    bool schema_differs, is_late;
    uint64_t disk_free;
};

static void judge_write(const struct findings *findings, struct bp_err *err)
{
    if (findings->is_late)
        bp_fail(err, BP_E_storage_failed, "", "the writer has not written for %d seconds", WRITER_SECONDS);
    else if (findings->write.code)
        *err = findings->write;
}

static void judge_schema(const struct findings *findings, struct bp_err *err)
{
    if (findings->schema_differs)
        bp_fail(err, BP_E_schema_newer, "", "the file's schema is not the one this daemon opened");
}

static void judge_disk(const struct findings *findings, struct bp_err *err)
{
    const uint64_t reserve = findings->service->disk_reserve;
    if (findings->disk_free < reserve)
        bp_fail(err, BP_E_disk_low, "", "%llu bytes are free where the database is, and %llu are to be",
                (unsigned long long)findings->disk_free, (unsigned long long)reserve);
}

static void judge_wal(const struct findings *findings, struct bp_err *err)
{
    struct bp_err found = {0};
    if (bp_store_ready(findings->service->store, &found) && found.code == BP_E_wal_full)
        *err = found;
}

static void judge_queue(const struct findings *findings, struct bp_err *err)
{
    if (bp_job_queue_is_full(&findings->service->queue, BP_LANE_PLANS))
        bp_fail(err, BP_E_queue_full, "", "no more plans can wait");
}

static void (*const judges[BP_PROBE_N])(const struct findings *findings, struct bp_err *err) = {
    [BP_PROBE_WRITE] = judge_write, [BP_PROBE_SCHEMA] = judge_schema, [BP_PROBE_DISK] = judge_disk,
    [BP_PROBE_WAL] = judge_wal,     [BP_PROBE_QUEUE] = judge_queue,
};

/* ---- The answer ---- */

static struct bp_answer *answer_ready(const char *members)
{
    struct bp_buf body = {0};
    bp_buf_addf(&body, "{\"status\":\"ready\",\"probes\":%s}", members);
    return bp_answer_new(200, BP_MEDIA_JSON, &body);
}

static struct bp_answer *answer_failed(const struct findings *findings, struct bp_problems *problems,
                                       const char *members)
{
    struct bp_answer *answer = bp_problem(problems, &(struct bp_problem_extra){.probes = members});
    if (answer->code == BP_E_queue_full)
        answer = bp_service_come_again(findings->service, BP_LANE_PLANS, answer);
    return answer;
}

static struct bp_answer *report(struct findings *findings)
{
    struct bp_store_stats stats;
    struct bp_problems problems = {0};
    char members[256], path[64];
    size_t n = 0;
    bp_store_stats(findings->service->store, &stats);
    findings->disk_free = stats.disk_free_bytes;
    for (size_t i = 0; i < BP_PROBE_N; i++) {
        const char *name = bp_metrics_label(BP_LABEL_PROBE, i);
        struct bp_err err = {0};
        judges[i](findings, &err);
        if (err.code) {
            snprintf(path, sizeof path, "/probes/%s", name);
            bp_problems_add(&problems, err.code, path, "%s", err.message);
            bp_metrics_count_by(findings->service->metrics, BP_COUNTERS_PROBE_FAILURES, i, 0, 0);
        }
        n += (size_t)snprintf(members + n, sizeof members - n, "%c\"%s\":\"%s\"", i ? ',' : '{', name,
                              err.code ? "failed" : "ok");
    }
    snprintf(members + n, sizeof members - n, "}");
    struct bp_answer *answer =
        bp_problems_none(&problems) ? answer_ready(members) : answer_failed(findings, &problems, members);
    bp_problems_release(&problems);
    return answer;
}

/* Under the lock. */
static struct findings found(struct bp_service *service)
{
    const struct bp_readiness *readiness = &service->readiness;
    return (struct findings){.service = service, .write = readiness->err, .schema_differs = readiness->schema_differs};
}

/* ---- The write ---- */

/* On the writer. */
static void written(struct bp_store_unit *unit, const struct bp_err *err)
{
    struct bp_service *service = unit->data;
    struct bp_readiness *readiness = &service->readiness;
    pthread_mutex_lock(&readiness->lock);
    readiness->err = err ? *err : (struct bp_err){0};
    readiness->schema_differs = unit->schema_differs;
    readiness->in_flight = false;
    readiness->ended_at = bp_clock_ns();
    struct bp_waiter *first = readiness->first;
    readiness->first = NULL;
    for (struct bp_waiter *waiter = first; waiter; waiter = waiter->next)
        waiter->asks_ready = false;
    struct findings findings = found(service);
    pthread_mutex_unlock(&readiness->lock);
    for (struct bp_waiter *waiter = first, *next; waiter; waiter = next) {
        next = waiter->next;
        bp_service_wake(waiter, report(&findings));
    }
}

struct bp_answer *bp_service_ready(struct bp_service *service, struct bp_waiter *waiter)
{
    struct bp_readiness *readiness = &service->readiness;
    const uint64_t now = bp_clock_ns();
    pthread_mutex_lock(&readiness->lock);
    const bool begins = !readiness->in_flight && (!readiness->ended_at || now - readiness->ended_at >= again_ns);
    if (begins) {
        readiness->in_flight = true;
        readiness->began_at = now;
        readiness->unit = (struct bp_store_unit){.probe = true, .done = written, .data = service};
    }
    const bool is_late = now - readiness->began_at >= WRITER_SECONDS * UINT64_C(1000000000);
    const bool waits = readiness->in_flight && !is_late;
    struct findings findings = found(service);
    findings.is_late = readiness->in_flight && is_late;
    if (waits) {
        waiter->asks_ready = true;
        waiter->patience_seconds = WRITER_SECONDS;
        waiter->next = readiness->first;
        readiness->first = waiter;
    }
    pthread_mutex_unlock(&readiness->lock);
    if (begins)
        bp_store_submit(service->store, &readiness->unit);
    return waits ? NULL : report(&findings);
}

bool bp_readiness_leave(struct bp_service *service, struct bp_waiter *waiter)
{
    struct bp_readiness *readiness = &service->readiness;
    pthread_mutex_lock(&readiness->lock);
    const bool waits = waiter->asks_ready;
    for (struct bp_waiter **at = &readiness->first; waits && *at; at = &(*at)->next)
        if (*at == waiter) {
            *at = waiter->next;
            break;
        }
    waiter->asks_ready = false;
    pthread_mutex_unlock(&readiness->lock);
    return waits;
}

struct bp_answer *bp_readiness_lose_patience(struct bp_service *service, struct bp_waiter *waiter)
{
    if (!bp_readiness_leave(service, waiter))
        return NULL;
    pthread_mutex_lock(&service->readiness.lock);
    struct findings findings = found(service);
    pthread_mutex_unlock(&service->readiness.lock);
    findings.is_late = true;
    return report(&findings);
}
