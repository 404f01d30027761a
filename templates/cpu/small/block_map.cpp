// SPDX-License-Identifier: Apache-2.0
// block_map on a CPU: o[batch, row granule, head, key granule] is a byte that says which part of
// the granule the mask program shows (shared/block_map.h). As in cuda/small/block_map.cu, ranges
// decide most granules, and the others are evaluated element by element.
//
//   kRows     rows for which the row part of the program is kept while keys pass
#include "shared/block_map.h"
#include "cpu/parts/score_ranges.hpp"
#include "cpu/small/small_knobs.hpp"
#include "generated/mask_program.h"
#include "generated/mask_ranges.h"
#include "shared/kernel_arguments.h"

namespace attune {

struct Granule {
  int batch, head, kv_head;
  IntRange rows, keys;
};

// Evaluates elements of a granule until the answer cannot change.
inline int look_at(const ScoreArgs& scores, const Granule& in) {
  const MaskHead on_head = mask_head(scores, in.batch, in.head, in.kv_head);
  bool any = false, all = true;
  for (int first = in.rows.lo; first <= in.rows.hi; first += kRows) {
    const int count = in.rows.hi - first + 1 < kRows ? in.rows.hi - first + 1 : kRows;
    MaskRow on_row[kRows];
    for (int i = 0; i < count; ++i)
      on_row[i] = mask_row(scores, on_head, in.batch, in.head, in.kv_head, first + i);
    for (int kv_idx = in.keys.lo; kv_idx <= in.keys.hi; ++kv_idx) {
      const MaskColumn column = mask_column(scores, on_head, in.batch, in.head, in.kv_head, kv_idx);
      for (int i = 0; i < count; ++i) {
        const bool shown = mask_element(scores, on_head, on_row[i], column, in.batch, in.head,
                                        in.kv_head, first + i, kv_idx);
        any = any || shown;
        all = all && shown;
      }
      if (any && !all) return kSeenInPart;
    }
  }
  return all ? kSeenWhole : 0;
}

inline int find_granule(const ScoreArgs& scores, const MaskRowRanges& on_rows, const Granule& in) {
  const BoolRange range = mask_range(scores, on_rows, in.keys);
  return range.lo != range.hi ? look_at(scores, in) : range.lo ? kSeenWhole : 0;
}

// Computes all granules of some rows of a head.
inline void map_rows(const KernelArguments& args, int batch, int head, int row) {
  const ScoreArgs& scores = args.scores;
  const int last_row =
      (row + 1) * kGranuleRows < args.seqlen_q ? (row + 1) * kGranuleRows - 1 : args.seqlen_q - 1;
  unsigned char* o = static_cast<unsigned char*>(args.o.data) + batch * args.o.batch_stride +
                     head * args.o.head_stride + row * args.o.row_stride;
  const IntRange rows{row * kGranuleRows, last_row};
  const MaskRowRanges on_rows =
      mask_row_ranges(scores, int_range(batch), int_range(head), int_range(head / kGqaRatio), rows);
  for (int key = 0; key < args.seqlen_kv; key += kGranuleKeys) {
    const int last_key =
        key + kGranuleKeys < args.seqlen_kv ? key + kGranuleKeys - 1 : args.seqlen_kv - 1;
    const Granule granule{batch, head, head / kGqaRatio, rows, {key, last_key}};
    o[key / kGranuleKeys] = static_cast<unsigned char>(find_granule(scores, on_rows, granule));
  }
}

extern "C" void attune_kernel(const AttentionArgs* given, int thread, int num_threads) {
  const KernelArguments& args = *static_cast<const KernelArguments*>(given);
  const long long rows = (args.seqlen_q + kGranuleRows - 1) / kGranuleRows;
  for (long long i = thread; i < rows * args.num_heads_q * args.batch; i += num_threads) {
    const long long place = i / rows;
    map_rows(args, static_cast<int>(place / args.num_heads_q),
             static_cast<int>(place % args.num_heads_q), static_cast<int>(i % rows));
  }
}

}  // namespace attune
