/* What the importer families share: getters over a public config.json, and the count's corrections.
 *
 * A getter marks its key as used. An absent key takes the fallback, the family's class default, and is listed as
 * assumed; null is absent, unless a getter says otherwise. What is wrong becomes a problem at the key, and the getter
 * returns 0 where nothing can be said. A family fills `model` as far as the block rows can express it, puts what they
 * cannot express into `added` and `absent`, and names it with bp_import_refuse. Internal to common/model; any thread.
 */
#ifndef BP_MODEL_IMPORT_H
#define BP_MODEL_IMPORT_H

#include "common/model/config.h"

/* More keys than any family reads and refuses. */
enum { BP_IMPORT_KEYS_MAX = 128 };

struct bp_import {
    struct bp_reader reader;
    struct bp_model model;
    const char *used[BP_IMPORT_KEYS_MAX], *assumed[BP_IMPORT_KEYS_MAX];
    size_t n_used, n_assumed;
    uint64_t position_offset;
    struct bp_calc calc;
    bp_u128 added, absent; /* parameters that the class has beyond `model`, and that it lacks */
    bool other_class;      /* the checkpoint is of another class, so that its parameters are not known */
};

bool bp_import_is_used(const struct bp_import *import, const char *key);

/* The value, or NULL when it is absent or null. Marks the key as used and assumes nothing. */
const json_t *bp_import_value(struct bp_import *import, const char *key);

/* Of two spellings of one key, the one that the config has; a conflict when both are there and differ. */
const char *bp_import_spelling(struct bp_import *import, const char *key, const char *alias);

uint64_t bp_import_required(struct bp_import *import, const char *key);
uint64_t bp_import_size(struct bp_import *import, const char *key, uint64_t fallback);
bool bp_import_flag(struct bp_import *import, const char *key, bool fallback);

/* A probability: whether it is more than 0. */
bool bp_import_dropout(struct bp_import *import, const char *key, bool fallback);

/* The activation by its public name, in a gated or a plain MLP; unsupported_feature when no row is its. */
enum bp_activation bp_import_activation(struct bp_import *import, const char *key, const char *fallback, bool gated);

/* Key/value heads and head size from the config; either may be 0 in `model` only when a problem was added. A null
 * num_key_value_heads means the query heads, as in the classes. */
void bp_import_kv_heads(struct bp_import *import, uint64_t fallback);
void bp_import_head_dim(struct bp_import *import, const char *heads_key, uint64_t fallback); /* 0: the quotient */
/* H/h, where the class has no other head size. */
void bp_import_split_heads(struct bp_import *import, const char *heads_key);

/* Refuses a rotary embedding of part of the head; `key` is the class's own, `whole_by_default` its default. */
void bp_import_rotary(struct bp_import *import, const char *key, bool whole_by_default);

/* Refuses a sliding window in force. `window_by_default` and `used_by_default` are the class's. */
void bp_import_window(struct bp_import *import, bool window_by_default, bool used_by_default);

/* unsupported_feature at the key, unless the key has a problem already. */
void bp_import_refuse(struct bp_import *import, const char *key, const char *what);

/* Refuses whatever is left in the config that would change the numbers derived and that the family did not use. */
void bp_import_refuse_rest(struct bp_import *import, const char *public_class);

#define BP_FAMILY(model_type, public_class, importer) void importer(struct bp_import *import);
#include "common/model/families.def"
#undef BP_FAMILY

#endif
