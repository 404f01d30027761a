// SPDX-License-Identifier: Apache-2.0
// Names for the compiled-in choices of one attention problem. Host and kernels read the same
// values, which are frozen: they take part in digests and are written to the store as text.
#pragma once

namespace attune {

enum class Dtype : int { kFp32, kBf16, kFp16, kE4m3, kE5m2, kInt8, kInt4, kE2m1 };

// Causal masks name their alignment: query row i sees key column j when
//   kCausalTopLeft:      j <= i
//   kCausalBottomRight:  j <= i + seqlen_kv - seqlen_q
// Windows use the same alignment (kNone: bottom right, as FlashAttention does). With diagonal d = i
// + offset, row i sees key j when
//   d - window_left <= j <= d + window_right, either side open when negative.
enum class Mask : int { kNone = 0, kCausalTopLeft = 1, kCausalBottomRight = 2 };

// Accuracy that an 8-bit kernel may give up for speed. Kernels of one mode compete only with
// kernels of the same mode.
enum class Accuracy : int {
  kAccurate = 0,  // P is rounded relative to the exact row maximum so far; sums are flushed
  kFast = 1,      // the row maximum may be stale, and P is rounded relative to it
  // For fp32 operands: kAccurate is fp32 arithmetic, kFast is tf32.
  kSplit = 2,  // each number is the sum of two tf32 numbers
};

// kRows: [batch, seqlen_kv, num_heads_kv, head_dim_v], as K. kTransposed: keys are contiguous,
// [batch, num_heads_kv, head_dim_v, seqlen_kv]; the view's row_stride steps over head_dim_v.
enum class VLayout : int { kRows = 0, kTransposed = 1 };

// Rotation of each row of head_dim elements before the quantise op rounds it: none, or the
// orthonormal Hadamard matrix. Rotating both q and k leaves q.k unchanged.
enum class Rotation : int { kNone = 0, kHadamard = 1 };

}  // namespace attune
