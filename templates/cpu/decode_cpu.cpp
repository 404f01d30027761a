// SPDX-License-Identifier: Apache-2.0
// decode_cpu: attention of a few rows of q over long caches on a CPU, op attention_kvcache. Threads share all work evenly
// (shared/decode_partition.h). The first step leaves parts of items that several threads have in the workspace (shared/decode_layout.h),
// the second joins them. Keys are worked on kLanes at a time: their rows are read once for all rows of q that share a head of K, and
// converted to fp32 where they are narrower.
//
// q, k, v, o: fp32, bf16 or fp16; any head dims; pages of any size, or slots.
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
#include "shared/score_of.h"        // where kScored

namespace attune {

constexpr float kLog2E = 1.4426950408889634f, kLowest = -3e38f;

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

// Scores of row `r` with keys `first` + lane, -infinity where the row does not see them.
inline Panel scores_of(const KernelArguments& args, const DecodeItem& item, const RowStates& rows,
                       int r, int first, const Floats (*k)[kQkVectors]) {
  float scores[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    Floats sum = rows.q[r][0] * k[lane][0];
    for (int i = 1; i < kQkVectors; ++i) sum += rows.q[r][i] * k[lane][i];
    scores[lane] = sum_of(sum) * args.softmax_scale;
  }
  const int batch = item.number, head = item.head(r), kv_head = item.kv_head;
  const int position = item.position(r);
  for (int lane = 0; lane < kLanes; ++lane) {
    const int key = first + lane;
    float score = scores[lane];
    score = score_of(args.scores, score, batch, head, kv_head, position, key);  // where kScored
    const bool is_seen = key >= rows.seen[r].first && key <= rows.seen[r].last;
    scores[lane] = is_seen ? score * kLog2E : -kInfinity;
  }
  (void)batch, (void)head, (void)kv_head, (void)position;
  Panel all;
  __builtin_memcpy(&all, scores, sizeof(all));
  return all;
}

inline float largest_of(Panel scores) {
  float largest = kLowest;
  for (int lane = 0; lane < kLanes; ++lane)
    if (!(scores[lane] <= largest)) largest = scores[lane];
  return largest;
}

inline float power_of_2(float exponent) { return exp2_nonpositive(Panel(exponent))[0]; }

// The keys [first, first + kLanes) of a request, of which `count` exist.
inline void add_keys(const KernelArguments& args, const DecodeItem& item, const CachedRows& cached,
                     int first, int count, RowStates* rows) {
  Floats k[kLanes][kQkVectors], v[kLanes][kOutVectors];
  for (int lane = 0; lane < kLanes; ++lane) {
    if (lane < count) {
      load_row<kDtypeKv, kHeadDimQk>(args.k.data, cached.in(args.k, first + lane), k[lane]);
      load_row<kDtypeKv, kHeadDimV>(args.v.data, cached.in(args.v, first + lane), v[lane]);
    } else {
      for (Floats& vector : k[lane]) vector = 0.0f;
      for (Floats& vector : v[lane]) vector = 0.0f;
    }
  }
  for (int r = 0; r < item.rows; ++r) {
    const Panel scores = scores_of(args, item, *rows, r, first, k);
    const float before = rows->largest[r], here = largest_of(scores);
    const float largest = here <= before ? before : here;  // NaN stays
    const Panel weights = exp2_nonpositive(scores - largest);
    const float decay = power_of_2(before - largest);
    rows->largest[r] = largest;
    rows->sum[r] = rows->sum[r] * decay + sum_of(weights);
    Floats output[kOutVectors];
    for (int i = 0; i < kOutVectors; ++i) output[i] = rows->output[r][i] * decay;
    for (int lane = 0; lane < kLanes; ++lane)
      for (int i = 0; i < kOutVectors; ++i) output[i] += weights[lane] * v[lane][i];
    for (int i = 0; i < kOutVectors; ++i) rows->output[r][i] = output[i];
  }
}

struct RowEnd {
  float inverse, lse;
};

inline RowEnd end_of_row(const KernelArguments& args, int head, float largest, float sum) {
  constexpr float kLn2 = 0.69314718055994531f;
  float natural = largest * kLn2;
  float share = 1;
  share = join_sink(sink_of(args.scores, head), natural, sum);  // where kSinks
  (void)head, (void)args;
  return {sum == 0 ? 0 : share / sum, natural + __builtin_logf(sum)};
}

// `row` without its division.
inline void write_row(const KernelArguments& args, const DecodeItem& item, int r, const Floats* row,
                      float largest, float sum) {
  const RowEnd end = end_of_row(args, item.head(r), largest, sum);
  store_row<kDtypeO, kHeadDimV>(args.o.data, item.in(args.o, r), row, end.inverse);
  if (args.lse) args.lse[item.in_lse(args, r)] = end.lse;
}

// A slot's row: O, then the largest score and the sum.
inline float* part_row(const KernelArguments& args, int slot, int r) {
  constexpr long long kFloats = kOutVectors * kLanes + 2;
  return static_cast<float*>(args.workspace) + (slot * kDecodeRows + r) * kFloats;
}

inline void attend_piece(const KernelArguments& args, const DecodePiece& piece) {
  const DecodeItem item(args, args.cache, piece.request, piece.item);
  const CachedRows cached(args.cache, item);
  RowStates rows;
  begin_rows(args, item, &rows);
  const int last = piece.end * kKeys;
  const int end = last < item.request.length ? last : item.request.length;
  for (int key = piece.begin * kKeys; key < end; key += kLanes)
    add_keys(args, item, cached, key, end - key, &rows);
  for (int r = 0; r < item.rows; ++r) {
    if (piece.parts == 1) {
      write_row(args, item, r, rows.output[r], rows.largest[r], rows.sum[r]);
      continue;
    }
    float* const part = part_row(args, piece.slot, r);
    __builtin_memcpy(part, rows.output[r], sizeof(rows.output[r]));
    part[kOutVectors * kLanes] = rows.largest[r];
    part[kOutVectors * kLanes + 1] = rows.sum[r];
  }
}

// A row of an item whose parts are those of workers `first` to `last`.
inline void join_row(const KernelArguments& args, const DecodeItem& item, int first, int last,
                     int r) {
  const auto part_of = [&](int worker) {
    return part_row(args, 2 * worker + (worker == first ? 1 : 0), r);
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
    const DecodeRequest made = decode_request<kHasBegins>(args, args.cache, request);
    return decode_tiles(made.length, made.rows, kWindowLeft, kKeys);
  }
  DecodeLine(const KernelArguments& of, int worker, int workers) : range{}, args(of) {
    range.charge = kCharge;
    range.items = args.num_heads_kv * decode_row_tiles(args.seqlen_q, kGqaRatio);
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
  while (walk.next(line.range, args.batch, tiles_of, &piece)) attend_piece(args, piece);
}

// Joins them, item by item.
extern "C" void attune_join(const attune::AttentionArgs* given, int thread, int num_threads) {
  using namespace attune;
  const auto& args = *static_cast<const KernelArguments*>(given);
  if (args.batch == 0 || args.seqlen_q == 0) return;
  const DecodeLine line(args, 0, num_threads);
  int start = 0, number = 0;
  for (int request = 0; request < args.batch; ++request) {
    const int tiles = line.tiles_of(request).count, cost = tiles + line.range.charge;
    for (int item = 0; item < line.range.items; ++item, start += cost) {
      const int first = (start + line.range.charge) / line.range.share;
      const int last = (start + cost - 1) / line.range.share;
      if (tiles == 0 || first == last || number++ % num_threads != thread) continue;
      const DecodeItem joined(args, args.cache, request, item);
      for (int r = 0; r < joined.rows; ++r) join_row(args, joined, first, last, r);
    }
  }
}
