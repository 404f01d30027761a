// SPDX-License-Identifier: Apache-2.0
// libFuzzer's entry for the parser named ATTUNE_FUZZ_PARSER: fuzz_NAME CORPUS_FOLDER.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "generator/core/system/error.hpp"
#include "generator/core/system/log.hpp"
#include "tests/fuzz/parsers.hpp"

namespace {

const attune::testing::Parser& chosen() {
  for (int i = 0; i < attune::testing::kNumParsers; ++i)
    if (std::string_view(attune::testing::kParsers[i].name) == ATTUNE_FUZZ_PARSER)
      return attune::testing::kParsers[i];
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const attune::testing::Parser& parser = chosen();
  try {
    parser.read({reinterpret_cast<const char*>(data), size});
  } catch (const attune::Error&) {  // refused; any other exception ends the process
  }
  return 0;
}
