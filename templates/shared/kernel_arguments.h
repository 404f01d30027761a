// SPDX-License-Identifier: Apache-2.0
// Launch arguments of kernels, in parts. On a GPU each part that a kernel takes is one parameter,
// in the order of this table, before its tensor maps (cuda/parts/kernel_parts.cuh). On a CPU a
// kernel gets the address of KernelArguments. A new part (pages, lengths, a score's operands,
// dropout) is a separate struct at the end and a value of ArgumentPart (generator/launch_plan.hpp):
// kernels without it stay the same.
//
// | part    | struct        | who takes it                                      |
// |---------|---------------|---------------------------------------------------|
// | map     | BlockMapArgs  | kernels with a mask program, on a GPU             |
// | scores  | ScoreArgs     | kernels with a score stage                        |
// | base    | AttentionArgs | every kernel                                      |
// | scales  | ScaleArgs     | kernels that read or write 8-bit operands         |
// | grads   | GradientArgs  | kernels of the op attention_backward              |
// | dropout | DropoutArgs   | kernels with dropout                              |
// | cache   | CacheArgs     | kernels of the ops attention_kvcache and append_kv |
// | append  | AppendArgs    | kernels of the op append_kv                       |
// | round   | RoundArgs     | kernels that are launched for some heads at a time, on a GPU |
#pragma once

#include "shared/append_args.h"
#include "shared/attention_args.h"
#include "shared/attention_enums.h"
#include "shared/block_map.h"
#include "shared/cache_args.h"
#include "shared/dropout_args.h"
#include "shared/gradient_args.h"
#include "shared/round_args.h"
#include "shared/scale_args.h"
#include "shared/score_args.h"

namespace attune {

// All parts in this order. A later part does not move those before it, so stored CPU kernels of an
// earlier version stay valid.
struct KernelArguments : AttentionArgs {
  ScaleArgs scales;
  ScoreArgs scores;
  GradientArgs gradients;
  DropoutArgs dropout;
  CacheArgs cache;
  AppendArgs append;
  BlockMapArgs map;
  RoundArgs round;
};

}  // namespace attune
