/* One request as a route sees it. HTTP thread only. */
#ifndef BP_HTTP_CALL_H
#define BP_HTTP_CALL_H

#include "daemon/http/head.h"
#include "daemon/http/target.h"
#include "daemon/service/service.h"

enum { BP_CAPTURES_MAX = 2 };

struct bp_connections;

struct bp_call {
    struct bp_service *service;
    struct bp_connections *connections; /* for metrics */
    struct bp_target_path target;
    const char *captures[BP_CAPTURES_MAX]; /* the segments that stand for {names} of the route, decoded */
    const char *body;
    size_t n_body;
    bool is_encoded;                          /* the body is in a content coding */
    const char *content_type, *if_none_match; /* borrowed; NULL when absent */
    struct bp_preferences preferences;
    struct bp_waiter waiter;
};

/* The query, checked: adds invalid_query for each parameter that `known` (NULL-terminated) does not list and for each
 * given twice; else ret_values[i] is the value of known[i] or NULL. */
void bp_call_query(const struct bp_call *call, const char *const *known, const char **ret_values,
                   struct bp_problems *problems);

/* A value of the query as a number or as one of `names` (its index); absent: `fallback`; wrong: a problem. */
uint64_t bp_query_uint(const char *name, const char *value, uint64_t least, uint64_t most, uint64_t fallback,
                       struct bp_problems *problems);
int bp_query_enum(const char *name, const char *value, const char *const *names, int fallback,
                  struct bp_problems *problems);

/* The answer to a query that is not valid, or NULL; releases the problems. */
struct bp_answer *bp_query_refusal(struct bp_problems *problems);

/* For routes without parameters: the refusal of any, or NULL. */
struct bp_answer *bp_call_no_query(const struct bp_call *call);

#endif
