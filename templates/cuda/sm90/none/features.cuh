// SPDX-License-Identifier: Apache-2.0
// The constants of features that an sm_90 kernel lacks. The constants of a rendered kernel
// (renderer.cpp) hide these.
#pragma once

namespace none {

constexpr bool kMla = false;            // latent attention
constexpr int kRows = 64;               // of a tile with latent attention
constexpr int kKParts = 1;              // parts of a tile of K (k_parts.cuh)
constexpr bool kWideHeads = false;      // heads of more than 256 columns
constexpr bool kGathersKeys = false;    // keys lie apart, so cp.async loads them
constexpr bool kConvertsKeys = false;   // and they have 8 bits, which become 16
constexpr bool kCacheArgs = false;      // keys are in a cache
constexpr bool kDiagonalTerms = false;  // the score program adds terms along diagonals
constexpr bool kDropout = false;

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
