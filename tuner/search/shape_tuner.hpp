// SPDX-License-Identifier: Apache-2.0
// ShapeTuner: finds the winner of one (spec, shape) in steps, so that other shapes can be measured
// while this shape's next candidates compile. It calls Explorer for the search and FinalRace for
// the decision. Both work on Trials and never call ShapeTuner. For the whole see tune_loop.hpp.
#pragma once

#include <memory>
#include <vector>

#include "tuner/search/explorer.hpp"
#include "tuner/search/final_race.hpp"

namespace attune {

class ShapeTuner {
 public:
  ShapeTuner(TuneContext& context, const Problem& problem, std::shared_ptr<SearchSpaces> spaces);

  // Continues from the results of an earlier pass of the same tune.
  void resume(const ShapeReport& earlier);
  // Queues the candidates with which this shape begins, to compile when the pool has time.
  void compile_ahead();
  // Makes one wave of the search or, after the last wave, the final race. Returns true if there is
  // more to do. `hints`: candidates that were good for other shapes.
  bool step(const std::vector<TuneCandidate>& hints, double deadline);
  // Tries winners of other shapes that have no trial here, after resume(). Runs another final race
  // only if one of them is nearly as fast as the winner.
  void meet(const std::vector<TuneCandidate>& rivals, double deadline);
  // Times the top 3 and the default again; nothing else.
  void refresh(double deadline);
  // Returns the results. Call it last.
  ShapeReport finish();
  // Repeats the final race in `runs` fresh processes and stores nothing; see verify_winners.
  WinnerCheck verify(int runs);
  // Returns the fastest known candidates, best first.
  std::vector<TuneCandidate> best_candidates(size_t count) {
    return trials_.best_candidates(count);
  }

 private:
  std::optional<WinnerRecord> former_winner() const;
  bool of_another_text(const WinnerRecord& winner) const;
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
  bool was_cut_ = false;  // time ended before the search or its final race did
};

}  // namespace attune
