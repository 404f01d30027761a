// SPDX-License-Identifier: Apache-2.0
// The contents of a store as gauges in Prometheus' text format.
#pragma once

#include <string>
#include <vector>

#include "cache/store.hpp"

namespace attune::cli {

// `store` is the file's path, a label of each gauge.
std::string prometheus_text(const std::string& store, const StoreStats& stats,
                            const std::vector<WinnerRecord>& winners);

}  // namespace attune::cli
