// SPDX-License-Identifier: Apache-2.0
// decode_cpu: attention of a few rows of q over long caches on a CPU, op attention_kvcache. Threads share all work evenly
// (shared/decode_partition.h). The first step leaves parts of items that several threads have in the workspace (shared/decode_layout.h),
// the second joins them. Keys are worked on kLanes at a time, all heads of K one after the other: their rows are read once for all rows
// of q that share a head, and converted to fp32 where they are narrower.
//
// q, k, v, o: fp32, bf16 or fp16, and k and v of e4m3 or e5m2 with a factor for each head; any head dims; pages of any size, or slots.
//
// | knob   | values    | meaning                                      |
// |--------|-----------|----------------------------------------------|
// | keys   | 32 .. 256 | of a tile: what threads share is whole tiles |
// | charge | 1         | tiles that an item costs beside its own      |
#include "cpu/decode_cpu_knobs.hpp"

#include "shared/kernel_arguments.h"

#include "cpu/decode_rows.hpp"
#include "cpu/score_functions.hpp"  // where kScored
#include "cpu/sinks.hpp"            // where kSinks
#include "shared/cache_factors.h"   // where kAccuracy
#include "shared/score_of.h"        // where kScored

namespace attune {

constexpr float kLog2E = 1.4426950408889634f, kLowest = -3e38f;
constexpr int kAhead = 8;  // keys whose rows are asked for before they are read

// What a thread knows of the rows of an item. Scores are in log2.
struct RowStates {
  Floats q[kDecodeRows][kQkVectors];
  Floats output[kDecodeRows][kOutVectors];
  float largest[kDecodeRows], sum[kDecodeRows];
  DecodeKeys seen[kDecodeRows];
};

inline void begin_rows(const KernelArguments& args, const DecodeItem& item, RowStates* rows) {
  for (int r = 0; r < item.rows; ++r) {
    load_row<kDtypeQ, kHeadDimQk>(args.q.data, item.in(args.q, r), rows->q[r]);
    for (Floats& vector : rows->output[r]) vector = 0.0f;
    rows->largest[r] = kLowest;
    rows->sum[r] = 0;
    rows->seen[r] = decode_keys(DecodeRule{}, item.request, item.token(r));
  }
}

// q . k of all rows with one key, `lane` of its block.
inline void multiply_key(const RowStates& rows, int count, const Floats* k, int lane,
                         float (*scores)[kLanes]) {
  int r = 0;
  for (; r + 4 <= count; r += 4) {  // each vector of k serves four rows
    Floats sums[4] = {};
#pragma clang loop unroll(full)
    for (int i = 0; i < kQkVectors; ++i)
#pragma clang loop unroll(full)
      for (int j = 0; j < 4; ++j) sums[j] += rows.q[r + j][i] * k[i];
#pragma clang loop unroll(full)
    for (int j = 0; j < 4; ++j) scores[r + j][lane] = sum_of(sums[j]);
  }
  for (; r < count; ++r) {
    Floats sum = rows.q[r][0] * k[0];
#pragma clang loop unroll(full)
    for (int i = 1; i < kQkVectors; ++i) sum += rows.q[r][i] * k[i];
    scores[r][lane] = sum_of(sum);
  }
}

// Scores of row `r` with keys `first` + lane, -infinity where the row does not see them; `products` are q . k.
inline Panel scores_of(const KernelArguments& args, const DecodeItem& item, const RowStates& rows,
                       int r, int first, const float* products) {
  Panel scores;
  __builtin_memcpy(&scores, products, sizeof(scores));
  scores *= args.softmax_scale;
  scores *= score_factor(args.scales.k_scale, item.kv_head);  // where kAccuracy
  const int batch = item.number, head = item.head(r), kv_head = item.kv_head;
  const int position = item.position(r);
  for (int lane = 0; lane < kLanes; ++lane) {
    const int key = first + lane;
    float score = scores[lane];
    score = score_of(args.scores, score, batch, head, kv_head, position, key);  // where kScored
    scores[lane] = score;
  }
  (void)batch, (void)head, (void)kv_head, (void)position;
  PanelInts keys;
  for (int lane = 0; lane < kLanes; ++lane) keys[lane] = first + lane;
  const PanelInts is_seen = (keys >= rows.seen[r].first) & (keys <= rows.seen[r].last);
  return is_seen ? scores * kLog2E : Panel(-kInfinity);
}

// Not below kLowest. A NaN shows in the weights.
inline float largest_of(Panel scores) {
  const float largest = __builtin_reduce_max(scores);
  return largest > kLowest ? largest : kLowest;
}

inline float power_of_2(float exponent) { return exp2_nonpositive(Panel(exponent))[0]; }

// The keys [first, first + kLanes) of a request, of which `count` exist; those behind are asked for.
inline void add_keys(const KernelArguments& args, const DecodeItem& item, const CachedRows& cached,
                     int first, int count, RowStates* rows) {
  Floats v[kLanes][kOutVectors];
  float products[kDecodeRows][kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    Floats k[kQkVectors] = {};
    if (lane + kAhead < count) {
      const int ahead = first + lane + kAhead;
      prefetch_row<kDtypeKv, kHeadDimQk>(args.k.data, cached.in(args.k, ahead));
      prefetch_row<kDtypeKv, kHeadDimV>(args.v.data, cached.in(args.v, ahead));
    }
    if (lane < count) {
      load_row<kDtypeKv, kHeadDimQk>(args.k.data, cached.in(args.k, first + lane), k);
      load_row<kDtypeKv, kHeadDimV>(args.v.data, cached.in(args.v, first + lane), v[lane]);
    } else {
      for (Floats& vector : v[lane]) vector = 0.0f;
    }
    multiply_key(*rows, item.rows, k, lane, products);
  }
  for (int r = 0; r < item.rows; ++r) {
    const Panel scores = scores_of(args, item, *rows, r, first, products[r]);
    const float before = rows->largest[r], here = largest_of(scores);
    const float largest = here <= before ? before : here;
    const Panel weights = exp2_nonpositive(scores - largest);
    const float decay = power_of_2(before - largest);
    rows->largest[r] = largest;
    rows->sum[r] = rows->sum[r] * decay + sum_of(weights);
    Floats output[kOutVectors];
#pragma clang loop unroll(full)
    for (int i = 0; i < kOutVectors; ++i) output[i] = rows->output[r][i] * decay;
    for (int lane = 0; lane < kLanes; ++lane)
#pragma clang loop unroll(full)
      for (int i = 0; i < kOutVectors; ++i) output[i] += weights[lane] * v[lane][i];
#pragma clang loop unroll(full)
    for (int i = 0; i < kOutVectors; ++i) rows->output[r][i] = output[i];
  }
}

struct RowEnd {
  float inverse, lse;
};

inline RowEnd end_of_row(const KernelArguments& args, int head, int kv_head, float largest,
                         float sum) {
  constexpr float kLn2 = 0.69314718055994531f;
  float natural = largest * kLn2;
  float share = 1;
  share = join_sink(sink_of(args.scores, head), natural, sum);  // where kSinks
  float inverse = sum == 0 ? 0 : share / sum;
  inverse = scaled_by(args.scales.v_scale, kv_head, inverse);  // where kAccuracy
  (void)head, (void)kv_head, (void)args;
  return {inverse, natural + __builtin_logf(sum)};
}

// `row` without its division.
inline void write_row(const KernelArguments& args, const DecodeItem& item, int r, const Floats* row,
                      float largest, float sum) {
  const RowEnd end = end_of_row(args, item.head(r), item.kv_head, largest, sum);
  store_row<kDtypeO, kHeadDimV>(args.o.data, item.in(args.o, r), row, end.inverse);
  if (args.lse) args.lse[item.in_lse(args, r)] = end.lse;
}

// The workspace: slots of parts, two a thread, each [num_heads_kv][kDecodeRows] rows of O, the largest score and the sum; then what each
// thread knows of the heads of its item.
constexpr long long kPartFloats = kOutVectors * kLanes + 2;

inline float* part_row(const KernelArguments& args, int slot, int head, int r) {
  const long long heads = args.num_heads_kv;
  return static_cast<float*>(args.workspace) +
         ((slot * heads + head) * kDecodeRows + r) * kPartFloats;
}
// Slots where items are cut by their own lengths.  // where kBatchInvariant
inline int slots_of_chunks(const KernelArguments& args) {         // where kBatchInvariant
  const int tiles = (args.seqlen_kv + kKeys - 1) / kKeys;         // where kBatchInvariant
  const int parts = most_chunks(tiles, kLeastChunkKeys / kKeys);  // where kBatchInvariant
  const int items = decode_row_tiles(args.seqlen_q, kGqaRatio);   // where kBatchInvariant
  return args.batch * items * parts;                              // where kBatchInvariant
}  // where kBatchInvariant

inline RowStates* states_of(const KernelArguments& args, int thread, int num_threads) {
  num_threads = (slots_of_chunks(args) + 1) / 2;  // of which each has two  // where kBatchInvariant
  char* const behind_parts = reinterpret_cast<char*>(part_row(args, 2 * num_threads, 0, 0));
  return reinterpret_cast<RowStates*>(behind_parts) +
         static_cast<long long>(thread) * args.num_heads_kv;
}

inline void end_rows(const KernelArguments& args, const DecodeItem& item, const DecodePiece& piece,
                     const RowStates& rows) {
  for (int r = 0; r < item.rows; ++r) {
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

// All heads of some keys before the next keys: their rows stand side by side, in one page of the memory.
inline void attend_piece(const KernelArguments& args, const DecodePiece& piece, RowStates* rows) {
  const auto item_of = [&](int head) {
    return DecodeItem(args, args.cache, piece.request, piece.item, head);
  };
  const int length = item_of(0).request.length, last = piece.end * kKeys;
  const int end = last < length ? last : length;
  for (int head = 0; head < args.num_heads_kv; ++head) begin_rows(args, item_of(head), rows + head);
  for (int key = piece.begin * kKeys; key < end; key += kLanes) {
    for (int head = 0; head < args.num_heads_kv; ++head) {
      const DecodeItem item = item_of(head);
      add_keys(args, item, CachedRows(args.cache, item), key, end - key, rows + head);
    }
  }
  for (int head = 0; head < args.num_heads_kv; ++head)
    end_rows(args, item_of(head), piece, rows[head]);
}

// A row of an item whose parts are those of workers `first` to `last`.
inline void join_row(const KernelArguments& args, const DecodeItem& item, int first, int last,
                     int r) {
  const auto part_of = [&](int worker) {
    return part_row(args, worker, item.kv_head, r);  // where kBatchInvariant
    return part_row(args, 2 * worker + (worker == first ? 1 : 0), item.kv_head, r);
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

// The line of all items, and the ranges of `workers` threads.
struct DecodeLine {
  DecodeRange range;
  const KernelArguments& args;

  DecodeTiles tiles_of(int request) const {
    const DecodeRequest made = decode_request<kHasBegins, kHasKeyBegins>(args, args.cache, request);
    return decode_tiles(made.length, made.rows, kWindowLeft, kKeys);
  }
  DecodeLine(const KernelArguments& of, int worker, int workers) : range{}, args(of) {
    range.charge = kCharge;
    range.least_chunk = kLeastChunkKeys / kKeys;  // where kBatchInvariant
    range.items = decode_row_tiles(args.seqlen_q, kGqaRatio);
    int total = 0;
    for (int request = 0; request < args.batch; ++request) total += range.cost(tiles_of(request));
    range.take(total, workers, 1, worker);
  }
};

}  // namespace attune

// Parts of items.
extern "C" void attune_kernel(const attune::AttentionArgs* given, int thread, int num_threads) {
  using namespace attune;
  const auto& args = *static_cast<const KernelArguments*>(given);
  if (args.batch == 0 || args.seqlen_q == 0) return;
  const DecodeLine line(args, thread, num_threads);
  const auto tiles_of = [&](int request) { return line.tiles_of(request); };
  DecodeWalk walk{0, 0, line.range.begin};  // steps over requests before its own
  DecodePiece piece;
  RowStates* const rows = states_of(args, thread, num_threads);
  while (walk.next(line.range, args.batch, tiles_of, &piece)) attend_piece(args, piece, rows);
}

// Joins them, item by item.
extern "C" void attune_join(const attune::AttentionArgs* given, int thread, int num_threads) {
  using namespace attune;
  const auto& args = *static_cast<const KernelArguments*>(given);
  if (args.batch == 0 || args.seqlen_q == 0) return;
  const DecodeLine line(args, 0, num_threads);
  int start = 0, number = 0;
  const auto join = [&](int request, int item, int slot, int parts) {  // where kBatchInvariant
    for (int head = 0; head < args.num_heads_kv; ++head) {             // where kBatchInvariant
      if (number++ % num_threads != thread) continue;                  // where kBatchInvariant
      const DecodeItem joined(args, args.cache, request, item, head);  // where kBatchInvariant
      for (int r = 0; r < joined.rows; ++r)                            // where kBatchInvariant
        join_row(args, joined, slot, slot + parts - 1, r);             // where kBatchInvariant
    }                                                                  // where kBatchInvariant
  };                                                                   // where kBatchInvariant
  each_cut_item(line, args.batch, join);                               // where kBatchInvariant
  if (line.range.least_chunk > 0) return;                              // where kBatchInvariant
  for (int request = 0; request < args.batch; ++request) {
    const int tiles = line.tiles_of(request).count, cost = tiles + line.range.charge;
    for (int item = 0; item < line.range.items; ++item, start += cost) {
      const int first = (start + line.range.charge) / line.range.share;
      const int last = (start + cost - 1) / line.range.share;
      if (tiles == 0 || first == last) continue;
      for (int head = 0; head < args.num_heads_kv; ++head) {
        if (number++ % num_threads != thread) continue;
        const DecodeItem joined(args, args.cache, request, item, head);
        for (int r = 0; r < joined.rows; ++r) join_row(args, joined, first, last, r);
      }
    }
  }
}
