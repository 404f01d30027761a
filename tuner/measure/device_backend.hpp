// SPDX-License-Identifier: Apache-2.0
// DeviceBackend: checks and times kernels on a Device in this process. It launches kernels as a
// user's call does (run in plan.hpp). A kernel that faults may end the process: see
// isolated_backend.hpp.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine/plan.hpp"
#include "tuner/measure/backend.hpp"
#include "tuner/measure/inputs.hpp"
#include "tuner/oracles/oracle.hpp"

namespace attune {

class DeviceBackend : public MeasureBackend {
 public:
  explicit DeviceBackend(std::shared_ptr<const Device> device);

  void open(const MeasureTask& task) override;
  Prepared prepare(int id, const KernelRequest& request) override;
  // Like prepare(), for the kernel that a plan has loaded. The plan must be for the open problem.
  Prepared prepare_plan(int id, const Plan& plan);
  Prepared reload(int id, const KernelRequest& request) override;
  Round round(const std::vector<int>& order, double sample_us) override;
  void drop(int id) override;
  void restart() override;

 private:
  struct Loaded {
    Plan plan;
    DeviceMemory workspace;
    double estimate_us = 0;  // for one launch
  };

  Loaded load(const KernelRequest& request, const Problem& problem) const;
  Loaded with_workspace(Plan plan) const;
  // Calls `load()` and `check(&loaded, &prepared)`, then takes a first timing. Keeps the kernel
  // unless it has a fault.
  template <class Load, class Check>
  Prepared enter(int id, const Load& load, const Check& check);
  void hold(const Loaded& loaded, Prepared* prepared);
  void open_oracle(const std::optional<KernelRequest>& reference);
  // The expected results of one problem. The tuner opens several problems by turns.
  struct Expected {
    Problem problem;
    std::unique_ptr<Expectation> results;
  };
  std::shared_ptr<Expected> kept_results() const;
  CheckError check(const Loaded& loaded);
  // Returns a sentence if two runs give different bits.
  std::optional<std::string> compare_two_runs(const Loaded& loaded);
  void launch(const Loaded& loaded, const Operands& operands) const;
  double time_once_us(const Loaded& loaded, int launches);
  double estimate_us(const Loaded& loaded);

  std::shared_ptr<const Device> device_;
  std::unique_ptr<Inputs> inputs_;
  uint64_t seed_ = 0;
  Problem problem_;
  std::shared_ptr<Expected> expected_;                // nullptr: results are not checked
  std::list<std::shared_ptr<Expected>> of_the_host_;  // computed there; newest first
  std::map<int, Loaded> loaded_;
  int next_set_ = 0;
};

}  // namespace attune
