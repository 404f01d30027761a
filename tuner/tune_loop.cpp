// SPDX-License-Identifier: Apache-2.0
// Grouping problems by spec and sharing out the budget; see tune_loop.hpp.
#include "tuner/tune_loop.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>

#include "generator/core/error.hpp"
#include "generator/core/visibility.hpp"
#include "tuner/quantise_check.hpp"
#include "tuner/shape_tuner.hpp"
#include "tuner/verify.hpp"

namespace attune {
namespace {

constexpr size_t kHintsPerShape = 2;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Canonical problems of one spec, each shape once, in the order given.
struct Group {
  KernelSpec spec;
  std::vector<Problem> problems;
};

std::vector<Group> group_by_spec(const std::vector<Problem>& problems) {
  std::vector<Group> groups;
  std::set<std::string> seen;
  for (const Problem& given : problems) {
    validate(given);
    const Problem problem = canonical(given);
    const std::string spec = to_text(spec_of(problem));
    if (!seen.insert(spec + " " + to_text(shape_of(problem))).second) continue;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& g) { return to_text(g.spec) == spec; });
    if (group == groups.end()) group = groups.insert(groups.end(), Group{spec_of(problem), {}});
    group->problems.push_back(problem);
  }
  return groups;
}

// Time left is shared among the shapes left by these weights: the first shape of a spec pays for
// compiling.
class BudgetShares {
 public:
  BudgetShares(const std::vector<Group>& groups, const EffortPlan& plan, double budget_s) {
    for (const Group& group : groups)
      for (size_t i = 0; i < group.problems.size(); ++i)
        weights_.push_back(i == 0 ? plan.budget_s_first : plan.budget_s_more);
    for (double weight : weights_) left_ += weight;
    total_ = budget_s > 0 ? budget_s : left_;
  }
  double total() const { return total_; }
  size_t num_shapes() const { return weights_.size(); }
  // Deadline of the next shape.
  double next(double now, double end) {
    const double share = weights_[index_] / left_;
    left_ = std::max(left_ - weights_[index_++], 1e-9);
    return now + share * std::max(0.0, end - now);
  }

 private:
  std::vector<double> weights_;
  size_t index_ = 0;
  double left_ = 0;
  double total_ = 0;
};

class TuneLoop {
 public:
  TuneLoop(const TuneTarget& target, MeasureBackend& backend, Store* store,
           const TuneOptions& options, const std::vector<Group>& groups)
      : target_(target),
        backend_(backend),
        store_(store),
        options_(options),
        plan_(effort_plan(options.effort)),
        shares_(groups, plan_, options.budget_s),
        now_(options.now ? options.now : steady_seconds),
        began_(now_()) {}

  TuneReport run(const std::vector<Group>& groups) {
    for (const Group& group : groups) tune_group(group);
    report_.stored = store_.stored_all();
    report_.interrupted = stopped();
    report_.seconds = now_() - began_;
    report_.budget_s = shares_.total();
    return std::move(report_);
  }

  std::vector<WinnerCheck> verify(const std::vector<Group>& groups, int runs) {
    std::vector<WinnerCheck> checks;
    for (const Group& group : groups)
      for_each_shape(
          group, [](TuneContext&) {},
          [&](ShapeTuner& tuner) { checks.push_back(tuner.verify(runs)); });
    return checks;
  }

 private:
  bool stopped() const { return options_.stop && options_.stop(); }

  // Calls `each(tuner)` for every shape of the group; `before(context)` first.
  void for_each_shape(const Group& group, const std::function<void(TuneContext&)>& before,
                      const std::function<void(ShapeTuner&)>& each) {
    if (stopped()) return;
    CompilePool pool(target_, group.spec, options_.compile_threads);
    TuneContext context{target_,
                        backend_,
                        pool,
                        std::make_shared<SearchSpaces>(group.spec, target_.families(group.spec)),
                        store_,
                        options_,
                        now_,
                        [this](const Problem& problem) { return oracle(problem); },
                        [this](Progress progress) { report(std::move(progress)); }};
    before(context);
    for (const Problem& problem : group.problems) {
      if (stopped()) break;
      ShapeTuner tuner(context, problem, plan_);
      each(tuner);
    }
    pool.cancel_pending();
    report_.compiled += pool.num_compiled();
  }

  void tune_group(const Group& group) {
    const auto before = [&](TuneContext& context) {
      if (target_.kind() == Target::kCuda && !options_.refresh) compile_ahead(context, group);
    };
    std::vector<TuneCandidate> hints;
    for_each_shape(group, before, [&](ShapeTuner& tuner) {
      const double deadline = shares_.next(now_(), began_ + shares_.total());
      report_.shapes.push_back(options_.refresh ? tuner.refresh(deadline)
                                                : tuner.tune(hints, deadline));
      for (TuneCandidate& best : tuner.best_candidates(kHintsPerShape))
        hints.push_back(std::move(best));
    });
  }

  // On a GPU the host is idle while the device measures. (On a CPU, compiling would disturb the
  // timing.)
  void compile_ahead(TuneContext& context, const Group& group) {
    for (const Problem& problem : group.problems) {
      const ShapeTuner tuner(context, problem, plan_);
      for (const TuneCandidate& candidate : tuner.unknown(tuner.first_wave({})))
        context.pool.submit(candidate);
    }
  }

  std::optional<KernelRequest> oracle(const Problem& problem) {
    if (is_checked_on_host(problem)) return std::nullopt;
    const KernelSpec spec =
        check_plan(problem, check_flops_limit(target_.kind() == Target::kCpu)).spec;
    const std::string text = to_text(spec);
    if (const auto found = oracles_.find(text); found != oracles_.end()) return found->second;
    std::optional<KernelRequest> request;
    if (const auto reference = target_.reference(spec))
      request = KernelRequest{std::string(reference->family.kernel_template->name()),
                              reference->config, target_.make(spec, *reference)};
    return oracles_[text] = std::move(request);
  }

  void report(Progress progress) {
    if (!options_.progress) return;
    progress.shape = report_.shapes.size();
    progress.num_shapes = shares_.num_shapes();
    progress.elapsed_s = now_() - began_;
    progress.budget_s = shares_.total();
    options_.progress(progress);
  }

  const TuneTarget& target_;
  MeasureBackend& backend_;
  StoreWriter store_;
  const TuneOptions& options_;
  const EffortPlan plan_;
  BudgetShares shares_;
  const std::function<double()> now_;
  const double began_;
  std::map<std::string, std::optional<KernelRequest>> oracles_;
  TuneReport report_;
};

}  // namespace

MeasurePolicy measure_policy() { return {"v1 cold-l2 interleaved median"}; }

TuneReport tune(const TuneTarget& target, MeasureBackend& backend, Store* store,
                const std::vector<Problem>& problems, const TuneOptions& options) {
  const std::vector<Group> groups = group_by_spec(problems);
  return TuneLoop(target, backend, store, options, groups).run(groups);
}

std::vector<WinnerCheck> verify_winners(const TuneTarget& target, MeasureBackend& backend,
                                        Store* store, const std::vector<Problem>& problems,
                                        const TuneOptions& options, int runs) {
  TuneOptions any_effort = options;
  any_effort.effort = Effort::kQuick;  // all stored trials count
  const std::vector<Group> groups = group_by_spec(problems);
  return TuneLoop(target, backend, store, any_effort, groups).verify(groups, runs);
}

}  // namespace attune
