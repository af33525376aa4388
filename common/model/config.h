/* Importing a public config.json, and the catalogue of public models.
 *
 * A family is a row of families.def and a small function named after the public modelling class whose parameters it
 * counts. Keys the config leaves out take that class's defaults and are listed in `assumed`; keys that change nothing
 * we derive are listed in `ignored`. What no description has is refused, one problem a feature, but only after the
 * parameters were counted. Pure; any thread.
 */
#ifndef BP_MODEL_CONFIG_H
#define BP_MODEL_CONFIG_H

#include "common/base/arena.h"
#include "common/model/model.h"

/* How the checkpoint stores its linears when not as one number an element: a scale for each block of so many rows and
 * columns of the tensor, which has a row for each output, or one a tensor. Counts stay those of the logical elements.
 */
struct bp_quantisation {
    const char *method;                 /* as the config calls it; NULL: none */
    uint64_t element_bits, scale_bits;  /* 0: what this method stores is not known here */
    uint64_t block_rows, block_columns; /* 0: the whole tensor */
    bool experts_only;                  /* else all linears of the blocks but the router */
};

/* A feature that is counted and refused. */
struct bp_refusal {
    const char *pointer, *message; /* within the config */
};

/* A parsed config. Strings live in the arena given to the importer. */
struct bp_config {
    const char *family;              /* the model_type of its row, "transformer" for the transformer form */
    const char *public_class;        /* whose tensors are counted; NULL for the transformer form */
    struct bp_model model;           /* meaningful for planning only when no feature problem was added */
    bool has_parameters;             /* false when the config is too broken to be counted */
    struct bp_parameter_count count; /* exact, whatever is not modelled */
    bp_u128 kv_elements;             /* of one token, see bp_model_kv_elements */
    uint64_t position_offset;        /* rows of the learned table that no token uses (OPT: 2) */
    const char *dtype;               /* of the checkpoint, as the config calls it; NULL when it does not say */
    struct bp_quantisation quantisation;
    const char **ignored, **assumed; /* JSON Pointers into the config, sorted; for planning they change nothing */
    const struct bp_refusal *refused;
    size_t n_ignored, n_assumed, n_refused;
};

/* Imports a config.json whose JSON Pointer is `pointer`. The config of a language model within another (`text_config`)
 * is imported by itself: what is around it is ignored, its pointers begin with /text_config. Problems:
 * unknown_model_type (the message lists the known ones), missing_key, wrong_type, out_of_range, unsupported_feature. -1
 * only when memory ran out. */
int bp_config_import(const json_t *config, const char *pointer, struct bp_arena *arena, struct bp_problems *problems,
                     struct bp_config *ret);

/* The built-in catalogue: public models by name, each the JSON text of a model form (`{"huggingface": ...}` or
 * `{"transformer": ...}`), its published parameter count where one is known, and where that is stated. */
struct bp_catalogue_row {
    const char *name, *form, *published_parameters, *source;
};
extern const struct bp_catalogue_row bp_catalogue[];
extern const size_t bp_catalogue_n;

/* NULL when there is none of that name. */
const struct bp_catalogue_row *bp_catalogue_find(const char *name);

/* Resolves any of the three forms of `model` in api.md (value at `pointer`) to a config. Problems are added; -1 only
 * when memory ran out. */
int bp_config_resolve(const json_t *value, const char *pointer, struct bp_arena *arena, struct bp_problems *problems,
                      struct bp_config *ret);

#endif
