/* The queue-order extension: four queues, each command in the one of its kind, in stable order. */
#include "common/gate/checks.h"

static const struct bp_concrete_ir *target(const struct bp_gate *gate)
{
    return gate->target.as.concrete;
}

static const enum bp_queue queue_of_kind[BP_TASK_KIND_N] = {
    [BP_TASK_COMPUTE] = BP_QUEUE_COMPUTE,
    [BP_TASK_COLLECTIVE] = BP_QUEUE_COLLECTIVE,
    [BP_TASK_TRANSFER] = BP_QUEUE_TRANSFER,
    [BP_TASK_HOST] = BP_QUEUE_HOST,
};

static void check_extension(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    BP_GATE_EXPECT(gate, ir->target == BP_TARGET_QUEUE, BP_E_structure_violated, "/target/kind",
                   "the target has no queues");
    BP_GATE_EXPECT(gate, ir->n_issues == 0 && ir->n_routes == 0, BP_E_structure_violated, "/extension",
                   "a queue target has neither slots nor routes");
}

static void check_coverage(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    uint32_t *places = bp_arena_array(gate->arena, ir->n_commands, sizeof *places);
    if (!places) {
        bp_gate_no_memory(gate);
        return;
    }
    for (uint32_t q = 0; q < BP_QUEUE_NONE; q++) {
        for (uint32_t j = 0; j < ir->queues[q].n; j++) {
            uint32_t command = ir->queues[q].at[j];
            BP_GATE_EXPECT(gate, command < ir->n_commands, BP_E_structure_violated,
                           bp_gate_path(gate, "/extension/queues/%u/commands/%u", q, j), "there is no command %u",
                           command);
            if (command < ir->n_commands)
                places[command]++;
        }
    }
    for (uint32_t i = 0; i < ir->n_commands; i++)
        BP_GATE_EXPECT(gate, places[i] == 1, BP_E_structure_violated, bp_gate_path(gate, "/commands/%u/queue", i),
                       "it stands in %u places of the queues, not in one", places[i]);
}

static void check_kind(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    for (uint32_t q = 0; q < BP_QUEUE_NONE; q++) {
        for (uint32_t j = 0; j < ir->queues[q].n; j++) {
            uint32_t command = ir->queues[q].at[j];
            if (command >= ir->n_commands)
                continue;
            enum bp_task_kind kind = ir->commands[command].kind;
            BP_GATE_EXPECT(gate, kind < BP_TASK_KIND_N && queue_of_kind[kind] == q, BP_E_structure_violated,
                           bp_gate_path(gate, "/extension/queues/%u/commands/%u", q, j),
                           "a command of this kind does not go to the %s queue", bp_queue_names[q]);
        }
    }
}

static void check_order(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    for (uint32_t q = 0; q < BP_QUEUE_NONE; q++)
        for (uint32_t j = 1; j < ir->queues[q].n; j++)
            BP_GATE_EXPECT(gate, ir->queues[q].at[j - 1] < ir->queues[q].at[j], BP_E_structure_violated,
                           bp_gate_path(gate, "/extension/queues/%u/commands/%u", q, j),
                           "it is issued after a later command");
}

static void check_field(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = target(gate);
    for (uint32_t i = 0; i < ir->n_commands; i++) {
        const struct bp_concrete_command *command = &ir->commands[i];
        enum bp_queue wanted = command->kind < BP_TASK_KIND_N ? queue_of_kind[command->kind] : BP_QUEUE_NONE;
        BP_GATE_EXPECT(gate, command->queue == wanted && wanted != BP_QUEUE_NONE, BP_E_structure_violated,
                       bp_gate_path(gate, "/commands/%u/queue", i), "the queue is not that of the kind");
    }
}

#define S BP_CHECK_STRUCTURE
static const struct bp_check rows[] = {
    {"queue.extension", S, "The target has queues, and neither slots nor routes.", check_extension},
    {"queue.coverage", S, "Every command stands in one queue, once.", check_coverage},
    {"queue.kind", S, "A queue holds commands of its kind only.", check_kind},
    {"queue.order", S, "The order of issue is a stable subsequence of the commands.", check_order},
    {"queue.field", S, "A command names the queue of its kind.", check_field},
};
const struct bp_check_group bp_queue_checks = BP_GATE_GROUP(rows);
