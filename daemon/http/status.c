/* /healthz, /readyz, /metrics, /openapi.json */
#include "common/base/embedded.h"
#include "daemon/http/connections.h"
#include "daemon/http/routes.h"
#include "daemon/process.h"

extern const struct bp_embedded bp_openapi[];

struct bp_answer *bp_route_healthz(struct bp_call *call)
{
    static const char body[] = "{\"status\":\"ok\"}";
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_answer_static(200, BP_MEDIA_JSON, body, sizeof body - 1);
}

struct bp_answer *bp_route_readyz(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_ready(call->service, &call->waiter);
}

struct bp_answer *bp_route_metrics(struct bp_call *call)
{
    struct bp_connections *connections = call->connections;
    uint64_t gauges[BP_GAUGE_N] = {0};
    struct bp_buf text = {0};
    struct bp_answer *refusal = bp_call_no_query(call);
    if (refusal)
        return refusal;
    bp_service_gauges(call->service, gauges);
    pthread_mutex_lock(&connections->lock);
    gauges[BP_GAUGE_CONNECTIONS] = connections->n_open;
    gauges[BP_GAUGE_WAITERS] = connections->n_waiting;
    pthread_mutex_unlock(&connections->lock);
    gauges[BP_GAUGE_BODY_BYTES] = connections->body_bytes;
    gauges[BP_GAUGE_ANSWER_BYTES] = bp_answer_bytes();
    bp_process_gauges(gauges);
    bp_metrics_write(connections->metrics, gauges, &text);
    return bp_answer_new(200, "text/plain; version=0.0.4; charset=utf-8", &text);
}

struct bp_answer *bp_route_openapi(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_answer_static(200, BP_MEDIA_JSON, bp_openapi[0].bytes, bp_openapi[0].n);
}
