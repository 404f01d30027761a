// SPDX-License-Identifier: Apache-2.0
// Rows of caches of 4 bits (int4, e2m1), and the factors of their groups of columns. A row has the
// columns of one key in one head of K or V:
//
// | array   | bytes of a row      | what                                                          |
// |---------|---------------------|---------------------------------------------------------------|
// | codes   | head_dim / 2        | byte i: column 2 i in its low 4 bits, column 2 i + 1 in its   |
// |         |                     | high 4 bits                                                   |
// | factors | head_dim / group,   | e4m3: the factor of each 16 or 32 columns; bytes after the    |
// |         | up to a multiple    | last factor are not used                                      |
// |         | of 4                |                                                               |
//
// value = code * factor of the group * factor of the head (k_scale, v_scale). Factors have an array
// of their own, because a row of codes with its factors (72 bytes) would be no multiple of 16 bytes
// for copies. Strides locate both arrays, so they may be views of one page. Factors of a head whose
// keys are adjacent ([page, head, key]) are read in whole lines.
//
// int4 is two's complement; append_kv writes -7 to 7, and -8 is read as -8. e2m1 has the magnitudes
// below, with the sign in the highest bit. Neither has NaN. With a factor of e4m3 and a 4-bit code
// the product has at most 8 significant bits, so it is exact in fp16 and bf16. The sign bit of a
// factor must be 0. The code 0x7f, NaN in e4m3, is read as 480.
#pragma once

#include "shared/attention_args.h"
#include "shared/attention_enums.h"
#include "shared/host_device.h"

namespace attune {

// Launch arguments of kernels over caches of 4 bits: the factors of K and V. Shape: [pages,
// page_size, num_heads_kv, bytes of a row]; without pages [slots, seqlen_kv, num_heads_kv, bytes].
struct GroupFactorArgs {
  OperandView k, v;  // strides in bytes
};

// Returns the bytes of a row of codes; head dims are multiples of kNibbleStep.
constexpr int kNibbleStep = 32;
ATTUNE_HOST_DEVICE constexpr int nibble_bytes(int columns) { return columns / 2; }

// Returns the bytes of a row of factors, one for each `group` columns.
ATTUNE_HOST_DEVICE constexpr int group_row_bytes(int columns, int group) {
  return (columns / group + 3) / 4 * 4;
}
// Returns the alignment of a row of factors: its largest power of two, at most 16 bytes.
ATTUNE_HOST_DEVICE constexpr int group_row_alignment(int bytes) {
  return (bytes & -bytes) < 16 ? bytes & -bytes : 16;
}

// Returns the bytes of the rows of factors of this many keys, of K and V.
ATTUNE_HOST_DEVICE constexpr int group_rows_bytes(int keys, int head_dim_qk, int head_dim_v,
                                                  int group) {
  return keys * (group_row_bytes(head_dim_qk, group) + group_row_bytes(head_dim_v, group));
}

// Returns the value of a factor of e4m3.
ATTUNE_HOST_DEVICE inline float group_factor(unsigned char code) {
  const int magnitude = code & 0x7f, exponent = magnitude >> 3;
  const float significand = static_cast<float>(exponent == 0 ? magnitude : magnitude % 8 + 8);
  constexpr float kLeast = 0.001953125f;  // 2^-9
  return significand * kLeast * static_cast<float>(1 << (exponent == 0 ? 0 : exponent - 1));
}

// Returns the value of a code of 4 bits.
template <Dtype kDtype>
ATTUNE_HOST_DEVICE inline float nibble_value(unsigned code) {
  if constexpr (kDtype == Dtype::kInt4)
    return static_cast<float>(static_cast<int>((code & 15u) ^ 8u) - 8);
  const unsigned low = code & 7u;  // 0, 0.5, 1, 1.5, 2, 3, 4, 6
  const float magnitude = static_cast<float>(low < 4 ? low : low < 6 ? 2 * low - 4 : 4 * low - 16);
  return (code & 8u) != 0 ? -0.5f * magnitude : 0.5f * magnitude;
}

// Returns the code of a quotient, rounded to nearest even and clamped: a magnitude has the number
// of midpoints below it. NaN becomes 0.
template <Dtype kDtype>
ATTUNE_HOST_DEVICE inline unsigned nibble_code(float quotient) {
  const float size = quotient < 0.0f ? -quotient : quotient;
  unsigned above = 0;
  if constexpr (kDtype == Dtype::kInt4) {
    above = (size > 0.5f) + (size >= 1.5f) + (size > 2.5f) + (size >= 3.5f) + (size > 4.5f) +
            (size >= 5.5f) + (size > 6.5f);
    return (quotient < 0.0f ? 0u - above : above) & 15u;
  }
  above = (size > 0.25f) + (size >= 0.75f) + (size > 1.25f) + (size >= 1.75f) + (size > 2.5f) +
          (size >= 3.5f) + (size > 5.0f);
  return quotient < 0.0f ? above | 8u : above;
}

}  // namespace attune
