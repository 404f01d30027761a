// SPDX-License-Identifier: Apache-2.0
// The order in which decode_cpu reads a cache: blocks of keys, and steps of a few keys that stand far apart.
#pragma once

#include "cpu/decode_products.hpp"

namespace attune {

// Keys that are worked on together, all heads of them. Step i takes key i of each of kStreams runs of `steps` keys: so memory is read as
// kStreams streams, each from one end to the other, which the CPU's prefetchers follow.
struct KeyBlock {
  int first, count, steps;
  long long k[kBlock], v[kBlock];  // where their rows begin, of head 0

  // Places of a row's scores: whole vectors.
  int places() const { return (steps * kStreams + kLanes - 1) / kLanes * kLanes; }
  // The key at a place, or none, which is `count`.
  int key_at(int place) const {
    const int key = place % kStreams * steps + place / kStreams;
    return place < steps * kStreams && key < count ? key : count;
  }

  KeyBlock(const KernelArguments& args, const CachedRows& cached, int begin, int end)
      : first(begin), count(end - begin < kBlock ? end - begin : kBlock) {
    steps = (count + kStreams - 1) / kStreams;
    for (int key = 0; key < count; ++key) {
      k[key] = cached.in(args.k, first + key);
      v[key] = cached.in(args.v, first + key);
    }
  }
};

// The rows of a step as products read them. A key behind the last one has a row of zeros.
template <int kHeadDim>
struct StepRows {
  static constexpr KvElement kZeros[vectors_of(kHeadDim) * kLanes] = {};
  const KvElement* rows[kStreams];
  Floats wide[is_8_bit(kDtypeKv) ? kStreams * vectors_of(kHeadDim) : 1];  // fp32 of 8 bits

  StepRows(const OperandView& view, const KeyBlock& block, const long long* at, int step,
           int head) {
#pragma clang loop unroll(full)
    for (int stream = 0; stream < kStreams; ++stream) {
      const int key = stream * block.steps + step;
      if (key >= block.count) {
        rows[stream] = kZeros;
        continue;
      }
      const auto* const row =
          static_cast<const Element<kDtypeKv>*>(view.data) + at[key] + head * view.head_stride;
      if constexpr (is_8_bit(kDtypeKv)) {
        Floats* const to = wide + stream * vectors_of(kHeadDim);
        load_row<kDtypeKv, kHeadDim>(row, 0, to);
        rows[stream] = reinterpret_cast<const KvElement*>(to);
      } else {
        rows[stream] = reinterpret_cast<const KvElement*>(row);  // the same type
      }
    }
  }
};

// Calls take(step, head) for all steps of a block and all heads, in the order in which rows of `view` stand.
template <class Take>
inline void each_step(const KeyBlock& block, const OperandView& view, int heads, const Take& take) {
  if (view.head_stride > view.row_stride) {
    for (int head = 0; head < heads; ++head)
      for (int step = 0; step < block.steps; ++step) take(step, head);
  } else {
    for (int step = 0; step < block.steps; ++step)
      for (int head = 0; head < heads; ++head) take(step, head);
  }
}

}  // namespace attune
