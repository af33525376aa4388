/* What blueprintd --verify finds: each kind of damage, made in the file of a daemon that has stopped. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/api/expect.h"
#include "tests/api/server.h"

/* What the last look at the file printed. */
static char report[1 << 18];

/* A plan of each kind: with a target, without, one that a check rejected; a replay; one that was accepted first. */
static void fill(void)
{
    json_t *plan = plan_of(with_target(small_request(), "reference-queue", 2, INT64_C(1) << 34), 201);
    ck_assert_int_eq(http_post(keep_text("/v1/plans/%s/replays", text_at(plan, "/id")), NULL).status, 201);
    ck_assert_int_eq(post_plan(with_target(small_request(), "reference-queue", 2, 16)).status, 422);
    const char *body = json_text(small_request());
    struct reply reply = http_call(&(struct call){.method = "POST",
                                                  .target = "/v1/plans",
                                                  .body = body,
                                                  .n = strlen(body),
                                                  .headers = {"Prefer: respond-async"}});
    ck_assert_int_eq(reply.status, 202);
    for (int waited = 0; strcmp(text_at(http_get("%s", http_header(&reply, "location")).json, "/state"), "committed");
         waited++)
        ck_assert_int_lt(waited, 100000);
}

/* The exit status. */
static int verify(void)
{
    FILE *out = popen(keep_text("%s --database %s --verify 2>&1", server_program("blueprintd"), server.database), "r");
    ck_assert_ptr_nonnull(out);
    report[fread(report, 1, sizeof report - 1, out)] = '\0';
    int status = pclose(out);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* What is altered, and the defect that must be told then. */
static const struct {
    const char *sql, *table, *reason;
} damages[] = {
    {"UPDATE snapshots SET data = zeroblob(9) WHERE stage = 'portable'", "snapshots", "do not unpack"},
    {"UPDATE snapshots SET (bytes, data) = (SELECT bytes, data FROM snapshots WHERE stage = 'distributed') WHERE stage "
     "= "
     "'concrete'",
     "snapshots", "are not those of the digest"},
    {"UPDATE snapshots SET digest = zeroblob(32) WHERE stage = 'concrete'", "snapshots", "are not those of the digest"},
    {"UPDATE snapshots SET schema = 'blueprint.portable/9' WHERE stage = 'portable'", "snapshots",
     "calls itself something else"},
    {"UPDATE snapshots SET stage = 'model' WHERE stage = 'portable'", "plan_snapshots", "is a model snapshot"},
    {"DELETE FROM snapshots WHERE stage = 'model'", "derivations", "that is not there"},
    {"DELETE FROM edges", "derivations", "has no edge"},
    {"DELETE FROM edges", "snapshots", "was derived from nothing"},
    {"UPDATE edges SET target = (SELECT seq FROM snapshots WHERE stage = 'concrete') WHERE target = (SELECT seq FROM "
     "snapshots WHERE stage = 'portable')",
     "edges", "is not its derivation's"},
    {"INSERT INTO edges SELECT source, target, 99 FROM edges LIMIT 1", "edges", "that is not there"},
    {"DELETE FROM evidence WHERE derivation = 1", "evidence", "there is none"},
    {"DELETE FROM evidence WHERE derivation = 1 AND position = 3", "evidence", "a record is missing"},
    {"DELETE FROM evidence WHERE derivation = 1 AND position = (SELECT max(position) FROM evidence WHERE derivation = "
     "1)",
     "evidence", "records, and"},
    {"UPDATE evidence SET compared = compared + 1 WHERE derivation = 2 AND position = 4", "evidence", "record 4 of"},
    {"UPDATE evidence SET check_id = 'law.other' WHERE derivation = 2 AND position = 4", "evidence", "record 4 of"},
    {"UPDATE evidence SET verdict = 'violated' WHERE derivation = 2 AND position = 4", "evidence", "did not hold"},
    {"DELETE FROM snapshot_evidence", "snapshot_evidence", "there is none"},
    {"DELETE FROM snapshot_evidence WHERE position = 0", "snapshot_evidence", "a record is missing"},
    {"UPDATE snapshot_evidence SET verdict = 'violated' WHERE position = 0", "snapshot_evidence", "did not hold"},
    {"UPDATE snapshot_evidence SET compared = 0 WHERE position = 0", "snapshot_evidence", "record 0 of the model"},
    {"UPDATE derivations SET binding = randomblob(32) WHERE seq = 1", "derivations", "the binding of"},
    {"UPDATE derivations SET revision = 99 WHERE seq = 1", "plans", "the id is not that"},
    {"UPDATE derivations SET source = 1 WHERE seq = 2", "plan_derivations", "is not between its stages"},
    {"INSERT INTO derivations (pass, revision, source, target, binding) SELECT pass, 99, source, target, binding FROM "
     "derivations LIMIT 1",
     "derivations", "belongs to no plan"},
    {"DELETE FROM plan_snapshots WHERE position = 1", "plan_snapshots", "the stages have a gap"},
    {"DELETE FROM plan_snapshots WHERE position = 3; DELETE FROM plan_derivations WHERE position = 2", "plan_snapshots",
     "it has 3 stages, and its request 4"},
    {"DELETE FROM plan_snapshots WHERE position = 3", "snapshots", "belongs to no plan"},
    {"DELETE FROM plan_snapshots", "plan_snapshots", "is committed without stages"},
    {"DELETE FROM plan_derivations WHERE position = 1", "plan_derivations", "there is not one derivation"},
    {"UPDATE plans SET facts = NULL", "plans", "is committed without facts"},
    {"UPDATE plans SET facts = replace(facts, '\"tasks\":', '\"tasks\":1') WHERE facts IS NOT NULL", "plans",
     "the facts are not those"},
    {"UPDATE plans SET diagnostics = NULL WHERE state = 'rejected'", "plans", "no diagnostics say why"},
    {"UPDATE plans SET facts = '{' WHERE facts IS NOT NULL", "plans", "is not JSON"},
    {"UPDATE plans SET request = '{}'", "plans", "the stored request is none"},
    {"UPDATE plans SET request = ' ' || request", "plans", "not in canonical form"},
    {"UPDATE plans SET model = 'other'", "plans", "the model is not that of the request"},
    {"UPDATE plans SET mode = 'inference'", "plans", "the mode is not that of the request"},
    {"UPDATE plans SET parameters = '12'", "plans", "the parameters are not those"},
    {"UPDATE plans SET id = randomblob(32) WHERE state = 'committed'", "plans", "the id is not that"},
    {"UPDATE replays SET verdict = 'divergent'", "replays", "not what the verdict says"},
    {"UPDATE replays SET record = '[]'", "replays", "not what the verdict says"},
    {"UPDATE replays SET record = 'x'", "replays", "not what the verdict says"},
    {"UPDATE jobs SET id = randomblob(32)", "jobs", "is done, and there is no plan"},
    {"UPDATE jobs SET state = 'superseded', superseded_by = randomblob(32)", "jobs", "is not there"},
    {"UPDATE jobs SET passes = 'x'", "jobs", "is not JSON"},
    {"DROP TRIGGER audit_rows_go_oldest_first; DELETE FROM audit WHERE seq = 2", "audit", "row before this one"},
    {"DROP TRIGGER audit_rows_go_oldest_first; DELETE FROM audit WHERE seq = (SELECT max(seq) FROM audit)", "audit",
     "row after this one"},
    {"DROP TRIGGER audit_rows_do_not_change; UPDATE audit SET action = 'derived' WHERE seq = 1", "audit",
     "row 1  its action and its plan"},
    {"DROP TRIGGER audit_rows_do_not_change; UPDATE audit SET plan = NULL WHERE action = 'replay'", "audit",
     "its action and its plan"},
    {"DROP TRIGGER audit_rows_do_not_change; UPDATE audit SET plan = randomblob(32) WHERE action = 'derive' AND seq > "
     "1",
     "plans", "the audit does not say who"},
    {"DROP TRIGGER audit_rows_do_not_change; UPDATE audit SET action = 'repeat' WHERE action = 'accept'", "plans",
     "the audit does not say who"},
    {"DROP TRIGGER audit_rows_do_not_change; UPDATE audit SET action = 'repeat' WHERE action = 'replay'", "replays",
     "the audit does not say who"},
};

/* Whether a line of the report is that defect. */
static bool tells(const char *table, const char *reason)
{
    const char *begin = keep_text("defect  %s  ", table);
    for (const char *at = report; (at = strstr(at, begin)); at++) {
        const char *end = strchr(at, '\n');
        if (end && memmem(at, (size_t)(end - at), reason, strlen(reason)))
            return true;
    }
    return false;
}

START_TEST(test_verify__each_kind_of_damage_is_told)
{
    fill();
    server_stop(&server);
    ck_assert_msg(verify() == 0, "%s", report);
    ck_assert_msg(strstr(report, "defects      0\n") != NULL, "%s", report);
    ck_assert_msg(strstr(report, "audit        4\n") != NULL, "%s", report);
    server_sql(&server, damages[_i].sql);
    ck_assert_msg(verify() == 1, "%s: nothing was found: %s", damages[_i].sql, report);
    ck_assert_msg(tells(damages[_i].table, damages[_i].reason), "%s:\n%s", damages[_i].sql, report);
}
END_TEST

START_TEST(test_verify__a_page_that_was_overwritten_is_told_and_what_can_be_read_is_counted)
{
    static const char noise[4096] = {0x55};
    fill();
    server_stop(&server);
    FILE *file = fopen(server.database, "r+");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fseek(file, 4096L * (3 + _i), SEEK_SET), 0);
    ck_assert_uint_eq(fwrite(noise, 1, sizeof noise, file), sizeof noise);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(verify(), 1);
    ck_assert_msg(tells("file", "") || tells("snapshots", ""), "%s", report);
}
END_TEST

Suite *suite_verify(void)
{
    Suite *suite = suite_create("verify");
    TCase *tcase = server_tcase(suite, "verify");
    tcase_add_loop_test(tcase, test_verify__each_kind_of_damage_is_told, 0, (int)(sizeof damages / sizeof *damages));
    tcase_add_loop_test(tcase, test_verify__a_page_that_was_overwritten_is_told_and_what_can_be_read_is_counted, 0, 12);
    return suite;
}
