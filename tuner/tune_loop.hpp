// SPDX-License-Identifier: Apache-2.0
// tune: the loop over problems. Problems of one KernelSpec share their compiled kernels; each
// (spec, shape) is tuned by a ShapeTuner (shape_tuner.hpp). Every trial is stored at once, so that
// an interrupted tune goes on where it stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cache/store.hpp"
#include "generator/core/error.hpp"
#include "tuner/backend.hpp"
#include "tuner/tune_target.hpp"
#include "tuner/tune_trace.hpp"

namespace attune {

// How timings of this version of the tuner are taken; part of every timing's identity.
MeasurePolicy measure_policy();

// How long a measuring process that does not answer outlasts a budget that the caller gave.
constexpr double kGraceSeconds = 5;

struct Progress {
  size_t shape = 0;  // from 0
  size_t num_shapes = 0;
  Problem problem;
  std::string phase;   // "compiling", "checking", "timing", "final"
  int tried = 0;       // candidates measured or failed so far, this shape
  double best_us = 0;  // 0 = none yet
  double default_us = 0;
  std::string best;      // its config
  double elapsed_s = 0;  // of the whole tune
  double budget_s = 0;
};

struct ShapeReport;

struct TuneOptions {
  Effort effort = Effort::kNormal;
  // Wall clock for all problems, compiling included; 0 = what the effort level allows. What one
  // shape leaves is given to those that were not searched to the end.
  double budget_s = 0;
  uint64_t seed = 1;
  bool refresh = false;          // re-time the top 3 and the default of what is tuned already
  bool retry_failed = false;     // failed trials of an earlier tune are tried again
  int compile_threads = 0;       // 0 = by the machine
  std::function<bool()> stop{};  // Ctrl-C: asked often, keeps everything measured
  std::function<void(const Progress&)> progress{};
  // After each shape, and again when a later pass found it another winner; `shape` from 0.
  std::function<void(const ShapeReport&, size_t shape, size_t num_shapes)> finished{};
  std::function<double()> now{};  // seconds, monotonic; tests give their own
  TuneTrace* trace = nullptr;     // gets what was done when; outlives the tune
};

struct ShapeReport {
  Problem problem;
  std::optional<WinnerRecord> winner;  // none when interrupted, or when nothing works
  std::vector<TrialRecord> trials;     // best first, failed last
  int measured = 0;                    // tried in this run, failed ones included
  int reused = 0;                      // taken from the store
  bool complete = false;               // the search came to its end within budget
  bool already_tuned = false;
  std::string note;  // what a reader should know: stale driver, budget ran out, why nothing works
  std::optional<ErrorCode> error;  // of what ended it: the device or the measuring process
  double seconds = 0;
};

struct TuneReport {
  std::vector<ShapeReport> shapes;
  bool interrupted = false;
  bool stored = true;  // false when rows could not be written; the reason is in the log
  int compiled = 0;
  double seconds = 0;
  double budget_s = 0;
};

// `store` may be null: nothing is kept. Throws Error when the device, the compiler or the oracle is
// missing altogether.
TuneReport tune(const TuneTarget& target, MeasureBackend& backend, Store* store,
                const std::vector<Problem>& problems, const TuneOptions& options);

// How well a stored winner stands when its final is repeated in fresh processes.
struct WinnerCheck {
  Problem problem;
  std::optional<WinnerRecord> winner;
  int runs = 0;
  int flips = 0;           // runs whose timings would have chosen another config
  double mean_regret = 0;  // stored winner's median over the run's fastest, minus 1
  double worst_regret = 0;
  std::vector<std::string> others;  // configs chosen instead
  std::string note;
};

// The winner, the default and the best of the rest, `runs` times each; nothing is stored.
std::vector<WinnerCheck> verify_winners(const TuneTarget& target, MeasureBackend& backend,
                                        Store* store, const std::vector<Problem>& problems,
                                        const TuneOptions& options, int runs);

}  // namespace attune
