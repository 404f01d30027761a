// SPDX-License-Identifier: Apache-2.0
// Trials: the candidates of one (spec, shape), the results of each, and the steps from source to a
// loaded, checked kernel. Results are recorded at once (trial_book.hpp). Used by Explorer and
// FinalRace; see shape_tuner.hpp.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tuner/measure/measure.hpp"
#include "tuner/search/trial_book.hpp"
#include "tuner/search/tune_context.hpp"

namespace attune {

struct Trial {
  int id = 0;
  TuneCandidate candidate;
  TrialRecord record;
  double estimate_us = 0;  // 0: never loaded here
  double drift = 1;   // of the device since the timing: a time of 100 us now was 100 / drift then
  bool live = false;  // loaded, or to be loaded again when the backend opens the problem
  bool tried_now = false;
  std::shared_ptr<const Compiled> compiled;

  bool works() const { return record.status == TrialStatus::kOk; }  // as far as is known
  bool is_timed() const { return works() && record.timing.samples > 0; }
  // at today's speed of the device
  double explored_us() const { return drift * record.timing.median_us; }
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
  int num_measured() const { return num_measured_; }  // in this run, including failed ones
  int num_reused() const { return num_reused_; }      // from the book

  // Registers a candidate once, with the book's data on it.
  Trial& add(const TuneCandidate& candidate);
  // Adds all candidates of the book, so that an interrupted tune continues exactly at the point of
  // interruption.
  void add_known();
  // Returns the `candidates` without a stored trial.
  std::vector<TuneCandidate> unknown(std::vector<TuneCandidate> candidates) const;
  Trial* default_trial() { return default_; }  // null before it is added
  TrialList live();
  TrialList ranking();  // timed ones, fastest first
  std::vector<TuneCandidate> best_candidates(size_t count);
  std::set<std::string> texts() const;
  // Corrects for drift: the `raced` trials were timed again just now and took `factor` times as
  // long as before. Scales the times of the other trials likewise.
  void drift(const TrialList& raced, double factor);
  // Returns the best recorded time. For a kernel that is loaded but not raced yet, the estimate
  // counts.
  double best_us() const;
  // Returns the reason why nothing works: the first failure, and advice if all candidates failed in
  // an earlier run.
  std::string why_none() const;

  // Makes the backend measure this problem from now on. If the backend had another problem open
  // meanwhile, loads the live kernels again.
  void open();
  // Marks all kernels as not loaded, after the backend was restarted or given up.
  void unload();
  // Waits for the compiled kernel until `until` (a time of TuneContext::now). Then loads and checks
  // it.
  Load make_live(Trial& trial, double until);
  void drop(Trial& trial);
  // Returns the number of rounds made. Records trials that fail.
  int race(Race* race, const TrialList& trials, int rounds);
  // Makes a round and discards its samples; returns its clock.
  int warm_up(Race* race, const TrialList& trials);
  // `created`: the time when its race ended. Trials of one race share it.
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
  std::deque<Trial> trials_;        // by id; their addresses are stable
  std::map<std::string, int> ids_;  // by candidate text
  Trial* default_ = nullptr;
  int num_measured_ = 0, num_reused_ = 0;
};

std::vector<int> ids_of(const TrialList& trials);

}  // namespace attune
