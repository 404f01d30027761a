// SPDX-License-Identifier: Apache-2.0
// SearchSpace on a small artificial space, then laws that each shipped template's space must obey.
#include "generator/search_space.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <random>
#include <set>

#include "generator/core/problem/problem.hpp"
#include "generator/core/system/error.hpp"
#include "generator/render/renderer.hpp"
#include "generator/template_registry.hpp"
#include "tests/support/regions.hpp"

namespace attune {
namespace {

SearchSpace small_space() {
  return SearchSpace({{"m", {1, 2, 4}, ""}, {"n", {1, 2}, ""}},
                     {{"product", {"m", "n"}, [](const Config& c) -> std::optional<std::string> {
                         if (c.at("m") * c.at("n") <= 4) return std::nullopt;
                         return "m * n is above 4";
                       }}});
}

TEST(SearchSpace, EnumeratesLegalConfigsInOrder) {
  std::vector<std::string> texts;
  for (const Config& config : small_space().enumerate()) texts.push_back(config.to_text());
  EXPECT_EQ(texts,
            (std::vector<std::string>{"m=1,n=1", "m=1,n=2", "m=2,n=1", "m=2,n=2", "m=4,n=1"}));
}

TEST(SearchSpace, AppliesARuleAsSoonAsItsKnobsAreSet) {
  std::vector<int64_t> many(100);
  std::iota(many.begin(), many.end(), int64_t{0});
  int asked = 0;
  const SearchSpace space({{"a", many, ""}, {"b", many, ""}, {"c", many, ""}},
                          {{"first",
                            {"a"},
                            [&](const Config& c) -> std::optional<std::string> {
                              ++asked;
                              return c.at("a") == 7 ? std::nullopt : std::optional("a is not 7");
                            }},
                           {"sum", {"b", "a"}, [](const Config& c) -> std::optional<std::string> {
                              return c.at("a") + c.at("b") == 9 ? std::nullopt
                                                                : std::optional("a + b is not 9");
                            }}});
  int64_t visited = 0;
  EXPECT_EQ(space.enumerate(&visited).size(), 100U);  // a 7, b 2, every c
  EXPECT_EQ(asked, 100);
  EXPECT_EQ(visited, 1 + 100 + 100 + 100);
}

// Returns the filtered product of all knobs, as enumerate() did before it pruned.
std::vector<Config> product_of(const SearchSpace& space) {
  std::vector<Config> all{Config()};
  for (const Knob& knob : space.knobs()) {
    std::vector<Config> longer;
    for (const Config& config : all)
      for (const int64_t value : knob.values) {
        longer.push_back(config);
        longer.back().set(knob.name, value);
      }
    all = std::move(longer);
  }
  std::vector<Config> legal;
  for (const Config& config : all)
    if (!space.broken(config)) legal.push_back(config);
  return legal;
}

TEST(SearchSpace, SaysWhatIsBroken) {
  const SearchSpace space = small_space();
  EXPECT_FALSE(space.broken(parse_config("m=4,n=1")));
  EXPECT_EQ(*space.broken(parse_config("m=4,n=2")), "m * n is above 4");
  EXPECT_NE(space.broken(parse_config("m=3,n=1"))->find("m is 3; must be 1, 2, 4"),
            std::string::npos);
  EXPECT_NE(space.broken(parse_config("m=1"))->find("\"n\" is missing"), std::string::npos);
  EXPECT_NE(space.broken(parse_config("m=1,n=1,k=2"))->find("unknown knob \"k\""),
            std::string::npos);
}

TEST(SearchSpace, AStoredConfigMayHaveARetiredKnob) {
  const SearchSpace space({{"m", {1, 2, 4}, ""}}, {}, {{"old", 3}});
  const Config stored = parse_config("m=2,old=3"), current = parse_config("m=2");
  EXPECT_EQ(space.broken(stored), std::nullopt);
  EXPECT_EQ(space.broken(current), std::nullopt);
  EXPECT_EQ(space.without_retired(stored), current);
  EXPECT_EQ(space.without_retired(current), current);
  EXPECT_EQ(*space.broken(parse_config("m=2,old=4")), "old is 4; must be 3");
  EXPECT_EQ(*space.broken(parse_config("old=3")), "knob \"m\" is missing; must be 1, 2, 4");
  for (const Config& config : space.enumerate()) EXPECT_FALSE(config.has("old"));
}

// Winners of 0.2 and 0.3 have charge=1.
TEST(SearchSpace, DecodeOnACpuRendersAStoredConfigAsTheOneWithoutItsRetiredKnob) {
  const KernelSpec spec = spec_of(parse_problem(
      "op=attention_kvcache,dtype=fp32,head_dim=64,heads=4/2,batch=2,seqlen_q=1,seqlen_kv=256"));
  const Arch arch = parse_arch("cpu:x86-64");
  const KernelTemplate& decode = template_by_name("decode_cpu");
  const std::string now = render(decode, spec, arch, parse_config("keys=128")).text;
  EXPECT_EQ(render(decode, spec, arch, parse_config("keys=128,charge=1")).text, now);
  EXPECT_EQ(now.find("harge"), std::string::npos);
  EXPECT_THROW(render(decode, spec, arch, parse_config("keys=128,charge=2")), Error);
}

TEST(SearchSpace, NeighboursDifferInOneKnobByOneStep) {
  std::vector<std::string> texts;
  for (const Config& config : small_space().neighbours(parse_config("m=2,n=2")))
    texts.push_back(config.to_text());
  EXPECT_EQ(texts, (std::vector<std::string>{"m=1,n=2", "m=2,n=1"}));
}

std::vector<KernelSpec> sample_specs() {
  std::vector<KernelSpec> specs;
  for (const char* dtype : {"fp16", "bf16", "fp32"})
    for (const char* dims : {"head_dim=64", "head_dim=128", "head_dim=256", "head_dim=40",
                             "head_dim_qk=192,head_dim_v=128"})
      for (const char* mask : {"mask=none", "mask=causal_bottom_right", "mask=none,window=128:0"})
        specs.push_back(spec_of(parse_problem(std::string("heads=8/2,seqlen=64,dtype=") + dtype +
                                              "," + dims + "," + mask)));
  for (const char* dims :
       {"head_dim=16", "head_dim=24", "head_dim=80", "head_dim=128", "head_dim=256"})
    for (const char* options :
         {"", "scale_block=16", "scale_block=48,v_layout=transposed", "scale_block=128",
          "scale_block=1008,v_layout=transposed", "scale_block=65536"})
      specs.push_back(spec_of(
          parse_problem(std::string("op=quantise,heads=8,seqlen=64,dtype=bf16,dtype_o=e4m3,") +
                        dims + (*options ? "," : "") + options)));
  specs.push_back(
      spec_of(parse_problem("op=quantise,heads=8,seqlen=64,dtype=fp32,dtype_o=e5m2,head_dim=256,"
                            "scale_block=128,rotation=hadamard")));
  return specs;
}

std::vector<Arch> sample_archs() {
  std::vector<Arch> archs{parse_arch("cpu:x86-64")};
  for (const std::string& name : known_cuda_archs()) archs.push_back(parse_arch(name));
  return archs;
}

TEST(EveryTemplate, DefaultIsLegalAndFitsTheArch) {
  const Shape shapes[] = {{1, 1, 1, 8, 2},
                          {2, 512, 512, 8, 2},
                          {1, 16384, 16384, 8, 2},
                          {4, 1, 8192, 8, 2},
                          {1, 0, 0, 8, 2}};
  int seen = 0;
  for (const KernelTemplate* t : all_templates())
    for (const Arch& arch : sample_archs())
      for (const KernelSpec& spec : sample_specs()) {
        if (t->refuses(spec, arch)) continue;
        const SearchSpace space = t->space(spec, arch);
        for (const Shape& shape : shapes) {
          const Config config = t->default_config(spec, arch, shape, typical_device(arch).facts);
          ASSERT_FALSE(space.broken(config)) << t->name() << " " << arch.name() << " "
                                             << to_text(spec) << ": " << *space.broken(config);
          const LaunchPlan plan = t->launch(spec, config, shape, {132, 50 << 20});
          const Resources resources = t->resources(spec, arch, config);
          EXPECT_EQ(static_cast<int>(plan.main().shared_bytes), resources.shared_bytes);
          if (arch.target == Target::kCuda) {  // on a CPU the device says how many threads run
            EXPECT_EQ(static_cast<int>(plan.main().threads), resources.threads);
            EXPECT_LE(resources.shared_bytes, arch.shared_bytes_per_block);
          }
          testing::expect_workspace(plan);
          ++seen;
        }
      }
  EXPECT_GT(seen, 100);
}

// A rule that reads knobs which it does not name would be applied too early. So changing any other
// knob must not change its answer, and each name must be a knob.
TEST(EveryTemplate, RulesReadWhatTheyName) {
  std::mt19937_64 random(1);
  const auto pick = [&](const Knob& knob) { return knob.values[random() % knob.values.size()]; };
  int broken = 0;
  for (const KernelTemplate* t : all_templates())
    for (const char* arch_name : {"sm_90a", "sm_80", "cpu:x86-64"})
      for (const KernelSpec& spec : sample_specs()) {
        const Arch arch = parse_arch(arch_name);
        if (t->refuses(spec, arch)) continue;
        const SearchSpace space = t->space(spec, arch);
        for (int i = 0; i < 40; ++i)
          for (const Constraint& rule : space.constraints()) {
            Config one, other;
            for (const Knob& knob : space.knobs()) {
              const bool named =
                  rule.reads.empty() ||
                  std::find(rule.reads.begin(), rule.reads.end(), knob.name) != rule.reads.end();
              one.set(knob.name, pick(knob));
              other.set(knob.name, named ? one.at(knob.name) : pick(knob));
            }
            broken += rule.broken(one).has_value();
            ASSERT_EQ(rule.broken(one), rule.broken(other))
                << t->name() << ", rule " << rule.name << ", " << to_text(spec) << ": "
                << one.to_text() << " and " << other.to_text();
          }
      }
  EXPECT_GT(broken, 1000);
}

TEST(EveryTemplate, EnumerationVisitsLittleMoreThanItKeeps) {
  const char* const problems[] = {
      "heads=8/2,seqlen=64,dtype=bf16,head_dim=128,mask=causal_bottom_right",
      "heads=8,seqlen=64,dtype=fp16,head_dim=72",
      "heads=8/2,seqlen=64,dtype=e4m3,head_dim=128,mask=causal_bottom_right",
      "heads=8,seqlen=64,dtype=e4m3,head_dim=64,accuracy=fast"};
  const Arch arch = parse_arch("sm_90a");
  for (const char* text : problems) {
    const KernelSpec spec = spec_of(parse_problem(text));
    for (const KernelTemplate* t : all_templates()) {
      if (t->name().find("sm90") == std::string_view::npos || t->refuses(spec, arch)) continue;
      int64_t visited = 0;
      const std::vector<Config> kept = t->space(spec, arch).enumerate(&visited);
      std::cout << t->name() << " " << text << ": " << visited << " visited, " << kept.size()
                << " kept\n";
      EXPECT_LE(visited, 12 * static_cast<int64_t>(kept.size())) << t->name() << " " << text;
    }
  }
}

TEST(EveryTemplate, EnumerationIsTheFilteredProductInItsOrder) {
  for (const KernelTemplate* t : all_templates())
    for (const char* arch_name : {"sm_90a", "cpu:x86-64"})
      for (const char* text : {"heads=8,seqlen=64,dtype=fp16,head_dim=256",
                               "op=quantise,heads=8,seqlen=64,dtype=bf16,dtype_o=e4m3,head_dim=80,"
                               "scale_block=128"}) {
        const KernelSpec spec = spec_of(parse_problem(text));
        const Arch arch = parse_arch(arch_name);
        if (t->refuses(spec, arch)) continue;
        const SearchSpace space = t->space(spec, arch);
        EXPECT_EQ(space.enumerate(), product_of(space)) << t->name() << " " << text;
      }
}

TEST(EveryTemplate, SpaceHoldsTheDefaultAndNoDuplicates) {
  for (const KernelTemplate* t : all_templates())
    for (const char* arch_name : {"sm_90a", "sm_80", "sm_75", "cpu:x86-64"})
      for (const KernelSpec& spec : sample_specs()) {
        const Arch arch = parse_arch(arch_name);
        if (t->refuses(spec, arch)) continue;
        const std::vector<Config> configs = t->space(spec, arch).enumerate();
        const std::set<Config> unique(configs.begin(), configs.end());
        EXPECT_EQ(unique.size(), configs.size()) << t->name();
        EXPECT_LE(configs.size(), 4200U) << t->name() << " " << to_text(spec);
        const Config standard =
            t->default_config(spec, arch, Shape{2, 2048, 2048, 8, 2}, typical_device(arch).facts);
        EXPECT_TRUE(unique.count(standard)) << t->name() << " " << standard.to_text();
      }
}

}  // namespace
}  // namespace attune
