#include "tests/property/derive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/view/plan.h"
#include "common/view/trace.h"

void derive(struct derived *derived, json_t *body)
{
    memset(derived, 0, sizeof(*derived));
    derived->body = body;
    derive_again(derived);
}

static void drop_results(struct derived *derived)
{
    if (derived->accepted)
        bp_outcome_release(&derived->outcome);
    derived->accepted = false;
    bp_problems_release(&derived->problems);
    memset(&derived->problems, 0, sizeof(derived->problems));
    bp_arena_release(&derived->arena);
    memset(&derived->arena, 0, sizeof(derived->arena));
    free(derived->text);
}

void derive_again(struct derived *derived)
{
    struct bp_err err = {0};
    drop_results(derived);
    derived->text = json_dumps(derived->body, JSON_COMPACT);
    int read = bp_request_read(derived->body, &derived->arena, &derived->problems, &derived->request, &derived->config);
    EXPECT(derived, read == 0, "reading the request failed");
    if (!bp_problems_none(&derived->problems))
        return;
    int ran = bp_pipeline_run(&derived->request, NULL, &derived->arena, &derived->outcome, &err);
    EXPECT(derived, ran == 0, "the pipeline failed: %s", err.message);
    derived->accepted = true;
}

void derived_release(struct derived *derived)
{
    drop_results(derived);
    json_decref(derived->body);
}

const char *derived_findings(const struct derived *derived)
{
    static char text[900];
    const struct bp_problems *problems = derived->accepted ? &derived->outcome.diagnostics : &derived->problems;
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < problems->n && used < sizeof(text) - 1; i++) {
        int n = snprintf(text + used, sizeof(text) - used, "%s%s at \"%s\": %s", i ? "; " : "",
                         bp_code_name(problems->at[i].code), problems->at[i].path, problems->at[i].message);
        used += n > 0 ? (size_t)n : 0;
    }
    return text;
}

static void expect_evidence(const struct derived *derived, const struct bp_evidence *at, size_t n, const char *of)
{
    EXPECT(derived, n > 0, "%s left no evidence", of);
    for (size_t i = 0; i < n; i++)
        EXPECT(derived, at[i].verdict == BP_HOLDS, "%s: %s does not hold", of, at[i].check);
}

static void expect_derivations(const struct derived *derived)
{
    const struct bp_outcome *outcome = &derived->outcome;
    expect_evidence(derived, outcome->model_evidence, outcome->n_model_evidence, "model");
    EXPECT(derived, outcome->n_derivations + 1 == outcome->n_snapshots, "%zu derivations", outcome->n_derivations);
    for (size_t i = 0; i < outcome->n_derivations; i++) {
        const struct bp_derivation *derivation = &outcome->derivations[i];
        expect_evidence(derived, derivation->evidence, derivation->n_evidence, derivation->pass->name);
        EXPECT(derived, bp_digest_equal(&derivation->source, &outcome->snapshots[i].digest), "source of %zu", i);
        EXPECT(derived, bp_digest_equal(&derivation->target, &outcome->snapshots[i + 1].digest), "target of %zu", i);
    }
}

static void compare_stage(const struct derived *derived, enum bp_stage stage, const struct bp_ir *ir,
                          const struct ref_request *request, const struct ref_plan *plan)
{
    struct compare compare = {{0}};
    bool same = true;
    if (stage == BP_STAGE_DISTRIBUTED)
        same = compare_distributed(&compare, request, plan, ir->as.distributed);
    else if (stage == BP_STAGE_PORTABLE)
        same = compare_portable(&compare, request, plan, ir->as.portable);
    else if (stage == BP_STAGE_CONCRETE)
        same = compare_concrete(&compare, request, plan, ir->as.concrete);
    EXPECT(derived, same, "%s", compare.difference);
}

static void expect_snapshots(const struct derived *derived, const struct ref_request *request,
                             const struct ref_plan *plan)
{
    const struct bp_outcome *outcome = &derived->outcome;
    for (size_t i = 0; i < outcome->n_snapshots; i++) {
        const struct bp_snapshot *snapshot = &outcome->snapshots[i];
        const enum bp_stage stage = (enum bp_stage)i;
        struct bp_arena arena = {0};
        struct bp_buf again = {0};
        struct bp_digest digest;
        struct bp_ir ir;
        struct bp_err err = {0};
        int decoded = bp_ir_decode(stage, snapshot->bytes.data, snapshot->bytes.len, &arena, &ir, &err);
        EXPECT(derived, decoded == 0, "%s does not decode: %s at %s", bp_stage_names[i], err.message, err.path);
        EXPECT(derived, bp_ir_encode(&ir, &again, &err) == 0, "%s: %s", bp_stage_names[i], err.message);
        EXPECT(derived, again.len == snapshot->bytes.len && memcmp(again.data, snapshot->bytes.data, again.len) == 0,
               "%s does not encode to the bytes it was decoded from", bp_stage_names[i]);
        bp_digest_of(again.data, again.len, &digest);
        EXPECT(derived, bp_digest_equal(&digest, &snapshot->digest), "digest of %s", bp_stage_names[i]);
        compare_stage(derived, stage, &ir, request, plan);
        bp_buf_release(&again);
        bp_arena_release(&arena);
    }
}

static void expect_replay(const struct derived *derived)
{
    const struct bp_outcome *outcome = &derived->outcome;
    struct bp_stored_snapshot stored[BP_STAGE_N];
    struct bp_buf text = {0};
    struct bp_writer writer = {.out = &text};
    struct bp_replay replay;
    struct bp_err err = {0};
    bp_request_write(&writer, &derived->request);
    EXPECT(derived, bp_writer_finish(&writer, &err) == 0, "%s", err.message);
    for (size_t i = 0; i < outcome->n_snapshots; i++) {
        const struct bp_snapshot *snapshot = &outcome->snapshots[i];
        const struct bp_pass *pass = i ? outcome->derivations[i - 1].pass : NULL;
        stored[i] = (struct bp_stored_snapshot){.stage = (enum bp_stage)i,
                                                .digest = snapshot->digest,
                                                .bytes = snapshot->bytes.data,
                                                .n = snapshot->bytes.len,
                                                .pass = pass ? pass->name : NULL,
                                                .revision = pass ? pass->revision : 0};
    }
    EXPECT(derived, bp_pipeline_replay(text.data, text.len, stored, outcome->n_snapshots, &replay, &err) == 0,
           "replay: %s", err.message);
    EXPECT(derived, replay.identical && replay.n_stages == outcome->n_snapshots, "the replay diverges");
    for (size_t i = 0; i < replay.n_stages; i++)
        EXPECT(derived, replay.stages[i].identical, "the replay of %s diverges at %s", bp_stage_names[i],
               replay.stages[i].first_difference);
    bp_buf_release(&text);
}

/* The normalised request reads as itself and has the same id. */
static void expect_normal(const struct derived *derived)
{
    struct bp_buf first = {0}, second = {0};
    struct bp_writer writer = {.out = &first}, other = {.out = &second};
    struct bp_arena arena = {0};
    struct bp_problems problems = {0};
    struct bp_request request;
    struct bp_config config;
    bp_request_write(&writer, &derived->request);
    EXPECT(derived, bp_writer_finish(&writer, NULL) == 0, "the request does not write");
    json_t *body = json_loadb(first.data, first.len, JSON_REJECT_DUPLICATES, NULL);
    EXPECT(derived, body && bp_request_read(body, &arena, &problems, &request, &config) == 0 && problems.n == 0,
           "the normalised request is refused: %s", problems.n ? problems.at[0].message : "");
    bp_request_write(&other, &request);
    EXPECT(derived,
           bp_writer_finish(&other, NULL) == 0 && first.len == second.len &&
               memcmp(first.data, second.data, first.len) == 0,
           "normalising twice differs: %s / %s", bp_buf_string(&first), bp_buf_string(&second));
    json_decref(body);
    bp_problems_release(&problems);
    bp_arena_release(&arena);
    bp_buf_release(&first);
    bp_buf_release(&second);
}

/* The facts of the record; totals of bytes may be too large where no single number is. */
static void expect_facts(const struct derived *derived, const struct ref_plan *plan)
{
    const struct ref_work total = ref_plan_total(plan, NULL, NULL);
    const bool fit =
        total.read <= BP_JSON_INT_MAX && total.write <= BP_JSON_INT_MAX && total.message <= BP_JSON_INT_MAX;
    struct bp_facts facts;
    struct bp_err err = {0};
    struct bp_buf text = {0};
    struct bp_writer writer = {.out = &text, .any_order = true};
    struct compare compare;
    const int has = bp_plan_facts(&derived->outcome, &facts, &err);
    EXPECT(derived, fit ? has == 1 : has == -1 && err.code == BP_E_quantity_overflow, "facts: %d %s", has, err.message);
    if (!fit)
        return;
    bp_facts_write(&writer, &facts);
    EXPECT(derived, bp_writer_finish(&writer, &err) == 0, "facts: %s", err.message);
    json_t *value = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, NULL);
    EXPECT(derived, compare_facts(&compare, plan, value), "%s", compare.difference);
    json_decref(value);
    bp_buf_release(&text);
}

/* A task of the last stage leads, stage by stage, to the model's operation. */
static void expect_trace(const struct derived *derived)
{
    const struct bp_outcome *outcome = &derived->outcome;
    struct bp_trace_plan plan = {.n = outcome->n_snapshots};
    struct bp_trace_link chain[BP_STAGE_N];
    struct bp_err err = {0};
    char text[BP_ID_TEXT];
    size_t n = 0;
    for (size_t i = 0; i < plan.n; i++) {
        plan.ir[i] = outcome->snapshots[i].ir;
        plan.digest[i] = outcome->snapshots[i].digest;
    }
    const struct bp_portable_ir *portable = plan.ir[BP_STAGE_PORTABLE].as.portable;
    const uint32_t place = outcome->id.bytes[0] % portable->n_tasks;
    bp_id_format(plan.n > BP_STAGE_CONCRETE ? &plan.ir[BP_STAGE_CONCRETE].as.concrete->commands[place].id
                                            : &portable->tasks[place].id,
                 text);
    EXPECT(derived, bp_trace(&plan, text, chain, &n, &err) == 0, "trace of %s: %s", text, err.message);
    EXPECT(derived, n == plan.n && chain[n - 1].stage == BP_STAGE_MODEL && chain[n - 1].id.kind == BP_ENTITY_OPERATION,
           "the trace of %s does not reach the model's operation", text);
    for (size_t i = 0; i + 1 < n; i++)
        EXPECT(derived, strcmp(chain[i].name, portable->tasks[place].name) == 0, "the trace of %s passes %s", text,
               chain[i].name);
}

static void expect_state(const struct derived *derived, const struct ref_request *request)
{
    EXPECT(derived, derived->accepted, "refused: %s", derived_findings(derived));
    EXPECT(derived, derived->outcome.state == BP_PLAN_COMMITTED, "%s: %s", bp_plan_state_names[derived->outcome.state],
           derived_findings(derived));
    EXPECT(derived, derived->outcome.n_snapshots == (request->has_target ? 4 : 3), "%zu snapshots",
           derived->outcome.n_snapshots);
}

void expect_same(const struct derived *derived, const struct ref_request *request, const struct ref_plan *plan)
{
    expect_state(derived, request);
    for (size_t i = 0; i < derived->outcome.n_snapshots; i++)
        compare_stage(derived, (enum bp_stage)i, &derived->outcome.snapshots[i].ir, request, plan);
}

void expect_committed(const struct derived *derived, const struct ref_request *request, const struct ref_plan *plan)
{
    expect_state(derived, request);
    expect_derivations(derived);
    expect_snapshots(derived, request, plan);
    expect_facts(derived, plan);
    expect_trace(derived);
    expect_replay(derived);
    expect_normal(derived);
}

static bool everything_fits(const struct ref_plan *plan)
{
    const struct ref_work total = ref_plan_total(plan, NULL, NULL);
    return plan->largest_bytes <= BP_JSON_INT_MAX && total.read <= BP_JSON_INT_MAX && total.write <= BP_JSON_INT_MAX &&
           total.message <= BP_JSON_INT_MAX;
}

bool expect_exact_or_refused(const struct derived *derived, const struct ref_request *request,
                             const struct ref_plan *plan)
{
    if (derived->accepted && derived->outcome.state == BP_PLAN_COMMITTED) {
        expect_committed(derived, request, plan);
        EXPECT(derived, plan->largest_bytes <= BP_JSON_INT_MAX, "committed though a size is too large");
        return true;
    }
    const struct bp_problems *problems = derived->accepted ? &derived->outcome.diagnostics : &derived->problems;
    EXPECT(derived, problems->n > 0, "refused without a reason");
    for (size_t i = 0; i < problems->n; i++)
        EXPECT(derived, problems->at[i].code == BP_E_quantity_overflow, "%s", derived_findings(derived));
    EXPECT(derived, !everything_fits(plan), "refused though everything fits: %s", derived_findings(derived));
    return false;
}
