// SPDX-License-Identifier: Apache-2.0
// Opening a context; see cuda_context.hpp.
#include "runtime/cuda/cuda_context.hpp"

#include <string>

#include "generator/core/system/error.hpp"

namespace attune::cuda {

std::shared_ptr<const CudaContext> CudaContext::open(const DriverTable& driver, int ordinal) {
  Context current = nullptr;
  Ordinal current_device = 0;
  if (driver.cuCtxGetCurrent(&current) == kSuccess && current &&
      driver.cuCtxGetDevice(&current_device) == kSuccess &&
      (ordinal == -1 || ordinal == current_device))
    return std::make_shared<CudaContext>(driver, current_device, current, false);

  int count = 0;
  check(driver, driver.cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (ordinal == -1) ordinal = 0;
  if (ordinal < 0 || ordinal >= count)
    throw Error(ErrorCode::kInvalidArgument,
                "target cuda:" + std::to_string(ordinal) + " does not exist; this machine has " +
                    std::to_string(count) +
                    " device(s), cuda:0 to cuda:" + std::to_string(count - 1));
  Ordinal device = 0;
  check(driver, driver.cuDeviceGet(&device, ordinal), "cuDeviceGet");
  Context primary = nullptr;
  check(driver, driver.cuDevicePrimaryCtxRetain(&primary, device), "cuDevicePrimaryCtxRetain");
  return std::make_shared<CudaContext>(driver, device, primary, true);
}

CudaContext::~CudaContext() {
  if (retained_) driver_.cuDevicePrimaryCtxRelease(device_);
}

}  // namespace attune::cuda
