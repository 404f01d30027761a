// SPDX-License-Identifier: Apache-2.0
// Bundle: a folder of kernel images with a manifest, written by `attune export`. An engine runs
// from it without a compiler and without a store. There is one file per image; manifest.json
// describes each image and the shapes that it was tuned for:
//
//   {"attune_bundle": 1, "created": "...", "kernels": [
//     {"file": "prefill_sm90-5f3a…-91c2….cubin", "sha256": "…", "format": "cubin", "entry":
//     "attune_kernel", "arch": "sm_90a",
//      "template": "prefill_sm90", "template_digest": "…", "source_digest": "…", "compiler":
//      "nvrtc 13.0", "options": "…", "problem": "dtype=bf16,…", "config": "block_m=128,…",
//      "registers": 168, "static_shared_bytes": 0, "stack_bytes": 0, "winners": [{"problem":
//      "dtype=bf16,…", "median_us": 101.2, "default_us": 120.9, "why": "…", …}]}],
//   "programs": [{"digest": "…", "gives": "mask", "text": "return …;"}]}
//
// "programs", if any, has the texts of the callers' programs that problems name. Images run without
// these texts. Winners of a CPU have "threads", the number of threads in the measurement.
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
      winners;  // of exactly this (template, arch, config); empty for a default config
};

struct BundleChange {
  size_t kept = 0;     // kernels of the former bundle that are still in it
  size_t unnamed = 0;  // image files that the manifest no longer names
};

// Adds the kernels to the bundle in `folder`, and makes the folder if it is missing. A kernel
// replaces the former kernel of the same template, arch, spec, config and options. A winner
// replaces the former winner of its problem, device and arch. Everything else stays. An image's
// file name has a part of its SHA-256, and the manifest is replaced last, so a reader sees either
// the former bundle or the new one. Former images are not deleted: a reader that has the former
// bundle open still finds them. Throws kIo with the path if the folder cannot be read or written,
// or if other users can write it. Throws kInvalidArgument if it has files that are not part of a
// bundle.
BundleChange write_bundle(const std::filesystem::path& folder,
                          const std::vector<BundledKernel>& kernels);

// How a bundle of one file stores images: unpacked, or packed by Zstandard.
enum class Packing { kNone, kZstd };

// Writes a bundle as one file (bundle_file.hpp), which replaces a former file as a whole. Throws
// kIo if the file cannot be written, kUnsupported if libzstd is needed and missing.
void write_bundle_file(const std::filesystem::path& file, const std::vector<BundledKernel>& kernels,
                       Packing packing = Packing::kNone);

// An opened bundle: its manifest. An image is read, and checked against its SHA-256, only when
// image() returns it. Immutable and thread-safe.
class Bundle {
 public:
  // Opens a folder, or a bundle of one file. Throws kIo if it is missing, cut off, damaged or
  // unreadable. Also throws kIo if users other than this one and root could have written it,
  // because images are code. Throws kInvalidArgument if it is malformed or of a newer version,
  // kUnsupported if images are packed and libzstd is missing.
  static Bundle open(const std::filesystem::path& folder);
  // Opens a bundle of one file in memory. The caller keeps the bytes unchanged as long as the
  // bundle and its images are used.
  static Bundle open_memory(std::string_view bytes);

  // Returns the path of the folder, or of the file.
  const std::filesystem::path& folder() const { return folder_; }
  const std::vector<WinnerRecord>& winners() const { return winners_; }
  std::set<std::string> archs() const;
  // True if there is a kernel for this arch, compiled with these options; empty = any options.
  bool serves(const std::string& arch, const std::string& options) const;
  // Returns the image of this spec, arch, config and source. The key's `compiler` may be empty. If
  // its source_digest is empty, finds an image of its template_digest. If the image's file is
  // missing, altered or writable by other users, logs that and returns nullopt.
  std::optional<KernelImage> image(const ImageKey& key) const;
  size_t num_images() const { return entries_.size(); }
  // Returns one sentence for each image that is missing or differs from the manifest.
  std::vector<std::string> faults() const;

 private:
  struct Entry {
    ImageKey key;
    std::string file, sha256;
    KernelImage image;               // without bytes
    uint64_t offset, bytes, packed;  // in whole_, as in ManifestEntry
  };
  Bundle() = default;
  explicit Bundle(std::vector<ManifestEntry> entries);
  static Bundle of_bytes(std::shared_ptr<const BundleBytes> bytes,
                         const std::filesystem::path& name);
  // Returns the image's bytes if they match the manifest; else nullopt, with the reason in `fault`.
  std::optional<std::string> sound_bytes(const Entry& entry, std::string* fault) const;
  std::filesystem::path folder_;
  std::shared_ptr<const BundleBytes> whole_;  // for a bundle of one file
  std::vector<Entry> entries_;
  std::vector<WinnerRecord> winners_;
};

}  // namespace attune
