/* The table of resources (routes.def). Pure but for the handlers, which run on the HTTP thread. */
#ifndef BP_HTTP_ROUTES_H
#define BP_HTTP_ROUTES_H

#include "daemon/access/scope.h"
#include "daemon/http/call.h"

/* Answers the call, or returns NULL: then call->waiter will be woken with the answer. */
typedef struct bp_answer *bp_route_run(struct bp_call *call);

#define BP_ROUTE(method, pattern, scope, run, name) bp_route_run run;
#include "daemon/http/routes.def"
#undef BP_ROUTE

struct bp_route {
    const char *method, *pattern;
    enum bp_scope scope;
    bp_route_run *run;
    const char *name;
};
extern const struct bp_route bp_routes[];
extern const size_t bp_routes_n;

/* The route of a request, its captures set in the call. -1: not_found, or method_not_allowed with the methods there
 * are in `*ret_allow` (static). */
int bp_route_find(struct bp_call *call, const char *method, size_t *ret, const char **ret_allow, struct bp_err *err);

#endif
