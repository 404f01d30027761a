// SPDX-License-Identifier: Apache-2.0
// Lookups through layers: user over site over shipped.
#include "cache/store_stack.hpp"

#include <gmock/gmock.h>

#include "tests/cache/store_samples.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

class StoreStackTest : public StoreTest {
 protected:
  Store layer(const std::string& name) const {
    return Store::open(file(name), StoreMode::kReadWrite);
  }
  StoreStack stack() const { return StoreStack({file("user"), file("site"), file("shipped")}); }
  void put(const std::string& name, Effort effort, const std::string& created, int64_t block_m,
           bool pinned = false) {
    WinnerRecord winner = sample_winner(sample_key(), block_m);
    winner.effort = effort;
    winner.created = created;
    winner.pinned = pinned;
    Store store = layer(name);
    pinned ? store.set_pinned(sample_key(), winner) : store.put_winner(sample_key(), winner);
  }
  std::vector<int64_t> winners() const {
    std::vector<int64_t> order;
    for (const WinnerRecord& winner : stack().load_winners(sample_key().device))
      order.push_back(winner.config.at("block_m"));
    return order;
  }
};

TEST_F(StoreStackTest, NoLayersIsEmpty) {
  EXPECT_TRUE(winners().empty());
  EXPECT_FALSE(stack().image(sample_image_key()).has_value());
  EXPECT_EQ(logged(), "");
  EXPECT_TRUE(StoreStack({}).load_winners(sample_key().device).empty());
}

TEST_F(StoreStackTest, EffortThenFreshnessThenLayer) {
  put("shipped", Effort::kNormal, "2026-01-01T00:00:00.000Z", 16);
  EXPECT_THAT(winners(), testing::ElementsAre(16));
  put("site", Effort::kNormal, "2026-01-02T00:00:00.000Z", 32);
  EXPECT_THAT(winners(), testing::ElementsAre(32)) << "newer";
  put("user", Effort::kQuick, "2026-01-03T00:00:00.000Z", 64);
  EXPECT_THAT(winners(), testing::ElementsAre(32)) << "higher effort";
  put("user", Effort::kNormal, "2026-01-02T00:00:00.000Z", 128);
  EXPECT_THAT(winners(), testing::ElementsAre(128)) << "upper layer";
  put("shipped", Effort::kQuick, "2020-01-01T00:00:00.000Z", 256, true);
  EXPECT_THAT(winners(), testing::ElementsAre(256)) << "a pin before all";
}

TEST_F(StoreStackTest, DifferentKeysAllCome) {
  put("user", Effort::kNormal, "2026-01-01T00:00:00.000Z", 16);
  const TuningKey other = sample_key(4096);
  WinnerRecord winner = sample_winner(other, 32);
  winner.effort = Effort::kExhaustive;
  layer("site").put_winner(other, winner);
  EXPECT_THAT(winners(), testing::ElementsAre(32, 16)) << "best first";
}

TEST_F(StoreStackTest, WinnersOfEachThreadCountOfACpuCome) {
  TuningKey key = sample_key();
  key.device = {"cpu:znver4", 0, 0, 0, 32 << 20, 0, 0, "+avx2", "AMD EPYC", ""};
  for (const int threads : {1, 2, 8}) {
    key.device.sm_count = threads;
    layer("user").put_winner(key, sample_winner(key));
  }
  key.device.sm_count = 4;
  EXPECT_EQ(stack().load_winners(key.device).size(), 3U);
  key.device.arch = "cpu:haswell";
  EXPECT_TRUE(stack().load_winners(key.device).empty());
}

TEST_F(StoreStackTest, DamagedImageInTheUpperLayerIsTakenFromTheLower) {
  layer("user").put_image(sample_image_key(), sample_image(std::string(3000, 'u')));
  layer("shipped").put_image(sample_image_key(), sample_image("shipped"));
  EXPECT_EQ(stack().image(sample_image_key()).value().bytes, std::string(3000, 'u'));
  std::string bytes = read_bytes(file("user"));
  bytes[bytes.find("uuuuuuuu")] = 'x';
  write_bytes(file("user"), bytes);
  EXPECT_EQ(stack().image(sample_image_key()).value().bytes, "shipped");
  EXPECT_THAT(logged(), testing::HasSubstr("SHA-256"));
}

TEST_F(StoreStackTest, UnreadableLayerIsLoggedAndPassedOver) {
  put("shipped", Effort::kNormal, "2026-01-01T00:00:00.000Z", 16);
  write_bytes(file("user"), std::string(4096, '#'));
  EXPECT_THAT(winners(), testing::ElementsAre(16));
  EXPECT_THAT(logged(), testing::HasSubstr("a layer is passed over"));
}

TEST_F(StoreStackTest, LookingWritesNothingAndKeepsNothingOpen) {
  put("user", Effort::kNormal, "2026-01-01T00:00:00.000Z", 16);
  const std::string before = read_bytes(file("user"));
  const StoreStack layers = stack();
  layers.load_winners(sample_key().device);
  layers.image(sample_image_key());
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    EXPECT_NE(fs::read_symlink(entry.path(), gone), file("user"));
  }
  EXPECT_EQ(read_bytes(file("user")), before);
  EXPECT_FALSE(fs::exists(file("site")));
}

}  // namespace
}  // namespace attune
