/* The transformer form as a table of keys, which its reader and its writer share. Internal to common/model; any
 * thread. */
#ifndef BP_MODEL_FORM_H
#define BP_MODEL_FORM_H

#include "common/model/model.h"

/* Whose a key is: the model's; a kind's, which stands in each of the kinds, or beside the model's where there is one.
 * The label of the model and the name of a kind among several are one key in two places. */
enum { BP_FORM_MODEL = 1, BP_FORM_KIND = 2, BP_FORM_LABEL = 4, BP_FORM_KIND_NAME = 8 };

/* What a key says: a size that must be there; one that may be absent, which is 0; a flag, false when absent; a word, of
 * a default when absent; or what form_read.c and form_write.c have a function for. */
enum bp_form_sort { BP_FORM_SIZE, BP_FORM_SIZE_OR_NONE, BP_FORM_FLAG, BP_FORM_WORD, BP_FORM_OWN };

struct bp_form_key {
    const char *key;
    unsigned scope;
    enum bp_form_sort sort;
    size_t offset;            /* in the struct of its scope */
    const char *const *words; /* of a word */
    int usual;                /* the default of a word; -1: it must be there */
    void (*write)(struct bp_writer *writer, const struct bp_model *model, const struct bp_kind *kind);
};

/* Sorted. */
extern const struct bp_form_key bp_form_keys[];
extern const size_t bp_form_keys_n;

/* What a kind has where its keys do not say otherwise. */
uint64_t bp_form_usual_rotary_dim(const struct bp_model *model, const struct bp_kind *kind);
bool bp_form_usual_qk_norm_bias(const struct bp_model *model, const struct bp_kind *kind);

/* Names each kind after what sets it apart: its window where the model has one, its experts where it has some. */
void bp_model_name_kinds(struct bp_model *model);

#endif
