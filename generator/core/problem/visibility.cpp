// SPDX-License-Identifier: Apache-2.0
// Represents the visible keys as a band of diagonals, the same for all rows; see visibility.hpp.
#include "generator/core/problem/visibility.hpp"

#include <algorithm>
#include <optional>

#include "generator/core/ops/ops.hpp"
#include "generator/core/problem/op.hpp"
#include "generator/score/features/features.hpp"
#include "generator/score/features/score_feature.hpp"

namespace attune {
namespace {

int64_t bottom_right(const Problem& p) { return p.seqlen_kv - p.seqlen_q; }

// Row i sees the existing columns from i + first to i + last. An end that hides nothing is nullopt.
// With at least one row and one key, equal visible sets have equal bands, because an end that is
// not nullopt lies in the columns of some row.
struct Band {
  std::optional<int64_t> first, last;
};

Band band_of(const Problem& p) {
  Band band;
  if (p.seqlen_q == 0 || p.seqlen_kv == 0) return band;
  const int64_t diagonal = first_diagonal(p, p);
  if (p.window_left >= 0) band.first = diagonal - p.window_left;
  if (p.mask != Mask::kNone)
    band.last = diagonal;
  else if (p.window_right >= 0)
    band.last = diagonal + p.window_right;
  if (band.first && *band.first <= 1 - p.seqlen_q)
    band.first.reset();                                               // the last row sees column 0
  if (band.last && *band.last >= p.seqlen_kv - 1) band.last.reset();  // row 0 sees the last column
  return band;
}

// Returns the mask whose diagonal is the band's last column, else kNone. Without a last column,
// kNone can express every band by window_left, except bands of one key under causal_top_left.
Mask mask_of(const Band& band, int64_t bottom_right) {
  if (!band.last)
    return band.first && *band.first > bottom_right ? Mask::kCausalTopLeft : Mask::kNone;
  if (*band.last == bottom_right) return Mask::kCausalBottomRight;
  return *band.last == 0 ? Mask::kCausalTopLeft : Mask::kNone;
}

Problem without_usual_scale(const Problem& p) {
  Problem same = p;
  same.softmax_scale.reset();
  if (p.softmax_scale && *p.softmax_scale != same.scale()) same.softmax_scale = p.softmax_scale;
  return same;
}

}  // namespace

KeyInterval<int64_t> visible_keys(const Problem& p, int64_t row) { return visible_keys(p, p, row); }

Problem canonical(const Problem& asked) {
  if (describe(asked.op).appends) return canonical_of_append(asked);
  if (describe(asked.op).has_cache) return without_usual_scale(canonical_of_cache(asked));
  if (asked.cache.key_indices != KeyIndices::kNone)
    return without_usual_scale(canonical_of_lists(asked));
  const Problem p = with_built_ins(asked);
  const Band band = band_of(p);
  Problem same = p;
  if (is_scored(p)) return same;  // score programs see the diagonal
  same.mask = mask_of(band, bottom_right(p));
  const int64_t diagonal = first_diagonal(same, p);
  same.window_left = band.first ? diagonal - *band.first : -1;
  same.window_right = band.last && same.mask == Mask::kNone ? *band.last - diagonal : -1;
  return without_usual_scale(same);
}

double visible_flops(const Problem& p) {
  double visible = 0;
  if (p.mask == Mask::kNone && p.window_left < 0 && p.window_right < 0) {
    visible = static_cast<double>(p.seqlen_q) * static_cast<double>(p.seqlen_kv);
  } else {
    for (int64_t row = 0; row < p.seqlen_q; ++row) {
      const KeyInterval<int64_t> keys = visible_keys(p, row);
      visible += static_cast<double>(std::max<int64_t>(0, keys.last - keys.first + 1));
    }
  }
  return 2.0 * (p.head_dim_qk + p.head_dim_v) * visible * static_cast<double>(p.batch) *
         p.num_heads_q;
}

}  // namespace attune
