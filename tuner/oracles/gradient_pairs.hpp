// SPDX-License-Identifier: Apache-2.0
// Values of pairs of a row and a key in the backward pass of attention, in float64 on the host.
// Used by the oracles of op attention_backward. For the formulas see
// generator/core/ops/attention_backward.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "tuner/oracles/host_scores.hpp"
#include "tuner/oracles/oracle.hpp"

namespace attune {

// One head of one tensor: [rows, columns].
struct HeadMatrix {
  std::vector<double> values;
  int64_t columns = 0;
  const double* row(int64_t index) const { return values.data() + index * columns; }
};

double dot(const double* a, const double* b, int64_t count);

// Returns all indices below `count`. If `all` is false, returns both ends and some indices between
// them, at different positions in their tiles.
std::vector<int64_t> places(int64_t count, bool all);

class GradientPairs {
 public:
  // The bench must outlive this object.
  explicit GradientPairs(const OracleBench& bench);

  struct QueryHead {
    HeadMatrix q, o, dout;
    std::vector<float> lse;
    std::vector<double> delta, delta_terms;
  };
  struct KeyHead {
    HeadMatrix k, v;
  };
  QueryHead query_head(int64_t batch, int64_t head) const;
  KeyHead key_head(int64_t batch, int64_t head) const;

  struct Pair {
    double p = 0;      // P, times dropout's factor
    double dz = 0;     // gradient of the score after all features
    double ds = 0;     // gradient of the scaled score before them
    double terms = 0;  // like ds, from sums in which no term cancelled another
  };
  Pair pair(const QueryHead& rows, const KeyHead& keys, int64_t batch, int head, int64_t row,
            int64_t key) const;
  bool sees(int64_t row, int64_t key) const;
  // Returns the keys that a row sees, for a head of K. A key that its list names twice is there
  // twice.
  std::vector<int64_t> seen_keys(int64_t batch, int64_t row, int head_kv) const;
  // Returns how often seen_keys() has the key.
  int times_seen(int64_t batch, int64_t row, int head_kv, int64_t key) const;

  const OperandSpec& spec_of(Role role) const;
  const HostScores& scores() const { return scores_; }

 private:
  bool has_lists() const { return problem_.cache.key_indices != KeyIndices::kNone; }
  HeadMatrix matrix(Role role, int64_t batch, int64_t head) const;
  std::vector<float> row_sums(Role role, int64_t batch, int64_t head) const;

  const OracleBench& bench_;
  const Problem& problem_;
  const OperandList operands_;
  const HostScores scores_;
};

}  // namespace attune
