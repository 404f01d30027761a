// SPDX-License-Identifier: Apache-2.0
// The arguments of clang; see clang_compiler.hpp. They are part of the toolchain digest, so this
// file works without clang.
#include "generator/compile/clang_compiler.hpp"

namespace attune {
namespace {

// The target triple is part of every stored key, so it must not depend on the LLVM version in use.
#if defined(__x86_64__)
constexpr const char* kTriple = "x86_64-pc-linux-gnu";
#else
constexpr const char* kTriple = "aarch64-unknown-linux-gnu";
#endif

}  // namespace

std::vector<std::string> clang_arguments(const Arch& arch) {
  std::vector<std::string> arguments{
      "-triple", kTriple, "-x", "c++", "-std=c++20", "-O3",
      // One rounding for a * b + c if the target has it; no errno, no exceptions, no unwind tables.
      "-ffp-contract=fast", "-fno-rounding-math", "-mrelocation-model", "pic", "-pic-level", "2",
      "-mframe-pointer=none", "-fstack-size-section", "-disable-llvm-verifier",
      "-discard-value-names",
      // The kernels mark the loops to unroll. Unrolling other loops takes much compile time and
      // gains nothing.
      "-fno-unroll-loops",
      // Vectors are never passed between objects, so their calling convention does not matter.
      "-Wno-psabi",
      // Use whole registers: some LLVM tunings split 64-byte vectors in two.
      "-mprefer-vector-width=" + std::to_string(arch.vector_bytes * 8)};
  if (arch.features.empty()) {
    arguments.insert(arguments.end(), {"-target-cpu", arch.cpu});
    return arguments;
  }
  // Names the oldest CPU of the machine's kind with the machine's real features, because a CPU's
  // name may imply features that a hypervisor hides.
#if defined(__x86_64__)
  arguments.insert(arguments.end(), {"-target-cpu", "x86-64", "-tune-cpu", arch.cpu});
#else
  arguments.insert(arguments.end(), {"-target-cpu", "generic", "-tune-cpu", arch.cpu});
#endif
  for (const std::string& feature : arch.features)
    arguments.insert(arguments.end(), {"-target-feature", feature});
  return arguments;
}

}  // namespace attune
