/* Plans as JSON: the record, and the answers made of it. */
#include <string.h>

#include "daemon/service/internal.h"

static void write_time(struct bp_writer *writer, const char *key, int64_t microseconds)
{
    char text[BP_TIME_TEXT];
    bp_time_format(microseconds, text);
    bp_writer_key(writer, key);
    bp_writer_string(writer, text);
}

static void write_raw(struct bp_writer *writer, const char *key, const struct bp_store_text *text)
{
    if (!text->at)
        return;
    bp_writer_key(writer, key);
    bp_writer_raw(writer, text->at, text->n);
}

static void write_snapshots(struct bp_writer *writer, const struct bp_store_plan *plan)
{
    bp_writer_key(writer, "snapshots");
    bp_writer_array(writer);
    for (size_t i = 0; i < plan->n_snapshots; i++)
        bp_plan_snapshot_write(writer, plan->snapshots[i].stage, &plan->snapshots[i].digest, plan->snapshots[i].schema,
                               plan->snapshots[i].bytes);
    bp_writer_end(writer);
}

static void write_derivations(struct bp_writer *writer, const struct bp_store_plan *plan)
{
    bp_writer_key(writer, "derivations");
    bp_writer_array(writer);
    for (size_t i = 0; i < plan->n_derivations; i++) {
        const struct bp_store_derivation *derivation = &plan->derivations[i];
        bp_plan_derivation_begin(writer, derivation->pass, derivation->revision, &derivation->source,
                                 &derivation->target);
        for (size_t j = 0; j < derivation->n_evidence; j++)
            bp_plan_evidence_write(writer, derivation->evidence[j].check, derivation->evidence[j].kind,
                                   derivation->evidence[j].verdict, derivation->evidence[j].compared);
        bp_writer_end(writer);
        bp_writer_end(writer);
    }
    bp_writer_end(writer);
}

void bp_record_write(struct bp_writer *writer, const struct bp_store_plan *plan, bool with_derivations)
{
    bp_writer_object(writer);
    bp_writer_key(writer, "id");
    bp_writer_digest(writer, &plan->id);
    bp_writer_key(writer, "state");
    bp_writer_string(writer, bp_store_plan_state_names[plan->state]);
    write_time(writer, "created_at", plan->created_at);
    if (plan->state == BP_STORE_COMMITTED) {
        write_time(writer, "committed_at", plan->committed_at);
    } else {
        bp_writer_key(writer, "committed_at");
        bp_writer_null(writer);
    }
    bp_writer_key(writer, "model");
    bp_plan_model_write(writer, plan->model, plan->parameters);
    bp_writer_key(writer, "mode");
    bp_writer_string(writer, plan->mode);
    write_snapshots(writer, plan);
    if (with_derivations)
        write_derivations(writer, plan);
    write_raw(writer, "facts", &plan->facts);
    write_raw(writer, "diagnostics", &plan->diagnostics);
    bp_writer_end(writer);
}

void bp_record_view_write(struct bp_writer *writer, const struct bp_claim_view *view)
{
    bp_writer_object(writer);
    bp_writer_key(writer, "id");
    bp_writer_digest(writer, &view->id);
    bp_writer_key(writer, "state");
    bp_writer_string(writer, bp_plan_state_names[view->state]);
    write_time(writer, "created_at", view->created_at);
    bp_writer_key(writer, "committed_at");
    bp_writer_null(writer);
    bp_writer_key(writer, "model");
    bp_plan_model_write(writer, view->model, view->parameters);
    bp_writer_key(writer, "mode");
    bp_writer_string(writer, bp_mode_names[view->mode]);
    bp_writer_end(writer);
}

struct bp_answer *bp_record_answer(int status, const char *record, size_t n, const char *model_extra)
{
    /* Within a string a quote would be escaped, so the first that looks like it is the member; and no member before it
     * holds an object. */
    static const char member[] = "\"model\":{";
    const char *at = model_extra ? memmem(record, n, member, sizeof member - 1) : NULL;
    struct bp_buf body = {0};
    size_t n_extra = at ? strlen(model_extra) : 0, n_head = at ? (size_t)(at - record) + sizeof member - 1 : 0;
    if (bp_buf_reserve(&body, n + n_extra)) {
        bp_buf_add(&body, record, n_head);
        if (at)
            bp_buf_add(&body, model_extra, n_extra);
        bp_buf_add(&body, record + n_head, n - n_head);
    }
    return bp_answer_new(status, BP_MEDIA_JSON, &body);
}

char *bp_record_model_extra(const struct bp_config *config)
{
    const struct {
        const char *key, **pointers;
        size_t n;
    } lists[] = {{"ignored", config->ignored, config->n_ignored}, {"assumed", config->assumed, config->n_assumed}};
    struct bp_buf text = {0};
    struct bp_writer writer = {.out = &text, .any_order = true};
    size_t n;
    bp_writer_object(&writer);
    bp_writer_key(&writer, "family");
    bp_writer_string(&writer, config->family);
    for (size_t list = 0; list < sizeof lists / sizeof *lists; list++) {
        bp_writer_key(&writer, lists[list].key);
        bp_writer_array(&writer);
        for (size_t i = 0; i < lists[list].n; i++)
            bp_writer_string(&writer, lists[list].pointers[i]);
        bp_writer_end(&writer);
    }
    bp_writer_end(&writer);
    if (bp_writer_finish(&writer, NULL)) {
        bp_buf_release(&text);
        return NULL;
    }
    /* Members alone, to stand before others. */
    text.data[text.len - 1] = ',';
    memmove(text.data, text.data + 1, --text.len);
    bp_buf_addch(&text, '\0');
    return bp_buf_detach(&text, &n);
}

struct bp_answer *bp_record_refusal(const struct bp_digest *id, const struct bp_problems *diagnostics)
{
    return bp_problem(diagnostics, &(struct bp_problem_extra){.plan = id, .when_many = BP_E_plan_rejected});
}

struct bp_answer *bp_record_request_refusal(const struct bp_problems *problems, const struct bp_config *config)
{
    struct bp_problem_extra extra = {0};
    for (size_t i = 0; i < problems->n && config->has_parameters; i++)
        if (problems->at[i].code == BP_E_unsupported_feature) {
            extra.family = config->family;
            extra.parameters = config->count.total;
        }
    return bp_problem(problems, &extra);
}

static enum bp_code code_of_name(const char *name)
{
    for (int code = 1; code < 256 && name; code++)
        if (strcmp(bp_code_name((enum bp_code)code), name) == 0)
            return (enum bp_code)code;
    return BP_E_internal;
}

/* The diagnostics of a stored plan, as they were. */
static struct bp_answer *refuse_again(const struct bp_store_plan *plan)
{
    struct bp_json_position position;
    struct bp_problems problems = {0};
    struct bp_err err = {0};
    json_t *list =
        bp_json_parse(plan->diagnostics.at ? plan->diagnostics.at : "", plan->diagnostics.n, &position, &err);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *path = json_string_value(json_object_get(item, "path"));
        const char *message = json_string_value(json_object_get(item, "message"));
        bp_problems_add(&problems, code_of_name(json_string_value(json_object_get(item, "code"))), path ? path : "",
                        "%s", message ? message : "");
    }
    if (!list || problems.n == 0)
        bp_problems_add(&problems, BP_E_internal, "", "the stored diagnostics cannot be read");
    struct bp_answer *answer = bp_record_refusal(&plan->id, &problems);
    json_decref(list);
    bp_problems_release(&problems);
    return answer;
}

struct bp_answer *bp_record_repeat(const struct bp_store_plan *plan, const char *model_extra)
{
    if (plan->state != BP_STORE_COMMITTED)
        return refuse_again(plan);
    struct bp_buf record = {0};
    struct bp_writer writer = {.out = &record, .any_order = true};
    struct bp_err err = {0};
    struct bp_answer *answer;
    bp_record_write(&writer, plan, true);
    if (bp_writer_finish(&writer, &err))
        answer = bp_problem_of(&err, NULL);
    else
        answer = bp_record_answer(200, record.data, record.len, model_extra);
    bp_buf_release(&record);
    return answer;
}
