// SPDX-License-Identifier: Apache-2.0
// backward_sm90_band, which walks along a narrow band, without a device: shared memory,
// places and runs, loads and stores of a walk, rules and defaults. backward_test.cpp checks
// results.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/error.hpp"
#include "templates/shared/layouts/backward_band_layout.h"
#include "tests/templates/backward/backward_sm90_cases.hpp"
#include "tests/templates/shared/layout_regions.hpp"

namespace attune {
namespace {

using testing::chosen_for;
using testing::hopper;
using testing::kH200;
using testing::refusal_by;

std::vector<Problem> band_problems() {
  std::vector<Problem> all;
  for (const char* text :
       {"heads=32,batch=2,seqlen=3000,mask=causal_bottom_right,window=127:0",
        "heads=3,batch=2,seqlen=1100,mask=none,window=64:64",
        "heads=2,seqlen=1000,mask=causal_top_left,window=128:-",
        "heads=5,batch=2,seqlen_q=777,seqlen_kv=1225,mask=causal_bottom_right,window=90:0",
        "heads=6,seqlen_q=1234,seqlen_kv=814,mask=none,window=70:10",
        "heads=4,batch=2,seqlen_q=1,seqlen_kv=890,mask=causal_bottom_right,window=70:0",
        "heads=4,seqlen_q=900,seqlen_kv=1,mask=none,window=3:40",
        "heads=1,seqlen=64,mask=none,window=0:128", "heads=300,seqlen=1,mask=none,window=0:0",
        "heads=1,seqlen_q=65,seqlen_kv=5000,mask=causal_top_left,window=20:0",
        "heads=2,seqlen_q=5000,seqlen_kv=65,mask=causal_top_left,window=20:0"})
    all.push_back(
        parse_problem(std::string("op=attention_backward,dtype=bf16,head_dim=64,") + text));
  return all;
}

LaunchPlan plan_of(const Problem& p) {
  return backward_sm90_band().launch(spec_of(p), Config{}, shape_of(p), kH200);
}

// Returns the runs of all walkers of a launch.
std::vector<std::vector<BandRun>> walks_of(const Problem& p) {
  const LaunchPlan plan = plan_of(p);
  const int blocks = static_cast<int>(plan.steps[0].grid_x),
            heads = static_cast<int>(p.num_heads_q);
  std::vector<std::vector<BandRun>> all;
  for (int block = 0; block < blocks; ++block)
    for (int walker = 0; walker < kBandWalkers; ++walker) {
      BandShare left = band_share(plan.steps[0].num_tiles, heads, blocks, block, walker);
      all.emplace_back();
      while (left.begin < left.end) {
        all.back().push_back(band_run(p, p, heads, left, walker));
        left.begin += all.back().back().end - all.back().back().begin;
      }
    }
  return all;
}

TEST(Band, SharedMemoryHoldsTwoWalkers) {
  constexpr BandLayout l = backward_band_layout();
  testing::expect_regions(testing::regions_of(l), l.bytes);
  EXPECT_LE(l.bytes, hopper().shared_bytes_per_block);
  EXPECT_LE(kBandWalkers * kBandRegisters.consumer + kBandRegisters.producer,
            (kBandWalkers + 1) * kBandRegisters.launch);
}

// Row tile t sees exactly the key tiles t, t + 1 and t + 2. All keys and rows have a place.
TEST(Band, PlacesCoverAllVisibleKeys) {
  for (const Problem& p : band_problems()) {
    ASSERT_TRUE(is_narrow_band(p) && band_fits(p, p)) << to_text(p);
    const BandPlaces places = band_places(p, p);
    for (int64_t row = 0; row < p.seqlen_q; ++row) {
      const auto keys = visible_keys(p, p, row);
      if (keys.last < keys.first) continue;
      EXPECT_GE(keys.first, places.first_key + row / 64 * 64) << to_text(p) << row;
      EXPECT_LT(keys.last, places.first_key + (row / 64 + 3) * 64) << to_text(p) << row;
    }
    EXPECT_LE(places.first_key + 64 * places.first, 0);
    EXPECT_GE(places.first_key + 64 * (places.first + places.count), p.seqlen_kv);
    EXPECT_GE(places.first + places.count, (p.seqlen_q + 63) / 64 + 2);
  }
  EXPECT_FALSE(
      is_narrow_band(parse_problem("mask=none,window=64:65,head_dim=64,heads=1,seqlen=9")));
  EXPECT_FALSE(is_narrow_band(parse_problem("mask=none,window=64:-,head_dim=64,heads=1,seqlen=9")));
  EXPECT_FALSE(is_narrow_band(parse_problem("mask=none,window=-:64,head_dim=64,heads=1,seqlen=9")));
}

// Each tile of rows ends in one run, with all its keys; each tile of keys leaves from one, with all
// its rows.
TEST(Band, EveryGradientIsCompleteOnce) {
  for (const Problem& p : band_problems()) {
    std::map<std::tuple<int, int, int>, std::set<int>> rows, keys;  // batch, head, tile: with which
    const int tiles = static_cast<int>((p.seqlen_q + 63) / 64);
    const BandPlaces places = band_places(p, p);
    const auto is_key = [&](int tile) {
      const int64_t first = places.first_key + 64 * tile;
      return first >= 0 && first < p.seqlen_kv;
    };
    for (const auto& walk : walks_of(p))
      for (const BandRun& run : walk) {
        std::map<int, std::set<int>> of_rows;
        for (int place = run.first_place(); place < run.end; ++place) {
          std::set<int> of_keys;
          for (int row = place - 2; row <= place; ++row)
            if (run.has_keys(place) && run.has_row(row)) {
              of_rows[row].insert(place);
              of_keys.insert(row);
            }
          if (run.has_row(place - 2)) {
            const auto [at, is_new] =
                rows.insert({{run.batch, run.head, place - 2}, of_rows[place - 2]});
            ASSERT_TRUE(is_new) << to_text(p);
          }
          if (!run.has_keys(place) || place < run.begin) continue;
          const auto [at, is_new] = keys.insert({{run.batch, run.head, place}, of_keys});
          ASSERT_TRUE(is_new) << to_text(p);
        }
      }
    for (int batch = 0; batch < p.batch; ++batch)
      for (int head = 0; head < p.num_heads_q; ++head) {
        for (int tile = 0; tile < tiles; ++tile) {
          std::set<int> all;
          for (int place = tile; place <= tile + 2; ++place)
            if (is_key(place)) all.insert(place);
          ASSERT_TRUE(rows.count({batch, head, tile})) << to_text(p) << " rows " << tile;
          EXPECT_EQ(rows.at({batch, head, tile}), all) << to_text(p) << " rows " << tile;
        }
        for (int place = places.first; place < places.first + places.count; ++place) {
          std::set<int> all;
          for (int row = std::max(place - 2, 0); row <= std::min(place, tiles - 1); ++row)
            all.insert(row);
          ASSERT_EQ(keys.count({batch, head, place}), is_key(place)) << to_text(p);
          if (is_key(place)) {
            EXPECT_EQ(keys.at({batch, head, place}), all) << to_text(p) << " keys " << place;
          }
        }
      }
  }
}

// Simulates who waits for what: the loading thread for slots, the summing warp for rows, the
// warpgroup for both. No walk may wait for ever.
TEST(Band, WalksComeToTheirEnd) {
  for (const Problem& p : band_problems())
    for (const auto& walk : walks_of(p)) {
      int loaded = 0, summed = 0, taken = 0, given = 0;               // tiles of rows
      int keys_loaded = 0, keys_taken = 0, keys_given = 0, held = 0;  // of keys
      const auto advance = [&](auto&& done) {                         // the loader's next, in order
        int row = 0, key = 0;
        for (const BandRun& run : walk)
          for (int place = run.first_place(); place < run.end; ++place) {
            if (run.has_row(place) && row++ == loaded) {
              if (loaded - given >= kBandRowSlots) return;
              ++loaded, ++summed;
              done();
            }
            if (run.has_keys(place) && key++ == keys_loaded) {
              if (keys_loaded - keys_given >= kBandKeySlots) return;
              ++keys_loaded;
              done();
            }
          }
      };
      for (const BandRun& run : walk) {
        for (int place = run.first_place(); place < run.end; ++place) {
          advance([] {});
          const bool keys = run.has_keys(place);
          if (keys) {
            ASSERT_GT(keys_loaded, keys_taken) << to_text(p) << " keys of " << place;
          }
          keys_given += held, held = keys;
          advance([] {});
          if (run.has_row(place - 2)) ++given;
          advance([] {});
          if (run.has_row(place)) {
            ASSERT_GT(summed, taken++) << to_text(p) << " rows of " << place;
          }
          keys_taken += keys;
        }
        keys_given += held, held = 0;
        for (int tile = run.end - 2; tile < run.end; ++tile) given += run.has_row(tile);
        ASSERT_EQ(given, taken) << to_text(p);
        ASSERT_EQ(keys_given, keys_taken) << to_text(p);
      }
      advance([] {});
      EXPECT_EQ(loaded, taken) << to_text(p);
      EXPECT_EQ(keys_loaded, keys_taken) << to_text(p);
    }
}

// Key tiles begin at multiples of 64. If three of them do not cover a row's window, other kernels
// serve the shape.
TEST(Band, ServesShapesWhoseWindowFitsThreeTilesOfKeys) {
  const auto fits = [](const std::string& text) {
    const Problem p =
        parse_problem("op=attention_backward,dtype=bf16,head_dim=64,heads=32,batch=2," + text);
    const bool unfit = backward_sm90_band().unfit(spec_of(p), Config{}, shape_of(p)).has_value();
    EXPECT_EQ(chosen_for(p).name == "backward_sm90_band", !unfit) << text;
    return !unfit;
  };
  EXPECT_TRUE(fits("seqlen=8192,mask=none,window=64:64"));
  EXPECT_FALSE(fits("seqlen=8192,mask=none,window=100:28"));
  EXPECT_TRUE(fits("seqlen=8192,mask=causal_bottom_right,window=90:0"));
  EXPECT_FALSE(fits("seqlen_q=8000,seqlen_kv=8020,mask=causal_bottom_right,window=90:0"));
  EXPECT_TRUE(fits("seqlen_q=8000,seqlen_kv=8040,mask=causal_bottom_right,window=90:0"));
  EXPECT_TRUE(fits("seqlen_q=8000,seqlen_kv=8040,mask=causal_top_left,window=90:0"));
  EXPECT_THROW(
      plan_of(parse_problem("op=attention_backward,head_dim=64,heads=2,seqlen=500,mask=none,"
                            "window=100:28")),
      Error);
}

TEST(Band, OneStepComputesAllGradientsWithoutAWorkspace) {
  const LaunchPlan plan = plan_of(
      parse_problem("op=attention_backward,dtype=bf16,head_dim=64,heads=32,batch=2,seqlen=8192,"
                    "mask=causal_bottom_right,window=127:0"));
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_TRUE(plan.workspace.empty());
  EXPECT_EQ(plan.steps[0].num_tiles, 64 * 130);
  EXPECT_EQ(plan.steps[0].grid_x, 132u);
  EXPECT_EQ(plan.steps[0].tensor_maps.size(), 8u);
}

// Walks only serve plain gradients without grouped heads.
TEST(Band, RefusesWithAReason) {
  const auto refusal = [](const std::string& more) {
    return refusal_by(backward_sm90_band(), "op=attention_backward,seqlen=4096," + more);
  };
  EXPECT_EQ(refusal("head_dim=64,heads=8,mask=none,window=64:64"), "");
  for (const auto& [problem, reason] :
       {std::pair{"head_dim=64,heads=8,mask=none,window=64:64,gradients=kv", "gradients"},
        {"head_dim=64,heads=8,mask=none,window=64:64,dropout=0.1", "dropout"},
        {"head_dim=64,heads=8,mask=none,window=64:64,accumulate=1", "accumulate"},
        {"head_dim=64,heads=8/2,mask=none,window=64:64", "4 heads of q share one of k"},
        {"head_dim=72,heads=8,mask=none,window=64:64", "head dims are up to 72"},
        {"head_dim=64,heads=8,mask=none,window=64:65", "at most 128 keys"},
        {"head_dim=64,heads=8", "window is -:-"}})
    EXPECT_NE(refusal(problem).find(reason), std::string::npos) << problem << refusal(problem);
}

TEST(Band, IsTheDefaultWhereverItServes) {
  for (const char* text : {"heads=32,batch=2,seqlen=8192,mask=causal_bottom_right,window=127:0",
                           "heads=12,batch=8,seqlen=8192,mask=none,window=64:64",
                           "heads=12,batch=32,seqlen=512,mask=none,window=64:64,deterministic=1"}) {
    const Problem p =
        parse_problem(std::string("op=attention_backward,dtype=bf16,head_dim=64,") + text);
    EXPECT_EQ(chosen_for(p).name, "backward_sm90_band") << text;
  }
}

class BandCompile : public testing::HopperCompile {};

TEST_F(BandCompile, DoesNotSpill) {
  for (const char* dims :
       {"head_dim=64", "head_dim_qk=40,head_dim_v=56", "head_dim_qk=64,head_dim_v=16"})
    for (const char* rest :
         {"dtype=bf16,mask=causal_bottom_right,window=127:0", "dtype=fp16,mask=none,window=64:64",
          "dtype=bf16,mask=none,window=0:0"}) {
      const KernelSpec spec = spec_of(parse_problem(
          std::string("op=attention_backward,heads=8,seqlen=512,") + dims + "," + rest));
      const Config config = Config{};
      ASSERT_EQ(backward_sm90_band().space(spec, hopper()).broken(config), std::nullopt);
      EXPECT_EQ(testing::compile_fault(*compiler_, backward_sm90_band(), spec, hopper(), config),
                "")
          << dims << rest;
    }
}

}  // namespace
}  // namespace attune
