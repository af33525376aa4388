#include "common/model/form.h"

#include <stdio.h>
#include <string.h>

const char *const bp_activation_names[] = {"gelu", "relu", "swiglu", "geglu", NULL};
const char *const bp_norm_names[] = {"layernorm", "rmsnorm", NULL};
const char *const bp_position_names[] = {"learned", "rope", "none", "alibi", NULL};
const char *const bp_attention_names[] = {"heads", "latent", NULL};
const char *const bp_qk_norm_names[] = {"none", "head", "each_head", "span", "without_weight", NULL};
const char *const bp_norm_place_names[] = {"before", "after", "after_residual", "around", "shared", NULL};
const char *const bp_residual_names[] = {"sequential", "parallel", NULL};

bool bp_kind_gated(const struct bp_kind *kind)
{
    return kind->activation == BP_ACTIVATION_SWIGLU || kind->activation == BP_ACTIVATION_GEGLU;
}

bool bp_kind_bias(const struct bp_kind *kind)
{
    return kind->qkv_bias && kind->output_bias && kind->mlp_bias;
}

void bp_model_name_kinds(struct bp_model *model)
{
    bool windows = false, experts = false;
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        windows |= model->kinds[i].window > 0;
        experts |= model->kinds[i].num_experts > 0;
    }
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        struct bp_kind *kind = &model->kinds[i];
        const char *span = !kind->window ? "global" : kind->chunked ? "chunked" : "sliding";
        const char *mlp = kind->num_experts ? "expert" : "dense";
        if (!windows)
            strcpy(kind->name, mlp);
        else if (!experts)
            strcpy(kind->name, span);
        else
            snprintf(kind->name, sizeof kind->name, "%s_%s", span, mlp);
        /* Kinds that differ in their rotation alone. */
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(model->kinds[j].name, kind->name) == 0)
                strcat(kind->name, kind->rotary_dim ? "_rope" : "_nope");
    }
}

/* What the form has no key for, of the model and of its one kind. */
const char *bp_model_beyond_form(const struct bp_model *model)
{
    const struct bp_kind *kind = &model->kinds[0];
    bool qk_norm = kind->qk_norm == BP_QK_NORM_HEAD;
    const struct {
        bool there;
        const char *what;
    } beyond[] = {
        {model->n_kinds != 1, "blocks of several kinds"},
        {kind->num_experts > 0, "a mixture of experts"},
        {kind->attention != BP_ATTENTION_HEADS, "latent attention"},
        {kind->window > 0, "attention within a window"},
        {kind->residual != BP_RESIDUAL_SEQUENTIAL, "attention and MLP side by side"},
        {kind->norm_place != BP_NORM_PLACE_BEFORE, "norms that do not stand one before each branch"},
        {(kind->qk_norm != BP_QK_NORM_NONE && !qk_norm) ||
             kind->qk_norm_bias != (qk_norm && model->norm == BP_NORM_LAYERNORM),
         "these query and key norms"},
        {kind->rotary_dim != (model->position == BP_POSITION_ROPE ? kind->head_dim : 0),
         "a rotary embedding of part of the head"},
        {!bp_kind_bias(kind) && (kind->output_bias || kind->mlp_bias), "a bias of some linears"},
        {kind->sinks, "attention sinks"},
        {kind->soft_cap || model->final_soft_cap, "a soft cap"},
        {kind->cross_attention, "cross-attention"},
        {model->position == BP_POSITION_ALIBI, "a position bias of the scores"},
        {model->norm_without_weight, "a norm without weights"},
        {model->norm_without_bias && model->norm == BP_NORM_LAYERNORM, "a layer norm without bias"},
        {model->final_norm_absent, "a model without final norm"},
        {model->embedding_norm, "a norm of the embedding"},
        {model->word_embed_proj_dim > 0, "a word embedding of another width than the hidden size"},
        {model->head_bias, "a head with a bias"},
        {model->num_nextn_predict_layers > 0, "prediction of several tokens"},
    };
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++)
        if (beyond[i].there)
            return beyond[i].what;
    return NULL;
}
