// SPDX-License-Identifier: Apache-2.0
// Writing and reading bundles of one file; see bundle_file.hpp.
#include "runtime/bundle_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "generator/core/digest.hpp"
#include "generator/core/error.hpp"
#include "generator/core/file_descriptor.hpp"
#include "generator/core/private_path.hpp"
#include "runtime/zstd.hpp"

namespace attune {
namespace {

constexpr std::string_view kMagic("attuneB\0", 8);
constexpr uint64_t kPlain = 1, kPacked = 2;   // versions
constexpr uint64_t kLargestImage = 64 << 20;  // unpacked: a small file must not ask for all memory
constexpr size_t kSummed = 32;                // bytes of the header that the digest covers
constexpr size_t kHeader = kSummed + 64;      // with the digest
constexpr Guarded kGuarded{"bundle", ErrorCode::kIo, 0755};

class MappedFile final : public BundleBytes {
 public:
  explicit MappedFile(const std::filesystem::path& path) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0) fail(path);
    size_ = static_cast<size_t>(status.st_size);
    if (size_ == 0) return;
    data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (data_ == MAP_FAILED) fail(path);
  }
  ~MappedFile() override {
    if (size_ > 0) ::munmap(data_, size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::string_view view() const override { return {static_cast<const char*>(data_), size_}; }

 private:
  [[noreturn]] static void fail(const std::filesystem::path& path) {
    throw Error(ErrorCode::kIo,
                fmt::format("bundle {} cannot be read: {}", path.string(), std::strerror(errno)));
  }
  void* data_ = nullptr;
  size_t size_ = 0;
};

class CallersBytes final : public BundleBytes {
 public:
  explicit CallersBytes(std::string_view bytes) : bytes_(bytes) {}
  std::string_view view() const override { return bytes_; }

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

// What was a bundle once: not the caller's fault.
[[noreturn]] void refuse_damaged(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kIo, fmt::format("{}: {}", name, why));
}

// What follows the header, which says how long both are. A file is cut where its header is sound.
std::string_view checked_manifest(std::string_view bytes, const std::string& name) {
  const uint64_t manifest_bytes = number_at(bytes, 16), all_bytes = number_at(bytes, 24);
  if (all_bytes < kHeader || manifest_bytes > all_bytes - kHeader)
    refuse_damaged(name, fmt::format("its header is damaged: of {} bytes its index would take {}",
                                     all_bytes, manifest_bytes));
  if (manifest_bytes > bytes.size() - kHeader)
    refuse_damaged(name,
                   fmt::format("says that it has {} bytes, and has {}, less than its index: it was "
                               "cut off, or its header is damaged",
                               all_bytes, bytes.size()));
  const std::string_view manifest = bytes.substr(kHeader, manifest_bytes);
  if (bytes.substr(kSummed, kHeader - kSummed) != digest_of(bytes, manifest))
    refuse_damaged(name,
                   "the SHA-256 of its header and index is not what it says: they are damaged");
  if (all_bytes != bytes.size())
    refuse_damaged(
        name, fmt::format("says that it has {} bytes, and has {}: {}", all_bytes, bytes.size(),
                          bytes.size() < all_bytes ? "it was cut off" : "something was added"));
  return manifest;
}

void check_packed(const ManifestEntry& entry, uint64_t version, const std::string& name) {
  if (version != kPacked) refuse(name, "has packed images, which its version does not know");
  if (entry.bytes > kLargestImage)
    refuse(name, fmt::format("a packed image would have {} bytes; accepted are up to {}",
                             entry.bytes, kLargestImage));
  if (std::string why; !zstd_is_here(&why)) throw Error(ErrorCode::kUnsupported, name + ": " + why);
}

// In an order of their own, each kernel once, with winners in an order of their own as well.
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

// Images follow each other from `begin` on, equal ones once. Returns where they end.
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

std::shared_ptr<const BundleBytes> map_bundle(const std::filesystem::path& path) {
  return std::make_shared<MappedFile>(private_file(path, kGuarded));
}

std::shared_ptr<const BundleBytes> bundle_in_memory(std::string_view bytes) {
  return std::make_shared<CallersBytes>(bytes);
}

std::string bundle_bytes(const std::vector<BundledKernel>& kernels, Packing packing) {
  std::vector<ManifestEntry> entries = sorted_entries(kernels, packing);
  // The manifest says where images are, and where they are depends on its length: of one that is
  // made as if images began at the highest offset there may be, padded by spaces.
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
    if (entry.offset < bytes.size()) continue;  // shared with one before it
    bytes.resize(entry.offset, '\0');
    bytes += entry.image.bytes;
  }
  bytes.resize(end, '\0');
  return bytes;
}

std::vector<ManifestEntry> parse_bundle(std::string_view bytes, const std::string& name) {
  if (bytes.substr(0, kMagic.size()) != kMagic)
    refuse(name, "is not a bundle file, as `attune export` writes it");
  if (bytes.size() < kHeader)
    refuse_damaged(name,
                   fmt::format("has {} bytes, less than a header: it was cut off", bytes.size()));
  const uint64_t version = number_at(bytes, 8);
  if (version != kPlain && version != kPacked)
    refuse(name, fmt::format("is a bundle of version {}; this library reads versions {} and {}",
                             version, kPlain, kPacked));
  const std::string_view manifest = checked_manifest(bytes, name);
  const uint64_t manifest_bytes = manifest.size();
  std::vector<ManifestEntry> entries = parse_manifest(std::string(manifest), name);
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
