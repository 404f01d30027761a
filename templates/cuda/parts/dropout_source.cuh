// SPDX-License-Identifier: Apache-2.0
// Dropout of a launch, as its threads see it (shared/dropout.h).
#pragma once

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "shared/dropout.h"

namespace attune {

class DropoutSource {
 public:
  DropoutSource() = default;
  // `head` is counted over all batch entries of the launch.
  __device__ __forceinline__ DropoutSource(const DropoutArgs& args, unsigned head)
      : args_(&args), key_(dropout_key(dropout_state(args), args.head0 + head)) {}

  // Return the source combined with a stream, row / 16 * 8 + s, or with a cell, key / 16.
  __device__ __forceinline__ DropoutSource of_stream(unsigned stream) const {
    return {args_, at_stream(key_, stream)};
  }
  __device__ __forceinline__ DropoutSource of_cell(unsigned cell) const {
    return {args_, at_cell(key_, cell)};
  }

  // Returns the launch's first square of 16 rows, counted over the whole problem.
  __device__ __forceinline__ unsigned first_square() const { return args_->row0 / 16; }

  // Returns the bits of a source that is combined with both a stream and a cell.
  __device__ __forceinline__ unsigned bits() const { return dropout_bits(key_, args_->limit); }

 private:
  __device__ __forceinline__ DropoutSource(const DropoutArgs* args, const DropoutKey& key)
      : args_(args), key_(key) {}

  const DropoutArgs* args_ = nullptr;
  DropoutKey key_{};
};

// Returns `word`. Keeps the compiler from moving the computation of `word` further down.
__device__ __forceinline__ unsigned made_here(unsigned word) {
  return static_cast<unsigned>(reread(static_cast<int>(word)));
}

// Returns the number of a head, counted over all batch entries of the launch.
__device__ __forceinline__ unsigned dropout_head(const AttentionArgs& args, int batch, int head) {
  return static_cast<unsigned>(batch * args.num_heads_q + head);
}

// Returns the factor of kept weights.
__device__ __forceinline__ float dropout_scale(const DropoutArgs& args) { return args.scale; }

// Returns 1 / args.scale. Gradients begin as dS / scale = P (keep dP - delta / scale), and delta as
// delta / scale.
__device__ __forceinline__ float kept_part(const DropoutArgs& args) {
  return static_cast<float>(args.threshold) * (1.f / 256);
}

// Writes the dropout state for the backward pass. The first thread of a launch does it.
__device__ __forceinline__ void leave_dropout_state(const DropoutArgs& args) {
  write_dropout_state(args, static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x);
}

}  // namespace attune
