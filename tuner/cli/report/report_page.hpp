// SPDX-License-Identifier: Apache-2.0
// The page of `attune report`: one HTML text that needs no other file and no network.
#pragma once

#include <string>

#include "tuner/cli/output/output.hpp"

namespace attune::cli {

// The files of report/, embedded by CMake (embed_report.cmake).
struct ReportAssets {
  const char *style, *script;
};
extern const ReportAssets kReportAssets;

// Returns the page. `data` may hold any text: it is in a block that is not a script, with "<"
// escaped. The page's policy (Content-Security-Policy) runs only the page's own script, by its
// hash.
std::string report_page(const Json& data);

}  // namespace attune::cli
