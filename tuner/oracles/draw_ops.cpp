// SPDX-License-Identifier: Apache-2.0
// Draws random problems of the ops around a cache; see draw_ops.hpp.
#include "tuner/oracles/draw_ops.hpp"

#include <algorithm>

#include "generator/core/ops/ops.hpp"
#include "generator/score/features/score_feature.hpp"
#include "templates/shared/nibble_rows.h"
#include "tuner/fuzz/draw.hpp"

namespace attune::testing {
namespace {

using Random = std::mt19937_64;

template <class T>
T pick(Random& random, std::initializer_list<T> values) {
  return *(values.begin() + static_cast<long>(random() % values.size()));
}

bool one_in(uint64_t count, Random& random) { return random() % count == 0; }

int up_to(int most, Random& random) {
  return 1 + static_cast<int>(random() % static_cast<uint64_t>(most));
}

void draw_dtypes(Random& random, Problem* p) {
  p->dtype_q = p->dtype_kv = p->dtype_o =
      pick(random, {Dtype::kBf16, Dtype::kBf16, Dtype::kFp16, Dtype::kFp16, Dtype::kFp32});
  if (p->dtype_q == Dtype::kFp32) return;
  if (p->op == Op::kAttentionKvCache && one_in(5, random)) p->dtype_o = Dtype::kFp32;
  if (!one_in(3, random)) return;
  if (one_in(3, random)) {
    p->dtype_kv = pick(random, {Dtype::kInt4, Dtype::kE2m1});
    p->cache.kv_factors = pick(random, {KvFactors::kColumns16, KvFactors::kColumns32});
    return;
  }
  p->dtype_kv = pick(random, {Dtype::kE4m3, Dtype::kE5m2, Dtype::kInt8});
  p->cache.kv_factors = pick(random, {KvFactors::kHeads, KvFactors::kKeys});
  if (p->op == Op::kAppendKv && one_in(2, random)) p->cache.kv_factors = KvFactors::kMade;
}

// Draws round head dims, multiples of 16 up to the largest, or multiples of 8.
void draw_head_dims(Random& random, Problem* p) {
  p->head_dim_qk = p->head_dim_v = pick(random, {64, 128, 80, 96, 192, 256});
  if (is_4_bit(p->dtype_kv)) {
    p->head_dim_qk = kNibbleStep * up_to(one_in(3, random) ? 18 : 8, random);
    p->head_dim_v = kNibbleStep * up_to(one_in(3, random) ? 16 : 8, random);
    if (one_in(2, random)) p->head_dim_v = std::min(p->head_dim_qk, kMaxHeadDimV);
    return;
  }
  if (one_in(2, random)) return;
  const int step = one_in(5, random) ? 8 : 16;
  const auto most = [&](int limit) { return (one_in(3, random) ? limit : 256) / step; };
  p->head_dim_qk = step * up_to(most(kMaxHeadDimQk), random);
  p->head_dim_v = step * up_to(most(kMaxHeadDimV), random);
  if (one_in(2, random)) p->head_dim_v = std::min(p->head_dim_qk, kMaxHeadDimV);
}

// Draws the heads of a model with one head of K, of one with as many as heads of Q, or between.
void draw_heads(Random& random, Problem* p) {
  p->num_heads_kv = pick(random, {1, 1, 2, 3, 4, 8});
  p->num_heads_q = p->num_heads_kv * pick(random, {1, 1, 2, 3, 4, 5, 7, 8, 16});
  if (p->num_heads_q > 32) p->num_heads_q = p->num_heads_kv;
}

// Draws a latent cache: V is the first columns of K.
void draw_latent(Random& random, Problem* p) {
  p->cache.v_in_k = true;
  p->head_dim_qk = pick(random, {576, 576, 320, 448, 16 * up_to(kMaxHeadDimQk / 16, random)});
  p->head_dim_v = std::min({p->head_dim_qk, kMaxHeadDimV, 16 * up_to(kMaxHeadDimV / 16, random)});
  if (p->head_dim_qk > 64 && one_in(2, random))
    p->head_dim_v = std::min(p->head_dim_qk - 64, kMaxHeadDimV);
  p->num_heads_kv = pick(random, {1, 1, 1, 2});
  p->num_heads_q = p->num_heads_kv * pick(random, {1, 3, 12, 16, 20, 64, 128});
}

// Draws the layout of the cache, and of the rows.
void draw_layout(Random& random, Problem* p) {
  switch (random() % 4) {
    case 0:
      p->cache.packed_kv = p->op == Op::kAttentionKvCache;
      break;
    case 1:
    case 2:
      p->cache.page_size = one_in(3, random) ? up_to(256, random)
                                             : pick(random, {1, 2, 3, 16, 16, 32, 64, 128, 256});
      break;
    default:
      break;  // slots
  }
  p->cache.packed_q = one_in(3, random);
}

void draw_lengths_of_cache(Random& random, Problem* p) {
  constexpr double kMostWork = 5e7;  // multiplications, for the oracle
  p->batch = one_in(8, random) ? 20 + up_to(30, random) : up_to(9, random);
  p->seqlen_q = one_in(2, random)   ? up_to(3, random)
                : one_in(2, random) ? up_to(16, random)
                                    : up_to(40, random);
  p->seqlen_kv = one_in(6, random)   ? pick(random, {0, 1, 15, 16, 17, 64, 255, 256, 257})
                 : one_in(3, random) ? up_to(4000, random)
                                     : up_to(700, random);
  const auto work = [&] {
    return static_cast<double>(p->batch * p->seqlen_q * p->seqlen_kv) * p->num_heads_q *
           (p->head_dim_qk + p->head_dim_v);
  };
  for (; p->batch > 1 && work() > kMostWork; p->batch = (p->batch + 1) / 2) {
  }
  for (; p->seqlen_q > 1 && work() > kMostWork; p->seqlen_q = (p->seqlen_q + 1) / 2) {
  }
  for (; p->seqlen_kv > 1 && work() > kMostWork; p->seqlen_kv /= 2) {
  }
  // Requests share pages of a small cache. A large one has pages of no request.
  const auto pages = static_cast<int>(pages_of_cache(*p));
  if (pages > 0 && one_in(3, random)) p->num_pages = up_to(2 * pages, random);
}

void draw_lists(Random& random, Problem* p) {
  p->cache.key_indices =
      p->cache.packed_kv || one_in(2, random) ? KeyIndices::kPositions : KeyIndices::kPlaces;
  p->listed_keys = one_in(3, random) ? up_to(600, random) : up_to(100, random);
}

void draw_masks(Random& random, Problem* p) {
  p->mask = pick(random, {Mask::kNone, Mask::kCausalBottomRight});
  if (one_in(3, random)) p->window_left = static_cast<int64_t>(random() % 300);
  if (one_in(6, random)) p->window_right = static_cast<int64_t>(random() % 60);
}

Problem random_attention(Random& random) {
  Problem p;
  p.op = Op::kAttentionKvCache;
  draw_dtypes(random, &p);
  draw_head_dims(random, &p);
  draw_heads(random, &p);
  if (one_in(5, random)) draw_latent(random, &p);
  draw_layout(random, &p);
  draw_lengths_of_cache(random, &p);
  if (one_in(4, random))
    draw_lists(random, &p);
  else
    draw_masks(random, &p);
  p.cache.batch_invariant = one_in(4, random);
  if (one_in(4, random)) p.softmax_scale = 0.05F + 0.01F * static_cast<float>(random() % 20);
  for (int left = one_in(2, random) ? up_to(6, random) : 0; left > 0; --left) {
    Problem more = p;
    draw_feature(random, &more);
    if (more.mask == p.mask && is_valid(more)) p = more;
  }
  return p;
}

Problem random_append(Random& random) {
  Problem p;
  p.op = Op::kAppendKv;
  draw_dtypes(random, &p);
  draw_head_dims(random, &p);
  draw_heads(random, &p);
  draw_layout(random, &p);
  draw_lengths_of_cache(random, &p);
  p.cache.v_in_k = one_in(5, random);
  if (one_in(3, random)) return p;
  p.append.rotary = draw_score_tensor(random);
  p.append.rotary_interleaved = one_in(2, random);
  p.append.rotary_q = one_in(2, random);
  if (one_in(2, random)) p.append.rotary_dim = 2 * up_to(p.head_dim_qk / 2, random);
  return p;
}

// Draws a problem of gradients over lists of keys.
Problem random_backward(Random& random) {
  Problem p;
  p.op = Op::kAttentionBackward;
  p.dtype_q = p.dtype_kv = p.dtype_o =
      pick(random, {Dtype::kBf16, Dtype::kBf16, Dtype::kFp16, Dtype::kFp16, Dtype::kFp32});
  draw_head_dims(random, &p);
  draw_heads(random, &p);
  if (one_in(3, random)) draw_latent(random, &p);
  draw_lengths_of_cache(random, &p);
  p.num_pages = 0;
  p.cache.key_indices = KeyIndices::kPositions;
  p.listed_keys = one_in(3, random) ? up_to(600, random) : up_to(100, random);
  p.backward.deterministic = one_in(3, random);
  if (one_in(4, random))  // weights stay within fp16
    p.softmax_scale = p.scale() * (0.3F + 0.1F * static_cast<float>(random() % 10));
  return p;
}

// Draws a problem of an op that chooses keys.
Problem random_choice(Random& random, Op op) {
  Problem p;
  p.op = op;
  p.dtype_q = pick(random, {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32});
  if (op == Op::kIndexScores && one_in(3, random)) p.dtype_q = Dtype::kE4m3;
  p.dtype_kv = p.dtype_o = p.dtype_q;
  p.mask = pick(random, {Mask::kNone, Mask::kCausalTopLeft, Mask::kCausalBottomRight});
  p.num_heads_q = p.num_heads_kv = up_to(4, random);
  if (op == Op::kIndexScores) {
    p.dtype_o = Dtype::kFp32;
    p.num_heads_q *= pick(random, {1, 2, 8, 16});
    p.head_dim_qk = p.head_dim_v = one_in(2, random) ? 128 : 16 * up_to(16, random);
  }
  p.batch = up_to(5, random);
  p.seqlen_q = up_to(40, random);
  p.seqlen_kv = one_in(3, random) ? up_to(4000, random) : up_to(300, random);
  if (op == Op::kTopK) p.listed_keys = up_to(static_cast<int>(p.seqlen_kv), random);
  return p;
}

}  // namespace

const std::vector<Op>& drawn_ops() {
  static const std::vector<Op> ops{Op::kAttentionKvCache, Op::kAppendKv, Op::kTopK,
                                   Op::kIndexScores, Op::kAttentionBackward};
  return ops;
}

Problem random_op_problem(Random& random, Op op) {
  for (;;) {
    const Problem drawn = op == Op::kAttentionKvCache    ? random_attention(random)
                          : op == Op::kAppendKv          ? random_append(random)
                          : op == Op::kAttentionBackward ? random_backward(random)
                                                         : random_choice(random, op);
    if (is_valid(drawn)) return drawn;
  }
}

}  // namespace attune::testing
