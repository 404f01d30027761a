// SPDX-License-Identifier: Apache-2.0
// The last step of backward_cpu's tiles if gradients are added to existing fp32 values. Chunks of a
// row may overlap, but each column is added only once.
#pragma once

#include "cpu/backward/gradient_products.hpp"
#include "cpu/backward/gradient_tiles.hpp"
#include "cpu/parts/pack_kv.hpp"
#include "cpu/parts/transpose.hpp"
#include "cpu/parts/visibility.hpp"

namespace attune {

template <int kWidth>
inline void add_chunk(float* row, int chunk, Floats values) {
  const int begin = chunk_begin<kWidth>(chunk);
  const int done = chunk == 0 ? 0 : chunk_begin<kWidth>(chunk - 1) + kLanes - begin;
  for (int i = done > 0 ? done : 0; i < kLanes; ++i) row[begin + i] += values[i];
}

// Adds `rows`, the rows of the tile from `first` on, to dq.
inline void add_to_dq(const OperandView& view, const Tile& tile, int first, int chunk,
                      const Floats (&rows)[kLanes]) {
  for (int i = 0; i < kLanes && first + i < tile.count; ++i) {
    const long long index = tile.first + first + i;
    const int head = tile.head_kv * kGqaRatio + static_cast<int>(index % kGqaRatio);
    add_chunk<kHeadDimQk>(static_cast<float*>(view.data) + tile.batch * view.batch_stride +
                              head * view.head_stride + index / kGqaRatio * view.row_stride,
                          chunk, rows[i]);
  }
}

template <int kWidth>
inline void add_to_keys(const OperandView& view, Group group, KeyRange block, const float* sums,
                        float factor) {
  auto* to = static_cast<float*>(view.data) + group.batch * view.batch_stride +
             group.head_kv * view.head_stride + block.begin * view.row_stride;
  for (int n = block.begin; n < block.end; ++n, to += view.row_stride, sums += kPadded<kWidth>)
    for (int chunk = 0; chunk < kChunks<kWidth>; ++chunk)
      add_chunk<kWidth>(to, chunk, load<Dtype::kFp32>(sums + chunk_begin<kWidth>(chunk)) * factor);
}

}  // namespace attune
