// SPDX-License-Identifier: Apache-2.0
// The entry points of the CUDA driver that attune calls. They are declared here, so that building
// needs no CUDA toolkit, and found at run time in libcuda.so.1. Names and layouts follow cuda.h;
// tests/runtime/driver_header_test.cpp compares them if the toolkit's headers are installed. Used
// only under runtime/cuda/ and by device tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;
struct CUevent_st;

namespace attune::cuda {

using Result = int;                  // CUresult
using Ordinal = int;                 // CUdevice
using Address = unsigned long long;  // CUdeviceptr
using Context = CUctx_st*;
using Module = CUmod_st*;
using Function = CUfunc_st*;
using Stream = CUstream_st*;
using Event = CUevent_st*;

inline constexpr Result kSuccess = 0, kOutOfMemory = 2, kNoDevice = 100, kInvalidImage = 200,
                        kNoBinaryForGpu = 209, kNotFound = 500, kLaunchOutOfResources = 701;

// CUdevice_attribute
inline constexpr int kAttrMultiprocessorCount = 16, kAttrMemoryClockKhz = 36,
                     kAttrMemoryBusBits = 37, kAttrL2Bytes = 38, kAttrCapabilityMajor = 75,
                     kAttrCapabilityMinor = 76, kAttrRegistersPerSm = 82,
                     kAttrSharedBytesPerBlockOptin = 97;
// CUfunction_attribute
inline constexpr int kFuncMaxThreads = 0, kFuncSharedBytes = 1, kFuncLocalBytes = 3,
                     kFuncRegisters = 4, kFuncBinaryVersion = 6, kFuncMaxDynamicShared = 8;
// CUlaunchAttributeID
inline constexpr int kLaunchClusterDimension = 4, kLaunchProgrammaticSerialization = 6;
// CUtensorMapDataType, CUtensorMapL2promotion
inline constexpr int kMapFp16 = 6, kMapFp32 = 7, kMapBf16 = 9, kMapUint8 = 0;
inline constexpr int kMapPromoteNone = 0, kMapPromote256 = 3;

struct alignas(128) TensorMap {  // CUtensorMap; 64 before CUDA 13
  uint64_t opaque[16];
};

struct LaunchAttribute {  // CUlaunchAttribute
  int id;
  char pad[4];
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int programmatic_serialization;
  } value;
};

struct LaunchConfig {  // CUlaunchConfig
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};

// X(name in cuda.h, symbol in libcuda.so.1, parameters). All return CUresult; all exist since
// CUDA 12.0 (driver 525).
#define ATTUNE_DRIVER_ENTRIES(X)                                                               \
  X(cuInit, "cuInit", (unsigned flags))                                                        \
  X(cuDriverGetVersion, "cuDriverGetVersion", (int* version))                                  \
  X(cuGetErrorName, "cuGetErrorName", (Result error, const char** text))                       \
  X(cuGetErrorString, "cuGetErrorString", (Result error, const char** text))                   \
  X(cuDeviceGetCount, "cuDeviceGetCount", (int* count))                                        \
  X(cuDeviceGet, "cuDeviceGet", (Ordinal * device, int ordinal))                               \
  X(cuDeviceGetName, "cuDeviceGetName", (char* name, int length, Ordinal device))              \
  X(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int* value, int attribute, Ordinal device)) \
  X(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t * bytes, Ordinal device))                 \
  X(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", (char* id, int length, Ordinal device))        \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (Context * context, Ordinal device)) \
  X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (Ordinal device))               \
  X(cuCtxGetCurrent, "cuCtxGetCurrent", (Context * context))                                   \
  X(cuCtxGetDevice, "cuCtxGetDevice", (Ordinal * device))                                      \
  X(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (Context context))                                \
  X(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (Context * context))                                \
  X(cuCtxSynchronize, "cuCtxSynchronize", ())                                                  \
  X(cuModuleLoadDataEx, "cuModuleLoadDataEx",                                                  \
    (Module * module, const void* image, unsigned num_options, int* options,                   \
     void** option_values))                                                                    \
  X(cuModuleUnload, "cuModuleUnload", (Module module))                                         \
  X(cuModuleGetFunction, "cuModuleGetFunction",                                                \
    (Function * function, Module module, const char* name))                                    \
  X(cuFuncGetAttribute, "cuFuncGetAttribute", (int* value, int attribute, Function function))  \
  X(cuFuncSetAttribute, "cuFuncSetAttribute", (Function function, int attribute, int value))   \
  X(cuMemAlloc, "cuMemAlloc_v2", (Address * address, size_t bytes))                            \
  X(cuMemFree, "cuMemFree_v2", (Address address))                                              \
  X(cuMemcpyHtoD, "cuMemcpyHtoD_v2", (Address to, const void* from, size_t bytes))             \
  X(cuMemcpyDtoH, "cuMemcpyDtoH_v2", (void* to, Address from, size_t bytes))                   \
  X(cuMemsetD8Async, "cuMemsetD8Async",                                                        \
    (Address to, unsigned char byte, size_t count, Stream stream))                             \
  X(cuMemsetD32Async, "cuMemsetD32Async",                                                      \
    (Address to, unsigned word, size_t count, Stream stream))                                  \
  X(cuStreamIsCapturing, "cuStreamIsCapturing", (Stream stream, int* status))                  \
  X(cuEventCreate, "cuEventCreate", (Event * event, unsigned flags))                           \
  X(cuEventRecord, "cuEventRecord", (Event event, Stream stream))                              \
  X(cuEventSynchronize, "cuEventSynchronize", (Event event))                                   \
  X(cuEventElapsedTime, "cuEventElapsedTime", (float* milliseconds, Event start, Event end))   \
  X(cuEventDestroy, "cuEventDestroy_v2", (Event event))                                        \
  X(cuLaunchKernelEx, "cuLaunchKernelEx",                                                      \
    (const LaunchConfig* config, Function function, void** parameters, void** extra))          \
  X(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled",                                          \
    (TensorMap * map, int dtype, uint32_t rank, void* address, const uint64_t* dims,           \
     const uint64_t* strides, const uint32_t* box, const uint32_t* element_strides,            \
     int interleave, int swizzle, int promotion, int fill))

struct DriverTable {
#define ATTUNE_DRIVER_MEMBER(name, symbol, parameters) Result(*name) parameters = nullptr;
  ATTUNE_DRIVER_ENTRIES(ATTUNE_DRIVER_MEMBER)
#undef ATTUNE_DRIVER_MEMBER

  void* library = nullptr;
  // Returns any other entry point, for tests and benchmarks; nullptr if the driver lacks it.
  void* symbol(const char* name) const;
};

// Returns the driver, opened and initialised once per process. Returns nullptr if there is none or
// it has no device; `why`, if given, then says what was tried and what to do.
const DriverTable* open_driver(std::string* why = nullptr);

// Returns "580.159.04" from the kernel module, else "cuda 13.0".
std::string driver_version(const DriverTable& driver);

// Throws Error (kOutOfMemory or kDriver) with the call and the driver's text for `result`.
[[noreturn]] void throw_driver_error(const DriverTable& driver, Result result,
                                     std::string_view call);
inline void check(const DriverTable& driver, Result result, std::string_view call) {
  if (result != kSuccess) [[unlikely]]
    throw_driver_error(driver, result, call);
}

}  // namespace attune::cuda
