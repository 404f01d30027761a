// SPDX-License-Identifier: Apache-2.0
// prefill_cpu: O = softmax(scale * Q K^T + mask) V on a CPU, with online softmax over blocks of
// keys. q, k, v, o: fp32, bf16 or fp16, any strides with contiguous head_dim; all arithmetic is
// fp32. q, k and v may also be 8-bit with factors, v in either layout. P stays fp32 then too. That
// is more accurate than either accuracy mode requires, so one kernel serves both modes. The family
// prefill_cpu_bf16 multiplies pairs of bf16 instead (kPairs, pair_products.hpp).
//
// The rows of all query heads that share a K/V head form one list (row * ratio + head), so that GQA
// shares every load of K and V. A thread takes a tile of kBlockM rows of the list, cut into panels
// of kVectors * kLanes rows, one row per lane:
//   for each block of kBlockN keys: K and V as fp32, packed or in place;
//     for each panel: S^T = K Q^T, the score stage if there is one, mask, softmax, dropout if there
//     is any, O^T += V^T P^T.
// Blocks that a panel does not see are skipped. So are keys at the ends of a block that a mask
// program hides from the panel. The mask and window are applied only to keys on their edges.
//
// Knobs: ../README.md. Workspace: 128 bytes of counters (zero before the first launch, left zero),
// then kScratchBytes per thread.
#include "shared/attention_enums.h"

#include "cpu/prefill/prefill_cpu_knobs.hpp"

#include "cpu/parts/list_rows.hpp"
#include "cpu/parts/max_logits.hpp"  // where kMaxLogits, else none/
#include "cpu/parts/none/features.hpp"
#include "cpu/parts/pack_kv.hpp"
#include "cpu/parts/panel_stages.hpp"
#include "cpu/parts/simd.hpp"
#include "cpu/parts/transpose.hpp"
#include "cpu/parts/visibility.hpp"
#include "cpu/prefill/online_softmax.hpp"
#include "cpu/prefill/pair_products.hpp"  // where kPairs, else none/
#include "cpu/prefill/panel_sinks.hpp"    // where kSinks, else none/
#include "cpu/prefill/tile_product.hpp"
#include "shared/dropout.h"
#include "shared/kernel_arguments.h"

namespace attune {

constexpr int kPanels = kBlockM / kPanelRows;
constexpr int kCounterBytes = 128;

static_assert(kBlockM % kPanelRows == 0, "block_m must be a multiple of vectors times lanes");
static_assert(kPackKv != 0 || kDtypeKv == Dtype::kFp32,
              "K and V narrower than fp32 must be packed");

// Returns `width`; if products are of pairs, rounded up to whole tiles.
constexpr int whole_width(int width, int step) {
  return kPairs ? (width + step - 1) / step * step : width;
}
constexpr int kWidthQk = whole_width(kHeadDimQk, 32) / (kPairs ? 2 : 1);  // in words of 4 bytes
constexpr int kWidthO = whole_width(kHeadDimV, 16), kWidthV = kPairs ? kWidthO / 2 : kHeadDimV;

struct Scratch {
  Panel queries[kPanels][kWidthQk];  // Q^T, scaled unless in pairs
  Panel output[kPanels][kWidthO];    // O^T, not yet divided by the sum
  Panel scores[kBlockN];             // S^T, then P^T
  SoftmaxState state[kPanels];
  alignas(kPairs ? 64 : 4) float keys[kPackKv ? kBlockN * kWidthQk : kLanes];
  alignas(kPairs ? 64 : 4) float values[kPackKv ? kBlockN * kWidthV : kLanes];
};
static_assert(sizeof(Scratch) <= kScratchBytes, "kScratchBytes must hold one Scratch");

// Rows of one panel of a tile: the index of its first row in the list, and its first and last row
// of queries.
struct RowsOfPanel {
  RowsOfPanel(const Tile& tile, int panel)
      : first_index(tile.first + panel * kPanelRows),
        first(first_index / kGqaRatio),
        last((tile.first + least(tile.count, (panel + 1) * kPanelRows) - 1) / kGqaRatio) {}

  long long first_index, first, last;
};

// Returns the address of row `index` of the list, in an operand with one head per query head.
template <class T>
inline T* row_address(const OperandView& view, const Tile& tile, long long index) {
  const long long head = static_cast<long long>(tile.head_kv) * kGqaRatio + index % kGqaRatio;
  return static_cast<T*>(view.data) + tile.batch * view.batch_stride + head * view.head_stride +
         index / kGqaRatio * view.row_stride;
}

inline const KernelArguments& scaled(const AttentionArgs& args) {
  return static_cast<const KernelArguments&>(args);  // the host always passes KernelArguments
}

// Returns the factor of row `index` of the list in Q.
inline float query_factor(const AttentionArgs& args, const Tile& tile, long long index) {
  const long long head = static_cast<long long>(tile.head_kv) * kGqaRatio + index % kGqaRatio;
  return RowFactors<kScaleBlockQ>(scaled(args).scales.q_scale, tile.batch, head)
      .at(index / kGqaRatio);
}

// Returns one register of a panel.
inline Floats& part(Panel& panel, int vector) { return reinterpret_cast<Floats*>(&panel)[vector]; }

// Prefetches a panel's rows of q or o. Rows are far apart, so the CPU prefetches none of them.
template <int kWidth, bool kWritten, class T>
inline void fetch_panel(const OperandView& view, const Tile& tile, int panel) {
  const int end = least(tile.count, (panel + 1) * kPanelRows);
  for (int i = panel * kPanelRows; i < end; ++i) {
    const T* row = row_address<T>(view, tile, tile.first + i);
    for (int c = 0; c < kWidth; c += 64 / static_cast<int>(sizeof(T)))
      __builtin_prefetch(row + c, kWritten);
  }
}

// Loads queries, one row per lane. Lanes past the tile's last row compute with that row and are
// never stored.
inline void load_queries(const AttentionArgs& args, const Tile& tile, int first_in_tile, int vector,
                         Panel* queries) {
  const Element<kDtypeQ>* from[kLanes];
  float factors[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const long long index = tile.first + least(first_in_tile + i, tile.count - 1);
    from[i] = row_address<Element<kDtypeQ>>(args.q, tile, index);
    if constexpr (is_8_bit(kDtypeQ)) factors[i] = query_factor(args, tile, index);
  }
  if constexpr (kPairs) return pack_query_pairs(from, vector, queries);
  for (int chunk = 0; chunk < kChunks<kHeadDimQk>; ++chunk) {
    const int c = chunk_begin<kHeadDimQk>(chunk);
    Floats rows[kLanes];
#pragma clang loop unroll(full)
    for (int i = 0; i < kLanes; ++i) {
      rows[i] = load<kDtypeQ>(from[i] + c);
      if constexpr (is_8_bit(kDtypeQ)) rows[i] *= factors[i];
    }
    transpose(rows);
#pragma clang loop unroll(full)
    for (int i = 0; i < kLanes; ++i)
      part(queries[c + i], vector) = rows[i] * args.softmax_scale_log2;
  }
}

inline void store_output(const AttentionArgs& args, const Tile& tile, int first_in_tile, int vector,
                         Panel* output, Floats reciprocal) {
  const auto empty = reciprocal == 0.0f;  // exactly 0, even if V is not finite
  const int count = least(kLanes, tile.count - first_in_tile);
  Element<kDtypeO>* to[kLanes];
  for (int i = 0; i < kLanes; ++i)
    to[i] = row_address<Element<kDtypeO>>(args.o, tile, tile.first + first_in_tile + i);
  for (int chunk = 0; chunk < kChunks<kHeadDimV>; ++chunk) {
    const int c = chunk_begin<kHeadDimV>(chunk);
    Floats rows[kLanes];
#pragma clang loop unroll(full)
    for (int i = 0; i < kLanes; ++i)
      rows[i] = empty ? Floats(0.0f) : part(output[c + i], vector) * reciprocal;
    transpose(rows);
#pragma clang loop unroll(full)
    for (int i = 0; i < kLanes; ++i)
      if (i < count) store<kDtypeO>(to[i] + c, rows[i]);
  }
}

inline void store_lse(const AttentionArgs& args, const Tile& tile, int first_in_tile,
                      const SoftmaxState& state) {
  const Panel nothing = state.sum == 0.0f ? Panel(-kInfinity) : state.sum;  // or NaN
  const Panel values =
      state.sum > 0.0f ? (state.largest + log2_positive(state.sum)) * 0.693147181f : nothing;
  float lse[kPanelRows];
  __builtin_memcpy(lse, &values, sizeof(lse));
  const int count = least(kPanelRows, tile.count - first_in_tile);
  for (int i = 0; i < count; ++i) {
    const long long index = tile.first + first_in_tile + i;
    const long long head = static_cast<long long>(tile.head_kv) * kGqaRatio + index % kGqaRatio;
    args.lse[tile.batch * args.lse_batch_stride + head * args.lse_head_stride + index / kGqaRatio] =
        lse[i];
  }
}

// Raises the largest logits by those of a panel's rows. Maxima are in base 2.
inline void join_logits(const AttentionArgs& args, const Tile& tile, int first_in_tile,
                        const Panel& largest) {
  float logits[kPanelRows];
  const Panel values = largest * 0.693147181f;
  __builtin_memcpy(logits, &values, sizeof(logits));
  const int count = least(kPanelRows, tile.count - first_in_tile);
  for (int i = 0; i < count; ++i) {
    const long long index = tile.first + first_in_tile + i;
    raise_max_logit(scaled(args).scales,
                    static_cast<long long>(tile.head_kv) * kGqaRatio + index % kGqaRatio,
                    logits[i]);
  }
}

// Rows of K or V from the tile's current block on, packed or in place.
struct Rows {
  const float* data;
  long long stride;
};

enum class Role { kKeys, kValues };

template <Role kRole>
inline Rows block_rows(const OperandView& view, const ScaleView& scale, const Tile& tile,
                       KeyRange block, float* packed) {
  constexpr int kWidth = kRole == Role::kKeys ? kHeadDimQk : kHeadDimV;
  constexpr bool kTurned = kRole == Role::kValues && kVLayout == VLayout::kTransposed;
  const int count = block.end - block.begin;
  const auto* from = static_cast<const Element<kDtypeKv>*>(view.data) +
                     tile.batch * view.batch_stride + tile.head_kv * view.head_stride +
                     block.begin * (kTurned ? 1 : view.row_stride);
  if constexpr (is_8_bit(kDtypeKv)) {
    const KvFactors factors(scale, tile.batch, tile.head_kv);
    if constexpr (kTurned)
      pack_transposed<kWidth>(from, view.row_stride, factors, block.begin, count, packed);
    else
      pack_scaled<kWidth>(from, view.row_stride, factors, block.begin, count, packed);
    return {packed, kWidth};
  } else if constexpr (kPairs) {
    if constexpr (kRole == Role::kKeys)
      pack_key_tiles(from, view.row_stride, count, packed);
    else
      pack_value_tiles(from, view.row_stride, count, packed);
    return {packed, 0};
  } else if constexpr (kPackKv != 0) {
    pack<kWidth>(from, view.row_stride, count, packed);
    return {packed, kWidth};
  } else {
    return {static_cast<const float*>(static_cast<const void*>(from)), view.row_stride};
  }
}

// The number of keys in a step, a multiple of both kRows and kLanes.
constexpr int kWholeKeys = kRows % 3 == 0 ? 3 * (kRows / 3 > kLanes ? kRows / 3 : kLanes)
                                          : (kRows > kLanes ? kRows : kLanes);

// Returns the part of `seen` that every row of [first, last] sees. It begins and ends at whole
// steps of kWholeKeys, or where `seen` does. If there is no such part, the result is empty, at
// seen.begin.
inline KeyRange part_seen_by_all(const AttentionArgs& args, long long first, long long last,
                                 KeyRange seen) {
  const long long before = visible_keys(args, last).first - seen.begin;
  const long long until = visible_keys(args, first).last + 1 - seen.begin;
  const long long count = seen.end - seen.begin;
  const long long begin = before > 0 ? (before + kWholeKeys - 1) / kWholeKeys * kWholeKeys : 0;
  const long long end = until < count ? until / kWholeKeys * kWholeKeys : count;
  if (begin >= end) return {seen.begin, seen.begin};
  return {static_cast<int>(seen.begin + begin), static_cast<int>(seen.begin + end)};
}

// Computes S^T for the keys of a block that a panel sees, and returns the largest score of each
// row. All rows see the keys of the middle part. Keys on an edge of the mask or window are masked.
inline Panel score_panel(const AttentionArgs& args, const Tile& tile, const RowsOfPanel& rows,
                         KeyRange seen, Rows keys, const Panel* queries, Panel* scores) {
  const ScoreStage stage(scaled(args), tile.batch, tile.head_kv, rows.first_index);
  const KeyRange middle = part_seen_by_all(args, rows.first, rows.last, seen);
  const KeyRange parts[3] = {{seen.begin, middle.begin}, middle, {middle.end, seen.end}};
  Panel largest = -kInfinity;
  for (int i = 0; i < 3; ++i) {
    const KeyRange part = parts[i];
    if (part.begin >= part.end) continue;
    const int skipped = part.begin - seen.begin;
    Panel of_part = -kInfinity;
    stage.fetch(KeyRange(part));  // a copy: `part` stays in registers
    if constexpr (kPairs)         // the products are there
      scale_scores(part.end - part.begin, args.softmax_scale_log2, scores + skipped, of_part);
    else
      score_block(keys.data + skipped * keys.stride, keys.stride, part.end - part.begin, queries,
                  scores + skipped, of_part);
    stage.apply(part, scores + skipped, of_part);
    if (i != 1) {
      const PanelInts steps = row_steps(static_cast<int>(rows.first_index % kGqaRatio));
      mask_block(args, rows.first, steps, part, scores + skipped, of_part);
    }
    largest = larger(of_part, largest);
  }
  return largest;
}

inline void attend_block(const AttentionArgs& args, const Tile& tile, int panel, KeyRange block,
                         Shown of_tile, Rows keys, Rows values, Scratch& scratch) {
  const RowsOfPanel in_panel(tile, panel);
  KeyRange seen = visible_keys(args, in_panel.first, in_panel.last);
  seen.begin = seen.begin > block.begin ? seen.begin : block.begin;
  seen.end = least(seen.end, block.end);
  if (seen.begin >= seen.end) return;
  const Tile rows{tile.batch, tile.head_kv, in_panel.first_index,
                  least(tile.count - panel * kPanelRows, kPanelRows)};
  const Shown shown = of_tile.lo ? of_tile : shown_to(scaled(args), rows, seen);
  if (!shown.hi) return;

  const int count = seen.end - seen.begin;
  const int skipped = seen.begin - block.begin;
  // Pairs are multiplied in whole tiles of the block, so a score is at the place of its key.
  const int at = kPairs ? skipped : 0;
  if constexpr (kPairs)
    score_pairs(keys.data, skipped, skipped + count, scratch.queries[panel], scratch.scores);
  Panel largest =
      score_panel(args, tile, in_panel, seen, {keys.data + skipped * keys.stride, keys.stride},
                  scratch.queries[panel], scratch.scores + at);
  if (!shown.lo) hide_scores(scaled(args), rows, seen, scratch.scores + at, largest);
  const Panel decay = softmax_block(scratch.state[panel], largest, count, scratch.scores + at);
  drop_weights(scaled(args), tile.batch, tile.head_kv, in_panel.first_index, seen,
               scratch.scores + at);
  if constexpr (kPairs)
    output_pairs(values.data, skipped, skipped + count, scratch.scores, decay,
                 scratch.output[panel]);
  else
    output_block(values.data + skipped * values.stride, values.stride, count, scratch.scores + at,
                 decay, scratch.output[panel]);
}

inline void start_panel(const AttentionArgs& args, const Tile& tile, int panel, Scratch& scratch) {
  scratch.state[panel] = {Panel(-kInfinity), Panel(0.0f)};
  for (int c = 0; c < kWidthO; ++c) scratch.output[panel][c] = 0.0f;
  for (int v = 0; v < kVectors; ++v)
    load_queries(args, tile, panel * kPanelRows + v * kLanes, v, scratch.queries[panel]);
}

inline void finish_panel(const AttentionArgs& args, const Tile& tile, int panel, Scratch& scratch) {
  SoftmaxState& state = scratch.state[panel];
  const long long first = tile.first + panel * kPanelRows;
  join_logits(args, tile, panel * kPanelRows, state.largest);
  const Panel share = join_sinks(scaled(args).scores, tile.head_kv, first, state);
  Panel reciprocal =
      state.sum > 0.0f ? 1.0f / state.sum : state.sum;  // 0 for a row that saw nothing, NaN stays
  reciprocal *= share;
  if constexpr (kDropout) reciprocal *= scaled(args).dropout.scale;
  const int first_in_tile = panel * kPanelRows;
  for (int v = 0; v < kVectors; ++v)
    store_output(args, tile, first_in_tile + v * kLanes, v, scratch.output[panel],
                 part(reciprocal, v));
  if (args.lse) store_lse(args, tile, first_in_tile, state);
}

inline void attend_tile(const AttentionArgs& args, const Tile& tile, Scratch& scratch) {
  const int panels = (tile.count + kPanelRows - 1) / kPanelRows;
  for (int panel = 0; panel < panels; ++panel) {
    fetch_panel<kHeadDimQk, false, Element<kDtypeQ>>(args.q, tile, panel + 1);
    start_panel(args, tile, panel, scratch);
  }
  const KeyRange all =
      visible_keys(args, tile.first / kGqaRatio, (tile.first + tile.count - 1) / kGqaRatio);
  for (int n = all.begin; n < all.end; n += kBlockN) {
    KeyRange block = {n, all.end - n < kBlockN ? all.end : n + kBlockN};
    const Tile rows{tile.batch, tile.head_kv, tile.first, tile.count};
    const Shown of_tile = narrow_to(scaled(args).scores, rows, block);
    if (!of_tile.hi) continue;
    const Rows keys =
        block_rows<Role::kKeys>(args.k, scaled(args).scales.k_scale, tile, block, scratch.keys);
    const Rows values =
        block_rows<Role::kValues>(args.v, scaled(args).scales.v_scale, tile, block, scratch.values);
    for (int panel = 0; panel < panels; ++panel)
      attend_block(args, tile, panel, block, of_tile, keys, values, scratch);
  }
  for (int panel = 0; panel < panels; ++panel) {
    fetch_panel<kHeadDimV, true, Element<kDtypeO>>(args.o, tile, panel + 1);
    finish_panel(args, tile, panel, scratch);
  }
}

// Returns tile `index` in the order in which tiles are handed out. The last rows come first,
// because they see the most keys under a causal mask.
inline Tile tile_at(const AttentionArgs& args, long long index) {
  const long long rows = static_cast<long long>(args.seqlen_q) * kGqaRatio;
  const long long in_list = (rows + kBlockM - 1) / kBlockM;
  const long long lists = static_cast<long long>(args.batch) * args.num_heads_kv;
  const long long first = (in_list - 1 - index / lists) * kBlockM;
  const long long list = index % lists;
  return {static_cast<int>(list / args.num_heads_kv), static_cast<int>(list % args.num_heads_kv),
          first, static_cast<int>(rows - first < kBlockM ? rows - first : kBlockM)};
}

extern "C" void attune_kernel(const AttentionArgs* args, int thread, int num_threads) {
  const long long rows = static_cast<long long>(args->seqlen_q) * kGqaRatio;
  const long long tiles = (rows + kBlockM - 1) / kBlockM * args->batch * args->num_heads_kv;
  if constexpr (kDropout) write_dropout_state(scaled(*args).dropout, thread);
  char* workspace = static_cast<char*>(args->workspace);
  Scratch& scratch =
      *reinterpret_cast<Scratch*>(workspace + kCounterBytes + thread * kScratchBytes);
  begin_pairs();
  if constexpr (kSchedule == 0) {
    for (long long i = thread; i < tiles; i += num_threads)
      attend_tile(*args, tile_at(*args, i), scratch);
  } else {
    long long* next = reinterpret_cast<long long*>(workspace);
    long long* finished = next + kCounterBytes / 16;  // on a separate cache line
    for (long long i; (i = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED)) < tiles;)
      attend_tile(*args, tile_at(*args, i), scratch);
    if (__atomic_add_fetch(finished, 1, __ATOMIC_ACQ_REL) == num_threads) {
      __atomic_store_n(next, 0, __ATOMIC_RELAXED);
      __atomic_store_n(finished, 0, __ATOMIC_RELAXED);
    }
  }
  end_pairs();
}

}  // namespace attune
