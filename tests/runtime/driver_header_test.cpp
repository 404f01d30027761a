// SPDX-License-Identifier: Apache-2.0
// Compares attune's declarations of the driver with the toolkit's cuda.h. Built only if that header
// is installed. The compiler does the checks; the test only reports that they were compiled.
#include <cuda.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "runtime/cuda/driver_table.hpp"

namespace attune::cuda {
namespace {

// True if a caller compiled in C passes both alike: equal types, pointers, or an integer of the
// size of an enumeration.
template <class Ours, class Theirs>
constexpr bool same_argument() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>)
    return true;
  else
    return sizeof(Ours) == sizeof(Theirs) &&
           (std::is_enum_v<Theirs> || std::is_integral_v<Theirs>)&&std::is_integral_v<Ours>;
}

template <class Ours, class Theirs>
struct SameFunction : std::false_type {};
template <class... Ours, class... Theirs>
struct SameFunction<Result (*)(Ours...), CUresult (*)(Theirs...)> {
  static constexpr bool count = sizeof...(Ours) == sizeof...(Theirs);
  template <bool counted>
  static constexpr bool compare() {
    if constexpr (counted)
      return (same_argument<Ours, Theirs>() && ...);
    else
      return false;
  }
  static constexpr bool value = compare<count>();
};

#define ATTUNE_SAME_DECLARATION(name, symbol, parameters)                            \
  static_assert(SameFunction<decltype(DriverTable::name), decltype(&::name)>::value, \
                #name " is declared otherwise in cuda.h");
ATTUNE_DRIVER_ENTRIES(ATTUNE_SAME_DECLARATION)

static_assert(std::is_same_v<Context, CUcontext> && std::is_same_v<Module, CUmodule> &&
              std::is_same_v<Function, CUfunction> && std::is_same_v<Stream, CUstream> &&
              std::is_same_v<Event, CUevent> && std::is_same_v<Address, CUdeviceptr> &&
              std::is_same_v<Ordinal, CUdevice>);
static_assert(sizeof(CUresult) == sizeof(Result));

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) &&
              alignof(TensorMap) % alignof(CUtensorMap) == 0);
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(LaunchConfig, shared_bytes) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(LaunchConfig, num_attributes) == offsetof(CUlaunchConfig, numAttrs));
static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));

static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY && kNoDevice == CUDA_ERROR_NO_DEVICE &&
              kInvalidImage == CUDA_ERROR_INVALID_IMAGE &&
              kNoBinaryForGpu == CUDA_ERROR_NO_BINARY_FOR_GPU &&
              kNotFound == CUDA_ERROR_NOT_FOUND &&
              kLaunchOutOfResources == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
static_assert(kAttrMultiprocessorCount == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT &&
              kAttrMemoryClockKhz == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE &&
              kAttrMemoryBusBits == CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH &&
              kAttrL2Bytes == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE &&
              kAttrCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR &&
              kAttrCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR &&
              kAttrRegistersPerSm == CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR &&
              kAttrSharedBytesPerBlockOptin ==
                  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(kFuncMaxThreads == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK &&
              kFuncSharedBytes == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES &&
              kFuncLocalBytes == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES &&
              kFuncRegisters == CU_FUNC_ATTRIBUTE_NUM_REGS &&
              kFuncBinaryVersion == CU_FUNC_ATTRIBUTE_BINARY_VERSION &&
              kFuncMaxDynamicShared == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(kLaunchClusterDimension == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
              kLaunchProgrammaticSerialization ==
                  CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
static_assert(kMapFp16 == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 &&
              kMapFp32 == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 &&
              kMapBf16 == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 &&
              kMapUint8 == CU_TENSOR_MAP_DATA_TYPE_UINT8 &&
              kMapPromote256 == CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
static_assert(CU_TENSOR_MAP_SWIZZLE_32B == 1 && CU_TENSOR_MAP_SWIZZLE_64B == 2 &&
              CU_TENSOR_MAP_SWIZZLE_128B == 3);

TEST(DriverHeader, AgreesWithTheDeclarationsOfThisToolkit) { EXPECT_GE(CUDA_VERSION, 12000); }

}  // namespace
}  // namespace attune::cuda
