// SPDX-License-Identifier: Apache-2.0
// The C functions on plans.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "generator/core/problem/op.hpp"
#include "generator/score/features/score_feature.hpp"
#include "runtime/c_api/c_run_range.hpp"
#include "runtime/c_api/c_scores.hpp"
#include "runtime/c_api/c_support.hpp"

using namespace attune;
using namespace attune::c_api;

namespace {

// Size of the first version of the struct, whose last field was shared_bytes.
constexpr size_t kPlanInfoSize = offsetof(attune_plan_info, shared_bytes) + sizeof(int64_t);

const attune_block_map* map_in(const attune_operands* operands) {
  constexpr size_t kWithMap = offsetof(attune_operands, block_map) + sizeof(void*);
  return operands->size < kWithMap ? nullptr : operands->block_map;
}

// Returns the pointer at this offset of the operands; null if the caller's older header lacks it.
const void* part_at(const attune_operands& operands, size_t offset) {
  if (operands.size < offset + sizeof(void*)) return nullptr;
  return *reinterpret_cast<void* const*>(reinterpret_cast<const char*>(&operands) + offset);
}

constexpr int64_t kDropoutRows = 16;  // rows of a square of dropout

DropoutArgs dropout_of(const attune_operands* operands) {
  constexpr size_t kWithDropout = offsetof(attune_operands, dropout) + sizeof(void*);
  constexpr size_t kDropoutSize = offsetof(attune_dropout_operands, state) + sizeof(void*);
  if (operands->size < kWithDropout || operands->dropout == nullptr)
    refuse(
        "operands->dropout is null; must be the address of attune_dropout_operands, because the "
        "problem has dropout");
  const attune_dropout_operands c = read_struct(operands->dropout, "operands->dropout",
                                                attune_dropout_operands{}, kDropoutSize, "sizeof");
  for (const auto& [name, address] :
       {std::pair<const char*, const void*>{"seed_address", c.seed_address},
        {"offset_address", c.offset_address},
        {"state", c.state}})
    if (reinterpret_cast<uintptr_t>(address) % sizeof(uint64_t) != 0)
      refuse(fmt::format("operands->dropout->{} is at address {}; must be aligned to 8 bytes", name,
                         address));
  static_assert(sizeof(uint64_t) == sizeof(unsigned long long));
  for (const auto& [name, first, step] :
       {std::tuple{"head0", c.head0, int64_t{1}}, std::tuple{"row0", c.row0, kDropoutRows}})
    if (first < 0 || first > INT32_MAX || first % step != 0)
      refuse(fmt::format("operands->dropout->{} is {}; must be a multiple of {} from 0 to {}", name,
                         first, step, INT32_MAX));
  DropoutArgs args{};
  args.head0 = static_cast<unsigned>(c.head0);
  args.row0 = static_cast<unsigned>(c.row0);
  args.seed_address = reinterpret_cast<const unsigned long long*>(c.seed_address);
  args.offset_address = reinterpret_cast<const unsigned long long*>(c.offset_address);
  args.seed = c.seed;
  args.offset = c.offset;
  args.state = reinterpret_cast<unsigned long long*>(c.state);
  return args;
}

CacheArgs cache_of(const attune_operands* operands) {
  constexpr size_t kWithCache = offsetof(attune_operands, cache) + sizeof(void*);
  if (operands->size < kWithCache || operands->cache == nullptr) return {};
  const attune_cache_operands c = read_cache_operands(operands->cache);
  if (c.num_pages < 0 || c.num_pages > INT32_MAX)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("cache.num_pages is {}; must be 0 to {}", c.num_pages, INT32_MAX));
  return {c.kv_lengths, c.q_begins,          c.page_table,
          c.slots,      c.page_table_stride, static_cast<int>(c.num_pages),
          c.kv_begins};
}

// Returns the lists of keys; null where the caller's older header lacks them.
KeyListArgs lists_of(const attune_operands* operands) {
  if (part_at(*operands, offsetof(attune_operands, cache)) == nullptr) return {};
  const attune_cache_operands c = read_cache_operands(operands->cache);
  return {c.key_indices, c.key_counts, c.key_indices_row_stride, c.key_indices_head_stride, 0};
}

AppendArgs append_of(const attune_operands* operands) {
  constexpr size_t kWithAppend = offsetof(attune_operands, append) + sizeof(void*);
  if (operands->size < kWithAppend || operands->append == nullptr) return {};
  const attune_append_operands c = read_append_operands(operands->append);
  if (c.num_positions > INT32_MAX)
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("append.num_positions is {}; must be 0 to {}", c.num_positions, INT32_MAX));
  AppendArgs args{};
  args.positions = c.positions;
  args.row_slots = c.row_slots;
  args.num_rows = c.num_rows;
  args.num_positions = static_cast<int>(c.num_positions);
  args.index_bytes = c.index_bytes;
  return args;
}

bool has_score_features(const Problem& p) {
  return std::any_of(score_features().begin(), score_features().end(),
                     [&](const ScoreFeature* feature) { return feature->is_on(p); });
}

// Refuses parts of the operands that the plan does not read: they would be ignored silently. An
// empty `scores` is permitted. So are captures of a program that became a built-in mask: the caller
// cannot know that the plan no longer reads them.
void refuse_unread_parts(const attune_operands& operands, const Problem& asked, const Plan& plan) {
  const auto refuse_part = [&](const char* name, const char* of) {
    refuse(fmt::format("operands->{} is given, and the problem {}; must be NULL", name, of));
  };
  if (asked.dropout == 0 && part_at(operands, offsetof(attune_operands, dropout)) != nullptr)
      [[unlikely]]
    refuse_part("dropout", "has no dropout");
  if (part_at(operands, offsetof(attune_operands, gradients)) != nullptr &&
      !describe(asked.op).has_gradients) [[unlikely]]
    refuse_part("gradients", "asks for no gradients");
  if (part_at(operands, offsetof(attune_operands, cache)) != nullptr &&
      !describe(asked.op).has_cache && asked.cache.key_indices == KeyIndices::kNone) [[unlikely]]
    refuse_part("cache", "has no cache");
  if (part_at(operands, offsetof(attune_operands, append)) != nullptr &&
      !describe(asked.op).appends) [[unlikely]]
    refuse_part("append", "does not have op append_kv");
  const void* const given = part_at(operands, offsetof(attune_operands, scores));
  if (given == nullptr || plan.scores.reads_operands()) [[likely]]
    return;
  const auto& scores = *static_cast<const attune_score_operands*>(given);
  const bool says_something = scores.num_captures > 0 || scores.num_scalars > 0 ||
                              scores.q_position0 != 0 || scores.kv_position0 != 0;
  if (says_something && !has_score_features(asked)) [[unlikely]]
    refuse_part("scores", "has no score features to read captures, scalars and positions");
}

int64_t bytes_of(size_t bytes) { return static_cast<int64_t>(std::min<size_t>(bytes, INT64_MAX)); }

}  // namespace

extern "C" {

void attune_plan_release(attune_plan* plan) { delete plan; }

attune_status attune_plan_get_info(const attune_plan* plan, attune_plan_info* info) {
  return guarded([&] {
    const Plan& known = *not_null(plan, "plan").plan;
    const size_t size = not_null(info, "info").size;
    if (size < kPlanInfoSize || size > kLargestStruct)
      refuse_size("info", size, kPlanInfoSize, "the caller");
    const attune_plan::Texts& texts = plan->texts();
    const attune_plan_info filled{size,
                                  static_cast<int32_t>(known.rung),
                                  known.kernel->info().registers,
                                  texts.kernel_template.c_str(),
                                  texts.arch.c_str(),
                                  texts.config.c_str(),
                                  known.expected_us,
                                  static_cast<size_t>(known.workspace_bytes()),
                                  known.launch.main().shared_bytes,
                                  static_cast<size_t>(known.launch.zeroed_bytes),
                                  known.device->ordinal(),
                                  0};
    write_struct(filled, info, size);
  });
}

const char* attune_plan_explain(const attune_plan* plan) {
  const char* text = nullptr;
  guarded([&] { text = not_null(plan, "plan").texts().explanation.c_str(); });
  return text;
}

attune_status attune_workspace_init(const attune_plan* plan, void* workspace,
                                    size_t workspace_bytes, void* stream) {
  return guarded([&] {
    init_workspace(*not_null(plan, "plan").plan, workspace, bytes_of(workspace_bytes), stream);
  });
}

attune_status attune_run(const attune_plan* plan, const attune_operands* operands, void* workspace,
                         size_t workspace_bytes, void* stream) {
  return guarded([&] {
    const Plan& known = *not_null(plan, "plan").plan;
    const RunRange range(*plan);
    Operands given = operands_of(operands);
    const attune_block_map* const map = map_in(operands);
    const Problem& asked = plan->asked;
    refuse_unread_parts(*operands, asked, known);
    DropoutArgs dropout;
    if (asked.dropout) [[unlikely]] {
      dropout = dropout_of(operands);
      given.dropout = &dropout;
    }
    CacheArgs cache;
    KeyListArgs lists;
    if (known.launch.takes_cache || known.launch.takes_lists) [[unlikely]] {
      cache = cache_of(operands);
      given.cache = &cache;
      lists = lists_of(operands);
      given.lists = &lists;
    }
    AppendArgs append;
    if (known.launch.takes_append) [[unlikely]] {
      append = append_of(operands);
      given.append = &append;
    }
    if (!known.scores.reads_operands() && map == nullptr &&
        asked.scores.block_map == BlockMapUse::kNone) [[likely]]
      return run(known, given, workspace, bytes_of(workspace_bytes), stream);
    constexpr size_t kWithScores = offsetof(attune_operands, scores) + sizeof(void*);
    const attune_score_operands* const of_call =
        operands->size < kWithScores ? nullptr : operands->scores;
    check_map(map, asked, of_call);
    const ScoreOperands scores = score_operands_of(of_call, map, known);
    given.scores = &scores;
    run(known, given, workspace, bytes_of(workspace_bytes), stream);
  });
}

}  // extern "C"
