// SPDX-License-Identifier: Apache-2.0
// The protocol between IsolatedBackend and its worker: one JSON object per frame; kernel images are
// payload.
//
//   parent: {"do":"open","problem":…,"programs":[…],"seed":…,"reference":{…}|null} + image
//   worker: {"ok":…,"error":…,"code":…}
//
//   parent: {"do":"prepare","id":…,"kernel":{…}} + image
//   worker: {"fault":{…}|null,"error_max":…,"error_mean":…,"estimate_us":…,"info":{…}}
//
//   parent: {"do":"reload","id":…,"kernel":{…}} + image
//   worker: as for prepare
//
//   parent: {"do":"round","order":[…],"sample_us":…}
//   worker: for each id, in order: {"id":…,"us":…,"fault":{…}|null,"clock":…}; ends after a fault
//
//   parent: {"do":"drop","id":…}
//   worker: no reply
//
// After a fatal fault the worker exits.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "tuner/measure/backend.hpp"
#include "tuner/measure/child_process.hpp"

namespace attune {

struct OpenRequest {
  MeasureTask task;
};
struct PrepareRequest {
  int id = 0;
  KernelRequest kernel;
};
struct ReloadRequest {
  int id = 0;
  KernelRequest kernel;
};
struct RoundRequest {
  std::vector<int> order;
  double sample_us = kShortSampleUs;
};
struct DropRequest {
  int id = 0;
};
using Request = std::variant<OpenRequest, PrepareRequest, ReloadRequest, RoundRequest, DropRequest>;

struct OpenReply {
  std::string error;  // empty: the problem is open
  int code = 0;       // ErrorCode
};
struct SampleReply {
  Sample sample;
  int sm_clock_mhz = 0;
};

Frame encode(const Request& request);
Request decode_request(const Frame& frame);  // throws kInternal for anything else
Frame encode(const OpenReply& reply);
Frame encode(const Prepared& reply);
Frame encode(const SampleReply& reply);
OpenReply decode_open_reply(const Frame& frame);
Prepared decode_prepared(const Frame& frame);
SampleReply decode_sample_reply(const Frame& frame);

// The child's side of isolated measuring: answers requests on its standard input until the parent
// goes away. The program `attune` is also the worker: with the hidden words `worker <device>` it
// calls measure_worker_main.

// Serves measurements with a DeviceBackend on `device_name`, a name for open_device. Returns the
// exit status.
int measure_worker_main(const std::string& device_name);
// Serves measurements with any backend. Takes over standard input and output: text that kernels or
// libraries print goes to standard error.
int serve_measurements(MeasureBackend& backend);

}  // namespace attune
