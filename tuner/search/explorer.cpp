// SPDX-License-Identifier: Apache-2.0
// Races candidates in waves; see explorer.hpp.
#include "tuner/search/explorer.hpp"

#include <algorithm>
#include <cmath>

namespace attune {
namespace {

constexpr double kFinalShare = 0.3;  // most of a step's time that is kept for the final race
constexpr double kFinalSlack = 1.3;  // relative to the time of its samples alone
constexpr double kTalkUs = 100;      // per sample, for messages to and from the measuring process
constexpr int kFirstRounds = 3;
constexpr int kPasses = 4;
constexpr double kHopeless = 3;  // times the best estimate: recorded, never raced
constexpr double kGain = 0.995;  // a wave that gains less is the last one
constexpr size_t kCentres = 3;

}  // namespace

Explorer::Explorer(TuneContext& context, Trials& trials)
    : context_(context),
      trials_(trials),
      race_(context.backend,
            {.seed = context.options.seed ^ std::hash<std::string>{}(to_text(trials.problem())),
             .stop = [&context] { return context.stopped(); }}) {}

std::vector<TuneCandidate> Explorer::first_wave(const std::vector<TuneCandidate>& hints) const {
  const SearchTask& task = trials_.task();
  if (task.spaces->families().empty()) return {};
  return first_candidates(task, context_.plan, context_.options.seed, hints);
}

void Explorer::propose(const std::vector<TuneCandidate>& candidates) {
  std::vector<TuneCandidate> wanted;
  for (const TuneCandidate& candidate : candidates) {
    Trial& trial = trials_.add(candidate);
    if (!trial.works() || trial.is_timed()) continue;
    if (std::find(proposed_.begin(), proposed_.end(), &trial) != proposed_.end()) continue;
    proposed_.push_back(&trial);
    wanted.push_back(candidate);
  }
  context_.pool.hasten(trials_.task().spaces->spec(), wanted);
}

// Returns when exploring must end. The final race gets the time that it needs, estimated from the
// best candidate's speed. The search gets the rest.
double Explorer::until(const StepTime& time) const {
  const EffortPlan& plan = context_.plan;
  const double most_s = kFinalShare * (time.deadline - time.began);
  const double sample_us = std::max(trials_.best_us(), kSustainedSampleUs) + kTalkUs;
  const double round_s = 1e-6 * sample_us * (plan.finalists + 1);
  const double final_s = kFinalSlack * std::max(plan.final_s, plan.final_rounds * round_s);
  return time.deadline - std::min(most_s, final_s);
}

bool Explorer::is_over(const StepTime& time) const {
  return context_.stopped() || context_.now() >= until(time);
}

bool Explorer::wave(const StepTime& time) {
  try_proposed(time);
  return propose_neighbours(time);
}

void Explorer::try_proposed(const StepTime& time) {
  TrialList racing = trials_.live();
  // Leaders of earlier waves are timed again together with the new candidates, because the device's
  // speed drifts between waves.
  race_.clear();
  const size_t num_leaders = racing.size();
  for (Trial* trial : std::exchange(proposed_, {}))
    if (enter(*trial, time)) racing.push_back(trial);
  if (racing.size() > num_leaders) race(racing, time);
  keep_leaders();
}

// Makes a new candidate ready to race. Returns false if it was timed before, failed, is hopeless,
// or comes after the end of the search.
bool Explorer::enter(Trial& trial, const StepTime& time) {
  const bool is_default = trial.candidate.is_default;
  if (!trial.works() || trial.is_timed()) return false;
  if (!is_default && is_over(time)) {
    was_cut_ = true;
    return false;
  }
  const double best_us = trials_.best_us();
  const Load load = trials_.make_live(trial, is_default ? INFINITY : until(time));
  was_cut_ = was_cut_ || load == Load::kLate;
  if (load != Load::kLive) return false;
  const double us = trial.estimate_us;
  if (is_default || us < kHopeless * best_us) return true;
  trials_.record_timing(trial, Timing{us, us, us, us, 1, 0}, utc_now());
  trials_.drop(trial);
  return false;
}

// Successive halving: times all candidates for a few rounds, then the survivors for a few more,
// until few enough for a final race remain. The new times of former leaders then show how much the
// device drifted.
void Explorer::race(const TrialList& trials, const StepTime& time) {
  TrialList alive = trials;
  for (int pass = 0; pass < kPasses && !alive.empty(); ++pass) {
    trials_.race(&race_, alive, kFirstRounds);
    const std::vector<int> ids = race_.survivors(ids_of(alive));
    std::erase_if(alive, [&](const Trial* trial) {
      return std::find(ids.begin(), ids.end(), trial->id) == ids.end();
    });
    const bool is_final_worth = alive.size() <= static_cast<size_t>(context_.plan.finalists);
    if ((pass > 0 && is_final_worth) || is_over(time)) break;
  }
  const std::string now = utc_now();
  std::vector<double> factors;
  for (Trial* trial : trials) {
    if (!trial->live || race_.num_samples(trial->id) == 0) continue;
    const double before_us = trial->is_timed() ? trial->explored_us() : 0;
    trials_.record_timing(*trial, race_.timing(trial->id), now);
    if (before_us > 0) factors.push_back(trial->explored_us() / before_us);
  }
  if (factors.empty()) return;
  const auto middle = factors.begin() + static_cast<std::ptrdiff_t>(factors.size() / 2);
  std::nth_element(factors.begin(), middle, factors.end());
  trials_.drift(trials, *middle);
  best_before_us_ *= *middle;
}

// Keeps the kernels loaded that may reach the final race, so that the next wave races against them.
void Explorer::keep_leaders() {
  TrialList leaders = trials_.ranking();
  leaders.resize(std::min(leaders.size(), static_cast<size_t>(context_.plan.finalists)));
  for (Trial* trial : trials_.live())
    if (trial != trials_.default_trial() &&
        std::find(leaders.begin(), leaders.end(), trial) == leaders.end())
      trials_.drop(*trial);
}

bool Explorer::propose_neighbours(const StepTime& time) {
  const double best_us = trials_.best_us();
  const bool gained = best_us < best_before_us_ * kGain;
  if (context_.stopped() || num_waves_++ == context_.plan.waves || !gained) return false;
  best_before_us_ = best_us;
  const std::vector<TuneCandidate> next = neighbourhood(
      trials_.task(), trials_.best_candidates(kCentres), trials_.texts(), context_.plan.wave_size);
  if (next.empty()) return false;
  if (is_over(time)) {
    was_cut_ = true;
    return false;
  }
  propose(next);
  return true;
}

}  // namespace attune
