/* What a request leaves behind: the ids it goes by, its line in the log, its counts.
 *
 * A request goes by the X-Request-Id that it came with, when that is 1 to 128 letters, digits and marks of "-._~:+/=@",
 * and once; else by one that is made here. A traceparent of the W3C's Trace Context, read strictly, joins it to a
 * trace, in which it is a new span; one that breaks a rule, or comes twice, is as none. HTTP thread only.
 */
#ifndef BP_HTTP_TRAIL_H
#define BP_HTTP_TRAIL_H

#include "daemon/http/head.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "daemon/service/answer.h"

/* As texts, the version, the two ids and the flags, with three dashes. */
enum { BP_TRACEPARENT_LENGTH = 2 + 1 + BP_TRACE_ID_LENGTH + 1 + BP_SPAN_ID_LENGTH + 1 + 2 };

struct bp_trail {
    struct bp_log_context ids;
    bool sampled;  /* the trace is: the caller keeps it */
    bool is_given; /* the request brought an id or a trace */
    size_t route;  /* as the metrics number them */
    size_t method;
    int status;        /* of the answer; 0: there was none */
    enum bp_code code; /* of a problem */
    size_t n_answer;   /* bytes of its body */
    uint64_t whole_at; /* CLOCK_MONOTONIC, ns: when the request had arrived as far as it was read */
    char *target;      /* owned: as it came, where lines are logged that say it; else NULL */
    bool sent;         /* the client has all of the answer, as far as can be known here */
};

/* Where ids come from: what this run of the daemon began with, and how many were made. */
struct bp_ids {
    uint64_t seed, n;
};
void bp_ids_init(struct bp_ids *ids);

/* Names the request by its head. */
void bp_trail_name(struct bp_trail *trail, const struct bp_head *head, struct bp_ids *ids);

/* The trace and the span that the request was here, for the caller: the header traceresponse. "" without a trace. */
void bp_trail_response(const struct bp_trail *trail, char ret[BP_TRACEPARENT_LENGTH + 1]);

/* The request has its answer. */
void bp_trail_answered(struct bp_trail *trail, const struct bp_answer *answer, struct bp_metrics *metrics);

/* The request is over: logs its line, at the level debug, if it was named, and releases the trail. */
void bp_trail_end(struct bp_trail *trail);

/* ---- Pure ---- */

bool bp_request_id_is_sane(const char *text);

/* Reads a traceparent of version 00, or of a later one as if it were (but never ff). False: it is none, and nothing is
 * changed. */
bool bp_traceparent_read(const char *text, char ret_trace[BP_TRACE_ID_LENGTH + 1],
                         char ret_parent[BP_SPAN_ID_LENGTH + 1], bool *ret_sampled);

#endif
