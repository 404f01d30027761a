// SPDX-License-Identifier: Apache-2.0
// Loading and launching cubins. Kernel parameters are, in order, the argument parts of the step,
// then its tensor maps.
#include "runtime/cuda/cuda_kernel.hpp"

#include <fmt/format.h>

#include <string>

#include "generator/core/system/error.hpp"
#include "runtime/cuda/tensor_map.hpp"

namespace attune::cuda {
namespace {

// The bytes of parameters that a kernel may have on every arch, and the most tensor maps that fit.
constexpr size_t kParameterBytes = 4096;
constexpr size_t kMostTensorMaps = kParameterBytes / sizeof(TensorMap);
constexpr size_t kArgumentParts = 11;  // values of ArgumentPart

size_t bytes_of(ArgumentPart part) {
  switch (part) {
    case ArgumentPart::kMap:
      return sizeof(BlockMapArgs);
    case ArgumentPart::kScores:
      return sizeof(ScoreArgs);
    case ArgumentPart::kBase:
      return sizeof(AttentionArgs);
    case ArgumentPart::kScales:
      return sizeof(ScaleArgs);
    case ArgumentPart::kGradients:
      return sizeof(GradientArgs);
    case ArgumentPart::kDropout:
      return sizeof(DropoutArgs);
    case ArgumentPart::kCache:
      return sizeof(CacheArgs);
    case ArgumentPart::kAppend:
      return sizeof(AppendArgs);
    case ArgumentPart::kRound:
      return sizeof(RoundArgs);
    case ArgumentPart::kLists:
      return sizeof(KeyListArgs);
    case ArgumentPart::kGroups:
      return sizeof(GroupFactorArgs);
  }
  return 0;
}

void check_parameters(const StepStructure& step) {
  size_t bytes = 0;
  for (const ArgumentPart part : step.parts) bytes += bytes_of(part);
  bytes = (bytes + alignof(TensorMap) - 1) / alignof(TensorMap) * alignof(TensorMap) +
          step.tensor_maps.size() * sizeof(TensorMap);
  if (step.parts.size() > kArgumentParts || bytes > kParameterBytes)
    throw Error(ErrorCode::kInternal,
                fmt::format("{} takes {} argument parts and {} tensor maps, {} bytes; at most {} "
                            "are passed to a kernel",
                            step.entry, step.parts.size(), step.tensor_maps.size(), bytes,
                            kParameterBytes));
}

// Returns an attribute of the function. This call also loads the function, so that lazy loading
// never happens in a launch or the capture of a graph.
int attribute(const DriverTable& driver, Function function, int which) {
  int value = 0;
  check(driver, driver.cuFuncGetAttribute(&value, which, function), "cuFuncGetAttribute");
  return value;
}

}  // namespace

CudaKernel::CudaKernel(std::shared_ptr<const CudaContext> context, const KernelImage& image,
                       const KernelSpec& spec, const LaunchStructure& structure)
    : context_(std::move(context)), spec_(spec), info_(image.info) {
  if (image.format != ImageFormat::kCubin)
    throw Error(ErrorCode::kInvalidArgument,
                "the image is a host object; a CUDA device loads cubins");
  for (const StepStructure& step : structure.steps) check_parameters(step);
  const ContextScope scope(*context_);
  try {
    load(image, structure);
    read_info(structure.main_step);
  } catch (...) {
    if (module_) context_->driver().cuModuleUnload(module_);
    throw;
  }
}

void CudaKernel::load(const KernelImage& image, const LaunchStructure& structure) {
  const DriverTable& driver = context_->driver();
  const Result loaded =
      driver.cuModuleLoadDataEx(&module_, image.bytes.data(), 0, nullptr, nullptr);
  if (loaded == kNoBinaryForGpu || loaded == kInvalidImage)
    throw Error(ErrorCode::kInvalidArgument,
                loaded == kNoBinaryForGpu ? "the cubin was made for another arch than this device's"
                                          : "the image is not a cubin this driver can read");
  check(driver, loaded, "cuModuleLoadDataEx");
  for (const StepStructure& step : structure.steps)
    add_function(step, entry_in(image.entry, step.entry));
}

void CudaKernel::add_function(const StepStructure& step, const std::string& entry) {
  const DriverTable& driver = context_->driver();
  Function function = nullptr;
  check(driver, driver.cuModuleGetFunction(&function, module_, entry.c_str()),
        "cuModuleGetFunction(" + entry + ")");
  const int shared = static_cast<int>(step.shared_bytes);
  check(driver, driver.cuFuncSetAttribute(function, kFuncMaxDynamicShared, shared),
        "cuFuncSetAttribute(dynamic shared memory " + std::to_string(shared) + " bytes)");
  const int threads = attribute(driver, function, kFuncMaxThreads);
  if (step.threads > static_cast<unsigned>(threads))
    throw Error(ErrorCode::kDriver, entry + "'s registers allow " + std::to_string(threads) +
                                        " threads a block here; the plan has " +
                                        std::to_string(step.threads));
  // Code for an earlier arch does not wait for the previous grid, on any device.
  constexpr int kFirstToWait = 90;
  functions_.push_back(
      {function, step.early && attribute(driver, function, kFuncBinaryVersion) >= kFirstToWait});
}

void CudaKernel::read_info(size_t main_step) {
  const DriverTable& driver = context_->driver();
  const Function function = functions_[main_step].function;
  info_.registers = attribute(driver, function, kFuncRegisters);
  info_.static_shared_bytes = attribute(driver, function, kFuncSharedBytes);
  info_.stack_bytes = attribute(driver, function, kFuncLocalBytes);
}

CudaKernel::~CudaKernel() {
  const DriverTable& driver = context_->driver();
  Context popped = nullptr;
  const bool pushed = driver.cuCtxPushCurrent(context_->handle()) == kSuccess;
  driver.cuModuleUnload(module_);
  if (pushed) driver.cuCtxPopCurrent(&popped);
}

void CudaKernel::launch(const LaunchPlan& plan, KernelArguments& args, StreamHandle stream) const {
  const ContextScope scope(*context_);
  plan.each_launch(args, [&](size_t i, const KernelArguments& with) {
    if (plan.steps[i].grid_x != 0) launch_step(functions_[i], plan.steps[i], plan, with, stream);
  });
}

void CudaKernel::launch_step(const StepFunction& loaded, const LaunchStep& step,
                             const LaunchPlan& plan, const KernelArguments& args,
                             StreamHandle stream) const {
  const DriverTable& driver = context_->driver();
  TensorMap maps[kMostTensorMaps];
  void* parameters[kArgumentParts + kMostTensorMaps];
  void** parameter = parameters;
  for (const ArgumentPart part : step.parts) *parameter++ = const_cast<void*>(part_of(args, part));
  for (size_t i = 0; i < step.tensor_maps.size(); ++i) {
    encode_tensor_map(driver, tensor_map_key(step.tensor_maps[i], spec_, plan.workspace, args),
                      &maps[i]);
    *parameter++ = &maps[i];
  }
  LaunchAttribute attributes[2];
  unsigned num_attributes = 0;
  if (step.cluster > 1) {
    attributes[num_attributes].id = kLaunchClusterDimension;
    attributes[num_attributes++].value.cluster = {step.cluster, 1, 1};
  }
  if (loaded.may_start_early) {
    attributes[num_attributes].id = kLaunchProgrammaticSerialization;
    attributes[num_attributes++].value.programmatic_serialization = 1;
  }
  const bool makes_map = plan.map && &step == &plan.steps.front();
  LaunchConfig config{makes_map ? static_cast<unsigned>(args.map.num_lists) : step.grid_x,
                      step.grid_y,
                      step.grid_z,
                      step.threads,
                      1,
                      1,
                      step.shared_bytes,
                      static_cast<Stream>(stream),
                      attributes,
                      num_attributes};
  check(driver, driver.cuLaunchKernelEx(&config, loaded.function, parameters, nullptr),
        "cuLaunchKernelEx");
}

}  // namespace attune::cuda
