// SPDX-License-Identifier: Apache-2.0
// Random kernels: what is computed (a spec that a template serves, with score features and programs of any kind) and how (a config).
// `attune check --fuzz` (fuzz.hpp) and the numerics tests draw from here. The same numbers give the same kernel.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "generator/template_registry.hpp"
#include "runtime/device.hpp"

namespace attune::testing {

// Draws a spec that the template serves on the device, deterministically from `random`.
Problem random_problem(std::mt19937_64& random, const Device& device,
                       const KernelTemplate& kernel_template);
// Lengths at the edges of the config's tiles, small enough for the float64 oracle.
void draw_lengths(std::mt19937_64& random, const Config& config, Problem* problem);

struct DrawnKernel {
  const KernelTemplate* kernel_template = nullptr;
  Problem problem;  // without lengths
  Config config;
  bool is_default = false;  // the config is that of the template
};

// Features that change what a row makes of its scores, beside those of the kernels' own: masks, windows, score features, programs.
int num_feature_pairs();
// So many seeds in a row have each pair of these features once, where one of the templates serves them together.
DrawnKernel draw_kernel(uint64_t seed, const Device& device,
                        const std::vector<const KernelTemplate*>& templates);

}  // namespace attune::testing
