// SPDX-License-Identifier: Apache-2.0
// The order of places in which NVRTC is searched. Opens no library.
#include "generator/compile/nvrtc_locate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace attune {
namespace {

namespace fs = std::filesystem;

class NvrtcLocate : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "attune_nvrtc_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    for (const char* variable : {"ATTUNE_NVRTC", "ATTUNE_NVRTC_FOLDERS", "CONDA_PREFIX"})
      ::unsetenv(variable);
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string file(const std::string& name) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << "x";
    return (root_ / name).string();
  }
  static size_t place(const std::string& file, const std::string& origin) {
    const std::vector<NvrtcCandidate> all = nvrtc_candidates();
    const auto at = std::find_if(all.begin(), all.end(), [&](const NvrtcCandidate& one) {
      return one.file == file && one.origin == origin;
    });
    EXPECT_NE(at, all.end()) << file << " from " << origin;
    return static_cast<size_t>(at - all.begin());
  }

  fs::path root_;
};

TEST_F(NvrtcLocate, LoadedThenPythonThenCondaThenLoaderThenToolkit) {
  const std::string python = file("python/libnvrtc.so.13"), named = file("named/libnvrtc.so.12"),
                    conda = file("conda/lib/libnvrtc.so.13"),
                    toolkit = file("toolkit/lib64/libnvrtc.so.12");
  ::setenv("ATTUNE_NVRTC", "/chosen/libnvrtc.so.12", 1);
  ::setenv("ATTUNE_NVRTC_FOLDERS", (root_ / "named").c_str(), 1);
  ::setenv("CONDA_PREFIX", (root_ / "conda").c_str(), 1);
  ::setenv("CUDA_HOME", (root_ / "toolkit").c_str(), 1);
  offer_nvrtc_folders({(root_ / "python").string()});
  const std::vector<size_t> order{place("/chosen/libnvrtc.so.12", "ATTUNE_NVRTC"),
                                  place("libnvrtc.so.13", "loaded in this process already"),
                                  place("libnvrtc.so.12", "loaded in this process already"),
                                  place(python, "Python's packages"),
                                  place(named, "ATTUNE_NVRTC_FOLDERS"),
                                  place(conda, "conda"),
                                  place("libnvrtc.so.13", "the loader"),
                                  place(toolkit, "a CUDA toolkit")};
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  ::unsetenv("CUDA_HOME");
}

TEST_F(NvrtcLocate, NewerBeforeOlderInOneFolder) {
  const std::string old = file("both/libnvrtc.so.12"), fresh = file("both/libnvrtc.so.13");
  ::setenv("ATTUNE_NVRTC_FOLDERS", (root_ / "both").c_str(), 1);
  EXPECT_LT(place(fresh, "ATTUNE_NVRTC_FOLDERS"), place(old, "ATTUNE_NVRTC_FOLDERS"));
}

TEST_F(NvrtcLocate, RelativePathsAreIgnored) {
  ::setenv("ATTUNE_NVRTC_FOLDERS", "::relative:./here", 1);
  ::setenv("CONDA_PREFIX", "conda", 1);
  offer_nvrtc_folders({"relative", ""});
  for (const NvrtcCandidate& one : nvrtc_candidates())
    EXPECT_TRUE(one.file.front() == '/' || one.file.find('/') == std::string::npos) << one.file;
}

TEST_F(NvrtcLocate, OnlyTheFirstNamesAreForLoadedLibraries) {
  for (const NvrtcCandidate& one : nvrtc_candidates())
    EXPECT_EQ(one.only_if_loaded, std::string(one.origin) == "loaded in this process already");
}

TEST_F(NvrtcLocate, BuiltinsComeFromTheSameFolder) {
  const std::string library = file("lib/libnvrtc.so.13");
  const std::string builtins = file("lib/libnvrtc-builtins.so.13.0");
  file("lib/libnvrtc-builtins.alt.so.13.0");
  EXPECT_EQ(nvrtc_builtins_beside(library), std::vector<std::string>{builtins});
  EXPECT_TRUE(nvrtc_builtins_beside("libnvrtc.so.13").empty());
}

}  // namespace
}  // namespace attune
