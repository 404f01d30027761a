// SPDX-License-Identifier: Apache-2.0
// Opening devices by name; see device.hpp.
#include "runtime/engine/device.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string>

#include "generator/core/system/error.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "runtime/cuda/cuda_device.hpp"

namespace attune {
namespace {

constexpr const char* kAccepted = "auto, cuda, cuda:N, cpu or cpu:THREADS";

std::shared_ptr<const Device> open_cuda(int ordinal) {
  std::string why;
  const cuda::DriverTable* driver = cuda::open_driver(&why);
  if (!driver) throw Error(ErrorCode::kDriver, why);
  return std::make_shared<cuda::CudaDevice>(cuda::CudaContext::open(*driver, ordinal));
}

// Returns the number after `kind` ("cuda:"), or nullopt if the target does not begin with it.
std::optional<int> number_after(std::string_view kind, std::string_view target) {
  if (!target.starts_with(kind)) return std::nullopt;
  const std::string_view digits = target.substr(kind.size());
  int number = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("target is \"{}\"; must be {}", target, kAccepted));
  return number;
}

}  // namespace

std::shared_ptr<const Device> open_device(std::string_view target) {
  if (target == "cpu") return open_cpu_device();
  if (target == "cuda") return open_cuda(-1);
  if (auto ordinal = number_after("cuda:", target)) return open_cuda(*ordinal);
  if (auto threads = number_after("cpu:", target)) return open_cpu_device(threads);
  if (target != "auto" && !target.empty())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("target is \"{}\"; must be {}", target, kAccepted));
  std::string why_no_cuda;
  if (cuda::open_driver(&why_no_cuda)) return open_cuda(-1);
  try {
    return open_cpu_device();
  } catch (const Error& error) {
    throw Error(
        error.code(),
        fmt::format("no target is usable; cuda: {}; cpu: {}; `attune doctor` says what is missing",
                    why_no_cuda, error.what()));
  }
}

int cuda_device_count(std::string* why) {
  const cuda::DriverTable* driver = cuda::open_driver(why);
  int count = 0;
  if (driver) cuda::check(*driver, driver->cuDeviceGetCount(&count), "cuDeviceGetCount");
  return count;
}

}  // namespace attune
