// SPDX-License-Identifier: Apache-2.0
// What can be done with a Plan: run it, prepare its workspace, explain it. And the words of the
// ladder.
#include <fmt/format.h>

#include <cmath>
#include <ctime>

#include "generator/core/error.hpp"
#include "runtime/engine.hpp"
#include "runtime/ladder.hpp"
#include "runtime/launch_text.hpp"
#include "runtime/operand_check.hpp"

namespace attune {
namespace {

constexpr float kLog2E = 1.4426950408889634f;

KernelArguments args_of(const Plan& plan, const Operands& operands, void* workspace) {
  const Problem& p = plan.problem;
  KernelArguments args;
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
  args.workspace = workspace;
  args.scales = {operands.q_scale, operands.k_scale, operands.v_scale, operands.o_scale};
  return args;
}

std::string age_of(const std::string& created) {
  std::tm utc{};
  if (!strptime(created.c_str(), "%Y-%m-%dT%H:%M:%S", &utc)) return "at an unknown time";
  const double days = std::difftime(std::time(nullptr), timegm(&utc)) / 86400;
  return days < 1 ? "today"
                  : fmt::format("{:.0f} day{} ago", std::floor(days), days < 2 ? "" : "s");
}

std::string measured_text(const WinnerRecord& winner, const Device& device) {
  std::string text = fmt::format(
      "{:.1f} us (95 %: {:.1f} to {:.1f}), default {:.1f} us; measured {}, effort {}, {} "
      "candidates",
      winner.timing.median_us, winner.timing.lo_us, winner.timing.hi_us,
      winner.default_timing.median_us, age_of(winner.created), effort_name(winner.effort),
      winner.candidates);
  if (!measured_on(winner, device.identity())) return text + "; on " + winner.device.title();
  if (winner.driver != device.identity().driver)
    text += fmt::format("; with driver {}, now {}: re-time with `attune tune --refresh`",
                        winner.driver, device.identity().driver);
  return text;
}

std::string resources_text(const Plan& plan) {
  std::string text = plan.device->target() == Target::kCpu
                         ? fmt::format("{} threads", plan.device->facts().sm_count)
                         : launch_text(plan.launch);
  if (!plan.kernel) return text;
  const ImageInfo& info = plan.kernel->info();
  if (info.registers >= 0) text += fmt::format(", {} registers", info.registers);
  if (info.stack_bytes > 0) text += fmt::format(", {} bytes of stack", info.stack_bytes);
  return text;
}

}  // namespace

const char* rung_name(Rung rung) {
  switch (rung) {
    case Rung::kPinned:
      return "pinned";
    case Rung::kExact:
      return "exact";
    case Rung::kBucket:
      return "bucket";
    case Rung::kNearest:
      return "nearest";
    case Rung::kDefaultConfig:
      return "default_config";
    case Rung::kReference:
      return "reference";
  }
  return "unknown";
}

const char* policy_name(Policy policy) {
  switch (policy) {
    case Policy::kDefault:
      return "default";
    case Policy::kNearest:
      return "nearest";
    case Policy::kStrict:
      return "strict";
    case Policy::kTuneOnMiss:
      return "tune_on_miss";
  }
  return "unknown";
}

Policy parse_policy(std::string_view text) {
  for (const Policy policy : {Policy::kDefault, Policy::kNearest, Policy::kStrict})
    if (text == policy_name(policy)) return policy;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("policy is \"{}\"; accepted are default, nearest and strict", text));
}

void run(const Plan& plan, const Operands& operands, void* workspace, int64_t workspace_bytes,
         StreamHandle stream) {
  check_operands(plan.operands, operands);
  check_workspace(plan, workspace, workspace_bytes);
  if (writes_nothing(plan.operands)) return;
  if (plan.launch.uses_tensor_maps()) [[likely]]
    if (const auto reason = tensor_map_refusal(plan.operands, operands))
      throw Error(ErrorCode::kInvalidArgument,
                  *reason + "; make the plan with these operands as its layout");
  if (plan.check_workspace && !plan.device->capturing(stream)) [[unlikely]]
    check_workspace_is_clean(plan, workspace);
  try {
    KernelArguments args = args_of(plan, operands, workspace);
    plan.kernel->launch(plan.launch, args, stream);
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

std::string Plan::explain(const Problem& asked) const {
  std::string text = fmt::format("problem    {}\n", to_text(asked));
  if (!(asked == problem)) text += fmt::format("the same   {}\n", to_text(problem));
  text += fmt::format("device     {}\n", device->identity().facts_title());
  text += fmt::format("kernel     {} for {}\n", kernel_template->name(), arch.name());
  text += fmt::format("config     {}\n", config.to_text());
  text += fmt::format("rung       {}: {}\n", rung_name(rung), why);
  if (winner) text += fmt::format("timing     {}\n", measured_text(*winner, *device));
  text += fmt::format("resources  {}\n", resources_text(*this));
  if (!image_from.empty())
    text += fmt::format("image      from the {}{}\n", image_from,
                        kernel ? "" : ", when a program first asks for it");
  text += fmt::format("workspace  {} bytes\n", workspace_bytes());
  for (const std::string& sentence : warnings) text += fmt::format("warning    {}\n", sentence);
  for (const std::string& sentence : passed_over) text += fmt::format("not taken  {}\n", sentence);
  return text;
}

}  // namespace attune
