/* Ids are made of content: the same entity has the same id wherever it is derived, different ones never share one. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/runner.h"
#include "tests/property/derive.h"

/* A set of fixed-size keys: open addressing, keys are hashes already. */
struct set {
    uint8_t (*at)[32];
    size_t n, room; /* room is a power of two */
};

static bool set_add(struct set *set, const uint8_t *key, size_t n_key);

static void set_grow(struct set *set)
{
    struct set larger = {.room = set->room ? set->room * 2 : 1024};
    larger.at = calloc(larger.room, sizeof(*larger.at));
    ck_assert(larger.at != NULL);
    for (size_t i = 0; i < set->room; i++)
        if (set->at[i][31])
            set_add(&larger, set->at[i], 31);
    free(set->at);
    *set = larger;
}

/* False when it was there. At most 31 bytes of a key count; the last byte marks a place that is taken. */
static bool set_add(struct set *set, const uint8_t *key, size_t n_key)
{
    uint8_t padded[32] = {0};
    uint64_t place;
    if (set->n * 2 >= set->room)
        set_grow(set);
    memcpy(padded, key, n_key < 31 ? n_key : 31);
    padded[31] = 1;
    memcpy(&place, padded, sizeof(place));
    for (place &= set->room - 1; set->at[place][31]; place = (place + 1) & (set->room - 1))
        if (memcmp(set->at[place], padded, sizeof(padded)) == 0)
            return false;
    memcpy(set->at[place], padded, sizeof(padded));
    set->n++;
    return true;
}

struct ids {
    struct set ids, snapshots, models;
    const struct derived *derived;
};

static void expect_new(struct ids *ids, const struct bp_id *id, enum bp_entity_kind kind)
{
    char text[BP_ID_TEXT];
    bp_id_format(id, text);
    EXPECT(ids->derived, id->kind == kind, "%s is of the wrong kind", text);
    EXPECT(ids->derived, set_add(&ids->ids, id->hash, sizeof(id->hash)), "two entities are %s", text);
}

static void add_distributed(struct ids *ids, const struct bp_distributed_ir *ir)
{
    for (uint32_t i = 0; i < ir->n_values; i++)
        expect_new(ids, &ir->values[i].id, BP_ENTITY_VALUE);
    for (uint32_t i = 0; i < ir->n_tasks; i++)
        expect_new(ids, &ir->tasks[i].id, BP_ENTITY_TASK);
}

static void add_portable(struct ids *ids, const struct bp_portable_ir *ir)
{
    for (uint32_t i = 0; i < ir->n_tasks; i++)
        expect_new(ids, &ir->tasks[i].id, BP_ENTITY_TASK);
    for (uint32_t i = 0; i < ir->n_buffers; i++)
        expect_new(ids, &ir->buffers[i].id, BP_ENTITY_BUFFER);
}

static void add_concrete(struct ids *ids, const struct bp_concrete_ir *ir)
{
    for (uint32_t i = 0; i < ir->n_regions; i++)
        expect_new(ids, &ir->regions[i].id, BP_ENTITY_REGION);
    for (uint32_t i = 0; i < ir->n_buffers; i++)
        expect_new(ids, &ir->buffers[i].id, BP_ENTITY_BUFFER);
    for (uint32_t i = 0; i < ir->n_commands; i++)
        expect_new(ids, &ir->commands[i].id, BP_ENTITY_COMMAND);
}

/* The model's ids are those of its transformer form, in training as in inference; every later stage has its own. */
static void add_snapshot(struct ids *ids, const struct bp_snapshot *snapshot, const struct bp_digest *transformer)
{
    if (!set_add(&ids->snapshots, snapshot->digest.bytes, sizeof(snapshot->digest.bytes)))
        return;
    if (snapshot->ir.stage == BP_STAGE_MODEL) {
        if (!set_add(&ids->models, transformer->bytes, sizeof(transformer->bytes)))
            return;
        for (uint32_t i = 0; i < snapshot->ir.as.model->n_values; i++)
            expect_new(ids, &snapshot->ir.as.model->values[i].id, BP_ENTITY_VALUE);
        for (uint32_t i = 0; i < snapshot->ir.as.model->n_operations; i++)
            expect_new(ids, &snapshot->ir.as.model->operations[i].id, BP_ENTITY_OPERATION);
    } else if (snapshot->ir.stage == BP_STAGE_DISTRIBUTED) {
        add_distributed(ids, snapshot->ir.as.distributed);
    } else if (snapshot->ir.stage == BP_STAGE_PORTABLE) {
        add_portable(ids, snapshot->ir.as.portable);
    } else {
        add_concrete(ids, snapshot->ir.as.concrete);
    }
}

/* The request again with something else in one place, which is new to it. */
static void change_one(struct gen *gen, json_t *body)
{
    json_t *workload = json_object_get(body, "workload"), *strategy = json_object_get(body, "strategy");
    json_t *deployment = json_object_get(body, "deployment");
    const bool training = json_object_get(workload, "sequence_length") != NULL;
    const char *batch = training ? "global_batch_size" : "batch_size";
    const json_int_t size = json_integer_value(json_object_get(workload, batch));
    if (deployment && gen_chance(gen, 40))
        json_object_set_new(deployment, "memory_bytes",
                            json_integer((INT64_C(1) << 52) + (json_int_t)gen_range(gen, 0, 99)));
    else if (training && gen_chance(gen, 50))
        json_object_set_new(strategy, "recompute_activation",
                            json_boolean(!json_is_true(json_object_get(strategy, "recompute_activation"))));
    else
        json_object_set_new(workload, batch, json_integer(size * 3));
}

START_TEST(test_ids__no_two_entities_share_one)
{
    const unsigned n = gen_cases(150);
    struct ids ids = {.derived = NULL};
    for (unsigned i = 0; i < n; i++) {
        struct derived derived;
        struct gen gen = gen_of_case(5000000 + i);
        derive(&derived,
               gen_request(&gen, &(struct gen_shape){
                                     .bits = 10, .training = gen_chance(&gen, 60), .target = gen_chance(&gen, 70)}));
        ids.derived = &derived;
        for (int changes = 0; changes < 4; changes++) {
            EXPECT(&derived, derived.accepted && derived.outcome.state == BP_PLAN_COMMITTED, "%s",
                   derived_findings(&derived));
            for (size_t s = 0; s < derived.outcome.n_snapshots; s++)
                add_snapshot(&ids, &derived.outcome.snapshots[s], &derived.outcome.fingerprints.transformer);
            change_one(&gen, derived.body);
            derive_again(&derived);
        }
        derived_release(&derived);
    }
    ck_assert_uint_gt(ids.ids.n, 100 * (size_t)n);
    free(ids.ids.at);
    free(ids.snapshots.at);
    free(ids.models.at);
}
END_TEST

static struct bp_digest digest_of(const struct derived *derived, enum bp_stage stage)
{
    EXPECT(derived, derived->accepted && derived->outcome.n_snapshots > (size_t)stage, "%s", derived_findings(derived));
    return derived->outcome.snapshots[stage].digest;
}

/* A binding changes the stage it enters and those after it, and no other. */
START_TEST(test_ids__a_binding_changes_what_comes_after_it)
{
    static const char *const kinds[] = {"reference-slot", "reference-queue"};
    const unsigned n = gen_cases(100);
    for (unsigned i = 0; i < n; i++) {
        struct derived derived;
        struct bp_digest before[BP_STAGE_N], id;
        struct gen gen = gen_of_case(6000000 + i);
        derive(&derived, gen_request(&gen, &(struct gen_shape){.bits = 10, .training = true, .target = true}));
        for (enum bp_stage stage = 0; stage < BP_STAGE_N; stage++)
            before[stage] = digest_of(&derived, stage);
        id = derived.outcome.id;
        json_object_set_new(json_object_get(derived.body, "target"), "kind",
                            json_string(kinds[derived.request.target.kind == BP_TARGET_SLOT ? 1 : 0]));
        derive_again(&derived);
        for (enum bp_stage stage = 0; stage < BP_STAGE_N; stage++) {
            const struct bp_digest after = digest_of(&derived, stage);
            EXPECT(&derived, bp_digest_equal(&before[stage], &after) == (stage < BP_STAGE_CONCRETE), "target: %s",
                   bp_stage_names[stage]);
        }
        EXPECT(&derived, !bp_digest_equal(&id, &derived.outcome.id), "another target is the same plan");
        const json_int_t batch =
            json_integer_value(json_object_get(json_object_get(derived.body, "workload"), "global_batch_size"));
        json_object_set_new(json_object_get(derived.body, "workload"), "global_batch_size", json_integer(batch * 2));
        derive_again(&derived);
        for (enum bp_stage stage = 0; stage < BP_STAGE_N; stage++) {
            const struct bp_digest after = digest_of(&derived, stage);
            EXPECT(&derived, bp_digest_equal(&before[stage], &after) == (stage < BP_STAGE_DISTRIBUTED), "workload: %s",
                   bp_stage_names[stage]);
        }
        derived_release(&derived);
    }
}
END_TEST

/* Says in another way what the request says already, or says something that has no effect in it. */
static void say_otherwise(struct gen *gen, json_t *body)
{
    json_t *strategy = json_object_get(body, "strategy"), *model = json_object_get(body, "model");
    const json_t *degree = json_object_get(strategy, "tensor_parallel");
    const bool alone = !degree || json_integer_value(degree) == 1;
    const json_t *ranks = json_object_get(strategy, "data_parallel"),
                 *stages = json_object_get(strategy, "pipeline_parallel");
    const json_t *again = json_object_get(strategy, "recompute");
    static const char *const schedules[] = {"none", "1f1b", "gpipe", "interleaved"};
    model = json_object_get(model, "transformer");
    if (!degree)
        json_object_set_new(strategy, "tensor_parallel", json_integer(1));
    if (alone)
        json_object_set_new(strategy, "sequence_parallel", json_boolean(gen_chance(gen, 50)));
    if (alone || !json_is_true(json_object_get(strategy, "sequence_parallel")) ||
        (again && strcmp(json_string_value(again), "full") == 0))
        json_object_set_new(strategy, "recompute_all_gather", json_boolean(gen_chance(gen, 50)));
    if (!ranks || json_integer_value(ranks) == 1)
        json_object_set_new(strategy, "zero_stage", json_integer((json_int_t)gen_range(gen, 0, 3)));
    if (!stages || json_integer_value(stages) == 1)
        json_object_set_new(strategy, "pipeline_schedule", json_string(schedules[gen_range(gen, 0, 3)]));
    if (!json_object_get(model, "num_key_value_heads"))
        json_object_set(model, "num_key_value_heads", json_object_get(model, "num_attention_heads"));
    if (strcmp(json_string_value(json_object_get(model, "position")), "learned") != 0)
        json_object_set_new(model, "max_position_embeddings", json_integer((json_int_t)gen_range(gen, 1, 9)));
    if (!json_object_get(json_object_get(body, "workload"), "gradient_dtype"))
        json_object_set_new(json_object_get(body, "workload"), "gradient_dtype", json_string("float32"));
    /* The order of keys says nothing. */
    json_object_set_new(body, "model", json_pack("{s:O}", "transformer", model));
    json_t *workload = json_incref(json_object_get(body, "workload"));
    json_object_del(body, "workload");
    json_object_set_new(body, "workload", workload);
}

START_TEST(test_ids__what_means_the_same_is_the_same_plan)
{
    const unsigned n = gen_cases(400);
    for (unsigned i = 0; i < n; i++) {
        struct derived derived;
        struct gen gen = gen_of_case(7000000 + i);
        derive(&derived, gen_request(&gen, &(struct gen_shape){.bits = 8, .training = true, .target = false}));
        EXPECT(&derived, derived.accepted, "%s", derived_findings(&derived));
        const struct bp_digest id = derived.outcome.id;
        say_otherwise(&gen, derived.body);
        derive_again(&derived);
        EXPECT(&derived, derived.accepted, "%s", derived_findings(&derived));
        EXPECT(&derived, bp_digest_equal(&id, &derived.outcome.id), "the same said otherwise is another plan");
        derived_release(&derived);
    }
}
END_TEST

/* The name is a label: part of the plan's id and of no snapshot. */
START_TEST(test_ids__a_name_is_in_no_snapshot)
{
    struct derived derived;
    struct bp_digest id, last;
    struct gen gen = gen_of_case(8000000);
    derive(&derived, gen_request(&gen, &(struct gen_shape){.bits = 8, .training = true, .target = true}));
    id = derived.outcome.id;
    last = digest_of(&derived, BP_STAGE_CONCRETE);
    json_object_set_new(json_object_get(json_object_get(derived.body, "model"), "transformer"), "name",
                        json_string("another"));
    derive_again(&derived);
    const struct bp_digest after = digest_of(&derived, BP_STAGE_CONCRETE);
    EXPECT(&derived, bp_digest_equal(&last, &after), "the name is in a snapshot");
    EXPECT(&derived, !bp_digest_equal(&id, &derived.outcome.id), "the name is not in the id");
    derived_release(&derived);
}
END_TEST

Suite *suite_ids(void)
{
    Suite *suite = suite_create("ids");
    TCase *tcase = tcase_create("ids");
    tcase_set_timeout(tcase, 0); /* bounded by BP_PROPERTY_CASES */
    tcase_add_test(tcase, test_ids__no_two_entities_share_one);
    tcase_add_test(tcase, test_ids__a_binding_changes_what_comes_after_it);
    tcase_add_test(tcase, test_ids__what_means_the_same_is_the_same_plan);
    tcase_add_test(tcase, test_ids__a_name_is_in_no_snapshot);
    suite_add_tcase(suite, tcase);
    return suite;
}
