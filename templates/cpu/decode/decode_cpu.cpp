// SPDX-License-Identifier: Apache-2.0
// decode_cpu: attention of a few rows of q over long caches on a CPU, op attention_kvcache. Threads
// share all work evenly (shared/layouts/decode_partition.h). If several threads share an item, the
// first step leaves their parts of it in the workspace (shared/layouts/decode_layout.h), and the
// second step joins them. A thread processes one block of keys at a time (decode_steps.hpp): q . k
// with all heads of K, the softmax, then the sums of V. A row of K or V is read once for all rows
// of q that share its head (decode_products.hpp). If it is narrower than fp32, it is converted in
// registers. If the CPU multiplies pairs of bf16 (add_pairs), weights are rounded to bf16
// and nothing is converted.
//
// q, k, v, o: fp32, bf16 or fp16. k and v may also be e4m3, e5m2 or int8, with a factor for each
// head, or for each key of a head; or int4 or e2m1, with a factor for each 16 or 32 columns of a
// key. Any head dims; pages of any size, or slots. With lists of keys
// each row sees the keys that its list names (key_lists.hpp).
#include "cpu/decode/decode_cpu_knobs.hpp"

#include "shared/kernel_arguments.h"

#include "cpu/decode/decode_steps.hpp"
#include "cpu/decode/request_scores.hpp"  // where kRequestLengths, else none/
#include "cpu/parts/none/features.hpp"
#include "cpu/parts/score_of.hpp"  // where kScored, else none/
#include "cpu/parts/sinks.hpp"     // where kSinks, else none/
#include "shared/key_factors.h"
#include "shared/layouts/decode_partition.h"

namespace attune {

constexpr int kTileOverhead = 1;  // the fixed cost of a work item, in tiles
constexpr float kLog2E = 1.4426950408889634f, kLowest = -3e38f;

// A thread's state for the rows of an item. Rows of one head of K are adjacent. Scores are in base
// 2.
struct RowStates {
  Floats (*q)[kQkVectors];
  Floats (*output)[kOutVectors];
  float (*scores)[kBlock];  // then weights
  float* largest;
  float* sum;
  DecodeKeys* seen;

  RowStates from(int row) const {
    return {q + row, output + row, scores + row, largest + row, sum + row, seen + row};
  }
};

inline void begin_rows(const KernelArguments& args, const DecodeItem& item, const RowStates& rows) {
  for (int r = 0; r < item.rows; ++r) {
    load_row<kDtypeQ, kHeadDimQk>(args.q.data, item.in(args.q, r), rows.q[r]);
    order_row<kHeadDimQk, kOrderOfQ>(rows.q[r]);
    for (Floats& vector : rows.output[r]) vector = 0.0f;
    rows.largest[r] = kLowest;
    rows.sum[r] = 0;
    rows.seen[r] = decode_keys(DecodeRule{}, item.request, item.token(r));
  }
}

// Turns products q . k of row `r` into scores: -infinity if the row does not see the key or the
// place has no key.
inline void score_row(const KernelArguments& args, const DecodeItem& item, const KeyBlock& block,
                      int r, DecodeKeys seen, float* scores) {
  float factor = args.softmax_scale;
  if constexpr (kHeadFactors) factor *= score_factor(args.scales.k_scale, item.kv_head);
  block.factors.apply_to_scores(args, block, item.kv_head, scores);
  const int batch = item.number, head = item.head(r), kv_head = item.kv_head;
  const int position = item.position(r), places = block.places;
  for (int place = 0; place < places; ++place) {
    float score = scores[place] * factor;
    score = score_of(args.scores, score, batch, head, kv_head, position, block.key_of(place));
    scores[place] = score * kLog2E;
  }
  if constexpr (kKeyLists) {
    for (int place = 0; place < places; ++place)
      if (!block.has(place)) scores[place] = -kInfinity;
    return;
  }
  const int last = block.first + block.count - 1;
  if (seen.first <= block.first && last <= seen.last && places == block.count) return;
  if (seen.last > last) seen.last = last;  // places past the last key have no key
  for (int place = 0; place < places; ++place) {
    const int key = block.first + block.key_at(place);
    if (key < seen.first || key > seen.last) scores[place] = -kInfinity;
  }
}

inline Panel load_panel(const float* from) {
  Panel panel;
  __builtin_memcpy(&panel, from, sizeof(panel));
  return panel;
}

inline float largest_of(Panel panel) {
  float largest = panel[0];
#pragma clang loop unroll(full)
  for (int lane = 1; lane < kLanes; ++lane) largest = panel[lane] > largest ? panel[lane] : largest;
  return largest;
}

inline float power_of_2(float exponent) { return exp2_nonpositive(Panel(exponent))[0]; }

// Turns the products of row `r` with a block into weights. A NaN score gives NaN weights. The
// largest score is at least kLowest.
inline void weigh_row(const KernelArguments& args, const DecodeItem& item, const KeyBlock& block,
                      int r, const RowStates& rows) {
  float* const scores = rows.scores[r];
  const int places = block.places;
  score_row(with_lengths(args, item.whole()), item, block, r, rows.seen[r], scores);
  const float before = rows.largest[r];
  Panel most = before;
  for (int place = 0; place < places; place += kPanelRows)
    most = larger(load_panel(scores + place), most);
  const float largest = largest_of(most);
  Panel sum = 0.0f;
  for (int place = 0; place < places; place += kPanelRows) {
    const Panel weights = exp2_nonpositive(load_panel(scores + place) - largest);
    store_weights(scores, place, weights);
    sum += weights;
  }
  if (largest != before) {
    const float decay = power_of_2(before - largest);
    rows.sum[r] *= decay;
    for (Floats& vector : rows.output[r]) vector *= decay;
  }
  block.factors.apply_to_weights(args, block, item.kv_head, scores);
  rows.largest[r] = largest;
  rows.sum[r] += sum_of(sum);
}

// Adds a block of keys to the rows of its heads. `next` is the following block.
inline void add_block(const KernelArguments& args, const DecodePiece& piece, const KeyBlock& block,
                      const KeyBlock& next, int count, const RowStates& rows) {
  const int heads = block.heads.count;
  const BlockReader<kHeadDimQk, kStepKeys> k(args.k, block, block.k, block.groups.of_k(args),
                                             heads);
  const BlockReader<kHeadDimV, kStepValues> v(args.v, block, block.v, block.groups.of_v(args),
                                              heads);
  const BlockReader<kHeadDimQk, kStepKeys> next_k(args.k, next, next.k, next.groups.of_k(args),
                                                  heads);
  k.each_step(
      [&](const KvElement* const* keys, int place, int head) {
        each_row_tile(count, [&](auto tile, int r) {
          const RowStates of = rows.from(head * count + r);
          dot_rows<tile.count>(of.q, keys, of.scores[0] + place);
        });
      },
      [&](int i) { v.fetch(i); });
  for (int head = 0; head < heads; ++head) {
    const DecodeItem item(args, piece.request, piece.item, block.heads.first + head);
    for (int r = 0; r < count; ++r) weigh_row(args, item, block, r, rows.from(head * count));
  }
  v.each_step(
      [&](const KvElement* const* values, int place, int head) {
        each_row_tile(count, [&](auto tile, int r) {
          const RowStates of = rows.from(head * count + r);
          add_rows<tile.count>(weights_from(of.scores[0], place), values, of.output);
        });
      },
      [&](int i) { next_k.fetch(i); });
}

struct RowEnd {
  float inverse, lse;
};

inline RowEnd end_of_row(const KernelArguments& args, int head, int kv_head, float largest,
                         float sum) {
  constexpr float kLn2 = 0.69314718055994531f;
  float natural = largest * kLn2;
  const float share = join_sink(sink_of(args.scores, head), natural, sum);
  float inverse = sum == 0 ? 0 : share / sum;
  if constexpr (kHeadFactors) inverse = scaled_by(args.scales.v_scale, kv_head, inverse);
  return {inverse, natural + __builtin_logf(sum)};
}

// Writes a row of o and its lse. `row` is the output before the division by the sum.
inline void write_row(const KernelArguments& args, const DecodeItem& item, int r, const Floats* row,
                      float largest, float sum) {
  const RowEnd end = end_of_row(args, item.head(r), item.kv_head, largest, sum);
  const Floats nothing[kOutVectors] = {};
  if (sum == 0) row = nothing;  // exactly 0, even if V is not finite
  store_row<kDtypeO, kHeadDimV>(args.o.data, item.in(args.o, r), row, end.inverse);
  if (args.lse) args.lse[item.in_lse(args, r)] = end.lse;
}

// The workspace: first slots of parts, two per thread, each [num_heads_kv][kDecodeRows] rows of O
// with the largest score and the sum; then each thread's state for the heads of its item.
constexpr long long kPartFloats = kOutVectors * kLanes + 2;

inline float* part_row(const KernelArguments& args, int slot, int head, int r) {
  const long long heads = args.num_heads_kv;
  return static_cast<float*>(args.workspace) +
         ((slot * heads + head) * kDecodeRows + r) * kPartFloats;
}
// Returns the number of slots of parts. If each item is cut by its own length, each part may have
// one; the number is even.
inline int part_slots(const KernelArguments& args, int num_threads) {
  if constexpr (!kBatchInvariant) return 2 * num_threads;
  const int tiles = (line_keys(args) + kKeys - 1) / kKeys;
  const int parts = most_chunks(tiles, kLeastChunkKeys / kKeys);
  const int items = decode_row_tiles(line_rows(args), kGqaRatio);
  const int requests = kKeyLists ? args.batch * args.seqlen_q : args.batch;
  return (requests * items * parts + 1) / 2 * 2;
}

inline RowStates states_of(const KernelArguments& args, int thread, int num_threads) {
  const long long rows = static_cast<long long>(args.num_heads_kv) * kDecodeRows;
  float* at = part_row(args, part_slots(args, num_threads), 0, 0);
  const auto take = [&](int floats) {  // reserves room for all threads' rows, returns this thread's
    float* const own = at + thread * rows * floats;
    at += num_threads * rows * floats;
    return own;
  };
  RowStates states;
  states.q = reinterpret_cast<Floats(*)[kQkVectors]>(take(kQkVectors * kLanes));
  states.output = reinterpret_cast<Floats(*)[kOutVectors]>(take(kOutVectors * kLanes));
  states.scores = reinterpret_cast<float(*)[kBlock]>(take(kBlock));
  states.largest = take(1);
  states.sum = take(1);
  states.seen = reinterpret_cast<DecodeKeys*>(take(2));
  return states;
}

inline void end_rows(const KernelArguments& args, const DecodeItem& item, const DecodePiece& piece,
                     const RowStates& rows) {
  for (int r = 0; r < item.rows; ++r) {
    order_row<kHeadDimV, kOrderBack>(rows.output[r]);
    if (piece.parts == 1) {
      write_row(args, item, r, rows.output[r], rows.largest[r], rows.sum[r]);
      continue;
    }
    float* const part = part_row(args, piece.slot, item.kv_head, r);
    __builtin_memcpy(part, rows.output[r], sizeof(rows.output[r]));
    part[kOutVectors * kLanes] = rows.largest[r];
    part[kOutVectors * kLanes + 1] = rows.sum[r];
  }
}

inline void attend_heads(const KernelArguments& args, const DecodePiece& piece, HeadRange heads,
                         const RowStates& rows) {
  const auto item_of = [&](int head) {
    return DecodeItem(args, piece.request, piece.item, heads.first + head);
  };
  const DecodeItem first = item_of(0);
  const int length = first.request.length, last = piece.end * kKeys;
  const int end = last < length ? last : length;
  if (first.rows <= 0) return;
  const LineKeys cached(args, first, heads.first);
  for (int head = 0; head < heads.count; ++head)
    begin_rows(args, item_of(head), rows.from(head * first.rows));
  KeyBlock block(args, heads, cached, piece.begin * kKeys, end);
  while (block.count > 0) {
    const KeyBlock next(args, heads, cached, block.first + block.count, end);
    add_block(args, piece, block, next, first.rows, rows);
    block = next;
  }
  for (int head = 0; head < heads.count; ++head)
    end_rows(args, item_of(head), piece, rows.from(head * first.rows));
}

inline void attend_piece(const KernelArguments& args, const DecodePiece& piece,
                         const RowStates& rows) {
  const int together = heads_together(args);
  for (int head = 0; head < args.num_heads_kv; head += together)
    attend_heads(args, piece, {head, together}, rows);
}

// Joins row `r` of an item from the parts of workers `first` to `last`, or, if each item is cut by
// its own length, from the slots `first` to `last`.
inline void join_row(const KernelArguments& args, const DecodeItem& item, int first, int last,
                     int r) {
  const auto part_of = [&](int worker) {
    const int slot = kBatchInvariant ? worker : 2 * worker + (worker == first ? 1 : 0);
    return part_row(args, slot, item.kv_head, r);
  };
  constexpr int kLargest = kOutVectors * kLanes;
  float largest = kLowest, sum = 0;
  for (int worker = first; worker <= last; ++worker)
    if (!(part_of(worker)[kLargest] <= largest)) largest = part_of(worker)[kLargest];
  Floats row[kOutVectors] = {};
  for (int worker = first; worker <= last; ++worker) {
    const float* const part = part_of(worker);
    const float weight = power_of_2(part[kLargest] - largest);
    sum += weight * part[kLargest + 1];
    for (int i = 0; i < kOutVectors; ++i) row[i] += weight * load<Dtype::kFp32>(part + i * kLanes);
  }
  write_row(args, item, r, row, largest, sum);
}

// The tiles of all items in one line, and the range of it that one of `workers` threads takes.
struct DecodeLine {
  DecodeRange range;
  const KernelArguments& args;

  DecodeTiles tiles_of(int request) const {
    const DecodeRequest made = LineRequest(args, request).request;
    return decode_tiles(made.length, made.rows, kWindowLeft, kKeys);
  }
  DecodeLine(const KernelArguments& of, int worker, int workers) : range{}, args(of) {
    range.tile_overhead = kTileOverhead;
    range.cut_each(kKeys);
    range.items = decode_row_tiles(line_rows(args), kGqaRatio);
    int total = 0;
    for (int request = 0; request < line_requests(args); ++request)
      total += range.cost(tiles_of(request));
    range.take(total, workers, 1, worker);
  }
};

// Computes parts of items, and whole items.
extern "C" void attune_kernel(const AttentionArgs* given, int thread, int num_threads) {
  const auto& args = *static_cast<const KernelArguments*>(given);
  if (args.batch == 0 || args.seqlen_q == 0) return;
  const DecodeLine line(args, thread, num_threads);
  const auto tiles_of = [&](int request) { return line.tiles_of(request); };
  DecodeWalk walk{0, 0, line.range.begin};  // next() skips the requests before the range
  DecodePiece piece;
  const RowStates rows = states_of(args, thread, num_threads);
  while (walk.next(line.range, line_requests(args), tiles_of, &piece))
    attend_piece(args, piece, rows);
}

// Joins the parts, item by item.
extern "C" void attune_join(const AttentionArgs* given, int thread, int num_threads) {
  const auto& args = *static_cast<const KernelArguments*>(given);
  if (args.batch == 0 || args.seqlen_q == 0) return;
  const DecodeLine line(args, 0, num_threads);
  int start = 0, number = 0;
  const auto join = [&](int request, int item, int first, int last) __attribute__((always_inline)) {
    for (int head = 0; head < args.num_heads_kv; ++head) {
      if (number++ % num_threads != thread) continue;
      const DecodeItem joined(args, request, item, head);
      for (int r = 0; r < joined.rows; ++r) join_row(args, joined, first, last, r);
    }
  };
  if constexpr (kBatchInvariant) {
    each_cut_item(line, line_requests(args), [&](int request, int item, int slot, int parts) {
      join(request, item, slot, slot + parts - 1);
    });
    return;
  }
  for (int request = 0; request < line_requests(args); ++request) {
    const int tiles = line.tiles_of(request).count, cost = tiles + line.range.tile_overhead;
    for (int item = 0; item < line.range.items; ++item, start += cost) {
      const int first = (start + line.range.tile_overhead) / line.range.share;
      const int last = (start + cost - 1) / line.range.share;
      if (tiles != 0 && first != last) join(request, item, first, last);
    }
  }
}

}  // namespace attune
