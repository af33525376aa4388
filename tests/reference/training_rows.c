/* The row kinds of a training block. */
#include <string.h>

#include "tests/reference/training.h"

/* The work of `operations; read; write` in elements, in bytes. */
struct ref_work ref_elements(const struct block *b, wide operations, wide read, wide write)
{
    return (struct ref_work){operations, wide_mul(read, b->r->e), wide_mul(write, b->r->e), 0};
}

int ref_row(struct block *b, const char *name, enum ref_row_kind kind, int input)
{
    struct row *row = &b->rows[b->n];
    memset(row, 0, sizeof(*row));
    row->kind = kind;
    row->facts.name = name;
    row->facts.keeps_O = row->facts.owns_A = true;
    row->inputs[row->n_inputs++] = input;
    row->forward_task = row->again_task = row->agrad_task = row->wgrad_task = NO_TASK;
    row->has_forward = kind != FORK;
    row->has_agrad = kind != RESIDUAL;
    row->again = b->full;
    row->copies = b->copies;
    return b->n++;
}

void ref_row_reads(struct block *b, int index, int input)
{
    struct row *row = &b->rows[index];
    for (int i = 0; i < row->n_inputs; i++)
        if (row->inputs[i] == input)
            return;
    row->needs[row->n_inputs] = row->needs[0];
    row->inputs[row->n_inputs++] = input;
}

void ref_row_state(struct block *b, int index, wide A_bytes, wide O_bytes, bool keeps_A)
{
    struct ref_row *facts = &b->rows[index].facts;
    facts->A = A_bytes;
    facts->O = O_bytes;
    facts->states_A = facts->states_O = true;
    facts->keeps_A = keeps_A;
}

void ref_row_share(struct block *b, int index, bool shares)
{
    struct ref_row *facts = &b->rows[index].facts;
    facts->owns_A = !shares;
    facts->keeps_A = facts->keeps_A && !shares;
}

int ref_fork(struct block *b, const char *name, wide n, wide users, int input, bool keeps)
{
    int i = ref_row(b, name, FORK, input);
    b->rows[i].agrad = ref_elements(b, wide_mul(users - 1, n), wide_mul(users, n), n);
    ref_row_state(b, i, wide_mul(n, b->r->e), 0, keeps);
    b->rows[i].facts.states_O = false;
    return i;
}

int ref_norm(struct block *b, const char *name, wide n, wide w, wide P, int input)
{
    const bool rms = b->r->rmsnorm;
    int i = ref_row(b, name, NORM, input);
    struct row *row = &b->rows[i];
    row->forward = ref_elements(b, wide_mul(rms ? 4 : 9, n), wide_add(n, P), n);
    row->agrad = ref_elements(b, wide_mul(rms ? 8 : 14, n), wide_add(wide_mul(2, n), P ? w : 0), n);
    row->wgrad = ref_elements(b, wide_mul(rms ? 4 : 7, n), wide_mul(2, n), 0);
    row->wgrad.write = wide_mul(P, b->r->g);
    row->has_wgrad = P != 0;
    row->needs[0] = true;
    row->facts.parameters = P;
    ref_row_state(b, i, wide_mul(n, b->r->e), wide_mul(n, b->r->e), true);
    return i;
}

int ref_linear(struct block *b, const char *name, wide m, wide n, wide k, bool bias, int input, bool keeps)
{
    const wide P = wide_add(wide_mul(n, k), bias ? k : 0), mn = wide_mul(m, n), mk = wide_mul(m, k);
    const wide operations = PROD(2, m, n, k);
    int i = ref_row(b, name, LINEAR, input);
    struct row *row = &b->rows[i];
    row->forward = ref_elements(b, operations, wide_add(mn, P), mk);
    row->agrad = ref_elements(b, operations, wide_add(wide_mul(n, k), mk), mn);
    row->wgrad = ref_elements(b, operations, wide_add(mn, mk), 0);
    row->wgrad.write = wide_mul(P, b->r->g);
    row->has_wgrad = true;
    row->facts.parameters = P;
    ref_row_state(b, i, wide_mul(mn, b->r->e), wide_mul(mk, b->r->e), keeps);
    return i;
}

int ref_product(struct block *b, const char *name, wide W, wide A, wide kept, wide O, int one, int other)
{
    int i = ref_row(b, name, PRODUCT, one);
    b->rows[i].needs[0] = true;
    ref_row_reads(b, i, other);
    b->rows[i].forward = ref_elements(b, W, A, O);
    b->rows[i].agrad = ref_elements(b, wide_mul(2, W), wide_add(A, O), A);
    ref_row_state(b, i, wide_mul(kept, b->r->e), wide_mul(O, b->r->e), true);
    return i;
}

int ref_softmax(struct block *b, const char *name, wide n, int input)
{
    int i = ref_row(b, name, SOFTMAX, input);
    b->rows[i].needs_output = true;
    b->rows[i].forward = ref_elements(b, wide_mul(5, n), n, n);
    b->rows[i].agrad = ref_elements(b, wide_mul(8, n), wide_mul(2, n), n);
    ref_row_state(b, i, wide_mul(n, b->r->e), wide_mul(n, b->r->e), true);
    return i;
}

int ref_dropout(struct block *b, const char *name, wide n, int input)
{
    const wide e = b->r->e;
    int i = ref_row(b, name, DROPOUT, input);
    b->rows[i].needs_output = true;
    b->rows[i].forward = (struct ref_work){n, wide_mul(n, e), wide_add(wide_mul(n, e), n), 0};
    b->rows[i].agrad = (struct ref_work){n, wide_add(wide_mul(n, e), n), wide_mul(n, e), 0};
    ref_row_state(b, i, n, wide_mul(n, e), true);
    return i;
}

int ref_activation(struct block *b, const char *name, wide n, int input, int other)
{
    const struct ref_kind *kind = b->kind;
    const wide in = wide_mul(kind->gated ? 2 : 1, n);
    int i = ref_row(b, name, ACTIVATION, input);
    struct row *row = &b->rows[i];
    row->needs[0] = true;
    ref_row_reads(b, i, other);
    row->again = b->r->recompute_activation || b->full;
    row->forward = ref_elements(b, wide_mul(kind->gated ? 9 : kind->relu ? 1 : 8, n), in, n);
    row->agrad = ref_elements(b,
                              wide_mul(kind->gated  ? 15
                                       : kind->relu ? 1
                                                    : 13,
                                       n),
                              wide_mul(kind->gated ? 3 : 2, n), in);
    ref_row_state(b, i, wide_mul(in, b->r->e), wide_mul(n, b->r->e), true);
    return i;
}

int ref_residual(struct block *b, const char *name, wide n, int one, int other)
{
    int i = ref_row(b, name, RESIDUAL, one);
    ref_row_reads(b, i, other);
    b->rows[i].forward = ref_elements(b, n, wide_mul(2, n), n);
    ref_row_state(b, i, 0, wide_mul(n, b->r->e), false);
    b->rows[i].facts.states_A = b->rows[i].facts.owns_A = false;
    return i;
}

/* `n` elements in the whole group; nothing is done where `kind` is NULL. */
static struct ref_work collective_work(const struct block *b, const char *kind, wide n, wide group)
{
    const wide M = wide_mul(n, b->r->e), part = wide_div(M, group), sums = wide_mul(wide_div(n, group), group - 1);
    if (!kind)
        return (struct ref_work){0, 0, 0, 0};
    if (strcmp(kind, "all_gather") == 0)
        return (struct ref_work){0, part, M, M};
    if (strcmp(kind, "reduce_scatter") == 0)
        return (struct ref_work){sums, M, part, M};
    if (strcmp(kind, "all_to_all") == 0)
        return (struct ref_work){0, M, M, M};
    return (struct ref_work){sums, M, M, M};
}

int ref_group_collective(struct block *b, const char *name, const char *axis, wide group, const char *forward,
                         const char *backward, wide n, int input)
{
    if (group == 1)
        return input;
    const wide M = wide_mul(n, b->r->e), part = wide_div(M, group);
    int i = ref_row(b, name, COLLECTIVE, input);
    struct row *row = &b->rows[i];
    row->axis = axis;
    row->forward_collective = forward;
    row->backward_collective = backward;
    row->has_forward = forward != NULL;
    row->has_agrad = backward != NULL;
    row->forward = collective_work(b, forward, n, group);
    row->agrad = collective_work(b, backward, n, group);
    const bool gathers = forward && strcmp(forward, "all_gather") == 0;
    const bool scatters = forward && strcmp(forward, "reduce_scatter") == 0;
    ref_row_state(b, i, gathers ? part : M, scatters ? part : M, false);
    return i;
}

int ref_collective(struct block *b, const char *name, bool plain, wide n, int input)
{
    const char *forward = b->split ? (plain ? "all_gather" : "reduce_scatter") : plain ? NULL : "all_reduce";
    const char *backward = b->split ? (plain ? "reduce_scatter" : "all_gather") : plain ? "all_reduce" : NULL;
    int i = ref_group_collective(b, name, "tensor", b->r->t, forward, backward, n, input);
    if (i == input)
        return input;
    const wide M = wide_mul(n, b->r->e);
    b->rows[i].again = plain ? b->AG : b->full;
    ref_row_state(b, i, b->split ? wide_div(M, b->r->t) : plain ? 0 : M, M, plain && b->AG);
    return i;
}
