// SPDX-License-Identifier: Apache-2.0
// Walks the table of a Problem's fields. Each field must reach plan keys, the text of its part, the
// problem's text and the C struct; the C struct must have no other fields.
#include "generator/core/problem/problem_fields.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "generator/core/problem/kernel_spec.hpp"
#include "generator/core/system/error.hpp"
#include "generator/score/language/user_program.hpp"
#include "runtime/c_api/c_support.hpp"
#include "runtime/engine/plan_cache.hpp"

namespace attune {
namespace {

std::string program(score::Kind kind, const char* text) {
  return to_text(add_user_program(text, kind, {}, "program").digest);
}

// Returns a non-default value of each field. A new field needs an entry here.
const std::map<std::string, std::string>& other_values() {
  static const std::map<std::string, std::string> values{
      {"op", "quantise"},
      {"dtype_q", "e4m3"},
      {"dtype_kv", "e5m2"},
      {"dtype_o", "fp32"},
      {"head_dim_qk", "72"},
      {"head_dim_v", "80"},
      {"gqa_ratio", "3"},
      {"batch", "5"},
      {"seqlen_q", "77"},
      {"seqlen_kv", "78"},
      {"heads", "12/6"},
      {"mask", "causal_top_left"},
      {"window", "7:9"},
      {"accuracy", "fast"},
      {"v_layout", "transposed"},
      {"scale_block_q", "32"},
      {"scale_block_kv", "48"},
      {"rotation", "hadamard"},
      {"softmax_scale", "0.5"},
      {"softcap", "30"},
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
      {"gradients", "kv"},
      {"score_gradient", "alibi"},
      {"load", "1"},
      {"repeats", "bh"},
      {"accumulate", "1"},
      {"deterministic", "1"},
      {"dropout", "0.25"},
      {"max_logits", "1"},
      {"page_size", "16"},
      {"packed_q", "1"},
      {"packed_kv", "1"},
      {"num_pages", "7"},
      {"batch_invariant", "1"},
      {"kv_factors", "keys"},
      {"key_indices", "places"},
      {"listed_keys", "33"},
      {"rotary", "bf16"},
      {"rotary_dim", "24"},
      {"rotary_interleaved", "1"},
      {"rotary_q", "1"},
      {"v_in_k", "1"},
      {"score_mod", program(score::Kind::kScore, "return 2 * score;")},
      {"mask_mod", program(score::Kind::kMask, "return kv_idx != 3;")}};
  return values;
}

Problem changed(const ProblemField& field) {
  Problem problem;
  const auto value = other_values().find(field.name);
  if (value == other_values().end())
    ADD_FAILURE() << field.name << " has no other value in this test";
  else
    field.parse(field.name, value->second, &problem);
  return problem;
}

TEST(ProblemFields, EachReachesPlanKeysAndTheTextsOfItsPart) {
  const Problem plain;
  for (const ProblemField& field : problem_fields()) {
    const Problem other = changed(field);
    EXPECT_FALSE((PlanKey{plain, true} == PlanKey{other, true})) << field.name;
    EXPECT_NE(to_text(plain), to_text(other)) << field.name;
    EXPECT_FALSE(field.is_default(other)) << field.name;
    EXPECT_EQ(to_text(spec_of(plain)) != to_text(spec_of(other)), spec_of(plain) != spec_of(other))
        << field.name;
    if (field.part == Part::kSpec) {
      EXPECT_FALSE(spec_of(plain) == spec_of(other)) << field.name;
      EXPECT_THAT(to_text(spec_of(other)), ::testing::HasSubstr(field.name + "=")) << field.name;
    }
    EXPECT_EQ(to_text(shape_of(plain)) != to_text(shape_of(other)),
              field.part == Part::kShape || field.name == "gqa_ratio")
        << field.name;
  }
}

TEST(ProblemFields, EachIsReadBackFromItsText) {
  for (const ProblemField& field : problem_fields()) {
    const Problem other = changed(field);
    Problem read;
    field.parse(field.name, field.print(other), &read);
    EXPECT_EQ(field.print(read), field.print(other)) << field.name;
    EXPECT_EQ(problem_of(spec_of(other), shape_of(other)) == other, field.part != Part::kCall)
        << field.name;
    Problem of_bad;
    EXPECT_THROW(field.parse(field.name, "no such value", &of_bad), Error) << field.name;
  }
}

TEST(ProblemFields, EachReachesTheCStructAndComesBack) {
  const Problem plain;
  for (const ProblemField& field : problem_fields()) {
    const Problem other = changed(field);
    const attune_problem c = c_api::c_problem(other);
    EXPECT_EQ(c_api::problem_of(&c), other) << field.name;
    EXPECT_FALSE(c_api::problem_of(&c) == plain) << field.name;
  }
  attune_problem initial;
  attune_problem_init(&initial);
  EXPECT_EQ(c_api::problem_of(&initial), plain) << "both have the same defaults";
}

TEST(ProblemFields, TheCStructHasExactlyTheseFields) {
  std::ostringstream text;
  for (const char* header : {"attune_problem_types.h", "attune_part_types.h"})
    text << std::ifstream(std::string(ATTUNE_HEADERS "/") + header).rdbuf();
  const std::string fields = std::regex_replace(text.str(), std::regex("/\\*[\\s\\S]*?\\*/"), "");
  std::set<std::string> in_header;
  const std::regex member("  \\w[\\w ]*\\*? (\\w+)(\\[\\d+\\])?;");
  for (std::sregex_iterator at(fields.begin(), fields.end(), member), end; at != end; ++at)
    in_header.insert((*at)[1]);
  std::set<std::string> in_table{"size",  "reserved", "scores",  "backward",
                                 "cache", "append",   "quantise"};
  for (const ProblemField& field : problem_fields())
    in_table.insert(field.c_names.begin(), field.c_names.end());
  EXPECT_EQ(in_header, in_table);
}

// Stored winners are found by their spec's text, so a spec without later fields must keep the text
// of the first version.
TEST(ProblemFields, StoredTextsStayAsTheyAre) {
  for (const char* text :
       {"op=prefill,dtype_q=bf16,dtype_kv=bf16,dtype_o=bf16,head_dim_qk=128,head_dim_v=128,"
        "gqa_ratio=4,mask=causal_bottom_right,window=-1:-1",
        "op=prefill,dtype_q=fp16,dtype_kv=fp16,dtype_o=fp16,head_dim_qk=192,head_dim_v=128,"
        "gqa_ratio=1,mask=none,window=1024:0",
        "op=prefill,dtype_q=e4m3,dtype_kv=e5m2,dtype_o=fp16,head_dim_qk=64,head_dim_v=64,"
        "gqa_ratio=2,mask=none,window=-1:-1,accuracy=fast,v_layout=transposed,scale_block_q=64,"
        "scale_block_kv=128",
        "op=quantise,dtype_q=fp32,dtype_kv=fp32,dtype_o=e4m3,head_dim_qk=64,head_dim_v=64,"
        "gqa_ratio=1,mask=none,window=-1:-1,scale_block_q=64,scale_block_kv=64,rotation=hadamard"})
    EXPECT_EQ(to_text(parse_spec_text(text)), text);
  EXPECT_EQ(to_text(parse_shape_text("batch=2,seqlen_q=7,seqlen_kv=900,heads=32/8")),
            "batch=2,seqlen_q=7,seqlen_kv=900,heads=32/8");
}

TEST(ProblemFields, QuantizeIsQuantise) {
  const std::string rest = ",dtype=bf16,dtype_o=e4m3,head_dim=64,heads=4,seqlen=8";
  EXPECT_EQ(parse_problem("op=quantize" + rest), parse_problem("op=quantise" + rest));
  EXPECT_EQ(to_text(parse_problem("op=quantize" + rest)).find("quantize"), std::string::npos)
      << "equal problems have equal texts";
  EXPECT_EQ(static_cast<int>(ATTUNE_QUANTIZE), static_cast<int>(ATTUNE_QUANTISE));
  EXPECT_EQ(static_cast<Op>(ATTUNE_QUANTISE), parse_op("quantise"));
  EXPECT_EQ(static_cast<Op>(ATTUNE_PREFILL), parse_op("prefill"));
}

}  // namespace
}  // namespace attune
