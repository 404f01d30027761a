// SPDX-License-Identifier: Apache-2.0
// merge on a CPU: joins two states of attention over different keys into one. Semantics and corner
// cases are those of cuda/small/merge.cu. One thread handles a row. It reads the row before it
// writes it, so that o may be the memory of q. No knobs.
#include "cpu/small/elements.hpp"
#include "cpu/small/small_knobs.hpp"
#include "shared/kernel_arguments.h"

namespace attune {

constexpr float kEmpty = -__builtin_inff();

// The weights of two states in their sum, and the lse of the sum.
struct Weights {
  float first, second, lse;
};

inline Weights weights_of(float first, float second) {
  if (first == kEmpty && second == kEmpty) return {0, 0, kEmpty};
  const float largest = __builtin_fmaxf(first, second);
  const float a = __builtin_expf(first - largest), b = __builtin_expf(second - largest);
  return {a / (a + b), b / (a + b), largest + __builtin_logf(a + b)};
}

// Loads a row times its weight. With weight 0 the result is zeros, because a state that has seen no
// key may hold any values.
template <Dtype kDtype>
inline void load_share(const void* data, long long first, float weight, float* row) {
  if (weight == 0)
    for (int i = 0; i < kHeadDimQk; ++i) row[i] = 0;
  else
    for (int i = 0; i < kHeadDimQk; ++i) row[i] = weight * element<kDtype>(data, first + i);
}

struct Place {
  long long batch, head, row;
  long long in(const OperandView& view) const {
    return batch * view.batch_stride + head * view.head_stride + row * view.row_stride;
  }
  float lse(const ScaleView& view) const {
    return view.data[batch * view.batch_stride + head / view.heads_per_scale * view.head_stride +
                     row * view.block_stride];
  }
};

inline void merge_row(const KernelArguments& args, const Place& place) {
  const Weights weights =
      weights_of(place.lse(args.scales.q_scale), place.lse(args.scales.k_scale));
  float first[kHeadDimQk], second[kHeadDimQk];
  load_share<kDtypeQ>(args.q.data, place.in(args.q), weights.first, first);
  load_share<kDtypeKv>(args.k.data, place.in(args.k), weights.second, second);
  const long long o = place.in(args.o);
  for (int i = 0; i < kHeadDimQk; ++i)
    set_element<kDtypeO>(args.o.data, o + i, first[i] + second[i]);
  args.lse[place.batch * args.lse_batch_stride + place.head * args.lse_head_stride + place.row] =
      weights.lse;
}

extern "C" void attune_kernel(const AttentionArgs* given, int thread, int num_threads) {
  const KernelArguments& args = *static_cast<const KernelArguments*>(given);
  // Each thread handles consecutive rows, in the order of memory.
  const long long heads = args.num_heads_q, lists = heads * args.seqlen_q;
  const long long rows = lists * args.batch;
  const long long end = rows * (thread + 1) / num_threads;
  for (long long i = rows * thread / num_threads; i < end; ++i)
    merge_row(args, {i / lists, i % heads, i % lists / heads});
}

}  // namespace attune
