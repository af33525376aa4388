/* Gemma and what followed it: heads of their own size, GeGLU, tied tables; then norms around each branch, and windows
 * in some layers. */
#include "common/model/import.h"

static void gemma(struct bp_import *import, struct bp_llama_defaults defaults)
{
    /* The first configs name an activation that the class does not use beside the one it does. */
    bool newer = bp_import_value(import, "hidden_activation") != NULL || !bp_import_value(import, "hidden_act");
    defaults.activation_key = newer ? "hidden_activation" : "hidden_act";
    defaults.activation = "gelu_pytorch_tanh";
    defaults.head_dim = 256;
    defaults.tied = true;
    bp_import_llama(import, defaults);
    bp_import_attention_bias(import, false);
}

void bp_gemma_for_causal_lm(struct bp_import *import)
{
    gemma(import, (struct bp_llama_defaults){.heads = 16, .kv_heads = 16, .intermediate_size = 24576});
}

static void soft_caps(struct bp_import *import, bool fallback)
{
    import->model.kinds[0].soft_cap = bp_import_soft_cap(import, "attn_logit_softcapping", fallback);
    import->model.final_soft_cap = bp_import_soft_cap(import, "final_logit_softcapping", fallback);
}

/* Of `run` layers the last attends fully, where layer_types does not say which do. */
static void windows(struct bp_import *import, uint64_t run)
{
    if (!bp_import_window(import, 4096, true) || !bp_import_layers(import))
        return;
    if (bp_import_layer_types(import, "sliding_attention"))
        return;
    for (uint64_t i = 0; run && i < import->model.num_hidden_layers; i++)
        if ((i + 1) % run != 0)
            import->layers[i] |= BP_LAYER_LOCAL;
}

void bp_gemma2_for_causal_lm(struct bp_import *import)
{
    gemma(import, (struct bp_llama_defaults){.heads = 8, .kv_heads = 4, .intermediate_size = 9216});
    import->model.kinds[0].norm_place = BP_NORM_PLACE_AROUND;
    soft_caps(import, true);
    windows(import, 2);
}

/* Published configs leave the vocabulary out. */
void bp_gemma3_for_causal_lm(struct bp_import *import)
{
    gemma(import,
          (struct bp_llama_defaults){.heads = 8, .kv_heads = 4, .intermediate_size = 9216, .vocab_size = 262208});
    import->model.kinds[0].qk_norm = BP_QK_NORM_HEAD;
    import->model.kinds[0].norm_place = BP_NORM_PLACE_AROUND;
    soft_caps(import, false);
    bool listed = bp_import_peek(import, "layer_types") != NULL;
    windows(import, listed ? 0 : bp_import_size(import, "sliding_window_pattern", 6));
}
