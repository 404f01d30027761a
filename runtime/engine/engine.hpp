// SPDX-License-Identifier: Apache-2.0
// Engine: makes a Plan for a Problem. It owns the winners of this device (read once from the
// stores) and the images loaded so far. It climbs the ladder: pinned -> exact -> same bucket ->
// nearest tuned shape -> default config -> reference kernel. attune.h is a thin layer over it; the
// tuner uses it to bench, check and explain.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generator/core/problem/problem.hpp"
#include "generator/kernel_template.hpp"
#include "runtime/engine/device.hpp"
#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/plan.hpp"
#include "runtime/operands/operands.hpp"

namespace attune {

class Engine {
 public:
  Engine(std::shared_ptr<const Device> device, EngineOptions options);
  ~Engine();

  const Device& device() const;
  // Returns the plan for a problem. Plans are cached by canonical problem
  // (generator/core/problem/visibility.hpp), up to EngineOptions::max_plans. Each kernel is
  // compiled and loaded at most once, even if many threads need it at once. `layout`: the operands
  // of the coming calls, if they are not contiguous; templates that cannot load these strides are
  // not chosen. Throws kNotTuned (strict), kWouldCompile (no_jit), kUnsupported with each
  // template's reason, and errors of the compiler and the driver.
  std::shared_ptr<const Plan> plan(const Problem& problem, const Operands* layout = nullptr);
  // Returns a plan with the caller's template and config, without the ladder. The problem is taken
  // as given, not in its canonical form. Not cached.
  std::shared_ptr<const Plan> plan_with(const Problem& problem,
                                        const KernelTemplate& kernel_template,
                                        const Config& config);
  // Returns the config that the ladder chooses and the reason, even if its kernel is not available.
  // Plan::kernel is null.
  Plan choose(const Problem& problem, const Operands* layout = nullptr) const;
  // Does the same as `plan` without compiling. Plan::kernel is null if `plan` would compile.
  Plan foresee(const Problem& problem, const Operands* layout = nullptr) const;
  // Returns for each template nullopt if it serves the problem, else the reason.
  std::vector<std::pair<std::string, std::optional<std::string>>> check(
      const Problem& problem) const;
  void reload();  // reads the stores, or the pin file, again
  // Returns the SHA-256 of the pins from which this engine chooses: its pin file, or the pins that
  // follow from its stores and bundles for this device. Engines of one version with equal digests
  // choose the same kernels.
  std::array<uint8_t, 32> pin_digest() const;

 private:
  enum class Kernels;
  Plan look(const Problem& problem, const Operands* layout, Kernels kernels) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attune
