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
