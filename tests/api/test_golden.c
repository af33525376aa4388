/* Every golden case over HTTP, with each target: tasks, phases, engines, work, dependencies, buffers with producers and
 * consumers, layout, totals and memory are those of the file, at every stage that states them. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/api/expect.h"
#include "tests/api/server.h"

#define CASES "tests/golden"
#define TABLE "tests/passes.json"

static const char *const target_kinds[] = {"reference-queue", "reference-slot"};
enum { CASES_MAX = 64, N_TARGETS = 2 };

static char *cases[CASES_MAX];
static int n_cases;

/* The `name` of each entity by its id. */
static json_t *names_by_id(json_t *entities, const char *key)
{
    json_t *names = keep_json(json_object());
    size_t i;
    json_t *entity;
    json_array_foreach(entities, i, entity)
        json_object_set(names, text_at(entity, "/id"), at(entity, key));
    ck_assert_uint_eq(json_object_size(names), json_array_size(entities));
    return names;
}

/* A list of ids as the names of what they identify. */
static json_t *named(json_t *ids, json_t *names)
{
    json_t *list = keep_json(json_array());
    size_t i;
    json_t *id;
    json_array_foreach(ids, i, id)
        json_array_append(list, at(names, keep_text("/%s", json_string_value(id))));
    return list;
}

/* A task as the golden file states it. `work` is the pointer of its work vector. */
static json_t *golden_task(json_t *task, json_t *names, const char *work)
{
    json_t *form = keep_json(json_deep_copy(at(task, work)));
    json_object_set(form, "name", at(task, "/name"));
    json_object_set(form, "phase", at(task, "/phase"));
    json_object_set(form, "engine", at(task, "/engine"));
    json_object_set(form, "dependencies", named(at(task, "/dependencies"), names));
    return form;
}

static void expect_tasks(json_t *snapshot, const char *work, json_t *expected)
{
    json_t *tasks = at(snapshot, "/tasks"), *names = names_by_id(tasks, "/name"), *task;
    size_t i;
    ck_assert_uint_eq(json_array_size(tasks), json_array_size(expected));
    json_array_foreach(tasks, i, task)
        expect_equal(golden_task(task, names, work), json_array_get(expected, i), work);
}

/* The concrete buffer of a portable one. */
static json_t *placed(json_t *concrete, const char *source)
{
    size_t i;
    json_t *buffer;
    json_array_foreach(at(concrete, "/buffers"), i, buffer)
        if (strcmp(text_at(buffer, "/source"), source) == 0)
            return buffer;
    ck_abort_msg("no concrete buffer of %s", source);
}

static void expect_buffers(json_t *portable, json_t *concrete, json_t *expected)
{
    json_t *names = names_by_id(at(portable, "/tasks"), "/name"), *buffer;
    size_t i;
    ck_assert_uint_eq(json_array_size(at(portable, "/buffers")), json_array_size(expected));
    ck_assert_uint_eq(json_array_size(at(concrete, "/buffers")), json_array_size(expected));
    json_array_foreach(at(portable, "/buffers"), i, buffer) {
        json_t *place = placed(concrete, text_at(buffer, "/id"));
        json_t *form = keep_json(
            json_pack("{s:O, s:O, s:O, s:O, s:O, s:O}", "role", at(buffer, "/role"), "storage", at(buffer, "/storage"),
                      "size_bytes", at(buffer, "/size_bytes"), "offset_bytes", at(place, "/offset_bytes"), "producers",
                      named(at(buffer, "/producers"), names), "consumers", named(at(buffer, "/consumers"), names)));
        expect_equal(form, json_array_get(expected, i), "buffer");
        expect_equal(at(place, "/size_bytes"), at(buffer, "/size_bytes"), "placed size");
        expect_equal(at(place, "/alignment_bytes"), at(buffer, "/alignment_bytes"), "placed alignment");
    }
}

/* How many expected tasks have `value` at `key`; all of them for NULL. */
static size_t count_tasks(json_t *tasks, const char *key, const char *value)
{
    size_t i, n = 0;
    json_t *task;
    json_array_foreach(tasks, i, task)
        n += !key || strcmp(text_at(task, key), value) == 0;
    return n;
}

static void expect_total(json_t *fact, json_t *total, size_t n_tasks, const char *what)
{
    json_t *form = keep_json(json_deep_copy(total)), *actual = keep_json(json_deep_copy(fact));
    json_object_set_new(form, "tasks", json_integer((json_int_t)n_tasks));
    json_object_del(actual, "by_phase");
    json_object_del(actual, "by_engine");
    json_object_del(actual, "memory");
    json_object_del(actual, "scope");
    expect_equal(actual, form, what);
}

static void expect_totals(json_t *facts, json_t *expected)
{
    json_t *totals = at(expected, "/totals"), *tasks = at(expected, "/tasks"), *total;
    const char *name;
    size_t n = 1;
    expect_total(facts, at(totals, "/all"), count_tasks(tasks, NULL, NULL), "all");
    json_object_foreach(totals, name, total) {
        if (strcmp(name, "all") == 0)
            continue;
        bool is_phase = has(facts, keep_text("/by_phase/%s", name));
        json_t *fact = at(facts, keep_text("/%s/%s", is_phase ? "by_phase" : "by_engine", name));
        expect_total(fact, total, count_tasks(tasks, is_phase ? "/phase" : "/engine", name), name);
        n++;
    }
    ck_assert_uint_eq(json_object_size(at(facts, "/by_phase")) + json_object_size(at(facts, "/by_engine")) + 1, n);
}

static void expect_commands(json_t *portable, json_t *concrete)
{
    json_t *tasks = at(portable, "/tasks"), *task;
    json_t *task_of = names_by_id(at(concrete, "/commands"), "/task");
    size_t i;
    ck_assert_uint_eq(json_array_size(at(concrete, "/commands")), json_array_size(tasks));
    json_array_foreach(tasks, i, task) {
        json_t *command = at(concrete, keep_text("/commands/%zu", i));
        expect_equal(at(command, "/task"), at(task, "/id"), "the command's task");
        expect_equal(named(at(command, "/dependencies"), task_of), at(task, "/dependencies"), "dependencies");
    }
}

static void expect_layout_end(json_t *concrete, json_t *expected)
{
    json_t *buffers = at(concrete, "/buffers");
    json_t *last = json_array_get(buffers, json_array_size(buffers) - 1);
    ck_assert_int_eq(int_at(last, "/offset_bytes") + int_at(last, "/size_bytes"), int_at(expected, "/layout_end"));
}

START_TEST(test_golden__every_number_of_the_case_comes_out_over_http)
{
    const char *name = cases[_i / N_TARGETS], *kind = target_kinds[_i % N_TARGETS];
    json_t *expected = json_file(CASES "/%s/expected.json", name);
    json_t *request = json_file(CASES "/%s/request.json", name);
    json_int_t degree = int_at(request, "/strategy/tensor_parallel");
    /* The device has exactly what the layout takes. */
    json_t *plan = plan_of(with_target(request, kind, degree, int_at(expected, "/layout_end")), 201);
    ck_assert_str_eq(text_at(plan, "/state"), "committed");

    json_t *distributed = snapshot_of(plan, "distributed"), *portable = snapshot_of(plan, "portable");
    json_t *concrete = snapshot_of(plan, "concrete");
    ck_assert_str_eq(text_at(snapshot_of(plan, "model"), "/mode"), text_at(request, "/workload/mode"));
    expect_tasks(distributed, "/work", at(expected, "/tasks"));
    expect_tasks(portable, "/workload", at(expected, "/tasks"));
    expect_equal(at(distributed, "/memory"), at(expected, "/memory"), "memory of the distributed stage");
    expect_equal(at(plan, "/facts/memory"), at(expected, "/memory"), "memory of the plan");
    expect_totals(at(plan, "/facts"), expected);
    expect_buffers(portable, concrete, at(expected, "/buffers"));
    expect_commands(portable, concrete);
    expect_layout_end(concrete, expected);
    ck_assert_str_eq(text_at(concrete, "/target/kind"), kind);
}
END_TEST

START_TEST(test_golden__there_are_cases)
{
    ck_assert_int_ge(n_cases, 10);
}
END_TEST

/* What each pass at its revision is held to: its checks, its laws, and the digest it derives for every golden case. A
 * revision rises with the derivation, the checks, the laws or the schema, so a change without a new revision shows. */
static void add_plan(json_t *table, const char *name, json_t *plan)
{
    size_t i;
    json_t *derivation;
    json_array_foreach(at(plan, "/derivations"), i, derivation) {
        json_t *row = at(table, keep_text("/%s", text_at(derivation, "/pass")));
        json_object_set(at(row, "/digests"), name, at(derivation, "/target"));
        expect_equal(at(derivation, "/revision"), at(row, "/revision"), "revision");
    }
}

static json_t *ids_of(json_t *list)
{
    json_t *ids = keep_json(json_array()), *item;
    size_t i;
    json_array_foreach(list, i, item)
        json_array_append(ids, at(item, "/id"));
    return ids;
}

static json_t *pass_table(void)
{
    json_t *table = keep_json(json_object()), *pass;
    size_t i;
    json_array_foreach(at(http_get("/v1/passes").json, "/passes"), i, pass)
        json_object_set_new(table, text_at(pass, "/name"),
                            json_pack("{s:O, s:{}, s:O, s:O}", "revision", at(pass, "/revision"), "digests", "checks",
                                      ids_of(at(pass, "/checks")), "laws", ids_of(at(pass, "/laws"))));
    for (int j = 0; j < n_cases * N_TARGETS; j++) {
        json_t *request = json_file(CASES "/%s/request.json", cases[j / N_TARGETS]);
        json_int_t degree = int_at(request, "/strategy/tensor_parallel");
        add_plan(table, cases[j / N_TARGETS],
                 plan_of(with_target(request, target_kinds[j % N_TARGETS], degree, INT64_C(1) << 36), 201));
    }
    return table;
}

/* Rows that changed without a new revision. */
static void expect_kept(json_t *table, json_t *expected)
{
    json_t *row;
    const char *name;
    json_object_foreach(table, name, row) {
        json_t *kept = at(expected, keep_text("/%s", name));
        if (int_at(row, "/revision") == int_at(kept, "/revision"))
            expect_equal(row, kept, keep_text("%s changed: raise its revision, then make golden", name));
    }
}

START_TEST(test_golden__each_pass_at_its_revision_keeps_its_digests_and_checks)
{
    json_t *table = pass_table();
    bool write = getenv("BP_GOLDEN_WRITE") != NULL;
    if (access(TABLE, F_OK) == 0 || !write)
        expect_kept(table, json_file(TABLE));
    if (write)
        ck_assert_int_eq(json_dump_file(table, TABLE, JSON_INDENT(1) | JSON_SORT_KEYS), 0);
    expect_equal(table, json_file(TABLE), TABLE);
}
END_TEST

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list_cases(void)
{
    DIR *directory = opendir(CASES);
    for (struct dirent *entry; directory && n_cases < CASES_MAX && (entry = readdir(directory));) {
        if (entry->d_name[0] == '.')
            continue;
        static char names[CASES_MAX][256];
        cases[n_cases] = strcpy(names[n_cases], entry->d_name);
        n_cases++;
    }
    if (directory)
        closedir(directory);
    qsort(cases, (size_t)n_cases, sizeof *cases, compare_names);
}

Suite *suite_golden(void)
{
    Suite *suite = suite_create("api golden");
    TCase *tcase = server_tcase(suite, "golden");
    list_cases();
    tcase_add_test(tcase, test_golden__there_are_cases);
    tcase_add_test(tcase, test_golden__each_pass_at_its_revision_keeps_its_digests_and_checks);
    tcase_add_loop_test(tcase, test_golden__every_number_of_the_case_comes_out_over_http, 0, n_cases * N_TARGETS);
    return suite;
}
