/* The parts of the distributed verifier that have files of their own. Only for this directory. */
#ifndef BP_GATE_DISTRIBUTED_H
#define BP_GATE_DISTRIBUTED_H

#include "common/gate/checks.h"

/* distributed_order.c: phases, rows and dependencies in order. */
void bp_gate_check_topology(struct bp_gate *gate);
void bp_gate_check_phases(struct bp_gate *gate);
void bp_gate_check_order(struct bp_gate *gate);
void bp_gate_check_dataflow(struct bp_gate *gate);
void bp_gate_check_backward(struct bp_gate *gate);
void bp_gate_check_updates(struct bp_gate *gate);

/* distributed_values.c: the mesh and what lies on it. */
void bp_gate_check_mesh(struct bp_gate *gate);
void bp_gate_check_values(struct bp_gate *gate);
void bp_gate_check_sharding(struct bp_gate *gate);
void bp_gate_check_parameters(struct bp_gate *gate);

/* What one rank holds of each value, in elements (0 for one that does not divide), and whether it is parameters.
 * False when memory ran out. */
struct bp_gate_held {
    const bp_u128 *elements;
    const bool *is_parameters;
};
bool bp_gate_hold(struct bp_gate *gate, struct bp_gate_held *ret);

/* distributed_rows.c: elements that the collective of a row carries. */
bp_u128 bp_gate_payload(const struct bp_gate *gate, const char *row, struct bp_calc *calc);

/* What a row reads, keeps and writes that takes only part of a value, in elements; of the cache, whose elements have a
 * type of their own, apart, with what it holds after. False for a row that takes its values whole. */
struct bp_gate_part {
    bp_u128 reads, keeps, writes;
    bp_u128 cache_reads, cache_writes, cache_holds;
};
bool bp_gate_takes_part(const struct bp_gate *gate, const char *row, struct bp_calc *calc, struct bp_gate_part *ret);

/* distributed_work.c: what tasks do, held to the values they do it to. */
void bp_gate_check_forward_traffic(struct bp_gate *gate);
void bp_gate_check_repeats(struct bp_gate *gate);
void bp_gate_check_gradient_work(struct bp_gate *gate);
void bp_gate_check_optimizer_work(struct bp_gate *gate);
void bp_gate_check_activations(struct bp_gate *gate);

/* distributed_memory.c: the memory facts, reduced from the rows once more. */
void bp_gate_check_memory_mode(struct bp_gate *gate);
void bp_gate_check_memory_totals(struct bp_gate *gate);
void bp_gate_check_memory_states(struct bp_gate *gate);
void bp_gate_check_memory_stored(struct bp_gate *gate);
void bp_gate_check_memory_working(struct bp_gate *gate);
void bp_gate_check_memory_bound(struct bp_gate *gate);
void bp_gate_check_memory_inference(struct bp_gate *gate);

/* Inference capacity of one rank for the block at hand, from its symbols (docs/formulas.md, "Inference block"): the KV
 * cache 2bcdk_l*e, the boundary Y*e, the workspace Y*e + e*max(bqr, s, f or 2f when gated), and what stands in their
 * place for latent attention and experts. */
bp_u128 bp_gate_kv_cache(struct bp_calc *calc, const struct bp_gate *gate);
bp_u128 bp_gate_boundary(struct bp_calc *calc, const struct bp_gate *gate);
bp_u128 bp_gate_workspace(struct bp_calc *calc, const struct bp_gate *gate);

/* Ranks that hold the same parameters of a row: fewer for the local experts. */
bp_u128 bp_gate_replicas(const struct bp_gate *gate, uint32_t layer);

#endif
