// SPDX-License-Identifier: Apache-2.0
// Times of other libraries for problems, from a result file of tests/bench (attention.py, decode.py
// and other scripts there write this form). A report shows them next to tuned kernels.
//
//   {"device": "NVIDIA H200", "rows": [
//     {"problem": "dtype=bf16,...", "timings": {"cudnn": {"median_us": 189.4}, ...}}]}
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace attune {

struct PeerTimes {
  std::string device;  // empty: not known
  // Microseconds by the canonical text of the problem, then by library. attune's own columns
  // ("tuned", "default" and "attune") are left out, and so are rows without other columns.
  std::map<std::string, std::map<std::string, double>> of;
};

// Reads a file. If a library has two times for a problem, the later one counts. Throws kIo, or
// kInvalidArgument with the path and the fault.
PeerTimes read_peer_times(const std::filesystem::path& path);

}  // namespace attune
