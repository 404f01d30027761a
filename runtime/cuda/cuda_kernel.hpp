// SPDX-License-Identifier: Apache-2.0
// A cubin loaded into a context: module, functions, shared-memory allowance, launch. Made by
// CudaDevice::load.
#pragma once

#include <memory>
#include <vector>

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
  void launch(const LaunchPlan& plan, const ScaledAttentionArgs& args,
              StreamHandle stream) const override;

 private:
  void load(const KernelImage& image, const LaunchPlan& plan);
  void add_function(const KernelLaunch& kernel);
  void read_info();
  void launch_one(Function function, const KernelLaunch& kernel, const TransposedV& v_transposed,
                  const ScaledAttentionArgs& args, StreamHandle stream) const;

  std::shared_ptr<const CudaContext> context_;
  KernelSpec spec_;
  ImageInfo info_;
  Module module_ = nullptr;
  std::vector<Function> functions_;  // as LaunchPlan::kernels
};

}  // namespace attune::cuda
