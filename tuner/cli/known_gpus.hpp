// SPDX-License-Identifier: Apache-2.0
// Names of GPUs on the command line, such as "l4" or "RTX 4090": the arch of each, and the facts
// that default configs are chosen for. Several GPUs share an arch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/core/problem/device_facts.hpp"

namespace attune::cli {

struct KnownGpu {
  std::string_view name;  // as users write it: "rtx4090"
  std::string_view arch;  // "sm_89"
  KnownDevice device;
};

// Returns the GPU of this name, or nullptr. Case, spaces, '-' and the words NVIDIA, Tesla, Quadro
// and GeForce do not matter.
const KnownGpu* find_gpu(std::string_view name);

std::vector<std::string> gpu_names();

}  // namespace attune::cli
