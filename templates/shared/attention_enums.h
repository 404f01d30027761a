// SPDX-License-Identifier: Apache-2.0
// Names for the compiled-in choices of one attention problem. Host and kernels read the same
// values, which are frozen: they take part in digests and are written to the store as text.
#pragma once

namespace attune {

enum class Dtype : int { kFp32, kBf16, kFp16, kE4m3, kE5m2, kInt8 };

// Causal masks name their alignment: query row i sees key column j when
//   kCausalTopLeft:      j <= i
//   kCausalBottomRight:  j <= i + seqlen_kv - seqlen_q
// Windows use the same alignment (kNone: bottom right, as FlashAttention does). With diagonal d = i
// + offset, row i sees key j when
//   d - window_left <= j <= d + window_right, either side open when negative.
enum class Mask : int { kNone = 0, kCausalTopLeft = 1, kCausalBottomRight = 2 };

}  // namespace attune
