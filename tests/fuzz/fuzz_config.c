/* The importers. Of public configs, all families: what is refused is explained; what is counted adds up; what is
 * taken is said by the transformer form, which reads as the same model. Of other programs' inputs, any text as
 * Megatron-LM's and an object of `application` and `execution` as Calculon's: what is taken is JSON that our own reader
 * takes or refuses in words. */
#include <string.h>

#include "common/model/config.h"
#include "common/request/import_peer.h"
#include "common/request/request.h"
#include "tests/fuzz/fuzz.h"

static bool import(const json_t *config, struct bp_arena *arena, struct bp_config *ret)
{
    struct bp_problems problems = {0};
    FUZZ_EXPECT(bp_config_import(config, "", arena, &problems, ret) == 0, "no memory");
    fuzz_expect_explained(&problems);
    const bool none = bp_problems_none(&problems);
    bp_problems_release(&problems);
    return none;
}

static void expect_sum(const struct bp_parameter_count *count)
{
    bp_u128 sum = 0;
    for (size_t i = 0; i < BP_COMPONENT_N; i++)
        sum += count->components[i];
    FUZZ_EXPECT(sum == count->total, "the components are not the total");
    FUZZ_EXPECT(count->active <= count->total, "more are active than there are");
    FUZZ_EXPECT(count->active_without_embedding <= count->active, "more without the embedding than with it");
}

static void write_form(const struct bp_model *model, struct bp_buf *out)
{
    struct bp_err err = {0};
    struct bp_writer writer = {.out = out};
    bp_model_write(&writer, model, true);
    FUZZ_EXPECT(bp_writer_finish(&writer, &err) == 0, "%s", err.message);
}

static void expect_form_says_it_all(const struct bp_config *config, struct bp_arena *arena)
{
    struct bp_buf form = {0}, again = {0};
    struct bp_err err = {0};
    struct bp_problems problems = {0};
    struct bp_model model;
    bp_u128 parameters = 0;
    write_form(&config->model, &form);
    json_t *value = bp_json_parse(form.data, form.len, NULL, &err);
    struct bp_reader reader = bp_reader_of(value, "", &problems);
    bp_model_read(&reader, arena, &model);
    FUZZ_EXPECT(bp_problems_none(&problems), "%s: %.*s", problems.n ? problems.at[0].message : "", (int)form.len,
                form.data);
    write_form(&model, &again);
    fuzz_expect_same(&form, &again, "the form of a form");
    FUZZ_EXPECT(bp_model_parameters(&model, &parameters, &err) == 0, "%s", err.message);
    FUZZ_EXPECT(parameters == config->count.total, "the form has another count: %.*s", (int)form.len, form.data);
    json_decref(value);
    bp_problems_release(&problems);
    bp_buf_release(&form);
    bp_buf_release(&again);
}

/* ---- Inputs of other programs ---- */

static void expect_request(struct bp_buf *text, struct bp_arena *arena)
{
    struct bp_err err = {0};
    struct bp_problems problems = {0};
    struct bp_request request;
    struct bp_config config;
    json_t *body = bp_json_parse(text->data, text->len, NULL, &err);
    FUZZ_EXPECT(body != NULL, "%s: %.*s", err.message, (int)text->len, text->data);
    FUZZ_EXPECT(bp_request_read(body, arena, &problems, &request, &config) == 0, "no memory");
    fuzz_expect_explained(&problems);
    bp_problems_release(&problems);
    json_decref(body);
}

static void expect_imported(struct bp_peer_request *peer, struct bp_problems *problems, struct bp_arena *arena)
{
    FUZZ_EXPECT(!problems->out_of_memory, "no memory");
    for (size_t i = 0; i < problems->n; i++)
        FUZZ_EXPECT(bp_code_kind(problems->at[i].code) == BP_KIND_INPUT && *problems->at[i].message, "%s: %s",
                    bp_code_name(problems->at[i].code), problems->at[i].message);
    for (size_t i = 0; i < peer->n_leftovers; i++)
        FUZZ_EXPECT(*peer->leftovers[i].why, "%s is left without a reason", peer->leftovers[i].name);
    if (bp_problems_none(problems))
        expect_request(&peer->text, arena);
    bp_buf_release(&peer->text);
    bp_problems_release(problems);
}

static const struct bp_peer_options options = {.form = BP_PEER_PLAN, .world_size = 8, .vocab_size = 1000};

static void import_megatron(const uint8_t *data, size_t n, struct bp_arena *arena)
{
    struct bp_peer_request peer = {0};
    struct bp_problems problems = {0};
    FUZZ_EXPECT(bp_megatron_import((struct bp_peer_text){(const char *)data, n}, &options, arena, &problems, &peer) ==
                    0,
                "no memory");
    expect_imported(&peer, &problems, arena);
}

static void import_calculon(const json_t *value, struct bp_arena *arena)
{
    char *application = json_dumps(json_object_get(value, "application"), JSON_ENCODE_ANY);
    char *execution = json_dumps(json_object_get(value, "execution"), JSON_ENCODE_ANY);
    struct bp_peer_request peer = {0};
    struct bp_problems problems = {0};
    if (application && execution) {
        FUZZ_EXPECT(bp_calculon_import((struct bp_peer_text){application, strlen(application)},
                                       (struct bp_peer_text){execution, strlen(execution)}, &options, arena, &problems,
                                       &peer) == 0,
                    "no memory");
        expect_imported(&peer, &problems, arena);
    }
    free(application);
    free(execution);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bp_arena arena = {0};
    struct bp_config config = {0}, again = {0};
    import_megatron(data, n, &arena);
    json_t *value = fuzz_parse(data, n);
    if (!value) {
        bp_arena_release(&arena);
        return 0;
    }
    import_calculon(value, &arena);
    const bool planned = import(value, &arena, &config);
    FUZZ_EXPECT(planned == import(value, &arena, &again), "refused once and taken once");
    FUZZ_EXPECT(config.has_parameters == again.has_parameters && config.count.total == again.count.total,
                "counted differently the second time");
    if (config.has_parameters)
        expect_sum(&config.count);
    if (planned) {
        FUZZ_EXPECT(config.has_parameters, "taken and not counted");
        expect_form_says_it_all(&config, &arena);
    }
    json_decref(value);
    bp_arena_release(&arena);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed)
{
    return fuzz_mutate_json(data, n, most, seed);
}
