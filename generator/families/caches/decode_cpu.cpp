// SPDX-License-Identifier: Apache-2.0
// The family decode_cpu: op attention_kvcache on CPUs (templates/cpu/decode/decode_cpu.cpp).
#include "generator/families/families.hpp"

#include <cmath>

#include "generator/core/ops/ops.hpp"
#include "generator/families/served.hpp"
#include "templates/shared/layouts/decode_chunks.h"
#include "templates/shared/layouts/decode_layout.h"

namespace attune {
namespace {

constexpr int64_t kWidestVector = 64;  // bytes
constexpr int64_t kTileOverhead = 1;   // as in the template

class DecodeCpu final : public KernelTemplate {
 public:
  std::string_view name() const override { return "decode_cpu"; }
  std::string_view source_path() const override { return "cpu/decode/decode_cpu.cpp"; }
  std::string_view knobs_path() const override { return "cpu/decode/decode_cpu_knobs.hpp"; }
  const Served& serves() const override { return serves_lists(); }
  bool applies_whole_programs() const override { return true; }

  // Tiles decide where work items are cut, so they affect bits.
  SearchSpace space(const KernelSpec& spec, const Arch&) const override {
    const std::vector<int64_t> keys = spec.cache.batch_invariant
                                          ? std::vector<int64_t>{64}
                                          : std::vector<int64_t>{64, 32, 128, 256};
    return SearchSpace({{"keys", keys, "keys per tile"}}, {}, {{"charge", 1}});
  }
  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape&,
                        const DeviceFacts&) const override {
    return space(spec, arch).enumerate().front();
  }
  Resources resources(const KernelSpec&, const Arch&, const Config&) const override {
    return {.threads = 1};
  }

  std::vector<Constant> extra_constants(const KernelSpec&, const Arch& arch,
                                        const Config&) const override {
    return {{"int", "kVectorBytes", std::to_string(arch.vector_bytes)}, {"int", "kVectors", "1"}};
  }

  LaunchStructure structure(const KernelSpec& spec, const Config&) const override {
    std::vector<ArgumentPart> parts{ArgumentPart::kBase, ArgumentPart::kCache};
    if (spec.cache.key_indices != KeyIndices::kNone) parts.push_back(ArgumentPart::kLists);
    if (is_4_bit(spec.dtype_kv)) parts.push_back(ArgumentPart::kGroups);
    return {.steps = {{.parts = parts}, {.entry = "attune_join", .parts = parts}},
            .workspace = {{.name = "parts"}}};
  }
  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& of_call,
                    const DeviceFacts& device) const override {
    const Shape shape = line_shape(spec, of_call);
    const int64_t items =
        shape.batch * decode_row_tiles(static_cast<int>(shape.seqlen_q), spec.gqa_ratio);
    const int64_t keys = config.at("keys");
    tile_count(items * ((shape.seqlen_kv + keys - 1) / keys + kTileOverhead));
    // Numbers per row, besides its vectors
    constexpr int64_t kLanes = kWidestVector / 4, kNumbers = 8;
    const int64_t part = spec.head_dim_v + kLanes + 2;
    const int64_t state =
        spec.head_dim_qk + spec.head_dim_v + 2 * kLanes + kDecodeBlockKeys + kNumbers;
    if (spec.cache.batch_invariant) {
      const int tiles = static_cast<int>((shape.seqlen_kv + keys - 1) / keys);
      const int64_t slots = items * most_chunks(tiles, static_cast<int>(kLeastChunkKeys / keys));
      return {.steps = std::vector<StepSize>(2),
              .workspace = {{.columns = kDecodeRows *
                                        (part * (tile_count(slots) + 1) + state * device.sm_count),
                             .rows = shape.num_heads_kv}}};
    }
    return {.steps = std::vector<StepSize>(2),
            .workspace = {{.columns = (2 * part + state) * kDecodeRows,
                           .rows = shape.num_heads_kv * device.sm_count}}};
  }

  double predicted_cost(const KernelSpec& spec, const Arch&, const Config& config,
                        const Shape& of_call, const DeviceFacts& device) const override {
    const Shape shape = line_shape(spec, of_call);
    const double keys = static_cast<double>(config.at("keys"));
    const double tiles = static_cast<double>(shape.batch * shape.num_heads_kv) *
                         std::ceil(static_cast<double>(shape.seqlen_kv) / keys);
    return std::ceil(tiles / device.sm_count) * keys * (spec.head_dim_qk + spec.head_dim_v) *
           (1 + 1 / keys);
  }

 private:
  std::optional<std::string> refusal(const KernelSpec&, const Arch& arch) const override {
    return other_target(arch, Target::kCpu);
  }
};

}  // namespace

const KernelTemplate& decode_cpu() {
  static const DecodeCpu instance;
  return instance;
}

}  // namespace attune
