/* What a decoder-only Transformer is, to the exactness the passes need.
 *
 * A model is what stands before and after its blocks, and a list of kinds of block with the layers that have them.
 * However it arrives (catalogue name, public config.json, transformer form) this is what is kept, digested and derived
 * from, and the `transformer` form of docs/api.md says all of it. Pure data; any thread.
 */
#ifndef BP_MODEL_MODEL_H
#define BP_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/canon.h"
#include "common/base/err.h"
#include "common/base/json.h"
#include "common/base/u128.h"

enum bp_activation { BP_ACTIVATION_GELU, BP_ACTIVATION_RELU, BP_ACTIVATION_SWIGLU, BP_ACTIVATION_GEGLU };
enum bp_norm { BP_NORM_LAYERNORM, BP_NORM_RMSNORM };
/* The last biases the scores by their distance. */
enum bp_position { BP_POSITION_LEARNED, BP_POSITION_ROPE, BP_POSITION_NONE, BP_POSITION_ALIBI };

/* Heads of keys and values; or one latent vector a token, from which every head's are expanded. */
enum bp_attention { BP_ATTENTION_HEADS, BP_ATTENTION_LATENT };

/* Norms of query and key before the scores, by what shares weights: all heads (one vector of head_dim), each head has
 * its own, one norm spans all heads; or there are no weights. */
enum bp_qk_norm { BP_QK_NORM_NONE, BP_QK_NORM_HEAD, BP_QK_NORM_EACH_HEAD, BP_QK_NORM_SPAN, BP_QK_NORM_WITHOUT_WEIGHT };

/* Where a block's norms stand: one before each branch; one after each branch, before it is added; one after each
 * addition; before and after each branch; one before both branches. */
enum bp_norm_place {
    BP_NORM_PLACE_BEFORE,
    BP_NORM_PLACE_AFTER,
    BP_NORM_PLACE_AFTER_RESIDUAL,
    BP_NORM_PLACE_AROUND,
    BP_NORM_PLACE_SHARED
};

/* The MLP reads what attention has added to; or both read the block's input. */
enum bp_residual { BP_RESIDUAL_SEQUENTIAL, BP_RESIDUAL_PARALLEL };

/* Their names in JSON, NULL-terminated, in the order of the enums. */
extern const char *const bp_activation_names[];
extern const char *const bp_norm_names[];
extern const char *const bp_position_names[];
extern const char *const bp_attention_names[];
extern const char *const bp_qk_norm_names[];
extern const char *const bp_norm_place_names[];
extern const char *const bp_residual_names[];

/* Longest label kept, and longest name of a kind. */
#define BP_MODEL_NAME_MAX 128
#define BP_KIND_NAME_MAX 24

/* One kind of block. Dimensions are counts of elements, between 1 and 2^53 - 1 where the kind has them, else 0. */
struct bp_kind {
    char name[BP_KIND_NAME_MAX]; /* what sets it apart: dense, expert, sliding, global, chunked, sliding_expert, ... */
    uint64_t layers;             /* blocks of this kind */

    enum bp_attention attention;
    uint64_t num_attention_heads; /* h */
    uint64_t num_key_value_heads; /* k; as many as heads when latent */
    uint64_t head_dim;            /* d, of query and key */
    uint64_t q_lora_rank;         /* latent: 0 when queries are projected at once */
    uint64_t kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim; /* latent */
    uint64_t window;     /* tokens that a token sees, itself included; 0: all before it */
    bool chunked;        /* the window does not slide: tokens see their own run of `window` */
    uint64_t rotary_dim; /* elements of a head that rotate */
    enum bp_qk_norm qk_norm;
    bool qk_norm_bias;
    bool qkv_bias, output_bias; /* of the projections into and out of attention; latent: of those into the latents */
    bool sinks;                 /* a learned score a head that no value belongs to */
    bool soft_cap;              /* scores are capped smoothly */
    bool cross_attention;       /* a second attention, to another sequence, with its norm */

    enum bp_residual residual;
    enum bp_norm_place norm_place;

    enum bp_activation activation;
    uint64_t intermediate_size;                                        /* F; 0 when the MLP is of experts */
    bool mlp_bias;                                                     /* of the dense MLP and of the shared experts */
    uint64_t num_experts, experts_per_token, expert_intermediate_size; /* E, K, F_e */
    uint64_t shared_intermediate_size; /* width of the experts that every token takes, together */
    bool shared_gate;                  /* their output is scaled by a projection of the token to one number */
    bool router_bias, expert_bias, score_correction_bias;

    bool hidden_dropout, attention_dropout;
};

#define BP_KINDS_MAX 8

/* The most layers of a model of several kinds, some twenty times what there is: each may be a run of its own, which is
 * text in its canonical form, however short what asked for it was. */
enum { BP_LAYERS_MAX = 4096 };

/* Dimensions as those of a kind. */
struct bp_model {
    char name[BP_MODEL_NAME_MAX];      /* a label: part of a request, never of a snapshot */
    uint64_t hidden_size;              /* H */
    uint64_t num_hidden_layers;        /* L */
    uint64_t vocab_size;               /* V */
    uint64_t max_position_embeddings;  /* rows of the learned position table; 0 unless positions are learned */
    uint64_t word_embed_proj_dim;      /* columns of embedding and head, projected to H and back; 0: H, no projection */
    uint64_t num_nextn_predict_layers; /* multi-token-prediction layers that count as the model's */
    enum bp_norm norm;
    enum bp_position position;
    bool norm_without_bias;   /* of layernorm; rmsnorm has none anyway */
    bool norm_without_weight; /* nor bias */
    bool final_norm_absent;
    bool embedding_norm; /* the embedding is normalised */
    bool embedding_dropout;
    bool tie_word_embeddings;
    bool head_bias;
    bool final_soft_cap; /* logits are capped smoothly */
    uint32_t n_kinds;
    struct bp_kind kinds[BP_KINDS_MAX]; /* in order of first appearance */
    const uint8_t *layer_kinds;         /* of each layer, when there are several kinds; else NULL. Not owned. */
};

bool bp_kind_gated(const struct bp_kind *kind); /* the MLP has a gate: SwiGLU, GeGLU */
bool bp_kind_bias(const struct bp_kind *kind);  /* every linear of the block has one: the form's `bias` */

/* Reads the transformer form; problems are added with their pointers (types, ranges, unknown keys, what must hold
 * between keys). The label may be absent, as in a snapshot: `name` is "" then. A model of one kind gets the name of the
 * kind by the importers' rule. Inert keys come out at their defaults: `qkv_bias` beside `bias` says nothing. The kinds
 * of the layers live in the arena; where memory runs out, problems->out_of_memory. What could not be read comes out as
 * 0; `*ret` is meaningful only when no problem was added. */
void bp_model_read(const struct bp_reader *reader, struct bp_arena *arena, struct bp_model *ret);

/* Writes the canonical transformer form: keys sorted, those at their defaults left out, max_position_embeddings only
 * with learned positions, layers in runs as long as they go. `with_name` for a request; a snapshot leaves the label
 * out. */
void bp_model_write(struct bp_writer *writer, const struct bp_model *model, bool with_name);

/* What parameters belong to. Shared experts are `experts`; the router has its biases, the shared experts' gate and the
 * score correction; every norm is in `norms`, those of queries, keys and latents too; a table that is tied is the
 * embedding's; the head has the projections of a narrower embedding back, and of multi-token prediction. */
enum bp_component {
    BP_COMPONENT_EMBEDDING,
    BP_COMPONENT_POSITIONS,
    BP_COMPONENT_ATTENTION,
    BP_COMPONENT_MLP,
    BP_COMPONENT_EXPERTS,
    BP_COMPONENT_ROUTER,
    BP_COMPONENT_NORMS,
    BP_COMPONENT_HEAD,
    BP_COMPONENT_N
};
extern const char *const bp_component_names[];

/* Tensors of the checkpoint, tied ones once, multi-token prediction's copies of embedding and head among them. Active
 * is what one token takes part in: of the routed experts K of E. Without the input embedding: a table that is tied
 * stays, as the head's. */
struct bp_parameter_count {
    bp_u128 total, active, active_without_embedding;
    bp_u128 components[BP_COMPONENT_N]; /* of the total, which is their sum */
};

/* Exact. -1 with quantity_overflow. */
int bp_model_count(const struct bp_model *model, struct bp_parameter_count *ret, struct bp_err *err);

/* The same of one block of a kind. */
int bp_kind_count(const struct bp_model *model, const struct bp_kind *kind, struct bp_parameter_count *ret,
                  struct bp_err *err);

/* The total alone. */
int bp_model_parameters(const struct bp_model *model, bp_u128 *ret, struct bp_err *err);

/* Elements that the KV cache holds for one token in all layers, each key/value head once, before a window fills. -1
 * with quantity_overflow. */
int bp_model_kv_elements(const struct bp_model *model, bp_u128 *ret, struct bp_err *err);

#endif
