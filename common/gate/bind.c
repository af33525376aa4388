/* portable -> concrete: every task became one command and every buffer one place, as they were. */
#include <string.h>

#include "common/gate/checks.h"

static const struct bp_concrete_ir *target(const struct bp_gate *gate)
{
    return gate->target.as.concrete;
}

static const struct bp_portable_ir *source(const struct bp_gate *gate)
{
    return gate->source.as.portable;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Commands and buffers are compared with tasks and buffers by place; how many both have. */
static uint32_t n_command_pairs(const struct bp_gate *gate)
{
    return least(target(gate)->n_commands, source(gate)->n_tasks);
}

static uint32_t n_buffer_pairs(const struct bp_gate *gate)
{
    return least(target(gate)->n_buffers, source(gate)->n_buffers);
}

static struct bp_gate_arrays sources(const struct bp_gate *gate)
{
    const struct bp_portable_ir *ir = source(gate);
    return (struct bp_gate_arrays){.n = 2,
                                   .at = {BP_GATE_NAMED(TASK, ir->tasks, ir->n_tasks, NULL),
                                          BP_GATE_NAMED(BUFFER, ir->buffers, ir->n_buffers, NULL)}};
}

static struct bp_gate_arrays derived(const struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    return (struct bp_gate_arrays){
        .n = 2,
        .at = {
            BP_GATE_DERIVED(BUFFER, struct bp_concrete_buffer, ir->buffers, ir->n_buffers, 1U << BP_ENTITY_BUFFER),
            BP_GATE_DERIVED(COMMAND, struct bp_concrete_command, ir->commands, ir->n_commands, 1U << BP_ENTITY_TASK)}};
}

static void check_parent(struct bp_gate *gate)
{
    bp_gate_check_parent(gate, &target(gate)->parent);
}

static void check_bindings(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    const struct bp_fingerprints *fingerprints = gate->fingerprints;
    const struct {
        const char *path;
        bool holds;
    } rules[] = {
        {"/target/fingerprint", bp_digest_equal(&ir->target_fingerprint, &fingerprints->target)},
        {"/deployment/fingerprint", bp_digest_equal(&ir->deployment_fingerprint, &fingerprints->deployment)},
        {"", bp_digest_equal(&ir->binding, &fingerprints->binding)},
        {"/target/kind", ir->target == gate->request->target.kind},
    };
    for (size_t i = 0; i < BP_GATE_COUNT(rules); i++)
        BP_GATE_EXPECT(gate, rules[i].holds, BP_E_cross_stage_violated, rules[i].path,
                       "it is not what the request binds here");
}

static void check_lineage(struct bp_gate *gate)
{
    const struct bp_gate_arrays to = derived(gate), from = sources(gate);
    bp_gate_check_lineage(gate, &to, &from);
}

static void check_coverage(struct bp_gate *gate)
{
    const struct bp_gate_arrays to = derived(gate), from = sources(gate);
    bp_gate_check_coverage(gate, &to, &from);
}

static bool comes_from(const struct bp_lineage *lineage, const struct bp_id *source_id)
{
    return lineage->n_sources == 1 && bp_id_equal(&lineage->sources[0], source_id);
}

/* What an entity says it was bound from is its lineage. */
static void check_origins(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_buffers; i++)
        BP_GATE_EXPECT(gate, comes_from(&ir->buffers[i].lineage, &ir->buffers[i].source), BP_E_cross_stage_violated,
                       bp_gate_path(gate, "/buffers/%u/lineage/sources", i), "it does not come from its source alone");
    for (uint32_t i = 0; i < ir->n_commands; i++)
        BP_GATE_EXPECT(gate, comes_from(&ir->commands[i].lineage, &ir->commands[i].task), BP_E_cross_stage_violated,
                       bp_gate_path(gate, "/commands/%u/lineage/sources", i), "it does not come from its task alone");
}

static void check_commands(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    const struct bp_portable_ir *from = source(gate);
    BP_GATE_EXPECT(gate, ir->n_commands == from->n_tasks, BP_E_cross_stage_violated, "/commands",
                   "%u commands for %u tasks", ir->n_commands, from->n_tasks);
    for (uint32_t i = 0; i < n_command_pairs(gate); i++) {
        BP_GATE_EXPECT(gate, bp_id_equal(&ir->commands[i].task, &from->tasks[i].id), BP_E_cross_stage_violated,
                       bp_gate_path(gate, "/commands/%u/task", i), "it is not %s, which is in its place",
                       from->tasks[i].name);
        BP_GATE_EXPECT(gate, ir->commands[i].kind == from->tasks[i].kind, BP_E_cross_stage_violated,
                       bp_gate_path(gate, "/commands/%u/kind", i), "it is not the kind of %s", from->tasks[i].name);
    }
}

static void check_dependencies(struct bp_gate *gate)
{
    for (uint32_t i = 0; i < n_command_pairs(gate); i++)
        BP_GATE_EXPECT(
            gate, bp_gate_list_equal(&target(gate)->commands[i].dependencies, &source(gate)->tasks[i].dependencies),
            BP_E_cross_stage_violated, bp_gate_path(gate, "/commands/%u/dependencies", i),
            "it does not wait for what %s waits for", source(gate)->tasks[i].name);
}

/* The last alternative: the reference one, which assumes least of a device. */
static const char *reference_of(const struct bp_capability *capability)
{
    uint32_t n = capability->n_alternatives;
    return n > 0 && n <= BP_GATE_COUNT(capability->alternatives) ? capability->alternatives[n - 1] : "";
}

static void check_implementation(struct bp_gate *gate)
{
    static const char prefix[] = "reference/";
    for (uint32_t i = 0; i < n_command_pairs(gate); i++) {
        const char *chosen = target(gate)->commands[i].implementation;
        const char *wanted = reference_of(&source(gate)->tasks[i].capability);
        bool fits = strncmp(chosen, prefix, sizeof prefix - 1) == 0 && strcmp(chosen + sizeof prefix - 1, wanted) == 0;
        BP_GATE_EXPECT(gate, fits, BP_E_cross_stage_violated, bp_gate_path(gate, "/commands/%u/implementation", i),
                       "%s is not %s%s", chosen, prefix, wanted);
    }
}

/* A command uses the buffers of its task, all of them, each as the task does. */
static void check_access(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    const struct bp_portable_ir *from = source(gate);
    for (uint32_t i = 0; i < n_command_pairs(gate); i++) {
        const struct bp_concrete_command *command = &ir->commands[i];
        uint32_t n_used = 0;
        enum bp_access wanted;
        for (uint32_t j = 0; j < from->n_buffers; j++)
            n_used += bp_portable_access(&from->tasks[i], j, &wanted);
        BP_GATE_EXPECT(gate, command->n_uses == n_used, BP_E_cross_stage_violated,
                       bp_gate_path(gate, "/commands/%u/buffers", i), "%u buffers, its task uses %u", command->n_uses,
                       n_used);
        for (uint32_t j = 0; j < command->n_uses; j++) {
            const struct bp_concrete_use *use = &command->uses[j];
            bool uses = bp_portable_access(&from->tasks[i], use->buffer, &wanted);
            BP_GATE_EXPECT(gate, uses && use->access == wanted, BP_E_cross_stage_violated,
                           bp_gate_path(gate, "/commands/%u/buffers/%u", i, j), "the task %s",
                           uses ? "uses the buffer otherwise" : "does not use the buffer");
        }
    }
}

static void check_buffers(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    const struct bp_portable_ir *from = source(gate);
    BP_GATE_EXPECT(gate, ir->n_buffers == from->n_buffers, BP_E_cross_stage_violated, "/buffers", "%u buffers for %u",
                   ir->n_buffers, from->n_buffers);
    for (uint32_t i = 0; i < n_buffer_pairs(gate); i++) {
        const struct bp_concrete_buffer *a = &ir->buffers[i];
        const struct bp_portable_buffer *b = &from->buffers[i];
        uint64_t alignment = b->alignment > 16 ? b->alignment : 16;
        const struct {
            const char *key;
            bool holds;
        } rules[] = {{"source", bp_id_equal(&a->source, &b->id)},
                     {"size_bytes", a->size.n == b->size.n},
                     {"alignment_bytes", a->alignment == alignment}};
        for (size_t j = 0; j < BP_GATE_COUNT(rules); j++)
            BP_GATE_EXPECT(gate, rules[j].holds, BP_E_cross_stage_violated,
                           bp_gate_path(gate, "/buffers/%u/%s", i, rules[j].key),
                           "it is not that of the portable buffer in its place");
    }
}

static void check_devices(struct bp_gate *gate)
{
    uint64_t devices = target(gate)->n_devices;
    BP_GATE_EXPECT(gate, devices == gate->symbols->t && devices <= gate->request->deployment.devices,
                   BP_E_cross_stage_violated, "/devices", "%llu devices are not the tensor group's",
                   (unsigned long long)devices);
}

static void check_capacity(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_regions; i++)
        BP_GATE_EXPECT(gate, ir->regions[i].capacity.n == gate->request->deployment.memory.n, BP_E_cross_stage_violated,
                       bp_gate_path(gate, "/regions/%u/capacity_bytes", i), "%llu bytes are not the memory of a device",
                       (unsigned long long)ir->regions[i].capacity.n);
}

#define X BP_CHECK_CROSS_STAGE
static const struct bp_check rows[] = {
    {"bind.parent", BP_CHECK_LINEAGE, "The parent digest is that of the portable snapshot.", check_parent},
    {"bind.bindings", X, "Target and deployment, and their fingerprints, are those that the request binds.",
     check_bindings},
    {"bind.lineage", BP_CHECK_LINEAGE,
     "Every buffer and command names the rule and entities of the portable snapshot, none twice.", check_lineage},
    {"bind.coverage", BP_CHECK_LINEAGE, "Every portable task and buffer is the source of something.", check_coverage},
    {"bind.origins", BP_CHECK_LINEAGE, "The task of a command and the source of a buffer are their lineage.",
     check_origins},
    {"bind.commands", X, "There is one command for each task, in the same order, of the same kind.", check_commands},
    {"bind.dependencies", X, "Dependencies are kept.", check_dependencies},
    {"bind.implementation", X, "The reference implementation is chosen: the last alternative.", check_implementation},
    {"bind.access", X, "A command uses exactly the buffers of its task, each as the task does.", check_access},
    {"bind.buffers", X, "There is one buffer for each portable one, in the same order, of that size and alignment.",
     check_buffers},
    {"bind.devices", X, "The devices are the ranks of the tensor group, and the deployment has as many.",
     check_devices},
    {"bind.capacity", X, "A region has the memory of a device of the deployment.", check_capacity},
};
const struct bp_check_group bp_bind_checks = BP_GATE_GROUP(rows);
