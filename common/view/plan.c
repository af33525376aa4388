#include "common/view/plan.h"

void bp_plan_model_write(struct bp_writer *writer, const char *name, const char *parameters)
{
    bp_writer_object(writer);
    bp_writer_put_string(writer, "name", name);
    bp_writer_put_string(writer, "parameters", parameters);
    bp_writer_end(writer);
}

void bp_plan_snapshot_write(struct bp_writer *writer, const char *stage, const struct bp_digest *digest,
                            const char *schema, uint64_t bytes)
{
    bp_writer_object(writer);
    bp_writer_put_string(writer, "stage", stage);
    bp_writer_key(writer, "digest");
    bp_writer_digest(writer, digest);
    bp_writer_put_string(writer, "schema", schema);
    bp_writer_put_uint(writer, "bytes", bytes);
    bp_writer_end(writer);
}

void bp_plan_evidence_write(struct bp_writer *writer, const char *check, const char *kind, const char *verdict,
                            uint64_t compared)
{
    bp_writer_object(writer);
    bp_writer_put_string(writer, "check", check);
    bp_writer_put_string(writer, "kind", kind);
    bp_writer_put_string(writer, "verdict", verdict);
    bp_writer_put_uint(writer, "compared", compared);
    bp_writer_end(writer);
}

void bp_plan_diagnostic_write(struct bp_writer *writer, const struct bp_err *finding)
{
    bp_writer_object(writer);
    bp_writer_put_string(writer, "code", bp_code_name(finding->code));
    bp_writer_put_string(writer, "path", finding->path);
    bp_writer_put_string(writer, "message", finding->message);
    bp_writer_end(writer);
}

void bp_plan_derivation_begin(struct bp_writer *writer, const char *pass, unsigned revision,
                              const struct bp_digest *source, const struct bp_digest *target)
{
    bp_writer_object(writer);
    bp_writer_put_string(writer, "pass", pass);
    bp_writer_put_uint(writer, "revision", revision);
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
