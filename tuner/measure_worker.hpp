// SPDX-License-Identifier: Apache-2.0
// The child's side of isolated measuring: answers requests on its standard input until the parent
// goes away. The program `attune` is its own worker: run with the hidden words `worker <device>` it
// calls measure_worker_main.
#pragma once

#include <string>

#include "tuner/backend.hpp"

namespace attune {

// Serves with a DeviceBackend on `device_name` (as open_device takes it). Returns the exit status.
int measure_worker_main(const std::string& device_name);
// Serves with any backend. Takes over standard input and output: what kernels or libraries print
// goes to standard error.
int serve_measurements(MeasureBackend& backend);

}  // namespace attune
