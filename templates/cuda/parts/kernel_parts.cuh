// SPDX-License-Identifier: Apache-2.0
// References to the argument structs of a kernel (shared/kernel_arguments.h), which its functions
// pass on. Functions that need only the base take AttentionArgs. A struct that the kernel does not
// take is empty (none/arguments.cuh).
#pragma once

#include "cuda/parts/none/arguments.cuh"
#include "shared/append_args.h"
#include "shared/attention_args.h"
#include "shared/block_map.h"     // where kMaskProgram
#include "shared/cache_args.h"    // where kCacheArgs
#include "shared/dropout_args.h"  // where kDropout
#include "shared/gradient_args.h"
#include "shared/round_args.h"
#include "shared/scale_args.h"  // where kAccuracy
#include "shared/scale_args.h"  // where kMaxLogits
#include "shared/score_args.h"  // where kScoreArgs

namespace attune {

// An empty struct is held by value: a reference would make it an object in memory.
template <class Args, bool kIsEmpty = __is_empty(Args)>
struct ReferenceTo {
  using Type = const Args&;
};
template <class Args>
struct ReferenceTo<Args, true> {
  using Type = Args;
};
template <class Args>
using Reference = typename ReferenceTo<Args>::Type;

struct KernelParts {
  const AttentionArgs& base;
  Reference<ScaleArgs> scales;
  Reference<ScoreArgs> scores;
  Reference<DropoutArgs> dropout;
  Reference<BlockMapArgs> map;
  Reference<CacheArgs> cache;

  __device__ __forceinline__ operator const AttentionArgs&() const { return base; }
};

}  // namespace attune
