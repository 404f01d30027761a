// SPDX-License-Identifier: Apache-2.0
// Search: which candidates to try. First the default, hints from other shapes, the defaults of the
// other families, the best by predicted cost (half of them the best of their tile each, so that
// minor knobs do not crowd the tiles out) and a few at random, which keep the prediction honest;
// then the neighbours of the best three while they gain. Same seed, same timings: same candidates.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tuner/tune_target.hpp"

namespace attune {

// What an effort level allows. Times are wall clock and include compiling.
struct EffortPlan {
  bool whole_space = false;
  int predicted = 0;  // first candidates by predicted cost
  int random = 0;
  int waves = 0;  // rounds of neighbours
  int wave_size = 0;
  int finalists = 0;  // besides the default
  int final_rounds =
      0;  // unless the intervals are narrow before; more when they take less than final_s
  double final_s = 0;
  double budget_s_first = 0;  // default budget of a spec's first shape ...
  double budget_s_more = 0;   // ... and of each further one, which finds the kernels compiled
};
EffortPlan effort_plan(Effort effort);

// The search spaces of one spec, each walked once and kept: all shapes search the same ones.
class SearchSpaces {
 public:
  SearchSpaces(KernelSpec spec, std::vector<Family> families)
      : spec_(spec), families_(std::move(families)) {}
  const KernelSpec& spec() const { return spec_; }
  const std::vector<Family>& families() const { return families_; }  // best first
  const std::vector<Config>& configs(const Family& family);
  bool is_legal(const TuneCandidate& candidate);

 private:
  struct Walked {
    SearchSpace space;
    std::optional<std::vector<Config>> configs;
  };
  Walked& walked(const Family& family);

  KernelSpec spec_;
  std::vector<Family> families_;
  std::map<std::string, Walked, std::less<>> walked_;  // by template
};

struct SearchTask {
  std::shared_ptr<SearchSpaces> spaces;
  Shape shape;
  DeviceFacts facts;

  // Those that are worth trying, best first for this shape.
  std::vector<Family> families() const {
    return worth_trying(spaces->families(), spaces->spec(), shape);
  }
};

// The candidate an untuned runtime would use: the best family's default.
TuneCandidate default_candidate(const SearchTask& task);
// The default is first; no candidate stands twice; illegal hints are left out.
std::vector<TuneCandidate> first_candidates(const SearchTask& task, const EffortPlan& plan,
                                            uint64_t seed, const std::vector<TuneCandidate>& hints);
// Legal configs near `best` that are not in `tried` (texts), at most `limit`: those that differ in
// one knob, whatever its value, before those that differ in two (knobs tied by a rule only move
// together); best predicted first.
std::vector<TuneCandidate> neighbourhood(const SearchTask& task,
                                         const std::vector<TuneCandidate>& best,
                                         const std::set<std::string>& tried, int limit);

}  // namespace attune
