/* The derivation's part of a plan record (api.md, "A plan"), in pieces: whoever keeps the record adds its id, state and
 * times. Keys come in the order of api.md, so writers must be of `any_order`. Pure; any thread.
 */
#ifndef BP_VIEW_PLAN_H
#define BP_VIEW_PLAN_H

#include "common/pipeline.h"
#include "common/view/facts.h"

/* `parameters` is a decimal count. */
void bp_plan_model_write(struct bp_writer *writer, const char *name, const char *parameters);

/* One element of `snapshots`, of `evidence`, of `diagnostics`. */
void bp_plan_snapshot_write(struct bp_writer *writer, const char *stage, const struct bp_digest *digest,
                            const char *schema, uint64_t bytes);
void bp_plan_evidence_write(struct bp_writer *writer, const char *check, const char *kind, const char *verdict,
                            uint64_t compared);
void bp_plan_diagnostic_write(struct bp_writer *writer, const struct bp_err *finding);

/* One element of `derivations` as far as its list of evidence, which is left open: the caller writes the records and
 * then ends two levels. */
void bp_plan_derivation_begin(struct bp_writer *writer, const char *pass, unsigned revision,
                              const struct bp_digest *source, const struct bp_digest *target);

/* The list of them. */
void bp_plan_diagnostics_write(struct bp_writer *writer, const struct bp_problems *diagnostics);

/* The facts of an outcome: 1 and `*ret`; 0 when it has no portable snapshot to sum; -1 with quantity_overflow. */
int bp_plan_facts(const struct bp_outcome *outcome, struct bp_facts *ret, struct bp_err *err);

#endif
