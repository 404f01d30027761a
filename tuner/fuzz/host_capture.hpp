// SPDX-License-Identifier: Apache-2.0
// HostCapture: a tensor in host memory that a score program reads, with strides of any kind. Used
// by attention_case.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "generator/score/features/score_feature.hpp"
#include "generator/score/features/score_operands.hpp"

namespace attune::testing {

struct HostCapture {
  CaptureSpec spec;
  std::vector<std::byte> bytes;
  std::vector<int64_t> strides;  // in elements

  // Returns an element. Indices beyond the extents are clamped, as in kernels.
  double at(std::span<const int64_t> indices) const;
  CaptureView view(const void* data) const;
};

// Makes a capture with elements from its `sample`. Axes have any order and may have gaps;
// occasionally an axis repeats.
HostCapture make_capture(std::mt19937_64& random, const CaptureSpec& spec);

}  // namespace attune::testing
