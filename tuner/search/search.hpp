// SPDX-License-Identifier: Apache-2.0
// Search: the choice of candidates. First come the default, hints from other shapes, the defaults
// of the other families, and the best candidates of the first group by predicted cost. Half of the
// latter are the best of their tile, so that variants in minor knobs do not displace other tiles. A
// few random candidates find what the prediction misses. Then come the neighbours of the best
// three, as long as they gain. The same seed and timings give the same candidates.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tuner/search/tune_target.hpp"

namespace attune {

// The limits of an effort level. Times are wall clock and include compiling.
struct EffortPlan {
  bool whole_space = false;
  int predicted = 0;  // first candidates by predicted cost
  int random = 0;
  int waves = 0;  // rounds of neighbours
  int wave_size = 0;
  int finalists = 0;  // besides the default
  // Rounds of the final race: fewer if the intervals get narrow, more if they take less than
  // final_s.
  int final_rounds = 0;
  double final_s = 0;
  double budget_s_first = 0;  // default budget of a spec's first shape ...
  // ... and of each further one, for which the kernels are compiled already
  double budget_s_more = 0;
};
EffortPlan effort_plan(Effort effort);

// The search spaces of one spec. Each is enumerated once and kept, because all shapes search the
// same spaces.
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

  // Returns the families that are worth trying, best first for this shape.
  std::vector<Family> families() const {
    return worth_trying(spaces->families(), spaces->spec(), shape, facts);
  }
};

// Returns all configs of these families that suit the shape, best predicted cost first.
std::vector<TuneCandidate> whole_space(const SearchTask& task, const std::vector<Family>& families);
// Returns the candidate that a runtime without tuning would use: the best family's default.
TuneCandidate default_candidate(const SearchTask& task);
// Returns candidates without duplicates, the default first. Leaves out illegal hints.
std::vector<TuneCandidate> first_candidates(const SearchTask& task, const EffortPlan& plan,
                                            uint64_t seed, const std::vector<TuneCandidate>& hints);
// Returns at most `limit` legal configs near `best` that are not in `tried` (texts), best predicted
// cost first. Configs that differ in one knob, by any value, come before configs that differ in two
// knobs (a rule that ties two knobs lets them change only together).
std::vector<TuneCandidate> neighbourhood(const SearchTask& task,
                                         const std::vector<TuneCandidate>& best,
                                         const std::set<std::string>& tried, int limit);

}  // namespace attune
