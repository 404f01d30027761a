// SPDX-License-Identifier: Apache-2.0
// The arguments of a score program that reads the lengths of its request.
#pragma once

#include "shared/request_scores.h"

namespace attune {

template <class Args>
using ScoresOfRequest = Args;  // a copy, in which take_lengths replaces the lengths

}  // namespace attune
