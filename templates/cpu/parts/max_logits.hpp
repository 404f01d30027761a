// SPDX-License-Identifier: Apache-2.0
// The largest logit of each head, for kernels of problems with max_logits: the maximum of
// softmax_scale * q k^T over all rows and the keys that they see. It is in the place of o_scale:
// fp32 [num_heads_q]. Other kernels have none/max_logits.hpp.
#pragma once

#include "shared/kernel_arguments.h"

namespace attune {

// Raises the largest logit of a head, which other threads may raise too. `logit` must not be NaN.
inline void raise_max_logit(const ScaleArgs& scales, long long head, float logit) {
  auto* const to = reinterpret_cast<int*>(scales.o_scale.data + head * scales.o_scale.head_stride);
  const int bits = __builtin_bit_cast(int, logit);
  int before = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (
      logit > __builtin_bit_cast(float, before) &&
      !__atomic_compare_exchange_n(to, &before, bits, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

// The step before the main one: no head has seen a key.
extern "C" void attune_begin_logits(const AttentionArgs* given, int thread, int num_threads) {
  const ScaleView& logits = static_cast<const KernelArguments*>(given)->scales.o_scale;
  for (int head = thread; head < given->num_heads_q; head += num_threads)
    logits.data[head * logits.head_stride] = -__builtin_inff();
}

}  // namespace attune
