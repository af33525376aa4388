/* Replays: run by a worker, stored, answered. A replay's id is the digest of the canonical array
 * [plan, time in microseconds, running number]. */
#include <stdio.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/service/internal.h"

static void write_revision(struct bp_writer *writer, const char *key, bool has, unsigned revision)
{
    bp_writer_key(writer, key);
    if (has)
        bp_writer_uint(writer, revision);
    else
        bp_writer_null(writer);
}

static void write_stage(struct bp_writer *writer, const struct bp_replay_stage *stage)
{
    bp_writer_object(writer);
    bp_writer_put_string(writer, "stage", bp_stage_names[stage->stage]);
    bp_writer_put_string(writer, "pass", stage->pass);
    write_revision(writer, "revision", stage->pass, stage->revision);
    write_revision(writer, "current_revision", stage->pass && stage->current_revision, stage->current_revision);
    bp_writer_key(writer, "expected");
    bp_writer_digest(writer, &stage->expected);
    bp_writer_key(writer, "actual");
    if (stage->has_actual)
        bp_writer_digest(writer, &stage->actual);
    else
        bp_writer_null(writer);
    bp_writer_put_bool(writer, "identical", stage->identical);
    bp_writer_put_string(writer, "first_difference", stage->has_difference ? stage->first_difference : NULL);
    bp_writer_put_string(writer, "code", stage->corrupt ? bp_code_name(BP_E_snapshot_corrupt) : NULL);
    bp_writer_end(writer);
}

/* The stages alone: what the store keeps as the record. */
static int write_stages(const struct bp_replay *replay, struct bp_buf *out, struct bp_err *err)
{
    struct bp_writer writer = {.out = out, .any_order = true};
    bp_writer_array(&writer);
    for (size_t i = 0; i < replay->n_stages; i++)
        write_stage(&writer, &replay->stages[i]);
    bp_writer_end(&writer);
    return bp_writer_finish(&writer, err);
}

static void write_replay(struct bp_writer *writer, const struct bp_store_replay *replay)
{
    char time[BP_TIME_TEXT];
    bp_time_format(replay->created_at, time);
    bp_writer_object(writer);
    bp_writer_key(writer, "id");
    bp_writer_digest(writer, &replay->id);
    bp_writer_key(writer, "plan");
    bp_writer_digest(writer, &replay->plan);
    bp_writer_put_string(writer, "created_at", time);
    bp_writer_put_string(writer, "verdict", replay->verdict);
    bp_writer_key(writer, "stages");
    bp_writer_raw(writer, replay->record.at, replay->record.n);
    bp_writer_end(writer);
}

/* ---- Running ---- */

/* The plan's snapshots as they are stored, whatever became of them. `bytes` are the buffers they are in. */
static int read_stored(struct bp_service *service, const struct bp_store_plan *plan, struct bp_buf bytes[BP_STAGE_N],
                       struct bp_stored_snapshot ret[BP_STAGE_N], struct bp_err *err)
{
    for (size_t i = 0; i < plan->n_snapshots && i < BP_STAGE_N; i++) {
        const struct bp_store_snapshot *snapshot = &plan->snapshots[i];
        struct bp_err missing = {0};
        bool unpacked = false;
        int stage = 0;
        if (bp_store_snapshot_read_raw(service->store, &snapshot->digest, &bytes[i], &unpacked, &missing) &&
            missing.code != BP_E_not_found)
            return bp_fail(err, missing.code, "", "%s", missing.message);
        while (stage < BP_STAGE_N && strcmp(bp_stage_names[stage], snapshot->stage) != 0)
            stage++;
        if (stage == BP_STAGE_N)
            return bp_fail(err, BP_E_snapshot_corrupt, "", "a snapshot of the plan is of no stage: \"%.32s\"",
                           snapshot->stage);
        ret[i] = (struct bp_stored_snapshot){
            .stage = (enum bp_stage)stage,
            .digest = snapshot->digest,
            .bytes = unpacked ? bytes[i].data : NULL,
            .n = bytes[i].len,
        };
        for (size_t j = 0; j < plan->n_derivations; j++)
            if (bp_digest_equal(&plan->derivations[j].target, &snapshot->digest)) {
                ret[i].pass = plan->derivations[j].pass;
                ret[i].revision = plan->derivations[j].revision;
            }
    }
    return 0;
}

int bp_replay_run(struct bp_service *service, const struct bp_store_plan *plan, struct bp_replay *ret,
                  struct bp_err *err)
{
    struct bp_buf bytes[BP_STAGE_N] = {{0}};
    struct bp_stored_snapshot stored[BP_STAGE_N] = {{0}};
    int failed = read_stored(service, plan, bytes, stored, err);
    if (!failed)
        failed = bp_pipeline_replay(plan->request.at, plan->request.n, stored, plan->n_snapshots, ret, err);
    for (size_t i = 0; i < BP_STAGE_N; i++)
        bp_buf_release(&bytes[i]);
    return failed;
}

static int name_replay(struct bp_service *service, struct bp_store_replay *replay, struct bp_err *err)
{
    char plan[BP_DIGEST_TEXT];
    bp_digest_format(&replay->plan, plan);
    return bp_service_name(service, plan, replay->created_at, &replay->id, err);
}

static struct bp_answer *replay_created(const struct bp_store_replay *replay)
{
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    char text[BP_DIGEST_TEXT];
    write_replay(&writer, replay);
    struct bp_answer *answer = bp_service_written(&writer, 201, &err);
    bp_digest_format(&replay->id, text);
    if (answer->status == 201)
        snprintf(answer->location, sizeof answer->location, "/v1/replays/%s", text);
    return answer;
}

/* A replay that breaks the store's rules is one of a plan that was collected while it was derived again. */
static bool plan_is_gone(struct bp_errand *errand, const struct bp_err *err, struct bp_err *ret)
{
    struct bp_arena arena = {0};
    struct bp_store_plan plan;
    bool gone = err->code == BP_E_internal &&
                bp_store_plan_read(errand->service->store, &errand->plan, &arena, &plan, ret) < 0 &&
                ret->code == BP_E_not_found;
    bp_arena_release(&arena);
    return gone;
}

/* On the writer. */
static void replay_stored(struct bp_store_unit *unit, const struct bp_err *err)
{
    struct bp_errand *errand = unit->data;
    struct bp_err gone = {0};
    if (err && plan_is_gone(errand, err, &gone))
        err = &gone;
    else if (err)
        bp_service_log_err(&errand->job, "a replay could not be stored", err);
    else
        bp_audit_log(&errand->asked);
    bp_errand_finish(errand, err ? bp_problem_of(err, NULL) : replay_created(&errand->replay));
}

static int run(struct bp_errand *errand, struct bp_err *err)
{
    struct bp_arena arena = {0};
    struct bp_store_plan plan;
    struct bp_replay replay = {0};
    int failed = bp_store_plan_read(errand->service->store, &errand->plan, &arena, &plan, err);
    if (!failed && plan.n_snapshots == 0)
        failed = bp_fail(err, BP_E_conflict, "", "the plan has no snapshots to compare with");
    if (!failed)
        failed = bp_replay_run(errand->service, &plan, &replay, err);
    for (size_t i = 0; !failed && i < replay.n_stages; i++)
        if (replay.stages[i].corrupt)
            bp_snapshot_report_corrupt(errand->service, &replay.stages[i].expected);
    if (!failed)
        failed = write_stages(&replay, &errand->record, err);
    errand->verdict = replay.identical ? BP_REPLAY_IDENTICAL : BP_REPLAY_DIVERGENT;
    errand->replay = (struct bp_store_replay){
        .plan = errand->plan,
        .verdict = bp_metrics_label(BP_LABEL_VERDICT, errand->verdict),
        .record = {errand->record.data, errand->record.len},
        .created_at = bp_now_us(),
    };
    bp_arena_release(&arena);
    return failed ? -1 : name_replay(errand->service, &errand->replay, err);
}

static struct bp_answer *run_replay(struct bp_errand *errand)
{
    struct bp_err err = {0};
    if (run(errand, &err))
        return bp_problem_of(&err, NULL);
    bp_metrics_count_by(errand->service->metrics, BP_COUNTERS_REPLAYS, errand->verdict, 0, 0);
    errand->unit = (struct bp_store_unit){.replay = &errand->replay, .done = replay_stored, .data = errand};
    errand->unit.audit = &errand->audit;
    errand->unit.n_audit = bp_audit_row(&errand->asked, &errand->audit);
    bp_store_submit(errand->service->store, &errand->unit);
    return NULL;
}

struct bp_answer *bp_service_replay_create(struct bp_service *service, const char *plan, struct bp_waiter *waiter)
{
    struct bp_errand errand = {.run = run_replay};
    struct bp_err err = {0};
    struct bp_answer *refusal;
    if (!bp_plan_find_finished(service, plan, &errand.plan, &refusal))
        return refusal;
    if (bp_store_ready(service->store, &err))
        return bp_problem_of(&err, NULL);
    bp_audit_fill(&errand.asked, &waiter->caller, "replay", &errand.plan);
    return bp_errand_start(service, &errand, waiter);
}

/* ---- Reading ---- */

struct bp_answer *bp_service_replay_get(struct bp_service *service, const char *text)
{
    struct bp_digest id;
    struct bp_answer *answer;
    if (!bp_service_find(service, BP_STORE_REPLAYS, text, &id, &answer))
        return answer;
    struct bp_arena arena = {0};
    struct bp_store_replay replay;
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    if (bp_store_replay_read(service->store, &id, &arena, &replay, &err) == 0)
        write_replay(&writer, &replay);
    answer = bp_service_written(&writer, 200, &err);
    bp_arena_release(&arena);
    return answer;
}

/* A plan that is not there has no list of replays either; one in flight has. */
static int require_plan(struct bp_service *service, const struct bp_plan_place *place, struct bp_arena *arena,
                        struct bp_err *err)
{
    struct bp_store_plan plan;
    return place->in_flight ? 0 : bp_store_plan_read(service->store, &place->id, arena, &plan, err);
}

struct bp_answer *bp_service_replay_list(struct bp_service *service, const char *plan, size_t limit, const char *cursor,
                                         char ret_next[BP_STORE_CURSOR_TEXT])
{
    struct bp_plan_place place;
    struct bp_answer *answer;
    if (!bp_plan_find(service, plan, &place, &answer))
        return answer;
    struct bp_arena arena = {0};
    struct bp_store_replay_page page;
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    if (require_plan(service, &place, &arena, &err) == 0 &&
        bp_store_replay_list(service->store, &place.id, limit, cursor, &arena, &page, &err) == 0) {
        bp_writer_object(&writer);
        bp_writer_key(&writer, "replays");
        bp_writer_array(&writer);
        for (size_t i = 0; i < page.n; i++)
            write_replay(&writer, &page.replays[i]);
        bp_writer_end(&writer);
        bp_service_write_next(&writer, page.next);
        bp_writer_end(&writer);
        snprintf(ret_next, BP_STORE_CURSOR_TEXT, "%s", page.next);
    }
    answer = bp_service_written(&writer, 200, &err);
    bp_arena_release(&arena);
    return answer;
}
