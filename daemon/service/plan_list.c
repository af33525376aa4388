/* Lists of plans: pages of the finished ones, and those in flight. */
#include <stdio.h>
#include <string.h>

#include "daemon/service/internal.h"

/* ---- In flight: only what the memory and the jobs say; they have no place in the order of the stored ones yet ---- */

enum { JOBS_PAGE = 64 };

static bool is_in_flight(int state)
{
    return state == BP_PLAN_QUEUED || state == BP_PLAN_RUNNING;
}

static bool is_wanted(const void *data, const struct bp_claim_view *view)
{
    const struct bp_plan_query *query = data;
    return (int)view->state == query->state && (!query->model || strcmp(query->model, view->model) == 0) &&
           (!query->mode || strcmp(query->mode, bp_mode_names[view->mode]) == 0);
}

/* A job without a claim: the store failed it, and it waits for the next start. One whose claim has just fallen is over,
 * which the store knew before. */
static void add_waiting_job(struct bp_service *service, const struct bp_plan_query *query,
                            const struct bp_store_job *job, struct bp_arena *arena, struct bp_claim_views *views)
{
    struct bp_claim_view view;
    struct bp_store_job now;
    if (bp_claims_view(&service->claims, &job->id, &view) ||
        bp_store_job_read(service->store, &job->id, arena, &now, NULL) ||
        (now.state != BP_STORE_JOB_QUEUED && now.state != BP_STORE_JOB_RUNNING))
        return;
    if (bp_plan_job_view(&now, arena, &view, NULL) == 0 && is_wanted(query, &view))
        bp_claim_views_add(views, &view);
}

static int add_waiting_jobs(struct bp_service *service, const struct bp_plan_query *query, struct bp_claim_views *views,
                            struct bp_err *err)
{
    int64_t after = 0;
    size_t n = JOBS_PAGE;
    while (n == JOBS_PAGE) {
        struct bp_arena arena = {0};
        struct bp_store_job_page page = {0};
        int failed = bp_store_jobs_unfinished(service->store, after, JOBS_PAGE, &arena, &page, err);
        for (size_t i = 0; !failed && i < page.n; i++) {
            add_waiting_job(service, query, &page.jobs[i], &arena, views);
            after = page.jobs[i].seq;
        }
        n = page.n;
        bp_arena_release(&arena);
        if (failed)
            return -1;
    }
    return 0;
}

static int write_in_flight(struct bp_service *service, const struct bp_plan_query *query, struct bp_arena *arena,
                           struct bp_writer *writer, struct bp_err *err)
{
    struct bp_claim_views views;
    if (query->cursor && *query->cursor)
        return bp_fail(err, BP_E_invalid_query, "/cursor", "plans in flight are not listed in pages");
    if (bp_claim_views_init(&views, query->limit, arena, err))
        return -1;
    bp_claims_list(&service->claims, is_wanted, query, &views);
    if (add_waiting_jobs(service, query, &views, err))
        return -1;
    for (size_t i = 0; i < views.n; i++)
        bp_record_view_write(writer, views.at[i]);
    return 0;
}

/* ---- Finished ---- */

static int write_finished(struct bp_service *service, const struct bp_plan_query *query, struct bp_arena *arena,
                          struct bp_writer *writer, char ret_next[BP_STORE_CURSOR_TEXT], struct bp_err *err)
{
    static const enum bp_store_plan_state states[] = {
        [BP_PLAN_COMMITTED] = BP_STORE_COMMITTED,
        [BP_PLAN_REJECTED] = BP_STORE_REJECTED,
        [BP_PLAN_FAILED] = BP_STORE_FAILED,
    };
    const struct bp_store_plan_filter filter = {
        .state = query->state < 0 ? NULL : &states[query->state], .model = query->model, .mode = query->mode};
    struct bp_store_plan_page page;
    if (bp_store_plan_list(service->store, &filter, query->limit, query->cursor, arena, &page, err))
        return -1;
    for (size_t i = 0; i < page.n; i++)
        bp_record_write(writer, &page.plans[i], false);
    snprintf(ret_next, BP_STORE_CURSOR_TEXT, "%s", page.next);
    return 0;
}

struct bp_answer *bp_service_plan_list(struct bp_service *service, const struct bp_plan_query *query,
                                       char ret_next[BP_STORE_CURSOR_TEXT])
{
    struct bp_arena arena = {0};
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    *ret_next = '\0';
    bp_writer_object(&writer);
    bp_writer_key(&writer, "plans");
    bp_writer_array(&writer);
    int failed = is_in_flight(query->state) ? write_in_flight(service, query, &arena, &writer, &err)
                                            : write_finished(service, query, &arena, &writer, ret_next, &err);
    bp_writer_end(&writer);
    if (!failed)
        bp_service_write_next(&writer, ret_next);
    bp_writer_end(&writer);
    struct bp_answer *answer = bp_service_written(&writer, 200, &err);
    bp_arena_release(&arena);
    return answer;
}
