/* One training block: the row table of docs/formulas.md, and its emission and dependency rules read literally. */
#include <stdio.h>
#include <string.h>

#include "tests/reference/reference.h"

enum kind { FORK, NORM, LINEAR, PRODUCT, SOFTMAX, DROPOUT, ACTIVATION, RESIDUAL, PLAIN, CONJUGATE };
enum { BLOCK_INPUT = -1, NO_TASK = -1 };

struct row {
    enum kind kind;
    struct ref_row facts;
    int inputs[3], n_inputs; /* rows, or BLOCK_INPUT */
    bool has_forward, has_agrad, has_wgrad, again;
    const char *forward_collective, *backward_collective;
    struct ref_work forward, agrad, wgrad; /* bytes, but for the operations */
    int forward_task, again_task, agrad_task, wgrad_task;
};

struct block {
    const struct ref_request *r;
    struct ref_plan *plan;
    struct row rows[REF_ROWS];
    int n;
    wide h_l, k_l, X, Xs;
    bool split, AG, selective,
        full; /* sequence parallelism in force; the gather is repeated; the rows of 8 to 10 are */
};

/* The work of `operations; read; write` in elements, in bytes. */
static struct ref_work elements(const struct block *b, wide operations, wide read, wide write)
{
    return (struct ref_work){operations, wide_mul(read, b->r->e), wide_mul(write, b->r->e), 0};
}

static int add(struct block *b, const char *name, enum kind kind, int input, int other)
{
    struct row *row = &b->rows[b->n];
    memset(row, 0, sizeof(*row));
    row->kind = kind;
    row->facts.name = name;
    row->facts.keeps_O = row->facts.owns_A = true;
    row->inputs[row->n_inputs++] = input;
    if (other != input)
        row->inputs[row->n_inputs++] = other;
    row->forward_task = row->again_task = row->agrad_task = row->wgrad_task = NO_TASK;
    row->has_forward = kind != FORK;
    row->has_agrad = kind != RESIDUAL;
    row->has_wgrad = kind == NORM || kind == LINEAR;
    row->again = b->full;
    return b->n++;
}

static void state(struct block *b, int index, wide A_bytes, wide O_bytes, bool keeps_A)
{
    struct ref_row *facts = &b->rows[index].facts;
    facts->A = A_bytes;
    facts->O = O_bytes;
    facts->states_A = facts->states_O = true;
    facts->keeps_A = keeps_A;
}

static int fork_row(struct block *b, const char *name, wide n, wide users, int input, bool keeps)
{
    int i = add(b, name, FORK, input, input);
    b->rows[i].agrad = elements(b, wide_mul(users - 1, n), wide_mul(users, n), n);
    state(b, i, wide_mul(n, b->r->e), 0, keeps);
    b->rows[i].facts.states_O = false;
    return i;
}

static int norm_row(struct block *b, const char *name, wide n, wide w, int input, bool shares)
{
    const struct ref_request *r = b->r;
    const wide P = wide_mul(r->rmsnorm ? 1 : 2, w);
    int i = add(b, name, NORM, input, input);
    b->rows[i].forward = elements(b, wide_mul(r->rmsnorm ? 4 : 9, n), wide_add(n, P), n);
    b->rows[i].agrad = elements(b, wide_mul(r->rmsnorm ? 8 : 14, n), wide_add(wide_mul(2, n), w), n);
    b->rows[i].wgrad = elements(b, wide_mul(r->rmsnorm ? 4 : 7, n), wide_mul(2, n), 0);
    b->rows[i].wgrad.write = wide_mul(P, r->g);
    b->rows[i].facts.parameters = P;
    state(b, i, wide_mul(n, r->e), wide_mul(n, r->e), !shares);
    b->rows[i].facts.owns_A = !shares;
    return i;
}

static int linear_row(struct block *b, const char *name, wide m, wide n, wide k, bool bias, int input, bool keeps,
                      bool shares)
{
    const struct ref_request *r = b->r;
    const wide P = wide_add(wide_mul(n, k), bias ? k : 0), mn = wide_mul(m, n), mk = wide_mul(m, k);
    const wide operations = PROD(2, m, n, k);
    int i = add(b, name, LINEAR, input, input);
    b->rows[i].forward = elements(b, operations, wide_add(mn, P), mk);
    b->rows[i].agrad = elements(b, operations, wide_add(wide_mul(n, k), mk), mn);
    b->rows[i].wgrad = elements(b, operations, wide_add(mn, mk), 0);
    b->rows[i].wgrad.write = wide_mul(P, r->g);
    b->rows[i].facts.parameters = P;
    state(b, i, wide_mul(mn, r->e), wide_mul(mk, r->e), keeps);
    b->rows[i].facts.owns_A = !shares;
    return i;
}

static int product_row(struct block *b, const char *name, wide W, wide A, wide O, int one, int other)
{
    int i = add(b, name, PRODUCT, one, other);
    b->rows[i].forward = elements(b, W, A, O);
    b->rows[i].agrad = elements(b, wide_mul(2, W), wide_add(A, O), A);
    state(b, i, wide_mul(A, b->r->e), wide_mul(O, b->r->e), true);
    return i;
}

static int dropout_row(struct block *b, const char *name, wide n, int input, bool keeps)
{
    const wide e = b->r->e;
    int i = add(b, name, DROPOUT, input, input);
    b->rows[i].forward = (struct ref_work){n, wide_mul(n, e), wide_add(wide_mul(n, e), n), 0};
    b->rows[i].agrad = (struct ref_work){n, wide_add(wide_mul(n, e), n), wide_mul(n, e), 0};
    state(b, i, n, wide_mul(n, e), keeps);
    return i;
}

static int residual_row(struct block *b, const char *name, int branch, int fork)
{
    int i = add(b, name, RESIDUAL, branch, fork);
    b->rows[i].forward = elements(b, b->Xs, wide_mul(2, b->Xs), b->Xs);
    state(b, i, 0, wide_mul(b->Xs, b->r->e), false);
    b->rows[i].facts.states_A = b->rows[i].facts.owns_A = false;
    return i;
}

static struct ref_work collective_work(const struct block *b, const char *collective)
{
    const wide M = wide_mul(b->X, b->r->e), part = wide_div(M, b->r->t);
    const wide reduces = wide_mul(wide_div(b->X, b->r->t), b->r->t - 1);
    if (strcmp(collective, "all_gather") == 0)
        return (struct ref_work){0, part, M, M};
    if (strcmp(collective, "reduce_scatter") == 0)
        return (struct ref_work){reduces, M, part, M};
    return (struct ref_work){reduces, M, M, M};
}

static int collective_row(struct block *b, const char *name, bool plain, int input)
{
    if (b->r->t == 1)
        return input;
    const wide M = wide_mul(b->X, b->r->e);
    int i = add(b, name, plain ? PLAIN : CONJUGATE, input, input);
    struct row *row = &b->rows[i];
    row->forward_collective = b->split ? (plain ? "all_gather" : "reduce_scatter") : plain ? NULL : "all_reduce";
    row->backward_collective = b->split ? (plain ? "reduce_scatter" : "all_gather") : plain ? "all_reduce" : NULL;
    row->has_forward = row->forward_collective != NULL;
    row->has_agrad = row->backward_collective != NULL;
    row->again = plain ? b->AG : b->full;
    if (row->has_forward)
        row->forward = collective_work(b, row->forward_collective);
    if (row->has_agrad)
        row->agrad = collective_work(b, row->backward_collective);
    state(b, i, b->split ? wide_div(M, b->r->t) : plain ? 0 : M, M, plain && b->AG);
    return i;
}

/* Rows 8 to 11: scores to context. */
static int add_core(struct block *b, int query, int key, int value)
{
    const struct ref_request *r = b->r;
    const wide s = PROD(r->B, b->h_l, r->S, r->S), W = PROD(2, s, r->d), BSd = PROD(r->B, r->S, r->d);
    const bool dropout = r->attention_dropout, again = b->selective || b->full;
    int scores = product_row(b, "attention.scores", W, wide_mul(BSd, b->h_l + b->k_l), s, query, key);
    b->rows[scores].again = again;
    b->rows[scores].facts.keeps_O = !(again && dropout);
    int last = add(b, "attention.softmax", SOFTMAX, scores, scores);
    struct row *softmax = &b->rows[last];
    softmax->again = again;
    softmax->forward = elements(b, wide_mul(5, s), s, s);
    softmax->agrad = elements(b, wide_mul(8, s), wide_mul(2, s), s);
    state(b, last, wide_mul(s, r->e), wide_mul(s, r->e), dropout);
    softmax->facts.owns_A = dropout;
    softmax->facts.keeps_O = !again;
    if (dropout) {
        last = dropout_row(b, "attention.dropout", s, last, !again);
        b->rows[last].again = again;
    }
    return product_row(b, "attention.context", W, SUM(s, wide_mul(BSd, b->k_l)), wide_mul(BSd, b->h_l), last, value);
}

static int add_attention(struct block *b)
{
    const struct ref_request *r = b->r;
    const wide BS = wide_mul(r->B, r->S), q = wide_mul(b->h_l, r->d), kv = wide_mul(b->k_l, r->d);
    const bool bias = r->bias || r->qkv_bias;
    int fork = fork_row(b, "attention.residual_fork", b->Xs, 2, BLOCK_INPUT, true);
    int last = norm_row(b, "attention.norm", b->Xs, r->H, fork, true);
    last = collective_row(b, "attention.input_collective", true, last);
    last = fork_row(b, "attention.qkv_fork", b->X, 3, last, !b->AG);
    int query = linear_row(b, "attention.query", BS, r->H, q, bias, last, false, true);
    int key = linear_row(b, "attention.key", BS, r->H, kv, bias, last, false, true);
    int value = linear_row(b, "attention.value", BS, r->H, kv, bias, last, false, true);
    if (r->qk_norm) {
        query = norm_row(b, "attention.query_norm", wide_mul(BS, q), r->d, query, false);
        key = norm_row(b, "attention.key_norm", wide_mul(BS, kv), r->d, key, false);
    }
    last = add_core(b, query, key, value);
    last = linear_row(b, "attention.output", BS, q, r->H, r->bias, last, true, false);
    last = collective_row(b, "attention.output_collective", false, last);
    if (r->hidden_dropout)
        last = dropout_row(b, "attention.output_dropout", b->Xs, last, true);
    return residual_row(b, "attention.residual", last, fork);
}

static int add_mlp(struct block *b, int input)
{
    const struct ref_request *r = b->r;
    const wide BS = wide_mul(r->B, r->S), width = r->F / r->t, n = wide_mul(BS, width);
    int fork = fork_row(b, "mlp.residual_fork", b->Xs, 2, input, true);
    int last = norm_row(b, "mlp.norm", b->Xs, r->H, fork, true);
    last = collective_row(b, "mlp.input_collective", true, last);
    int gate = BLOCK_INPUT, up;
    if (r->gated) {
        last = fork_row(b, "mlp.gate_fork", b->X, 2, last, !b->AG);
        gate = linear_row(b, "mlp.gate", BS, r->H, width, r->bias, last, false, true);
        up = linear_row(b, "mlp.up", BS, r->H, width, r->bias, last, false, true);
    } else {
        up = linear_row(b, "mlp.up", BS, r->H, width, r->bias, last, !b->AG, false);
    }
    last = add(b, "mlp.activation", ACTIVATION, up, r->gated ? gate : up);
    struct row *act = &b->rows[last];
    act->again = r->recompute_activation || b->full;
    const wide in = wide_mul(r->gated ? 2 : 1, n);
    act->forward = elements(b, wide_mul(r->gated ? 9 : r->relu ? 1 : 8, n), in, n);
    act->agrad = elements(b, wide_mul(r->gated ? 15 : r->relu ? 1 : 13, n), wide_mul(r->gated ? 3 : 2, n), in);
    state(b, last, wide_mul(in, r->e), wide_mul(n, r->e), true);
    last = linear_row(b, "mlp.down", BS, width, r->H, r->bias, last, !r->recompute_activation, false);
    last = collective_row(b, "mlp.output_collective", false, last);
    if (r->hidden_dropout)
        last = dropout_row(b, "mlp.output_dropout", b->Xs, last, true);
    return residual_row(b, "mlp.residual", last, fork);
}

/* What an input comes from: the row that really made the tensor, or BLOCK_INPUT. */
static void wait_for_forward(const struct block *b, int row, bool *waits)
{
    if (row == BLOCK_INPUT)
        return;
    if (b->rows[row].has_forward) {
        waits[b->rows[row].forward_task] = true;
        return;
    }
    for (int i = 0; i < b->rows[row].n_inputs; i++)
        wait_for_forward(b, b->rows[row].inputs[i], waits);
}

/* Adds the regenerator of the tensor that comes out of `row`, if it has one. */
static bool wait_for_regenerator(const struct block *b, int row, bool *waits)
{
    while (row != BLOCK_INPUT && !b->rows[row].has_forward)
        row = b->rows[row].inputs[0]; /* forks and silent collectives have one input */
    if (row == BLOCK_INPUT || b->rows[row].again_task == NO_TASK)
        return false;
    waits[b->rows[row].again_task] = true;
    return true;
}

/* Adds the tasks that make the gradient of what `row` puts out. */
static void wait_for_gradient(const struct block *b, int row, bool *waits)
{
    if (row == b->n - 1)
        waits[b->rows[row].forward_task] = true;
    for (int user = 0; user < b->n; user++)
        for (int i = 0; i < b->rows[user].n_inputs; i++) {
            if (b->rows[user].inputs[i] != row)
                continue;
            if (b->rows[user].has_agrad)
                waits[b->rows[user].agrad_task] = true;
            else
                wait_for_gradient(b, user, waits);
        }
}

static struct ref_task *emit(struct block *b, struct row *row, const char *phase, const char *collective,
                             const struct ref_work *work, int *ret_task)
{
    const char *engine = collective                                    ? "collective"
                         : strcmp(phase, "optimizer") == 0             ? "vector"
                         : row->kind == LINEAR || row->kind == PRODUCT ? "matrix"
                                                                       : "vector";
    if (ret_task)
        *ret_task = (int)b->plan->n_tasks;
    struct ref_task *task = ref_plan_task(b->plan, row->facts.name, phase, engine, work);
    snprintf(task->name, sizeof(task->name), "%s.%s%s%s", row->facts.name, phase, collective ? "." : "",
             collective ? collective : "");
    task->collective = collective;
    return task;
}

static void emit_forward(struct block *b)
{
    for (int i = 0; i < b->n; i++) {
        struct row *row = &b->rows[i];
        if (!row->has_forward)
            continue;
        struct ref_task *task = emit(b, row, "forward", row->forward_collective, &row->forward, &row->forward_task);
        for (int k = 0; k < row->n_inputs; k++)
            wait_for_forward(b, row->inputs[k], task->waits_for);
    }
}

static void emit_again(struct block *b)
{
    for (int i = 0; i < b->n; i++) {
        struct row *row = &b->rows[i];
        if (!row->has_forward || !row->again)
            continue;
        struct ref_task *task = emit(b, row, row->forward_collective ? "recommunication" : "recompute",
                                     row->forward_collective, &row->forward, &row->again_task);
        bool any = false;
        for (int k = 0; k < row->n_inputs; k++)
            any |= wait_for_regenerator(b, row->inputs[k], task->waits_for);
        if (!any)
            task->waits_for[b->rows[b->n - 1].forward_task] = true;
    }
}

static void emit_agrad(struct block *b, int index)
{
    struct row *row = &b->rows[index];
    struct ref_task *task =
        emit(b, row, "activation_gradient", row->backward_collective, &row->agrad, &row->agrad_task);
    wait_for_gradient(b, index, task->waits_for);
    if (row->kind == SOFTMAX || row->kind == DROPOUT)
        wait_for_regenerator(b, index, task->waits_for);
    if (row->kind == PRODUCT || row->kind == ACTIVATION || row->kind == NORM)
        for (int k = 0; k < row->n_inputs; k++)
            wait_for_regenerator(b, row->inputs[k], task->waits_for);
}

static void emit_backward(struct block *b)
{
    for (int i = b->n - 1; i >= 0; i--) {
        struct row *row = &b->rows[i];
        if (row->has_agrad)
            emit_agrad(b, i);
        if (!row->has_wgrad)
            continue;
        struct ref_task *task = emit(b, row, "weight_gradient", NULL, &row->wgrad, &row->wgrad_task);
        wait_for_gradient(b, i, task->waits_for);
        wait_for_regenerator(b, row->inputs[0], task->waits_for);
    }
}

static wide shard(const struct ref_request *r, wide P, wide stage)
{
    return r->zero >= stage ? wide_div(P, r->dp) : P;
}

static wide optimizer_state(const struct ref_request *r, wide P)
{
    return wide_mul(shard(r, P, 1), r->e < 4 ? 12 : 8);
}

static void emit_optimizer(struct block *b)
{
    const struct ref_request *r = b->r;
    for (int i = 0; i < b->n; i++) {
        struct row *row = &b->rows[i];
        const wide P = row->facts.parameters, own = shard(r, P, 1), states = optimizer_state(r, P);
        if (P == 0)
            continue;
        struct ref_work work = {wide_mul(11, own), SUM(wide_mul(own, r->g), states, r->e < 4 ? 0 : wide_mul(own, r->e)),
                                wide_add(states, wide_mul(own, r->e)), 0};
        struct ref_task *task = emit(b, row, "optimizer", NULL, &work, NULL);
        task->waits_for[row->wgrad_task] = task->waits_for[row->agrad_task] = true;
        if (row->again_task != NO_TASK)
            task->waits_for[row->again_task] = true;
    }
}

static void add_memory(struct block *b)
{
    const struct ref_request *r = b->r;
    wide weights = 0, gradients = 0, optimizer = 0, all = 0, dropped = 0, working = 0;
    for (int i = 0; i < b->n; i++) {
        const struct ref_row *row = &b->rows[i].facts;
        weights = wide_add(weights, wide_mul(shard(r, row->parameters, 3), r->e));
        gradients = wide_add(gradients, wide_mul(shard(r, row->parameters, 2), r->g));
        optimizer = wide_add(optimizer, optimizer_state(r, row->parameters));
        all = wide_add(all, row->A);
        dropped = SUM(dropped, row->keeps_A ? 0 : row->A, row->keeps_O ? 0 : row->O);
        working = wide_add(working, row->owns_A ? row->A : 0);
        b->plan->rows[b->plan->n_rows++] = *row;
    }
    ref_plan_fact(b->plan, "weights", weights);
    ref_plan_fact(b->plan, "gradients", gradients);
    ref_plan_fact(b->plan, "optimizer", optimizer);
    ref_plan_fact(b->plan, "stored_activations", b->full ? 0 : wide_sub(all, dropped));
    ref_plan_fact(b->plan, "activation_checkpoint", b->full ? wide_mul(b->Xs, r->e) : 0);
    ref_plan_fact(b->plan, "working_activations", working);
}

static const struct row *row_of(const struct block *b, const struct ref_task *task)
{
    for (int i = 0; i < b->n; i++)
        if (b->rows[i].facts.name == task->layer)
            return &b->rows[i];
    return NULL;
}

static bool named(const struct ref_task *task, const char *name)
{
    return strcmp(task->layer, name) == 0;
}

static void use_buffers(struct block *b, size_t i, struct ref_buffer *const *buffer)
{
    const struct ref_task *task = &b->plan->tasks[i];
    const struct row *row = row_of(b, task);
    const bool forward = strcmp(task->phase, "forward") == 0, recompute = strcmp(task->phase, "recompute") == 0;
    const bool wgrad = strcmp(task->phase, "weight_gradient") == 0, optimizer = strcmp(task->phase, "optimizer") == 0;
    const bool entry = named(task, "attention.norm") || named(task, "attention.residual");
    buffer[0]->read_by[i] = entry && (forward || recompute);
    buffer[1]->written_by[i] = forward && row == &b->rows[b->n - 1];
    buffer[2]->read_by[i] = row->facts.parameters != 0;
    buffer[2]->written_by[i] = optimizer;
    buffer[3]->read_by[i] = wgrad || optimizer;
    buffer[3]->written_by[i] = wgrad;
    buffer[4]->read_by[i] = buffer[4]->written_by[i] = optimizer;
    buffer[5]->written_by[i] = i == 0;
    buffer[5]->read_by[i] = entry && !forward && !optimizer;
    buffer[6]->written_by[i] = forward && row->facts.keeps_A && row->facts.A != 0;
    buffer[6]->read_by[i] = !forward && !optimizer && row->facts.keeps_A && row->facts.A != 0;
    buffer[7]->read_by[i] = buffer[7]->written_by[i] = !optimizer;
}

static void add_buffers(struct block *b)
{
    static const struct {
        const char *role, *storage;
    } names[] = {
        {"input", "device_local"},           {"output", "device_local"},
        {"weights", "persistent"},           {"gradients", "persistent"},
        {"optimizer_state", "persistent"},   {"activation_checkpoint", "transient"},
        {"stored_activations", "transient"}, {"working_activations", "transient"},
    };
    struct ref_plan *plan = b->plan;
    const wide boundary = wide_mul(b->Xs, b->r->e), stored = ref_plan_memory(plan, "stored_activations");
    const wide sizes[] = {boundary,
                          boundary,
                          ref_plan_memory(plan, "weights"),
                          ref_plan_memory(plan, "gradients"),
                          ref_plan_memory(plan, "optimizer"),
                          ref_plan_memory(plan, "activation_checkpoint"),
                          stored,
                          wide_sub(ref_plan_memory(plan, "working_activations"), stored)};
    struct ref_buffer *buffers[sizeof(sizes) / sizeof(sizes[0])];
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        buffers[i] = ref_plan_buffer(plan, names[i].role, names[i].storage, sizes[i]);
    for (size_t i = 0; i < plan->n_tasks; i++)
        use_buffers(b, i, buffers);
}

void ref_training_derive(const struct ref_request *r, struct ref_plan *plan)
{
    struct block b = {.r = r, .plan = plan, .h_l = r->h / r->t, .k_l = r->k < r->t ? 1 : r->k / r->t};
    b.X = PROD(r->B, r->S, r->H);
    b.split = r->sequence_parallel && r->t > 1;
    b.Xs = b.split ? wide_div(b.X, r->t) : b.X;
    b.full = r->recompute == REF_FULL;
    b.selective = r->recompute == REF_SELECTIVE;
    b.AG = b.split && (b.full || r->gather_again);
    add_mlp(&b, add_attention(&b)); /* whose last row is the block's output */
    emit_forward(&b);
    emit_again(&b);
    emit_backward(&b);
    emit_optimizer(&b);
    add_memory(&b);
    add_buffers(&b);
}
