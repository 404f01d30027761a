// SPDX-License-Identifier: Apache-2.0
// Schedules: the steps by which a rank of a group computes its share of attention over one
// sequence. A schedule is a pure function of the whole problem, the layout and the algorithm. It
// knows no device. tests/generator/core/group checks it for all ranks together.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/core/group/layout.hpp"

namespace attune {

enum class Algorithm {
  kGather,    // each rank receives the keys that its rows see
  kExchange,  // each rank computes some heads for all rows: tokens for heads, and back
  kRing,      // keys go round the ranks; partial results are joined
};
std::string_view algorithm_name(Algorithm algorithm);  // "gather"

enum class Pass { kForward, kBackward };

enum class StepKind { kTransfer, kLaunch, kJoin };
enum class Payload { kQ, kKv, kO, kDout, kDq, kDkv };
std::string_view payload_name(Payload payload);  // "kv"

struct Step {
  StepKind kind{};
  // Transfers of one round are one exchange between ranks. It ends when all ranks that take part
  // have begun it.
  int round = 0;
  Payload payload{};     // of a transfer; of a join, kO or kDkv
  int from = 0, to = 0;  // ranks of a transfer
  Range tokens;          // of a transfer or join; of a launch, its rows
  Range heads;           // heads of q; for kKv and kDkv heads of k and v
  Range keys;            // of a launch
  // For a launch: number of keys seen on each side of the diagonal that ends at the last row and
  // key. Negative: open.
  int64_t left = -1, right = -1;
  int64_t bytes = 0;  // of a transfer

  bool operator==(const Step&) const = default;
};

using Schedule = std::vector<Step>;

// Throws kUnsupported if the algorithm cannot serve the problem with this layout.
void check_algorithm(const WholeProblem& whole, const Layout& layout, Algorithm algorithm);
// Returns the steps of one rank, in order. k and v of a backward are transferred again by kGather
// and kRing. kExchange keeps q, k, v, o and lse of its forward.
Schedule make_schedule(const WholeProblem& whole, const Layout& layout, Algorithm algorithm,
                       Pass pass, int rank);
// Returns the bytes that the rank receives.
int64_t received_bytes(const Schedule& schedule, int rank);
// Returns the algorithm of kGather and kExchange by which all ranks together receive fewer bytes,
// in the forward pass or, for training, in both. Gather if both receive as many.
Algorithm choose_algorithm(const WholeProblem& whole, const Layout& layout, bool training);

// Reads the request "world=4,rank=1,layout=zigzag,algorithm=auto,training=1,documents=0:100:256"
// and returns lines of text, which runtime/include/attune/attune_group.h describes.
std::string schedule_text(const Problem& problem, std::string_view request);

}  // namespace attune
