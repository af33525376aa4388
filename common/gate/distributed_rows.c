/* What rows do that the values they read and write do not tell: the payload of a collective, and the elements of a
 * value of which a row takes a part (docs/formulas.md, "Blocks of other kinds"). */
#include "common/gate/distributed.h"

#include <string.h>

static bool is_training(const struct bp_gate *gate)
{
    return gate->request->workload.mode == BP_MODE_TRAINING;
}

static bool is_latent(const struct bp_gate *gate)
{
    return gate->symbols->kind->attention == BP_ATTENTION_LATENT;
}

/* Tokens of the rank, whole and under sequence parallelism. */
static bp_u128 tokens(const struct bp_gate *gate, struct bp_calc *calc)
{
    return bp_mul(calc, gate->symbols->B, gate->symbols->S);
}

/* Widths of one rank's heads: of the query or the expanded key, and of the value. */
static bp_u128 key_head(const struct bp_gate *gate)
{
    const struct bp_kind *kind = gate->symbols->kind;
    return is_latent(gate) ? (bp_u128)kind->qk_nope_head_dim + kind->qk_rope_head_dim : gate->symbols->d;
}

static bp_u128 value_head(const struct bp_gate *gate)
{
    return is_latent(gate) ? gate->symbols->kind->v_head_dim : gate->symbols->d;
}

static bp_u128 key_heads(const struct bp_gate *gate)
{
    return is_latent(gate) ? gate->symbols->h_l : gate->symbols->k_l;
}

/* ---- Collectives ---- */

static bp_u128 query_latent(const struct bp_gate *gate, struct bp_calc *calc)
{
    return bp_mul(calc, tokens(gate, calc), gate->symbols->kind->q_lora_rank);
}

static bp_u128 key_value_latent(const struct bp_gate *gate, struct bp_calc *calc)
{
    const struct bp_kind *kind = gate->symbols->kind;
    return bp_mul(calc, tokens(gate, calc), (bp_u128)kind->kv_lora_rank + kind->qk_rope_head_dim);
}

static bp_u128 pairs(const struct bp_gate *gate, struct bp_calc *calc)
{
    return bp_mul(calc, gate->symbols->pairs, gate->symbols->H);
}

/* Tokens that a rank gives to the experts: its part of the sequence, in inference all of the batch where the tensor
 * group is the experts' too, else its share. */
static bp_u128 routed_tokens(const struct bp_gate *gate, struct bp_calc *calc)
{
    const struct bp_symbols *s = gate->symbols;
    bool whole = !is_training(gate) && s->ep == 1 && s->etp == s->t;
    bp_u128 own = bp_div(calc, s->Xs, s->H);
    return is_training(gate) || whole ? own : bp_div(calc, own, s->t);
}

static bp_u128 own_pairs(const struct bp_gate *gate, struct bp_calc *calc)
{
    return BP_PROD(calc, routed_tokens(gate, calc), gate->symbols->K, gate->symbols->H);
}

static bp_u128 gathered_heads(const struct bp_gate *gate, struct bp_calc *calc)
{
    const struct bp_symbols *s = gate->symbols;
    return BP_PROD(calc, s->B, s->S_c, key_heads(gate), bp_add(calc, key_head(gate), value_head(gate)));
}

static bp_u128 exchanged_heads(const struct bp_gate *gate, struct bp_calc *calc)
{
    bp_u128 keys = bp_mul(calc, key_heads(gate), bp_add(calc, key_head(gate), value_head(gate)));
    bp_u128 queries = bp_mul(calc, gate->symbols->h_l, key_head(gate));
    return bp_mul(calc, tokens(gate, calc), bp_add(calc, queries, keys));
}

static bp_u128 returned_heads(const struct bp_gate *gate, struct bp_calc *calc)
{
    return BP_PROD(calc, tokens(gate, calc), gate->symbols->h_l, value_head(gate));
}

static const struct {
    const char *row;
    bp_u128 (*elements)(const struct bp_gate *gate, struct bp_calc *calc);
} payloads[] = {
    {"attention.query_latent_collective", query_latent},
    {"attention.key_value_latent_collective", key_value_latent},
    {"attention.context_collective", gathered_heads},
    {"attention.context_exchange", exchanged_heads},
    {"attention.context_return", returned_heads},
    {"moe.dispatch", own_pairs},
    {"moe.gather", pairs},
    {"moe.scatter", pairs},
    {"moe.combine", own_pairs},
};

bp_u128 bp_gate_payload(const struct bp_gate *gate, const char *row, struct bp_calc *calc)
{
    for (size_t i = 0; i < BP_GATE_COUNT(payloads); i++)
        if (strcmp(payloads[i].row, row) == 0)
            return payloads[i].elements(gate, calc);
    return gate->symbols->X;
}

/* ---- Parts of values ---- */

/* Training: the norm of the key's and value's latent passes the rotary part by, which the expansion leaves out too. */
static struct bp_gate_part latent_part(const struct bp_gate *gate, struct bp_calc *calc)
{
    const struct bp_symbols *s = gate->symbols;
    bp_u128 n = bp_mul(calc, bp_div(calc, s->Xs, s->H), s->kind->kv_lora_rank);
    return (struct bp_gate_part){.reads = n, .keeps = n, .writes = n};
}

static struct bp_gate_part expanded_part(const struct bp_gate *gate, struct bp_calc *calc)
{
    const struct bp_kind *kind = gate->symbols->kind;
    bp_u128 n = bp_mul(calc, tokens(gate, calc), kind->kv_lora_rank);
    bp_u128 width = bp_mul(calc, gate->symbols->h_l, (bp_u128)kind->qk_nope_head_dim + kind->v_head_dim);
    return (struct bp_gate_part){.reads = n, .keeps = n, .writes = bp_mul(calc, tokens(gate, calc), width)};
}

/* Keys and values of all tokens that attention sees, of which the rank's own are kept. */
static struct bp_gate_part scores_part(const struct bp_gate *gate, struct bp_calc *calc)
{
    const struct bp_symbols *s = gate->symbols;
    bool exchanged = gate->request->strategy.cp_comm == BP_CP_A2A;
    bp_u128 T = tokens(gate, calc), seen = exchanged ? T : bp_mul(calc, s->B, s->S_c);
    bp_u128 queries = BP_PROD(calc, T, s->h_l, key_head(gate)), width = bp_mul(calc, key_heads(gate), key_head(gate));
    return (struct bp_gate_part){.reads = bp_add(calc, queries, bp_mul(calc, seen, width)),
                                 .keeps = bp_add(calc, queries, bp_mul(calc, T, width)),
                                 .writes = BP_PROD(calc, s->B, s->h_l, s->S, s->S_c)};
}

static struct bp_gate_part context_part(const struct bp_gate *gate, struct bp_calc *calc)
{
    const struct bp_symbols *s = gate->symbols;
    bool exchanged = gate->request->strategy.cp_comm == BP_CP_A2A;
    bp_u128 T = tokens(gate, calc), seen = exchanged ? T : bp_mul(calc, s->B, s->S_c);
    bp_u128 scores = BP_PROD(calc, s->B, s->h_l, s->S, s->S_c), width = bp_mul(calc, key_heads(gate), value_head(gate));
    return (struct bp_gate_part){.reads = bp_add(calc, scores, bp_mul(calc, seen, width)),
                                 .keeps = bp_add(calc, scores, bp_mul(calc, T, width)),
                                 .writes = BP_PROD(calc, T, s->h_l, value_head(gate))};
}

/* Tokens find their experts: the copies are of what is read, and the choice says of which. Nothing is kept. */
static struct bp_gate_part permute_part(const struct bp_gate *gate, struct bp_calc *calc)
{
    const struct bp_symbols *s = gate->symbols;
    bp_u128 T = routed_tokens(gate, calc);
    return (struct bp_gate_part){
        .reads = bp_mul(calc, T, bp_add(calc, s->H, s->K)), .keeps = 0, .writes = own_pairs(gate, calc)};
}

static struct bp_gate_part router_part(const struct bp_gate *gate, struct bp_calc *calc)
{
    bp_u128 T = routed_tokens(gate, calc), n = bp_mul(calc, T, gate->symbols->H);
    return (struct bp_gate_part){.reads = n, .keeps = n, .writes = bp_mul(calc, T, gate->symbols->E)};
}

static struct bp_gate_part unpermute_part(const struct bp_gate *gate, struct bp_calc *calc)
{
    bp_u128 own = own_pairs(gate, calc);
    return (struct bp_gate_part){.reads = own, .keeps = 0, .writes = bp_div(calc, own, gate->symbols->K)};
}

/* Inference: query, key and value come in one value, of which each row takes its part; elements of the cache are
 * counted apart, as they have a type of their own. */
static bp_u128 rotated(const struct bp_gate *gate, struct bp_calc *calc)
{
    const struct bp_symbols *s = gate->symbols;
    bp_u128 heads = is_latent(gate) ? bp_add(calc, s->h_l, 1) : bp_add(calc, s->h_l, s->k_l);
    bp_u128 width = is_latent(gate) ? s->kind->qk_rope_head_dim : s->kind->rotary_dim;
    return BP_PROD(calc, s->b, s->q, width, heads);
}

static struct bp_gate_part rope_part(const struct bp_gate *gate, struct bp_calc *calc)
{
    bp_u128 n = rotated(gate, calc);
    return (struct bp_gate_part){.reads = n, .writes = n};
}

static struct bp_gate_part head_norm_part(const struct bp_gate *gate, struct bp_calc *calc)
{
    const struct bp_symbols *s = gate->symbols;
    bp_u128 n = BP_PROD(calc, s->b, s->q, s->d, bp_add(calc, s->h_l, s->k_l));
    return (struct bp_gate_part){.reads = n, .writes = n};
}

/* Elements of the cache for one token. */
static bp_u128 cached(const struct bp_gate *gate, struct bp_calc *calc)
{
    const struct bp_symbols *s = gate->symbols;
    if (is_latent(gate))
        return bp_add(calc, s->kind->kv_lora_rank, s->kind->qk_rope_head_dim);
    return BP_PROD(calc, 2, s->d, s->k_l);
}

static struct bp_gate_part write_part(const struct bp_gate *gate, struct bp_calc *calc)
{
    const struct bp_symbols *s = gate->symbols;
    bp_u128 n = BP_PROD(calc, s->b, s->q, cached(gate, calc));
    return (struct bp_gate_part){
        .reads = n, .cache_writes = n, .cache_holds = BP_PROD(calc, s->b, s->c, cached(gate, calc))};
}

static struct bp_gate_part expansion_part(const struct bp_gate *gate, struct bp_calc *calc)
{
    const struct bp_symbols *s = gate->symbols;
    bp_u128 bc = bp_mul(calc, s->b, s->c);
    bp_u128 width = bp_mul(calc, s->h_l, (bp_u128)s->kind->qk_nope_head_dim + s->kind->v_head_dim);
    return (struct bp_gate_part){.cache_reads = bp_mul(calc, bc, s->kind->kv_lora_rank),
                                 .writes = bp_mul(calc, bc, width)};
}

static struct bp_gate_part absorb_part(const struct bp_gate *gate, struct bp_calc *calc)
{
    const struct bp_symbols *s = gate->symbols;
    bp_u128 heads = BP_PROD(calc, s->b, s->q, s->h_l);
    return (struct bp_gate_part){.reads = bp_mul(calc, heads, s->kind->qk_nope_head_dim),
                                 .writes = bp_mul(calc, heads, s->kind->kv_lora_rank)};
}

static struct bp_gate_part core_part(const struct bp_gate *gate, struct bp_calc *calc)
{
    const struct bp_symbols *s = gate->symbols;
    const struct bp_kind *kind = s->kind;
    bool latent = is_latent(gate), absorbed = latent && gate->request->workload.phase == BP_DECODE;
    bp_u128 bq = bp_mul(calc, s->b, s->q), bc = bp_mul(calc, s->b, s->c);
    bp_u128 query = absorbed ? (bp_u128)kind->kv_lora_rank + kind->qk_rope_head_dim : key_head(gate);
    bp_u128 context = absorbed ? kind->kv_lora_rank : value_head(gate);
    bp_u128 expanded = bp_mul(calc, s->h_l, (bp_u128)kind->qk_nope_head_dim + kind->v_head_dim);
    struct bp_gate_part part = {.reads = BP_PROD(calc, bq, s->h_l, query),
                                .cache_reads = bp_mul(calc, bc, cached(gate, calc)),
                                .writes = BP_PROD(calc, bq, s->h_l, context)};
    if (latent && !absorbed) {
        part.reads = bp_add(calc, part.reads, bp_mul(calc, bc, expanded));
        part.cache_reads = bp_mul(calc, bc, kind->qk_rope_head_dim);
    }
    return part;
}

/* In which mode, and for which attention, a row takes part of a value. */
enum { HEADS = 1, LATENT = 2, TRAINING = 4, INFERENCE = 8 };
static const struct {
    const char *row;
    unsigned of;
    struct bp_gate_part (*part)(const struct bp_gate *gate, struct bp_calc *calc);
} parts[] = {
    {"attention.key_value_latent_norm", LATENT | TRAINING | INFERENCE, latent_part},
    {"attention.key_value_up", LATENT | TRAINING, expanded_part},
    {"attention.scores", HEADS | LATENT | TRAINING, scores_part},
    {"attention.context", HEADS | LATENT | TRAINING, context_part},
    {"moe.router", HEADS | LATENT | INFERENCE, router_part},
    {"moe.permute", HEADS | LATENT | TRAINING | INFERENCE, permute_part},
    {"moe.unpermute", HEADS | LATENT | TRAINING | INFERENCE, unpermute_part},
    {"attention.rope", HEADS | LATENT | INFERENCE, rope_part},
    {"attention.qk_norm", HEADS | INFERENCE, head_norm_part},
    {"attention.kv_write", HEADS | LATENT | INFERENCE, write_part},
    {"attention.key_value_up", LATENT | INFERENCE, expansion_part},
    {"attention.query_absorb", LATENT | INFERENCE, absorb_part},
    {"attention.core", HEADS | LATENT | INFERENCE, core_part},
};

bool bp_gate_takes_part(const struct bp_gate *gate, const char *row, struct bp_calc *calc, struct bp_gate_part *ret)
{
    unsigned here = (is_latent(gate) ? LATENT : HEADS) | (is_training(gate) ? TRAINING : INFERENCE);
    for (size_t i = 0; i < BP_GATE_COUNT(parts); i++) {
        if ((parts[i].of & here) != here || strcmp(parts[i].row, row) != 0)
            continue;
        *ret = parts[i].part(gate, calc);
        return true;
    }
    return false;
}
