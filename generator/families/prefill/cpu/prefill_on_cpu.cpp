// SPDX-License-Identifier: Apache-2.0
// See prefill_on_cpu.hpp.
#include "generator/families/prefill/cpu/prefill_on_cpu.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/problem/visibility.hpp"
#include "generator/families/prefill/prefill_parts.hpp"
#include "generator/families/served.hpp"

namespace attune {
namespace {

constexpr int64_t kCounterBytes = 128;

}  // namespace

// Returns the average number of keys that a row sees, from at most 64 rows.
double mean_visible_keys(const KernelSpec& spec, const Shape& shape) {
  const int64_t samples = std::clamp<int64_t>(shape.seqlen_q, 1, 64);
  double sum = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const KeyInterval<int64_t> keys =
        visible_keys(spec, shape, (2 * i + 1) * shape.seqlen_q / (2 * samples));
    sum += static_cast<double>(std::max<int64_t>(0, keys.last - keys.first + 1));
  }
  return sum / static_cast<double>(samples);
}

Constraint whole_panels(const Arch& arch, int64_t most) {
  return {"panels",
          {"block_m", "vectors"},
          [lanes = lanes_of(arch), most](const Config& config) -> std::optional<std::string> {
            const int64_t panel = config.at("vectors") * lanes;
            const int64_t block_m = config.at("block_m");
            const int64_t panels = block_m / panel;
            if (block_m % panel == 0 && panels <= most && (panels & (panels - 1)) == 0)
              return std::nullopt;
            return fmt::format(
                "block_m is {}; must be 1, 2, 4{} or {} panels of vectors x {} lanes = {} rows",
                block_m, most > 8 ? ", 8" : "", most, lanes, panel);
          }};
}

std::vector<Constant> PrefillOnCpu::extra_constants(const KernelSpec& spec, const Arch& arch,
                                                    const Config& config) const {
  return vector_constants(spec, arch, scratch_bytes(spec, config));
}

LaunchStructure PrefillOnCpu::structure(const KernelSpec& spec, const Config&) const {
  LaunchStructure all;
  all.steps[0].parts = attention_parts(spec);
  all.workspace = {{.name = "counters", .zeroed = true, .alignment = kCounterBytes},
                   {.name = "scratch", .alignment = kCounterBytes}};
  add_max_logits(spec, &all);
  return all;
}

LaunchSizes PrefillOnCpu::sizes(const KernelSpec& spec, const Config& config, const Shape&,
                                const DeviceFacts& device) const {
  constexpr int64_t kWord = sizeof(float);
  LaunchSizes all{
      .workspace = {{.columns = kCounterBytes / kWord},
                    {.columns = scratch_bytes(spec, config) / kWord, .rows = device.sm_count}}};
  add_max_logits(spec, &all);
  return all;
}

int64_t PrefillOnCpu::scratch_of(const Config& config, int64_t row_words, int64_t kv_bytes) {
  constexpr int64_t kVectorBytes = 64, kPage = 4096;                // no vectors are wider
  const int64_t rows = config.at("block_m") * 4 * (row_words + 2);  // with the softmax state
  const int64_t scores = config.at("block_n") * config.at("vectors") * kVectorBytes;
  const int64_t all = rows + scores + kv_bytes + kVectorBytes;
  return (all + kPage - 1) / kPage * kPage;
}

}  // namespace attune
