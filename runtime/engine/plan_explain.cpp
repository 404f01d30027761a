// SPDX-License-Identifier: Apache-2.0
// Plan::explain: which kernel runs, by which rung and why, and how long it takes.

#include <fmt/format.h>

#include <cmath>
#include <ctime>

#include "cache/winner_rule.hpp"
#include "runtime/engine/ladder.hpp"
#include "runtime/engine/plan.hpp"

namespace attune {
namespace {

std::string age_of(const std::string& created) {
  std::tm utc{};
  if (!strptime(created.c_str(), "%Y-%m-%dT%H:%M:%S", &utc)) return "at an unknown time";
  const double days = std::difftime(std::time(nullptr), timegm(&utc)) / 86400;
  return days < 1 ? "today"
                  : fmt::format("{:.0f} day{} ago", std::floor(days), days < 2 ? "" : "s");
}

std::string interval_text(const Timing& timing) {
  return fmt::format("{:.1f} us (95 %: {:.1f} to {:.1f}{})", timing.median_us, timing.lo_us,
                     timing.hi_us, is_noisy(timing) ? ", noisy" : "");
}

std::string measured_text(const WinnerRecord& winner, const Device& device) {
  if (winner.created.empty()) return "not known: a pin file has no times";
  std::string text =
      fmt::format("{}, default {}; measured {}, effort {}, {} candidates",
                  interval_text(winner.timing), interval_text(winner.default_timing),
                  age_of(winner.created), effort_name(winner.effort), winner.candidates);
  if (winner.timing.sm_clock_mhz > 0)
    text += fmt::format("; at {} MHz", winner.timing.sm_clock_mhz);
  if (is_noisy(winner)) text += "; noisy: `attune tune` measures it anew";
  if (is_noisy(winner.timing)) text += ", and programs get no expected time";
  if (!measured_on(winner, device.identity())) return text + "; on " + winner.device.title();
  const std::string changed = difference(winner.conditions, device.conditions(), "{}, now {}");
  if (!changed.empty())
    text += fmt::format("; with {}: re-time with `attune tune --refresh`", changed);
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

namespace {

std::string launch_text(const LaunchStep& launch) {
  std::string text = fmt::format("{} threads, grid {}x{}x{}", launch.threads, launch.grid_x,
                                 launch.grid_y, launch.grid_z);
  if (launch.cluster > 1) text += fmt::format(", cluster {}", launch.cluster);
  if (launch.shared_bytes > 0)
    text += fmt::format(", {} bytes of dynamic shared memory", launch.shared_bytes);
  return text;
}

}  // namespace

std::string launch_text(const LaunchPlan& launch) {
  std::string text;
  for (size_t i = 0; i < launch.steps.size(); ++i) {
    const LaunchStep& step = launch.steps[i];
    if (!text.empty()) text += "; then ";
    if (i == launch.rounds.begin && i < launch.rounds.end)
      text +=
          fmt::format("for {} {} at a time, of {}: ", launch.round_sizes.of_round,
                      launch.takes_lists ? "rows of q" : "heads of k", launch.round_sizes.heads);
    if (step.entry != kEntryName) text += step.entry + ": ";
    text += launch_text(step);
  }
  return text;
}

}  // namespace attune
