// SPDX-License-Identifier: Apache-2.0
// Dropout in the kernels of backward_sm90. The workspace holds delta' = delta / scale. Then
//   dV = scale (P keep)^T dout,  dS = scale P (keep dP - delta')
// The kernels multiply complete gradients by `scale`. Kernels without dropout: none/dropout.cuh.
#pragma once

#include "cuda/backward_sm90/layout.cuh"
#include "cuda/parts/dropout_squares.cuh"
#include "cuda/ptx/convert.cuh"

namespace attune {

// Dropout of blocks of kStep columns of a warpgroup's accumulators. Rows stay, or keys do.
template <int kStep, bool kKeysStay>
class GradientDropout {
 public:
  __device__ __forceinline__ explicit GradientDropout(const DropoutArgs& args) : args_(args) {}

  // Finds the elements of a block that dropout keeps. This work overlaps with the exponentials,
  // which leave the other units idle.
  __device__ __forceinline__ void make(int block) {
    squares_.make(source_, static_cast<unsigned>(block) * (kStep / 16));
  }

  // Returns element i of dP, or 0 if it is dropped.
  __device__ __forceinline__ float kept(float dp, int i) const {
    return squares_.keeps(i / 4, i / 2 % 2, i % 2) ? dp : 0.f;
  }

  template <int kCount>
  __device__ __forceinline__ void scale_kept(float (&gradient)[kCount]) const {
#pragma unroll
    for (float& sum : gradient) sum *= args_.scale;
  }

 protected:
  using Squares = DropoutSquares<kStep / 16, kKeysStay>;

  const DropoutArgs& args_;
  DropoutSource source_;
  Squares squares_;
};

// Dropout of a warpgroup whose 64 rows stay.
class RowsDropout : public GradientDropout<kBlockN, false> {
 public:
  using GradientDropout::GradientDropout;

  // Turns delta, which this kernel has made itself, into delta'.
  __device__ __forceinline__ void take_part(float (&delta)[2]) const {
    for (float& of_row : delta) of_row *= kept_part(args_);
  }

  // Begins a tile. `first_row`: first row of the warpgroup.
  __device__ __forceinline__ void begin(const AttentionArgs& args, int batch, int head,
                                        int first_row) {
    source_ = Squares::staying(DropoutSource(args_, dropout_head(args, batch, head)),
                               static_cast<unsigned>(first_row + first_accumulator_row()) / 16);
  }

  // Sets dropped elements of a step's rounded P to zero.
  __device__ __forceinline__ void keep(unsigned (&p)[kBlockN / 4]) const {
#pragma unroll
    for (int i = 0; i < kBlockN / 4; ++i) {
      if (!squares_.keeps(i / 2, i % 2, 0)) p[i] &= 0xFFFF0000u;
      if (!squares_.keeps(i / 2, i % 2, 1)) p[i] &= 0x0000FFFFu;
    }
  }
};

// Dropout of a warpgroup whose 64 keys stay.
class KeysDropout : public GradientDropout<kKeyBlockM, true> {
 public:
  static constexpr int kRegisters = backward_dropout_registers(kKeyBlockM);

  using GradientDropout::GradientDropout;

  // Begins the steps of a head of Q. `first_key`: first key of the warpgroup.
  __device__ __forceinline__ void begin(const AttentionArgs& args, int batch, int head,
                                        int first_key) {
    const int warp = reread_thread_index() % kWarpgroupThreads / 32;
    source_ = Squares::staying(DropoutSource(args_, dropout_head(args, batch, head)),
                               static_cast<unsigned>(first_key) / 16 + warp);
  }

  // Sets dropped elements of rounded P to zero.
  template <int kPairs>
  __device__ __forceinline__ void keep(unsigned (&p)[kPairs]) const {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) p[i] = keep(p[i], i);
  }

  // Makes rounded P and dS of the four elements from i on again, without dropped elements. The
  // compiler removes what was made before. `delta` has a value for each of two queries.
  template <int kCount, int kPairs>
  __device__ __forceinline__ void redo(int i, const float (&s)[kCount], const float (&dp)[kCount],
                                       const float (&delta)[2], unsigned (&p)[kPairs],
                                       unsigned (&ds)[kPairs]) const {
#pragma unroll
    for (int j = i; j < i + 4; j += 2)
      ds[j / 2] = pack<kDtypeQ>(s[j] * (kept(dp[j], j) - delta[0]),
                                s[j + 1] * (kept(dp[j + 1], j + 1) - delta[1]));
#pragma unroll
    for (int j = i; j < i + 4; j += 2) p[j / 2] = keep(p[j / 2], j / 2);
  }

  // Returns pair i of rounded P, with zeros in place of dropped elements.
  __device__ __forceinline__ unsigned keep(unsigned pair, int i) const {
    return squares_.keep(pair, i / 2, i % 2);
  }
};

}  // namespace attune
