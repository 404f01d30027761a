// SPDX-License-Identifier: Apache-2.0
// Launch arguments of a kernel with a score program (generator/score): tensors that the
// program reads, and its scalars. Host code fills them, kernels read them, on every target.
// generated/score_program.h says which index belongs to which name.
#pragma once

namespace attune {

constexpr int kMaxScoreCaptures = 12;
constexpr int kMaxScoreScalars = 16;
constexpr int kMaxCaptureRank = 4;

// The values are frozen: they take part in digests.
enum class CaptureType : int {
  kFp32 = 0,
  kBf16 = 1,
  kFp16 = 2,
  kInt32 = 3,
  kInt64 = 4,  // its low 32 bits are read
  kUint8 = 5,  // 0 to 255
  kBool = 6,   // a byte; true if it is not 0
};

// A tensor of rank 0 to 4. Element (i0, i1, ..) lies i0 * strides[0] + i1 * strides[1] + ..
// elements behind data. A load clamps each index to [0, extents[d] - 1], so extents must be 1 or
// more. Entries beyond the rank are not read.
struct ScoreCapture {
  const void* data;
  long long strides[kMaxCaptureRank];
  int extents[kMaxCaptureRank];
};

union ScoreScalar {
  float f32;
  int i32;  // ints; bools as 0 and 1
};

struct ScoreArgs {
  ScoreCapture captures[kMaxScoreCaptures];  // in the order of Program::captures()
  ScoreScalar scalars[kMaxScoreScalars];     // in the order of Program::scalars()
  int seqlen_q;
  int seqlen_kv;
  int head_dim;
  // Offsets that a kernel adds to its own indices before it calls the program, which does not read
  // them.
  int q_position0;
  int kv_position0;
  int batch0;
  int head0;
  int kv_head0;
};

}  // namespace attune
