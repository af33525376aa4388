/* The importers, all families: what is refused is explained; what is counted adds up; what may be planned is said by
 * the transformer form, which reads as the same model. */
#include <string.h>

#include "common/model/config.h"
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

static void expect_form_says_it_all(const struct bp_config *config)
{
    struct bp_buf form = {0}, again = {0};
    struct bp_err err = {0};
    struct bp_problems problems = {0};
    struct bp_model model;
    bp_u128 parameters = 0;
    write_form(&config->model, &form);
    json_t *value = bp_json_parse(form.data, form.len, NULL, &err);
    struct bp_reader reader = bp_reader_of(value, "", &problems);
    bp_model_read(&reader, &model);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bp_arena arena = {0};
    struct bp_config config = {0}, again = {0};
    json_t *value = fuzz_parse(data, n);
    if (!value)
        return 0;
    const bool planned = import(value, &arena, &config);
    FUZZ_EXPECT(planned == import(value, &arena, &again), "refused once and taken once");
    FUZZ_EXPECT(config.has_parameters == again.has_parameters && config.count.total == again.count.total,
                "counted differently the second time");
    if (config.has_parameters)
        expect_sum(&config.count);
    if (planned) {
        const char *beyond = bp_model_beyond_form(&config.model);
        FUZZ_EXPECT(config.has_parameters, "taken and not counted");
        FUZZ_EXPECT(beyond == NULL, "taken in spite of %s", beyond);
        expect_form_says_it_all(&config);
    }
    json_decref(value);
    bp_arena_release(&arena);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed)
{
    return fuzz_mutate_json(data, n, most, seed);
}
