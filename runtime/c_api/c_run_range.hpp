// SPDX-License-Identifier: Apache-2.0
// An NVTX range around a run, in the domain "attune", for Nsight Systems and other tools. Costs one
// branch if no tool is attached, and nothing if NVTX's headers were missing at build time.
#pragma once

struct attune_plan;

namespace attune::c_api {

class RunRange {
 public:
#if ATTUNE_NVTX
  explicit RunRange(const attune_plan& plan) : begun_(begin(plan)) {}
  ~RunRange() {
    if (begun_) [[unlikely]]
      end();
  }
#else
  explicit RunRange(const attune_plan&) {}
  ~RunRange() {}  // NOLINT(modernize-use-equals-default): avoids unused-variable warnings
#endif
  RunRange(const RunRange&) = delete;
  RunRange& operator=(const RunRange&) = delete;

#if ATTUNE_NVTX
 private:
  static bool begin(const attune_plan& plan) noexcept;
  static void end() noexcept;

  const bool begun_;
#endif
};

}  // namespace attune::c_api
