/* One inference block: the table of docs/formulas.md, line by line. */
#include <string.h>

#include "tests/reference/inference.h"

void ref_infer_waits(struct block *b, int task, int on)
{
    if (on == BLOCK_INPUT)
        b->reads_input[task] = true;
    else
        b->plan->tasks[task].waits_for[on] = true;
}

int ref_infer(struct block *b, const char *name, const char *engine, struct ref_work work, wide parameters, int after,
              int also)
{
    const wide e = b->r->e;
    work.read = wide_mul(wide_add(work.read, parameters), e);
    work.write = wide_mul(work.write, e);
    int index = (int)b->plan->n_tasks;
    ref_plan_task(b->plan, name, b->r->prefill ? "prefill" : "decode", engine, &work);
    ref_infer_waits(b, index, after);
    ref_infer_waits(b, index, also);
    b->weights = wide_add(b->weights, parameters);
    b->parameters[index] = parameters != 0;
    ref_plan_row(b->plan, &(struct ref_row){.name = name, .parameters = parameters});
    return index;
}

int ref_infer_norm(struct block *b, const char *name, wide n, wide w, int after)
{
    struct ref_work work = {wide_mul(b->r->rmsnorm ? 4 : 5, n), n, n, 0};
    return ref_infer(b, name, "vector", work, ref_norm_parameters(b->r, w), after, after);
}

/* rows x inner times inner x columns. */
int ref_infer_linear(struct block *b, const char *name, wide rows, wide inner, wide columns, bool bias, int after)
{
    struct ref_work work = {PROD(2, rows, inner, columns), wide_mul(rows, inner), wide_mul(rows, columns), 0};
    return ref_infer(b, name, "matrix", work, wide_add(wide_mul(inner, columns), bias ? columns : 0), after, after);
}

int ref_infer_add(struct block *b, const char *name, wide n, int one, int other)
{
    return ref_infer(b, name, "vector", (struct ref_work){n, wide_mul(2, n), n, 0}, 0, one, other);
}

int ref_infer_collective(struct block *b, const char *name, const char *kind, const char *axis, wide group, wide n,
                         int after)
{
    if (group == 1)
        return after;
    const wide part = wide_div(n, group), sums = wide_mul(part, group - 1);
    const bool gathers = strcmp(kind, "all_gather") == 0, scatters = strcmp(kind, "reduce_scatter") == 0;
    const bool reduces = scatters || strcmp(kind, "all_reduce") == 0;
    struct ref_work work = {reduces ? sums : 0, gathers ? part : n, scatters ? part : n, wide_mul(n, b->r->e)};
    int index = ref_infer(b, name, "collective", work, 0, after, after);
    b->plan->tasks[index].collective = kind;
    b->plan->tasks[index].axis = axis;
    return index;
}

void ref_infer_effect(struct block *b, int task, bool writes)
{
    b->plan->tasks[task].uses_kv_cache = true;
    b->plan->tasks[task].writes_kv_cache = writes;
}

wide ref_infer_score_operations(const struct block *b)
{
    const wide each = (wide)5 + (b->kind->soft_cap ? 3 : 0) + (b->r->alibi ? 1 : 0);
    return wide_add(wide_mul(each, b->s), b->kind->sinks ? PROD(5, b->r->b, b->h_l, b->q) : 0);
}

wide ref_infer_sinks(const struct block *b)
{
    return b->kind->sinks ? b->h_l : 0;
}

static int add_all_reduce(struct block *b, const char *name, int after)
{
    return ref_infer_collective(b, name, "all_reduce", "tensor", b->r->t, b->Y, after);
}

static int add_core(struct block *b, int query, int kv_write)
{
    const struct ref_kind *kind = b->kind;
    const wide heads = PROD(b->bq, kind->d, b->h_l), cache = PROD(2, b->r->b, b->c, kind->d, b->k_l);
    int core = ref_infer(b, "attention.core", "matrix",
                         (struct ref_work){SUM(PROD(4, b->s, kind->d), ref_infer_score_operations(b)), heads, heads, 0},
                         ref_infer_sinks(b), query, kv_write);
    struct ref_work *work = &b->plan->tasks[core].work;
    work->read = wide_add(work->read, wide_mul(cache, b->r->e_kv));
    ref_infer_effect(b, core, false);
    return core;
}

static int add_heads(struct block *b, int after)
{
    const struct ref_kind *kind = b->kind;
    const wide d = kind->d, keys = PROD(2, b->bq, d, b->k_l), heads = PROD(b->bq, d, b->h_l + b->k_l);
    int qkv =
        ref_infer_linear(b, "attention.qkv", b->bq, b->r->H, wide_mul(d, b->h_l + 2 * b->k_l), kind->qkv_bias, after);
    int key = qkv;
    if (kind->qk_norm) {
        struct ref_work work = {wide_mul(b->r->rmsnorm ? 4 : 5, heads), heads, heads, 0};
        const wide P = wide_add(ref_qk_norm_parameters(kind, b->h_l), ref_qk_norm_parameters(kind, b->k_l));
        key = ref_infer(b, "attention.qk_norm", "vector", work, P, key, key);
    }
    const wide m = PROD(b->bq, kind->rotary, b->h_l + b->k_l);
    if (kind->rotary)
        key = ref_infer(b, "attention.rope", "vector", (struct ref_work){wide_mul(6, m), m, m, 0}, 0, key, key);
    int kv_write = ref_infer(b, "attention.kv_write", "vector", (struct ref_work){0, keys, 0, 0}, 0, qkv, key);
    b->plan->tasks[kv_write].work.write = wide_mul(keys, b->r->e_kv);
    ref_infer_effect(b, kv_write, true);
    return add_core(b, key, kv_write);
}

static bool norm_before(const struct block *b)
{
    return b->kind->place != REF_AFTER && b->kind->place != REF_AFTER_RESIDUAL;
}

static int add_block_norm(struct block *b, const char *name, int after)
{
    return ref_infer_norm(b, name, b->Y, b->r->H, after);
}

static int add_output(struct block *b, int after)
{
    int last = b->kind->l_kv ? ref_infer_latent(b, after) : add_heads(b, after);
    const wide width = wide_mul(b->h_l, b->kind->l_kv ? b->kind->v : b->kind->d);
    return ref_infer_linear(b, "attention.output", b->bq, width, b->r->H, b->kind->output_bias, last);
}

int ref_infer_mlp(struct block *b, const char *part, wide width, int after)
{
    static const char *const names[2][4] = {{"mlp.gate", "mlp.up", "mlp.activation", "mlp.down"},
                                            {"shared.gate", "shared.up", "shared.activation", "shared.down"}};
    const char *const *name = names[part[0] == 's'];
    const struct ref_kind *kind = b->kind;
    const wide f = wide_mul(b->bq, width);
    int gate = BLOCK_INPUT;
    if (kind->gated)
        gate = ref_infer_linear(b, name[0], b->bq, b->r->H, width, kind->mlp_bias, after);
    int up = ref_infer_linear(b, name[1], b->bq, b->r->H, width, kind->mlp_bias, after);
    struct ref_work work = {wide_mul(kind->gated ? 9 : kind->relu ? 1 : 8, f), wide_mul(kind->gated ? 2 : 1, f), f, 0};
    int activation = ref_infer(b, name[2], "vector", work, 0, up, kind->gated ? gate : up);
    return ref_infer_linear(b, name[3], b->bq, width, b->r->H, kind->mlp_bias, activation);
}

static int end_half(struct block *b, const char *norm, const char *residual, int branch, int input)
{
    const enum ref_place place = b->kind->place;
    if (place == REF_AFTER || place == REF_AROUND)
        branch = add_block_norm(b, norm, branch);
    int last = ref_infer_add(b, residual, b->Y, branch, input);
    return place == REF_AFTER_RESIDUAL ? add_block_norm(b, norm, last) : last;
}

static void add_sequential(struct block *b)
{
    int last = norm_before(b) ? add_block_norm(b, "attention.norm", BLOCK_INPUT) : BLOCK_INPUT;
    last = add_all_reduce(b, "attention.all_reduce", add_output(b, last));
    int middle = end_half(b, "attention.post_norm", "attention.residual", last, BLOCK_INPUT);
    bool complete = false;
    last = norm_before(b) ? add_block_norm(b, "mlp.norm", middle) : middle;
    last = b->kind->E ? ref_infer_experts(b, last, &complete) : ref_infer_mlp(b, "mlp", b->kind->F / b->r->t, last);
    if (!complete)
        last = add_all_reduce(b, "mlp.all_reduce", last);
    end_half(b, "mlp.post_norm", "mlp.residual", last, middle);
}

static void add_parallel(struct block *b)
{
    int norm = add_block_norm(b, "attention.norm", BLOCK_INPUT);
    int attention = add_output(b, norm);
    if (b->kind->place == REF_BEFORE)
        norm = add_block_norm(b, "mlp.norm", BLOCK_INPUT);
    int mlp = ref_infer_mlp(b, "mlp", b->kind->F / b->r->t, norm);
    int last = ref_infer_add(b, "block.sum", b->Y, attention, mlp);
    ref_infer_add(b, "block.residual", b->Y, add_all_reduce(b, "block.all_reduce", last), BLOCK_INPUT);
}

static wide larger(wide a, wide b)
{
    return a > b ? a : b;
}

/* The widest intermediate of attention, and that of the MLP. */
static wide unfused(const struct block *b)
{
    const struct ref_request *r = b->r;
    const struct ref_kind *kind = b->kind;
    const wide mu = kind->gated ? 2 : 1;
    wide projections = PROD(b->bq, kind->d, b->h_l + 2 * b->k_l), width = PROD(b->bq, mu, kind->F / r->t);
    if (kind->l_kv)
        projections = PROD(b->bq, b->h_l, r->prefill ? 2 * (kind->n + kind->r) + kind->v : kind->l_kv + kind->r);
    if (kind->E) {
        const bool dealt = r->ep != 1 || r->etp != r->t;
        const wide taken = wide_mul(dealt ? b->bq / r->t : b->bq, kind->K);
        width = larger(PROD(dealt ? wide_mul(taken, r->etp) : taken, mu, kind->F_e / r->etp),
                       PROD(b->bq, mu, kind->F_s / r->t));
    }
    return larger(larger(projections, b->s), width);
}

static void add_memory(struct block *b)
{
    const struct ref_kind *kind = b->kind;
    const wide e = b->r->e, boundary = wide_mul(b->Y, e), tokens = wide_mul(b->r->b, b->c);
    const wide token = kind->l_kv ? kind->l_kv + kind->r : PROD(2, kind->d, b->k_l);
    ref_plan_fact(b->plan, "weights", wide_mul(b->weights, e));
    ref_plan_fact(b->plan, "kv_cache", PROD(tokens, token, b->r->e_kv));
    ref_plan_fact(b->plan, "workspace", wide_add(boundary, wide_mul(unfused(b), e)));
    ref_plan_fact(b->plan, "boundary", boundary);
}

static void add_buffers(struct block *b)
{
    struct ref_plan *plan = b->plan;
    const struct ref_memory *memory = &plan->blocks[plan->n_blocks - 1].memory;
    const wide boundary = ref_memory_of(memory, "boundary");
    struct ref_buffer *input = ref_plan_buffer(plan, "input", "device_local", boundary);
    struct ref_buffer *output = ref_plan_buffer(plan, "output", "device_local", boundary);
    output->written_by[plan->n_tasks - 1] = true;
    struct ref_buffer *weights = ref_plan_buffer(plan, "weights", "persistent", ref_memory_of(memory, "weights"));
    struct ref_buffer *cache = ref_plan_buffer(plan, "kv_cache", "persistent", ref_memory_of(memory, "kv_cache"));
    struct ref_buffer *workspace = ref_plan_buffer(plan, "workspace", "transient", ref_memory_of(memory, "workspace"));
    for (size_t i = b->first; i < plan->n_tasks; i++) {
        input->read_by[i] = b->reads_input[i];
        weights->read_by[i] = b->parameters[i];
        cache->written_by[i] = plan->tasks[i].uses_kv_cache && plan->tasks[i].writes_kv_cache;
        cache->read_by[i] = plan->tasks[i].uses_kv_cache && !plan->tasks[i].writes_kv_cache;
        workspace->written_by[i] = workspace->read_by[i] = true;
    }
}

void ref_inference_derive(const struct ref_request *r, const struct ref_kind *kind, struct ref_plan *plan)
{
    struct block b = {.r = r, .kind = kind, .plan = plan, .first = plan->n_tasks};
    b.q = r->prefill ? r->c : 1;
    b.c = !r->prefill && kind->window && kind->window < r->c ? kind->window : r->c;
    b.bq = wide_mul(r->b, b.q);
    b.Y = wide_mul(b.bq, r->H);
    b.h_l = kind->h / r->t;
    b.k_l = kind->k < r->t ? 1 : kind->k / r->t;
    b.s = PROD(r->b, b.h_l, b.q, b.c);
    if (kind->parallel)
        add_parallel(&b);
    else
        add_sequential(&b);
    add_memory(&b);
    add_buffers(&b);
}
