/* Replays of the history: every finished plan derived again with the passes there are now, gates and all. A plan
 * diverges when a stage does not come out byte for byte, when what was stored is corrupt, or when it would now be
 * rejected or fail where it committed, or the reverse. Where that begins, and which checks of that pass find something
 * else than they did, is kept. */
#include <stdio.h>
#include <string.h>

#include "daemon/service/chore.h"

/* That an answer has. */
enum { GROUPS_MAX = 500 };

static void read_history(struct bp_chore *chore, const json_t *request, struct bp_problems *problems)
{
    static const char *const keys[] = {"since", NULL};
    struct bp_reader reader = bp_reader_of(request, "", problems);
    bp_reader_refuse_unknown(&reader, keys);
    const char *since = bp_reader_string(&reader, keys[0], false);
    chore->has_since = since != NULL;
    if (since && !bp_time_parse(since, &chore->since))
        bp_reader_problem(&reader, BP_E_out_of_range, keys[0], "a time is 2026-01-31T23:59:59Z or 2026-01-31");
}

static void write_since(const struct bp_chore *chore, struct bp_writer *writer)
{
    char time[BP_TIME_TEXT];
    bp_time_format(chore->since, time);
    bp_writer_put_string(writer, "since", time);
}

static void write_history(const struct bp_chore *chore, struct bp_writer *writer)
{
    bp_writer_object(writer);
    if (chore->has_since)
        write_since(chore, writer);
    bp_writer_end(writer);
}

/* ---- One plan ---- */

/* A stored plan beside what comes out now. Lives in the arena of the look at it, but for `outcome`. */
struct look {
    struct bp_chore *chore;
    struct bp_arena arena;
    struct bp_store_plan plan;
    struct bp_request request;
    struct bp_replay replay;
    struct bp_outcome outcome;
    bool has_outcome;
};

/* A plan that diverges: where that begins. */
struct beginning {
    const char *stage, *pass; /* NULL: none */
    unsigned revision, current_revision;
    const char *difference, *code;
    const struct bp_store_evidence *stored; /* of the pass */
    size_t n_stored;
    const struct bp_evidence *now;
    size_t n_now;
};

static const char *state_now(const struct look *look)
{
    return bp_plan_state_names[look->outcome.state];
}

static bool state_is_same(const struct look *look)
{
    return strcmp(bp_store_plan_state_names[look->plan.state], state_now(look)) == 0;
}

/* The evidence that the pass left then and leaves now; one that does not come to its end leaves what it got to. */
static void find_evidence(const struct look *look, struct beginning *begins)
{
    const struct bp_pass *passes[BP_PLAN_PASSES_MAX];
    size_t n_passes = bp_pipeline_passes(&look->request, passes);
    for (size_t i = 0; i < look->plan.n_derivations; i++)
        if (strcmp(look->plan.derivations[i].pass, begins->pass) == 0) {
            begins->stored = look->plan.derivations[i].evidence;
            begins->n_stored = look->plan.derivations[i].n_evidence;
            begins->revision = look->plan.derivations[i].revision;
        }
    for (size_t i = 0; i < n_passes && i <= look->outcome.n_derivations; i++)
        if (strcmp(passes[i]->name, begins->pass) == 0) {
            begins->now = look->outcome.derivations[i].evidence;
            begins->n_now = look->outcome.derivations[i].n_evidence;
            begins->current_revision = passes[i]->revision;
        }
}

/* Every stage that was stored came out again, but the plan did not end as it had: at the pass after them. */
static void begin_after_stages(const struct look *look, struct beginning *ret)
{
    const struct bp_pass *passes[BP_PLAN_PASSES_MAX];
    size_t n_passes = bp_pipeline_passes(&look->request, passes);
    size_t n = look->plan.n_snapshots < look->outcome.n_snapshots ? look->plan.n_snapshots : look->outcome.n_snapshots;
    if (n > 0 && n <= n_passes) {
        ret->pass = passes[n - 1]->name;
        ret->stage = bp_stage_names[passes[n - 1]->target];
    }
}

static struct beginning beginning_of(const struct look *look)
{
    struct beginning begins = {0};
    size_t i = 0;
    while (i < look->replay.n_stages && look->replay.stages[i].identical)
        i++;
    if (i < look->replay.n_stages) {
        const struct bp_replay_stage *stage = &look->replay.stages[i];
        begins = (struct beginning){
            .stage = bp_stage_names[stage->stage],
            .pass = stage->pass,
            .revision = stage->revision,
            .current_revision = stage->current_revision,
            .difference = stage->has_difference ? stage->first_difference : NULL,
            .code = stage->corrupt ? bp_code_name(BP_E_snapshot_corrupt) : NULL,
        };
        /* Of a pass that there is no more the replay does not say the name. */
        if (!begins.pass && i > 0 && i <= look->plan.n_derivations)
            begins.pass = look->plan.derivations[i - 1].pass;
    } else {
        begin_after_stages(look, &begins);
    }
    if (look->outcome.diagnostics.n && !begins.code)
        begins.code = bp_code_name(look->outcome.diagnostics.at[0].code);
    if (begins.pass)
        find_evidence(look, &begins);
    return begins;
}

/* ---- Checks that find something else ---- */

static const struct bp_evidence *record_now(const struct beginning *begins, const char *check)
{
    for (size_t i = 0; i < begins->n_now; i++)
        if (strcmp(begins->now[i].check, check) == 0)
            return &begins->now[i];
    return NULL;
}

static const struct bp_store_evidence *record_stored(const struct beginning *begins, const char *check)
{
    for (size_t i = 0; i < begins->n_stored; i++)
        if (strcmp(begins->stored[i].check, check) == 0)
            return &begins->stored[i];
    return NULL;
}

static bool is_same(const struct bp_store_evidence *stored, const struct bp_evidence *now)
{
    return stored && now && stored->compared == now->compared &&
           strcmp(stored->verdict, bp_verdict_names[now->verdict]) == 0 &&
           strcmp(stored->kind, bp_check_kind_names[now->kind]) == 0;
}

static void write_record(struct bp_writer *writer, const char *key, const char *verdict, uint64_t compared)
{
    bp_writer_key(writer, key);
    if (!verdict) {
        bp_writer_null(writer);
        return;
    }
    bp_writer_object(writer);
    bp_writer_put_string(writer, "verdict", verdict);
    bp_writer_put_uint(writer, "compared", compared);
    bp_writer_end(writer);
}

static void write_check(struct bp_writer *writer, const struct bp_store_evidence *stored, const struct bp_evidence *now)
{
    bp_writer_object(writer);
    bp_writer_put_string(writer, "check", now ? now->check : stored->check);
    bp_writer_put_string(writer, "kind", now ? bp_check_kind_names[now->kind] : stored->kind);
    write_record(writer, "stored", stored ? stored->verdict : NULL, stored ? stored->compared : 0);
    write_record(writer, "now", now ? bp_verdict_names[now->verdict] : NULL, now ? now->compared : 0);
    bp_writer_end(writer);
}

/* Writes the checks whose records differ, and names them in `names`, which has room. Returns how many. */
static size_t write_checks(struct bp_writer *writer, const struct beginning *begins, const char **names)
{
    size_t n = 0;
    bp_writer_array(writer);
    for (size_t i = 0; i < begins->n_stored; i++) {
        const struct bp_evidence *now = record_now(begins, begins->stored[i].check);
        if (is_same(&begins->stored[i], now))
            continue;
        names[n++] = begins->stored[i].check;
        write_check(writer, &begins->stored[i], now);
    }
    for (size_t i = 0; i < begins->n_now; i++)
        if (!record_stored(begins, begins->now[i].check)) {
            names[n++] = begins->now[i].check;
            write_check(writer, NULL, &begins->now[i]);
        }
    bp_writer_end(writer);
    return n;
}

/* ---- What is kept of it ---- */

static void write_revision(struct bp_writer *writer, const char *key, unsigned revision)
{
    bp_writer_key(writer, key);
    if (revision)
        bp_writer_uint(writer, revision);
    else
        bp_writer_null(writer);
}

static size_t write_divergence(struct bp_writer *writer, const struct look *look, const struct beginning *begins,
                               const char **names)
{
    bp_writer_object(writer);
    bp_writer_key(writer, "plan");
    bp_writer_digest(writer, &look->plan.id);
    bp_writer_put_string(writer, "state", bp_store_plan_state_names[look->plan.state]);
    bp_writer_put_string(writer, "state_now", look->has_outcome ? state_now(look) : NULL);
    bp_writer_put_string(writer, "stage", begins->stage);
    bp_writer_put_string(writer, "pass", begins->pass);
    write_revision(writer, "revision", begins->revision);
    write_revision(writer, "current_revision", begins->current_revision);
    bp_writer_put_string(writer, "first_difference", begins->difference);
    bp_writer_put_string(writer, "code", begins->code);
    bp_writer_key(writer, "checks");
    size_t n = write_checks(writer, begins, names);
    bp_writer_end(writer);
    return n;
}

static const char *keep(struct bp_arena *arena, const char *text)
{
    return text ? bp_arena_strndup(arena, text, strlen(text)) : "";
}

/* Into the chore's arena, where it stays until it is committed. */
static int keep_divergence(struct look *look, const struct beginning *begins, struct bp_err *err)
{
    struct bp_chore *chore = look->chore;
    struct bp_buf text = {0};
    struct bp_writer writer = {.out = &text, .any_order = true};
    const char **names = bp_arena_array(&chore->arena, begins->n_stored + begins->n_now + 1, sizeof *names);
    if (!names)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for a divergence");
    size_t n = write_divergence(&writer, look, begins, names);
    int failed = bp_writer_finish(&writer, err);
    struct bp_store_divergence *row = &chore->divergences[chore->n_divergences];
    if (!failed) {
        *row = (struct bp_store_divergence){
            .plan = look->plan.id,
            .pass = keep(&chore->arena, begins->pass),
            .revision = begins->revision,
            .current_revision = begins->current_revision,
            .checks = names,
            .n_checks = n,
            .record = {bp_arena_strndup(&chore->arena, text.data, text.len), text.len},
        };
        bool kept = row->pass && row->record.at;
        for (size_t i = 0; i < n && kept; i++)
            kept = (names[i] = keep(&chore->arena, names[i])) != NULL;
        failed = kept ? 0 : bp_fail(err, BP_E_out_of_memory, "", "no memory for a divergence");
    }
    chore->n_divergences += !failed;
    bp_buf_release(&text);
    return failed;
}

/* ---- The look ---- */

static void count_verdict(struct look *look, enum bp_replay_verdict verdict)
{
    bp_chore_tally(look->chore, bp_metrics_label(BP_LABEL_VERDICT, verdict), 1);
    bp_metrics_count_by(look->chore->service->metrics, BP_COUNTERS_HISTORY, verdict, 0, 0);
}

/* One whose stored request is none any more cannot come out again. */
static int tell_unreadable(struct look *look, const struct bp_err *found, struct bp_err *err)
{
    const struct beginning begins = {.code = bp_code_name(found->code)};
    if (found->code == BP_E_out_of_memory || found->code == BP_E_storage_failed ||
        found->code == BP_E_deadline_exceeded)
        return bp_fail(err, found->code, found->path, "%s", found->message);
    count_verdict(look, BP_REPLAY_DIVERGENT);
    return keep_divergence(look, &begins, err);
}

static int compare(struct look *look, struct bp_err *err)
{
    struct bp_err found = {0};
    if (bp_service_stored_request(&look->plan.request, &look->arena, &look->request, &found) < 0 ||
        bp_replay_run(look->chore->service, &look->plan, &look->replay, &found) < 0)
        return tell_unreadable(look, &found, err);
    if (bp_pipeline_run(&look->request, NULL, &look->arena, &look->outcome, err) < 0)
        return -1;
    look->has_outcome = true;
    bool identical = state_is_same(look) && (look->replay.identical || look->plan.n_snapshots == 0);
    count_verdict(look, identical ? BP_REPLAY_IDENTICAL : BP_REPLAY_DIVERGENT);
    if (identical)
        return 0;
    const struct beginning begins = beginning_of(look);
    return keep_divergence(look, &begins, err);
}

/* A plan that failed left nothing that could come out again, and one may have been collected since it was listed. */
static int look_at(struct bp_chore *chore, const struct bp_store_plan_name *name, struct bp_err *err)
{
    struct look look = {.chore = chore};
    struct bp_err found = {0};
    int result = 0;
    if (bp_store_plan_read(chore->service->store, &name->id, &look.arena, &look.plan, &found) < 0) {
        if (found.code != BP_E_not_found)
            result = bp_fail(err, found.code, "", "%s", found.message);
        bp_chore_tally(chore, "skipped", 1);
    } else if (look.plan.state == BP_STORE_FAILED) {
        bp_chore_tally(chore, "skipped", 1);
    } else {
        result = compare(&look, err);
    }
    if (look.has_outcome)
        bp_outcome_release(&look.outcome);
    bp_arena_release(&look.arena);
    bp_chore_tally(chore, "checked", 1);
    return result;
}

/* Of those that there were when it was asked for. */
static int slice_history(struct bp_chore *chore, struct bp_err *err)
{
    const int64_t until = chore->created_at + 1;
    return chore->place.seq == 0 ? bp_chore_count(chore, chore->since, until, err)
                                 : bp_chore_walk(chore, until, look_at, err);
}

/* ---- Answers ---- */

static void write_group(struct bp_writer *writer, const struct bp_store_group *group)
{
    bp_writer_object(writer);
    bp_writer_put_string(writer, "pass", *group->pass ? group->pass : NULL);
    write_revision(writer, "revision", group->revision);
    write_revision(writer, "current_revision", group->current_revision);
    bp_writer_put_string(writer, "check", *group->check ? group->check : NULL);
    bp_writer_put_uint(writer, "plans", group->plans);
    bp_writer_end(writer);
}

static int view_history(struct bp_service *service, const struct bp_chore *chore, const struct bp_store_job *job,
                        const struct bp_store_tally_page *tallies, struct bp_arena *arena, struct bp_writer *writer,
                        struct bp_err *err)
{
    static const char *const names[] = {"plans", "checked", "identical", "divergent", "skipped"};
    struct bp_store_group_page page;
    if (bp_store_groups(service->store, job->seq, GROUPS_MAX, arena, &page, err) < 0)
        return -1;
    if (chore->has_since) {
        write_since(chore, writer);
    } else {
        bp_writer_key(writer, "since");
        bp_writer_null(writer);
    }
    bp_writer_key(writer, "passes");
    bp_writer_raw(writer, job->passes.at, job->passes.n);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bp_writer_put_uint(writer, names[i], bp_tally_of(tallies, names[i]));
    }
    bp_writer_key(writer, "groups");
    bp_writer_array(writer);
    for (size_t i = 0; i < page.n; i++)
        write_group(writer, &page.groups[i]);
    bp_writer_end(writer);
    return 0;
}

const struct bp_chore_kind bp_history_kind = {
    .name = "replays",
    .metric = BP_LONG_HISTORY_REPLAY,
    .progress = "checked",
    .of_passes = true,
    .read = read_history,
    .write = write_history,
    .slice = slice_history,
    .view = view_history,
};

struct bp_answer *bp_service_history_create(struct bp_service *service, const char *body, size_t n,
                                            struct bp_waiter *waiter)
{
    return bp_chore_create(service, &bp_history_kind, body, n, waiter);
}

struct bp_answer *bp_service_history_get(struct bp_service *service, const char *id)
{
    return bp_chore_get(service, &bp_history_kind, id);
}

struct bp_answer *bp_service_divergences(struct bp_service *service, const char *id, size_t limit, const char *cursor,
                                         char ret_next[BP_STORE_CURSOR_TEXT])
{
    struct bp_arena arena = {0};
    struct bp_store_job job;
    struct bp_store_divergence_page page;
    struct bp_answer *answer;
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    if (!bp_chore_find(service, &bp_history_kind, id, &arena, &job, &answer)) {
        bp_arena_release(&arena);
        return answer;
    }
    if (bp_store_divergences(service->store, job.seq, limit, cursor, &arena, &page, &err) == 0) {
        bp_writer_object(&writer);
        bp_writer_key(&writer, "divergences");
        bp_writer_array(&writer);
        for (size_t i = 0; i < page.n; i++)
            bp_writer_raw(&writer, page.records[i].at, page.records[i].n);
        bp_writer_end(&writer);
        bp_service_write_next(&writer, page.next);
        bp_writer_end(&writer);
        memcpy(ret_next, page.next, sizeof page.next);
    }
    answer = bp_service_written(&writer, 200, &err);
    bp_arena_release(&arena);
    return answer;
}
