/* The gate over snapshots as text: whatever is changed in one, the decoder or some check refuses it. Every member is
 * changed in turn; BP_LONG takes all of all plans, else every seventh of one. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/gate_fixture.h"
#include "tests/unit/reading.h"

/* Members that are the derivation's own statement: laws hold the operations of matrix work, of inference and of what is
 * done again; whether a row keeps what has no bytes changes nothing. */
static const char *const free_members[] = {"operations", "keeps_activation", "keeps_output", "owns_activation"};

struct tour {
    const struct plan *plan;
    enum bp_stage stage;
    json_t *root;
    unsigned step, visited, tried;
};

static bool is_free(const struct tour *tour, const char *key)
{
    for (size_t i = 0; i < sizeof free_members / sizeof *free_members; i++)
        if (strcmp(key, free_members[i]) == 0)
            return tour->stage == BP_STAGE_DISTRIBUTED;
    return false;
}

static bool is_due(struct tour *tour)
{
    return tour->visited++ % tour->step == 0;
}

/* The changed text through decoder, checks and laws. */
static void expect_refused(struct tour *tour, const char *path)
{
    struct spoiled copy;
    struct bp_ir ir;
    struct bp_evidence evidence[BP_EVIDENCE_MAX];
    char *text = json_dumps(tour->root, JSON_COMPACT | JSON_SORT_KEYS);
    spoiled_copy(&copy, tour->plan, tour->stage);
    if (bp_ir_decode(tour->stage, text, strlen(text), &copy.arena, &ir, NULL) == 0) {
        if (tour->stage == BP_STAGE_CONCRETE)
            ((struct bp_concrete_ir *)ir.as.concrete)->binding = copy.concrete->binding;
        copy.gate.target = ir;
        spoiled_check(&copy, evidence);
        spoiled_hold_to_laws(&copy, evidence);
        ck_assert_msg(!bp_problems_none(&copy.findings), "%s can be changed in stage %s and nothing notices", path,
                      bp_stage_names[tour->stage]);
    }
    tour->tried++;
    spoiled_release(&copy);
    free(text);
}

/* Another value of the same type; NULL for a type that has none here. */
static json_t *changed(const json_t *value)
{
    char text[256];
    if (json_is_integer(value))
        return json_integer(json_integer_value(value) + 1);
    if (json_is_boolean(value))
        return json_boolean(!json_is_true(value));
    if (json_is_null(value))
        return json_string("pipeline");
    if (!json_is_string(value) || json_string_length(value) == 0 || json_string_length(value) >= sizeof text)
        return NULL;
    strcpy(text, json_string_value(value));
    char *last = text + strlen(text) - 1;
    *last = *last == '0' ? '1' : *last == 'a' ? 'b' : *last >= '1' && *last <= '9' ? (char)(*last - 1) : 'a';
    return json_string(text);
}

static void visit(struct tour *tour, json_t *value, const char *path);

static void visit_members(struct tour *tour, json_t *object, const char *path)
{
    const char *key;
    json_t *member;
    json_object_foreach(object, key, member) {
        char inner[512];
        snprintf(inner, sizeof inner, "%s/%s", path, key);
        json_t *other = changed(member);
        if (other && !is_free(tour, key) && is_due(tour)) {
            json_t *kept = json_deep_copy(member);
            json_object_set(object, key, other);
            expect_refused(tour, inner);
            json_object_set_new(object, key, kept);
        } else if (!other) {
            visit(tour, member, inner);
        }
        json_decref(other);
    }
}

/* Each element is changed, and left out. */
static void visit_elements(struct tour *tour, json_t *array, const char *path)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        char inner[512];
        snprintf(inner, sizeof inner, "%s/%zu", path, i);
        json_t *kept = json_incref(json_array_get(array, i)), *other = changed(kept);
        if (other && is_due(tour)) {
            json_array_set(array, i, other);
            expect_refused(tour, inner);
            json_array_set(array, i, kept);
        } else if (!other) {
            visit(tour, kept, inner);
        }
        if (is_due(tour)) {
            json_array_remove(array, i);
            expect_refused(tour, inner);
            json_array_insert(array, i, kept);
        }
        json_decref(other);
        json_decref(kept);
    }
}

static void visit(struct tour *tour, json_t *value, const char *path)
{
    if (json_is_object(value))
        visit_members(tour, value, path);
    else if (json_is_array(value))
        visit_elements(tour, value, path);
}

static void tour_plan(enum plan_name name, unsigned step)
{
    struct plan plan;
    plan_of(&plan, name);
    for (size_t stage = 0; stage < plan.outcome.n_snapshots; stage++) {
        const struct bp_buf *bytes = &plan.outcome.snapshots[stage].bytes;
        struct tour tour = {&plan, (enum bp_stage)stage, json_loadb(bytes->data, bytes->len, 0, NULL), step, 0, 0};
        visit(&tour, tour.root, "");
        ck_assert_uint_gt(tour.tried, 30 / step);
        json_decref(tour.root);
    }
    plan_release(&plan);
}

static bool takes_all(void)
{
    return getenv("BP_LONG") != NULL;
}

START_TEST(test_gate__no_member_of_a_snapshot_can_be_changed_unnoticed)
{
    tour_plan((enum plan_name)_i, takes_all() ? 1 : 7);
}
END_TEST

Suite *suite_gate_texts(void)
{
    const int first = takes_all() ? 0 : DECODE, end = takes_all() ? PLAN_NAME_N : DECODE + 1;
    Suite *suite = suite_create("gate_texts");
    TCase *core = tcase_create("texts");
    tcase_set_timeout(core, 1200);
    tcase_add_loop_test(core, test_gate__no_member_of_a_snapshot_can_be_changed_unnoticed, first, end);
    suite_add_tcase(suite, core);
    return suite;
}
