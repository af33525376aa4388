#include "common/view/plan.h"

void bp_plan_model_write(struct bp_writer *writer, const char *name, const char *parameters)
{
    bp_writer_object(writer);
    bp_writer_key(writer, "name");
    bp_writer_string(writer, name);
    bp_writer_key(writer, "parameters");
    bp_writer_string(writer, parameters);
    bp_writer_end(writer);
}

void bp_plan_snapshot_write(struct bp_writer *writer, const char *stage, const struct bp_digest *digest,
                            const char *schema, uint64_t bytes)
{
    bp_writer_object(writer);
    bp_writer_key(writer, "stage");
    bp_writer_string(writer, stage);
    bp_writer_key(writer, "digest");
    bp_writer_digest(writer, digest);
    bp_writer_key(writer, "schema");
    bp_writer_string(writer, schema);
    bp_writer_key(writer, "bytes");
    bp_writer_uint(writer, bytes);
    bp_writer_end(writer);
}

void bp_plan_evidence_write(struct bp_writer *writer, const char *check, const char *kind, const char *verdict,
                            uint64_t compared)
{
    bp_writer_object(writer);
    bp_writer_key(writer, "check");
    bp_writer_string(writer, check);
    bp_writer_key(writer, "kind");
    bp_writer_string(writer, kind);
    bp_writer_key(writer, "verdict");
    bp_writer_string(writer, verdict);
    bp_writer_key(writer, "compared");
    bp_writer_uint(writer, compared);
    bp_writer_end(writer);
}

void bp_plan_diagnostic_write(struct bp_writer *writer, const struct bp_err *finding)
{
    bp_writer_object(writer);
    bp_writer_key(writer, "code");
    bp_writer_string(writer, bp_code_name(finding->code));
    bp_writer_key(writer, "path");
    bp_writer_string(writer, finding->path);
    bp_writer_key(writer, "message");
    bp_writer_string(writer, finding->message);
    bp_writer_end(writer);
}

void bp_plan_derivation_begin(struct bp_writer *writer, const char *pass, unsigned revision,
                              const struct bp_digest *source, const struct bp_digest *target)
{
    bp_writer_object(writer);
    bp_writer_key(writer, "pass");
    bp_writer_string(writer, pass);
    bp_writer_key(writer, "revision");
    bp_writer_uint(writer, revision);
    bp_writer_key(writer, "source");
    bp_writer_digest(writer, source);
    bp_writer_key(writer, "target");
    bp_writer_digest(writer, target);
    bp_writer_key(writer, "evidence");
    bp_writer_array(writer);
}

void bp_plan_snapshots_write(struct bp_writer *writer, const struct bp_outcome *outcome)
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

void bp_plan_derivations_write(struct bp_writer *writer, const struct bp_outcome *outcome)
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

void bp_plan_diagnostics_write(struct bp_writer *writer, const struct bp_problems *diagnostics)
{
    bp_writer_array(writer);
    for (size_t i = 0; i < diagnostics->n; i++)
        bp_plan_diagnostic_write(writer, &diagnostics->at[i]);
    bp_writer_end(writer);
}

int bp_plan_facts(const struct bp_outcome *outcome, struct bp_facts *ret, struct bp_err *err)
{
    if (outcome->n_snapshots <= BP_STAGE_PORTABLE)
        return 0;
    const int result = bp_facts_of(outcome->snapshots[BP_STAGE_DISTRIBUTED].ir.as.distributed,
                                   outcome->snapshots[BP_STAGE_PORTABLE].ir.as.portable, ret, err);
    return result < 0 ? -1 : 1;
}

void bp_plan_members_write(struct bp_writer *writer, const struct bp_request *request, const struct bp_outcome *outcome,
                           const struct bp_facts *facts)
{
    char parameters[BP_U128_TEXT];
    bp_u128_format(outcome->parameters, parameters);
    bp_writer_key(writer, "model");
    bp_plan_model_write(writer, request->model.name, parameters);
    bp_writer_key(writer, "mode");
    bp_writer_string(writer, bp_mode_names[request->workload.mode]);
    bp_writer_key(writer, "snapshots");
    bp_plan_snapshots_write(writer, outcome);
    bp_writer_key(writer, "derivations");
    bp_plan_derivations_write(writer, outcome);
    if (facts) {
        bp_writer_key(writer, "facts");
        bp_facts_write(writer, facts);
    }
    if (outcome->state != BP_PLAN_COMMITTED) {
        bp_writer_key(writer, "diagnostics");
        bp_plan_diagnostics_write(writer, &outcome->diagnostics);
    }
}
