// SPDX-License-Identifier: Apache-2.0
// Kernel parameters are, in order: AttentionArgs, then one tensor map per LaunchPlan::tensor_maps
// entry.
#include "runtime/cuda/cuda_kernel.hpp"

#include <string>

#include "generator/core/error.hpp"
#include "runtime/cuda/tensor_map.hpp"

namespace attune::cuda {
namespace {

constexpr size_t kMaxTensorMaps = 6;

Dtype dtype_of(const KernelSpec& spec, Operand operand) {
  return operand == Operand::kQ   ? spec.dtype_q
         : operand == Operand::kO ? spec.dtype_o
                                  : spec.dtype_kv;
}

int head_dim_of(const KernelSpec& spec, Operand operand) {
  return operand == Operand::kQ || operand == Operand::kK ? spec.head_dim_qk : spec.head_dim_v;
}

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
  if (plan.tensor_maps.size() > kMaxTensorMaps)
    throw Error(ErrorCode::kInternal, "the plan has " + std::to_string(plan.tensor_maps.size()) +
                                          " tensor maps; at most " +
                                          std::to_string(kMaxTensorMaps) +
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
  check(driver, driver.cuModuleGetFunction(&function_, module_, image.entry.c_str()),
        "cuModuleGetFunction(" + image.entry + ")");
  const int shared = static_cast<int>(plan.shared_bytes);
  check(driver, driver.cuFuncSetAttribute(function_, kFuncMaxDynamicShared, shared),
        "cuFuncSetAttribute(dynamic shared memory " + std::to_string(shared) + " bytes)");
  const int threads = attribute(driver, function_, kFuncMaxThreads);
  if (plan.threads > static_cast<unsigned>(threads))
    throw Error(ErrorCode::kDriver, "the kernel's registers allow " + std::to_string(threads) +
                                        " threads a block here; the plan has " +
                                        std::to_string(plan.threads));
}

void CudaKernel::read_info() {
  const DriverTable& driver = context_->driver();
  info_.registers = attribute(driver, function_, kFuncRegisters);
  info_.static_shared_bytes = attribute(driver, function_, kFuncSharedBytes);
  info_.stack_bytes = attribute(driver, function_, kFuncLocalBytes);
}

CudaKernel::~CudaKernel() {
  const DriverTable& driver = context_->driver();
  Context popped = nullptr;
  const bool pushed = driver.cuCtxPushCurrent(context_->handle()) == kSuccess;
  driver.cuModuleUnload(module_);
  if (pushed) driver.cuCtxPopCurrent(&popped);
}

void CudaKernel::launch(const LaunchPlan& plan, const AttentionArgs& args,
                        StreamHandle stream) const {
  const DriverTable& driver = context_->driver();
  const ContextScope scope(*context_);
  const size_t num_maps = plan.tensor_maps.size();
  TensorMap maps[kMaxTensorMaps];
  void* parameters[1 + kMaxTensorMaps];
  parameters[0] = const_cast<AttentionArgs*>(&args);
  for (size_t i = 0; i < num_maps; ++i) {
    const TensorMapPlan& map = plan.tensor_maps[i];
    encode_tensor_map(
        driver,
        tensor_map_key(map, dtype_of(spec_, map.operand), head_dim_of(spec_, map.operand), args),
        &maps[i]);
    parameters[1 + i] = &maps[i];
  }
  LaunchAttribute cluster;
  cluster.id = kLaunchClusterDimension;
  cluster.value.cluster = {plan.cluster, 1, 1};
  LaunchConfig config{plan.grid_x,
                      plan.grid_y,
                      plan.grid_z,
                      plan.threads,
                      1,
                      1,
                      plan.shared_bytes,
                      static_cast<Stream>(stream),
                      &cluster,
                      plan.cluster > 1 ? 1u : 0u};
  check(driver, driver.cuLaunchKernelEx(&config, function_, parameters, nullptr),
        "cuLaunchKernelEx");
}

}  // namespace attune::cuda
