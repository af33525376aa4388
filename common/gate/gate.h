/* The gate: what must hold before a snapshot commits.
 *
 * A check is a row: an id, a kind, a sentence, a function. A check looks at the snapshot a pass made (and at its
 * source and the bindings), counts what it compared and adds a finding for every violation, not only the first. A law
 * is a closed formula of the pass's theory, evaluated on the request's symbols and compared with what the row builder
 * produced. Each check that ran leaves one evidence record. The gate sees IR only: it knows no pass. Pure; any thread.
 */
#ifndef BP_GATE_GATE_H
#define BP_GATE_GATE_H

#include "common/ir/concrete_ir.h"
#include "common/ir/distributed_ir.h"
#include "common/ir/model_ir.h"
#include "common/ir/portable_ir.h"
#include "common/request/symbols.h"

/* A snapshot of any stage. */
struct bp_ir {
    enum bp_stage stage;
    union {
        const struct bp_model_ir *model;
        const struct bp_distributed_ir *distributed;
        const struct bp_portable_ir *portable;
        const struct bp_concrete_ir *concrete;
    } as;
};

int bp_ir_encode(const struct bp_ir *ir, struct bp_buf *out, struct bp_err *err);
int bp_ir_decode(enum bp_stage stage, const char *bytes, size_t n, struct bp_arena *arena, struct bp_ir *ret,
                 struct bp_err *err);

/* What the check is about, as evidence and API name it: "structure", "lineage", "cross_stage", "law", "replay",
 * "rederivation", "capacity". */
enum bp_check_kind {
    BP_CHECK_STRUCTURE,
    BP_CHECK_LINEAGE,
    BP_CHECK_CROSS_STAGE,
    BP_CHECK_LAW,
    BP_CHECK_REPLAY,
    BP_CHECK_REDERIVATION,
    BP_CHECK_CAPACITY,
};
extern const char *const bp_check_kind_names[];

/* A gate at work on one snapshot. The inputs are const and outlive it; `bytes` and `again` are the canonical bytes of
 * the snapshot and, for passes that are re-run, of the second run (else NULL). */
struct bp_gate {
    const struct bp_request *request;
    const struct bp_fingerprints *fingerprints;
    const struct bp_symbols *blocks; /* the symbols of each planned block */
    uint32_t n_blocks;
    struct bp_distributed_program programs[BP_KINDS_MAX]; /* found by bp_gate_run, of each block */
    /* the block at hand, for what is checked block by block: its place, its symbols, and where its entities stand in
     * the distributed snapshot, which is the target or the source */
    uint32_t block;
    const struct bp_symbols *symbols;
    struct bp_distributed_program at;
    const char *rule;               /* the lineage rule of the pass; NULL for the model stage */
    struct bp_digest source_digest; /* of `source`; for the model stage, of the transformer form */
    struct bp_ir source, target;    /* `source` is unset for the model stage */
    const struct bp_buf *bytes, *again;
    struct bp_arena *arena;       /* scratch */
    uint64_t compared;            /* by the running check */
    struct bp_problems *findings; /* {code, JSON Pointer into the target snapshot, message} */
};

struct bp_check {
    const char *id; /* "distributed.topology" */
    enum bp_check_kind kind;
    const char *what; /* one sentence */
    void (*run)(struct bp_gate *gate);
};

/* A closed formula. `applies` says whether it is stated for the models and strategies of this request. */
struct bp_law {
    const char *id;        /* "law.qkv" */
    const char *statement; /* TeX */
    const char *condition; /* in words, for whom it is stated */
    const char *source;    /* paper and section, or docs/formulas.md */
    bool (*applies)(const struct bp_gate *gate);
    void (*compare)(struct bp_gate *gate);
};

struct bp_check_group {
    const struct bp_check *at;
    size_t n;
    bool each_block; /* its checks run once for each block, and are about that one */
};
struct bp_law_group {
    const struct bp_law *at;
    size_t n;
    bool each_block; /* its laws are stated for a block, and held to each one that they apply to */
};

enum bp_verdict { BP_HOLDS, BP_VIOLATED };
extern const char *const bp_verdict_names[]; /* "holds", "violated" */

struct bp_evidence {
    const char *check;
    enum bp_check_kind kind;
    enum bp_verdict verdict;
    uint64_t compared;
};

/* Adds a finding. The path is a JSON Pointer (bp_gate_path writes one), the rest a printf. */
void bp_gate_finding(struct bp_gate *gate, enum bp_code code, const char *path, const char *format, ...);
/* Counts one comparison and, unless `holds`, adds a finding; path and message are evaluated only then. */
#define BP_GATE_EXPECT(gate, holds, code, path, ...)                                                                   \
    do {                                                                                                               \
        (gate)->compared++;                                                                                            \
        if (!(holds))                                                                                                  \
            bp_gate_finding((gate), (code), (path), __VA_ARGS__);                                                      \
    } while (0)

/* A printf into the arena, for a path; "" when memory ran out, which the findings remember. */
const char *bp_gate_path(struct bp_gate *gate, const char *format, ...);

/* For laws: counts one comparison of exact numbers; law_violated naming both when they differ or `calc` failed. */
void bp_gate_equal(struct bp_gate *gate, const char *path, const struct bp_calc *calc, bp_u128 expected,
                   bp_u128 actual);

/* Runs every check of the groups and every law that applies, appending one evidence record each to `ret_evidence`
 * (room for all of them). Returns the number appended. */
size_t bp_gate_run(struct bp_gate *gate, const struct bp_check_group *const *checks, size_t n_checks,
                   const struct bp_law_group *const *laws, size_t n_laws, struct bp_evidence *ret_evidence);

/* The verifiers. Structure of one stage; rules across a boundary. */
extern const struct bp_check_group bp_model_checks;            /* structure */
extern const struct bp_check_group bp_distributed_checks;      /* structure of the snapshot */
extern const struct bp_check_group bp_program_checks;          /* structure of each block's program */
extern const struct bp_check_group bp_portable_checks;         /* structure */
extern const struct bp_check_group bp_concrete_checks;         /* structure, capacity, layout recurrence */
extern const struct bp_check_group bp_queue_checks;            /* the queue-order extension */
extern const struct bp_check_group bp_slot_checks;             /* the slot-dataflow extension */
extern const struct bp_check_group bp_distribute_checks;       /* model -> distributed: lineage, mesh */
extern const struct bp_check_group bp_distribute_block_checks; /* of each block: its boundary */
extern const struct bp_check_group bp_plan_checks;         /* distributed -> portable: work equality, preservation */
extern const struct bp_check_group bp_plan_block_checks;   /* of each block: buffers, access, capacity */
extern const struct bp_check_group bp_bind_checks;         /* portable -> concrete: preservation, access, choice */
extern const struct bp_check_group bp_replay_checks;       /* a second run in another arena gives the same bytes */
extern const struct bp_check_group bp_rederivation_checks; /* the construction derived again is equal */

#endif
