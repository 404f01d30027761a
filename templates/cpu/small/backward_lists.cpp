// SPDX-License-Identifier: Apache-2.0
// backward_lists: gradients of attention over lists of keys, from the definition, in fp32
// arithmetic. Formulas are those of cuda/small/backward_reference.cu; each row sees the keys that
// its list names, a key that is named twice twice. An entry that names no key is skipped. With
// kValuesInKeys dV is added to the first columns of dK. q, k, v, o, dout and their gradients: fp32,
// bf16 or fp16, any strides with contiguous head_dim. No knobs. Sums have a fixed order: a thread
// makes whole rows of dQ, and whole rows of dK and dV.
//
// Workspace: shared/layouts/backward_lists_layout.h.
#include "cpu/small/small_knobs.hpp"

#include "cpu/small/gradient_pair.hpp"
#include "cpu/small/reference_rows.hpp"
#include "shared/layouts/backward_lists_layout.h"
#include "shared/listed_arguments.h"
#include "shared/numbered_row.h"

namespace attune {

constexpr int kSumColumns = backward_lists_columns(kHeadDimQk, kHeadDimV, kValuesInKeys);

// The keys that the list of a row names, for a head of K.
struct RowList {
  const int* entries;
  int count, keys;

  RowList(const KernelArguments& args, int batch, int row, int head_kv) : keys(args.seqlen_kv) {
    const KeyListArgs& lists = static_cast<const ListedArguments&>(args).lists;
    const long long number = static_cast<long long>(batch) * args.seqlen_q + row;
    entries = lists.indices + number * lists.row_stride + head_kv * lists.head_stride;
    count = lists.length;
    if (lists.counts == nullptr) return;
    const int given = lists.counts[number];
    count = given < 0 ? 0 : given > lists.length ? lists.length : given;
  }
  // Calls visit(key) for each entry that names a key.
  template <class Visit>
  void each(const Visit& visit) const {
    for (int i = 0; i < count; ++i)
      if (entries[i] >= 0 && entries[i] < keys) visit(entries[i]);
  }
};

// Returns a sum in float64. Errors of scores are those of the exponent of P. dP and delta nearly
// cancel where a row sees few keys, and a key that few rows name has no other terms in which such
// errors would vanish.
template <int kColumns>
inline float exact_dot(const float* a, const float* b) {
#pragma clang fp reassociate(on)
  double sum = 0;
  for (int c = 0; c < kColumns; ++c) sum += static_cast<double>(a[c]) * b[c];
  return static_cast<float>(sum);
}

// P and dS of one row and one key.
struct ListPair {
  float p = 0, ds = 0;

  ListPair(const KernelArguments& args, int batch, int head, int row, const float* q,
           const float* k, const float* dout, const float* v) {
    const float lse = args.lse[batch * args.lse_batch_stride + head * args.lse_head_stride + row];
    if (lse == -__builtin_inff()) return;  // the row sees no key
    p = __builtin_expf(exact_dot<kHeadDimQk>(q, k) * args.softmax_scale - lse);
    ds = p * (exact_dot<kHeadDimV>(dout, v) - *delta_of(args, batch, head, row));
  }
};

inline void write_dq(const KernelArguments& args, int batch, int head, int row) {
  float q[kHeadDimQk], dout[kHeadDimV], k[kHeadDimQk], v[kHeadDimV], dq[kHeadDimQk] = {};
  load_row<kDtypeQ, kHeadDimQk>(args.q, batch, head, row, q);
  load_row<kDtypeO, kHeadDimV>(args.gradients.dout, batch, head, row, dout);
  RowList(args, batch, row, head / kGqaRatio).each([&](int key) {
    load_row<kDtypeKv, kHeadDimQk>(args.k, batch, head / kGqaRatio, key, k);
    load_row<kDtypeKv, kHeadDimV>(args.v, batch, head / kGqaRatio, key, v);
    const ListPair pair(args, batch, head, row, q, k, dout, v);
    for (int c = 0; c < kHeadDimQk; ++c) dq[c] += pair.ds * k[c];
  });
  store_row<kDtypeQ, kHeadDimQk>(args.gradients.dq, batch, head, row, dq, args.softmax_scale);
}

// Returns the sums of a key: dK, then dV unless V is in K.
inline float* sums_of(const KernelArguments& args, int batch, int head_kv, int key) {
  const long long rows = static_cast<long long>(args.batch) * args.num_heads_q * args.seqlen_q;
  const long long keys = static_cast<long long>(batch) * args.seqlen_kv + key;
  return static_cast<float*>(args.workspace) + backward_lists_aligned(rows) +
         (keys * args.num_heads_kv + head_kv) * kSumColumns;
}

// Adds what all heads of a row contribute to dK and dV of a key.
inline void add_row(const KernelArguments& args, int batch, int head_kv, int row, int key) {
  float k[kHeadDimQk], v[kHeadDimV], q[kHeadDimQk], dout[kHeadDimV];
  load_row<kDtypeKv, kHeadDimQk>(args.k, batch, head_kv, key, k);
  load_row<kDtypeKv, kHeadDimV>(args.v, batch, head_kv, key, v);
  float* const dk = sums_of(args, batch, head_kv, key);
  float* const dv = dk + (kValuesInKeys ? 0 : kHeadDimQk);
  for (int head = head_kv * kGqaRatio; head < (head_kv + 1) * kGqaRatio; ++head) {
    load_row<kDtypeQ, kHeadDimQk>(args.q, batch, head, row, q);
    load_row<kDtypeO, kHeadDimV>(args.gradients.dout, batch, head, row, dout);
    const ListPair pair(args, batch, head, row, q, k, dout, v);
    const float ds = args.softmax_scale * pair.ds;
    for (int c = 0; c < kHeadDimQk; ++c) dk[c] += ds * q[c];
    for (int c = 0; c < kHeadDimV; ++c) dv[c] += pair.p * dout[c];
  }
}

// Writes dK and dV of every num_threads-th key of a head.
inline void write_keys(const KernelArguments& args, int batch, int head_kv, int thread,
                       int num_threads) {
  const auto each_key = [&](const auto& visit) {
    for (int key = thread; key < args.seqlen_kv; key += num_threads)
      visit(key, sums_of(args, batch, head_kv, key));
  };
  each_key([](int, float* sums) {
    for (int c = 0; c < kSumColumns; ++c) sums[c] = 0;
  });
  for (int row = 0; row < args.seqlen_q; ++row)
    RowList(args, batch, row, head_kv).each([&](int key) {
      if (key % num_threads == thread) add_row(args, batch, head_kv, row, key);
    });
  each_key([&](int key, const float* sums) {
    store_row<kDtypeKv, kHeadDimQk>(args.gradients.dk, batch, head_kv, key, sums, 1);
    if (!kValuesInKeys)
      store_row<kDtypeKv, kHeadDimV>(args.gradients.dv, batch, head_kv, key, sums + kHeadDimQk, 1);
  });
}

// Calls `visit(batch, head, row)` with this thread's share of all rows.
template <class Visit>
inline void for_rows(const AttentionArgs& args, int thread, int num_threads, const Visit& visit) {
  const long long rows = static_cast<long long>(args.batch) * args.num_heads_q * args.seqlen_q;
  for (long long i = thread; i < rows; i += num_threads) {
    const NumberedRow at = numbered_row(i, args.batch, args.num_heads_q, args.seqlen_q);
    visit(at.batch, at.head, at.row);
  }
}

// A barrier of all threads separates the three steps.
extern "C" void attune_delta(const AttentionArgs* given, int thread, int num_threads) {
  const KernelArguments& args = *static_cast<const KernelArguments*>(given);
  for_rows(args, thread, num_threads, [&](int batch, int head, int row) {
    write_delta(args, batch, head, row, exact_dot<kHeadDimV>);
  });
}

extern "C" void attune_kernel(const AttentionArgs* given, int thread, int num_threads) {
  const KernelArguments& args = *static_cast<const KernelArguments*>(given);
  for_rows(args, thread, num_threads,
           [&](int batch, int head, int row) { write_dq(args, batch, head, row); });
}

extern "C" void attune_keys(const AttentionArgs* given, int thread, int num_threads) {
  const KernelArguments& args = *static_cast<const KernelArguments*>(given);
  for (int batch = 0; batch < args.batch; ++batch)
    for (int head = 0; head < args.num_heads_kv; ++head)
      write_keys(args, batch, head, thread, num_threads);
}

}  // namespace attune
