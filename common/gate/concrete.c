/* Structure of the concrete stage: buffers laid out in a region, commands in order; whether the region holds them. */
#include <stdio.h>
#include <string.h>

#include "common/gate/checks.h"

static const struct bp_concrete_ir *target(const struct bp_gate *gate)
{
    return gate->target.as.concrete;
}

/* Entities of this stage have the names of their portable sources; NULL for a source that is not there. */

static const char *region_name(const struct bp_gate *gate, uint32_t i)
{
    (void)gate;
    (void)i;
    return "memory";
}

static const char *buffer_name(const struct bp_gate *gate, uint32_t i)
{
    const struct bp_portable_ir *from = gate->source.as.portable;
    const struct bp_id *id = &target(gate)->buffers[i].source;
    for (uint32_t j = 0; j < from->n_buffers; j++)
        if (bp_id_equal(&from->buffers[j].id, id))
            return from->buffers[j].role < BP_BUFFER_ROLE_N ? bp_buffer_role_names[from->buffers[j].role] : NULL;
    return NULL;
}

static const char *command_name(const struct bp_gate *gate, uint32_t i)
{
    const struct bp_portable_ir *from = gate->source.as.portable;
    const struct bp_id *id = &target(gate)->commands[i].task;
    if (i < from->n_tasks && bp_id_equal(&from->tasks[i].id, id))
        return from->tasks[i].name;
    for (uint32_t j = 0; j < from->n_tasks; j++)
        if (bp_id_equal(&from->tasks[j].id, id))
            return from->tasks[j].name;
    return NULL;
}

static struct bp_gate_arrays entities(const struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    return (struct bp_gate_arrays){.n = 3,
                                   .at = {BP_GATE_NAMED(REGION, ir->regions, ir->n_regions, region_name),
                                          BP_GATE_NAMED(BUFFER, ir->buffers, ir->n_buffers, buffer_name),
                                          BP_GATE_NAMED(COMMAND, ir->commands, ir->n_commands, command_name)}};
}

static void check_ids(struct bp_gate *gate)
{
    const struct bp_gate_arrays arrays = entities(gate);
    bp_gate_check_ids(gate, &gate->fingerprints->binding, &arrays);
}

static void check_unique_ids(struct bp_gate *gate)
{
    const struct bp_gate_arrays arrays = entities(gate);
    bp_gate_check_unique_ids(gate, &arrays);
}

static void check_references(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_buffers; i++)
        BP_GATE_EXPECT(gate, ir->buffers[i].region < ir->n_regions, BP_E_structure_violated,
                       bp_gate_path(gate, "/buffers/%u/region", i), "there is no region %u", ir->buffers[i].region);
    for (uint32_t i = 0; i < ir->n_commands; i++) {
        const struct bp_concrete_command *command = &ir->commands[i];
        BP_GATE_EXPECT(gate, command->kind < BP_TASK_KIND_N && command->queue <= BP_QUEUE_NONE, BP_E_structure_violated,
                       bp_gate_path(gate, "/commands/%u", i), "there is no such kind or queue");
        for (uint32_t j = 0; j < command->n_uses; j++) {
            const struct bp_concrete_use *use = &command->uses[j];
            bool ascends = j == 0 || use[-1].buffer < use->buffer;
            BP_GATE_EXPECT(gate, ascends && use->buffer < ir->n_buffers && use->access < BP_ACCESS_N,
                           BP_E_structure_violated, bp_gate_path(gate, "/commands/%u/buffers/%u", i, j), "%s",
                           ascends ? "there is no such buffer or access"
                                   : "the buffer does not come after the one before");
        }
    }
}

static void check_devices(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    BP_GATE_EXPECT(gate, ir->n_devices > 0, BP_E_structure_violated, "/devices", "there is no device");
    BP_GATE_EXPECT(gate, ir->n_regions == 1, BP_E_structure_violated, "/regions",
                   "%u regions: one, on device 0, stands for every rank's", ir->n_regions);
    for (uint32_t i = 0; i < ir->n_regions; i++)
        BP_GATE_EXPECT(gate, ir->regions[i].device == 0, BP_E_structure_violated,
                       bp_gate_path(gate, "/regions/%u/device", i), "the region is on device %llu, not 0",
                       (unsigned long long)ir->regions[i].device);
}

static void check_topology(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_commands; i++)
        bp_gate_check_dependencies(gate, &ir->commands[i].dependencies, "commands", i, 0, true);
}

/* a_i = max(16, r_i) */
static uint64_t alignment_of(const struct bp_concrete_buffer *buffer)
{
    return buffer->alignment > 16 ? buffer->alignment : 16;
}

/* o_0 = 0, o_i = ceil((o_{i-1} + s_{i-1}) / a_i) * a_i */
static void check_layout(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    bp_u128 end = 0;
    for (uint32_t i = 0; i < ir->n_buffers; i++) {
        const struct bp_concrete_buffer *buffer = &ir->buffers[i];
        struct bp_calc calc = {0};
        bp_u128 a = alignment_of(buffer), offset = bp_mul(&calc, bp_div_ceil(&calc, end, a), a);
        BP_GATE_EXPECT(gate, buffer->offset.n == offset, BP_E_structure_violated,
                       bp_gate_path(gate, "/buffers/%u/offset_bytes", i),
                       "%llu is not the end of the buffer before, rounded up to the alignment",
                       (unsigned long long)buffer->offset.n);
        end = (bp_u128)buffer->offset.n + buffer->size.n;
    }
}

static void check_alignment(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_buffers; i++) {
        const struct bp_concrete_buffer *buffer = &ir->buffers[i];
        BP_GATE_EXPECT(gate, buffer->alignment >= 16, BP_E_structure_violated,
                       bp_gate_path(gate, "/buffers/%u/alignment_bytes", i), "%llu is less than 16",
                       (unsigned long long)buffer->alignment);
        BP_GATE_EXPECT(gate, buffer->offset.n % alignment_of(buffer) == 0, BP_E_structure_violated,
                       bp_gate_path(gate, "/buffers/%u/offset_bytes", i), "it is not aligned to %llu",
                       (unsigned long long)alignment_of(buffer));
    }
}

/* Names the largest buffers, at most three, largest first. */
static void name_largest(const struct bp_gate *gate, char *text, size_t size)
{
    const struct bp_concrete_ir *ir = target(gate);
    enum { MOST = 3 };
    uint32_t named[MOST];
    size_t length = 0;
    *text = '\0';
    for (uint32_t n = 0; n < MOST && n < ir->n_buffers; n++) {
        uint32_t largest = BP_GATE_NOWHERE;
        for (uint32_t i = 0; i < ir->n_buffers; i++) {
            bool taken = false;
            for (uint32_t j = 0; j < n; j++)
                taken |= named[j] == i;
            if (!taken && (largest == BP_GATE_NOWHERE || ir->buffers[i].size.n > ir->buffers[largest].size.n))
                largest = i;
        }
        named[n] = largest;
        const char *name = buffer_name(gate, largest);
        int written = snprintf(text + length, size - length, "%s%s %llu", n ? ", " : "", name ? name : "?",
                               (unsigned long long)ir->buffers[largest].size.n);
        if (written < 0 || (size_t)written >= size - length)
            return;
        length += (size_t)written;
    }
}

static void check_capacity(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_regions; i++) {
        bp_u128 needed = 0, available = ir->regions[i].capacity.n;
        for (uint32_t j = 0; j < ir->n_buffers; j++) {
            bp_u128 end = (bp_u128)ir->buffers[j].offset.n + ir->buffers[j].size.n;
            if (ir->buffers[j].region == i && end > needed)
                needed = end;
        }
        gate->compared++;
        if (needed <= available)
            continue;
        char need[BP_U128_TEXT], have[BP_U128_TEXT], shortfall[BP_U128_TEXT], largest[256];
        bp_u128_format(needed, need);
        bp_u128_format(available, have);
        bp_u128_format(needed - available, shortfall);
        name_largest(gate, largest, sizeof largest);
        bp_gate_finding(gate, BP_E_capacity_exceeded, "/deployment/memory_bytes",
                        "the layout needs %s bytes, a device has %s: %s short; the largest buffers are %s", need, have,
                        shortfall, largest);
    }
}

#define S BP_CHECK_STRUCTURE
static const struct bp_check rows[] = {
    {"concrete.ids", S, "Every id is made of the portable snapshot, the target and deployment, the place and the name.",
     check_ids},
    {"concrete.unique_ids", S, "No two entities share an id.", check_unique_ids},
    {"concrete.references", S, "Every region and buffer that is named exists; a command lists its buffers in order.",
     check_references},
    {"concrete.devices", S, "There are devices, and one region, on device 0, that stands for every rank's.",
     check_devices},
    {"concrete.topology", S, "Commands wait for earlier commands only, listed in order and once; the first for none.",
     check_topology},
    {"concrete.layout", S, "Offsets follow the aligned recurrence.", check_layout},
    {"concrete.alignment", S, "Every offset is a multiple of its alignment, which is at least 16.", check_alignment},
    {"concrete.capacity", BP_CHECK_CAPACITY, "The region holds the layout.", check_capacity},
};
const struct bp_check_group bp_concrete_checks = BP_GATE_GROUP(rows);
