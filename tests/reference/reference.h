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

/* The symbols of docs/formulas.md; counts of elements unless said. */
struct ref_request {
    bool training, prefill;
    wide H, L, h, k, d, F;
    bool gated, relu, rmsnorm, rope, bias, qkv_bias, qk_norm, hidden_dropout, attention_dropout;
    wide B, S; /* training: micro-batch and sequence */
    wide b, c; /* inference: batch and context */
    wide e, g; /* bytes per element of dtype, of gradient_dtype */
    wide t, dp, zero;
    bool sequence_parallel, gather_again, recompute_activation;
    enum ref_recompute recompute;
    bool has_target, slots;
};

/* Reads a valid request whose model is in the transformer form. False when it is not such a one. */
bool ref_request_read(const json_t *body, struct ref_request *ret);

enum { REF_TASKS = 160, REF_ROWS = 32, REF_BUFFERS = 10, REF_MEMORY = 9, REF_NAME = 80 };

struct ref_work {
    wide operations, read, write, message; /* bytes but for the operations */
};

struct ref_task {
    char name[REF_NAME];
    const char *layer, *phase, *engine, *collective; /* collective: its kind, or NULL */
    struct ref_work work;
    bool waits_for[REF_TASKS];
    bool uses_kv_cache, writes_kv_cache;
};

/* What a row contributes to memory. Bytes but for the parameters (elements); A and O only where docs/formulas.md states
 * them. */
struct ref_row {
    const char *name;
    wide parameters, A, O;
    bool states_A, states_O, keeps_A, keeps_O, owns_A;
};

struct ref_buffer {
    const char *role, *storage;
    wide size, offset;
    bool written_by[REF_TASKS], read_by[REF_TASKS];
};

struct ref_memory_fact {
    const char *name;
    wide bytes;
};

struct ref_plan {
    struct ref_task tasks[REF_TASKS];
    size_t n_tasks;
    struct ref_row rows[REF_ROWS];
    size_t n_rows;
    struct ref_memory_fact memory[REF_MEMORY];
    size_t n_memory;
    struct ref_buffer buffers[REF_BUFFERS];
    size_t n_buffers;
    wide layout_end;
    wide largest_bytes; /* of all byte counts above; of the layout only with a target */
};

void ref_plan_derive(const struct ref_request *request, struct ref_plan *ret);

/* The sum over the tasks of a phase or engine; NULL: of all. `ret_tasks` may be NULL. */
struct ref_work ref_plan_total(const struct ref_plan *plan, const char *phase_or_engine, size_t *ret_tasks);

wide ref_plan_memory(const struct ref_plan *plan, const char *name);

/* The names of the portable stage for a task: capability, and the last alternative. */
const char *ref_task_capability(const struct ref_task *task);
const char *ref_task_implementation(const struct ref_task *task);

/* Parts of ref_plan_derive, by mode; they fill tasks, rows, memory and buffers (unplaced). */
void ref_training_derive(const struct ref_request *request, struct ref_plan *plan);
void ref_inference_derive(const struct ref_request *request, struct ref_plan *plan);
struct ref_task *ref_plan_task(struct ref_plan *plan, const char *layer, const char *phase, const char *engine,
                               const struct ref_work *work);
struct ref_buffer *ref_plan_buffer(struct ref_plan *plan, const char *role, const char *storage, wide size);
void ref_plan_fact(struct ref_plan *plan, const char *name, wide bytes);

#endif
