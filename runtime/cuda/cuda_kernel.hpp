// SPDX-License-Identifier: Apache-2.0
// A cubin loaded into a context: module, function, shared-memory allowance, launch. Made by
// CudaDevice::load.
#pragma once

#include <memory>

#include "generator/core/kernel_spec.hpp"
#include "generator/core/unique_handle.hpp"
#include "runtime/cuda/cuda_context.hpp"
#include "runtime/device.hpp"

namespace attune::cuda {

class CudaKernel final : public LoadedKernel {
 public:
  CudaKernel(std::shared_ptr<const CudaContext> context, const KernelImage& image,
             const KernelSpec& spec, const LaunchPlan& plan);
  ~CudaKernel() override;

  const ImageInfo& info() const override { return info_; }
  void launch(const LaunchPlan& plan, const AttentionArgs& args,
              StreamHandle stream) const override;

 private:
  void load(const KernelImage& image, const LaunchPlan& plan);
  void read_info();

  std::shared_ptr<const CudaContext> context_;
  KernelSpec spec_;
  ImageInfo info_;
  Module module_ = nullptr;
  Function function_ = nullptr;
};

}  // namespace attune::cuda
