// SPDX-License-Identifier: Apache-2.0
// References to the argument structs of a kernel (shared/kernel_arguments.h), which its functions
// pass on. Functions that need only the base take AttentionArgs.
#pragma once

#include "shared/block_map.h"         // where kMaskProgram
#include "shared/cache_args.h"        // where kCacheArgs
#include "shared/dropout_args.h"      // where kDropout
#include "shared/kernel_arguments.h"  // where kAccuracy
#include "shared/score_args.h"        // where kScoreArgs

namespace attune {

struct KernelParts {
  const AttentionArgs& base;
  const ScaleArgs& scales;     // where kAccuracy
  const ScoreArgs& scores;     // where kScoreArgs
  const DropoutArgs& dropout;  // where kDropout
  const BlockMapArgs& map;     // where kMaskProgram
  const CacheArgs& cache;      // where kCacheArgs

  __device__ __forceinline__ operator const AttentionArgs&() const { return base; }
};

}  // namespace attune
