// SPDX-License-Identifier: Apache-2.0
// Standard attention on the CPU: scores = Q K^T, softmax of each row, output = P V. The whole score
// matrix of a head is in memory, as in frameworks without a fused kernel. Only `attune bench` uses
// it, to compare with tuned kernels. The matrix products are blocked for registers and the L2
// cache, and the compiler vectorises them for several CPUs.
#pragma once

#include <cstdint>

#include "tuner/oracles/oracle.hpp"

namespace attune {

class StandardAttention final : public StandardWay {
 public:
  StandardAttention(const Problem& problem, int num_threads);

  // Returns the bytes of all threads' scratch: K transposed, V, one head's scores and output in
  // fp32.
  int64_t scratch_bytes() const override;
  // Computes the whole problem. scratch: scratch_bytes(), 64-byte aligned. Starts and joins its
  // threads.
  void run(const Operands& operands, void* scratch) const override;

 private:
  void run_head(const Operands& args, int64_t batch, int64_t head, float* scratch) const;
  int64_t scratch_floats() const;

  Problem problem_;
  int num_threads_;
};

}  // namespace attune
