// SPDX-License-Identifier: Apache-2.0
// The problems that programs captured (ATTUNE_CAPTURE, runtime/engine/capture.hpp). A decoding loop
// asks for each length once, so problems of one bucket are merged: one tune serves them all.
#pragma once

#include <filesystem>

#include "tuner/models/workload.hpp"

namespace attune {

// Reads files of JSON lines, or all *.jsonl of a folder, as several processes of a program write
// them; problems and counts of all are added up. A line is {"problem": "dtype=bf16,…", "calls": 12,
// "recorded": 3, "rung": "exact"}, of which "problem" is required. Skips empty lines. Of each
// bucket, the problem with the longest time stands for all. They come in the order of their
// buckets' times, longest first; those that were recorded into CUDA graphs come before others,
// because nobody counts replays. Times are calls times a rough time of the problem on a device of
// the kind of `target`. A note says how many calls ran tuned kernels, if lines name rungs.
// `top`: how many buckets to keep; 0: all. Throws kIo for an unreadable file or a folder without
// files, and kInvalidArgument for a line that is not valid.
Workload workload_from_captures(const std::vector<std::filesystem::path>& paths,
                                Target target = Target::kCuda, int top = 0);

}  // namespace attune
