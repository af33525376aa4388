/* /v1/admin: what those who operate the daemon ask of it. */
#include "daemon/http/routes.h"

struct bp_answer *bp_route_backup_create(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_backup_create(call->service);
}

struct bp_answer *bp_route_backup_get(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_backup_get(call->service, call->captures[0]);
}

struct bp_answer *bp_route_backup_drop(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_backup_drop(call->service, call->captures[0]);
}

struct bp_answer *bp_route_backup_file(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_backup_file(call->service, call->captures[0]);
}
