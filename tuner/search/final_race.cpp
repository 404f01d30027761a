// SPDX-License-Identifier: Apache-2.0
// The deciding race under load; see final_race.hpp.
#include "tuner/search/final_race.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cache/winner_rule.hpp"

namespace attune {
namespace {

// Relative to the best. Exploring takes few samples, so a candidate that seems this much slower may
// still win.
constexpr double kMargin = 1.03;
constexpr int kBatch = 3;          // rounds between two checks of the intervals
constexpr int kHalvingRounds = 6;  // intervals are meaningful from here on
constexpr int kSureSamples = 9;
constexpr int kResolvedSamples = 12;
constexpr double kResolvedWidth = 0.004;  // relative; far inside the tie band
constexpr size_t kRefreshed = 3;
// Boards reach their power limit within this time. Clocks have settled when the last
// kSettlingRounds rounds have the same mean clock as the rounds before.
constexpr double kLeastWarmSeconds = 0.08;
constexpr double kMostWarmSeconds = 0.3;
constexpr double kSettled = 0.01;
constexpr size_t kSettlingRounds = 4;
constexpr double kWarmShare = 0.2;  // at most, of the time left

bool contains(const TrialList& trials, const Trial* trial) {
  return std::find(trials.begin(), trials.end(), trial) != trials.end();
}

bool is_winner(const Trial& trial, const WinnerRecord& winner) {
  return trial.record.config == winner.config &&
         trial.record.toolchain.digest() == winner.toolchain.digest();
}

double mean(std::vector<int>::const_iterator from, std::vector<int>::const_iterator to) {
  double sum = 0;
  for (auto at = from; at != to; ++at) sum += *at;
  return sum / static_cast<double>(to - from);
}

// True if clocks have settled. Clocks that cannot be read count as settled.
bool have_settled(const std::vector<int>& clocks) {
  if (clocks.size() < 2 * kSettlingRounds) return false;
  const auto later = clocks.end() - kSettlingRounds;
  const double now = mean(later, clocks.end()), before = mean(later - kSettlingRounds, later);
  return std::abs(now - before) <= kSettled * before;
}

WinnerRecord winner_record(const TuningKey& key, const std::vector<TrialRecord>& raced,
                           const WinnerChoice& choice, int candidates, const std::string& created) {
  const TrialRecord& best = raced[choice.index];
  WinnerRecord winner;
  winner.spec = key.spec;
  winner.shape = key.shape;
  winner.device = key.device;
  winner.policy = key.policy;
  winner.toolchain = best.toolchain;
  winner.arch = best.arch;
  winner.config = best.config;
  winner.timing = best.timing;
  for (const TrialRecord& trial : raced) {
    if (!trial.is_default) continue;
    winner.default_timing = trial.timing;
    winner.default_config = trial.config;
  }
  winner.default_is_winner = best.is_default;
  winner.effort = best.effort;
  winner.candidates = candidates;
  winner.why = choice.why;
  winner.conditions = key.device.conditions;
  winner.created = created;
  return winner;
}

}  // namespace

TrialList finalists(Trials& trials, int count) {
  TrialList chosen;
  const TrialList order = trials.ranking();
  if (order.empty()) return chosen;
  Trial* const usual = trials.default_trial();
  const auto now_us = [](const Trial* trial, double us) { return trial->drift * us; };
  const double limit = now_us(order.front(), order.front()->record.timing.hi_us) * kMargin;
  for (Trial* trial : order)
    if (trial != usual && chosen.size() < static_cast<size_t>(count) &&
        now_us(trial, trial->record.timing.lo_us) <= limit)
      chosen.push_back(trial);
  if (usual != nullptr && usual->is_timed()) chosen.insert(chosen.begin(), usual);
  return chosen;
}

// Adds the winner by name, because it may rank low: its time is from a final race, and the others'
// times may be from a quieter moment.
TrialList top_and_default(Trials& trials, const WinnerRecord& winner) {
  trials.add_known();
  TrialList chosen{&trials.add(default_candidate(trials.task()))};
  const TrialList order = trials.ranking();
  for (Trial* trial : order)
    if (!contains(chosen, trial) && is_winner(*trial, winner)) chosen.push_back(trial);
  for (Trial* trial : order)
    if (chosen.size() <= kRefreshed && !contains(chosen, trial)) chosen.push_back(trial);
  return chosen;
}

FinalRace::FinalRace(TuneContext& context, Trials& trials, uint64_t seed)
    : context_(context),
      trials_(trials),
      race_(context.backend, {.seed = seed, .sample_us = kSustainedSampleUs, .stop = [&context] {
                                return context.stopped();
                              }}) {}

void FinalRace::run(TrialList contestants, const StepTime& time) {
  TraceSpan span(context_.options.trace, "final");
  if (span.is_on()) span.name("final of " + std::to_string(contestants.size()));
  std::erase_if(contestants,
                [&](Trial* trial) { return trials_.make_live(*trial, INFINITY) != Load::kLive; });
  contestants_ = active_ = std::move(contestants);
  warm_up(time);
  const EffortPlan& plan = context_.plan;
  const double began = context_.now();
  for (int done = 0; !active_.empty() && !context_.stopped();) {
    const int made = trials_.race(&race_, active_, kBatch);
    if (made == 0) break;
    done += made;
    std::erase_if(active_, [](const Trial* trial) { return !trial->works(); });
    if (done >= kHalvingRounds) leave_slow_ones_out();
    if (is_resolved() || is_default_sure()) break;
    if (done >= plan.final_rounds && context_.now() - began >= plan.final_s) break;
    if (context_.now() >= time.deadline) {
      was_cut_ = true;
      break;
    }
  }
}

// Runs and discards rounds until the device reaches its state under sustained load.
void FinalRace::warm_up(const StepTime& time) {
  const double began = context_.now();
  const double most_s = std::min(kMostWarmSeconds, kWarmShare * (time.deadline - began));
  std::vector<int> clocks;
  while (!active_.empty() && !context_.stopped()) {
    const double warm_s = context_.now() - began;
    if (warm_s >= most_s || (warm_s >= kLeastWarmSeconds && have_settled(clocks))) break;
    clocks.push_back(trials_.warm_up(&race_, active_));
    std::erase_if(active_, [](const Trial* trial) { return !trial->works(); });
  }
}

void FinalRace::leave_slow_ones_out() {
  const std::vector<int> alive = race_.survivors(ids_of(active_));
  std::erase_if(active_, [&](const Trial* trial) {
    return trial != trials_.default_trial() &&
           std::find(alive.begin(), alive.end(), trial->id) == alive.end();
  });
}

bool FinalRace::is_resolved() const {
  return std::all_of(active_.begin(), active_.end(), [&](const Trial* trial) {
    const Timing timing = race_.timing(trial->id);
    return timing.samples >= kResolvedSamples &&
           timing.hi_us - timing.lo_us <= kResolvedWidth * timing.median_us;
  });
}

// True if no other candidate can be fast enough to replace the default.
bool FinalRace::is_default_sure() const {
  const Trial* const usual = trials_.default_trial();
  if (!contains(active_, usual)) return false;
  const Timing timing = race_.timing(usual->id);
  return timing.samples >= kSureSamples &&
         std::all_of(active_.begin(), active_.end(), [&](const Trial* trial) {
           return timing.hi_us <= (1 + kTieBand) * race_.timing(trial->id).lo_us;
         });
}

bool FinalRace::is_timed(const Trial& trial) const {
  return trial.works() && race_.num_samples(trial.id) > 0;
}

std::optional<WinnerRecord> FinalRace::decide(bool search_complete) {
  std::vector<TrialRecord> raced;
  double next_us = INFINITY;
  const std::string now = utc_now();
  for (Trial* trial : contestants_) {
    if (!is_timed(*trial)) continue;
    const Timing timing = race_.timing(trial->id);
    trials_.record_timing(*trial, timing, now);
    if (contains(active_, trial))
      raced.push_back(trial->record);
    else
      next_us = std::min(next_us, timing.median_us);
  }
  std::optional<WinnerChoice> choice = choose_winner(raced);
  if (!choice) return std::nullopt;
  for (size_t i = 0; i < raced.size(); ++i)
    if (i != choice->index) next_us = std::min(next_us, raced[i].timing.median_us);
  const double gain = next_us / raced[choice->index].timing.median_us - 1;
  if (std::isfinite(gain) && choice->tied == 1)
    choice->why = fmt::format("fastest by {:.1f} %", 100 * std::max(gain, 0.0));
  const auto timed = static_cast<int>(trials_.ranking().size());
  WinnerRecord winner = winner_record(trials_.book().key(), raced, *choice, timed, now);
  winner.complete = search_complete && !was_cut_;
  trials_.book().put_winner(winner);
  for (const Trial* trial : contestants_)
    if (is_winner(*trial, winner) || trial == trials_.default_trial())
      if (trial->compiled && trial->compiled->image)
        trials_.book().put_image(
            trial->record,
            context_.target.source_digest(trials_.book().key().spec, trial->candidate),
            *trial->compiled->image);
  return winner;
}

void FinalRace::add_run(WinnerCheck* check) const {
  std::vector<TrialRecord> raced;
  double fastest_us = INFINITY, winner_us = INFINITY;
  for (const Trial* trial : contestants_) {
    if (!is_timed(*trial)) continue;
    TrialRecord record = trial->record;
    record.timing = race_.timing(trial->id);
    fastest_us = std::min(fastest_us, record.timing.median_us);
    if (is_winner(*trial, *check->winner)) winner_us = record.timing.median_us;
    if (contains(active_, trial)) raced.push_back(std::move(record));
  }
  const std::optional<WinnerChoice> choice = choose_winner(raced);
  if (!choice || !std::isfinite(winner_us)) {
    check->note = "the stored winner no longer runs here";
    return;
  }
  const double regret = winner_us / fastest_us - 1;
  check->mean_regret = (check->mean_regret * check->runs + regret) / (check->runs + 1);
  check->worst_regret = std::max(check->worst_regret, regret);
  ++check->runs;
  if (raced[choice->index].config == check->winner->config) return;
  ++check->flips;
  check->others.push_back(raced[choice->index].config.to_text());
}

}  // namespace attune
