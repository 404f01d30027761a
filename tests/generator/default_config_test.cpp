// SPDX-License-Identifier: Apache-2.0
// Default configs depend on the device. On an H200 they equal the rows of
// tests/golden/defaults_h200.txt, which ATTUNE_ACCEPT_GOLDEN=1 rewrites. On other devices they must
// be legal there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "generator/families/prefill/sm90/cost.hpp"
#include "generator/template_registry.hpp"

namespace attune {
namespace {

constexpr int64_t kMb = 1 << 20;
const DeviceFacts kH100Pcie{114, 50 * kMb, 2.04e12};
const DeviceFacts kH20{78, 60 * kMb, 4.0e12};
const DeviceFacts kMigSlice{16, 25 * kMb / 4, 0.6e12};  // 1g.18gb of an H200

struct Row {
  std::string arch, family, problem, config;
};

std::vector<Row> rows() {
  std::vector<Row> all;
  std::ifstream file(ATTUNE_GOLDEN_DIR "/defaults_h200.txt");
  Row row;
  while (file >> row.arch >> row.family >> row.problem >> row.config) all.push_back(row);
  return all;
}

// Returns problems in the shapes of tests/bench; their rows have no config.
std::vector<Row> bench_problems() {
  std::vector<Row> all;
  const auto add = [&](const char* family, const std::string& types, int head_dim, int heads,
                       int seqlen) {
    for (const char* mask : {"none", "causal_bottom_right"})
      all.push_back({"sm_90a", family,
                     fmt::format("dtype={},head_dim={},heads={},batch={},seqlen={},mask={}", types,
                                 head_dim, heads, 16384 / seqlen, seqlen, mask),
                     ""});
  };
  for (const int head_dim : {64, 128, 256})
    for (int seqlen = 512; seqlen <= 16384; seqlen *= 2) {
      add("prefill_sm90", "bf16", head_dim, 2048 / head_dim, seqlen);
      add("prefill_sm90_fp8", "e4m3,accuracy=accurate", head_dim, 2048 / head_dim, seqlen);
      add("prefill_sm90_fp8", "e4m3,accuracy=fast", head_dim, 2048 / head_dim, seqlen);
    }
  for (const int head_dim : {80, 96, 112, 160, 192, 320, 384})
    for (const int seqlen : {2048, 8192}) add("prefill_sm90", "bf16", head_dim, 16, seqlen);
  return all;
}

struct Case {
  const KernelTemplate& family;
  KernelSpec spec;
  Shape shape;
  Arch arch;

  explicit Case(const Row& row)
      : family(template_by_name(row.family)),
        spec(spec_of(parse_problem(row.problem))),
        shape(shape_of(parse_problem(row.problem))),
        arch(parse_arch(row.arch)) {}

  Config on(const DeviceFacts& device) const {
    return family.default_config(spec, arch, shape, device);
  }
  double cost(const Config& config, const DeviceFacts& device) const {
    return family.predicted_cost(spec, arch, config, shape, device);
  }
};

TEST(DefaultConfig, EqualsTheRecordedConfigOnAnH200) {
  const std::vector<Row> recorded = rows();
  ASSERT_GE(recorded.size(), 12u);
  std::ostringstream found, expected;
  for (const Row& row : recorded) {
    const Case c(row);
    const std::string head = row.arch + " " + row.family + " " + row.problem + " ";
    found << head << c.on(typical_device(c.arch).facts).to_text() << "\n";
    expected << head << row.config << "\n";
  }
  if (std::getenv("ATTUNE_ACCEPT_GOLDEN") != nullptr)
    std::ofstream(ATTUNE_GOLDEN_DIR "/defaults_h200.txt") << found.str();
  EXPECT_EQ(found.str(), expected.str());
}

TEST(DefaultConfig, IsLegalOnOtherDevicesAndCostsNoMoreThanTheH200sDefault) {
  std::vector<Row> problems = bench_problems();
  for (const Row& row : rows()) problems.push_back(row);
  for (const DeviceFacts& device : {kH100Pcie, kH20, kMigSlice}) {
    int different = 0;
    for (const Row& row : problems) {
      const Case c(row);
      const Config here = c.on(device), on_h200 = c.on(typical_device(c.arch).facts);
      EXPECT_EQ(c.family.space(c.spec, c.arch).broken(here), std::nullopt) << row.problem;
      EXPECT_LE(c.cost(here, device), c.cost(on_h200, device)) << row.problem;
      different += here.to_text() != on_h200.to_text();
    }
    EXPECT_GT(different, 0) << to_text(device);
  }
}

// Splits give each multiprocessor at most one block, so more multiprocessors give more splits.
TEST(DefaultConfig, SplitsFollowTheMultiprocessors) {
  const Case c({"sm_90a", "prefill_sm90",
                "dtype=bf16,head_dim=128,heads=32/8,seqlen_q=16,seqlen_kv=32768", ""});
  std::set<int64_t> splits;
  for (const int sm_count : {8, 16, 40, 78, 132, 264}) {
    const Config config = c.on({sm_count, 50 * kMb, 4e12});
    splits.insert(config.at("kv_splits"));
    const int64_t blocks = sm90_tiles(config, c.shape).count() * config.at("kv_splits");
    EXPECT_TRUE(config.at("kv_splits") == 1 || blocks <= sm_count) << config.to_text();
  }
  EXPECT_GE(splits.size(), 4u);
}

TEST(DefaultConfig, SectionsFitTheL2) {
  const Case c({"sm_90a", "prefill_sm90",
                "dtype=bf16,head_dim=128,heads=64,seqlen=16384,mask=causal_bottom_right", ""});
  EXPECT_EQ(c.on({132, 50 * kMb, 0}).at("l2_section_mb"), 32);
  EXPECT_EQ(c.on({60, 25 * kMb, 0}).at("l2_section_mb"), 16);
  EXPECT_EQ(c.on(kMigSlice).at("l2_section_mb"), 8);
}

// Up to 1024 keys memory counts most: up to 512 keys, the least memory with one tile per
// multiprocessor.
TEST(DefaultConfig, SectionsOfShortSequencesAreSmall) {
  const auto section = [](const char* family, const std::string& problem) {
    const Case c(
        {"sm_90a", family, problem + ",head_dim=128,heads=16,mask=causal_bottom_right", ""});
    return c.on({132, 50 * kMb, 4.9e12}).at("l2_section_mb");
  };
  EXPECT_EQ(section("prefill_sm90", "dtype=bf16,batch=32,seqlen=512"), 8);
  EXPECT_EQ(section("prefill_sm90_fp8", "dtype=e4m3,batch=32,seqlen=512"), 4);
  EXPECT_EQ(section("prefill_sm90", "dtype=bf16,batch=16,seqlen=1024"), 16);
  EXPECT_EQ(section("prefill_sm90", "dtype=bf16,batch=8,seqlen=2048"), 32);
}

// Memory bandwidth bounds the kernel that writes V^T, but not warps that transpose inside.
TEST(DefaultConfig, SlowMemoryMovesTheTranspositionOfVInside) {
  const Case c({"sm_90a", "prefill_sm90_fp8",
                "dtype=e4m3,head_dim=128,heads=16,batch=4,seqlen=2048,mask=none", ""});
  EXPECT_EQ(c.on({132, 50 * kMb, 4.9e12}).at("transpose_inside"), 0);
  EXPECT_EQ(c.on({132, 50 * kMb, 0.2e12}).at("transpose_inside"), 1);
}

// Tiles of several panels must leave the threads enough tiles to share.
TEST(DefaultConfig, TilesFollowTheThreadsOfACpu) {
  const Case c({"cpu:x86-64", "prefill_cpu",
                "dtype=fp32,head_dim=128,heads=32,batch=1,seqlen=512,mask=none", ""});
  const auto tiles = [&](int threads) {
    return c.shape.num_heads_q * (512 / c.on({threads, 32 * kMb, 0}).at("block_m"));
  };
  EXPECT_GE(tiles(8), 64);
  EXPECT_GE(tiles(192), 2 * 192);
  EXPECT_LT(tiles(8), tiles(2048));
}

TEST(TypicalDevice, EachArchHasATypicalDevice) {
  for (const std::string& name : known_cuda_archs()) {
    const KnownDevice& device = typical_device(parse_arch(name));
    EXPECT_GE(device.facts.sm_count, 20) << name;
    EXPECT_GT(device.facts.l2_bytes, kMb) << name;
    EXPECT_GT(device.facts.memory_bytes_per_s, 1e11) << name;
  }
  EXPECT_EQ(typical_device(parse_arch("sm_90a")).name, "NVIDIA H200");
  EXPECT_EQ(typical_device(parse_arch("sm_86")).name, "NVIDIA A40");
  EXPECT_EQ(typical_device(parse_arch("cpu:x86-64")).facts.memory_bytes_per_s, 0);
  EXPECT_EQ(to_text(typical_device(parse_arch("sm_90a")).facts),
            "132 multiprocessors, 50 MB of L2, 4.9 TB/s");
}

}  // namespace
}  // namespace attune
