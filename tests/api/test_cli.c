/* The command-line program against a real daemon: what it prints, and what its exit status says. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/api/command.h"
#include "tests/api/expect.h"
#include "tests/api/server.h"

static json_t *targeted(void)
{
    return with_target(small_request(), "reference-queue", 2, INT64_C(1) << 34);
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

static const char *text_file(const char *name, const char *text)
{
    const char *path = keep_text("%s/%s", server.directory, name);
    FILE *file = fopen(path, "w");
    ck_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
    return path;
}

/* Arguments of a Megatron-LM run, and the plan request that says the same. */
#define MEGATRON                                                                                                       \
    "torchrun pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 8 --seq-length 32 \\\n"            \
    "  --max-position-embeddings 32 --micro-batch-size 2 --bf16 --tensor-model-parallel-size 2 --sequence-parallel \n" \
    "  --attention-dropout=0 --hidden-dropout=0 --lr '6e-5' --save 'a\033b' "

static json_t *megatron_request(void)
{
    return json_of("{\"model\": {\"transformer\": {\"name\": \"megatron\", \"hidden_size\": 64, "
                   "\"num_hidden_layers\": 4, \"num_attention_heads\": 8, \"intermediate_size\": 256, "
                   "\"vocab_size\": 100, \"max_position_embeddings\": 32, \"activation\": \"gelu\", "
                   "\"norm\": \"layernorm\", \"position\": \"learned\", \"bias\": true, "
                   "\"tie_word_embeddings\": true}}, \"workload\": {\"mode\": \"training\", "
                   "\"sequence_length\": 32, \"micro_batch_size\": 2, \"global_batch_size\": 4, "
                   "\"dtype\": \"bfloat16\"}, \"strategy\": {\"tensor_parallel\": 2, "
                   "\"data_parallel\": 2, \"sequence_parallel\": true}}");
}

START_TEST(test_cli__megatrons_arguments_become_a_plan)
{
    const char *file = text_file("run.sh", MEGATRON);
    struct run made = RUN("plan", "--from", "megatron", file, "--world-size", "4", "--vocab-size", "100");
    expect_status(&made, 0);
    expect_text(made.out, text_at(plan_of(megatron_request(), 200), "/id"));
    expect_text(made.err, "blueprint: from megatron: --lr 6e-5: of what is computed, not of how much\n");
    expect_text(made.err, "--save a?b: ");
    ck_assert_ptr_null(strchr(made.err, '\033'));
    const char *const words[WORDS_MAX] = {"--server", server.url, "plan", "--from=megatron", "-", "--vocab-size=100"};
    setenv("WORLD_SIZE", "4", 1);
    struct run read = run(words, MEGATRON);
    setenv("WORLD_SIZE", "many", 1);
    struct run wrong = run(words, MEGATRON);
    unsetenv("WORLD_SIZE");
    expect_status(&read, 0);
    expect_text(read.out, text_at(plan_of(megatron_request(), 200), "/id"));
    expect_status(&wrong, 2);
    expect_text(wrong.err, "$WORLD_SIZE");
}
END_TEST

START_TEST(test_cli__calculons_pair_becomes_a_plan)
{
    const char *application = text_file("app.json", "{\"hidden\": 64, \"feedforward\": 256, \"seq_size\": 32, "
                                                    "\"attn_heads\": 8, \"attn_size\": 8, \"num_blocks\": 4}");
    const char *execution =
        text_file("exe.json", "{\"training\": true, \"num_procs\": 2, \"tensor_par\": 2, \"pipeline_par\": 1, "
                              "\"data_par\": 1, \"batch_size\": 4, \"microbatch_size\": 2, "
                              "\"datatype\": \"float16\", \"tensor_par_net\": 0}");
    struct run made = RUN("plan", "--from", "calculon", application, execution);
    expect_status(&made, 0);
    expect_text(made.out, "calculon");
    expect_text(made.err, "blueprint: from calculon: tensor_par_net 0: of the network, not of amounts\n");
    struct run swapped = RUN("plan", "--from", "calculon", execution, application);
    expect_status(&swapped, 4);
    expect_text(swapped.err, "calculon: application/hidden: is required");
    struct run gone = RUN("plan", "--from", "calculon", application, "/nonexistent");
    expect_status(&gone, 2);
}
END_TEST

START_TEST(test_cli__what_cannot_be_imported_is_refused_before_it_is_sent)
{
    const char *file = text_file("run.sh", MEGATRON "--fp8-format hybrid \n--num-layers x");
    struct run wrong = RUN("plan", "--from", "megatron", file);
    expect_status(&wrong, 4);
    ck_assert_str_eq(wrong.out, "");
    expect_text(wrong.err, keep_text("blueprint: %s: --fp8-format: line 3, column ", file));
    expect_text(wrong.err, "--num-layers: line 4, column 1: \"x\" is not a whole number");
    expect_text(wrong.err, "--vocab-size: is required");
    expect_text(wrong.err, "from megatron: --lr");
    struct run list = RUN("list");
    expect_text(list.out, "no plans");
}
END_TEST

START_TEST(test_cli__megatrons_arguments_become_a_fit)
{
    const char *file = text_file("run.sh", MEGATRON "--context-parallel-size 2 --vocab-size 100");
    struct run fits = RUN("fit", "--from", "megatron", file, "--memory-bytes", "80000000000", "--unit", "GB");
    expect_status(&fits, 0);
    struct run not = RUN("fit", "--from", "megatron", file, "--memory-bytes", "1000");
    expect_status(&not, 1);
    struct run unknown = RUN("fit", "--from", "megatron", file);
    expect_status(&unknown, 2);
    expect_text(unknown.err, "--memory-bytes");
}
END_TEST

static const char *const usage_errors[][4] = {
    {NULL},
    {"no-such-command", NULL},
    {"plan", NULL},
    {"plan", "/nonexistent/request.json", NULL},
    {"show", "a", "b", NULL},
    {"list", "--colour", "red", NULL},
    {"plan", "--from", "nobody", "/dev/null"},
    {"plan", "--from", "calculon", "/dev/null"},
    {"plan", "--from=megatron", "/dev/null", "/dev/null"},
    {"plan", "--from=megatron", "--world-size=0", "/dev/null"},
    {"plan", "--from=megatron", "--vocab-size=99999999999999999", "/dev/null"},
    {"plan", "/dev/null", "/dev/null", NULL},
    {"plan", "--world-size=8", "/dev/null", NULL},
    {"plan", "--memory-bytes=8", "/dev/null", NULL},
    {"--no-such-option", "list", NULL},
    {"--server", "ftp://127.0.0.1:7433", "passes", NULL},
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
    tcase_add_test(tcase, test_cli__megatrons_arguments_become_a_plan);
    tcase_add_test(tcase, test_cli__calculons_pair_becomes_a_plan);
    tcase_add_test(tcase, test_cli__what_cannot_be_imported_is_refused_before_it_is_sent);
    tcase_add_test(tcase, test_cli__megatrons_arguments_become_a_fit);
    return suite;
}
