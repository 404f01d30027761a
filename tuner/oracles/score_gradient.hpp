// SPDX-License-Identifier: Apache-2.0
// What the gradient of a bias, of slopes or of sinks must be (problems with score_gradient): templates/shared/score_gradient.h.
#pragma once

#include <memory>

#include "tuner/oracles/oracle.hpp"

namespace attune {

std::unique_ptr<Expectation> expect_score_gradient(const OracleBench& bench);

}  // namespace attune
