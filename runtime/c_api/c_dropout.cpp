// SPDX-License-Identifier: Apache-2.0
// The C functions on dropout: the rate that kernels use, and the mask on the host.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "generator/launch_plan.hpp"
#include "runtime/c_api/c_support.hpp"
#include "templates/shared/dropout.h"

using namespace attune;
using namespace attune::c_api;

namespace {

constexpr unsigned kCellKeys = 16;

DropoutArgs args_of(float dropout) {
  if (!(dropout >= 0 && dropout < 1))
    refuse(fmt::format("dropout is {}; must be at least 0, below 1", dropout));
  Problem problem;
  problem.dropout = dropout;
  return dropout_args(problem, nullptr);
}

// Checks that each extent fits into int32, as kernels need, and the number of elements into int64.
void check_extents(int64_t batch, int64_t num_heads, int64_t seqlen_q, int64_t seqlen_kv) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  int64_t elements = 1;
  for (const auto& [name, extent] :
       {std::tuple{"batch", batch}, std::tuple{"num_heads_q", num_heads},
        std::tuple{"seqlen_q", seqlen_q}, std::tuple{"seqlen_kv", seqlen_kv}}) {
    if (extent < 0 || extent > kMost)
      refuse(fmt::format("{} is {}; must be 0 to {}", name, extent, kMost));
    if (extent > 0 && elements > std::numeric_limits<int64_t>::max() / extent)
      refuse(fmt::format(
          "{} is {} with {} elements in each; the mask must have less than 2^63 elements", name,
          extent, elements));
    elements *= extent;
  }
}

}  // namespace

extern "C" {

double attune_dropout_rate(float dropout) {
  double rate = -1;
  guarded([&] { rate = 1 - args_of(dropout).threshold / 256.0; });
  return rate;
}

attune_status attune_dropout_mask(float dropout, uint64_t seed, uint64_t offset, int64_t batch,
                                  int64_t num_heads_q, int64_t seqlen_q, int64_t seqlen_kv,
                                  uint8_t* keep) {
  return guarded([&] {
    const DropoutArgs args = args_of(dropout);
    check_extents(batch, num_heads_q, seqlen_q, seqlen_kv);
    if (batch == 0 || num_heads_q == 0 || seqlen_q == 0 || seqlen_kv == 0) return;
    uint8_t* to = &not_null(keep, "keep");
    for (int64_t head = 0; head < batch * num_heads_q; ++head) {
      const DropoutKey of_head = dropout_key({seed, offset}, static_cast<unsigned>(head));
      for (int64_t row = 0; row < seqlen_q; ++row) {
        const auto at = static_cast<unsigned>(row);
        const DropoutKey of_row[2] = {at_stream(of_head, dropout_stream(at, 0)),
                                      at_stream(of_head, dropout_stream(at, 4))};
        for (int64_t key = 0; key < seqlen_kv; key += kCellKeys) {
          const unsigned cell = static_cast<unsigned>(key) / kCellKeys;
          const unsigned bits[2] = {dropout_bits(at_cell(of_row[0], cell), args.limit),
                                    dropout_bits(at_cell(of_row[1], cell), args.limit)};
          for (unsigned i = 0; i < std::min<int64_t>(kCellKeys, seqlen_kv - key); ++i)
            *to++ = bits[i / 4 % 2] >> dropout_bit(at, i) & 1;
        }
      }
    }
  });
}

}  // extern "C"
