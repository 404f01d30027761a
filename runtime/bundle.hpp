// SPDX-License-Identifier: Apache-2.0
// Bundle: a folder of kernel images with a manifest, written by `attune export`, that an engine
// runs from without a compiler and without a store. One file per image; manifest.json says what
// each is and which shapes it was tuned for:
//
//   {"attune_bundle": 1, "created": "...", "kernels": [
//     {"file": "prefill_sm90-5f3a…-91c2….cubin", "sha256": "…", "format": "cubin", "entry":
//     "attune_kernel", "arch": "sm_90a",
//      "template": "prefill_sm90", "template_digest": "…", "source_digest": "…", "compiler":
//      "nvrtc 13.0", "options": "…", "problem": "dtype=bf16,…", "config": "block_m=128,…", "registers": 168,
//      "static_shared_bytes": 0, "stack_bytes": 0, "winners": [{"problem": "dtype=bf16,…",
//      "median_us": 101.2, "default_us": 120.9, "why": "…", …}]}],
//   "programs": [{"digest": "…", "gives": "mask", "text": "return …;"}]}
//
// "programs": the texts of the callers' programs that problems name, where there are any; images
// run without them. Winners of a CPU say with how many "threads" they were measured.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cache/records.hpp"

namespace attune {

class BundleBytes;
struct ManifestEntry;

inline constexpr int kBundleVersion = 1;

struct BundledKernel {
  ImageKey key;  // with compiler and options, as compiled
  KernelImage image;
  std::vector<WinnerRecord>
      winners;  // of this very (template, arch, config); empty for a default config
};

struct BundleChange {
  size_t kept = 0;     // kernels of the former bundle that stay beside the new ones
  size_t unnamed = 0;  // image files that the manifest no longer names
};

// Adds the kernels to the bundle in `folder`, and makes the folder if it is missing. A kernel
// replaces the former one of the same template, arch, spec, config and options; a winner replaces
// the former one of its problem, device and arch. Everything else stays. An image's name holds a
// part of its SHA-256 and the manifest is replaced last, so a reader sees the former bundle or the
// new one, and who has the former one open keeps its images: they are not deleted. Throws kIo with
// the path, also when others can write the folder; kInvalidArgument when it holds other files.
BundleChange write_bundle(const std::filesystem::path& folder,
                          const std::vector<BundledKernel>& kernels);

// How a bundle of one file holds images: as they are; or smaller, unpacked when asked for.
enum class Packing { kNone, kZstd };

// The same as one file (bundle_file.hpp), which replaces a former one whole. Throws kIo, and
// kUnsupported where a packing's library is not here.
void write_bundle_file(const std::filesystem::path& file, const std::vector<BundledKernel>& kernels,
                       Packing packing = Packing::kNone);

// An opened manifest; images are read and checked against their SHA-256 when asked for. Immutable,
// thread-safe.
class Bundle {
 public:
  // Throws kIo when it is missing, cut off or damaged, when the manifest cannot be read, or could
  // have been written by others than this user and root, since images are code; kInvalidArgument
  // when it is malformed or of a newer version; kUnsupported when images are packed and libzstd is
  // not here. A folder, or a bundle of one file.
  static Bundle open(const std::filesystem::path& folder);
  // A bundle of one file whose bytes the caller holds, unchanged, as long as this and what it gave.
  static Bundle open_memory(std::string_view bytes);

  // Or the file's path.
  const std::filesystem::path& folder() const { return folder_; }
  const std::vector<WinnerRecord>& winners() const { return winners_; }
  std::set<std::string> archs() const;
  // Whether there is any kernel for this arch. `options`: what host code must have been compiled
  // with; empty: any options do.
  bool serves(const std::string& arch, const std::string& options) const;
  // An image of that spec, arch, config and source; `compiler` in the key may be empty. A
  // file that is missing, altered or writable by others is a miss, and logged.
  std::optional<KernelImage> image(const ImageKey& key) const;
  size_t num_images() const { return entries_.size(); }
  // One sentence for each image that is missing or not what the manifest says.
  std::vector<std::string> faults() const;

 private:
  struct Entry {
    ImageKey key;
    std::string file, sha256;
    KernelImage image;               // without bytes
    uint64_t offset, bytes, packed;  // in whole_, as ManifestEntry has them
  };
  Bundle() = default;
  explicit Bundle(std::vector<ManifestEntry> entries);
  static Bundle of_bytes(std::shared_ptr<const BundleBytes> bytes,
                         const std::filesystem::path& name);
  // The file's bytes when they are what the manifest says; else nullopt and why not.
  std::optional<std::string> sound_bytes(const Entry& entry, std::string* fault) const;
  std::filesystem::path folder_;
  std::shared_ptr<const BundleBytes> whole_;  // of a bundle of one file
  std::vector<Entry> entries_;
  std::vector<WinnerRecord> winners_;
};

}  // namespace attune
