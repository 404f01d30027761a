// SPDX-License-Identifier: Apache-2.0
// TuneContext: the data that all shapes of one tune share. Made by the tune loop (tune_loop.cpp).
#pragma once

#include <functional>
#include <optional>

#include "tuner/search/compile_pool.hpp"
#include "tuner/search/search.hpp"
#include "tuner/search/store_writer.hpp"
#include "tuner/search/tune_loop.hpp"

namespace attune {

class Trials;

struct TuneContext {
  const TuneTarget& target;
  MeasureBackend& backend;
  CompilePool& pool;
  StoreWriter& store;
  const TuneOptions& options;
  const EffortPlan plan;
  std::function<double()> now;
  // Returns the reference kernel. Compiles it once per reference spec.
  std::function<std::optional<KernelRequest>(const Problem&)> reference;
  std::function<void(Progress)> report;  // fills in the fields of the whole tune
  const Trials* on_device = nullptr;     // the trials whose problem the backend has open

  bool stopped() const { return options.stop && options.stop(); }
};

// The time span of one step of a shape, in the clock of TuneContext::now.
struct StepTime {
  double began = 0, deadline = 0;
};

}  // namespace attune
