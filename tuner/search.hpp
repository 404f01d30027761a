// SPDX-License-Identifier: Apache-2.0
// Search: which candidates to try. First the default, the best by predicted cost, a few at random (they keep the prediction
// honest), hints from other shapes and the defaults of the other families; then the neighbours of the best three while they
// gain. Same seed, same timings: same candidates.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tuner/tune_target.hpp"

namespace attune {

// What an effort level allows. All times are wall clock, compiling included.
struct EffortPlan {
  bool whole_space = false;
  int predicted = 0;         // first candidates by predicted cost
  int random = 0;
  int waves = 0;             // rounds of neighbours
  int wave_size = 0;
  int finalists = 0;         // besides the default
  int final_rounds = 0;      // unless the intervals are narrow before; more when they take less than final_s
  double final_s = 0;
  double budget_s_first = 0;  // default budget of a spec's first shape ...
  double budget_s_more = 0;   // ... and of each further one, which finds the kernels compiled
};
EffortPlan effort_plan(Effort effort);

struct SearchTask {
  KernelSpec spec;
  Shape shape;
  DeviceFacts facts;
  std::vector<Family> families;  // best first
};

// The candidate an untuned runtime would use: the best family's default.
TuneCandidate default_candidate(const SearchTask& task);
// The default is first; no candidate stands twice; illegal hints are left out.
std::vector<TuneCandidate> first_candidates(const SearchTask& task, const EffortPlan& plan, uint64_t seed,
                                        const std::vector<TuneCandidate>& hints);
// Neighbours of `best` that are not in `tried` (texts), best predicted first, at most `limit`.
std::vector<TuneCandidate> neighbourhood(const SearchTask& task, const std::vector<TuneCandidate>& best,
                                     const std::set<std::string>& tried, int limit);

}  // namespace attune
