// SPDX-License-Identifier: Apache-2.0
// Engine: Problem -> Plan. It owns the winners of this device (read once from the stores), the
// images loaded so far and the ladder: pinned -> exact -> same bucket -> nearest tuned shape ->
// default config -> reference kernel. attune.h is a thin skin over it; the tuner uses it to bench,
// check and explain.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generator/core/problem.hpp"
#include "generator/kernel_template.hpp"
#include "runtime/device.hpp"
#include "runtime/engine_options.hpp"
#include "runtime/operands.hpp"
#include "runtime/plan.hpp"

namespace attune {

class Engine {
 public:
  Engine(std::shared_ptr<const Device> device, EngineOptions options);
  ~Engine();

  const Device& device() const;
  // Cached by canonical problem (generator/core/visibility.hpp), EngineOptions::max_plans of them;
  // compiles and loads at most once per kernel, also when 16 threads ask at once. `layout`: the
  // operands of the coming calls, when they are not contiguous; templates whose loads cannot take
  // those strides are passed over. Throws kNotTuned (strict), kWouldCompile (no_jit), kUnsupported
  // with every template's reason, ...
  std::shared_ptr<const Plan> plan(const Problem& problem, const Operands* layout = nullptr);
  // A plan for a config chosen by the caller, for the problem in the form given, outside the
  // ladder; not cached.
  std::shared_ptr<const Plan> plan_with(const Problem& problem,
                                        const KernelTemplate& kernel_template,
                                        const Config& config);
  // Ladder only: which config and why, whether or not its kernel can be had. Plan::kernel is null.
  Plan choose(const Problem& problem, const Operands* layout = nullptr) const;
  // What plan would give or throw here, found without compiling: Plan::kernel is null when it would
  // be compiled.
  Plan foresee(const Problem& problem, const Operands* layout = nullptr) const;
  // Per template: nullopt = serves, else the reason.
  std::vector<std::pair<std::string, std::optional<std::string>>> check(
      const Problem& problem) const;
  void reload();  // reads the stores, or the pin file, again
  // SHA-256 of what this engine chooses from: the pin file's, or that of the pins that its stores
  // and bundles amount to on this device. Engines of one version whose digests are equal choose
  // alike.
  std::array<uint8_t, 32> pin_digest() const;

 private:
  enum class Kernels;
  Plan look(const Problem& problem, const Operands* layout, Kernels kernels) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attune
