// SPDX-License-Identifier: Apache-2.0
// The work of one warp of a decode kernel on the tiles that it reads: S = Q K^T, softmax, O += P V
// with mma.sync, for 16 rows of q and kKeys keys. Each warp has its own largest scores, sums and O;
// decode_join.cuh joins them.
#pragma once

#include "cuda/decode_sm80/decode_columns.cuh"
#include "cuda/decode_sm80/decode_items.cuh"
#include "cuda/decode_sm80/decode_query.cuh"
#include "cuda/decode_sm80/decode_rings.cuh"
#include "cuda/decode_sm80/decode_scores.cuh"
#include "cuda/decode_sm80/decode_slots.cuh"
#include "cuda/decode_sm80/wide_scores.cuh"  // where kWideHeads, else none/
#include "cuda/parts/online_softmax.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/tma.cuh"

namespace attune {

constexpr int kScoreTiles = kKeys / 8, kOutputTiles = kColumns.v / 8;

class DecodeProducts {
 public:
  // Reads the item's rows of q, as far as they exist.
  __device__ __forceinline__ DecodeProducts(const KernelParts& parts, const DecodeItem& item,
                                            unsigned shared)
      : item_(item), scores_(item), query_(shared), softmax_({score_unit(parts, item)}) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(lane, half);
      const bool exists = row < item.rows;
      scores_.see(half, row, exists);
      query_.read(parts, item, half, exists);
    }
    query_.end_reading();
#pragma unroll
    for (int n = 0; n < kOutputTiles; ++n)
      output_[0][n][0] = output_[0][n][1] = output_[0][n][2] = output_[0][n][3] = 0.0f;
  }

  // Sets the address of the factors of the next tile's keys.
  __device__ __forceinline__ void take_factors(FactorsAddress factors) { factors_ = factors; }

  // Groups of columns belong to caches of 4 bits.
  __device__ __forceinline__ void take_groups(GroupsAddress) const {}

  // Sets the address of the next tile's keys.
  __device__ __forceinline__ void take_keys(KeysAddress keys) { keys_ = keys; }

  // Adds tile `tile` of the request. Slot `slot` holds it.
  __device__ __forceinline__ void add(const KernelParts& parts, ColumnScores& columns,
                                      unsigned slot, int tile) {
    const int first_key = tile * kKeys, keys = item_.request.length - first_key;
    if (kLoads != 0 && keys < kKeys) clear_values(slot, keys);
    float scores[1][kScoreTiles][4];
    multiply_qk(slot, scores[0]);
    columns.join(scores[0]);
    key_factors_.multiply_scores(factors_, scores[0]);
    key_factors_.raise_unit(factors_, output_[0]);
    scores_.hide(parts, keys_, first_key, scores[0]);
    softmax_.raise_row_max(scores, output_);
    multiply_pv(slot + kValuesAt, scores[0]);
  }

  // Tells the join where results are: rows of a lane, lanes that know sums, pairs of columns.
  static constexpr int kRowsOfLane = Fragments::kRowsOfLane, kPairs = kOutputTiles;
  static __device__ __forceinline__ int row_of(int lane, int half) {
    return Fragments::row_of(lane, half);
  }
  static __device__ __forceinline__ bool has_sums(int lane) { return lane % 4 == 0; }
  static __device__ __forceinline__ constexpr int first_column(int n) {
    return Products::first_column(n);
  }
  static __device__ __forceinline__ int lane_column(int n, int lane) {
    return Products::lane_column(n, lane);
  }

  __device__ __forceinline__ float output(int n, int half, int column) const {
    return key_factors_.output(Products::output(output_[0], n, half, column));
  }
  __device__ __forceinline__ float maximum(int half) const { return softmax_.maximum(0, half); }
  // Returns the sum, the same in the row's four lanes. All lanes of the warp must call it.
  __device__ __forceinline__ float sum(int half) const {
    float sum = softmax_.sum(0, half);
    sum += __shfl_xor_sync(~0u, sum, 1);
    return sum + __shfl_xor_sync(~0u, sum, 2);
  }

 private:
  // Zeroes V after the last key: the slot may hold NaN there, and P = 0 does not hide NaN.
  static __device__ __forceinline__ void clear_values(unsigned slot, int keys) {
    constexpr int kChunks = kColumns.v / kChunkColumns;
    for (int i = threadIdx.x % 32; i < (kKeys - keys) * kChunks; i += 32) {
      const int chunk = i % kChunks, of_pair = kChunks % 2 == 0 ? i % 2 : chunk % 2;
      store_shared_16(
          VTile::pair(slot + kValuesAt + VTile::offset(keys + i / kChunks, of_pair, head_in_slot()),
                      chunk / 2),
          {{0, 0, 0, 0}});
    }
    fence_proxy_async();  // before the next copy into this slot
    __syncwarp();
  }

  __device__ __forceinline__ void multiply_qk(unsigned k, float (&scores)[kScoreTiles][4]) const {
    const int lane = threadIdx.x % 32;
    const unsigned from = k + KTile::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2, head_in_slot());
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n)
      scores[n][0] = scores[n][1] = scores[n][2] = scores[n][3] = 0.0f;
#pragma unroll
    for (int step = 0; step < kQkSteps; step += Products::kStepsOfLoad) {
      const unsigned address = KTile::pair(from, step / Products::kStepsOfLoad);
      unsigned q[Products::kStepsOfLoad][4];
      query_.get(step, q);
#pragma unroll
      for (int n = 0; n < kScoreTiles; n += 2) {
        unsigned b[4];
        ldmatrix_x4(b, address + n * 8 * KTile::kRowBytes);
        Products::add_qk(scores, n, q, b, step, kQkSteps);
      }
    }
  }

  __device__ __forceinline__ void multiply_pv(unsigned v, float (&scores)[kScoreTiles][4]) {
    const int lane = threadIdx.x % 32;
    const unsigned from = v + VTile::offset(lane % 16, lane / 16, head_in_slot());
    // With narrow codes the last load may have half of its columns; another slot may follow them.
    const unsigned lone = kNarrow ? v + VTile::offset(lane % 16, 0, head_in_slot()) : from;
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      unsigned p[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float(&fragment)[4] = scores[2 * step + half];
        softmax_.exponentiate(fragment, 0);
        key_factors_.multiply_weights(factors_, 2 * step + half, fragment);
        p[2 * half] = pack<Products::kMath>(fragment[0], fragment[1]);
        p[2 * half + 1] = pack<Products::kMath>(fragment[2], fragment[3]);
      }
#pragma unroll
      for (int n = 0; n < kOutputTiles; n += 2 * Products::kStepsOfLoad) {
        unsigned b[4];
        const unsigned rows = kNarrow && n + Products::kStepsOfLoad == kOutputTiles ? lone : from;
        ldmatrix_x4_trans(
            b, VTile::pair(rows, n / 2 / Products::kStepsOfLoad) + step * 16 * VTile::kRowBytes);
        Products::add_pv(output_[0], n, p, b);
      }
    }
  }

  const DecodeItem& item_;
  DecodeScores scores_;
  DecodeQuery query_;
  float output_[1][kOutputTiles][4];
  OnlineSoftmax<1> softmax_;
  KeyFactors key_factors_;
  FactorsAddress factors_{};
  KeysAddress keys_{};
};

}  // namespace attune
