// SPDX-License-Identifier: Apache-2.0
// The end of a tile: O divided by its row sums, rounded to 16 bits and stored, and LSE. O goes
// through swizzled shared memory and one TMA store per panel (clipped at the ends of rows and
// head_dim), or, where shared memory is full, through a transpose within quads into 16-byte stores.
#pragma once

#include "cuda/attention/lazy_softmax.cuh"
#include "cuda/attention/mask.cuh"
#include "cuda/attention/tile_stream.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/named_barrier.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/ptx/tma.cuh"

namespace attune {

constexpr float kLn2 = 0.6931471805599453f;
// Beside any sum above 0, which is at least 1, it rounds away; where all scores are -inf it makes O
// 0 / kTinySum instead of 0 / 0. NaN stays NaN.
constexpr float kTinySum = 8.673617379884035e-19f;  // 2^-60

// What the end of a tile needs of its rows.
struct RowEnds {
  float inverse[2];  // 1 / row sum; 0 for a row that sees no key
  float lse[2];      // natural log
};

// The first of a thread's two rows.
struct RowPlace {
  int row;
  int head;
};

__device__ __forceinline__ RowPlace row_place(const PrefillTile& tile, int warpgroup, int thread) {
  return {tile.first_row + warpgroup * kHeadRows + thread_row(thread),
          tile.head + thread_head(thread)};
}

// Whether O and LSE have the first (half 0) or the second of a thread's rows.
__device__ __forceinline__ bool has_row(const AttentionArgs& args, const PrefillTile& tile,
                                        RowPlace place, int half) {
  return place.row + kNextRow * half < args.seqlen_q &&
         !is_idle(place.head + kNextHead * half - tile.head);
}

__device__ __forceinline__ RowEnds end_rows(const AttentionArgs& args, int row,
                                            const RowStats& rows) {
  RowEnds ends;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const VisibleColumns columns = visible_columns(args, row + kNextRow * half);
    const bool empty = columns.last < columns.first;
    ends.inverse[half] = empty ? 0.f : 1.f / (rows.sum[half] + kTinySum);
    ends.lse[half] =
        empty ? -__int_as_float(0x7f800000) : (rows.max[half] + log2_approx(rows.sum[half])) * kLn2;
  }
  return ends;
}

template <int kCount>
__device__ __forceinline__ void normalise(float (&o)[kCount], const RowEnds& ends) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[i] *= ends.inverse[i / 2 % 2];
  if (ends.inverse[0] == 0.f || ends.inverse[1] == 0.f) {  // exactly 0 also where V is not finite
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (ends.inverse[i / 2 % 2] == 0.f) o[i] = 0.f;
  }
}

__device__ __forceinline__ void store_lse(const AttentionArgs& args, const PrefillTile& tile,
                                          RowPlace at, const RowEnds& ends) {
  if (args.lse == nullptr || threadIdx.x % 4 != 0) return;
  float* out = args.lse + tile.batch * args.lse_batch_stride + at.head * args.lse_head_stride;
  if (has_row(args, tile, at, 0)) out[at.row] = ends.lse[0];
  if (has_row(args, tile, at, 1))
    out[kNextHead * args.lse_head_stride + at.row + kNextRow] = ends.lse[1];
}

// Waits until the former tile has left the staging of this warpgroup; `thread` counts within it.
__device__ __forceinline__ void await_staging(int warpgroup, int thread) {
  if (thread == 0) tma_store_wait_read();
  named_barrier_sync(kBarrierWarpgroup + warpgroup, kWarpgroupThreads);
}

// Shared memory -> global by TMA, after await_staging(). The warpgroup's own 64 rows.
template <int kCount>
__device__ __forceinline__ void store_output_tma(const TensorMap& map, const PrefillTile& tile,
                                                 unsigned shared, int warpgroup, int thread,
                                                 const float (&o)[kCount]) {
  const unsigned staging = shared + kLayout.o + warpgroup * kLayout.o_bytes;
  const int row = thread / 32 * 16 +
                  thread % 16;  // stmatrix: lanes 0-15 address rows, lanes 16-31 the next 8 columns
  const int chunk = thread % 32 / 16;
  const unsigned row_address = staging + row * kPanelRowBytes;
#pragma unroll
  for (int i = 0; i < kCount; i += 8) {  // 16 columns
    const int first_chunk = i / 4 % 8;   // of 8 columns, within the panel
    const unsigned address = row_address + i / 32 * kWarpgroupRows * kPanelRowBytes +
                             (((first_chunk + chunk) ^ (row % 8)) << 4);
    const unsigned low = pack<kDtypeO>(o[i], o[i + 1]);
    const unsigned high = pack<kDtypeO>(o[i + 2], o[i + 3]);
    if constexpr (kCount % 8 == 0) {
      stmatrix_x4(address, {low, high, pack<kDtypeO>(o[i + 4], o[i + 5]),
                            pack<kDtypeO>(o[i + 6], o[i + 7])});
    } else if (i + 8 <= kCount) {
      stmatrix_x4(address, {low, high, pack<kDtypeO>(o[(i + 4) % kCount], o[(i + 5) % kCount]),
                            pack<kDtypeO>(o[(i + 6) % kCount], o[(i + 7) % kCount])});
    } else {
      stmatrix_x2(address, low, high);
    }
  }
  fence_proxy_async();
  named_barrier_sync(kBarrierWarpgroup + warpgroup, kWarpgroupThreads);
  if (thread == 0) {
#pragma unroll
    for (int panel = 0; panel < kLayout.panels_o; ++panel)
      tma_store(
          map, staging + panel * kWarpgroupRows * kPanelRowBytes,
          {panel * kPanelColumns, tile.first_row + warpgroup * kHeadRows, tile.head, tile.batch});
    tma_store_commit();
  }
}

struct alignas(16) FourWords {
  unsigned word[4];
};

// Lane q of a quad holds words q, 4 + q, 8 + q, 12 + q of 16; afterwards it holds words 4 q .. 4 q
// + 3.
__device__ __forceinline__ void quad_transpose(FourWords* x) {
  unsigned(&w)[4] = x->word;
  const bool odd = threadIdx.x & 1;
  const bool upper = threadIdx.x & 2;
  unsigned a = __shfl_xor_sync(~0u, odd ? w[0] : w[1], 1);
  unsigned b = __shfl_xor_sync(~0u, odd ? w[2] : w[3], 1);
  if (odd) {
    w[0] = a;
    w[2] = b;
  } else {
    w[1] = a;
    w[3] = b;
  }
  a = __shfl_xor_sync(~0u, upper ? w[0] : w[2], 2);
  b = __shfl_xor_sync(~0u, upper ? w[1] : w[3], 2);
  if (upper) {
    w[0] = a;
    w[1] = b;
  } else {
    w[2] = a;
    w[3] = b;
  }
}

// Registers -> global: 32 columns at a time by 16-byte stores, what is left of head_dim by 4-byte
// stores.
template <int kCount>
__device__ __forceinline__ void store_output_words(const AttentionArgs& args,
                                                   const PrefillTile& tile, RowPlace place,
                                                   const float (&o)[kCount]) {
  constexpr int kGroups = kCount / 16;
  const int quad_lane = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const long long at = tile.batch * args.o.batch_stride +
                         (place.row + kNextRow * half) * args.o.row_stride +
                         (place.head + kNextHead * half) * args.o.head_stride;
    unsigned* out = reinterpret_cast<unsigned*>(static_cast<unsigned short*>(args.o.data) + at);
    const bool inside = has_row(args, tile, place, half);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      FourWords words;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        words.word[j] =
            pack<kDtypeO>(o[16 * group + 4 * j + 2 * half], o[16 * group + 4 * j + 2 * half + 1]);
      quad_transpose(&words);
      if (inside) reinterpret_cast<FourWords*>(out)[4 * group + quad_lane] = words;
    }
#pragma unroll
    for (int i = 16 * kGroups + 2 * half; i < kCount; i += 4)
      if (inside) out[i + quad_lane - 2 * half] = pack<kDtypeO>(o[i], o[i + 1]);
  }
}

}  // namespace attune
