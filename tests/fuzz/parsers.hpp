// SPDX-License-Identifier: Apache-2.0
// All functions that read text or bytes from outside, by name. Each has a fuzzer (fuzz_main.cpp)
// and a folder of corpus/, which replay_test.cpp reads in every run.
#pragma once

#include <string_view>

namespace attune::testing {

// Reads the bytes. Invalid input throws attune::Error; any other exception is a fault, and so is a
// text that changes in a round trip (abort).
struct Parser {
  const char* name;
  void (*read)(std::string_view bytes);
};

extern const Parser kParsers[];
extern const int kNumParsers;

}  // namespace attune::testing
