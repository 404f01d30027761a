// SPDX-License-Identifier: Apache-2.0
// top_k on a CPU: for each row of scores, the indices of the `num_tiles` largest in ascending
// order, then -1. Semantics and corner cases are those of cuda/small/top_k.cu. One thread handles a
// row: it counts ranks by their digits until it knows the least chosen rank, then writes the row.
// No knobs.
#include "cpu/small/elements.hpp"
#include "cpu/small/small_knobs.hpp"
#include "shared/kernel_arguments.h"
#include "shared/score_ranks.h"

namespace attune {

struct Rule {
  Mask mask = kMask;
  int window_left = -1, window_right = -1;
};

struct ScoreRow {
  const void* data;
  long long first;  // index of the row's first score
  int keys;         // that the row sees

  unsigned rank(int key) const {
    return rank_of(__builtin_bit_cast(unsigned, element<kDtypeQ>(data, first + key)));
  }
};

// The digits of a rank, the highest first.
struct Digit {
  int shift, bits;
};
constexpr Digit kDigits[] = {{21, 11}, {10, 11}, {0, 10}};
constexpr int kBins = 1 << 11;

// The keys with ranks above `least` are chosen, and the first `ties` keys with this rank.
struct Cut {
  unsigned least;
  int ties;
};

// Counts the row's ranks by one digit. Only ranks whose higher digits are those of `high` count,
// and no hidden keys.
inline void count_digits(const ScoreRow& row, unsigned high, Digit digit, int (&bins)[kBins]) {
  for (int& bin : bins) bin = 0;
  const int above = digit.shift + digit.bits;
  for (int key = 0; key < row.keys; ++key) {
    const unsigned long long rank = row.rank(key);
    if (rank != kHiddenRank && rank >> above == high >> above)
      ++bins[rank >> digit.shift & ((1u << digit.bits) - 1)];
  }
}

inline Cut find_cut(const ScoreRow& row, int length) {
  int bins[kBins];
  unsigned long long high = 0;
  int wanted = length;  // keys to choose among those that the next digit divides
  for (const Digit digit : kDigits) {
    count_digits(row, static_cast<unsigned>(high), digit, bins);
    int bin = (1 << digit.bits) - 1;
    for (; bin > 0 && bins[bin] < wanted; --bin) wanted -= bins[bin];
    if (bins[bin] < wanted) return {kHiddenRank, 0};  // the list has room for all keys
    high |= static_cast<unsigned long long>(bin) << digit.shift;
  }
  return {static_cast<unsigned>(high), wanted};
}

// Writes a row's list. Returns the number of keys in it.
inline int write_list(const ScoreRow& row, int length, int* list) {
  const Cut cut = length > 0 ? find_cut(row, length) : Cut{kNanRank, 0};
  int size = 0, ties = 0;
  for (int key = 0; key < row.keys; ++key) {
    const unsigned rank = row.rank(key);
    if (rank > cut.least || (rank == cut.least && ties++ < cut.ties)) list[size++] = key;
  }
  for (int i = size; i < length; ++i) list[i] = -1;
  return size;
}

extern "C" void attune_kernel(const AttentionArgs* given, int thread, int num_threads) {
  const KernelArguments& args = *static_cast<const KernelArguments*>(given);
  const long long heads = args.num_heads_q, rows = heads * args.seqlen_q * args.batch;
  for (long long i = rows * thread / num_threads; i < rows * (thread + 1) / num_threads; ++i) {
    const long long head = i % heads, row = i / heads % args.seqlen_q,
                    batch = i / heads / args.seqlen_q;
    const auto first = [&](const OperandView& view) {
      return batch * view.batch_stride + head * view.head_stride + row * view.row_stride;
    };
    const int keys = num_keys_of_row(Rule{}, args, args.scales.v_scale, static_cast<int>(batch),
                                     static_cast<int>(head), static_cast<int>(row));
    const int size = write_list({args.q.data, first(args.q), keys}, args.num_tiles,
                                static_cast<int*>(args.o.data) + first(args.o));
    if (args.lse != nullptr)
      reinterpret_cast<int*>(
          args.lse)[batch * args.lse_batch_stride + head * args.lse_head_stride + row] = size;
  }
}

}  // namespace attune
