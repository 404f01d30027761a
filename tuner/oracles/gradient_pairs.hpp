// SPDX-License-Identifier: Apache-2.0
// What rows and keys make of each other in the backward of attention, in float64 on the host: for the oracles of the op
// attention_backward. Formulas as in generator/core/ops/attention_backward.cpp.
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

// All of `count`, or both ends and some between them that no tile repeats.
std::vector<int64_t> places(int64_t count, bool all);

class GradientPairs {
 public:
  // The bench must outlive it.
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
    double p = 0;      // kept by dropout
    double dz = 0;     // of the score behind all features
    double ds = 0;     // of the scaled score ahead of them
    double terms = 0;  // as ds, of sums in which no term cancelled another
  };
  Pair pair(const QueryHead& rows, const KeyHead& keys, int64_t batch, int head, int64_t row,
            int64_t key) const;
  bool sees(int64_t row, int64_t key) const;

  const OperandSpec& spec_of(Role role) const;
  const HostScores& scores() const { return scores_; }

 private:
  HeadMatrix matrix(Role role, int64_t batch, int64_t head) const;
  std::vector<float> row_sums(Role role, int64_t batch, int64_t head) const;

  const OracleBench& bench_;
  const Problem& problem_;
  const OperandList operands_;
  const HostScores scores_;
};

}  // namespace attune
