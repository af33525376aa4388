/* admin: what those who operate the daemon ask of it. */
#include "client/admin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/print.h"

/* How long between two looks at what the daemon is doing; it grows to the second. */
enum { LOOK_MS = 20, LOOK_MOST_MS = 500 };

enum bp_exit bp_admin_ask(const struct bp_invocation *invocation, const char *method, const char *path,
                          const char *argument, const struct bp_buf *body, json_t **ret)
{
    const struct bp_command command = {.name = invocation->command->name, .method = method, .path = path};
    struct bp_invocation call = *invocation;
    struct bp_reply answer = {0};
    call.command = &command;
    call.n_options = 0;
    call.n_arguments = argument != NULL;
    call.arguments[0] = argument;
    *ret = NULL;
    enum bp_exit status = bp_invocation_call(&call, body, &answer);
    if (status == BP_EXIT_YES && answer.status >= 300)
        return bp_reply_print(&call, &answer, NULL);
    if (status == BP_EXIT_YES && answer.body.len)
        status = bp_reply_parse(&answer, ret);
    bp_buf_release(&answer.body);
    return status;
}

void bp_admin_wait(unsigned *ms)
{
    *ms = *ms ? *ms : LOOK_MS;
    nanosleep(&(struct timespec){.tv_sec = *ms / 1000, .tv_nsec = *ms % 1000 * 1000000L}, NULL);
    *ms = *ms * 2 < LOOK_MOST_MS ? *ms * 2 : LOOK_MOST_MS;
}

void bp_admin_progress(const char *what, const json_t *done, const json_t *all)
{
    if (!isatty(STDERR_FILENO))
        return;
    struct bp_buf line = {0};
    bp_text_add(&line, what);
    if (done && all) {
        bp_buf_addch(&line, ' ');
        bp_text_add_value(&line, done);
        bp_buf_addstr(&line, " of ");
        bp_text_add_value(&line, all);
    }
    fprintf(stderr, "\r%-60s%s", bp_buf_string(&line), *what ? "" : "\r");
    fflush(stderr);
    bp_buf_release(&line);
}

enum bp_exit bp_admin_print(const struct bp_invocation *invocation, const json_t *answer)
{
    struct bp_buf out = {0};
    enum bp_exit status = invocation->command->print(&out, answer);
    if (!invocation->json)
        return bp_print_text(&out, status);
    bp_buf_release(&out);
    char *text = json_dumps(answer, JSON_COMPACT);
    status = text ? bp_print_raw(text, strlen(text), status) : bp_complain(BP_EXIT_LOCAL, "out of memory");
    free(text);
    return status;
}

/* ---- pin, unpin, pins ---- */

enum bp_exit bp_run_pin(const struct bp_invocation *invocation)
{
    json_t *answer = NULL;
    enum bp_exit status = bp_admin_ask(invocation, invocation->command->method, invocation->command->path,
                                       invocation->arguments[0], NULL, &answer);
    struct bp_buf out = {0};
    if (status == BP_EXIT_YES && answer && invocation->json) {
        char *text = json_dumps(answer, JSON_COMPACT);
        status = text ? bp_print_raw(text, strlen(text), status) : bp_complain(BP_EXIT_LOCAL, "out of memory");
        free(text);
    } else if (status == BP_EXIT_YES && answer) {
        bp_print_field(&out, "plan", json_object_get(answer, "plan"));
        bp_print_field(&out, "pinned", json_object_get(answer, "pinned_at"));
        status = bp_print_text(&out, status);
    }
    json_decref(answer);
    return status;
}

static const struct bp_table_column pin_columns[] = {
    {"plan", "plan", false, NULL},
    {"pinned", "pinned_at", false, NULL},
};

static void print_more(struct bp_buf *out, const json_t *answer)
{
    const json_t *next = json_object_get(answer, "next");
    if (json_is_string(next)) {
        bp_buf_addstr(out, "more: --cursor ");
        bp_text_add_value(out, next);
        bp_buf_addch(out, '\n');
    }
}

enum bp_exit bp_print_pins(struct bp_buf *out, const json_t *answer)
{
    const json_t *pins = json_object_get(answer, "pins");
    if (json_array_size(pins) == 0)
        bp_buf_addstr(out, "no pins\n");
    BP_PRINT_TABLE(out, pins, pin_columns);
    print_more(out, answer);
    return BP_EXIT_YES;
}

/* ---- jobs ---- */

static void cell_request(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    const json_t *request = json_object_get(row->value, key);
    const json_t *age = json_object_get(request, "older_than_seconds");
    if (age) {
        bp_buf_addstr(out, "older than ");
        bp_text_add_value(out, age);
        bp_buf_addstr(out, json_is_true(json_object_get(request, "dry_run")) ? " s, dry run" : " s");
    } else {
        const char *since = bp_json_text(request, "since");
        bp_buf_addstr(out, *since ? "since " : "-");
        bp_text_add(out, since);
    }
}

static void cell_why(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    const char *why = bp_json_text(json_object_get(row->value, key), "message");
    bp_text_add(out, *why ? why : "-");
}

static const struct bp_table_column job_columns[] = {
    {"job", "id", false, NULL},
    {"kind", "kind", false, NULL},
    {"of plans", "request", false, cell_request},
    {"accepted", "created_at", false, NULL},
    {"state", "state", false, NULL},
    {"done", "done", true, NULL},
    {"plans", "plans", true, NULL},
    {"because", "problem", false, cell_why},
};

enum bp_exit bp_print_jobs(struct bp_buf *out, const json_t *answer)
{
    const json_t *jobs = json_object_get(answer, "jobs");
    if (json_array_size(jobs) == 0)
        bp_buf_addstr(out, "no jobs\n");
    BP_PRINT_TABLE(out, jobs, job_columns);
    print_more(out, answer);
    return BP_EXIT_YES;
}

/* ---- Jobs ---- */

static bool is_over(const json_t *job)
{
    const char *state = bp_json_text(job, "state");
    return strcmp(state, "queued") != 0 && strcmp(state, "running") != 0;
}

/* Looks at the job until it is over, or once; follows what superseded it. `*job` is how it stands then. */
static enum bp_exit follow(const struct bp_invocation *invocation, const char *path, bool wait, const char *counted,
                           json_t **job)
{
    unsigned ms = 0;
    while (wait && (!is_over(*job) || bp_json_text(*job, "superseded_by")[0])) {
        const char *next_id = bp_json_text(*job, "superseded_by");
        json_t *next;
        const json_t *done = json_object_get(*job, counted), *parts = json_object_get(*job, "removed");
        bp_admin_progress(invocation->command->name, done ? done : json_object_get(parts, counted),
                          json_object_get(*job, "plans"));
        bp_admin_wait(&ms);
        enum bp_exit status =
            bp_admin_ask(invocation, "GET", path, *next_id ? next_id : bp_json_text(*job, "id"), NULL, &next);
        if (status != BP_EXIT_YES)
            return status;
        json_decref(*job);
        *job = next;
    }
    bp_admin_progress("", NULL, NULL);
    return BP_EXIT_YES;
}

/* ---- gc ---- */

/* "90d" in seconds. */
static bool read_age(const char *text, unsigned long long *ret)
{
    static const struct {
        char unit;
        unsigned long long seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 7 * 86400}};
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 10 || !text[n] || text[n + 1])
        return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (units[i].unit == text[n]) {
            *ret = strtoull(text, NULL, 10) * units[i].seconds;
            return true;
        }
    return false;
}

enum bp_exit bp_run_collection(const struct bp_invocation *invocation)
{
    const char *age = bp_invocation_option(invocation, "older-than");
    bool dry_run = bp_invocation_option(invocation, "dry-run") != NULL;
    unsigned long long seconds;
    struct bp_buf body = {0};
    json_t *job = NULL;
    if (!age)
        return bp_complain(BP_EXIT_USAGE, "--older-than says which plans go: 90d, 12h");
    if (!read_age(age, &seconds))
        return bp_complain(BP_EXIT_USAGE, "%s is no age: a number with s, m, h, d or w", age);
    bp_buf_addf(&body, "{\"older_than_seconds\":%llu,\"dry_run\":%s}", seconds, dry_run ? "true" : "false");
    enum bp_exit status = bp_admin_ask(invocation, "POST", "/v1/admin/collections", NULL, &body, &job);
    if (status == BP_EXIT_YES)
        status = follow(invocation, "/v1/admin/collections/{0}", true, "plans", &job);
    if (status == BP_EXIT_YES)
        status = bp_admin_print(invocation, job);
    json_decref(job);
    bp_buf_release(&body);
    return status;
}

enum bp_exit bp_print_collection(struct bp_buf *out, const json_t *answer)
{
    static const char *const keys[] = {"plans", "snapshots", "derivations", "replays", "jobs", "bytes"};
    const json_t *removed = json_object_get(answer, "removed");
    const char *state = bp_json_text(answer, "state");
    bp_print_field(out, "collection", json_object_get(answer, "id"));
    bp_print_field(out, "state", json_object_get(answer, "state"));
    bp_print_field(out, "before", json_object_get(answer, "before"));
    bp_print_field(out, "because", json_object_get(json_object_get(answer, "problem"), "message"));
    bp_print_field(out, "older plans", json_object_get(answer, "plans"));
    bp_buf_addstr(out, json_is_true(json_object_get(answer, "dry_run")) ? "\nwould go\n" : "\nremoved\n");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        bp_print_field(out, keys[i], json_object_get(removed, keys[i]));
    return strcmp(state, "failed") == 0 ? BP_EXIT_NO : BP_EXIT_YES;
}

/* ---- replay-all ---- */

/* All pages of the job's divergences into its member of that name. */
static enum bp_exit add_divergences(const struct bp_invocation *invocation, json_t *job)
{
    json_t *all = json_array();
    struct bp_buf path = {0};
    char cursor[512] = "";
    enum bp_exit status = all ? BP_EXIT_YES : bp_complain(BP_EXIT_LOCAL, "out of memory");
    do {
        json_t *page = NULL;
        bp_buf_clear(&path);
        bp_buf_addf(&path, "/v1/admin/replays/{0}/divergences?limit=500%s", *cursor ? "&cursor=" : "");
        bp_target_escape(&path, cursor);
        if (status == BP_EXIT_YES)
            status = bp_admin_ask(invocation, "GET", bp_buf_string(&path), bp_json_text(job, "id"), NULL, &page);
        if (json_array_extend(all, json_object_get(page, "divergences")) && status == BP_EXIT_YES)
            status = bp_complain(BP_EXIT_LOCAL, "out of memory");
        snprintf(cursor, sizeof cursor, "%s", bp_json_text(page, "next"));
        json_decref(page);
    } while (*cursor && status == BP_EXIT_YES);
    bp_buf_release(&path);
    if (json_object_set_new(job, "divergences", all) && status == BP_EXIT_YES)
        status = bp_complain(BP_EXIT_LOCAL, "out of memory");
    return status;
}

static enum bp_exit begin_history(const struct bp_invocation *invocation, json_t **ret)
{
    const char *since = bp_invocation_option(invocation, "since");
    struct bp_buf body = {0};
    json_t *request = json_object();
    bool failed = !request || (since && json_object_set_new(request, "since", json_string(since)));
    char *text = failed ? NULL : json_dumps(request, JSON_COMPACT);
    json_decref(request);
    if (!text)
        return bp_complain(BP_EXIT_USAGE, "%s is no time", since ? since : "");
    bp_buf_addstr(&body, text);
    free(text);
    enum bp_exit status = bp_admin_ask(invocation, "POST", "/v1/admin/replays", NULL, &body, ret);
    bp_buf_release(&body);
    return status;
}

enum bp_exit bp_run_history(const struct bp_invocation *invocation)
{
    static const char path[] = "/v1/admin/replays/{0}";
    bool wait = bp_invocation_option(invocation, "wait") != NULL, is_new = invocation->n_arguments == 0;
    json_t *job = NULL;
    if (!is_new && bp_invocation_option(invocation, "since"))
        return bp_complain(BP_EXIT_USAGE, "--since goes with a new replay, not with ID");
    enum bp_exit status = is_new ? begin_history(invocation, &job)
                                 : bp_admin_ask(invocation, "GET", path, invocation->arguments[0], NULL, &job);
    if (status == BP_EXIT_YES)
        status = follow(invocation, path, wait, "checked", &job);
    if (status == BP_EXIT_YES)
        status = add_divergences(invocation, job);
    if (status == BP_EXIT_YES)
        status = bp_admin_print(invocation, job);
    json_decref(job);
    return status;
}

static const struct bp_table_column group_columns[] = {
    {"pass", "pass", false, bp_cell_or_dash},
    {"revision", "revision", true, bp_cell_or_dash},
    {"now", "current_revision", true, bp_cell_or_dash},
    {"check that finds something else", "check", false, bp_cell_or_dash},
    {"plans", "plans", true, NULL},
};

static void cell_checks(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    const json_t *checks = json_object_get(row->value, key);
    for (size_t i = 0; i < json_array_size(checks); i++) {
        bp_buf_addstr(out, i ? ", " : "");
        bp_text_add(out, bp_json_text(json_array_get(checks, i), "check"));
    }
    if (json_array_size(checks) == 0)
        bp_buf_addch(out, '-');
}

static void cell_state(struct bp_buf *out, const struct bp_table_row *row, const char *key)
{
    const char *then = bp_json_text(row->value, "state"), *now = bp_json_text(row->value, key);
    bp_text_add(out, then);
    if (strcmp(then, now) != 0) {
        bp_buf_addstr(out, ", now ");
        bp_text_add(out, *now ? now : "unreadable");
    }
}

static const struct bp_table_column divergence_columns[] = {
    {"plan", "plan", false, NULL},
    {"state", "state_now", false, cell_state},
    {"stage", "stage", false, bp_cell_or_dash},
    {"differs at", "first_difference", false, bp_cell_or_dash},
    {"because", "code", false, bp_cell_or_dash},
    {"checks", "checks", false, cell_checks},
};

/* The divergences that begin at one pass at one revision. */
static bool begins_like(const json_t *a, const json_t *b)
{
    return json_equal(json_object_get(a, "pass"), json_object_get(b, "pass")) &&
           json_equal(json_object_get(a, "revision"), json_object_get(b, "revision"));
}

/* One divergence of each pass and revision, in the order in which they were found. */
static json_t *firsts_of(const json_t *divergences)
{
    json_t *firsts = json_array();
    for (size_t i = 0; i < json_array_size(divergences); i++) {
        json_t *divergence = json_array_get(divergences, i);
        size_t j = 0;
        while (j < json_array_size(firsts) && !begins_like(json_array_get(firsts, j), divergence))
            j++;
        if (j == json_array_size(firsts))
            json_array_append(firsts, divergence);
    }
    return firsts;
}

static void print_alike(struct bp_buf *out, const json_t *divergences, const json_t *first)
{
    json_t *alike = json_array();
    for (size_t i = 0; i < json_array_size(divergences); i++) {
        json_t *divergence = json_array_get(divergences, i);
        if (begins_like(divergence, first) && json_array_append(alike, divergence))
            out->failed = true;
    }
    bp_buf_addch(out, '\n');
    bp_text_add(out, bp_json_text(first, "pass")[0] ? bp_json_text(first, "pass") : "before any pass");
    if (json_is_integer(json_object_get(first, "revision"))) {
        bp_buf_addstr(out, ", revision ");
        bp_text_add_value(out, json_object_get(first, "revision"));
    }
    bp_buf_addch(out, '\n');
    BP_PRINT_TABLE(out, alike, divergence_columns);
    json_decref(alike);
}

enum bp_exit bp_print_history(struct bp_buf *out, const json_t *answer)
{
    static const char *const keys[][2] = {
        {"replay", "id"},           {"state", "state"},         {"superseded by", "superseded_by"},
        {"since", "since"},         {"plans", "plans"},         {"checked", "checked"},
        {"identical", "identical"}, {"divergent", "divergent"}, {"skipped", "skipped"},
    };
    const json_t *divergences = json_object_get(answer, "divergences"), *groups = json_object_get(answer, "groups");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        bp_print_field(out, keys[i][0], json_object_get(answer, keys[i][1]));
    bp_print_field(out, "because", json_object_get(json_object_get(answer, "problem"), "message"));
    if (json_array_size(groups))
        bp_buf_addch(out, '\n');
    BP_PRINT_TABLE(out, groups, group_columns);
    json_t *firsts = firsts_of(divergences);
    for (size_t i = 0; i < json_array_size(firsts); i++)
        print_alike(out, divergences, json_array_get(firsts, i));
    json_decref(firsts);
    return json_integer_value(json_object_get(answer, "divergent")) > 0 ||
                   strcmp(bp_json_text(answer, "state"), "failed") == 0
               ? BP_EXIT_NO
               : BP_EXIT_YES;
}
