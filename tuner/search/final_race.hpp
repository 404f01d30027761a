// SPDX-License-Identifier: Apache-2.0
// FinalRace: times the leading candidates of one (spec, shape) again, together with the default,
// under sustained load. The winner rule decides by these timings alone. Used by ShapeTuner.
#pragma once

#include <optional>

#include "tuner/search/trials.hpp"

namespace attune {

// Returns the default, then at most `count` others that are within a margin of the best, fastest
// first.
TrialList finalists(Trials& trials, int count);
// Returns the default, the stored winner, and the fastest of the other known candidates.
TrialList top_and_default(Trials& trials, const WinnerRecord& winner);

class FinalRace {
 public:
  FinalRace(TuneContext& context, Trials& trials, uint64_t seed);

  void run(TrialList contestants, const StepTime& time);
  // True if the time limit ended the race before it was decided.
  bool was_cut() const { return was_cut_; }
  // Records the timings, and the winner with its image. Returns nullopt if nothing works.
  std::optional<WinnerRecord> decide(bool search_complete);
  // Adds to `check` the winner that the rule chooses by these timings, and how much slower the
  // stored winner is than the fastest. Records nothing.
  void add_run(WinnerCheck* check) const;

 private:
  void warm_up(const StepTime& time);
  void leave_slow_ones_out();
  bool is_resolved() const;
  bool is_default_sure() const;
  bool is_timed(const Trial& trial) const;

  TuneContext& context_;
  Trials& trials_;
  Race race_;
  TrialList contestants_;
  // The candidates that can still win. The others were clearly slower, and their few samples are
  // from another time.
  TrialList active_;
  bool was_cut_ = false;
};

}  // namespace attune
