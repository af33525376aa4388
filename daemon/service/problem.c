#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/canon.h"
#include "daemon/service/answer.h"

/* Which of several codes speaks for them all. */
static enum bp_code leading_code(const struct bp_err *errors, size_t n, const struct bp_problem_extra *extra)
{
    if (n == 1)
        return errors[0].code;
    for (size_t i = 0; i < n; i++)
        if (bp_code_kind(errors[i].code) != BP_KIND_INPUT)
            return errors[i].code;
    return extra->when_many ? extra->when_many : BP_E_invalid_request;
}

static int status_of(const struct bp_err *errors, size_t n, enum bp_code code)
{
    if (code != BP_E_invalid_request)
        return bp_code_status(code);
    for (size_t i = 0; i < n; i++)
        if (bp_code_status(errors[i].code) == 400)
            return 400;
    return 422;
}

static void member(struct bp_writer *writer, const char *key, const char *text)
{
    bp_writer_key(writer, key);
    bp_writer_string(writer, text);
}

static void number_member(struct bp_writer *writer, const char *key, uint64_t number)
{
    bp_writer_key(writer, key);
    bp_writer_uint(writer, number);
}

static void write_error(struct bp_writer *writer, const struct bp_err *error, const struct bp_json_position *position)
{
    bp_writer_object(writer);
    member(writer, "path", error->path);
    member(writer, "code", bp_code_name(error->code));
    member(writer, "message", error->message);
    if (position) {
        number_member(writer, "line", (uint64_t)position->line);
        number_member(writer, "column", (uint64_t)position->column);
    }
    bp_writer_end(writer);
}

static void write_extra(struct bp_writer *writer, const struct bp_problem_extra *extra)
{
    if (extra->plan) {
        bp_writer_key(writer, "plan");
        bp_writer_digest(writer, extra->plan);
    }
    if (extra->candidates) {
        bp_writer_key(writer, "candidates");
        bp_writer_array(writer);
        for (size_t i = 0; i < extra->n_candidates; i++)
            bp_writer_digest(writer, &extra->candidates[i]);
        bp_writer_end(writer);
    }
    if (extra->probes) {
        bp_writer_key(writer, "probes");
        bp_writer_raw(writer, extra->probes, strlen(extra->probes));
    }
    if (extra->family) {
        bp_writer_key(writer, "model");
        bp_writer_object(writer);
        member(writer, "family", extra->family);
        bp_writer_key(writer, "parameters");
        bp_writer_decimal(writer, extra->parameters);
        bp_writer_end(writer);
    }
}

static void write_problem(struct bp_writer *writer, const struct bp_err *errors, size_t n, size_t n_dropped,
                          enum bp_code code, int status, const struct bp_problem_extra *extra)
{
    char type[96], detail[64];
    snprintf(type, sizeof type, "urn:blueprint:error:%s", bp_code_name(code));
    snprintf(detail, sizeof detail, n_dropped ? "%zu problems, of which the first %zu are listed" : "%zu problems",
             n + n_dropped, n);
    bp_writer_object(writer);
    member(writer, "type", type);
    member(writer, "title", bp_code_title(code));
    number_member(writer, "status", (uint64_t)status);
    member(writer, "detail", n == 1 ? errors[0].message : detail);
    member(writer, "code", bp_code_name(code));
    bp_writer_key(writer, "errors");
    bp_writer_array(writer);
    for (size_t i = 0; i < n; i++)
        write_error(writer, &errors[i], extra->position);
    bp_writer_end(writer);
    write_extra(writer, extra);
    bp_writer_end(writer);
}

static struct bp_answer *problem_of_list(const struct bp_err *errors, size_t n, size_t n_dropped,
                                         const struct bp_problem_extra *extra)
{
    static const struct bp_problem_extra nothing;
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    if (!extra)
        extra = &nothing;
    enum bp_code code = leading_code(errors, n, extra);
    int status = status_of(errors, n, code);
    write_problem(&writer, errors, n, n_dropped, code, status, extra);
    /* A text that the writer refuses (a message that is not UTF-8) is ours to answer for. */
    if (bp_writer_finish(&writer, NULL) && !body.failed) {
        static const struct bp_err broken = {.code = BP_E_internal, .message = "the problem could not be written"};
        bp_buf_clear(&body);
        return problem_of_list(&broken, 1, 0, NULL);
    }
    struct bp_answer *answer = bp_answer_new(status, BP_MEDIA_PROBLEM, &body);
    if (!bp_answer_is_standing(answer)) {
        answer->code = code;
        answer->retry_after = status == 503 ? 1 : 0;
        answer->allow = extra->allow;
    }
    return answer;
}

struct bp_answer *bp_problem(const struct bp_problems *problems, const struct bp_problem_extra *extra)
{
    static const struct bp_err lost = {.code = BP_E_out_of_memory, .message = "no memory for the list of problems"};
    if (problems->out_of_memory || problems->n == 0)
        return problem_of_list(&lost, 1, 0, NULL);
    return problem_of_list(problems->at, problems->n, problems->n_dropped, extra);
}

struct bp_answer *bp_problem_of(const struct bp_err *err, const struct bp_problem_extra *extra)
{
    return problem_of_list(err, 1, 0, extra);
}

struct bp_answer *bp_problem_say(enum bp_code code, const char *path, const char *format, ...)
{
    struct bp_err err = {.code = code};
    va_list args;
    snprintf(err.path, sizeof err.path, "%s", path);
    va_start(args, format);
    vsnprintf(err.message, sizeof err.message, format, args);
    va_end(args);
    return bp_problem_of(&err, NULL);
}
