// SPDX-License-Identifier: Apache-2.0
// CudaContext: the driver context of a CudaDevice and its kernels; ContextScope makes it current
// for a call. Device and kernels share it, so that a kernel may outlive the device that loaded it.
#pragma once

#include <memory>

#include "runtime/cuda/driver_table.hpp"

namespace attune::cuda {

class CudaContext {
 public:
  // Returns the calling thread's current context if it belongs to `ordinal` or `ordinal` is -1.
  // Else returns the primary context of `ordinal` (0 for -1), which the CUDA runtime and PyTorch
  // use. Throws kDriver, and kInvalidArgument for a bad ordinal.
  static std::shared_ptr<const CudaContext> open(const DriverTable& driver, int ordinal);
  CudaContext(const DriverTable& driver, Ordinal device, Context handle, bool retained)
      : driver_(driver), device_(device), handle_(handle), retained_(retained) {}
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;
  ~CudaContext();

  const DriverTable& driver() const { return driver_; }
  Ordinal device() const { return device_; }
  Context handle() const { return handle_; }

 private:
  const DriverTable& driver_;
  Ordinal device_;
  Context handle_;
  bool retained_;
};

// Makes the context current for the life of the scope. Costs one driver call if it is current
// already.
class ContextScope {
 public:
  explicit ContextScope(const CudaContext& context) : driver_(context.driver()) {
    Context current = nullptr;
    driver_.cuCtxGetCurrent(&current);
    if (current == context.handle()) return;
    check(driver_, driver_.cuCtxPushCurrent(context.handle()), "cuCtxPushCurrent");
    pushed_ = true;
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope() {
    Context popped = nullptr;
    if (pushed_) driver_.cuCtxPopCurrent(&popped);
  }

 private:
  const DriverTable& driver_;
  bool pushed_ = false;
};

}  // namespace attune::cuda
