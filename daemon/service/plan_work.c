/* A plan on its way through a worker and the store's writer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/service/internal.h"

/* Durable plans begun at a time, for each worker: enough for it not to wait for their attempts to be counted. */
enum { BEGUN_PER_WORKER = 4 };

/* What the worker made, in the store's terms. Lives until the writer has it on disk, and is all that does: the outcome
 * itself, many times as large, is released before. */
struct bp_plan_result {
    struct bp_outcome outcome;
    bool has_outcome;
    struct bp_arena arena;
    struct bp_store_plan plan;
    struct bp_store_snapshot snapshots[BP_STAGE_N];
    struct bp_store_derivation derivations[BP_PLAN_PASSES_MAX];
    struct bp_buf packed[BP_STAGE_N], facts, diagnostics;
    struct bp_buf record;      /* the plan as JSON, when it committed */
    struct bp_answer *refusal; /* when it did not */
    uint64_t handed_over;      /* to the writer; CLOCK_MONOTONIC, ns */
};

void bp_plan_result_free(struct bp_plan_result *result)
{
    if (!result)
        return;
    for (size_t i = 0; i < BP_STAGE_N; i++)
        bp_buf_release(&result->packed[i]);
    bp_buf_release(&result->facts);
    bp_buf_release(&result->diagnostics);
    bp_buf_release(&result->record);
    bp_answer_unref(result->refusal);
    if (result->has_outcome)
        bp_outcome_release(&result->outcome);
    bp_arena_release(&result->arena);
    free(result);
}

/* ---- Waking ---- */

void bp_service_wake(struct bp_waiter *waiter, struct bp_answer *answer)
{
    free(waiter->model_extra);
    waiter->model_extra = NULL;
    waiter->wake(waiter, answer);
}

static void locate(struct bp_answer *answer, const struct bp_digest *id)
{
    char text[BP_DIGEST_TEXT];
    bp_digest_format(id, text);
    if (!bp_answer_is_standing(answer))
        snprintf(answer->location, sizeof answer->location, "/v1/plans/%s", text);
}

static void count_attempt(struct bp_claim *claim);

/* The claim has fallen. A durable one makes room for the next. */
static void end(struct bp_claim *claim)
{
    struct bp_claim *next = bp_claims_end(&claim->service->claims, claim);
    bp_claim_free(claim);
    if (next)
        count_attempt(next);
}

/* The claim falls, and every waiter is told `err`. Frees it. */
static void give_up(struct bp_claim *claim, const struct bp_err *err)
{
    for (struct bp_waiter *waiter = bp_claims_fall(&claim->service->claims, claim), *next; waiter; waiter = next) {
        next = waiter->next;
        bp_service_wake(waiter, bp_problem_of(err, NULL));
    }
    if (claim->is_durable)
        atomic_store(&claim->service->left_behind, true);
    if (err->code == BP_E_stopping)
        bp_claim_free(claim); /* and nothing else is begun */
    else
        end(claim);
}

static struct bp_answer *answer_for(const struct bp_claim *claim, const struct bp_waiter *waiter)
{
    const struct bp_plan_result *result = claim->result;
    if (result->refusal)
        return bp_answer_ref(result->refusal);
    struct bp_answer *answer =
        bp_record_answer(waiter->is_claimant ? 201 : 200, result->record.data, result->record.len, waiter->model_extra);
    if (waiter->is_claimant)
        locate(answer, &claim->id);
    return answer;
}

/* ---- Deriving ---- */

struct stage_clock {
    struct bp_metrics *metrics;
    const struct bp_request *request;
    struct bp_worker *worker;
    uint64_t since;
};

/* The label of the pass that made the stage. */
static size_t pass_label(const struct bp_request *request, enum bp_stage stage)
{
    size_t i = bp_passes_n;
    while (stage != BP_STAGE_MODEL && i && !(bp_passes[i - 1]->target == stage && bp_passes[i - 1]->applies(request)))
        i--;
    return stage == BP_STAGE_MODEL ? 0 : i;
}

static void stage_done(void *data, enum bp_stage stage)
{
    struct stage_clock *clock = data;
    uint64_t now = bp_clock_ns();
    bp_metrics_observe(clock->metrics, BP_HISTOGRAM_PASS_SECONDS, pass_label(clock->request, stage),
                       now - clock->since);
    clock->since = now;
    bp_worker_progress(clock->worker);
}

static const struct bp_store_evidence *evidence_of(struct bp_arena *arena, const struct bp_evidence *evidence, size_t n)
{
    struct bp_store_evidence *rows = bp_arena_array(arena, n, sizeof *rows);
    for (size_t i = 0; rows && i < n; i++)
        rows[i] = (struct bp_store_evidence){
            .check = evidence[i].check,
            .kind = bp_check_kind_names[evidence[i].kind],
            .verdict = bp_verdict_names[evidence[i].verdict],
            .compared = evidence[i].compared,
        };
    return rows;
}

static int fill_snapshots(struct bp_plan_result *result, struct bp_store_packer *packer, struct bp_err *err)
{
    const struct bp_outcome *outcome = &result->outcome;
    for (size_t i = 0; i < outcome->n_snapshots; i++) {
        const struct bp_snapshot *snapshot = &outcome->snapshots[i];
        if (bp_store_pack(packer, snapshot->bytes.data, snapshot->bytes.len, &result->packed[i], err))
            return -1;
        result->snapshots[i] = (struct bp_store_snapshot){
            .digest = snapshot->digest,
            .stage = bp_stage_names[snapshot->ir.stage],
            .schema = bp_stage_schemas[snapshot->ir.stage],
            .bytes = snapshot->bytes.len,
            .packed = {result->packed[i].data, result->packed[i].len},
        };
    }
    if (outcome->n_snapshots) {
        result->snapshots[0].evidence = evidence_of(&result->arena, outcome->model_evidence, outcome->n_model_evidence);
        result->snapshots[0].n_evidence = outcome->n_model_evidence;
        if (!result->snapshots[0].evidence)
            return bp_fail(err, BP_E_out_of_memory, "", "no memory for the evidence");
    }
    return 0;
}

static int fill_derivations(struct bp_plan_result *result, struct bp_err *err)
{
    const struct bp_outcome *outcome = &result->outcome;
    for (size_t i = 0; i < outcome->n_derivations; i++) {
        const struct bp_derivation *derivation = &outcome->derivations[i];
        struct bp_store_derivation *row = &result->derivations[i];
        *row = (struct bp_store_derivation){
            .pass = derivation->pass->name,
            .revision = derivation->pass->revision,
            .source = derivation->source,
            .target = derivation->target,
            .evidence = evidence_of(&result->arena, derivation->evidence, derivation->n_evidence),
            .n_evidence = derivation->n_evidence,
        };
        if (derivation->pass->target == BP_STAGE_DISTRIBUTED)
            row->binding = outcome->fingerprints.distribution;
        else if (derivation->pass->target == BP_STAGE_CONCRETE)
            row->binding = outcome->fingerprints.binding;
        if (!row->evidence)
            return bp_fail(err, BP_E_out_of_memory, "", "no memory for the evidence");
    }
    return 0;
}

/* The facts, when there are any; totals too large to be stated exactly reject the plan like any other quantity. */
static int fill_facts(struct bp_plan_result *result, struct bp_err *err)
{
    struct bp_facts facts;
    struct bp_err found = {0};
    struct bp_writer writer = {.out = &result->facts, .any_order = true};
    int has = bp_plan_facts(&result->outcome, &facts, &found);
    if (has < 0) {
        bp_problems_add(&result->outcome.diagnostics, found.code, found.path, "%s", found.message);
        if (result->outcome.state == BP_PLAN_COMMITTED)
            result->outcome.state = BP_PLAN_REJECTED;
        return 0;
    }
    if (has == 0)
        return 0;
    bp_facts_write(&writer, &facts);
    if (bp_writer_finish(&writer, err))
        return -1;
    result->plan.facts = (struct bp_store_text){result->facts.data, result->facts.len};
    return 0;
}

static int fill_outcome_text(struct bp_claim *claim, struct bp_err *err)
{
    struct bp_plan_result *result = claim->result;
    struct bp_writer writer = {.out = &result->record, .any_order = true};
    if (result->outcome.state == BP_PLAN_COMMITTED) {
        bp_record_write(&writer, &result->plan, true);
        return bp_writer_finish(&writer, err);
    }
    writer.out = &result->diagnostics;
    bp_plan_diagnostics_write(&writer, &result->outcome.diagnostics);
    if (bp_writer_finish(&writer, err))
        return -1;
    result->plan.diagnostics = (struct bp_store_text){result->diagnostics.data, result->diagnostics.len};
    result->refusal = bp_record_refusal(&claim->id, &result->outcome.diagnostics);
    for (size_t i = 0; i < result->outcome.diagnostics.n; i++)
        bp_metrics_count_by(claim->service->metrics, BP_COUNTERS_DIAGNOSTICS, result->outcome.diagnostics.at[i].code, 0,
                            0);
    return 0;
}

static struct bp_store_plan plan_row(const struct bp_claim *claim, enum bp_store_plan_state state)
{
    return (struct bp_store_plan){
        .id = claim->id,
        .state = state,
        .created_at = claim->created_at,
        .committed_at = bp_now_us(),
        .model = claim->request.model.name,
        .parameters = claim->parameters,
        .mode = bp_mode_names[claim->request.workload.mode],
        .request = {claim->request_text.data, claim->request_text.len},
    };
}

static int fill_plan(struct bp_claim *claim, struct bp_store_packer *packer, struct bp_err *err)
{
    static const enum bp_store_plan_state states[] = {
        [BP_PLAN_COMMITTED] = BP_STORE_COMMITTED,
        [BP_PLAN_REJECTED] = BP_STORE_REJECTED,
        [BP_PLAN_FAILED] = BP_STORE_FAILED,
    };
    struct bp_plan_result *result = claim->result;
    if (fill_snapshots(result, packer, err) || fill_derivations(result, err) || fill_facts(result, err))
        return -1;
    struct bp_store_text facts = result->plan.facts;
    result->plan = plan_row(claim, states[result->outcome.state]);
    result->plan.facts = facts;
    result->plan.snapshots = result->snapshots;
    result->plan.n_snapshots = result->outcome.n_snapshots;
    result->plan.derivations = result->derivations;
    result->plan.n_derivations = result->outcome.n_derivations;
    return fill_outcome_text(claim, err);
}

static void log_plan(const struct bp_claim *claim)
{
    char id[BP_DIGEST_TEXT];
    bp_digest_format(&claim->id, id);
    bp_log(BP_LOG_DEBUG, "plan derived",
           BP_LOG_FIELDS(BP_LOG_TEXT("plan", id),
                         BP_LOG_TEXT("state", bp_store_plan_state_names[claim->result->plan.state])));
}

static int derive(struct bp_claim *claim, struct bp_worker *worker, struct bp_err *err)
{
    const struct bp_service_worker *memory = worker->memory;
    struct stage_clock clock = {
        .metrics = claim->service->metrics, .request = &claim->request, .worker = worker, .since = bp_clock_ns()};
    const struct bp_pipeline_observer observer = {.stage_done = stage_done, .data = &clock};
    struct bp_plan_result *result = claim->result = calloc(1, sizeof *claim->result);
    if (!result)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for a plan");
    if (bp_pipeline_run(&claim->request, &observer, &claim->arena, &result->outcome, err))
        return -1;
    result->has_outcome = true;
    if (fill_plan(claim, memory->packer, err))
        return -1;
    bp_outcome_release(&result->outcome);
    bp_arena_release(&claim->arena);
    result->has_outcome = false;
    return 0;
}

/* ---- Committing ---- */

static void count_outcome(struct bp_metrics *metrics, enum bp_store_plan_state state)
{
    bp_metrics_count(metrics, BP_COUNTER_PLANS_DERIVED);
    if (state == BP_STORE_REJECTED)
        bp_metrics_count(metrics, BP_COUNTER_PLANS_REJECTED);
    else if (state == BP_STORE_FAILED)
        bp_metrics_count(metrics, BP_COUNTER_PLANS_FAILED);
}

/* On the writer. */
static void plan_stored(struct bp_store_unit *unit, const struct bp_err *err)
{
    struct bp_claim *claim = unit->data;
    struct bp_plan_result *result = claim->result;
    bp_metrics_observe(claim->service->metrics, BP_HISTOGRAM_PLAN_COMMIT_SECONDS, 0,
                       bp_clock_ns() - result->handed_over);
    bp_job_move(&claim->job, err ? BP_JOB_FAILED : BP_JOB_DONE);
    if (err) {
        bp_service_log_err(&claim->job, "a plan could not be stored", err);
        give_up(claim, err);
        return;
    }
    if (unit->n_audit)
        bp_audit_log(&claim->asked);
    for (struct bp_waiter *waiter = bp_claims_fall(&claim->service->claims, claim), *next; waiter; waiter = next) {
        next = waiter->next;
        bp_service_wake(waiter, answer_for(claim, waiter));
    }
    end(claim);
}

/* Who asked, into the unit that stores what was asked for. */
static void add_audit(struct bp_claim *claim)
{
    claim->unit.audit = &claim->audit;
    claim->unit.n_audit = bp_audit_row(&claim->asked, &claim->audit);
}

static void submit(struct bp_claim *claim)
{
    struct bp_plan_result *result = claim->result;
    claim->unit = (struct bp_store_unit){.plan = &result->plan, .done = plan_stored, .data = claim};
    if (claim->attempt_counted) {
        claim->change = (struct bp_store_job_change){
            .id = claim->id,
            .state = result->plan.state == BP_STORE_FAILED ? BP_STORE_JOB_FAILED : BP_STORE_JOB_DONE,
            .at = bp_now_us(),
        };
        claim->unit.change = &claim->change;
    }
    if (!claim->is_durable) /* of those the job has it */
        add_audit(claim);
    result->handed_over = bp_clock_ns();
    bp_store_submit(claim->service->store, &claim->unit);
}

/* The plan that could not be derived, with nothing but why. */
static int fill_failure(struct bp_claim *claim, const struct bp_err *why)
{
    struct bp_problems diagnostics = {0};
    bp_plan_result_free(claim->result);
    struct bp_plan_result *result = claim->result = calloc(1, sizeof *claim->result);
    if (!result)
        return -1;
    struct bp_writer writer = {.out = &result->diagnostics, .any_order = true};
    bp_problems_add(&diagnostics, why->code, why->path, "%s", why->message);
    bp_plan_diagnostics_write(&writer, &diagnostics);
    bool failed = bp_writer_finish(&writer, NULL) || diagnostics.out_of_memory;
    bp_problems_release(&diagnostics);
    result->plan = plan_row(claim, BP_STORE_FAILED);
    result->plan.diagnostics = (struct bp_store_text){result->diagnostics.data, result->diagnostics.len};
    return failed ? -1 : 0;
}

void bp_plan_store_failure(struct bp_claim *claim, const struct bp_err *err,
                           void (*done)(struct bp_store_unit *unit, const struct bp_err *err))
{
    bp_metrics_count(claim->service->metrics, BP_COUNTER_PLANS_FAILED);
    claim->change = (struct bp_store_job_change){.id = claim->id, .state = BP_STORE_JOB_FAILED, .at = bp_now_us()};
    claim->unit = (struct bp_store_unit){.change = &claim->change, .done = done, .data = claim};
    if (fill_failure(claim, err) == 0) /* without memory the job alone says that it failed */
        claim->unit.plan = &claim->result->plan;
    bp_store_submit(claim->service->store, &claim->unit);
}

/* On the writer: a durable job that could not be run is marked so. */
static void failure_stored(struct bp_store_unit *unit, const struct bp_err *err)
{
    struct bp_claim *claim = unit->data;
    static const struct bp_err failed = {.code = BP_E_out_of_memory, .message = "the plan could not be derived"};
    give_up(claim, err ? err : &failed);
}

static void fail(struct bp_claim *claim, const struct bp_err *err)
{
    bp_log_err(BP_LOG_ERROR, "a plan could not be derived", err);
    bool waited_for = bp_job_move(&claim->job, BP_JOB_FAILED);
    if (waited_for && claim->attempt_counted) {
        bp_plan_store_failure(claim, err, failure_stored);
        return;
    }
    bp_metrics_count(claim->service->metrics, BP_COUNTER_PLANS_FAILED);
    if (!waited_for) {
        bp_claims_discard(&claim->service->claims, claim);
    } else {
        give_up(claim, err);
    }
}

/* ---- The job ---- */

/* On the writer. */
static void attempt_stored(struct bp_store_unit *unit, const struct bp_err *err)
{
    struct bp_claim *claim = unit->data;
    if (err) {
        bp_service_log_err(&claim->job, "an attempt could not be counted", err);
        give_up(claim, err);
        return;
    }
    claim->attempt_counted = true;
    struct bp_err stopping = {0};
    if (bp_job_queue_push_first(&claim->service->queue, &claim->job, &stopping))
        give_up(claim, &stopping); /* the job is on disk */
}

/* An attempt is counted before it begins, so that a plan that kills the daemon is not tried for ever. */
static void count_attempt(struct bp_claim *claim)
{
    claim->change = (struct bp_store_job_change){.id = claim->id, .state = BP_STORE_JOB_RUNNING, .at = bp_now_us()};
    claim->unit = (struct bp_store_unit){.change = &claim->change, .done = attempt_stored, .data = claim};
    bp_store_submit(claim->service->store, &claim->unit);
}

static void run_plan(struct bp_job *job, struct bp_worker *worker)
{
    struct bp_claim *claim = (struct bp_claim *)(void *)job;
    struct bp_err err = {0};
    if (claim->is_durable && !claim->attempt_counted) {
        if (bp_claims_begin(&claim->service->claims, claim, BEGUN_PER_WORKER * worker->pool->n))
            count_attempt(claim);
    } else if (!bp_job_move(job, BP_JOB_RUNNING)) {
        bp_claims_discard(&claim->service->claims, claim);
    } else if (derive(claim, worker, &err)) {
        fail(claim, &err);
    } else if (!bp_job_move(job, BP_JOB_COMMITTING)) {
        bp_claims_discard(&claim->service->claims, claim);
    } else {
        count_outcome(claim->service->metrics, claim->result->plan.state);
        if (bp_log_wants(BP_LOG_DEBUG))
            log_plan(claim);
        submit(claim);
    }
}

int bp_plan_enqueue(struct bp_claim *claim, struct bp_err *err)
{
    claim->job.lane = BP_LANE_PLANS;
    claim->job.run = run_plan;
    return bp_job_queue_push(&claim->service->queue, &claim->job, claim->is_durable, err);
}

/* ---- Acceptance ---- */

struct bp_answer *bp_plan_accepted(const struct bp_claim_view *view, const char *model_extra)
{
    struct bp_buf record = {0};
    struct bp_writer writer = {.out = &record, .any_order = true};
    struct bp_err err = {0};
    struct bp_answer *answer;
    bp_record_view_write(&writer, view);
    if (bp_writer_finish(&writer, &err)) {
        answer = bp_problem_of(&err, NULL);
    } else {
        answer = bp_record_answer(202, record.data, record.len, model_extra);
        locate(answer, &view->id);
        if (!bp_answer_is_standing(answer))
            strcpy(answer->applied, "respond-async");
    }
    bp_buf_release(&record);
    return answer;
}

/* On the writer. */
static void job_accepted(struct bp_store_unit *unit, const struct bp_err *err)
{
    struct bp_claim *claim = unit->data;
    if (err) {
        bp_service_log_err(&claim->job, "a job could not be accepted", err);
        give_up(claim, err);
        return;
    }
    if (unit->n_audit)
        bp_audit_log(&claim->asked);
    struct bp_claim_view view = bp_claim_view(claim);
    for (struct bp_waiter *waiter = bp_claims_accepted(&claim->service->claims, claim), *next; waiter; waiter = next) {
        next = waiter->next;
        bp_service_wake(waiter, bp_plan_accepted(&view, waiter->model_extra));
    }
    struct bp_err stopping = {0};
    if (bp_job_queue_push(&claim->service->queue, &claim->job, true, &stopping))
        give_up(claim, &stopping); /* the job is on disk */
}

static int write_passes(struct bp_claim *claim, struct bp_err *err)
{
    const struct bp_pass *passes[BP_PLAN_PASSES_MAX];
    size_t n = bp_pipeline_passes(&claim->request, passes);
    struct bp_writer writer = {.out = &claim->passes_text};
    bp_writer_array(&writer);
    for (size_t i = 0; i < n; i++) {
        bp_writer_object(&writer);
        bp_writer_key(&writer, "name");
        bp_writer_string(&writer, passes[i]->name);
        bp_writer_key(&writer, "revision");
        bp_writer_uint(&writer, passes[i]->revision);
        bp_writer_end(&writer);
    }
    bp_writer_end(&writer);
    return bp_writer_finish(&writer, err);
}

void bp_plan_accept(struct bp_claim *claim, const struct bp_digest *supersedes)
{
    struct bp_err err = {0};
    claim->job.lane = BP_LANE_PLANS;
    claim->job.run = run_plan;
    if (write_passes(claim, &err)) {
        give_up(claim, &err);
        return;
    }
    claim->accept = (struct bp_store_job){
        .id = claim->id,
        .kind = "plan",
        .request = {claim->request_text.data, claim->request_text.len},
        .passes = {claim->passes_text.data, claim->passes_text.len},
        .created_at = claim->created_at,
    };
    claim->unit = (struct bp_store_unit){.accept = &claim->accept, .done = job_accepted, .data = claim};
    claim->asked.action = "accept";
    add_audit(claim);
    if (supersedes) {
        claim->change = (struct bp_store_job_change){
            .id = *supersedes, .state = BP_STORE_JOB_SUPERSEDED, .superseded_by = claim->id, .at = bp_now_us()};
        claim->unit.change = &claim->change;
    }
    bp_store_submit(claim->service->store, &claim->unit);
}
