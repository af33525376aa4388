/* The two targets from one portable plan, the layout's recurrence, and a deployment that is too small. */
#include <string.h>

#include "tests/api/expect.h"
#include "tests/api/server.h"

static const json_int_t plenty = INT64_C(1) << 34;

static json_t *targeted(const char *kind)
{
    return with_target(small_request(), kind, 2, plenty);
}

static json_int_t layout_end(json_t *concrete)
{
    json_t *buffers = at(concrete, "/buffers");
    json_t *last = json_array_get(buffers, json_array_size(buffers) - 1);
    return int_at(last, "/offset_bytes") + int_at(last, "/size_bytes");
}

START_TEST(test_targets__both_targets_come_from_one_portable_snapshot)
{
    json_t *queue = plan_of(targeted("reference-queue"), 201), *slot = plan_of(targeted("reference-slot"), 201);
    json_t *none = plan_of(small_request(), 201);
    ck_assert_str_ne(text_at(queue, "/id"), text_at(slot, "/id"));
    static const char *const stages[] = {"model", "distributed", "portable"};
    for (size_t i = 0; i < 3; i++) {
        ck_assert_str_eq(digest_of(queue, stages[i]), digest_of(slot, stages[i]));
        ck_assert_str_eq(digest_of(queue, stages[i]), digest_of(none, stages[i]));
    }
    ck_assert_str_ne(digest_of(queue, "concrete"), digest_of(slot, "concrete"));
    ck_assert_uint_eq(json_array_size(at(none, "/snapshots")), 3);
    /* Shared snapshots are stored once: three, and two concrete ones. */
    ck_assert_int_eq(server_count(&server, "SELECT count(*) FROM snapshots"), 5);
}
END_TEST

static void expect_recurrence(json_t *concrete)
{
    json_int_t end = 0;
    size_t i;
    json_t *buffer;
    json_array_foreach(at(concrete, "/buffers"), i, buffer) {
        json_int_t alignment = int_at(buffer, "/alignment_bytes");
        if (alignment < 16)
            alignment = 16;
        ck_assert_int_eq(int_at(buffer, "/offset_bytes"), (end + alignment - 1) / alignment * alignment);
        end = int_at(buffer, "/offset_bytes") + int_at(buffer, "/size_bytes");
    }
    ck_assert_int_gt(end, 0);
}

START_TEST(test_targets__offsets_obey_the_recurrence)
{
    expect_recurrence(snapshot_of(plan_of(targeted("reference-queue"), 201), "concrete"));
    expect_recurrence(snapshot_of(plan_of(targeted("reference-slot"), 201), "concrete"));
}
END_TEST

/* The ids of the commands of a kind, in their order. */
static json_t *commands_of(json_t *concrete, const char *kind)
{
    json_t *list = keep_json(json_array()), *command;
    size_t i;
    json_array_foreach(at(concrete, "/commands"), i, command)
        if (strcmp(text_at(command, "/kind"), kind) == 0)
            json_array_append(list, at(command, "/id"));
    return list;
}

START_TEST(test_targets__queues_hold_the_commands_of_their_kind_in_order)
{
    static const char *const names[] = {"compute", "collective", "transfer", "host"};
    json_t *concrete = snapshot_of(plan_of(targeted("reference-queue"), 201), "concrete");
    ck_assert_str_eq(text_at(concrete, "/extension/kind"), "queue-order");
    ck_assert_uint_eq(json_array_size(at(concrete, "/extension/queues")), 4);
    for (size_t i = 0; i < 4; i++) {
        json_t *queue = at(concrete, keep_text("/extension/queues/%zu", i));
        ck_assert_str_eq(text_at(queue, "/queue"), names[i]);
        expect_equal(at(queue, "/commands"), commands_of(concrete, names[i]), names[i]);
    }
    ck_assert_uint_gt(json_array_size(commands_of(concrete, "compute")), 0);
    ck_assert_uint_gt(json_array_size(commands_of(concrete, "collective")), 0);
}
END_TEST

START_TEST(test_targets__slots_issue_every_command_after_what_it_waits_for)
{
    json_t *concrete = snapshot_of(plan_of(targeted("reference-slot"), 201), "concrete"), *command, *dependency;
    json_t *cycles = keep_json(json_object());
    size_t i, j;
    ck_assert_str_eq(text_at(concrete, "/extension/kind"), "slot-dataflow");
    ck_assert_uint_eq(json_array_size(at(concrete, "/extension/routes")), 0);
    json_array_foreach(at(concrete, "/extension/issue"), i, command) {
        ck_assert_int_eq(int_at(command, "/cycle"), (json_int_t)i);
        ck_assert_int_eq(int_at(command, "/slot"), 0);
        json_object_set(cycles, text_at(command, "/command"), at(command, "/cycle"));
    }
    ck_assert_uint_eq(json_object_size(cycles), json_array_size(at(concrete, "/commands")));
    json_array_foreach(at(concrete, "/commands"), i, command) {
        ck_assert(json_is_null(at(command, "/queue")));
        json_int_t cycle = int_at(cycles, keep_text("/%s", text_at(command, "/id")));
        json_array_foreach(at(command, "/dependencies"), j, dependency)
            ck_assert_int_lt(int_at(cycles, keep_text("/%s", json_string_value(dependency))), cycle);
    }
}
END_TEST

static const char *largest_buffer(json_t *plan)
{
    json_t *buffer, *largest = NULL;
    size_t i;
    json_array_foreach(at(snapshot_of(plan, "portable"), "/buffers"), i, buffer)
        if (!largest || int_at(buffer, "/size_bytes") > int_at(largest, "/size_bytes"))
            largest = buffer;
    return text_at(largest, "/role");
}

START_TEST(test_targets__a_device_one_byte_too_small_is_refused_with_the_shortfall)
{
    static const char *const kinds[] = {"reference-queue", "reference-slot"};
    const char *kind = kinds[_i];
    json_t *plan = plan_of(targeted(kind), 201);
    json_int_t end = layout_end(snapshot_of(plan, "concrete"));
    json_t *exact = plan_of(with_target(small_request(), kind, 2, end), 201);
    ck_assert_str_eq(digest_of(exact, "portable"), digest_of(plan, "portable"));

    struct reply short_of = post_plan(with_target(small_request(), kind, 2, end - 1));
    expect_problem(&short_of, 422, "capacity_exceeded");
    ck_assert_ptr_nonnull(strstr(short_of.body, ": 1 short"));
    struct reply far = post_plan(with_target(small_request(), kind, 2, 1));
    expect_problem(&far, 422, "capacity_exceeded");
    ck_assert_ptr_nonnull(strstr(far.body, keep_text(": %lld short", (long long)(end - 1))));
    ck_assert_ptr_nonnull(strstr(far.body, keep_text("largest buffers are %s", largest_buffer(plan))));

    const char *id = text_at(short_of.json, "/plan");
    struct reply again = post_plan(with_target(small_request(), kind, 2, end - 1));
    ck_assert_int_eq(again.status, 422);
    expect_equal(again.json, short_of.json, "the same refusal");

    struct reply stored = http_get("/v1/plans/%s", id);
    ck_assert_int_eq(stored.status, 200);
    ck_assert_str_eq(text_at(stored.json, "/state"), "rejected");
    ck_assert_str_eq(text_at(stored.json, "/diagnostics/0/code"), "capacity_exceeded");
    /* The stages that committed before it stay; nothing of the binder is published. */
    ck_assert_uint_eq(json_array_size(at(stored.json, "/snapshots")), 3);
    ck_assert_uint_eq(json_array_size(at(stored.json, "/derivations")), 2);
}
END_TEST

START_TEST(test_targets__a_quantity_too_large_is_a_rejected_plan)
{
    json_t *request = small_request();
    set_at(request, "/workload/sequence_length", json_integer(INT64_C(1) << 40));
    struct reply reply = post_plan(request);
    expect_problem(&reply, 422, "quantity_overflow");
    struct reply again = post_plan(request);
    expect_equal(again.json, reply.json, "the same refusal");
}
END_TEST

Suite *suite_targets(void)
{
    Suite *suite = suite_create("api targets");
    TCase *tcase = server_tcase(suite, "targets");
    tcase_add_test(tcase, test_targets__both_targets_come_from_one_portable_snapshot);
    tcase_add_test(tcase, test_targets__offsets_obey_the_recurrence);
    tcase_add_test(tcase, test_targets__queues_hold_the_commands_of_their_kind_in_order);
    tcase_add_test(tcase, test_targets__slots_issue_every_command_after_what_it_waits_for);
    tcase_add_loop_test(tcase, test_targets__a_device_one_byte_too_small_is_refused_with_the_shortfall, 0, 2);
    tcase_add_test(tcase, test_targets__a_quantity_too_large_is_a_rejected_plan);
    return suite;
}
