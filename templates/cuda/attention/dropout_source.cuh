// SPDX-License-Identifier: Apache-2.0
// What the threads of a launch know of its dropout (shared/dropout.h).
#pragma once

#include "cuda/ptx/special_registers.cuh"
#include "shared/dropout.h"
#include "shared/kernel_arguments.h"

namespace attune {

class DropoutSource {
 public:
  __device__ __forceinline__ explicit DropoutSource(const DropoutArgs& args)
      : args_(&args), state_(dropout_state(args)) {}

  // `stream`: row / 16 * 8 + s.
  __device__ __forceinline__ unsigned bits(unsigned head, unsigned stream, unsigned cell) const {
    return dropout_bits(state_, args_->limit, head, stream, cell);
  }

 private:
  const DropoutArgs* args_;
  DropoutState state_;
};

// Keeps the compiler from making a word later than its caller, who has time, does.
__device__ __forceinline__ unsigned made_here(unsigned word) {
  return static_cast<unsigned>(reread(static_cast<int>(word)));
}

// Counted over all batch entries.
__device__ __forceinline__ unsigned dropout_head(const AttentionArgs& args, int batch, int head) {
  return static_cast<unsigned>(batch * args.num_heads_q + head);
}

// 1 / args.scale. Gradients begin as dS / scale = P (keep dP - delta / scale), and delta with them.
__device__ __forceinline__ float kept_part(const DropoutArgs& args) {
  return static_cast<float>(args.threshold) * (1.f / 256);
}

// For the backward pass; by the first thread of a launch.
__device__ __forceinline__ void leave_dropout_state(const DropoutArgs& args) {
  write_dropout_state(args, static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x);
}

}  // namespace attune
