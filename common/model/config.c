#include "common/model/config.h"

#include <stdlib.h>
#include <string.h>

#include "common/model/import.h"

static const struct family {
    const char *model_type, *public_class;
    void (*import)(struct bp_import *import);
} families[] = {
#define BP_FAMILY(model_type, public_class, importer) {model_type, public_class, importer},
#include "common/model/families.def"
#undef BP_FAMILY
};

static const struct family *family_of(const struct bp_reader *reader)
{
    const char *model_type = bp_reader_string(reader, "model_type", true);
    char known[256] = "";
    for (size_t i = 0; model_type && i < sizeof families / sizeof *families; i++) {
        if (strcmp(families[i].model_type, model_type) == 0)
            return &families[i];
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", families[i].model_type);
    }
    if (model_type)
        bp_reader_problem(reader, BP_E_unknown_model_type, "model_type", "\"%.64s\" is none of those known: %s",
                          model_type, known);
    return NULL;
}

/* Whether the config could be read: a feature that is not modelled does not keep it from being counted. */
static bool only_features_since(const struct bp_problems *problems, size_t first)
{
    for (size_t i = first; i < problems->n; i++)
        if (problems->at[i].code != BP_E_unsupported_feature)
            return false;
    return problems->n_dropped == 0;
}

static void count(struct bp_import *import, const char *pointer, struct bp_config *config)
{
    struct bp_problems *problems = import->reader.problems;
    bp_u128 parameters = 0;
    struct bp_err err = {0};
    if (bp_model_parameters(&import->model, &parameters, &err) == 0) {
        parameters = bp_sub(&import->calc, bp_add(&import->calc, parameters, import->added), import->absent);
        bp_calc_check(&import->calc, "", "the number of parameters", &err);
    }
    if (err.code != BP_OK) {
        bp_problems_add(problems, err.code, pointer, "%s", err.message);
    } else {
        config->parameters = parameters;
        config->has_parameters = true;
    }
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The JSON Pointer of a member of the config, within the config. */
static const char *pointer_within(const char *key, struct bp_arena *arena)
{
    struct bp_reader root = {0};
    char pointer[BP_POINTER_MAX];
    bp_reader_pointer(&root, key, pointer);
    return bp_arena_strndup(arena, pointer, strlen(pointer));
}

static int list_assumed(const struct bp_import *import, struct bp_arena *arena, struct bp_config *config)
{
    const char **list = bp_arena_array(arena, import->n_assumed, sizeof *list);
    if (!list)
        return -1;
    for (size_t i = 0; i < import->n_assumed; i++)
        if (!(list[i] = pointer_within(import->assumed[i], arena)))
            return -1;
    qsort(list, import->n_assumed, sizeof *list, compare_texts);
    config->assumed = list;
    config->n_assumed = import->n_assumed;
    return 0;
}

static int list_ignored(const struct bp_import *import, struct bp_arena *arena, struct bp_config *config)
{
    const char **list = bp_arena_array(arena, json_object_size(import->reader.object), sizeof *list);
    if (!list)
        return -1;
    size_t n = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)import->reader.object, key, value)
    {
        if (strcmp(key, "model_type") == 0 || bp_import_is_used(import, key))
            continue;
        if (!(list[n++] = pointer_within(key, arena)))
            return -1;
    }
    qsort(list, n, sizeof *list, compare_texts);
    config->ignored = list;
    config->n_ignored = n;
    return 0;
}

int bp_config_import(const json_t *config, const char *pointer, struct bp_arena *arena, struct bp_problems *problems,
                     struct bp_config *ret)
{
    struct bp_config result = {0};
    struct bp_import import = {.reader = bp_reader_of(config, pointer, problems)};
    const struct family *family = family_of(&import.reader);
    if (family) {
        size_t before = problems->n;
        family->import(&import);
        strcpy(import.model.name, family->model_type);
        bp_import_refuse_rest(&import, family->public_class);
        if (only_features_since(problems, before) && !import.other_class)
            count(&import, pointer, &result);
        result.family = family->model_type;
        result.model = import.model;
        result.position_offset = import.position_offset;
        if (list_assumed(&import, arena, &result) || list_ignored(&import, arena, &result))
            return -1;
    }
    if (problems->out_of_memory)
        return -1;
    *ret = result;
    return 0;
}

static void read_transformer(const json_t *value, const char *pointer, struct bp_problems *problems,
                             struct bp_config *config)
{
    struct bp_reader reader = bp_reader_of(value, pointer, problems);
    size_t before = problems->n;
    bp_reader_get(&reader, "name", true);
    bp_model_read(&reader, &config->model);
    config->family = "transformer";
    if (problems->n == before && problems->n_dropped == 0 && reader.object) {
        struct bp_import none = {.reader = reader, .model = config->model};
        count(&none, pointer, config);
    }
}

enum form { FORM_HUGGINGFACE, FORM_NAME, FORM_TRANSFORMER, FORMS };
static const char *const form_keys[] = {"huggingface", "name", "transformer", NULL};

static int from_catalogue(const struct bp_reader *reader, struct bp_arena *arena, struct bp_config *ret)
{
    struct bp_problems *problems = reader->problems;
    const char *name = bp_reader_string(reader, form_keys[FORM_NAME], true);
    const struct bp_catalogue_row *row = name ? bp_catalogue_find(name) : NULL;
    if (name && !row)
        bp_reader_problem(reader, BP_E_unknown_model, form_keys[FORM_NAME], "the catalogue has no such model");
    if (!row)
        return 0;
    struct bp_json_position position;
    struct bp_err err = {0};
    json_t *form = bp_json_parse(row->form, strlen(row->form), &position, &err);
    if (!form) {
        bp_problems_add(problems, err.code, reader->pointer, "%s", err.message);
        return err.code == BP_E_out_of_memory ? -1 : 0;
    }
    size_t first = problems->n;
    int failed = bp_config_resolve(form, "", arena, problems, ret);
    json_decref(form);
    if (failed)
        return -1;
    strcpy(ret->model.name, row->name);
    /* What is wrong is in our text; what the caller can change is the name. */
    for (size_t i = first; i < problems->n; i++) {
        bp_err_prefix(&problems->at[i], "%s", problems->at[i].path);
        bp_reader_pointer(reader, form_keys[FORM_NAME], problems->at[i].path);
    }
    return 0;
}

int bp_config_resolve(const json_t *value, const char *pointer, struct bp_arena *arena, struct bp_problems *problems,
                      struct bp_config *ret)
{
    struct bp_config result = {0};
    struct bp_reader reader = bp_reader_of(value, pointer, problems);
    int failed = 0, form = FORMS, n_forms = 0;
    char inner[BP_POINTER_MAX];
    bp_reader_refuse_unknown(&reader, form_keys);
    for (int i = 0; i < FORMS; i++) {
        if (bp_reader_get(&reader, form_keys[i], false)) {
            form = i;
            n_forms++;
        }
    }
    if (n_forms == 0 && reader.object)
        bp_problems_add(problems, BP_E_missing_key, pointer, "one of huggingface, name and transformer is required");
    if (n_forms > 1)
        bp_problems_add(problems, BP_E_conflict, pointer, "only one of huggingface, name and transformer may be given");
    if (n_forms == 1) {
        const json_t *model = bp_reader_get(&reader, form_keys[form], true);
        bp_reader_pointer(&reader, form_keys[form], inner);
        if (form == FORM_HUGGINGFACE)
            failed = bp_config_import(model, inner, arena, problems, &result);
        else if (form == FORM_TRANSFORMER)
            read_transformer(model, inner, problems, &result);
        else
            failed = from_catalogue(&reader, arena, &result);
    }
    if (failed || problems->out_of_memory)
        return -1;
    *ret = result;
    return 0;
}
