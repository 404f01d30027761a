// SPDX-License-Identifier: Apache-2.0
// Compares two stores: before and after a driver, a release, a change. See report_data.hpp.
#include <map>
#include <tuple>

#include "tuner/cli/output/record_output.hpp"
#include "tuner/cli/report/report_data.hpp"

namespace attune::cli {
namespace {

using Place = std::tuple<std::string, std::string, std::string>;  // spec, shape, device

// Returns the newest tuned winner of each place.
std::map<Place, WinnerRecord> winners_of(const Store& store) {
  std::map<Place, WinnerRecord> found;
  for (WinnerRecord& winner : store.all_winners()) {
    if (winner.pinned || !(winner.timing.median_us > 0)) continue;
    WinnerRecord& kept = found[{to_text(winner.spec), to_text(winner.shape), winner.device.text()}];
    if (kept.created <= winner.created) kept = std::move(winner);
  }
  return found;
}

Json side(const WinnerRecord& winner) {
  const Timing& t = winner.timing;
  return {{"t", {t.median_us, t.lo_us, t.hi_us}},
          {"tpl", winner.toolchain.template_name},
          {"cfg", winner.config.to_text()},
          {"drv", to_text(winner.conditions)},
          {"made", winner.created}};
}

}  // namespace

Json report_diff(const Store& before, const Store& after) {
  const auto old_winners = winners_of(before), new_winners = winners_of(after);
  Json rows = Json::array();
  size_t only_before = old_winners.size(), only_after = 0;
  for (const auto& [place, winner] : new_winners) {
    const auto old = old_winners.find(place);
    if (old == old_winners.end()) {
      ++only_after;
      continue;
    }
    --only_before;
    const Problem problem = problem_of(winner.spec, winner.shape);
    rows.push_back({{"p", to_text(problem)},
                    {"name", short_text(problem)},
                    {"dev", winner.device.title()},
                    {"a", side(old->second)},
                    {"b", side(winner)}});
  }
  return {{"rows", rows}, {"only_before", only_before}, {"only_after", only_after}};
}

}  // namespace attune::cli
