// SPDX-License-Identifier: Apache-2.0
// Launch arguments of kernels, in parts. On a GPU each part that a kernel takes is one parameter,
// in this order, before its tensor maps. On a CPU a kernel gets the address of all of them. A new
// part (pages, lengths, a score's operands, dropout) is a separate struct at the end and a value of
// ArgumentPart (generator/launch_plan.hpp): kernels without it stay the same.
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

#include "shared/append_args.h"  // where kAppendArgs
#include "shared/attention_args.h"
#include "shared/block_map.h"     // where kMaskProgram
#include "shared/cache_args.h"    // where kCacheArgs
#include "shared/dropout_args.h"  // where kDropout
#include "shared/fp8_options.h"
#include "shared/gradient_args.h"  // where kGradientArgs
#include "shared/round_args.h"     // where kRoundArgs
#include "shared/score_args.h"     // where kScoreArgs

namespace attune {

// Factors that 8-bit elements are multiplied by to give their values. The factor of an element in
// row r of head h is at
//   batch * batch_stride + h / heads_per_scale * head_stride + r / kScaleBlock * block_stride
// where kScaleBlock is the compiled-in number of rows that share one (0: all rows, block_stride is
// not used). Zero strides repeat one factor: a tensor with a single one has all strides 0.
struct ScaleView {
  float* data;  // null: every factor is 1
  long long batch_stride;
  long long head_stride;
  long long block_stride;
  int heads_per_scale;  // consecutive heads that share a factor; divides the number of heads
};

struct ScaleArgs {
  ScaleView q_scale;
  ScaleView k_scale;
  ScaleView v_scale;
  ScaleView o_scale;  // written by the quantise op; null elsewhere
};

// A CPU kernel sees the leading members in this order. A kernel that needs a member is rendered
// with all members before it.
struct KernelArguments : AttentionArgs {
  ScaleArgs scales;
  ScoreArgs scores;        // where kScoreArgs
  GradientArgs gradients;  // where kGradientArgs
  DropoutArgs dropout;     // where kDropout
  CacheArgs cache;         // where kCacheArgs
  AppendArgs append;       // where kAppendArgs
  BlockMapArgs map;        // where kMaskProgram
  RoundArgs round;         // where kRoundArgs
};

}  // namespace attune
