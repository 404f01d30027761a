// SPDX-License-Identifier: Apache-2.0
// tune: the loop over problems. Problems of one KernelSpec share their compiled kernels. A
// ShapeTuner (shape_tuner.hpp) tunes each (spec, shape). Every trial is stored at once, so that an
// interrupted tune continues where it stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cache/store.hpp"
#include "generator/core/system/error.hpp"
#include "tuner/measure/backend.hpp"
#include "tuner/search/tune_target.hpp"
#include "tuner/search/tune_trace.hpp"

namespace attune {

// Returns how this version of the tuner takes timings; part of each timing's identity.
MeasurePolicy measure_policy();

// A measuring process may stay silent this much longer than the given budget.
constexpr double kGraceSeconds = 5;

struct Progress {
  size_t shape = 0;  // from 0
  size_t num_shapes = 0;
  Problem problem;
  std::string phase;   // "compiling", "checking", "timing", "final"
  int tried = 0;       // candidates measured or failed so far, for this shape
  double best_us = 0;  // 0: none yet
  double default_us = 0;
  std::string best;      // its config
  double elapsed_s = 0;  // of the whole tune
  double budget_s = 0;
};

struct ShapeReport;

struct TuneOptions {
  Effort effort = Effort::kNormal;
  // Wall clock for all problems, including compiling; 0: the effort level decides. Time that some
  // shapes leave unused goes to shapes whose search is incomplete.
  double budget_s = 0;
  uint64_t seed = 1;
  bool refresh = false;          // time the top 3 and the default of tuned problems again
  bool retry_failed = false;     // try failed trials of an earlier tune again
  int compile_threads = 0;       // 0: by the machine
  std::function<bool()> stop{};  // Ctrl-C: called often; measured results are kept
  std::function<void(const Progress&)> progress{};
  // Called after each shape, and again if a later pass finds another winner; `shape` is from 0.
  std::function<void(const ShapeReport&, size_t shape, size_t num_shapes)> finished{};
  std::function<double()> now{};  // seconds, monotonic; tests replace it
  TuneTrace* trace = nullptr;     // records when things were done; must outlive the tune
};

struct ShapeReport {
  Problem problem;
  std::optional<WinnerRecord> winner;  // none if interrupted, or if nothing works
  std::vector<TrialRecord> trials;     // best first, failed last
  int measured = 0;                    // tried in this run, including failed ones
  int reused = 0;                      // from the store
  bool complete = false;               // the search ended within the budget
  bool already_tuned = false;
  std::string note;  // for the reader: stale driver, budget ended, why nothing works
  // the error that ended it: of the device or the measuring process
  std::optional<ErrorCode> error;
  bool wait_ended = false;  // the error is that the budget or the tune ended before an answer came
  double seconds = 0;
};

struct TuneReport {
  std::vector<ShapeReport> shapes;
  bool interrupted = false;
  bool stored = true;  // false if rows could not be written; the log has the reason
  int compiled = 0;
  double seconds = 0;
  double budget_s = 0;
};

// True if the shape, of this report, lost its device or its measuring process before its first
// trial. A wait that the budget ended shows a loss only if no shape was measured.
bool is_lost(const ShapeReport& shape, const TuneReport& report);

// Says what tune() would do with problems of which none is tuned. Problems whose rows see the same
// keys count as one shape.
struct TunePreview {
  size_t num_shapes = 0;
  double budget_s = 0;  // by the effort
};
TunePreview preview(const std::vector<Problem>& problems, Effort effort);

// Tunes the problems. `store` may be null: nothing is kept. Throws Error if the device, the
// compiler or the oracle is missing.
TuneReport tune(const TuneTarget& target, MeasureBackend& backend, Store* store,
                const std::vector<Problem>& problems, const TuneOptions& options);

// The reliability of a stored winner: its final race is repeated in fresh processes.
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

// Times the winner, the default and the best other candidates again, in `runs` repeated final
// races. Stores nothing.
std::vector<WinnerCheck> verify_winners(const TuneTarget& target, MeasureBackend& backend,
                                        Store* store, const std::vector<Problem>& problems,
                                        const TuneOptions& options, int runs);

}  // namespace attune
