/* What the importer families share: getters over a public config.json, and the parts of a description that several
 * classes have.
 *
 * A getter marks its key as used. An absent key takes the fallback, the family's class default, and is listed as
 * assumed; null is absent, unless a getter says otherwise. What is wrong becomes a problem at the key, and the getter
 * returns 0 where nothing can be said. A family describes the model whole, in `model` and its first kind, which is the
 * pattern of all layers, and says with bp_import_layers where layers differ; what no description has it names with
 * bp_import_refuse. Internal to common/model; any thread.
 */
#ifndef BP_MODEL_IMPORT_H
#define BP_MODEL_IMPORT_H

#include "common/model/config.h"

/* More keys than any family reads and refuses. */
enum { BP_IMPORT_KEYS_MAX = 128 };

struct bp_import {
    struct bp_reader reader; /* of the language model's config */
    const json_t *around;    /* the config that it was found in, as `text_config`; NULL when it was not */
    struct bp_arena *arena;
    struct bp_model model;
    const char *used[BP_IMPORT_KEYS_MAX], *assumed[BP_IMPORT_KEYS_MAX], *spared[BP_IMPORT_KEYS_MAX];
    size_t n_used, n_assumed, n_spared;
    uint64_t position_offset;
    uint8_t *layers;  /* of enum bp_import_layer; NULL: all layers are as the first kind */
    bool other_class; /* the checkpoint is of another class, so that its parameters are not known */
    bool out_of_memory;
};

bool bp_import_is_used(const struct bp_import *import, const char *key);

/* A spared key is neither read nor refused: it is listed as ignored. */
void bp_import_spare(struct bp_import *import, const char *key);
bool bp_import_is_spared(const struct bp_import *import, const char *key);

/* The member, null and all; marks nothing. */
const json_t *bp_import_peek(const struct bp_import *import, const char *key);

/* The value, or NULL when it is absent or null. Marks the key as used and assumes nothing. */
const json_t *bp_import_value(struct bp_import *import, const char *key);

/* The same, and an absent key is assumed. */
const json_t *bp_import_value_or_assumed(struct bp_import *import, const char *key);

/* Of two spellings of one key, the one that the config has; a conflict when both are there and differ. */
const char *bp_import_spelling(struct bp_import *import, const char *key, const char *alias);

uint64_t bp_import_required(struct bp_import *import, const char *key);
uint64_t bp_import_size(struct bp_import *import, const char *key, uint64_t fallback);
uint64_t bp_import_count(struct bp_import *import, const char *key, uint64_t fallback); /* may be 0, which null is */
bool bp_import_flag(struct bp_import *import, const char *key, bool fallback);

/* A positive number that null turns off: whether it is there. */
bool bp_import_soft_cap(struct bp_import *import, const char *key, bool fallback);

/* A probability: whether it is more than 0. */
bool bp_import_dropout(struct bp_import *import, const char *key, bool fallback);

/* The activation by its public name, in a gated or a plain MLP; unsupported_feature when no row is its. */
enum bp_activation bp_import_activation(struct bp_import *import, const char *key, const char *fallback, bool gated);

/* Whether head and embedding are one table; the config around says it when the language model's does not. */
bool bp_import_tied(struct bp_import *import, bool fallback);

/* hidden_size, num_hidden_layers and vocab_size, which are required, the last unless the class's counts (not 0). */
void bp_import_sizes(struct bp_import *import, uint64_t vocab_by_default);

/* What GPT-2 and GPT-J spell n_embd, n_layer, n_head (`heads` by default) and n_inner, or as later classes do. */
void bp_import_gpt_sizes(struct bp_import *import, uint64_t heads);

/* Four times the hidden size unless the key says otherwise. */
uint64_t bp_import_four_times_hidden(struct bp_import *import, const char *key);

/* Key/value heads and head size from the config; either may be 0 in the kind only when a problem was added. A null
 * num_key_value_heads means the query heads, as in the classes. */
void bp_import_kv_heads(struct bp_import *import, uint64_t fallback);
void bp_import_head_dim(struct bp_import *import, const char *heads_key, uint64_t fallback); /* 0: the quotient */
/* H/h, where the class has no other head size. */
void bp_import_split_heads(struct bp_import *import, const char *heads_key);

/* Class defaults of the families built like Llama: RMSNorm, rotary positions, a gated MLP, no dropout but of the
 * scores. 0 heads: 32; 0 key/value heads: as many as heads; head size 0: the quotient; a width of 0: the family has
 * another key for it; a vocabulary of 0: it is required. */
struct bp_llama_defaults {
    uint64_t heads, kv_heads, head_dim, intermediate_size, vocab_size;
    const char *activation_key, *activation; /* NULL: hidden_act, silu */
    bool tied;
};
void bp_import_llama(struct bp_import *import, struct bp_llama_defaults defaults);

/* attention_bias of query, key, value and output. */
void bp_import_attention_bias(struct bp_import *import, bool fallback);

/* The share of a head that rotates: by `key` (NULL: the class has none) or within rope_parameters or rope_scaling. */
void bp_import_rotary(struct bp_import *import, const char *key, double fallback);
void bp_import_refuse_rope_shares(struct bp_import *import); /* what bp_import_rotary reads, where it was not asked */

/* A sliding window in force, into the kind; says whether there is one. The defaults are the class's;
 * a window of 0: none. */
bool bp_import_window(struct bp_import *import, uint64_t window_by_default, bool used_by_default);

/* Keys of a mixture of experts, with the class's defaults; without one for the experts a token takes, they are
 * required. No experts, by 0 or null, leaves the MLP dense. */
struct bp_import_experts {
    const char *count_key;
    uint64_t count;
    const char *taken_key;
    uint64_t taken;
    const char *width_key;
    uint64_t width;
};
void bp_import_experts(struct bp_import *import, const struct bp_import_experts *keys);

/* Layers that differ from the first kind, one byte of flags each, zeroed: an expert layer lacks its dense MLP, any
 * other its experts; only a local one has its window; one without rope rotates nothing. NULL when there are no layers
 * to speak of, after a problem or without memory. */
enum bp_import_layer { BP_LAYER_EXPERT = 1, BP_LAYER_LOCAL = 2, BP_LAYER_WITHOUT_ROPE = 4 };
uint8_t *bp_import_layers(struct bp_import *import);

/* Marks as local the layers that layer_types calls `local`; false when the config has no such list. */
bool bp_import_layer_types(struct bp_import *import, const char *local);

/* A list of the numbers of layers: sets and clears flags at each. False when the config has no such list. */
bool bp_import_layer_list(struct bp_import *import, const char *key, uint8_t set, uint8_t clear);

/* The kinds of block, from the first and the layers. */
void bp_import_split_kinds(struct bp_import *import);

/* Multi-token-prediction layers are the model's when the config says `mtp: true`. */
void bp_import_next_token_layers(struct bp_import *import);

/* unsupported_feature at the key, unless the key has a problem already. */
void bp_import_refuse(struct bp_import *import, const char *key, const char *what);

/* Refuses a checkpoint of another class; sets other_class. The classes of one family differ in their heads. */
void bp_import_refuse_class(struct bp_import *import, const char *public_class);

/* Refuses whatever is left in the config that would change the numbers derived and that the family did not use, and
 * another class than this (NULL: any is right). */
void bp_import_refuse_rest(struct bp_import *import, const char *public_class);

#define BP_FAMILY(model_type, public_class, importer) void importer(struct bp_import *import);
#include "common/model/families.def"
#undef BP_FAMILY

#endif
