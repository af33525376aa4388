/* The capacity view: of a job that is only asked about, and of a stored plan's. A worker does it. */
#include <string.h>

#include "common/view/capacity_write.h"
#include "daemon/service/internal.h"

static int write_fit(struct bp_writer *writer, struct bp_capacity_answer *answer, struct bp_arena *arena,
                     struct bp_err *err)
{
    struct bp_fit fit;
    answer->fit = &fit;
    return bp_fit_of(answer->job, arena, &fit, err) < 0 ? -1 : bp_capacity_write(writer, answer, err);
}

static struct bp_answer *answer_fit(const json_t *request, struct bp_arena *arena)
{
    struct bp_problems problems = {0};
    struct bp_config config = {0};
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    struct bp_answer *answer;
    struct bp_whole_job *job = bp_arena_array(arena, 1, sizeof *job);
    if (!job || bp_whole_job_read(request, arena, &problems, job, &config) < 0) {
        answer = bp_problem_say(BP_E_out_of_memory, "", "no memory for the request");
    } else if (!bp_problems_none(&problems)) {
        answer = bp_record_request_refusal(&problems, &config);
    } else {
        write_fit(&writer, &(struct bp_capacity_answer){.job = job, .config = &config}, arena, &err);
        answer = bp_service_written(&writer, 200, &err);
    }
    bp_problems_release(&problems);
    return answer;
}

static struct bp_answer *run_fit(struct bp_errand *errand)
{
    struct bp_arena arena = {0};
    struct bp_json_position position;
    struct bp_err err = {0};
    json_t *request = bp_json_parse_request(errand->body.data, errand->body.len, &position, &err);
    struct bp_answer *answer =
        request ? answer_fit(request, &arena) : bp_problem_of(&err, &(struct bp_problem_extra){.position = &position});
    json_decref(request);
    bp_arena_release(&arena);
    return answer;
}

struct bp_answer *bp_service_fit(struct bp_service *service, const char *body, size_t n, struct bp_waiter *waiter)
{
    struct bp_errand errand = {.run = run_fit};
    /* A NUL ends it, so that there is memory for an empty one too. */
    bp_buf_add(&errand.body, body, n);
    if (!bp_buf_reserve(&errand.body, 1)) {
        bp_buf_release(&errand.body);
        return bp_problem_say(BP_E_out_of_memory, "", "no memory for the request");
    }
    return bp_errand_start(service, &errand, waiter);
}

static const struct bp_digest *portable_of(const struct bp_store_plan *plan)
{
    for (size_t i = 0; i < plan->n_snapshots; i++)
        if (strcmp(plan->snapshots[i].stage, bp_stage_names[BP_STAGE_PORTABLE]) == 0)
            return &plan->snapshots[i].digest;
    return NULL;
}

static int write_capacity(struct bp_writer *writer, const struct bp_errand *errand, struct bp_arena *arena,
                          struct bp_err *err)
{
    struct bp_store_plan plan;
    struct bp_request request;
    struct bp_whole_job *job = bp_arena_array(arena, 1, sizeof *job);
    if (!job)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for the job");
    if (bp_store_plan_read(errand->service->store, &errand->plan, arena, &plan, err) < 0 ||
        bp_service_stored_request(&plan.request, arena, &request, err) < 0)
        return -1;
    bp_whole_job_of(&request, job);
    return write_fit(writer, &(struct bp_capacity_answer){.job = job, .plan = &plan.id, .portable = portable_of(&plan)},
                     arena, err);
}

static struct bp_answer *run_capacity(struct bp_errand *errand)
{
    struct bp_arena arena = {0};
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    write_capacity(&writer, errand, &arena, &err);
    struct bp_answer *answer = bp_service_written(&writer, 200, &err);
    bp_arena_release(&arena);
    return answer;
}

struct bp_answer *bp_service_capacity(struct bp_service *service, const char *plan, struct bp_waiter *waiter)
{
    struct bp_errand errand = {.run = run_capacity};
    struct bp_answer *refusal;
    if (!bp_service_find(service, BP_STORE_PLANS, plan, &errand.plan, &refusal))
        return refusal;
    return bp_errand_start(service, &errand, waiter);
}
