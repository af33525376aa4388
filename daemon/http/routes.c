#include "daemon/http/routes.h"

#include <string.h>

const struct bp_route bp_routes[] = {
#define BP_ROUTE(method, pattern, scope, run, name) {method, pattern, BP_SCOPE_##scope, run, name},
#include "daemon/http/routes.def"
#undef BP_ROUTE
};
const size_t bp_routes_n = sizeof bp_routes / sizeof *bp_routes;

/* Whether the pattern, from `*at` on, begins with this segment; moves `*at` behind it. */
static bool matches_segment(const char **at, const char *segment)
{
    while (*segment && *segment == **at) {
        segment++;
        ++*at;
    }
    return *segment == '\0' && (**at == '/' || **at == '\0');
}

static bool matches(const char *pattern, const struct bp_target_path *target, const char *captures[BP_CAPTURES_MAX])
{
    size_t n_captures = 0;
    for (size_t i = 0; i < target->n; i++) {
        if (*pattern++ != '/')
            return false;
        if (*pattern == '{' && n_captures < BP_CAPTURES_MAX) {
            captures[n_captures++] = target->segments[i];
            pattern = strchr(pattern, '}') + 1;
        } else if (!matches_segment(&pattern, target->segments[i])) {
            return false;
        }
    }
    return *pattern == '\0';
}

/* The methods of routes.def, as bits, and what is told of a resource that has some of them. */
enum { GET = 1, POST = 2, PUT = 4, DELETE = 8, ALL_METHODS = 16 };
static const char *const allowed[ALL_METHODS] = {
    [GET] = "GET, HEAD",
    [POST] = "POST",
    [GET | POST] = "GET, HEAD, POST",
    [GET | DELETE] = "GET, HEAD, DELETE",
    [PUT | DELETE] = "PUT, DELETE",
};

static unsigned bit_of(const char *method)
{
    static const char *const names[] = {"GET", "POST", "PUT", "DELETE"};
    unsigned i = 0;
    while (strcmp(names[i], method) != 0)
        i++;
    return 1U << i;
}

int bp_route_find(struct bp_call *call, const char *method, size_t *ret, const char **ret_allow, struct bp_err *err)
{
    unsigned methods = 0;
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    for (size_t i = 0; i < bp_routes_n; i++) {
        const char *captures[BP_CAPTURES_MAX] = {NULL};
        if (!matches(bp_routes[i].pattern, &call->target, captures))
            continue;
        if (strcmp(bp_routes[i].method, wanted) == 0) {
            memcpy(call->captures, captures, sizeof captures);
            *ret = i;
            return 0;
        }
        methods |= bit_of(bp_routes[i].method);
    }
    if (!methods)
        return bp_fail(err, BP_E_not_found, "", "there is no such resource");
    *ret_allow = allowed[methods];
    return bp_fail(err, BP_E_method_not_allowed, "", "the methods are %s", *ret_allow);
}
