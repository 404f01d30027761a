// SPDX-License-Identifier: Apache-2.0
// Kernel parameters are, in order: the arguments, then one tensor map per KernelLaunch::tensor_maps
// entry. A kernel that declares AttentionArgs is given the leading part of ScaledAttentionArgs.
#include "runtime/cuda/cuda_kernel.hpp"

#include <string>

#include "generator/core/error.hpp"
#include "runtime/cuda/tensor_map.hpp"

namespace attune::cuda {
namespace {

constexpr size_t kMaxTensorMaps = 6;

// Asks for the function's attributes now, so that lazy loading never falls into a launch or a graph
// capture.
int attribute(const DriverTable& driver, Function function, int which) {
  int value = 0;
  check(driver, driver.cuFuncGetAttribute(&value, which, function), "cuFuncGetAttribute");
  return value;
}

}  // namespace

CudaKernel::CudaKernel(std::shared_ptr<const CudaContext> context, const KernelImage& image,
                       const KernelSpec& spec, const LaunchPlan& plan)
    : context_(std::move(context)), spec_(spec), info_(image.info) {
  if (image.format != ImageFormat::kCubin)
    throw Error(ErrorCode::kInvalidArgument,
                "the image is a host object; a CUDA device loads cubins");
  for (const KernelLaunch& kernel : plan.kernels)
    if (kernel.tensor_maps.size() > kMaxTensorMaps)
      throw Error(ErrorCode::kInternal,
                  "the plan has " + std::to_string(kernel.tensor_maps.size()) +
                      " tensor maps; at most " + std::to_string(kMaxTensorMaps) +
                      " are passed to a kernel");
  const ContextScope scope(*context_);
  try {
    load(image, plan);
    read_info();
  } catch (...) {
    if (module_) context_->driver().cuModuleUnload(module_);
    throw;
  }
}

void CudaKernel::load(const KernelImage& image, const LaunchPlan& plan) {
  const DriverTable& driver = context_->driver();
  const Result loaded =
      driver.cuModuleLoadDataEx(&module_, image.bytes.data(), 0, nullptr, nullptr);
  if (loaded == kNoBinaryForGpu || loaded == kInvalidImage)
    throw Error(ErrorCode::kInvalidArgument,
                loaded == kNoBinaryForGpu ? "the cubin was made for another arch than this device's"
                                          : "the image is not a cubin this driver can read");
  check(driver, loaded, "cuModuleLoadDataEx");
  for (const KernelLaunch& kernel : plan.kernels) add_function(kernel);
}

void CudaKernel::add_function(const KernelLaunch& kernel) {
  const DriverTable& driver = context_->driver();
  Function function = nullptr;
  check(driver, driver.cuModuleGetFunction(&function, module_, kernel.entry.c_str()),
        "cuModuleGetFunction(" + kernel.entry + ")");
  const int shared = static_cast<int>(kernel.shared_bytes);
  check(driver, driver.cuFuncSetAttribute(function, kFuncMaxDynamicShared, shared),
        "cuFuncSetAttribute(dynamic shared memory " + std::to_string(shared) + " bytes)");
  const int threads = attribute(driver, function, kFuncMaxThreads);
  if (kernel.threads > static_cast<unsigned>(threads))
    throw Error(ErrorCode::kDriver, kernel.entry + "'s registers allow " + std::to_string(threads) +
                                        " threads a block here; the plan has " +
                                        std::to_string(kernel.threads));
  functions_.push_back(function);
}

void CudaKernel::read_info() {
  const DriverTable& driver = context_->driver();
  info_.registers = attribute(driver, functions_.back(), kFuncRegisters);
  info_.static_shared_bytes = attribute(driver, functions_.back(), kFuncSharedBytes);
  info_.stack_bytes = attribute(driver, functions_.back(), kFuncLocalBytes);
}

CudaKernel::~CudaKernel() {
  const DriverTable& driver = context_->driver();
  Context popped = nullptr;
  const bool pushed = driver.cuCtxPushCurrent(context_->handle()) == kSuccess;
  driver.cuModuleUnload(module_);
  if (pushed) driver.cuCtxPopCurrent(&popped);
}

void CudaKernel::launch(const LaunchPlan& plan, const ScaledAttentionArgs& args,
                        StreamHandle stream) const {
  const ContextScope scope(*context_);
  for (size_t i = 0; i < plan.kernels.size(); ++i)
    launch_one(functions_[i], plan.kernels[i], plan.v_transposed, args, stream);
}

void CudaKernel::launch_one(Function function, const KernelLaunch& kernel,
                            const TransposedV& v_transposed, const ScaledAttentionArgs& args,
                            StreamHandle stream) const {
  const DriverTable& driver = context_->driver();
  const size_t num_maps = kernel.tensor_maps.size();
  TensorMap maps[kMaxTensorMaps];
  void* parameters[1 + kMaxTensorMaps];
  parameters[0] = const_cast<ScaledAttentionArgs*>(&args);
  for (size_t i = 0; i < num_maps; ++i) {
    encode_tensor_map(driver, tensor_map_key(kernel.tensor_maps[i], spec_, v_transposed, args),
                      &maps[i]);
    parameters[1 + i] = &maps[i];
  }
  LaunchAttribute attributes[2];
  unsigned num_attributes = 0;
  if (kernel.cluster > 1) {
    attributes[num_attributes].id = kLaunchClusterDimension;
    attributes[num_attributes++].value.cluster = {kernel.cluster, 1, 1};
  }
  if (kernel.early) {
    attributes[num_attributes].id = kLaunchProgrammaticSerialization;
    attributes[num_attributes++].value.programmatic_serialization = 1;
  }
  LaunchConfig config{kernel.grid_x,
                      kernel.grid_y,
                      kernel.grid_z,
                      kernel.threads,
                      1,
                      1,
                      kernel.shared_bytes,
                      static_cast<Stream>(stream),
                      attributes,
                      num_attributes};
  check(driver, driver.cuLaunchKernelEx(&config, function, parameters, nullptr),
        "cuLaunchKernelEx");
}

}  // namespace attune::cuda
