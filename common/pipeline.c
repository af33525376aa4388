#include "common/pipeline.h"

#include <string.h>

#include "common/ir/difference.h"

const struct bp_pass *const bp_passes[] = {
    &bp_distribute_transformer_training,
    &bp_distribute_transformer_inference,
    &bp_plan_transformer_training,
    &bp_plan_transformer_inference,
    &bp_bind_reference_queue,
    &bp_bind_reference_slot,
};
const size_t bp_passes_n = sizeof bp_passes / sizeof *bp_passes;

const char *const bp_plan_state_names[] = {"queued", "running", "committed", "rejected", "failed", NULL};

const struct bp_pass *bp_pass_find(const char *name)
{
    for (size_t i = 0; i < bp_passes_n; i++)
        if (strcmp(bp_passes[i]->name, name) == 0)
            return bp_passes[i];
    return NULL;
}

size_t bp_pipeline_passes(const struct bp_request *request, const struct bp_pass *ret[BP_PLAN_PASSES_MAX])
{
    size_t n = 0;
    for (size_t i = 0; i < bp_passes_n; i++)
        if (bp_passes[i]->applies(request))
            ret[n++] = bp_passes[i];
    return n;
}

int bp_pipeline_plan_id(const struct bp_request *request, struct bp_digest *ret, struct bp_err *err)
{
    const struct bp_pass *passes[BP_PLAN_PASSES_MAX];
    struct bp_pass_revision revisions[BP_PLAN_PASSES_MAX];
    size_t n = bp_pipeline_passes(request, passes);
    for (size_t i = 0; i < n; i++)
        revisions[i] = (struct bp_pass_revision){passes[i]->name, passes[i]->revision};
    return bp_plan_id(request, revisions, n, ret, err);
}

/* One derivation on its way. */
struct run {
    const struct bp_request *request;
    struct bp_arena *arena;
    struct bp_symbols symbols[BP_KINDS_MAX]; /* of each planned block */
    uint32_t n_blocks;
    struct bp_outcome *outcome;
};

static bool is_complete(const struct bp_outcome *outcome)
{
    return bp_problems_none(&outcome->diagnostics);
}

/* Rejected when everything found is about the request, failed when any of it is our own. */
static void settle(struct bp_outcome *outcome)
{
    outcome->state = is_complete(outcome) ? BP_PLAN_COMMITTED : BP_PLAN_REJECTED;
    for (size_t i = 0; i < outcome->diagnostics.n; i++)
        if (bp_code_kind(outcome->diagnostics.at[i].code) != BP_KIND_INPUT)
            outcome->state = BP_PLAN_FAILED;
}

/* An error of a derivation step becomes a diagnostic of the plan; only memory is an error of the run. */
static int diagnose(struct bp_outcome *outcome, const struct bp_err *found, struct bp_err *err)
{
    if (found->code == BP_E_out_of_memory)
        return bp_fail(err, found->code, found->path, "%s", found->message);
    bp_problems_add(&outcome->diagnostics, found->code, found->path, "%s", found->message);
    return 0;
}

static bool needs_bytes(const struct bp_check_group *group)
{
    return group->n > 0 && (group->at->kind == BP_CHECK_REPLAY || group->at->kind == BP_CHECK_REDERIVATION);
}

/* Structure, lineage, cross-stage rules and laws first: only what they found sound is encoded, and only what was
 * encoded is compared with a second run. */
static int gate_snapshot(struct run *run, const struct bp_pass *pass, const struct bp_pass_input *input,
                         struct bp_gate *gate, struct bp_snapshot *snapshot, struct bp_derivation *derivation,
                         struct bp_err *err)
{
    size_t n = 0;
    struct bp_err found = {0};
    for (size_t i = 0; i < pass->n_checks; i++)
        if (!needs_bytes(pass->checks[i]))
            n += bp_gate_run(gate, &pass->checks[i], 1, NULL, 0, derivation->evidence + n);
    n += bp_gate_run(gate, NULL, 0, pass->laws, pass->n_laws, derivation->evidence + n);
    derivation->n_evidence = n;
    if (!is_complete(run->outcome))
        return 0;
    if (bp_ir_encode(&gate->target, &snapshot->bytes, &found) < 0)
        return diagnose(run->outcome, &found, err);
    gate->bytes = &snapshot->bytes;
    if (!pass->runs_twice)
        return 0;

    struct bp_arena second = {0};
    struct bp_buf again = {0};
    struct bp_ir ir;
    int result = pass->run(input, &second, &ir, &found);
    if (result == 0)
        result = bp_ir_encode(&ir, &again, &found);
    if (result == 0) {
        gate->again = &again;
        for (size_t i = 0; i < pass->n_checks; i++)
            if (needs_bytes(pass->checks[i]))
                n += bp_gate_run(gate, &pass->checks[i], 1, NULL, 0, derivation->evidence + n);
        derivation->n_evidence = n;
        gate->again = NULL;
    } else {
        result = diagnose(run->outcome, &found, err);
    }
    bp_buf_release(&again);
    bp_arena_release(&second);
    return result;
}

/* Publishes a snapshot: from here on it is part of the outcome. */
static void commit(struct run *run, struct bp_snapshot *snapshot, const struct bp_pipeline_observer *observer)
{
    struct bp_outcome *outcome = run->outcome;
    bp_digest_of(snapshot->bytes.data, snapshot->bytes.len, &snapshot->digest);
    outcome->snapshots[outcome->n_snapshots++] = *snapshot;
    if (observer)
        observer->stage_done(observer->data, snapshot->ir.stage);
}

static int run_model(struct run *run, const struct bp_pipeline_observer *observer, struct bp_err *err)
{
    static const struct bp_check_group *const groups[] = {&bp_model_checks};
    struct bp_outcome *outcome = run->outcome;
    struct bp_err found = {0};
    const struct bp_model_ir *ir = bp_model_ir_of(run->request, &outcome->fingerprints.transformer, run->arena);
    if (!ir)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for the model snapshot");
    struct bp_snapshot snapshot = {.ir = {.stage = BP_STAGE_MODEL, .as.model = ir}};
    struct bp_gate gate = {.request = run->request,
                           .fingerprints = &outcome->fingerprints,
                           .blocks = run->symbols,
                           .n_blocks = run->n_blocks,
                           .source_digest = outcome->fingerprints.transformer,
                           .target = snapshot.ir,
                           .arena = run->arena,
                           .findings = &outcome->diagnostics};
    outcome->n_model_evidence = bp_gate_run(&gate, groups, 1, NULL, 0, outcome->model_evidence);
    if (!is_complete(outcome))
        return 0;
    if (bp_ir_encode(&snapshot.ir, &snapshot.bytes, &found) < 0) {
        bp_buf_release(&snapshot.bytes);
        return diagnose(outcome, &found, err);
    }
    commit(run, &snapshot, observer);
    return 0;
}

/* A pass that lacks a binding it requires is refused before it runs. */
static int check_bindings(const struct bp_pass *pass, const struct bp_request *request, struct bp_err *err)
{
    const bool present[] = {request->workload.sequence_length || request->workload.context_length,
                            request->strategy.tensor_parallel > 0, request->target.kind != BP_TARGET_NONE,
                            request->deployment.devices > 0};
    for (size_t i = 0; i < sizeof present / sizeof *present; i++)
        if (pass->bindings >> i & 1 && !present[i])
            return bp_fail(err, BP_E_missing_key, "", "%s requires the binding %s", pass->name, bp_binding_names[i]);
    return 0;
}

static int run_pass(struct run *run, const struct bp_pass *pass, const struct bp_pipeline_observer *observer,
                    struct bp_err *err)
{
    struct bp_outcome *outcome = run->outcome;
    const struct bp_snapshot *source = &outcome->snapshots[outcome->n_snapshots - 1];
    struct bp_pass_input input = {.source = source->ir,
                                  .source_digest = source->digest,
                                  .request = run->request,
                                  .fingerprints = &outcome->fingerprints,
                                  .symbols = run->symbols,
                                  .n_blocks = run->n_blocks};
    struct bp_snapshot snapshot = {0};
    struct bp_err found = {0};
    if (check_bindings(pass, run->request, &found) < 0 || pass->run(&input, run->arena, &snapshot.ir, &found) < 0)
        return diagnose(outcome, &found, err);

    struct bp_gate gate = {.request = run->request,
                           .fingerprints = &outcome->fingerprints,
                           .blocks = run->symbols,
                           .n_blocks = run->n_blocks,
                           .rule = pass->rule,
                           .source_digest = source->digest,
                           .source = source->ir,
                           .target = snapshot.ir,
                           .arena = run->arena,
                           .findings = &outcome->diagnostics};
    struct bp_derivation *derivation = &outcome->derivations[outcome->n_derivations];
    int result = gate_snapshot(run, pass, &input, &gate, &snapshot, derivation, err);
    if (result < 0 || !is_complete(outcome)) {
        bp_buf_release(&snapshot.bytes);
        return result;
    }
    derivation->pass = pass;
    derivation->source = source->digest;
    commit(run, &snapshot, observer);
    derivation->target = outcome->snapshots[outcome->n_snapshots - 1].digest;
    outcome->n_derivations++;
    return 0;
}

static int run_all(struct run *run, const struct bp_pipeline_observer *observer, struct bp_err *err)
{
    const struct bp_pass *passes[BP_PLAN_PASSES_MAX];
    size_t n = bp_pipeline_passes(run->request, passes);
    if (run_model(run, observer, err) < 0)
        return -1;
    for (size_t i = 0; i < n && is_complete(run->outcome); i++)
        if (run_pass(run, passes[i], observer, err) < 0)
            return -1;
    if (run->outcome->diagnostics.out_of_memory)
        return bp_fail(err, BP_E_out_of_memory, "", "no memory for the diagnostics");
    return 0;
}

/* What every stage is derived from: identity, fingerprints, symbols. */
static int prepare(struct run *run, struct bp_err *err)
{
    struct bp_outcome *outcome = run->outcome;
    struct bp_err found = {0};
    if (bp_pipeline_plan_id(run->request, &outcome->id, err) < 0 ||
        bp_request_fingerprints(run->request, &outcome->fingerprints, err) < 0)
        return -1;
    if (bp_model_parameters(&run->request->model, &outcome->parameters, &found) < 0 ||
        bp_symbols_of_blocks(run->request, run->symbols, &run->n_blocks, &found) < 0)
        return diagnose(outcome, &found, err);
    return 0;
}

int bp_pipeline_run(const struct bp_request *request, const struct bp_pipeline_observer *observer,
                    struct bp_arena *arena, struct bp_outcome *ret, struct bp_err *err)
{
    struct run run = {.request = request, .arena = arena, .outcome = ret};
    *ret = (struct bp_outcome){0};
    if (prepare(&run, err) < 0 || (is_complete(ret) && run_all(&run, observer, err) < 0)) {
        bp_outcome_release(ret);
        return -1;
    }
    settle(ret);
    return 0;
}

void bp_outcome_release(struct bp_outcome *outcome)
{
    for (size_t i = 0; i < outcome->n_snapshots; i++)
        bp_buf_release(&outcome->snapshots[i].bytes);
    bp_problems_release(&outcome->diagnostics);
    *outcome = (struct bp_outcome){0};
}

/* Replay. */

/* A stage as it comes out now; `ir` is unset when nothing came out. */
struct regenerated {
    struct bp_ir ir;
    struct bp_digest digest;
    struct bp_buf bytes;
    bool has;
};

struct replaying {
    const struct bp_request *request;
    struct bp_fingerprints fingerprints;
    struct bp_symbols symbols[BP_KINDS_MAX];
    uint32_t n_blocks;
    struct bp_arena *arena;
};

static int regenerate(struct replaying *replaying, const struct bp_pass *pass, const struct bp_ir *source,
                      const struct bp_digest *source_digest, struct regenerated *ret, struct bp_err *err)
{
    struct regenerated now = {0};
    struct bp_err found = {0};
    int result;
    if (pass) {
        struct bp_pass_input input = {.source = *source,
                                      .source_digest = *source_digest,
                                      .request = replaying->request,
                                      .fingerprints = &replaying->fingerprints,
                                      .symbols = replaying->symbols,
                                      .n_blocks = replaying->n_blocks};
        result = pass->run(&input, replaying->arena, &now.ir, &found);
    } else {
        now.ir.stage = BP_STAGE_MODEL;
        now.ir.as.model = bp_model_ir_of(replaying->request, &replaying->fingerprints.transformer, replaying->arena);
        result = now.ir.as.model ? 0 : bp_fail(&found, BP_E_out_of_memory, "", "no memory for the model snapshot");
    }
    if (result == 0)
        result = bp_ir_encode(&now.ir, &now.bytes, &found);
    if (result < 0) {
        bp_buf_release(&now.bytes);
        /* A pass that now refuses the source is a divergence, not an error of the replay. */
        return found.code == BP_E_out_of_memory ? bp_fail(err, found.code, "", "%s", found.message) : 0;
    }
    bp_digest_of(now.bytes.data, now.bytes.len, &now.digest);
    now.has = true;
    *ret = now;
    return 0;
}

/* The stored source, where its bytes are those of its digest and decode. */
static bool decode_stored(const struct bp_stored_snapshot *stored, struct bp_arena *arena, struct bp_ir *ret)
{
    return stored->bytes && bp_ir_decode(stored->stage, stored->bytes, stored->n, arena, ret, NULL) == 0;
}

static bool is_intact(const struct bp_stored_snapshot *stored)
{
    struct bp_digest digest;
    if (!stored->bytes)
        return false;
    bp_digest_of(stored->bytes, stored->n, &digest);
    return bp_digest_equal(&digest, &stored->digest);
}

static int compare_stage(const struct bp_stored_snapshot *stored, const struct regenerated *now,
                         struct bp_replay_stage *row, struct bp_err *err)
{
    row->has_actual = now->has;
    row->actual = now->digest;
    row->corrupt = !is_intact(stored);
    row->identical = !row->corrupt && now->has && bp_digest_equal(&now->digest, &stored->digest);
    if (row->identical || !now->has || !stored->bytes)
        return 0;
    struct bp_err found = {0};
    if (bp_first_difference(stored->bytes, stored->n, now->bytes.data, now->bytes.len, row->first_difference, &found) ==
        0)
        row->has_difference = true;
    else if (found.code == BP_E_out_of_memory)
        return bp_fail(err, found.code, "", "%s", found.message);
    return 0;
}

/* What the store says of a stage may have been altered: the pass must be one that makes this stage of this request, out
 * of what stands before it. The model is made by no pass and out of nothing. */
static bool is_derivable(const struct replaying *replaying, const struct bp_pass *pass,
                         const struct bp_stored_snapshot *stored, const struct bp_stored_snapshot *stored_source)
{
    if (stored->stage == BP_STAGE_MODEL)
        return !stored_source;
    return pass && stored_source && pass->applies(replaying->request) && pass->target == stored->stage &&
           pass->source == stored_source->stage && check_bindings(pass, replaying->request, NULL) == 0;
}

/* One stage: from the regenerated source, and where that differs from the stored one and gives another digest, from
 * the stored one too, so that a divergence is told where it begins. */
static int replay_stage(struct replaying *replaying, const struct bp_stored_snapshot *stored,
                        const struct bp_stored_snapshot *stored_source, const struct regenerated *source,
                        struct regenerated *ret, struct bp_replay_stage *row, struct bp_err *err)
{
    const struct bp_pass *pass = stored->pass ? bp_pass_find(stored->pass) : NULL;
    struct regenerated now = {0}, other = {0};
    *row = (struct bp_replay_stage){.stage = stored->stage,
                                    .pass = pass ? pass->name : NULL,
                                    .revision = stored->revision,
                                    .current_revision = pass ? pass->revision : 0,
                                    .expected = stored->digest};
    bool derivable = is_derivable(replaying, pass, stored, stored_source);
    if (derivable && !stored_source) {
        if (regenerate(replaying, NULL, NULL, NULL, &now, err) < 0)
            return -1;
    } else if (derivable && source->has && regenerate(replaying, pass, &source->ir, &source->digest, &now, err) < 0) {
        return -1;
    }
    bool differs = derivable && stored_source && !(now.has && bp_digest_equal(&now.digest, &stored->digest)) &&
                   !(source->has && bp_digest_equal(&source->digest, &stored_source->digest));
    struct bp_ir ir;
    if (differs && decode_stored(stored_source, replaying->arena, &ir) &&
        regenerate(replaying, pass, &ir, &stored_source->digest, &other, err) < 0) {
        bp_buf_release(&now.bytes);
        return -1;
    }
    if (other.has) {
        bp_buf_release(&now.bytes);
        now = other;
    }
    *ret = now;
    return compare_stage(stored, &now, row, err);
}

static int replay_stages(struct replaying *replaying, const struct bp_stored_snapshot *stored, size_t n_stored,
                         struct bp_replay *ret, struct bp_err *err)
{
    struct regenerated now[BP_STAGE_N] = {0};
    struct bp_replay replay = {.identical = n_stored > 0};
    int result = 0;
    for (size_t i = 0; i < n_stored && i < BP_STAGE_N && result == 0; i++) {
        struct bp_replay_stage *row = &replay.stages[replay.n_stages++];
        result =
            replay_stage(replaying, &stored[i], i ? &stored[i - 1] : NULL, i ? &now[i - 1] : NULL, &now[i], row, err);
        replay.identical &= row->identical;
    }
    for (size_t i = 0; i < BP_STAGE_N; i++)
        bp_buf_release(&now[i].bytes);
    if (result == 0)
        *ret = replay;
    return result;
}

int bp_pipeline_replay(const char *request, size_t n_request, const struct bp_stored_snapshot *stored, size_t n_stored,
                       struct bp_replay *ret, struct bp_err *err)
{
    struct bp_arena arena = {0};
    struct bp_problems problems = {0};
    struct bp_json_position position;
    struct bp_request parsed;
    struct bp_config config;
    int result = -1;
    struct bp_err found = {0};
    json_t *json = bp_json_parse(request, n_request, &position, &found);
    if (!json) /* it is the store's text, not the caller's */
        return bp_fail(err, found.code == BP_E_out_of_memory ? found.code : BP_E_internal, "", "the stored request: %s",
                       found.message);
    if (bp_request_read(json, &arena, &problems, &parsed, &config) < 0 || problems.out_of_memory) {
        bp_fail(err, BP_E_out_of_memory, "", "no memory for the stored request");
    } else if (!bp_problems_none(&problems)) {
        bp_fail(err, BP_E_internal, problems.at[0].path, "the stored request: %s", problems.at[0].message);
    } else {
        struct replaying replaying = {.request = &parsed, .arena = &arena};
        if (bp_request_fingerprints(&parsed, &replaying.fingerprints, err) == 0 &&
            bp_symbols_of_blocks(&parsed, replaying.symbols, &replaying.n_blocks, err) == 0)
            result = replay_stages(&replaying, stored, n_stored, ret, err);
    }
    json_decref(json);
    bp_problems_release(&problems);
    bp_arena_release(&arena);
    return result;
}
