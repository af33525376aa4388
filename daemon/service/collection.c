/* Collections: finished plans older than some age go, and with them what no other plan needs; and pins, which keep
 * plans. */
#include <string.h>

#include "daemon/service/chore.h"

/* A century: what is older than that is not. */
#define AGE_MAX (UINT64_C(100) * 366 * 86400)

static const char *const request_keys[] = {"older_than_seconds", "dry_run", NULL};

static void read_collection(struct bp_chore *chore, const json_t *request, struct bp_problems *problems)
{
    struct bp_reader reader = bp_reader_of(request, "", problems);
    bp_reader_refuse_unknown(&reader, request_keys);
    chore->older_than = bp_reader_uint_required(&reader, request_keys[0], 0, AGE_MAX);
    chore->dry_run = bp_reader_bool(&reader, request_keys[1], false);
}

static void write_collection(const struct bp_chore *chore, struct bp_writer *writer)
{
    bp_writer_object(writer);
    bp_writer_key(writer, request_keys[1]);
    bp_writer_bool(writer, chore->dry_run);
    bp_writer_key(writer, request_keys[0]);
    bp_writer_uint(writer, chore->older_than);
    bp_writer_end(writer);
}

static int64_t before(const struct bp_chore *chore)
{
    return chore->created_at - (int64_t)chore->older_than * 1000000;
}

/* What it would take. */
static int count_takings(struct bp_chore *chore, const struct bp_store_plan_name *plan, struct bp_err *err)
{
    struct bp_store_takings takings;
    if (bp_store_plan_takings(chore->service->store, plan, before(chore), &takings, err) < 0)
        return -1;
    bp_chore_tally(chore, "removed_plans", takings.takes);
    bp_chore_tally(chore, "removed_snapshots", takings.snapshots);
    bp_chore_tally(chore, "removed_derivations", takings.derivations);
    bp_chore_tally(chore, "removed_replays", takings.replays);
    bp_chore_tally(chore, "removed_bytes", takings.bytes);
    return 0;
}

static int slice_collection(struct bp_chore *chore, struct bp_err *err)
{
    if (chore->place.seq == 0)
        return bp_chore_count(chore, 0, before(chore), err);
    if (chore->dry_run)
        return bp_chore_walk(chore, before(chore), count_takings, err);
    chore->collects = true;
    chore->collection = (struct bp_store_collection){
        .job = chore->id, .at = bp_now_us(), .before = before(chore), .budget_ns = BP_SLICE_NS, .from = chore->place};
    return 0;
}

static int view_collection(struct bp_service *service, const struct bp_chore *chore, const struct bp_store_job *job,
                           const struct bp_store_tally_page *tallies, struct bp_arena *arena, struct bp_writer *writer,
                           struct bp_err *err)
{
    static const char *const names[] = {"plans", "snapshots", "derivations", "replays", "jobs", "bytes"};
    static const char *const removed[] = {"removed_plans",   "removed_snapshots", "removed_derivations",
                                          "removed_replays", "removed_jobs",      "removed_bytes"};
    char time[BP_TIME_TEXT];
    (void)service, (void)job, (void)arena, (void)err;
    bp_time_format(before(chore), time);
    bp_writer_key(writer, "older_than_seconds");
    bp_writer_uint(writer, chore->older_than);
    bp_writer_key(writer, "before");
    bp_writer_string(writer, time);
    bp_writer_key(writer, "dry_run");
    bp_writer_bool(writer, chore->dry_run);
    bp_writer_key(writer, "plans");
    bp_writer_uint(writer, bp_tally_of(tallies, "plans"));
    bp_writer_key(writer, "removed");
    bp_writer_object(writer);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bp_writer_key(writer, names[i]);
        bp_writer_uint(writer, bp_tally_of(tallies, removed[i]));
    }
    bp_writer_end(writer);
    return 0;
}

const struct bp_chore_kind bp_collection_kind = {
    .name = "collections",
    .metric = BP_LONG_COLLECTION,
    .progress = "removed_plans",
    .read = read_collection,
    .write = write_collection,
    .slice = slice_collection,
    .view = view_collection,
};

struct bp_answer *bp_service_collection_create(struct bp_service *service, const char *body, size_t n,
                                               struct bp_waiter *waiter)
{
    return bp_chore_create(service, &bp_collection_kind, body, n, waiter);
}

struct bp_answer *bp_service_collection_get(struct bp_service *service, const char *id)
{
    return bp_chore_get(service, &bp_collection_kind, id);
}

/* ---- Pins ---- */

static void write_pin(struct bp_writer *writer, const struct bp_store_pin *pin)
{
    char time[BP_TIME_TEXT];
    bp_time_format(pin->at, time);
    bp_writer_object(writer);
    bp_writer_key(writer, "plan");
    bp_writer_digest(writer, &pin->plan);
    bp_writer_key(writer, "pinned_at");
    bp_writer_string(writer, time);
    bp_writer_end(writer);
}

/* On the writer. */
static void pin_stored(struct bp_store_unit *unit, const struct bp_err *err)
{
    struct bp_errand *errand = unit->data;
    const struct bp_store_pin *pin = &errand->pin;
    struct bp_err found = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    struct bp_answer *answer;
    if (err)
        answer = bp_problem_of(err, NULL);
    else if (pin->missing)
        answer = bp_problem_say(BP_E_not_found, "", pin->remove ? "the plan is not pinned" : "there is no such plan");
    else if (pin->remove)
        answer = bp_answer_static(204, NULL, "", 0);
    else {
        write_pin(&writer, pin);
        answer = bp_service_written(&writer, 200, &found);
    }
    bp_errand_finish(errand, answer);
}

static struct bp_answer *run_pin(struct bp_errand *errand)
{
    errand->pin.plan = errand->plan;
    errand->pin.at = bp_now_us();
    errand->unit = (struct bp_store_unit){.pin = &errand->pin, .done = pin_stored, .data = errand};
    bp_store_submit(errand->service->store, &errand->unit);
    return NULL;
}

struct bp_answer *bp_service_pin(struct bp_service *service, const char *plan, bool remove, struct bp_waiter *waiter)
{
    struct bp_errand errand = {.run = run_pin, .pin = {.remove = remove}};
    struct bp_answer *refusal;
    if (!bp_plan_find_finished(service, plan, &errand.plan, &refusal))
        return refusal;
    return bp_errand_start(service, &errand, waiter);
}

struct bp_answer *bp_service_pin_list(struct bp_service *service, size_t limit, const char *cursor,
                                      char ret_next[BP_STORE_CURSOR_TEXT])
{
    struct bp_arena arena = {0};
    struct bp_store_pin_page page;
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    if (bp_store_pin_list(service->store, limit, cursor, &arena, &page, &err) == 0) {
        bp_writer_object(&writer);
        bp_writer_key(&writer, "pins");
        bp_writer_array(&writer);
        for (size_t i = 0; i < page.n; i++)
            write_pin(&writer, &page.pins[i]);
        bp_writer_end(&writer);
        bp_service_write_next(&writer, page.next);
        bp_writer_end(&writer);
        memcpy(ret_next, page.next, sizeof page.next);
    }
    struct bp_answer *answer = bp_service_written(&writer, 200, &err);
    bp_arena_release(&arena);
    return answer;
}
