// SPDX-License-Identifier: Apache-2.0
// If the process has already loaded an NVRTC, as PyTorch does, that library is used, whatever else
// can be found. Skips aloud without NVRTC.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/compile/nvrtc_locate.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

// Loads the first NVRTC that opens, privately and by its path, as another library would.
std::string load_one() {
  for (const NvrtcCandidate& candidate : nvrtc_candidates()) {
    void* library = ::dlopen(candidate.file.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* symbol = library != nullptr ? ::dlsym(library, "nvrtcVersion") : nullptr;
    Dl_info info{};
    if (symbol != nullptr && ::dladdr(symbol, &info) != 0) return info.dli_fname;
  }
  return "";
}

TEST(NvrtcLoaded, IsPreferredToEnvironmentVariables) {
  ::unsetenv("ATTUNE_NVRTC");
  const std::string loaded = load_one();
  if (loaded.empty()) GTEST_SKIP() << nvrtc_advice();
  std::string folder = (fs::temp_directory_path() / "attune_nvrtc_XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  fs::copy_file(fs::canonical(loaded), fs::path(folder) / "libnvrtc.so.13");
  ::setenv("ATTUNE_NVRTC_FOLDERS", folder.c_str(), 1);
  NvrtcLocation location;
  const Compiler* compiler = open_nvrtc_compiler(&location);
  ASSERT_NE(compiler, nullptr);
  EXPECT_EQ(location.origin, "loaded in this process already");
  EXPECT_EQ(fs::canonical(location.path), fs::canonical(loaded));
  const Source source{"extern \"C\" __global__ void attune_kernel() {}\n", "empty.cu"};
  EXPECT_FALSE(compiler->compile(source, parse_arch("sm_90")).bytes.empty());
  fs::remove_all(folder);
}

}  // namespace
}  // namespace attune
