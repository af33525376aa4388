/* The real client against the real daemon: what it prints, and what its exit status says. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/api/expect.h"
#include "tests/api/server.h"

enum { WORDS_MAX = 12 };

static struct {
    int status; /* -1: a signal ended it */
    char *out, *err;
    size_t n_out;
} ran;

static char *read_all(int fd, size_t *ret_n)
{
    size_t n = 0, allocated = 1 << 16;
    char *text = malloc(allocated);
    for (ssize_t got = 1; text && got > 0; n += (size_t)(got > 0 ? got : 0)) {
        if (n + 1 == allocated)
            text = realloc(text, allocated *= 2);
        ck_assert_ptr_nonnull(text);
        got = read(fd, text + n, allocated - n - 1);
    }
    text[n] = '\0';
    *ret_n = n;
    return text;
}

/* Runs the client with these words (split at blanks) and `input` as its standard input, its errors in a file. */
static int run_with(const char *input, const char *format, va_list args)
{
    char line[1024], path[256], *words[WORDS_MAX] = {"blueprint", "--server", server.url};
    vsnprintf(line, sizeof line, format, args);
    size_t n_words = 3;
    for (char *rest = line, *word; (word = strsep(&rest, " ")) && n_words < WORDS_MAX - 1;)
        words[n_words++] = word;
    int in[2], out[2];
    ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    snprintf(path, sizeof path, "%s/client.err", server.directory);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        int err = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (dup2(in[0], 0) == 0 && dup2(out[1], 1) == 1 && dup2(err, 2) == 2)
            execv(server_program("blueprint"), words);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    ck_assert_int_eq(write(in[1], input, strlen(input)), (ssize_t)strlen(input));
    close(in[1]);
    free(ran.out);
    free(ran.err);
    ran.out = read_all(out[0], &ran.n_out);
    close(out[0]);
    int status = 0, err = open(path, O_RDONLY);
    size_t n_err;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ran.err = read_all(err, &n_err);
    close(err);
    ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return ran.status;
}

static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int status = run_with("", format, args);
    va_end(args);
    return status;
}

static int run_on(const char *input, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int run_on(const char *input, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int status = run_with(input, format, args);
    va_end(args);
    return status;
}

static void expect_out(const char *text)
{
    ck_assert_msg(strstr(ran.out, text), "no \"%s\" in:\n%s\nerrors:\n%s", text, ran.out, ran.err);
}

static void expect_err(const char *text)
{
    ck_assert_msg(strstr(ran.err, text), "no \"%s\" in:\n%s", text, ran.err);
}

static json_t *queue_request(json_int_t memory)
{
    return with_target(small_request(), "reference-queue", 2, memory);
}

static const json_int_t plenty = INT64_C(1) << 34;

/* The first 12 hex digits of a digest: a prefix that names it. */
static const char *prefix(const char *digest)
{
    return keep_text("%.12s", strchr(digest, ':') + 1);
}

START_TEST(test_cli__a_plan_is_summed_up)
{
    ck_assert_int_eq(run_on(json_text(queue_request(plenty)), "plan -"), 0);
    json_t *plan = plan_of(queue_request(plenty), 200);
    expect_out(text_at(plan, "/id"));
    expect_out("state        committed\n");
    expect_out("model        small\n");
    expect_out(text_at(plan, "/model/parameters"));
    static const char *const stages[] = {"model", "distributed", "portable", "concrete"};
    for (size_t i = 0; i < 4; i++)
        expect_out(digest_of(plan, stages[i]));
    expect_out("phase forward");
    expect_out("engine matrix");
    expect_out(text_at(plan, "/facts/operations"));
    expect_out(text_at(plan, "/facts/by_phase/weight_gradient/operations"));
    expect_out(keep_text("%lld", (long long)int_at(plan, "/facts/memory/optimizer")));
    expect_out("GiB");
    ck_assert_str_eq(ran.err, "");
}
END_TEST

START_TEST(test_cli__a_file_is_planned_like_standard_input)
{
    const char *path = keep_text("%s/request.json", server.directory);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(json_text(small_request()), file);
    fclose(file);
    ck_assert_int_eq(run("plan %s", path), 0);
    expect_out(text_at(plan_of(small_request(), 200), "/id"));
    ck_assert_int_eq(run("plan %s.not", path), 2);
    expect_err("No such file");
}
END_TEST

START_TEST(test_cli__json_is_the_answer_as_it_came)
{
    json_t *plan = plan_of(queue_request(plenty), 201);
    const char *id = text_at(plan, "/id");
    struct reply reply = http_get("/v1/plans/%s", id);
    ck_assert_int_eq(run("--json show %s", id), 0);
    ck_assert_str_eq(ran.out, reply.body);
    reply = http_get("/v1/snapshots/%s", digest_of(plan, "portable"));
    ck_assert_int_eq(run("show %s --stage portable --json", prefix(id)), 0);
    ck_assert_uint_eq(ran.n_out, reply.n);
    ck_assert_str_eq(ran.out, reply.body);
}
END_TEST

START_TEST(test_cli__stages_print_as_tables)
{
    json_t *plan = plan_of(queue_request(plenty), 201);
    const char *id = prefix(text_at(plan, "/id"));
    ck_assert_int_eq(run("show %s --stage model", id), 0);
    expect_out("transformer.decoder_training");
    expect_out("hidden_size");
    ck_assert_int_eq(run("show %s --stage distributed", id), 0);
    expect_out("mesh axis");
    expect_out("attention.query.parameters");
    ck_assert_int_eq(run("show %s --stage=portable", id), 0);
    expect_out("attention.query.forward");
    expect_out("matrix-multiply");
    expect_out("optimizer_state");
    ck_assert_int_eq(run("show %s --stage concrete", id), 0);
    expect_out("reference/");
    expect_out("commands in issue order");
    ck_assert_int_eq(run("snapshot %s", prefix(digest_of(plan, "portable"))), 0);
    expect_out("attention.query.forward");
    ck_assert_int_eq(run("show %s --stage concrete", text_at(plan_of(small_request(), 201), "/id")), 1);
    expect_err("no concrete snapshot");
    ck_assert_int_eq(run("show %s --stage nonsense", id), 2);
}
END_TEST

START_TEST(test_cli__a_trace_leads_from_a_command_to_the_model)
{
    json_t *plan = plan_of(queue_request(plenty), 201);
    const char *command = text_at(snapshot_of(plan, "concrete"), "/commands/3/id");
    ck_assert_int_eq(run("trace %s %s", prefix(text_at(plan, "/id")), command), 0);
    static const char *const order[] = {"concrete: ", "<- portable: ", "<- distributed: ", "<- model: "};
    const char *at_out = ran.out;
    for (size_t i = 0; i < 4; i++) {
        at_out = strstr(at_out, order[i]);
        ck_assert_msg(at_out, "no \"%s\", in order, in:\n%s", order[i], ran.out);
    }
    expect_out(command);
    expect_out("transformer.decoder_training");
}
END_TEST

START_TEST(test_cli__lineage_reaches_the_model)
{
    json_t *plan = plan_of(queue_request(plenty), 201);
    ck_assert_int_eq(run("lineage %s", prefix(digest_of(plan, "concrete"))), 0);
    expect_out(digest_of(plan, "model"));
    expect_out("distribute-transformer-training");
    ck_assert_int_eq(run("lineage %s --direction descendants", digest_of(plan, "model")), 0);
    expect_out(digest_of(plan, "concrete"));
    ck_assert_int_eq(run("lineage %s --direction sideways", digest_of(plan, "model")), 4);
    expect_err("invalid_query");
}
END_TEST

START_TEST(test_cli__replay_says_identical_or_where_it_differs)
{
    json_t *plan = plan_of(queue_request(plenty), 201);
    const char *id = text_at(plan, "/id");
    ck_assert_int_eq(run("replay %s", id), 0);
    expect_out("verdict      identical\n");
    server_stop(&server);
    server_sql(&server, "UPDATE snapshots SET data = zeroblob(length(data)) WHERE stage = 'portable'");
    server_restart(&server, NULL);
    ck_assert_int_eq(run("replay %s", prefix(id)), 1);
    expect_out("verdict      divergent\n");
    expect_out("portable     divergent");
    expect_out("snapshot_corrupt");
    ck_assert_int_eq(run("--json replay %s", id), 1);
    ck_assert_str_eq(text_at(json_of(ran.out), "/verdict"), "divergent");
    ck_assert_int_eq(run("show %s --stage portable", id), 4);
    expect_err("snapshot_corrupt");
}
END_TEST

START_TEST(test_cli__diff_shows_both_sides)
{
    json_t *wide = small_request();
    set_at(wide, "/strategy/tensor_parallel", json_integer(4));
    const char *a = text_at(plan_of(small_request(), 201), "/id"), *b = text_at(plan_of(wide, 201), "/id");
    ck_assert_int_eq(run("diff %s %s", prefix(a), prefix(b)), 0);
    expect_out("model        same");
    expect_out("distributed  differs");
    expect_out("/strategy/tensor_parallel  2  4");
    expect_out("/memory/weights");
    ck_assert_int_eq(run("diff %s %s", a, a), 0);
    expect_out("the requests are the same");
    expect_out("the facts are the same");
}
END_TEST

START_TEST(test_cli__lists_plans_a_page_at_a_time)
{
    ck_assert_int_eq(run("list"), 0);
    expect_out("no plans\n");
    const char *first = text_at(plan_of(small_request(), 201), "/id");
    const char *second = text_at(plan_of(queue_request(plenty), 201), "/id");
    ck_assert_int_eq(run("list --limit 1"), 0);
    expect_out(prefix(second));
    ck_assert_ptr_null(strstr(ran.out, prefix(first)));
    char *cursor = strstr(ran.out, "--cursor ");
    ck_assert_ptr_nonnull(cursor);
    cursor[strcspn(cursor, "\n")] = '\0';
    ck_assert_int_eq(run("list --limit 1 %s", keep_text("%s", cursor)), 0);
    expect_out(prefix(first));
    ck_assert_int_eq(run("list --mode inference"), 0);
    expect_out("no plans\n");
    ck_assert_int_eq(run("list --limit 0"), 4);
    expect_err("invalid_query");
}
END_TEST

START_TEST(test_cli__passes_and_models_are_readable)
{
    ck_assert_int_eq(run("passes"), 0);
    expect_out("bind-reference-slot");
    ck_assert_int_eq(run("passes distribute-transformer-training"), 0);
    expect_out("THEORY");
    expect_out("W_{\\mathrm{QKV}}");
    expect_out("law.qkv");
    expect_out("arxiv.org");
    ck_assert_int_eq(run("models"), 0);
    expect_out("gpt3-175b");
    ck_assert_int_eq(run("models gpt2"), 0);
    expect_out("124439808");
    ck_assert_int_eq(run("models nonsense"), 4);
    expect_err("not_found");
}
END_TEST

START_TEST(test_cli__a_refusal_names_every_problem)
{
    json_t *request = small_request();
    set_at(request, "/strategy/tensor_parallel", json_integer(3));
    set_at(request, "/workload/nonsense", json_true());
    ck_assert_int_eq(run_on(json_text(request), "plan -"), 4);
    ck_assert_str_eq(ran.out, "");
    expect_err("answered 400 invalid_request");
    expect_err("/workload/nonsense: unknown_key: ");
    expect_err("not_divisible: ");
    ck_assert_int_eq(run_on("{\"model\":\n  nonsense}", "plan -"), 4);
    expect_err("<stdin>:2:");
    expect_err("invalid_json: ");
    ck_assert_int_eq(run_on("", "plan -"), 4);
    expect_err("empty_body");
    ck_assert_int_eq(run("show 00000000"), 4);
    expect_err("not_found");
    ck_assert_int_eq(run("show xyz"), 4);
    expect_err("invalid_id");
    ck_assert_int_eq(run("--json show xyz"), 4);
    ck_assert_str_eq(text_at(json_of(ran.out), "/code"), "invalid_id");
}
END_TEST

START_TEST(test_cli__a_rejected_plan_is_a_negative_answer)
{
    const char *request = json_text(queue_request(1));
    ck_assert_int_eq(run_on(request, "plan -"), 1);
    expect_out("state        rejected\n");
    expect_out("capacity_exceeded");
    ck_assert_int_eq(run_on(request, "--json plan -"), 1);
    const char *id = text_at(json_of(ran.out), "/plan");
    ck_assert_int_eq(run("show %s", id), 0);
    expect_out("state        rejected\n");
    expect_out("capacity_exceeded");
}
END_TEST

START_TEST(test_cli__text_from_a_request_does_not_drive_the_terminal)
{
    json_t *request = small_request();
    set_at(request, "/model/transformer/name", json_string("evil\x1b[31m\xc2\x9b"));
    ck_assert_int_eq(run_on(json_text(request), "plan -"), 0);
    expect_out("model        evil?[31m?\n");
    ck_assert_int_eq(run("list"), 0);
    ck_assert_ptr_null(strchr(ran.out, 0x1b));
    set_at(request, "/a\x1b[2J", json_true());
    ck_assert_int_eq(run_on(json_text(request), "plan -"), 4);
    expect_err("/a?[2J: unknown_key");
    ck_assert_ptr_null(strchr(ran.err, 0x1b));
}
END_TEST

START_TEST(test_cli__nobody_there_is_status_3)
{
    server_stop(&server);
    ck_assert_int_eq(run("list"), 3);
    ck_assert_str_eq(ran.out, "");
    ck_assert_int_eq(run("--server unix:/nonexistent/socket list"), 3);
    server_restart(&server, NULL);
    ck_assert_int_eq(run("list"), 0);
}
END_TEST

START_TEST(test_cli__a_unix_socket_serves_the_same)
{
    server_stop(&server);
    const char *path = keep_text("%s/socket", server.directory), *const arguments[] = {"--socket", path, NULL};
    server_restart(&server, arguments);
    const char *id = text_at(plan_of(small_request(), 201), "/id");
    ck_assert_int_eq(run("--server unix:%s show %s", path, prefix(id)), 0);
    expect_out(id);
}
END_TEST

static const char *const usage_errors[] = {
    "nonsense",     "show",       "show a b",
    "trace a",      "list x",     "list --stage x",
    "list --limit", "--nonsense", "list --limit 1 --limit 2",
    "-x",           "show  x",    "plan",
    "diff a",
};

START_TEST(test_cli__a_wrong_command_line_is_status_2)
{
    ck_assert_int_eq(run("%s", usage_errors[_i]), 2);
    ck_assert_str_eq(ran.out, "");
    ck_assert_str_ne(ran.err, "");
}
END_TEST

START_TEST(test_cli__help_and_version_need_no_daemon)
{
    server_stop(&server);
    ck_assert_int_eq(run("--help"), 0);
    expect_out("replay PLAN");
    ck_assert_int_eq(run("show --help"), 0);
    expect_out("--stage STAGE");
    ck_assert_int_eq(run("--version"), 0);
    expect_out("blueprint ");
    server_restart(&server, NULL);
}
END_TEST

START_TEST(test_cli__output_that_cannot_be_written_is_no_success)
{
    const char *command =
        keep_text("%s --server %s passes >/dev/full 2>/dev/null", server_program("blueprint"), server.url);
    int status = system(command);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 5);
}
END_TEST

Suite *suite_cli(void)
{
    Suite *suite = suite_create("cli");
    TCase *tcase = server_tcase(suite, "cli");
    tcase_add_test(tcase, test_cli__a_plan_is_summed_up);
    tcase_add_test(tcase, test_cli__a_file_is_planned_like_standard_input);
    tcase_add_test(tcase, test_cli__json_is_the_answer_as_it_came);
    tcase_add_test(tcase, test_cli__stages_print_as_tables);
    tcase_add_test(tcase, test_cli__a_trace_leads_from_a_command_to_the_model);
    tcase_add_test(tcase, test_cli__lineage_reaches_the_model);
    tcase_add_test(tcase, test_cli__replay_says_identical_or_where_it_differs);
    tcase_add_test(tcase, test_cli__diff_shows_both_sides);
    tcase_add_test(tcase, test_cli__lists_plans_a_page_at_a_time);
    tcase_add_test(tcase, test_cli__passes_and_models_are_readable);
    tcase_add_test(tcase, test_cli__a_refusal_names_every_problem);
    tcase_add_test(tcase, test_cli__a_rejected_plan_is_a_negative_answer);
    tcase_add_test(tcase, test_cli__text_from_a_request_does_not_drive_the_terminal);
    tcase_add_test(tcase, test_cli__nobody_there_is_status_3);
    tcase_add_test(tcase, test_cli__a_unix_socket_serves_the_same);
    tcase_add_loop_test(tcase, test_cli__a_wrong_command_line_is_status_2, 0,
                        sizeof usage_errors / sizeof *usage_errors);
    tcase_add_test(tcase, test_cli__help_and_version_need_no_daemon);
    tcase_add_test(tcase, test_cli__output_that_cannot_be_written_is_no_success);
    return suite;
}
