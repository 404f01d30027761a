// SPDX-License-Identifier: Apache-2.0
// A range of NVTX around a run, in the domain "attune", for Nsight Systems and other tools. Without a tool it costs a branch; without NVTX's headers
// at build time nothing.
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
