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
