// SPDX-License-Identifier: Apache-2.0
// FinalRace: times again what may be the fastest of one (spec, shape), beside the default, with the
// device under sustained load. The winner rule decides on these timings alone. Used by ShapeTuner.
#pragma once

#include <optional>

#include "tuner/trials.hpp"

namespace attune {

// The default, and those within a margin of the best, fastest first; at most `count` besides it.
TrialList finalists(Trials& trials, int count);
// The default, the stored winner and the fastest of what is known.
TrialList top_and_default(Trials& trials, const WinnerRecord& winner);

class FinalRace {
 public:
  FinalRace(TuneContext& context, Trials& trials, uint64_t seed);

  void run(TrialList contestants, const StepTime& time);
  // Time ended before it was decided.
  bool was_cut() const { return was_cut_; }
  // Writes down the timings and the winner with its image; none when nothing works.
  std::optional<WinnerRecord> decide(bool search_complete);
  // Adds what the rule would choose on these timings, and what the stored choice costs by them.
  // Writes nothing down.
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
  // Those that can still win. The others were surely slower, and their few samples were taken at
  // another time.
  TrialList active_;
  bool was_cut_ = false;
};

}  // namespace attune
