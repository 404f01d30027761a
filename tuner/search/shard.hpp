// SPDX-License-Identifier: Apache-2.0
// Shard: the part of a workload that one of many workers tunes. Workers do not communicate: each
// has the same list, takes its part by a rule, and writes its own store. `attune db merge` joins
// the stores. Used by `attune tune --shard`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "generator/core/problem/problem.hpp"

namespace attune {

struct Shard {
  int index = 0;  // from 0
  int count = 1;

  bool operator==(const Shard&) const = default;
};

// Returns the value of a variable; nullopt if it is not set.
using Lookup = std::function<std::optional<std::string>(const char* name)>;

// Parses a shard. "3/8": the fourth of eight. "env": index and count from the scheduler's variables
// (RANK and WORLD_SIZE of torchrun, Open MPI, PMI, Slurm's arrays and tasks). "env/8": the index
// from them, for a scheduler that does not give the count (JOB_COMPLETION_INDEX of Kubernetes).
// Throws kInvalidArgument with the text and the valid forms, also if two schedulers contradict each
// other.
Shard parse_shard(const std::string& text, const Lookup& variable);

// Returns the shard's part of the list, in the list's order. The distinct problems are ordered by
// digest and dealt in turn, so that parts differ by at most one problem. `replicate`: how many
// shards get each problem; they have consecutive indices. Throws kInvalidArgument unless it is 1 to
// shard.count.
std::vector<Problem> problems_of_shard(const std::vector<Problem>& problems, const Shard& shard,
                                       int replicate);

}  // namespace attune
