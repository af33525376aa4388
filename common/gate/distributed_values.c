#include "common/gate/distributed.h"

#include <string.h>

/* Tensor, pipeline and data (inference: replica), size 1 included; context where there is such a group, the experts'
 * where a block has experts. */
void bp_gate_check_mesh(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    const struct bp_strategy *strategy = &ir->strategy;
    bool training = ir->workload.mode == BP_MODE_TRAINING, experts = false;
    for (uint32_t i = 0; i < gate->n_blocks; i++)
        experts |= gate->blocks[i].E > 0;
    struct bp_mesh_axis axes[BP_MESH_AXES_MAX] = {
        {BP_AXIS_TENSOR, strategy->tensor_parallel},
        {BP_AXIS_PIPELINE, strategy->pipeline_parallel},
        {training ? BP_AXIS_DATA : BP_AXIS_REPLICA, training ? strategy->data_parallel : strategy->replicas},
    };
    uint32_t n = 3;
    if (strategy->context_parallel > 1)
        axes[n++] = (struct bp_mesh_axis){BP_AXIS_CONTEXT, strategy->context_parallel};
    if (experts) {
        axes[n++] = (struct bp_mesh_axis){BP_AXIS_EXPERT, strategy->expert_parallel};
        axes[n++] = (struct bp_mesh_axis){BP_AXIS_EXPERT_TENSOR, strategy->expert_tensor_parallel};
    }
    BP_GATE_EXPECT(gate, ir->n_axes == n, BP_E_structure_violated, "/mesh/axes", "%u axes, not %u", ir->n_axes, n);
    for (uint32_t i = 0; i < ir->n_axes && i < n; i++) {
        BP_GATE_EXPECT(gate, ir->axes[i].axis == axes[i].axis, BP_E_structure_violated,
                       bp_gate_path(gate, "/mesh/axes/%u/name", i), "the axis here is %s", bp_axis_names[axes[i].axis]);
        BP_GATE_EXPECT(gate, ir->axes[i].size == axes[i].size && axes[i].size > 0, BP_E_structure_violated,
                       bp_gate_path(gate, "/mesh/axes/%u/size", i), "the strategy has %llu here, the mesh %llu",
                       (unsigned long long)axes[i].size, (unsigned long long)ir->axes[i].size);
    }
}

void bp_gate_check_sharding(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    for (uint32_t i = 0; i < ir->n_values; i++) {
        const struct bp_distributed_value *value = &ir->values[i];
        BP_GATE_EXPECT(gate, value->n_dims >= 1 && value->n_dims <= BP_DIMS_MAX, BP_E_structure_violated,
                       bp_gate_path(gate, "/values/%u/shape", i), "%u dimensions", value->n_dims);
        unsigned seen = 0;
        for (uint32_t j = 0; j < value->n_dims && j < BP_DIMS_MAX; j++) {
            enum bp_axis axis = value->sharding[j];
            uint64_t ranks = bp_distributed_axis_size(ir, axis);
            unsigned bit = axis < BP_AXIS_NONE ? 1U << axis : 0;
            BP_GATE_EXPECT(gate, ranks > 0 && axis != BP_AXIS_PIPELINE && !(seen & bit), BP_E_structure_violated,
                           bp_gate_path(gate, "/values/%u/sharding/%u", i, j), "%s",
                           seen & bit ? "the axis splits another dimension already"
                                      : "no value of a block is split over such an axis");
            BP_GATE_EXPECT(gate, value->shape[j] > 0 && (ranks == 0 || value->shape[j] % ranks == 0),
                           BP_E_structure_violated, bp_gate_path(gate, "/values/%u/shape/%u", i, j),
                           "%llu does not divide over the %llu ranks of its axis", (unsigned long long)value->shape[j],
                           (unsigned long long)ranks);
            seen |= bit;
        }
    }
}

/* A role is "<row>.parameters" or "<row>.output". */
enum part { PARAMETERS, OUTPUT, NEITHER };

static enum part role_part(const char *role, size_t *ret_row_length)
{
    static const char *const suffixes[] = {[PARAMETERS] = ".parameters", [OUTPUT] = ".output"};
    size_t length = strlen(role);
    for (int part = PARAMETERS; part < NEITHER; part++) {
        size_t n = strlen(suffixes[part]);
        if (length > n && strcmp(role + length - n, suffixes[part]) == 0) {
            *ret_row_length = length - n;
            return (enum part)part;
        }
    }
    return NEITHER;
}

/* The row of each value, BP_GATE_NOWHERE for none; NULL when memory ran out. */
static const uint32_t *rows_of_values(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    uint32_t *rows = bp_arena_array(gate->arena, ir->n_values, sizeof *rows);
    struct bp_gate_index index;
    if (!rows || !bp_gate_index_init(gate, ir->n_layers, &index)) {
        bp_gate_no_memory(gate);
        return NULL;
    }
    for (BP_GATE_EACH(i, gate->at.layers))
        bp_gate_index_put(&index, ir->layers[i].name, strlen(ir->layers[i].name), i);
    for (BP_GATE_EACH(i, gate->at.values)) {
        size_t length = 0;
        rows[i] = role_part(ir->values[i].role, &length) == NEITHER
                      ? BP_GATE_NOWHERE
                      : bp_gate_index_find(&index, ir->values[i].role, length);
    }
    return rows;
}

void bp_gate_check_values(struct bp_gate *gate)
{
    static const char *const first[] = {"input", "output"};
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    const uint32_t *rows = rows_of_values(gate);
    if (!rows)
        return;
    BP_GATE_EXPECT(gate, gate->at.values.end - gate->at.values.first >= BP_GATE_COUNT(first), BP_E_structure_violated,
                   "/values", "the input or the output of %s is missing", gate->symbols->kind->name);
    uint64_t last = 0;
    for (BP_GATE_EACH(i, gate->at.values)) {
        const char *role = ir->values[i].role, *path = "/values/%u/role";
        uint32_t in_block = i - gate->at.values.first;
        if (in_block < BP_GATE_COUNT(first)) {
            BP_GATE_EXPECT(gate, strcmp(role, first[in_block]) == 0, BP_E_structure_violated,
                           bp_gate_path(gate, path, i), "the %s stands here, not %s", first[in_block], role);
            continue;
        }
        size_t length;
        enum part part = role_part(role, &length);
        uint64_t order = 2 * (uint64_t)rows[i] + (uint64_t)part + 1;
        BP_GATE_EXPECT(gate, rows[i] != BP_GATE_NOWHERE && order > last, BP_E_structure_violated,
                       bp_gate_path(gate, path, i), "%s is %s", role,
                       rows[i] == BP_GATE_NOWHERE ? "no row's" : "out of the rows' order");
        last = order;
    }
}

/* One rank's share: each dimension over the ranks of its axis. */
static bp_u128 held_of(const struct bp_distributed_ir *ir, const struct bp_distributed_value *value,
                       struct bp_calc *calc)
{
    bp_u128 held = 1;
    for (uint32_t j = 0; j < value->n_dims && j < BP_DIMS_MAX; j++)
        held = bp_mul(calc, held, bp_div(calc, value->shape[j], bp_distributed_axis_size(ir, value->sharding[j])));
    return held;
}

bool bp_gate_hold(struct bp_gate *gate, struct bp_gate_held *ret)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    bp_u128 *elements = bp_arena_array(gate->arena, ir->n_values, sizeof *elements);
    bool *parameters = bp_arena_array(gate->arena, ir->n_values, sizeof *parameters);
    if (!elements || !parameters) {
        bp_gate_no_memory(gate);
        return false;
    }
    for (BP_GATE_EACH(i, gate->at.values)) {
        struct bp_calc calc = {0};
        size_t length;
        elements[i] = held_of(ir, &ir->values[i], &calc);
        parameters[i] = role_part(ir->values[i].role, &length) == PARAMETERS;
    }
    *ret = (struct bp_gate_held){elements, parameters};
    return true;
}

void bp_gate_check_parameters(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    const uint32_t *rows = rows_of_values(gate);
    uint32_t *values_of_row = bp_arena_array(gate->arena, ir->n_layers, sizeof *values_of_row);
    if (!rows || !values_of_row) {
        bp_gate_no_memory(gate);
        return;
    }
    for (BP_GATE_EACH(i, gate->at.values)) {
        const struct bp_distributed_value *value = &ir->values[i];
        size_t length;
        if (rows[i] == BP_GATE_NOWHERE || role_part(value->role, &length) != PARAMETERS)
            continue;
        values_of_row[rows[i]]++;
        struct bp_calc calc = {0};
        bp_u128 held = held_of(ir, value, &calc);
        bp_gate_exact(gate, BP_E_structure_violated, bp_gate_path(gate, "/values/%u/shape", i), &calc,
                      ir->layers[rows[i]].parameters, held);
    }
    for (BP_GATE_EACH(i, gate->at.layers))
        BP_GATE_EXPECT(gate, values_of_row[i] == (ir->layers[i].parameters > 0), BP_E_structure_violated,
                       bp_gate_path(gate, "/layers/%u/parameters", i), "%u values hold them", values_of_row[i]);
}
