// SPDX-License-Identifier: Apache-2.0
// Groups problems by spec and shares out the budget; see tune_loop.hpp.
#include "tuner/search/tune_loop.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "cache/winner_rule.hpp"
#include "generator/core/problem/visibility.hpp"
#include "tuner/oracles/reference_kernels.hpp"
#include "tuner/search/shape_tuner.hpp"

namespace attune {
namespace {

constexpr size_t kShapesInTurn = 6;
constexpr size_t kHintsPerShape = 2;
constexpr std::ptrdiff_t kHintingShapes = 2;  // on each side
// per shape; with less, there is only time to open it and for its final race
constexpr double kLeastPassSeconds = 1;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The canonical problems of one spec, each shape once, in the order given.
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

// Shares the remaining time by weight among the unfinished shapes of a pass. The first shape of a
// spec has a larger weight, because it pays for compiling.
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
  // Returns the deadline of this shape's next step. Unused time is shared among unfinished shapes.
  double deadline(size_t shape, double now, double end) const {
    return now + weights_[shape] / left_ * std::max(0.0, end - now);
  }
  void done(size_t shape) { left_ = std::max(left_ - weights_[shape], 1e-9); }

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
        store_(store),
        options_(options),
        groups_(groups),
        plan_(effort_plan(options.effort)),
        shares_(groups, plan_, options.budget_s),
        now_(options.now ? options.now : steady_seconds),
        began_(now_()),
        pool_(target, options.compile_threads, options.trace),
        references_(target),
        context_{target_,
                 backend,
                 pool_,
                 store_,
                 options_,
                 plan_,
                 now_,
                 [this](const Problem& problem) { return references_.of(problem); },
                 [this](Progress progress) { report(std::move(progress)); }} {
    for (const Group& group : groups_)
      for (const Problem& problem : group.problems)
        shapes_.push_back({&group, problem, {}, {}, {}, {}});
    backend.set_patience([this] { return patience_s(); });
  }
  ~TuneLoop() {
    context_.backend.set_patience({});
    pool_.cancel_pending();
  }
  TuneLoop(const TuneLoop&) = delete;
  TuneLoop& operator=(const TuneLoop&) = delete;

  TuneReport run() {
    std::vector<bool> open(shapes_.size(), true);
    size_t known = 0;
    do {
      known = num_trials();
      pass(open);
      for (size_t i = 0; i < shapes_.size(); ++i)
        open[i] = shapes_[i].report && goes_on(*shapes_[i].report);
    } while (num_trials() > known && has_time_for(open));
    TuneReport report;
    for (Shape& shape : shapes_)
      if (shape.report) report.shapes.push_back(std::move(*shape.report));
    report.compiled = pool_.num_compiled();
    report.stored = store_.stored_all();
    report.interrupted = context_.stopped();
    report.seconds = now_() - began_;
    report.budget_s = shares_.total();
    return report;
  }

  std::vector<WinnerCheck> verify(int runs) {
    std::vector<WinnerCheck> checks;
    for (current_ = 0; current_ < shapes_.size() && !context_.stopped(); ++current_) {
      const Shape& shape = shapes_[current_];
      checks.push_back(ShapeTuner(context_, shape.problem, spaces_of(*shape.group)).verify(runs));
    }
    return checks;
  }

 private:
  struct Shape {
    const Group* group;
    Problem problem;
    std::unique_ptr<ShapeTuner> tuner;  // while it is being tuned
    std::vector<TuneCandidate> hints;   // its best so far, for other shapes
    std::vector<TuneCandidate> rivals;  // winners of other shapes that are still to be tried here
    std::optional<ShapeReport> report;  // of the passes so far
  };

  double end() const { return began_ + shares_.total(); }
  bool budget_is_over() const { return options_.budget_s > 0 && now_() >= end(); }
  // Returns how long the backend may still wait. A default budget is only a guess, so it must not
  // end a request that is within the backend's limits.
  double patience_s() const {
    if (context_.stopped()) return 0;
    return options_.budget_s > 0 ? std::max(0.0, end() - now_()) + kGraceSeconds : INFINITY;
  }
  static bool goes_on(const ShapeReport& shape) {
    return !shape.complete && !shape.already_tuned && !shape.error && !shape.trials.empty();
  }
  bool has_time_for(const std::vector<bool>& open) const {
    const auto count = std::count(open.begin(), open.end(), true);
    return count > 0 && !context_.stopped() && !options_.refresh &&
           end() - now_() >= kLeastPassSeconds * static_cast<double>(count);
  }
  size_t num_trials() const {
    size_t sum = 0;
    for (const Shape& shape : shapes_) sum += shape.report ? shape.report->trials.size() : 0;
    return sum;
  }

  std::shared_ptr<SearchSpaces> spaces_of(const Group& group) {
    std::shared_ptr<SearchSpaces>& spaces = spaces_[&group];
    if (!spaces) spaces = std::make_shared<SearchSpaces>(group.spec, target_.families(group.spec));
    return spaces;
  }

  bool is_done(const Group& group) const {
    return std::all_of(shapes_.begin(), shapes_.end(), [&](const Shape& shape) {
      return shape.group != &group || (shape.report && !shape.tuner && !goes_on(*shape.report));
    });
  }

  // Frees the shared data of a spec when all its shapes are done.
  void forget_if_done(const Group& group) {
    if (!is_done(group)) return;
    spaces_.erase(&group);
    pool_.forget(group.spec);
  }

  // Returns how many shapes are tuned in turn, a step each. One shape is measured while the next
  // candidates of the others compile. On a CPU it is 1, because compiling would disturb the timing.
  size_t num_in_turn() const {
    return target_.kind() == Target::kCpu || options_.refresh ? 1 : kShapesInTurn;
  }

  // Gives each open shape its share of the remaining time.
  void pass(const std::vector<bool>& open) {
    shares_.begin_pass(open);
    std::deque<size_t> turn;
    for (size_t next = 0; !context_.stopped();) {
      for (; next < shapes_.size() && turn.size() < num_in_turn(); ++next) {
        if (!open[next]) continue;
        begin(&shapes_[next]);
        turn.push_back(next);
      }
      if (turn.empty()) return;
      current_ = turn.front();
      turn.pop_front();
      if (step(&shapes_[current_])) {
        turn.push_back(current_);
        continue;
      }
      finish(current_);
      const Group& group = *shapes_[current_].group;
      for (const size_t other : shapes_with_rivals(group)) {
        begin(&shapes_[other]);
        turn.push_back(other);
      }
      forget_if_done(group);
    }
    for (current_ = 0; current_ < shapes_.size(); ++current_)
      if (shapes_[current_].tuner) finish(current_);
  }

  // Returns the shapes that have not tried the winners of other shapes. Finds them once per spec,
  // when all its shapes have a winner. Without this, the result would depend on which shape's
  // search happened to try a config.
  std::vector<size_t> shapes_with_rivals(const Group& group) {
    if (options_.refresh || !is_done(group) || !has_met_.insert(&group).second) return {};
    std::vector<const WinnerRecord*> winners;
    for (const Shape& shape : shapes_)
      if (shape.group == &group && shape.report->winner) winners.push_back(&*shape.report->winner);
    std::vector<size_t> found;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      Shape& shape = shapes_[i];
      if (shape.group != &group || !shape.report->winner || shape.report->already_tuned) continue;
      shape.rivals = untried(*shape.report, winners);
      if (!shape.rivals.empty()) found.push_back(i);
    }
    const double seconds = kLeastPassSeconds * static_cast<double>(found.size());
    if (context_.stopped() || end() - now_() < seconds) return {};
    return found;
  }

  // Returns winners of other shapes that may be tried at `shape` but have no trial there.
  std::vector<TuneCandidate> untried(const ShapeReport& shape,
                                     const std::vector<const WinnerRecord*>& winners) {
    const KernelSpec& spec = shape.winner->spec;
    std::vector<TuneCandidate> found;
    std::set<std::string> known;
    for (const TrialRecord& trial : shape.trials) known.insert(trial.config.to_text());
    for (const WinnerRecord* winner : winners)
      for (const Family& family : target_.families(spec))
        if (target_.toolchain(family).digest() == winner->toolchain.digest() &&
            known.insert(winner->config.to_text()).second)
          found.push_back({family, winner->config, false});
    return found;
  }

  void begin(Shape* shape) {
    if (given_up_ && !shape->report) return;
    shape->tuner = std::make_unique<ShapeTuner>(context_, shape->problem, spaces_of(*shape->group));
    if (shape->report) shape->tuner->resume(*shape->report);
    if (num_in_turn() > 1 && !shape->report) shape->tuner->compile_ahead();
  }

  // Makes a step. Returns true if the shape has more to do.
  bool step(Shape* shape) {
    if (given_up_ || !shape->tuner) return false;
    const double deadline = shares_.deadline(current_, now_(), end());
    TraceSpan span(options_.trace, "shape");
    if (span.is_on()) span.name(to_text(shape->problem));
    if (options_.refresh) {
      shape->tuner->refresh(deadline);
      return false;
    }
    if (!shape->rivals.empty()) {
      shape->tuner->meet(shape->rivals, end());
      return false;
    }
    const bool goes_on = shape->tuner->step(hints_for(*shape), deadline);
    shape->hints = shape->tuner->best_candidates(kHintsPerShape);
    return goes_on;
  }

  // Returns good candidates of the nearest shapes of the same spec.
  std::vector<TuneCandidate> hints_for(const Shape& shape) const {
    std::vector<TuneCandidate> hints;
    const auto first = static_cast<std::ptrdiff_t>(current_) - kHintingShapes;
    for (std::ptrdiff_t i = first; i <= first + 2 * kHintingShapes; ++i) {
      if (i < 0 || i >= static_cast<std::ptrdiff_t>(shapes_.size())) continue;
      const Shape& other = shapes_[static_cast<size_t>(i)];
      if (&other == &shape || other.group != shape.group) continue;
      hints.insert(hints.end(), other.hints.begin(), other.hints.end());
    }
    return hints;
  }

  void finish(size_t index) {
    Shape& shape = shapes_[index];
    if (std::exchange(shape.rivals, {}).empty()) shares_.done(index);
    ShapeReport found;
    found.problem = shape.problem;
    if (shape.tuner) found = shape.tuner->finish();
    shape.tuner.reset();
    if (given_up_ && !found.winner && !found.error)
      found.note = "the budget ended before this problem";
    given_up_ = given_up_ || (found.error && budget_is_over());
    const bool is_news = !shape.report || merge(&found, *shape.report);
    shape.report = std::move(found);
    note_noise(&*shape.report);
    if (is_news && options_.finished) options_.finished(*shape.report, index, shares_.num_shapes());
  }

  static void note_noise(ShapeReport* shape) {
    if (!shape->winner || !is_noisy(*shape->winner)) return;
    shape->note += shape->note.empty() ? "" : "; ";
    shape->note +=
        "noisy: its times vary too much to tell kernels apart; a later tune measures it again";
  }

  // Adds an earlier pass's results to a later one's. Returns true if the two passes have different
  // winners.
  static bool merge(ShapeReport* later, const ShapeReport& earlier) {
    const auto config = [](const ShapeReport& of) {
      return of.winner ? of.winner->config.to_text() : std::string();
    };
    if (!later->winner) later->winner = earlier.winner;
    later->measured =
        earlier.measured + static_cast<int>(later->trials.size() - earlier.trials.size());
    later->reused = earlier.reused;
    later->seconds += earlier.seconds;
    return config(*later) != config(earlier);
  }

  void report(Progress progress) const {
    if (!options_.progress) return;
    progress.shape = current_;
    progress.num_shapes = shares_.num_shapes();
    progress.elapsed_s = now_() - began_;
    progress.budget_s = shares_.total();
    options_.progress(progress);
  }

  const TuneTarget& target_;
  StoreWriter store_;
  const TuneOptions& options_;
  const std::vector<Group>& groups_;
  const EffortPlan plan_;
  BudgetShares shares_;
  const std::function<double()> now_;
  const double began_;
  CompilePool pool_;
  ReferenceKernels references_;
  TuneContext context_;
  std::vector<Shape> shapes_;
  std::map<const Group*, std::shared_ptr<SearchSpaces>> spaces_;  // of specs that are not done
  std::set<const Group*> has_met_;  // groups whose shapes have tried each other's winners
  size_t current_ = 0;
  bool given_up_ = false;  // the budget ended while a measuring process did not answer
};

}  // namespace

MeasurePolicy measure_policy() { return {"v2 cold-l2 interleaved, final under load"}; }

bool is_lost(const ShapeReport& shape, const TuneReport& report) {
  if (!shape.error || !shape.trials.empty()) return false;
  const auto was_measured = [](const ShapeReport& other) { return !other.trials.empty(); };
  return !shape.wait_ended ||
         std::none_of(report.shapes.begin(), report.shapes.end(), was_measured);
}

TunePreview preview(const std::vector<Problem>& problems, Effort effort) {
  const BudgetShares shares(group_by_spec(problems), effort_plan(effort), 0);
  return {shares.num_shapes(), shares.total()};
}

TuneReport tune(const TuneTarget& target, MeasureBackend& backend, Store* store,
                const std::vector<Problem>& problems, const TuneOptions& options) {
  const std::vector<Group> groups = group_by_spec(problems);
  return TuneLoop(target, backend, store, options, groups).run();
}

std::vector<WinnerCheck> verify_winners(const TuneTarget& target, MeasureBackend& backend,
                                        Store* store, const std::vector<Problem>& problems,
                                        const TuneOptions& options, int runs) {
  TuneOptions any_effort = options;
  any_effort.effort = Effort::kQuick;  // all stored trials count
  any_effort.budget_s = 0;             // the budget applies to tuning only
  const std::vector<Group> groups = group_by_spec(problems);
  return TuneLoop(target, backend, store, any_effort, groups).verify(runs);
}

}  // namespace attune
