#include "daemon/service/verify.h"

#include <stdio.h>
#include <string.h>

#include "daemon/service/internal.h"

enum { PAGE = 64 };

struct verify {
    struct bp_store *store;
    const struct bp_store_verifier *verifier;
    struct bp_store_verified done;
};

/* One plan being looked at; all of it lives in the arena. */
struct look {
    struct verify *verify;
    struct bp_arena arena;
    char id[BP_DIGEST_TEXT];
    struct bp_store_plan plan;
    struct bp_request request;
    struct bp_fingerprints fingerprints;
    struct bp_ir ir[BP_STAGE_N];
    bool decoded[BP_STAGE_N];
    struct bp_outcome now; /* what the passes make of the request now */
    bool has_outcome;
};

static void tell(const struct look *look, const char *table, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void tell(const struct look *look, const char *table, const char *format, ...)
{
    char reason[512];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    const struct bp_store_defect defect = {table, look->id, reason};
    look->verify->done.defects++;
    look->verify->verifier->defect(look->verify->verifier->data, &defect);
}

/* An error that is a finding about what is stored was told; one of the machine's ends the check. */
static int end_if_ours(const struct bp_err *found, struct bp_err *err)
{
    if (found->code == BP_E_out_of_memory || found->code == BP_E_storage_failed ||
        found->code == BP_E_deadline_exceeded)
        return bp_fail(err, found->code, found->path, "%s", found->message);
    return 0;
}

/* ---- The request and what is kept beside it ---- */

static int check_request(struct look *look, bool *ret_read, struct bp_err *err)
{
    struct bp_err found = {0};
    struct bp_buf text = {0};
    struct bp_writer writer = {.out = &text};
    const struct bp_store_text *stored = &look->plan.request;
    *ret_read = bp_service_stored_request(stored, &look->arena, &look->request, &found) == 0;
    if (!*ret_read) {
        tell(look, "plans", "the stored request is none: %s", found.message);
        return end_if_ours(&found, err);
    }
    bp_request_write(&writer, &look->request);
    int result = bp_writer_finish(&writer, &found) ? end_if_ours(&found, err) : 0;
    if (result == 0 && (text.len != stored->n || memcmp(text.data, stored->at, text.len) != 0))
        tell(look, "plans", "the stored request is not in canonical form");
    bp_buf_release(&text);
    return result;
}

static int check_columns(struct look *look, struct bp_err *err)
{
    struct bp_err found = {0};
    bp_u128 parameters = 0;
    char text[48] = "";
    if (strcmp(look->plan.model, look->request.model.name) != 0)
        tell(look, "plans", "the model is not that of the request");
    if (strcmp(look->plan.mode, bp_mode_names[look->request.workload.mode]) != 0)
        tell(look, "plans", "the mode is not that of the request");
    if (bp_model_parameters(&look->request.model, &parameters, &found) == 0)
        bp_u128_format(parameters, text);
    if (strcmp(look->plan.parameters, text) != 0)
        tell(look, "plans", "the parameters are not those of the model");
    return end_if_ours(&found, err);
}

/* Of a plan whose every pass left its derivation: which revisions its id stands for is known. */
static int check_id(struct look *look, struct bp_err *err)
{
    struct bp_pass_revision revisions[BP_PLAN_PASSES_MAX];
    struct bp_digest id;
    if (look->plan.state != BP_STORE_COMMITTED || look->plan.n_derivations > BP_PLAN_PASSES_MAX)
        return 0;
    for (size_t i = 0; i < look->plan.n_derivations; i++)
        revisions[i] = (struct bp_pass_revision){look->plan.derivations[i].pass, look->plan.derivations[i].revision};
    if (bp_plan_id(&look->request, revisions, look->plan.n_derivations, &id, err) < 0)
        return -1;
    if (!bp_digest_equal(&id, &look->plan.id))
        tell(look, "plans", "the id is not that of the request and the passes");
    return 0;
}

/* ---- Stages ---- */

static bool names_parent(const json_t *parents, const struct bp_store_derivation *from)
{
    char digest[BP_DIGEST_TEXT];
    if (!from)
        return json_array_size(parents) == 0;
    bp_digest_format(&from->source, digest);
    const char *named = json_string_value(json_array_get(parents, 0));
    return json_array_size(parents) == 1 && named && strcmp(named, digest) == 0;
}

/* What a snapshot says of itself, beside what its row and its edge say. */
static int check_head(struct look *look, size_t i, const struct bp_buf *bytes, struct bp_err *err)
{
    struct bp_json_position position;
    struct bp_err found = {0};
    const struct bp_store_snapshot *row = &look->plan.snapshots[i];
    json_t *json = bp_json_parse(bytes->data, bytes->len, &position, &found);
    const char *stage = json_string_value(json_object_get(json, "stage"));
    const char *schema = json_string_value(json_object_get(json, "schema"));
    if (!json)
        tell(look, "snapshots", "stage %zu does not parse: %s", i, found.message);
    else if (!stage || strcmp(stage, row->stage) != 0 || !schema || strcmp(schema, row->schema) != 0)
        tell(look, "snapshots", "stage %zu calls itself something else than its row does", i);
    else if (!names_parent(json_object_get(json, "parents"), i ? &look->plan.derivations[i - 1] : NULL))
        tell(look, "edges", "stage %zu does not name the parent that its edge names", i);
    json_decref(json);
    return end_if_ours(&found, err);
}

static int decode_stage(struct look *look, size_t i, const struct bp_buf *bytes, struct bp_err *err)
{
    struct bp_err found = {0};
    if (strcmp(look->plan.snapshots[i].schema, bp_stage_schemas[i]) != 0)
        return 0;
    look->decoded[i] = bp_ir_decode((enum bp_stage)i, bytes->data, bytes->len, &look->arena, &look->ir[i], &found) == 0;
    if (!look->decoded[i])
        tell(look, "snapshots", "stage %zu does not decode: %s", i, found.message);
    return end_if_ours(&found, err);
}

/* Whether the stage comes out again: then its bytes, which were held to the digest, are what this version writes. */
static bool comes_out(const struct look *look, size_t i)
{
    return i < look->now.n_snapshots &&
           bp_digest_equal(&look->plan.snapshots[i].digest, &look->now.snapshots[i].digest);
}

/* One that is corrupt was told of already, by its digest. */
static int check_stage(struct look *look, size_t i, struct bp_err *err)
{
    const struct bp_store_snapshot *row = &look->plan.snapshots[i];
    struct bp_err found = {0};
    struct bp_buf bytes = {0};
    int result;
    if (strcmp(row->stage, bp_stage_names[i]) != 0) {
        tell(look, "plan_snapshots", "stage %zu is a %s snapshot", i, row->stage);
        return 0;
    }
    if (comes_out(look, i)) {
        if (strcmp(row->schema, bp_stage_schemas[i]) != 0)
            tell(look, "snapshots", "stage %zu calls itself something else than its row does", i);
        return 0;
    }
    if (bp_store_snapshot_read(look->verify->store, &row->digest, &bytes, &found) < 0)
        result = end_if_ours(&found, err);
    else if (check_head(look, i, &bytes, err) < 0)
        result = -1;
    else
        result = decode_stage(look, i, &bytes, err);
    bp_buf_release(&bytes);
    return result;
}

static int check_stages(struct look *look, struct bp_err *err)
{
    const struct bp_pass *passes[BP_PLAN_PASSES_MAX];
    size_t n = bp_pipeline_passes(&look->request, passes);
    if (look->plan.n_snapshots > 0 && look->plan.n_derivations != look->plan.n_snapshots - 1)
        return 0; /* told already */
    if (look->plan.state == BP_STORE_COMMITTED && look->plan.n_snapshots != n + 1)
        tell(look, "plan_snapshots", "it has %zu stages, and its request %zu", look->plan.n_snapshots, n + 1);
    for (size_t i = 0; i < look->plan.n_snapshots && i < BP_STAGE_N; i++)
        if (check_stage(look, i, err) < 0)
            return -1;
    return 0;
}

/* The facts of the stored stages. False: they are not whole, which was told, or of other schemas. */
static bool facts_of(const struct look *look, struct bp_facts *ret, struct bp_err *found)
{
    if (look->plan.n_snapshots <= BP_STAGE_PORTABLE)
        return false;
    if (comes_out(look, BP_STAGE_DISTRIBUTED) && comes_out(look, BP_STAGE_PORTABLE))
        return bp_plan_facts(&look->now, ret, found) > 0;
    return look->decoded[BP_STAGE_DISTRIBUTED] && look->decoded[BP_STAGE_PORTABLE] &&
           bp_facts_of(look->ir[BP_STAGE_DISTRIBUTED].as.distributed, look->ir[BP_STAGE_PORTABLE].as.portable, ret,
                       found) == 0;
}

static int check_facts(struct look *look, struct bp_err *err)
{
    struct bp_facts facts;
    struct bp_err found = {0};
    struct bp_buf text = {0};
    struct bp_writer writer = {.out = &text, .any_order = true};
    const struct bp_store_text *stored = &look->plan.facts;
    if (!stored->at || !facts_of(look, &facts, &found))
        return end_if_ours(&found, err);
    bp_facts_write(&writer, &facts);
    if (bp_writer_finish(&writer, &found) == 0 &&
        (text.len != stored->n || memcmp(text.data, stored->at, text.len) != 0))
        tell(look, "plans", "the facts are not those of the portable snapshot");
    bp_buf_release(&text);
    return end_if_ours(&found, err);
}

static void check_bindings(const struct look *look)
{
    const struct bp_digest none = {{0}};
    for (size_t i = 0; i < look->plan.n_derivations && i + 1 < BP_STAGE_N; i++) {
        const struct bp_digest *wanted = i + 1 == BP_STAGE_DISTRIBUTED ? &look->fingerprints.distribution
                                         : i + 1 == BP_STAGE_CONCRETE  ? &look->fingerprints.binding
                                                                       : &none;
        if (!bp_digest_equal(&look->plan.derivations[i].binding, wanted))
            tell(look, "derivations", "the binding of %s is not that of the request", look->plan.derivations[i].pass);
    }
}

/* ---- What comes out again ---- */

static bool is_said_alike(const struct bp_store_evidence *stored, const struct bp_evidence *now)
{
    return strcmp(stored->check, now->check) == 0 && strcmp(stored->kind, bp_check_kind_names[now->kind]) == 0 &&
           strcmp(stored->verdict, bp_verdict_names[now->verdict]) == 0;
}

static bool is_record(const struct bp_store_evidence *stored, const struct bp_evidence *now)
{
    return is_said_alike(stored, now) && stored->compared == now->compared;
}

static void check_derivation(const struct look *look, const struct bp_store_derivation *stored,
                             const struct bp_derivation *now)
{
    if (!bp_digest_equal(&stored->source, &now->source))
        return; /* what came before it is not what it was: that is told */
    if (!bp_digest_equal(&stored->target, &now->target))
        tell(look, "derivations", "%s at revision %u derives another snapshot", stored->pass, stored->revision);
    else if (stored->n_evidence != now->n_evidence)
        tell(look, "evidence", "%s left %zu records, and %zu are kept", stored->pass, now->n_evidence,
             stored->n_evidence);
    else
        for (size_t i = 0; i < now->n_evidence; i++)
            if (!is_record(&stored->evidence[i], &now->evidence[i]))
                tell(look, "evidence", "record %zu of %s is not what %s finds", i, stored->pass,
                     now->evidence[i].check);
}

/* No pass makes the model, so no revision says with which checks, nor how much each compared: those are looked at that
 * there were and are, and whether they compared anything. */
static void check_model(const struct look *look, const struct bp_outcome *now)
{
    const struct bp_store_snapshot *model = &look->plan.snapshots[0];
    if (look->plan.n_snapshots == 0 || now->n_snapshots == 0)
        return;
    if (strcmp(model->schema, bp_stage_schemas[BP_STAGE_MODEL]) == 0 &&
        !bp_digest_equal(&model->digest, &now->snapshots[0].digest))
        tell(look, "plan_snapshots", "the model is not that of the request");
    for (size_t i = 0; i < model->n_evidence; i++)
        for (size_t j = 0; j < now->n_model_evidence; j++)
            if (strcmp(model->evidence[i].check, now->model_evidence[j].check) == 0 &&
                !(is_said_alike(&model->evidence[i], &now->model_evidence[j]) &&
                  (model->evidence[i].compared > 0) == (now->model_evidence[j].compared > 0)))
                tell(look, "snapshot_evidence", "record %zu of the model is not what %s finds", i,
                     model->evidence[i].check);
}

static void check_again(const struct look *look)
{
    check_model(look, &look->now);
    for (size_t i = 0; i < look->plan.n_derivations; i++)
        for (size_t j = 0; j < look->now.n_derivations; j++) {
            const struct bp_store_derivation *stored = &look->plan.derivations[i];
            const struct bp_pass *pass = look->now.derivations[j].pass;
            if (strcmp(stored->pass, pass->name) == 0 && stored->revision == pass->revision)
                check_derivation(look, stored, &look->now.derivations[j]);
        }
}

static int check_plan(struct look *look, struct bp_err *err)
{
    bool read;
    if (check_request(look, &read, err) < 0)
        return -1;
    if (!read)
        return 0;
    if (bp_pipeline_run(&look->request, NULL, &look->arena, &look->now, err) < 0)
        return -1;
    look->has_outcome = true;
    if (bp_request_fingerprints(&look->request, &look->fingerprints, err) < 0 || check_columns(look, err) < 0 ||
        check_id(look, err) < 0 || check_stages(look, err) < 0 || check_facts(look, err) < 0)
        return -1;
    check_bindings(look);
    check_again(look);
    return 0;
}

static int look_at(struct verify *verify, const struct bp_digest *id, struct bp_err *err)
{
    struct look look = {.verify = verify};
    struct bp_err found = {0};
    bp_digest_format(id, look.id);
    int result = bp_store_plan_read(verify->store, id, &look.arena, &look.plan, &found);
    if (result == 0)
        result = check_plan(&look, err);
    else if (found.code != BP_E_not_found) /* of a file in use one may have gone */
        result = bp_fail(err, found.code, "", "%s", found.message);
    else
        result = 0;
    if (look.has_outcome)
        bp_outcome_release(&look.now);
    bp_arena_release(&look.arena);
    return result;
}

static bool is_stopped(const struct verify *verify)
{
    return verify->verifier->stop && atomic_load(verify->verifier->stop);
}

static int look_at_all(struct verify *verify, struct bp_err *err)
{
    struct bp_store_place after = {0};
    size_t n = PAGE;
    while (n == PAGE) {
        struct bp_arena arena = {0};
        const struct bp_store_plan_name *names;
        int result = bp_store_plans_after(verify->store, &after, PAGE, &arena, &names, &n, err);
        for (size_t i = 0; result == 0 && i < n; i++) {
            after = names[i].place;
            result = is_stopped(verify) ? bp_fail(err, BP_E_deadline_exceeded, "", "the check was stopped")
                                        : look_at(verify, &names[i].id, err);
        }
        bp_arena_release(&arena);
        if (result < 0)
            return -1;
    }
    return 0;
}

int bp_service_verify(const char *database, const struct bp_store_verifier *verifier, struct bp_store_verified *ret,
                      struct bp_err *err)
{
    struct verify verify = {.verifier = verifier};
    struct bp_err found = {0};
    if (bp_store_verify(database, verifier, &verify.done, err) < 0 ||
        bp_store_open_reader(database, &verify.store, err) < 0)
        return -1;
    int result = look_at_all(&verify, &found);
    bp_store_close(verify.store);
    /* What keeps the plans of a damaged file from being read was told before. */
    if (result < 0 && (found.code != BP_E_storage_failed || verify.done.defects == 0))
        return bp_fail(err, found.code, found.path, "%s", found.message);
    *ret = verify.done;
    return 0;
}
