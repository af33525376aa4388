#include "common/request/support.h"

const char *bp_unsupported_in_kind(const struct bp_kind *kind, enum bp_mode mode, uint64_t tensor_parallel)
{
    bool parallel = kind->residual == BP_RESIDUAL_PARALLEL, latent = kind->attention == BP_ATTENTION_LATENT;
    bool norm_of_both = kind->norm_place == BP_NORM_PLACE_SHARED;
    const struct {
        bool there;
        const char *what;
    } unsupported[] = {
        {kind->cross_attention, "cross-attention"},
        {mode == BP_MODE_TRAINING && kind->sinks, "attention sinks"},
        {kind->qk_norm == BP_QK_NORM_SPAN && tensor_parallel > 1,
         "query and key norms that span the heads of several ranks"},
        {latent && kind->qk_norm != BP_QK_NORM_NONE, "query and key norms of latent attention"},
        {kind->shared_gate && !kind->shared_intermediate_size, "a gate of shared experts without such experts"},
        {parallel && kind->num_experts, "experts beside attention"},
        {parallel && latent, "latent attention beside the MLP"},
        {parallel && !norm_of_both && kind->norm_place != BP_NORM_PLACE_BEFORE,
         "norms after the branches of attention and MLP side by side"},
        {!parallel && norm_of_both, "one norm for attention and an MLP that follows it"},
    };
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (unsupported[i].there)
            return unsupported[i].what;
    return NULL;
}
