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

static const struct family *family_named(const char *model_type)
{
    for (size_t i = 0; model_type && i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].model_type, model_type) == 0)
            return &families[i];
    return NULL;
}

static const char *type_of(const json_t *config)
{
    return json_string_value(json_object_get(config, "model_type"));
}

static void refuse_type(const struct bp_reader *reader)
{
    const char *model_type = bp_reader_string(reader, "model_type", true);
    char known[448] = "";
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", families[i].model_type);
    }
    if (model_type)
        bp_reader_problem(reader, BP_E_unknown_model_type, "model_type", "\"%.32s\" is none of those known: %s",
                          model_type, known);
}

static const char text_key[] = "text_config";

/* Whether the language model's config is a member of this one. */
static bool is_around(const json_t *config)
{
    return json_is_object(json_object_get(config, text_key)) && !json_object_get(config, "hidden_size");
}

/* Whether the config could be read: a feature that is not modelled does not keep it from being counted. */
static bool only_features_since(const struct bp_problems *problems, size_t first)
{
    for (size_t i = first; i < problems->n; i++)
        if (problems->at[i].code != BP_E_unsupported_feature)
            return false;
    return problems->n_dropped == 0;
}

static void count(const char *pointer, struct bp_problems *problems, struct bp_config *config)
{
    struct bp_err err = {0};
    if (bp_model_count(&config->model, &config->count, &err) ||
        bp_model_kv_elements(&config->model, &config->kv_elements, &err))
        bp_problems_add(problems, err.code, pointer, "%s", err.message);
    else
        config->has_parameters = true;
}

/* What is known of a method beyond its name. */
static const struct bp_quantisation methods[] = {
    {.method = "fp8", .element_bits = 8, .scale_bits = 32},
    {.method = "mxfp4", .element_bits = 4, .scale_bits = 8, .block_rows = 1, .block_columns = 32, .experts_only = true},
};

/* A copy of a text of the config's, NULL without one. */
static const char *copied(struct bp_import *import, const json_t *text)
{
    const char *value = json_string_value(text);
    const char *copy = value ? bp_arena_strndup(import->arena, value, strlen(value)) : NULL;
    import->out_of_memory |= value && !copy;
    return copy;
}

/* The newer spelling and the older. */
static const char *const quantisation_keys[] = {"quantization_config", "compression_config"};

static void read_quantisation(struct bp_import *import, const json_t *config, struct bp_config *ret)
{
    const json_t *quantisation = json_object_get(config, quantisation_keys[0]);
    if (!quantisation)
        quantisation = json_object_get(config, quantisation_keys[1]);
    const char *method = json_string_value(json_object_get(quantisation, "quant_method"));
    if (!method)
        return;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(methods[i].method, method) == 0)
            ret->quantisation = methods[i];
    ret->quantisation.method = copied(import, json_object_get(quantisation, "quant_method"));
    const json_t *block = json_object_get(quantisation, "weight_block_size");
    json_int_t rows = json_integer_value(json_array_get(block, 0));
    json_int_t columns = json_integer_value(json_array_get(block, 1));
    if (rows > 0 && columns > 0) {
        ret->quantisation.block_rows = (uint64_t)rows;
        ret->quantisation.block_columns = (uint64_t)columns;
    }
}

/* Both have two homes, and the first a spelling of old. */
static void read_storage(struct bp_import *import, struct bp_config *ret)
{
    const json_t *homes[] = {import->reader.object, import->around};
    static const char *const dtype_keys[] = {"dtype", "torch_dtype"};
    for (size_t i = 0; i < 2; i++) {
        for (size_t j = 0; j < 2 && !ret->dtype; j++)
            ret->dtype = copied(import, json_object_get(homes[i], dtype_keys[j]));
        if (!ret->quantisation.method)
            read_quantisation(import, homes[i], ret);
    }
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The JSON Pointer of a member of the config, within the config. */
static const char *pointer_within(const char *parent, const char *key, struct bp_arena *arena)
{
    struct bp_reader root = {0};
    char pointer[BP_POINTER_MAX];
    strcpy(root.pointer, parent);
    bp_reader_pointer(&root, key, pointer);
    return bp_arena_strndup(arena, pointer, strlen(pointer));
}

static const char *parent_of(const struct bp_import *import)
{
    return import->around ? "/text_config" : "";
}

static int list_assumed(const struct bp_import *import, struct bp_arena *arena, struct bp_config *config)
{
    const char **list = bp_arena_array(arena, import->n_assumed, sizeof *list);
    if (!list)
        return -1;
    for (size_t i = 0; i < import->n_assumed; i++)
        if (!(list[i] = pointer_within(parent_of(import), import->assumed[i], arena)))
            return -1;
    qsort(list, import->n_assumed, sizeof *list, compare_texts);
    config->assumed = list;
    config->n_assumed = import->n_assumed;
    return 0;
}

/* Members of the config around that are read too, or are the model itself. */
static bool is_read_around(const struct bp_import *import, const char *key)
{
    static const char *const read[] = {text_key, "architectures", "model_type"};
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        if (strcmp(read[i], key) == 0)
            return true;
    return strcmp(key, "tie_word_embeddings") == 0 && !bp_import_peek(import, key);
}

static int list_ignored(const struct bp_import *import, struct bp_arena *arena, struct bp_config *config)
{
    size_t most = json_object_size(import->reader.object) + json_object_size(import->around), n = 0;
    const char **list = bp_arena_array(arena, most, sizeof *list);
    if (!list)
        return -1;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)import->reader.object, key, value) {
        if (strcmp(key, "model_type") == 0 || bp_import_is_used(import, key))
            continue;
        if (!(list[n++] = pointer_within(parent_of(import), key, arena)))
            return -1;
    }
    json_object_foreach((json_t *)(uintptr_t)import->around, key, value) {
        if (is_read_around(import, key))
            continue;
        if (!(list[n++] = pointer_within("", key, arena)))
            return -1;
    }
    qsort(list, n, sizeof *list, compare_texts);
    config->ignored = list;
    config->n_ignored = n;
    return 0;
}

static int list_refused(const struct bp_problems *problems, size_t first, size_t prefix, struct bp_arena *arena,
                        struct bp_config *config)
{
    struct bp_refusal *list = bp_arena_array(arena, problems->n - first, sizeof *list);
    if (!list)
        return -1;
    for (size_t i = first; i < problems->n; i++) {
        const struct bp_err *problem = &problems->at[i];
        if (problem->code != BP_E_unsupported_feature)
            continue;
        struct bp_refusal *refusal = &list[config->n_refused++];
        const char *pointer = problem->path + prefix;
        refusal->pointer = bp_arena_strndup(arena, pointer, strlen(pointer));
        refusal->message = bp_arena_strndup(arena, problem->message, strlen(problem->message));
        if (!refusal->pointer || !refusal->message)
            return -1;
    }
    config->refused = list;
    return 0;
}

/* A config around the language model's has a class of its own. */
static void refuse_around(struct bp_import *import, const struct family *family, const struct bp_reader *around)
{
    struct bp_import outer = {.reader = *around};
    if (family)
        bp_import_refuse_class(&outer, family->public_class);
    import->other_class |= outer.other_class;
}

static int describe(struct bp_import *import, const struct family *outer, const struct family *family,
                    const struct bp_reader *reader, struct bp_config *ret)
{
    struct bp_problems *problems = reader->problems;
    const size_t before = problems->n;
    const struct family *named = outer ? outer : family;
    family->import(import);
    bp_import_split_kinds(import);
    bp_import_refuse_rest(import, import->around ? NULL : family->public_class);
    if (import->around)
        refuse_around(import, outer, reader);
    ret->family = named->model_type;
    ret->public_class = named->public_class;
    strcpy(import->model.name, named->model_type);
    ret->model = import->model;
    ret->position_offset = import->position_offset;
    read_storage(import, ret);
    if (only_features_since(problems, before) && !import->other_class)
        count(reader->pointer, problems, ret);
    if (import->out_of_memory || list_assumed(import, import->arena, ret) || list_ignored(import, import->arena, ret))
        return -1;
    return list_refused(problems, before, strlen(reader->pointer), import->arena, ret);
}

int bp_config_import(const json_t *config, const char *pointer, struct bp_arena *arena, struct bp_problems *problems,
                     struct bp_config *ret)
{
    struct bp_config result = {0};
    struct bp_reader reader = bp_reader_of(config, pointer, problems);
    struct bp_import import = {.reader = reader, .arena = arena};
    const struct family *outer = family_named(type_of(config)), *family = outer;
    if (is_around(config)) {
        import.around = config;
        import.reader = bp_reader_object(&reader, text_key, true);
        const struct family *inner = family_named(type_of(import.reader.object));
        family = inner ? inner : outer;
    }
    if (!family && reader.object)
        refuse_type(type_of(import.reader.object) ? &import.reader : &reader);
    if (family && describe(&import, outer, family, &reader, &result))
        return -1;
    if (problems->out_of_memory)
        return -1;
    *ret = result;
    return 0;
}

/* The form can say it; no row has it. */
static void refuse_cross_attention(const struct bp_reader *reader)
{
    static const char key[] = "cross_attention";
    if (json_is_true(bp_reader_get(reader, key, false)))
        bp_reader_problem(reader, BP_E_unsupported_feature, key, "cross-attention is not modelled");
    const json_t *kinds = bp_reader_get(reader, "kinds", false);
    for (size_t i = 0; i < json_array_size(kinds); i++) {
        struct bp_reader kind = *reader;
        snprintf(kind.pointer, sizeof kind.pointer, "%.200s/kinds/%zu", reader->pointer, i);
        kind.object = json_array_get(kinds, i);
        refuse_cross_attention(&kind);
    }
}

static int read_transformer(const json_t *value, const char *pointer, struct bp_arena *arena,
                            struct bp_problems *problems, struct bp_config *config)
{
    struct bp_reader reader = bp_reader_of(value, pointer, problems);
    size_t before = problems->n;
    bp_reader_get(&reader, "name", true);
    bp_model_read(&reader, arena, &config->model);
    config->family = "transformer";
    if (problems->n != before || problems->n_dropped || problems->out_of_memory || !reader.object)
        return 0;
    count(pointer, problems, config);
    refuse_cross_attention(&reader);
    return list_refused(problems, before, strlen(pointer), arena, config);
}

enum form { FORM_HUGGINGFACE, FORM_NAME, FORM_TRANSFORMER, FORMS };
static const char *const form_keys[] = {"huggingface", "name", "transformer", NULL};

static void refuse_name(const struct bp_reader *reader)
{
    char known[480] = "";
    for (size_t i = 0; i < bp_catalogue_n; i++) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", bp_catalogue[i].name);
    }
    bp_reader_problem(reader, BP_E_unknown_model, form_keys[FORM_NAME], "the catalogue has %s", known);
}

static int from_catalogue(const struct bp_reader *reader, struct bp_arena *arena, struct bp_config *ret)
{
    struct bp_problems *problems = reader->problems;
    const char *name = bp_reader_string(reader, form_keys[FORM_NAME], true);
    const struct bp_catalogue_row *row = name ? bp_catalogue_find(name) : NULL;
    if (name && !row)
        refuse_name(reader);
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
            failed = read_transformer(model, inner, arena, problems, &result);
        else
            failed = from_catalogue(&reader, arena, &result);
    }
    if (failed || problems->out_of_memory)
        return -1;
    *ret = result;
    return 0;
}
