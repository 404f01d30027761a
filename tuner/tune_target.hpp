// SPDX-License-Identifier: Apache-2.0
// TuneTarget: what the tuner knows of the machine it tunes for, except how to measure
// (backend.hpp): which families serve a spec, and how their kernels are made. DeviceTarget is the
// real one; tests script their own.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device.hpp"
#include "tuner/candidate.hpp"

namespace attune {

class TuneTarget {
 public:
  virtual ~TuneTarget() = default;
  virtual Target kind() const = 0;
  virtual const DeviceIdentity& identity() const = 0;
  virtual const DeviceFacts& facts() const = 0;
  // Families that serve the spec here, best first, the reference left out: it is the oracle, never
  // a candidate.
  virtual std::vector<Family> families(const KernelSpec& spec) const = 0;
  virtual ToolchainIdentity toolchain(const Family& family) const = 0;
  // Of the candidate's source (renderer.hpp): what its image is stored under.
  virtual std::string source_digest(const KernelSpec& spec,
                                    const TuneCandidate& candidate) const = 0;
  // Thread-safe. Throws Error (kCompile) with the compiler's words.
  virtual KernelImage make(const KernelSpec& spec, const TuneCandidate& candidate) const = 0;
  // The oracle for this spec: a candidate of the reference template; nullopt when nothing
  // independent serves it.
  virtual std::optional<TuneCandidate> reference(const KernelSpec& spec) const = 0;
};

class DeviceTarget : public TuneTarget {
 public:
  // With `only`, no other family takes part: how one family is held against its peers.
  explicit DeviceTarget(std::shared_ptr<const Device> device, const KernelTemplate* only = nullptr)
      : device_(std::move(device)), identity_(device_->identity()), only_(only) {
    identity_.conditions = device_->conditions();
  }

  Target kind() const override { return device_->target(); }
  const DeviceIdentity& identity() const override { return identity_; }
  const DeviceFacts& facts() const override { return device_->facts(); }
  std::vector<Family> families(const KernelSpec& spec) const override;
  ToolchainIdentity toolchain(const Family& family) const override;
  std::string source_digest(const KernelSpec& spec, const TuneCandidate& candidate) const override;
  KernelImage make(const KernelSpec& spec, const TuneCandidate& candidate) const override;
  std::optional<TuneCandidate> reference(const KernelSpec& spec) const override;

 private:
  std::shared_ptr<const Device> device_;
  DeviceIdentity identity_;  // with the conditions at the start
  const KernelTemplate* only_;
  mutable std::mutex mutex_;  // toolchains_, made at the first question
  mutable std::map<std::pair<const KernelTemplate*, std::string>, ToolchainIdentity> toolchains_;
};

}  // namespace attune
