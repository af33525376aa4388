/* The catalogue: forms of public models as JSON text, so that they are read like any other. In order of name. */
#include <string.h>

#include "common/model/config.h"

/* The text of its arguments, which are JSON and so are C tokens. */
#define JSON(...) #__VA_ARGS__

/* JSON is laid out as JSON. */
/* clang-format off */
const struct bp_catalogue_row bp_catalogue[] = {
    {"deepseek-v3",
     JSON({"huggingface":
         {"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "auto_map":
          {"AutoConfig": "configuration_deepseek.DeepseekV3Config", "AutoModel": "modeling_deepseek.DeepseekV3Model",
          "AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM"}, "bos_token_id": 0, "eos_token_id": 1,
          "ep_size": 1, "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168, "initializer_range":
          0.02, "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840, "model_type":
          "deepseek_v3", "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256,
          "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128, "num_experts_per_tok": 8,
          "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536,
          "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "quantization_config": {"activation_scheme": "dynamic",
          "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}, "rms_norm_eps": 1e-06,
          "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
          "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000, "routed_scaling_factor":
          2.5, "scoring_func": "sigmoid", "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc",
          "torch_dtype": "bfloat16", "transformers_version": "4.33.1", "use_cache": true, "v_head_dim": 128,
          "vocab_size": 129280}}),
     "671026419200",
     "config.json of deepseek-ai/DeepSeek-V3"},
    {"falcon-7b",
     JSON({"huggingface":
         {"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
          "multi_query": true, "new_decoder_architecture": false, "parallel_attn": true, "bias": false, "vocab_size":
          65024}}),
     "6921720704",
     "config.json of tiiuae/falcon-7b, the keys that matter"},
    {"gemma-2-9b",
     JSON({"huggingface":
         {"model_type": "gemma2", "hidden_size": 3584, "num_hidden_layers": 42, "num_attention_heads": 16,
          "num_key_value_heads": 8, "head_dim": 256, "intermediate_size": 14336, "vocab_size": 256000,
          "tie_word_embeddings": true, "hidden_act": "gelu_pytorch_tanh", "sliding_window": 4096}}),
     "9241705984",
     "config.json of google/gemma-2-9b, the keys that matter"},
    {"gpt-oss-120b",
     JSON({"huggingface":
         {"architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0, "eos_token_id":
          200002, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880,
          "initial_context_length": 4096, "initializer_range": 0.02, "intermediate_size": 2880, "layer_types":
          ["sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention",
          "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention",
          "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention",
          "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention",
          "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention",
          "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention",
          "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention",
          "full_attention"], "max_position_embeddings": 131072, "model_type": "gpt_oss", "num_attention_heads": 64,
          "num_experts_per_tok": 4, "num_hidden_layers": 36, "num_key_value_heads": 8, "num_local_experts": 128,
          "output_router_logits": false, "pad_token_id": 199999, "quantization_config": {"modules_to_not_convert":
          ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"], "quant_method":
          "mxfp4"}, "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
          "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false}, "rope_theta": 150000,
          "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": false,
          "transformers_version": "4.55.0.dev0", "use_cache": true, "vocab_size": 201088}}),
     "116829156672",
     "config.json of openai/gpt-oss-120b"},
    {"gpt2",
     JSON({"huggingface":
         {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": null, "n_positions": 1024,
          "vocab_size": 50257}}),
     "124439808",
     "config.json of openai-community/gpt2, the keys that matter"},
    {"gpt3-175b",
     JSON({"transformer":
         {"name": "gpt3-175b", "hidden_size": 12288, "num_hidden_layers": 96, "num_attention_heads": 96,
          "intermediate_size": 49152, "vocab_size": 51200, "activation": "gelu", "norm": "layernorm",
          "position": "learned", "max_position_embeddings": 2048, "hidden_dropout": true, "attention_dropout": true,
          "embedding_dropout": true}}),
     NULL,
     "Brown et al., Language Models are Few-Shot Learners, 2020, Table 2.1; vocabulary as padded by Megatron-LM"},
    {"llama-2-7b",
     JSON({"huggingface":
         {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
          "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 32000, "tie_word_embeddings": false,
          "hidden_act": "silu"}}),
     "6738415616",
     "config.json of meta-llama/Llama-2-7b-hf, the keys that matter"},
    {"llama-3.1-405b",
     JSON({"huggingface":
         {"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
          "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 16384,
          "initializer_range": 0.02, "intermediate_size": 53248, "max_position_embeddings": 131072,
          "mlp_bias": false, "model_type": "llama", "num_attention_heads": 128, "num_hidden_layers": 126,
          "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
          "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                           "original_max_position_embeddings": 8192, "rope_type": "llama3"},
          "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
          "transformers_version": "4.42.3", "use_cache": true, "vocab_size": 128256}}),
     "405853388800",
     "config.json of meta-llama/Llama-3.1-405B"},
    {"llama-3.1-70b",
     JSON({"huggingface":
         {"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
          "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 8192,
          "initializer_range": 0.02, "intermediate_size": 28672, "max_position_embeddings": 131072,
          "mlp_bias": false, "model_type": "llama", "num_attention_heads": 64, "num_hidden_layers": 80,
          "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
          "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                           "original_max_position_embeddings": 8192, "rope_type": "llama3"},
          "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
          "transformers_version": "4.43.0.dev0", "use_cache": true, "vocab_size": 128256}}),
     "70553706496",
     "config.json of meta-llama/Llama-3.1-70B"},
    {"llama-3.1-8b",
     JSON({"huggingface":
         {"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
          "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096,
          "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072,
          "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
          "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
          "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                           "original_max_position_embeddings": 8192, "rope_type": "llama3"},
          "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
          "transformers_version": "4.43.0.dev0", "use_cache": true, "vocab_size": 128256}}),
     "8030261248",
     "config.json of meta-llama/Llama-3.1-8B"},
    {"megatron-1t",
     JSON({"transformer":
         {"name": "megatron-1t", "hidden_size": 25600, "num_hidden_layers": 128, "num_attention_heads": 160,
          "intermediate_size": 102400, "vocab_size": 51200, "activation": "gelu", "norm": "layernorm",
          "position": "learned", "max_position_embeddings": 2048, "hidden_dropout": true, "attention_dropout": true,
          "embedding_dropout": true}}),
     NULL,
     "Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022, Table 3"},
    {"megatron-22b",
     JSON({"transformer":
         {"name": "megatron-22b", "hidden_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 64,
          "intermediate_size": 24576, "vocab_size": 51200, "activation": "gelu", "norm": "layernorm",
          "position": "learned", "max_position_embeddings": 2048, "hidden_dropout": true, "attention_dropout": true,
          "embedding_dropout": true}}),
     NULL,
     "Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022, Table 3"},
    {"mistral-7b-v0.1",
     JSON({"huggingface":
         {"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
          "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "tie_word_embeddings": false,
          "hidden_act": "silu", "sliding_window": 4096}}),
     "7241732096",
     "config.json of mistralai/Mistral-7B-v0.1, the keys that matter"},
    {"mixtral-8x7b",
     JSON({"huggingface":
         {"architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
          "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
          "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok":
          2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false,
          "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": null,
          "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.36.0.dev0", "use_cache":
          true, "vocab_size": 32000}}),
     "46702792704",
     "config.json of mistralai/Mixtral-8x7B-v0.1"},
    {"phi-2",
     JSON({"huggingface":
         {"model_type": "phi", "hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 32,
          "intermediate_size": 10240, "vocab_size": 51200, "tie_word_embeddings": false}}),
     "2779683840",
     "config.json of microsoft/phi-2, the keys that matter"},
    {"pythia-6.9b",
     JSON({"huggingface":
         {"model_type": "gpt_neox", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
          "intermediate_size": 16384, "vocab_size": 50432, "tie_word_embeddings": false}}),
     "6857302016",
     "config.json of EleutherAI/pythia-6.9b, the keys that matter"},
    {"qwen2-7b",
     JSON({"huggingface":
         {"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
          "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "tie_word_embeddings": false,
          "hidden_act": "silu"}}),
     "7615616512",
     "config.json of Qwen/Qwen2-7B, the keys that matter"},
    {"qwen3-235b-a22b",
     JSON({"huggingface":
         {"architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
          "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128, "hidden_act":
          "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12288,
          "max_position_embeddings": 40960, "max_window_layers": 94, "mlp_only_layers": [], "model_type": "qwen3_moe",
          "moe_intermediate_size": 1536, "norm_topk_prob": true, "num_attention_heads": 64, "num_experts": 128,
          "num_experts_per_tok": 8, "num_hidden_layers": 94, "num_key_value_heads": 4, "output_router_logits": false,
          "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001,
          "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version":
          "4.51.0", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936}}),
     "235093634560",
     "config.json of Qwen/Qwen3-235B-A22B"},
    {"qwen3-32b",
     JSON({"huggingface":
         {"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
          "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120,
          "initializer_range": 0.02, "intermediate_size": 25600, "max_position_embeddings": 40960,
          "max_window_layers": 64, "model_type": "qwen3", "num_attention_heads": 64, "num_hidden_layers": 64,
          "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
          "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
          "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936}}),
     "32762123264",
     "config.json of Qwen/Qwen3-32B"},
    {"qwen3-4b",
     JSON({"huggingface":
         {"model_type": "qwen3", "hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32,
          "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9728, "vocab_size": 151936,
          "tie_word_embeddings": true, "hidden_act": "silu"}}),
     "4022468096",
     "config.json of Qwen/Qwen3-4B, the keys that matter"},
    {"qwen3-8b",
     JSON({"huggingface":
         {"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
          "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
          "initializer_range": 0.02, "intermediate_size": 12288, "max_position_embeddings": 40960,
          "max_window_layers": 36, "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 36,
          "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
          "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
          "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936}}),
     "8190735360",
     "config.json of Qwen/Qwen3-8B"},
    {"turing-530b",
     JSON({"transformer":
         {"name": "turing-530b", "hidden_size": 20480, "num_hidden_layers": 105, "num_attention_heads": 128,
          "intermediate_size": 81920, "vocab_size": 51200, "activation": "gelu", "norm": "layernorm",
          "position": "learned", "max_position_embeddings": 2048, "hidden_dropout": true, "attention_dropout": true,
          "embedding_dropout": true}}),
     NULL,
     "Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022, Table 3"},
};
/* clang-format on */
const size_t bp_catalogue_n = sizeof bp_catalogue / sizeof *bp_catalogue;

const struct bp_catalogue_row *bp_catalogue_find(const char *name)
{
    for (size_t i = 0; i < bp_catalogue_n; i++)
        if (strcmp(bp_catalogue[i].name, name) == 0)
            return &bp_catalogue[i];
    return NULL;
}
