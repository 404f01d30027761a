// SPDX-License-Identifier: Apache-2.0
// Tunes on a miss; see live_tuner.hpp.
#include "tuner/search/live_tuner.hpp"

#include <chrono>

#include "generator/core/system/error.hpp"
#include "generator/core/system/log.hpp"
#include "runtime/engine/options.hpp"
#include "tuner/measure/device_backend.hpp"
#include "tuner/measure/isolated_backend.hpp"
#include "tuner/search/tune_loop.hpp"

namespace attune {
namespace {

// Opens the store. Returns nullopt if that fails, because a program can tune for itself without a
// store.
std::optional<Store> open_store(const std::filesystem::path& path) {
  try {
    return Store::open(store_path_or_default(path), StoreMode::kReadWrite);
  } catch (const Error& error) {
    log(LogCode::kTuneOnMiss, std::string("tune on miss: nothing is kept: ") + error.what());
    return std::nullopt;
  }
}

DeviceLock wait_for_device(const Device& device, const LiveTunerOptions& options) {
  const auto now = std::chrono::steady_clock::now;
  const auto until = now() + std::chrono::duration<double>(options.budget_s);
  const auto notice = [](const std::string& text) {
    log(LogCode::kTuneOnMiss, "tune on miss: " + text);
  };
  return {device.hardware(), options.locks, {[=] { return now() >= until; }, notice}};
}

}  // namespace

LiveTuner::LiveTuner(std::shared_ptr<const Device> device, LiveTunerOptions options)
    : device_(std::move(device)), options_(std::move(options)) {}

std::optional<WinnerRecord> LiveTuner::tune(const Problem& problem) {
  const std::lock_guard lock(mutex_);
  try {
    const DeviceLock device_lock = wait_for_device(*device_, options_);
    if (device_lock.stopped_waiting()) return std::nullopt;
    const DeviceTarget target(device_);
    std::unique_ptr<MeasureBackend> backend;
    if (options_.worker_command.empty())
      backend = std::make_unique<DeviceBackend>(device_);
    else
      backend = std::make_unique<IsolatedBackend>(options_.worker_command);
    std::optional<Store> store = open_store(options_.store);
    TuneOptions settings;
    settings.effort = options_.effort;
    settings.budget_s = options_.budget_s;
    const TuneReport report =
        attune::tune(target, *backend, store ? &*store : nullptr, {problem}, settings);
    const ShapeReport& shape = report.shapes.at(0);
    if (!shape.winner)
      log(LogCode::kTuneOnMiss, "tune on miss: " + to_text(problem) + ": " + shape.note);
    return shape.winner;
  } catch (const Error& error) {
    log(LogCode::kTuneOnMiss, "tune on miss: " + to_text(problem) + ": " + error.what());
    return std::nullopt;
  }
}

}  // namespace attune
