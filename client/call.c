#include <stdio.h>
#include <string.h>

#include "client/client.h"
#include "client/print.h"
#include "common/base/json.h"

const char *bp_invocation_option(const struct bp_invocation *invocation, const char *name)
{
    for (size_t i = 0; i < invocation->n_options; i++)
        if (strcmp(invocation->options[i].name, name) == 0)
            return invocation->options[i].value;
    return NULL;
}

/* The command's path with its arguments in place. */
static void add_path(const struct bp_invocation *invocation, struct bp_buf *out)
{
    for (const char *at = invocation->command->path; *at; at++) {
        if (*at != '{') {
            bp_buf_addch(out, *at);
            continue;
        }
        size_t index = (size_t)(at[1] - '0');
        if (index >= invocation->n_arguments) {
            out->len -= out->len > 0; /* the '/' before a segment that was not given */
            return;
        }
        bp_target_escape(out, invocation->arguments[index]);
        at += 2;
    }
}

static void add_query(const struct bp_invocation *invocation, struct bp_buf *out)
{
    for (size_t i = 0; i < invocation->n_options; i++) {
        bp_buf_addf(out, "%c%s=", i ? '&' : '?', invocation->options[i].name);
        bp_target_escape(out, invocation->options[i].value);
    }
}

static void print_error(struct bp_buf *out, const json_t *error, const char *input)
{
    bp_buf_addstr(out, "  ");
    const json_t *line = json_object_get(error, "line");
    if (input && json_is_integer(line)) {
        bp_text_add(out, input);
        bp_buf_addf(out, ":%lld:%lld: ", (long long)json_integer_value(line),
                    (long long)json_integer_value(json_object_get(error, "column")));
    } else if (bp_json_text(error, "path")[0]) {
        bp_text_add(out, bp_json_text(error, "path"));
        bp_buf_addstr(out, ": ");
    }
    bp_text_add(out, bp_json_text(error, "code"));
    bp_buf_addstr(out, ": ");
    bp_text_add(out, bp_json_text(error, "message"));
    bp_buf_addch(out, '\n');
}

/* What a problem may say beside its errors. */
static void print_extras(struct bp_buf *out, const json_t *problem)
{
    const json_t *candidates = json_object_get(problem, "candidates");
    for (size_t i = 0; i < json_array_size(candidates); i++) {
        bp_buf_addstr(out, i ? "             " : "  candidates ");
        bp_text_add_value(out, json_array_get(candidates, i));
        bp_buf_addch(out, '\n');
    }
    const json_t *model = json_object_get(problem, "model");
    if (json_is_object(model)) {
        bp_buf_addstr(out, "  the model, ");
        bp_text_add(out, bp_json_text(model, "family"));
        bp_buf_addstr(out, ", has ");
        bp_text_add_value(out, json_object_get(model, "parameters"));
        bp_buf_addstr(out, " parameters\n");
    }
}

static void print_refusal(struct bp_buf *out, const json_t *problem, long status, const char *input)
{
    bp_buf_addf(out, "blueprint: the server answered %ld ", status);
    bp_text_add(out, bp_json_text(problem, "code"));
    bp_buf_addstr(out, ": ");
    bp_text_add(out, bp_json_text(problem, "title"));
    bp_buf_addch(out, '\n');
    const json_t *errors = json_object_get(problem, "errors");
    for (size_t i = 0; i < json_array_size(errors); i++)
        print_error(out, json_array_get(errors, i), input);
    if (json_array_size(errors) == 0 && bp_json_text(problem, "detail")[0]) {
        bp_buf_addstr(out, "  ");
        bp_text_add(out, bp_json_text(problem, "detail"));
        bp_buf_addch(out, '\n');
    }
    print_extras(out, problem);
}

/* A rejected plan is an answer: it has an id and can be shown. */
static bool is_rejection(const struct bp_reply *answer, const json_t *json)
{
    return answer->status == 422 && json_object_get(json, "plan");
}

static enum bp_exit print_rejection(struct bp_buf *out, const json_t *problem)
{
    bp_print_field(out, "plan", json_object_get(problem, "plan"));
    bp_buf_addstr(out, "state        rejected\n\ndiagnostics\n");
    const json_t *errors = json_object_get(problem, "errors");
    for (size_t i = 0; i < json_array_size(errors); i++)
        print_error(out, json_array_get(errors, i), NULL);
    return BP_EXIT_NO;
}

enum bp_exit bp_invocation_call(const struct bp_invocation *invocation, const struct bp_buf *body, struct bp_reply *ret)
{
    struct bp_buf target = {0};
    add_path(invocation, &target);
    add_query(invocation, &target);
    const char *text = bp_buf_string(&target);
    struct bp_err err = {0};
    if (!text[0])
        bp_fail(&err, BP_E_out_of_memory, "", "%s", "out of memory");
    else if (bp_server_call(invocation->server, invocation->command->method, text, body, ret, &err) == 0)
        err.code = BP_OK;
    bp_buf_release(&target);
    if (err.code == BP_OK)
        return BP_EXIT_YES;
    return bp_complain(err.code == BP_E_out_of_memory ? BP_EXIT_LOCAL : BP_EXIT_UNREACHED, "%s", err.message);
}

/* The server, or what it allows this caller, is full: the same may be asked later. */
static enum bp_exit exit_of(long status)
{
    return status == 503 || status == 429 ? BP_EXIT_UNREACHED : BP_EXIT_REFUSED;
}

enum bp_exit bp_reply_parse(const struct bp_reply *answer, json_t **ret)
{
    struct bp_json_position position;
    struct bp_err err = {0};
    *ret = bp_json_parse(answer->body.data, answer->body.len, &position, &err);
    if (json_is_object(*ret))
        return BP_EXIT_YES;
    json_decref(*ret);
    *ret = NULL;
    if (err.code == BP_E_out_of_memory)
        return bp_complain(BP_EXIT_LOCAL, "out of memory");
    if (answer->status < 300)
        return bp_complain(BP_EXIT_UNREACHED, "the answer is not a JSON object: is this a blueprintd?");
    bp_complain(BP_EXIT_REFUSED, "the server answered %ld without saying why", answer->status);
    return exit_of(answer->status);
}

/* The answer as text; its status. A refusal's text is not for standard output. */
static enum bp_exit print_reply(struct bp_buf *out, const struct bp_invocation *invocation,
                                const struct bp_reply *answer, const json_t *json, const char *input)
{
    if (answer->status < 300)
        return invocation->command->print(out, json);
    if (is_rejection(answer, json))
        return print_rejection(out, json);
    print_refusal(out, json, answer->status, input);
    return exit_of(answer->status);
}

enum bp_exit bp_reply_print(const struct bp_invocation *invocation, struct bp_reply *answer, const char *input)
{
    struct bp_buf out = {0};
    json_t *json;
    enum bp_exit status = bp_reply_parse(answer, &json);
    bool parsed = status == BP_EXIT_YES;
    if (parsed)
        status = print_reply(&out, invocation, answer, json, input);
    if (invocation->json)
        status = bp_print_raw(answer->body.data, answer->body.len, out.failed ? BP_EXIT_LOCAL : status);
    else if (parsed && (answer->status < 300 || is_rejection(answer, json)))
        status = bp_print_text(&out, status);
    else
        fputs(bp_buf_string(&out), stderr);
    json_decref(json);
    bp_buf_release(&out);
    bp_buf_release(&answer->body);
    return status;
}

enum bp_exit bp_run_call(const struct bp_invocation *invocation)
{
    struct bp_reply answer = {0};
    enum bp_exit status = bp_invocation_call(invocation, NULL, &answer);
    return status != BP_EXIT_YES ? status : bp_reply_print(invocation, &answer, NULL);
}
