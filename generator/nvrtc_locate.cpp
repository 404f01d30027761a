// SPDX-License-Identifier: Apache-2.0
// Where libnvrtc may be: candidates in the order they are tried; see nvrtc_locate.hpp.
#include "generator/nvrtc_locate.hpp"

#include <glob.h>

#include <filesystem>
#include <sstream>

#include "generator/core/environment.hpp"

namespace attune {
namespace {

std::vector<std::string> expand(const std::string& pattern) {
  std::vector<std::string> paths;
  glob_t found{};
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    for (size_t i = found.gl_pathc; i-- > 0;)
      paths.emplace_back(found.gl_pathv[i]);  // newest version last in glob's order
  ::globfree(&found);
  return paths;
}

// A folder that a variable names; nothing when that would depend on the current directory.
std::string folder_in(const char* name) {
  const std::string folder = environment_variable(name).value_or("");
  return folder.rfind('/', 0) == 0 ? folder : std::string();
}

// Prefixes that may hold lib/python3*/site-packages: the active environment and every python3 on PATH.
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

void append(std::vector<std::string>* to, const std::vector<std::string>& from) {
  to->insert(to->end(), from.begin(), from.end());
}

}  // namespace

std::string chosen_nvrtc() { return environment_variable("ATTUNE_NVRTC").value_or(""); }

std::vector<std::string> nvrtc_candidates() {
  std::vector<std::string> candidates;
  if (const std::string chosen = chosen_nvrtc(); !chosen.empty()) candidates.push_back(chosen);
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"})
    candidates.emplace_back(name);
  for (const std::string& root :
       {folder_in("CUDA_HOME"), folder_in("CUDA_PATH"), std::string("/usr/local/cuda"),
        std::string("/usr/local/cuda-*"), std::string("/opt/cuda")})
    if (!root.empty()) append(&candidates, expand(root + "/lib64/libnvrtc.so.1[23]"));
  for (const std::string& prefix : python_prefixes())
    for (const char* packages : {"/lib/python3*/site-packages", "/lib/python3*/dist-packages",
                                 "/lib/python3/dist-packages"})
      append(&candidates, expand(prefix + packages + "/nvidia/*/lib/libnvrtc.so.1[23]"));
  return candidates;
}

std::vector<std::string> nvrtc_builtins_beside(const std::string& nvrtc_path) {
  const std::filesystem::path folder = std::filesystem::path(nvrtc_path).parent_path();
  return folder.empty() ? std::vector<std::string>()
                        : expand((folder / "libnvrtc-builtins.so*").string());
}

}  // namespace attune
