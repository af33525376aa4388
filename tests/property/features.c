#include "tests/property/features.h"

#include <stdio.h>

#define TRAINS (r->training)
#define SPLIT (r->training && r->sequence_parallel && r->t > 1)
#define FEATURES(F)                                                                                                    \
    F("several kinds", r->n_kinds > 1)                                                                                 \
    F("layer norm without bias", r->norm_without_bias)                                                                 \
    F("norm without weights", r->norm_without_weight)                                                                  \
    F("norm after", k->place == REF_AFTER)                                                                             \
    F("norm after the residual", k->place == REF_AFTER_RESIDUAL)                                                       \
    F("norms around", k->place == REF_AROUND)                                                                          \
    F("norm after, shards", k->place == REF_AFTER && SPLIT)                                                            \
    F("qk norm by head", k->qk_norm == REF_QK_HEAD)                                                                    \
    F("qk norm of each head", k->qk_norm == REF_QK_EACH_HEAD)                                                          \
    F("qk norm that spans", k->qk_norm == REF_QK_SPAN)                                                                 \
    F("qk norm without weight", k->qk_norm == REF_QK_WITHOUT_WEIGHT)                                                   \
    F("qk norm with bias", k->qk_norm != REF_QK_NONE && k->qk_norm_bias)                                               \
    F("parallel, one norm", k->parallel && k->place == REF_SHARED)                                                     \
    F("parallel, two norms", k->parallel && k->place == REF_BEFORE)                                                    \
    F("soft cap, training", k->soft_cap &&TRAINS)                                                                      \
    F("soft cap, inference", k->soft_cap && !TRAINS)                                                                   \
    F("alibi, training", r->alibi &&TRAINS)                                                                            \
    F("alibi, inference", r->alibi && !TRAINS)                                                                         \
    F("sinks", k->sinks)                                                                                               \
    F("window in decode", k->window && k->window < r->c && !TRAINS && !r->prefill)                                     \
    F("window as a mask", k->window && (TRAINS || r->prefill))                                                         \
    F("chunks", k->chunked)                                                                                            \
    F("partial rotary", !k->l_kv && !TRAINS && k->rotary && k->rotary < k->d)                                          \
    F("latent, training, query latent", k->l_kv && k->l_q && TRAINS)                                                   \
    F("latent, training, no query latent", k->l_kv && !k->l_q && TRAINS)                                               \
    F("latent, expanded", k->l_kv && !TRAINS && r->prefill)                                                            \
    F("latent, absorbed", k->l_kv && !TRAINS && !r->prefill)                                                           \
    F("latent without rotation", k->l_kv && !TRAINS && !k->rotary)                                                     \
    F("latent after no norm", k->l_kv && k->place == REF_AFTER)                                                        \
    F("experts, training", k->E &&TRAINS)                                                                              \
    F("experts after no norm", k->E && k->place == REF_AFTER && TRAINS)                                                \
    F("experts, all tokens everywhere", k->E && !TRAINS && r->ep == 1 && r->etp == r->t)                               \
    F("experts, tokens dealt", k->E && !TRAINS && (r->ep != 1 || r->etp != r->t))                                      \
    F("expert parallel", k->E && r->ep > 1 && TRAINS)                                                                  \
    F("expert tensor parallel", k->E && r->etp > 1 && TRAINS)                                                          \
    F("etp is not t", k->E && r->etp != r->t && TRAINS)                                                                \
    F("gated experts", k->E && k->gated)                                                                               \
    F("plain experts", k->E && !k->gated)                                                                              \
    F("shared experts", k->F_s)                                                                                        \
    F("a gate of shared experts", k->shared_gate)                                                                      \
    F("router bias", k->router_bias)                                                                                   \
    F("expert bias", k->expert_bias)                                                                                   \
    F("output bias alone", k->output_bias && !k->qkv_bias)                                                             \
    F("mlp bias alone", k->mlp_bias && !k->qkv_bias)                                                                   \
    F("ring", r->cp > 1 && r->exchange == REF_RING && !k->l_kv)                                                        \
    F("ring, latent", r->cp > 1 && r->exchange == REF_RING && k->l_kv)                                                 \
    F("gathered context", r->cp > 1 && r->exchange == REF_ALL_GATHER)                                                  \
    F("exchange by heads", r->cp > 1 && r->exchange == REF_A2A && !k->l_kv)                                            \
    F("exchange by heads, latent", r->cp > 1 && r->exchange == REF_A2A && k->l_kv)                                     \
    F("cache of another dtype", !TRAINS && r->e_kv != r->e)                                                            \
    F("ZeRO 1", TRAINS && r->zero == 1)                                                                                \
    F("ZeRO 2", TRAINS && r->zero == 2)                                                                                \
    F("ZeRO 3", TRAINS && r->zero == 3)                                                                                \
    F("experts sharded over fewer", TRAINS && k->E && r->zero && r->ep * r->etp > r->t)                                \
    F("sequence parallel", SPLIT)                                                                                      \
    F("gathered once", SPLIT && !r->gather_again)                                                                      \
    F("no sequence parallel", TRAINS && r->t > 1 && !r->sequence_parallel)                                             \
    F("selective", TRAINS && r->recompute == REF_SELECTIVE)                                                            \
    F("full", TRAINS && r->recompute == REF_FULL)                                                                      \
    F("activation again", TRAINS && r->recompute_activation)                                                           \
    F("target", r->has_target)

static const char *const names[] = {
#define NAME(name, holds) name,
    FEATURES(NAME)
#undef NAME
};

enum { N_FEATURES = sizeof(names) / sizeof(names[0]) };
_Static_assert((int)N_FEATURES <= (int)FEATURES_MAX, "more features than there are counters");

static void mark(bool *had, const struct ref_request *r, const struct ref_kind *k)
{
    size_t i = 0;
#define MARK(name, holds)                                                                                              \
    had[i] = had[i] || (holds);                                                                                        \
    i++;
    FEATURES(MARK)
#undef MARK
}

void features_count(struct features *features, const struct ref_request *r)
{
    bool had[N_FEATURES] = {false};
    for (size_t i = 0; i < r->n_kinds; i++)
        mark(had, r, &r->kinds[i]);
    for (size_t i = 0; i < N_FEATURES; i++)
        features->at[i] += had[i];
}

const char *features_print(const struct features *features, unsigned least)
{
    const char *missing = NULL;
    printf("cases by feature:");
    for (size_t i = 0; i < N_FEATURES; i++) {
        printf("%s %s %u", i ? "," : "", names[i], features->at[i]);
        if (features->at[i] < least && !missing)
            missing = names[i];
    }
    printf("\n");
    return missing;
}
