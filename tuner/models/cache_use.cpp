// SPDX-License-Identifier: Apache-2.0
// Reads cache fields; see cache_use.hpp.
#include "tuner/models/cache_use.hpp"

#include <algorithm>
#include <cmath>

#include "tuner/models/model_table.hpp"

namespace attune {
namespace {

// Types whose angles turn neighbouring columns. The config does not state it.
constexpr std::string_view kInterleaved =
    "gptj codegen glm glm4 chatglm cohere cohere2 llama4_text ernie4_5 ernie4_5_moe helium "
    "deepseek_v2 deepseek_v3";

bool is_interleaved(const ModelFields& fields) {
  if (fields.has({"rope_interleave"})) return fields.flag({"rope_interleave"}, false);
  const std::string type = fields.text({"model_type"});
  bool found = false;
  for_each_part(kInterleaved, ' ', [&](std::string_view one) { found = found || one == type; });
  return found;
}

// Old configs of Llamas state no field of rotary angles. Their norm tells them from models with
// learned positions.
bool is_rotary(const ModelFields& fields, const Problem& problem) {
  if (problem.scores.alibi) return false;
  return fields.has({"rope_theta", "rope_parameters", "rope_scaling", "rotary_dim", "rotary_pct",
                     "partial_rotary_factor", "rotary_emb_base", "rms_norm_eps"});
}

int rotary_dim(const ModelFields& fields, int head_dim) {
  if (fields.has({"rotary_dim"})) return std::min(fields.integer({"rotary_dim"}), head_dim);
  static constexpr Names kShare{"partial_rotary_factor", "rotary_pct",
                                "rope_parameters.partial_rotary_factor"};
  const double share = fields.has(kShare) ? fields.number_or_zero(kShare) : 1;
  return static_cast<int>(std::lround(head_dim * std::min(share, 1.0))) / 2 * 2;
}

}  // namespace

CacheUse read_cache_use(const ModelFields& fields, const Problem& problem) {
  CacheUse use;
  if (fields.has({"kv_lora_rank"}) && fields.has({"qk_rope_head_dim"})) {
    use.latent_v = fields.integer({"kv_lora_rank"});
    use.latent_qk = use.latent_v + fields.count({"qk_rope_head_dim"});
    return use;
  }
  if (!is_rotary(fields, problem)) return use;
  use.rotary_dim = rotary_dim(fields, problem.head_dim_qk);
  use.rotary_interleaved = use.rotary_dim > 0 && is_interleaved(fields);
  return use;
}

std::optional<Dtype> cache_dtype_of(const ModelFields& config) {
  static constexpr Names kAlgorithm{"quantization_config.kv_cache_quant_algo"};
  static constexpr Names kBits{"quantization_config.kv_cache_scheme.num_bits"};
  if (config.is_text(kAlgorithm) && config.text(kAlgorithm) == "FP8") return Dtype::kE4m3;
  if (config.is_text(kAlgorithm) && config.text(kAlgorithm) == "INT8") return Dtype::kInt8;
  if (!config.has(kBits) || config.integer(kBits) != 8) return std::nullopt;
  const bool is_integer = config.text({"quantization_config.kv_cache_scheme.type"}) == "int";
  return is_integer ? Dtype::kInt8 : Dtype::kE4m3;
}

}  // namespace attune
