// SPDX-License-Identifier: Apache-2.0
// Reading and writing of bundles; the JSON of the manifest is in bundle_manifest.cpp.
#include "runtime/bundle.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <system_error>

#include "generator/core/digest.hpp"
#include "generator/core/error.hpp"
#include "generator/core/log.hpp"
#include "runtime/bundle_manifest.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;
constexpr const char* kManifest = "manifest.json";

[[noreturn]] void io_error(const fs::path& path, const char* what) {
  throw Error(ErrorCode::kIo, fmt::format("{} {}", path.string(), what));
}

std::optional<std::string> read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Under a temporary name first, then renamed: never half written.
void write_file(const fs::path& path, const std::string& bytes) {
  const fs::path partial = path.string() + ".part";
  {
    std::ofstream out(partial, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    if (!out) io_error(partial, "cannot be written");
  }
  std::error_code failed;
  fs::rename(partial, path, failed);
  if (failed) io_error(path, "cannot be written");
}

std::string identity_text(const ImageKey& key) {
  return fmt::format("{}|{}|{}|{}|{}", key.toolchain.template_name, key.toolchain.template_digest,
                     key.arch, to_text(key.spec), key.config.to_text());
}

std::string file_name(const BundledKernel& kernel) {
  const char* ending = kernel.image.format == ImageFormat::kCubin ? "cubin" : "o";
  return fmt::format("{}-{}.{}", kernel.key.toolchain.template_name,
                     xxh3_128_hex(identity_text(kernel.key)).substr(0, 16), ending);
}

void check_folder(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) io_error(folder, ("cannot be created: " + failed.message()).c_str());
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failed)) {
    const std::string ending = entry.path().extension();
    if (entry.path().filename() != kManifest && ending != ".cubin" && ending != ".o" &&
        ending != ".part")
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} holds {}; accepted is an empty folder or a former bundle",
                              folder.string(), entry.path().filename().string()));
  }
}

}  // namespace

void write_bundle(const fs::path& folder, const std::vector<BundledKernel>& kernels) {
  check_folder(folder);
  std::vector<ManifestEntry> entries;
  for (const BundledKernel& kernel : kernels) {
    ManifestEntry entry{kernel.key, file_name(kernel), sha256_hex(kernel.image.bytes), kernel.image,
                        kernel.winners};
    write_file(folder / entry.file, kernel.image.bytes);
    entries.push_back(std::move(entry));
  }
  write_file(folder / kManifest, manifest_text(entries));
}

Bundle Bundle::open(const fs::path& folder) {
  const std::optional<std::string> text = read_file(folder / kManifest);
  if (!text)
    io_error(folder / kManifest, "cannot be read; a bundle is a folder written by `attune export`");
  Bundle bundle;
  bundle.folder_ = folder;
  for (ManifestEntry& entry : parse_manifest(*text, (folder / kManifest).string())) {
    bundle.winners_.insert(bundle.winners_.end(), entry.winners.begin(), entry.winners.end());
    bundle.entries_.push_back({std::move(entry.key), std::move(entry.file), std::move(entry.sha256),
                               std::move(entry.image)});
  }
  return bundle;
}

std::optional<KernelImage> Bundle::image(const ImageKey& key) const {
  for (const Entry& entry : entries_) {
    if (identity_text(entry.key) != identity_text(key)) continue;
    if (!key.toolchain.compiler.empty() && key.toolchain.compiler != entry.key.toolchain.compiler)
      continue;
    if (!key.toolchain.options.empty() && key.toolchain.options != entry.key.toolchain.options)
      continue;
    std::optional<std::string> bytes = read_file(folder_ / entry.file);
    if (bytes && sha256_hex(*bytes) == entry.sha256) {
      KernelImage image = entry.image;
      image.bytes = std::move(*bytes);
      return image;
    }
    log(LogLevel::kWarning,
        fmt::format("{} is {}; it is not used", (folder_ / entry.file).string(),
                    bytes ? "not what its manifest says (SHA-256 differs)" : "missing"));
  }
  return std::nullopt;
}

}  // namespace attune
