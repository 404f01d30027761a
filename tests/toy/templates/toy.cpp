// SPDX-License-Identifier: Apache-2.0
// The toy op on a CPU, in fp32. Inputs x and y use the arguments of q and k. Outputs x + y and x -
// y use those of o and v. kRows: rows that a thread takes at a time.
#include "shared/attention_args.h"
#include "toy/toy_knobs.hpp"

namespace attune {

static_assert(kDtypeQ == Dtype::kFp32, "dtype is not fp32, which alone the toy takes");

inline long long place(const OperandView& view, long long batch, long long row, long long head) {
  return batch * view.batch_stride + row * view.row_stride + head * view.head_stride;
}

inline void add_row(const AttentionArgs& args, long long batch, long long row, long long head) {
  const float* x = static_cast<const float*>(args.q.data) + place(args.q, batch, row, head);
  const float* y = static_cast<const float*>(args.k.data) + place(args.k, batch, row, head);
  float* sum = static_cast<float*>(args.o.data) + place(args.o, batch, row, head);
  float* difference = static_cast<float*>(args.v.data) + place(args.v, batch, row, head);
  for (int i = 0; i < kHeadDimQk; ++i) {
    sum[i] = x[i] + y[i];
    difference[i] = x[i] - y[i];
  }
}

}  // namespace attune

extern "C" void attune_kernel(const attune::AttentionArgs* args, int thread, int num_threads) {
  const long long rows = static_cast<long long>(args->batch) * args->seqlen_q;
  for (long long first = thread * attune::kRows; first < rows;
       first += num_threads * attune::kRows) {
    for (long long row = first; row < rows && row < first + attune::kRows; ++row)
      for (int head = 0; head < args->num_heads_q; ++head)
        attune::add_row(*args, row / args->seqlen_q, row % args->seqlen_q, head);
  }
}
