// SPDX-License-Identifier: Apache-2.0
// Reads the rows of a result file; see peer_times.hpp.
#include "tuner/measure/peer_times.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "generator/core/problem/problem.hpp"
#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/files.hpp"
#include "generator/core/system/json_text.hpp"

namespace attune {
namespace {

using Json = nlohmann::json;

std::map<std::string, double> times_of(const Json& timings) {
  std::map<std::string, double> times;
  for (const auto& [name, timing] : timings.items()) {
    if (name == "tuned" || name == "default" || name == "attune") continue;
    const double median_us = timing.at("median_us").get<double>();
    if (!std::isfinite(median_us) || median_us <= 0)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("median_us of {} is {}; must be above 0", name, median_us));
    times[name] = median_us;
  }
  return times;
}

}  // namespace

PeerTimes read_peer_times(const std::filesystem::path& path) {
  constexpr size_t kMostBytes = size_t{1} << 30;
  const std::string text =
      read_file("the file of timings", path, kMostBytes, FileKinds::kStreamsToo);
  PeerTimes found;
  try {
    const Json json = parse_json<Json>(text);
    found.device = json.value("device", "");
    for (const Json& row : json.at("rows")) {
      const auto times = times_of(row.at("timings"));
      if (times.empty()) continue;
      const Problem problem = parse_problem(row.at("problem").get<std::string>());
      for (const auto& [name, us] : times) found.of[to_text(canonical(problem))][name] = us;
    }
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is not a file of timings that tests/bench wrote: {}", path.string(),
                            error.what()));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", path.string(), error.what()));
  }
  return found;
}

}  // namespace attune
