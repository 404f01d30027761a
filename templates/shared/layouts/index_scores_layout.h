// SPDX-License-Identifier: Apache-2.0
// Dynamic shared memory of index_scores_sm80, for the kernel, its launch and its search space. It
// holds `stages` rows of q.
//
// | of a stage | bytes                    | what                                             |
// |------------|--------------------------|--------------------------------------------------|
// | q          | heads * index_line_bytes | the row's heads, each line padded by 64 bytes or |
// |            |                          | none: eight lines then begin in different banks  |
// | weights    | heads * 4                | fp32, of each head                               |
#pragma once

namespace attune {

// Returns the number of heads in shared memory: those of a head of k, in whole tiles of eight.
constexpr int index_heads(int heads) { return (heads + 7) / 8 * 8; }
constexpr int index_line_bytes(int head_bytes) {
  return head_bytes + (head_bytes % 128 == 0 ? 64 : 0);
}
constexpr int index_stage_bytes(int heads, int head_bytes) {
  return index_heads(heads) * (index_line_bytes(head_bytes) + 4);
}

}  // namespace attune
