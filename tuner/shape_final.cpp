// SPDX-License-Identifier: Apache-2.0
// The final of a ShapeTuner: what may be the fastest is timed again beside the default, and the
// winner rule decides on those timings alone. See shape_tuner.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cache/winner_rule.hpp"
#include "tuner/shape_tuner.hpp"

namespace attune {
namespace {

constexpr double kMargin =
    1.03;                  // exploring takes few samples: this much behind the best may still win
constexpr int kBatch = 3;  // rounds between two looks at the intervals
constexpr int kHalvingRounds = 6;  // intervals mean something from here on
constexpr int kResolvedSamples = 12;
constexpr double kResolvedWidth = 0.004;  // relative; far inside the tie band
constexpr size_t kRefreshed = 3;

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
  winner.driver = key.device.driver;
  winner.created = created;
  return winner;
}

}  // namespace

// The default, and those within the margin of the best, fastest first.
std::vector<int> ShapeTuner::finalists() const {
  std::vector<int> ids;
  const std::vector<int> order = ranking();
  if (order.empty()) return ids;
  const double limit = entries_.at(order.front()).record.timing.hi_us * kMargin;
  for (int id : order) {
    if (id == default_id_ || ids.size() == static_cast<size_t>(plan_.finalists)) continue;
    if (entries_.at(id).record.timing.lo_us <= limit) ids.push_back(id);
  }
  if (default_id_ >= 0 && is_ok(entries_.at(default_id_))) ids.insert(ids.begin(), default_id_);
  return ids;
}

// Takes out of `ids` what does not work any more; returns those that stayed to the end.
std::vector<int> ShapeTuner::final_race(std::vector<int>* ids) {
  std::erase_if(*ids, [&](int id) { return !make_live(id, INFINITY); });
  race_->clear(*ids);
  std::vector<int> active = *ids;
  const double began = context_.now();
  for (int done = 0; !active.empty() && !stopped();) {
    const int made = race(active, kBatch);
    if (made == 0) break;
    done += made;
    std::erase_if(active,
                  [&](int id) { return entries_.at(id).record.status != TrialStatus::kOk; });
    if (done >= kHalvingRounds) {
      const std::vector<int> alive = race_->survivors(active);
      std::erase_if(active, [&](int id) {
        return id != default_id_ && std::find(alive.begin(), alive.end(), id) == alive.end();
      });
    }
    if (resolved(active)) break;
    if (done >= plan_.final_rounds && context_.now() - began >= plan_.final_s) break;
    if (context_.now() >= deadline_) {
      cut_ = true;
      break;
    }
  }
  return active;
}

bool ShapeTuner::resolved(const std::vector<int>& ids) const {
  return std::all_of(ids.begin(), ids.end(), [&](int id) {
    const Timing timing = race_->timing(id);
    return timing.samples >= kResolvedSamples &&
           timing.hi_us - timing.lo_us <= kResolvedWidth * timing.median_us;
  });
}

// Only those that stayed to the end can win: the others were surely slower, and their few samples
// are of another time.
void ShapeTuner::decide(const std::vector<int>& ids, const std::vector<int>& stayed,
                        bool search_complete) {
  std::vector<TrialRecord> raced;
  double next_us = INFINITY;
  const std::string now = utc_now();
  for (int id : ids) {
    const Entry& entry = entries_.at(id);
    if (entry.record.status != TrialStatus::kOk || race_->num_samples(id) == 0) continue;
    record_timing(id, race_->timing(id), now);
    if (std::find(stayed.begin(), stayed.end(), id) != stayed.end())
      raced.push_back(entry.record);
    else
      next_us = std::min(next_us, entry.record.timing.median_us);
  }
  std::optional<WinnerChoice> choice = choose_winner(raced);
  if (!choice) {
    report_.note = "no candidate works";
    report_.complete = search_complete;
    return;
  }
  for (size_t i = 0; i < raced.size(); ++i)
    if (i != choice->index) next_us = std::min(next_us, raced[i].timing.median_us);
  const double gain = next_us / raced[choice->index].timing.median_us - 1;
  if (std::isfinite(gain) && choice->tied == 1)
    choice->why = fmt::format("fastest by {:.1f} %", 100 * std::max(gain, 0.0));
  WinnerRecord winner =
      winner_record(book_.key(), raced, *choice, static_cast<int>(ranking().size()), now);
  winner.complete = search_complete;
  book_.put_winner(winner);
  for (int id : ids) {
    const Entry& entry = entries_.at(id);
    if (!is_winner(entry, winner) && id != default_id_) continue;
    if (const auto compiled = context_.pool.wait(entry.candidate, 0); compiled && compiled->image)
      book_.put_image(entry.record, *compiled->image);
  }
  report_.winner = winner;
  report_.complete = !cut_;
}

bool ShapeTuner::is_winner(const Entry& entry, const WinnerRecord& winner) const {
  return entry.record.config == winner.config &&
         entry.record.toolchain.digest() == winner.toolchain.digest();
}

// The default, the stored winner and the fastest of what is known. The winner may not be among
// these: its timing is of the final, theirs may be of a quieter moment.
std::vector<int> ShapeTuner::top_and_default(const WinnerRecord& winner) {
  add_known();
  std::vector<int> ids{add(default_candidate(task_))};
  const std::vector<int> order = ranking();
  for (int id : order)
    if (id != default_id_ && is_winner(entries_.at(id), winner)) ids.push_back(id);
  for (int id : order)
    if (ids.size() <= kRefreshed && std::find(ids.begin(), ids.end(), id) == ids.end())
      ids.push_back(id);
  return ids;
}

ShapeReport ShapeTuner::refresh(double deadline) {
  set_deadline(deadline);
  const std::optional<WinnerRecord> former = book_.stored_winner();
  if (!former || task_.spaces->families().empty()) {
    report_.note = "not tuned yet: nothing to refresh";
    return finish();
  }
  effort_ = former->effort;
  std::vector<int> ids = top_and_default(*former);
  guarded([&] {
    open();
    const std::vector<int> stayed = final_race(&ids);
    if (!stopped()) decide(ids, stayed, former->complete);
  });
  return finish();
}

WinnerCheck ShapeTuner::verify(int runs) {
  set_deadline(INFINITY);
  book_.stop_storing();
  WinnerCheck check;
  check.problem = problem_;
  check.winner = book_.stored_winner();
  if (!check.winner) check.note = "not tuned yet: nothing to verify";
  const std::vector<int> contenders =
      check.winner ? top_and_default(*check.winner) : std::vector<int>{};
  for (int run = 0; run < runs && check.winner && !stopped(); ++run) {
    context_.backend.restart();
    for (auto& [unused, entry] : entries_) entry.live = false;
    start_race(context_.options.seed + 1 + static_cast<uint64_t>(run));
    guarded([&] {
      std::vector<int> ids = contenders;
      open();
      const std::vector<int> stayed = final_race(&ids);
      if (!stopped()) add_run(ids, stayed, &check);
    });
  }
  if (check.note.empty()) check.note = finish().note;
  return check;
}

// What the rule would choose on this run's timings, and what the stored choice costs by them.
void ShapeTuner::add_run(const std::vector<int>& ids, const std::vector<int>& stayed,
                         WinnerCheck* check) const {
  std::vector<TrialRecord> raced;
  double fastest_us = INFINITY, winner_us = INFINITY;
  for (int id : ids) {
    if (race_->num_samples(id) == 0 || entries_.at(id).record.status != TrialStatus::kOk) continue;
    TrialRecord trial = entries_.at(id).record;
    trial.timing = race_->timing(id);
    fastest_us = std::min(fastest_us, trial.timing.median_us);
    if (is_winner(entries_.at(id), *check->winner)) winner_us = trial.timing.median_us;
    if (std::find(stayed.begin(), stayed.end(), id) != stayed.end())
      raced.push_back(std::move(trial));
  }
  const std::optional<WinnerChoice> choice = choose_winner(raced);
  if (!choice || !std::isfinite(winner_us)) {
    check->note = "the stored winner does not run here any more";
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
