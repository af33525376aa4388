#include "common/passes/bind.h"

#include <string.h>

#include "common/passes/laws.h"

/* A binding on its way to a snapshot. */
struct binding {
    const struct bp_pass_input *input;
    const struct bp_portable_ir *source;
    const char *rule;
    struct bp_arena *arena;
    const struct bp_id_maker *ids;
};

/* o_0 = 0, o_i = ceil((o_{i-1} + s_{i-1}) / a_i) * a_i, a_i = max(16, r_i), in canonical order. */
static const struct bp_concrete_buffer *lay_out(const struct binding *binding, struct bp_calc *calc)
{
    const struct bp_portable_ir *source = binding->source;
    struct bp_concrete_buffer *buffers = bp_arena_array(binding->arena, source->n_buffers, sizeof *buffers);
    bp_u128 end = 0;
    for (uint32_t i = 0; buffers && i < source->n_buffers; i++) {
        const struct bp_portable_buffer *buffer = &source->buffers[i];
        bp_u128 alignment = buffer->alignment > 16 ? buffer->alignment : 16;
        bp_u128 offset = bp_mul(calc, bp_div_ceil(calc, end, alignment), alignment);
        end = bp_add(calc, offset, buffer->size.n);
        bp_bytes(calc, end);
        buffers[i] = (struct bp_concrete_buffer){
            .id = bp_id_make(binding->ids, BP_ENTITY_BUFFER, i, bp_buffer_role_names[buffer->role]),
            .source = buffer->id,
            .region = 0,
            .offset = bp_bytes(calc, offset),
            .size = buffer->size,
            .alignment = (uint64_t)alignment,
            .lineage = {binding->rule, &buffer->id, 1},
        };
    }
    return buffers;
}

static bool bind_uses(const struct binding *binding, const struct bp_portable_task *task,
                      struct bp_concrete_command *command)
{
    uint32_t n_buffers = binding->source->n_buffers;
    struct bp_concrete_use *uses = bp_arena_array(binding->arena, n_buffers, sizeof *uses);
    if (!uses)
        return false;
    for (uint32_t i = 0; i < n_buffers; i++) {
        enum bp_access access;
        if (bp_portable_access(task, i, &access))
            uses[command->n_uses++] = (struct bp_concrete_use){i, access};
    }
    command->uses = uses;
    return true;
}

/* reference/ and the last alternative: the one that assumes least of a device. */
static const char *implementation(const struct binding *binding, const struct bp_portable_task *task)
{
    return bp_arena_printf(binding->arena, "reference/%s",
                           task->capability.alternatives[task->capability.n_alternatives - 1]);
}

/* The queue target takes commands by kind; the slot target has no queues. */
static enum bp_queue queue_of(const struct binding *binding, enum bp_task_kind kind)
{
    static const enum bp_queue queues[BP_TASK_KIND_N] = {[BP_TASK_COMPUTE] = BP_QUEUE_COMPUTE,
                                                         [BP_TASK_COLLECTIVE] = BP_QUEUE_COLLECTIVE,
                                                         [BP_TASK_TRANSFER] = BP_QUEUE_TRANSFER,
                                                         [BP_TASK_HOST] = BP_QUEUE_HOST};
    return binding->input->request->target.kind == BP_TARGET_QUEUE ? queues[kind] : BP_QUEUE_NONE;
}

static const struct bp_concrete_command *make_commands(const struct binding *binding)
{
    const struct bp_portable_ir *source = binding->source;
    struct bp_concrete_command *commands = bp_arena_array(binding->arena, source->n_tasks, sizeof *commands);
    for (uint32_t i = 0; commands && i < source->n_tasks; i++) {
        const struct bp_portable_task *task = &source->tasks[i];
        commands[i] = (struct bp_concrete_command){
            .id = bp_id_make(binding->ids, BP_ENTITY_COMMAND, i, task->name),
            .task = task->id,
            .kind = task->kind,
            .queue = queue_of(binding, task->kind),
            .implementation = implementation(binding, task),
            .dependencies = task->dependencies,
            .lineage = {binding->rule, &task->id, 1},
        };
        if (!commands[i].implementation || !bind_uses(binding, task, &commands[i]))
            return NULL;
    }
    return commands;
}

struct bp_concrete_ir *bp_bind(const struct bp_pass_input *input, const char *rule, struct bp_arena *arena,
                               struct bp_err *err)
{
    const struct bp_fingerprints *fingerprints = input->fingerprints;
    struct binding binding = {.input = input,
                              .source = input->source.as.portable,
                              .rule = rule,
                              .arena = arena,
                              .ids = bp_id_maker_new(arena, &input->source_digest, &fingerprints->binding)};
    struct bp_concrete_ir *ir = bp_arena_array(arena, 1, sizeof *ir);
    struct bp_concrete_region *region = bp_arena_array(arena, 1, sizeof *region);
    struct bp_calc calc = {0};
    const struct bp_concrete_buffer *buffers = binding.ids ? lay_out(&binding, &calc) : NULL;
    const struct bp_concrete_command *commands = buffers ? make_commands(&binding) : NULL;
    if (!ir || !region || !commands) {
        bp_fail(err, BP_E_out_of_memory, "", "no memory for the concrete plan");
        return NULL;
    }
    if (bp_calc_check(&calc, "/workload", "the end of the layout", err) < 0)
        return NULL;
    *region = (struct bp_concrete_region){.id = bp_id_make(binding.ids, BP_ENTITY_REGION, 0, "memory"),
                                          .device = 0,
                                          .capacity = input->request->deployment.memory};
    *ir = (struct bp_concrete_ir){
        .parent = input->source_digest,
        .binding = fingerprints->binding,
        .target_fingerprint = fingerprints->target,
        .deployment_fingerprint = fingerprints->deployment,
        .target = input->request->target.kind,
        .n_devices = input->request->strategy.tensor_parallel,
        .regions = region,
        .n_regions = 1,
        .buffers = buffers,
        .n_buffers = binding.source->n_buffers,
        .commands = commands,
        .n_commands = binding.source->n_tasks,
    };
    return ir;
}

/* o_i mod a_i = 0, and o_i is the least such offset at or after the end of buffer i-1. */
static void compare_offsets(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = gate->target.as.concrete;
    bp_u128 end = 0;
    for (uint32_t i = 0; i < ir->n_buffers; i++) {
        const struct bp_concrete_buffer *buffer = &ir->buffers[i];
        struct bp_calc calc = {0};
        bp_u128 a = buffer->alignment;
        bp_u128 least = bp_mul(&calc, bp_div_ceil(&calc, end, a), a);
        bp_gate_equal(gate, "/buffers", &calc, least, buffer->offset.n);
        end = bp_add(&calc, buffer->offset.n, buffer->size.n);
    }
}

static const struct bp_law layout_laws[] = {
    {"law.layout",
     "o_0 = 0, \\quad o_i = \\left\\lceil\\frac{o_{i-1}+s_{i-1}}{a_i}\\right\\rceil a_i, \\quad o_i \\bmod a_i = 0, "
     "\\quad o_i \\ge o_{i-1}+s_{i-1}",
     "every plan with a target", "docs/formulas.md, reference targets", bp_law_always, compare_offsets},
};
const struct bp_law_group bp_layout_laws = BP_GROUP(layout_laws);
