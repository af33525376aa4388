/* /v1/fit and /v1/plans/{id}/capacity. */
#include "daemon/http/head.h"
#include "daemon/http/routes.h"

struct bp_answer *bp_route_fit(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    if (refusal)
        return refusal;
    if (!bp_media_is_json(call->content_type))
        return bp_problem_say(BP_E_unsupported_media_type, "", "a fit request is application/json%s",
                              call->content_type ? "" : ", and the request does not say what it is");
    return bp_service_fit(call->service, call->body, call->n_body, &call->waiter);
}

struct bp_answer *bp_route_capacity(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_capacity(call->service, call->captures[0], &call->waiter);
}
