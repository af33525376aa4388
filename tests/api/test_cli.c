/* The command-line program against a real daemon: what it prints, and what its exit status says. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/api/expect.h"
#include "tests/api/server.h"

enum { WORDS_MAX = 12 };

struct run {
    int status;
    const char *out, *err;
};

static const char *contents(const char *path)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    return keep_text("%s", text);
}

/* Becomes `blueprint WORDS...` with its three streams on files. */
static void become(const char *const *words, const char *in, const char *out, const char *err)
{
    const char *argv[WORDS_MAX + 2] = {"blueprint"};
    for (size_t i = 0; i < WORDS_MAX && words[i]; i++)
        argv[i + 1] = words[i];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(open(in, O_RDONLY), 0) >= 0 && dup2(open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600), 1) >= 0 &&
        dup2(open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600), 2) >= 0)
        execv(server_program("blueprint"), (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* Runs `blueprint WORDS...` with `input` on its standard input. */
static struct run run(const char *const words[WORDS_MAX], const char *input)
{
    const char *in = keep_text("%s/cli.in", server.directory), *out = keep_text("%s/cli.out", server.directory);
    const char *err = keep_text("%s/cli.err", server.directory);
    FILE *file = fopen(in, "w");
    ck_assert(file && fputs(input ? input : "", file) >= 0 && fclose(file) == 0);
    struct server child = {.pid = fork()};
    ck_assert_int_ge(child.pid, 0);
    if (child.pid == 0)
        become(words, in, out, err);
    struct run result = {.status = server_wait(&child)};
    result.out = contents(out);
    result.err = contents(err);
    ck_assert_ptr_null(strstr(result.err, "Sanitizer"));
    return result;
}

#define RUN(...) run((const char *const[WORDS_MAX]){"--server", server.url, __VA_ARGS__}, NULL)

static void expect_status(const struct run *run, int status)
{
    ck_assert_msg(run->status == status, "exit status %d, expected %d\n%.1500s\n%.1500s", run->status, status, run->out,
                  run->err);
}

static void expect_text(const char *text, const char *wanted)
{
    ck_assert_msg(strstr(text, wanted), "no \"%s\" in:\n%.3000s", wanted, text);
}

static json_t *targeted(void)
{
    return with_target(small_request(), "reference-queue", 2, INT64_C(1) << 34);
}

static const char *request_file(json_t *request)
{
    const char *path = keep_text("%s/request.json", server.directory);
    FILE *file = fopen(path, "w");
    ck_assert(file && fputs(json_text(request), file) >= 0 && fclose(file) == 0);
    return path;
}

START_TEST(test_cli__plan_prints_a_summary_of_what_the_daemon_derived)
{
    struct run made = RUN("plan", request_file(targeted()));
    expect_status(&made, 0);
    json_t *plan = plan_of(targeted(), 200);
    expect_text(made.out, text_at(plan, "/id"));
    expect_text(made.out, "committed");
    static const char *const stages[] = {"model", "distributed", "portable", "concrete"};
    for (size_t i = 0; i < 4; i++)
        expect_text(made.out, digest_of(plan, stages[i]));
    expect_text(made.out, "activation_gradient");
    expect_text(made.out, text_at(plan, "/facts/by_phase/forward/operations"));
    expect_text(made.out, "stored_activations");
    expect_text(made.out, keep_text("%lld", (long long)int_at(plan, "/facts/memory/weights")));
    expect_text(made.out, "GiB");
}
END_TEST

START_TEST(test_cli__plan_reads_standard_input)
{
    const char *const words[WORDS_MAX] = {"--server", server.url, "plan", "-"};
    struct run made = run(words, json_text(targeted()));
    expect_status(&made, 0);
    expect_text(made.out, text_at(plan_of(targeted(), 200), "/id"));
}
END_TEST

START_TEST(test_cli__json_is_the_answer_as_it_came)
{
    json_t *plan = plan_of(targeted(), 201);
    struct run shown = RUN("--json", "show", text_at(plan, "/id"));
    expect_status(&shown, 0);
    ck_assert_str_eq(shown.out, http_get("/v1/plans/%s", text_at(plan, "/id")).body);
    struct run snapshot = RUN("--json", "snapshot", digest_of(plan, "portable"));
    expect_status(&snapshot, 0);
    ck_assert_str_eq(snapshot.out, http_get("/v1/snapshots/%s", digest_of(plan, "portable")).body);
}
END_TEST

START_TEST(test_cli__show_stage_prints_its_tasks)
{
    json_t *plan = plan_of(targeted(), 201), *task;
    struct run shown = RUN("show", keep_text("%.12s", text_at(plan, "/id") + 7), "--stage", "portable");
    expect_status(&shown, 0);
    size_t i;
    json_array_foreach(at(snapshot_of(plan, "portable"), "/tasks"), i, task) {
        expect_text(shown.out, text_at(task, "/name"));
        expect_text(shown.out, text_at(task, "/workload/operations"));
    }
    struct run none = RUN("show", text_at(plan_of(small_request(), 201), "/id"), "--stage", "concrete");
    ck_assert_int_ne(none.status, 0);
}
END_TEST

START_TEST(test_cli__trace_prints_the_chain)
{
    json_t *plan = plan_of(targeted(), 201);
    const char *command = text_at(snapshot_of(plan, "concrete"), "/commands/5/id");
    struct run trace = RUN("trace", text_at(plan, "/id"), command);
    expect_status(&trace, 0);
    struct reply reply = http_get("/v1/plans/%s/trace/%s", text_at(plan, "/id"), command);
    for (size_t i = 0; i < 4; i++) {
        expect_text(trace.out, text_at(reply.json, keep_text("/chain/%zu/stage", i)));
        expect_text(trace.out, text_at(reply.json, keep_text("/chain/%zu/name", i)));
    }
    expect_text(trace.out, "transformer.decoder_training");
}
END_TEST

START_TEST(test_cli__replay_says_identical_or_names_the_first_difference)
{
    json_t *plan = plan_of(targeted(), 201);
    struct run same = RUN("replay", text_at(plan, "/id"));
    expect_status(&same, 0);
    expect_text(same.out, "identical");
    server_stop(&server);
    server_sql(&server, keep_text("UPDATE snapshots SET data = zeroblob(length(data)) WHERE digest = x'%s'",
                                  digest_of(plan, "distributed") + 7));
    server_restart(&server, NULL);
    struct run differs = RUN("replay", text_at(plan, "/id"));
    expect_status(&differs, 1);
    expect_text(differs.out, "divergent");
    expect_text(differs.out, "snapshot_corrupt");
}
END_TEST

START_TEST(test_cli__diff_shows_both_sides)
{
    json_t *a = plan_of(small_request(), 201), *changed = small_request();
    set_at(changed, "/strategy/recompute", json_string("full"));
    json_t *b = plan_of(changed, 201);
    struct run diff = RUN("diff", text_at(a, "/id"), text_at(b, "/id"));
    expect_status(&diff, 0);
    expect_text(diff.out, "/strategy/recompute");
    expect_text(diff.out, "full");
    expect_text(diff.out, keep_text("%lld", (long long)int_at(a, "/facts/memory/stored_activations")));
    expect_text(diff.out, keep_text("%lld", (long long)int_at(b, "/facts/memory/activation_checkpoint")));
}
END_TEST

START_TEST(test_cli__list_and_lineage_name_what_is_stored)
{
    json_t *plan = plan_of(targeted(), 201);
    struct run list = RUN("list", "--mode", "training", "--limit", "5");
    expect_status(&list, 0);
    expect_text(list.out, keep_text("%.19s", text_at(plan, "/id")));
    expect_text(list.out, "small");
    struct run lineage = RUN("lineage", digest_of(plan, "concrete"));
    expect_status(&lineage, 0);
    expect_text(lineage.out, "bind-reference-queue");
    expect_text(lineage.out, "distribute-transformer-training");
}
END_TEST

START_TEST(test_cli__passes_print_theory_laws_and_references)
{
    struct run all = RUN("passes");
    expect_status(&all, 0);
    expect_text(all.out, "bind-reference-slot");
    struct run one = RUN("passes", "distribute-transformer-training");
    expect_status(&one, 0);
    struct reply pass = http_get("/v1/passes/distribute-transformer-training");
    size_t i;
    json_t *item;
    json_array_foreach(at(pass.json, "/laws"), i, item)
        expect_text(one.out, text_at(item, "/id"));
    json_array_foreach(at(pass.json, "/checks"), i, item)
        expect_text(one.out, text_at(item, "/id"));
    json_array_foreach(at(pass.json, "/references"), i, item)
        expect_text(one.out, keep_text("%.20s", text_at(item, "/citation")));
    expect_text(one.out, "\\[");
}
END_TEST

START_TEST(test_cli__models_print_the_catalogue)
{
    struct run all = RUN("models");
    expect_status(&all, 0);
    expect_text(all.out, "gpt3-175b");
    struct run one = RUN("models", "llama-3.1-8b");
    expect_status(&one, 0);
    expect_text(one.out, "8030261248");
}
END_TEST

START_TEST(test_cli__a_rejected_plan_is_a_negative_answer)
{
    struct run rejected = RUN("plan", request_file(with_target(small_request(), "reference-queue", 2, 1)));
    expect_status(&rejected, 1);
    expect_text(rejected.out, "capacity_exceeded");
}
END_TEST

START_TEST(test_cli__a_refused_request_names_every_problem)
{
    json_t *request = small_request();
    set_at(request, "/workload/dtype", json_string("float64"));
    set_at(request, "/strategy/zero_stage", json_integer(9));
    struct run refused = RUN("plan", request_file(request));
    expect_status(&refused, 4);
    expect_text(refused.err, "/workload/dtype");
    expect_text(refused.err, "/strategy/zero_stage");
    ck_assert_str_eq(refused.out, "");
    struct run missing = RUN("show", "0123456789abcdef");
    expect_status(&missing, 4);
    expect_text(missing.err, "not_found");
}
END_TEST

START_TEST(test_cli__a_server_that_is_not_there_is_said_so)
{
    server_stop(&server);
    struct run unreached = RUN("list");
    expect_status(&unreached, 3);
    ck_assert_str_eq(unreached.out, "");
    ck_assert_str_ne(unreached.err, "");
}
END_TEST

START_TEST(test_cli__every_stage_prints_as_tables)
{
    static const char *const wanted[][3] = {{"model", "transformer.decoder_training", "hidden_size"},
                                            {"distributed", "mesh axis", "attention.query.parameters"},
                                            {"portable", "optimizer_state", "matrix-multiply"},
                                            {"concrete", "reference/", "commands in issue order"}};
    json_t *plan = plan_of(targeted(), 201);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct run shown = RUN("show", text_at(plan, "/id"), keep_text("--stage=%s", wanted[i][0]));
        expect_status(&shown, 0);
        expect_text(shown.out, wanted[i][1]);
        expect_text(shown.out, wanted[i][2]);
        struct run snapshot = RUN("snapshot", keep_text("%.12s", digest_of(plan, wanted[i][0]) + 7));
        expect_status(&snapshot, 0);
        ck_assert_str_eq(snapshot.out, shown.out);
    }
    struct run unknown = RUN("show", text_at(plan, "/id"), "--stage", "nonsense");
    expect_status(&unknown, 2);
}
END_TEST

START_TEST(test_cli__a_list_goes_on_where_it_ended)
{
    const char *first = text_at(plan_of(small_request(), 201), "/id"),
               *second = text_at(plan_of(targeted(), 201), "/id");
    struct run page = RUN("list", "--limit", "1");
    expect_status(&page, 0);
    expect_text(page.out, keep_text("%.23s", second));
    ck_assert_ptr_null(strstr(page.out, keep_text("%.23s", first)));
    const char *more = strstr(page.out, "more: --cursor ");
    ck_assert_ptr_nonnull(more);
    more += strlen("more: --cursor ");
    page = RUN("list", "--limit", "1", "--cursor", keep_text("%.*s", (int)strcspn(more, "\n"), more));
    expect_status(&page, 0);
    expect_text(page.out, keep_text("%.23s", first));
    ck_assert_ptr_null(strstr(page.out, "more: "));
    page = RUN("list", "--mode", "inference");
    expect_status(&page, 0);
    ck_assert_str_eq(page.out, "no plans\n");
    page = RUN("list", "--limit", "0");
    expect_status(&page, 4);
    expect_text(page.err, "invalid_query");
}
END_TEST

START_TEST(test_cli__text_from_a_request_does_not_drive_the_terminal)
{
    json_t *request = targeted();
    set_at(request, "/model/transformer/name", json_string("evil\xc2\x9b 2J\xe2\x80\xae"));
    struct run made = RUN("plan", request_file(request));
    expect_status(&made, 0);
    expect_text(made.out, "evil? 2J?");
    ck_assert_ptr_null(strstr(made.out, "\xc2\x9b"));
    ck_assert_ptr_null(strstr(made.out, "\xe2\x80\xae"));
    json_object_set_new(request, "key\x1b[2J", json_true());
    struct run refused = RUN("plan", request_file(request));
    expect_status(&refused, 4);
    expect_text(refused.err, "key?[2J: unknown_key");
    ck_assert_ptr_null(strchr(refused.err, 0x1b));
}
END_TEST

START_TEST(test_cli__text_that_does_not_parse_is_placed_in_its_file)
{
    const char *path = keep_text("%s/broken.json", server.directory);
    FILE *file = fopen(path, "w");
    ck_assert(file && fputs("{\"model\":\n  nonsense}", file) >= 0 && fclose(file) == 0);
    struct run refused = RUN("plan", path);
    expect_status(&refused, 4);
    expect_text(refused.err, keep_text("%s:2:", path));
    expect_text(refused.err, "invalid_json");
}
END_TEST

START_TEST(test_cli__a_unix_socket_serves_the_same)
{
    server_stop(&server);
    const char *path = keep_text("%s/socket", server.directory), *const arguments[] = {"--socket", path, NULL};
    server_restart(&server, arguments);
    const char *const words[WORDS_MAX] = {"--server", keep_text("unix:%s", path), "plan", "-"};
    struct run made = run(words, json_text(targeted()));
    expect_status(&made, 0);
    expect_text(made.out, text_at(plan_of(targeted(), 200), "/id"));
}
END_TEST

START_TEST(test_cli__an_answer_that_cannot_be_written_is_no_success)
{
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        become((const char *const[WORDS_MAX]){"--server", server.url, "passes"}, "/dev/null", "/dev/full", "/dev/null");
    struct server child = {.pid = pid};
    ck_assert_int_eq(server_wait(&child), 5);
}
END_TEST

static const char *const usage_errors[][4] = {
    {NULL},
    {"no-such-command", NULL},
    {"plan", NULL},
    {"plan", "/nonexistent/request.json", NULL},
    {"show", "a", "b", NULL},
    {"list", "--colour", "red", NULL},
    {"--no-such-option", "list", NULL},
    {"--server", "https://127.0.0.1:7433", "passes", NULL},
    {"--server", "ftp://127.0.0.1", "passes", NULL},
    {"--server", "nonsense", "passes", NULL},
    {"--server", "unix:", "passes", NULL},
    {"--server", "http://", "passes", NULL},
};

START_TEST(test_cli__a_wrong_command_line_is_a_usage_error)
{
    const char *words[WORDS_MAX] = {"--server", server.url};
    for (size_t i = 0; i < 4 && usage_errors[_i][i]; i++)
        words[2 + i] = usage_errors[_i][i];
    struct run wrong = run(words, NULL);
    expect_status(&wrong, 2);
    ck_assert_str_ne(wrong.err, "");
    ck_assert_str_eq(wrong.out, "");
}
END_TEST

START_TEST(test_cli__help_lists_every_command)
{
    static const char *const commands[] = {"plan",  "list",   "show", "snapshot", "lineage",
                                           "trace", "replay", "diff", "passes",   "models"};
    struct run help = run((const char *const[WORDS_MAX]){"--help"}, NULL);
    expect_status(&help, 0);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        expect_text(help.out, keep_text("  %s", commands[i]));
        struct run one = run((const char *const[WORDS_MAX]){commands[i], "--help"}, NULL);
        expect_status(&one, 0);
        expect_text(one.out, commands[i]);
    }
}
END_TEST

Suite *suite_cli(void)
{
    Suite *suite = suite_create("cli");
    TCase *tcase = server_tcase(suite, "cli");
    tcase_add_test(tcase, test_cli__plan_prints_a_summary_of_what_the_daemon_derived);
    tcase_add_test(tcase, test_cli__plan_reads_standard_input);
    tcase_add_test(tcase, test_cli__json_is_the_answer_as_it_came);
    tcase_add_test(tcase, test_cli__show_stage_prints_its_tasks);
    tcase_add_test(tcase, test_cli__trace_prints_the_chain);
    tcase_add_test(tcase, test_cli__replay_says_identical_or_names_the_first_difference);
    tcase_add_test(tcase, test_cli__diff_shows_both_sides);
    tcase_add_test(tcase, test_cli__list_and_lineage_name_what_is_stored);
    tcase_add_test(tcase, test_cli__passes_print_theory_laws_and_references);
    tcase_add_test(tcase, test_cli__models_print_the_catalogue);
    tcase_add_test(tcase, test_cli__a_rejected_plan_is_a_negative_answer);
    tcase_add_test(tcase, test_cli__a_refused_request_names_every_problem);
    tcase_add_test(tcase, test_cli__a_server_that_is_not_there_is_said_so);
    tcase_add_test(tcase, test_cli__every_stage_prints_as_tables);
    tcase_add_test(tcase, test_cli__a_list_goes_on_where_it_ended);
    tcase_add_test(tcase, test_cli__text_from_a_request_does_not_drive_the_terminal);
    tcase_add_test(tcase, test_cli__text_that_does_not_parse_is_placed_in_its_file);
    tcase_add_test(tcase, test_cli__a_unix_socket_serves_the_same);
    tcase_add_test(tcase, test_cli__an_answer_that_cannot_be_written_is_no_success);
    tcase_add_loop_test(tcase, test_cli__a_wrong_command_line_is_a_usage_error, 0,
                        (int)(sizeof usage_errors / sizeof *usage_errors));
    tcase_add_test(tcase, test_cli__help_lists_every_command);
    return suite;
}
