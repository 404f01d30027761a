// SPDX-License-Identifier: Apache-2.0
// Finds a model's config.json; see workload.hpp. The cache holds a model "org/name" as
// models--org--name/snapshots/REVISION/config.json; refs/main has the revision of the branch main.
#include "tuner/models/workload.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <sstream>
#include <vector>

#include "generator/core/system/environment.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/files.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& text, const std::string& what) {
  throw Error(ErrorCode::kIo, fmt::format("{}: {}", text, what));
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) && !fs::is_directory(path, error);
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::string why_missing(const fs::path& path) {
  std::error_code error;
  return !fs::exists(path, error) && error ? error.message() : "there is no such file or folder";
}

// Returns "name" for a path that contains models--org--name. Otherwise returns the name of the
// config's folder, or of the file itself.
std::string name_of(const fs::path& config) {
  const fs::path full = fs::absolute(config).lexically_normal();
  for (const fs::path& part : full) {
    const std::string text = part.string();
    const size_t last = text.rfind("--");
    if (text.rfind("models--", 0) == 0 && last != std::string::npos) return text.substr(last + 2);
  }
  return full.filename() == "config.json" ? full.parent_path().filename().string()
                                          : full.stem().string();
}

// Returns the snapshot that refs/main names, or the only one.
std::optional<fs::path> snapshot_of(const fs::path& folder) {
  std::string revision;
  std::string unused;
  const FileDescriptor main = open_regular(folder / "refs" / "main", O_RDONLY, &unused);
  std::array<char, 256> name{};
  if (main && ::read(main.get(), name.data(), name.size() - 1) > 0)
    std::istringstream(name.data()) >> revision;
  if (!revision.empty() && is_folder(folder / "snapshots" / revision))
    return folder / "snapshots" / revision;
  std::vector<fs::path> snapshots;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / "snapshots", error))
    if (entry.is_directory(error)) snapshots.push_back(entry.path());
  if (snapshots.size() > 1)
    refuse(folder.string(),
           fmt::format("there are {} snapshots, and refs/main names none of them; give the folder "
                       "of one, such as {}",
                       snapshots.size(),
                       std::min_element(snapshots.begin(), snapshots.end())->string()));
  if (snapshots.empty()) return std::nullopt;
  return snapshots.front();
}

// Returns the config.json in a folder; for a diffusers pipeline, that of its denoising network.
std::optional<fs::path> config_in(const fs::path& folder) {
  for (const char* place : {"config.json", "transformer/config.json", "unet/config.json"})
    if (is_file(folder / place)) return folder / place;
  if (!is_folder(folder / "snapshots")) return std::nullopt;
  const std::optional<fs::path> snapshot = snapshot_of(folder);
  return snapshot ? config_in(*snapshot) : std::nullopt;
}

// True for "org/name" or "name" in characters that the hub allows.
bool is_hub_name(const std::string& text) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' ||
           c == '/';
  };
  return !text.empty() && std::isalnum(static_cast<unsigned char>(text.front())) != 0 &&
         text.back() != '/' && std::all_of(text.begin(), text.end(), allowed) &&
         std::count(text.begin(), text.end(), '/') <= 1 && text.find(".json") == std::string::npos;
}

// Returns CACHE/models--org--name.
fs::path cached_folder(const std::string& name, const fs::path& cache) {
  std::string folder = "models--" + name;
  if (const size_t slash = folder.find('/'); slash != std::string::npos)
    folder.replace(slash, 1, "--");
  return cache / folder;
}

}  // namespace

ModelFile find_model(const std::string& text, const fs::path& cache) {
  const fs::path path(text);
  if (is_file(path)) return {path, name_of(path)};
  if (is_folder(path)) {
    if (const auto config = config_in(path)) return {*config, name_of(*config)};
    refuse(text,
           "a folder without config.json, transformer/config.json, unet/config.json or "
           "snapshots");
  }
  if (!is_hub_name(text)) refuse(text, "cannot be read: " + why_missing(path));
  if (cache.empty())
    refuse(
        text,
        "no such file or folder; HF_HOME and HOME are not set, so there is no Hugging Face cache");
  const fs::path folder = cached_folder(text, cache);
  if (const auto config = config_in(folder)) return {*config, name_of(*config)};
  refuse(text, fmt::format("no such file or folder, and {} is not in the Hugging Face cache. "
                           "attune downloads nothing: `hf download {} config.json` does",
                           folder.string(), text));
}

fs::path hugging_face_cache() {
  const auto variable = [](const char* name) -> fs::path {
    return environment_variable(name).value_or("");
  };
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (fs::path cache = variable(name); !cache.empty()) return cache;
  if (const fs::path home = variable("HF_HOME"); !home.empty()) return home / "hub";
  if (const fs::path cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return cache / "huggingface" / "hub";
  if (const auto home = home_directory()) return fs::path(*home) / ".cache" / "huggingface" / "hub";
  return {};
}

}  // namespace attune
