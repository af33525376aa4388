/* /v1/plans, /v1/plans/{id} and what is asked of one plan. */
#include "common/pipeline.h"
#include "daemon/http/pages.h"
#include "daemon/http/routes.h"

struct bp_answer *bp_route_plan_create(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    if (refusal)
        return refusal;
    if (!bp_media_is_json(call->content_type))
        return bp_problem_say(BP_E_unsupported_media_type, "", "a plan request is application/json in UTF-8%s",
                              call->content_type ? "" : ", and the request does not say what it is");
    if (call->is_encoded)
        return bp_problem_say(BP_E_unsupported_media_type, "", "a plan request is sent without a content coding");
    enum bp_patience patience = BP_PATIENCE_FULL;
    if (call->preferences.respond_async)
        patience = call->preferences.wait ? BP_PATIENCE_SOME : BP_PATIENCE_NONE;
    return bp_service_plan_create(call->service, call->body, call->n_body, patience, &call->waiter);
}

struct bp_answer *bp_route_plan_list(struct bp_call *call)
{
    static const char *const known[] = {"limit", "cursor", "state", "model", "mode", NULL};
    enum { LIMIT, CURSOR, STATE, MODEL, MODE, N };
    const char *values[N];
    struct bp_problems problems = {0};
    char next[BP_STORE_CURSOR_TEXT] = "";
    bp_call_query(call, known, values, &problems);
    struct bp_plan_query query = {
        .state = bp_query_enum(known[STATE], values[STATE], bp_plan_state_names, -1, &problems),
        .model = values[MODEL],
        .cursor = values[CURSOR],
        .limit = bp_query_uint(known[LIMIT], values[LIMIT], 1, BP_PAGE_LIMIT_MAX, BP_PAGE_LIMIT, &problems),
    };
    int mode = bp_query_enum(known[MODE], values[MODE], bp_mode_names, -1, &problems);
    query.mode = mode < 0 ? NULL : bp_mode_names[mode];
    struct bp_answer *refusal = bp_query_refusal(&problems);
    if (refusal)
        return refusal;
    return bp_page_link(bp_service_plan_list(call->service, &query, next), call, next);
}

struct bp_answer *bp_route_plan_get(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_plan_get(call->service, call->captures[0]);
}

struct bp_answer *bp_route_trace(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_trace(call->service, call->captures[0], call->captures[1], &call->waiter);
}

struct bp_answer *bp_route_diff(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_diff(call->service, call->captures[0], call->captures[1], &call->waiter);
}
