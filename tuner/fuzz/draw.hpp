// SPDX-License-Identifier: Apache-2.0
// Random kernels: a spec that a template serves (with score features and programs of any kind), and
// a config. `attune check --fuzz` (fuzz.hpp) and the numerics tests draw from here. The same random
// numbers give the same kernel.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "generator/template_registry.hpp"
#include "runtime/engine/device.hpp"

namespace attune::testing {

// Draws a spec that the template, of op prefill, serves on the device. The result depends only on
// `random`.
Problem random_problem(std::mt19937_64& random, const Device& device,
                       const KernelTemplate& kernel_template);
// Draws lengths at the edges of the config's tiles, small enough for the float64 oracle.
void draw_lengths(std::mt19937_64& random, const Config& config, Problem* problem);

// Returns a legal config: a walk from `config` that changes up to three knobs in a step, since some
// knobs only change together. Listing all configs of a large space would take seconds.
Config random_config(std::mt19937_64& random, const SearchSpace& space, Config config);

// Adds one random feature: a mask, a window, sinks, a score feature or a program. The problem may
// become invalid.
void draw_feature(std::mt19937_64& random, Problem* problem);
// Returns false if validate() throws, or features and programs have too many captures together.
bool is_valid(const Problem& problem);

struct DrawnKernel {
  const KernelTemplate* kernel_template = nullptr;
  Problem problem;  // without lengths
  Config config;
  bool is_default = false;  // the config is the template's default
};

// Returns the number of pairs of features that change how a row's scores are used: masks, windows,
// score features, programs.
int num_feature_pairs();
// Draws a kernel. num_feature_pairs() consecutive seeds contain each pair of these features once,
// provided that one of the templates serves both features together.
DrawnKernel draw_kernel(uint64_t seed, const Device& device,
                        const std::vector<const KernelTemplate*>& templates);

}  // namespace attune::testing
