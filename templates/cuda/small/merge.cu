// SPDX-License-Identifier: Apache-2.0
// merge: joins two attention states over different keys into o and lse. The first state is q with
// its lse in q_scale, the second is k with its lse in k_scale:
//   lse = ln(e^first + e^second),  o = e^(first - lse) * q + e^(second - lse) * k
// A state that saw no key has lse -infinity and does not count, whatever its values are. Two such
// states give o = 0 and lse -infinity. An lse of +infinity or NaN makes the row NaN. The kernel
// runs on every CUDA arch. q, k and o are fp32, bf16 or fp16, independently of each other. o may be
// q, and lse may be the lse of q: a row is read before it is written.
//
//   kLanes    threads per row, adjacent in a warp; each has eight of every 8 * kLanes columns
//   kThreads  threads per block, which handles kThreads / kLanes consecutive rows of a head
#include "cuda/small/small_knobs.cuh"

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/ptx/eight_elements.cuh"
#include "cuda/ptx/special_functions.cuh"
#include "cuda/ptx/store_eight.cuh"
#include "shared/scale_args.h"

namespace attune {

constexpr int kRows = kThreads / kLanes;
constexpr int kSteps = (kHeadDimQk / 8 + kLanes - 1) / kLanes;
static_assert(32 % kLanes == 0 && kThreads % 32 == 0, "the threads of a row stand in one warp");

// The weights of the two states in the sum, and the lse of the sum.
struct Weights {
  float first, second, lse;
};

__device__ __forceinline__ Weights weights_of(float first, float second) {
  constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.69314718055994531f;
  const float empty = __int_as_float(0xff800000);
  if (first == empty && second == empty) return {0.0f, 0.0f, empty};
  const float largest = fmaxf(first, second);
  const float a = exp2_approx((first - largest) * kLog2E);
  const float b = exp2_approx((second - largest) * kLog2E);
  const float inverse = __fdiv_rn(1.0f, a + b);
  return {a * inverse, b * inverse, largest + log2_approx(a + b) * kLn2};
}

// The row that a thread works on. Rows past the last one repeat the last row and are not written.
struct Place {
  long long batch, head, row;
  bool is_row;

  __device__ __forceinline__ explicit Place(const AttentionArgs& args) {
    const unsigned heads = static_cast<unsigned>(args.num_heads_q);
    const unsigned tiles = (static_cast<unsigned>(args.seqlen_q) + kRows - 1) / kRows;
    const unsigned tile = blockIdx.x / heads % tiles;
    batch = blockIdx.x / heads / tiles;
    head = blockIdx.x % heads;
    row = static_cast<long long>(tile) * kRows + threadIdx.x / kLanes;
    is_row = row < args.seqlen_q;
    if (!is_row) row = args.seqlen_q - 1;
  }
  __device__ __forceinline__ long long in(const OperandView& view) const {
    return batch * view.batch_stride + head * view.head_stride + row * view.row_stride;
  }
  __device__ __forceinline__ float lse(const ScaleView& view) const {
    return view.data[batch * view.batch_stride + head / view.heads_per_scale * view.head_stride +
                     row * view.block_stride];
  }
};

__device__ __forceinline__ int column_of(int step) {
  return (step * kLanes + static_cast<int>(threadIdx.x % kLanes)) * 8;
}

template <Dtype kDtype>
__device__ __forceinline__ void load_row(const OperandView& view, long long first,
                                         float (&values)[kSteps][8]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
    if (column_of(step) < kHeadDimQk)
      load_eight<kDtype>(view.data, first + column_of(step), values[step]);
}

// Returns the weighted value; 0 if the state saw nothing, since its values may then be anything.
__device__ __forceinline__ float share(float weight, float value) {
  return weight == 0.0f ? 0.0f : weight * value;
}

// Grid: batch entries x tiles of rows x heads.
extern "C" __global__ void __launch_bounds__(kThreads)
    attune_kernel(const __grid_constant__ AttentionArgs args,
                  const __grid_constant__ ScaleArgs scales) {
  const Place place(args);
  if (place.batch >= args.batch) return;  // true in all threads or none: a block has one batch
  float first[kSteps][8], second[kSteps][8];
  load_row<kDtypeQ>(args.q, place.in(args.q), first);
  load_row<kDtypeKv>(args.k, place.in(args.k), second);
  const Weights weights = weights_of(place.lse(scales.q_scale), place.lse(scales.k_scale));
  __syncwarp();  // all lanes have read the row's lse, which may now be overwritten
  if (!place.is_row) return;
  if (threadIdx.x % kLanes == 0)
    args.lse[place.batch * args.lse_batch_stride + place.head * args.lse_head_stride + place.row] =
        weights.lse;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (column_of(step) >= kHeadDimQk) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      first[step][i] =
          share(weights.first, first[step][i]) + share(weights.second, second[step][i]);
    store_eight<kDtypeO>(args.o.data, place.in(args.o) + column_of(step), first[step]);
  }
}

}  // namespace attune
