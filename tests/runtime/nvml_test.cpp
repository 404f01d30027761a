// SPDX-License-Identifier: Apache-2.0
// Readings of clocks and power limits, over a stub in the place of libnvidia-ml.so.1.
#include "runtime/cuda/cuda_device.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace attune::cuda {
namespace {

TEST(Nvml, ReadsTheClockAndThePowerLimitOfTheGpuThatIsAskedFor) {
  // Loaded first, the stub is found when the library is opened by name.
  void* stub = dlopen(NVML_STUB, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(stub, nullptr) << dlerror();
  EXPECT_EQ(sm_clock_mhz("0000:3b:00.0"), 1755);
  EXPECT_EQ(power_limit_w("0000:3b:00.0"), 700);
  EXPECT_EQ(sm_clock_mhz("0000:af:00.0"), 0) << "another GPU";
  EXPECT_EQ(power_limit_w("0000:af:00.0"), 0);

  *static_cast<unsigned*>(dlsym(stub, "nvml_stub_limit_mw")) = 449'600;
  EXPECT_EQ(power_limit_w("0000:3b:00.0"), 450) << "a limit changes while a process runs";
  *static_cast<int*>(dlsym(stub, "nvml_stub_knows_limits")) = 0;
  EXPECT_EQ(power_limit_w("0000:3b:00.0"), 0) << "a GPU without limits";
  EXPECT_EQ(sm_clock_mhz("0000:3b:00.0"), 1755);
}

}  // namespace
}  // namespace attune::cuda
