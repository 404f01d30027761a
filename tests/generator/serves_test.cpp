// SPDX-License-Identifier: Apache-2.0
// A family refuses everything that it does not list: other ops, existing features, and fields that
// were added after it.
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "generator/core/problem/problem_fields.hpp"
#include "generator/score/features/score_feature.hpp"
#include "generator/score/language/user_program.hpp"
#include "generator/template_registry.hpp"

namespace attune {
namespace {

// A plain problem that a family serves, and an arch.
struct Case {
  const KernelTemplate* family;
  Arch arch;
  KernelSpec spec;
};

std::vector<Arch> archs() {
  std::vector<Arch> all;
  for (const std::string& name : known_cuda_archs()) all.push_back(parse_arch(name));
  all.push_back(parse_arch("cpu:x86-64-v3"));
  all.push_back(all.back());
  all.back().features = {"+amx-bf16", "+amx-tile"};
  return all;
}

std::vector<Case> plain_cases() {
  std::vector<Case> cases;
  for (const KernelTemplate* family : all_templates()) {
    for (const char* text :
         {"head_dim=128,dtype=fp16", "head_dim=128,dtype=bf16", "head_dim=128,dtype=e4m3",
          "head_dim=128,op=quantise,dtype=bf16,dtype_o=e4m3", "head_dim=128,op=merge",
          "head_dim=128,op=attention_backward", "head_dim=64,op=attention_backward,window=9:9",
          "head_dim=128,op=attention_backward,key_indices=positions",
          "head_dim=128,op=attention_kvcache", "head_dim=128,op=append_kv",
          "op=top_k,listed_keys=4", "op=index_scores,head_dim=128,dtype_o=fp32",
          "head_dim=128,op=attention_kvcache,dtype=bf16,dtype_kv=e4m3",
          "head_dim_qk=576,head_dim_v=512,op=attention_kvcache,v_in_k=1",
          "head_dim=128,dtype=fp32,accuracy=fast",
          "head_dim=128,op=attention_backward,sinks=fp32,score_gradient=sinks"}) {
      const KernelSpec spec = spec_of(parse_problem(std::string(text) + ",heads=4,seqlen=8"));
      for (const Arch& arch : archs())
        if (!family->refuses(spec, arch)) cases.push_back({family, arch, spec});
    }
    // A map without masks is not a valid call, but a valid spec.
    KernelSpec map = spec_of(parse_problem("head_dim=128,heads=4,seqlen=8"));
    map.op = Op::kBlockMap;
    for (const Arch& arch : archs())
      if (!family->refuses(map, arch)) cases.push_back({family, arch, map});
  }
  return cases;
}

std::string program(score::Kind kind, const char* text) {
  return to_text(add_user_program(text, kind, {}, "program").digest);
}

const std::map<std::string, std::string>& other_values() {
  static const std::map<std::string, std::string> values{
      {"mask", "causal_top_left"},
      {"window", "7:9"},
      {"accuracy", "fast"},
      {"v_layout", "transposed"},
      {"scale_block_q", "64"},
      {"scale_block_kv", "64"},
      {"rotation", "hadamard"},
      {"softcap", "30"},
      {"score_mod", program(score::Kind::kScore, "return 2 * score;")},
      {"mask_mod", program(score::Kind::kMask, "return kv_idx != 3;")},
      {"bias", "bf16"},
      {"relative_bias", "fp32"},
      {"alibi", "1"},
      {"mask_tensor", "1"},
      {"key_lengths", "1"},
      {"documents", "1"},
      {"prefix", "1"},
      {"chunk", "64"},
      {"sinks", "fp32"},
      {"block_map", "hides"},
      {"page_size", "16"},
      {"packed_q", "1"},
      {"packed_kv", "1"},
      {"batch_invariant", "1"},
      {"v_in_k", "1"},
      {"kv_factors", "keys"},
      {"key_indices", "positions"},
      {"rotary", "bf16"},
      {"rotary_dim", "24"},
      {"rotary_interleaved", "1"},
      {"rotary_q", "1"},
      {"gradients", "kv"},
      {"score_gradient", "bias"},
      {"load", "1"},
      {"repeats", "b"},
      {"accumulate", "1"},
      {"deterministic", "1"},
      {"dropout", "0.25"},
      {"max_logits", "1"}};
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

std::string what_is_served(const ProblemField& field) {
  return field.without.empty() ? field.print(Problem{}) + " only" : field.without;
}

TEST(Serves, EachFamilyServesAPlainProblem) {
  std::map<std::string_view, int> cases;
  for (const Case& one : plain_cases()) ++cases[one.family->name()];
  EXPECT_EQ(cases.size(), all_templates().size());
}

TEST(Serves, UnlistedFeaturesAreRefusedByName) {
  int refused = 0;
  for (const Case& one : plain_cases()) {
    for (const ProblemField& field : problem_fields()) {
      if (!is_feature(field) || !field.is_default(problem_of(one.spec))) continue;
      const KernelSpec spec = with_value(one.spec, field);
      ASSERT_EQ(features_of(spec).size(), features_of(one.spec).size() + 1) << to_text(spec);
      const std::string reason = one.family->refuses(spec, one.arch).value_or("");
      const Served& served = one.family->serves();
      if (served.features.count(field.name) > 0 || (served.scores && is_score_field(field.name))) {
        EXPECT_THAT(reason, ::testing::Not(::testing::HasSubstr(what_is_served(field))))
            << field.name;
        continue;
      }
      ++refused;
      EXPECT_EQ(reason, field.name + " is " + other_values().at(field.name) +
                            "; this template serves " + what_is_served(field))
          << one.family->name();
    }
  }
  EXPECT_GT(refused, 20);
}

// Each gradient kernel adds in a fixed order, or has a knob for one. So no family is lost when
// equal bits are requested.
TEST(Serves, EveryFamilyOfGradientsServesDeterministicProblems) {
  std::set<std::string_view> families;
  for (Case& one : plain_cases()) {
    if (one.spec.op != Op::kAttentionBackward) continue;
    one.spec.backward.deterministic = true;
    EXPECT_EQ(one.family->refuses(one.spec, one.arch).value_or(""), "") << one.family->name();
    families.insert(one.family->name());
  }
  EXPECT_EQ(families.size(), 11u);
}

TEST(Serves, OtherOpsAreRefusedByName) {
  for (const Case& one : plain_cases()) {
    KernelSpec spec = one.spec;
    spec.op = one.spec.op == Op::kPrefill ? Op::kQuantise : Op::kPrefill;
    EXPECT_THAT(
        one.family->refuses(spec, one.arch).value_or(""),
        ::testing::StartsWith("op is " + std::string(op_name(spec.op)) + "; this template serves " +
                              std::string(op_name(one.spec.op))))
        << one.family->name();
  }
}

TEST(Serves, ListedNamesAreNamesOfFeatures) {
  for (const KernelTemplate* family : all_templates())
    for (const std::string& name : family->serves().features)
      EXPECT_TRUE(std::any_of(
          problem_fields().begin(), problem_fields().end(),
          [&](const ProblemField& field) { return field.name == name && is_feature(field); }))
          << family->name() << " serves \"" << name << "\", which no field is called";
}

TEST(Serves, ARefusalSaysInWordsWhatIsServed) {
  const KernelSpec plain =
      spec_of(parse_problem("op=quantise,dtype=bf16,dtype_o=e4m3,head_dim=128,heads=4,seqlen=8"));
  const auto refusal = [](const KernelSpec& spec) {
    return template_by_name("quantise_cuda").refuses(spec, parse_arch("sm_80")).value_or("");
  };
  EXPECT_EQ(refusal(plain), "");
  KernelSpec windowed = plain, masked = plain, fast = plain;
  windowed.window_left = 3;
  EXPECT_EQ(refusal(windowed), "window is 3:-1; this template serves no window");
  masked.mask = Mask::kCausalTopLeft;
  EXPECT_EQ(refusal(masked), "mask is causal_top_left; this template serves no mask");
  fast.fp8.accuracy = Accuracy::kFast;
  EXPECT_EQ(refusal(fast), "accuracy is fast; this template serves accurate only");
}

// Families that serve a spec on a device of several archs, best first.
TEST(Serving, TakesTheBestArchOfEachFamilyAndTheReferenceApart) {
  const std::vector<Arch> hopper{parse_arch("sm_90a"), parse_arch("sm_90")};
  const Serving found =
      serving(spec_of(parse_problem("dtype=bf16,head_dim=128,heads=4,seqlen=8")), hopper);
  ASSERT_EQ(found.families.size(), 2u);
  EXPECT_EQ(found.families[0].kernel_template->name(), "prefill_sm90");
  EXPECT_EQ(found.families[0].arch.name(), "sm_90a");
  EXPECT_EQ(found.families[1].kernel_template->name(), "prefill_sm80");
  EXPECT_EQ(found.best(), &found.families[0]);
  ASSERT_TRUE(found.reference);
  EXPECT_TRUE(found.reference->kernel_template->is_reference());
  EXPECT_EQ(found.find("reference_cuda"), &*found.reference);
  EXPECT_EQ(found.find("prefill_cpu"), nullptr);
  EXPECT_EQ(found.refusals.size() + 3, all_templates().size());
}

// The cheapest default comes first among the four families of gradients on Hopper. Those that do
// not fit the shape come last. Families of other groups keep their place.
TEST(Serving, OrdersAGroupByThePredictedCostOfItsDefaults) {
  const auto order = [](const std::string& text) {
    const Problem p = parse_problem("op=attention_backward,dtype=bf16," + text);
    const Arch arch = parse_arch("sm_90a");
    const DeviceFacts facts = typical_device(arch).facts;
    std::vector<double> costs;
    std::string names;
    for (const Family& f :
         by_fit(serving(spec_of(p), {arch}).families, spec_of(p), shape_of(p), facts)) {
      const KernelTemplate& t = *f.kernel_template;
      names += std::string(t.name()) + " ";
      if (t.group() != "backward_sm90" || t.fit(spec_of(p), shape_of(p)) == Fit::kNever) continue;
      costs.push_back(t.predicted_cost(spec_of(p), arch,
                                       t.default_config(spec_of(p), arch, shape_of(p), facts),
                                       shape_of(p), facts));
    }
    EXPECT_TRUE(std::is_sorted(costs.begin(), costs.end())) << names;
    return names;
  };
  EXPECT_EQ(order("head_dim=128,heads=16,seqlen=16384"),
            "backward_sm90_one_kernel backward_sm90 backward_sm90_stored backward_sm80 ");
  EXPECT_EQ(order("head_dim=256,heads=8,seqlen=16384"),
            "backward_sm90_stored backward_sm90 backward_sm80 ");
  EXPECT_EQ(order("head_dim=256,heads=8,seqlen=32768"),
            "backward_sm90 backward_sm80 backward_sm90_stored ");
  EXPECT_EQ(
      order("head_dim=64,heads=32,batch=2,seqlen=8192,window=64:64").find("backward_sm90_band "),
      0u);
}

TEST(Serving, ARefusalIsAboutTheBestArch) {
  const Serving found = serving(spec_of(parse_problem("dtype=fp32,head_dim=128,heads=4,seqlen=8")),
                                {parse_arch("sm_90a"), parse_arch("sm_90")});
  EXPECT_EQ(found.refusal_of(template_by_name("prefill_sm90")),
            "dtype_q is fp32; this template serves bf16 and fp16");
  EXPECT_EQ(found.best(), &*found.reference);
  EXPECT_EQ(found.refusal_of(template_by_name("reference_cuda")), std::nullopt);
}

TEST(Serving, NothingServesADeviceWithoutArchs) {
  const Serving found = serving(KernelSpec{}, {});
  EXPECT_EQ(found.best(), nullptr);
  EXPECT_EQ(found.refusals.size(), all_templates().size());
}

// Adds a field for this test, on for head dims of 136. Before that every 16-bit family serves such
// problems, and after it none does. Must be the last test, since the field stays.
TEST(Serves, AFieldThatNoFamilyListsIsRefusedByAll) {
  std::vector<Case> cases = plain_cases();
  for (Case& one : cases) one.spec.head_dim_qk = one.spec.head_dim_v = 136;
  std::erase_if(
      cases, [](const Case& one) { return one.family->refuses(one.spec, one.arch).has_value(); });
  ASSERT_GT(cases.size(), 10u);
  static int printed = 0;
  add_problem_field({.part = Part::kSpec,
                     .name = "unheard_of",
                     .key = "unheard_of",
                     .print =
                         [](const Problem& p) {
                           ++printed;
                           return p.head_dim_qk == 136 ? "30" : "0";
                         },
                     .parse = [](std::string_view, std::string_view, Problem*) {}});
  for (const Case& one : cases) {
    EXPECT_EQ(one.family->refuses(one.spec, one.arch).value_or(""),
              "unheard_of is 30; this template serves 0 only")
        << one.family->name();
    EXPECT_THAT(to_text(one.spec), ::testing::EndsWith(",unheard_of=30"));
  }
  for (const Arch& arch : archs()) {
    KernelSpec spec;
    spec.head_dim_qk = spec.head_dim_v = 136;
    const Serving found = serving(spec, {arch});
    EXPECT_EQ(found.best(), nullptr);
    EXPECT_EQ(found.refusals.size(), all_templates().size());
  }
  const int before = printed;
  serving(spec_of(parse_problem("dtype=bf16,head_dim=128,heads=4,seqlen=8")), archs());
  EXPECT_EQ(printed - before, 2) << "its value and its default, whatever the number of templates";
}

}  // namespace
}  // namespace attune
