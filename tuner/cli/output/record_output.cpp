// SPDX-License-Identifier: Apache-2.0
// JSON forms of store records for the program's output. For the store's own forms see
// cache/record_json.
#include "tuner/cli/output/record_output.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cache/winner_rule.hpp"

namespace attune::cli {

Json timing_json(const Timing& timing) {
  return {{"time_s", timing.median_us * 1e-6}, {"lo_s", timing.lo_us * 1e-6},
          {"hi_s", timing.hi_us * 1e-6},       {"min_s", timing.min_us * 1e-6},
          {"samples", timing.samples},         {"sm_clock_hz", timing.sm_clock_mhz * 1e6},
          {"noisy", is_noisy(timing)}};
}

Json winner_json(const WinnerRecord& winner) {
  return {{"problem", to_text(problem_of(winner.spec, winner.shape))},
          {"device", winner.device.name},
          {"threads", winner.device.is_cpu() ? Json(winner.device.sm_count) : Json(nullptr)},
          {"device_identity", winner.device.digest()},
          {"arch", winner.arch},
          {"template", winner.toolchain.template_name},
          {"compiler", winner.toolchain.compiler},
          {"config", winner.config.to_text()},
          {"tuned", timing_json(winner.timing)},
          {"default", timing_json(winner.default_timing)},
          {"default_config", winner.default_config.to_text()},
          {"default_is_winner", winner.default_is_winner},
          {"effort", effort_name(winner.effort)},
          {"candidates", winner.candidates},
          {"why", winner.why},
          {"driver", winner.conditions.driver},
          {"power_limit_w", power_limit_json(winner.conditions)},
          {"created", winner.created},
          {"pinned", winner.pinned}};
}

Json device_json(const Device& device) {
  const DeviceIdentity& identity = device.identity();
  const Conditions conditions = device.conditions();
  return {{"name", identity.name},
          {"arch", identity.arch},
          {"driver", conditions.driver},
          {"power_limit_w", power_limit_json(conditions)},
          {"identity", identity.digest()}};
}

Json power_limit_json(const Conditions& conditions) {
  return conditions.power_limit_w > 0 ? Json(conditions.power_limit_w) : Json(nullptr);
}

std::string time_text(const Timing& timing) {
  if (timing.median_us <= 0) return "-";
  const double reach =
      std::max({timing.hi_us - timing.median_us, timing.median_us - timing.lo_us, 0.0});
  return fmt::format("{} ±{:.1f} %{}", format_time(timing.median_us),
                     100 * reach / timing.median_us, is_noisy(timing) ? " noisy" : "");
}

std::string gain_text(const Timing& timing, const Timing& other) {
  if (timing.median_us <= 0 || other.median_us <= 0) return "-";
  return fmt::format("{:.2f}x", other.median_us / timing.median_us);
}

Json repeats_json(const std::vector<WinnerCheck>& checks) {
  Json list = Json::array();
  for (const WinnerCheck& check : checks)
    list.push_back({{"problem", to_text(check.problem)},
                    {"repeats", check.runs},
                    {"flips", check.flips},
                    {"mean_regret", check.mean_regret},
                    {"max_regret", check.worst_regret},
                    {"others", check.others},
                    {"note", check.note}});
  return list;
}

std::string repeats_text(const std::vector<WinnerCheck>& checks) {
  Table table({"problem", "repeats", "flips", "mean regret", "largest regret", "note"});
  for (const WinnerCheck& check : checks)
    table.add({short_text(check.problem), std::to_string(check.runs), std::to_string(check.flips),
               fmt::format("{:.1f} %", 100 * check.mean_regret),
               fmt::format("{:.1f} %", 100 * check.worst_regret), check.note});
  return "final races repeated in fresh processes\n" + table.text();
}

}  // namespace attune::cli
