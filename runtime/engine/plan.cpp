// SPDX-License-Identifier: Apache-2.0
// A run: checks operands, fills in the kernels' arguments, launches. plan_explain.cpp explains
// plans.
#include "runtime/engine/plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/ops/ops.hpp"
#include "generator/core/system/error.hpp"
#include "generator/launch_plan.hpp"
#include "runtime/operands/cache_check.hpp"
#include "runtime/operands/operand_check.hpp"

namespace attune {
namespace {

constexpr float kLog2E = 1.4426950408889634f;

bool tells_apart(const MaskDependence::Part& part, const ScoreOperands& operands) {
  return part.directly || std::any_of(part.axes.begin(), part.axes.end(), [&](const auto& at) {
           return operands.captures[at.capture].strides[at.axis] != 0;
         });
}

MapLists map_lists(const ScoreCaptures& scores, const ScoreOperands* given) {
  static const ScoreOperands nothing;
  const ScoreOperands& operands = given == nullptr ? nothing : *given;
  return {tells_apart(scores.masks.on_batch, operands),
          tells_apart(scores.masks.on_head, operands)};
}

// Points captures without elements to q. A kernel may visit a block of keys of which its rows see
// none. It still reads captures there, clamped to their first element. The address and strides of
// an empty capture may be arbitrary, so the kernel must read other, valid memory.
void point_empty_captures(const ScoreCaptures& wanted, const void* q, ScoreArgs* args) {
  for (size_t i = 0; i < wanted.captures.size(); ++i) {
    ScoreCapture& capture = args->captures[i];
    const int* const first = capture.extents;
    const int* const end = first + wanted.captures[i].extents.size();
    if (std::find(first, end, 0) == end) continue;
    capture.data = q;
    std::fill(std::begin(capture.strides), std::end(capture.strides), 0);
  }
}

GradientArgs gradient_args(const Problem& p, const Operands& operands) {
  const bool of_scores = p.backward.score_gradient != ScoreGradient::kNone;
  GradientArgs args{operands.dout,
                    of_scores ? operands.dscores : operands.dq,
                    operands.dk,
                    operands.dv,
                    operands.dlse,
                    operands.dlse_batch_stride,
                    operands.dlse_head_stride};
  if (args.dlse_batch_stride == 0 && args.dlse_head_stride == 0) {
    args.dlse_head_stride = p.seqlen_q;
    args.dlse_batch_stride = p.seqlen_q * p.num_heads_q;
  }
  return args;
}

void set_cache_args(const Problem& p, const Operands& operands, KernelArguments* args) {
  args->cache = operands.cache == nullptr ? CacheArgs{} : *operands.cache;
  if (args->cache.num_pages == 0) args->cache.num_pages = static_cast<int>(pages_of_cache(p));
  if (p.cache.packed_q && operands.lse_head_stride == 0)
    args->lse_head_stride = p.batch * p.seqlen_q;
}

KeyListArgs list_args(const Problem& p, const Operands& operands) {
  KeyListArgs args = operands.lists == nullptr ? KeyListArgs{} : *operands.lists;
  args.length = static_cast<int>(keys_of_row(p, p));
  return args;
}

AppendArgs append_args(const Problem& p, const Operands& operands) {
  AppendArgs args = operands.append == nullptr ? AppendArgs{} : *operands.append;
  args.k_new = operands.k_new;
  args.v_new = operands.v_new;
  args.cos = operands.cos;
  args.sin = operands.sin;
  if (args.num_positions == 0) args.num_positions = static_cast<int>(p.seqlen_kv);
  if (args.index_bytes == 0) args.index_bytes = 4;
  return args;
}

GroupedArguments args_of(const Plan& plan, const Operands& operands, void* workspace) {
  const Problem& p = plan.problem;
  GroupedArguments args;
  args.q = operands.q;
  args.k = operands.k;
  args.v = operands.v;
  args.o = operands.o;
  args.lse = operands.lse;
  const bool contiguous = operands.lse_batch_stride == 0 && operands.lse_head_stride == 0;
  args.lse_head_stride = contiguous ? p.seqlen_q : operands.lse_head_stride;
  args.lse_batch_stride = contiguous ? p.seqlen_q * p.num_heads_q : operands.lse_batch_stride;
  args.batch = static_cast<int>(p.batch);
  args.seqlen_q = static_cast<int>(p.seqlen_q);
  args.seqlen_kv = static_cast<int>(p.seqlen_kv);
  args.num_heads_q = p.num_heads_q;
  args.num_heads_kv = p.num_heads_kv;
  args.softmax_scale = p.scale();
  args.softmax_scale_log2 = args.softmax_scale * kLog2E;
  if (plan.scores.present) [[unlikely]] {
    if (plan.scores.has_stage && !plan.launch.keeps_score_units)
      args.softmax_scale_log2 = kLog2E;  // the score stage scales
    args.scores = score_args(p, plan.scores, operands.scores);
    point_empty_captures(plan.scores, args.q.data, &args.scores);
    args.map = plan.launch.map_args(workspace, map_lists(plan.scores, operands.scores));
  }
  if (plan.operands.list().has(Role::kDout)) [[unlikely]]
    args.gradients = gradient_args(p, operands);
  if (p.dropout > 0) [[unlikely]]
    args.dropout = dropout_args(p, operands.dropout);
  if (plan.launch.takes_cache) [[unlikely]]
    set_cache_args(p, operands, &args);
  if (plan.launch.takes_append) [[unlikely]]
    args.append = append_args(p, operands);
  if (plan.launch.takes_lists) [[unlikely]]
    args.lists = list_args(p, operands);
  if (plan.launch.takes_groups) [[unlikely]]
    args.groups = {operands.k_groups, operands.v_groups};
  args.workspace = workspace;
  args.scales = {operands.q_scale, operands.k_scale, operands.v_scale, operands.o_scale};
  return args;
}

}  // namespace

void run(const Plan& plan, const Operands& operands, void* workspace, int64_t workspace_bytes,
         StreamHandle stream) {
  if (!plan.operands.allow(operands)) [[unlikely]]
    check_operands(plan.operands.list(), operands);
  if (plan.scores.reads_operands()) [[unlikely]]
    check_score_operands(plan.problem, plan.scores, operands.scores);
  if (plan.launch.takes_cache) [[unlikely]] {
    if (plan.launch.takes_append)
      check_append(plan.problem, operands.cache, operands.append);
    else
      check_cache(plan.problem, operands.cache), check_v_in_k(plan.problem, operands),
          check_lists(plan.problem, operands);
    if (!plan.launch.takes_append && plan.arch.target == Target::kCpu && operands.cache != nullptr)
      check_host_ids(plan.problem, *operands.cache);
    check_cache_factors(plan.problem, operands);
    check_pages_of_call(plan.problem, operands);
  } else if (plan.launch.takes_lists) [[unlikely]] {
    check_lists_alone(operands.cache), check_v_in_k(plan.problem, operands),
        check_lists(plan.problem, operands);
  }
  check_workspace(plan, workspace, workspace_bytes);
  if (plan.operands.writes_nothing()) return;
  if (plan.launch.uses_tensor_maps() && !plan.operands.suit_tensor_maps(operands)) [[unlikely]]
    if (const auto reason = tensor_map_refusal(plan.operands.list(), operands))
      throw Error(ErrorCode::kInvalidArgument,
                  *reason + "; make the plan with these operands as its layout");
  if (plan.check_workspace && !plan.device->capturing(stream)) [[unlikely]] {
    check_workspace_is_clean(plan, workspace);
    if (plan.launch.takes_cache || plan.launch.takes_lists) check_cache_lists(plan, operands);
  }
  try {
    GroupedArguments args = args_of(plan, operands, workspace);
    plan.kernel->launch(plan.launch, args, stream);
    if (plan.calls) [[unlikely]]
      count_call(plan.calls.get(), plan.device->capturing(stream));
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("{} ({} for {}, {})", error.what(), plan.kernel_template->name(),
                            plan.arch.name(), plan.config.to_text()));
  }
}

void init_workspace(const Plan& plan, void* workspace, int64_t workspace_bytes,
                    StreamHandle stream) {
  check_workspace(plan, workspace, workspace_bytes);
  if (plan.launch.zeroed_bytes > 0)
    plan.device->fill(workspace, 0, plan.launch.zeroed_bytes, stream);
}

}  // namespace attune
