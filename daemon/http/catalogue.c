/* /v1/passes, /v1/models: what is built in. */
#include "daemon/http/routes.h"

struct bp_answer *bp_route_pass_list(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_pass_list();
}

struct bp_answer *bp_route_pass_get(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_pass_get(call->captures[0]);
}

struct bp_answer *bp_route_model_list(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_model_list();
}

struct bp_answer *bp_route_model_get(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_model_get(call->captures[0]);
}
