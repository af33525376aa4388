/* A POST of a plan request, on the HTTP thread. */
#include <stdlib.h>

#include "daemon/service/internal.h"

/* A request being read. */
struct reading {
    struct bp_arena arena;
    struct bp_request request;
    struct bp_config config;
    struct bp_digest id;
    char *model_extra;
};

/* NULL when the text is a request to be planned; else the refusal. */
static struct bp_answer *read_request(const char *body, size_t n, struct reading *reading)
{
    struct bp_json_position position;
    struct bp_problems problems = {0};
    struct bp_err err = {0};
    struct bp_answer *refusal = NULL;
    json_t *json = bp_json_parse_request(body, n, &position, &err);
    if (!json)
        return bp_problem_of(&err, &(struct bp_problem_extra){.position = &position});
    if (bp_request_read(json, &reading->arena, &problems, &reading->request, &reading->config) < 0)
        refusal = bp_problem_say(BP_E_out_of_memory, "", "no memory for the request");
    else if (!bp_problems_none(&problems))
        refusal = bp_record_request_refusal(&problems, &reading->config);
    else if (bp_pipeline_plan_id(&reading->request, &reading->id, &err))
        refusal = bp_problem_of(&err, NULL);
    else if (!(reading->model_extra = bp_record_model_extra(&reading->config)))
        refusal = bp_problem_say(BP_E_out_of_memory, "", "no memory for the answer");
    bp_problems_release(&problems);
    json_decref(json);
    return refusal;
}

/* The claimant looks into the store. NULL when the plan is to be derived. */
static struct bp_answer *look_up(struct bp_service *service, struct bp_claim *claim, struct bp_waiter *waiter)
{
    struct bp_arena arena = {0};
    struct bp_store_plan stored;
    struct bp_err err = {0};
    struct bp_answer *answer = NULL;
    uint64_t epoch = bp_cache_epoch(&service->bodies);
    if (bp_store_plan_read(service->store, &claim->id, &arena, &stored, &err)) {
        if (err.code != BP_E_not_found)
            answer = bp_problem_of(&err, NULL);
    } else if (stored.state != BP_STORE_FAILED) {
        answer = bp_record_repeat(&stored, waiter->model_extra);
        bp_audit_note(service, &waiter->caller, "repeat", &claim->id);
        if (answer->status == 200) {
            answer->plan = claim->id;
            bp_cache_put(&service->bodies, &waiter->body, answer, 0, epoch);
        }
    }
    bp_arena_release(&arena);
    return answer;
}

/* Derived plans on their way to disk take memory too: more of them than could ever wait in the queue are not begun. */
static bool is_crowded(struct bp_service *service)
{
    return bp_claims_count(&service->claims) > 2 * service->queue.limit + 64;
}

static struct bp_answer *full(struct bp_service *service, const struct bp_err *err)
{
    bp_metrics_count(service->metrics, BP_COUNTER_QUEUE_FULL);
    return bp_service_come_again(service, BP_LANE_PLANS, bp_problem_of(err, NULL));
}

/* Starts the derivation. NULL when the waiter will be woken. */
static struct bp_answer *start(struct bp_service *service, struct bp_claim *claim, enum bp_patience patience)
{
    struct bp_err err = {0};
    if (bp_store_ready(service->store, &err))
        return bp_problem_of(&err, NULL);
    if (patience != BP_PATIENCE_FULL) {
        if (!bp_claims_make_durable(&service->claims, claim, service->queue.limit)) {
            bp_fail(&err, BP_E_queue_full, "", "%zu accepted plans are waiting already", service->queue.limit);
            return full(service, &err);
        }
        bp_plan_accept(claim, NULL);
        return NULL;
    }
    if (is_crowded(service))
        bp_fail(&err, BP_E_queue_full, "", "too many plans are on their way to disk");
    else if (bp_plan_enqueue(claim, &err) == 0)
        return NULL;
    return err.code == BP_E_queue_full ? full(service, &err) : bp_problem_of(&err, NULL);
}

/* The claim falls before anything was begun: only its claimant can be waiting, for nobody joins but on this thread. */
static void drop(struct bp_service *service, struct bp_claim *claim)
{
    bp_claims_fall(&service->claims, claim);
    bp_claim_free(claim);
}

static struct bp_answer *join_or_derive(struct bp_service *service, struct reading *reading, enum bp_patience patience,
                                        struct bp_waiter *waiter)
{
    struct bp_err err = {0};
    struct bp_answer *answer = NULL;
    struct bp_claim_view view;
    struct bp_claim *claim = bp_claim_new(service, &reading->id, &reading->request, &reading->arena, &err);
    if (!claim)
        return bp_problem_of(&err, NULL);
    claim->created_at = bp_now_us();
    bp_audit_fill(&claim->asked, &waiter->caller, "derive", &claim->id);
    switch (bp_claims_join(&service->claims, claim, waiter, &view)) {
    case BP_JOIN_JOINED:
        bp_audit_note(service, &waiter->caller, "repeat", &claim->id);
        bp_metrics_count(service->metrics, BP_COUNTER_PLANS_JOINED);
        bp_claim_free(claim);
        break;
    case BP_JOIN_ACCEPTED:
        bp_audit_note(service, &waiter->caller, "repeat", &claim->id);
        answer = bp_plan_accepted(&view, waiter->model_extra);
        bp_claim_free(claim);
        break;
    case BP_JOIN_CLAIMED:
        answer = look_up(service, claim, waiter);
        if (!answer)
            answer = start(service, claim, patience);
        if (answer)
            drop(service, claim);
        break;
    }
    return answer;
}

struct bp_answer *bp_service_plan_create(struct bp_service *service, const char *body, size_t n,
                                         enum bp_patience patience, struct bp_waiter *waiter)
{
    struct reading reading = {0};
    bp_digest_of(body, n, &waiter->body);
    struct bp_answer *answer = bp_cache_get(&service->bodies, &waiter->body, NULL);
    if (answer) {
        bp_metrics_count_by(service->metrics, BP_COUNTERS_CACHE, BP_CACHE_BODIES, BP_CACHE_HIT, 0);
        bp_audit_note(service, &waiter->caller, "repeat", &answer->plan);
        return answer;
    }
    bp_metrics_count_by(service->metrics, BP_COUNTERS_CACHE, BP_CACHE_BODIES, BP_CACHE_MISS, 0);
    answer = read_request(body, n, &reading);
    if (!answer) {
        /* The waiter's from here on: once it waits, whoever wakes it frees it. */
        waiter->model_extra = reading.model_extra;
        waiter->wants_acceptance = patience == BP_PATIENCE_NONE;
        answer = join_or_derive(service, &reading, patience, waiter);
        if (answer) {
            free(waiter->model_extra);
            waiter->model_extra = NULL;
        }
    }
    bp_arena_release(&reading.arena);
    return answer;
}

struct bp_answer *bp_service_lose_patience(struct bp_service *service, struct bp_waiter *waiter)
{
    struct bp_claim_view view;
    if (!bp_claims_settle(&service->claims, waiter, &view))
        return bp_readiness_lose_patience(service, waiter);
    struct bp_answer *answer = bp_plan_accepted(&view, waiter->model_extra);
    free(waiter->model_extra);
    waiter->model_extra = NULL;
    return answer;
}
