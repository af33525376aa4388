/* Portable -> concrete on the reference slot/dataflow target. The theory is the text below; layout and commands, which
 * both binders share, are in bind.c.
 */
#include "common/passes/bind.h"
#include "common/passes/laws.h"

#define RULE "bind.reference-slot"

static const char theory[] =
    "A deterministic construction that exercises a typed target extension and its verifier. It is no slot scheduler "
    "that "
    "aims at throughput, and no paper's.\n"
    "\n"
    "Buffers follow the aligned recurrence of the reference queue binding,\n"
    "\n"
    "\\[ o_0 = 0, \\qquad o_i = \\left\\lceil\\frac{o_{i-1}+s_{i-1}}{a_i}\\right\\rceil a_i, \\qquad a_i = \\max(16, "
    "r_i). "
    "\\]\n"
    "\n"
    "For the portable plan's topological order \\(T = (t_0, \\dots, t_{n-1})\\) the issue assignment is\n"
    "\n"
    "\\[ \\operatorname{issue}(t_i) = (\\operatorname{cycle} = i,\\ \\operatorname{slot} = 0). \\]\n"
    "\n"
    "A dependency \\(t_j \\to t_i\\), proved by the portable plan to have \\(j < i\\), thus has "
    "\\(\\operatorname{cycle}(t_j) < \\operatorname{cycle}(t_i)\\). Each transfer carries one explicit route from a "
    "source "
    "to a destination over a channel; nothing else has a route, and there are no queues. A command runs `reference/` "
    "and "
    "the last alternative of its task's capability. The construction is derived again before the plan commits and must "
    "come out equal.\n";

static const struct bp_reference references[] = {
    {"Internal deterministic slot/dataflow contract; no published scheduling or performance result is claimed", NULL},
};

static void compare_cycles(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = gate->target.as.concrete;
    struct bp_calc calc = {0};
    bp_gate_equal(gate, "/extension/issue", &calc, ir->n_commands, ir->n_issues);
    for (uint32_t i = 0; i < ir->n_issues; i++) {
        bp_gate_equal(gate, "/extension/issue", &calc, ir->issues[i].command, ir->issues[i].cycle);
        bp_gate_equal(gate, "/extension/issue", &calc, 0, ir->issues[i].slot);
    }
}

static const struct bp_law laws[] = {
    {"law.slot_issue", "\\operatorname{issue}(t_i) = (i, 0)", "every plan on the slot target",
     "docs/formulas.md, reference targets", bp_law_always, compare_cycles},
};
static const struct bp_law_group own_laws = BP_GROUP(laws);
static const struct bp_law_group *const law_groups[] = {&bp_layout_laws, &own_laws};
static const struct bp_check_group *const checks[] = {&bp_concrete_checks, &bp_slot_checks, &bp_bind_checks,
                                                      &bp_rederivation_checks};

static bool applies(const struct bp_request *request)
{
    return request->target.kind == BP_TARGET_SLOT;
}

/* A transfer moves bytes to the neighbouring rank, over the channel of its own place. */
static int run(const struct bp_pass_input *input, struct bp_arena *arena, struct bp_ir *ret, struct bp_err *err)
{
    struct bp_concrete_ir *ir = bp_bind(input, RULE, arena, err);
    if (!ir)
        return -1;
    struct bp_slot_issue *issues = bp_arena_array(arena, ir->n_commands, sizeof *issues);
    struct bp_slot_route *routes = bp_arena_array(arena, ir->n_commands, sizeof *routes);
    if (!issues || !routes)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for the slots");
    for (uint32_t i = 0; i < ir->n_commands; i++) {
        issues[i] = (struct bp_slot_issue){.command = i, .cycle = i, .slot = 0};
        if (ir->commands[i].kind == BP_TASK_TRANSFER) {
            routes[ir->n_routes] = (struct bp_slot_route){
                .command = i, .source = 0, .destination = 1 % ir->n_devices, .channel = ir->n_routes};
            ir->n_routes++;
        }
    }
    ir->issues = issues;
    ir->n_issues = ir->n_commands;
    ir->routes = routes;
    *ret = (struct bp_ir){.stage = BP_STAGE_CONCRETE, .as.concrete = ir};
    return 0;
}

const struct bp_pass bp_bind_reference_slot = {
    .name = "bind-reference-slot",
    .revision = 2,
    .source = BP_STAGE_PORTABLE,
    .target = BP_STAGE_CONCRETE,
    .rule = RULE,
    .title = "Reference slot/dataflow binding",
    .summary = "Lays out one rank's buffers and issues one command a cycle, with explicit routes for transfers.",
    .formula_source = "internal deterministic contract; no published algorithm is claimed",
    .bindings = BP_BINDING_TARGET | BP_BINDING_DEPLOYMENT,
    .applies = applies,
    .run = run,
    .runs_twice = true,
    BP_PASS_TABLES,
};
