// SPDX-License-Identifier: Apache-2.0
// index_scores_sm80: op index_scores with mma.sync, bf16 and fp16 on sm_80 and later, e4m3 on sm_89
// and later. Kernel: templates/cuda/index_scores_sm80/index_scores_sm80.cu. A config is chosen by
// predicted_cost(): few rows get small blocks of keys, so that all multiprocessors have work.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generator/core/ops/ops.hpp"
#include "generator/families/cheapest_config.hpp"
#include "generator/families/limits.hpp"
#include "generator/families/served.hpp"
#include "templates/shared/layouts/index_scores_layout.h"

namespace attune {
namespace {

constexpr int kKeysOfTile = 16;
constexpr int kOtherRegisters = 64;  // besides the words of keys
constexpr int kMostHeads = 256;      // per head of k
constexpr int kLeastHeadBytes = 64;  // of which lanes load 16 each

// Rough numbers for ranking: products per clock of a multiprocessor, bytes per clock of its share
// of the memory, and clocks of a block's begin and end.
constexpr double kFlopsPerClock = 2000, kBytesPerClock = 20, kClocksOfBlock = 3000;

int head_bytes(const KernelSpec& spec) { return spec.head_dim_qk * dtype_bytes(spec.dtype_q); }

// True if the arch has no products of 8-bit floats for mma.sync (templates/cuda/ptx/mma_fp8.cuh).
bool unpacks(const KernelSpec& spec, const Arch& arch) {
  return is_8_bit(spec.dtype_q) && arch.compute_capability != 89 && arch.compute_capability < 120;
}

int stage_bytes(const KernelSpec& spec, const Config& config) {
  return as_int(config, "stages") * index_stage_bytes(spec.gqa_ratio, head_bytes(spec));
}

int keys_of_block(const Config& config) {
  return as_int(config, "warps") * as_int(config, "tiles") * kKeysOfTile;
}

Constraint keys_fit_registers(const KernelSpec& spec, const Arch& arch) {
  const int bytes = head_bytes(spec) * (unpacks(spec, arch) ? 2 : 1);
  return {"tiles",
          {"tiles", "warps"},
          [bytes, arch](const Config& config) -> std::optional<std::string> {
            const int words = as_int(config, "tiles") * bytes / 8;
            const int most = register_cap(arch, as_int(config, "warps") * 32) - kOtherRegisters;
            if (words <= most) return std::nullopt;
            return fmt::format("tiles is {}; keys take {} registers of a thread, at most {} fit",
                               as_int(config, "tiles"), words, most);
          }};
}

Constraint stages_fit_memory(const KernelSpec& spec, const Arch& arch) {
  return {"stages", {"stages"}, [spec, arch](const Config& config) -> std::optional<std::string> {
            const int bytes = stage_bytes(spec, config);
            const int most = arch.shared_bytes_per_block - 1024;  // the kernel has some of its own
            if (bytes <= most) return std::nullopt;
            return fmt::format("stages is {}; they take {} bytes of shared memory, at most {} fit",
                               as_int(config, "stages"), bytes, most);
          }};
}

class IndexScoresSm80 final : public KernelTemplate {
 public:
  std::string_view name() const override { return "index_scores_sm80"; }
  std::string_view source_path() const override {
    return "cuda/index_scores_sm80/index_scores_sm80.cu";
  }
  std::string_view knobs_path() const override {
    return "cuda/index_scores_sm80/index_scores_sm80_knobs.cuh";
  }
  const Served& serves() const override { return serves_indexing(); }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    return SearchSpace({{"tiles", {2, 1}, "tiles of 16 keys that a warp holds in registers"},
                        {"warps", {8, 4}, "warps per block, each with keys of its own"},
                        {"rows", {32, 64, 16, 8}, "rows of q that a block handles"},
                        {"stages", {2, 3}, "rows of q in shared memory"}},
                       {keys_fit_registers(spec, arch), stages_fit_memory(spec, arch)});
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    return cheapest_config(*this, spec, arch, shape, device);
  }

  Resources resources(const KernelSpec& spec, const Arch& arch,
                      const Config& config) const override {
    const int threads = as_int(config, "warps") * 32;
    return {.threads = threads,
            .shared_bytes = stage_bytes(spec, config),
            .max_registers = register_cap(arch, threads)};
  }

  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch& arch,
                                        const Config&) const override {
    return {bool_constant("kUnpack", unpacks(spec, arch)),
            {"int", "kElementBytes", std::to_string(dtype_bytes(spec.dtype_q))}};
  }

  LaunchStructure structure(const KernelSpec& spec, const Config& config) const override {
    return {.steps = {{.parts = {ArgumentPart::kBase, ArgumentPart::kScales},
                       .threads = static_cast<unsigned>(as_int(config, "warps") * 32),
                       .shared_bytes = static_cast<unsigned>(stage_bytes(spec, config))}}};
  }
  LaunchSizes sizes(const KernelSpec&, const Config& config, const Shape& shape,
                    const DeviceFacts&) const override {
    return {.steps = {{.grid_x = grid_extent(blocks(config, shape))}}};
  }

  // Returns clocks: waves of blocks, each with its products, or its keys and scores from memory.
  double predicted_cost(const KernelSpec& spec, const Arch&, const Config& config,
                        const Shape& shape, const DeviceFacts& device) const override {
    const double keys = keys_of_block(config);
    const auto rows = static_cast<double>(
        std::min<int64_t>(config.at("rows"), std::max<int64_t>(1, shape.seqlen_q)));
    const double products = 2.0 * index_heads(spec.gqa_ratio) * spec.head_dim_qk * keys * rows;
    const double bytes = keys * (head_bytes(spec) + 4 * rows) +
                         rows * spec.gqa_ratio * head_bytes(spec) / 4;  // q comes from L2
    // A q line that is read from shared memory serves `tiles` products.
    const double sharing = 1 + 0.15 * (2 - as_int(config, "tiles"));
    const double of_block = std::max(products * sharing / kFlopsPerClock, bytes / kBytesPerClock) +
                            kClocksOfBlock / as_int(config, "stages");
    const double waves = std::ceil(static_cast<double>(blocks(config, shape)) /
                                   static_cast<double>(device.sm_count));
    return waves * of_block;
  }

 private:
  static int64_t blocks(const Config& config, const Shape& shape) {
    const int64_t keys = keys_of_block(config), rows = config.at("rows");
    return shape.batch * shape.num_heads_kv * ((shape.seqlen_q + rows - 1) / rows) *
           ((shape.seqlen_kv + keys - 1) / keys);
  }

  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    if (arch.target != Target::kCuda || arch.compute_capability < 80)
      return fmt::format("{} is not supported; this template serves sm_80 and later", arch.name());
    if (spec.dtype_q == Dtype::kFp32)
      return "dtype is fp32; this template serves bf16, fp16 and e4m3";
    if (is_8_bit(spec.dtype_q) && arch.compute_capability < 89)
      return fmt::format("dtype is {} on {}; 8-bit operands need sm_89 or later",
                         dtype_name(spec.dtype_q), arch.name());
    if (head_bytes(spec) % kLeastHeadBytes != 0)
      return fmt::format("head_dim_qk is {}; must be a multiple of {}", spec.head_dim_qk,
                         kLeastHeadBytes / dtype_bytes(spec.dtype_q));
    if (spec.head_dim_qk > kMaxHeadDimOf8Bits)
      return fmt::format("head_dim_qk is {}; must be at most {}", spec.head_dim_qk,
                         kMaxHeadDimOf8Bits);
    if (spec.gqa_ratio > kMostHeads || 2 * index_stage_bytes(spec.gqa_ratio, head_bytes(spec)) >
                                           arch.shared_bytes_per_block - 1024)
      return fmt::format("{} heads of q share a head of k; their rows do not fit shared memory",
                         spec.gqa_ratio);
    return std::nullopt;
  }
};

}  // namespace

const KernelTemplate& index_scores_sm80() {
  static const IndexScoresSm80 instance;
  return instance;
}

}  // namespace attune
