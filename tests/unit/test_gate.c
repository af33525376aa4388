#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/gate/gate.h"
#include "tests/unit/mutations.h"
#include "tests/unit/reading.h"

/* The plans the mutations are made in, derived once for a test. */
static struct plan plans[PLAN_NAME_N];

static void derive_plans(void)
{
    for (int i = 0; i < PLAN_NAME_N; i++)
        plan_of(&plans[i], (enum plan_name)i);
}

static void release_plans(void)
{
    for (int i = 0; i < PLAN_NAME_N; i++)
        plan_release(&plans[i]);
}

/* The check alone, as its group runs it; n is 0 when the pass has none of that id. */
static struct bp_check_group find_check(const struct bp_pass *pass, const char *id)
{
    size_t n;
    const struct bp_check_group *const *groups = groups_of(pass, &n);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < groups[i]->n; j++)
            if (strcmp(groups[i]->at[j].id, id) == 0)
                return (struct bp_check_group){&groups[i]->at[j], 1, groups[i]->each_block};
    return (struct bp_check_group){0};
}

static struct bp_law_group find_law(const struct bp_pass *pass, const char *id)
{
    for (size_t i = 0; pass && i < pass->n_laws; i++)
        for (size_t j = 0; j < pass->laws[i]->n; j++)
            if (strcmp(pass->laws[i]->at[j].id, id) == 0)
                return (struct bp_law_group){&pass->laws[i]->at[j], 1, pass->laws[i]->each_block};
    return (struct bp_law_group){0};
}

/* Runs the one check or law that has the id, so that what is found is its own. */
static struct bp_evidence run_alone(struct spoiled *copy, const char *id)
{
    struct bp_evidence evidence = {0};
    const struct bp_check_group checks = find_check(copy->pass, id), *const check_groups[] = {&checks};
    const struct bp_law_group laws = find_law(copy->pass, id), *const law_groups[] = {&laws};
    ck_assert_msg(checks.n || laws.n, "the pass has no %s", id);
    size_t n = bp_gate_run(&copy->gate, check_groups, checks.n, law_groups, laws.n, &evidence);
    ck_assert_msg(n == 1, "%s does not apply to the plan it is to refuse", id);
    return evidence;
}

static bool found_at(const struct bp_problems *findings, const char *path)
{
    for (size_t i = 0; i < findings->n; i++)
        if (strcmp(findings->at[i].path, path) == 0)
            return true;
    return false;
}

/* The request's own limits, not a place in the snapshot. */
static bool is_of_request(const char *path)
{
    return strcmp(path, "/deployment/memory_bytes") == 0;
}

/* Whether the pointer leads to a member of the snapshot, or to where one would stand that it does not have. */
static bool leads_into(const json_t *value, const char *path)
{
    char token[BP_POINTER_MAX];
    while (value && *path == '/') {
        size_t n = strcspn(path + 1, "/");
        memcpy(token, path + 1, n);
        token[n] = '\0';
        path += n + 1;
        size_t place = strtoul(token, NULL, 10);
        if (json_is_array(value) && strspn(token, "0123456789") == n && place >= json_array_size(value))
            return true;
        if (*path == '\0')
            return json_is_object(value) || (json_is_array(value) && strspn(token, "0123456789") == n);
        value = json_is_object(value) ? json_object_get(value, token) : json_array_get(value, place);
    }
    return value != NULL;
}

static void expect_refusal(const struct mutation *mutation)
{
    struct spoiled copy;
    char path[BP_POINTER_MAX] = "";
    spoiled_copy(&copy, &plans[mutation->plan], mutation->stage);
    ck_assert_msg(run_alone(&copy, mutation->id).verdict == BP_HOLDS, "%s refuses a valid snapshot: %s %s",
                  mutation->id, line_of(&copy.findings), copy.findings.n ? copy.findings.at[0].message : "");
    uint32_t place = mutate(mutation, &copy);
    struct bp_evidence evidence = run_alone(&copy, mutation->id);
    ck_assert_msg(evidence.verdict == BP_VIOLATED && copy.findings.n > 0, "%s (%s %s) did not refuse", mutation->id,
                  mutation->name ? mutation->name : "", mutation->path ? mutation->path : "");
    if (mutation->path) {
        snprintf(path, sizeof path, mutation->path, place);
        ck_assert_msg(found_at(&copy.findings, path), "%s found nothing at %s, but: %s", mutation->id, path,
                      line_of(&copy.findings));
    }
    json_t *snapshot = json_loadb(copy.gate.bytes->data, copy.gate.bytes->len, 0, NULL);
    for (size_t i = 0; i < copy.findings.n; i++)
        ck_assert_msg(leads_into(snapshot, copy.findings.at[i].path) || is_of_request(copy.findings.at[i].path),
                      "%s: %s leads nowhere", mutation->id, copy.findings.at[i].path);
    json_decref(snapshot);
    spoiled_release(&copy);
}

START_TEST(test_gate__every_mutation_is_refused_by_its_check)
{
    derive_plans();
    for (EACH_MUTATION(mutation))
        expect_refusal(mutation);
    release_plans();
}
END_TEST

/* All checks of the gate run over every spoiled snapshot to the end, and the one it is for is among those that refuse.
 */
START_TEST(test_gate__a_spoiled_snapshot_never_stops_the_gate)
{
    derive_plans();
    for (EACH_MUTATION(mutation)) {
        struct spoiled copy;
        struct bp_evidence evidence[BP_EVIDENCE_MAX];
        spoiled_copy(&copy, &plans[mutation->plan], mutation->stage);
        mutate(mutation, &copy);
        bool is_law = find_law(copy.pass, mutation->id).n > 0;
        size_t n = is_law ? spoiled_hold_to_laws(&copy, evidence) : spoiled_check(&copy, evidence);
        const struct bp_evidence *of = evidence_of(evidence, n, mutation->id);
        ck_assert_msg(of && of->verdict == BP_VIOLATED, "%s", mutation->id);
        spoiled_release(&copy);
    }
    release_plans();
}
END_TEST

static bool has_mutation(const char *id, const struct bp_pass *pass)
{
    for (EACH_MUTATION(mutation)) {
        const struct plan *plan = &plans[mutation->plan];
        const struct bp_pass *of = mutation->stage ? plan->outcome.derivations[mutation->stage - 1].pass : NULL;
        if (strcmp(mutation->id, id) == 0 && (!pass || of == pass))
            return true;
    }
    return false;
}

START_TEST(test_gate__every_check_and_law_has_a_mutation)
{
    derive_plans();
    for (size_t i = 0; i <= bp_passes_n; i++) {
        const struct bp_pass *pass = i < bp_passes_n ? bp_passes[i] : NULL;
        size_t n;
        const struct bp_check_group *const *groups = groups_of(pass, &n);
        for (size_t g = 0; g < n; g++)
            for (size_t j = 0; j < groups[g]->n; j++)
                ck_assert_msg(has_mutation(groups[g]->at[j].id, NULL), "%s has no mutation", groups[g]->at[j].id);
        for (size_t g = 0; pass && g < pass->n_laws; g++)
            for (size_t j = 0; j < pass->laws[g]->n; j++)
                ck_assert_msg(has_mutation(pass->laws[g]->at[j].id, pass), "%s of %s has no mutation",
                              pass->laws[g]->at[j].id, pass->name);
    }
    release_plans();
}
END_TEST

START_TEST(test_gate__checks_say_what_they_are_and_fit_the_evidence)
{
    for (size_t i = 0; i <= bp_passes_n; i++) {
        const struct bp_pass *pass = i < bp_passes_n ? bp_passes[i] : NULL;
        size_t n, total = 0;
        const struct bp_check_group *const *groups = groups_of(pass, &n);
        for (size_t g = 0; g < n; g++) {
            for (size_t j = 0; j < groups[g]->n; j++) {
                const struct bp_check *check = &groups[g]->at[j];
                ck_assert_ptr_eq(find_check(pass, check->id).at, check);
                ck_assert(strchr(check->id, '.') && strlen(check->what) > 10 && check->kind <= BP_CHECK_CAPACITY);
            }
            total += groups[g]->n;
        }
        for (size_t g = 0; pass && g < pass->n_laws; g++)
            total += pass->laws[g]->n;
        ck_assert_uint_le(total, BP_EVIDENCE_MAX);
    }
}
END_TEST

START_TEST(test_gate__a_committed_snapshot_read_back_passes_the_same_gate)
{
    derive_plans();
    for (int i = 0; i < PLAN_NAME_N; i++) {
        for (size_t stage = 0; stage < plans[i].outcome.n_snapshots; stage++) {
            struct spoiled copy;
            struct bp_evidence evidence[BP_EVIDENCE_MAX];
            spoiled_copy(&copy, &plans[i], (enum bp_stage)stage);
            size_t n = spoiled_check(&copy, evidence);
            n += spoiled_hold_to_laws(&copy, evidence + n);
            ck_assert_msg(bp_problems_none(&copy.findings), "%s", line_of(&copy.findings));
            for (size_t j = 0; j < n; j++)
                ck_assert_msg(evidence[j].verdict == BP_HOLDS, "%s", evidence[j].check);
            spoiled_release(&copy);
        }
    }
    release_plans();
}
END_TEST

START_TEST(test_gate__evidence_counts_what_was_compared)
{
    struct plan plan;
    plan_of(&plan, PLAIN);
    const struct bp_derivation *first = &plan.outcome.derivations[0];
    const struct bp_evidence *ids = evidence_of(first->evidence, first->n_evidence, "distributed.ids");
    const struct bp_distributed_ir *ir = plan.outcome.snapshots[BP_STAGE_DISTRIBUTED].ir.as.distributed;
    ck_assert_uint_eq(ids->compared, ir->n_values + ir->n_tasks);
    ck_assert_str_eq(bp_check_kind_names[ids->kind], "structure");
    ck_assert_str_eq(bp_verdict_names[ids->verdict], "holds");
    const struct bp_evidence *work =
        evidence_of(plan.outcome.derivations[1].evidence, plan.outcome.derivations[1].n_evidence, "plan.work");
    ck_assert_uint_eq(work->compared, 4 * ir->n_tasks);
    plan_release(&plan);
}
END_TEST

START_TEST(test_gate__every_violation_is_reported_not_the_first)
{
    struct plan plan;
    struct spoiled copy;
    plan_of(&plan, PLAIN);
    spoiled_copy(&copy, &plan, BP_STAGE_PORTABLE);
    struct bp_portable_task *tasks = (struct bp_portable_task *)copy.portable->tasks;
    tasks[2].work.operations.n++;
    tasks[5].work.read.n++;
    tasks[5].work.write.n++;
    run_alone(&copy, "plan.work");
    ck_assert_str_eq(line_of(&copy.findings), "cross_stage_violated /tasks/2/workload/operations, "
                                              "cross_stage_violated /tasks/5/workload/read_bytes, "
                                              "cross_stage_violated /tasks/5/workload/write_bytes");
    spoiled_release(&copy);
    plan_release(&plan);
}
END_TEST

START_TEST(test_gate__a_device_one_byte_too_small_is_refused_with_the_shortfall)
{
    struct plan plan;
    json_t *request = json_of(plan_texts[PLAIN]);
    plan_derive(&plan, request, BP_PLAN_COMMITTED);
    const struct bp_concrete_ir *ir = plan.outcome.snapshots[BP_STAGE_CONCRETE].ir.as.concrete;
    const struct bp_concrete_buffer *last = &ir->buffers[ir->n_buffers - 1];
    uint64_t end = last->offset.n + last->size.n;
    plan_release(&plan);

    json_t *memory = json_object_get(json_object_get(request, "deployment"), "memory_bytes");
    json_integer_set(memory, (json_int_t)end);
    plan_derive(&plan, request, BP_PLAN_COMMITTED);
    plan_release(&plan);

    char message[200];
    json_integer_set(memory, (json_int_t)end - 1);
    plan_derive(&plan, request, BP_PLAN_REJECTED);
    ck_assert_str_eq(line_of(&plan.outcome.diagnostics), "capacity_exceeded /deployment/memory_bytes");
    snprintf(message, sizeof message, "the layout needs %llu bytes, a device has %llu: 1 short",
             (unsigned long long)end, (unsigned long long)end - 1);
    ck_assert(some_message_has(&plan.outcome.diagnostics, message));
    ck_assert(some_message_has(&plan.outcome.diagnostics, "optimizer_state"));
    ck_assert_uint_eq(plan.outcome.n_snapshots, BP_STAGE_CONCRETE);
    plan_release(&plan);
    json_decref(request);
}
END_TEST

START_TEST(test_gate__a_formula_that_cannot_be_stated_is_a_violation)
{
    struct bp_problems findings = {0};
    struct bp_gate gate = {.findings = &findings};
    struct bp_calc calc = {0};
    bp_gate_equal(&gate, "/memory/weights", &calc, 7, 7);
    ck_assert(bp_problems_none(&findings));
    bp_gate_equal(&gate, "/memory/weights", &calc, 7, 8);
    ck_assert_str_eq(findings.at[0].message, "the formula gives 7, the derivation 8");
    bp_div(&calc, 7, 2);
    bp_gate_equal(&gate, "/memory/weights", &calc, 0, 0);
    calc = (struct bp_calc){.overflow = true};
    bp_gate_equal(&gate, "/memory/weights", &calc, 0, 0);
    ck_assert_uint_eq(findings.n, 3);
    ck_assert_uint_eq(gate.compared, 4);
    ck_assert_int_eq(findings.at[2].code, BP_E_law_violated);
    bp_problems_release(&findings);
}
END_TEST

START_TEST(test_gate__a_stage_that_is_none_is_neither_written_nor_read)
{
    struct bp_ir ir = {.stage = BP_STAGE_N};
    struct bp_buf out = {0};
    struct bp_arena arena = {0};
    struct bp_err err = {0};
    ck_assert_int_eq(bp_ir_encode(&ir, &out, &err), -1);
    ck_assert_int_eq(err.code, BP_E_internal);
    ck_assert_int_eq(bp_ir_decode(BP_STAGE_N, "{}", 2, &arena, &ir, NULL), -1);
    ck_assert_int_eq(bp_ir_decode(BP_STAGE_PORTABLE, "{}", 2, &arena, &ir, NULL), -1);
    bp_arena_release(&arena);
}
END_TEST

Suite *suite_gate(void)
{
    Suite *suite = suite_create("gate");
    TCase *refusals = tcase_create("refusals");
    tcase_set_timeout(refusals, 60);
    tcase_add_test(refusals, test_gate__every_mutation_is_refused_by_its_check);
    tcase_add_test(refusals, test_gate__a_spoiled_snapshot_never_stops_the_gate);
    tcase_add_test(refusals, test_gate__every_check_and_law_has_a_mutation);
    suite_add_tcase(suite, refusals);
    TCase *core = tcase_create("gate");
    tcase_add_test(core, test_gate__checks_say_what_they_are_and_fit_the_evidence);
    tcase_add_test(core, test_gate__a_committed_snapshot_read_back_passes_the_same_gate);
    tcase_add_test(core, test_gate__evidence_counts_what_was_compared);
    tcase_add_test(core, test_gate__every_violation_is_reported_not_the_first);
    tcase_add_test(core, test_gate__a_device_one_byte_too_small_is_refused_with_the_shortfall);
    tcase_add_test(core, test_gate__a_formula_that_cannot_be_stated_is_a_violation);
    tcase_add_test(core, test_gate__a_stage_that_is_none_is_neither_written_nor_read);
    suite_add_tcase(suite, core);
    return suite;
}
