// SPDX-License-Identifier: Apache-2.0
// Proposing candidates; see search.hpp.
#include "tuner/search.hpp"

#include <algorithm>
#include <random>

namespace attune {
namespace {

double cost(const SearchTask& task, const TuneCandidate& candidate) {
  return candidate.family.kernel_template->predicted_cost(task.spec, candidate.family.arch, candidate.config, task.shape,
                                                          task.facts);
}

// Stable, so that equal costs keep the order of the space. Costs are computed once each.
void sort_by_cost(const SearchTask& task, std::vector<TuneCandidate>* candidates) {
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < candidates->size(); ++i) order.emplace_back(cost(task, (*candidates)[i]), i);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<TuneCandidate> sorted;
  sorted.reserve(order.size());
  for (const auto& [unused, index] : order) sorted.push_back(std::move((*candidates)[index]));
  *candidates = std::move(sorted);
}

std::vector<TuneCandidate> whole_space(const SearchTask& task, const Family& family) {
  std::vector<TuneCandidate> all;
  for (Config& config : family.kernel_template->space(task.spec, family.arch).enumerate())
    all.push_back({family, std::move(config), false});
  sort_by_cost(task, &all);
  return all;
}

TuneCandidate default_of(const SearchTask& task, const Family& family) {
  return {family, family.kernel_template->default_config(task.spec, family.arch, task.shape), false};
}

// Collects candidates once each.
class Collection {
 public:
  void add(TuneCandidate candidate) {
    if (seen_.insert(candidate.text()).second) candidates_.push_back(std::move(candidate));
  }
  size_t size() const { return candidates_.size(); }
  std::vector<TuneCandidate> take() { return std::move(candidates_); }

 private:
  std::set<std::string> seen_;
  std::vector<TuneCandidate> candidates_;
};

}  // namespace

EffortPlan effort_plan(Effort effort) {
  switch (effort) {
    case Effort::kQuick:
      return {.predicted = 6, .random = 1, .waves = 1, .wave_size = 4, .finalists = 3, .final_rounds = 12, .final_s = 0.2,
              .budget_s_first = 10, .budget_s_more = 10};
    case Effort::kNormal:
      return {.predicted = 20, .random = 3, .waves = 3, .wave_size = 12, .finalists = 5, .final_rounds = 30, .final_s = 0.5,
              .budget_s_first = 11, .budget_s_more = 7};
    case Effort::kExhaustive: break;
  }
  return {.whole_space = true, .waves = 0, .finalists = 8, .final_rounds = 60, .final_s = 2, .budget_s_first = 3600, .budget_s_more = 3600};
}

TuneCandidate default_candidate(const SearchTask& task) {
  TuneCandidate candidate = default_of(task, task.families.front());
  candidate.is_default = true;
  return candidate;
}

std::vector<TuneCandidate> first_candidates(const SearchTask& task, const EffortPlan& plan, uint64_t seed,
                                        const std::vector<TuneCandidate>& hints) {
  Collection found;
  found.add(default_candidate(task));
  for (const TuneCandidate& hint : hints) {
    const KernelTemplate& kernel_template = *hint.family.kernel_template;
    if (!kernel_template.space(task.spec, hint.family.arch).broken(hint.config)) found.add({hint.family, hint.config, false});
  }
  for (size_t i = 1; i < task.families.size(); ++i) found.add(default_of(task, task.families[i]));
  for (const Family& family : task.families) {
    const bool best_family = &family == &task.families.front();
    if (!best_family && !plan.whole_space) continue;
    const std::vector<TuneCandidate> all = whole_space(task, family);
    const size_t top = plan.whole_space ? all.size() : std::min<size_t>(all.size(), static_cast<size_t>(plan.predicted));
    for (size_t i = 0; i < top; ++i) found.add(all[i]);
    std::mt19937_64 random(seed);
    for (int i = 0; i < plan.random && top < all.size(); ++i) found.add(all[top + random() % (all.size() - top)]);
  }
  return found.take();
}

std::vector<TuneCandidate> neighbourhood(const SearchTask& task, const std::vector<TuneCandidate>& best,
                                     const std::set<std::string>& tried, int limit) {
  Collection found;
  for (const TuneCandidate& centre : best) {
    const Family& family = centre.family;
    for (Config& config : family.kernel_template->space(task.spec, family.arch).neighbours(centre.config)) {
      TuneCandidate candidate{family, std::move(config), false};
      if (tried.count(candidate.text()) == 0) found.add(std::move(candidate));
    }
  }
  std::vector<TuneCandidate> candidates = found.take();
  sort_by_cost(task, &candidates);
  if (candidates.size() > static_cast<size_t>(limit)) candidates.resize(static_cast<size_t>(limit));
  return candidates;
}

}  // namespace attune
