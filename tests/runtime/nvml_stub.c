/* SPDX-License-Identifier: Apache-2.0
 * A stub libnvidia-ml.so.1 with one GPU, 0000:3b:00.0, whose clock and power limit a test sets. As
 * in the real library, error 3 means "not supported" and error 6 "GPU not found". */
#include <string.h>

unsigned nvml_stub_clock_mhz = 1755, nvml_stub_limit_mw = 700000;
int nvml_stub_knows_limits = 1;

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  *device = &nvml_stub_clock_mhz;
  return strcmp(bus_id, "0000:3b:00.0") == 0 ? 0 : 6;
}

int nvmlDeviceGetClockInfo(void* device, int kind, unsigned* mhz) {
  *mhz = *(unsigned*)device;
  return kind == 1 ? 0 : 2;
}

int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  (void)device;
  *milliwatts = nvml_stub_limit_mw;
  return nvml_stub_knows_limits ? 0 : 3;
}
