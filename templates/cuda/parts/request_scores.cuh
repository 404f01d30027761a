// SPDX-License-Identifier: Apache-2.0
// The arguments of a score program over caches. The program sees the lengths of the request at
// hand, not the largest that the call allows.
#pragma once

#include "shared/request_scores.h"

namespace attune {

class RequestScores {
 public:
  __device__ __forceinline__ explicit RequestScores(const ScoreArgs& scores) : scores_(scores) {}

  __device__ __forceinline__ void take(const DecodeRequest& request) {
    take_lengths(request, &scores_);
  }
  __device__ __forceinline__ const ScoreArgs& args() const { return scores_; }

 private:
  ScoreArgs scores_;
};

}  // namespace attune
