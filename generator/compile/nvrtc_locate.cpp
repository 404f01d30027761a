// SPDX-License-Identifier: Apache-2.0
// Places of libnvrtc, in the order they are tried; see nvrtc_locate.hpp.
#include "generator/compile/nvrtc_locate.hpp"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <sstream>

#include "generator/core/system/environment.hpp"

namespace attune {
namespace {

std::vector<std::string> expand(const std::string& pattern) {
  std::vector<std::string> paths;
  glob_t found{};
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    for (size_t i = found.gl_pathc; i-- > 0;)
      paths.emplace_back(found.gl_pathv[i]);  // glob sorts, so the newest version is last
  ::globfree(&found);
  return paths;
}

// Returns the folder in a variable; empty if the path is relative.
std::string folder_in(const char* name) {
  const std::string folder = environment_variable(name).value_or("");
  return folder.rfind('/', 0) == 0 ? folder : std::string();
}

// Returns prefixes that may contain lib/python3*/site-packages: the active environment and each
// python3 on PATH.
std::vector<std::string> python_prefixes() {
  std::vector<std::string> prefixes{"/usr", "/usr/local"};
  if (const std::string home = folder_in("HOME"); !home.empty())
    prefixes.push_back(home + "/.local");
  if (const std::string venv = folder_in("VIRTUAL_ENV"); !venv.empty()) prefixes.push_back(venv);
  std::istringstream path(environment_variable("PATH").value_or(""));
  for (std::string folder; std::getline(path, folder, ':');) {
    std::error_code ignored;
    if (folder.rfind('/', 0) == 0 && std::filesystem::exists(folder + "/python3", ignored))
      prefixes.push_back(std::filesystem::path(folder).parent_path().string());
  }
  return prefixes;
}

// Returns the folders of a list separated by ':', without relative paths.
std::vector<std::string> folders_in(const char* name) {
  std::vector<std::string> folders;
  std::istringstream list(environment_variable(name).value_or(""));
  for (std::string folder; std::getline(list, folder, ':');)
    if (folder.rfind('/', 0) == 0) folders.push_back(folder);
  return folders;
}

struct OfferedFolders {
  std::mutex mutex;
  std::vector<std::string> folders;
};

OfferedFolders& offered() {
  static OfferedFolders all;
  return all;
}

class Candidates {
 public:
  void add(const std::string& file, const char* origin, bool only_if_loaded = false) {
    all.push_back({file, origin, only_if_loaded});
  }
  // Adds versions 13 and 12 in a folder, which may be a glob pattern.
  void add_folder(const std::string& folder, const char* origin) {
    for (const std::string& file : expand(folder + "/libnvrtc.so.1[23]")) add(file, origin);
  }

  std::vector<NvrtcCandidate> all;
};

}  // namespace

std::string chosen_nvrtc() { return environment_variable("ATTUNE_NVRTC").value_or(""); }

void offer_nvrtc_folders(const std::vector<std::string>& folders) {
  const std::lock_guard lock(offered().mutex);
  std::vector<std::string>& known = offered().folders;
  for (const std::string& folder : folders)
    if (folder.rfind('/', 0) == 0 && std::find(known.begin(), known.end(), folder) == known.end())
      known.push_back(folder);
}

std::vector<NvrtcCandidate> nvrtc_candidates() {
  Candidates candidates;
  if (const std::string chosen = chosen_nvrtc(); !chosen.empty())
    candidates.add(chosen, "ATTUNE_NVRTC");
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"})
    candidates.add(name, "loaded in this process already", true);
  {
    const std::lock_guard lock(offered().mutex);
    for (const std::string& folder : offered().folders)
      candidates.add_folder(folder, "Python's packages");
  }
  for (const std::string& folder : folders_in("ATTUNE_NVRTC_FOLDERS"))
    candidates.add_folder(folder, "ATTUNE_NVRTC_FOLDERS");
  if (const std::string conda = folder_in("CONDA_PREFIX"); !conda.empty())
    candidates.add_folder(conda + "/lib", "conda");
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"})
    candidates.add(name, "the loader");
  for (const std::string& root :
       {folder_in("CUDA_HOME"), folder_in("CUDA_PATH"), std::string("/usr/local/cuda"),
        std::string("/usr/local/cuda-*"), std::string("/opt/cuda")})
    if (!root.empty()) candidates.add_folder(root + "/lib64", "a CUDA toolkit");
  for (const std::string& prefix : python_prefixes())
    for (const char* packages : {"/lib/python3*/site-packages", "/lib/python3*/dist-packages",
                                 "/lib/python3/dist-packages"})
      candidates.add_folder(prefix + packages + "/nvidia/*/lib", "a Python on PATH");
  return candidates.all;
}

std::vector<std::string> nvrtc_builtins_beside(const std::string& nvrtc_path) {
  const std::filesystem::path folder = std::filesystem::path(nvrtc_path).parent_path();
  return folder.empty() ? std::vector<std::string>()
                        : expand((folder / "libnvrtc-builtins.so*").string());
}

}  // namespace attune
