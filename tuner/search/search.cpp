// SPDX-License-Identifier: Apache-2.0
// Proposes candidates; see search.hpp.
#include "tuner/search/search.hpp"

#include <algorithm>
#include <random>
#include <tuple>

namespace attune {
namespace {

double cost(const SearchTask& task, const TuneCandidate& candidate) {
  return candidate.family.kernel_template->predicted_cost(
      task.spaces->spec(), candidate.family.arch, candidate.config, task.shape, task.facts);
}

// Sorts by cost; equal costs keep their order. Computes each cost once.
void sort_by_cost(const SearchTask& task, std::vector<TuneCandidate>* candidates) {
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < candidates->size(); ++i)
    order.emplace_back(cost(task, (*candidates)[i]), i);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<TuneCandidate> sorted;
  sorted.reserve(order.size());
  for (const auto& [unused, index] : order) sorted.push_back(std::move((*candidates)[index]));
  *candidates = std::move(sorted);
}

bool fits(const SearchTask& task, const Family& family, const Config& config) {
  return !family.kernel_template->unfit(task.spaces->spec(), config, task.shape);
}

// Returns the families of each group, in the order of the groups' first families.
std::vector<std::vector<Family>> groups_of(const std::vector<Family>& families) {
  std::vector<std::vector<Family>> groups;
  for (const Family& family : families) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return group.front().kernel_template->group() == family.kernel_template->group();
    });
    if (found == groups.end())
      groups.push_back({family});
    else
      found->push_back(family);
  }
  return groups;
}

using Tile = std::tuple<std::string_view, int64_t, int64_t>;
Tile tile_of(const TuneCandidate& candidate) {
  const Config& config = candidate.config;
  return {candidate.family.kernel_template->name(),
          config.get("block_m", config.get("key_block_m", 0)), config.get("block_n", 0)};
}

// Returns the best candidate of each tile, in the order of `sorted`.
std::vector<TuneCandidate> best_of_tiles(const std::vector<TuneCandidate>& sorted) {
  std::set<Tile> seen;
  std::vector<TuneCandidate> best;
  for (const TuneCandidate& candidate : sorted)
    if (seen.insert(tile_of(candidate)).second) best.push_back(candidate);
  return best;
}

TuneCandidate default_of(const SearchTask& task, const Family& family) {
  return {family,
          family.kernel_template->default_config(task.spaces->spec(), family.arch, task.shape,
                                                 task.facts),
          false};
}

TuneCandidate first_default(const SearchTask& task, const std::vector<Family>& families) {
  TuneCandidate candidate = default_of(task, families.front());
  candidate.is_default = true;
  return candidate;
}

// Returns the number of knobs that differ. Both configs must be from one space.
int distance(const Config& a, const Config& b) {
  int count = 0;
  if (a.knobs().size() != b.knobs().size())
    return static_cast<int>(a.knobs().size() + b.knobs().size());
  for (size_t i = 0; i < a.knobs().size(); ++i)
    count += a.knobs()[i].second != b.knobs()[i].second ? 1 : 0;
  return count;
}

// Collects candidates without duplicates.
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
      return {.predicted = 6,
              .random = 1,
              .waves = 1,
              .wave_size = 4,
              .finalists = 3,
              .final_rounds = 12,
              .final_s = 0.2,
              .budget_s_first = 10,
              .budget_s_more = 10};
    case Effort::kNormal:
      return {.predicted = 14,
              .random = 2,
              .waves = 3,
              .wave_size = 8,
              .finalists = 5,
              .final_rounds = 30,
              .final_s = 0.5,
              .budget_s_first = 11,
              .budget_s_more = 7};
    case Effort::kExhaustive:
      break;
  }
  return {.whole_space = true,
          .waves = 0,
          .finalists = 8,
          .final_rounds = 60,
          .final_s = 2,
          .budget_s_first = 3600,
          .budget_s_more = 3600};
}

SearchSpaces::Walked& SearchSpaces::walked(const Family& family) {
  const std::string_view name = family.kernel_template->name();
  auto found = walked_.find(name);
  if (found == walked_.end())
    found = walked_
                .emplace(std::string(name),
                         Walked{family.kernel_template->space(spec_, family.arch), std::nullopt})
                .first;
  return found->second;
}

const std::vector<Config>& SearchSpaces::configs(const Family& family) {
  Walked& space = walked(family);
  if (!space.configs) space.configs = space.space.enumerate();
  return *space.configs;
}

bool SearchSpaces::is_legal(const TuneCandidate& candidate) {
  return !walked(candidate.family).space.broken(candidate.config);
}

std::vector<TuneCandidate> whole_space(const SearchTask& task,
                                       const std::vector<Family>& families) {
  std::vector<TuneCandidate> all;
  for (const Family& family : families)
    for (const Config& config : task.spaces->configs(family))
      if (fits(task, family, config)) all.push_back({family, config, false});
  sort_by_cost(task, &all);
  return all;
}

TuneCandidate default_candidate(const SearchTask& task) {
  return first_default(task, task.families());
}

std::vector<TuneCandidate> first_candidates(const SearchTask& task, const EffortPlan& plan,
                                            uint64_t seed,
                                            const std::vector<TuneCandidate>& hints) {
  Collection found;
  const std::vector<Family> families = task.families();
  found.add(first_default(task, families));
  for (const TuneCandidate& hint : hints)
    if (task.spaces->is_legal(hint) && fits(task, hint.family, hint.config))
      found.add({hint.family, hint.config, false});
  for (size_t i = 1; i < families.size(); ++i) found.add(default_of(task, families[i]));
  const std::vector<std::vector<Family>> groups = groups_of(families);
  for (size_t i = 0; i < (plan.whole_space ? groups.size() : 1); ++i) {
    const std::vector<TuneCandidate> all = whole_space(task, groups[i]);
    const size_t top = plan.whole_space
                           ? all.size()
                           : std::min<size_t>(all.size(), static_cast<size_t>(plan.predicted));
    const std::vector<TuneCandidate> tiles = best_of_tiles(all);
    for (size_t k = 0; k < std::min(top / 2, tiles.size()); ++k) found.add(tiles[k]);
    const size_t enough = found.size() + top - std::min(top / 2, tiles.size());
    for (size_t k = 0; k < all.size() && (plan.whole_space || found.size() < enough); ++k)
      found.add(all[k]);
    std::mt19937_64 random(seed);
    for (int k = 0; k < plan.random && !all.empty(); ++k) found.add(all[random() % all.size()]);
  }
  return found.take();
}

std::vector<TuneCandidate> neighbourhood(const SearchTask& task,
                                         const std::vector<TuneCandidate>& best,
                                         const std::set<std::string>& tried, int limit) {
  Collection found;
  for (const int wanted : {1, 2}) {
    std::vector<TuneCandidate> ring;
    for (const TuneCandidate& centre : best)
      for (const Config& config : task.spaces->configs(centre.family))
        if (distance(config, centre.config) == wanted && fits(task, centre.family, config))
          ring.push_back({centre.family, config, false});
    sort_by_cost(task, &ring);
    for (TuneCandidate& candidate : ring)
      if (found.size() < static_cast<size_t>(limit) && tried.count(candidate.text()) == 0)
        found.add(std::move(candidate));
  }
  return found.take();
}

}  // namespace attune
