// SPDX-License-Identifier: Apache-2.0
// A row of scores of top_k: loads of adjacent keys, passes over the row, and a sample of it.
#pragma once

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/small/top_k_parts.cuh"
#include "shared/score_ranks.h"

namespace attune {

// A row of scores in global memory.
struct ScoreRow {
  const char* data;  // of the row's first score
  int keys;          // that the row sees

  // Loads the bits of kPerVector scores as fp32. Those past the row's last key are -infinity.
  __device__ __forceinline__ void load(int first, unsigned (&scores)[kPerVector]) const {
    if (first + kPerVector <= keys) {
      const Vector16 vector =
          *reinterpret_cast<const Vector16*>(data + static_cast<long long>(first) * kScoreBytes);
#pragma unroll
      for (int i = 0; i < kPerVector; ++i) scores[i] = bits_in(vector, i);
    } else {
#pragma unroll
      for (int i = 0; i < kPerVector; ++i)
        scores[i] = first + i < keys ? bits_at(first + i) : kLeastScore;
    }
  }
  __device__ __forceinline__ void load_tile(int tile,
                                            unsigned (&scores)[kVectors][kPerVector]) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) load(first_key(tile, v), scores[v]);
  }
  // Calls use(rank) for each key. Tiles go backwards, so that a pass that goes forwards finds the
  // first ones in L2.
  template <class Use>
  __device__ __forceinline__ void each(const Use& use) const {
#pragma unroll 1
    for (int tile = num_tiles() - 1; tile >= 0; --tile) {
      unsigned scores[kVectors][kPerVector];
      load_tile(tile, scores);
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
#pragma unroll
        for (int i = 0; i < kPerVector; ++i) use(rank_of(scores[v][i]));
    }
  }
  __device__ __forceinline__ int num_tiles() const { return (keys + kTile - 1) / kTile; }

 private:
  static __device__ __forceinline__ unsigned bits_of_16(unsigned short bits) {
    if constexpr (kDtypeQ == Dtype::kBf16) return static_cast<unsigned>(bits) << 16;
    return __float_as_uint(fp16_to_float(bits));
  }
  static __device__ __forceinline__ unsigned bits_in(const Vector16& vector, int i) {
    if constexpr (kDtypeQ == Dtype::kFp32) return vector.word[i];
    return bits_of_16(static_cast<unsigned short>(vector.word[i / 2] >> (i % 2 * 16)));
  }
  __device__ __forceinline__ unsigned bits_at(int key) const {
    if constexpr (kDtypeQ == Dtype::kFp32) return reinterpret_cast<const unsigned*>(data)[key];
    return bits_of_16(reinterpret_cast<const unsigned short*>(data)[key]);
  }
};

// Some keys of a row, spread evenly: one of kSampled, and at least kLeastSample.
class RowSample {
 public:
  explicit __device__ __forceinline__ RowSample(const ScoreRow& row)
      : row_(row),
        row_vectors_((row.keys + kPerVector - 1) / kPerVector),
        vectors_(min(row_vectors_, max(kLeastSample, row.keys / kSampled) / kPerVector)) {}
  __device__ __forceinline__ int keys() const { return vectors_ * kPerVector; }
  template <class Use>
  __device__ __forceinline__ void each(const Use& use) const {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < vectors_; i += kThreads) {
      unsigned scores[kPerVector];
      row_.load(static_cast<int>(static_cast<long long>(row_vectors_) * i / vectors_) * kPerVector,
                scores);
#pragma unroll
      for (int k = 0; k < kPerVector; ++k) use(rank_of(scores[k]));
    }
  }

 private:
  static constexpr int kSampled = 32, kLeastSample = 4096;
  const ScoreRow& row_;
  int row_vectors_, vectors_;
};

}  // namespace attune
