// SPDX-License-Identifier: Apache-2.0
// What kernels of the op attention_backward that give the gradient of a bias, of slopes or of sinks
// write: dscores, fp32, which stands in GradientArgs in the place of dq. With z the scores behind
// all features, P = exp(z - lse) and dz = P (dout v - delta), delta = rowsum(dout o) - dlse. Of
// axes that the forward's tensor repeats (kRepeats) dscores has one step, the sum over all of them.
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
// Of what a score program loads at one of its loads dscores is that of a bias, or of relative_bias,
// with dz times the derivative of the score by what is loaded (kSloped, generated/slope_program.h)
// in the place of dz.
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

// [first, end), of an axis of `extent` steps: all of them where the tensor repeats it, else the one
// at `index`.
struct SummedRange {
  int first, end;
};
ATTUNE_HOST_DEVICE constexpr SummedRange summed(bool repeated, int extent, int index) {
  return repeated ? SummedRange{0, extent} : SummedRange{index, index + 1};
}

// How far a key is from the diagonal of ALiBi, which is that of masks.
ATTUNE_HOST_DEVICE constexpr int distance_from_diagonal(int row, int key, int first_diagonal) {
  const int distance = row + first_diagonal - key;
  return distance < 0 ? -distance : distance;
}

}  // namespace attune
