// SPDX-License-Identifier: Apache-2.0
// Reading and writing of bundles; the JSON of the manifest is in bundle_manifest.cpp.
#include "runtime/bundles/bundle.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <system_error>

#include "generator/core/system/digest.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/file_lock.hpp"
#include "generator/core/system/files.hpp"
#include "generator/core/system/log.hpp"
#include "generator/core/system/private_path.hpp"
#include "runtime/bundles/bundle_file.hpp"
#include "runtime/bundles/bundle_manifest.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMostBytes = size_t{1} << 30;  // manifests and images are far smaller
constexpr const char* kManifest = "manifest.json";
constexpr unsigned kFileMode = 0644;  // never writable by others, whatever the umask

[[noreturn]] void io_error(const fs::path& path, const char* what) {
  throw Error(ErrorCode::kIo, fmt::format("{} {}", path.string(), what));
}

constexpr Guarded kGuarded{"bundle", ErrorCode::kIo, 0755};

// Returns the bytes of a file. Throws kIo if it cannot be read or others could have written it.
std::string read_file(const fs::path& path) {
  return attune::read_file("the file", private_file(path, kGuarded), kMostBytes);
}

std::string stored_bytes(const BundleBytes& whole, uint64_t offset, uint64_t bytes,
                         uint64_t packed) {
  return packed > 0 ? zstd_unpacked(whole.read(offset, packed), bytes) : whole.read(offset, bytes);
}

// Returns the identity of an image besides its source.
std::string kernel_text(const ImageKey& key) {
  return fmt::format("{}|{}|{}", key.arch, to_text(key.spec), key.config.to_text());
}
std::string identity_text(const ImageKey& key) {
  return fmt::format("{}|{}|{}", key.toolchain.template_name, key.source_digest, kernel_text(key));
}

bool same_source(const ImageKey& stored, const ImageKey& key) {
  if (!key.source_digest.empty()) return stored.source_digest == key.source_digest;
  return stored.toolchain.template_digest == key.toolchain.template_digest;
}

std::string file_name(const ManifestEntry& entry) {
  const char* ending = entry.image.format == ImageFormat::kCubin ? "cubin" : "o";
  return fmt::format("{}-{}-{}.{}", entry.key.toolchain.template_name,
                     xxh3_128_hex(identity_text(entry.key)).substr(0, 16),
                     entry.sha256.substr(0, 16), ending);
}

bool is_image(const fs::path& file) {
  return file.extension() == ".cubin" || file.extension() == ".o";
}

void check_contents(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().filename() != kManifest && !is_image(entry.path()) &&
        entry.path().extension() != ".part")
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} holds {}; must be an empty folder or a former bundle",
                              folder.string(), entry.path().filename().string()));
}

// Locks the folder until the manifest is written, so that two writers both add their kernels.
FileDescriptor locked(const fs::path& folder) {
  FileDescriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const LockResult result = directory ? lock_file(directory.get(), {}) : LockResult::kFailed;
  if (result == LockResult::kHeld) return directory;
  io_error(folder,
           fmt::format("cannot be locked: {}", result == LockResult::kFailed
                                                   ? std::strerror(errno)
                                                   : lock_holder(directory.get()) + " holds it")
               .c_str());
}

std::string kernel_identity(const ManifestEntry& entry) {
  return identity_text(entry.key) + "|" + entry.key.toolchain.options;
}

std::string winner_identity(const WinnerRecord& winner) {
  return fmt::format("{}|{}|{}|{}|{}", winner.toolchain.template_name, winner.arch,
                     to_text(problem_of(winner.spec, winner.shape)), winner.device.name,
                     winner.pinned);
}

// Merges `fresh` into `former`; fresh entries replace former ones. Returns the number of former
// kernels that stay.
size_t merge_entries(std::vector<ManifestEntry> fresh, std::vector<ManifestEntry>* former) {
  std::set<std::string> replaced;
  std::map<std::string, size_t> place;
  for (const ManifestEntry& entry : fresh)
    for (const WinnerRecord& winner : entry.winners) replaced.insert(winner_identity(winner));
  for (size_t i = 0; i < former->size(); ++i) {
    ManifestEntry& entry = (*former)[i];
    std::erase_if(entry.winners, [&](const WinnerRecord& winner) {
      return replaced.count(winner_identity(winner)) != 0;
    });
    place.emplace(kernel_identity(entry), i);
  }
  const size_t count = former->size();
  std::set<size_t> taken;
  for (ManifestEntry& entry : fresh) {
    const auto [found, is_new] = place.emplace(kernel_identity(entry), former->size());
    if (is_new) {
      former->push_back(std::move(entry));
      continue;
    }
    ManifestEntry& old = (*former)[found->second];
    entry.winners.insert(entry.winners.end(), old.winners.begin(), old.winners.end());
    old = std::move(entry);
    if (found->second < count) taken.insert(found->second);
  }
  return count - taken.size();
}

size_t count_unnamed(const fs::path& folder, const std::vector<ManifestEntry>& entries) {
  std::set<std::string> named;
  for (const ManifestEntry& entry : entries) named.insert(entry.file);
  size_t unnamed = 0;
  for (const fs::directory_entry& file : fs::directory_iterator(folder))
    unnamed += is_image(file.path()) && named.count(file.path().filename().string()) == 0;
  return unnamed;
}

BundleChange write_into(const fs::path& folder, const std::vector<BundledKernel>& kernels) {
  const fs::path manifest = folder / kManifest;
  const FileDescriptor lock = locked(folder);
  check_contents(folder);
  std::vector<ManifestEntry> entries;
  if (fs::exists(manifest)) entries = parse_manifest(read_file(manifest), manifest.string());
  std::vector<ManifestEntry> fresh;
  for (const BundledKernel& kernel : kernels) {
    ManifestEntry entry{kernel.key, "", sha256_hex(kernel.image.bytes), kernel.image,
                        kernel.winners};
    entry.file = file_name(entry);
    replace_file(folder / entry.file, kernel.image.bytes, kFileMode);
    fresh.push_back(std::move(entry));
  }
  BundleChange change;
  change.kept = merge_entries(std::move(fresh), &entries);
  replace_file(manifest, manifest_text(entries, ManifestTime::kNow), kFileMode);
  change.unnamed = count_unnamed(folder, entries);
  return change;
}

}  // namespace

BundleChange write_bundle(const fs::path& asked, const std::vector<BundledKernel>& kernels) {
  std::error_code ignored;
  const bool is_new = !fs::exists(asked, ignored);
  const fs::path folder = private_folder(asked, kGuarded);
  try {
    return write_into(folder, kernels);
  } catch (...) {
    if (is_new) fs::remove(folder, ignored);  // only if it is empty
    throw;
  }
}

void write_bundle_file(const fs::path& file, const std::vector<BundledKernel>& kernels,
                       Packing packing) {
  replace_file(private_place(file, kGuarded), bundle_bytes(kernels, packing), kFileMode);
}

Bundle::Bundle(std::vector<ManifestEntry> entries) {
  for (ManifestEntry& entry : entries) {
    winners_.insert(winners_.end(), entry.winners.begin(), entry.winners.end());
    entries_.push_back({std::move(entry.key), std::move(entry.file), std::move(entry.sha256),
                        std::move(entry.image), entry.offset, entry.bytes, entry.packed});
  }
}

Bundle Bundle::of_bytes(std::shared_ptr<const BundleBytes> bytes, const fs::path& name) {
  Bundle bundle(parse_bundle(*bytes, name.string()));
  bundle.folder_ = name;
  bundle.whole_ = std::move(bytes);
  return bundle;
}

Bundle Bundle::open_memory(std::string_view bytes) {
  return of_bytes(bundle_in_memory(bytes), "bundle in memory");
}

Bundle Bundle::open(const fs::path& folder) {
  std::error_code missing;
  if (fs::is_regular_file(folder, missing)) return of_bytes(open_bundle(folder), folder);
  if (fs::status(folder, missing).type() == fs::file_type::not_found)
    io_error(folder, "is named as a bundle, and there is no such file or folder");
  if (!fs::is_directory(folder, missing))
    io_error(folder, ("is named as a bundle, and " + kind_fault(folder)).c_str());
  if (!fs::exists(folder / kManifest, missing))
    io_error(folder / kManifest,
             "cannot be read; a bundle is a folder or a file written by `attune export`");
  const fs::path real = fs::canonical(folder);  // stays valid if a link is changed later
  const fs::path manifest = real / kManifest;
  std::vector<ManifestEntry> entries = parse_manifest(read_file(manifest), manifest.string());
  for (const ManifestEntry& entry : entries)
    if (entry.file.empty())
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: a kernel has no \"file\"", manifest.string()));
  Bundle bundle(std::move(entries));
  bundle.folder_ = real;
  return bundle;
}

std::set<std::string> Bundle::archs() const {
  std::set<std::string> archs;
  for (const Entry& entry : entries_) archs.insert(entry.key.arch);
  return archs;
}

bool Bundle::serves(const std::string& arch, const std::string& options) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.key.arch == arch && (options.empty() || entry.key.toolchain.options == options);
  });
}

std::optional<std::string> Bundle::sound_bytes(const Entry& entry, std::string* fault) const {
  const fs::path path = whole_
                            ? fs::path(fmt::format("{} at byte {}", folder_.string(), entry.offset))
                            : folder_ / entry.file;
  try {
    std::string bytes =
        whole_ ? stored_bytes(*whole_, entry.offset, entry.bytes, entry.packed) : read_file(path);
    if (sha256_hex(bytes) == entry.sha256) return bytes;
    *fault =
        fmt::format("image {}: SHA-256 differs from the manifest's; it is not used", path.string());
  } catch (const Error& error) {
    *fault = fmt::format("image {} is not used: {}", path.string(), error.what());
  }
  return std::nullopt;
}

std::vector<std::string> Bundle::faults() const {
  std::vector<std::string> faults;
  for (const Entry& entry : entries_)
    if (std::string fault; !sound_bytes(entry, &fault)) faults.push_back(std::move(fault));
  return faults;
}

std::optional<KernelImage> Bundle::image(const ImageKey& key) const {
  for (const Entry& entry : entries_) {
    if (entry.key.toolchain.template_name != key.toolchain.template_name ||
        !same_source(entry.key, key) || kernel_text(entry.key) != kernel_text(key))
      continue;
    if (!key.toolchain.compiler.empty() && key.toolchain.compiler != entry.key.toolchain.compiler)
      continue;
    if (!key.toolchain.options.empty() && key.toolchain.options != entry.key.toolchain.options)
      continue;
    std::string fault;
    if (std::optional<std::string> bytes = sound_bytes(entry, &fault)) {
      KernelImage image = entry.image;
      image.bytes = std::move(*bytes);
      return image;
    }
    log(LogCode::kBundleImageDamaged, fault);
  }
  return std::nullopt;
}

}  // namespace attune
