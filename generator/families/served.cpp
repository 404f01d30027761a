// SPDX-License-Identifier: Apache-2.0
// See served.hpp.
#include "generator/families/served.hpp"

#include <fmt/format.h>

#include <tuple>

namespace attune {

namespace {

Served with_dropout(Served served) {
  served.features.insert("dropout");
  return served;
}
Served with_max_logits(Served served) {
  served.features.insert("max_logits");
  return served;
}

}  // namespace

const Served& serves_masks() {
  static const Served served{Op::kPrefill, {"mask", "window"}, true};
  return served;
}

const Served& serves_masks_and_dropout() {
  static const Served served = with_max_logits(with_dropout(serves_masks()));
  return served;
}

const Served& serves_masks_and_accuracy() {
  static const Served served{Op::kPrefill, {"mask", "window", "accuracy"}, true};
  return served;
}

const Served& serves_masks_and_8_bits() {
  static const Served served{
      Op::kPrefill,
      {"mask", "window", "accuracy", "v_layout", "scale_block_q", "scale_block_kv"},
      true};
  return served;
}

const Served& serves_everything() {
  static const Served served = with_max_logits(with_dropout(serves_masks_and_8_bits()));
  return served;
}

const Served& serves_gradients_and_dropout() {
  static const Served served = with_dropout(serves_gradients());
  return served;
}

const Served& serves_every_gradient() {
  static const Served served = [] {
    Served all = serves_gradients_and_dropout();
    all.features.insert({"score_gradient", "load", "repeats", "accumulate"});
    return all;
  }();
  return served;
}

const Served& serves_sums_of_gradients() {
  static const Served served = [] {
    Served all = serves_gradients_and_dropout();
    all.features.insert("accumulate");
    return all;
  }();
  return served;
}

const Served& serves_gradients_over_lists() {
  static const Served served{Op::kAttentionBackward, {"key_indices", "v_in_k", "deterministic"}};
  return served;
}

const Served& serves_score_gradients() {
  static const Served served{
      Op::kAttentionBackward,
      {"mask", "window", "dropout", "score_gradient", "load", "repeats", "deterministic"},
      true};
  return served;
}

const Served& serves_quantising() {
  static const Served served{Op::kQuantise,
                             {"v_layout", "scale_block_q", "scale_block_kv", "rotation"}};
  return served;
}

const Served& serves_merging() {
  static const Served served{Op::kMerge, {}};
  return served;
}

const Served& serves_choosing() {
  static const Served served{Op::kTopK, {"mask"}};
  return served;
}

const Served& serves_indexing() {
  static const Served served{Op::kIndexScores, {"mask"}};
  return served;
}

const Served& serves_mapping() {
  static const Served served{Op::kBlockMap, {"mask", "window"}, true};
  return served;
}

const Served& serves_caches() {
  static const Served served{Op::kAttentionKvCache,
                             {"mask", "window", "page_size", "packed_q", "packed_kv",
                              "batch_invariant", "v_in_k", "kv_factors"},
                             true};
  return served;
}

const Served& serves_lists() {
  static const Served served = [] {
    Served all = serves_caches();
    all.features.insert("key_indices");
    return all;
  }();
  return served;
}

const Served& serves_appending() {
  static const Served served{Op::kAppendKv,
                             {"page_size", "packed_q", "rotary", "rotary_dim", "rotary_interleaved",
                              "rotary_q", "kv_factors"}};
  return served;
}

const Served& serves_gradients() {
  static const Served served{
      Op::kAttentionBackward, {"mask", "window", "gradients", "deterministic"}, true};
  return served;
}

std::vector<ArgumentPart> append_parts(const KernelSpec& spec) {
  std::vector<ArgumentPart> parts{ArgumentPart::kBase, ArgumentPart::kScales, ArgumentPart::kCache,
                                  ArgumentPart::kAppend};
  if (is_4_bit(spec.dtype_kv)) parts.push_back(ArgumentPart::kGroups);
  return parts;
}

std::optional<std::string> other_target(const Arch& arch, Target target) {
  if (arch.target == target) return std::nullopt;
  return fmt::format("this template serves {}, not {}",
                     target == Target::kCpu ? "CPUs" : "CUDA archs", arch.name());
}

std::optional<std::string> cpu_refusal(const KernelSpec& spec, const Arch& arch) {
  if (auto reason = other_target(arch, Target::kCpu)) return reason;
  if (auto reason = any_dtype_refusal(spec)) return reason;
  for (const auto& [what, value, most] :
       {std::tuple{"head_dim_qk", spec.head_dim_qk, kMaxHeadDimQk},
        std::tuple{"head_dim_v", spec.head_dim_v, kMaxHeadDimV}}) {
    if (value < 16 || value > most || value % 8 != 0)
      return fmt::format("{} is {}; must be a multiple of 8 from 16 to {}", what, value, most);
  }
  for (const auto& [what, value] :
       {std::pair{"window_left", spec.window_left}, std::pair{"window_right", spec.window_right}}) {
    if (value > kWidestWindow)
      return fmt::format("{} is {}; must be 0 to {}, or -1 for an open side", what, value,
                         kWidestWindow);
  }
  return std::nullopt;
}

std::optional<std::string> gradient_refusal(const KernelSpec& spec, const Arch& arch) {
  constexpr int kMaxHeadDim = 256;
  if (arch.target != Target::kCuda || arch.compute_capability < 75)
    return fmt::format("{} is not supported; this template serves sm_75 and later", arch.name());
  if (!copies_ahead(arch) && spec.dtype_q != Dtype::kFp16)
    return fmt::format("dtype is {}; this template serves fp16 on {}, and bf16 from sm_80 on",
                       dtype_name(spec.dtype_q), arch.name());
  if (spec.dtype_q != Dtype::kFp16 && spec.dtype_q != Dtype::kBf16)
    return fmt::format("dtype is {}; this template serves fp16 and bf16", dtype_name(spec.dtype_q));
  for (const auto& [name, value] :
       {std::pair{"head_dim_qk", spec.head_dim_qk}, {"head_dim_v", spec.head_dim_v}})
    if (value < 8 || value > kMaxHeadDim || value % 8 != 0)
      return fmt::format("{} is {}; must be a multiple of 8 from 8 to {}", name, value,
                         kMaxHeadDim);
  return std::nullopt;
}

std::optional<std::string> any_dtype_refusal(const KernelSpec& spec) {
  if (spec.dtype_q == Dtype::kE5m2) return "dtype_q is e5m2; with 8-bit operands it must be e4m3";
  if (is_8_bit(spec.dtype_q) != is_8_bit(spec.dtype_kv))
    return fmt::format("dtype_q is {} and dtype_kv is {}; both must have 8 bits, or neither",
                       dtype_name(spec.dtype_q), dtype_name(spec.dtype_kv));
  if (is_8_bit(spec.dtype_o))
    return fmt::format("dtype_o is {}; must be fp32, bf16 or fp16", dtype_name(spec.dtype_o));
  return std::nullopt;
}

std::vector<Constant> constants_without_8_bits(const KernelSpec& spec) {
  if (is_8_bit(spec)) return {};
  return {{"VLayout", "kVLayout", "VLayout::kRows"},
          {"int", "kScaleBlockQ", "0"},
          {"int", "kScaleBlockKv", "0"}};
}

std::vector<Constant> vector_constants(const KernelSpec& spec, const Arch& arch,
                                       int64_t scratch_bytes) {
  std::vector<Constant> constants = constants_without_8_bits(spec);
  constants.push_back({"int", "kVectorBytes", std::to_string(arch.vector_bytes)});
  constants.push_back({"long long", "kScratchBytes", std::to_string(scratch_bytes)});
  return constants;
}

}  // namespace attune
