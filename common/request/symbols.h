/* The symbols of the formulas, evaluated on one request (docs/formulas.md, "Conventions"). Pure; any thread. */
#ifndef BP_REQUEST_SYMBOLS_H
#define BP_REQUEST_SYMBOLS_H

#include "common/request/request.h"

/* Counts of elements unless said. 128 bits, so that products are written without casts. */
struct bp_symbols {
    const struct bp_kind *kind; /* of the block that is meant */
    bp_u128 B, S, H, F, h, k, d, t;
    bp_u128
        S_c; /* key tokens that a rank's S query tokens meet: the whole sequence under context parallelism, else S */
    bp_u128 h_l, k_l; /* heads of one rank: h/t, max(k/t, 1) */
    bp_u128 e, g,
        e_kv;      /* bytes per element of the dtype; in training of the gradient dtype; in inference of the cache */
    bp_u128 X, Xs; /* B*S*H; and the share of one rank under sequence parallelism, X/t, else X */
    bp_u128 dp;    /* ranks that hold the same parameters: data-parallel and context-parallel ones */
    bp_u128 E, K, F_e, F_s;     /* experts, of which a token takes K; their width, and that of the shared ones */
    bp_u128 ep, etp, expert_dp; /* degrees of the experts; ranks that hold the same expert parameters */
    /* Of a kind with experts, under balanced routing: tokens that a rank routes, the pairs of token and expert that it
     * has of them, and those that it computes. In inference 0 where the tokens of a step do not divide over the tensor
     * group as these do. */
    bp_u128 own_tokens, own_pairs, pairs;
    bp_u128 cp;      /* ranks that share a sequence */
    bp_u128 b, q, c; /* inference: batch, query tokens (c in prefill, 1 in decode), visible context: of a window in
                      * decode no more than it */
    bool routes_all; /* inference: every rank of the tensor group routes all tokens, to its part of every expert */
    bool sequence_parallel, gathers_again; /* SP in force; "AG": the all-gather is done again in the backward pass */
    bool heads_are_plain;                  /* k = h and d = H/h, which the papers' closed forms are stated for */
    bool gated;
};

/* The symbols of the model's block of kind `kind`. In inference B = b and S = q, X = Xs = Y = b*q*H. -1 with
 * quantity_overflow. */
int bp_symbols_of(const struct bp_model *model, uint32_t kind, const struct bp_workload *workload,
                  const struct bp_strategy *strategy, struct bp_symbols *ret, struct bp_err *err);

/* The symbols of every block that a request plans (workload.block_kinds), in the model's order; how many there are. */
int bp_symbols_of_blocks(const struct bp_request *request, struct bp_symbols ret[BP_KINDS_MAX], uint32_t *ret_n,
                         struct bp_err *err);

#endif
