// SPDX-License-Identifier: Apache-2.0
// Explorer: the search for one (spec, shape), in waves. It lets a wave of candidates compile,
// checks them, and races them for a few rounds. The neighbours of the best candidates form the next
// wave. They compile while the caller measures other shapes. Used by ShapeTuner.
#pragma once

#include "tuner/search/trials.hpp"

namespace attune {

class Explorer {
 public:
  Explorer(TuneContext& context, Trials& trials);

  // Returns the candidates that the search begins with.
  std::vector<TuneCandidate> first_wave(const std::vector<TuneCandidate>& hints) const;
  // Adds candidates to the next wave. New ones start to compile.
  void propose(const std::vector<TuneCandidate>& candidates);
  // Races the proposed candidates, and proposes neighbours of the best. Returns false when the
  // search is over.
  bool wave(const StepTime& time);
  // Races the proposed candidates, and proposes none.
  void try_proposed(const StepTime& time);
  // True if the time limit ended the search early.
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
