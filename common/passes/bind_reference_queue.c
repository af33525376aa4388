/* Portable -> concrete on the reference queue target. The theory is the text below; layout and commands, which both
 * binders share, are in bind.c.
 */
#include "common/passes/bind.h"
#include "common/passes/laws.h"

#define RULE "bind.reference-queue"

static const char theory[] =
    "A deterministic construction that makes the contract of a concrete plan testable. It is no scheduler that aims at "
    "speed, and no paper's.\n"
    "\n"
    "Buffers are laid out in canonical order in one region, which stands for the memory of every rank. For buffer "
    "\\(i\\) of size \\(s_i\\) and required alignment \\(r_i\\), with \\(a_i = \\max(16, r_i)\\),\n"
    "\n"
    "\\[ o_0 = 0, \\qquad o_i = \\left\\lceil\\frac{o_{i-1}+s_{i-1}}{a_i}\\right\\rceil a_i. \\]\n"
    "\n"
    "Hence \\(o_i \\bmod a_i = 0\\) and \\(o_i \\ge o_{i-1} + s_{i-1}\\). The end of the layout, \\(o_n + s_n\\), must "
    "not "
    "exceed the memory of a device.\n"
    "\n"
    "Commands keep the topological order of the tasks. Four queues take them by kind: compute, collective, transfer "
    "and "
    "host; the issue order of a queue is its stable subsequence,\n"
    "\n"
    "\\[ \\mathrm{queue}_\\kappa = (t_i : \\mathrm{kind}(t_i) = \\kappa)_{i = 0, 1, \\dots}. \\]\n"
    "\n"
    "A command runs `reference/` and the last alternative of its task's capability. Before the plan commits the "
    "construction is derived again and must come out equal, so that size, alignment, access mode, implementation, "
    "kind, "
    "dependencies and extension are held to one law.\n";

static const struct bp_reference references[] = {
    {"Internal deterministic reference-target contract; no published scheduling or performance result is claimed",
     NULL},
};

/* The queues together hold every command once. */
static void compare_partition(struct bp_gate *gate)
{
    const struct bp_concrete_ir *ir = gate->target.as.concrete;
    struct bp_calc calc = {0};
    bp_u128 in_queues = 0, squares = 0, expected = 0;
    for (size_t queue = 0; queue < BP_QUEUE_NONE; queue++)
        for (uint32_t i = 0; i < ir->queues[queue].n; i++) {
            bp_u128 place = ir->queues[queue].at[i];
            in_queues = bp_add(&calc, in_queues, 1);
            squares = BP_SUM(&calc, squares, bp_mul(&calc, place, place));
        }
    for (bp_u128 i = 0; i < ir->n_commands; i++)
        expected = bp_add(&calc, expected, bp_mul(&calc, i, i));
    bp_gate_equal(gate, "/extension/queues", &calc, ir->n_commands, in_queues);
    bp_gate_equal(gate, "/extension/queues", &calc, expected, squares);
}

static const struct bp_law laws[] = {
    {"law.queue_partition",
     "\\sum_\\kappa |\\mathrm{queue}_\\kappa| = n, \\quad \\sum_\\kappa \\sum_{i \\in \\mathrm{queue}_\\kappa} i^2 = "
     "\\sum_{i<n} i^2",
     "every plan on the queue target", "docs/formulas.md, reference targets", bp_law_always, compare_partition},
};
static const struct bp_law_group own_laws = BP_GROUP(laws);
static const struct bp_law_group *const law_groups[] = {&bp_layout_laws, &own_laws};
static const struct bp_check_group *const checks[] = {&bp_concrete_checks, &bp_queue_checks, &bp_bind_checks,
                                                      &bp_rederivation_checks};

static bool applies(const struct bp_request *request)
{
    return request->target.kind == BP_TARGET_QUEUE;
}

static int run(const struct bp_pass_input *input, struct bp_arena *arena, struct bp_ir *ret, struct bp_err *err)
{
    struct bp_concrete_ir *ir = bp_bind(input, RULE, arena, err);
    if (!ir)
        return -1;
    uint32_t *at[BP_QUEUE_NONE];
    for (size_t queue = 0; queue < BP_QUEUE_NONE; queue++) {
        at[queue] = bp_arena_array(arena, ir->n_commands, sizeof *at[queue]);
        if (!at[queue])
            return bp_fail(err, BP_E_out_of_memory, "", "no memory for the queues");
        ir->queues[queue].at = at[queue];
    }
    for (uint32_t i = 0; i < ir->n_commands; i++) {
        enum bp_queue queue = ir->commands[i].queue;
        at[queue][ir->queues[queue].n++] = i;
    }
    *ret = (struct bp_ir){.stage = BP_STAGE_CONCRETE, .as.concrete = ir};
    return 0;
}

const struct bp_pass bp_bind_reference_queue = {
    .name = "bind-reference-queue",
    .revision = 2,
    .source = BP_STAGE_PORTABLE,
    .target = BP_STAGE_CONCRETE,
    .rule = RULE,
    .title = "Reference queue binding",
    .summary = "Lays out one rank's buffers, chooses the reference implementations and issues commands in four queues.",
    .formula_source = "internal deterministic contract; no published algorithm is claimed",
    .bindings = BP_BINDING_TARGET | BP_BINDING_DEPLOYMENT,
    .applies = applies,
    .run = run,
    .runs_twice = true,
    BP_PASS_TABLES,
};
