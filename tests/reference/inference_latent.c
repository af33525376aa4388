/* Latent attention of an inference block. */
#include "tests/reference/inference.h"

/* Part of what a task moves is of the cache, whose elements have another size. */
static void adds_cache(struct block *b, int task, wide read, wide write)
{
    struct ref_work *work = &b->plan->tasks[task].work;
    work->read = wide_add(work->read, wide_mul(read, b->r->e_kv));
    work->write = wide_add(work->write, wide_mul(write, b->r->e_kv));
}

static int add_query(struct block *b, int after)
{
    const struct ref_kind *kind = b->kind;
    const wide width = PROD(b->h_l, kind->n + kind->r), H = b->r->H;
    if (!kind->l_q)
        return ref_infer_linear(b, "attention.query", b->bq, H, width, false, after);
    int last = ref_infer_linear(b, "attention.query_down", b->bq, H, kind->l_q, kind->qkv_bias, after);
    last = ref_infer_norm(b, "attention.query_latent_norm", wide_mul(b->bq, kind->l_q), kind->l_q, last);
    return ref_infer_linear(b, "attention.query_up", b->bq, kind->l_q, width, false, last);
}

static int add_expanded(struct block *b, int query, int rotated, int kv_write)
{
    const struct ref_kind *kind = b->kind;
    const wide bc = wide_mul(b->r->b, b->c), wide_of_head = kind->n + kind->v, out = PROD(b->h_l, wide_of_head);
    int up = ref_infer(b, "attention.key_value_up", "matrix",
                       (struct ref_work){PROD(2, bc, kind->l_kv, out), 0, wide_mul(bc, out), 0},
                       wide_mul(kind->l_kv, out), kv_write, kv_write);
    adds_cache(b, up, wide_mul(bc, kind->l_kv), 0);
    ref_infer_effect(b, up, false);
    int core =
        ref_infer(b, "attention.core", "matrix",
                  (struct ref_work){
                      SUM(PROD(2, b->s, kind->n + kind->r), PROD(2, b->s, kind->v), ref_infer_score_operations(b)),
                      SUM(PROD(b->bq, b->h_l, kind->n + kind->r), wide_mul(bc, out)), PROD(b->bq, b->h_l, kind->v), 0},
                  ref_infer_sinks(b), query, rotated);
    adds_cache(b, core, wide_mul(bc, kind->r), 0);
    ref_infer_waits(b, core, kv_write);
    ref_infer_waits(b, core, up);
    ref_infer_effect(b, core, false);
    return core;
}

static int add_absorbed(struct block *b, int query, int rotated, int kv_write)
{
    const struct ref_kind *kind = b->kind;
    const wide bc = wide_mul(b->r->b, b->c), l = kind->l_kv, rows = wide_mul(b->bq, b->h_l);
    int absorb = ref_infer(b, "attention.query_absorb", "matrix",
                           (struct ref_work){PROD(2, rows, kind->n, l), wide_mul(rows, kind->n), wide_mul(rows, l), 0},
                           PROD(b->h_l, kind->n, l), query, query);
    int core =
        ref_infer(b, "attention.core", "matrix",
                  (struct ref_work){SUM(PROD(2, b->s, l + kind->r), PROD(2, b->s, l), ref_infer_score_operations(b)),
                                    wide_mul(rows, l + kind->r), wide_mul(rows, l), 0},
                  ref_infer_sinks(b), absorb, rotated);
    adds_cache(b, core, wide_mul(bc, l + kind->r), 0);
    ref_infer_waits(b, core, kv_write);
    ref_infer_effect(b, core, false);
    return ref_infer(b, "attention.value_up", "matrix",
                     (struct ref_work){PROD(2, rows, l, kind->v), wide_mul(rows, l), wide_mul(rows, kind->v), 0},
                     PROD(b->h_l, l, kind->v), core, core);
}

int ref_infer_latent(struct block *b, int after)
{
    const struct ref_kind *kind = b->kind;
    const wide both = kind->l_kv + kind->r, kept = wide_mul(b->bq, both);
    int query = add_query(b, after);
    int down = ref_infer_linear(b, "attention.key_value_down", b->bq, b->r->H, both, kind->qkv_bias, after);
    int norm = ref_infer_norm(b, "attention.key_value_latent_norm", wide_mul(b->bq, kind->l_kv), kind->l_kv, down);
    int rotated = query, rotary_key = down;
    const wide m = PROD(b->bq, kind->rotary, b->h_l + 1);
    if (kind->rotary)
        rotated = rotary_key =
            ref_infer(b, "attention.rope", "vector", (struct ref_work){wide_mul(6, m), m, m, 0}, 0, query, down);
    int kv_write = ref_infer(b, "attention.kv_write", "vector", (struct ref_work){0, kept, 0, 0}, 0, norm, rotary_key);
    adds_cache(b, kv_write, 0, kept);
    ref_infer_effect(b, kv_write, true);
    return b->r->prefill ? add_expanded(b, query, rotated, kv_write) : add_absorbed(b, query, rotated, kv_write);
}
