// SPDX-License-Identifier: Apache-2.0
// Work items of backward_cpu: tiles of rows and K/V heads; adding their gradients to fp32 values.
// Chunks of a row may overlap, but each column is added only once.
#pragma once

#include "cpu/backward/gradient_products.hpp"
#include "cpu/parts/list_rows.hpp"
#include "cpu/parts/pack_kv.hpp"
#include "cpu/parts/visibility.hpp"

namespace attune {

// One K/V head of one batch entry.
struct Group {
  int batch;
  int head_kv;
};

inline Group group_at(const AttentionArgs& args, long long index) {
  return {static_cast<int>(index / args.num_heads_kv), static_cast<int>(index % args.num_heads_kv)};
}
inline long long groups_of(const AttentionArgs& args) {
  return static_cast<long long>(args.batch) * args.num_heads_kv;
}
inline long long list_rows(const AttentionArgs& args) {
  return static_cast<long long>(args.seqlen_q) * kGqaRatio;
}
inline long long tiles_of(const AttentionArgs& args) {
  return (list_rows(args) + kBlockM - 1) / kBlockM;
}
inline Tile tile_at(const AttentionArgs& args, Group group, long long index) {
  const long long first = index * kBlockM, rows = list_rows(args) - first;
  return {group.batch, group.head_kv, first, static_cast<int>(rows < kBlockM ? rows : kBlockM)};
}

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
