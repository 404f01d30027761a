// SPDX-License-Identifier: Apache-2.0
// Everything that reads text or bytes from outside, by name: a fuzzer each (fuzz_main.cpp), and a
// folder of corpus/ each, which replay_test.cpp reads in every run.
#pragma once

#include <string_view>

namespace attune::testing {

// Reads the bytes. What is refused throws attune::Error; anything else that leaves it is a fault, as
// is a text that does not come back as it was read (abort).
struct Parser {
  const char* name;
  void (*read)(std::string_view bytes);
};

extern const Parser kParsers[];
extern const int kNumParsers;

}  // namespace attune::testing
