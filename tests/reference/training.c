/* One training block: the row table of docs/formulas.md, and its emission and dependency rules read literally. */
#include <stdio.h>
#include <string.h>

#include "tests/reference/training.h"

static bool has_norm_before(const struct ref_kind *kind)
{
    return kind->place == REF_BEFORE || kind->place == REF_AROUND || kind->place == REF_SHARED;
}

static bool has_norm_after(const struct ref_kind *kind)
{
    return kind->place == REF_AFTER || kind->place == REF_AROUND;
}

static int add_norm(struct block *b, const char *name, int input, bool shares)
{
    int i = ref_norm(b, name, b->Xs, b->r->H, ref_norm_parameters(b->r, b->r->H), input);
    ref_row_share(b, i, shares);
    return i;
}

/* The fork of a half and its norm, if there is one. Without it the fork shares what the next row keeps, but for the
 * shard that only a gather reads. */
static int begin_half(struct block *b, const char *fork_name, const char *norm_name, bool gathers, int input, int *fork)
{
    *fork = ref_fork(b, fork_name, b->Xs, 2, input, true);
    if (has_norm_before(b->kind))
        return add_norm(b, norm_name, *fork, true);
    ref_row_share(b, *fork, !(b->split && gathers));
    return *fork;
}

static int end_half(struct block *b, const char *const name[3], int last, int fork)
{
    if (has_norm_after(b->kind))
        last = add_norm(b, name[0], last, false);
    if (b->kind->hidden_dropout)
        last = ref_dropout(b, name[1], b->Xs, last);
    last = ref_residual(b, name[2], b->Xs, last, fork);
    return b->kind->place == REF_AFTER_RESIDUAL ? add_norm(b, name[0], last, false) : last;
}

static int collective_after(struct block *b, const char *name, bool plain, bool shares, int input)
{
    int i = ref_collective(b, name, plain, b->X, input);
    if (i != input && shares)
        ref_row_share(b, i, true);
    return i;
}

static void add_sequential(struct block *b)
{
    static const char *const first[] = {"attention.post_norm", "attention.output_dropout", "attention.residual"};
    static const char *const second[] = {"mlp.post_norm", "mlp.output_dropout", "mlp.residual"};
    const bool shares = !has_norm_before(b->kind);
    int fork;
    int last = begin_half(b, "attention.residual_fork", "attention.norm", b->kind->l_kv == 0, BLOCK_INPUT, &fork);
    last = ref_training_attention(b, last);
    last = ref_collective(b, "attention.output_collective", false, b->X, last);
    last = end_half(b, first, last, fork);
    last = begin_half(b, "mlp.residual_fork", "mlp.norm", b->kind->E == 0, last, &fork);
    if (b->kind->E) {
        last = ref_training_experts(b, last);
    } else {
        last = collective_after(b, "mlp.input_collective", true, shares, last);
        last = ref_training_mlp(b, "mlp", b->kind->F / b->r->t, last, true, !b->AG);
        last = ref_collective(b, "mlp.output_collective", false, b->X, last);
    }
    end_half(b, second, last, fork);
}

/* Both branches read the block's input. */
static void add_parallel(struct block *b)
{
    const bool one = b->kind->place == REF_SHARED;
    int fork = ref_fork(b, "attention.residual_fork", b->Xs, one ? 2 : 3, BLOCK_INPUT, true);
    int norm = add_norm(b, "attention.norm", fork, true);
    int attention = ref_training_attention(b, norm), input = BLOCK_INPUT;
    if (b->kind->hidden_dropout)
        attention = ref_dropout(b, "attention.output_dropout", b->X, attention);
    if (one) {
        for (int i = 0; i < b->n; i++)
            if (strcmp(b->rows[i].facts.name, "block.fork") == 0)
                input = i;
    } else {
        input = add_norm(b, "mlp.norm", fork, true);
        input = ref_collective(b, "mlp.input_collective", true, b->X, input);
    }
    int mlp = ref_training_mlp(b, "mlp", b->kind->F / b->r->t, input, !one, !b->AG);
    if (b->kind->hidden_dropout)
        mlp = ref_dropout(b, "mlp.output_dropout", b->X, mlp);
    int last = ref_residual(b, "block.sum", b->X, attention, mlp);
    last = ref_collective(b, "block.output_collective", false, b->X, last);
    ref_residual(b, "block.residual", b->Xs, last, fork);
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

/* Adds the regenerators of the tensor that comes out of `row`, if it has any; it passes unchanged through rows without
 * forward work. */
static bool wait_for_regenerator(const struct block *b, int row, bool *waits)
{
    bool any = false;
    if (row == BLOCK_INPUT)
        return false;
    if (b->rows[row].has_forward) {
        if (b->rows[row].again_task != NO_TASK)
            waits[b->rows[row].again_task] = true;
        return b->rows[row].again_task != NO_TASK;
    }
    for (int i = 0; i < b->rows[row].n_inputs; i++)
        any |= wait_for_regenerator(b, b->rows[row].inputs[i], waits);
    return any;
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
    task->axis = collective ? row->axis : NULL;
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
    if (row->needs_output)
        wait_for_regenerator(b, index, task->waits_for);
    for (int k = 0; k < row->n_inputs; k++)
        if (row->needs[k])
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

static wide shard(const struct ref_request *r, const struct row *row, wide stage)
{
    return r->zero >= stage ? wide_div(row->facts.parameters, row->copies) : row->facts.parameters;
}

static wide optimizer_state(const struct ref_request *r, const struct row *row)
{
    return wide_mul(shard(r, row, 1), r->e < 4 ? 12 : 8);
}

static void emit_optimizer(struct block *b)
{
    const struct ref_request *r = b->r;
    for (int i = 0; i < b->n; i++) {
        struct row *row = &b->rows[i];
        const wide own = shard(r, row, 1), states = optimizer_state(r, row);
        if (row->facts.parameters == 0)
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
        weights = wide_add(weights, wide_mul(shard(r, &b->rows[i], 3), r->e));
        gradients = wide_add(gradients, wide_mul(shard(r, &b->rows[i], 2), r->g));
        optimizer = wide_add(optimizer, optimizer_state(r, &b->rows[i]));
        all = wide_add(all, row->A);
        dropped = SUM(dropped, row->keeps_A ? 0 : row->A, row->keeps_O ? 0 : row->O);
        working = wide_add(working, row->owns_A ? row->A : 0);
        ref_plan_row(b->plan, row);
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

/* Whether a row reads the block's input, through rows that do nothing forward. */
static bool reads_input(const struct block *b, int row)
{
    for (int i = 0; i < b->rows[row].n_inputs; i++) {
        const int input = b->rows[row].inputs[i];
        if (input == BLOCK_INPUT || (!b->rows[input].has_forward && reads_input(b, input)))
            return true;
    }
    return false;
}

static void use_buffers(struct block *b, size_t i, struct ref_buffer *const *buffer)
{
    const struct ref_task *task = &b->plan->tasks[i];
    const struct row *row = row_of(b, task);
    const bool forward = strcmp(task->phase, "forward") == 0, again = strncmp(task->phase, "recom", 5) == 0;
    const bool wgrad = strcmp(task->phase, "weight_gradient") == 0, optimizer = strcmp(task->phase, "optimizer") == 0;
    const bool entry = row->has_forward && reads_input(b, (int)(row - b->rows));
    buffer[0]->read_by[i] = entry && (forward || again);
    buffer[1]->written_by[i] = forward && row == &b->rows[b->n - 1];
    buffer[2]->read_by[i] = row->facts.parameters != 0;
    buffer[2]->written_by[i] = optimizer;
    buffer[3]->read_by[i] = wgrad || optimizer;
    buffer[3]->written_by[i] = wgrad;
    buffer[4]->read_by[i] = buffer[4]->written_by[i] = optimizer;
    buffer[5]->written_by[i] = i == b->first;
    /* an activation gradient reads it when it needs its input: a norm's */
    const bool agrad = strcmp(task->phase, "activation_gradient") == 0;
    buffer[5]->read_by[i] = entry && (again || wgrad || (agrad && row->needs[0]));
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
    const struct ref_memory *memory = &plan->blocks[plan->n_blocks - 1].memory;
    const wide boundary = wide_mul(b->Xs, b->r->e), stored = ref_memory_of(memory, "stored_activations");
    const wide sizes[] = {boundary,
                          boundary,
                          ref_memory_of(memory, "weights"),
                          ref_memory_of(memory, "gradients"),
                          ref_memory_of(memory, "optimizer"),
                          ref_memory_of(memory, "activation_checkpoint"),
                          stored,
                          wide_sub(ref_memory_of(memory, "working_activations"), stored)};
    struct ref_buffer *buffers[sizeof(sizes) / sizeof(sizes[0])];
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        buffers[i] = ref_plan_buffer(plan, names[i].role, names[i].storage, sizes[i]);
    for (size_t i = b->first; i < plan->n_tasks; i++)
        use_buffers(b, i, buffers);
}

void ref_training_derive(const struct ref_request *r, const struct ref_kind *kind, struct ref_plan *plan)
{
    struct block b = {.r = r, .kind = kind, .plan = plan, .first = plan->n_tasks};
    b.h_l = kind->h / r->t;
    b.k_l = kind->k < r->t ? 1 : kind->k / r->t;
    b.T = wide_mul(r->B, r->S);
    b.X = wide_mul(b.T, r->H);
    b.split = r->sequence_parallel && r->t > 1;
    b.T_s = b.split ? wide_div(b.T, r->t) : b.T;
    b.Xs = wide_mul(b.T_s, r->H);
    b.full = r->recompute == REF_FULL;
    b.selective = r->recompute == REF_SELECTIVE;
    b.AG = b.split && (b.full || r->gather_again);
    b.copies = wide_mul(r->dp, r->cp);
    b.expert_copies = kind->E ? wide_div(wide_mul(r->t, b.copies), wide_mul(r->ep, r->etp)) : 1;
    if (kind->parallel)
        add_parallel(&b);
    else
        add_sequential(&b); /* the last row is the block's output */
    emit_forward(&b);
    emit_again(&b);
    emit_backward(&b);
    emit_optimizer(&b);
    add_memory(&b);
    add_buffers(&b);
}
