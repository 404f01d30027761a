// SPDX-License-Identifier: Apache-2.0
// Runs a whole tune on the simulated device, with a folder for its store. Used by the tests of the
// tune loop.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "cache/store.hpp"
#include "tests/tuner/simulated_device.hpp"
#include "tuner/search/tune_loop.hpp"

namespace attune::testing {

struct Outcome {
  SimulatedClock clock;
  TuneReport report;
  std::map<std::string, int> num_prepared;
  int num_made = 0;
};

inline Outcome tune_simulated(const World& world, const std::vector<Problem>& problems,
                              uint64_t noise_seed, Store* store = nullptr,
                              TuneOptions options = {}) {
  Outcome run;
  SimulatedTarget target(world);
  SimulatedBackend backend(world, run.clock, noise_seed);
  options.compile_threads = 1;
  options.now = [&run] { return run.clock.now_s; };
  run.report = tune(target, backend, store, problems, options);
  run.num_prepared = backend.num_prepared;
  run.num_made = target.num_made;
  return run;
}

inline double true_us(const World& world, const ShapeReport& shape) {
  return world.true_us(shape.winner->config, shape_of(shape.problem));
}

inline double regret(const World& world, const ShapeReport& shape) {
  return true_us(world, shape) / world.best_us(spec_of(shape.problem), shape_of(shape.problem)) - 1;
}

class TuneStoreTest : public ::testing::Test {
 protected:
  TuneStoreTest() {
    std::filesystem::create_directory(folder_);
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
  }
  ~TuneStoreTest() override { std::filesystem::remove_all(folder_); }
  Store open_store() const { return Store::open(folder_ / "store.db", StoreMode::kReadWrite); }

  // In memory if possible: these tests are about the tuner, not the disk.
  static std::filesystem::path base() {
    return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
  }
  const std::filesystem::path folder_ = base() / ("attune_tune_test_" + std::to_string(::getpid()));
};

}  // namespace attune::testing
