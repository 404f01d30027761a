// SPDX-License-Identifier: Apache-2.0
// Bundles in one file: they serve like folders, equal kernels give equal bytes, and a changed or
// cut byte does no harm.
#include "runtime/bundles/bundle_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "generator/core/system/digest.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/log.hpp"
#include "runtime/engine/engine.hpp"
#include "tests/runtime/bundled_kernel.hpp"
#include "tests/runtime/fake_device.hpp"
#include "tests/runtime/temporary_folder.hpp"

namespace attune {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class BundleFileTest : public ::testing::Test {
 protected:
  BundledKernel kernel(const std::string& arch_name = "sm_90a") const {
    return testing::bundled_kernel(problem_, parse_arch(arch_name), device_->compiler_);
  }
  std::filesystem::path file() const { return folder_ / "kernels.attune"; }
  EngineOptions bundle_only() const {
    EngineOptions options;
    options.use_store = false;
    options.may_compile = false;
    return options;
  }
  static std::string refusal(const std::string& bytes) {
    try {
      Bundle::open_memory(bytes);
    } catch (const Error& error) {
      const std::string text = error.what();
      const bool is_damage = text.find("cut off") != std::string::npos ||
                             text.find("damaged") != std::string::npos ||
                             text.find("was added") != std::string::npos ||
                             text.find("not lie in") != std::string::npos;
      EXPECT_EQ(error.code(), is_damage ? ErrorCode::kIo : ErrorCode::kInvalidArgument) << text;
      return error.what();
    }
    return "accepted";
  }
  // Returns the bytes with the digest of their present index.
  static std::string resealed(std::string bytes) {
    uint64_t size = 0;
    for (int i = 7; i >= 0; --i) size = size << 8 | static_cast<unsigned char>(bytes[16 + i]);
    return bytes.replace(32, 64, sha256_hex(bytes.substr(0, 32), bytes.substr(96, size)));
  }

  testing::TemporaryFolder folder_;
  std::shared_ptr<testing::FakeDevice> device_ = std::make_shared<testing::FakeDevice>();
  const Problem problem_ = parse_problem(
      "dtype=bf16,head_dim=128,heads=32/8,batch=1,seqlen=4096,mask=causal_bottom_right");
};

TEST_F(BundleFileTest, AFileServesWithoutCompilerAndStore) {
  write_bundle_file(file(), {kernel(), kernel("sm_80")});
  EngineOptions options = bundle_only();
  options.bundles = {file()};
  const auto plan = Engine(device_, options).plan(problem_);
  EXPECT_EQ(plan->rung, Rung::kExact);
  EXPECT_EQ(plan->image_from, "bundle");
  EXPECT_THAT(Bundle::open(file()).faults(), ::testing::IsEmpty());
  EXPECT_EQ(Bundle::open(file()).num_images(), 2U);
}

TEST_F(BundleFileTest, BytesInMemoryServe) {
  const std::string bytes = bundle_bytes({kernel()});
  EngineOptions options = bundle_only();
  options.memory_bundles = {bytes};
  EXPECT_EQ(Engine(device_, options).plan(problem_)->rung, Rung::kExact);
}

TEST_F(BundleFileTest, EqualKernelsGiveEqualBytes) {
  const std::string bytes = bundle_bytes({kernel(), kernel("sm_80")});
  EXPECT_EQ(bundle_bytes({kernel("sm_80"), kernel()}), bytes);
  EXPECT_EQ(bundle_bytes({kernel("sm_80"), kernel(), kernel()}), bytes);
  for (const ManifestEntry& entry : parse_bundle(*bundle_in_memory(bytes), "test"))
    EXPECT_EQ(entry.offset % kBundleAlignment, 0U);
}

TEST_F(BundleFileTest, EqualImagesAreStoredOnce) {
  BundledKernel big = kernel(), other = kernel("sm_80");
  big.image.bytes = other.image.bytes = std::string(1 << 20, 'x');
  EXPECT_LT(bundle_bytes({big, other}).size(), (1U << 20) + 16384);
  const std::string bytes = bundle_bytes({big, other});
  EXPECT_THAT(Bundle::open_memory(bytes).faults(), ::testing::IsEmpty());
}

// Each changed byte makes opening fail, or makes the image unavailable, or has no effect.
TEST_F(BundleFileTest, AnyChangedByteAndAnyCutDoesNoHarm) {
  set_log_sink([](LogLevel, std::string_view) {});
  const BundledKernel sound = kernel();
  const std::string bytes = bundle_bytes({sound});
  const size_t images = parse_bundle(*bundle_in_memory(bytes), "test").front().offset;
  size_t refused = 0, missed = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    for (const int bit : {1, 128}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ bit);
      if (refusal(changed) != "accepted") {
        ++refused;
        continue;
      }
      const auto image = Bundle::open_memory(changed).image(sound.key);
      EXPECT_TRUE(!image || image->bytes == sound.image.bytes) << "byte " << i;
      missed += !image;
    }
  EXPECT_GE(refused, 2 * (images - kBundleAlignment)) << "all of header and index";
  EXPECT_EQ(missed, 2 * sound.image.bytes.size()) << "all of the image";
  for (size_t i = 0; i < bytes.size(); ++i)
    EXPECT_NE(refusal(bytes.substr(0, i)), "accepted") << "cut at " << i;
  set_log_sink(nullptr);
}

TEST_F(BundleFileTest, ACutFileAndADamagedHeaderAreReportedApart) {
  const std::string bytes = bundle_bytes({kernel()});
  EXPECT_THAT(refusal(bytes + "x"), EndsWith("something was added"));
  EXPECT_THAT(refusal(bytes.substr(0, bytes.size() - 1)), EndsWith(": it was cut off"));
  EXPECT_THAT(refusal(bytes.substr(0, 200)), EndsWith("it was cut off, or its header is damaged"));
  const auto changed = [&](size_t at) {
    std::string other = bytes;
    other[at] = static_cast<char>(other[at] ^ 16);
    return refusal(other);
  };
  EXPECT_THAT(changed(24), HasSubstr("its header or index is damaged")) << "the length of the file";
  EXPECT_THAT(changed(31), HasSubstr("its header or index is damaged"));
  EXPECT_THAT(changed(16), HasSubstr("its header or index is damaged"))
      << "the length of the index";
  EXPECT_THAT(changed(22), HasSubstr("its header is damaged"));
  EXPECT_THAT(changed(40), HasSubstr("its header or index is damaged")) << "the digest";
}

// A forged bundle can have a correct digest, so each entry of its index is checked.
TEST_F(BundleFileTest, AHostileIndexIsRefused) {
  const std::string bytes = bundle_bytes({kernel()});
  const std::string offset =
      "\"offset\": " +
      std::to_string(parse_bundle(*bundle_in_memory(bytes), "test").front().offset);
  for (const std::string& value :
       std::vector<std::string>{"18446744073709551615", "9223372036854775807", "0", "95", "-1",
                                "1e30", "null", "\"64\"", std::to_string(bytes.size() - 1)}) {
    std::string changed = bytes;
    // The index keeps its length: spaces follow it.
    std::string index = "\"offset\": " + value;
    const size_t at = changed.find(offset);
    ASSERT_NE(at, std::string::npos);
    const size_t grown = index.size() > offset.size() ? index.size() - offset.size() : 0;
    changed.replace(at, offset.size(), index);
    const size_t spaces = changed.find("   ", changed.find("\n}\n"));
    if (grown > 0 && spaces != std::string::npos && grown <= 8) changed.erase(spaces, grown);
    EXPECT_NE(refusal(changed.size() == bytes.size() ? resealed(changed) : changed), "accepted")
        << value;
  }
  std::string version = bytes;
  version[8] = 3;
  EXPECT_THAT(refusal(version), HasSubstr("version 3; this library reads versions 1 and 2"));
  EXPECT_THAT(refusal("a text"), HasSubstr("is not a bundle file"));
}

class PackedBundleTest : public BundleFileTest {
 protected:
  void SetUp() override {
    if (std::string why; !zstd_is_here(&why)) GTEST_SKIP() << why;
    big_.image.bytes = std::string(1 << 16, 'x') + big_.image.bytes;
  }
  // Returns the bundle with another number for a key of its only kernel, and a new digest.
  static std::string with(std::string bytes, const std::string& key, std::string value) {
    const size_t at = bytes.find("\"" + key + "\": ") + key.size() + 4;
    const size_t end = bytes.find_first_of(",\n", at);
    value.resize(std::max(value.size(), end - at), ' ');
    const size_t grown = value.size() - (end - at);
    bytes.replace(at, end - at, value);
    if (grown > 0) bytes.erase(bytes.find("\n}\n") + 3, grown);
    return resealed(bytes);
  }

  BundledKernel big_ = kernel();
};

TEST_F(PackedBundleTest, ItIsSmallerAndGivesTheSameImages) {
  const std::string bytes = bundle_bytes({big_}, Packing::kZstd);
  EXPECT_LT(bytes.size(), bundle_bytes({big_}).size() - (1 << 15));
  EXPECT_EQ(bundle_bytes({big_, big_}, Packing::kZstd), bytes);
  EXPECT_EQ(Bundle::open_memory(bytes).image(big_.key).value().bytes, big_.image.bytes);
  write_bundle_file(file(), {kernel()}, Packing::kZstd);
  EngineOptions options = bundle_only();
  options.bundles = {file()};
  EXPECT_EQ(Engine(device_, options).plan(problem_)->image_from, "bundle");
}

TEST_F(PackedBundleTest, AWrongIndexOnlyMakesItsImageUnavailable) {
  set_log_sink([](LogLevel, std::string_view) {});
  const std::string bytes = bundle_bytes({big_}, Packing::kZstd);
  for (const char* size : {"0", "1", "65535", "67108864"}) {
    const std::string lie = with(bytes, "bytes", size);
    ASSERT_EQ(lie.size(), bytes.size());
    EXPECT_EQ(Bundle::open_memory(lie).image(big_.key), std::nullopt) << size;
    EXPECT_EQ(Bundle::open_memory(lie).faults().size(), 1U) << size;
  }
  EXPECT_EQ(Bundle::open_memory(with(bytes, "packed", "9")).image(big_.key), std::nullopt);
  EXPECT_THAT(refusal(with(bytes, "bytes", "67108865")), HasSubstr("must be at most 67108864"));
  EXPECT_THAT(refusal(with(bytes, "packed", "99999")), HasSubstr("does not lie inside"));
  std::string plain = bytes;
  plain[8] = 1;
  EXPECT_THAT(refusal(resealed(plain)), HasSubstr("their version must be 2"));
  for (size_t at = parse_bundle(*bundle_in_memory(bytes), "test").front().offset; at < bytes.size();
       ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    const auto image = Bundle::open_memory(changed).image(big_.key);
    EXPECT_TRUE(!image || image->bytes == big_.image.bytes) << "byte " << at;
  }
  set_log_sink(nullptr);
}

TEST_F(BundleFileTest, AFileThatOthersCanWriteIsRefused) {
  write_bundle_file(file(), {kernel()});
  std::filesystem::permissions(file(), std::filesystem::perms::others_write,
                               std::filesystem::perm_options::add);
  EXPECT_THROW(Bundle::open(file()), Error);
}

TEST_F(BundleFileTest, AnOpenBundleKeepsItsImagesWhenItIsReplaced) {
  const BundledKernel former = kernel();
  write_bundle_file(file(), {former});
  const Bundle open = Bundle::open(file());
  write_bundle_file(file(), {kernel("sm_80")});
  EXPECT_EQ(open.image(former.key).value().bytes, former.image.bytes);
  EXPECT_EQ(Bundle::open(file()).image(former.key), std::nullopt);
}

// A deploy script's `cp` or a full disk may change the file while a process has it open.
TEST_F(BundleFileTest, AFileThatChangesWhileItIsOpenGivesNoImages) {
  std::vector<std::string> said;
  set_log_sink([&](LogLevel, std::string_view text) { said.emplace_back(text); });
  BundledKernel big = kernel();
  big.image.bytes = std::string(1 << 20, 'x') + big.image.bytes;
  const std::string bytes = bundle_bytes({big});
  const auto overwrite = [&](std::string_view with) {
    std::ofstream(file(), std::ios::binary | std::ios::trunc) << with;
  };
  for (const Packing packing : {Packing::kNone, Packing::kZstd}) {
    if (packing == Packing::kZstd && !zstd_is_here()) continue;
    for (const size_t left : {size_t{0}, size_t{100}, bytes.size() / 2}) {
      write_bundle_file(file(), {big}, packing);
      const Bundle open = Bundle::open(file());
      std::filesystem::resize_file(file(), std::min<size_t>(left, file_size(file()) - 1));
      EXPECT_EQ(open.image(big.key), std::nullopt) << left;
      ASSERT_FALSE(said.empty());
      EXPECT_THAT(said.back(), HasSubstr("it was cut")) << left;
      EXPECT_EQ(open.faults().size(), 1U);
    }
    write_bundle_file(file(), {big}, packing);
    const Bundle open = Bundle::open(file());
    overwrite(std::string(bytes.size(), '\0'));
    EXPECT_EQ(open.image(big.key), std::nullopt);
    overwrite(bundle_bytes({big}, packing));
    EXPECT_EQ(open.image(big.key).value().bytes, big.image.bytes);
  }
  set_log_sink(nullptr);
}

TEST_F(BundleFileTest, AnEngineAsksTheNextLayerForAnImageThatWasCutOff) {
  set_log_sink([](LogLevel, std::string_view) {});
  const auto second = folder_ / "second.attune";
  write_bundle_file(file(), {kernel()});
  write_bundle_file(second, {kernel()});
  EngineOptions options = bundle_only();
  options.bundles = {file(), second};
  Engine engine(device_, options);
  std::filesystem::resize_file(file(), 4);
  EXPECT_EQ(engine.plan(problem_)->image_from, "bundle");
  set_log_sink(nullptr);
}

}  // namespace
}  // namespace attune
