// SPDX-License-Identifier: Apache-2.0
// Writing and reading bundles of one file; see bundle_file.hpp.
#include "runtime/bundles/bundle_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "generator/core/system/digest.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/files.hpp"
#include "generator/core/system/private_path.hpp"

namespace attune {
namespace {

constexpr std::string_view kMagic("attuneB\0", 8);
constexpr uint64_t kPlain = 1, kPacked = 2;   // versions
constexpr uint64_t kLargestImage = 64 << 20;  // unpacked; a small file must not fill the memory
constexpr size_t kSummed = 32;                // bytes of the header that the digest covers
constexpr size_t kHeader = kSummed + 64;      // with the digest
constexpr Guarded kGuarded{"bundle", ErrorCode::kIo, 0755};

// Reads with pread: if a mapped file were truncated, reading it would end the process by SIGBUS.
class OpenFile final : public BundleBytes {
 public:
  explicit OpenFile(const std::filesystem::path& path)
      : path_(path.string()), file_(open_regular(path, O_RDONLY | O_NOFOLLOW, &fault_)) {
    struct stat status {};
    if (!file_) fail(fault_);
    if (::fstat(file_.get(), &status) != 0) fail(std::strerror(errno));
    size_ = static_cast<uint64_t>(status.st_size);
  }
  uint64_t size() const override { return size_; }
  std::string read(uint64_t at, uint64_t count) const override {
    std::string bytes(count, '\0');
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t got = ::pread(file_.get(), bytes.data() + done, bytes.size() - done,
                                  static_cast<off_t>(at + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(std::strerror(errno));
      if (got == 0)
        fail(fmt::format("it ends at byte {}, and had {} when it was opened: it was cut", at + done,
                         size_));
      done += static_cast<size_t>(got);
    }
    return bytes;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorCode::kIo, fmt::format("bundle {} cannot be read: {}", path_, why));
  }
  const std::string path_;
  std::string fault_;
  const FileDescriptor file_;
  uint64_t size_ = 0;
};

class CallersBytes final : public BundleBytes {
 public:
  explicit CallersBytes(std::string_view bytes) : bytes_(bytes) {}
  uint64_t size() const override { return bytes_.size(); }
  std::string read(uint64_t at, uint64_t count) const override {
    if (at > bytes_.size() || count > bytes_.size() - at)
      throw Error(ErrorCode::kIo,
                  fmt::format("the bundle in memory has {} bytes; {} bytes from byte {} on are "
                              "outside",
                              bytes_.size(), count, at));
    return std::string(bytes_.substr(at, count));
  }

 private:
  std::string_view bytes_;
};

std::string number_bytes(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}
uint64_t number_at(std::string_view bytes, size_t at) {
  uint64_t value = 0;
  for (size_t i = 0; i < 8; ++i)
    value |= uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

size_t aligned(size_t at) {
  return (at + kBundleAlignment - 1) / kBundleAlignment * kBundleAlignment;
}

std::string digest_of(std::string_view head, std::string_view manifest) {
  return sha256_hex(head.substr(0, kSummed), manifest);
}

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", name, why));
}

// Throws kIo for a damaged bundle. kInvalidArgument is for files that never were a bundle.
[[noreturn]] void refuse_damaged(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kIo, fmt::format("{}: {}", name, why));
}

// Returns the manifest, which follows the header. The header has the lengths of the manifest and of
// the file. If its digest is right and the file is shorter, the file was cut off.
std::string checked_manifest(const BundleBytes& bytes, std::string_view header,
                             const std::string& name) {
  const uint64_t manifest_bytes = number_at(header, 16), all_bytes = number_at(header, 24);
  if (all_bytes < kHeader || manifest_bytes > all_bytes - kHeader)
    refuse_damaged(name, fmt::format("its header is damaged: it gives the file {} bytes and the "
                                     "index {}",
                                     all_bytes, manifest_bytes));
  if (manifest_bytes > bytes.size() - kHeader)
    refuse_damaged(name,
                   fmt::format("says that it has {} bytes, and has {}, less than its index: it was "
                               "cut off, or its header is damaged",
                               all_bytes, bytes.size()));
  std::string manifest = bytes.read(kHeader, manifest_bytes);
  if (header.substr(kSummed, kHeader - kSummed) != digest_of(header, manifest))
    refuse_damaged(name,
                   "its header or index is damaged: their SHA-256 differs from the stored one");
  if (all_bytes != bytes.size())
    refuse_damaged(
        name, fmt::format("says that it has {} bytes, and has {}: {}", all_bytes, bytes.size(),
                          bytes.size() < all_bytes ? "it was cut off" : "something was added"));
  return manifest;
}

void check_packed(const ManifestEntry& entry, uint64_t version, const std::string& name) {
  if (version != kPacked)
    refuse(name, fmt::format("has version {} and packed images; their version must be {}", version,
                             kPacked));
  if (entry.bytes > kLargestImage)
    refuse(name, fmt::format("a packed image would have {} bytes; must be at most {}", entry.bytes,
                             kLargestImage));
  if (std::string why; !zstd_is_here(&why)) throw Error(ErrorCode::kUnsupported, name + ": " + why);
}

// Returns the entries sorted by their text, each kernel once, with sorted winners.
std::vector<ManifestEntry> sorted_entries(const std::vector<BundledKernel>& kernels,
                                          Packing packing) {
  std::vector<std::pair<std::string, ManifestEntry>> keyed;
  for (const BundledKernel& kernel : kernels) {
    ManifestEntry entry{kernel.key, "", sha256_hex(kernel.image.bytes), kernel.image,
                        kernel.winners};
    entry.bytes = kernel.image.bytes.size();
    std::sort(entry.winners.begin(), entry.winners.end(),
              [](const WinnerRecord& a, const WinnerRecord& b) {
                const auto key = [](const WinnerRecord& w) {
                  return std::tuple(to_text(problem_of(w.spec, w.shape)), w.device.text(), w.pinned,
                                    w.created);
                };
                return key(a) < key(b);
              });
    std::string text = manifest_text({entry}, ManifestTime::kNone);
    keyed.emplace_back(std::move(text), std::move(entry));
  }
  std::sort(keyed.begin(), keyed.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  keyed.erase(std::unique(keyed.begin(), keyed.end(),
                          [](const auto& a, const auto& b) { return a.first == b.first; }),
              keyed.end());
  std::vector<ManifestEntry> entries;
  for (auto& [text, entry] : keyed) entries.push_back(std::move(entry));
  if (packing == Packing::kZstd)
    for (ManifestEntry& entry : entries) {
      entry.image.bytes = zstd_packed(entry.image.bytes);
      entry.packed = entry.image.bytes.size();
    }
  return entries;
}

// Sets the offsets of images, one after the other from `begin` on; equal images share an offset.
// Returns the end of the last image.
size_t place_images(size_t begin, std::vector<ManifestEntry>* entries) {
  std::map<std::string, size_t> placed;
  size_t end = begin;
  for (ManifestEntry& entry : *entries) {
    const auto [at, is_new] = placed.emplace(entry.sha256, aligned(end));
    entry.offset = at->second;
    if (is_new) end = entry.offset + entry.stored();
  }
  return end;
}

}  // namespace

std::shared_ptr<const BundleBytes> open_bundle(const std::filesystem::path& path) {
  return std::make_shared<OpenFile>(private_file(path, kGuarded));
}

std::shared_ptr<const BundleBytes> bundle_in_memory(std::string_view bytes) {
  return std::make_shared<CallersBytes>(bytes);
}

std::string bundle_bytes(const std::vector<BundledKernel>& kernels, Packing packing) {
  std::vector<ManifestEntry> entries = sorted_entries(kernels, packing);
  // The manifest has the offsets of images, which depend on its length. So first its length is
  // computed for the highest possible offsets. Then the manifest is padded with spaces to it.
  const size_t longest = [&] {
    std::vector<ManifestEntry> far = entries;
    place_images(size_t{1} << 48, &far);
    return manifest_text(far, ManifestTime::kNone).size();
  }();
  const size_t end = place_images(aligned(kHeader + longest), &entries);
  std::string manifest = manifest_text(entries, ManifestTime::kNone);
  manifest.resize(longest, ' ');
  std::string bytes(kMagic);
  bytes += number_bytes(packing == Packing::kNone ? kPlain : kPacked) +
           number_bytes(manifest.size()) + number_bytes(end);
  bytes += digest_of(bytes, manifest) + manifest;
  for (const ManifestEntry& entry : entries) {
    if (entry.offset < bytes.size()) continue;  // shared with an earlier entry
    bytes.resize(entry.offset, '\0');
    bytes += entry.image.bytes;
  }
  bytes.resize(end, '\0');
  return bytes;
}

std::vector<ManifestEntry> parse_bundle(const BundleBytes& bytes, const std::string& name) {
  const std::string header = bytes.read(0, std::min<uint64_t>(bytes.size(), kHeader));
  if (!header.starts_with(kMagic))
    refuse(name, "is not a bundle file; must be a file that `attune export` wrote");
  if (header.size() < kHeader)
    refuse_damaged(name,
                   fmt::format("has {} bytes, less than a header: it was cut off", bytes.size()));
  const uint64_t version = number_at(header, 8);
  if (version != kPlain && version != kPacked)
    refuse(name, fmt::format("is a bundle of version {}; this library reads versions {} and {}",
                             version, kPlain, kPacked));
  const std::string manifest = checked_manifest(bytes, header, name);
  const uint64_t manifest_bytes = manifest.size();
  std::vector<ManifestEntry> entries = parse_manifest(manifest, name);
  for (const ManifestEntry& entry : entries) {
    if (entry.offset < kHeader + manifest_bytes || entry.offset > bytes.size() ||
        entry.stored() > bytes.size() - entry.offset)
      refuse_damaged(name, fmt::format("an image from byte {} on, of {} bytes, does not lie inside",
                                       entry.offset, entry.stored()));
    if (entry.packed > 0) check_packed(entry, version, name);
  }
  return entries;
}

}  // namespace attune
