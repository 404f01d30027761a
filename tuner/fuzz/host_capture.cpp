// SPDX-License-Identifier: Apache-2.0
// Makes captures with random strides; see host_capture.hpp.
#include "tuner/fuzz/host_capture.hpp"

#include <algorithm>
#include <numeric>

namespace attune::testing {
namespace {

// Draws strides: axes in any order, lines a little longer than necessary. Returns the number of
// elements.
int64_t draw_strides(std::mt19937_64& random, const CaptureSpec& spec,
                     std::vector<int64_t>* strides) {
  std::vector<size_t> order(spec.extents.size());
  std::iota(order.begin(), order.end(), 0);
  if (random() % 3 == 0) std::shuffle(order.begin(), order.end(), random);
  strides->assign(spec.extents.size(), 0);
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    if (random() % 6 == 0) continue;  // stride 0: the axis repeats
    (*strides)[order[i]] = stride;
    stride *= spec.extents[order[i]] + static_cast<int64_t>(random() % 2);
  }
  return std::max<int64_t>(stride, 1);
}

int64_t offset_of(const HostCapture& capture, std::span<const int64_t> indices) {
  int64_t offset = 0;
  for (size_t i = 0; i < capture.strides.size(); ++i)
    offset +=
        std::clamp<int64_t>(indices[i], 0, std::max<int64_t>(capture.spec.extents[i] - 1, 0)) *
        capture.strides[i];
  return offset;
}

}  // namespace

double HostCapture::at(std::span<const int64_t> indices) const {
  return load_capture(spec.type, bytes.data(), offset_of(*this, indices));
}

CaptureView HostCapture::view(const void* data) const {
  CaptureView view{data, {}, {}};
  std::copy(spec.extents.begin(), spec.extents.end(), view.extents);
  std::copy(strides.begin(), strides.end(), view.strides);
  return view;
}

HostCapture make_capture(std::mt19937_64& random, const CaptureSpec& spec) {
  HostCapture capture{spec, {}, {}};
  const int64_t count = draw_strides(random, spec, &capture.strides);
  capture.bytes.assign(static_cast<size_t>(count * capture_bytes(spec.type)), std::byte{0});
  const int64_t elements = std::accumulate(spec.extents.begin(), spec.extents.end(), int64_t{1},
                                           std::multiplies<int64_t>());
  std::vector<int64_t> at(spec.extents.size(), 0);
  for (int64_t i = 0; i < elements; ++i) {
    store_capture(spec.type, capture.bytes.data(), offset_of(capture, at), spec.sample(at, random));
    for (size_t axis = at.size(); axis-- > 0;) {  // the next element, last axis first
      if (++at[axis] < spec.extents[axis]) break;
      at[axis] = 0;
    }
  }
  return capture;
}

}  // namespace attune::testing
