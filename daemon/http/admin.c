/* /v1/admin: what those who operate the daemon ask of it. */
#include "daemon/http/head.h"
#include "daemon/http/pages.h"
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

/* NULL when the request has a body of JSON and no query. */
static struct bp_answer *refuse_unless_json(const struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    if (refusal || (bp_media_is_json(call->content_type) && !call->is_encoded))
        return refusal;
    if (call->is_encoded)
        return bp_problem_say(BP_E_unsupported_media_type, "", "the request is sent without a content coding");
    return bp_problem_say(BP_E_unsupported_media_type, "", "the request is application/json%s",
                          call->content_type ? "" : ", and it does not say what it is");
}

struct bp_answer *bp_route_collection_create(struct bp_call *call)
{
    struct bp_answer *refusal = refuse_unless_json(call);
    return refusal ? refusal : bp_service_collection_create(call->service, call->body, call->n_body, &call->waiter);
}

struct bp_answer *bp_route_collection_get(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_collection_get(call->service, call->captures[0]);
}

struct bp_answer *bp_route_history_create(struct bp_call *call)
{
    struct bp_answer *refusal = refuse_unless_json(call);
    return refusal ? refusal : bp_service_history_create(call->service, call->body, call->n_body, &call->waiter);
}

struct bp_answer *bp_route_history_get(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_history_get(call->service, call->captures[0]);
}

struct bp_answer *bp_route_pin(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_pin(call->service, call->captures[0], false, &call->waiter);
}

struct bp_answer *bp_route_unpin(struct bp_call *call)
{
    struct bp_answer *refusal = bp_call_no_query(call);
    return refusal ? refusal : bp_service_pin(call->service, call->captures[0], true, &call->waiter);
}

/* The page that the query asks for; NULL when it is none, with the refusal. */
static struct bp_answer *read_page(const struct bp_call *call, size_t *ret_limit, const char **ret_cursor)
{
    static const char *const known[] = {"limit", "cursor", NULL};
    enum { LIMIT, CURSOR, N };
    const char *values[N];
    struct bp_problems problems = {0};
    bp_call_query(call, known, values, &problems);
    *ret_limit = bp_query_uint(known[LIMIT], values[LIMIT], 1, BP_PAGE_LIMIT_MAX, BP_PAGE_LIMIT, &problems);
    *ret_cursor = values[CURSOR];
    return bp_query_refusal(&problems);
}

struct bp_answer *bp_route_pin_list(struct bp_call *call)
{
    size_t limit;
    const char *cursor;
    char next[BP_STORE_CURSOR_TEXT] = "";
    struct bp_answer *refusal = read_page(call, &limit, &cursor);
    return refusal ? refusal : bp_page_link(bp_service_pin_list(call->service, limit, cursor, next), call, next);
}

struct bp_answer *bp_route_job_list(struct bp_call *call)
{
    size_t limit;
    const char *cursor;
    char next[BP_STORE_CURSOR_TEXT] = "";
    struct bp_answer *refusal = read_page(call, &limit, &cursor);
    return refusal ? refusal : bp_page_link(bp_service_job_list(call->service, limit, cursor, next), call, next);
}

struct bp_answer *bp_route_divergences(struct bp_call *call)
{
    size_t limit;
    const char *cursor;
    char next[BP_STORE_CURSOR_TEXT] = "";
    struct bp_answer *refusal = read_page(call, &limit, &cursor);
    if (refusal)
        return refusal;
    return bp_page_link(bp_service_divergences(call->service, call->captures[0], limit, cursor, next), call, next);
}
