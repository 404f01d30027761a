// SPDX-License-Identifier: Apache-2.0
// The oracle of the gradient of a bias, of slopes or of sinks (problems with score_gradient): see
// templates/shared/score_gradient.h.
#pragma once

#include <memory>

#include "tuner/oracles/oracle.hpp"

namespace attune {

std::unique_ptr<Expectation> expect_score_gradient(const OracleBench& bench);

}  // namespace attune
