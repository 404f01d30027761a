// SPDX-License-Identifier: Apache-2.0
// The table of model types; see model_table.hpp. Defaults are those of the transformers library
// (configuration_*.py); fields that it computes from others (head_dim of hidden_size) do not stand
// here.
#include "tuner/model_table.hpp"

#include <iterator>

namespace attune {
namespace {

using enum Reading;

// clang-format off
constexpr ModelRow kRows[] = {
// Decoders, all layers alike.
{.types = "llama", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 2048})"},
{.types = "granite granitemoe granitemoeshared", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 2048, "attention_multiplier": 1.0})"},
{.types = "olmo olmo2", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 2048})"},
{.types = "olmoe", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16, "hidden_size": 2048, "num_hidden_layers": 16, "max_position_embeddings": 4096})"},
{.types = "phi", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "hidden_size": 2048, "num_hidden_layers": 24, "max_position_embeddings": 2048})"},
{.types = "stablelm", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 32, "hidden_size": 2560, "num_hidden_layers": 32, "max_position_embeddings": 4096})"},
{.types = "gemma", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256, "hidden_size": 3072, "num_hidden_layers": 28, "max_position_embeddings": 8192})"},
{.types = "cohere", .reading = kDecoder, .defaults = R"({"num_attention_heads": 64, "hidden_size": 8192, "num_hidden_layers": 40, "max_position_embeddings": 8192})"},
{.types = "glm glm4", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "hidden_size": 4096, "num_hidden_layers": 40, "max_position_embeddings": 131072})"},
{.types = "glm4_moe", .reading = kDecoder, .defaults = R"({"num_attention_heads": 96, "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 46, "max_position_embeddings": 131072})"},
{.types = "glm4v_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 2, "hidden_size": 4096, "num_hidden_layers": 40, "max_position_embeddings": 32768})"},
{.types = "nemotron", .reading = kDecoder, .defaults = R"({"num_attention_heads": 48, "hidden_size": 6144, "num_hidden_layers": 32, "max_position_embeddings": 4096})"},
{.types = "persimmon", .reading = kDecoder, .defaults = R"({"num_attention_heads": 64, "hidden_size": 4096, "num_hidden_layers": 36, "max_position_embeddings": 16384})"},
{.types = "ernie4_5", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 128, "hidden_size": 1024, "num_hidden_layers": 18, "max_position_embeddings": 131072})"},
{.types = "ernie4_5_moe", .reading = kDecoder, .defaults = R"({"num_attention_heads": 20, "num_key_value_heads": 4, "hidden_size": 2560, "num_hidden_layers": 28, "max_position_embeddings": 131072})"},
{.types = "seed_oss", .reading = kDecoder, .defaults = R"({"num_attention_heads": 80, "num_key_value_heads": 8, "head_dim": 128, "hidden_size": 4096, "num_hidden_layers": 64, "max_position_embeddings": 524288})"},
{.types = "apertus", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 65536})"},
{.types = "arcee", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "hidden_size": 2560, "num_hidden_layers": 32, "max_position_embeddings": 4096})"},
{.types = "hunyuan_v1_dense", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 2048})"},
{.types = "helium", .reading = kDecoder, .defaults = R"({"num_attention_heads": 20, "num_key_value_heads": 20, "head_dim": 128, "hidden_size": 2560, "num_hidden_layers": 24, "max_position_embeddings": 4096})"},
{.types = "gpt_neox", .reading = kDecoder, .defaults = R"({"num_attention_heads": 64, "hidden_size": 6144, "num_hidden_layers": 44, "max_position_embeddings": 2048})"},
{.types = "opt", .reading = kDecoder, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "max_position_embeddings": 2048})"},
{.types = "biogpt", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16, "hidden_size": 1024, "num_hidden_layers": 24, "max_position_embeddings": 1024})"},
{.types = "xglm", .reading = kDecoder, .defaults = R"({"attention_heads": 16, "d_model": 1024, "num_layers": 24, "max_position_embeddings": 2048})"},
{.types = "gpt2 openai-gpt", .reading = kDecoder, .defaults = R"({"n_head": 12, "n_embd": 768, "n_layer": 12, "n_positions": 1024})"},
{.types = "gptj codegen", .reading = kDecoder, .defaults = R"({"n_head": 16, "n_embd": 4096, "n_layer": 28, "n_positions": 2048})"},
{.types = "gpt_bigcode", .reading = kDecoder, .defaults = R"({"n_head": 12, "n_embd": 768, "n_layer": 12, "n_positions": 1024, "multi_query": true})"},
{.types = "bloom", .reading = kDecoder, .defaults = R"({"n_head": 8, "hidden_size": 64, "n_layer": 2, "alibi": true})"},
{.types = "falcon RefinedWebModel", .reading = kDecoder, .defaults = R"({"num_attention_heads": 71, "hidden_size": 4544, "num_hidden_layers": 32, "multi_query": true, "alibi": false, "max_position_embeddings": 2048})"},
{.types = "RefinedWeb", .reading = kDecoder, .defaults = R"({"n_head": 128, "n_head_kv": 8, "hidden_size": 8192, "n_layer": 60, "alibi": false})"},
{.types = "baichuan", .reading = kDecoder, .defaults = R"({"num_attention_heads": 40, "hidden_size": 5120, "num_hidden_layers": 40})", .scores = "alibi_of_13b"},
{.types = "mpt", .reading = kDecoder, .defaults = R"({"n_heads": 16, "d_model": 2048, "n_layers": 24, "max_seq_len": 2048, "attn_config": {"alibi": true}})"},
{.types = "dbrx", .reading = kDecoder, .defaults = R"({"n_heads": 16, "d_model": 2048, "n_layers": 24, "max_seq_len": 2048, "attn_config": {"kv_n_heads": 1}})"},
{.types = "grok-1 grok1", .reading = kDecoder, .defaults = R"({"num_attention_heads": 48, "num_key_value_heads": 8, "hidden_size": 6144, "num_hidden_layers": 64, "max_position_embeddings": 8192, "attn_logit_softcapping": 30.0})", .architectures = "Grok1ForCausalLM Grok1ModelForCausalLM"},
{.types = "chatglm", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "kv_channels": 128, "hidden_size": 4096, "num_layers": 28, "multi_query_attention": false, "seq_length": 2048})"},
{.types = "qwen", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "hidden_size": 4096, "kv_channels": 128, "num_hidden_layers": 32, "seq_length": 2048})"},
{.types = "falcon_h1", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 8192})"},
{.types = "qwen3_vl_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 128000})"},
{.types = "qwen3_vl_moe_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16, "num_key_value_heads": 16, "hidden_size": 2048, "num_hidden_layers": 24, "max_position_embeddings": 128000})"},
// Decoders with windows, on all or some layers.
{.types = "mistral", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 131072, "sliding_window": 4096})"},
{.types = "ministral", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 131072, "sliding_window": 4096})"},
{.types = "mixtral phimoe", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 131072})"},
{.types = "phi3", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "hidden_size": 3072, "num_hidden_layers": 32, "max_position_embeddings": 4096})"},
{.types = "starcoder2", .reading = kDecoder, .defaults = R"({"num_attention_heads": 24, "num_key_value_heads": 2, "hidden_size": 3072, "num_hidden_layers": 30, "max_position_embeddings": 4096})"},
{.types = "qwen2", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 32, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 32768, "use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28})"},
{.types = "qwen2_moe", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16, "num_key_value_heads": 16, "hidden_size": 2048, "num_hidden_layers": 24, "max_position_embeddings": 32768, "use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28})"},
{.types = "qwen3", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 32768, "use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28})"},
{.types = "qwen3_moe", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 4, "hidden_size": 2048, "num_hidden_layers": 24, "max_position_embeddings": 32768, "use_sliding_window": false, "sliding_window": 4096})"},
{.types = "qwen2_vl_text qwen2_5_vl_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 64, "num_key_value_heads": 8, "hidden_size": 8192, "num_hidden_layers": 80, "max_position_embeddings": 32768, "use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 80})"},
{.types = "smollm3", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16, "num_key_value_heads": 4, "hidden_size": 2048, "num_hidden_layers": 36, "max_position_embeddings": 32768, "use_sliding_window": false})"},
{.types = "dots1", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 32, "hidden_size": 4608, "num_hidden_layers": 62, "max_position_embeddings": 2048, "sliding_window": 4096, "max_window_layers": 62})"},
{.types = "gemma2 vaultgemma", .reading = kDecoder, .defaults = R"({"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "hidden_size": 2304, "num_hidden_layers": 26, "max_position_embeddings": 8192, "sliding_window": 4096, "sliding_window_pattern": 2, "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0})"},
{.types = "gemma3_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "hidden_size": 2304, "num_hidden_layers": 26, "max_position_embeddings": 131072, "sliding_window": 4096, "sliding_window_pattern": 6, "query_pre_attn_scalar": 256})"},
{.types = "gemma3n_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "hidden_size": 2048, "num_hidden_layers": 35, "max_position_embeddings": 32768, "sliding_window": 512, "sliding_window_pattern": 5, "attention_multiplier": 1.0})"},
{.types = "cohere2", .reading = kDecoder, .defaults = R"({"num_attention_heads": 64, "hidden_size": 8192, "num_hidden_layers": 40, "max_position_embeddings": 8192, "sliding_window": 4096, "sliding_window_pattern": 4})"},
{.types = "exaone4", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 32, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 2048, "sliding_window": 4096, "sliding_window_pattern": 4})"},
{.types = "olmo3", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 2048, "sliding_window": 4096, "sliding_window_pattern": 4})"},
{.types = "gpt_oss", .reading = kDecoder, .defaults = R"({"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "hidden_size": 2880, "num_hidden_layers": 36, "max_position_embeddings": 131072, "sliding_window": 128, "sliding_window_pattern": 2})", .scores = "sinks"},
{.types = "gpt_neo", .reading = kDecoder, .defaults = R"({"num_heads": 16, "hidden_size": 2048, "num_layers": 24, "max_position_embeddings": 2048, "window_size": 256, "attention_layers": ["global", "local"], "attention_multiplier": 1.0})"},
{.types = "llama4_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "hidden_size": 5120, "num_hidden_layers": 48, "max_position_embeddings": 131072, "attention_chunk_size": 8192})"},
// Decoders with a compressed K and V; prefill runs on heads of q and k with 64 rotated elements more.
{.types = "deepseek_v2", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 2048, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128})"},
{.types = "deepseek_v3 kimi_k2", .reading = kDecoder, .defaults = R"({"num_attention_heads": 128, "hidden_size": 7168, "num_hidden_layers": 61, "max_position_embeddings": 4096, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128})"},
{.types = "minicpm3", .reading = kDecoder, .defaults = R"({"num_attention_heads": 40, "hidden_size": 2560, "num_hidden_layers": 62, "max_position_embeddings": 32768, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64})"},
// Decoders of which only some layers attend.
{.types = "jamba", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 262144, "attn_layer_period": 8, "attn_layer_offset": 4})"},
{.types = "bamba", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 262144})"},
{.types = "granitemoehybrid", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 2048, "attention_multiplier": 1.0})"},
{.types = "nemotron_h", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "hidden_size": 4096, "num_hidden_layers": 52, "max_position_embeddings": 4096})"},
{.types = "qwen3_next", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "hidden_size": 2048, "num_hidden_layers": 48, "max_position_embeddings": 32768, "full_attention_interval": 4})"},
{.types = "qwen3_5_text", .reading = kDecoder, .defaults = R"({"num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 32768, "full_attention_interval": 4})"},
{.types = "lfm2", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 2560, "num_hidden_layers": 32, "max_position_embeddings": 128000})"},
{.types = "minimax", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 32, "max_position_embeddings": 131072, "layer_types": ["full_attention", "linear_attention"]})"},
{.types = "recurrent_gemma", .reading = kDecoder, .defaults = R"({"num_attention_heads": 10, "num_key_value_heads": 1, "hidden_size": 2560, "num_hidden_layers": 26, "attention_window_size": 2048, "block_types": ["recurrent", "recurrent", "attention"]})"},
{.types = "mllama_text_model", .reading = kDecoder, .defaults = R"({"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 40, "max_position_embeddings": 131072, "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]})"},
// Encoders of text, sound and proteins.
{.types = "bert roberta xlm-roberta camembert ernie layoutlm roberta-prelayernorm data2vec-text rembert", .reading = kEncoder, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "max_position_embeddings": 512})"},
{.types = "electra", .reading = kEncoder, .defaults = R"({"num_attention_heads": 4, "hidden_size": 256, "num_hidden_layers": 12, "max_position_embeddings": 512})"},
{.types = "albert", .reading = kEncoder, .defaults = R"({"num_attention_heads": 64, "hidden_size": 4096, "num_hidden_layers": 12, "max_position_embeddings": 512})"},
{.types = "megatron-bert", .reading = kEncoder, .defaults = R"({"num_attention_heads": 16, "hidden_size": 1024, "num_hidden_layers": 24, "max_position_embeddings": 512})"},
{.types = "distilbert", .reading = kEncoder, .defaults = R"({"n_heads": 12, "dim": 768, "n_layers": 6, "max_position_embeddings": 512})"},
{.types = "nomic_bert", .reading = kEncoder, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "max_position_embeddings": 2048})"},
{.types = "modernbert", .reading = kEncoder, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 22, "max_position_embeddings": 8192, "local_attention": 128, "global_attn_every_n_layers": 3})"},
{.types = "eurobert", .reading = kEncoder, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "max_position_embeddings": 8192})"},
{.types = "mpnet", .reading = kEncoder, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "max_position_embeddings": 512})", .scores = "relative_bias"},
{.types = "deberta", .reading = kEncoder, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "max_position_embeddings": 512})", .not_supported = "disentangled relative positions (relative_attention)"},
{.types = "deberta-v2", .reading = kEncoder, .defaults = R"({"num_attention_heads": 24, "hidden_size": 1536, "num_hidden_layers": 24, "max_position_embeddings": 512})", .not_supported = "disentangled relative positions (relative_attention)"},
{.types = "esm", .reading = kEncoder, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "max_position_embeddings": 1026})"},
{.types = "wav2vec2 hubert data2vec-audio unispeech", .reading = kEncoder, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12})"},
{.types = "wavlm", .reading = kEncoder, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12})", .scores = "bias"},
{.types = "qwen2_audio_encoder", .reading = kAudio, .defaults = R"({"encoder_attention_heads": 20, "d_model": 1280, "encoder_layers": 32, "max_source_positions": 1500})"},
{.types = "clip_text_model", .reading = kFixedText, .defaults = R"({"num_attention_heads": 8, "hidden_size": 512, "num_hidden_layers": 12, "max_position_embeddings": 77, "is_decoder": true})"},
{.types = "siglip_text_model siglip2_text_model", .reading = kFixedText, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "max_position_embeddings": 64})"},
// Encoders of images.
{.types = "vit vit_msn", .reading = kImage, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "image_size": 224, "patch_size": 16})", .extra_tokens = 1},
{.types = "vit_mae", .reading = kImage, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "image_size": 224, "patch_size": 16})", .extra_tokens = 1, .not_supported = "the lengths of pre-training, which masks patches (mask_ratio),"},
{.types = "deit", .reading = kImage, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "image_size": 224, "patch_size": 16})", .extra_tokens = 2},
{.types = "dinov2", .reading = kImage, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "image_size": 224, "patch_size": 14})", .extra_tokens = 1},
{.types = "dinov2_with_registers", .reading = kImage, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "image_size": 224, "patch_size": 16, "num_register_tokens": 4})", .extra_tokens = 1},
{.types = "dinov3_vit", .reading = kImage, .defaults = R"({"num_attention_heads": 6, "hidden_size": 384, "num_hidden_layers": 12, "image_size": 224, "patch_size": 16, "num_register_tokens": 0})", .extra_tokens = 1},
{.types = "swin donut-swin maskformer-swin", .reading = kWindowStages, .defaults = R"({"embed_dim": 96, "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24], "window_size": 7, "image_size": 224, "patch_size": 4})", .scores = "bias"},
{.types = "swinv2", .reading = kWindowStages, .defaults = R"({"embed_dim": 96, "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24], "window_size": 7, "image_size": 224, "patch_size": 4, "attention_multiplier": 1.0})", .scores = "bias"},
{.types = "beit data2vec-vision", .reading = kImage, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "image_size": 224, "patch_size": 16})", .extra_tokens = 1},
{.types = "ijepa", .reading = kImage, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "image_size": 224, "patch_size": 16})"},
{.types = "clip_vision_model chinese_clip_vision_model", .reading = kImage, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "image_size": 224, "patch_size": 32})", .extra_tokens = 1},
{.types = "siglip_vision_model", .reading = kImage, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "image_size": 224, "patch_size": 16})"},
{.types = "blip_2_vision_model", .reading = kImage, .defaults = R"({"num_attention_heads": 16, "hidden_size": 1408, "num_hidden_layers": 39, "image_size": 224, "patch_size": 14})", .extra_tokens = 1},
{.types = "internvl_vision intern_vit_6b", .reading = kImage, .defaults = R"({"num_attention_heads": 16, "hidden_size": 1024, "num_hidden_layers": 24, "image_size": 448, "patch_size": 14})", .extra_tokens = 1},
{.types = "llama4_vision_model", .reading = kImage, .defaults = R"({"num_attention_heads": 16, "hidden_size": 768, "num_hidden_layers": 34, "image_size": 448, "patch_size": 14})", .extra_tokens = 1},
{.types = "siglip2_vision_model", .reading = kAnyImage, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "num_patches": 256})"},
{.types = "idefics2_vision", .reading = kAnyImage, .defaults = R"({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12, "image_size": 224, "patch_size": 32})"},
{.types = "idefics3_vision smolvlm_vision", .reading = kAnyImage, .defaults = R"({"num_attention_heads": 16, "hidden_size": 1152, "num_hidden_layers": 12, "image_size": 224, "patch_size": 32})"},
{.types = "pixtral", .reading = kAnyImage, .defaults = R"({"num_attention_heads": 16, "hidden_size": 1024, "num_hidden_layers": 24, "image_size": 1024, "patch_size": 16})"},
{.types = "qwen2_vl_vision", .reading = kAnyImage, .defaults = R"({"num_heads": 16, "embed_dim": 1280, "depth": 32, "patch_size": 14})"},
{.types = "qwen2_5_vl_vision", .reading = kWindowedImage, .defaults = R"({"num_heads": 16, "hidden_size": 1280, "depth": 32, "patch_size": 14, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31]})"},
{.types = "qwen3_vl_vision qwen3_vl_moe_vision", .reading = kAnyImage, .defaults = R"({"num_heads": 16, "hidden_size": 1152, "depth": 27, "patch_size": 16})"},
{.types = "glm4v_vision", .reading = kAnyImage, .defaults = R"({"num_heads": 12, "hidden_size": 1536, "depth": 24, "image_size": 336, "patch_size": 14})"},
{.types = "mllama_vision_model", .reading = kNotCovered, .not_supported = "attention over padded tiles"},
{.types = "gemma3n_vision", .reading = kNotCovered, .not_supported = "a MobileNet's attention"},
{.types = "gemma3n_audio", .reading = kNotCovered, .not_supported = "attention over chunks of sound with a relative position bias"},
// Encoders with decoders.
{.types = "t5", .reading = kEncoderDecoder, .defaults = R"({"num_heads": 8, "d_model": 512, "d_kv": 64, "num_layers": 6, "attention_multiplier": 1.0})", .scores = "relative_bias"},
{.types = "mt5 umt5", .reading = kEncoderDecoder, .defaults = R"({"num_heads": 6, "d_model": 512, "d_kv": 64, "num_layers": 8, "attention_multiplier": 1.0})", .scores = "relative_bias"},
{.types = "bart mbart pegasus marian m2m_100 mvp", .reading = kEncoderDecoder, .defaults = R"({"encoder_attention_heads": 16, "decoder_attention_heads": 16, "d_model": 1024, "encoder_layers": 12, "decoder_layers": 12, "max_position_embeddings": 1024})"},
{.types = "plbart", .reading = kEncoderDecoder, .defaults = R"({"encoder_attention_heads": 12, "decoder_attention_heads": 12, "d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "max_position_embeddings": 1024})"},
{.types = "blenderbot", .reading = kEncoderDecoder, .defaults = R"({"encoder_attention_heads": 32, "decoder_attention_heads": 32, "d_model": 2560, "encoder_layers": 2, "decoder_layers": 24, "max_position_embeddings": 128})"},
{.types = "blenderbot-small", .reading = kEncoderDecoder, .defaults = R"({"encoder_attention_heads": 16, "decoder_attention_heads": 16, "d_model": 512, "encoder_layers": 8, "decoder_layers": 8, "max_position_embeddings": 512})"},
{.types = "whisper", .reading = kSpeech, .defaults = R"({"encoder_attention_heads": 6, "decoder_attention_heads": 6, "d_model": 384, "encoder_layers": 4, "decoder_layers": 4, "max_source_positions": 1500, "max_target_positions": 448})"},
// Several models in one.
{.types = "clip", .reading = kParts, .parts = "text_config=clip_text_model vision_config=clip_vision_model"},
{.types = "siglip", .reading = kParts, .parts = "text_config=siglip_text_model vision_config=siglip_vision_model"},
{.types = "siglip2", .reading = kParts, .parts = "text_config=siglip2_text_model vision_config=siglip2_vision_model"},
{.types = "chinese_clip", .reading = kParts, .parts = "text_config=bert vision_config=chinese_clip_vision_model"},
{.types = "llava llava_next llava_next_video video_llava vipllava", .reading = kParts, .parts = "text_config=llama vision_config=clip_vision_model"},
{.types = "llava_onevision", .reading = kParts, .parts = "text_config=qwen2 vision_config=siglip_vision_model"},
{.types = "aya_vision cohere2_vision", .reading = kParts, .parts = "text_config=cohere2 vision_config=siglip_vision_model"},
{.types = "gemma3", .reading = kParts, .scores = "image_tokens", .parts = "text_config=gemma3_text vision_config=siglip_vision_model"},
{.types = "gemma3n", .reading = kParts, .parts = "text_config=gemma3n_text vision_config=gemma3n_vision audio_config=gemma3n_audio"},
{.types = "paligemma", .reading = kParts, .scores = "prefix", .parts = "text_config=gemma vision_config=siglip_vision_model"},
{.types = "llama4", .reading = kParts, .parts = "text_config=llama4_text vision_config=llama4_vision_model"},
{.types = "mllama", .reading = kParts, .parts = "text_config=mllama_text_model vision_config=mllama_vision_model"},
{.types = "mistral3", .reading = kParts, .parts = "text_config=mistral vision_config=pixtral"},
{.types = "idefics2", .reading = kParts, .parts = "text_config=mistral vision_config=idefics2_vision"},
{.types = "idefics3", .reading = kParts, .parts = "text_config=llama vision_config=idefics3_vision"},
{.types = "smolvlm", .reading = kParts, .parts = "text_config=llama vision_config=smolvlm_vision"},
{.types = "qwen2_vl", .reading = kParts, .parts = "text_config=qwen2_vl_text vision_config=qwen2_vl_vision"},
{.types = "qwen2_5_vl", .reading = kParts, .parts = "text_config=qwen2_5_vl_text vision_config=qwen2_5_vl_vision"},
{.types = "qwen3_vl", .reading = kParts, .parts = "text_config=qwen3_vl_text vision_config=qwen3_vl_vision"},
{.types = "qwen3_vl_moe", .reading = kParts, .parts = "text_config=qwen3_vl_moe_text vision_config=qwen3_vl_moe_vision"},
{.types = "glm4v", .reading = kParts, .parts = "text_config=glm4v_text vision_config=glm4v_vision"},
{.types = "internvl", .reading = kParts, .parts = "text_config=qwen2 vision_config=internvl_vision"},
{.types = "internvl_chat", .reading = kParts, .parts = "llm_config=qwen2 vision_config=intern_vit_6b"},
{.types = "qwen2_audio", .reading = kParts, .parts = "text_config=qwen2 audio_config=qwen2_audio_encoder"},
};
// clang-format on

bool lists(std::string_view types, std::string_view wanted) {
  bool found = false;
  for_each_part(types, ' ', [&](std::string_view type) { found = found || type == wanted; });
  return found;
}

}  // namespace

const ModelRow* find_model_row(std::string_view model_type) {
  for (const ModelRow& row : kRows)
    if (lists(row.types, model_type)) return &row;
  return nullptr;
}

const ModelRow* find_row_of_architecture(std::string_view architecture) {
  for (const ModelRow& row : kRows)
    if (lists(row.architectures, architecture)) return &row;
  return nullptr;
}

const ModelRow* begin_model_rows() { return std::begin(kRows); }
const ModelRow* end_model_rows() { return std::end(kRows); }

}  // namespace attune
