// SPDX-License-Identifier: Apache-2.0
// ShapeTuner: finds the winner of one (spec, shape). Waves of candidates are compiled, checked and
// raced for a few rounds; what may still be the fastest meets the default in a final, whose timings
// alone decide. See tune_loop.hpp for the whole.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tuner/compile_pool.hpp"
#include "tuner/measure.hpp"
#include "tuner/search.hpp"
#include "tuner/trial_book.hpp"
#include "tuner/tune_loop.hpp"

namespace attune {

// What the shapes of one spec share.
struct TuneContext {
  const TuneTarget& target;
  MeasureBackend& backend;
  CompilePool& pool;
  std::shared_ptr<SearchSpaces> spaces;
  StoreWriter& store;
  const TuneOptions& options;
  std::function<double()> now;
  std::function<std::optional<KernelRequest>(const Problem&)>
      oracle;                            // compiled once per reference spec
  std::function<void(Progress)> report;  // fills in what concerns the whole tune
};

class ShapeTuner {
 public:
  ShapeTuner(TuneContext& context, const Problem& problem, const EffortPlan& plan);

  // Candidates this shape begins with; for compiling ahead.
  std::vector<TuneCandidate> first_wave(const std::vector<TuneCandidate>& hints) const;
  // Those of them that no stored trial tells about.
  std::vector<TuneCandidate> unknown(std::vector<TuneCandidate> candidates) const;
  // What an earlier pass of the same tune found: this one goes on from there.
  void resume(const ShapeReport& earlier);
  // `deadline` as of context.now().
  ShapeReport tune(const std::vector<TuneCandidate>& hints, double deadline);
  // Times the top 3 and the default again; nothing else.
  ShapeReport refresh(double deadline);
  // Repeats the final in `runs` fresh processes and stores nothing; see verify_winners.
  WinnerCheck verify(int runs);
  // Fastest candidates known, best first.
  std::vector<TuneCandidate> best_candidates(size_t count) const;

 private:
  struct Entry {
    TuneCandidate candidate;
    TrialRecord record;      // timing.samples = 0: nothing known yet
    double estimate_us = 0;  // 0 = never prepared here
    bool live = false;       // loaded in the backend
    bool tried_now = false;
  };

  // shape_tuner.cpp: exploring
  std::optional<WinnerRecord> former_winner() const;
  std::optional<WinnerRecord> settled() const;
  void guarded(const std::function<void()>& work);
  void open();
  void explore(const std::vector<TuneCandidate>& first);
  void wave(const std::vector<TuneCandidate>& candidates);
  void explore_race(const std::vector<int>& ids);
  void add_known();
  int add(const TuneCandidate& candidate);
  bool enter(int id);
  void keep_leaders();
  // shape_final.cpp: the final
  std::vector<int> finalists() const;
  std::vector<int> final_race(std::vector<int>* ids);
  bool is_winner(const Entry& entry, const WinnerRecord& winner) const;
  std::vector<int> top_and_default(const WinnerRecord& winner);
  void add_run(const std::vector<int>& ids, const std::vector<int>& stayed,
               WinnerCheck* check) const;
  bool resolved(const std::vector<int>& ids) const;
  void decide(const std::vector<int>& ids, const std::vector<int>& stayed, bool search_complete);
  // shape_trial.cpp: one trial
  bool make_live(int id, double until);
  std::shared_ptr<const Compiled> wait_compiled(const Entry& entry, double until);
  void fill_record(Entry* entry, const KernelImage& image, const Prepared& prepared);
  void fail(int id, const Fault& fault);
  // `created`: when its race ended; trials of one race share it.
  void record_timing(int id, const Timing& timing, const std::string& created);
  int race(const std::vector<int>& ids, int rounds);
  void drop(int id);

  bool is_ok(const Entry& entry) const {
    return entry.record.status == TrialStatus::kOk && entry.record.timing.samples > 0;
  }
  std::vector<int> ranking() const;  // ok ones, fastest first
  double best_us() const;
  bool stopped() const { return context_.options.stop && context_.options.stop(); }
  double explore_until() const;
  bool exploring_is_over() const { return stopped() || context_.now() >= explore_until(); }
  void set_deadline(double deadline);
  void start_race(uint64_t seed);
  void progress(const char* phase) const;
  ShapeReport finish();

  TuneContext& context_;
  const Problem problem_;
  const EffortPlan plan_;
  SearchTask task_;
  Effort effort_;
  TrialBook book_;
  std::unique_ptr<Race> race_;
  std::map<int, Entry> entries_;
  std::map<std::string, int> ids_;  // by candidate text
  ShapeReport report_;
  std::optional<WinnerRecord> earlier_winner_;
  double began_ = 0, deadline_ = 0;
  bool cut_ = false;  // time ended before the search or its final did
  int default_id_ = -1;
};

}  // namespace attune
