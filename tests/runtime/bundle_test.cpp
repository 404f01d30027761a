// SPDX-License-Identifier: Apache-2.0
// Bundles: written, read back, run by an engine without compiler and store; altered files are
// refused.
#include "runtime/bundles/bundle.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "generator/core/system/error.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/engine/ladder.hpp"
#include "tests/runtime/bundled_kernel.hpp"
#include "tests/runtime/fake_device.hpp"
#include "tests/runtime/temporary_folder.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;

class BundleTest : public ::testing::Test {
 protected:
  BundledKernel kernel() const {
    return testing::bundled_kernel(problem_, arch_, device_->compiler_);
  }
  EngineOptions bundle_only() const {
    EngineOptions options;
    options.use_store = false;
    options.may_compile = false;
    options.bundles = {folder_.path()};
    return options;
  }
  std::filesystem::path image_file() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      if (entry.path().extension() == ".cubin") return entry.path();
    return {};
  }
  std::string refusal() const {
    return testing::error_text([&] { Bundle::open(folder_.path()); });
  }
  std::string manifest_of_folder() const {
    std::ostringstream text;
    text << std::ifstream(folder_ / "manifest.json").rdbuf();
    return text.str();
  }
  void write_manifest(const std::string& text) const {
    std::ofstream(folder_ / "manifest.json") << text;
  }

  testing::TemporaryFolder folder_;
  Problem problem_ = parse_problem(
      "dtype=bf16,head_dim=128,heads=32/"
      "8,batch=1,seqlen=4096,mask=causal_bottom_right,window=511:0");
  const Arch arch_ = parse_arch("sm_90a");
  std::shared_ptr<testing::FakeDevice> device_ = std::make_shared<testing::FakeDevice>();
};

TEST_F(BundleTest, ComesBackAsItWasWritten) {
  const BundledKernel written = kernel();
  write_bundle(folder_.path(), {written});
  const Bundle bundle = Bundle::open(folder_.path());
  ASSERT_EQ(bundle.winners().size(), 1u);
  const WinnerRecord &row = bundle.winners()[0], &wrote = written.winners[0];
  EXPECT_EQ(to_text(row.spec), to_text(wrote.spec));
  EXPECT_EQ(to_text(row.shape), to_text(wrote.shape));
  EXPECT_EQ(row.config, wrote.config);
  EXPECT_EQ(row.toolchain.digest(), wrote.toolchain.digest());
  EXPECT_EQ(row.timing.median_us, 101.5);
  EXPECT_EQ(row.why, wrote.why);
  EXPECT_EQ(row.created, wrote.created);
  const std::optional<KernelImage> image = bundle.image(written.key);
  ASSERT_TRUE(image);
  EXPECT_EQ(image->bytes, written.image.bytes);
  EXPECT_EQ(image->info.registers, 168);
}

TEST_F(BundleTest, AnEngineRunsFromItWithoutCompilerAndStore) {
  write_bundle(folder_.path(), {kernel()});
  device_->no_compiler = true;
  const auto plan = Engine(device_, bundle_only()).plan(problem_);
  EXPECT_EQ(plan->rung, Rung::kExact);
  EXPECT_EQ(plan->image_from, "bundle");
  EXPECT_EQ(plan->expected_us, 0) << "measured on another device";
  EXPECT_THAT(plan->explain(), HasSubstr("on NVIDIA H200"));
}

// An engine on the same CPU with another thread count must not use the winner's times.
TEST_F(BundleTest, WinnersOfACpuNameTheirThreadCount) {
  BundledKernel written = kernel();
  written.winners[0].device.arch = "cpu:znver4";
  written.winners[0].device.sm_count = 2;
  write_bundle(folder_.path(), {written});
  const Bundle bundle = Bundle::open(folder_.path());
  const WinnerRecord& row = bundle.winners().at(0);
  EXPECT_EQ(row.device.sm_count, 2);
  DeviceIdentity here = row.device;
  here.arch = "cpu:znver4";
  EXPECT_TRUE(measured_on(row, here));
  here.sm_count = 1;
  EXPECT_FALSE(measured_on(row, here));
}

TEST_F(BundleTest, AKernelOf8BitOperandsServesOnlyTheOptionsItWasMadeFor) {
  problem_ = parse_problem(
      "dtype=e4m3,dtype_kv=e5m2,dtype_o=fp16,head_dim=128,heads=32/8,batch=1,seqlen=4096,"
      "accuracy=fast,v_layout=transposed,scale_block_q=64,scale_block_kv=128");
  write_bundle(folder_.path(), {kernel()});
  const Bundle bundle = Bundle::open(folder_.path());
  ASSERT_EQ(bundle.winners().size(), 1U);
  EXPECT_EQ(to_text(bundle.winners()[0].spec), to_text(spec_of(problem_)));
  EXPECT_EQ(bundle.winners()[0].spec.fp8, problem_.fp8);
  device_->no_compiler = true;
  Engine engine(device_, bundle_only());
  EXPECT_EQ(engine.plan(problem_)->rung, Rung::kExact);
  Problem accurate = problem_;
  accurate.fp8.accuracy = Accuracy::kAccurate;
  EXPECT_THROW(engine.plan(accurate), Error);
}

TEST_F(BundleTest, ItServesOtherShapesOfItsSpec) {
  write_bundle(folder_.path(), {kernel()});
  Problem other = problem_;
  other.seqlen_q = 7;
  other.seqlen_kv = 100000;
  EXPECT_EQ(Engine(device_, bundle_only()).plan(other)->image_from, "bundle");
}

TEST_F(BundleTest, AnAlteredImageIsNotUsed) {
  write_bundle(folder_.path(), {kernel()});
  std::ofstream(image_file(), std::ios::app) << "x";
  const Bundle bundle = Bundle::open(folder_.path());
  EXPECT_FALSE(bundle.image(kernel().key));
  EXPECT_THAT(bundle.faults(), ::testing::ElementsAre(::testing::HasSubstr("SHA-256 differs")));
  try {
    Engine(device_, bundle_only()).plan(problem_);
    ADD_FAILURE() << "an altered image was run";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(image_file().string() + ": SHA-256 differs"));
  }
  EngineOptions may_compile = bundle_only();
  may_compile.may_compile = true;
  EXPECT_THAT(Engine(device_, may_compile).plan(problem_)->explain(),
              ::testing::HasSubstr(image_file().string() + ": SHA-256 differs"));
}

TEST_F(BundleTest, AnIntactBundleHasNoFaults) {
  write_bundle(folder_.path(), {kernel()});
  EXPECT_TRUE(Bundle::open(folder_.path()).faults().empty());
  const std::string file = image_file().string();
  std::filesystem::remove(file);
  EXPECT_THAT(Bundle::open(folder_.path()).faults(),
              ::testing::ElementsAre(::testing::HasSubstr("image " + file)));
}

TEST_F(BundleTest, AnotherSourceIsAMiss) {
  write_bundle(folder_.path(), {kernel()});
  ImageKey key = kernel().key;
  key.toolchain.compiler.clear();
  EXPECT_TRUE(Bundle::open(folder_.path()).image(key));
  ImageKey other_features = key;  // host code for a CPU with other features
  other_features.toolchain.options = "-target-feature +avx10";
  EXPECT_FALSE(Bundle::open(folder_.path()).image(other_features));
  key.toolchain.template_digest = "of a text that changed elsewhere";
  EXPECT_TRUE(Bundle::open(folder_.path()).image(key));
  key.source_digest = "of another source";
  EXPECT_FALSE(Bundle::open(folder_.path()).image(key));
  key.source_digest.clear();  // as in bundles of older versions
  EXPECT_FALSE(Bundle::open(folder_.path()).image(key));
}

TEST_F(BundleTest, AnEmptySourceFindsAnImageByItsTemplatesDigest) {
  write_bundle(folder_.path(), {kernel()});
  ImageKey key = kernel().key;
  key.source_digest.clear();
  EXPECT_TRUE(Bundle::open(folder_.path()).image(key));
  key.config.set("kv_slots", 99);
  EXPECT_FALSE(Bundle::open(folder_.path()).image(key));
}

TEST_F(BundleTest, WritingAgainAddsToABundleAndTouchesNothingElse) {
  BundledKernel other = kernel();
  other.key.arch = "sm_80";
  other.winners.clear();
  EXPECT_EQ(write_bundle(folder_.path(), {kernel()}).kept, 0U);
  EXPECT_EQ(write_bundle(folder_.path(), {other}).kept, 1U);
  EXPECT_EQ(write_bundle(folder_.path(), {}).kept, 2U);
  const Bundle bundle = Bundle::open(folder_.path());
  EXPECT_TRUE(bundle.image(kernel().key) && bundle.image(other.key));
  EXPECT_EQ(bundle.winners().size(), 1U);
  EXPECT_THAT(bundle.archs(), ::testing::ElementsAre("sm_80", "sm_90a"));
  std::ofstream(folder_ / "precious.txt") << "mine";
  EXPECT_THROW(write_bundle(folder_.path(), {kernel()}), Error);
  EXPECT_TRUE(Bundle::open(folder_.path()).image(other.key));
}

TEST_F(BundleTest, AKernelWrittenAgainKeepsItsWinners) {
  write_bundle(folder_.path(), {kernel()});
  BundledKernel compiled = kernel();
  compiled.winners.clear();
  compiled.image.bytes += "newer";
  EXPECT_EQ(write_bundle(folder_.path(), {compiled}).kept, 0U);
  const Bundle bundle = Bundle::open(folder_.path());
  EXPECT_EQ(bundle.winners().size(), 1U);
  EXPECT_EQ(bundle.image(kernel().key)->bytes, compiled.image.bytes);
}

TEST_F(BundleTest, AWinnerMovesToItsNewConfig) {
  write_bundle(folder_.path(), {kernel()});
  BundledKernel tuned = kernel();
  tuned.key.config.set("block_m", 64);
  tuned.winners[0].config = tuned.key.config;
  EXPECT_EQ(write_bundle(folder_.path(), {tuned}).kept, 1U);
  const Bundle bundle = Bundle::open(folder_.path());
  ASSERT_EQ(bundle.winners().size(), 1U);
  EXPECT_EQ(bundle.winners()[0].config, tuned.key.config);
  EXPECT_TRUE(bundle.image(kernel().key)) << "the kernel itself stays";
}

TEST_F(BundleTest, AnEngineThatHasTheOldBundleOpenKeepsItsImages) {
  write_bundle(folder_.path(), {kernel()});
  const Bundle former = Bundle::open(folder_.path());
  BundledKernel newer = kernel();
  newer.image.bytes += "newer";
  EXPECT_EQ(write_bundle(folder_.path(), {newer}).unnamed, 1U);
  EXPECT_EQ(former.image(kernel().key)->bytes, kernel().image.bytes);
  EXPECT_EQ(Bundle::open(folder_.path()).image(kernel().key)->bytes, newer.image.bytes);
}

TEST_F(BundleTest, ConcurrentWritersLoseNothing) {
  std::vector<std::thread> writers;
  for (const char* arch : {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90"})
    writers.emplace_back([&, arch] {
      BundledKernel one = kernel();
      one.key.arch = arch;
      write_bundle(folder_.path(), {one});
    });
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(Bundle::open(folder_.path()).archs().size(), 5U);
}

TEST_F(BundleTest, BadManifestsAreRefusedWithTheirPath) {
  EXPECT_THAT(refusal(), HasSubstr("manifest.json cannot be read"));
  write_manifest("{");
  EXPECT_THAT(refusal(), HasSubstr("manifest.json: not JSON, at line 1"));
  write_manifest("[]");
  EXPECT_THAT(
      refusal(),
      HasSubstr("manifest.json: [] is given; must be an object with member \"attune_bundle\""));
  write_manifest(R"({"attune_bundle": 1, "kernels": {"a": )" + std::string(300000, '[') +
                 std::string(300000, ']') + "}}");
  EXPECT_THAT(refusal(), HasSubstr("JSON nests deeper than 64 levels"));
  write_manifest(R"({"attune_bundle": 2, "kernels": []})");
  EXPECT_THAT(refusal(), HasSubstr("attune_bundle is 2; this library reads version 1"));
  write_manifest(R"({"attune_bundle": 1, "kernels": [{"file": "../../etc/passwd"}]})");
  EXPECT_THAT(refusal(), HasSubstr("must be a plain name inside the bundle"));
  write_manifest(R"({"attune_bundle": 1, "kernels": [{"file": "a.cubin"}]})");
  EXPECT_THAT(refusal(), HasSubstr("kernels[0]: has no sha256"));
}

TEST_F(BundleTest, AManifestsFieldOfAnotherTypeIsNamed) {
  write_bundle(folder_.path(), {kernel()});
  const nlohmann::json sound = nlohmann::json::parse(manifest_of_folder());
  const auto refusal_of = [&](const nlohmann::json& changed) {
    write_manifest(changed.dump());
    const std::string sentence = refusal();
    EXPECT_THAT(sentence, ::testing::Not(HasSubstr("json.exception")));
    return sentence;
  };
  for (const auto& [name, value] : sound.items()) {
    if (name == "created") continue;  // informational, not checked
    nlohmann::json changed = sound;
    changed[name] = nlohmann::json::object();
    EXPECT_THAT(refusal_of(changed), HasSubstr(name + " is {}; must be ")) << name;
  }
  for (const auto& [name, value] : sound["kernels"][0].items()) {
    nlohmann::json changed = sound;
    changed["kernels"][0][name] = nlohmann::json::object();
    EXPECT_THAT(refusal_of(changed), HasSubstr("kernels[0]: " + name + " is {}; must be "));
  }
  for (const auto& [name, value] : sound["kernels"][0]["winners"][0].items()) {
    nlohmann::json changed = sound;
    changed["kernels"][0]["winners"][0][name] = nlohmann::json::array();
    EXPECT_THAT(refusal_of(changed), HasSubstr("kernels[0]: " + name + " is []; must be "));
  }
  nlohmann::json changed = sound;
  changed["kernels"][0]["winners"] = {3};
  EXPECT_THAT(refusal_of(changed),
              HasSubstr("3 is given; must be an object with member \"problem\""));
}

}  // namespace
}  // namespace attune
