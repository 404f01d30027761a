// SPDX-License-Identifier: Apache-2.0
// Arguments of a score program that reads no lengths: those of the call.
#pragma once

#include "cuda/parts/none/arguments.cuh"

namespace none {

template <class Args>
class RequestScores {
 public:
  __device__ __forceinline__ explicit RequestScores(const Args& scores) : scores_(scores) {}

  template <class Request>
  __device__ __forceinline__ void take(const Request&) {}
  __device__ __forceinline__ const Args& args() const { return scores_; }

 private:
  const Args& scores_;
};

// Without a score program.
template <>
class RequestScores<Absent> {
 public:
  __device__ __forceinline__ explicit RequestScores(Absent) {}

  template <class Request>
  __device__ __forceinline__ void take(const Request&) {}
  __device__ __forceinline__ Absent args() const { return scores; }
};

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
