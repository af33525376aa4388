/* Which layers of a model differ, and the kinds of block that follow. */
#include <string.h>

#include "common/model/form.h"
#include "common/model/import.h"

uint8_t *bp_import_layers(struct bp_import *import)
{
    uint64_t n = import->model.num_hidden_layers;
    if (n > BP_LAYERS_MAX)
        bp_reader_problem(&import->reader, BP_E_out_of_range, "num_hidden_layers",
                          "layers that differ may be at most %d", BP_LAYERS_MAX);
    if (!n || n > BP_LAYERS_MAX) {
        bp_import_value(import, "layer_types"); /* not held against a number of layers that could not be read */
        return NULL;
    }
    import->layers = bp_arena_array(import->arena, n, 1);
    import->out_of_memory |= !import->layers;
    return import->layers;
}

bool bp_import_layer_types(struct bp_import *import, const char *local)
{
    static const char key[] = "layer_types";
    const json_t *types = bp_import_value(import, key);
    if (!types)
        return false;
    size_t n = json_array_size(types);
    if (!json_is_array(types))
        bp_reader_problem(&import->reader, BP_E_wrong_type, key, "must be an array");
    else if (n != import->model.num_hidden_layers)
        bp_reader_problem(&import->reader, BP_E_conflict, key, "has %zu members for %llu layers", n,
                          (unsigned long long)import->model.num_hidden_layers);
    for (size_t i = 0; n == import->model.num_hidden_layers && i < n; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (type && strcmp(type, local) == 0)
            import->layers[i] |= BP_LAYER_LOCAL;
        else if (!type || strcmp(type, "full_attention") != 0)
            bp_import_refuse(import, key, "attention of another sort than this class has");
    }
    return true;
}

bool bp_import_layer_list(struct bp_import *import, const char *key, uint8_t set, uint8_t clear)
{
    const json_t *list = bp_import_value(import, key);
    if (!list)
        return false;
    if (!json_is_array(list))
        bp_reader_problem(&import->reader, BP_E_wrong_type, key, "must be an array");
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        json_int_t layer = json_is_integer(item) ? json_integer_value(item) : -1;
        if (layer < 0 || (uint64_t)layer >= import->model.num_hidden_layers) {
            bp_reader_problem(&import->reader, BP_E_out_of_range, key, "member %zu is not the number of a layer", i);
            break;
        }
        import->layers[layer] = (uint8_t)((import->layers[layer] | set) & ~clear);
    }
    return true;
}

/* One kind: the pattern without what these layers do not have. */
static struct bp_kind kind_of(const struct bp_kind *pattern, uint8_t layer)
{
    struct bp_kind kind = *pattern;
    if (layer & BP_LAYER_EXPERT && kind.num_experts) {
        kind.intermediate_size = 0;
    } else {
        kind.num_experts = kind.experts_per_token = kind.expert_intermediate_size = 0;
        kind.shared_intermediate_size = 0;
        kind.shared_gate = kind.router_bias = kind.expert_bias = kind.score_correction_bias = false;
    }
    if (!(layer & BP_LAYER_LOCAL)) {
        kind.window = 0;
        kind.chunked = false;
    }
    if (layer & BP_LAYER_WITHOUT_ROPE) {
        kind.rotary_dim = 0;
        if (kind.qk_norm == BP_QK_NORM_WITHOUT_WEIGHT) /* a norm that follows the rotation where there is one */
            kind.qk_norm = BP_QK_NORM_NONE;
    }
    return kind;
}

void bp_import_split_kinds(struct bp_import *import)
{
    struct bp_model *model = &import->model;
    const struct bp_kind pattern = model->kinds[0];
    /* A flag of what the pattern does not have tells nothing apart. */
    const uint8_t telling = (uint8_t)((pattern.num_experts ? BP_LAYER_EXPERT : 0) |
                                      (pattern.window ? BP_LAYER_LOCAL : 0) | BP_LAYER_WITHOUT_ROPE);
    int kind_at[BP_LAYER_EXPERT + BP_LAYER_LOCAL + BP_LAYER_WITHOUT_ROPE + 1];
    model->n_kinds = 0;
    for (size_t i = 0; i < sizeof kind_at / sizeof *kind_at; i++)
        kind_at[i] = -1;
    if (!import->layers) {
        model->kinds[0] = kind_of(&pattern, BP_LAYER_EXPERT | BP_LAYER_LOCAL);
        model->kinds[0].layers = model->num_hidden_layers;
        model->n_kinds = 1;
    }
    for (uint64_t i = 0; import->layers && i < model->num_hidden_layers; i++) {
        const uint8_t layer = import->layers[i] & telling;
        int *at = &kind_at[layer];
        if (*at < 0) {
            *at = (int)model->n_kinds++;
            model->kinds[*at] = kind_of(&pattern, layer);
        }
        model->kinds[*at].layers++;
        import->layers[i] = (uint8_t)*at;
    }
    model->layer_kinds = model->n_kinds > 1 ? import->layers : NULL;
    bp_model_name_kinds(model);
}
