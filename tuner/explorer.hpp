// SPDX-License-Identifier: Apache-2.0
// Explorer: the search for one (spec, shape), wave by wave. It has a wave of candidates
// compiled, checks them and races them for a few rounds. The next wave are neighbours of the best;
// they compile while the caller measures other shapes. Used by ShapeTuner.
#pragma once

#include "tuner/trials.hpp"

namespace attune {

class Explorer {
 public:
  Explorer(TuneContext& context, Trials& trials);

  // The candidates that the search begins with.
  std::vector<TuneCandidate> first_wave(const std::vector<TuneCandidate>& hints) const;
  // Puts candidates into the next wave. Those that are new start to compile.
  void propose(const std::vector<TuneCandidate>& candidates);
  // Races what was proposed, and proposes neighbours of the best. False when the search is over.
  bool wave(const StepTime& time);
  // Races what was proposed; nothing follows.
  void try_proposed(const StepTime& time);
  // Time ended the search before it was over.
  bool was_cut() const { return was_cut_; }

 private:
  double until(const StepTime& time) const;
  bool is_over(const StepTime& time) const;
  bool enter(Trial& trial, const StepTime& time);
  void race(const TrialList& trials, const StepTime& time);
  void keep_leaders();
  bool propose_neighbours(const StepTime& time);

  TuneContext& context_;
  Trials& trials_;
  Race race_;
  TrialList proposed_;
  int num_waves_ = 0;
  double best_before_us_ = INFINITY;
  bool was_cut_ = false;
};

}  // namespace attune
