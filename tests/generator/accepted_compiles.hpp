// SPDX-License-Identifier: Apache-2.0
// Remembers what NVRTC made of a source, so that tests compile only sources that changed. NVRTC is
// deterministic: one source with one list of options gives one image. A test program has a file
// tests/golden/compiles/PROGRAM.txt with a line per source that compiled without a fault:
//
//   TEMPLATE ARCH SOURCE CODE REGISTERS STATIC BARRIERS | ...
//
// SOURCE  digest of the source without comments, and of the compiler's options
// The rest is sass_digest(); see sass_digest.hpp.
//
// One known source in 16 is compiled again and must give the same line. A run with
// ATTUNE_ACCEPT_GOLDEN=1 writes the file, and drops sources that a run of all tests did not use.
#pragma once

#include <mutex>
#include <set>
#include <string>

#include "generator/compile/compiler.hpp"
#include "tests/generator/sass_digest.hpp"

namespace attune::testing {

struct Compiled {
  ImageInfo info;  // of a known source: registers and static shared memory alone
  std::string code;
  double ms = 0;  // 0 if it was known
};

// Returns the registers and the static shared memory of a line's functions, the largest of each.
ImageInfo image_info_of(const std::string& line);

class AcceptedCompiles {
 public:
  // The file of this program. Knows nothing if another version of NVRTC wrote it.
  AcceptedCompiles();

  // Throws what the compiler throws, and kInternal if a known source gives another line than
  // before. Thread-safe.
  Compiled compile(const Compiler& compiler, const MatrixKernel& kernel, bool use_known = true);
  // Writes the file: the lines of this run, and if it was not a whole one, those of earlier runs.
  void accept(bool is_whole) const;
  std::string summary() const;

 private:
  std::string path_;
  AcceptedDigests known_;
  std::set<std::string> used_;
  size_t num_compiled_ = 0;
  std::mutex mutex_;
};

AcceptedCompiles& accepted_compiles();

// Returns what forbids a kernel's use on its arch: a fault of its image, or more registers than its
// launch gives it. "" if nothing does.
std::string compile_fault(const Compiler& compiler, const KernelTemplate& kernel_template,
                          const KernelSpec& spec, const Arch& arch, const Config& config);

}  // namespace attune::testing
