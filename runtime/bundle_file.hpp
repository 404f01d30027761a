// SPDX-License-Identifier: Apache-2.0
// A bundle as one file: the manifest of bundle.hpp as index, and the images behind it. Opening it
// reads the index alone; an image is read, and checked against its SHA-256, when it is asked for.
//
//   | at | bytes | what                                                            |
//   |----|-------|-----------------------------------------------------------------|
//   | 0  | 8     | "attuneB" and a zero                                            |
//   | 8  | 8     | version (little-endian, as are the others): 1; 2: packed images |
//   | 16 | 8     | bytes of the manifest                                           |
//   | 24 | 8     | bytes of the file                                               |
//   | 32 | 64    | SHA-256 of bytes 0 to 31 and the manifest, as hex digits        |
//   | 96 | ...   | manifest: JSON, each kernel with "offset" and "bytes"           |
//   | ...| ...   | images, each at a multiple of 64, zeros between them            |
//
// It holds no time of its making: equal kernels give equal bytes. Where the images are packed by
// Zstandard each kernel has "packed" too, the bytes that stand there; "bytes" and the SHA-256 are
// of the image.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/bundle_manifest.hpp"

namespace attune {

inline constexpr size_t kBundleAlignment = 64;

// Where a bundle's bytes come from: a file that is held open, or a caller's memory. Thread-safe.
class BundleBytes {
 public:
  virtual ~BundleBytes() = default;
  virtual uint64_t size() const = 0;  // when it was opened
  // The bytes from `at` on. Throws kIo where fewer than `count` are there, or the system cannot
  // read.
  virtual std::string read(uint64_t at, uint64_t count) const = 0;
};

// Opens the file; throws kIo when it cannot be read or could have been written by others. A file
// that is replaced by another one, as write_bundle_file does, stays readable. One that is cut or
// written in place gives errors or wrong bytes, never a signal, so each image is checked.
std::shared_ptr<const BundleBytes> open_bundle(const std::filesystem::path& path);
// The caller keeps them, unchanged, as long as anything uses the bundle.
std::shared_ptr<const BundleBytes> bundle_in_memory(std::string_view bytes);

// The bundle's bytes. The order of kernels does not show.
std::string bundle_bytes(const std::vector<BundledKernel>& kernels,
                         Packing packing = Packing::kNone);

// The entries of a bundle's bytes; offsets and sizes lie inside. Throws with `name` and what is
// wrong: kIo where they were cut off or damaged, else kInvalidArgument.
std::vector<ManifestEntry> parse_bundle(const BundleBytes& bytes, const std::string& name);

}  // namespace attune
