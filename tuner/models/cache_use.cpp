// SPDX-License-Identifier: Apache-2.0
// Reads cache fields; see config_parts.hpp.
#include "tuner/models/config_parts.hpp"

#include <algorithm>
#include <cmath>

#include "tuner/models/model_table.hpp"

namespace attune {
namespace {

// Types whose angles turn neighbouring columns. The config does not state it.
constexpr std::string_view kInterleaved =
    "gptj codegen glm glm4 glm4v glm4v_text glm_ocr glm_ocr_text chatglm cohere cohere2 "
    "cohere2_moe llama4_text ernie4_5 ernie4_5_moe ernie4_5_vl_moe ernie4_5_vl_moe_text helium blt "
    "deepseek_v2 deepseek_v3 deepseek_v4";
// Types without rotary angles whose configs look as if they had some, and types with them whose
// configs state none.
constexpr std::string_view kNotRotary = "jamba zamba zamba2 timesfm inkling inkling_text";
constexpr std::string_view kRotary = "chatglm dbrx falcon";

bool is_among(std::string_view types, const ModelFields& fields) {
  const std::string type = fields.text({"model_type"});
  bool found = false;
  for_each_part(types, ' ', [&](std::string_view one) { found = found || one == type; });
  return found;
}

bool is_interleaved(const ModelFields& fields) {
  if (fields.has({"rope_interleave"})) return fields.flag({"rope_interleave"}, false);
  return is_among(kInterleaved, fields);
}

// Old configs of Llamas state no field of rotary angles. Their norm tells them from models with
// learned positions.
bool is_rotary(const ModelFields& fields, const Problem& problem) {
  if (problem.scores.alibi || is_among(kNotRotary, fields)) return false;
  if (is_among(kRotary, fields)) return true;
  return fields.has({"rope_theta", "rope_parameters", "rope_scaling", "rotary_dim", "rotary_pct",
                     "partial_rotary_factor", "rotary_emb_base", "rms_norm_eps"});
}

// Parameters may stand for each kind of layer: rope_parameters.full_attention, .sliding_attention.
int rotary_dim(const ModelFields& fields, const Problem& problem) {
  const int head_dim = problem.head_dim_qk;
  if (fields.has({"rotary_dim"}))
    return static_cast<int>(std::clamp(fields.number_if_any({"rotary_dim"}), 0.0, 1.0 * head_dim));
  static constexpr Names kFull{"rope_parameters.full_attention.partial_rotary_factor"};
  static constexpr Names kSliding{"rope_parameters.sliding_attention.partial_rotary_factor"};
  static constexpr Names kShare{"partial_rotary_factor", "rotary_pct",
                                "rope_parameters.partial_rotary_factor"};
  const Names own = problem.window_left >= 0 ? kSliding : kFull;
  const Names names = fields.has(own) ? own : kShare;
  const double share = fields.has(names) ? fields.number_if_any(names) : 1;
  return static_cast<int>(std::lround(head_dim * std::clamp(share, 0.0, 1.0))) / 2 * 2;
}

}  // namespace

CacheUse read_cache_use(const ModelFields& fields, const Problem& problem) {
  CacheUse use;
  if (fields.has({"kv_lora_rank"}) && fields.has({"qk_rope_head_dim"})) {
    use.latent_v = static_cast<int>(fields.number_if_any({"kv_lora_rank"}));
    use.latent_qk = use.latent_v + static_cast<int>(fields.number_if_any({"qk_rope_head_dim"}));
    return use;
  }
  if (!is_rotary(fields, problem)) return use;
  use.rotary_dim = rotary_dim(fields, problem);
  use.rotary_interleaved = use.rotary_dim > 0 && is_interleaved(fields);
  return use;
}

std::optional<Dtype> cache_dtype_of(const ModelFields& config) {
  static constexpr Names kAlgorithm{"quantization_config.kv_cache_quant_algo"};
  static constexpr Names kBits{"quantization_config.kv_cache_scheme.num_bits"};
  if (config.is_text(kAlgorithm) && config.text(kAlgorithm) == "FP8") return Dtype::kE4m3;
  if (config.is_text(kAlgorithm) && config.text(kAlgorithm) == "INT8") return Dtype::kInt8;
  if (config.is_text(kAlgorithm) && config.text(kAlgorithm) == "NVFP4") return Dtype::kE2m1;
  static constexpr Names kType{"quantization_config.kv_cache_scheme.type"};
  const bool is_int = config.is_text(kType) && config.text(kType) == "int";
  const auto bits = config.number_if_any(kBits);
  if (bits == 4) return is_int ? Dtype::kInt4 : Dtype::kE2m1;
  if (bits != 8) return std::nullopt;
  return is_int ? Dtype::kInt8 : Dtype::kE4m3;
}

}  // namespace attune
