/* Attention of a training block: rows 3 to 12, and what stands in their place. */
#include "tests/reference/training.h"

/* What scores and context read: rows, and BLOCK_INPUT where there is no such row. */
struct operands {
    int query, key, value;
    int rotary;                               /* latent: the rotary part of the keys, which passes the projection by */
    wide query_width, key_width, value_width; /* of all heads of a rank */
    wide head, value_head;
};

static int add_norm_of(struct block *b, const char *name, wide heads, int input)
{
    const struct ref_kind *kind = b->kind;
    const wide width =
        kind->qk_norm == REF_QK_HEAD || kind->qk_norm == REF_QK_WITHOUT_WEIGHT ? kind->d : wide_mul(heads, kind->d);
    return ref_norm(b, name, PROD(b->T, heads, kind->d), width, ref_qk_norm_parameters(kind, heads), input);
}

/* Rows 4 to 7. `own`: no row before them holds their input, so that the fork does. */
static struct operands add_heads(struct block *b, int input, bool own)
{
    const struct ref_kind *kind = b->kind;
    const wide q = wide_mul(b->h_l, kind->d), kv = wide_mul(b->k_l, kind->d), H = b->r->H;
    int fork = ref_fork(b, "attention.qkv_fork", b->X, 3, input, !b->AG);
    ref_row_share(b, fork, !own);
    struct operands at = {.rotary = BLOCK_INPUT,
                          .query_width = q,
                          .key_width = kv,
                          .value_width = kv,
                          .head = kind->d,
                          .value_head = kind->d};
    at.query = ref_linear(b, "attention.query", b->T, H, q, kind->qkv_bias, fork, false);
    at.key = ref_linear(b, "attention.key", b->T, H, kv, kind->qkv_bias, fork, false);
    at.value = ref_linear(b, "attention.value", b->T, H, kv, kind->qkv_bias, fork, false);
    ref_row_share(b, at.query, true);
    ref_row_share(b, at.key, true);
    ref_row_share(b, at.value, true);
    if (kind->qk_norm) {
        at.query = add_norm_of(b, "attention.query_norm", b->h_l, at.query);
        at.key = add_norm_of(b, "attention.key_norm", b->k_l, at.key);
    }
    return at;
}

static int add_latent_norm(struct block *b, const char *name, wide width, int input)
{
    return ref_norm(b, name, wide_mul(b->T_s, width), width, ref_norm_parameters(b->r, width), input);
}

static int add_latent_query(struct block *b, int fork)
{
    const struct ref_kind *kind = b->kind;
    const wide width = PROD(b->h_l, kind->n + kind->r);
    if (kind->l_q == 0) {
        int gathered = ref_collective(b, "attention.input_collective", true, b->X, fork);
        if (gathered != fork)
            ref_row_share(b, gathered, true);
        int query = ref_linear(b, "attention.query", b->T, b->r->H, width, false, gathered, b->split && !b->AG);
        ref_row_share(b, query, !b->split);
        return query;
    }
    int down = ref_linear(b, "attention.query_down", b->T_s, b->r->H, kind->l_q, kind->qkv_bias, fork, false);
    ref_row_share(b, down, true);
    int last = add_latent_norm(b, "attention.query_latent_norm", kind->l_q, down);
    last = ref_collective(b, "attention.query_latent_collective", true, wide_mul(b->T, kind->l_q), last);
    return ref_linear(b, "attention.query_up", b->T, kind->l_q, width, false, last, !b->AG);
}

static struct operands add_latent(struct block *b, int input)
{
    const struct ref_kind *kind = b->kind;
    const wide both = wide_add(kind->l_kv, kind->r);
    struct operands at = {.query_width = PROD(b->h_l, kind->n + kind->r),
                          .key_width = PROD(b->h_l, kind->n + kind->r),
                          .value_width = PROD(b->h_l, kind->v),
                          .head = kind->n + kind->r,
                          .value_head = kind->v};
    int fork = ref_fork(b, "attention.latent_fork", b->Xs, 2, input, true);
    at.query = add_latent_query(b, fork);
    int down = ref_linear(b, "attention.key_value_down", b->T_s, b->r->H, both, kind->qkv_bias, fork, false);
    ref_row_share(b, down, true);
    int norm = add_latent_norm(b, "attention.key_value_latent_norm", kind->l_kv, down);
    int last = ref_collective(b, "attention.key_value_latent_collective", true, wide_mul(b->T, both), norm);
    at.rotary = last == norm ? down : last;
    if (last != norm)
        ref_row_reads(b, last, down);
    at.key = at.value =
        ref_linear(b, "attention.key_value_up", b->T, kind->l_kv, PROD(b->h_l, kind->n + kind->v), false, last, !b->AG);
    return at;
}

/* Context parallelism: what the queries of this rank meet, or whole heads, come from the other ranks. */
static void add_exchange(struct block *b, struct operands *at)
{
    const struct ref_request *r = b->r;
    const wide keys = wide_add(at->key_width, at->value_width), all = wide_add(keys, at->query_width);
    const bool a2a = r->exchange == REF_A2A;
    if (r->cp == 1)
        return;
    int row;
    if (a2a) {
        row = ref_group_collective(b, "attention.context_exchange", "context", r->cp, "all_to_all", "all_to_all",
                                   wide_mul(b->T, all), at->query);
        ref_row_reads(b, row, at->key);
    } else {
        row = ref_group_collective(b, "attention.context_collective", "context", r->cp, "all_gather", "reduce_scatter",
                                   PROD(r->B, r->S_c, keys), at->key);
        b->rows[row].again = true;
    }
    ref_row_reads(b, row, at->value);
    if (at->rotary != BLOCK_INPUT)
        ref_row_reads(b, row, at->rotary);
    ref_row_share(b, row, true);
    at->key = at->value = row;
    at->query = a2a ? row : at->query;
    at->rotary = BLOCK_INPUT;
}

/* Rows 8 to 11. */
static int add_core(struct block *b, const struct operands *at)
{
    const struct ref_request *r = b->r;
    const bool dropout = b->kind->attention_dropout, again = b->selective || b->full;
    const wide m = PROD(r->B, b->h_l, r->S, r->S_c), met = wide_mul(r->B, r->exchange == REF_A2A ? r->S : r->S_c);
    const wide query = wide_mul(b->T, at->query_width);
    int last = ref_product(b, "attention.scores", PROD(2, m, at->head), wide_add(query, wide_mul(met, at->key_width)),
                           wide_add(query, wide_mul(b->T, at->key_width)), m, at->query, at->key);
    if (at->rotary != BLOCK_INPUT)
        ref_row_reads(b, last, at->rotary);
    b->rows[last].again = again;
    b->rows[last].facts.keeps_O = !(again && dropout);
    if (r->alibi) {
        last = ref_row(b, "attention.position_bias", OTHER, last);
        b->rows[last].has_agrad = false;
        b->rows[last].again = again;
        b->rows[last].forward = ref_elements(b, m, m, m);
        ref_row_state(b, last, 0, wide_mul(m, r->e), false);
        b->rows[last].facts.states_A = b->rows[last].facts.owns_A = false;
    }
    if (b->kind->soft_cap) {
        last = ref_row(b, "attention.soft_cap", OTHER, last);
        b->rows[last].needs_output = true;
        b->rows[last].again = again;
        b->rows[last].forward = ref_elements(b, wide_mul(3, m), m, m);
        b->rows[last].agrad = ref_elements(b, wide_mul(4, m), wide_mul(2, m), m);
        ref_row_state(b, last, wide_mul(m, r->e), wide_mul(m, r->e), !again);
    }
    last = ref_softmax(b, "attention.softmax", m, last);
    b->rows[last].again = again;
    b->rows[last].facts.keeps_O = !again;
    ref_row_share(b, last, !dropout);
    if (dropout) {
        last = ref_dropout(b, "attention.dropout", m, last);
        b->rows[last].again = again;
        b->rows[last].facts.keeps_A = !again;
    }
    return ref_product(b, "attention.context", PROD(2, m, at->value_head), wide_add(m, wide_mul(met, at->value_width)),
                       wide_add(m, wide_mul(b->T, at->value_width)), PROD(b->T, b->h_l, at->value_head), last,
                       at->value);
}

int ref_training_attention(struct block *b, int input)
{
    const struct ref_request *r = b->r;
    struct operands at;
    if (b->kind->l_kv) {
        at = add_latent(b, input);
    } else if (b->kind->parallel && b->kind->place == REF_SHARED) {
        int last = ref_collective(b, "attention.input_collective", true, b->X, input);
        at = add_heads(b, ref_fork(b, "block.fork", b->X, 2, last, !b->AG), false);
    } else {
        int last = ref_collective(b, "attention.input_collective", true, b->X, input);
        if (last != input && (b->kind->place == REF_AFTER || b->kind->place == REF_AFTER_RESIDUAL))
            ref_row_share(b, last, true); /* the fork's shard */
        at = add_heads(b, last, true);
    }
    add_exchange(b, &at);
    const wide out = PROD(b->h_l, at.value_head);
    int last = add_core(b, &at);
    if (r->cp > 1 && r->exchange == REF_A2A)
        last = ref_group_collective(b, "attention.context_return", "context", r->cp, "all_to_all", "all_to_all",
                                    wide_mul(b->T, out), last);
    return ref_linear(b, "attention.output", b->T, out, r->H, b->kind->output_bias, last, true);
}
