/* Plans as they are stored or in flight, and what is asked of one or two of them. */
#include <stdio.h>
#include <string.h>

#include "common/view/diff.h"
#include "common/view/trace.h"
#include "daemon/service/internal.h"

/* ---- GET of a plan ---- */

/* A job that ended without a plan or waits to be taken up. */
static int write_job(const struct bp_store_job *job, struct bp_arena *arena, struct bp_writer *writer,
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
    struct bp_claim_view view = {
        .id = job->id, .state = states[job->state], .created_at = job->created_at, .mode = request.workload.mode};
    memcpy(view.model, request.model.name, sizeof view.model);
    bp_u128_format(parameters, view.parameters);
    bp_record_view_write(writer, &view);
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
    return write_job(&job, arena, writer, err);
}

/* The id under which a job was taken up when the passes had changed; else its own. */
static struct bp_digest follow(struct bp_service *service, const struct bp_digest *id, struct bp_arena *arena)
{
    struct bp_store_job job;
    struct bp_digest at = *id;
    for (int hops = 0; hops < 16; hops++) {
        if (bp_store_job_read(service->store, &at, arena, &job, NULL) || !job.has_superseded_by)
            break;
        at = job.superseded_by;
    }
    return at;
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
    struct bp_digest id;
    struct bp_answer *answer;
    if (!bp_service_find(service, BP_STORE_PLANS, text, &id, &answer))
        return answer;
    struct bp_arena arena = {0};
    struct bp_digest now = follow(service, &id, &arena);
    answer = get_plan(service, &now, &arena);
    if (!bp_digest_equal(&id, &now))
        answer = with_superseded_by(answer, &now);
    bp_arena_release(&arena);
    return answer;
}

/* ---- Lists ---- */

static int list_stored(struct bp_service *service, const struct bp_plan_query *query, struct bp_arena *arena,
                       struct bp_store_plan_page *ret, struct bp_err *err)
{
    enum bp_store_plan_state state = BP_STORE_COMMITTED;
    struct bp_store_plan_filter filter = {.model = query->model, .mode = query->mode};
    if (query->state >= 0) {
        /* Only finished plans are listed: those in flight have no place in the order yet. */
        const char *name = bp_plan_state_names[query->state];
        int known = 0;
        while (bp_store_plan_state_names[known] && strcmp(bp_store_plan_state_names[known], name) != 0)
            known++;
        if (!bp_store_plan_state_names[known]) {
            *ret = (struct bp_store_plan_page){0};
            return 0;
        }
        state = (enum bp_store_plan_state)known;
        filter.state = &state;
    }
    return bp_store_plan_list(service->store, &filter, query->limit, query->cursor, arena, ret, err);
}

struct bp_answer *bp_service_plan_list(struct bp_service *service, const struct bp_plan_query *query,
                                       char ret_next[BP_STORE_CURSOR_TEXT])
{
    struct bp_arena arena = {0};
    struct bp_store_plan_page page;
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    if (list_stored(service, query, &arena, &page, &err) == 0) {
        bp_writer_object(&writer);
        bp_writer_key(&writer, "plans");
        bp_writer_array(&writer);
        for (size_t i = 0; i < page.n; i++)
            bp_record_write(&writer, &page.plans[i], false);
        bp_writer_end(&writer);
        bp_service_write_next(&writer, page.next);
        bp_writer_end(&writer);
        snprintf(ret_next, BP_STORE_CURSOR_TEXT, "%s", page.next);
    }
    struct bp_answer *answer = bp_service_written(&writer, 200, &err);
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
    if (!bp_service_find(service, BP_STORE_PLANS, plan, &errand.plan, &refusal))
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
    if (!bp_service_find(service, BP_STORE_PLANS, a, &errand.plan, &refusal) ||
        !bp_service_find(service, BP_STORE_PLANS, b, &errand.other, &refusal))
        return refusal;
    return bp_errand_start(service, &errand, waiter);
}
