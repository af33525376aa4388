#include "daemon/http/judge.h"

#include "daemon/http/routes.h"

void bp_judge_refuse(struct bp_connection *connection, const struct bp_err *err, const char *allow, bool close_after)
{
    connection->refusal = bp_problem_of(err, &(struct bp_problem_extra){.allow = allow});
    if (!bp_answer_is_standing(connection->refusal))
        connection->refusal->close = close_after;
}

/* Finds the route and whether its caller may take it. Who is not known learns no more than that. */
static int admit(struct bp_connection *connection, const char *method, const char **ret_allow,
                 struct bp_refusal *ret_refusal, struct bp_err *err)
{
    const char *authorization = connection->head.authorization;
    if (bp_route_find(&connection->call, method, &connection->trail.route, ret_allow, err) == 0) {
        enum bp_scope scope = bp_routes[connection->trail.route].scope;
        return scope == BP_SCOPE_NONE ? 0
                                      : bp_access_admit(connection->all->access, &connection->origin, authorization,
                                                        scope, bp_clock_ns(), &connection->grant, ret_refusal, err);
    }
    struct bp_err refused = {0};
    if (bp_access_admit(connection->all->access, &connection->origin, authorization, BP_SCOPE_NONE, bp_clock_ns(),
                        &connection->grant, ret_refusal, &refused))
        *err = refused;
    return -1;
}

bool bp_judge(struct bp_connection *connection, const char *method, const char *version)
{
    struct bp_err err = {0};
    struct bp_refusal refusal = {0};
    const char *allow = NULL;
    bool framed = bp_head_check(&connection->head, version, &err) == 0;
    if (framed && bp_target_split(connection->target, &connection->call.target, &err) == 0 &&
        bp_head_request_timeout(&connection->head, &connection->timeout_seconds, &err) == 0 &&
        admit(connection, method, &allow, &refusal, &err) == 0) {
        if (bp_head_content_length(&connection->head) <= BP_BODY_MAX)
            return true;
        bp_fail(&err, BP_E_body_too_large, "", "the limit is %llu bytes", (unsigned long long)BP_BODY_MAX);
    }
    bool trusted = framed && err.code != BP_E_bad_framing;
    if (err.code == BP_E_bad_framing)
        bp_metrics_count(connection->all->metrics, BP_COUNTER_BAD_FRAMING);
    bp_judge_refuse(connection, &err, allow, !trusted || err.code == BP_E_body_too_large);
    if (!bp_answer_is_standing(connection->refusal)) {
        connection->refusal->authenticate = refusal.authenticate;
        if (refusal.retry_after)
            connection->refusal->retry_after = refusal.retry_after;
    }
    return trusted && !connection->head.expect && bp_head_content_length(&connection->head) <= BP_BODY_DRAIN;
}
