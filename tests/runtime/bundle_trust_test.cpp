// SPDX-License-Identifier: Apache-2.0
// Bundles are code: which users may write one, which file types are refused, and what the log says
// about a bundle for other machines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <regex>

#include "generator/core/system/error.hpp"
#include "generator/core/system/log.hpp"
#include "generator/render/renderer.hpp"
#include "generator/template_registry.hpp"
#include "runtime/bundles/bundle.hpp"
#include "runtime/engine/engine.hpp"
#include "tests/runtime/fake_device.hpp"
#include "tests/runtime/image_key_of.hpp"
#include "tests/runtime/temporary_folder.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class BundleTrustTest : public ::testing::Test {
 protected:
  BundleTrustTest() {
    alarm(60);  // a FIFO must not hang
    former_ = set_log_sink(
        [this](LogLevel, std::string_view text) { logged_ += std::string(text) + "\n"; });
    umask(0);  // the writer's umask must not decide who can change a bundle
  }
  ~BundleTrustTest() override {
    umask(022);
    set_log_sink(former_);
    alarm(0);
  }
  BundledKernel kernel(const std::string& arch_name = "sm_90a") const {
    const Arch arch = parse_arch(arch_name);
    const KernelSpec spec = spec_of(problem_);
    const KernelTemplate& best = *serving(spec, {arch}).best()->kernel_template;
    BundledKernel made;
    made.key = testing::image_key_of(
        best, spec, arch,
        best.default_config(spec, arch, shape_of(problem_), typical_device(arch).facts));
    made.image = device_->compiler_.compile(render(best, spec, arch, made.key.config), arch);
    return made;
  }
  fs::path folder() const { return temporary_ / "bundle"; }
  fs::path image_file() const {
    for (const auto& entry : fs::directory_iterator(folder()))
      if (entry.path().extension() == ".cubin") return entry.path();
    return {};
  }
  std::string opening() const {
    return testing::error_text([&] { Bundle::open(folder()); }, ErrorCode::kIo);
  }
  EngineOptions bundle_only() const {
    EngineOptions options;
    options.use_store = false;
    options.may_compile = false;
    options.bundles = {folder()};
    return options;
  }

  testing::TemporaryFolder temporary_;
  const Problem problem_ = parse_problem("dtype=bf16,head_dim=128,heads=32/8,seqlen=4096");
  std::shared_ptr<testing::FakeDevice> device_ = std::make_shared<testing::FakeDevice>();
  std::string logged_;

 private:
  LogSink former_;
};

TEST_F(BundleTrustTest, WrittenBundlesAreNotWritableByOthers) {
  write_bundle(folder(), {kernel()});
  EXPECT_EQ(fs::status(folder()).permissions(), fs::perms(0755));
  for (const auto& entry : fs::directory_iterator(folder()))
    EXPECT_EQ(entry.status().permissions(), fs::perms(0644)) << entry.path();
  EXPECT_EQ(opening(), "accepted");
}

TEST_F(BundleTrustTest, ABundleThatOthersCanWriteIsRefused) {
  write_bundle(folder(), {kernel()});
  chmod(folder().c_str(), 0777);
  EXPECT_THAT(opening(), HasSubstr("0777, so others can write it"));
  EXPECT_THROW(Engine(device_, bundle_only()), Error);
  EXPECT_THROW(write_bundle(folder(), {kernel()}), Error);
  chmod(folder().c_str(), 0755);
  chmod((folder() / "manifest.json").c_str(), 0666);
  EXPECT_THAT(opening(), HasSubstr("manifest.json has mode 0666"));
  chmod((folder() / "manifest.json").c_str(), 0644);
  chmod(image_file().c_str(), 0646);
  EXPECT_FALSE(Bundle::open(folder()).image(kernel().key));
  EXPECT_THAT(logged_, HasSubstr("has mode 0646, so others can write it"));
}

TEST_F(BundleTrustTest, ABundleOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: giving a file to another user needs root";
  write_bundle(folder(), {kernel()});
  for (const fs::path& theirs : {folder(), folder() / "manifest.json"}) {
    ASSERT_EQ(chown(theirs.c_str(), 65534, 65534), 0);
    EXPECT_THAT(opening(), HasSubstr("belongs to user 65534"));
    ASSERT_EQ(chown(theirs.c_str(), 0, 0), 0);
  }
  ASSERT_EQ(chown(image_file().c_str(), 65534, 65534), 0);
  EXPECT_FALSE(Bundle::open(folder()).image(kernel().key));
  setenv("ATTUNE_TRUST", folder().c_str(), 1);
  for (const fs::path& theirs : {folder(), folder() / "manifest.json"})
    ASSERT_EQ(chown(theirs.c_str(), 65534, 65534), 0);
  EXPECT_TRUE(Bundle::open(folder()).image(kernel().key)) << "as ATTUNE_TRUST says";
  unsetenv("ATTUNE_TRUST");
}

TEST_F(BundleTrustTest, FifosAndDirectoriesAreRefusedWithoutHanging) {
  write_bundle(folder(), {kernel()});
  const fs::path image = image_file(), manifest = folder() / "manifest.json";
  fs::remove(image);
  ASSERT_EQ(mkfifo(image.c_str(), 0600), 0);
  EXPECT_FALSE(Bundle::open(folder()).image(kernel().key));
  EXPECT_THAT(logged_, HasSubstr(image.filename().string() + " is a FIFO"));
  fs::remove(image);
  fs::create_directory(image);
  EXPECT_FALSE(Bundle::open(folder()).image(kernel().key));
  EXPECT_THAT(logged_, HasSubstr(image.filename().string() + " is a directory"));
  fs::remove(manifest);
  ASSERT_EQ(mkfifo(manifest.c_str(), 0600), 0);
  EXPECT_THAT(opening(), HasSubstr("manifest.json is a FIFO"));
}

TEST_F(BundleTrustTest, WritingFollowsNoLinks) {
  const fs::path victim = temporary_ / "victim";
  fs::create_directory(folder());
  chmod(folder().c_str(), 0755);
  fs::create_symlink(victim, folder() / "manifest.json");
  fs::create_symlink(victim, folder() / "manifest.json.part");
  write_bundle(folder(), {kernel()});
  EXPECT_FALSE(fs::exists(victim));
  EXPECT_TRUE(Bundle::open(folder()).image(kernel().key));
}

TEST_F(BundleTrustTest, AFolderOfSymbolicLinksServes) {
  write_bundle(folder(), {kernel()});
  const fs::path links = temporary_ / "links";
  fs::create_directory(links);
  chmod(links.c_str(), 0755);
  for (const auto& entry : fs::directory_iterator(folder()))
    fs::create_symlink(entry.path(), links / entry.path().filename());
  EXPECT_TRUE(Bundle::open(links).image(kernel().key));
}

TEST_F(BundleTrustTest, ABundleForOtherArchsIsLogged) {
  write_bundle(folder(), {kernel("sm_80")});
  const Engine engine(device_, bundle_only());
  EXPECT_THAT(logged_, HasSubstr("holds kernels for sm_80; this device runs those for sm_90a"));
  logged_.clear();
  write_bundle(folder(), {kernel()});
  Engine both(device_, bundle_only());
  EXPECT_EQ(logged_, "");
  Problem other = problem_;
  other.head_dim_qk = other.head_dim_v = 64;
  try {
    both.plan(other);
    ADD_FAILURE() << "there is no such kernel";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the bundles hold kernels for sm_80, sm_90a"));
  }
}

TEST_F(BundleTrustTest, AManifestWithImpossibleValuesIsRefused) {
  const auto refusal = [&](const std::string& from, const std::string& to) -> std::string {
    std::filesystem::remove_all(folder());
    write_bundle(folder(), {kernel()});
    std::ifstream in(folder() / "manifest.json");
    std::string text{std::istreambuf_iterator<char>(in), {}};
    text = std::regex_replace(text, std::regex(from), to);
    std::ofstream(folder() / "manifest.json") << text;
    return testing::error_text([&] { Bundle::open(folder()); });
  };
  EXPECT_THAT(refusal("\"cubin\"", "\"spirv\""),
              HasSubstr("format is \"spirv\"; must be cubin or host_object"));
  EXPECT_THAT(refusal("\"registers\": [0-9]+", "\"registers\": 1e95"),
              HasSubstr("registers is 1e+95; must be an integer from -1 to 2147483647"));
  EXPECT_THAT(refusal("\"registers\": [0-9]+", "\"registers\": 4294967297"),
              HasSubstr("registers is 4294967297; must be"));
}

}  // namespace
}  // namespace attune
