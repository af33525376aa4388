/* /v1/plans/{id}/replays, /v1/replays/{id} */
#include "daemon/http/pages.h"
#include "daemon/http/routes.h"

struct bp_answer *bp_route_replay_create(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_replay_create(call->service, call->captures[0], &call->waiter);
}

struct bp_answer *bp_route_replay_list(struct bp_call *call)
{
    static const char *const known[] = {"limit", "cursor", NULL};
    enum { LIMIT, CURSOR, N };
    const char *values[N];
    struct bp_problems problems = {0};
    char next[BP_STORE_CURSOR_TEXT] = "";
    bp_call_query(call, known, values, &problems);
    size_t limit = bp_query_uint(known[LIMIT], values[LIMIT], 1, BP_PAGE_LIMIT_MAX, BP_PAGE_LIMIT, &problems);
    struct bp_answer *refusal = bp_query_refusal(&problems);
    if (refusal)
        return refusal;
    return bp_page_link(bp_service_replay_list(call->service, call->captures[0], limit, values[CURSOR], next), call,
                        next);
}

struct bp_answer *bp_route_replay_get(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_replay_get(call->service, call->captures[0]);
}
