/* One inference block of the independent recomputation, task by task. */
#ifndef TESTS_REFERENCE_INFERENCE_H
#define TESTS_REFERENCE_INFERENCE_H

#include "tests/reference/reference.h"

enum { BLOCK_INPUT = -1 };

struct block {
    const struct ref_request *r;
    const struct ref_kind *kind;
    struct ref_plan *plan;
    size_t first; /* task of the plan */
    wide q, c, bq, Y, h_l, k_l, s;
    wide weights; /* elements */
    bool parameters[REF_TASKS], reads_input[REF_TASKS];
};

/* Each adds a task and returns its place in the plan; reads and writes in elements. It waits for `after` and, where it
 * is another, `also`; BLOCK_INPUT is none. */
int ref_infer(struct block *b, const char *name, const char *engine, struct ref_work work, wide parameters, int after,
              int also);
void ref_infer_waits(struct block *b, int task, int on);
int ref_infer_norm(struct block *b, const char *name, wide n, wide w, int after);
int ref_infer_linear(struct block *b, const char *name, wide rows, wide inner, wide columns, bool bias, int after);
int ref_infer_add(struct block *b, const char *name, wide n, int one, int other);
/* Nothing in a group of one. `n` elements in the whole group. */
int ref_infer_collective(struct block *b, const char *name, const char *kind, const char *axis, wide group, wide n,
                         int after);
void ref_infer_effect(struct block *b, int task, bool writes);
int ref_infer_mlp(struct block *b, const char *part, wide width, int after);

/* Parts of the block; each returns the task that puts the part's result out. */
int ref_infer_latent(struct block *b, int after); /* to attention.value_up, or attention.core */
int ref_infer_experts(struct block *b, int after, bool *ret_complete);

/* What scores add to the operations of core, and their parameters. */
wide ref_infer_score_operations(const struct block *b);
wide ref_infer_sinks(const struct block *b);

#endif
