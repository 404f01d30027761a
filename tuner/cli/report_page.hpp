// SPDX-License-Identifier: Apache-2.0
// The page of `attune report`: one HTML text that needs nothing else and asks no network for anything.
#pragma once

#include <string>

#include "tuner/cli/output.hpp"

namespace attune::cli {

// The files of report/, embedded by CMake (embed_report.cmake).
struct ReportAssets {
  const char *style, *script;
};
extern const ReportAssets kReportAssets;

// `data` may hold any text: it stands in a block that is no script, with no "<" in it, and the page's
// policy (Content-Security-Policy) lets only the page's own script run, by its hash.
std::string report_page(const Json& data);

}  // namespace attune::cli
