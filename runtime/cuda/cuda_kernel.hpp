// SPDX-License-Identifier: Apache-2.0
// A cubin that is loaded into a context: module, functions, limits of shared memory, launch. Made
// by CudaDevice::load.
#pragma once

#include <memory>
#include <vector>

#include "generator/core/problem/kernel_spec.hpp"
#include "generator/core/system/unique_handle.hpp"
#include "runtime/cuda/cuda_context.hpp"
#include "runtime/engine/device.hpp"

namespace attune::cuda {

class CudaKernel final : public LoadedKernel {
 public:
  CudaKernel(std::shared_ptr<const CudaContext> context, const KernelImage& image,
             const KernelSpec& spec, const LaunchStructure& structure);
  ~CudaKernel() override;

  const ImageInfo& info() const override { return info_; }
  void launch(const LaunchPlan& plan, KernelArguments& args, StreamHandle stream) const override;

 private:
  struct StepFunction {
    Function function;
    bool may_start_early;  // before the previous grid has ended
  };

  void load(const KernelImage& image, const LaunchStructure& structure);
  void add_function(const StepStructure& step, const std::string& entry);
  void read_info(size_t main_step);
  void launch_step(const StepFunction& loaded, const LaunchStep& step, const LaunchPlan& plan,
                   const KernelArguments& args, StreamHandle stream) const;

  std::shared_ptr<const CudaContext> context_;
  KernelSpec spec_;
  ImageInfo info_;
  Module module_ = nullptr;
  std::vector<StepFunction> functions_;  // as LaunchStructure::steps
};

}  // namespace attune::cuda
