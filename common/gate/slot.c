/* The slot-dataflow extension: every command issued once, after all it waits for; routes for transfers. */
#include "common/gate/checks.h"

static const struct bp_concrete_ir *target(const struct bp_gate *gate)
{
    return gate->target.as.concrete;
}

static void check_extension(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    BP_GATE_EXPECT(gate, ir->target == BP_TARGET_SLOT, BP_E_structure_violated, "/target/kind",
                   "the target has no slots");
    for (uint32_t q = 0; q < BP_QUEUE_NONE; q++)
        BP_GATE_EXPECT(gate, ir->queues[q].n == 0, BP_E_structure_violated, "/extension",
                       "a slot target has no %s queue", bp_queue_names[q]);
    for (uint32_t i = 0; i < ir->n_commands; i++)
        BP_GATE_EXPECT(gate, ir->commands[i].queue == BP_QUEUE_NONE, BP_E_structure_violated,
                       bp_gate_path(gate, "/commands/%u/queue", i), "a slot target has no queues");
}

static uint32_t issued(const struct bp_concrete_ir *ir, uint32_t i)
{
    return ir->issues[i].command;
}

static uint32_t routed(const struct bp_concrete_ir *ir, uint32_t i)
{
    return ir->routes[i].command;
}

/* How often each command is named; `path` is that of the member that names it. NULL when memory ran out. */
static uint32_t *count_commands(struct bp_gate *gate, uint32_t n,
                                uint32_t (*command_of)(const struct bp_concrete_ir *ir, uint32_t i), const char *path)
{
    const struct bp_concrete_ir *ir = target(gate);
    uint32_t *counts = bp_arena_array(gate->arena, ir->n_commands, sizeof *counts);
    if (!counts) {
        bp_gate_no_memory(gate);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t command = command_of(ir, i);
        BP_GATE_EXPECT(gate, command < ir->n_commands, BP_E_structure_violated, bp_gate_path(gate, path, i),
                       "there is no command %u", command);
        if (command < ir->n_commands)
            counts[command]++;
    }
    return counts;
}

static void check_coverage(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    const uint32_t *counts = count_commands(gate, ir->n_issues, issued, "/extension/issue/%u/command");
    for (uint32_t i = 0; counts && i < ir->n_commands; i++)
        BP_GATE_EXPECT(gate, counts[i] == 1, BP_E_structure_violated, bp_gate_path(gate, "/commands/%u", i),
                       "it is issued %u times, not once", counts[i]);
}

static void check_unique(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    struct place {
        uint64_t cycle, slot;
    } *places = bp_arena_array(gate->arena, ir->n_issues, sizeof *places);
    struct bp_gate_index index;
    if (!places) {
        bp_gate_no_memory(gate);
        return;
    }
    if (!bp_gate_index_init(gate, ir->n_issues, &index))
        return;
    for (uint32_t i = 0; i < ir->n_issues; i++) {
        places[i] = (struct place){ir->issues[i].cycle, ir->issues[i].slot};
        BP_GATE_EXPECT(gate, bp_gate_index_put(&index, &places[i], sizeof *places, i) == i, BP_E_structure_violated,
                       bp_gate_path(gate, "/extension/issue/%u", i), "another command has this slot of the cycle");
    }
}

/* issue(t_i) = (i, 0) */
static void check_issue(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_issues; i++) {
        const struct bp_slot_issue *issue = &ir->issues[i];
        BP_GATE_EXPECT(gate, issue->command == i && issue->cycle == i && issue->slot == 0, BP_E_structure_violated,
                       bp_gate_path(gate, "/extension/issue/%u", i), "command %u is not issued in cycle %u, slot 0", i,
                       i);
    }
}

/* The proof that the order is legal: cycle(t_j) < cycle(t_i) for every dependency t_j of t_i. */
static void check_order(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    uint64_t *cycles = bp_arena_array(gate->arena, ir->n_commands, sizeof *cycles);
    if (!cycles) {
        bp_gate_no_memory(gate);
        return;
    }
    for (uint32_t i = 0; i < ir->n_issues; i++)
        if (ir->issues[i].command < ir->n_commands)
            cycles[ir->issues[i].command] = ir->issues[i].cycle;
    for (uint32_t i = 0; i < ir->n_commands; i++) {
        const struct bp_list *dependencies = &ir->commands[i].dependencies;
        for (uint32_t j = 0; j < dependencies->n; j++) {
            uint32_t place = dependencies->at[j];
            BP_GATE_EXPECT(gate, place < ir->n_commands && cycles[place] < cycles[i], BP_E_structure_violated,
                           bp_gate_path(gate, "/commands/%u/dependencies/%u", i, j),
                           "it is not issued before the command that waits for it");
        }
    }
}

static void check_routes(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    const uint32_t *counts = count_commands(gate, ir->n_routes, routed, "/extension/routes/%u/command");
    for (uint32_t i = 0; i < ir->n_routes; i++)
        BP_GATE_EXPECT(gate, ir->routes[i].source < ir->n_devices && ir->routes[i].destination < ir->n_devices,
                       BP_E_structure_violated, bp_gate_path(gate, "/extension/routes/%u", i),
                       "it does not lead from a device to a device");
    for (uint32_t i = 0; counts && i < ir->n_commands; i++) {
        bool transfer = ir->commands[i].kind == BP_TASK_TRANSFER;
        BP_GATE_EXPECT(gate, counts[i] == transfer, BP_E_structure_violated, bp_gate_path(gate, "/commands/%u", i),
                       "%u routes for %s", counts[i], transfer ? "a transfer" : "what is no transfer");
    }
}

#define S BP_CHECK_STRUCTURE
static const struct bp_check rows[] = {
    {"slot.extension", S, "The target has slots and no queues.", check_extension},
    {"slot.coverage", S, "Every command is issued once.", check_coverage},
    {"slot.unique", S, "No slot of a cycle is taken twice.", check_unique},
    {"slot.issue", S, "The i-th command is issued in cycle i, slot 0.", check_issue},
    {"slot.order", S, "What a command waits for is issued in an earlier cycle.", check_order},
    {"slot.routes", S, "Transfers have one route each, between devices, and nothing else has any.", check_routes},
};
const struct bp_check_group bp_slot_checks = BP_GATE_GROUP(rows);
