/* What is built in: the passes' contracts and the public models. */
#include <string.h>

#include "common/view/contract.h"
#include "daemon/service/internal.h"

struct bp_answer *bp_service_pass_list(void)
{
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    bp_writer_object(&writer);
    bp_writer_key(&writer, "passes");
    bp_writer_array(&writer);
    for (size_t i = 0; i < bp_passes_n; i++)
        bp_contract_write(&writer, bp_passes[i]);
    bp_writer_end(&writer);
    bp_writer_end(&writer);
    return bp_service_written(&writer, 200, &err);
}

struct bp_answer *bp_service_pass_get(const char *name)
{
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    const struct bp_pass *pass = bp_pass_find(name);
    if (pass)
        bp_contract_write(&writer, pass);
    else
        bp_fail(&err, BP_E_not_found, "", "there is no such pass");
    return bp_service_written(&writer, 200, &err);
}

/* -1 only when memory ran out: every form of the catalogue resolves. */
static int write_model(struct bp_writer *writer, const struct bp_catalogue_row *row, struct bp_err *err)
{
    struct bp_arena arena = {0};
    struct bp_problems problems = {0};
    struct bp_config config = {0};
    struct bp_json_position position;
    json_t *form = bp_json_parse(row->form, strlen(row->form), &position, err);
    int failed = form ? bp_config_resolve(form, "", &arena, &problems, &config) : -1;
    if (failed && form)
        bp_fail(err, BP_E_out_of_memory, "", "no memory for a model");
    if (!failed) {
        bp_writer_object(writer);
        bp_writer_key(writer, "name");
        bp_writer_string(writer, row->name);
        bp_writer_key(writer, "family");
        bp_writer_string(writer, config.family);
        bp_writer_key(writer, "parameters");
        bp_writer_decimal(writer, config.count.total);
        bp_writer_key(writer, "published_parameters");
        if (row->published_parameters)
            bp_writer_string(writer, row->published_parameters);
        else
            bp_writer_null(writer);
        bp_writer_key(writer, "source");
        bp_writer_string(writer, row->source);
        bp_writer_key(writer, "form");
        bp_writer_raw(writer, row->form, strlen(row->form));
        bp_writer_end(writer);
    }
    bp_problems_release(&problems);
    bp_arena_release(&arena);
    json_decref(form);
    return failed;
}

struct bp_answer *bp_service_model_list(void)
{
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    bp_writer_object(&writer);
    bp_writer_key(&writer, "models");
    bp_writer_array(&writer);
    for (size_t i = 0; i < bp_catalogue_n && err.code == BP_OK; i++)
        write_model(&writer, &bp_catalogue[i], &err);
    bp_writer_end(&writer);
    bp_writer_end(&writer);
    return bp_service_written(&writer, 200, &err);
}

struct bp_answer *bp_service_model_get(const char *name)
{
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    const struct bp_catalogue_row *row = bp_catalogue_find(name);
    if (row)
        write_model(&writer, row, &err);
    else
        bp_fail(&err, BP_E_not_found, "", "the catalogue has no model of that name");
    return bp_service_written(&writer, 200, &err);
}
