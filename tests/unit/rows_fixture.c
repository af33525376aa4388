#include "tests/unit/rows_fixture.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "common/pipeline.h"
#include "tests/unit/reading.h"

struct bp_request rows_request;
struct bp_symbols rows_symbols;
struct bp_block rows_block;

static struct bp_arena arena;

static void keep_model(const struct bp_config *config, struct bp_problems *problems)
{
    ck_assert_msg(config->has_parameters, "%s", line_of(problems));
    bp_problems_release(problems);
    rows_request = (struct bp_request){.model = config->model};
}

void rows_of_model(const char *name)
{
    const struct bp_catalogue_row *row = bp_catalogue_find(name);
    struct bp_problems problems = {0};
    struct bp_config config = {0};
    ck_assert_ptr_nonnull(row);
    json_t *form = json_loads(row->form, 0, NULL);
    ck_assert_int_eq(bp_config_resolve(form, "", &arena, &problems, &config), 0);
    json_decref(form);
    keep_model(&config, &problems);
}

void rows_of_config(const char *text)
{
    struct bp_problems problems = {0};
    struct bp_config config = {0};
    json_t *value = json_of(text);
    ck_assert_int_eq(bp_config_import(value, "", &arena, &problems, &config), 0);
    json_decref(value);
    keep_model(&config, &problems);
}

static void one_rank(void)
{
    rows_request.strategy = (struct bp_strategy){.tensor_parallel = 1,
                                                 .pipeline_parallel = 1,
                                                 .data_parallel = 1,
                                                 .virtual_stages = 1,
                                                 .context_parallel = 1,
                                                 .expert_parallel = 1,
                                                 .expert_tensor_parallel = 1,
                                                 .replicas = 1};
}

void rows_training(uint64_t micro_batch, uint64_t sequence)
{
    rows_request.workload = (struct bp_workload){.mode = BP_MODE_TRAINING,
                                                 .dtype = BP_DTYPE_BFLOAT16,
                                                 .kv_cache_dtype = BP_DTYPE_BFLOAT16,
                                                 .gradient_dtype = BP_DTYPE_FLOAT32,
                                                 .sequence_length = sequence,
                                                 .micro_batch_size = micro_batch,
                                                 .global_batch_size = micro_batch};
    one_rank();
}

void rows_inference(enum bp_inference_phase phase, uint64_t batch, uint64_t context)
{
    rows_request.workload = (struct bp_workload){.mode = BP_MODE_INFERENCE,
                                                 .dtype = BP_DTYPE_BFLOAT16,
                                                 .kv_cache_dtype = BP_DTYPE_BFLOAT16,
                                                 .phase = phase,
                                                 .batch_size = batch,
                                                 .context_length = context};
    one_rank();
}

void rows_tensor_parallel(uint64_t t)
{
    struct bp_strategy *strategy = &rows_request.strategy;
    strategy->tensor_parallel = strategy->expert_tensor_parallel = t;
    strategy->sequence_parallel = strategy->recompute_all_gather = rows_request.workload.mode == BP_MODE_TRAINING;
}

void rows_expert_parallel(uint64_t ep, uint64_t etp)
{
    rows_request.strategy.expert_parallel = ep;
    rows_request.strategy.expert_tensor_parallel = etp;
}

static int derive(const char *kind, struct bp_err *err)
{
    const struct bp_model *model = &rows_request.model;
    bool training = rows_request.workload.mode == BP_MODE_TRAINING;
    uint32_t place = 0;
    while (*kind && place < model->n_kinds && strcmp(model->kinds[place].name, kind) != 0)
        place++;
    ck_assert_msg(place < model->n_kinds && (*kind || model->n_kinds == 1), "no kind %s", kind);
    memset(&rows_block, 0xff, sizeof rows_block);
    if (bp_symbols_of(model, place, &rows_request.workload, &rows_request.strategy, &rows_symbols, err) < 0)
        return -1;
    return (training ? bp_training_block : bp_inference_block)(&rows_request, &rows_symbols, &rows_block, err);
}

void rows_derive(const char *kind)
{
    struct bp_err err = {0};
    ck_assert_msg(derive(kind, &err) == 0, "%s", err.message);
    ck_assert_uint_le(rows_block.n_rows, BP_ROWS_MAX);
}

struct bp_err rows_refused(const char *kind)
{
    struct bp_err err = {0};
    ck_assert_int_eq(derive(kind, &err), -1);
    return err;
}

static const struct bp_row *find(const char *name)
{
    for (uint32_t i = 0; i < rows_block.n_rows; i++)
        if (strcmp(rows_block.rows[i].name, name) == 0)
            return &rows_block.rows[i];
    return NULL;
}

bool rows_has(const char *name)
{
    return find(name) != NULL;
}

const struct bp_row *rows_named(const char *name)
{
    const struct bp_row *row = find(name);
    ck_assert_msg(row != NULL, "no row %s", name);
    return row;
}

static char line[4096];

static void append(const char *word)
{
    size_t n = strlen(line);
    snprintf(line + n, sizeof line - n, "%s%s", n ? " " : "", word);
}

const char *rows_names(void)
{
    line[0] = '\0';
    for (uint32_t i = 0; i < rows_block.n_rows; i++)
        append(rows_block.rows[i].name);
    return line;
}

const char *rows_inputs(const char *name)
{
    const struct bp_row *row = rows_named(name);
    line[0] = '\0';
    for (uint32_t i = 0; i < row->n_inputs; i++)
        append(row->inputs[i] == BP_BLOCK_INPUT ? "input" : rows_block.rows[row->inputs[i]].name);
    return line;
}

bp_u128 rows_parameters(void)
{
    bp_u128 sum = 0;
    for (uint32_t i = 0; i < rows_block.n_rows; i++)
        sum += rows_block.rows[i].parameters;
    return sum;
}

static void expect_number(const char *what, bp_u128 actual, bp_u128 expected)
{
    char a[BP_U128_TEXT], b[BP_U128_TEXT];
    bp_u128_format(actual, a);
    bp_u128_format(expected, b);
    ck_assert_msg(actual == expected, "%s is %s, not %s", what, a, b);
}

void expect_bytes(const struct bp_row_work *work, bp_u128 operations, bp_u128 read, bp_u128 write)
{
    ck_assert(work->has);
    expect_number("operations", work->work.operations.n, operations);
    expect_number("read", work->work.read.n, read);
    expect_number("write", work->work.write.n, write);
}

void expect_elements(const struct bp_row_work *work, bp_u128 operations, bp_u128 read, bp_u128 write)
{
    expect_bytes(work, operations, 2 * read, 2 * write);
}

void expect_weight_gradient(const char *name, bp_u128 operations, bp_u128 read, bp_u128 parameters)
{
    const struct bp_row *row = rows_named(name);
    expect_bytes(&row->weight_gradient, operations, 2 * read, 4 * parameters);
    expect_number("parameters", row->parameters, parameters);
    ck_assert(row->optimizer.has);
}

static void expect_exchange(const struct bp_row_work *work, enum bp_collective kind, bp_u128 ranks, bp_u128 elements)
{
    bool gathers = kind == BP_COLLECTIVE_ALL_GATHER, scatters = kind == BP_COLLECTIVE_REDUCE_SCATTER;
    bool reduces = scatters || kind == BP_COLLECTIVE_ALL_REDUCE;
    bp_u128 M = 2 * elements, part = M / ranks;
    ck_assert_int_eq(work->collective, kind);
    ck_assert(work->has == (kind != BP_COLLECTIVE_NONE));
    if (!work->has)
        return;
    expect_bytes(work, reduces ? elements * (ranks - 1) / ranks : 0, gathers ? part : M, scatters ? part : M);
    expect_number("message", work->work.message.n, M);
}

void expect_collective(const char *name, enum bp_axis axis, bp_u128 ranks, bp_u128 elements, enum bp_collective forward,
                       enum bp_collective backward)
{
    const struct bp_row *row = rows_named(name);
    ck_assert_int_eq(row->engine, BP_ENGINE_COLLECTIVE);
    ck_assert_int_eq(row->axis, axis);
    expect_exchange(&row->forward, forward, ranks, elements);
    expect_exchange(&row->activation_gradient, backward, ranks, elements);
}

void expect_held(const char *name, bp_u128 activation, bp_u128 output, bool kept, bool owned)
{
    const struct bp_row *row = rows_named(name);
    expect_number(name, row->activation.n, activation);
    expect_number(name, row->output.n, output);
    ck_assert_msg(row->keeps_activation == kept, "%s is %skept", name, kept ? "not " : "");
    ck_assert_msg(row->owns_activation == owned, "%s is %sits own", name, owned ? "not " : "");
}

void expect_memory(enum bp_memory_fact fact, bp_u128 bytes)
{
    expect_number(bp_memory_names[fact], rows_block.memory.at[fact].n, bytes);
}

const char *rows_shape(const struct bp_tensor_shape *shape)
{
    char word[BP_U128_TEXT + 32];
    line[0] = '\0';
    for (uint32_t i = 0; i < shape->n_dims; i++) {
        size_t n = bp_u128_format(shape->size[i], word);
        if (shape->sharding[i] != BP_AXIS_NONE)
            snprintf(word + n, sizeof word - n, "@%s", bp_axis_names[shape->sharding[i]]);
        append(word);
    }
    return line;
}

static void plan(struct bp_outcome *outcome)
{
    struct bp_err err = {0};
    ck_assert_msg(bp_pipeline_run(&rows_request, NULL, &arena, outcome, &err) == 0, "%s", err.message);
    const struct bp_problems *found = &outcome->diagnostics;
    ck_assert_msg(outcome->state == BP_PLAN_COMMITTED, "%s: %s", line_of(found), found->n ? found->at[0].message : "");
}

void rows_commit(void)
{
    struct bp_outcome outcome;
    plan(&outcome);
    bp_outcome_release(&outcome);
}

const char *rows_waits(const char *name)
{
    struct bp_outcome outcome;
    ck_assert_uint_eq(rows_request.model.n_kinds, 1);
    plan(&outcome);
    const struct bp_distributed_ir *ir = outcome.snapshots[BP_STAGE_DISTRIBUTED].ir.as.distributed;
    const struct bp_distributed_task *task = NULL;
    for (uint32_t i = 0; i < ir->n_tasks; i++)
        if (strcmp(ir->tasks[i].name, name) == 0)
            task = &ir->tasks[i];
    ck_assert_msg(task != NULL, "no task %s", name);
    line[0] = '\0';
    for (uint32_t i = 0; i < task->dependencies.n; i++)
        append(ir->tasks[task->dependencies.at[i]].name);
    bp_outcome_release(&outcome);
    return line;
}

void rows_forget(void)
{
    bp_arena_release(&arena);
}
