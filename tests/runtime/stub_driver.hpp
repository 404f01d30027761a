// SPDX-License-Identifier: Apache-2.0
// A driver table whose functions only count and record, so that the CUDA device can be tested,
// and its host cost measured, without a GPU. One device, an sm_90 with 132 multiprocessors.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/cuda/driver_table.hpp"
#include "templates/shared/attention_args.h"

namespace attune::testing {

struct StubCalls {
  int launches = 0, encodes = 0, loads = 0, unloads = 0, pushes = 0, pops = 0, retains = 0,
      releases = 0;
  cuda::Context current = nullptr;
  cuda::Result next_launch = cuda::kSuccess, next_load = cuda::kSuccess;
  cuda::LaunchConfig last_config{};
  unsigned last_cluster = 0;
  int last_attribute = 0;
  std::vector<std::string> entries;  // names of requested functions
  cuda::Function launched[8] = {};   // by launch number modulo 8; see stub_function
  AttentionArgs last_args{};
  const void* last_parameters[2] = {};
  int num_tiles[8] = {};                   // by launch number modulo 8
  cuda::Function main_function = nullptr;  // whose registers were last queried
  int shared_allowed = 0, max_threads = 1024, binary_version = 90;
};

inline StubCalls stub_calls;

// Returns the fake function for the `index`th requested entry.
inline cuda::Function stub_function(size_t index) {
  return reinterpret_cast<cuda::Function>(0x3000 + 16 * index);
}

inline cuda::Context stub_primary() { return reinterpret_cast<cuda::Context>(0x1000); }

// The entries that the device calls.
inline void stub_device_entries(cuda::DriverTable& t) {
  using namespace cuda;
  static StubCalls& calls = stub_calls;
  t.cuGetErrorName = [](Result, const char** text) { return *text = "CUDA_ERROR_STUB", kSuccess; };
  t.cuGetErrorString = [](Result, const char** text) {
    return *text = "as the test wants", kSuccess;
  };
  t.cuDriverGetVersion = [](int* version) { return *version = 13000, kSuccess; };
  t.cuDeviceGetCount = [](int* count) { return *count = 1, kSuccess; };
  t.cuDeviceGet = [](Ordinal* device, int ordinal) { return *device = ordinal, kSuccess; };
  t.cuDeviceGetName = [](char* name, int, Ordinal) {
    return std::strcpy(name, "Stub H200 MIG 1g.18gb"), kSuccess;
  };
  t.cuDeviceGetPCIBusId = [](char* id, int, Ordinal) {
    return std::strcpy(id, "0000:00:00.0"), kSuccess;
  };
  t.cuDeviceGetAttribute = [](int* value, int attribute, Ordinal) {
    *value = attribute == kAttrCapabilityMajor       ? 9
             : attribute == kAttrCapabilityMinor     ? 0
             : attribute == kAttrMultiprocessorCount ? 132
                                                     : 1000;
    return kSuccess;
  };
  t.cuDevicePrimaryCtxRetain = [](Context* context, Ordinal) {
    return *context = stub_primary(), ++calls.retains, kSuccess;
  };
  t.cuDevicePrimaryCtxRelease = [](Ordinal) { return ++calls.releases, kSuccess; };
  t.cuCtxGetCurrent = [](Context* context) { return *context = calls.current, kSuccess; };
  t.cuCtxGetDevice = [](Ordinal* device) { return *device = 0, kSuccess; };
  t.cuCtxPushCurrent = [](Context) { return ++calls.pushes, kSuccess; };
  t.cuCtxPopCurrent = [](Context* context) { return *context = nullptr, ++calls.pops, kSuccess; };
}

// Sets the entries for kernels, memory and tensor maps; host memory stands in for device memory.
inline void stub_kernel_entries(cuda::DriverTable& t) {
  using namespace cuda;
  static StubCalls& calls = stub_calls;
  t.cuModuleLoadDataEx = [](Module* module, const void*, unsigned, int*, void**) {
    *module = reinterpret_cast<Module>(0x2000);
    return ++calls.loads, calls.next_load;
  };
  t.cuModuleUnload = [](Module) { return ++calls.unloads, kSuccess; };
  t.cuModuleGetFunction = [](Function* function, Module, const char* name) {
    *function = stub_function(calls.entries.size());
    return calls.entries.emplace_back(name), kSuccess;
  };
  t.cuFuncGetAttribute = [](int* value, int attribute, Function function) {
    if (attribute == kFuncRegisters) calls.main_function = function;
    *value = attribute == kFuncMaxThreads      ? calls.max_threads
             : attribute == kFuncBinaryVersion ? calls.binary_version
                                               : 100 + attribute;
    return kSuccess;
  };
  t.cuFuncSetAttribute = [](Function, int attribute, int value) {
    if (attribute == kFuncMaxDynamicShared) calls.shared_allowed = value;
    return kSuccess;
  };
  t.cuLaunchKernelEx = [](const LaunchConfig* config, Function function, void** parameters,
                          void**) {
    calls.launched[calls.launches % 8] = function;
    calls.last_attribute = config->num_attributes ? config->attributes[0].id : 0;
    calls.last_config = *config;
    calls.last_cluster = config->num_attributes ? config->attributes[0].value.cluster.x : 0;
    calls.last_args = *static_cast<const AttentionArgs*>(parameters[0]);
    calls.last_parameters[0] = parameters[0];
    calls.last_parameters[1] = parameters[1];
    calls.num_tiles[calls.launches % 8] = calls.last_args.num_tiles;
    return ++calls.launches, calls.next_launch;
  };
  t.cuCtxSynchronize = [] { return kSuccess; };
  t.cuMemAlloc = [](Address* address, size_t bytes) {
    return *address = reinterpret_cast<Address>(std::aligned_alloc(256, (bytes + 255) / 256 * 256)),
           kSuccess;
  };
  t.cuMemFree = [](Address address) {
    return std::free(reinterpret_cast<void*>(address)), kSuccess;
  };
  t.cuMemsetD8Async = [](Address to, unsigned char byte, size_t count, Stream) {
    return std::memset(reinterpret_cast<void*>(to), byte, count), kSuccess;
  };
  t.cuMemsetD32Async = [](Address to, unsigned word, size_t count, Stream) {
    return std::fill_n(reinterpret_cast<unsigned*>(to), count, word), kSuccess;
  };
  t.cuTensorMapEncodeTiled = [](TensorMap* map, int, uint32_t, void* address, const uint64_t*,
                                const uint64_t*, const uint32_t*, const uint32_t*, int, int, int,
                                int) {
    map->opaque[0] = reinterpret_cast<uint64_t>(address);
    return ++calls.encodes, kSuccess;
  };
}

inline cuda::DriverTable stub_driver() {
  cuda::DriverTable table;
  stub_device_entries(table);
  stub_kernel_entries(table);
  return table;
}

}  // namespace attune::testing
