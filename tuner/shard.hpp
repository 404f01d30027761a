// SPDX-License-Identifier: Apache-2.0
// Shard: the part of a workload that one of many workers tunes. Workers never talk: each is given
// the same list, takes its part by a rule, and writes a store of its own; `attune db merge` joins
// the stores. Used by `attune tune --shard`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "generator/core/problem.hpp"

namespace attune {

struct Shard {
  int index = 0;  // from 0
  int count = 1;

  bool operator==(const Shard&) const = default;
};

// What a scheduler's variable says; nullopt where it is not set.
using Lookup = std::function<std::optional<std::string>(const char* name)>;

// "3/8": the fourth of eight. "env": what the scheduler says (RANK and WORLD_SIZE of torchrun, Open
// MPI, PMI, Slurm's arrays and tasks). "env/8": its index, where it does not say of how many
// (JOB_COMPLETION_INDEX of Kubernetes). Throws kInvalidArgument with what came and what is accepted;
// also where two schedulers say different things.
Shard parse_shard(const std::string& text, const Lookup& variable);

// The shard's part of the list, in the order of the list: the problems are ordered by digest, each
// once, and dealt like cards, so parts differ by one problem at most. `replicate`: how many shards
// get each problem; the shards that share one follow each other. Throws kInvalidArgument unless it
// is 1 to shard.count.
std::vector<Problem> problems_of_shard(const std::vector<Problem>& problems, const Shard& shard,
                                       int replicate);

}  // namespace attune
