// SPDX-License-Identifier: Apache-2.0
// Diagonals of a kernel whose scores have no terms along diagonals. Twin of score_diagonals.cuh.
#pragma once

namespace none {

constexpr unsigned kNoHead = 0;

__device__ __forceinline__ void init_diagonal_barriers(unsigned) {}
__device__ __forceinline__ void tell_diagonals(unsigned, int, int, int, unsigned, int) {}
__device__ __forceinline__ unsigned diagonal_base(unsigned, int) { return 0; }

template <class Parts>
__device__ __forceinline__ void make_diagonals(const Parts&, unsigned) {}
template <int kCount>
__device__ __forceinline__ void load_diagonals(unsigned, unsigned, float (&)[kCount]) {}
template <class Parts, int kCount>
__device__ __forceinline__ void add_diagonals(const Parts&, int, int, int, int, float (&)[kCount]) {
}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
