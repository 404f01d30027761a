// SPDX-License-Identifier: Apache-2.0
// Remembers what NVRTC made of a source, so that compile_matrix_test compiles only sources that
// changed. NVRTC is deterministic: one source with one list of options gives one image.
// tests/golden/compiles.txt has a line per source that compiled without a fault:
//
//   TEMPLATE ARCH SOURCE CODE REGISTERS STATIC BARRIERS | ...
//
// SOURCE  digest of the source without comments, and of the compiler's options
// The rest is sass_digest(); see sass_digest.hpp.
#pragma once

#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "generator/compile/compiler.hpp"
#include "tests/generator/sass_digest.hpp"

namespace attune::testing {

// Returns "TEMPLATE ARCH SOURCE".
std::string compile_key(const MatrixKernel& kernel, const Source& source, const Compiler& compiler);

// Returns the registers and the static shared memory of a line's functions, the largest of each.
ImageInfo image_info_of(const std::string& line);

class AcceptedCompiles {
 public:
  // Reads the file. Knows nothing if another version of NVRTC wrote it.
  AcceptedCompiles(std::string path, const std::string& nvrtc);

  // Returns the accepted line; nullopt if this source must be compiled. Thread-safe, as is add.
  std::optional<std::string> line(const std::string& key);
  // Adds what a source compiled to. Returns the accepted line if there is a different one.
  std::optional<std::string> add(const std::string& key, const std::string& line);
  // Writes the file: the lines of this run, and if it was not a whole one, those of earlier runs.
  void accept(bool is_whole) const;
  size_t num_compiled() const { return num_compiled_; }
  size_t num_used() const { return used_.size(); }

 private:
  std::string path_;
  AcceptedDigests known_;
  std::set<std::string> used_;
  size_t num_compiled_ = 0;
  std::mutex mutex_;
};

}  // namespace attune::testing
