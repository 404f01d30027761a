// SPDX-License-Identifier: Apache-2.0
// The identities of devices and toolchains (cache/FORMAT.md has all four). Each is a canonical text
// with its own digest, so that a message about a miss can name the identity that differs.
#pragma once

#include <cstdint>
#include <string>

#include "generator/core/problem/device_facts.hpp"

namespace attune {

// Conditions under which a device runs. They change while the device stays the same, so they are
// not part of the identity. Timings under other conditions are out of date, but still used.
struct Conditions {
  std::string driver;     // "580.159.04"; "" = not known
  int power_limit_w = 0;  // enforced by the driver; 0 = not known

  bool operator==(const Conditions&) const = default;
};

// Returns "580.1, 500 W", without values that are not known.
std::string to_text(const Conditions& conditions);
// Returns the differences between values that are known in both, each formatted by `pattern`: "{},
// now {}" gives "driver 550.54, now 580.1 and power limit 500 W, now 700 W". "" if nothing differs.
std::string difference(const Conditions& one, const Conditions& other, const char* pattern);

// A device. All fields but the name and the conditions are part of the digest.
struct DeviceIdentity {
  std::string arch;  // of the device, not of compiled code: "sm_90" or "cpu:znver4"
  int sm_count = 0;  // CPU: cores used
  int shared_bytes_per_block = 0;
  int registers_per_sm = 0;
  int64_t l2_bytes = 0;
  int memory_bus_bits = 0;
  int memory_clock_khz = 0;
  std::string slice;      // MIG profile, or CPU feature list
  std::string name;       // "NVIDIA H200"; not part of the identity
  Conditions conditions;  // not part of the identity: a change makes timings soft-stale

  std::string text() const;
  std::string digest() const;
  bool is_cpu() const;
  DeviceFacts facts() const;
  // Returns the name for messages, for a CPU with its threads: "AMD EPYC 9654, 8 threads".
  std::string title() const;
  // Returns the name with the facts that decisions depend on,
  // "NVIDIA H200 (132 multiprocessors, ...)".
  std::string facts_title() const;
  bool operator==(const DeviceIdentity&) const = default;  // compares name and conditions too
};

// True if both are one CPU with different numbers of threads. Their timings differ, but their best
// configs hardly do.
bool differ_in_threads_alone(const DeviceIdentity& a, const DeviceIdentity& b);

// The template and compiler of an image or timing. template_digest covers the text from which the
// kernels of all configs are made.
struct ToolchainIdentity {
  std::string template_name;    // "prefill_sm80"
  std::string template_digest;  // renderer.hpp
  std::string compiler;         // "nvrtc 13.0"
  std::string options;

  std::string text() const;
  std::string digest() const;
  bool operator==(const ToolchainIdentity&) const = default;
};

// The way of measuring, which is part of a timing's identity.
struct MeasurePolicy {
  std::string text;  // e.g. "v1 cold-l2 interleaved"
};

}  // namespace attune
