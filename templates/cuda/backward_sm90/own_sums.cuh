// SPDX-License-Identifier: Apache-2.0
// The kernel of dQ computes L2 and delta of a warpgroup's rows itself, because it has dout in
// shared memory. This replaces the step of backward_prepare.cuh, and dout is read once less. The
// kernels of dK and dV wait for this kernel's grid and read L2 and delta from the workspace.
#pragma once

#include "cuda/backward_sm90/layout.cuh"
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

// Four lanes share a row. Each lane has every fourth 16-byte chunk of the row.
class OwnSums {
  static constexpr int kChunks = kHeadDimV / 8;
  static constexpr int kOfLane = (kChunks + 3) / 4;

 public:
  static constexpr bool kMakes = true;

  // Starts to load o, so that the loads overlap with the wait for dout.
  __device__ __forceinline__ OwnSums(const AttentionArgs& args, const GradientArgs& gradients,
                                     int batch, int head, int first_row)
      : row_(first_row + first_accumulator_row()), sums_(row_sums(args, batch, head)) {
    const float infinity = __int_as_float(0x7f800000);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_ + 8 * half;
      const bool inside = row < args.seqlen_q;
      const auto* from = static_cast<const unsigned short*>(args.o.data) +
                         batch * args.o.batch_stride + head * args.o.head_stride +
                         row * args.o.row_stride;
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        o_[half][i] = {{0u, 0u, 0u, 0u}};
        const int chunk = 4 * i + lane_of_row();
        if (inside && chunk < kChunks)
          o_[half][i] = *reinterpret_cast<const Vector16*>(from + 8 * chunk);
      }
      lse_[half] = -infinity;
      dlse_[half] = 0.f;
      if (!inside) continue;
      lse_[half] = args.lse[batch * args.lse_batch_stride + head * args.lse_head_stride + row];
      if (gradients.dlse != nullptr)
        dlse_[half] = gradients.dlse[batch * gradients.dlse_batch_stride +
                                     head * gradients.dlse_head_stride + row];
    }
  }

  // Makes L2 and delta. `dout`: descriptor of the warpgroup's tile of dout, which has arrived.
  __device__ __forceinline__ void finish(unsigned long long dout, float (&l2)[2],
                                         float (&delta)[2]) const {
    const float infinity = __int_as_float(0x7f800000);
    const unsigned tile = (static_cast<unsigned>(dout) & 0x3FFFu) << 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_accumulator_row() + 8 * half;
      float sum = 0.f;
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        const int chunk = 4 * i + lane_of_row();
        if (chunk >= kChunks) continue;
        const Vector16 other = load_shared_16(tile + chunk / 8 * kWarpgroupRows * kPanelRowBytes +
                                              row * kPanelRowBytes + ((chunk % 8 ^ row % 8) << 4));
        sum += dot(o_[half][i], other);
      }
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      const bool empty = lse_[half] == -infinity;
      l2[half] = empty ? infinity : lse_[half] * kLog2E;
      delta[half] = empty ? 0.f : sum - dlse_[half];
    }
  }

  // Stores L2 and delta for the later kernels of dK and dV. The last tile also stores values for
  // padding rows from `tile_end` on, because those kernels read them, too.
  __device__ __forceinline__ void keep(const AttentionArgs& args, int tile_end,
                                       const float (&l2)[2], const float (&delta)[2]) const {
    if constexpr (!kHasKeys) return;
    const int rows = padded_rows(args);
    if (lane_of_row() == 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sums_[row_ + 8 * half] = l2[half];
        sums_[rows + row_ + 8 * half] = delta[half];
      }
    }
    if (tile_end < args.seqlen_q) return;
    for (int row = tile_end + static_cast<int>(threadIdx.x) % kWarpgroupThreads; row < rows;
         row += kWarpgroupThreads) {
      sums_[row] = __int_as_float(0x7f800000);
      sums_[rows + row] = 0.f;
    }
  }

 private:
  __device__ __forceinline__ static int lane_of_row() { return static_cast<int>(threadIdx.x) % 4; }

  __device__ __forceinline__ static float element(const Vector16& chunk, int i) {
    const auto bits = static_cast<unsigned short>(chunk.word[i / 2] >> (i % 2 * 16));
    return kDtypeO == Dtype::kBf16 ? bf16_to_float(bits) : fp16_to_float(bits);
  }
  __device__ __forceinline__ static float dot(const Vector16& a, const Vector16& b) {
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += element(a, i) * element(b, i);
    return sum;
  }

  int row_;  // the first of this thread's two rows
  float* sums_;
  Vector16 o_[2][kOfLane];
  float lse_[2], dlse_[2];
};

}  // namespace attune
