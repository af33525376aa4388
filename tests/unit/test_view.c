/* What is told of a plan: facts, the pieces of its record, trace, diff, a pass's contract. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/view/contract.h"
#include "common/view/diff.h"
#include "common/view/facts.h"
#include "common/view/plan.h"
#include "common/view/trace.h"
#include "tests/lib/fault_alloc.h"
#include "tests/unit/gate_fixture.h"
#include "tests/unit/reading.h"

static struct plan plan;
static struct bp_buf out;

static void release(void)
{
    plan_release(&plan);
    bp_buf_release(&out);
}

static struct bp_writer answer(void)
{
    bp_buf_clear(&out);
    return (struct bp_writer){.out = &out, .any_order = true};
}

/* What was written, parsed. Give it back. */
static json_t *answered(struct bp_writer *writer)
{
    struct bp_json_position position;
    struct bp_err err = {0};
    ck_assert_msg(bp_writer_finish(writer, &err) == 0, "%s", err.message);
    json_t *value = bp_json_parse(out.data, out.len, &position, &err);
    ck_assert_msg(value != NULL, "%s", err.message);
    return value;
}

static void assert_text(const json_t *value, const char *key, const char *expected)
{
    const char *text = json_string_value(json_object_get(value, key));
    ck_assert_msg(text && strcmp(text, expected) == 0, "%s: %s, not %s", key, text ? text : "none", expected);
}

/* ---- Facts ---- */

static const struct bp_portable_ir *portable(void)
{
    return plan.outcome.snapshots[BP_STAGE_PORTABLE].ir.as.portable;
}

static const struct bp_distributed_ir *distributed(void)
{
    return plan.outcome.snapshots[BP_STAGE_DISTRIBUTED].ir.as.distributed;
}

static void assert_sum(const json_t *sum, uint64_t tasks, bp_u128 operations, uint64_t read, uint64_t write,
                       uint64_t message)
{
    char text[BP_U128_TEXT];
    bp_u128_format(operations, text);
    assert_text(sum, "operations", text);
    ck_assert_uint_eq((uint64_t)json_integer_value(json_object_get(sum, "tasks")), tasks);
    ck_assert_uint_eq((uint64_t)json_integer_value(json_object_get(sum, "read_bytes")), read);
    ck_assert_uint_eq((uint64_t)json_integer_value(json_object_get(sum, "write_bytes")), write);
    ck_assert_uint_eq((uint64_t)json_integer_value(json_object_get(sum, "message_bytes")), message);
}

/* Added up in the plainest way: of the tasks of one phase, of one engine, or of all (-1), of a block or of all (NULL).
 */
static void assert_sum_of(const json_t *sum, int phase, int engine, const char *block)
{
    uint64_t tasks = 0, read = 0, write = 0, message = 0;
    bp_u128 operations = 0;
    for (uint32_t i = 0; i < portable()->n_tasks; i++) {
        const struct bp_portable_task *task = &portable()->tasks[i];
        if ((phase >= 0 && (int)task->phase != phase) || (engine >= 0 && (int)task->engine != engine) ||
            (block && strcmp(task->block, block) != 0))
            continue;
        tasks++;
        operations += task->work.operations.n;
        read += task->work.read.n;
        write += task->work.write.n;
        message += task->work.message.n;
    }
    if (tasks)
        assert_sum(sum, tasks, operations, read, write, message);
    else
        ck_assert_ptr_null(sum);
}

START_TEST(test_facts__are_the_sums_of_the_tasks)
{
    struct bp_facts facts;
    struct bp_writer writer = answer();
    plan_of(&plan, (enum plan_name)_i);
    ck_assert_int_eq(bp_facts_of(distributed(), portable(), &facts, NULL), 0);
    bp_facts_write(&writer, &facts);
    json_t *value = answered(&writer);
    bool several = distributed()->n_blocks > 1;
    assert_text(value, "scope", several ? "one block of each kind, one rank" : "one block, one rank");
    assert_sum_of(value, -1, -1, NULL);
    const json_t *blocks = json_object_get(value, "by_block");
    ck_assert_uint_eq(json_object_size(blocks), several ? distributed()->n_blocks : 0);
    for (uint32_t i = 0; several && i < distributed()->n_blocks; i++) {
        const struct bp_distributed_block *block = &distributed()->blocks[i];
        const json_t *of = json_object_get(blocks, block->name);
        assert_sum_of(of, -1, -1, block->name);
        ck_assert_uint_eq((uint64_t)json_integer_value(json_object_get(of, "layers")), block->layers);
        ck_assert_uint_eq((uint64_t)json_integer_value(json_object_get(json_object_get(of, "memory"), "weights")),
                          block->memory.at[BP_MEMORY_WEIGHTS].n);
    }
    for (int phase = 0; phase < BP_PHASE_N; phase++)
        assert_sum_of(json_object_get(json_object_get(value, "by_phase"), bp_phase_names[phase]), phase, -1, NULL);
    for (int engine = 0; engine < BP_ENGINE_N; engine++)
        assert_sum_of(json_object_get(json_object_get(value, "by_engine"), bp_engine_names[engine]), -1, engine, NULL);
    json_decref(value);
}
END_TEST

START_TEST(test_facts__memory_has_the_facts_of_the_mode_in_their_order)
{
    static const char *const orders[] = {"\"memory\":{\"weights\":1,\"gradients\":2,\"optimizer\":3,"
                                         "\"stored_activations\":4,\"activation_checkpoint\":5,"
                                         "\"working_activations\":6}}",
                                         "\"memory\":{\"weights\":1,\"kv_cache\":7,\"workspace\":8,\"boundary\":9}}"};
    for (unsigned mode = 0; mode < 2; mode++) {
        struct bp_facts facts = {.mode = (enum bp_mode)mode};
        struct bp_writer writer = answer();
        for (unsigned i = 0; i < BP_MEMORY_N; i++)
            facts.memory.at[i].n = i + 1;
        bp_facts_write(&writer, &facts);
        ck_assert_int_eq(bp_writer_finish(&writer, NULL), 0);
        ck_assert_ptr_nonnull(strstr(bp_buf_string(&out), orders[mode]));
    }
}
END_TEST

START_TEST(test_facts__a_total_past_2_53_is_an_overflow)
{
    struct bp_portable_task tasks[2] = {{.work.read.n = BP_JSON_INT_MAX}, {.work.read.n = 1}};
    struct bp_portable_ir ir = {.tasks = tasks, .n_tasks = 2};
    struct bp_distributed_ir memory = {.n_tasks = 0};
    struct bp_facts facts = {.mode = BP_MODE_INFERENCE};
    struct bp_err err = {0};
    ck_assert_int_eq(bp_facts_of(&memory, &ir, &facts, &err), -1);
    ck_assert_int_eq(err.code, BP_E_quantity_overflow);
    ck_assert_int_eq((int)facts.mode, BP_MODE_INFERENCE);
    ir.n_tasks = 1;
    ck_assert_int_eq(bp_facts_of(&memory, &ir, &facts, NULL), 0);
    ck_assert_uint_eq(facts.all.work.read.n, BP_JSON_INT_MAX);
}
END_TEST

/* ---- The plan's record ---- */

static void write_snapshots(struct bp_writer *writer, const struct bp_outcome *outcome)
{
    bp_writer_array(writer);
    for (size_t i = 0; i < outcome->n_snapshots; i++) {
        const struct bp_snapshot *snapshot = &outcome->snapshots[i];
        const enum bp_stage stage = snapshot->ir.stage;
        bp_plan_snapshot_write(writer, bp_stage_names[stage], &snapshot->digest, bp_stage_schemas[stage],
                               snapshot->bytes.len);
    }
    bp_writer_end(writer);
}

static void write_derivations(struct bp_writer *writer, const struct bp_outcome *outcome)
{
    bp_writer_array(writer);
    for (size_t i = 0; i < outcome->n_derivations; i++) {
        const struct bp_derivation *derivation = &outcome->derivations[i];
        bp_plan_derivation_begin(writer, derivation->pass->name, derivation->pass->revision, &derivation->source,
                                 &derivation->target);
        for (size_t j = 0; j < derivation->n_evidence; j++) {
            const struct bp_evidence *evidence = &derivation->evidence[j];
            bp_plan_evidence_write(writer, evidence->check, bp_check_kind_names[evidence->kind],
                                   bp_verdict_names[evidence->verdict], evidence->compared);
        }
        bp_writer_end(writer);
        bp_writer_end(writer);
    }
    bp_writer_end(writer);
}

/* A record of the outcome, out of the pieces. */
static json_t *members(void)
{
    struct bp_writer writer = answer();
    char parameters[BP_U128_TEXT];
    bp_u128_format(plan.outcome.parameters, parameters);
    bp_writer_object(&writer);
    bp_writer_key(&writer, "model");
    bp_plan_model_write(&writer, plan.request.model.name, parameters);
    bp_writer_key(&writer, "snapshots");
    write_snapshots(&writer, &plan.outcome);
    bp_writer_key(&writer, "derivations");
    write_derivations(&writer, &plan.outcome);
    bp_writer_key(&writer, "diagnostics");
    bp_plan_diagnostics_write(&writer, &plan.outcome.diagnostics);
    bp_writer_end(&writer);
    return answered(&writer);
}

START_TEST(test_plan__a_committed_one_has_its_chain_with_evidence)
{
    struct bp_facts facts;
    plan_of(&plan, (enum plan_name)_i);
    ck_assert_int_eq(bp_plan_facts(&plan.outcome, &facts, NULL), 1);
    json_t *value = members(), *snapshots = json_object_get(value, "snapshots"),
           *derivations = json_object_get(value, "derivations");
    char parameters[BP_U128_TEXT];
    bp_u128_format(plan.outcome.parameters, parameters);
    assert_text(json_object_get(value, "model"), "name", "m");
    assert_text(json_object_get(value, "model"), "parameters", parameters);
    ck_assert_uint_eq(json_array_size(snapshots), BP_STAGE_N);
    ck_assert_uint_eq(json_array_size(derivations), BP_STAGE_N - 1);
    for (size_t stage = 0; stage < BP_STAGE_N; stage++) {
        const json_t *snapshot = json_array_get(snapshots, stage), *made = json_array_get(derivations, stage - 1);
        char digest[BP_DIGEST_TEXT];
        bp_digest_format(&plan.outcome.snapshots[stage].digest, digest);
        assert_text(snapshot, "stage", bp_stage_names[stage]);
        assert_text(snapshot, "schema", bp_stage_schemas[stage]);
        assert_text(snapshot, "digest", digest);
        ck_assert_uint_eq((size_t)json_integer_value(json_object_get(snapshot, "bytes")),
                          plan.outcome.snapshots[stage].bytes.len);
        if (stage == 0)
            continue;
        assert_text(made, "pass", plan.outcome.derivations[stage - 1].pass->name);
        assert_text(made, "target", digest);
        assert_text(made, "source", json_string_value(json_object_get(json_array_get(snapshots, stage - 1), "digest")));
        ck_assert_uint_eq(json_array_size(json_object_get(made, "evidence")),
                          plan.outcome.derivations[stage - 1].n_evidence);
        const json_t *evidence = json_array_get(json_object_get(made, "evidence"), 0);
        assert_text(evidence, "check", plan.outcome.derivations[stage - 1].evidence[0].check);
        assert_text(evidence, "kind", bp_check_kind_names[plan.outcome.derivations[stage - 1].evidence[0].kind]);
        assert_text(evidence, "verdict", "holds");
        ck_assert(json_is_integer(json_object_get(evidence, "compared")));
    }
    ck_assert_uint_eq(json_array_size(json_object_get(value, "diagnostics")), 0);
    json_decref(value);
}
END_TEST

START_TEST(test_plan__a_rejected_one_has_its_diagnostics_and_what_committed)
{
    struct bp_facts facts;
    json_t *request = json_of(plan_texts[PLAIN]);
    json_object_set_new(json_object_get(request, "deployment"), "memory_bytes", json_integer(1));
    plan_derive(&plan, request, BP_PLAN_REJECTED);
    json_decref(request);
    ck_assert_int_eq(bp_plan_facts(&plan.outcome, &facts, NULL), 1);
    json_t *value = members();
    ck_assert_uint_eq(json_array_size(json_object_get(value, "snapshots")), 3);
    ck_assert_uint_eq(json_array_size(json_object_get(value, "derivations")), 2);
    const json_t *diagnostics = json_object_get(value, "diagnostics");
    ck_assert_uint_eq(json_array_size(diagnostics), plan.outcome.diagnostics.n);
    assert_text(json_array_get(diagnostics, 0), "code", "capacity_exceeded");
    assert_text(json_array_get(diagnostics, 0), "path", plan.outcome.diagnostics.at[0].path);
    assert_text(json_array_get(diagnostics, 0), "message", plan.outcome.diagnostics.at[0].message);
    json_decref(value);
}
END_TEST

START_TEST(test_plan__without_a_portable_snapshot_there_are_no_facts)
{
    struct bp_facts facts;
    plan_of(&plan, PLAIN);
    struct bp_outcome early = plan.outcome;
    early.n_snapshots = 2;
    ck_assert_int_eq(bp_plan_facts(&early, &facts, NULL), 0);
}
END_TEST

/* ---- Contracts ---- */

START_TEST(test_contract__says_all_that_the_pass_says)
{
    static const char *const keys[] = {"name",     "revision", "title",          "summary", "source",
                                       "target",   "rule",     "formula_source", "theory",  "references",
                                       "bindings", "laws",     "checks"};
    const struct bp_pass *pass = bp_passes[_i];
    struct bp_writer writer = answer();
    size_t n_laws = 0, n_checks = 0, n_bindings = 0;
    bp_contract_write(&writer, pass);
    json_t *value = answered(&writer);
    ck_assert_uint_eq(json_object_size(value), sizeof keys / sizeof *keys);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        ck_assert_msg(json_object_get(value, keys[i]) != NULL, "%s", keys[i]);
    assert_text(value, "name", pass->name);
    assert_text(value, "source", bp_stage_names[pass->source]);
    assert_text(value, "target", bp_stage_names[pass->target]);
    assert_text(value, "theory", pass->theory);
    for (size_t i = 0; i < pass->n_laws; i++)
        n_laws += pass->laws[i]->n;
    for (size_t i = 0; i < pass->n_checks; i++)
        n_checks += pass->checks[i]->n;
    for (unsigned i = 0; i < 4; i++)
        n_bindings += pass->bindings >> i & 1;
    ck_assert_uint_eq(json_array_size(json_object_get(value, "laws")), n_laws);
    ck_assert_uint_eq(json_array_size(json_object_get(value, "checks")), n_checks);
    ck_assert_uint_eq(json_array_size(json_object_get(value, "bindings")), n_bindings);
    ck_assert_uint_eq(json_array_size(json_object_get(value, "references")), pass->n_references);
    const json_t *reference = json_array_get(json_object_get(value, "references"), 0);
    assert_text(reference, "citation", pass->references[0].citation);
    ck_assert(pass->references[0].url ? json_is_string(json_object_get(reference, "url"))
                                      : json_is_null(json_object_get(reference, "url")));
    const json_t *check = json_array_get(json_object_get(value, "checks"), 0);
    assert_text(check, "id", pass->checks[0]->at[0].id);
    assert_text(check, "kind", bp_check_kind_names[pass->checks[0]->at[0].kind]);
    assert_text(check, "what", pass->checks[0]->at[0].what);
    json_decref(value);
}
END_TEST

/* ---- Trace ---- */

static struct bp_trace_plan traced(void)
{
    struct bp_trace_plan it = {.n = plan.outcome.n_snapshots};
    for (size_t i = 0; i < it.n; i++) {
        it.ir[i] = plan.outcome.snapshots[i].ir;
        it.digest[i] = plan.outcome.snapshots[i].digest;
    }
    return it;
}

static size_t trace(const struct bp_id *id, struct bp_trace_link chain[BP_STAGE_N])
{
    const struct bp_trace_plan it = traced();
    struct bp_err err = {0};
    char text[BP_ID_TEXT];
    size_t n = 0;
    bp_id_format(id, text);
    ck_assert_msg(bp_trace(&it, text, chain, &n, &err) == 0, "%s: %s", text, err.message);
    ck_assert(bp_id_equal(&chain[0].id, id));
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq((int)chain[i].stage, (int)(chain[0].stage - i));
        ck_assert(bp_digest_equal(&chain[i].digest, &it.digest[chain[i].stage]));
        ck_assert_ptr_nonnull(chain[i].name);
        ck_assert((chain[i].rule == NULL) == (chain[i].stage == BP_STAGE_MODEL || n == 1));
    }
    return n;
}

START_TEST(test_trace__every_command_and_buffer_leads_to_the_model)
{
    struct bp_trace_link chain[BP_STAGE_N];
    plan_of(&plan, (enum plan_name)_i);
    const struct bp_concrete_ir *ir = plan.outcome.snapshots[BP_STAGE_CONCRETE].ir.as.concrete;
    for (uint32_t i = 0; i < ir->n_commands; i++) {
        ck_assert_uint_eq(trace(&ir->commands[i].id, chain), 4);
        for (size_t k = 0; k < 3; k++)
            ck_assert_str_eq(chain[k].name, portable()->tasks[i].name);
        ck_assert_int_eq((int)chain[3].id.kind, BP_ENTITY_OPERATION);
    }
    for (uint32_t i = 0; i < ir->n_buffers; i++) {
        ck_assert_uint_eq(trace(&ir->buffers[i].id, chain), 4);
        ck_assert_str_eq(chain[0].name, bp_buffer_role_names[portable()->buffers[i].role]);
        ck_assert_str_eq(chain[1].name, chain[0].name);
        ck_assert(chain[3].id.kind == BP_ENTITY_OPERATION || chain[3].id.kind == BP_ENTITY_VALUE);
    }
    ck_assert_uint_eq(trace(&ir->regions[0].id, chain), 1);
    ck_assert_str_eq(chain[0].name, "memory");
    ck_assert_uint_eq(trace(&distributed()->values[0].id, chain), 2);
    ck_assert_str_eq(chain[0].name, "input");
    ck_assert_str_eq(chain[1].name, "input");
}
END_TEST

START_TEST(test_trace__a_prefix_will_do_with_its_kind_or_without)
{
    plan_of(&plan, PLAIN);
    const struct bp_trace_plan it = traced();
    const struct bp_id *id = &portable()->tasks[5].id;
    char text[BP_ID_TEXT];
    bp_id_format(id, text);
    for (size_t digits = 8; digits <= 32; digits += 8) {
        struct bp_trace_link chain[BP_STAGE_N];
        size_t n = 0;
        text[strlen("task:") + digits] = '\0';
        ck_assert_int_eq(bp_trace(&it, text, chain, &n, NULL), 0);
        ck_assert(bp_id_equal(&chain[0].id, id));
        ck_assert_int_eq(bp_trace(&it, text + strlen("task:"), chain, &n, NULL), 0);
        ck_assert(bp_id_equal(&chain[0].id, id));
        ck_assert_uint_eq(n, 3);
        bp_id_format(id, text);
    }
}
END_TEST

static const struct {
    const char *text;
    enum bp_code code;
} untraceable[] = {
    {"", BP_E_invalid_id},
    {"task:", BP_E_invalid_id},
    {"task:1234567", BP_E_invalid_id},
    {"task:1234567G", BP_E_invalid_id},
    {"tusk:12345678", BP_E_invalid_id},
    {"task:000000000000000000000000000000000", BP_E_invalid_id},
    {"task:00000000000000000000000000000000", BP_E_not_found},
    {"00000000", BP_E_not_found},
};

START_TEST(test_trace__what_is_no_entity_is_refused)
{
    struct bp_trace_link chain[BP_STAGE_N];
    size_t n = 77;
    struct bp_err err = {0};
    plan_of(&plan, DECODE);
    const struct bp_trace_plan it = traced();
    ck_assert_int_eq(bp_trace(&it, untraceable[_i].text, chain, &n, &err), -1);
    ck_assert_msg(err.code == untraceable[_i].code, "%s: %s", untraceable[_i].text, bp_code_name(err.code));
    ck_assert_uint_eq(n, 77);
}
END_TEST

START_TEST(test_trace__a_prefix_of_many_names_the_candidates)
{
    struct spoiled copy = {0};
    struct bp_trace_link chain[BP_STAGE_N];
    struct bp_err err = {0};
    size_t n;
    plan_of(&plan, PLAIN);
    spoiled_copy(&copy, &plan, BP_STAGE_PORTABLE);
    for (uint32_t i = 0; i < copy.portable->n_tasks; i++) {
        struct bp_id *id = (struct bp_id *)(uintptr_t)&copy.portable->tasks[i].id;
        memcpy(id->hash, "\x12\x34\x56\x78", 4);
    }
    struct bp_trace_plan it = {.ir = {{.stage = BP_STAGE_PORTABLE, .as.portable = copy.portable}}, .n = 1};
    ck_assert_int_eq(bp_trace(&it, "task:12345678", chain, &n, &err), -1);
    ck_assert_int_eq(err.code, BP_E_ambiguous_prefix);
    char first[BP_ID_TEXT];
    bp_id_format(&copy.portable->tasks[0].id, first);
    ck_assert_msg(strstr(err.message, first) && strstr(err.message, ", ..."), "%s", err.message);
    spoiled_release(&copy);
}
END_TEST

START_TEST(test_trace__a_lineage_that_leads_nowhere_is_a_bug)
{
    struct spoiled copy = {0};
    struct bp_trace_link chain[BP_STAGE_N];
    plan_of(&plan, PLAIN);
    spoiled_copy(&copy, &plan, BP_STAGE_PORTABLE);
    struct bp_portable_task *task = (struct bp_portable_task *)(uintptr_t)copy.portable->tasks;
    struct bp_trace_plan it = traced();
    char text[BP_ID_TEXT];
    it.ir[BP_STAGE_PORTABLE].as.portable = copy.portable;
    bp_id_format(&task->id, text);
    for (unsigned turn = 0; turn < 2; turn++) {
        struct bp_err err = {0};
        size_t n;
        if (turn)
            task->lineage.n_sources = 0;
        else
            ((struct bp_id *)(uintptr_t)task->lineage.sources)->hash[0] ^= 1;
        ck_assert_int_eq(bp_trace(&it, text, chain, &n, &err), -1);
        ck_assert_int_eq(err.code, BP_E_structure_violated);
        ck_assert_ptr_nonnull(strstr(err.message, text));
    }
    spoiled_release(&copy);
}
END_TEST

START_TEST(test_trace__is_written_as_the_interface_says)
{
    struct bp_trace_link chain[BP_STAGE_N];
    struct bp_writer writer = answer();
    plan_of(&plan, PREFILL);
    const struct bp_concrete_ir *ir = plan.outcome.snapshots[BP_STAGE_CONCRETE].ir.as.concrete;
    bp_trace_write(&writer, chain, trace(&ir->commands[0].id, chain));
    json_t *value = answered(&writer);
    const json_t *links = json_object_get(value, "chain"), *last = json_array_get(links, 3);
    ck_assert_uint_eq(json_array_size(links), 4);
    assert_text(value, "entity", json_string_value(json_object_get(json_array_get(links, 0), "entity")));
    assert_text(json_array_get(links, 0), "kind", "command");
    assert_text(json_array_get(links, 0), "name", "attention.norm");
    assert_text(json_array_get(links, 1), "rule", portable()->tasks[0].lineage.rule);
    assert_text(last, "stage", "model");
    assert_text(last, "name", "transformer.decoder_inference");
    ck_assert(json_is_null(json_object_get(last, "rule")));
    json_decref(value);
}
END_TEST

Suite *suite_view(void)
{
    Suite *suite = suite_create("view");
    TCase *tcase = tcase_create("view");
    tcase_add_checked_fixture(tcase, NULL, release);
    tcase_add_loop_test(tcase, test_facts__are_the_sums_of_the_tasks, 0, PLAN_NAME_N);
    tcase_add_test(tcase, test_facts__memory_has_the_facts_of_the_mode_in_their_order);
    tcase_add_test(tcase, test_facts__a_total_past_2_53_is_an_overflow);
    tcase_add_loop_test(tcase, test_plan__a_committed_one_has_its_chain_with_evidence, 0, PLAN_NAME_N);
    tcase_add_test(tcase, test_plan__a_rejected_one_has_its_diagnostics_and_what_committed);
    tcase_add_test(tcase, test_plan__without_a_portable_snapshot_there_are_no_facts);
    tcase_add_loop_test(tcase, test_contract__says_all_that_the_pass_says, 0, (int)bp_passes_n);
    tcase_add_loop_test(tcase, test_trace__every_command_and_buffer_leads_to_the_model, 0, PLAN_NAME_N);
    tcase_add_test(tcase, test_trace__a_prefix_will_do_with_its_kind_or_without);
    tcase_add_loop_test(tcase, test_trace__what_is_no_entity_is_refused, 0, sizeof untraceable / sizeof *untraceable);
    tcase_add_test(tcase, test_trace__a_prefix_of_many_names_the_candidates);
    tcase_add_test(tcase, test_trace__a_lineage_that_leads_nowhere_is_a_bug);
    tcase_add_test(tcase, test_trace__is_written_as_the_interface_says);
    suite_add_tcase(suite, tcase);
    return suite;
}
