// SPDX-License-Identifier: Apache-2.0
// Peaks by arch, from the vendor's tables; see roofline.hpp.
#include "tuner/measure/roofline.hpp"

#include <algorithm>
#include <string_view>

#include "generator/core/problem/op.hpp"

namespace attune {
namespace {

struct Peak {
  std::string_view arch;
  double half, fp8, tf32, fp32;  // operations per multiprocessor and clock; 0: not supported
};
// Dense peaks with sums in fp32. For GeForce and professional GPUs of one arch these peaks differ.
constexpr Peak kPeaks[] = {
    {"sm_75", 1024, 0, 0, 128},       {"sm_80", 2048, 0, 1024, 128},
    {"sm_86", 512, 0, 256, 256},      {"sm_89", 512, 1024, 256, 256},
    {"sm_90", 4096, 8192, 2048, 256}, {"sm_100", 8192, 16384, 4096, 256},
    {"sm_120", 512, 1024, 256, 256},
};

double time_us(double work, double rate) { return rate > 0 ? work / rate * 1e6 : 0; }

}  // namespace

double flops_per_clock(const std::string& arch, Dtype dtype, bool tf32) {
  for (const Peak& peak : kPeaks) {
    if (peak.arch != arch) continue;
    if (dtype == Dtype::kFp32) return tf32 ? peak.tf32 : peak.fp32;
    return is_8_bit(dtype) ? peak.fp8 : peak.half;
  }
  return 0;
}

Roofline roofline_of(const Problem& problem, const DeviceIdentity& device, int sm_clock_mhz) {
  Roofline roofline{useful_flops(problem), operand_bytes(problem)};
  if (device.is_cpu()) return roofline;
  const bool tf32 = problem.fp8.accuracy != Accuracy::kAccurate;
  roofline.flops_per_s = flops_per_clock(device.arch, problem.dtype_q, tf32) * device.sm_count *
                         std::max(sm_clock_mhz, 0) * 1e6;
  roofline.bytes_per_s = device.facts().memory_bytes_per_s;
  return roofline;
}

double Roofline::flops_us() const { return time_us(flops, flops_per_s); }
double Roofline::bytes_us() const { return time_us(bytes, bytes_per_s); }
bool Roofline::bound_by_flops() const { return flops_us() > bytes_us(); }

double Roofline::bound_us() const {
  if ((flops > 0 && flops_per_s <= 0) || bytes_per_s <= 0) return 0;
  return std::max(flops_us(), bytes_us());
}

double Roofline::share(double time) const { return time > 0 ? bound_us() / time : 0; }

}  // namespace attune
