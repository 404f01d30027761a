// SPDX-License-Identifier: Apache-2.0
// An NVTX range around a run, in the domain "attune", for Nsight Systems and other tools. It costs
// a branch without a tool, and nothing if NVTX's headers were missing at build time.
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
  ~RunRange() {}  // NOLINT(modernize-use-equals-default): a variable that is not used otherwise
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
