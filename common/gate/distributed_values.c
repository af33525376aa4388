#include "common/gate/distributed.h"

#include <string.h>

void bp_gate_check_mesh(struct bp_gate *gate)
{
    const struct bp_distributed_ir *ir = gate->target.as.distributed;
    const struct bp_strategy *strategy = &ir->strategy;
    bool training = ir->workload.mode == BP_MODE_TRAINING;
    const struct bp_mesh_axis axes[] = {
        {BP_AXIS_TENSOR, strategy->tensor_parallel},
        {BP_AXIS_PIPELINE, strategy->pipeline_parallel},
        {training ? BP_AXIS_DATA : BP_AXIS_REPLICA, training ? strategy->data_parallel : strategy->replicas},
    };
    BP_GATE_EXPECT(gate, ir->n_axes == BP_GATE_COUNT(axes), BP_E_structure_violated, "/mesh/axes", "%u axes, not %zu",
                   ir->n_axes, BP_GATE_COUNT(axes));
    for (uint32_t i = 0; i < ir->n_axes && i < BP_GATE_COUNT(axes); i++) {
        BP_GATE_EXPECT(gate, ir->axes[i].axis == axes[i].axis, BP_E_structure_violated,
                       bp_gate_path(gate, "/mesh/axes/%u/name", i), "the axis here is %s in this mode",
                       bp_axis_names[axes[i].axis]);
        BP_GATE_EXPECT(gate, ir->axes[i].size == axes[i].size && axes[i].size > 0, BP_E_structure_violated,
                       bp_gate_path(gate, "/mesh/axes/%u/size", i), "the strategy has %llu here, the mesh %llu",
                       (unsigned long long)axes[i].size, (unsigned long long)ir->axes[i].size);
    }
}

/* Ranks along an axis; 1 where nothing is split, 0 for an axis the mesh does not have. */
static uint64_t axis_size(const struct bp_distributed_ir *ir, enum bp_axis axis)
{
    if (axis == BP_AXIS_NONE)
        return 1;
    for (uint32_t i = 0; i < ir->n_axes && i < BP_GATE_COUNT(ir->axes); i++)
        if (ir->axes[i].axis == axis)
            return ir->axes[i].size;
    return 0;
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
            uint64_t ranks = axis_size(ir, axis);
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
    for (uint32_t i = 0; i < ir->n_layers; i++)
        bp_gate_index_put(&index, ir->layers[i].name, strlen(ir->layers[i].name), i);
    for (uint32_t i = 0; i < ir->n_values; i++) {
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
    BP_GATE_EXPECT(gate, ir->n_values >= BP_GATE_COUNT(first), BP_E_structure_violated, "/values",
                   "%u values: the input or the output is missing", ir->n_values);
    uint64_t last = 0;
    for (uint32_t i = 0; i < ir->n_values; i++) {
        const char *role = ir->values[i].role, *path = "/values/%u/role";
        if (i < BP_GATE_COUNT(first)) {
            BP_GATE_EXPECT(gate, strcmp(role, first[i]) == 0, BP_E_structure_violated, bp_gate_path(gate, path, i),
                           "the %s stands here, not %s", first[i], role);
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
        held = bp_mul(calc, held, bp_div(calc, value->shape[j], axis_size(ir, value->sharding[j])));
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
    for (uint32_t i = 0; i < ir->n_values; i++) {
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
    for (uint32_t i = 0; i < ir->n_values; i++) {
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
    for (uint32_t i = 0; i < ir->n_layers; i++)
        BP_GATE_EXPECT(gate, values_of_row[i] == (ir->layers[i].parameters > 0), BP_E_structure_violated,
                       bp_gate_path(gate, "/layers/%u/parameters", i), "%u values hold them", values_of_row[i]);
}
