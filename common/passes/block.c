#include "common/passes/block.h"

#include <string.h>

/* A set of tasks or values, read out in ascending order. */
enum { SET_WORDS = 5, SET_MAX = 64 * SET_WORDS };
struct set {
    uint64_t words[SET_WORDS];
};

static void set_add(struct set *set, uint32_t member)
{
    set->words[member / 64] |= UINT64_C(1) << member % 64;
}

static void set_union(struct set *set, const struct set *other)
{
    for (size_t i = 0; i < SET_WORDS; i++)
        set->words[i] |= other->words[i];
}

static bool set_empty(const struct set *set)
{
    uint64_t any = 0;
    for (size_t i = 0; i < SET_WORDS; i++)
        any |= set->words[i];
    return any == 0;
}

enum { NO_TASK = UINT32_MAX, NO_VALUE = UINT32_MAX };

/* The places of what one row became. */
struct places {
    uint32_t forward, again, activation_gradient, weight_gradient, optimizer; /* tasks */
    uint32_t parameters, output;                                              /* values */
};

/* A snapshot on its way. The arrays have what the blocks before have left in them; entities of the block at hand are
 * counted from its first, as sets and places hold them. */
struct emission {
    const struct bp_pass_input *input;
    const char *rule;
    struct bp_arena *arena;
    const struct bp_id_maker *ids;
    struct bp_distributed_value *values;
    struct bp_distributed_layer *layers;
    struct bp_distributed_task *tasks;
    uint32_t n_values, n_layers, n_tasks; /* of the blocks before */
    const struct bp_block *block;         /* the one at hand, and its place */
    uint32_t block_place;
    uint32_t block_values, block_tasks; /* of it, so far */
    struct places at[BP_ROWS_MAX];
    struct set gradient[BP_ROWS_MAX]; /* tasks that make the gradient of the row's output */
    const struct bp_id *operation, *input_value, *output_value, *kv_value; /* of the model snapshot */
    bool failed;                                                           /* memory ran out */
};

/* The members of a set, which are entities of the block at hand, by their places among all; `first` is its first. */
static struct bp_list set_list(struct emission *emission, const struct set *set, uint32_t first)
{
    uint32_t found[SET_MAX], n = 0;
    for (uint32_t word = 0; word < SET_WORDS; word++)
        for (uint64_t bits = set->words[word], bit = 0; bits; bits >>= 1, bit++)
            if (bits & 1)
                found[n++] = first + 64 * word + (uint32_t)bit;
    uint32_t *at = bp_arena_array(emission->arena, n, sizeof *at);
    if (!at) {
        emission->failed = true;
        return (struct bp_list){0};
    }
    memcpy(at, found, n * sizeof *at);
    return (struct bp_list){at, n};
}

static struct bp_list value_list(struct emission *emission, const struct set *set)
{
    return set_list(emission, set, emission->n_values);
}

static struct bp_list task_list(struct emission *emission, const struct set *set)
{
    return set_list(emission, set, emission->n_tasks);
}

static struct bp_lineage lineage(const struct emission *emission, const struct bp_id *source)
{
    return (struct bp_lineage){emission->rule, source, 1};
}

/* Text of the arena, "" when memory ran out, so that nothing is handed on that is not a string. */
static const char *join(struct emission *emission, const char *a, const char *b, const char *c)
{
    size_t n_a = strlen(a), n_b = strlen(b), n_c = strlen(c);
    char *text = bp_arena_array(emission->arena, n_a + n_b + n_c + 3, 1);
    if (!text) {
        emission->failed = true;
        return "";
    }
    char *end = text;
    memcpy(end, a, n_a), end += n_a;
    if (n_b)
        *end++ = '.', memcpy(end, b, n_b), end += n_b;
    if (n_c)
        *end++ = '.', memcpy(end, c, n_c);
    return text;
}

/* Values: input, output, then in table order each row's parameters and output. */

/* Under context parallelism a tensor of the rank's tokens has a dimension of the group's ranks after the batch. */
static void set_shape(const struct emission *emission, const struct bp_tensor_shape *shape,
                      struct bp_distributed_value *value)
{
    uint64_t cp = emission->input->request->strategy.context_parallel;
    for (uint32_t i = 0; i < shape->n_dims; i++) {
        value->shape[value->n_dims] = (uint64_t)shape->size[i];
        value->sharding[value->n_dims++] = shape->sharding[i];
        if (i == 0 && cp > 1 && shape->sharding[0] == BP_AXIS_DATA) {
            value->shape[value->n_dims] = cp;
            value->sharding[value->n_dims++] = BP_AXIS_CONTEXT;
        }
    }
}

static uint32_t add_value(struct emission *emission, const char *role, const struct bp_tensor_shape *shape,
                          enum bp_dtype dtype, const struct bp_id *source)
{
    uint32_t in_block = emission->block_values++, place = emission->n_values + in_block;
    struct bp_distributed_value *value = &emission->values[place];
    *value = (struct bp_distributed_value){.id = bp_id_make(emission->ids, BP_ENTITY_VALUE, place, role),
                                           .role = role,
                                           .block = emission->block_place,
                                           .dtype = dtype,
                                           .lineage = lineage(emission, source)};
    set_shape(emission, shape, value);
    return in_block;
}

static void add_values(struct emission *emission)
{
    const struct bp_block *block = emission->block;
    const struct bp_workload *workload = &emission->input->request->workload;
    add_value(emission, "input", &block->boundary, workload->dtype, emission->input_value);
    add_value(emission, "output", &block->boundary, workload->dtype, emission->output_value);
    for (uint32_t i = 0; i < block->n_rows; i++) {
        const struct bp_row *row = &block->rows[i];
        struct places *at = &emission->at[i];
        at->parameters = at->output = NO_VALUE;
        if (row->parameters)
            at->parameters = add_value(emission, join(emission, row->name, "parameters", ""), &row->parameter_shape,
                                       workload->dtype, emission->operation);
        if (row->forward.has)
            at->output = add_value(emission, join(emission, row->name, "output", ""), &row->output_shape,
                                   row->writes_kv_cache ? workload->kv_cache_dtype : workload->dtype,
                                   row->writes_kv_cache ? emission->kv_value : emission->operation);
    }
}

/* The rows whose output `row` hands on: itself, or through rows without forward work those before. */
static void add_tensors(const struct bp_block *block, uint32_t row, struct set *rows)
{
    if (row == BP_BLOCK_INPUT || block->rows[row].forward.has)
        set_add(rows, row);
    else
        for (uint32_t i = 0; i < block->rows[row].n_inputs; i++)
            add_tensors(block, block->rows[row].inputs[i], rows);
}

static bool set_has(const struct set *set, uint32_t member)
{
    return set->words[member / 64] >> member % 64 & 1;
}

/* The value of every such row that a row reads, by its inputs from the first one asked for on. */
static void add_tensor_values(const struct emission *emission, const struct bp_row *row, uint32_t first,
                              struct set *values)
{
    struct set rows = {0};
    for (uint32_t i = first; i < row->n_inputs; i++)
        add_tensors(emission->block, row->inputs[i], &rows);
    for (uint32_t i = 0; i < emission->block->n_rows; i++)
        if (set_has(&rows, i))
            set_add(values, emission->at[i].output);
    if (set_has(&rows, BP_BLOCK_INPUT))
        set_add(values, 0);
}

static struct bp_list row_input_values(struct emission *emission, const struct bp_row *row, uint32_t parameters)
{
    struct set set = {0};
    add_tensor_values(emission, row, 0, &set);
    if (parameters != NO_VALUE)
        set_add(&set, parameters);
    return value_list(emission, &set);
}

/* Tasks. */

static struct bp_distributed_task *add_task(struct emission *emission, uint32_t row_place, enum bp_phase phase,
                                            const struct bp_row_work *work, uint32_t *ret_place)
{
    const struct bp_row *row = &emission->block->rows[row_place];
    bool inference = emission->block->forward_phase != BP_PHASE_FORWARD;
    bool collective = work->collective != BP_COLLECTIVE_NONE;
    const char *name = inference ? row->name
                                 : join(emission, row->name, bp_phase_names[phase],
                                        collective ? bp_collective_names[work->collective] : "");
    *ret_place = emission->block_tasks++;
    uint32_t place = emission->n_tasks + *ret_place;
    struct bp_distributed_task *task = &emission->tasks[place];
    *task = (struct bp_distributed_task){
        .id = bp_id_make(emission->ids, BP_ENTITY_TASK, place, name),
        .name = name,
        .block = emission->block_place,
        .layer = emission->n_layers + row_place,
        .phase = phase,
        .engine = phase == BP_PHASE_OPTIMIZER ? BP_ENGINE_VECTOR : row->engine,
        .kind = collective ? BP_TASK_COLLECTIVE : BP_TASK_COMPUTE,
        .collective = work->collective,
        .reduces = work->collective == BP_COLLECTIVE_ALL_REDUCE || work->collective == BP_COLLECTIVE_REDUCE_SCATTER,
        .axis = collective ? row->axis : BP_AXIS_NONE,
        .work = work->work,
        .lineage = lineage(emission, emission->operation),
    };
    return task;
}

/* What a row's forward task reads and writes; the last one writes the block's output too. */
static void forward_values(struct emission *emission, struct bp_distributed_task *task, uint32_t row_place)
{
    const struct bp_row *row = &emission->block->rows[row_place];
    struct set outputs = {0};
    set_add(&outputs, emission->at[row_place].output);
    if (row_place == bp_block_last(emission->block) && task->phase == emission->block->forward_phase)
        set_add(&outputs, 1);
    task->inputs = row_input_values(emission, row, emission->at[row_place].parameters);
    task->outputs = value_list(emission, &outputs);
}

static void add_forward_tasks(struct emission *emission)
{
    for (uint32_t i = 0; i < emission->block->n_rows; i++) {
        const struct bp_row *row = &emission->block->rows[i];
        struct places *at = &emission->at[i];
        at->forward = at->again = at->activation_gradient = at->weight_gradient = at->optimizer = NO_TASK;
        if (!row->forward.has)
            continue;
        struct bp_distributed_task *task =
            add_task(emission, i, emission->block->forward_phase, &row->forward, &at->forward);
        task->effect = row->effect;
        forward_values(emission, task, i);
    }
}

static void add_repeated_tasks(struct emission *emission)
{
    for (uint32_t i = 0; i < emission->block->n_rows; i++) {
        const struct bp_row *row = &emission->block->rows[i];
        if (!row->recomputed || !row->forward.has)
            continue;
        enum bp_phase phase = row->forward.collective ? BP_PHASE_RECOMMUNICATION : BP_PHASE_RECOMPUTE;
        struct bp_distributed_task *task = add_task(emission, i, phase, &row->forward, &emission->at[i].again);
        forward_values(emission, task, i);
    }
}

/* The values that an activation gradient needs beside the gradient itself. */
static struct bp_list operand_values(struct emission *emission, uint32_t row_place)
{
    const struct bp_row *row = &emission->block->rows[row_place];
    const struct places *at = &emission->at[row_place];
    if (row->operands == BP_NEEDS_INPUTS)
        return row_input_values(emission, row, at->parameters);
    struct set set = {0};
    if (row->operands == BP_NEEDS_LAST_INPUT)
        add_tensor_values(emission, row, row->n_inputs - 1, &set);
    else if (row->operands == BP_NEEDS_ITSELF)
        set_add(&set, at->output);
    else if (at->parameters != NO_VALUE)
        set_add(&set, at->parameters);
    return value_list(emission, &set);
}

static void add_backward_tasks(struct emission *emission)
{
    for (uint32_t i = emission->block->n_rows; i-- > 0;) {
        const struct bp_row *row = &emission->block->rows[i];
        struct places *at = &emission->at[i];
        if (row->activation_gradient.has) {
            struct bp_distributed_task *task = add_task(emission, i, BP_PHASE_ACTIVATION_GRADIENT,
                                                        &row->activation_gradient, &at->activation_gradient);
            task->inputs = operand_values(emission, i);
        }
        if (row->weight_gradient.has) {
            struct bp_distributed_task *task =
                add_task(emission, i, BP_PHASE_WEIGHT_GRADIENT, &row->weight_gradient, &at->weight_gradient);
            task->inputs = row_input_values(emission, row, NO_VALUE);
        }
    }
}

static void add_optimizer_tasks(struct emission *emission)
{
    for (uint32_t i = 0; i < emission->block->n_rows; i++) {
        const struct bp_row *row = &emission->block->rows[i];
        if (!row->optimizer.has)
            continue;
        struct set parameters = {0};
        set_add(&parameters, emission->at[i].parameters);
        struct bp_distributed_task *task =
            add_task(emission, i, BP_PHASE_OPTIMIZER, &row->optimizer, &emission->at[i].optimizer);
        task->inputs = task->outputs = value_list(emission, &parameters);
    }
}

/* Dependencies. */

static void set_add_task(struct set *set, uint32_t task)
{
    if (task != NO_TASK)
        set_add(set, task);
}

static void forward_dependencies(struct emission *emission, uint32_t row_place, struct set *set)
{
    const struct bp_row *row = &emission->block->rows[row_place];
    struct set producers = {0};
    for (uint32_t i = 0; i < row->n_inputs; i++)
        add_tensors(emission->block, row->inputs[i], &producers);
    for (uint32_t i = 0; i < emission->block->n_rows; i++)
        if (set_has(&producers, i))
            set_add(set, emission->at[i].forward);
}

/* The tasks that make a row's inputs again, from the first one asked for on. */
static void regenerators(struct emission *emission, uint32_t row_place, uint32_t first, struct set *set)
{
    const struct bp_row *row = &emission->block->rows[row_place];
    struct set producers = {0};
    for (uint32_t i = first; i < row->n_inputs; i++)
        add_tensors(emission->block, row->inputs[i], &producers);
    for (uint32_t i = 0; i < emission->block->n_rows; i++)
        if (set_has(&producers, i))
            set_add_task(set, emission->at[i].again);
}

/* For each row the tasks that make the gradient of its output: the activation gradients of its consumers, looked
 * through where a consumer has none; for the block's output, the forward task that produced it. Rows come after their
 * producers, so that one walk from the end settles all. */
static void find_gradients(struct emission *emission)
{
    const struct bp_block *block = emission->block;
    uint32_t last = bp_block_last(block);
    set_add(&emission->gradient[last], emission->at[last].forward);
    for (uint32_t i = block->n_rows; i-- > 0;) {
        struct set through = {0};
        if (emission->at[i].activation_gradient != NO_TASK)
            set_add(&through, emission->at[i].activation_gradient);
        else
            through = emission->gradient[i];
        for (uint32_t j = 0; j < block->rows[i].n_inputs; j++)
            if (block->rows[i].inputs[j] != BP_BLOCK_INPUT)
                set_union(&emission->gradient[block->rows[i].inputs[j]], &through);
    }
}

static void set_dependencies(struct emission *emission, uint32_t task, const struct set *set)
{
    if (task != NO_TASK)
        emission->tasks[emission->n_tasks + task].dependencies = task_list(emission, set);
}

static void add_dependencies(struct emission *emission)
{
    const struct bp_block *block = emission->block;
    uint32_t block_output = emission->at[bp_block_last(block)].forward;
    find_gradients(emission);
    for (uint32_t i = 0; i < block->n_rows; i++) {
        const struct bp_row *row = &block->rows[i];
        const struct places *at = &emission->at[i];
        struct set forward = {0}, inputs_again = {0}, optimizer = {0};
        forward_dependencies(emission, i, &forward);
        set_dependencies(emission, at->forward, &forward);

        regenerators(emission, i, 0, &inputs_again);
        struct set again = inputs_again;
        if (set_empty(&again))
            set_add(&again, block_output);
        set_dependencies(emission, at->again, &again);

        struct set activation = emission->gradient[i], weight = emission->gradient[i];
        if (row->operands == BP_NEEDS_INPUTS)
            set_union(&activation, &inputs_again);
        if (row->operands == BP_NEEDS_LAST_INPUT)
            regenerators(emission, i, row->n_inputs - 1, &activation);
        if (row->operands == BP_NEEDS_ITSELF)
            set_add_task(&activation, at->again);
        set_dependencies(emission, at->activation_gradient, &activation);
        set_union(&weight, &inputs_again);
        set_dependencies(emission, at->weight_gradient, &weight);

        set_add_task(&optimizer, at->weight_gradient);
        set_add_task(&optimizer, at->activation_gradient);
        set_add_task(&optimizer, at->again);
        set_dependencies(emission, at->optimizer, &optimizer);
    }
}

/* The snapshot. */

static void add_layers(struct emission *emission)
{
    const struct bp_block *block = emission->block;
    for (uint32_t i = 0; i < block->n_rows; i++) {
        const struct bp_row *row = &block->rows[i];
        emission->layers[emission->n_layers + i] =
            (struct bp_distributed_layer){.name = row->name,
                                          .block = emission->block_place,
                                          .parameters = row->parameters,
                                          .activation = row->activation,
                                          .output = row->output,
                                          .keeps_activation = row->keeps_activation,
                                          .keeps_output = row->keeps_output,
                                          .owns_activation = row->owns_activation};
    }
}

/* One program after those of the blocks before. */
static void add_block(struct emission *emission, const struct bp_block *block, uint32_t place)
{
    emission->block = block;
    emission->block_place = place;
    emission->block_values = emission->block_tasks = 0;
    memset(emission->gradient, 0, sizeof emission->gradient);
    add_values(emission);
    add_forward_tasks(emission);
    add_repeated_tasks(emission);
    add_backward_tasks(emission);
    add_optimizer_tasks(emission);
    add_dependencies(emission);
    add_layers(emission);
    emission->n_values += emission->block_values;
    emission->n_tasks += emission->block_tasks;
    emission->n_layers += block->n_rows;
}

static int find_model_entities(struct emission *emission, struct bp_err *err)
{
    const struct bp_model_ir *model = emission->input->source.as.model;
    const struct bp_id **roles[BP_MODEL_ROLE_N] = {[BP_MODEL_INPUT] = &emission->input_value,
                                                   [BP_MODEL_OUTPUT] = &emission->output_value,
                                                   [BP_MODEL_KV_CACHE] = &emission->kv_value};
    for (uint32_t i = 0; i < model->n_values; i++)
        *roles[model->values[i].role] = &model->values[i].id;
    if (model->n_operations > 0)
        emission->operation = &model->operations[0].id;
    bool needs_kv = model->mode == BP_MODE_INFERENCE;
    if (!emission->operation || !emission->input_value || !emission->output_value || (needs_kv && !emission->kv_value))
        return bp_fail(err, BP_E_structure_violated, "/values", "the model snapshot lacks a value or its operation");
    return 0;
}

/* A global shape must be a JSON integer in every dimension. */
static int check_shapes(const struct bp_block *block, struct bp_err *err)
{
    struct bp_calc calc = {0};
    for (uint32_t i = 0; i < block->n_rows; i++)
        for (uint32_t j = 0; j < BP_DIMS_MAX; j++) {
            bp_bytes(&calc, block->rows[i].parameter_shape.size[j]);
            bp_bytes(&calc, block->rows[i].output_shape.size[j]);
        }
    return bp_calc_check(&calc, "/model", "a dimension of a tensor", err);
}

/* The mesh: size 1 included; the axes of a context-parallel group and of experts only where there are such. */
static void set_axes(const struct bp_strategy *strategy, bool training, bool experts, struct bp_distributed_ir *ir)
{
    const struct {
        bool there;
        struct bp_mesh_axis axis;
    } axes[BP_MESH_AXES_MAX] = {
        {true, {BP_AXIS_TENSOR, strategy->tensor_parallel}},
        {true, {BP_AXIS_PIPELINE, strategy->pipeline_parallel}},
        {true, {training ? BP_AXIS_DATA : BP_AXIS_REPLICA, training ? strategy->data_parallel : strategy->replicas}},
        {strategy->context_parallel > 1, {BP_AXIS_CONTEXT, strategy->context_parallel}},
        {experts, {BP_AXIS_EXPERT, strategy->expert_parallel}},
        {experts, {BP_AXIS_EXPERT_TENSOR, strategy->expert_tensor_parallel}},
    };
    for (size_t i = 0; i < BP_MESH_AXES_MAX; i++)
        if (axes[i].there)
            ir->axes[ir->n_axes++] = axes[i].axis;
}

/* Room for the largest block there can be, as often as there are blocks. */
static int begin(struct emission *emission, struct bp_err *err)
{
    const struct bp_pass_input *input = emission->input;
    const size_t rows = (size_t)input->n_blocks * BP_ROWS_MAX;
    emission->ids = bp_id_maker_new(emission->arena, &input->source_digest, &input->fingerprints->distribution);
    emission->values = bp_arena_array(emission->arena, 2 * (input->n_blocks + rows), sizeof *emission->values);
    emission->layers = bp_arena_array(emission->arena, rows, sizeof *emission->layers);
    emission->tasks = bp_arena_array(emission->arena, 5 * rows, sizeof *emission->tasks);
    if (!emission->ids || !emission->values || !emission->layers || !emission->tasks)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for the distributed snapshot");
    return find_model_entities(emission, err);
}

static int add_blocks(struct emission *emission, bp_block_rows *rows, struct bp_distributed_block *blocks,
                      struct bp_memory *ret_memory, struct bp_err *err)
{
    const struct bp_pass_input *input = emission->input;
    struct bp_calc calc = {0};
    struct bp_block block;
    for (uint32_t i = 0; i < input->n_blocks; i++) {
        const struct bp_kind *kind = input->symbols[i].kind;
        if (rows(input->request, &input->symbols[i], &block, err) < 0 || check_shapes(&block, err) < 0)
            return -1;
        add_block(emission, &block, i);
        blocks[i] = (struct bp_distributed_block){kind->name, kind->layers, block.memory};
        for (size_t fact = 0; fact < BP_MEMORY_N; fact++)
            ret_memory->at[fact] = bp_bytes_add(&calc, ret_memory->at[fact], block.memory.at[fact]);
    }
    return bp_calc_check(&calc, "/workload", "the memory of the blocks", err);
}

int bp_block_distribute(const struct bp_pass_input *input, const char *rule, bp_block_rows *rows,
                        struct bp_arena *arena, struct bp_ir *ret, struct bp_err *err)
{
    const struct bp_request *request = input->request;
    struct emission emission = {.input = input, .rule = rule, .arena = arena};
    struct bp_distributed_ir *ir = bp_arena_array(arena, 1, sizeof *ir);
    struct bp_distributed_block *blocks = bp_arena_array(arena, input->n_blocks, sizeof *blocks);
    if (!ir || !blocks)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for the distributed snapshot");
    if (begin(&emission, err) < 0 || add_blocks(&emission, rows, blocks, &ir->memory, err) < 0)
        return -1;
    if (emission.failed)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for the distributed snapshot");

    bool experts = false, latent = false, training = request->workload.mode == BP_MODE_TRAINING;
    for (uint32_t i = 0; i < input->n_blocks; i++) {
        experts |= input->symbols[i].kind->num_experts > 0;
        latent |= input->symbols[i].kind->attention == BP_ATTENTION_LATENT;
    }
    bool absorbed = !training && request->workload.phase == BP_DECODE;
    *ir = (struct bp_distributed_ir){
        .parent = input->source_digest,
        .binding = input->fingerprints->distribution,
        .workload_fingerprint = input->fingerprints->workload,
        .strategy_fingerprint = input->fingerprints->strategy,
        .workload = request->workload,
        .strategy = request->strategy,
        .latent_attention = !latent    ? BP_LATENT_NONE
                            : absorbed ? BP_LATENT_ABSORBED
                                       : BP_LATENT_EXPANDED,
        .balanced_routing = experts,
        .blocks = blocks,
        .n_blocks = input->n_blocks,
        .values = emission.values,
        .n_values = emission.n_values,
        .layers = emission.layers,
        .n_layers = emission.n_layers,
        .tasks = emission.tasks,
        .n_tasks = emission.n_tasks,
        .memory = ir->memory,
    };
    set_axes(&request->strategy, training, experts, ir);
    *ret = (struct bp_ir){.stage = BP_STAGE_DISTRIBUTED, .as.distributed = ir};
    return 0;
}
