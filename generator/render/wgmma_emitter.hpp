// SPDX-License-Identifier: Apache-2.0
// Writes the wgmma statements of an attention tile: one asm statement per tile product with all its
// k-steps, since C++ cannot form the operand lists. (One statement per instruction gives the same
// code but compiles slower.)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/core/problem/dtype.hpp"

namespace attune {

struct WgmmaTile {
  Dtype dtype = Dtype::kBf16;  // of Q, K, V and P: bf16 or fp16
  int block_n = 128;           // keys per step, a multiple of 16 up to 256
  int head_dim_qk = 128;  // multiple of 8; shared memory is zero beyond it up to a multiple of 16
  int head_dim_v = 128;   // multiple of 8; above 256 each k-step has two wgmma
  bool adds_qk = false;   // head_dim_qk is a part of the head: wgmma_qk takes `adds`, like wgmma_pv
  bool onto_qk = false;   // wgmma_qk adds to s: s += Q K^T
};

// Returns the number of columns of V per wgmma: all of them, or, above 256, half of them rounded up
// to whole panels.
int wgmma_columns_of_v(int head_dim_v);

// Returns the text of "generated/wgmma.cuh", with the two products of one warpgroup (64 rows):
//
//   wgmma_qk(float (&s)[block_n / 2], u64 q, u64 k)     // s = Q K^T
//
//   wgmma_pv(float (&o)[head_dim_v / 2], const unsigned (&p)[block_n / 4], u64 v, int adds)
//     // o += P V with P in registers; o = P V if adds is 0
//
// q, k and v are descriptors: Q and K K-major, V MN-major, panels of 64 columns, 128-byte swizzled
// (templates/shared/layouts/prefill_sm90_layout.h).
std::string emit_wgmma_products(const WgmmaTile& tile);

// A tile of 8-bit operands, which wgmma takes only K-major. Q and P are e4m3, V is transposed.
struct Fp8WgmmaTile {
  Dtype dtype_kv = Dtype::kE4m3;  // e4m3 or e5m2
  int block_n = 128;              // a multiple of 32 up to 256
  int head_dim_qk = 128;          // shared memory is zero beyond it up to a multiple of 32
  int head_dim_v = 128;
  int row_qk = 128;  // bytes per row of the swizzled panels of Q and K, and of V
  int row_v = 128;
};

// Returns the same two functions, with P in `unsigned (&p)[block_n / 8]`.
std::string emit_fp8_wgmma_products(const Fp8WgmmaTile& tile);

// Kinds of other products of 16-bit operands, one function per product. The last four kinds take
// `int adds`; with adds = 0 they overwrite d.
//   kShared:     d = A B^T with A (64, k) and B (n, k) in shared memory, both K-major
//                function(float (&d)[n / 2], u64 first, u64 second)
//   kSharedRows: d += A B with A (64, k) K-major and B (k, n) MN-major, both in shared memory
//                function(float (&d)[n / 2], u64 first, u64 second, int adds)
//   kRegisters:  d += A B with A (64, k) in registers and B (k, n) MN-major in shared memory
//                function(float (&d)[n / 2], const unsigned (&first)[k / 4], u64 second, int adds)
//   kSharedColumns: d += A^T B^T with A (k, 64) MN-major and B (n, k) K-major, both in shared
//                memory; function(float (&d)[n / 2], u64 first, u64 second, int adds)
//   kSharedBothColumns: d += A^T B with A (k, 64) and B (k, n) in shared memory, both MN-major
//                function(float (&d)[n / 2], u64 first, u64 second, int adds)
enum class WgmmaA { kShared, kSharedRows, kSharedColumns, kSharedBothColumns, kRegisters };
struct WgmmaProduct {
  std::string_view function;
  WgmmaA a;
  int n;         // a multiple of 8 up to 256
  int k;         // kShared: memory is zero beyond it up to a multiple of 16; else a multiple of 16
  int rows = 0;  // rows of the panels that hold B; 0: as many as B has
  int row_a = 128;    // bytes per row of A's panels, and of their swizzle, if A is MN-major
  bool adds = false;  // kShared takes `adds` as well
};
std::string emit_wgmma_products(Dtype dtype, const std::vector<WgmmaProduct>& products);

}  // namespace attune
