// SPDX-License-Identifier: Apache-2.0
// Prints repeated final races; see repeat_final.hpp.
#include "tuner/cli/commands/repeat_final.hpp"

#include <fmt/format.h>

#include "tuner/cli/workload_options.hpp"

namespace attune::cli {

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
