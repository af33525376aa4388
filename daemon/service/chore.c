#include "daemon/service/chore.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"

/* Chores under way at a time, and plans that are read at a time. */
enum { CHORES_MAX = 4, PAGE = 32 };

/* Slices that only count are committed together, no longer than that. */
static const uint64_t commit_ns = UINT64_C(200) * 1000000;

static const struct bp_chore_kind *const kinds[BP_CHORE_KIND_N] = {&bp_collection_kind, &bp_history_kind};

/* ---- A chore ---- */

void bp_chore_free(struct bp_chore *chore)
{
    bp_buf_release(&chore->request_text);
    bp_buf_release(&chore->passes_text);
    bp_buf_release(&chore->problem);
    bp_arena_release(&chore->arena);
    free(chore);
}

static void discard(struct bp_job *job)
{
    bp_chore_free((struct bp_chore *)(void *)job);
}

void bp_chore_tally(struct bp_chore *chore, const char *name, uint64_t n)
{
    size_t i = 0;
    while (i < chore->n_tallies && strcmp(chore->tallies[i].name, name) != 0)
        i++;
    if (i == chore->n_tallies)
        chore->tallies[chore->n_tallies++] = (struct bp_store_tally){.name = name};
    chore->tallies[i].n += n;
}

uint64_t bp_tally_of(const struct bp_store_tally_page *tallies, const char *name)
{
    for (size_t i = 0; i < tallies->n; i++)
        if (strcmp(tallies->tallies[i].name, name) == 0)
            return tallies->tallies[i].n;
    return 0;
}

/* The passes that what comes of it stands for. */
static void write_passes(const struct bp_chore_kind *kind, struct bp_writer *writer)
{
    bp_writer_array(writer);
    for (size_t i = 0; kind->of_passes && i < bp_passes_n; i++) {
        bp_writer_object(writer);
        bp_writer_key(writer, "name");
        bp_writer_string(writer, bp_passes[i]->name);
        bp_writer_key(writer, "revision");
        bp_writer_uint(writer, bp_passes[i]->revision);
        bp_writer_end(writer);
    }
    bp_writer_end(writer);
}

static void run_chore(struct bp_job *job, struct bp_worker *worker);

/* Of a request that is JSON. NULL: in `problems` or `err` why not. */
static struct bp_chore *chore_new(struct bp_service *service, const struct bp_chore_kind *kind, const json_t *request,
                                  struct bp_problems *problems, struct bp_err *err)
{
    struct bp_chore *chore = calloc(1, sizeof *chore);
    if (!chore) {
        bp_fail(err, BP_E_out_of_memory, "", "no memory for the work");
        return NULL;
    }
    chore->job = (struct bp_job){.lane = BP_LANE_REST, .run = run_chore, .discard = discard};
    chore->service = service;
    chore->kind = kind;
    kind->read(chore, request, problems);
    struct bp_writer writer = {.out = &chore->request_text}, passes = {.out = &chore->passes_text};
    kind->write(chore, &writer);
    write_passes(kind, &passes);
    if (bp_problems_none(problems) && bp_writer_finish(&writer, err) == 0 && bp_writer_finish(&passes, err) == 0)
        return chore;
    bp_chore_free(chore);
    return NULL;
}

/* ---- Which are under way ---- */

static void enlist(struct bp_chore *chore)
{
    struct bp_claims *claims = &chore->service->claims;
    pthread_mutex_lock(&claims->lock);
    chore->next = chore->service->chores;
    chore->service->chores = chore;
    pthread_mutex_unlock(&claims->lock);
}

/* Ends what is in memory of it; what is on disk stays. */
static void leave(struct bp_chore *chore)
{
    struct bp_claims *claims = &chore->service->claims;
    pthread_mutex_lock(&claims->lock);
    struct bp_chore **place = &chore->service->chores;
    while (*place && *place != chore)
        place = &(*place)->next;
    if (*place)
        *place = chore->next;
    pthread_mutex_unlock(&claims->lock);
    bp_chore_free(chore);
}

static bool is_same(const struct bp_buf *a, const struct bp_buf *b)
{
    return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

/* How many are under way; and whether the same is, with its id. */
static size_t look_for(struct bp_service *service, const struct bp_chore *same, struct bp_digest *ret, bool *ret_found)
{
    size_t n = 0;
    *ret_found = false;
    pthread_mutex_lock(&service->claims.lock);
    for (const struct bp_chore *chore = service->chores; chore; chore = chore->next, n++)
        if (chore->on_disk && chore->kind == same->kind && is_same(&chore->request_text, &same->request_text)) {
            *ret_found = true;
            *ret = chore->id;
        }
    pthread_mutex_unlock(&service->claims.lock);
    return n;
}

size_t bp_chores_count(struct bp_service *service)
{
    size_t n = 0;
    pthread_mutex_lock(&service->claims.lock);
    for (const struct bp_chore *chore = service->chores; chore; chore = chore->next)
        n++;
    pthread_mutex_unlock(&service->claims.lock);
    return n;
}

static bool is_in_hand(struct bp_service *service, const struct bp_digest *id)
{
    bool found = false;
    pthread_mutex_lock(&service->claims.lock);
    for (const struct bp_chore *chore = service->chores; chore && !found; chore = chore->next)
        found = bp_digest_equal(&chore->id, id);
    pthread_mutex_unlock(&service->claims.lock);
    return found;
}

/* ---- Slices ---- */

int bp_chore_count(struct bp_chore *chore, int64_t from, int64_t until, struct bp_err *err)
{
    uint64_t n;
    if (bp_store_plans_count(chore->service->store, from, until, &n, err) < 0)
        return -1;
    bp_chore_tally(chore, "plans", n);
    chore->place = (struct bp_store_place){.committed_at = from - 1, .seq = INT64_MAX};
    chore->committed_at = 0; /* it is told of soon */
    return 0;
}

int bp_chore_walk(struct bp_chore *chore, int64_t until,
                  int (*visit)(struct bp_chore *chore, const struct bp_store_plan_name *plan, struct bp_err *err),
                  struct bp_err *err)
{
    const uint64_t over_at = bp_clock_ns() + BP_SLICE_NS;
    struct bp_arena arena = {0};
    const struct bp_store_plan_name *names = NULL;
    size_t n = 0, i = 0;
    int result = bp_store_plans_after(chore->service->store, &chore->place, PAGE, &arena, &names, &n, err);
    while (result == 0 && i < n && names[i].place.committed_at < until && bp_clock_ns() < over_at &&
           chore->n_divergences < BP_CHORE_DIVERGENCES_MAX) {
        result = visit(chore, &names[i], err);
        chore->place = names[i++].place;
    }
    chore->ended = result == 0 && (i < n ? names[i].place.committed_at >= until : n < PAGE);
    bp_arena_release(&arena);
    return result;
}

static void log_chore(enum bp_log_level level, const char *what, const struct bp_chore *chore, const struct bp_err *err)
{
    char id[BP_DIGEST_TEXT];
    bp_digest_format(&chore->id, id);
    bp_log(level, what,
           BP_LOG_FIELDS(BP_LOG_TEXT("kind", chore->kind->name), BP_LOG_TEXT("job", id),
                         {.key = err ? "why" : NULL, .text = err ? err->message : NULL}));
}

/* What could not be written or read now is taken up again once it can. */
static void leave_on_disk(struct bp_chore *chore, const struct bp_err *err)
{
    if (err->code != BP_E_stopping) {
        log_chore(BP_LOG_ERROR, "a job waits to be taken up again", chore, err);
        atomic_store(&chore->service->left_behind, true);
    }
    leave(chore);
}

static void push(struct bp_chore *chore)
{
    struct bp_err stopping = {0};
    if (bp_job_queue_push(&chore->service->queue, &chore->job, true, &stopping))
        leave_on_disk(chore, &stopping);
}

static void count_end(const struct bp_chore *chore, enum bp_long_job_outcome outcome)
{
    bp_metrics_count_by(chore->service->metrics, BP_COUNTERS_LONG_JOBS_ENDED, chore->kind->metric, outcome, 0);
}

/* On the writer. */
static void chore_ended(struct bp_store_unit *unit, const struct bp_err *err)
{
    struct bp_chore *chore = unit->data;
    if (err) {
        leave_on_disk(chore, err);
        return;
    }
    const bool is_done = chore->change.state == BP_STORE_JOB_DONE;
    log_chore(BP_LOG_INFO, is_done ? "a job is done" : "a job failed", chore, NULL);
    count_end(chore, is_done ? BP_LONG_DONE : BP_LONG_FAILED);
    leave(chore);
}

/* `why` NULL: it is done; else it failed. */
static void end_chore(struct bp_chore *chore, const struct bp_err *why)
{
    struct bp_writer writer = {.out = &chore->problem, .any_order = true};
    chore->change = (struct bp_store_job_change){
        .id = chore->id, .state = why ? BP_STORE_JOB_FAILED : BP_STORE_JOB_DONE, .at = bp_now_us()};
    if (why)
        bp_plan_diagnostic_write(&writer, why);
    if (why && bp_writer_finish(&writer, NULL) == 0)
        chore->change.problem = (struct bp_store_text){chore->problem.data, chore->problem.len};
    chore->unit = (struct bp_store_unit){.change = &chore->change, .done = chore_ended, .data = chore};
    bp_store_submit(chore->service->store, &chore->unit);
}

/* On the writer. */
static void slice_committed(struct bp_store_unit *unit, const struct bp_err *err)
{
    struct bp_chore *chore = unit->data;
    if (err && err->code == BP_E_internal) {
        log_chore(BP_LOG_ERROR, "a job breaks a rule of the store", chore, err);
        end_chore(chore, err);
        return;
    }
    if (err) {
        leave_on_disk(chore, err);
        return;
    }
    if (chore->collects) {
        chore->place = chore->collection.place;
        chore->ended = chore->collection.ended;
        bp_metrics_add(chore->service->metrics, BP_COUNTER_PLANS_COLLECTED, chore->collection.plans);
        if (chore->collection.plans) {
            bp_cache_forget(&chore->service->bodies);
            bp_cache_forget(&chore->service->snapshots);
        }
    }
    chore->n_tallies = chore->n_divergences = 0;
    bp_arena_release(&chore->arena);
    chore->committed_at = bp_clock_ns();
    if (chore->ended)
        end_chore(chore, NULL);
    else
        push(chore);
}

static void commit_slice(struct bp_chore *chore)
{
    chore->unit = (struct bp_store_unit){.done = slice_committed, .data = chore};
    if (chore->collects) {
        chore->unit.collection = &chore->collection;
    } else {
        chore->progress = (struct bp_store_progress){
            .job = chore->id,
            .at = bp_now_us(),
            .place = chore->place,
            .tallies = chore->tallies,
            .n_tallies = chore->n_tallies,
            .divergences = chore->divergences,
            .n_divergences = chore->n_divergences,
        };
        chore->unit.progress = &chore->progress;
    }
    bp_store_submit(chore->service->store, &chore->unit);
}

static void run_chore(struct bp_job *job, struct bp_worker *worker)
{
    struct bp_chore *chore = (struct bp_chore *)(void *)job;
    struct bp_err err = {0};
    (void)worker;
    chore->collects = false;
    if (bp_store_ready(chore->service->store, &err) < 0 || chore->kind->slice(chore, &err) < 0)
        leave_on_disk(chore, &err);
    else if (chore->collects || chore->ended || chore->n_divergences > BP_CHORE_DIVERGENCES_MAX / 2 ||
             bp_clock_ns() - chore->committed_at > commit_ns)
        commit_slice(chore);
    else
        push(chore);
}

/* On the writer: the attempt is counted. */
static void attempt_counted(struct bp_store_unit *unit, const struct bp_err *err)
{
    struct bp_chore *chore = unit->data;
    if (err)
        leave_on_disk(chore, err);
    else
        push(chore);
}

static void count_attempt(struct bp_chore *chore, void (*done)(struct bp_store_unit *unit, const struct bp_err *err),
                          void *data)
{
    chore->change = (struct bp_store_job_change){.id = chore->id, .state = BP_STORE_JOB_RUNNING, .at = bp_now_us()};
    chore->unit.change = &chore->change;
    chore->unit.done = done;
    chore->unit.data = data;
    bp_store_submit(chore->service->store, &chore->unit);
}

/* ---- Acceptance ---- */

static void fill_acceptance(struct bp_chore *chore)
{
    chore->accept = (struct bp_store_job){
        .id = chore->id,
        .kind = chore->kind->name,
        .request = {chore->request_text.data, chore->request_text.len},
        .passes = {chore->passes_text.data, chore->passes_text.len},
        .created_at = chore->created_at,
    };
    chore->unit = (struct bp_store_unit){.accept = &chore->accept};
}

/* On the writer. */
static void chore_accepted(struct bp_store_unit *unit, const struct bp_err *err)
{
    struct bp_errand *errand = unit->data;
    struct bp_chore *chore = errand->chore;
    if (err) {
        errand->chore = NULL;
        leave(chore);
        bp_errand_finish(errand, bp_problem_of(err, NULL));
        return;
    }
    struct bp_answer *answer = bp_chore_answer(chore->service, chore->kind, &chore->id, 202);
    errand->chore = NULL; /* it is on its own now */
    pthread_mutex_lock(&chore->service->claims.lock);
    chore->on_disk = true;
    pthread_mutex_unlock(&chore->service->claims.lock);
    push(chore);
    bp_errand_finish(errand, answer);
}

static struct bp_answer *run_acceptance(struct bp_errand *errand)
{
    struct bp_chore *chore = errand->chore;
    struct bp_err err = {0};
    chore->created_at = bp_now_us();
    if (bp_service_name(chore->service, chore->kind->name, chore->created_at, &chore->id, &err) < 0)
        return bp_problem_of(&err, NULL);
    enlist(chore);
    fill_acceptance(chore);
    count_attempt(chore, chore_accepted, errand);
    return NULL;
}

struct bp_answer *bp_chore_create(struct bp_service *service, const struct bp_chore_kind *kind, const char *body,
                                  size_t n, struct bp_waiter *waiter)
{
    struct bp_json_position position;
    struct bp_problems problems = {0};
    struct bp_err err = {0};
    struct bp_digest same;
    bool found = false;
    json_t *json = bp_json_parse_request(body, n, &position, &err);
    if (!json)
        return bp_problem_of(&err, &(struct bp_problem_extra){.position = &position});
    struct bp_chore *chore = chore_new(service, kind, json, &problems, &err);
    json_decref(json);
    struct bp_answer *answer = NULL;
    if (!bp_problems_none(&problems))
        answer = bp_problem(&problems, NULL);
    else if (!chore || bp_store_ready(service->store, &err))
        answer = bp_problem_of(&err, NULL);
    else if (look_for(service, chore, &same, &found) >= CHORES_MAX && !found)
        answer = bp_problem_say(BP_E_queue_full, "", "%d long jobs are under way already", CHORES_MAX);
    else if (found)
        answer = bp_chore_answer(service, kind, &same, 202);
    bp_problems_release(&problems);
    if (answer) {
        if (chore)
            bp_chore_free(chore);
        return answer;
    }
    return bp_errand_start(service, &(struct bp_errand){.run = run_acceptance, .chore = chore}, waiter);
}

/* ---- Taking up ---- */

const struct bp_chore_kind *bp_chore_kind_of(const char *name)
{
    for (size_t i = 0; i < BP_CHORE_KIND_N; i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

struct bp_chore *bp_chore_of_job(struct bp_service *service, const struct bp_chore_kind *kind,
                                 const struct bp_store_job *job, struct bp_err *err)
{
    struct bp_json_position position;
    struct bp_problems problems = {0};
    json_t *json = bp_json_parse(job->request.at ? job->request.at : "", job->request.n, &position, err);
    if (!json)
        return NULL;
    struct bp_chore *chore = chore_new(service, kind, json, &problems, err);
    if (!bp_problems_none(&problems))
        bp_fail(err, BP_E_internal, "", "the stored request of a job is none");
    bp_problems_release(&problems);
    json_decref(json);
    if (!chore)
        return NULL;
    chore->on_disk = true;
    chore->id = job->id;
    chore->created_at = job->created_at;
    chore->place = job->place;
    return chore;
}

/* On the writer. */
static void superseded(struct bp_store_unit *unit, const struct bp_err *err)
{
    struct bp_chore *chore = unit->data;
    if (err) {
        leave_on_disk(chore, err);
        return;
    }
    count_end(chore, BP_LONG_SUPERSEDED);
    chore->unit = (struct bp_store_unit){0};
    count_attempt(chore, attempt_counted, chore);
}

/* Of passes that are others now: what was found does not stand for these, so it begins anew under an id of its own. */
static int supersede(struct bp_chore *chore, struct bp_err *err)
{
    const struct bp_digest old = chore->id;
    if (bp_service_name(chore->service, chore->kind->name, bp_now_us(), &chore->id, err) < 0)
        return -1;
    chore->place = (struct bp_store_place){0};
    fill_acceptance(chore);
    chore->change = (struct bp_store_job_change){
        .id = old, .state = BP_STORE_JOB_SUPERSEDED, .superseded_by = chore->id, .at = bp_now_us()};
    chore->unit.change = &chore->change;
    chore->unit.done = superseded;
    chore->unit.data = chore;
    return 0;
}

int bp_chore_take_up(struct bp_service *service, const struct bp_store_job *job, unsigned attempts_max, bool *ret_known,
                     uint64_t *ret_taken, struct bp_err *err)
{
    struct bp_err wrong = {0};
    const struct bp_chore_kind *kind = bp_chore_kind_of(job->kind);
    *ret_known = kind != NULL;
    if (!kind || is_in_hand(service, &job->id))
        return 0;
    struct bp_chore *chore = bp_chore_of_job(service, kind, job, &wrong);
    if (!chore) {
        *ret_known = wrong.code == BP_E_out_of_memory; /* else it is given up like one of no kind */
        return *ret_known ? bp_fail(err, wrong.code, "", "%s", wrong.message) : 0;
    }
    bool same =
        job->passes.n == chore->passes_text.len && memcmp(job->passes.at, chore->passes_text.data, job->passes.n) == 0;
    enlist(chore);
    if (job->attempts >= attempts_max) {
        const struct bp_err why = {.code = BP_E_internal, .message = "it was begun twice and came no further"};
        log_chore(BP_LOG_WARNING, "a job is given up", chore, &why);
        end_chore(chore, &why);
        return 0;
    }
    ++*ret_taken;
    if (same) {
        count_attempt(chore, attempt_counted, chore);
        return 0;
    }
    if (supersede(chore, err) < 0) {
        leave(chore);
        return -1;
    }
    bp_store_submit(service->store, &chore->unit);
    return 0;
}
