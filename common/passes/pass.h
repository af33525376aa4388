/* The contract of a pass.
 *
 * A pass is one file that opens with its theory and ends with one `const struct bp_pass`. Its `run` is a pure function
 * of the source snapshot and the bindings: const input, fresh output in the job's arena, no I/O, no clock, no log, no
 * static state. What it claims is executable: `laws` are its closed formulas, `checks` the verifiers that its snapshot
 * must pass before it commits. The text here is what the API serves, the CLI prints and the docs render.
 */
#ifndef BP_PASSES_PASS_H
#define BP_PASSES_PASS_H

#include "common/gate/gate.h"

struct bp_reference {
    const char *citation; /* authors, title, venue, year */
    const char *url;      /* of the paper; NULL for an internal contract */
};

enum bp_binding { BP_BINDING_WORKLOAD = 1, BP_BINDING_STRATEGY = 2, BP_BINDING_TARGET = 4, BP_BINDING_DEPLOYMENT = 8 };
extern const char *const bp_binding_names[]; /* in the order of the bits, NULL-terminated */

/* What `run` sees. */
struct bp_pass_input {
    struct bp_ir source;
    struct bp_digest source_digest;
    const struct bp_request *request;
    const struct bp_fingerprints *fingerprints;
    const struct bp_symbols *symbols; /* of each planned block */
    uint32_t n_blocks;
};

struct bp_pass {
    const char *name;  /* kebab case */
    unsigned revision; /* rises with the derivation, the checks, the laws or the target schema */
    enum bp_stage source, target;
    const char *rule; /* the lineage rule written into every entity */
    const char *title, *summary;
    const char *formula_source; /* where the formulas come from, for the coverage table */
    const char *theory;         /* Markdown with TeX between \[ \] and \( \) */
    const struct bp_reference *references;
    size_t n_references;
    unsigned bindings; /* of enum bp_binding: those it requires */
    bool (*applies)(const struct bp_request *request);
    int (*run)(const struct bp_pass_input *input, struct bp_arena *arena, struct bp_ir *ret, struct bp_err *err);
    bool runs_twice; /* the gate compares a second run, byte for byte */
    const struct bp_check_group *const *checks;
    size_t n_checks;
    const struct bp_law_group *const *laws;
    size_t n_laws;
};

/* The tables of a pass's file, which have these names in every one. */
#define BP_PASS_TABLES                                                                                                 \
    .theory = theory, .references = references, .n_references = sizeof references / sizeof *references,                \
    .checks = checks, .n_checks = sizeof checks / sizeof *checks, .laws = law_groups,                                  \
    .n_laws = sizeof law_groups / sizeof *law_groups

extern const struct bp_pass bp_distribute_transformer_training, bp_distribute_transformer_inference,
    bp_plan_transformer_training, bp_plan_transformer_inference, bp_bind_reference_queue, bp_bind_reference_slot;

#endif
