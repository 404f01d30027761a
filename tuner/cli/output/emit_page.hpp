// SPDX-License-Identifier: Apache-2.0
// `attune emit --html`: one page that shows a kernel's source and its machine code, without network
// and without scripts.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attune::cli {

struct EmitPage {
  std::string title;                                             // "prefill_sm90 for sm_90a"
  std::vector<std::pair<std::string, std::string>> facts{};      // name and value, in order
  std::vector<std::pair<std::string, std::string>> resources{};  // name and value, in order
  std::string compiler_log;                                      // may be empty
  std::string source;                                            // as rendered
  std::string code_title{};                                      // "Machine code, by nvdisasm"
  std::string code{};
};

std::string to_html(const EmitPage& page);

}  // namespace attune::cli
