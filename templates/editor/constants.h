// SPDX-License-Identifier: Apache-2.0
// Constants that only some kernels have, for editors. A header of several families is read with the
// knobs of one of them, which may lack these. A constant of the same name in namespace attune hides
// the one here.
#pragma once

namespace none {

constexpr int kArch = 90;
constexpr int kThreads = 128, kVector = 8;
constexpr int kL2SectionMb = 0, kRescaleThreshold = 8, kPackHeads = 1;
constexpr bool kMapByHead = false, kMapHides = false;
constexpr int kMapCapture = 0;
constexpr bool kHasPages = false, kHasBegins = false, kHasKeyBegins = false;
constexpr int kPageRows = 1, kGroupColumns = 16;
constexpr bool kStartsEarly = false;
// prefill_sm90.cu and kernels like it
constexpr int kTransposeInside = 0;
constexpr bool kWaitsForVTranspose = false, kBlocksFollowWindow = true, kWaitsForPriorGrid = true;
constexpr float kProbabilityLog2 = 0.f;
constexpr int kUnpack = 1;
// backward_sm80, score_gradient_sm80
constexpr int kScoreGradient = 1, kRepeats = 0;
constexpr int kKeyBlockN = 64, kKeyBlockM = 64, kKeyWarps = 4, kQSlots = 1;
constexpr int kTf32Products = 1;

}  // namespace none

namespace attune {

using namespace none;

// The parameters that some kernels lack (cuda/parts/none/arguments.cuh).
extern const struct ScaleArgs& scales;
extern const struct ScoreArgs& scores;
extern const struct DropoutArgs& dropout;
extern const struct BlockMapArgs& map;
extern const struct CacheArgs& cache;
extern const struct KeyListArgs& lists;
extern const struct GroupFactorArgs& groups;

}  // namespace attune
