// SPDX-License-Identifier: Apache-2.0
// Decoders with other layers, or with attention of their own; see model_table.hpp.
// The defaults are the transformers library's (configuration_*.py). Fields that it computes from
// others (head_dim from hidden_size) are left out.
#include "tuner/models/model_table.hpp"

namespace attune {
namespace {

using enum Reading;

// clang-format off
constexpr ModelRow kRows[] = {
// Decoders with a compressed K and V. In prefill, heads of q and k hold the rotated elements too.
{.types = "deepseek_v2", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 2048,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128})",
    .dtype = "bf16"},
{.types = "deepseek_v3 kimi_k2", .reading = kDecoder, .defaults = R"({"num_attention_heads": 128,
    "hidden_size": 7168, "num_hidden_layers": 61, "max_position_embeddings": 4096,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128})",
    .dtype = "bf16"},
{.types = "minicpm3", .reading = kDecoder, .defaults = R"({"num_attention_heads": 40,
    "hidden_size": 2560, "num_hidden_layers": 62, "max_position_embeddings": 32768,
    "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64})"},
{.types = "axk1", .reading = kDecoder, .defaults = R"({"num_attention_heads": 64,
    "v_head_dim": 128, "hidden_size": 7168, "num_hidden_layers": 61,
    "max_position_embeddings": 32768, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64})"},
{.types = "glm4_moe_lite", .reading = kDecoder, .defaults = R"({"num_attention_heads": 20,
    "v_head_dim": 256, "hidden_size": 2048, "num_hidden_layers": 47,
    "max_position_embeddings": 202752, "kv_lora_rank": 512, "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64})", .dtype = "bf16"},
{.types = "sarvam_mla", .reading = kDecoder, .defaults = R"({"num_attention_heads": 64,
    "v_head_dim": 128, "hidden_size": 4096, "num_hidden_layers": 32,
    "max_position_embeddings": 4096, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64})"},
{.types = "youtu", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16,
    "v_head_dim": 128, "hidden_size": 2048, "num_hidden_layers": 32,
    "max_position_embeddings": 131072, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64})"},
{.types = "mistral4", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "v_head_dim": 128, "hidden_size": 4096, "num_hidden_layers": 36,
    "max_position_embeddings": 1048576, "kv_lora_rank": 256, "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 64, "rope_parameters": {"factor": 128.0, "mscale_all_dim": 1.0}})",
    .dtype = "bf16"},
{.types = "deepseek_v32", .reading = kDecoder, .defaults = R"({"num_attention_heads": 128,
    "v_head_dim": 128, "hidden_size": 7168, "num_hidden_layers": 61,
    "max_position_embeddings": 163840, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "layer_types": ["indexed_attention"]})", .dtype = "bf16"},
{.types = "glm_moe_dsa", .reading = kDecoder, .defaults = R"({"num_attention_heads": 64,
    "v_head_dim": 256, "hidden_size": 6144, "num_hidden_layers": 78,
    "max_position_embeddings": 202752, "kv_lora_rank": 512, "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64, "layer_types": ["indexed_attention"]})", .dtype = "bf16"},
{.types = "axk2", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "v_head_dim": 64, "hidden_size": 2048, "num_hidden_layers": 48,
    "max_position_embeddings": 131072, "kv_lora_rank": 128, "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32, "layer_types": ["indexed_attention"]})"},
{.types = "hy_v4", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "v_head_dim": 256, "hidden_size": 2816, "num_hidden_layers": 34,
    "max_position_embeddings": 262144, "kv_lora_rank": 512, "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64, "layer_types": ["indexed_attention"]})",
    .ignores = "hc_sinkhorn_iters"},
{.types = "hy_v4_vl_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 64,
    "v_head_dim": 256, "hidden_size": 6144, "num_hidden_layers": 78,
    "max_position_embeddings": 262144, "kv_lora_rank": 512, "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64, "layer_types": ["indexed_attention"]})",
    .ignores = "hc_sinkhorn_iters"},
{.types = "glm5_next_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 64,
    "v_head_dim": 256, "hidden_size": 4096, "num_hidden_layers": 45,
    "max_position_embeddings": 1048576, "kv_lora_rank": 512, "qk_nope_head_dim": 256,
    "qk_rope_head_dim": 0, "layer_types": ["linear_attention", "linear_attention",
    "linear_attention", "indexed_attention"]})", .ignores = "hc_sinkhorn_iters"},
{.types = "dots3_note_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 128,
    "v_head_dim": 128, "hidden_size": 5120, "num_hidden_layers": 46,
    "max_position_embeddings": 524288, "sliding_window": 512, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64})", .needs = "layer_types"},
{.types = "mistral_large4_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 64,
    "v_head_dim": 128, "hidden_size": 6144, "num_hidden_layers": 72,
    "max_position_embeddings": 1048576, "kv_lora_rank": 512, "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 64, "layer_types": ["indexed_attention"]})", .ignores = "kv_source_layers"},
// Decoders with attention on some layers only.
{.types = "jamba", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 32,
    "max_position_embeddings": 262144, "attn_layer_period": 8, "attn_layer_offset": 4})"},
{.types = "bamba", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 32,
    "max_position_embeddings": 262144})"},
{.types = "granitemoehybrid", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 2048,
    "attention_multiplier": 1.0})", .dtype = "bf16"},
{.types = "nemotron_h", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "hidden_size": 4096, "num_hidden_layers": 52,
    "max_position_embeddings": 4096})",
    .dtype = "bf16", .needs = "layers_block_type hybrid_override_pattern"},
{.types = "qwen3_next", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "hidden_size": 2048, "num_hidden_layers": 48,
    "max_position_embeddings": 32768, "full_attention_interval": 4})", .dtype = "bf16"},
{.types = "qwen3_5_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 256, "hidden_size": 4096, "num_hidden_layers": 32,
    "max_position_embeddings": 32768, "full_attention_interval": 4})", .dtype = "bf16"},
{.types = "lfm2", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "num_key_value_heads": 8, "hidden_size": 2560, "num_hidden_layers": 32,
    "max_position_embeddings": 128000})", .dtype = "bf16"},
{.types = "minimax", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 32,
    "max_position_embeddings": 131072, "layer_types": ["full_attention", "linear_attention"]})"},
{.types = "recurrent_gemma", .reading = kDecoder, .defaults = R"({"num_attention_heads": 10,
    "hidden_size": 2560, "num_hidden_layers": 26,
    "attention_window_size": 2048, "block_types": ["recurrent", "recurrent", "attention"]})"},
{.types = "mllama_text_model", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 40,
    "max_position_embeddings": 131072, "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]})"},
{.types = "kimi_linear", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "v_head_dim": 128, "hidden_size": 2304, "num_hidden_layers": 27,
    "model_max_length": 1048576, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64})",
    .dtype = "bf16", .needs = "layer_types linear_attn_config"},
{.types = "bailing_hybrid", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "v_head_dim": 128, "hidden_size": 2560, "num_hidden_layers": 42, "model_max_length": 262144,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "full_attention_interval": 6})"},
{.types = "lara_mini", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 128, "hidden_size": 1024, "num_hidden_layers": 34,
    "max_position_embeddings": 131072, "sliding_window": 512,
    "layer_types": ["linear_attention", "sliding_attention", "linear_attention",
    "full_attention", "sliding_attention"]})", .needs = "layer_types"},
{.types = "lfm2_moe", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "num_key_value_heads": 8, "hidden_size": 2048, "num_hidden_layers": 32,
    "max_position_embeddings": 128000})", .dtype = "bf16"},
{.types = "lfm3", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 128, "hidden_size": 2048, "num_hidden_layers": 24,
    "max_position_embeddings": 128000, "sliding_window": 256})", .ignores = "use_attention_gate",
    .needs = "layer_types"},
{.types = "olmo_hybrid", .reading = kDecoder, .defaults = R"({"num_attention_heads": 30,
    "num_key_value_heads": 30, "hidden_size": 3840, "num_hidden_layers": 32,
    "max_position_embeddings": 65536, "full_attention_interval": 4})"},
{.types = "qwen3_5_moe_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "hidden_size": 2048, "num_hidden_layers": 40,
    "max_position_embeddings": 32768, "full_attention_interval": 4})", .dtype = "bf16"},
{.types = "zaya", .reading = kDecoder, .defaults = R"({"num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 128, "hidden_size": 2048, "num_hidden_layers": 40,
    "max_position_embeddings": 131072})"},
{.types = "zamba", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16,
    "num_key_value_heads": 16, "attention_head_dim": 464, "hidden_size": 3712,
    "num_hidden_layers": 76, "max_position_embeddings": 4096})", .scores = "half_scale",
    .ignores = "attention_hidden_size", .needs = "layers_block_type attn_layer_period"},
{.types = "zamba2", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "num_key_value_heads": 32, "attention_head_dim": 160, "hidden_size": 2560,
    "num_hidden_layers": 54, "max_position_embeddings": 4096, "kv_channels": 80})",
    .scores = "half_scale", .ignores = "attention_hidden_size num_query_groups",
    .needs = "layers_block_type"},
{.types = "dory", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 256, "hidden_size": 2560, "num_hidden_layers": 72,
    "max_position_embeddings": 8192, "sliding_window": 1024,
    "layer_types": ["sliding_attention", "mlp", "sliding_attention", "mlp", "sliding_attention",
    "mlp", "full_attention", "mlp"]})"},
// Decoders with attention of their own.
{.types = "longcat_flash", .reading = kDecoder, .defaults = R"({"num_attention_heads": 64,
    "v_head_dim": 128, "hidden_size": 6144, "num_layers": 28, "max_position_embeddings": 131072,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64})",
    .attentions_per_layer = 2, .dtype = "bf16"},
{.types = "diffllama", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "num_key_value_heads": 32, "head_dim": 64, "hidden_size": 2048, "num_hidden_layers": 16,
    "max_position_embeddings": 2048})", .not_supported = "the difference of two softmaxes "
        "(lambda)", .attentions_per_layer = 2},
{.types = "doge", .reading = kDecoder, .defaults = R"({"num_attention_heads": 8,
    "num_key_value_heads": 8, "hidden_size": 1024, "num_hidden_layers": 32,
    "max_position_embeddings": 2048})", .scores = "bias", .ignores = "keep_window_size"},
{.types = "jetmoe", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "num_key_value_heads": 16, "hidden_size": 2048, "num_hidden_layers": 12,
    "max_position_embeddings": 4096, "kv_channels": 128})", .scores = "repeated_kv"},
{.types = "hrm_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 12,
    "head_dim": 128, "hidden_size": 1536, "num_hidden_layers": 128,
    "max_position_embeddings": 2048, "prefix_lm": true})"},
{.types = "cpmant", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "dim_head": 128, "hidden_size": 4096, "num_hidden_layers": 48})", .scores = "bias prefix"},
{.types = "minimax_m3_vl_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 64,
    "num_key_value_heads": 4, "head_dim": 128, "hidden_size": 6144, "num_hidden_layers": 60,
    "max_position_embeddings": 524288})", .ignores = "index_head_dim index_n_heads"},
{.types = "qwen4_exp_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "hidden_size": 2048, "num_hidden_layers": 40,
    "max_position_embeddings": 32768, "layer_types": ["linear_attention", "linear_attention",
    "linear_attention", "indexed_attention"]})", .ignores = "heads_per_ngram"},
{.types = "unlimited_ocr_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 10,
    "num_key_value_heads": 10, "head_dim": 128, "hidden_size": 1280, "num_hidden_layers": 12,
    "max_position_embeddings": 32768, "sliding_window": 128,
    "layer_types": ["reference_sliding_attention"]})", .not_supported = "a window for generated "
        "tokens beside a prompt that all see"},
{.types = "inkling2_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 48,
    "num_key_value_heads": 8, "head_dim": 128, "hidden_size": 4608, "num_hidden_layers": 48,
    "max_position_embeddings": 1048576, "sliding_window_size": 1024,
    "swa_num_attention_heads": 48, "swa_num_key_value_heads": 8, "swa_head_dim": 128,
    "layer_types": ["hybrid_sliding", "hybrid_sliding", "hybrid_sliding", "hybrid_sliding",
    "hybrid_sliding", "hybrid"]})", .not_supported = "a bias that depends on q and the distance "
        "(rel_extent)", .scores = "sinks", .not_tuned = "attention over the outputs of earlier "
        "layers", .ignores = "mlp_gate_softcap mlp_up_softcap n_layers_per_attn_res_block"},
{.types = "inkling2_loop_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 24,
    "num_key_value_heads": 8, "head_dim": 128, "hidden_size": 2304, "num_hidden_layers": 24,
    "max_position_embeddings": 1048576, "sliding_window_size": 1024,
    "swa_num_attention_heads": 24, "swa_num_key_value_heads": 8, "swa_head_dim": 128,
    "layer_types": ["hybrid_sliding", "hybrid_sliding", "hybrid_sliding", "hybrid_sliding",
    "hybrid_sliding", "hybrid"]})", .not_supported = "a bias that depends on q and the distance "
        "(rel_extent)", .scores = "sinks", .not_tuned = "attention over the outputs of earlier "
        "layers", .ignores = "mlp_gate_softcap mlp_up_softcap n_layers_per_attn_res_block"},
{.types = "inkling_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128, "hidden_size": 6144, "num_hidden_layers": 66,
    "max_position_embeddings": 131072, "sliding_window_size": 512,
    "swa_num_attention_heads": 64, "swa_num_key_value_heads": 16, "swa_head_dim": 128,
    "layer_types": ["hybrid_sliding", "hybrid_sliding", "hybrid_sliding", "hybrid_sliding",
    "hybrid_sliding", "hybrid"]})", .not_supported = "a bias that depends on q and the distance "
        "(rel_extent)", .scores = "inverse_scale", .ignores = "shared_expert_sink"},
{.types = "deepseek_v4", .reading = kDecoder, .defaults = R"({"num_attention_heads": 64,
    "num_key_value_heads": 1, "head_dim": 512, "hidden_size": 4096, "num_hidden_layers": 43,
    "max_position_embeddings": 1048576, "sliding_window": 128, "qk_rope_head_dim": 64,
    "layer_types": ["sliding_attention"]})", .not_supported = "keys that stand for blocks of "
        "tokens (compress_rates)", .scores = "sinks", .ignores = "hc_sinkhorn_iters "
        "index_head_dim index_n_heads o_lora_rank q_lora_rank"},
{.types = "evolla EvollaModel", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 32,
    "max_position_embeddings": 8192})", .not_tuned = "the protein encoder and cross-attention "
        "to it", .ignores = "resampler_dim_head resampler_heads"},
{.types = "idefics", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32,
    "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 2048})",
    .parts = "vision_config=idefics_vision", .not_tuned = "cross-attention to images",
    .ignores = "cross_layer_interval"},
{.types = "blt_local_decoder", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16,
    "num_key_value_heads": 16, "head_dim": 64, "hidden_size": 1024, "num_hidden_layers": 9,
    "max_position_embeddings": 24576})", .not_tuned = "cross-attention to patches of bytes",
    .ignores = "cross_attn_all_layers cross_attn_k"},
{.types = "blt_local_encoder", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16,
    "num_key_value_heads": 16, "hidden_size": 1024, "num_hidden_layers": 1,
    "max_position_embeddings": 24576})", .not_tuned = "cross-attention to patches of bytes",
    .ignores = "cross_attn_all_layers cross_attn_k encoder_hash_byte_group_size"},
{.types = "nemotron-nas", .reading = kDecoder, .defaults = R"({"num_attention_heads": 64,
    "hidden_size": 8192, "num_hidden_layers": 80, "max_position_embeddings": 131072})"},
// Without softmax attention that attune has.
{.types = "mamba mamba2 falcon_mamba", .reading = kNotCovered, .not_supported = "state-space "
        "layers and no attention"},
{.types = "rwkv xlstm", .reading = kNotCovered, .not_supported = "recurrent layers and no "
        "attention"},
{.types = "reformer", .reading = kNotCovered, .not_supported = "attention within hash buckets "
        "(LSH)"},
{.types = "t5gemma2_decoder t5_gemma_module", .reading = kNotCovered,
    .not_supported = "self-attention and cross-attention in one softmax"},
{.types = "qwen2_5_omni_token2wav", .reading = kNotCovered, .not_supported = "a diffusion "
        "network of sound over blocks of frames"},
{.types = "phi4flash", .reading = kNotCovered, .not_supported = "layers that attend to one "
        "shared cache, and differential attention"},
{.types = "gemma4_audio granite_speech_encoder granite_speech_plus_encoder "
          "granite_speech5_encoder moonshine_streaming_encoder fastspeech2_conformer "
          "seamless_m4t seamless_m4t_v2", .reading = kNotCovered, .not_supported = "attention "
        "over blocks of sound with relative positions"},
{.types = "dac vibevoice_acoustic_tokenizer vibevoice_acoustic_tokenizer_decoder "
          "vibevoice_acoustic_tokenizer_encoder univnet speecht5_hifigan "
          "fastspeech2_conformer_hifigan qwen2_5_omni_bigvgan wavtokenizer vibevoice_diffusion",
    .reading = kNotCovered, .not_supported = "convolutions of sound and no attention"},
{.types = "sam3_lite_text_text_model", .reading = kNotCovered, .not_supported = "attention "
        "between convolutions"},
{.types = "fnet patchtsmixer", .reading = kNotCovered, .not_supported = "mixing layers and no "
        "attention"},
{.types = "longformer led longt5 pegasus_x canine mra yoso nystromformer", .reading = kNotCovered,
    .not_supported = "sparse attention or an approximation of it"},
{.types = "funnel", .reading = kNotCovered, .not_supported = "pooled queries and relative "
        "positions"},
{.types = "perceiver", .reading = kNotCovered, .not_supported = "learned queries that attend to "
        "the input"},
{.types = "lxmert", .reading = kNotCovered, .not_supported = "two streams that attend to each "
        "other"},
{.types = "sew-d", .reading = kNotCovered, .not_supported = "disentangled relative positions "
        "(relative_attention)"},
{.types = "vits speecht5 qwen2_5_omni_dit bark rag neomme esmfold2", .reading = kNotCovered,
    .not_supported = "several networks that its config does not describe by fields that attune "
        "reads"},
{.types = "patchtst", .reading = kNotCovered, .not_supported = "attention over patches of each "
        "channel of a time series"},
{.types = "detr conditional_detr dab-detr deformable_detr d_fine deimv2 grounding-dino "
          "mm-grounding-dino lw_detr mask2former maskformer oneformer omdet-turbo rf_detr "
          "rt_detr rt_detr_v2 table-transformer pp_doclayout_v2 pp_doclayout_v3 pp_doclayout_v4 "
          "lightglue superglue", .reading = kNotCovered, .not_supported = "attention of a "
        "detector between its queries and an image"},
};
// clang-format on

}  // namespace

std::span<const ModelRow> hybrid_rows() { return kRows; }

}  // namespace attune
