// SPDX-License-Identifier: Apache-2.0
// The C functions on maps of blocks, and the conversion of maps for plans. A map is the output o of
// a separate problem (generator/core/ops/ops.hpp).
#include "generator/core/ops/ops.hpp"

#include <tuple>

#include "runtime/c_api/c_scores.hpp"
#include "runtime/c_api/c_support.hpp"
#include "templates/shared/block_map.h"

using namespace attune;
using namespace attune::c_api;

namespace {

constexpr int64_t kRowStep = 16;  // bytes: rows of operands start at multiples of it
constexpr size_t kBlockMapSize = offsetof(attune_block_map, row_stride) + sizeof(int64_t);

attune_block_map read_map(const attune_block_map* map, const char* argument) {
  return read_struct(map, argument, attune_block_map{}, kBlockMapSize, "attune_block_map_init");
}

// Return the number of granules along the rows and the keys of a map.
int64_t rows_of(const attune_block_map& map) {
  return (map.seqlen_q + kGranuleRows - 1) / kGranuleRows;
}
int64_t keys_of(const attune_block_map& map) {
  return (map.seqlen_kv + kGranuleKeys - 1) / kGranuleKeys;
}

void check_one_or_all(const char* argument, const char* field, int64_t given, int64_t all) {
  if (given == 1 || given == all) return;
  refuse(fmt::format("{}->{} is {}; must be {}, as in the problem, or 1 for all of them", argument,
                     field, given, all));
}

void check_reach(const char* field, int64_t given, int64_t first, int64_t length) {
  if (given >= first + length) return;
  refuse(
      fmt::format("operands->block_map->{} is {}; must be at least {}: the problem has {} "
                  "positions from position {} on",
                  field, given, first + length, length, first));
}

// Returns the problem that fills a map. Checks the map's fields, which the caller may have changed
// since attune_block_map_init.
Problem problem_for(const Problem& asked, const attune_block_map& map) {
  Problem p = block_map_problem(asked);
  check_one_or_all("map", "batch", map.batch, asked.batch);
  check_one_or_all("map", "num_heads", map.num_heads, asked.num_heads_q);
  for (const auto& [field, given, wanted] :
       {std::tuple{"seqlen_q", map.seqlen_q, asked.seqlen_q},
        std::tuple{"seqlen_kv", map.seqlen_kv, asked.seqlen_kv}})
    if (given != wanted)
      refuse(fmt::format("map->{} is {}; must be {}, as in the problem", field, given, wanted));
  p.batch = map.batch;
  p.num_heads_q = static_cast<int>(map.num_heads);
  p.num_heads_kv = map.num_heads == asked.num_heads_q ? asked.num_heads_kv : 1;
  return p;
}

}  // namespace

namespace attune::c_api {

CaptureView map_view(const attune_block_map& given) {
  const attune_block_map map = read_map(&given, "operands->block_map");
  return {map.data,
          {map.batch > 1 ? map.batch_stride : 0, map.num_heads > 1 ? map.head_stride : 0,
           map.row_stride, 1},
          {map.batch, map.num_heads, rows_of(map), keys_of(map)}};
}

void check_map(const attune_block_map* given, const Problem& p,
               const attune_score_operands* scores) {
  if (p.scores.block_map == BlockMapUse::kNone) {
    if (given == nullptr) return;
    refuse(
        "operands->block_map is given, but the problem's block_map is none; must be NULL unless "
        "the problem has block_map");
  }
  if (given == nullptr)
    refuse(
        fmt::format("operands->block_map is null; must be a map, because the problem has "
                    "block_map={}",
                    block_map_use_name(p.scores.block_map)));
  const attune_block_map map = read_map(given, "operands->block_map");
  check_one_or_all("operands->block_map", "batch", map.batch, p.batch);
  check_one_or_all("operands->block_map", "num_heads", map.num_heads, p.num_heads_q);
  check_reach("seqlen_q", map.seqlen_q, scores == nullptr ? 0 : scores->q_position0, p.seqlen_q);
  check_reach("seqlen_kv", map.seqlen_kv, scores == nullptr ? 0 : scores->kv_position0,
              p.seqlen_kv);
}

}  // namespace attune::c_api

extern "C" {

attune_status attune_block_map_init_sized(const attune_problem* problem, attune_block_map* map,
                                          size_t size) {
  return guarded([&] {
    clear_struct(map, "map", size, kBlockMapSize, "attune_block_map_init");
    const Problem p = block_map_problem(problem_of(problem));
    validate(p);
    const int64_t rows = (p.seqlen_q + kGranuleRows - 1) / kGranuleRows;
    const int64_t line = (p.seqlen_kv + kGranuleKeys - 1) / kGranuleKeys;
    const int64_t row_stride = (line + kRowStep - 1) / kRowStep * kRowStep;
    write_struct(attune_block_map{.size = sizeof(attune_block_map),
                                  .data = nullptr,
                                  .batch = p.batch,
                                  .num_heads = p.num_heads_q,
                                  .seqlen_q = p.seqlen_q,
                                  .seqlen_kv = p.seqlen_kv,
                                  .batch_stride = row_stride * rows * p.num_heads_q,
                                  .head_stride = row_stride * rows,
                                  .row_stride = row_stride},
                 map, size);
  });
}

size_t attune_block_map_bytes(const attune_block_map* map) {
  size_t bytes = 0;
  guarded([&] {
    const attune_block_map known = read_map(map, "map");
    if (known.batch > 0 && known.num_heads > 0 && rows_of(known) > 0 && keys_of(known) > 0)
      bytes = static_cast<size_t>((known.batch - 1) * known.batch_stride +
                                  (known.num_heads - 1) * known.head_stride +
                                  rows_of(known) * known.row_stride);
  });
  return bytes;
}

attune_status attune_block_map_build(attune_context* context, const attune_problem* problem,
                                     const attune_score_operands* scores,
                                     const attune_block_map* map, void* stream) {
  return guarded([&] {
    const attune_block_map known = read_map(map, "map");
    const Problem p = problem_for(problem_of(problem), known);
    if (scores != nullptr && (scores->q_position0 != 0 || scores->kv_position0 != 0))
      refuse(
          fmt::format("scores->q_position0 is {} and kv_position0 is {}; must be 0: a map "
                      "covers positions from 0 on",
                      scores->q_position0, scores->kv_position0));
    const ContextCall engine(context);
    Operands operands;
    operands.o = {known.data, known.batch_stride, known.row_stride, known.head_stride};
    const std::shared_ptr<const Plan> plan = engine->plan(p, &operands);
    const ScoreOperands given = score_operands_of(scores, nullptr, *plan, true);
    operands.scores = &given;
    run(*plan, operands, nullptr, 0, stream);
  });
}

}  // extern "C"
