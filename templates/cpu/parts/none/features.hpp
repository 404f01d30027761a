// SPDX-License-Identifier: Apache-2.0
// Constants of the features that a kernel does not have. The kernel's own constants hide them.
#pragma once

namespace none {

constexpr bool kScored = false, kSloped = false, kUserScores = false, kDropout = false;
constexpr bool kGranules = false, kMapHides = false, kAccumulate = false, kBatchInvariant = false;
constexpr bool kHeadFactors = false, kKeyFactors = false, kMakesFactors = false;
constexpr bool kGroupFactors = false;
constexpr bool kLatentRows = false, kPairs = false, kKeyLists = false, kArePlaces = false;
constexpr int kGroupColumns = 0, kMapCapture = 0, kScoreGradient = 0, kRepeats = 0;
constexpr int kSinks = -1, kSinksType = 0;  // index and type of their capture

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
