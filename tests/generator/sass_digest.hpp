// SPDX-License-Identifier: Apache-2.0
// SASS digests cover a cubin's instructions and resources, without names, paths and line numbers.
// Two cubins with one digest run the same machine code. tests/golden/sass_digests.txt holds the
// accepted digests, a line per kernel:
//
//   TEMPLATE ARCH ID CONFIG SHARED | CODE REGISTERS STATIC BARRIERS | ...
//
// ID      name of the golden case, or digest of the spec and shape in the compile matrix
// CONFIG  digest of the default config
// SHARED  bytes of shared memory that a launch asks for
// CODE    digest of a function's instruction bytes; one such group per function
// STATIC  bytes of shared memory that the function declares
// A last group "constants DIGEST" covers tables that the compiler put into constant memory.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tests/generator/kernel_matrix.hpp"

namespace attune::testing {

// Returns the groups of `cubin`, sorted; nullopt when it is not a cubin that holds a function.
std::optional<std::string> sass_digest(std::string_view cubin);

// Returns the kernel's line without its key. Throws kInternal when the cubin cannot be read.
std::string digest_line(const MatrixKernel& kernel, std::string_view cubin);
// Returns that line from `code`, the cubin's sass_digest().
std::string line_of_code(const MatrixKernel& kernel, std::string_view code);

// Returns what differs between two lines without their keys, "" when nothing does:
// "instruction bytes; registers: 168, now 170".
std::string line_difference(std::string_view accepted, std::string_view found);

// Returns the version of NVRTC with its build, "13.0.88"; NVRTC itself says "13.0". Throws kCompile
// without NVRTC.
std::string nvrtc_build();

// The file of accepted digests.
struct AcceptedDigests {
  std::string nvrtc;                                      // version with build
  std::map<std::string, std::string, std::less<>> lines;  // by key
};
AcceptedDigests read_accepted_digests(const std::string& path);
void write_accepted_digests(const std::string& path, const AcceptedDigests& digests);

}  // namespace attune::testing
