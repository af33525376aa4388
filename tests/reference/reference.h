/* The independent recomputation: a plan's numbers worked out again, straight from the published formulas, by code that
 * shares nothing with the passes. It is naive on purpose (fixed arrays, names, whole-plan flags instead of lists), so
 * that the two can only agree by both being right.
 *
 * It is stated for requests that are valid; what is invalid is the business of the request reader's own tests. Where a
 * number is too large for a snapshot the plan says so in `largest_bytes` or holds WIDE_HUGE.
 */
#ifndef TESTS_REFERENCE_REFERENCE_H
#define TESTS_REFERENCE_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "tests/reference/wide.h"

enum ref_recompute { REF_KEEP_ALL, REF_SELECTIVE, REF_FULL };

enum ref_place { REF_BEFORE, REF_AFTER, REF_AFTER_RESIDUAL, REF_AROUND, REF_SHARED };
enum ref_qk_norm { REF_QK_NONE, REF_QK_HEAD, REF_QK_EACH_HEAD, REF_QK_SPAN, REF_QK_WITHOUT_WEIGHT };
enum ref_exchange { REF_RING, REF_ALL_GATHER, REF_A2A };

enum { REF_KINDS = 8, REF_KIND_NAME = 24 };

/* One kind of block, by the symbols of docs/formulas.md; 0 what it does not have. */
struct ref_kind {
    char name[REF_KIND_NAME]; /* "" when the model has one kind and says no name */
    wide layers;
    wide h, k, d, F;
    wide l_q, l_kv, n, r, v; /* latent attention: l_kv is not 0 */
    wide window, rotary;     /* elements of a head that rotate */
    wide E, K, F_e, F_s;
    bool gated, relu, parallel, sinks, soft_cap, chunked;
    bool qkv_bias, output_bias, mlp_bias, router_bias, expert_bias, shared_gate, qk_norm_bias;
    bool hidden_dropout, attention_dropout;
    enum ref_qk_norm qk_norm;
    enum ref_place place;
};

/* Counts of elements unless said. */
struct ref_request {
    bool training, prefill;
    wide H, L;
    bool rmsnorm, norm_without_bias, norm_without_weight, rope, alibi;
    struct ref_kind kinds[REF_KINDS]; /* those that are planned, in the model's order */
    size_t n_kinds;
    wide B, S, S_c;  /* training: micro-batch, a rank's share of the sequence, the whole of it */
    wide b, c;       /* inference: batch and context */
    wide e, g, e_kv; /* bytes per element of dtype, of gradient_dtype, of the cache */
    wide t, dp, zero, cp, ep, etp;
    enum ref_exchange exchange;
    bool sequence_parallel, gather_again, recompute_activation;
    enum ref_recompute recompute;
    bool has_target, slots;
};

/* Reads a valid request whose model is in the transformer form. False when it is not such a one. */
bool ref_request_read(const json_t *body, struct ref_request *ret);

enum { REF_TASKS = 800, REF_ROWS = 192, REF_BUFFERS = 32, REF_MEMORY = 9, REF_NAME = 80, REF_BLOCKS = 3 };

struct ref_work {
    wide operations, read, write, message; /* bytes but for the operations */
};

struct ref_task {
    char name[REF_NAME];
    const char *layer, *phase, *engine, *collective; /* collective: its kind, or NULL */
    const char *axis;                                /* of a collective's group, or NULL */
    size_t block;
    struct ref_work work;
    bool waits_for[REF_TASKS];
    bool uses_kv_cache, writes_kv_cache;
};

/* What a row contributes to memory. Bytes but for the parameters (elements); A and O only where docs/formulas.md states
 * them. */
struct ref_row {
    const char *name;
    size_t block;
    wide parameters, A, O;
    bool states_A, states_O, keeps_A, keeps_O, owns_A;
};

struct ref_buffer {
    const char *role, *storage;
    size_t block;
    wide size, offset;
    bool written_by[REF_TASKS], read_by[REF_TASKS];
};

struct ref_memory_fact {
    const char *name;
    wide bytes;
};

struct ref_memory {
    struct ref_memory_fact at[REF_MEMORY];
    size_t n;
};

struct ref_block {
    char name[REF_KIND_NAME]; /* "": not said */
    wide layers;
    struct ref_memory memory;
};

/* At most REF_BLOCKS kinds: the arrays are for as many. */
struct ref_plan {
    struct ref_block blocks[REF_BLOCKS];
    size_t n_blocks; /* while it is derived: the last one is being filled */
    struct ref_task tasks[REF_TASKS];
    size_t n_tasks;
    struct ref_row rows[REF_ROWS];
    size_t n_rows;
    struct ref_memory memory; /* the sum over the blocks */
    struct ref_buffer buffers[REF_BUFFERS];
    size_t n_buffers;
    wide layout_end;
    wide largest_bytes; /* of all byte counts above; of the layout only with a target */
};

void ref_plan_derive(const struct ref_request *request, struct ref_plan *ret);

/* The sum over the tasks of a phase or engine; NULL: of all. `ret_tasks` may be NULL. */
struct ref_work ref_plan_total(const struct ref_plan *plan, const char *phase_or_engine, size_t *ret_tasks);

wide ref_memory_of(const struct ref_memory *memory, const char *name);

/* The names of the portable stage for a task: capability, and the last alternative. */
const char *ref_task_capability(const struct ref_task *task);
const char *ref_task_implementation(const struct ref_task *task);

/* Parts of ref_plan_derive, by mode; they fill tasks, rows, memory and buffers (unplaced) of the block that was begun.
 */
void ref_training_derive(const struct ref_request *request, const struct ref_kind *kind, struct ref_plan *plan);
void ref_inference_derive(const struct ref_request *request, const struct ref_kind *kind, struct ref_plan *plan);
struct ref_task *ref_plan_task(struct ref_plan *plan, const char *layer, const char *phase, const char *engine,
                               const struct ref_work *work);
struct ref_row *ref_plan_row(struct ref_plan *plan, const struct ref_row *row);
struct ref_buffer *ref_plan_buffer(struct ref_plan *plan, const char *role, const char *storage, wide size);
void ref_plan_fact(struct ref_plan *plan, const char *name, wide bytes);

/* Parameters of the norms of a block, of width w. */
wide ref_norm_parameters(const struct ref_request *request, wide w);
/* Of the norm of query or key, of vectors of `d` elements in `heads` heads. */
wide ref_qk_norm_parameters(const struct ref_kind *kind, wide heads);

#endif
