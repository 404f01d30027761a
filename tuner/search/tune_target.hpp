// SPDX-License-Identifier: Apache-2.0
// TuneTarget: the machine for which the tuner works, without the measuring (backend.hpp). It states
// which families serve a spec, and how their kernels are made. DeviceTarget is the real machine;
// tests script their own.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/device.hpp"
#include "tuner/search/candidate.hpp"

namespace attune {

class TuneTarget {
 public:
  virtual ~TuneTarget() = default;
  virtual Target kind() const = 0;
  virtual const DeviceIdentity& identity() const = 0;
  virtual const DeviceFacts& facts() const = 0;
  // Returns the families that serve the spec here, best first. Leaves out the reference, which is
  // an oracle and never a candidate.
  virtual std::vector<Family> families(const KernelSpec& spec) const = 0;
  virtual ToolchainIdentity toolchain(const Family& family) const = 0;
  // Returns the digest of the candidate's source (renderer.hpp), which identifies its image in the
  // store.
  virtual std::string source_digest(const KernelSpec& spec,
                                    const TuneCandidate& candidate) const = 0;
  // Compiles a candidate. Thread-safe. Throws Error (kCompile) with the compiler's messages.
  virtual KernelImage make(const KernelSpec& spec, const TuneCandidate& candidate) const = 0;
  // Returns the reference kernel for this spec; nullopt if no reference template serves it.
  virtual std::optional<TuneCandidate> reference(const KernelSpec& spec) const = 0;
};

class DeviceTarget : public TuneTarget {
 public:
  // With `only`, all other families are left out. This serves to compare one family with other
  // libraries.
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
  mutable std::mutex mutex_;  // guards toolchains_, which are made on first use
  mutable std::map<std::pair<const KernelTemplate*, std::string>, ToolchainIdentity> toolchains_;
};

}  // namespace attune
