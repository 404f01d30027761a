// SPDX-License-Identifier: Apache-2.0
// HostCapture: a tensor that a score program reads, on the host, with strides of any kind. Used by attention_case.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "generator/core/score_feature.hpp"
#include "generator/core/score_operands.hpp"

namespace attune::testing {

struct HostCapture {
  CaptureSpec spec;
  std::vector<std::byte> bytes;
  std::vector<int64_t> strides;  // elements

  // Indices beyond the extents are clamped, as kernels do.
  double at(std::span<const int64_t> indices) const;
  CaptureView view(const void* data) const;
};

// Elements as the capture's `sample` draws them; axes in any order, with gaps, and now and then one that repeats.
HostCapture make_capture(std::mt19937_64& random, const CaptureSpec& spec);

}  // namespace attune::testing
