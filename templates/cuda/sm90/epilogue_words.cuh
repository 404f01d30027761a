// SPDX-License-Identifier: Apache-2.0
// Stores O rounded to 16 bits, by 16-byte stores after a transpose within quads, or as fp32. For
// kernels whose shared memory is full.
#pragma once

#include "cuda/ptx/convert.cuh"
#include "cuda/sm90/epilogue_rows.cuh"

namespace attune {

struct alignas(16) FourWords {
  unsigned word[4];
};

// Transposes words within a quad. Lane q holds words q, 4 + q, 8 + q and 12 + q of 16; afterwards
// it holds words 4 q to 4 q + 3.
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

// Stores O of one of a thread's rows as fp32 at `out`, two columns at a time.
template <int kCount>
__device__ __forceinline__ void store_row_floats(float* out, int half, const float (&o)[kCount]) {
#pragma unroll
  for (int i = 2 * half; i < kCount; i += 4)
    *reinterpret_cast<float2*>(out + i / 4 * 8 + threadIdx.x % 4 * 2) = make_float2(o[i], o[i + 1]);
}

// Stores O from registers to global memory: 32 columns at a time by 16-byte stores, the rest of
// head_dim by 4-byte stores.
template <Dtype kDtype = kDtypeO, int kCount>
__device__ __forceinline__ void store_output_words(const AttentionArgs& args,
                                                   const PrefillTile& tile, ThreadRows place,
                                                   const float (&o)[kCount]) {
  constexpr int kGroups = kCount / 16;
  const int quad_lane = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const long long at = tile.batch * args.o.batch_stride +
                         (place.row + kNextRow * half) * args.o.row_stride +
                         (place.head + kNextHead * half) * args.o.head_stride;
    const bool inside = has_row(args, tile, place, half);
    if constexpr (kDtype == Dtype::kFp32) {
      float* out = static_cast<float*>(args.o.data) + at;
      if constexpr (kVSlices > 1) out += tile.v_column;
      if (inside) store_row_floats(out, half, o);
    } else {
      unsigned* out = reinterpret_cast<unsigned*>(static_cast<unsigned short*>(args.o.data) + at);
      if constexpr (kVSlices > 1) out += tile.v_column / 2;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        FourWords words;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          words.word[j] =
              pack<kDtype>(o[16 * group + 4 * j + 2 * half], o[16 * group + 4 * j + 2 * half + 1]);
        quad_transpose(&words);
        if (inside) reinterpret_cast<FourWords*>(out)[4 * group + quad_lane] = words;
      }
#pragma unroll
      for (int i = 16 * kGroups + 2 * half; i < kCount; i += 4)
        if (inside) out[i + quad_lane - 2 * half] = pack<kDtype>(o[i], o[i + 1]);
    }
  }
}

}  // namespace attune
