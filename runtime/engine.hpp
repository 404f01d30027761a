// SPDX-License-Identifier: Apache-2.0
// Engine: Problem -> Plan. It owns the winners of this device (read once from the stores), the
// images loaded so far and the ladder: pinned -> exact -> same bucket -> nearest tuned shape ->
// default config -> reference kernel. attune.h is a thin skin over it; the tuner uses it to bench,
// check and explain.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/records.hpp"
#include "generator/core/op.hpp"
#include "runtime/device.hpp"

namespace attune {

// The lowest rung a caller accepts; below it `plan` throws kNotTuned. Values as in attune.h.
//   kDefault: any.  kNearest: some tuned shape of the same spec.  kStrict: this shape or its
//   bucket. kTuneOnMiss: tunes where kStrict would throw, then as kDefault; for programs of this
//   project that bring a ConfigSource, no word of the environment or of attune.h.
enum class Policy : int { kDefault = 0, kNearest = 1, kStrict = 2, kTuneOnMiss = 3 };
const char* policy_name(Policy policy);
Policy parse_policy(std::string_view text);  // default, nearest, strict
enum class Rung : int { kPinned, kExact, kBucket, kNearest, kDefaultConfig, kReference };
const char* rung_name(Rung rung);

// Strides (elements) and addresses of one call; see AttentionArgs for shapes.
struct Operands {
  OperandView q, k, v, o;
  float* lse = nullptr;
  int64_t lse_batch_stride = 0;  // 0 = contiguous [batch, num_heads_q, seqlen_q]
  int64_t lse_head_stride = 0;
  ScaleView q_scale{}, k_scale{}, v_scale{};  // 8-bit operands; null data: every factor is 1
  ScaleView o_scale{};                        // written by the quantise op
};
// Views with the default layout [batch, seqlen, num_heads, head_dim], contiguous.
Operands contiguous_operands(const Problem& problem, void* q, void* k, void* v, void* o,
                             float* lse);

// Immutable and thread-safe. What will be launched for a Problem and how it was chosen.
struct Plan {
  Problem problem;       // canonical: problems that are the same have one plan
  OperandList operands;  // of the problem
  const KernelTemplate* kernel_template = nullptr;
  Arch arch;
  Config config;
  LaunchPlan launch;
  std::shared_ptr<const Device> device;
  std::shared_ptr<const LoadedKernel> kernel;
  Rung rung = Rung::kDefaultConfig;
  std::string why;  // one sentence
  std::vector<std::string>
      passed_over;  // what stood above it and why it was not taken, one sentence each
  std::optional<WinnerRecord> winner;  // the row that decided, if any
  double distance = 0;                 // kNearest: log2 distance to the tuned shape
  std::vector<std::string> warnings;   // damaged or refused files met on the way, one sentence each
  std::string image_from;              // "store", "bundle" or "compiler nvrtc 13.0"
  double expected_us = 0;              // 0 = unknown
  bool check_workspace = false;        // as EngineOptions

  int64_t workspace_bytes() const { return launch.workspace_bytes; }
  std::string explain() const { return explain(problem); }
  std::string explain(const Problem& asked) const;  // several lines of text
};

// A low layer's view of live tuning (policy tune_on_miss); the tuner implements it.
class ConfigSource {
 public:
  virtual ~ConfigSource() = default;
  virtual std::optional<WinnerRecord> tune(const Problem& problem) = 0;
};

struct EngineOptions {
  std::filesystem::path user_store;  // empty = default location (default_store_path())
  std::vector<std::filesystem::path> more_stores;  // site, then shipped; read-only
  std::vector<std::filesystem::path>
      bundles;  // folders written by write_bundle; asked before the stores
  bool use_store = true;
  bool may_compile = true;       // false = policy no_jit
  bool check_workspace = false;  // runs wait for the GPU and refuse a workspace not initialised
  bool keep_images = true;       // write images of plans made here into the user store
  Policy policy = Policy::kDefault;
  std::filesystem::path capture_file;     // problems seen, as JSON lines; empty = off
  ConfigSource* config_source = nullptr;  // not owned
  size_t max_plans = 2048;  // kept at a time, the least recently used go first; 2 to 6 KB each
};

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
  void reload();  // reads the stores again

 private:
  enum class Kernels;
  Plan look(const Problem& problem, const Operands* layout, Kernels kernels) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Validates operands against the plan's problem (null, alignment, strides, workspace size), then
// launches. No locks, no allocation.
void run(const Plan& plan, const Operands& operands, void* workspace, int64_t workspace_bytes,
         StreamHandle stream);

// Zeroes the part of a workspace that kernels expect to be zero: once after it was allocated, not
// before every run.
void init_workspace(const Plan& plan, void* workspace, int64_t workspace_bytes,
                    StreamHandle stream);

// $ATTUNE_STORE, else $XDG_CACHE_HOME/attune/store.db, else ~/.cache/attune/store.db. Empty, for no
// store, when no home directory is known.
std::filesystem::path default_store_path();
// The store files that an engine of these options reads, uppermost first.
std::vector<std::filesystem::path> store_layers(const EngineOptions& options);

}  // namespace attune
