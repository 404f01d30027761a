// SPDX-License-Identifier: Apache-2.0
// Grouping problems by spec and sharing out the budget; see tune_loop.hpp.
#include "tuner/tune_loop.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
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
constexpr double kLeastPassSeconds = 1;  // a shape; less would go into opening it and its final

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

// Time left is shared among the shapes of a pass by these weights: the first shape of a spec pays
// for compiling.
class BudgetShares {
 public:
  BudgetShares(const std::vector<Group>& groups, const EffortPlan& plan, double budget_s) {
    for (const Group& group : groups)
      for (size_t i = 0; i < group.problems.size(); ++i)
        weights_.push_back(i == 0 ? plan.budget_s_first : plan.budget_s_more);
    double all = 0;
    for (double weight : weights_) all += weight;
    total_ = budget_s > 0 ? budget_s : all;
  }
  double total() const { return total_; }
  size_t num_shapes() const { return weights_.size(); }
  void begin_pass(const std::vector<bool>& takes_part) {
    left_ = 0;
    for (size_t i = 0; i < weights_.size(); ++i) left_ += takes_part[i] ? weights_[i] : 0;
  }
  // Deadline of this shape; what it leaves is shared among those after it.
  double deadline(size_t shape, double now, double end) {
    const double share = weights_[shape] / left_;
    left_ = std::max(left_ - weights_[shape], 1e-9);
    return now + share * std::max(0.0, end - now);
  }

 private:
  std::vector<double> weights_;
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
        began_(now_()) {
    backend_.set_patience([this] { return patience_s(); });
  }
  ~TuneLoop() { backend_.set_patience({}); }
  TuneLoop(const TuneLoop&) = delete;
  TuneLoop& operator=(const TuneLoop&) = delete;

  TuneReport run(const std::vector<Group>& groups) {
    std::vector<bool> open(shares_.num_shapes(), true);
    size_t known = 0;
    do {
      known = num_trials();
      pass(groups, open);
      for (size_t i = 0; i < report_.shapes.size(); ++i) open[i] = goes_on(report_.shapes[i]);
    } while (num_trials() > known && has_time_for(open));
    close_group();
    report_.stored = store_.stored_all();
    report_.interrupted = stopped();
    report_.seconds = now_() - began_;
    report_.budget_s = shares_.total();
    return std::move(report_);
  }

  std::vector<WinnerCheck> verify(const std::vector<Group>& groups, int runs) {
    std::vector<WinnerCheck> checks;
    for (const Group& group : groups) {
      for (const Problem& problem : group.problems) {
        if (stopped()) break;
        TuneContext context = open_group(group);
        checks.push_back(ShapeTuner(context, problem, plan_).verify(runs));
      }
    }
    close_group();
    return checks;
  }

 private:
  // What the shapes of one spec share; kept from pass to pass while it is the last one used.
  struct OpenGroup {
    OpenGroup(const TuneTarget& target, const Group& of, int threads)
        : group(&of),
          pool(target, of.spec, threads),
          spaces(std::make_shared<SearchSpaces>(of.spec, target.families(of.spec))) {}
    const Group* group;
    CompilePool pool;
    std::shared_ptr<SearchSpaces> spaces;
  };

  bool stopped() const { return options_.stop && options_.stop(); }
  double end() const { return began_ + shares_.total(); }
  bool budget_is_over() const { return options_.budget_s > 0 && now_() >= end(); }
  // A budget that nobody gave is a guess: it ends no request that the limits of the backend allow.
  double patience_s() const {
    if (stopped()) return 0;
    return options_.budget_s > 0 ? std::max(0.0, end() - now_()) + kGraceSeconds : INFINITY;
  }

  static bool goes_on(const ShapeReport& shape) {
    return !shape.complete && !shape.already_tuned && !shape.error && !shape.trials.empty();
  }
  bool has_time_for(const std::vector<bool>& open) const {
    const auto count = std::count(open.begin(), open.end(), true);
    return count > 0 && !stopped() && !options_.refresh &&
           end() - now_() >= kLeastPassSeconds * static_cast<double>(count);
  }
  size_t num_trials() const {
    size_t sum = 0;
    for (const ShapeReport& shape : report_.shapes) sum += shape.trials.size();
    return sum;
  }

  void close_group() {
    if (!open_) return;
    open_->pool.cancel_pending();
    report_.compiled += open_->pool.num_compiled();
    open_.reset();
  }

  TuneContext open_group(const Group& group) {
    if (!open_ || open_->group != &group) {
      close_group();
      open_ = std::make_unique<OpenGroup>(target_, group, options_.compile_threads);
    }
    return {target_,
            backend_,
            open_->pool,
            open_->spaces,
            store_,
            options_,
            now_,
            [this](const Problem& problem) { return oracle(problem); },
            [this](Progress progress) { report(std::move(progress)); }};
  }

  // Every shape that is open gets its share of the time left; in the first pass that is all of
  // them.
  void pass(const std::vector<Group>& groups, const std::vector<bool>& open) {
    shares_.begin_pass(open);
    size_t shape = 0;
    for (const Group& group : groups) {
      const size_t first = shape;
      shape += group.problems.size();
      if (stopped() || std::none_of(open.begin() + static_cast<std::ptrdiff_t>(first),
                                    open.begin() + static_cast<std::ptrdiff_t>(shape),
                                    [](bool takes_part) { return takes_part; }))
        continue;
      TuneContext context = open_group(group);
      if (report_.shapes.size() == first && target_.kind() == Target::kCuda && !options_.refresh)
        compile_ahead(context, group);
      std::vector<TuneCandidate> hints;
      for (size_t i = 0; i < group.problems.size() && !stopped(); ++i)
        if (open[first + i]) tune_shape(context, group.problems[i], first + i, &hints);
    }
  }

  void tune_shape(TuneContext& context, const Problem& problem, size_t shape,
                  std::vector<TuneCandidate>* hints) {
    current_ = shape;
    const double deadline = shares_.deadline(shape, now_(), end());
    const bool is_first = report_.shapes.size() == shape;
    if (given_up_ && is_first) return keep_unbegun(problem);
    ShapeTuner tuner(context, problem, plan_);
    if (!is_first) tuner.resume(report_.shapes[shape]);
    ShapeReport found = options_.refresh ? tuner.refresh(deadline) : tuner.tune(*hints, deadline);
    for (TuneCandidate& best : tuner.best_candidates(kHintsPerShape))
      hints->push_back(std::move(best));
    given_up_ = found.error && budget_is_over();
    bool is_news = is_first;
    if (is_first) {
      report_.shapes.push_back(std::move(found));
    } else {
      is_news = merge(std::move(found), &report_.shapes[shape]);
    }
    if (is_news && options_.finished)
      options_.finished(report_.shapes[shape], shape, shares_.num_shapes());
  }

  void keep_unbegun(const Problem& problem) {
    ShapeReport shape;
    shape.problem = problem;
    shape.note = "the budget ended before this one";
    report_.shapes.push_back(std::move(shape));
  }

  // What a later pass found, added to the shape's report; true when it is another winner.
  static bool merge(ShapeReport later, ShapeReport* shape) {
    const auto config = [](const ShapeReport& of) {
      return of.winner ? of.winner->config.to_text() : std::string();
    };
    if (!later.winner) later.winner = shape->winner;
    const bool is_news = config(later) != config(*shape);
    later.measured = shape->measured + static_cast<int>(later.trials.size() - shape->trials.size());
    later.reused = shape->reused;
    later.seconds += shape->seconds;
    *shape = std::move(later);
    return is_news;
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
    progress.shape = current_;
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
  std::unique_ptr<OpenGroup> open_;
  size_t current_ = 0;
  bool given_up_ = false;  // the budget ended while a measuring process did not answer
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
  any_effort.budget_s = 0;             // that is for tuning
  const std::vector<Group> groups = group_by_spec(problems);
  return TuneLoop(target, backend, store, any_effort, groups).verify(groups, runs);
}

}  // namespace attune
