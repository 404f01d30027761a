// SPDX-License-Identifier: Apache-2.0
// dscores, fp32: written by attention_backward kernels that compute the gradient of a bias, slopes
// or sinks. In GradientArgs it takes the place of dq. z are the scores after all features, P =
// exp(z - lse), dz = P (dout v - delta) and delta = rowsum(dout o) - dlse. Along an axis that the
// forward's tensor repeats (kRepeats), dscores has extent 1 and holds the sum.
//
// | kScoreGradient | dscores, as [batch, rows, heads,     | element                               |
// |                | columns]                             |                                       |
// |----------------|--------------------------------------|---------------------------------------|
// | bias           | [batch, seqlen_q, num_heads_q,       | dz of the row and key                 |
// |                | seqlen_kv]                           |                                       |
// | relative_bias  | [1, 1, num_heads_q, seqlen_q +       | sum of dz over batch and key - row +  |
// |                | seqlen_kv - 1]                       | seqlen_q - 1 == column                |
// | alibi          | [batch, 1, 1, num_heads_q]           | -sum of dz times the distance from    |
// |                |                                      | the diagonal                          |
// | sinks          | [1, 1, 1, num_heads_q]               | -sum over batch and rows of exp(sink  |
// |                |                                      | - lse) delta                          |
//
// For a load of a score program, dscores is computed as for a bias or relative_bias, but with dz
// times the derivative of the score by the loaded value in place of dz (kSloped,
// generated/slope_program.h).
#pragma once

#include "shared/attention_enums.h"
#include "shared/gradient_args.h"
#include "shared/host_device.h"

namespace attune {

// Values of kScoreGradient, and bits of kRepeats.
constexpr int kOfBias = 1, kOfRelativeBias = 2, kOfAlibi = 3, kOfSinks = 4;
constexpr int kRepeatsBatch = 1, kRepeatsHeads = 2, kRepeatsRows = 4, kRepeatsKeys = 8;

ATTUNE_HOST_DEVICE constexpr const OperandView& dscores_of(const GradientArgs& gradients) {
  return gradients.dq;
}

// A range [first, end) of an axis of `extent` elements: the whole axis if the tensor repeats along
// it, else the element `index`.
struct SummedRange {
  int first, end;
};
ATTUNE_HOST_DEVICE constexpr SummedRange summed(bool repeated, int extent, int index) {
  return repeated ? SummedRange{0, extent} : SummedRange{index, index + 1};
}

// Returns the distance of a key from the diagonal of ALiBi, which is also the masks' diagonal.
ATTUNE_HOST_DEVICE constexpr int distance_from_diagonal(int row, int key, int first_diagonal) {
  const int distance = row + first_diagonal - key;
  return distance < 0 ? -distance : distance;
}

}  // namespace attune
