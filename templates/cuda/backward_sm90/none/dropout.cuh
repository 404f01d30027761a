// SPDX-License-Identifier: Apache-2.0
// Dropout of gradients on Hopper that have none: keeps everything. Functions are static: with a
// `this`, the compiler orders some registers otherwise.
#pragma once

#include "cuda/parts/none/arguments.cuh"

namespace none {

struct GradientDropout {
  template <class Dropout>
  __device__ __forceinline__ explicit GradientDropout(const Dropout&) {}

  template <class Args>
  __device__ __forceinline__ static void begin(const Args&, int, int, int) {}
  __device__ __forceinline__ static void make(int) {}
  __device__ __forceinline__ static float kept(float dp, int) { return dp; }
  template <class P>
  __device__ __forceinline__ static void keep(P&) {}
  template <class Gradient>
  __device__ __forceinline__ static void scale_kept(Gradient&) {}
};

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
