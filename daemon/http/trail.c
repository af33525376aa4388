#include "daemon/http/trail.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static const char hex[] = "0123456789abcdef";

bool bp_request_id_is_sane(const char *text)
{
    static const char marks[] = "-._~:+/=@";
    size_t n = 0;
    for (; text[n]; n++) {
        bool letter_or_digit =
            (text[n] >= '0' && text[n] <= '9') || ((text[n] | 0x20) >= 'a' && (text[n] | 0x20) <= 'z');
        if (n == BP_REQUEST_ID_MAX || !(letter_or_digit || strchr(marks, text[n])))
            return false;
    }
    return n > 0;
}

/* ---- Traces ---- */

static bool is_hex(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!text[i] || !strchr(hex, text[i]))
            return false;
    return true;
}

static bool is_zero(const char *text, size_t n)
{
    return strspn(text, "0") >= n;
}

bool bp_traceparent_read(const char *text, char ret_trace[BP_TRACE_ID_LENGTH + 1],
                         char ret_parent[BP_SPAN_ID_LENGTH + 1], bool *ret_sampled)
{
    enum { TRACE = 3, PARENT = TRACE + BP_TRACE_ID_LENGTH + 1, FLAGS = PARENT + BP_SPAN_ID_LENGTH + 1 };
    if (strlen(text) < BP_TRACEPARENT_LENGTH || text[2] != '-' || text[PARENT - 1] != '-' || text[FLAGS - 1] != '-')
        return false;
    if (!is_hex(text, 2) || !is_hex(text + TRACE, BP_TRACE_ID_LENGTH) || !is_hex(text + PARENT, BP_SPAN_ID_LENGTH) ||
        !is_hex(text + FLAGS, 2) || strncmp(text, "ff", 2) == 0)
        return false;
    /* Version 00 ends here; a later one may go on, after a dash. */
    const char after = text[BP_TRACEPARENT_LENGTH];
    if (after && (strncmp(text, "00", 2) == 0 || after != '-'))
        return false;
    if (is_zero(text + TRACE, BP_TRACE_ID_LENGTH) || is_zero(text + PARENT, BP_SPAN_ID_LENGTH))
        return false;
    memcpy(ret_trace, text + TRACE, BP_TRACE_ID_LENGTH);
    memcpy(ret_parent, text + PARENT, BP_SPAN_ID_LENGTH);
    ret_trace[BP_TRACE_ID_LENGTH] = ret_parent[BP_SPAN_ID_LENGTH] = '\0';
    *ret_sampled = (strchr(hex, text[FLAGS + 1]) - hex) & 1;
    return true;
}

void bp_trail_response(const struct bp_trail *trail, char ret[BP_TRACEPARENT_LENGTH + 1])
{
    char *at = ret;
    if (*trail->ids.trace_id) {
        at = mempcpy(at, "00-", 3);
        at = mempcpy(at, trail->ids.trace_id, BP_TRACE_ID_LENGTH);
        *at++ = '-';
        at = mempcpy(at, trail->ids.span_id, BP_SPAN_ID_LENGTH);
        at = mempcpy(at, trail->sampled ? "-01" : "-00", 3);
    }
    *at = '\0';
}

/* ---- Ids ---- */

void bp_ids_init(struct bp_ids *ids)
{
    *ids = (struct bp_ids){0};
    if (getrandom(&ids->seed, sizeof ids->seed, 0) != sizeof ids->seed)
        ids->seed = bp_clock_ns();
}

/* A bijection of 64 bits (the finaliser of SplitMix64) over a running number: no two of a run are the same, and they
 * look like nothing. They are no secrets. */
static void make_id(struct bp_ids *ids, char ret[BP_SPAN_ID_LENGTH + 1])
{
    uint64_t x = ids->seed + UINT64_C(0x9e3779b97f4a7c15) * ++ids->n;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    for (size_t i = 0; i < BP_SPAN_ID_LENGTH; i++, x <<= 4)
        ret[i] = hex[x >> 60];
    ret[BP_SPAN_ID_LENGTH] = '\0';
}

void bp_trail_name(struct bp_trail *trail, const struct bp_head *head, struct bp_ids *ids)
{
    struct bp_log_context *names = &trail->ids;
    *names->trace_id = *names->parent_id = *names->span_id = '\0';
    trail->sampled = false;
    trail->is_given = head->n_request_id == 1 && bp_request_id_is_sane(head->request_id);
    if (trail->is_given)
        memcpy(names->request_id, head->request_id, strlen(head->request_id) + 1);
    else
        make_id(ids, names->request_id);
    if (head->n_traceparent != 1 ||
        !bp_traceparent_read(head->traceparent, names->trace_id, names->parent_id, &trail->sampled))
        return;
    trail->is_given = true;
    make_id(ids, names->span_id);
}

/* ---- What is left ---- */

void bp_trail_answered(struct bp_trail *trail, const struct bp_answer *answer, struct bp_metrics *metrics)
{
    trail->status = answer->status;
    trail->code = answer->code;
    trail->n_answer = answer->n;
    bp_metrics_count_by(metrics, BP_COUNTERS_HTTP_REQUESTS, trail->route, trail->method,
                        bp_metrics_status(answer->status));
    bp_metrics_observe(metrics, BP_HISTOGRAM_HTTP_SECONDS, trail->route, bp_clock_ns() - trail->whole_at);
    if (answer->code)
        bp_metrics_count_by(metrics, BP_COUNTERS_PROBLEMS, answer->code, 0, 0);
}

static void log_line(const struct bp_trail *trail)
{
    bp_log_about(&trail->ids);
    bp_log(BP_LOG_DEBUG, "request",
           BP_LOG_FIELDS(BP_LOG_TEXT("route", bp_metrics_label(BP_LABEL_ROUTE, trail->route)),
                         BP_LOG_TEXT("method", bp_metrics_label(BP_LABEL_METHOD, trail->method)),
                         BP_LOG_TEXT("target", trail->target ? trail->target : ""),
                         BP_LOG_UINT("status", (uint64_t)trail->status),
                         BP_LOG_TEXT("code", trail->code ? bp_code_name(trail->code) : ""),
                         BP_LOG_UINT("bytes", trail->n_answer), BP_LOG_TEXT("sent", trail->sent ? "yes" : "no"),
                         BP_LOG_UINT("microseconds", trail->whole_at ? (bp_clock_ns() - trail->whole_at) / 1000 : 0)));
    bp_log_about(NULL);
}

void bp_trail_end(struct bp_trail *trail)
{
    if (*trail->ids.request_id && bp_log_wants(BP_LOG_DEBUG))
        log_line(trail);
    free(trail->target);
    trail->target = NULL;
    trail->status = 0;
    trail->code = BP_OK;
    trail->n_answer = 0;
    trail->whole_at = 0;
    trail->sent = false;
    *trail->ids.request_id = '\0';
}
