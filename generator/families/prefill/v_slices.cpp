// SPDX-License-Identifier: Apache-2.0
// Slices of V; see prefill_parts.hpp.
#include "generator/families/prefill/prefill_parts.hpp"

namespace attune {
namespace {

constexpr int kColumnStep = 8;  // 16 bytes of V

}  // namespace

int v_slices(const Config& config) { return static_cast<int>(config.get("v_slices", 1)); }

KernelSpec slice_of(const KernelSpec& spec, const Config& config) {
  KernelSpec slice = spec;
  const int step = kColumnStep * v_slices(config);
  slice.head_dim_v = (spec.head_dim_v + step - 1) / step * kColumnStep;
  return slice;
}

void add_v_slices(const KernelSpec& spec, const std::vector<int64_t>& values,
                  std::vector<Knob>* knobs) {
  if (has_wide_v(spec))
    knobs->push_back(
        {"v_slices", values, "parts of V's columns, each a tile that computes its own scores"});
}

std::vector<Constant> v_slice_constants(const KernelSpec& spec, const Config& config) {
  if (!has_wide_v(spec)) return {};
  const int last = spec.head_dim_v - slice_of(spec, config).head_dim_v;
  return {{"int", "kLastVColumn", std::to_string(last)}};
}

}  // namespace attune
