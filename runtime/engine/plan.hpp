// SPDX-License-Identifier: Apache-2.0
// Plan: the kernel that was chosen and loaded for a problem (engine.hpp makes it), with functions
// that run it, prepare its workspace and explain it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/records.hpp"
#include "generator/kernel_template.hpp"
#include "runtime/engine/capture.hpp"
#include "runtime/engine/device.hpp"
#include "runtime/engine/engine_options.hpp"
#include "runtime/operands/operand_rules.hpp"
#include "runtime/operands/operands.hpp"

namespace attune {

// The launches for a Problem, and how they were chosen. Immutable and thread-safe.
struct Plan {
  Problem problem;        // canonical: problems with the same meaning share a plan
  OperandRules operands;  // that a run checks
  ScoreCaptures scores;   // that score features read
  const KernelTemplate* kernel_template = nullptr;
  Arch arch;
  Config config;
  LaunchPlan launch;
  std::shared_ptr<const Device> device;
  std::shared_ptr<const LoadedKernel> kernel;
  Rung rung = Rung::kDefaultConfig;
  std::string why;                       // one sentence
  std::vector<std::string> passed_over;  // better choices that were not taken, one sentence each
  std::optional<WinnerRecord> winner;    // the row that decided, if any
  double distance = 0;                   // kNearest: log2 distance to the tuned shape
  std::vector<std::string> warnings;     // damaged or refused files, one sentence each
  std::string image_from;                // "store", "bundle" or "compiler nvrtc 13.0"
  double expected_us = 0;                // 0 = unknown
  bool check_workspace = false;          // as EngineOptions
  std::shared_ptr<CallCounts> calls;     // null unless problems are captured

  int64_t workspace_bytes() const { return launch.workspace_bytes; }
  std::string explain() const { return explain(problem); }
  std::string explain(const Problem& asked) const;  // several lines of text
};

// Checks operands against the plan's problem (null, alignment, strides, workspace size), then
// launches. Takes no lock and allocates nothing.
void run(const Plan& plan, const Operands& operands, void* workspace, int64_t workspace_bytes,
         StreamHandle stream);

// Zeroes the part of a workspace that kernels expect to be zero. Needed once after the workspace
// was allocated, not before each run.
void init_workspace(const Plan& plan, void* workspace, int64_t workspace_bytes,
                    StreamHandle stream);

// Returns "attune_amax: 128 threads, grid 8x1x1; then 128 threads, grid 4x8x1, 4096 bytes of
// dynamic shared memory"
std::string launch_text(const LaunchPlan& launch);

}  // namespace attune
