#include "common/gate/gate.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/gate/checks.h"

const char *const bp_check_kind_names[] = {"structure", "lineage",      "cross_stage", "law",
                                           "replay",    "rederivation", "capacity",    NULL};
const char *const bp_verdict_names[] = {"holds", "violated", NULL};

int bp_ir_encode(const struct bp_ir *ir, struct bp_buf *out, struct bp_err *err)
{
    switch (ir->stage) {
    case BP_STAGE_MODEL:
        return bp_model_ir_encode(ir->as.model, out, err);
    case BP_STAGE_DISTRIBUTED:
        return bp_distributed_ir_encode(ir->as.distributed, out, err);
    case BP_STAGE_PORTABLE:
        return bp_portable_ir_encode(ir->as.portable, out, err);
    case BP_STAGE_CONCRETE:
        return bp_concrete_ir_encode(ir->as.concrete, out, err);
    case BP_STAGE_N:
        break;
    }
    return bp_fail(err, BP_E_internal, "", "there is no stage %d", (int)ir->stage);
}

int bp_ir_decode(enum bp_stage stage, const char *bytes, size_t n, struct bp_arena *arena, struct bp_ir *ret,
                 struct bp_err *err)
{
    struct bp_ir ir = {.stage = stage};
    const void *decoded = NULL;
    switch (stage) {
    case BP_STAGE_MODEL:
        decoded = ir.as.model = bp_model_ir_decode(bytes, n, arena, err);
        break;
    case BP_STAGE_DISTRIBUTED:
        decoded = ir.as.distributed = bp_distributed_ir_decode(bytes, n, arena, err);
        break;
    case BP_STAGE_PORTABLE:
        decoded = ir.as.portable = bp_portable_ir_decode(bytes, n, arena, err);
        break;
    case BP_STAGE_CONCRETE:
        decoded = ir.as.concrete = bp_concrete_ir_decode(bytes, n, arena, err);
        break;
    case BP_STAGE_N:
        return bp_fail(err, BP_E_internal, "", "there is no stage %d", (int)stage);
    }
    if (!decoded)
        return -1;
    *ret = ir;
    return 0;
}

void bp_gate_finding(struct bp_gate *gate, enum bp_code code, const char *path, const char *format, ...)
{
    char message[sizeof((struct bp_err *)0)->message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    bp_problems_add(gate->findings, code, path, "%s", message);
}

const char *bp_gate_path(struct bp_gate *gate, const char *format, ...)
{
    char text[BP_POINTER_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *path = bp_arena_strndup(gate->arena, text, strlen(text));
    if (!path)
        bp_gate_no_memory(gate);
    return path ? path : "";
}

void bp_gate_no_memory(struct bp_gate *gate)
{
    gate->findings->out_of_memory = true;
}

void bp_gate_exact(struct bp_gate *gate, enum bp_code code, const char *path, const struct bp_calc *calc,
                   bp_u128 expected, bp_u128 actual)
{
    char want[BP_U128_TEXT], have[BP_U128_TEXT];
    gate->compared++;
    if (!bp_calc_ok(calc)) {
        bp_gate_finding(gate, code, path, "the formula cannot be stated exactly: it %s",
                        calc->overflow ? "overflows" : "divides unevenly");
    } else if (expected != actual) {
        bp_u128_format(expected, want);
        bp_u128_format(actual, have);
        bp_gate_finding(gate, code, path, "the formula gives %s, the derivation %s", want, have);
    }
}

void bp_gate_equal(struct bp_gate *gate, const char *path, const struct bp_calc *calc, bp_u128 expected, bp_u128 actual)
{
    bp_gate_exact(gate, BP_E_law_violated, path, calc, expected, actual);
}

/* The distributed snapshot under the gate, as its target or its source; NULL when there is none. */
static const struct bp_distributed_ir *distributed(const struct bp_gate *gate)
{
    if (gate->target.stage == BP_STAGE_DISTRIBUTED)
        return gate->target.as.distributed;
    return gate->target.stage == BP_STAGE_PORTABLE ? gate->source.as.distributed : NULL;
}

static void enter_block(struct bp_gate *gate, uint32_t block)
{
    gate->block = block;
    gate->symbols = &gate->blocks[block];
    gate->at = gate->programs[block];
}

static void find_programs(struct bp_gate *gate)
{
    for (uint32_t block = 0; distributed(gate) && block < gate->n_blocks; block++)
        gate->programs[block] = bp_distributed_program_of(distributed(gate), block);
}

static bool always(const struct bp_gate *gate)
{
    (void)gate;
    return true;
}

/* Runs one check or law, for every block it applies to where it is about blocks, and writes what it left. False when it
 * applies to nothing. */
static bool run_one(struct bp_gate *gate, const char *id, enum bp_check_kind kind, bool each_block,
                    bool (*applies)(const struct bp_gate *), void (*run)(struct bp_gate *), struct bp_evidence *ret)
{
    const struct bp_problems *findings = gate->findings;
    size_t before = findings->n + findings->n_dropped;
    bool ran = false;
    gate->compared = 0;
    for (uint32_t block = 0; block < (each_block ? gate->n_blocks : 1); block++) {
        enter_block(gate, block);
        if (applies(gate)) {
            run(gate);
            ran = true;
        }
    }
    bool holds = findings->n + findings->n_dropped == before && !findings->out_of_memory;
    *ret = (struct bp_evidence){id, kind, holds ? BP_HOLDS : BP_VIOLATED, gate->compared};
    return ran;
}

size_t bp_gate_run(struct bp_gate *gate, const struct bp_check_group *const *checks, size_t n_checks,
                   const struct bp_law_group *const *laws, size_t n_laws, struct bp_evidence *ret_evidence)
{
    size_t n = 0;
    find_programs(gate);
    for (size_t i = 0; i < n_checks; i++) {
        for (size_t j = 0; j < checks[i]->n; j++) {
            const struct bp_check *check = &checks[i]->at[j];
            n += run_one(gate, check->id, check->kind, checks[i]->each_block, always, check->run, &ret_evidence[n]);
        }
    }
    for (size_t i = 0; i < n_laws; i++) {
        for (size_t j = 0; j < laws[i]->n; j++) {
            const struct bp_law *law = &laws[i]->at[j];
            n +=
                run_one(gate, law->id, BP_CHECK_LAW, laws[i]->each_block, law->applies, law->compare, &ret_evidence[n]);
        }
    }
    return n;
}
