/* Snapshots: their bytes, their lineage, their entities. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/view/trace.h"
#include "daemon/log.h"
#include "daemon/service/internal.h"

/* Whether the database's files changed is looked at no more often than this. */
static const uint64_t look_again_ns = 1000000;

/* Rises with every change to the database's files, whoever made it: what was checked before is to be checked again. */
static uint64_t files_version(struct bp_service *service)
{
    uint64_t now = bp_clock_ns();
    if (now - service->looked_at < look_again_ns)
        return service->version;
    bool changed = false;
    service->looked_at = now;
    for (size_t i = 0; i < sizeof service->files / sizeof *service->files; i++) {
        struct stat status = {0};
        stat(service->files[i], &status); /* one that is not there looks empty */
        int64_t changed_at = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
        changed |= changed_at != service->seen[i].changed_at || status.st_size != service->seen[i].size;
        service->seen[i].changed_at = changed_at;
        service->seen[i].size = status.st_size;
    }
    service->version += changed;
    return service->version;
}

void bp_snapshot_report_corrupt(struct bp_service *service, const struct bp_digest *digest)
{
    char text[BP_DIGEST_TEXT];
    bp_digest_format(digest, text);
    bp_log(BP_LOG_ERROR, "a stored snapshot is corrupt", BP_LOG_FIELDS(BP_LOG_TEXT("digest", text)));
    bp_metrics_count(service->metrics, BP_COUNTER_SNAPSHOTS_CORRUPT);
}

static struct bp_answer *read_snapshot(struct bp_service *service, const struct bp_digest *digest, uint64_t version)
{
    struct bp_buf bytes = {0};
    struct bp_err err = {0};
    uint64_t epoch = bp_cache_epoch(&service->snapshots);
    if (bp_store_snapshot_read(service->store, digest, &bytes, &err)) {
        if (err.code == BP_E_snapshot_corrupt)
            bp_snapshot_report_corrupt(service, digest);
        bp_cache_drop(&service->snapshots, digest);
        bp_buf_release(&bytes);
        return bp_problem_of(&err, NULL);
    }
    struct bp_answer *answer = bp_answer_new(200, BP_MEDIA_JSON, &bytes);
    if (bp_answer_is_standing(answer))
        return answer;
    char text[BP_DIGEST_TEXT];
    bp_digest_format(digest, text);
    snprintf(answer->etag, sizeof answer->etag, "\"%s\"", text);
    answer->immutable = true;
    bp_cache_put(&service->snapshots, digest, answer, version, epoch);
    return answer;
}

static void count_lookup(struct bp_service *service, enum bp_cache_result result)
{
    bp_metrics_count_by(service->metrics, BP_COUNTERS_CACHE, BP_CACHE_SNAPSHOTS, result, 0);
}

struct bp_answer *bp_service_snapshot_get(struct bp_service *service, const char *text, bool validate_only)
{
    struct bp_digest digest;
    struct bp_answer *refusal;
    uint64_t checked = 0;
    if (!bp_digest_parse(text, &digest) && !bp_service_find(service, BP_STORE_SNAPSHOTS, text, &digest, &refusal))
        return refusal;
    struct bp_answer *answer = bp_cache_get(&service->snapshots, &digest, &checked);
    if (answer && validate_only) {
        count_lookup(service, BP_CACHE_HIT);
        return answer;
    }
    uint64_t version = files_version(service);
    if (answer && checked == version) {
        count_lookup(service, BP_CACHE_HIT);
        return answer;
    }
    count_lookup(service, BP_CACHE_MISS);
    bp_answer_unref(answer);
    return read_snapshot(service, &digest, version);
}

static void write_lineage(struct bp_writer *writer, const struct bp_store_lineage *lineage)
{
    bp_writer_object(writer);
    bp_writer_key(writer, "nodes");
    bp_writer_array(writer);
    for (size_t i = 0; i < lineage->n_nodes; i++) {
        bp_writer_object(writer);
        bp_writer_key(writer, "digest");
        bp_writer_digest(writer, &lineage->nodes[i].digest);
        bp_writer_key(writer, "stage");
        bp_writer_string(writer, lineage->nodes[i].stage);
        bp_writer_end(writer);
    }
    bp_writer_end(writer);
    bp_writer_key(writer, "edges");
    bp_writer_array(writer);
    for (size_t i = 0; i < lineage->n_edges; i++) {
        bp_writer_object(writer);
        bp_writer_key(writer, "source");
        bp_writer_digest(writer, &lineage->edges[i].source);
        bp_writer_key(writer, "target");
        bp_writer_digest(writer, &lineage->edges[i].target);
        bp_writer_key(writer, "pass");
        bp_writer_string(writer, lineage->edges[i].pass);
        bp_writer_key(writer, "revision");
        bp_writer_uint(writer, lineage->edges[i].revision);
        bp_writer_end(writer);
    }
    bp_writer_end(writer);
    bp_service_write_next(writer, lineage->next);
    bp_writer_end(writer);
}

struct bp_answer *bp_service_lineage(struct bp_service *service, const char *text, enum bp_store_direction direction,
                                     size_t limit, const char *cursor, char ret_next[BP_STORE_CURSOR_TEXT])
{
    struct bp_digest digest;
    struct bp_answer *answer;
    if (!bp_service_find(service, BP_STORE_SNAPSHOTS, text, &digest, &answer))
        return answer;
    struct bp_arena arena = {0};
    struct bp_store_lineage lineage;
    struct bp_err err = {0};
    struct bp_buf body = {0};
    struct bp_writer writer = {.out = &body, .any_order = true};
    if (bp_store_lineage_read(service->store, &digest, direction, limit, cursor, &arena, &lineage, &err) == 0) {
        write_lineage(&writer, &lineage);
        snprintf(ret_next, BP_STORE_CURSOR_TEXT, "%s", lineage.next);
    }
    answer = bp_service_written(&writer, 200, &err);
    bp_arena_release(&arena);
    return answer;
}

static int decode_one(struct bp_service *service, const struct bp_store_snapshot *snapshot, struct bp_arena *arena,
                      struct bp_ir *ret, struct bp_err *err)
{
    struct bp_buf bytes = {0};
    int stage = 0;
    while (bp_stage_names[stage] && strcmp(bp_stage_names[stage], snapshot->stage) != 0)
        stage++;
    int failed = stage == BP_STAGE_N
                     ? bp_fail(err, BP_E_snapshot_corrupt, "", "the stage %s is not known", snapshot->stage)
                     : bp_store_snapshot_read(service->store, &snapshot->digest, &bytes, err);
    if (!failed)
        failed = bp_ir_decode((enum bp_stage)stage, bytes.data, bytes.len, arena, ret, err);
    bp_buf_release(&bytes);
    return failed;
}

int bp_snapshots_decode(struct bp_service *service, const struct bp_store_plan *plan, struct bp_arena *arena,
                        struct bp_trace_plan *ret, struct bp_err *err)
{
    *ret = (struct bp_trace_plan){0};
    for (size_t i = 0; i < plan->n_snapshots && i < BP_STAGE_N; i++) {
        struct bp_err found = {0};
        if (decode_one(service, &plan->snapshots[i], arena, &ret->ir[i], &found)) {
            if (found.code == BP_E_snapshot_corrupt)
                bp_snapshot_report_corrupt(service, &plan->snapshots[i].digest);
            return bp_fail(err, found.code, found.path, "%s", found.message);
        }
        ret->digest[i] = plan->snapshots[i].digest;
        ret->n++;
    }
    return 0;
}
