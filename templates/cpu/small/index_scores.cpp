// SPDX-License-Identifier: Apache-2.0
// index_scores on a CPU: the scores by which an indexer chooses keys. Semantics and corner cases
// are those of cuda/index_scores_sm80/index_scores_sm80.cu; fp32 operands are served too. Threads
// share blocks of keys of rows. Keys are processed in tiles, one key per lane of a vector. No
// knobs.
#include "cpu/small/elements.hpp"
#include "cpu/small/small_knobs.hpp"
#include "shared/kernel_arguments.h"
#include "shared/score_ranks.h"

namespace attune {

constexpr int kLanes = 16, kKeysOfBlock = 16 * kLanes;

struct Rule {
  Mask mask = kMask;
  int window_left = -1, window_right = -1;
};

// e4m3 has the lower four bits of an fp16's exponent, and a bias smaller by 8.
template <>
inline float element<Dtype::kE4m3>(const void* data, long long index) {
  const int bits = static_cast<const unsigned char*>(data)[index], magnitude = bits & 0x7f;
  if (magnitude == 0x7f) return __builtin_nanf("");
  const auto half = static_cast<unsigned short>((bits & 0x80) << 8 | magnitude << 7);
  return 256.0f * static_cast<float>(__builtin_bit_cast(_Float16, half));
}

struct Place {
  long long batch, row, kv_head;
  int keys;  // that the row sees

  float factor(const ScaleView& view, long long head, long long row_of_view) const {
    return view.data[batch * view.batch_stride + head / view.heads_per_scale * view.head_stride +
                     row_of_view * view.block_stride];
  }
};

// Computes the scores of keys [first, first + kLanes); of those past `keys` the values are unused.
inline void score_tile(const KernelArguments& args, const Place& place, int first,
                       float (&sums)[kLanes]) {
  float keys[kHeadDimQk][kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int key = first + lane < place.keys ? first + lane : place.keys - 1;
    const long long at = place.batch * args.k.batch_stride + place.kv_head * args.k.head_stride +
                         key * args.k.row_stride;
    for (int i = 0; i < kHeadDimQk; ++i) keys[i][lane] = element<kDtypeKv>(args.k.data, at + i);
  }
  for (float& sum : sums) sum = 0;
  for (int head = 0; head < kGqaRatio; ++head) {
    const long long of_q = place.kv_head * kGqaRatio + head;
    const long long at = place.batch * args.q.batch_stride + of_q * args.q.head_stride +
                         place.row * args.q.row_stride;
    float products[kLanes] = {};
    for (int i = 0; i < kHeadDimQk; ++i) {
      const float q = element<kDtypeQ>(args.q.data, at + i);
      for (int lane = 0; lane < kLanes; ++lane) products[lane] += q * keys[i][lane];
    }
    const float weight = place.factor(args.scales.q_scale, of_q, place.row);
    for (int lane = 0; lane < kLanes; ++lane)  // NaN stays NaN
      sums[lane] += weight * (products[lane] < 0 ? 0 : products[lane]);
  }
}

inline void score_block(const KernelArguments& args, const Place& place, int begin) {
  const int end = begin + kKeysOfBlock < args.seqlen_kv ? begin + kKeysOfBlock : args.seqlen_kv;
  float* o = static_cast<float*>(args.o.data) + place.batch * args.o.batch_stride +
             place.row * args.o.row_stride + place.kv_head * args.o.head_stride;
  for (int first = begin; first < end; first += kLanes) {
    float sums[kLanes];
    if (first < place.keys) score_tile(args, place, first, sums);
    for (int key = first; key < first + kLanes && key < end; ++key) {
      const bool is_seen = key < place.keys;
      const float factor = is_seen && args.scales.k_scale.data != nullptr
                               ? place.factor(args.scales.k_scale, place.kv_head, key)
                               : 1;
      o[key] = is_seen ? factor * sums[key - first] : -__builtin_inff();
    }
  }
}

extern "C" void attune_kernel(const AttentionArgs* given, int thread, int num_threads) {
  const KernelArguments& args = *static_cast<const KernelArguments*>(given);
  const long long blocks = (args.seqlen_kv + kKeysOfBlock - 1LL) / kKeysOfBlock;
  const long long heads = args.num_heads_kv;
  const long long count = blocks * heads * args.seqlen_q * args.batch;
  for (long long i = count * thread / num_threads; i < count * (thread + 1) / num_threads; ++i) {
    const long long line = i / blocks;
    Place place{line / heads / args.seqlen_q, line / heads % args.seqlen_q, line % heads, 0};
    place.keys =
        num_keys_of_row(Rule{}, args, args.scales.v_scale, static_cast<int>(place.batch),
                        static_cast<int>(place.kv_head * kGqaRatio), static_cast<int>(place.row));
    score_block(args, place, static_cast<int>(i % blocks) * kKeysOfBlock);
  }
}

}  // namespace attune
