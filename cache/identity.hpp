// SPDX-License-Identifier: Apache-2.0
// The four identities of cache/FORMAT.md, each a canonical text with its own digest, so that a miss
// can say which differed.
#pragma once

#include <cstdint>
#include <string>

#include "generator/core/device_facts.hpp"

namespace attune {

// What a device runs under: it changes while the device stays the same, so it is no part of the
// identity. Timings taken under other conditions are old, not wrong.
struct Conditions {
  std::string driver;     // "580.159.04"; "" = not known
  int power_limit_w = 0;  // that the driver enforces; 0 = not known

  bool operator==(const Conditions&) const = default;
};

// "580.1, 500 W"; what is not known is left out.
std::string to_text(const Conditions& conditions);
// What differs of what both know, each as `pattern` says: with "{}, now {}" it is
// "driver 550.54, now 580.1 and power limit 500 W, now 700 W". Empty where nothing does.
std::string difference(const Conditions& one, const Conditions& other, const char* pattern);

// Structural facts first; the name is information only and takes no part in the digest.
struct DeviceIdentity {
  std::string arch;  // "sm_90" or "cpu:znver4": what the device is, not what code was made for
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
  // For people: the name, and the threads of a CPU: "AMD EPYC 9654, 8 threads".
  std::string title() const;
  // The name with the facts that decisions depend on, "NVIDIA H200 (132 multiprocessors, ...)".
  std::string facts_title() const;
  bool operator==(const DeviceIdentity&) const = default;  // the name and the conditions too
};

// Whether both are one CPU with other numbers of threads: its timings differ, its best configs
// hardly.
bool differ_in_threads_alone(const DeviceIdentity& a, const DeviceIdentity& b);

// template_digest covers the text that kernels of every config are made of; compiler and options complete it.
struct ToolchainIdentity {
  std::string template_name;    // "prefill_sm80"
  std::string template_digest;  // renderer.hpp
  std::string compiler;         // "nvrtc 13.0"
  std::string options;

  std::string text() const;
  std::string digest() const;
  bool operator==(const ToolchainIdentity&) const = default;
};

// How timings were taken; part of a timing's identity.
struct MeasurePolicy {
  std::string text;  // e.g. "v1 cold-l2 interleaved"
};

}  // namespace attune
