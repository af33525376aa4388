/* What was accepted with a 202 and not finished before the daemon stopped is taken up again. */
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/service/chore.h"

/* How often a job may begin to run. */
enum { ATTEMPTS_MAX = 2, PAGE = 64 };

int bp_service_stored_request(const struct bp_store_text *text, struct bp_arena *arena, struct bp_request *ret,
                              struct bp_err *err)
{
    struct bp_json_position position;
    struct bp_problems problems = {0};
    struct bp_config config;
    json_t *json = bp_json_parse(text->at ? text->at : "", text->n, &position, err);
    if (!json)
        return -1;
    int ret_code = 0;
    if (bp_request_read(json, arena, &problems, ret, &config) < 0)
        ret_code = bp_fail(err, BP_E_out_of_memory, "", "no memory for a stored request");
    else if (!bp_problems_none(&problems))
        ret_code =
            bp_fail(err, problems.n ? problems.at[0].code : BP_E_out_of_memory, problems.n ? problems.at[0].path : "",
                    "%s", problems.n ? problems.at[0].message : "no memory for the problems");
    bp_problems_release(&problems);
    json_decref(json);
    return ret_code;
}

int bp_service_job_request(const struct bp_store_job *job, struct bp_arena *arena, struct bp_request *ret,
                           struct bp_err *err)
{
    return bp_service_stored_request(&job->request, arena, ret, err);
}

/* A job that is not run again. Frees itself on the writer. */
struct ending {
    struct bp_store_unit unit;
    struct bp_store_job_change change;
};

static void ended(struct bp_store_unit *unit, const struct bp_err *err)
{
    if (err)
        bp_log_err(BP_LOG_ERROR, "a job could not be ended", err);
    free(unit->data);
}

static int end_job(struct bp_service *service, const struct bp_store_job_change *change, struct bp_err *err)
{
    struct ending *ending = malloc(sizeof *ending);
    if (!ending)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory to end a job");
    *ending = (struct ending){.change = *change};
    ending->unit = (struct bp_store_unit){.change = &ending->change, .done = ended, .data = ending};
    bp_store_submit(service->store, &ending->unit);
    return 0;
}

static void say_given_up(const struct bp_digest *id, const char *why)
{
    char text[BP_DIGEST_TEXT];
    bp_digest_format(id, text);
    bp_log(BP_LOG_WARNING, "a job is given up", BP_LOG_FIELDS(BP_LOG_TEXT("plan", text), BP_LOG_TEXT("why", why)));
}

/* One of which not even a plan can be made. */
static int give_up(struct bp_service *service, const struct bp_digest *id, const char *why, struct bp_err *err)
{
    say_given_up(id, why);
    const struct bp_store_job_change change = {.id = *id, .state = BP_STORE_JOB_FAILED, .at = bp_now_us()};
    return end_job(service, &change, err);
}

/* On the writer. */
static void given_up(struct bp_store_unit *unit, const struct bp_err *err)
{
    if (err)
        bp_log_err(BP_LOG_ERROR, "a job could not be given up", err);
    bp_claim_free(unit->data);
}

/* The failed plan says why. The claim is in no table: nobody can ask for it yet. */
static int give_up_with_plan(struct bp_service *service, const struct bp_store_job *job,
                             const struct bp_request *request, struct bp_arena *arena, struct bp_err *err)
{
    static const struct bp_err why = {.code = BP_E_internal, .message = "it was begun twice and never ended"};
    struct bp_claim *claim = bp_claim_new(service, &job->id, request, arena, err);
    if (!claim)
        return -1;
    claim->created_at = job->created_at;
    say_given_up(&job->id, why.message);
    bp_plan_store_failure(claim, &why, given_up);
    return 0;
}

/* The claim of the job is there already: two jobs of older passes have come to one id. */
static int supersede(struct bp_service *service, const struct bp_digest *old, const struct bp_digest *by,
                     struct bp_err *err)
{
    const struct bp_store_job_change change = {
        .id = *old, .state = BP_STORE_JOB_SUPERSEDED, .superseded_by = *by, .at = bp_now_us()};
    return bp_digest_equal(old, by) ? 0 : end_job(service, &change, err);
}

/* Adds 1 to `*ret_taken` when the job will be run. */
static int take_up(struct bp_service *service, const struct bp_store_job *job, uint64_t *ret_taken, struct bp_err *err)
{
    struct bp_arena arena = {0};
    struct bp_request request;
    struct bp_digest id;
    struct bp_err wrong = {0};
    struct bp_claim_view view;
    if (bp_claims_view(&service->claims, &job->id, &view))
        return 0; /* it is in hand */
    if (strcmp(job->kind, "plan") != 0) {
        bool known;
        int result = bp_chore_take_up(service, job, ATTEMPTS_MAX, &known, ret_taken, err);
        return result < 0 || known ? result : give_up(service, &job->id, "what it asks for is not known", err);
    }
    if (bp_service_job_request(job, &arena, &request, &wrong) || bp_pipeline_plan_id(&request, &id, &wrong)) {
        bp_arena_release(&arena);
        return wrong.code == BP_E_out_of_memory ? bp_fail(err, wrong.code, "", "%s", wrong.message)
                                                : give_up(service, &job->id, wrong.message, err);
    }
    if (job->attempts >= ATTEMPTS_MAX)
        return give_up_with_plan(service, job, &request, &arena, err);
    struct bp_claim *claim = bp_claim_new(service, &id, &request, &arena, err);
    if (!claim)
        return -1;
    claim->created_at = job->created_at;
    if (bp_claims_join(&service->claims, claim, NULL, &view) != BP_JOIN_CLAIMED) {
        bp_claim_free(claim);
        return supersede(service, &job->id, &id, err);
    }
    bp_claims_make_durable(&service->claims, claim, SIZE_MAX);
    bp_plan_accept(claim, bp_digest_equal(&id, &job->id) ? NULL : &job->id);
    ++*ret_taken;
    return 0;
}

int bp_service_recover(struct bp_service *service, struct bp_err *err)
{
    int64_t after = 0;
    uint64_t taken = 0;
    size_t n = PAGE;
    while (n == PAGE) {
        struct bp_arena arena = {0};
        struct bp_store_job_page page;
        int failed = bp_store_jobs_unfinished(service->store, after, PAGE, &arena, &page, err);
        for (size_t i = 0; !failed && i < page.n; i++) {
            failed = take_up(service, &page.jobs[i], &taken, err);
            after = page.jobs[i].seq;
        }
        n = failed ? 0 : page.n;
        bp_arena_release(&arena);
        if (failed)
            return -1;
    }
    if (taken)
        bp_log(BP_LOG_INFO, "jobs taken up again", BP_LOG_FIELDS(BP_LOG_UINT("jobs", taken)));
    return 0;
}

int bp_service_take_up_again(struct bp_service *service, struct bp_err *err)
{
    if (!atomic_load(&service->left_behind) || bp_store_ready(service->store, NULL))
        return 0;
    atomic_store(&service->left_behind, false);
    return bp_service_recover(service, err);
}
