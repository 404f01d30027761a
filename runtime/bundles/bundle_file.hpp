// SPDX-License-Identifier: Apache-2.0
// A bundle as one file: the manifest of bundle.hpp as an index, then the images. Opening reads only
// the index. Each image is read, and checked against its SHA-256, when it is needed.
//
//   | at | bytes | what                                                            |
//   |----|-------|-----------------------------------------------------------------|
//   | 0  | 8     | "attuneB" and a zero                                            |
//   | 8  | 8     | version (little-endian, as all numbers): 1; 2: packed images    |
//   | 16 | 8     | bytes of the manifest                                           |
//   | 24 | 8     | bytes of the file                                               |
//   | 32 | 64    | SHA-256 of bytes 0 to 31 and the manifest, as hex digits        |
//   | 96 | ...   | manifest: JSON, each kernel with "offset" and "bytes"           |
//   | ...| ...   | images, each at a multiple of 64, zeros between them            |
//
// The manifest has no time of creation, so equal kernels give equal bytes. If images are packed by
// Zstandard, each kernel also has "packed", the number of packed bytes. "bytes" and the SHA-256
// describe the unpacked image.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/bundles/bundle_manifest.hpp"

namespace attune {

inline constexpr size_t kBundleAlignment = 64;

// The bytes of a bundle: a file that is held open, or a caller's memory. Thread-safe.
class BundleBytes {
 public:
  virtual ~BundleBytes() = default;
  virtual uint64_t size() const = 0;  // when it was opened
  // Returns `count` bytes from `at` on. Throws kIo if there are fewer, or if the system cannot
  // read.
  virtual std::string read(uint64_t at, uint64_t count) const = 0;
};

// Opens the file. Throws kIo if it cannot be read or other users could have written it. The opened
// file stays readable if another file replaces it, as write_bundle_file does. If it is truncated or
// written in place, reads give errors or wrong bytes, never a signal; so each image is checked.
std::shared_ptr<const BundleBytes> open_bundle(const std::filesystem::path& path);
// Wraps bytes that the caller keeps unchanged as long as the bundle is used.
std::shared_ptr<const BundleBytes> bundle_in_memory(std::string_view bytes);

// Returns the bytes of a bundle. They do not depend on the order of the kernels.
std::string bundle_bytes(const std::vector<BundledKernel>& kernels,
                         Packing packing = Packing::kNone);

// Returns the entries of a bundle; their offsets and sizes are inside the file. Errors name `name`
// and the fault. Throws kIo if the bytes were cut off or damaged, else kInvalidArgument.
std::vector<ManifestEntry> parse_bundle(const BundleBytes& bytes, const std::string& name);

// Zstandard for bundles with packed images (bundle_file.hpp), through the system's libzstd.so.1.
// The library is opened at its first use, so programs without such bundles do not need it.

// True if libzstd.so.1 is found. Otherwise `why`, if not null, gets the reason.
bool zstd_is_here(std::string* why = nullptr);

// Both functions throw kUnsupported if the library is not found. The result of packing depends only
// on the bytes and the version of the library.
std::string zstd_packed(std::string_view bytes);
// Throws kIo if `packed` does not unpack to exactly `bytes` bytes.
std::string zstd_unpacked(std::string_view packed, size_t bytes);

}  // namespace attune
