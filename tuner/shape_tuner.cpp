// SPDX-License-Identifier: Apache-2.0
// Exploring the candidates of one (spec, shape); the final is in shape_final.cpp. See
// shape_tuner.hpp.
#include "tuner/shape_tuner.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "generator/core/error.hpp"
#include "tuner/quantise_check.hpp"

namespace attune {
namespace {

constexpr double kFinalShare = 0.3;  // of a shape's budget, at most, is kept for the final
constexpr double kFinalSlack = 1.3;  // over what its samples alone take
constexpr double kSampleUs =
    300;  // the least that a sample takes, the talk with its process included
constexpr int kFirstRounds = 3;
constexpr int kPasses = 4;
constexpr double kHopeless = 3;  // times the best estimate: recorded as that, never raced
constexpr double kGain = 0.995;  // a wave of neighbours that gains less is the last
constexpr size_t kCentres = 3;
constexpr int kFewSamples = 6;

// Outliers are slow ones: of a few samples the smallest says more than the median.
double explored_us(const Timing& timing) {
  return timing.samples < kFewSamples ? timing.min_us : timing.median_us;
}

std::set<std::string> toolchain_digests(const TuneTarget& target,
                                        const std::vector<Family>& families) {
  std::set<std::string> digests;
  for (const Family& family : families) digests.insert(target.toolchain(family).digest());
  return digests;
}

}  // namespace

ShapeTuner::ShapeTuner(TuneContext& context, const Problem& problem, const EffortPlan& plan)
    : context_(context),
      problem_(problem),
      plan_(plan),
      task_{context.spaces, shape_of(problem), context.target.facts()},
      effort_(context.options.effort),
      book_(context.store,
            {task_.spaces->spec(), task_.shape, context.target.identity(), measure_policy()},
            toolchain_digests(context.target, task_.spaces->families()),
            context.options.refresh ? Effort::kQuick : effort_, context.options.retry_failed) {
  report_.problem = problem;
  start_race(context.options.seed);
}

void ShapeTuner::start_race(uint64_t seed) {
  RaceOptions race_options;
  race_options.seed = seed ^ std::hash<std::string>{}(to_text(problem_));
  race_options.stop = [this] { return stopped(); };
  race_ = std::make_unique<Race>(context_.backend, race_options);
}

std::vector<TuneCandidate> ShapeTuner::first_wave(const std::vector<TuneCandidate>& hints) const {
  return task_.spaces->families().empty()
             ? std::vector<TuneCandidate>{}
             : first_candidates(task_, plan_, context_.options.seed, hints);
}

std::vector<TuneCandidate> ShapeTuner::unknown(std::vector<TuneCandidate> candidates) const {
  std::erase_if(candidates, [&](const TuneCandidate& c) {
    return book_.find(c, context_.target.toolchain(c.family)) != nullptr;
  });
  return candidates;
}

void ShapeTuner::set_deadline(double deadline) {
  began_ = context_.now();
  deadline_ = deadline;
}

// The final gets what it will need by what the best takes now, not more: the rest is the search's.
double ShapeTuner::explore_until() const {
  const double most_s = kFinalShare * (deadline_ - began_);
  const double round_s = 1e-6 * std::max(best_us(), kSampleUs) * (plan_.finalists + 1);
  const double final_s = kFinalSlack * std::max(plan_.final_s, plan_.final_rounds * round_s);
  return deadline_ - std::min(most_s, final_s);
}

void ShapeTuner::resume(const ShapeReport& earlier) {
  book_.recall(earlier.trials);
  earlier_winner_ = earlier.winner;
}

ShapeReport ShapeTuner::tune(const std::vector<TuneCandidate>& hints, double deadline) {
  set_deadline(deadline);
  const std::vector<TuneCandidate> first = first_wave(hints);
  if (first.empty()) {
    report_.note = "only the reference kernel serves this problem here: nothing to tune";
    report_.complete = true;
    return finish();
  }
  add_known();
  if (report_.winner = settled(); report_.winner) {
    report_.already_tuned = report_.complete = true;
    if (report_.winner->driver != context_.target.identity().driver)
      report_.note =
          "measured with driver " + report_.winner->driver + "; --refresh times it again";
    return finish();
  }
  guarded([&] {
    open();
    explore(first);
    if (stopped()) return;
    const bool search_complete = !cut_;
    if (cut_ && report_.measured == 0) report_.winner = former_winner();
    if (report_.winner) return;  // no time for anything new: that final stands
    std::vector<int> ids = finalists();
    const std::vector<int> stayed = final_race(&ids);
    if (!stopped()) decide(ids, stayed, search_complete && !cut_);
  });
  if (cut_ && report_.note.empty())
    report_.note = context_.options.budget_s > 0 ? "the budget ended the search"
                                                 : "the default budget ended the search";
  return finish();
}

// A device or worker that is lost for good ends this shape; what was measured stays.
void ShapeTuner::guarded(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    report_.note = error.what();
    report_.error = error.code();
  }
}

// Of an earlier pass, else of an earlier tune of at least this effort by one of today's toolchains.
std::optional<WinnerRecord> ShapeTuner::former_winner() const {
  if (earlier_winner_) return earlier_winner_;
  std::optional<WinnerRecord> winner = book_.stored_winner();
  if (!winner || winner->effort < effort_) return std::nullopt;
  const auto is_current = [&](const Family& f) {
    return context_.target.toolchain(f).digest() == winner->toolchain.digest();
  };
  if (!std::any_of(task_.spaces->families().begin(), task_.spaces->families().end(), is_current))
    return std::nullopt;
  return winner;
}

// The stored winner when the search came to its end before, and would begin with nothing new.
// (Hints of other shapes do not count: those move with every tune of theirs.)
std::optional<WinnerRecord> ShapeTuner::settled() const {
  std::optional<WinnerRecord> winner = former_winner();
  if (!winner || !winner->complete || !unknown(first_wave({})).empty()) return std::nullopt;
  return winner;
}

void ShapeTuner::open() {
  progress("opening");
  const MeasureTask task{problem_, context_.options.seed, context_.oracle(problem_)};
  if (!task.reference && !is_checked_on_host(problem_))
    throw Error(ErrorCode::kUnsupported,
                "no reference kernel serves this problem: results cannot be checked");
  context_.backend.open(task);
}

void ShapeTuner::explore(const std::vector<TuneCandidate>& first) {
  wave(first);
  double before = INFINITY;
  for (int waves = 0; waves < plan_.waves && best_us() < before * kGain && !stopped(); ++waves) {
    before = best_us();
    std::set<std::string> tried;
    for (const auto& [text, unused] : ids_) tried.insert(text);
    const std::vector<TuneCandidate> next =
        neighbourhood(task_, best_candidates(kCentres), tried, plan_.wave_size);
    if (next.empty()) break;
    if (exploring_is_over()) {
      cut_ = true;
      break;
    }
    wave(next);
  }
}

void ShapeTuner::wave(const std::vector<TuneCandidate>& candidates) {
  std::vector<int> ids;
  for (const TuneCandidate& candidate : candidates) {
    ids.push_back(add(candidate));
    if (entries_.at(ids.back()).record.timing.samples == 0 &&
        entries_.at(ids.back()).record.status == TrialStatus::kOk)
      context_.pool.submit(candidate);
  }
  std::vector<int> racing;
  for (const auto& [id, entry] : entries_)
    if (entry.live) racing.push_back(id);
  race_->clear(racing);  // leaders of former waves are timed again beside the new ones: nothing is
                         // compared across drift
  const size_t num_leaders = racing.size();
  for (int id : ids)
    if (enter(id)) racing.push_back(id);
  if (racing.size() > num_leaders) explore_race(racing);
  keep_leaders();
}

// Successive halving: a few rounds for all, a few more for those that may still be the fastest,
// down to a final's worth.
void ShapeTuner::explore_race(const std::vector<int>& ids) {
  std::vector<int> alive = ids;
  for (int pass = 0; pass < kPasses && !alive.empty(); ++pass) {
    race(alive, kFirstRounds);
    alive = race_->survivors(alive);
    if ((pass > 0 && alive.size() <= static_cast<size_t>(plan_.finalists)) || exploring_is_over())
      break;
  }
  const std::string now = utc_now();
  for (int id : ids)
    if (race_->num_samples(id) > 0 && entries_.at(id).live)
      record_timing(id, race_->timing(id), now);
}

// What the store has of this key takes part from the beginning: a tune that was interrupted goes on
// exactly there.
void ShapeTuner::add_known() {
  for (const TrialRecord& trial : book_.sorted())
    for (const Family& family : task_.spaces->families())
      if (family.kernel_template->name() == trial.toolchain.template_name &&
          family.arch.name() == trial.arch)
        add({family, trial.config, false});
}

// Registers a candidate once, with what the book knows of it.
int ShapeTuner::add(const TuneCandidate& candidate) {
  const auto [place, is_new] = ids_.emplace(candidate.text(), static_cast<int>(ids_.size()));
  const int id = place->second;
  Entry& entry = entries_[id];
  if (is_new) {
    entry.candidate = candidate;
    entry.record.toolchain = context_.target.toolchain(candidate.family);
    entry.record.arch = candidate.family.arch.name();
    entry.record.config = candidate.config;
    entry.record.effort = effort_;
    if (const TrialRecord* known = book_.find(candidate, entry.record.toolchain)) {
      entry.record = *known;
      ++report_.reused;
    }
    entry.record.is_default = false;
  }
  if (candidate.is_default) {
    entry.candidate.is_default = entry.record.is_default = true;
    default_id_ = id;
  }
  return id;
}

// Makes a new candidate ready to race; false when it is known already, failed, is hopeless, or time
// is over.
bool ShapeTuner::enter(int id) {
  Entry& entry = entries_.at(id);
  if (entry.record.status != TrialStatus::kOk || entry.record.timing.samples > 0) return false;
  if (!entry.candidate.is_default && exploring_is_over()) {
    cut_ = true;
    return false;
  }
  const double best = best_us();
  if (!make_live(id, entry.candidate.is_default ? INFINITY : explore_until())) return false;
  if (entry.candidate.is_default || entry.estimate_us < kHopeless * best) return true;
  const double us = entry.estimate_us;
  record_timing(id, Timing{us, us, us, us, 1, 0}, utc_now());
  drop(id);
  return false;
}

// Keeps loaded what may reach the final, so that the next wave races against it.
void ShapeTuner::keep_leaders() {
  std::set<int> keep{default_id_};
  for (int id : ranking())
    if (keep.size() < static_cast<size_t>(plan_.finalists) + 1) keep.insert(id);
  for (const auto& [id, entry] : entries_)
    if (entry.live && keep.count(id) == 0) drop(id);
}

std::vector<int> ShapeTuner::ranking() const {
  std::vector<int> ids;
  for (const auto& [id, entry] : entries_)
    if (is_ok(entry)) ids.push_back(id);
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) {
    return explored_us(entries_.at(a).record.timing) < explored_us(entries_.at(b).record.timing);
  });
  return ids;
}

std::vector<TuneCandidate> ShapeTuner::best_candidates(size_t count) const {
  std::vector<TuneCandidate> best;
  for (int id : ranking()) {
    if (best.size() == count) break;
    best.push_back(entries_.at(id).candidate);
    best.back().is_default = false;
  }
  return best;
}

// By record, or by the estimate of what is loaded but not raced yet.
double ShapeTuner::best_us() const {
  double best = INFINITY;
  for (const auto& [unused, entry] : entries_) {
    if (is_ok(entry))
      best = std::min(best, explored_us(entry.record.timing));
    else if (entry.live)
      best = std::min(best, entry.estimate_us);
  }
  return best;
}

void ShapeTuner::progress(const char* phase) const {
  Progress progress;
  progress.problem = problem_;
  progress.phase = phase;
  progress.tried = report_.measured;
  const std::vector<int> order = ranking();
  if (!order.empty()) {
    progress.best_us = entries_.at(order.front()).record.timing.median_us;
    progress.best = entries_.at(order.front()).candidate.config.to_text();
  }
  if (default_id_ >= 0) progress.default_us = entries_.at(default_id_).record.timing.median_us;
  context_.report(progress);
}

ShapeReport ShapeTuner::finish() {
  for (auto& [id, entry] : entries_)
    if (entry.live) drop(id);
  report_.trials = book_.sorted();
  report_.seconds = context_.now() - began_;
  return report_;
}

}  // namespace attune
