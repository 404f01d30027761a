// SPDX-License-Identifier: Apache-2.0
// Times the driver's own launch: a launch that attune made, repeated unchanged and in the driver's
// other forms (without programmatic serialisation, through cuLaunchKernel, parameters as one block
// of memory), and a launch of an empty kernel with as many parameters. No call that launches can
// cost less. Used by run_overhead.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/driver_table.hpp"

namespace attune::bench {

// One launch, with copies of all data it points to.
class RecordedLaunch {
 public:
  RecordedLaunch() = default;
  RecordedLaunch(const cuda::LaunchConfig& config, cuda::Function function, void* const* parameters,
                 const std::vector<size_t>& sizes);

  // Launches `function`, by default the recorded function.
  cuda::Result repeat(const cuda::DriverTable& driver, cuda::Function function = nullptr) const;
  // Returns the launch without programmatic serialisation; the cluster shape stays.
  RecordedLaunch without_early() const;
  bool is_early() const;

  cuda::LaunchConfig config() const;  // its attributes live as long as this object
  cuda::Function function() const { return function_; }
  void** parameters() const { return parameters_->addresses.data(); }
  const std::vector<size_t>& sizes() const { return sizes_; }

 private:
  struct Parameters {
    std::vector<std::vector<cuda::TensorMap>> bytes;  // aligned as any parameter may want it
    std::vector<void*> addresses;                     // of `bytes`, then nullptr
  };
  cuda::LaunchConfig config_{};
  std::vector<cuda::LaunchAttribute> attributes_;
  cuda::Function function_ = nullptr;
  std::vector<size_t> sizes_;
  std::shared_ptr<Parameters> parameters_;
};

struct LaunchForm {
  std::string what;
  std::function<cuda::Result()> launch;
};

// Returns the launch forms that this driver has. The context must be current, and stay so. Loads an
// empty kernel that is never unloaded.
std::vector<LaunchForm> launch_forms(const cuda::DriverTable& driver, const RecordedLaunch& launch);

}  // namespace attune::bench
