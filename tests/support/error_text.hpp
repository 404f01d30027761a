// SPDX-License-Identifier: Apache-2.0
// The sentence of an error, for tests of refusals.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "generator/core/system/error.hpp"

namespace attune::testing {

// Returns the sentence of the attune::Error that a call throws, or "accepted". Checks its code if
// one is expected.
template <class Call>
std::string error_text(const Call& call, std::optional<ErrorCode> expected = std::nullopt) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), expected.value_or(error.code())) << error.what();
    return error.what();
  }
  return "accepted";
}

}  // namespace attune::testing
