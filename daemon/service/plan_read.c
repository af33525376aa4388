/* Plans as they are stored or in flight, and what is asked of one or two of them. */
#include <string.h>

#include "common/view/diff.h"
#include "common/view/trace.h"
#include "daemon/service/internal.h"

/* How often a job may have been superseded. */
enum { HOPS_MAX = 16 };

/* ---- GET of a plan ---- */

int bp_plan_job_view(const struct bp_store_job *job, struct bp_arena *arena, struct bp_claim_view *ret,
                     struct bp_err *err)
{
    static const enum bp_plan_state states[BP_STORE_JOB_STATE_N] = {
        [BP_STORE_JOB_QUEUED] = BP_PLAN_QUEUED,     [BP_STORE_JOB_RUNNING] = BP_PLAN_RUNNING,
        [BP_STORE_JOB_DONE] = BP_PLAN_FAILED,       [BP_STORE_JOB_FAILED] = BP_PLAN_FAILED,
        [BP_STORE_JOB_SUPERSEDED] = BP_PLAN_FAILED,
    };
    struct bp_request request;
    bp_u128 parameters = 0;
    if (bp_service_job_request(job, arena, &request, err) || bp_model_parameters(&request.model, &parameters, err))
        return -1;
    *ret = (struct bp_claim_view){
        .id = job->id, .state = states[job->state], .created_at = job->created_at, .mode = request.workload.mode};
    memcpy(ret->model, request.model.name, sizeof ret->model);
    bp_u128_format(parameters, ret->parameters);
    return 0;
}

/* The plan of that id wherever it is. -1: not_found and others. */
static int write_plan(struct bp_service *service, const struct bp_digest *id, struct bp_arena *arena,
                      struct bp_writer *writer, struct bp_err *err)
{
    struct bp_claim_view view;
    struct bp_store_plan plan;
    struct bp_store_job job;
    struct bp_err missing = {0};
    /* In flight first: a failed plan that is being derived again is running. */
    if (bp_claims_view(&service->claims, id, &view)) {
        bp_record_view_write(writer, &view);
        return 0;
    }
    if (bp_store_plan_read(service->store, id, arena, &plan, &missing) == 0) {
        bp_record_write(writer, &plan, true);
        return 0;
    }
    if (missing.code != BP_E_not_found || bp_store_job_read(service->store, id, arena, &job, NULL))
        return bp_fail(err, missing.code, "", "%s", missing.message);
    /* A job that ended without a plan or waits to be taken up. */
    if (bp_plan_job_view(&job, arena, &view, err))
        return -1;
    bp_record_view_write(writer, &view);
    return 0;
}

bool bp_plan_find(struct bp_service *service, const char *text, struct bp_plan_place *ret,
                  struct bp_answer **ret_refusal)
{
    struct bp_plan_place place = {0};
    if (!bp_service_find(service, BP_STORE_PLANS, text, &place.named, ret_refusal))
        return false;
    place.id = place.named;
    struct bp_arena arena = {0};
    for (int hops = 0; hops < HOPS_MAX; hops++) {
        struct bp_claim_view view;
        struct bp_store_job job;
        /* The claim first: once it has fallen, what the store says of the job is final. */
        place.in_flight = bp_claims_view(&service->claims, &place.id, &view);
        if (place.in_flight || bp_store_job_read(service->store, &place.id, &arena, &job, NULL))
            break;
        place.in_flight = job.state == BP_STORE_JOB_QUEUED || job.state == BP_STORE_JOB_RUNNING;
        if (!job.has_superseded_by)
            break;
        place.id = job.superseded_by;
    }
    bp_arena_release(&arena);
    *ret = place;
    return true;
}

bool bp_plan_find_finished(struct bp_service *service, const char *text, struct bp_digest *ret,
                           struct bp_answer **ret_refusal)
{
    struct bp_plan_place place;
    if (!bp_plan_find(service, text, &place, ret_refusal))
        return false;
    if (place.in_flight) {
        char id[BP_DIGEST_TEXT];
        bp_digest_format(&place.id, id);
        *ret_refusal = bp_problem_say(BP_E_not_ready, "", "the plan %s is not derived yet", id);
        return false;
    }
    *ret = place.id;
    return true;
}

static struct bp_answer *with_superseded_by(struct bp_answer *answer, const struct bp_digest *id)
{
    struct bp_buf body = {0};
    char text[BP_DIGEST_TEXT];
    if (answer->status != 200)
        return answer;
    bp_digest_format(id, text);
    bp_buf_addf(&body, "{\"superseded_by\":\"%s\",", text);
    bp_buf_add(&body, answer->body + 1, answer->n - 1);
    bp_answer_unref(answer);
    return bp_answer_new(200, BP_MEDIA_JSON, &body);
}

static struct bp_answer *get_plan(struct bp_service *service, const struct bp_digest *id, struct bp_arena *arena)
{
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    write_plan(service, id, arena, &writer, &err);
    return bp_service_written(&writer, 200, &err);
}

struct bp_answer *bp_service_plan_get(struct bp_service *service, const char *text)
{
    struct bp_plan_place place;
    struct bp_answer *answer;
    if (!bp_plan_find(service, text, &place, &answer))
        return answer;
    struct bp_arena arena = {0};
    answer = get_plan(service, &place.id, &arena);
    if (!bp_digest_equal(&place.id, &place.named))
        answer = with_superseded_by(answer, &place.id);
    bp_arena_release(&arena);
    return answer;
}

/* ---- Trace and diff: snapshots are decoded, so a worker does it ---- */

static struct bp_answer *run_trace(struct bp_errand *errand)
{
    struct bp_arena arena = {0};
    struct bp_store_plan stored;
    struct bp_trace_plan plan;
    struct bp_trace_link chain[BP_STAGE_N];
    size_t n = 0;
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    if (bp_store_plan_read(errand->service->store, &errand->plan, &arena, &stored, &err) == 0 &&
        bp_snapshots_decode(errand->service, &stored, &arena, &plan, &err) == 0 &&
        bp_trace(&plan, errand->entity, chain, &n, &err) == 0)
        bp_trace_write(&writer, chain, n);
    struct bp_answer *answer = bp_service_written(&writer, 200, &err);
    bp_arena_release(&arena);
    return answer;
}

struct bp_answer *bp_service_trace(struct bp_service *service, const char *plan, const char *entity,
                                   struct bp_waiter *waiter)
{
    struct bp_errand errand = {.run = run_trace};
    struct bp_answer *refusal;
    if (!bp_plan_find_finished(service, plan, &errand.plan, &refusal))
        return refusal;
    if (strlen(entity) >= sizeof errand.entity)
        return bp_problem_say(BP_E_invalid_id, "", "that is no entity's id");
    memcpy(errand.entity, entity, strlen(entity) + 1);
    return bp_errand_start(service, &errand, waiter);
}

static int read_side(struct bp_service *service, const struct bp_digest *id, struct bp_arena *arena,
                     struct bp_diff_side *ret, struct bp_err *err)
{
    struct bp_store_plan plan;
    if (bp_store_plan_read(service->store, id, arena, &plan, err))
        return -1;
    *ret = (struct bp_diff_side){
        .request = plan.request.at, .n_request = plan.request.n, .facts = plan.facts.at, .n_facts = plan.facts.n};
    for (size_t i = 0; i < plan.n_snapshots; i++)
        for (int stage = 0; stage < BP_STAGE_N; stage++)
            if (strcmp(bp_stage_names[stage], plan.snapshots[i].stage) == 0) {
                ret->has[stage] = true;
                ret->digest[stage] = plan.snapshots[i].digest;
            }
    return 0;
}

static struct bp_answer *run_diff(struct bp_errand *errand)
{
    struct bp_arena arena = {0};
    struct bp_diff_side a, b;
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    if (read_side(errand->service, &errand->plan, &arena, &a, &err) == 0 &&
        read_side(errand->service, &errand->other, &arena, &b, &err) == 0)
        bp_diff_write(&writer, &a, &b, &err);
    struct bp_answer *answer = bp_service_written(&writer, 200, &err);
    bp_arena_release(&arena);
    return answer;
}

struct bp_answer *bp_service_diff(struct bp_service *service, const char *a, const char *b, struct bp_waiter *waiter)
{
    struct bp_errand errand = {.run = run_diff};
    struct bp_answer *refusal;
    if (!bp_plan_find_finished(service, a, &errand.plan, &refusal) ||
        !bp_plan_find_finished(service, b, &errand.other, &refusal))
        return refusal;
    return bp_errand_start(service, &errand, waiter);
}
