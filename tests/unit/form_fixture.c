#include "tests/unit/form_fixture.h"

#include <check.h>
#include <string.h>

#include "tests/unit/reading.h"

static char *form_of(const struct bp_model *model, struct bp_arena *arena)
{
    struct bp_buf buf = {0};
    struct bp_writer writer = {.out = &buf};
    bp_model_write(&writer, model, true);
    const char *text = canonical(&writer);
    return bp_arena_strndup(arena, text, strlen(text));
}

static void expect_same_kind(const struct bp_kind *a, const struct bp_kind *b)
{
    ck_assert_str_eq(a->name, b->name);
    ck_assert_uint_eq(a->layers, b->layers);
    ck_assert(a->attention == b->attention && a->num_attention_heads == b->num_attention_heads);
    ck_assert(a->num_key_value_heads == b->num_key_value_heads && a->head_dim == b->head_dim);
    ck_assert(a->q_lora_rank == b->q_lora_rank && a->kv_lora_rank == b->kv_lora_rank);
    ck_assert(a->qk_nope_head_dim == b->qk_nope_head_dim && a->qk_rope_head_dim == b->qk_rope_head_dim);
    ck_assert(a->v_head_dim == b->v_head_dim && a->window == b->window && a->chunked == b->chunked);
    ck_assert_uint_eq(a->rotary_dim, b->rotary_dim);
    ck_assert(a->qk_norm == b->qk_norm && a->qk_norm_bias == b->qk_norm_bias);
    ck_assert(a->qkv_bias == b->qkv_bias && a->output_bias == b->output_bias && a->mlp_bias == b->mlp_bias);
    ck_assert(a->sinks == b->sinks && a->soft_cap == b->soft_cap && a->cross_attention == b->cross_attention);
    ck_assert(a->residual == b->residual && a->norm_place == b->norm_place && a->activation == b->activation);
    ck_assert(a->intermediate_size == b->intermediate_size && a->num_experts == b->num_experts);
    ck_assert(a->experts_per_token == b->experts_per_token);
    ck_assert(a->expert_intermediate_size == b->expert_intermediate_size);
    ck_assert(a->shared_intermediate_size == b->shared_intermediate_size && a->shared_gate == b->shared_gate);
    ck_assert(a->router_bias == b->router_bias && a->expert_bias == b->expert_bias);
    ck_assert(a->score_correction_bias == b->score_correction_bias);
    ck_assert(a->hidden_dropout == b->hidden_dropout && a->attention_dropout == b->attention_dropout);
}

static void expect_same_model(const struct bp_model *a, const struct bp_model *b)
{
    ck_assert_str_eq(a->name, b->name);
    ck_assert(a->hidden_size == b->hidden_size && a->num_hidden_layers == b->num_hidden_layers);
    ck_assert(a->vocab_size == b->vocab_size && a->max_position_embeddings == b->max_position_embeddings);
    ck_assert(a->word_embed_proj_dim == b->word_embed_proj_dim);
    ck_assert(a->num_nextn_predict_layers == b->num_nextn_predict_layers);
    ck_assert(a->norm == b->norm && a->position == b->position);
    ck_assert(a->norm_without_bias == b->norm_without_bias && a->norm_without_weight == b->norm_without_weight);
    ck_assert(a->final_norm_absent == b->final_norm_absent && a->embedding_norm == b->embedding_norm);
    ck_assert(a->embedding_dropout == b->embedding_dropout && a->tie_word_embeddings == b->tie_word_embeddings);
    ck_assert(a->head_bias == b->head_bias && a->final_soft_cap == b->final_soft_cap);
    ck_assert_uint_eq(a->n_kinds, b->n_kinds);
    for (uint32_t i = 0; i < a->n_kinds; i++)
        expect_same_kind(&a->kinds[i], &b->kinds[i]);
    ck_assert_int_eq(a->layer_kinds != NULL, b->layer_kinds != NULL);
    if (a->layer_kinds)
        ck_assert_mem_eq(a->layer_kinds, b->layer_kinds, a->num_hidden_layers);
}

void expect_form_says_it_all(const struct bp_model *model, struct bp_arena *arena)
{
    struct bp_problems problems = {0};
    struct bp_parameter_count count, again_count;
    struct bp_model again;
    const char *text = form_of(model, arena);
    json_t *form = json_of(text);
    struct bp_reader reader = bp_reader_of(form, "", &problems);
    bp_model_read(&reader, arena, &again);
    ck_assert_msg(bp_problems_none(&problems), "%s: %s", line_of(&problems), text);
    bp_problems_release(&problems);
    json_decref(form);
    expect_same_model(model, &again);
    ck_assert_str_eq(form_of(&again, arena), text);
    ck_assert_int_eq(bp_model_count(model, &count, NULL), 0);
    ck_assert_int_eq(bp_model_count(&again, &again_count, NULL), 0);
    ck_assert(count.total == again_count.total && count.active == again_count.active);
}
