/* /v1/snapshots/{digest} and its lineage. */
#include "daemon/http/head.h"
#include "daemon/http/pages.h"
#include "daemon/http/routes.h"

struct bp_answer *bp_route_snapshot_get(struct bp_call *call)
{
    struct bp_answer *answer = bp_call_no_query(call);
    if (answer)
        return answer;
    if (!call->if_none_match)
        return bp_service_snapshot_get(call->service, call->captures[0], false);
    answer = bp_service_snapshot_get(call->service, call->captures[0], true);
    if (answer->status != 200)
        return answer;
    if (bp_etag_matches(call->if_none_match, answer->etag)) {
        struct bp_answer *not_modified = bp_answer_not_modified(answer);
        bp_answer_unref(answer);
        return not_modified;
    }
    bp_answer_unref(answer);
    return bp_service_snapshot_get(call->service, call->captures[0], false);
}

struct bp_answer *bp_route_lineage(struct bp_call *call)
{
    static const char *const known[] = {"direction", "limit", "cursor", NULL};
    static const char *const directions[] = {"ancestors", "descendants", NULL}; /* as in enum bp_store_direction */
    enum { DIRECTION, LIMIT, CURSOR, N };
    const char *values[N];
    struct bp_problems problems = {0};
    char next[BP_STORE_CURSOR_TEXT] = "";
    bp_call_query(call, known, values, &problems);
    int direction = bp_query_enum(known[DIRECTION], values[DIRECTION], directions, BP_STORE_ANCESTORS, &problems);
    size_t limit = bp_query_uint(known[LIMIT], values[LIMIT], 1, BP_PAGE_LIMIT_MAX, BP_PAGE_LIMIT, &problems);
    struct bp_answer *answer = bp_query_refusal(&problems);
    if (answer)
        return answer;
    answer = bp_service_lineage(call->service, call->captures[0], (enum bp_store_direction)direction, limit,
                                values[CURSOR], next);
    return bp_page_link(answer, call, next);
}
