/* How long work is told of. */
#include <stdio.h>
#include <string.h>

#include "daemon/service/chore.h"

static void write_time(struct bp_writer *writer, const char *key, int64_t microseconds)
{
    char text[BP_TIME_TEXT];
    bp_time_format(microseconds, text);
    bp_writer_key(writer, key);
    bp_writer_string(writer, text);
}

/* What every job has. */
static void write_job(struct bp_writer *writer, const struct bp_store_job *job)
{
    bp_writer_key(writer, "id");
    bp_writer_digest(writer, &job->id);
    bp_writer_put_string(writer, "state", bp_store_job_state_names[job->state]);
    write_time(writer, "created_at", job->created_at);
    write_time(writer, "updated_at", job->updated_at);
    if (job->has_superseded_by) {
        bp_writer_key(writer, "superseded_by");
        bp_writer_digest(writer, &job->superseded_by);
    }
    if (job->problem.at) {
        bp_writer_key(writer, "problem");
        bp_writer_raw(writer, job->problem.at, job->problem.n);
    }
}

static int write_chore(struct bp_service *service, const struct bp_chore_kind *kind, const struct bp_store_job *job,
                       struct bp_arena *arena, struct bp_writer *writer, struct bp_err *err)
{
    struct bp_store_tally_page tallies;
    struct bp_chore *chore = bp_chore_of_job(service, kind, job, err);
    if (!chore || bp_store_tallies(service->store, job->seq, arena, &tallies, err) < 0) {
        if (chore)
            bp_chore_free(chore);
        return -1;
    }
    bp_writer_object(writer);
    write_job(writer, job);
    int result = kind->view(service, chore, job, &tallies, arena, writer, err);
    bp_writer_end(writer);
    bp_chore_free(chore);
    return result;
}

static struct bp_answer *answer_of(struct bp_service *service, const struct bp_chore_kind *kind,
                                   const struct bp_store_job *job, int status)
{
    struct bp_arena arena = {0};
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    write_chore(service, kind, job, &arena, &writer, &err);
    struct bp_answer *answer = bp_service_written(&writer, status, &err);
    if (status == 202 && answer->status == 202) {
        char id[BP_DIGEST_TEXT];
        bp_digest_format(&job->id, id);
        snprintf(answer->location, sizeof answer->location, "/v1/admin/%s/%s", kind->name, id);
    }
    bp_arena_release(&arena);
    return answer;
}

struct bp_answer *bp_chore_answer(struct bp_service *service, const struct bp_chore_kind *kind,
                                  const struct bp_digest *id, int status)
{
    struct bp_arena arena = {0};
    struct bp_store_job job;
    struct bp_err err = {0};
    struct bp_answer *answer = bp_store_job_read(service->store, id, &arena, &job, &err)
                                   ? bp_problem_of(&err, NULL)
                                   : answer_of(service, kind, &job, status);
    bp_arena_release(&arena);
    return answer;
}

bool bp_chore_find(struct bp_service *service, const struct bp_chore_kind *kind, const char *text,
                   struct bp_arena *arena, struct bp_store_job *ret, struct bp_answer **ret_refusal)
{
    struct bp_digest id;
    struct bp_err err = {0};
    if (!bp_service_find(service, BP_STORE_JOBS, text, &id, ret_refusal))
        return false;
    if (bp_store_job_read(service->store, &id, arena, ret, &err) == 0 && strcmp(ret->kind, kind->name) != 0)
        bp_fail(&err, BP_E_not_found, "", "that is a job of another kind");
    if (err.code == BP_OK)
        return true;
    *ret_refusal = bp_problem_of(&err, NULL);
    return false;
}

struct bp_answer *bp_chore_get(struct bp_service *service, const struct bp_chore_kind *kind, const char *text)
{
    struct bp_arena arena = {0};
    struct bp_store_job job;
    struct bp_answer *answer;
    if (bp_chore_find(service, kind, text, &arena, &job, &answer))
        answer = answer_of(service, kind, &job, 200);
    bp_arena_release(&arena);
    return answer;
}

/* ---- The list ---- */

/* One of a kind that a later version knows is told of as well. */
static int write_row(struct bp_service *service, const struct bp_store_job *job, struct bp_arena *arena,
                     struct bp_writer *writer, struct bp_err *err)
{
    const struct bp_chore_kind *kind = bp_chore_kind_of(job->kind);
    struct bp_store_tally_page tallies;
    if (bp_store_tallies(service->store, job->seq, arena, &tallies, err) < 0)
        return -1;
    bp_writer_object(writer);
    bp_writer_put_string(writer, "kind", job->kind);
    bp_writer_key(writer, "request");
    bp_writer_raw(writer, job->request.at, job->request.n);
    write_job(writer, job);
    bp_writer_put_uint(writer, "plans", bp_tally_of(&tallies, "plans"));
    bp_writer_put_uint(writer, "done", kind ? bp_tally_of(&tallies, kind->progress) : 0);
    bp_writer_end(writer);
    return 0;
}

struct bp_answer *bp_service_job_list(struct bp_service *service, size_t limit, const char *cursor,
                                      char ret_next[BP_STORE_CURSOR_TEXT])
{
    struct bp_arena arena = {0};
    struct bp_store_job_page page;
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    int result = bp_store_job_list(service->store, limit, cursor, &arena, &page, &err);
    if (result == 0) {
        bp_writer_object(&writer);
        bp_writer_key(&writer, "jobs");
        bp_writer_array(&writer);
        for (size_t i = 0; i < page.n && result == 0; i++)
            result = write_row(service, &page.jobs[i], &arena, &writer, &err);
        bp_writer_end(&writer);
        bp_service_write_next(&writer, page.next);
        bp_writer_end(&writer);
        memcpy(ret_next, page.next, sizeof page.next);
    }
    struct bp_answer *answer = bp_service_written(&writer, 200, &err);
    bp_arena_release(&arena);
    return answer;
}
