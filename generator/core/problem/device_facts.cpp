// SPDX-License-Identifier: Apache-2.0
// The typical device of each arch, from public tables; see device_facts.hpp.
#include "generator/core/problem/device_facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace attune {
namespace {

struct Row {
  int least_capability;
  KnownDevice device;
};

constexpr int64_t kMb = 1 << 20;

// Sorted in descending order; an arch takes the first row whose number it reaches.
constexpr Row kDevices[] = {
    {121, {"NVIDIA GB10", {48, 24 * kMb, 0.273e12}}},
    {120, {"NVIDIA RTX PRO 6000", {188, 128 * kMb, 1.792e12}}},
    {110, {"NVIDIA Thor", {20, 32 * kMb, 0.273e12}}},
    {100, {"NVIDIA B200", {148, 126 * kMb, 8.0e12}}},
    {90, {"NVIDIA H200", {132, 50 * kMb, 4.917e12}}},
    {89, {"NVIDIA L40S", {142, 96 * kMb, 0.864e12}}},
    {86, {"NVIDIA A40", {84, 6 * kMb, 0.696e12}}},
    {80, {"NVIDIA A100", {108, 40 * kMb, 1.555e12}}},
    {75, {"NVIDIA T4", {40, 4 * kMb, 0.320e12}}},
    {0, {"a CPU with 8 threads", {8, 32 * kMb, 0}}},
};

}  // namespace

std::string to_text(const DeviceFacts& facts) {
  std::string text =
      fmt::format("{} multiprocessors, {} MB of L2", facts.sm_count, facts.l2_bytes / kMb);
  if (facts.memory_bytes_per_s > 0)
    text += fmt::format(", {:.1f} TB/s", facts.memory_bytes_per_s / 1e12);
  return text;
}

const KnownDevice& typical_device(const Arch& arch) {
  return std::find_if(
             std::begin(kDevices), std::end(kDevices) - 1,
             [&](const Row& row) { return arch.compute_capability >= row.least_capability; })
      ->device;
}

}  // namespace attune
