// SPDX-License-Identifier: Apache-2.0
// Checks the cost models of the GPU families. Configs that tuning on one H200 found fastest
// (cost_rank_points.txt) must come early in a model's order. In any model, more work must cost more
// and a smaller device must not take less time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "generator/core/problem/visibility.hpp"
#include "generator/template_registry.hpp"

namespace attune {
namespace {

const DeviceFacts& h200() { return typical_device(parse_arch("sm_90a")).facts; }

// One problem and the fastest config of a tune.
struct Point {
  std::string name;
  const KernelTemplate* family;
  KernelSpec spec;
  Shape shape;
  Config best;

  Arch arch() const {
    return parse_arch(family->refuses(spec, parse_arch("sm_90a")) ? "sm_90" : "sm_90a");
  }
  double cost(const Config& config) const {
    return family->predicted_cost(spec, arch(), config, shape, h200());
  }
};

// Returns the points of cost_rank_points.txt: template, problem and fastest config, a point a line.
std::vector<Point> measured_points() {
  std::vector<Point> points;
  std::ifstream file(ATTUNE_COST_RANK_POINTS);
  for (std::string line; std::getline(file, line);) {
    std::string family, problem, config;
    EXPECT_TRUE(std::istringstream(line) >> family >> problem >> config) << line;
    const Problem p = canonical(parse_problem(problem));
    points.push_back({family + " " + problem, &template_by_name(family), spec_of(p), shape_of(p),
                      parse_config(config)});
  }
  return points;
}

struct Place {
  size_t before = 0, of = 0;  // counts of legal configs: preferred by the model; all
  double over_least = 0;      // its cost over the lowest cost
};

Place place_of(const Point& point) {
  const double best = point.cost(point.best);
  double least = best;
  Place place;
  for (const Config& config : point.family->space(point.spec, point.arch()).enumerate()) {
    const double cost = point.cost(config);
    place.before += cost < best;
    ++place.of;
    least = std::min(least, cost);
  }
  place.over_least = best / least;
  return place;
}

// A tune of effort normal compiles a few dozen of some thousand configs, so it only finds the
// fastest one if the order has it near the head.
TEST(CostRank, TheMeasuredBestComesEarlyInTheOrder) {
  size_t count = 0, first_two_dozen = 0;
  for (const Point& point : measured_points()) {
    ASSERT_EQ(point.family->space(point.spec, point.arch()).broken(point.best), std::nullopt)
        << point.name;
    const Place place = place_of(point);
    ++count;
    first_two_dozen += place.before < 24;
    EXPECT_LE(place.before, std::max<size_t>(24, place.of / 12))
        << point.name << " of " << place.of;
    EXPECT_LT(place.over_least, point.shape.seqlen_q < 64 ? 1.7 : 1.25) << point.name;
  }
  EXPECT_EQ(count, 60u);
  EXPECT_GT(first_two_dozen, count * 4 / 5);
}

// Returns a few configs from all over the space.
std::vector<Config> sample_of(const SearchSpace& space) {
  const std::vector<Config> all = space.enumerate();
  std::vector<Config> some;
  for (size_t i = 0; i < all.size(); i += std::max<size_t>(1, all.size() / 7))
    some.push_back(all[i]);
  return some;
}

// Calls check(family, arch, spec, config) for each family on one of its archs.
template <class Check>
void for_samples(const Check& check) {
  std::map<std::string_view, int> seen;
  for (const KernelTemplate* family : all_templates())
    for (const char* name : {"cpu:x86-64", "sm_75", "sm_80", "sm_89", "sm_90a"})
      for (const char* problem :
           {"dtype=fp32,head_dim=64", "dtype=fp16,head_dim=128,mask=causal_bottom_right",
            "dtype=e4m3,head_dim=128", "op=quantise,dtype=fp16,dtype_o=e4m3,head_dim=64"}) {
        const KernelSpec spec =
            spec_of(parse_problem(std::string(problem) + ",heads=8,seqlen=1024"));
        const Arch arch = parse_arch(name);
        if (family->is_reference() || family->refuses(spec, arch)) continue;
        for (const Config& config : sample_of(family->space(spec, arch))) {
          check(*family, arch, spec, config);
          ++seen[family->name()];
        }
      }
  EXPECT_GE(seen.size(), 6u);
}

TEST(CostModel, MoreWorkCostsMore) {
  for_samples([](const KernelTemplate& family, const Arch& arch, const KernelSpec& spec,
                 const Config& config) {
    const auto cost = [&](int64_t batch, int64_t seqlen) {
      return family.predicted_cost(spec, arch, config, Shape{batch, seqlen, seqlen, 8, 8},
                                   typical_device(arch).facts);
    };
    const std::string where =
        std::string(family.name()) + " " + arch.name() + " " + config.to_text();
    ASSERT_GT(cost(1, 64), 0) << where;
    ASSERT_TRUE(std::isfinite(cost(64, 16384))) << where;
    EXPECT_LE(cost(4, 1024), cost(8, 1024) * 1.0001) << where;
    EXPECT_LT(cost(4, 1024), cost(64, 1024)) << where;
    EXPECT_LT(cost(4, 1024), cost(4, 8192)) << where;
  });
}

TEST(CostModel, ASmallerDeviceTakesAtLeastAsLong) {
  for_samples([](const KernelTemplate& family, const Arch& arch, const KernelSpec& spec,
                 const Config& config) {
    const Shape shape{4, 4096, 4096, 8, 8};
    const DeviceFacts whole = typical_device(arch).facts;
    DeviceFacts part = whole;
    part.sm_count = std::max(1, whole.sm_count / 4);
    part.memory_bytes_per_s /= 4;
    EXPECT_LE(family.predicted_cost(spec, arch, config, shape, whole),
              family.predicted_cost(spec, arch, config, shape, part) * 1.0001)
        << family.name() << " " << arch.name() << " " << config.to_text();
  });
}

}  // namespace
}  // namespace attune
