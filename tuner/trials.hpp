// SPDX-License-Identifier: Apache-2.0
// Trials: the candidates of one (spec, shape), what is known of each, and the way of one from
// source to a loaded, checked kernel. What is learnt is written down at once (trial_book.hpp).
// Explorer and FinalRace work on these; see shape_tuner.hpp.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tuner/measure.hpp"
#include "tuner/trial_book.hpp"
#include "tuner/tune_context.hpp"

namespace attune {

struct Trial {
  int id = 0;
  TuneCandidate candidate;
  TrialRecord record;
  double estimate_us = 0;  // 0 = never loaded here
  double drift = 1;   // of the device, since it was timed: what takes 100 us now took 100 / drift
  bool live = false;  // loaded, or to be loaded again when the backend opens the problem
  bool tried_now = false;
  std::shared_ptr<const Compiled> compiled;

  bool works() const { return record.status == TrialStatus::kOk; }  // as far as is known
  bool is_timed() const { return works() && record.timing.samples > 0; }
  double explored_us() const { return drift * record.timing.median_us; }  // as of now
};
using TrialList = std::vector<Trial*>;

enum class Load { kLive, kFailed, kLate };  // kLate: not compiled in time

class Trials {
 public:
  Trials(TuneContext& context, const Problem& problem, std::shared_ptr<SearchSpaces> spaces);
  ~Trials();
  Trials(const Trials&) = delete;
  Trials& operator=(const Trials&) = delete;

  const Problem& problem() const { return problem_; }
  const SearchTask& task() const { return task_; }
  TrialBook& book() { return book_; }
  const TrialBook& book() const { return book_; }
  Effort effort() const { return effort_; }
  void set_effort(Effort effort) { effort_ = effort; }
  int num_measured() const { return num_measured_; }  // in this run, failed ones included
  int num_reused() const { return num_reused_; }      // taken from the book

  // Registers a candidate once, with what the book knows of it.
  Trial& add(const TuneCandidate& candidate);
  // Adds all that the book knows: so an interrupted tune goes on exactly where it stopped.
  void add_known();
  // Those of `candidates` that no stored trial tells about.
  std::vector<TuneCandidate> unknown(std::vector<TuneCandidate> candidates) const;
  Trial* default_trial() { return default_; }  // null before it was added
  TrialList live();
  TrialList ranking();  // timed ones, fastest first
  std::vector<TuneCandidate> best_candidates(size_t count);
  std::set<std::string> texts() const;
  // `raced` were timed again just now and took `factor` times as long as before. The others are
  // reckoned to take so much longer too.
  void drift(const TrialList& raced, double factor);
  // By record, or by the estimate of what is loaded but not raced yet.
  double best_us() const;
  // Why nothing works: what the first failed for, and what to do where all failed in an earlier run.
  std::string why_none() const;

  // Has the backend measure this problem from now on. Loads what is live again where another
  // problem was open meanwhile.
  void open();
  // Notes that nothing is loaded any more: the backend was restarted, or is given up.
  void unload();
  // Waits for the compiled kernel until `until` (as of TuneContext::now), loads it and checks it.
  Load make_live(Trial& trial, double until);
  void drop(Trial& trial);
  // Returns the rounds made. Writes trials that fail down.
  int race(Race* race, const TrialList& trials, int rounds);
  // Makes a round whose samples nobody keeps; returns its clock.
  int warm_up(Race* race, const TrialList& trials);
  // `created`: when its race ended; trials of one race share it.
  void record_timing(Trial& trial, const Timing& timing, const std::string& created);
  void progress(const char* phase);

 private:
  std::shared_ptr<const Compiled> wait_compiled(const Trial& trial, double until);
  KernelRequest request_of(const Trial& trial) const;
  void fill_record(Trial& trial, const Prepared& prepared) const;
  void fail(Trial& trial, const Fault& fault);
  void record_faults(const Race& race);
  void write_down(Trial& trial);

  TuneContext& context_;
  const Problem problem_;
  const SearchTask task_;
  Effort effort_;
  TrialBook book_;
  std::deque<Trial> trials_;        // by id; they keep their place
  std::map<std::string, int> ids_;  // by candidate text
  Trial* default_ = nullptr;
  int num_measured_ = 0, num_reused_ = 0;
};

std::vector<int> ids_of(const TrialList& trials);

}  // namespace attune
