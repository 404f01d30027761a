// SPDX-License-Identifier: Apache-2.0
// Roofline: the least time that a problem's useful work takes on a device, from public peaks and the
// clock that was read while it ran. Used by `attune explain` and `attune report`.
#pragma once

#include "cache/identity.hpp"
#include "generator/core/problem.hpp"

namespace attune {

struct Roofline {
  double flops = 0;             // useful ones
  double bytes = 0;             // of all operands, each once
  double flops_per_s = 0;       // peak of the device at that clock; 0: not known
  double bytes_per_s = 0;       // peak of its memory; 0: not known
  double flops_us() const;      // 0: not known
  double bytes_us() const;      // 0: not known
  double bound_us() const;      // the larger; 0 where a peak that counts is not known
  bool bound_by_flops() const;  // else by memory
  // Part of the roofline that a kernel of this time reaches; 0: not known.
  double share(double time_us) const;
};

// `sm_clock_mhz` 0: not read, then flops_per_s is not known. Of a CPU no peak is known.
Roofline roofline_of(const Problem& problem, const DeviceIdentity& device, int sm_clock_mhz);

// Dense floating-point operations of one multiprocessor in one clock, with products of this dtype
// summed in fp32; 0: not known. `arch` is "sm_90"; fp32 by tf32 products where `tf32`.
double flops_per_clock(const std::string& arch, Dtype dtype, bool tf32);

}  // namespace attune
