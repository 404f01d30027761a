// SPDX-License-Identifier: Apache-2.0
// Writes gauges in Prometheus' text format; see record_output.hpp.
#include "tuner/cli/output/record_output.hpp"

#include <fmt/format.h>

#include <map>
#include <tuple>

namespace attune::cli {
namespace {

// Escapes a label's value for Prometheus' text format.
std::string label_text(const std::string& value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return text;
}

}  // namespace

std::string prometheus_text(const std::string& store, const StoreStats& stats,
                            const std::vector<WinnerRecord>& winners) {
  const std::tuple<const char*, const char*, int64_t> gauges[] = {
      {"schema_version", "Version of the store's tables.", stats.schema_version},
      {"devices", "Devices that trials ran on.", stats.devices},
      {"problems", "Problems that were tuned.", stats.problems},
      {"trials", "Configs that were tried.", stats.trials},
      {"failed_trials", "Configs that did not compile, run or give the right result.",
       stats.failed_trials},
      {"images", "Compiled kernels.", stats.images},
      {"image_bytes", "Bytes of compiled kernels.", stats.image_bytes},
      {"file_bytes", "Bytes of the file.", stats.file_bytes}};
  const auto head = [](const char* name, const char* help) {
    return fmt::format("# HELP attune_store_{0} {1}\n# TYPE attune_store_{0} gauge\n", name, help);
  };
  const std::string label = label_text(store);
  std::string text;
  for (const auto& [name, help, value] : gauges)
    text +=
        head(name, help) + fmt::format("attune_store_{}{{store=\"{}\"}} {}\n", name, label, value);
  std::map<std::tuple<std::string, std::string, bool>, int> counts;
  for (const WinnerRecord& winner : winners)
    ++counts[{winner.device.title(), winner.toolchain.template_name, winner.pinned}];
  text += head("winners", "Kernels that tuning chose, or that somebody pinned.");
  for (const auto& [of, count] : counts)
    text += fmt::format(
        "attune_store_winners{{store=\"{}\",device=\"{}\",template=\"{}\",pinned=\"{}\"}} {}\n",
        label, label_text(std::get<0>(of)), label_text(std::get<1>(of)), std::get<2>(of) ? 1 : 0,
        count);
  return text;
}

}  // namespace attune::cli
