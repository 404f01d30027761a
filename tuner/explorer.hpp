// SPDX-License-Identifier: Apache-2.0
// Explorer: the search for one (spec, shape), wave by wave. A wave of candidates is compiled,
// checked and raced for a few rounds; the next one are neighbours of the best, and is compiling from
// then on: whoever steps the explorer may measure other shapes meanwhile. Used by ShapeTuner.
#pragma once

#include "tuner/trials.hpp"

namespace attune {

class Explorer {
 public:
  Explorer(TuneContext& context, Trials& trials);

  // Candidates the search begins with.
  std::vector<TuneCandidate> first_wave(const std::vector<TuneCandidate>& hints) const;
  // For the next wave; what is new is compiled from now on.
  void propose(const std::vector<TuneCandidate>& candidates);
  // Races what was proposed, and proposes neighbours of the best. False when the search is over.
  bool wave(const StepTime& time);
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
