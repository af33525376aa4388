/* What training and inference share: naming tasks, placing buffers, adding up. */
#include <stdio.h>
#include <string.h>

#include "tests/reference/reference.h"

struct ref_task *ref_plan_task(struct ref_plan *plan, const char *layer, const char *phase, const char *engine,
                               const struct ref_work *work)
{
    struct ref_task *task = &plan->tasks[plan->n_tasks++];
    memset(task, 0, sizeof(*task));
    snprintf(task->name, sizeof(task->name), "%s", layer);
    task->layer = layer;
    task->phase = phase;
    task->engine = engine;
    task->work = *work;
    task->block = plan->n_blocks - 1;
    return task;
}

struct ref_row *ref_plan_row(struct ref_plan *plan, const struct ref_row *row)
{
    struct ref_row *copy = &plan->rows[plan->n_rows++];
    *copy = *row;
    copy->block = plan->n_blocks - 1;
    return copy;
}

struct ref_buffer *ref_plan_buffer(struct ref_plan *plan, const char *role, const char *storage, wide size)
{
    static struct ref_buffer left_out; /* written to and never looked at */
    struct ref_buffer *buffer = size == 0 ? &left_out : &plan->buffers[plan->n_buffers++];
    memset(buffer, 0, sizeof(*buffer));
    buffer->role = role;
    buffer->storage = storage;
    buffer->size = size;
    buffer->block = plan->n_blocks - 1;
    return buffer;
}

static void add_fact(struct ref_memory *memory, const char *name, wide bytes)
{
    size_t i = 0;
    while (i < memory->n && strcmp(memory->at[i].name, name) != 0)
        i++;
    if (i == memory->n)
        memory->at[memory->n++] = (struct ref_memory_fact){name, 0};
    memory->at[i].bytes = wide_add(memory->at[i].bytes, bytes);
}

void ref_plan_fact(struct ref_plan *plan, const char *name, wide bytes)
{
    add_fact(&plan->blocks[plan->n_blocks - 1].memory, name, bytes);
    add_fact(&plan->memory, name, bytes);
}

wide ref_memory_of(const struct ref_memory *memory, const char *name)
{
    for (size_t i = 0; i < memory->n; i++)
        if (strcmp(memory->at[i].name, name) == 0)
            return memory->at[i].bytes;
    return 0;
}

wide ref_norm_parameters(const struct ref_request *request, wide w)
{
    if (request->norm_without_weight)
        return 0;
    return wide_mul(request->rmsnorm || request->norm_without_bias ? 1 : 2, w);
}

wide ref_qk_norm_parameters(const struct ref_kind *kind, wide heads)
{
    if (kind->qk_norm == REF_QK_WITHOUT_WEIGHT)
        return 0;
    return PROD(kind->qk_norm_bias ? 2 : 1, kind->d, kind->qk_norm == REF_QK_HEAD ? 1 : heads);
}

/* o_0 = 0, o_i = ceil((o_(i-1) + s_(i-1)) / 16) * 16. */
static void place(struct ref_plan *plan)
{
    wide end = 0;
    for (size_t i = 0; i < plan->n_buffers; i++) {
        plan->buffers[i].offset = wide_mul(wide_div(end, 16), 16);
        end = wide_add(plan->buffers[i].offset, plan->buffers[i].size);
    }
    plan->layout_end = end;
}

static void at_least(wide *largest, wide value)
{
    if (value > *largest)
        *largest = value;
}

static void find_largest(const struct ref_request *request, struct ref_plan *plan)
{
    wide *largest = &plan->largest_bytes;
    for (size_t i = 0; i < plan->n_tasks; i++) {
        at_least(largest, plan->tasks[i].work.read);
        at_least(largest, plan->tasks[i].work.write);
        at_least(largest, plan->tasks[i].work.message);
        at_least(largest, wide_add(plan->tasks[i].work.read, plan->tasks[i].work.write));
    }
    for (size_t i = 0; i < plan->n_rows; i++) {
        at_least(largest, plan->rows[i].A);
        at_least(largest, plan->rows[i].O);
    }
    for (size_t i = 0; i < plan->memory.n; i++)
        at_least(largest, plan->memory.at[i].bytes);
    if (request->has_target)
        at_least(largest, plan->layout_end);
}

static void derive_block(const struct ref_request *request, const struct ref_kind *kind, struct ref_plan *plan)
{
    struct ref_block *block = &plan->blocks[plan->n_blocks++];
    memset(block, 0, sizeof(*block));
    memcpy(block->name, kind->name, sizeof(block->name));
    block->layers = kind->layers;
    if (request->training)
        ref_training_derive(request, kind, plan);
    else
        ref_inference_derive(request, kind, plan);
}

void ref_plan_derive(const struct ref_request *request, struct ref_plan *ret)
{
    ret->n_tasks = ret->n_rows = ret->n_buffers = ret->n_blocks = 0;
    memset(&ret->memory, 0, sizeof(ret->memory));
    ret->largest_bytes = 0;
    for (size_t i = 0; i < request->n_kinds; i++)
        derive_block(request, &request->kinds[i], ret);
    place(ret);
    find_largest(request, ret);
}

struct ref_work ref_plan_total(const struct ref_plan *plan, const char *word, size_t *ret_tasks)
{
    struct ref_work total = {0};
    size_t n = 0;
    for (size_t i = 0; i < plan->n_tasks; i++) {
        const struct ref_task *task = &plan->tasks[i];
        if (word && strcmp(task->phase, word) != 0 && strcmp(task->engine, word) != 0)
            continue;
        n++;
        total.operations = wide_add(total.operations, task->work.operations);
        total.read = wide_add(total.read, task->work.read);
        total.write = wide_add(total.write, task->work.write);
        total.message = wide_add(total.message, task->work.message);
    }
    if (ret_tasks)
        *ret_tasks = n;
    return total;
}

const char *ref_task_capability(const struct ref_task *task)
{
    if (strcmp(task->name, "attention.core") == 0)
        return "attention";
    if (task->collective)
        return task->collective;
    return strcmp(task->engine, "matrix") == 0 ? "matrix-multiply" : "vector-elementwise";
}

const char *ref_task_implementation(const struct ref_task *task)
{
    if (strcmp(task->name, "attention.core") == 0)
        return "reference/dense-attention";
    if (task->collective)
        return "reference/network-engine";
    return strcmp(task->engine, "matrix") == 0 ? "reference/matrix-engine" : "reference/vector-engine";
}
