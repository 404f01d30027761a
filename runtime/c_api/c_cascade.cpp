// SPDX-License-Identifier: Apache-2.0
// The C functions on cascades: plans of levels and of merges, run one after the other. See
// attune_cascade.h.
#include <attune/attune_cascade.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "generator/core/ops/ops.hpp"
#include "generator/core/problem/op.hpp"
#include "generator/core/problem/problem_fields.hpp"
#include "generator/score/features/score_feature.hpp"
#include "runtime/c_api/c_support.hpp"

using namespace attune;
using namespace attune::c_api;

namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kMostLevels = 64;  // nested prefixes that one request shares
constexpr size_t kOperandsSize = offsetof(attune_operands, cache) + sizeof(void*);

struct Release {
  void operator()(attune_plan* plan) const { attune_plan_release(plan); }
};

// A plan and its part of the workspace.
struct Stage {
  std::unique_ptr<attune_plan, Release> plan;
  size_t offset = 0, bytes = 0;
};

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Throws if `status`, the result of another C function, is a failure. The message begins with
// `where`.
void check(attune_status status, const std::string& where) {
  if (status != ATTUNE_OK)
    throw Error(static_cast<ErrorCode>(status), fmt::format("{}: {}", where, attune_last_error()));
}

std::string level_name(size_t level) { return fmt::format("levels[{}]", level); }

// A row's scores in one level must not depend on the other levels, so that their results can be
// merged.
template <class Wrong>
void check_features(const Problem& p, const Problem& last, const Wrong& wrong) {
  std::string taken;
  for (const ScoreFeature* feature : score_features())
    if (feature->of_score_alone) taken += feature->field + ", ";
  for (const ProblemField& field : problem_fields()) {
    const ScoreFeature* feature = score_feature_of(field.name);
    if (feature == nullptr) continue;
    if (!feature->of_score_alone && feature->is_on(p))
      wrong(fmt::format("has {}; must have only {}or in the last level sinks", field.name, taken));
    if (feature->of_score_alone && field.print(p) != field.print(last))
      wrong(fmt::format("has {} {}; must be {}, like the last level", field.name, field.print(p),
                        field.print(last)));
  }
}

void check_level(const Problem& p, const Problem& last, size_t level, bool is_last) {
  const auto wrong = [&](const std::string& what) {
    refuse(fmt::format("{} {}", level_name(level), what));
  };
  const OpDescription& op = describe(p.op);
  if (!op.has_cache || op.appends || !p.cache.packed_q)
    wrong(fmt::format("is of op {} with packed_q {}; must be attention_kvcache with packed_q 1",
                      op.name, p.cache.packed_q ? 1 : 0));
  if (p.dtype_q != last.dtype_q || p.num_heads_q != last.num_heads_q ||
      p.head_dim_qk != last.head_dim_qk || p.head_dim_v != last.head_dim_v)
    wrong(
        fmt::format("has dtype {}, {} heads and head dims {} and {}; must be {}, {}, {} and {}, "
                    "like the last level",
                    dtype_name(p.dtype_q), p.num_heads_q, p.head_dim_qk, p.head_dim_v,
                    dtype_name(last.dtype_q), last.num_heads_q, last.head_dim_qk, last.head_dim_v));
  if (p.scale() != last.scale())
    wrong(fmt::format("has softmax_scale {}; must be {}, like the last level", p.scale(),
                      last.scale()));
  if (p.window_left >= 0 || p.window_right >= 0)
    wrong(fmt::format("has window_left {} and window_right {}; both must be -1", p.window_left,
                      p.window_right));
  check_features(p, last, wrong);
  if (!is_last && (p.mask != Mask::kNone || p.scores.sinks != ScoreTensor::kNone))
    wrong(
        fmt::format("has mask {} and sinks {}; must be none and none: only the last level may "
                    "have them",
                    mask_name(p.mask), score_tensor_name(p.scores.sinks)));
}

}  // namespace

struct attune_cascade {
  Problem last;
  int64_t most_rows = 0;  // in the level with most rows
  std::vector<Stage> levels, merges;
  // Offsets in the workspace: o of the first level, o of a later level, the result joined so far,
  // and lse [heads, most_rows] of the first and of a later level. `bytes` is the size of the
  // workspace.
  size_t first_o = 0, next_o = 0, joined_o = 0, first_lse = 0, next_lse = 0, bytes = 0;

  void take(Stage* stage) {
    attune_plan_info info{};
    info.size = sizeof info;
    check(attune_plan_get_info(stage->plan.get(), &info), "plan");
    stage->offset = bytes;
    stage->bytes = info.workspace_bytes;
    bytes += aligned(info.workspace_bytes);
  }
  size_t take(int64_t count) {
    const size_t offset = bytes;
    bytes += aligned(static_cast<size_t>(count));
    return offset;
  }
};

namespace {

// Returns the problem that joins the result so far with the next level's result. The result so far
// is fp32 from the second merge on.
attune_problem joining_problem(const attune_cascade& cascade, size_t number) {
  const Problem& last = cascade.last;
  const bool is_last = number + 2 == cascade.levels.size();
  return c_problem(merge_problem(number == 0 ? last.dtype_q : Dtype::kFp32, last.dtype_q,
                                 is_last ? last.dtype_q : Dtype::kFp32, last.head_dim_v,
                                 last.num_heads_q, last.batch * last.seqlen_q));
}

void lay_out(attune_cascade* cascade) {
  const Problem& last = cascade->last;
  for (Stage& stage : cascade->levels) cascade->take(&stage);
  for (Stage& stage : cascade->merges) cascade->take(&stage);
  if (cascade->levels.size() == 1) return;
  const int64_t rows = cascade->most_rows * last.num_heads_q;
  const int64_t elements = rows * padded_row(last.dtype_q, last.head_dim_v);
  const auto number = static_cast<int64_t>(sizeof(float));
  cascade->first_o = cascade->take(elements * dtype_bytes(last.dtype_q));
  cascade->next_o = cascade->take(elements * dtype_bytes(last.dtype_q));
  if (cascade->levels.size() > 2)
    cascade->joined_o = cascade->take(rows * padded_row(Dtype::kFp32, last.head_dim_v) * number);
  cascade->first_lse = cascade->take(rows * number);
  cascade->next_lse = cascade->take(rows * number);
}

attune_tensor scratch(const attune_cascade& cascade, char* workspace, size_t offset, Dtype dtype) {
  const int64_t line = padded_row(dtype, cascade.last.head_dim_v);
  const int64_t row = line * cascade.last.num_heads_q;
  return {workspace + offset, row * cascade.most_rows, row, line};
}

attune_operands level_operands(const attune_operands* given, size_t level) {
  return read_struct(given, level_name(level).c_str(), attune_operands{}, kOperandsSize,
                     "attune_operands_contiguous");
}

// Checks that the rows of a level fit into the workspace, which has room for the level with most
// rows. Only a CPU device is checked: there the host can read the lists.
void check_rows(const attune_cascade& cascade, const attune_operands& operands, size_t level) {
  const Plan& plan = *cascade.levels[level].plan->plan;
  if (plan.device->ordinal() >= 0 || operands.cache == nullptr) return;
  const int32_t* const begins = operands.cache->q_begins;
  if (begins == nullptr) return;
  const bool is_last = level + 1 == cascade.levels.size();
  const int64_t end = begins[plan.problem.batch];
  if (is_last && begins[0] != 0)
    refuse(fmt::format("{}: cache.q_begins[0] is {}; must be 0 in the last level",
                       level_name(level), begins[0]));
  if (end > cascade.most_rows)
    refuse(fmt::format("{}: cache.q_begins ends at {}; must be at most {}", level_name(level), end,
                       cascade.most_rows));
}

// Sets lse to -infinity for all rows of a level. A row that is in no group of the level is then
// joined as an empty result. Level 0 sets the lse of both buffers.
void empty_states(const attune_cascade& cascade, size_t level, char* workspace, void* stream) {
  const size_t from = level == 0 ? cascade.first_lse : cascade.next_lse;
  const int64_t rows = cascade.most_rows * cascade.last.num_heads_q;
  const auto bytes = static_cast<int64_t>(cascade.next_lse - from) + rows * int64_t{sizeof(float)};
  cascade.levels[level].plan->plan->device->fill_floats(reinterpret_cast<float*>(workspace + from),
                                                        -std::numeric_limits<float>::infinity(),
                                                        bytes / int64_t{sizeof(float)}, stream);
}

void check_workspace(const attune_cascade& cascade, const void* workspace, size_t bytes) {
  if (bytes < cascade.bytes)
    refuse(fmt::format("workspace_bytes is {}; must be at least {} for this cascade", bytes,
                       cascade.bytes));
  if (cascade.bytes > 0 &&
      (workspace == nullptr || reinterpret_cast<uintptr_t>(workspace) % kAlignment != 0))
    refuse(fmt::format("workspace is at address {}; must be aligned to {} bytes", workspace,
                       kAlignment));
}

void run_stage(const Stage& stage, const attune_operands& operands, char* workspace, void* stream,
               const std::string& where) {
  check(attune_run(stage.plan.get(), &operands,
                   stage.bytes > 0 ? workspace + stage.offset : nullptr, stage.bytes, stream),
        where);
}

void run_merge(const attune_cascade& cascade, size_t number, const attune_operands& result,
               char* workspace, void* stream) {
  const Problem& last = cascade.last;
  const bool is_last = number + 1 == cascade.merges.size();
  auto* const lse = reinterpret_cast<float*>(workspace + cascade.first_lse);
  auto* const next = reinterpret_cast<float*>(workspace + cascade.next_lse);
  attune_operands merge{};
  merge.size = sizeof merge;
  merge.q = number == 0 ? scratch(cascade, workspace, cascade.first_o, last.dtype_q)
                        : scratch(cascade, workspace, cascade.joined_o, Dtype::kFp32);
  merge.k = scratch(cascade, workspace, cascade.next_o, last.dtype_q);
  merge.o = is_last ? result.o : scratch(cascade, workspace, cascade.joined_o, Dtype::kFp32);
  merge.q_scale = {lse, 0, cascade.most_rows, 1, 1};
  merge.k_scale = {next, 0, cascade.most_rows, 1, 1};
  const bool keeps = is_last && result.lse != nullptr;
  merge.lse = keeps ? result.lse : lse;
  merge.lse_head_stride = keeps ? result.lse_head_stride : cascade.most_rows;
  merge.lse_batch_stride = keeps ? result.lse_batch_stride : cascade.most_rows * last.num_heads_q;
  run_stage(cascade.merges[number], merge, workspace, stream, "joining levels");
}

}  // namespace

extern "C" {

attune_status attune_cascade_get(attune_context* context, const attune_problem* levels,
                                 size_t num_levels, const attune_operands* const* layouts,
                                 attune_cascade** cascade) {
  return guarded([&] {
    not_null(cascade, "cascade") = nullptr;
    if (num_levels == 0) refuse("num_levels is 0; must be at least 1");
    check_count("num_levels", num_levels, kMostLevels);
    not_null(levels, "levels");
    auto made = std::make_unique<attune_cascade>();
    // The stride is the size of the struct in the caller's header: levels[0].size.
    const auto* const bytes = reinterpret_cast<const char*>(levels);
    const auto level = [&](size_t i) {
      return reinterpret_cast<const attune_problem*>(bytes + i * levels->size);
    };
    std::vector<Problem> problems;
    for (size_t i = 0; i < num_levels; ++i) {
      problems.push_back(problem_of(level(i)));
      if (level(i)->size != levels->size)
        refuse(fmt::format("{} has size {}; must be {}, like levels[0]", level_name(i),
                           level(i)->size, levels->size));
    }
    made->last = problems.back();
    made->levels.resize(num_levels);
    for (size_t i = 0; i < num_levels; ++i) {
      const Problem& p = problems[i];
      check_level(p, made->last, i, i + 1 == num_levels);
      made->most_rows = std::max(made->most_rows, p.batch * p.seqlen_q);
      attune_plan* plan = nullptr;
      check(attune_plan_get(context, level(i), layouts == nullptr ? nullptr : layouts[i], &plan),
            level_name(i));
      made->levels[i].plan.reset(plan);
    }
    made->merges.resize(num_levels - 1);
    for (size_t i = 0; i + 1 < num_levels; ++i) {
      const attune_problem problem = joining_problem(*made, i);
      attune_plan* plan = nullptr;
      check(attune_plan_get(context, &problem, nullptr, &plan), "joining levels");
      made->merges[i].plan.reset(plan);
    }
    lay_out(made.get());
    *cascade = made.release();
  });
}

void attune_cascade_release(attune_cascade* cascade) { delete cascade; }

size_t attune_cascade_workspace_bytes(const attune_cascade* cascade) {
  return cascade == nullptr ? 0 : cascade->bytes;
}

attune_status attune_cascade_init(const attune_cascade* cascade, void* workspace,
                                  size_t workspace_bytes, void* stream) {
  return guarded([&] {
    const attune_cascade& known = not_null(cascade, "cascade");
    check_workspace(known, workspace, workspace_bytes);
    for (const std::vector<Stage>* stages : {&known.levels, &known.merges})
      for (const Stage& stage : *stages)
        if (stage.bytes > 0)
          check(
              attune_workspace_init(stage.plan.get(), static_cast<char*>(workspace) + stage.offset,
                                    stage.bytes, stream),
              "workspace");
  });
}

attune_status attune_cascade_run(const attune_cascade* cascade,
                                 const attune_operands* const* levels, void* workspace,
                                 size_t workspace_bytes, void* stream) {
  return guarded([&] {
    const attune_cascade& known = not_null(cascade, "cascade");
    check_workspace(known, workspace, workspace_bytes);
    not_null(levels, "levels");
    auto* const memory = static_cast<char*>(workspace);
    const size_t count = known.levels.size();
    const attune_operands result = level_operands(levels[count - 1], count - 1);
    for (size_t i = 0; count > 1 && i < count; ++i)
      check_rows(known, level_operands(levels[i], i), i);
    for (size_t i = 0; i < count; ++i) {
      attune_operands operands = level_operands(levels[i], i);
      operands.q = result.q;
      if (count > 1) {
        const size_t o = i == 0 ? known.first_o : known.next_o;
        operands.o = scratch(known, memory, o, known.last.dtype_q);
        operands.lse =
            reinterpret_cast<float*>(memory + (i == 0 ? known.first_lse : known.next_lse));
        operands.lse_head_stride = known.most_rows;
        operands.lse_batch_stride = known.most_rows * known.last.num_heads_q;
        if (i != 1) empty_states(known, i, memory, stream);  // level 0 set it for level 1
      }
      run_stage(known.levels[i], operands, memory, stream, level_name(i));
      if (i > 0) run_merge(known, i - 1, result, memory, stream);
    }
  });
}

}  // extern "C"
