/* What a decoder-only Transformer is, to the exactness the passes need.
 *
 * `struct bp_model` is the `transformer` form of api.md, resolved: every optional key has its value. However a model
 * arrives (catalogue name, public config.json, transformer form) this is what is kept, digested and derived from.
 * Pure data; any thread.
 */
#ifndef BP_MODEL_MODEL_H
#define BP_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/canon.h"
#include "common/base/err.h"
#include "common/base/json.h"
#include "common/base/u128.h"

enum bp_activation { BP_ACTIVATION_GELU, BP_ACTIVATION_RELU, BP_ACTIVATION_SWIGLU, BP_ACTIVATION_GEGLU };
enum bp_norm { BP_NORM_LAYERNORM, BP_NORM_RMSNORM };
enum bp_position { BP_POSITION_LEARNED, BP_POSITION_ROPE, BP_POSITION_NONE };

/* Their names in JSON, NULL-terminated, in the order of the enums. */
extern const char *const bp_activation_names[];
extern const char *const bp_norm_names[];
extern const char *const bp_position_names[];

/* Longest label kept. */
#define BP_MODEL_NAME_MAX 128

/* Dimensions are counts of elements; every one is between 1 and 2^53 - 1. */
struct bp_model {
    char name[BP_MODEL_NAME_MAX];     /* a label: part of a request, never of a snapshot */
    uint64_t hidden_size;             /* H */
    uint64_t num_hidden_layers;       /* L */
    uint64_t num_attention_heads;     /* h */
    uint64_t num_key_value_heads;     /* k */
    uint64_t head_dim;                /* d */
    uint64_t intermediate_size;       /* F */
    uint64_t vocab_size;              /* V */
    uint64_t max_position_embeddings; /* rows of the learned position table; 0 unless positions are learned */
    enum bp_activation activation;
    enum bp_norm norm;
    enum bp_position position;
    bool bias;     /* every linear of the block has one */
    bool qkv_bias; /* query, key and value have one */
    bool qk_norm;  /* query and key heads are normalised before the scores */
    bool hidden_dropout, attention_dropout, embedding_dropout;
    bool tie_word_embeddings;
};

bool bp_model_gated(const struct bp_model *model); /* the MLP has a gate: SwiGLU, GeGLU */

/* The keys of the transformer form, NULL-terminated. */
extern const char *const bp_transformer_keys[];

/* Reads the transformer form; problems are added with their pointers (types, ranges, unknown keys, h % k, H % h when
 * head_dim is absent). The label may be absent, as in a snapshot: `name` is "" then. `qkv_bias` beside `bias` says
 * nothing and comes out false. What could not be read comes out as 0; `*ret` is meaningful only when no problem was
 * added. */
void bp_model_read(const struct bp_reader *reader, struct bp_model *ret);

/* Writes the canonical transformer form: keys sorted, those at their defaults left out, max_position_embeddings only
 * with learned positions. `with_name` for a request; a snapshot leaves the label out. */
void bp_model_write(struct bp_writer *writer, const struct bp_model *model, bool with_name);

/* Parameters of the checkpoint (tensors, tied ones once), exact. For one block without tensor parallelism:
 *   attention H*h*d + 2*H*k*d + h*d*H, MLP 2*H*F or 3*H*F gated, norms as `norm` says, biases one per output column;
 * beside the blocks: V*H embedding, learned positions, the final norm, and V*H head unless tied.
 * -1 with quantity_overflow. */
int bp_model_parameters(const struct bp_model *model, bp_u128 *ret, struct bp_err *err);

#endif
