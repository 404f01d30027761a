// SPDX-License-Identifier: Apache-2.0
// Roofline: the least time that a problem's useful work can take on a device, from public peaks and
// the clock that was measured during the run. Used by `attune explain` and `attune report`.
#pragma once

#include "cache/identity.hpp"
#include "generator/core/problem/problem.hpp"

namespace attune {

struct Roofline {
  double flops = 0;             // useful ones
  double bytes = 0;             // of all operands, each once
  double flops_per_s = 0;       // peak of the device at that clock; 0: not known
  double bytes_per_s = 0;       // peak of its memory; 0: not known
  double flops_us() const;      // 0: not known
  double bytes_us() const;      // 0: not known
  double bound_us() const;      // the larger of both; 0 if a needed peak is not known
  bool bound_by_flops() const;  // else by memory
  // Returns the share of the roofline that a kernel with this time reaches; 0: not known.
  double share(double time_us) const;
};

// Returns the roofline. If `sm_clock_mhz` is 0 (not read), flops_per_s is not known. The peaks of
// CPUs are never known.
Roofline roofline_of(const Problem& problem, const DeviceIdentity& device, int sm_clock_mhz);

// Returns the dense floating-point operations of one multiprocessor per clock, for products of this
// dtype with sums in fp32; 0: not known. `arch` is a name such as "sm_90". `tf32`: fp32 operands
// are multiplied as tf32.
double flops_per_clock(const std::string& arch, Dtype dtype, bool tf32);

}  // namespace attune
