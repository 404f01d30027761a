// SPDX-License-Identifier: Apache-2.0
// ShapeTuner: finds the winner of one (spec, shape), step by step, so that other shapes are measured
// while this one's next candidates compile. It calls Explorer for the search and FinalRace for the
// decision; both work on Trials and call nothing back. See tune_loop.hpp for the whole.
#pragma once

#include <memory>
#include <vector>

#include "tuner/explorer.hpp"
#include "tuner/final_race.hpp"

namespace attune {

class ShapeTuner {
 public:
  ShapeTuner(TuneContext& context, const Problem& problem, std::shared_ptr<SearchSpaces> spaces);

  // Goes on from what an earlier pass of the same tune found.
  void resume(const ShapeReport& earlier);
  // Queues the candidates that this shape begins with, to be compiled when there is time.
  void compile_ahead();
  // Makes one wave of the search and, after the last one, the final. True when there is more to do.
  // `hints`: candidates that were good for other shapes.
  bool step(const std::vector<TuneCandidate>& hints, double deadline);
  // Tries what won at other shapes and was not tried here, after resume(). Only where one of them comes near the winner is there
  // another final.
  void meet(const std::vector<TuneCandidate>& rivals, double deadline);
  // Times the top 3 and the default again; nothing else.
  void refresh(double deadline);
  // Returns what was found. To be called last.
  ShapeReport finish();
  // Repeats the final in `runs` fresh processes and stores nothing; see verify_winners.
  WinnerCheck verify(int runs);
  // Fastest candidates known, best first.
  std::vector<TuneCandidate> best_candidates(size_t count) {
    return trials_.best_candidates(count);
  }

 private:
  std::optional<WinnerRecord> former_winner() const;
  std::optional<WinnerRecord> settled() const;
  bool begin(const std::vector<TuneCandidate>& hints);
  bool explore(const std::vector<TuneCandidate>& hints, const StepTime& time);
  void decide(TrialList contestants, const StepTime& time, bool search_complete);
  bool comes_near(const std::vector<TuneCandidate>& rivals);
  template <class Work>
  void guarded(const Work& work);

  TuneContext& context_;
  Trials trials_;
  Explorer explorer_;
  ShapeReport report_;
  std::optional<WinnerRecord> earlier_winner_;
  bool has_begun_ = false;
  bool was_cut_ = false;  // time ended before the search or its final did
};

}  // namespace attune
