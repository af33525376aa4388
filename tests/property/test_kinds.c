/* Random models of one to three kinds of block, with any features: each plan equals the independent recomputation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/runner.h"
#include "tests/property/derive.h"
#include "tests/property/features.h"

static struct ref_plan plan;

static json_t *request_of_case(unsigned i, unsigned bits)
{
    struct gen gen = gen_of_case(i);
    struct gen_shape shape = {.bits = bits};
    shape.training = gen_chance(&gen, 60);
    shape.target = gen_chance(&gen, 50);
    return gen_request_of_kinds(&gen, &shape);
}

static void derive_both(struct derived *derived, json_t *body, struct ref_request *request)
{
    derive(derived, body);
    ck_assert(ref_request_read(derived->body, request));
    ref_plan_derive(request, &plan);
}

/* Every snapshot is compared; what a plan is taken through beside that, in every eighth case. */
START_TEST(test_kinds__equal_the_recomputation)
{
    const unsigned n = gen_cases(2000);
    struct features features = {{0}};
    for (unsigned i = 0; i < n; i++) {
        struct derived derived;
        struct ref_request request;
        derive_both(&derived, request_of_case(4000000 + i, 8), &request);
        if (i % 8 == 0)
            expect_committed(&derived, &request, &plan);
        else
            expect_same(&derived, &request, &plan);
        features_count(&features, &request);
        derived_release(&derived);
    }
    const char *missing = features_print(&features, 1);
    ck_assert_msg(n < 400 || !missing, "no case has this: %s", missing ? missing : "");
}
END_TEST

START_TEST(test_kinds__huge_dimensions_are_exact_or_refused)
{
    const unsigned n = gen_cases(200);
    unsigned n_committed = 0;
    for (unsigned i = 0; i < n; i++) {
        struct derived derived;
        struct ref_request request;
        struct gen gen = gen_of_case(5000000 + i);
        derive_both(&derived, request_of_case(6000000 + i, (unsigned)gen_range(&gen, 10, 50)), &request);
        n_committed += expect_exact_or_refused(&derived, &request, &plan);
        derived_release(&derived);
    }
    ck_assert_msg(n < 100 || (n_committed > n / 20 && n - n_committed > n / 20),
                  "%u of %u committed: the cases say little", n_committed, n);
}
END_TEST

/* ---- Each thing that is compared is compared ---- */

static struct ref_row *row_with_activation(void)
{
    size_t i = 0;
    while (plan.rows[i].A == 0 || !plan.rows[i].states_A || !plan.rows[i].states_O)
        i++;
    return &plan.rows[i];
}

static struct ref_task *a_collective(void)
{
    size_t i = 0;
    while (!plan.tasks[i].collective)
        i++;
    return &plan.tasks[i];
}

static void change(unsigned what)
{
    struct ref_task *task = &plan.tasks[plan.n_tasks / 2];
    struct ref_row *row = row_with_activation();
    wide *const numbers[] = {&task->work.operations,
                             &task->work.read,
                             &task->work.write,
                             &task->work.message,
                             &row->A,
                             &row->parameters,
                             &plan.blocks[1].layers,
                             &row->O,
                             &plan.memory.at[3].bytes,
                             &plan.blocks[1].memory.at[0].bytes};
    bool *const flags[] = {&row->keeps_A, &row->owns_A, &row->keeps_O, &task->waits_for[0], &task->uses_kv_cache};
    const char **const words[] = {&task->phase, &task->engine, &task->layer, &a_collective()->axis,
                                  &a_collective()->collective};
    const size_t n_numbers = sizeof(numbers) / sizeof(numbers[0]), n_flags = sizeof(flags) / sizeof(flags[0]);
    if (what < n_numbers)
        ++*numbers[what];
    else if (what < n_numbers + n_flags)
        *flags[what - n_numbers] ^= true;
    else if (what < n_numbers + n_flags + 5)
        *words[what - n_numbers - n_flags] = "other";
    else if (what == n_numbers + n_flags + 5)
        task->block++;
    else
        plan.blocks[1].name[0] = 'K';
}

enum { CHANGES = 22 };

#define OF_TWO_KINDS                                                                                                   \
    "{'model': {'transformer': {'name': 'two', 'hidden_size': 16, 'vocab_size': 9, 'num_hidden_layers': 3, "           \
    "'norm': 'layernorm', 'position': 'rope', 'kinds': [{'name': 'a', 'activation': 'swiglu', "                        \
    "'num_attention_heads': 4, 'intermediate_size': 32}, {'name': 'b', 'activation': 'gelu', 'num_attention_heads': "  \
    "4, 'num_experts': 4, 'experts_per_token': 3, 'expert_intermediate_size': 8}], "                                   \
    "'layers': [{'kind': 'a', 'count': 1}, {'kind': 'b', 'count': 2}]}}, "

static json_t *json_of(const char *text)
{
    char *quoted = strdup(text);
    ck_assert(quoted != NULL);
    for (char *at = quoted; (at = strchr(at, '\''));)
        *at = '"';
    json_error_t error;
    json_t *value = json_loads(quoted, 0, &error);
    ck_assert_msg(value != NULL, "%s at %d: %s", error.text, error.position, quoted);
    free(quoted);
    return value;
}

START_TEST(test_kinds__a_difference_is_seen)
{
    struct derived derived;
    struct ref_request request;
    struct compare compare;
    derive_both(&derived,
                json_of(OF_TWO_KINDS "'workload': {'mode': 'training', 'dtype': 'bfloat16', 'sequence_length': 8, "
                                     "'micro_batch_size': 1, 'global_batch_size': 2}, 'strategy': {'tensor_parallel': "
                                     "2, 'sequence_parallel': true, 'expert_parallel': 2, 'data_parallel': 2}}"),
                &request);
    expect_committed(&derived, &request, &plan);
    const struct bp_distributed_ir *ir = derived.outcome.snapshots[BP_STAGE_DISTRIBUTED].ir.as.distributed;
    ck_assert(compare_distributed(&compare, &request, &plan, ir));
    change((unsigned)_i);
    ck_assert_msg(!compare_distributed(&compare, &request, &plan, ir), "change %d is not seen", _i);
    derived_release(&derived);
}
END_TEST

/* ---- What was found ---- */

static void expect_plan(const char *text, struct derived *derived)
{
    struct ref_request request;
    derive_both(derived, json_of(text), &request);
    expect_committed(derived, &request, &plan);
}

static const struct ref_task *task_named(const char *name)
{
    for (size_t i = 0; i < plan.n_tasks; i++)
        if (strcmp(plan.tasks[i].name, name) == 0)
            return &plan.tasks[i];
    ck_abort_msg("no task %s", name);
}

#define OF_EXPERTS(n)                                                                                                  \
    "{'model': {'transformer': {'name': 'uneven', 'hidden_size': 5, 'vocab_size': 9, 'num_hidden_layers': 2, "         \
    "'norm': 'rmsnorm', 'position': 'rope', 'activation': 'swiglu', 'num_attention_heads': 5, 'num_experts': " #n ", " \
    "'experts_per_token': 1, 'expert_intermediate_size': 7}}, "

/* 2 * 5 elements do not divide over 3 ranks, and nobody divides them. */
START_TEST(test_kinds__what_goes_to_experts_need_not_divide_by_their_ranks)
{
    struct derived derived;
    expect_plan(OF_EXPERTS(3) "'workload': {'mode': 'training', 'dtype': 'float8', 'sequence_length': 2, "
                              "'micro_batch_size': 1, 'global_batch_size': 3}, "
                              "'strategy': {'expert_parallel': 3, 'data_parallel': 3, 'recompute': 'full'}}",
                &derived);
    ck_assert(task_named("moe.dispatch.forward.all_to_all")->work.message == 10);
    derived_release(&derived);
    expect_plan(OF_EXPERTS(3) "'workload': {'mode': 'inference', 'dtype': 'float8', 'phase': 'decode', "
                              "'batch_size': 2, 'context_length': 4}, "
                              "'strategy': {'expert_parallel': 3, 'replicas': 3}}",
                &derived);
    ck_assert(task_named("moe.dispatch")->work.message == 10);
    derived_release(&derived);
}
END_TEST

#define OF_LATENTS                                                                                                     \
    "{'model': {'transformer': {'name': 'latent', 'hidden_size': 8, 'vocab_size': 9, 'num_hidden_layers': 2, "         \
    "'norm': 'rmsnorm', 'position': 'alibi', 'activation': 'gelu', 'attention': 'latent', "                            \
    "'num_attention_heads': 2, 'kv_lora_rank': 5, 'qk_nope_head_dim': 3, 'qk_rope_head_dim': 2, 'v_head_dim': 4, "     \
    "'intermediate_size': 8, 'attention_soft_cap': true, 'attention_sinks': true}}, "

/* A score costs 5, and 3 for the cap, 1 for the bias; a query and a sink 5. */
START_TEST(test_kinds__what_is_done_to_scores_is_done_to_those_of_latent_attention)
{
    struct derived derived;
    expect_plan(OF_LATENTS "'workload': {'mode': 'inference', 'dtype': 'float16', 'phase': 'prefill', 'batch_size': 1, "
                           "'context_length': 3}, 'strategy': {}}",
                &derived);
    ck_assert(task_named("attention.core")->work.operations == 2 * 3 * 3 * (2 * 5 + 2 * 4 + 9) + 5 * 2 * 3);
    derived_release(&derived);
    expect_plan(OF_LATENTS "'workload': {'mode': 'inference', 'dtype': 'float16', 'phase': 'decode', 'batch_size': 1, "
                           "'context_length': 3}, 'strategy': {}}",
                &derived);
    ck_assert(task_named("attention.core")->work.operations == 2 * 3 * (2 * 7 + 2 * 5 + 9) + 5 * 2);
    derived_release(&derived);
}
END_TEST

/* Of four ranks of a tensor group two hold the same experts; no two hold the same of anything else. */
START_TEST(test_kinds__experts_shard_where_nothing_else_does)
{
    static const char workload[] = "'workload': {'mode': 'training', 'dtype': 'bfloat16', 'sequence_length': 8, "
                                   "'micro_batch_size': 1, 'global_batch_size': 1}, 'strategy': {'zero_stage': 1, "
                                   "'tensor_parallel': 4, 'sequence_parallel': true";
    char text[1500];
    struct derived derived;
    snprintf(text, sizeof(text), OF_TWO_KINDS "%s, 'expert_parallel': 2, 'expert_tensor_parallel': 1}}", workload);
    expect_plan(text, &derived);
    ck_assert_uint_eq(derived.request.strategy.zero_stage, 1);
    /* 2 experts of 16 by 8, halved: 11 operations a parameter */
    ck_assert(task_named("moe.up.optimizer")->work.operations == 11 * 2 * 16 * 8 / 2);
    ck_assert(task_named("moe.router.optimizer")->work.operations == 11 * 16 * 4);
    derived_release(&derived);
    snprintf(text, sizeof(text), OF_TWO_KINDS "%s}}", workload);
    expect_plan(text, &derived);
    ck_assert_uint_eq(derived.request.strategy.zero_stage, 0);
    derived_release(&derived);
}
END_TEST

Suite *suite_kinds(void)
{
    Suite *suite = suite_create("kinds");
    TCase *tcase = tcase_create("kinds");
    tcase_set_timeout(tcase, 0); /* bounded by BP_PROPERTY_CASES */
    tcase_add_test(tcase, test_kinds__equal_the_recomputation);
    tcase_add_test(tcase, test_kinds__huge_dimensions_are_exact_or_refused);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("cases");
    tcase_add_loop_test(tcase, test_kinds__a_difference_is_seen, 0, CHANGES);
    tcase_add_test(tcase, test_kinds__what_goes_to_experts_need_not_divide_by_their_ranks);
    tcase_add_test(tcase, test_kinds__what_is_done_to_scores_is_done_to_those_of_latent_attention);
    tcase_add_test(tcase, test_kinds__experts_shard_where_nothing_else_does);
    suite_add_tcase(suite, tcase);
    return suite;
}
