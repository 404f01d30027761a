// SPDX-License-Identifier: Apache-2.0
// LiveTuner: the runtime's ConfigSource (policy tune_on_miss). If a program needs a plan for an
// untuned problem, it tunes that problem quickly, stores the result and returns the winner.
// Thread-safe: one tune at a time.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/engine/device.hpp"
#include "runtime/engine/engine_options.hpp"
#include "tuner/measure/device_lock.hpp"

namespace attune {

struct LiveTunerOptions {
  std::filesystem::path store;  // empty: default_store_path()
  Effort effort = Effort::kQuick;
  double budget_s = 10;
  // The folder of the device's lock (tuner/measure/device_lock.hpp). While another process measures
  // on the device, a miss waits for at most budget_s, and then stays untuned.
  std::filesystem::path locks = lock_folder();
  // The command that starts a worker (own_worker_command of the program attune). If empty, kernels
  // are measured in this process, and a kernel that breaks the device breaks it for the caller too.
  std::vector<std::string> worker_command;
};

class LiveTuner : public ConfigSource {
 public:
  LiveTuner(std::shared_ptr<const Device> device, LiveTunerOptions options);
  // Returns nullopt, and logs a line, if the problem cannot be tuned.
  std::optional<WinnerRecord> tune(const Problem& problem) override;

 private:
  std::shared_ptr<const Device> device_;
  const LiveTunerOptions options_;
  std::mutex mutex_;
};

}  // namespace attune
