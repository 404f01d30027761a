// SPDX-License-Identifier: Apache-2.0
// backward_cpu: gradients of attention on a CPU. With P = exp(z - lse), delta = rowsum(dout * o) -
// dlse and z' the derivative of the score program: dV = P^T dout, dS = P * (dout V^T - delta) * z',
// dQ = scale * dS K, dK = scale * dS^T Q. With dropout, dV uses P * D and dS uses dout V^T * D,
// where D is 0 or the factor of kept weights. q, k, v, o, dout and the gradients: fp32, bf16 or
// fp16, any strides with contiguous head_dim; all arithmetic and all sums are fp32, rounded once.
//
// The rows of all query heads that share a K/V head form one list (row * ratio + head), as in
// prefill_cpu. The list is cut into tiles of kBlockM rows, and tiles into panels of kVectors *
// kLanes rows, one row per lane. The work for a block of kBlockN keys and a tile is:
//   for each panel: S^T = K Q^T, dP^T = V dO^T, then P^T and dS^T; dQ^T += K^T dS^T;
//                   dV += P^T dO and dK += dS^T Q, with columns across the lanes.
//
// Steps, with a barrier of all threads after each:
//   attune_delta    row statistics
//   attune_kernel   key blocks: dK, dV; with kPasses 1 a thread has a whole K/V head and sums dQ
//   attune_queries  row tiles: dQ, with kPasses 2
// One thread computes each sum, in a fixed order. So gradients have the same bits for any number of
// threads.
//
// Knobs: kBlockM, kBlockN, kRows x kVectors (register tile), kUnroll, kPasses. Workspace: 256 bytes
// of counters, row statistics, kScratchBytes per thread, and with kPasses 1 also dQ of one K/V head
// per thread.
#include "shared/attention_enums.h"

#include "cpu/backward/backward_cpu_knobs.hpp"

#include "cpu/backward/gradient_products.hpp"
#include "cpu/backward/gradient_tiles.hpp"
#include "cpu/backward/slope_stage.hpp"  // where kSloped, else none/
#include "cpu/parts/none/features.hpp"
#include "cpu/parts/pack_kv.hpp"
#include "cpu/parts/panel_stages.hpp"
#include "cpu/parts/simd.hpp"
#include "cpu/parts/transpose.hpp"
#include "cpu/parts/visibility.hpp"
#include "shared/kernel_arguments.h"

namespace attune {

constexpr int kPanels = kBlockM / kPanelRows;
constexpr int kCounterBytes = 256;
constexpr int kScoreRows = kBlockN + kRows;  // the last register tile may extend past the block
constexpr bool kGradientKv = kGradientK || kGradientV;
constexpr bool kGradientS = kGradientQ || kGradientK;

static_assert(kBlockM % kPanelRows == 0, "block_m must be a multiple of vectors times lanes");

// A tile of rows in the form that the products read.
struct TileRows {
  Panel queries[kPanels][kHeadDimQk];  // Q^T, scaled
  Panel douts[kPanels][kHeadDimV];     // dO^T
  Panel lse[kPanels];                  // base 2; infinity for rows without keys
  Panel delta[kPanels];
  float query_rows[kBlockM * kPadded<kHeadDimQk>];
  float dout_rows[kBlockM * kPadded<kHeadDimV>];
};

struct Scratch {
  TileRows rows;
  Panel p[kScoreRows];   // S^T, then P^T
  Panel ds[kScoreRows];  // dP^T, then dS^T
  Panel slopes[kBlockN];
  [[no_unique_address]] DropoutFactors<kBlockN> kept;
  Panel dq[kPanels][kHeadDimQk];  // of a tile, if kPasses is 2
  float keys[kBlockN * kHeadDimQk];
  float values[kBlockN * kHeadDimV];
  float dk[kScoreRows * kPadded<kHeadDimQk>];
  float dv[kScoreRows * kPadded<kHeadDimV>];
};
static_assert(sizeof(Scratch) <= kScratchBytes, "kScratchBytes must hold one Scratch");

// Returns the workspace's counter of a step.
inline long long* counter(const AttentionArgs& args, int step) {
  return static_cast<long long*>(args.workspace) + step * 16;  // each on separate cache lines
}
// Returns the address of a row's statistics, two floats: lse in base 2, and delta.
inline float* statistics(const AttentionArgs& args, int batch, int head_kv, long long index) {
  char* first = static_cast<char*>(args.workspace) + kCounterBytes;
  const long long list = static_cast<long long>(batch) * args.num_heads_kv + head_kv;
  return reinterpret_cast<float*>(first) + 2 * (list * list_rows(args) + index);
}
inline char* scratches(const AttentionArgs& args) {
  const long long bytes = 8 * groups_of(args) * list_rows(args);
  return static_cast<char*>(args.workspace) + kCounterBytes + (bytes + 255) / 256 * 256;
}
inline Scratch& scratch_of(const AttentionArgs& args, int thread) {
  return *reinterpret_cast<Scratch*>(scratches(args) + thread * kScratchBytes);
}
inline Panel* dq_of(const AttentionArgs& args, int thread, int num_threads) {
  char* first = scratches(args) + num_threads * kScratchBytes;
  const long long floats = tiles_of(args) * kBlockM * kHeadDimQk;
  return reinterpret_cast<Panel*>(first + thread * floats * 4);
}

inline int head_of(int head_kv, long long index) {
  return head_kv * kGqaRatio + static_cast<int>(index % kGqaRatio);
}

// Returns the address of row `index` of the list, in an operand with one head per query head.
template <class T>
inline T* row_address(const OperandView& view, int batch, int head_kv, long long index) {
  return static_cast<T*>(view.data) + batch * view.batch_stride +
         head_of(head_kv, index) * view.head_stride + index / kGqaRatio * view.row_stride;
}

// Returns one register of a panel.
inline Floats& part(Panel& panel, int vector) { return reinterpret_cast<Floats*>(&panel)[vector]; }

inline void write_statistics(const KernelArguments& args, Group group, long long index) {
  const GradientArgs& g = args.gradients;
  const int head = head_of(group.head_kv, index);
  const long long row = index / kGqaRatio;
  const float lse =
      args.lse[group.batch * args.lse_batch_stride + head * args.lse_head_stride + row];
  float* to = statistics(args, group.batch, group.head_kv, index);
  if (lse == -kInfinity) {
    to[0] = kInfinity, to[1] = 0;
    return;
  }
  const auto* o = row_address<Element<kDtypeO>>(args.o, group.batch, group.head_kv, index);
  const auto* dout = row_address<Element<kDtypeO>>(g.dout, group.batch, group.head_kv, index);
  Floats sum = 0.0f;
  constexpr int kWhole = kHeadDimV / kLanes * kLanes;
  for (int c = 0; c < kWhole; c += kLanes) sum += load<kDtypeO>(o + c) * load<kDtypeO>(dout + c);
  if constexpr (kWhole < kHeadDimV) {  // count only columns that no earlier register had
    Floats last = load<kDtypeO>(o + kHeadDimV - kLanes) * load<kDtypeO>(dout + kHeadDimV - kLanes);
    for (int i = 0; i < kLanes - (kHeadDimV - kWhole); ++i) last[i] = 0.0f;
    sum += last;
  }
  float delta = 0;
  for (int i = 0; i < kLanes; ++i) delta += sum[i];
  if (g.dlse) delta -= g.dlse[group.batch * g.dlse_batch_stride + head * g.dlse_head_stride + row];
  to[0] = lse * 1.44269504f, to[1] = delta;
}

// Loads kLanes rows of an operand, once as rows and once, times `factor`, with one row per lane.
// Rows that see no key, and rows past the last one, become 0.
template <int kWidth>
inline void load_rows(const OperandView& view, const Tile& tile, const Panel& lse, int panel,
                      int vector, float factor, Panel* columns, float* rows_to) {
  const int first = panel * kPanelRows + vector * kLanes;
  const int count = least(kLanes, tile.count - first);
  for (int chunk = 0; chunk < kChunks<kWidth>; ++chunk) {
    const int c = chunk_begin<kWidth>(chunk);
    Floats rows[kLanes] = {};
    for (int i = 0; i < count; ++i)
      if (lse[vector * kLanes + i] != kInfinity)
        rows[i] = load<kDtypeQ>(
            row_address<Element<kDtypeQ>>(view, tile.batch, tile.head_kv, tile.first + first + i) +
            c);
    for (int i = 0; i < kLanes; ++i)
      store<Dtype::kFp32>(rows_to + (first + i) * kPadded<kWidth> + c, rows[i]);
    transpose(rows);
    for (int i = 0; i < kLanes; ++i) part(columns[c + i], vector) = rows[i] * factor;
  }
}

inline void load_tile(const KernelArguments& args, const Tile& tile, TileRows& rows) {
  for (int panel = 0; panel * kPanelRows < tile.count; ++panel) {
    float lse[kPanelRows], delta[kPanelRows];
    for (int lane = 0; lane < kPanelRows; ++lane) {
      const int row = panel * kPanelRows + lane;
      const float* from = statistics(args, tile.batch, tile.head_kv, tile.first + row);
      lse[lane] = row < tile.count ? from[0] : kInfinity;
      delta[lane] = row < tile.count ? from[1] : 0.0f;
    }
    __builtin_memcpy(&rows.lse[panel], lse, sizeof(lse));
    __builtin_memcpy(&rows.delta[panel], delta, sizeof(delta));
    for (int v = 0; v < kVectors; ++v) {
      load_rows<kHeadDimQk>(args.q, tile, rows.lse[panel], panel, v, args.softmax_scale_log2,
                            rows.queries[panel], rows.query_rows);
      load_rows<kHeadDimV>(args.gradients.dout, tile, rows.lse[panel], panel, v, 1.0f,
                           rows.douts[panel], rows.dout_rows);
    }
  }
}

inline void load_block(const AttentionArgs& args, Group group, KeyRange block, Scratch& scratch) {
  const auto first = [&](const OperandView& view) {
    return static_cast<const Element<kDtypeKv>*>(view.data) + group.batch * view.batch_stride +
           group.head_kv * view.head_stride + block.begin * view.row_stride;
  };
  const int count = block.end - block.begin;
  pack<kHeadDimQk>(first(args.k), args.k.row_stride, count, scratch.keys);
  if constexpr (kGradientS)
    pack<kHeadDimV>(first(args.v), args.v.row_stride, count, scratch.values);
}

// Adds the products of a panel of the tile and a block of keys: to dQ^T if kWithQ, to dK and dV if
// kWithKv.
template <bool kWithQ, bool kWithKv>
inline void visit_panel(const KernelArguments& args, const Tile& tile, int panel, KeyRange block,
                        Scratch& scratch, Panel* dq) {
  const long long first_index = tile.first + panel * kPanelRows;
  const long long first = first_index / kGqaRatio;
  const long long last = (tile.first + least(tile.count, (panel + 1) * kPanelRows) - 1) / kGqaRatio;
  const AttentionArgs& call = args;
  KeyRange seen = visible_keys(call, first, last);
  seen.begin = seen.begin > block.begin ? seen.begin : block.begin;
  seen.end = least(seen.end, block.end);
  if (seen.begin >= seen.end) return;
  const Tile rows{tile.batch, tile.head_kv, first_index,
                  least(tile.count - panel * kPanelRows, kPanelRows)};
  const Shown shown = shown_to(args, rows, seen);
  if (!shown.hi) return;

  const int count = seen.end - seen.begin;
  const int skipped = seen.begin - block.begin;
  const float* keys = scratch.keys + skipped * kHeadDimQk;
  Panel* p = scratch.p;
  Panel* ds = scratch.ds;
  Panel largest = -kInfinity;
  const ScoreStage stage(args, tile.batch, tile.head_kv, first_index);
  stage.fetch(seen);
  multiply_rows<kHeadDimQk>(keys, count, scratch.rows.queries[panel], p);
  find_slopes(args, tile, first_index, seen, p, scratch.slopes);
  stage.apply(seen, p, largest);
  if (!sees_all(call, first, last, seen)) {
    mask_block(call, first, row_steps(static_cast<int>(first_index % kGqaRatio)), seen, p, largest);
  }
  if (!shown.lo) hide_scores(args, rows, seen, p, largest);
  if constexpr (kGradientS)
    multiply_rows<kHeadDimV>(scratch.values + skipped * kHeadDimV, count, scratch.rows.douts[panel],
                             ds);
  scratch.kept.find(args, tile.batch, tile.head_kv, first_index, seen);
  const Panel lse = scratch.rows.lse[panel], delta = scratch.rows.delta[panel];
  for (int n = 0; n < count; ++n) {
    p[n] = exp2_nonpositive(p[n] - lse);
    if constexpr (kUserScores) p[n] = lse == kInfinity ? Panel(0.0f) : p[n];  // even if it is NaN
    if constexpr (kGradientS) {
      scratch.kept.scale(n, ds[n]);
      Panel gradient = p[n] * (ds[n] - delta);
      if constexpr (kSloped) gradient *= scratch.slopes[n];
      ds[n] = p[n] == 0.0f ? Panel(0.0f) : gradient;  // also if the slope is NaN
    }
    scratch.kept.scale(n, p[n]);
  }
  if constexpr (kWithQ) add_columns<kHeadDimQk>(keys, count, ds, dq);
  if constexpr (kWithKv) {
    for (int n = count; n < count + kRows - 1; ++n) p[n] = ds[n] = 0.0f;
    const int row = panel * kPanelRows;
    if constexpr (kGradientV)
      add_rows<kHeadDimV>(p, count, scratch.rows.dout_rows + row * kPadded<kHeadDimV>,
                          scratch.dv + skipped * kPadded<kHeadDimV>);
    if constexpr (kGradientK)
      add_rows<kHeadDimQk>(ds, count, scratch.rows.query_rows + row * kPadded<kHeadDimQk>,
                           scratch.dk + skipped * kPadded<kHeadDimQk>);
  }
}

// True if a row of the tile may see a key of the block.
inline bool meet(const KernelArguments& args, const Tile& tile, KeyRange block) {
  const AttentionArgs& call = args;
  const KeyRange keys =
      visible_keys(call, tile.first / kGqaRatio, (tile.first + tile.count - 1) / kGqaRatio);
  if (keys.begin >= keys.end || keys.begin >= block.end || keys.end <= block.begin) return false;
  const Tile rows{tile.batch, tile.head_kv, tile.first, tile.count};
  return range_of_rows(args.scores, rows, block).hi;
}

template <bool kWithQ, bool kWithKv>
inline void visit_tile(const KernelArguments& args, const Tile& tile, KeyRange block,
                       Scratch& scratch, Panel* dq) {
  for (int panel = 0; panel * kPanelRows < tile.count; ++panel)
    visit_panel<kWithQ, kWithKv>(args, tile, panel, block, scratch, dq + panel * kHeadDimQk);
}

inline void store_dq(const KernelArguments& args, const Tile& tile, Panel* dq) {
  for (int first = 0; first < tile.count; first += kLanes) {
    Panel* columns = dq + first / kPanelRows * kHeadDimQk;
    const int vector = first % kPanelRows / kLanes;
    for (int chunk = 0; chunk < kChunks<kHeadDimQk>; ++chunk) {
      const int c = chunk_begin<kHeadDimQk>(chunk);
      Floats rows[kLanes];
      for (int i = 0; i < kLanes; ++i) rows[i] = part(columns[c + i], vector) * args.softmax_scale;
      transpose(rows);
      if constexpr (kAccumulate) {
        add_to_dq(args.gradients.dq, tile, first, chunk, rows);
        continue;
      }
      for (int i = 0; i < least(kLanes, tile.count - first); ++i)
        store<kDtypeQ>(row_address<Element<kDtypeQ>>(args.gradients.dq, tile.batch, tile.head_kv,
                                                     tile.first + first + i) +
                           c,
                       rows[i]);
    }
  }
}

template <int kWidth>
inline void store_keys(const OperandView& view, Group group, KeyRange block, const float* sums,
                       float factor) {
  if constexpr (kAccumulate) return add_to_keys<kWidth>(view, group, block, sums, factor);
  auto* to = static_cast<Element<kDtypeKv>*>(view.data) + group.batch * view.batch_stride +
             group.head_kv * view.head_stride + block.begin * view.row_stride;
  for (int n = block.begin; n < block.end; ++n, to += view.row_stride, sums += kPadded<kWidth>)
    for (int chunk = 0; chunk < kChunks<kWidth>; ++chunk) {
      const int c = chunk_begin<kWidth>(chunk);
      store<kDtypeKv>(to + c, load<Dtype::kFp32>(sums + c) * factor);
    }
}

inline KeyRange block_at(const AttentionArgs& args, long long index) {
  const int begin = static_cast<int>(index) * kBlockN;
  return {begin, args.seqlen_kv - begin < kBlockN ? args.seqlen_kv : begin + kBlockN};
}
inline long long blocks_of(const AttentionArgs& args) {
  return (static_cast<long long>(args.seqlen_kv) + kBlockN - 1) / kBlockN;
}

// Computes dK and dV of a block over all rows. If kWithQ, also adds the block's part to dQ of the
// list.
template <bool kWithQ>
inline void finish_block(const KernelArguments& args, Group group, KeyRange block, Scratch& scratch,
                         Panel* dq) {
  load_block(args, group, block, scratch);
  if constexpr (kGradientK) __builtin_memset(scratch.dk, 0, sizeof(scratch.dk));
  if constexpr (kGradientV) __builtin_memset(scratch.dv, 0, sizeof(scratch.dv));
  for (long long t = 0; t < tiles_of(args); ++t) {
    const Tile tile = tile_at(args, group, t);
    if (!meet(args, tile, block)) continue;
    load_tile(args, tile, scratch.rows);
    visit_tile<kWithQ, true>(args, tile, block, scratch, dq + t * kPanels * kHeadDimQk);
  }
  const GradientArgs& g = args.gradients;
  if constexpr (kGradientK)
    store_keys<kHeadDimQk>(g.dk, group, block, scratch.dk, args.softmax_scale);
  if constexpr (kGradientV) store_keys<kHeadDimV>(g.dv, group, block, scratch.dv, 1.0f);
}

inline void finish_group(const KernelArguments& args, Group group, Scratch& scratch, Panel* dq) {
  const long long panels = tiles_of(args) * kPanels * kHeadDimQk;
  for (long long i = 0; i < panels; ++i) dq[i] = 0.0f;
  for (long long b = 0; b < blocks_of(args); ++b)
    finish_block<true>(args, group, block_at(args, b), scratch, dq);
  for (long long t = 0; t < tiles_of(args); ++t)
    store_dq(args, tile_at(args, group, t), dq + t * kPanels * kHeadDimQk);
}

inline void finish_tile(const KernelArguments& args, const Tile& tile, Scratch& scratch) {
  Panel* dq = scratch.dq[0];
  for (int i = 0; i < kPanels * kHeadDimQk; ++i) dq[i] = 0.0f;
  load_tile(args, tile, scratch.rows);
  for (long long b = 0; b < blocks_of(args); ++b) {
    const KeyRange block = block_at(args, b);
    if (!meet(args, tile, block)) continue;
    load_block(args, {tile.batch, tile.head_kv}, block, scratch);
    visit_tile<true, false>(args, tile, block, scratch, dq);
  }
  store_dq(args, tile, dq);
}

// Hands out the numbers [0, count) to all threads, one at a time.
template <class Take>
inline void share(long long* next, long long count, const Take& take) {
  for (long long i; (i = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED)) < count;) take(i);
}

extern "C" void attune_delta(const AttentionArgs* given, int thread, int num_threads) {
  const KernelArguments& args = *static_cast<const KernelArguments*>(given);
  if (thread == 0) *counter(args, 0) = *counter(args, 1) = 0;
  const long long rows = list_rows(args), all = groups_of(args) * rows;
  for (long long i = all * thread / num_threads; i < all * (thread + 1) / num_threads; ++i)
    write_statistics(args, group_at(args, i / rows), i % rows);
}

extern "C" void attune_kernel(const AttentionArgs* given, int thread, int num_threads) {
  const KernelArguments& args = *static_cast<const KernelArguments*>(given);
  Scratch& scratch = scratch_of(args, thread);
  if constexpr (kPasses == 1 && kGradientQ && kGradientKv) {
    share(counter(args, 0), groups_of(args), [&](long long i) {
      finish_group(args, group_at(args, i), scratch, dq_of(args, thread, num_threads));
    });
  } else if constexpr (kGradientKv) {
    const long long groups = groups_of(args);
    share(counter(args, 0), blocks_of(args) * groups, [&](long long i) {
      finish_block<false>(args, group_at(args, i % groups), block_at(args, i / groups), scratch,
                          nullptr);
    });
  }
}

// Starts with the last rows, which see the most keys under a causal mask.
extern "C" void attune_queries(const AttentionArgs* given, int thread, int) {
  const KernelArguments& args = *static_cast<const KernelArguments*>(given);
  if constexpr (kGradientQ && (kPasses == 2 || !kGradientKv)) {
    const long long groups = groups_of(args), tiles = tiles_of(args);
    share(counter(args, 1), tiles * groups, [&](long long i) {
      finish_tile(args, tile_at(args, group_at(args, i % groups), tiles - 1 - i / groups),
                  scratch_of(args, thread));
    });
  }
}

}  // namespace attune
