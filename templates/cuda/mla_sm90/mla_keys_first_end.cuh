// SPDX-License-Identifier: Apache-2.0
// Ends a tile of mla_sm90 whose O is transposed (mla_keys_first.cuh): stores O and LSE, or stores
// the tile's part in the workspace.
#pragma once

#include "cuda/cache_sm90/cache_join.cuh"
#include "cuda/mla_sm90/mla_keys_first.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/sm90/epilogue_words.cuh"

namespace attune {

class KeysFirstEnd {
 public:
  // `args` are the arguments of the tile's request.
  __device__ __forceinline__ KeysFirstEnd(const KernelParts& parts, const AttentionArgs& args,
                                          const PrefillTile& tile)
      : parts_(parts), args_(args), tile_(tile) {}

  __device__ __forceinline__ void store(OutputOfColumns& o, const ColumnStats& stats) const {
    OfRows inverse;
    bool any_none = false;
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float sum = stats.sum[t][i];
        inverse[t][i] =
            scaled_by_v(parts_.scales, tile_.head / kGqaRatio, sum == 0.f ? 0.f : 1.f / sum);
        any_none |= sum == 0.f;
        if (threadIdx.x % kWarpgroupThreads < 4)
          store_lse(own_row(t, i), (stats.max[t][i] + log2_approx(sum)) * kLn2);
      }
#pragma unroll
    for (int panel = 0; panel < kPanelsV; ++panel)
#pragma unroll
      for (int i = 0; i < 4 * kRowTiles; ++i) {
        o[panel][i] *= inverse[i / 4][i % 2];
        if (any_none && inverse[i / 4][i % 2] == 0.f) o[panel][i] = 0.f;  // 0 * NaN is NaN
      }
    store_output<kDtypeO>(o);
  }

  // Stores O of the tile in `part`, [kRows][kHeadDimV], and the maximum and sum of each row in
  // `stats_of_part`.
  __device__ __forceinline__ void leave(float* part, float2* stats_of_part,
                                        const OutputOfColumns& o, const ColumnStats& stats) const {
    const int column = warp() * 16 + lane() / 4;
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = own_row(t, i);
        if (!has_row(row)) continue;
#pragma unroll
        for (int panel = 0; panel < kPanelsV; ++panel)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            __stcg(part + row * kHeadDimV + panel * kPanelColumns + column + 8 * half,
                   o[panel][4 * t + 2 * half + i]);
        if (threadIdx.x % kWarpgroupThreads < 4)
          __stcg(stats_of_part + row, make_float2(stats.max[t][i], stats.sum[t][i]));
      }
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x) / 32 % 4; }
  static __device__ __forceinline__ int own_row(int t, int i) { return 8 * t + lane() % 4 * 2 + i; }

  __device__ __forceinline__ bool has_row(int row) const {
    return tile_.first_row + row % kHeadRows < args_.seqlen_q && !is_idle(row / kHeadRows);
  }

  __device__ __forceinline__ void store_lse(int row, float lse) const {
    if (args_.lse == nullptr || !has_row(row)) return;
    args_.lse[tile_.batch * args_.lse_batch_stride +
              (tile_.head + row / kHeadRows) * args_.lse_head_stride + tile_.first_row +
              row % kHeadRows] = lse;
  }

  __device__ __forceinline__ long long at_row(int row) const {
    return tile_.batch * args_.o.batch_stride +
           (tile_.first_row + row % kHeadRows) * args_.o.row_stride +
           (tile_.head + row / kHeadRows) * args_.o.head_stride;
  }

  template <Dtype kDtype>
  __device__ __forceinline__ void store_output(const OutputOfColumns& o) const {
    if constexpr (kDtype == Dtype::kFp32)
      store_floats(o);
    else
      store_words<kDtype>(o);
  }

  __device__ __forceinline__ void store_floats(const OutputOfColumns& o) const {
    float* const out = static_cast<float*>(args_.o.data) + warp() * 16 + lane() / 4;
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = own_row(t, i);
        if (!has_row(row)) continue;
#pragma unroll
        for (int panel = 0; panel < kPanelsV; ++panel)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            out[at_row(row) + panel * kPanelColumns + 8 * half] = o[panel][4 * t + 2 * half + i];
      }
  }

  // Transposes 8 columns by 8 rows in registers, so that each thread stores 16 bytes. A quad stores
  // 16 columns of each of two panels, all in one row.
  template <Dtype kDtype>
  __device__ __forceinline__ void store_words(const OutputOfColumns& o) const {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      const int row = 8 * t + lane() / 4, quad_lane = lane() % 4;
      const bool inside = has_row(row);
      const long long at = at_row(row);
      auto* const out = static_cast<unsigned short*>(args_.o.data) + at + warp() * 16 +
                        quad_lane / 2 * kPanelColumns + quad_lane % 2 * 8;
#pragma unroll
      for (int panel = 0; panel < kPanelsV; panel += 2) {
        FourWords words;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* const pair = o[panel + i / 2] + 4 * t + 2 * (i % 2);
          words.word[i] = movmatrix_transposed(pack<kDtype>(pair[0], pair[1]));
        }
        quad_transpose(&words);
        if (inside) *reinterpret_cast<FourWords*>(out + panel * kPanelColumns) = words;
      }
    }
  }

  const KernelParts& parts_;
  const AttentionArgs& args_;
  const PrefillTile& tile_;
};

}  // namespace attune
