/* What an importer fills while it reads: the values of the request to come, and the list of what is left over. */
#ifndef BP_REQUEST_IMPORT_JOB_H
#define BP_REQUEST_IMPORT_JOB_H

#include "common/request/import_peer.h"
#include "common/request/request.h"

/* Zero and NULL values are left out of the request: they are its defaults. */
struct bp_peer_job {
    const char *label; /* the model's */
    const char *activation, *norm, *position;
    uint64_t hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim, intermediate_size;
    uint64_t vocab_size, max_position_embeddings;
    bool bias, qkv_bias, qk_norm, hidden_dropout, attention_dropout, embedding_dropout, tie_word_embeddings;
    uint64_t num_experts, experts_per_token, expert_intermediate_size, shared_expert_intermediate_size;
    bool score_correction_bias;

    enum bp_dtype dtype, gradient_dtype;
    uint64_t sequence_length, micro_batch_size, global_batch_size;
    bool inference; /* prefill of sequence_length tokens of micro_batch_size sequences */

    uint64_t tensor_parallel, pipeline_parallel, data_parallel, virtual_stages, zero_stage;
    bool sequence_parallel, recompute_activation, gathers_once;
    enum bp_recompute recompute;
    uint64_t pipeline_layers[BP_RUNS_MAX];
    size_t n_pipeline_layers;

    uint64_t context_parallel, expert_parallel, expert_tensor_parallel;
    const char *cp_comm;

    /* of a fit request */
    uint64_t vocab_multiple;
    const char *optimizer, *attention_kernel;
};

struct bp_peer {
    const struct bp_peer_options *options;
    struct bp_arena *arena;
    struct bp_problems *problems;
    struct bp_peer_job job;
    struct bp_leftover *leftovers;
    size_t n_leftovers, n_allocated;
    bool out_of_memory; /* the list is not whole */
};

/* Lists one leftover. `name` and `value` must live as long as the arena. */
void bp_peer_list(struct bp_peer *peer, const char *name, const char *value, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The product, or 0 with a problem at `name` when it is past 2^53 - 1. */
uint64_t bp_peer_product(struct bp_peer *peer, const char *name, uint64_t a, uint64_t b);

/* Blocks of each run, dealt by hand: `of_stage` of them on each of the p stages, in v equal chunks. A problem at `name`
 * where they do not divide or are too many runs. Even splits are left to the request. */
void bp_peer_deal(struct bp_peer *peer, const char *name, const uint64_t *of_stage);

/* Writes the request of what was read, and hands the leftovers over. As the importers return. */
int bp_peer_finish(struct bp_peer *peer, struct bp_peer_request *ret);

#endif
