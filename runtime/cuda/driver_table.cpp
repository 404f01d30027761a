// SPDX-License-Identifier: Apache-2.0
// Opens libcuda.so.1 and fills the table. If there is no driver, open_driver returns the reason;
// loading attune does not fail.
#include "runtime/cuda/driver_table.hpp"

#include <dlfcn.h>

#include <fstream>
#include <memory>

#include "generator/core/system/error.hpp"

namespace attune::cuda {
namespace {

struct OpenedDriver {
  DriverTable table;
  std::string why;  // empty = usable
};

std::string describe(const DriverTable& table, Result result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (table.cuGetErrorName) table.cuGetErrorName(result, &name);
  if (table.cuGetErrorString) table.cuGetErrorString(result, &text);
  return std::string(name ? name : "CUDA error") + " (" + std::to_string(result) +
         (text ? std::string(": ") + text : "") + ")";
}

std::string fill(DriverTable* table) {
  std::string missing;
#define ATTUNE_DRIVER_FIND(name, entry, parameters) \
  table->name = reinterpret_cast<Result(*) parameters>(dlsym(table->library, entry));
  ATTUNE_DRIVER_ENTRIES(ATTUNE_DRIVER_FIND)
#undef ATTUNE_DRIVER_FIND
#define ATTUNE_DRIVER_MISSING(name, entry, parameters) \
  if (!table->name) missing += missing.empty() ? entry : ", " entry;
  ATTUNE_DRIVER_ENTRIES(ATTUNE_DRIVER_MISSING)
#undef ATTUNE_DRIVER_MISSING
  return missing;
}

OpenedDriver open() {
  OpenedDriver opened;
  opened.table.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!opened.table.library) {
    const char* reason = dlerror();
    opened.why = std::string("no NVIDIA driver: libcuda.so.1 could not be opened (") +
                 (reason ? reason : "unknown reason") +
                 "); install the NVIDIA driver, or use target cpu";
    return opened;
  }
  if (const std::string missing = fill(&opened.table); !missing.empty()) {
    opened.why = "the NVIDIA driver is too old: libcuda.so.1 lacks " + missing +
                 "; version 525 (CUDA 12.0) or newer is needed";
    return opened;
  }
  const Result result = opened.table.cuInit(0);
  int count = 0;
  if (result != kSuccess)
    opened.why = "the NVIDIA driver does not start: cuInit gives " + describe(opened.table, result);
  else if (opened.table.cuDeviceGetCount(&count) != kSuccess || count == 0)
    opened.why = "the NVIDIA driver sees no device; check nvidia-smi and CUDA_VISIBLE_DEVICES";
  return opened;
}

}  // namespace

void* DriverTable::symbol(const char* name) const {
  return library ? dlsym(library, name) : nullptr;
}

const DriverTable* open_driver(std::string* why) {
  // Never freed: kernels may outlive every other static object of the process.
  static const OpenedDriver* const opened = std::make_unique<OpenedDriver>(open()).release();
  if (why) *why = opened->why;
  return opened->why.empty() ? &opened->table : nullptr;
}

std::string driver_version(const DriverTable& driver) {
  std::string text;
  if (std::ifstream("/sys/module/nvidia/version") >> text) return text;
  int version = 0;
  if (driver.cuDriverGetVersion(&version) != kSuccess) return "unknown";
  return "cuda " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

void throw_driver_error(const DriverTable& driver, Result result, std::string_view call) {
  const ErrorCode code = result == kOutOfMemory ? ErrorCode::kOutOfMemory : ErrorCode::kDriver;
  throw Error(code, std::string(call) + " failed: " + describe(driver, result));
}

}  // namespace attune::cuda
