// SPDX-License-Identifier: Apache-2.0
// What other libraries took for problems, from a file of tests/bench (attention.py, decode.py and the
// others all write this form): a report shows it beside what was tuned.
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
  // By the canonical text of the problem, then by peer: microseconds. attune's own columns, "tuned",
  // "default" and "attune", are left out, and so are rows without others.
  std::map<std::string, std::map<std::string, double>> of;
};

// Of two times of one peer the later stands. Throws kIo, or kInvalidArgument with the path and what
// is wrong.
PeerTimes read_peer_times(const std::filesystem::path& path);

}  // namespace attune
