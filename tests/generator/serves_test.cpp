// SPDX-License-Identifier: Apache-2.0
// What a family does not name it refuses: other ops, features of today, and a field that it has never
// heard of.
#include <gmock/gmock.h>

#include <map>

#include "generator/core/problem_fields.hpp"
#include "generator/template_registry.hpp"

namespace attune {
namespace {

// Plain problems: for each family one that it serves, and an arch.
struct Case {
  const KernelTemplate* family;
  Arch arch;
  KernelSpec spec;
};

std::vector<Arch> archs() {
  std::vector<Arch> all;
  for (const std::string& name : known_cuda_archs()) all.push_back(parse_arch(name));
  all.push_back(parse_arch("cpu:x86-64-v3"));
  return all;
}

std::vector<Case> plain_cases() {
  std::vector<Case> cases;
  for (const KernelTemplate* family : all_templates()) {
    for (const char* text : {"dtype=fp16", "dtype=e4m3", "op=quantise,dtype=bf16,dtype_o=e4m3"}) {
      const KernelSpec spec =
          spec_of(parse_problem(std::string(text) + ",head_dim=128,heads=4,seqlen=8"));
      for (const Arch& arch : archs())
        if (!family->refuses(spec, arch)) cases.push_back({family, arch, spec});
    }
  }
  return cases;
}

const std::map<std::string, std::string>& other_values() {
  static const std::map<std::string, std::string> values{
      {"mask", "causal_top_left"}, {"window", "7:9"},       {"accuracy", "fast"},
      {"v_layout", "transposed"},  {"scale_block_q", "64"}, {"scale_block_kv", "64"},
      {"rotation", "hadamard"}};
  return values;
}

bool is_feature(const ProblemField& field) {
  return field.part == Part::kSpec && field.default_is_off;
}

KernelSpec with_value(const KernelSpec& spec, const ProblemField& field) {
  Problem problem = problem_of(spec);
  field.parse(field.name, other_values().at(field.name), &problem);
  return spec_of(problem);
}

TEST(Serves, EachFamilyServesAPlainProblem) {
  std::map<std::string_view, int> cases;
  for (const Case& one : plain_cases()) ++cases[one.family->name()];
  EXPECT_EQ(cases.size(), all_templates().size());
}

TEST(Serves, WhatAFamilyDoesNotNameItRefusesByName) {
  int refused = 0;
  for (const Case& one : plain_cases()) {
    for (const ProblemField& field : problem_fields()) {
      if (!is_feature(field)) continue;
      const KernelSpec spec = with_value(one.spec, field);
      ASSERT_EQ(features_of(spec).size(), 1u) << to_text(spec);
      const std::string reason = one.family->refuses(spec, one.arch).value_or("");
      if (one.family->serves().features.count(field.name) > 0) {
        EXPECT_THAT(reason, ::testing::Not(::testing::HasSubstr("alone"))) << field.name;
        continue;
      }
      ++refused;
      EXPECT_EQ(reason, field.name + " is " + other_values().at(field.name) + "; it serves " +
                            field.print(Problem{}) + " alone")
          << one.family->name();
    }
  }
  EXPECT_GT(refused, 20);
}

TEST(Serves, OtherOpsAreRefusedByName) {
  for (const Case& one : plain_cases()) {
    KernelSpec spec = one.spec;
    spec.op = one.spec.op == Op::kPrefill ? Op::kQuantise : Op::kPrefill;
    EXPECT_THAT(one.family->refuses(spec, one.arch).value_or(""),
                ::testing::StartsWith("op is " + std::string(op_name(spec.op)) + "; it serves " +
                                      std::string(op_name(one.spec.op))))
        << one.family->name();
  }
}

TEST(Serves, NamesAreThoseOfFeatures) {
  for (const KernelTemplate* family : all_templates())
    for (const std::string& name : family->serves().features)
      EXPECT_TRUE(std::any_of(
          problem_fields().begin(), problem_fields().end(),
          [&](const ProblemField& field) { return field.name == name && is_feature(field); }))
          << family->name() << " serves \"" << name << "\", which no field is called";
}

// A field of this test alone, on for head dims of 136: until it is in the table every family of
// 16 bits serves them, from then on none does. Stands last: the field stays.
TEST(Serves, AFieldThatNoFamilyHasHeardOfIsRefusedByAll) {
  std::vector<Case> cases = plain_cases();
  for (Case& one : cases) one.spec.head_dim_qk = one.spec.head_dim_v = 136;
  std::erase_if(
      cases, [](const Case& one) { return one.family->refuses(one.spec, one.arch).has_value(); });
  ASSERT_GT(cases.size(), 10u);
  add_problem_field({.part = Part::kSpec,
                     .name = "softcap",
                     .key = "softcap",
                     .print = [](const Problem& p) { return p.head_dim_qk == 136 ? "30" : "0"; },
                     .parse = [](std::string_view, std::string_view, Problem*) {}});
  for (const Case& one : cases) {
    EXPECT_EQ(one.family->refuses(one.spec, one.arch).value_or(""),
              "softcap is 30; it serves 0 alone")
        << one.family->name();
    EXPECT_THAT(to_text(one.spec), ::testing::EndsWith(",softcap=30"));
  }
  for (const Arch& arch : archs()) {
    KernelSpec spec;
    spec.head_dim_qk = spec.head_dim_v = 136;
    std::vector<Refusal> refusals;
    EXPECT_TRUE(templates_for(spec, arch, &refusals).empty());
    EXPECT_EQ(refusals.size(), all_templates().size());
  }
}

}  // namespace
}  // namespace attune
