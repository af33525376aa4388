/* One inference block: the table of docs/formulas.md, line by line. */
#include <string.h>

#include "tests/reference/reference.h"

/* The block so far: the task that last wrote the residual branch is what the next one reads. */
struct block {
    const struct ref_request *r;
    struct ref_plan *plan;
    wide weights; /* elements */
    bool parameters[REF_TASKS];
};

/* Adds a task whose reads and writes are in elements; it waits for tasks `after` and `also` (-1: none). */
static int add(struct block *block, const char *name, const char *engine, struct ref_work work, wide parameters,
               int after, int also)
{
    const wide e = block->r->e;
    work.read = wide_mul(wide_add(work.read, parameters), e);
    work.write = wide_mul(work.write, e);
    int index = (int)block->plan->n_tasks;
    struct ref_task *task = ref_plan_task(block->plan, name, block->r->prefill ? "prefill" : "decode", engine, &work);
    if (after >= 0)
        task->waits_for[after] = true;
    if (also >= 0)
        task->waits_for[also] = true;
    block->weights = wide_add(block->weights, parameters);
    block->parameters[index] = parameters != 0;
    block->plan->rows[block->plan->n_rows++] = (struct ref_row){.name = name, .parameters = parameters};
    return index;
}

static int add_norm(struct block *block, const char *name, wide Y, int after)
{
    const struct ref_request *r = block->r;
    struct ref_work work = {wide_mul(r->rmsnorm ? 4 : 5, Y), Y, Y, 0};
    return add(block, name, "vector", work, wide_mul(r->rmsnorm ? 1 : 2, r->H), after, -1);
}

/* rows x inner times inner x columns. */
static int add_linear(struct block *block, const char *name, wide rows, wide inner, wide columns, bool bias, int after)
{
    struct ref_work work = {PROD(2, rows, inner, columns), wide_mul(rows, inner), wide_mul(rows, columns), 0};
    return add(block, name, "matrix", work, wide_add(wide_mul(inner, columns), bias ? columns : 0), after, -1);
}

static int add_all_reduce(struct block *block, const char *name, wide Y, int after)
{
    const wide t = block->r->t;
    if (t == 1)
        return after;
    struct ref_work work = {wide_mul(wide_div(Y, t), t - 1), Y, Y, wide_mul(Y, block->r->e)};
    int index = add(block, name, "collective", work, 0, after, -1);
    block->plan->tasks[index].collective = "all_reduce";
    return index;
}

static int add_attention(struct block *block, wide q, wide h_l, wide k_l)
{
    const struct ref_request *r = block->r;
    const wide bq = wide_mul(r->b, q), Y = wide_mul(bq, r->H), heads = PROD(bq, r->d, h_l + k_l);
    const wide s = PROD(r->b, h_l, q, r->c);
    const wide query = PROD(bq, r->d, h_l), keys = PROD(bq, r->d, k_l);

    int norm = add_norm(block, "attention.norm", Y, -1);
    int qkv = add_linear(block, "attention.qkv", bq, r->H, wide_mul(r->d, h_l + 2 * k_l), r->bias || r->qkv_bias, norm);
    int key = qkv;
    if (r->qk_norm)
        key = add(block, "attention.qk_norm", "vector",
                  (struct ref_work){wide_mul(r->rmsnorm ? 4 : 5, heads), heads, heads, 0},
                  wide_mul(r->rmsnorm ? 2 : 4, r->d), key, -1);
    if (r->rope)
        key =
            add(block, "attention.rope", "vector", (struct ref_work){wide_mul(6, heads), heads, heads, 0}, 0, key, -1);
    int kv_write = add(block, "attention.kv_write", "vector",
                       (struct ref_work){0, wide_mul(2, keys), wide_mul(2, keys), 0}, 0, qkv, key);
    block->plan->tasks[kv_write].uses_kv_cache = block->plan->tasks[kv_write].writes_kv_cache = true;
    int core = add(block, "attention.core", "matrix",
                   (struct ref_work){SUM(PROD(4, r->b, q, r->c, r->d, h_l), wide_mul(5, s)),
                                     SUM(query, PROD(2, r->b, r->c, r->d, k_l)), query, 0},
                   0, key, kv_write);
    block->plan->tasks[core].uses_kv_cache = true;
    int output = add_linear(block, "attention.output", bq, wide_mul(r->d, h_l), r->H, r->bias, core);
    int reduced = add_all_reduce(block, "attention.all_reduce", Y, output);
    return add(block, "attention.residual", "vector", (struct ref_work){Y, wide_mul(2, Y), Y, 0}, 0, reduced, -1);
}

static int add_mlp(struct block *block, wide q, int residual)
{
    const struct ref_request *r = block->r;
    const wide bq = wide_mul(r->b, q), Y = wide_mul(bq, r->H), width = r->F / r->t, f = wide_mul(bq, width);

    int norm = add_norm(block, "mlp.norm", Y, residual);
    int gate = r->gated ? add_linear(block, "mlp.gate", bq, r->H, width, r->bias, norm) : -1;
    int up = add_linear(block, "mlp.up", bq, r->H, width, r->bias, norm);
    struct ref_work activation = {wide_mul(r->gated ? 9 : r->relu ? 1 : 8, f), wide_mul(r->gated ? 2 : 1, f), f, 0};
    int act = add(block, "mlp.activation", "vector", activation, 0, up, gate);
    int down = add_linear(block, "mlp.down", bq, width, r->H, r->bias, act);
    int reduced = add_all_reduce(block, "mlp.all_reduce", Y, down);
    return add(block, "mlp.residual", "vector", (struct ref_work){Y, wide_mul(2, Y), Y, 0}, 0, reduced, residual);
}

static wide larger(wide a, wide b)
{
    return a > b ? a : b;
}

void ref_inference_derive(const struct ref_request *r, struct ref_plan *plan)
{
    struct block block = {.r = r, .plan = plan};
    const wide q = r->prefill ? r->c : 1, h_l = r->h / r->t, k_l = r->k < r->t ? 1 : r->k / r->t;
    const wide bq = wide_mul(r->b, q), f = wide_mul(bq, r->F / r->t);

    int residual = add_attention(&block, q, h_l, k_l);
    int last = add_mlp(&block, q, residual);

    const wide boundary = PROD(bq, r->H, r->e), weights = wide_mul(block.weights, r->e);
    const wide kv_cache = PROD(2, r->b, r->c, r->d, k_l, r->e);
    const wide unfused =
        larger(larger(PROD(bq, r->d, h_l + 2 * k_l), PROD(r->b, h_l, q, r->c)), wide_mul(r->gated ? 2 : 1, f));
    const wide workspace = wide_add(boundary, wide_mul(unfused, r->e));
    ref_plan_fact(plan, "weights", weights);
    ref_plan_fact(plan, "kv_cache", kv_cache);
    ref_plan_fact(plan, "workspace", workspace);
    ref_plan_fact(plan, "boundary", boundary);

    struct ref_buffer *buffer = ref_plan_buffer(plan, "input", "device_local", boundary);
    buffer->read_by[0] = buffer->read_by[residual] = true;
    buffer = ref_plan_buffer(plan, "output", "device_local", boundary);
    buffer->written_by[last] = true;
    buffer = ref_plan_buffer(plan, "weights", "persistent", weights);
    memcpy(buffer->read_by, block.parameters, sizeof(block.parameters));
    buffer = ref_plan_buffer(plan, "kv_cache", "persistent", kv_cache);
    for (size_t i = 0; i < plan->n_tasks; i++) {
        buffer->written_by[i] = plan->tasks[i].uses_kv_cache && plan->tasks[i].writes_kv_cache;
        buffer->read_by[i] = plan->tasks[i].uses_kv_cache && !plan->tasks[i].writes_kv_cache;
    }
    buffer = ref_plan_buffer(plan, "workspace", "transient", workspace);
    for (size_t i = 0; i < plan->n_tasks; i++)
        buffer->written_by[i] = buffer->read_by[i] = true;
}
