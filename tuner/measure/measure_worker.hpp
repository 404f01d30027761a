// SPDX-License-Identifier: Apache-2.0
// The child's side of isolated measuring: answers requests on its standard input until the parent
// goes away. The program `attune` is also the worker: with the hidden words `worker <device>` it
// calls measure_worker_main.
#pragma once

#include <string>

#include "tuner/measure/backend.hpp"

namespace attune {

// Serves measurements with a DeviceBackend on `device_name`, a name for open_device. Returns the
// exit status.
int measure_worker_main(const std::string& device_name);
// Serves measurements with any backend. Takes over standard input and output: text that kernels or
// libraries print goes to standard error.
int serve_measurements(MeasureBackend& backend);

}  // namespace attune
