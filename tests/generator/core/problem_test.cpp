// SPDX-License-Identifier: Apache-2.0
// Problem: parsing, validation sentences, FLOP counting.
#include "generator/core/problem.hpp"

#include <gtest/gtest.h>

#include "generator/core/error.hpp"
#include "generator/core/kernel_spec.hpp"

namespace attune {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_problem(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Problem, TextRoundTrips) {
  for (const char* text : {"dtype=bf16,head_dim=128,heads=32/8,batch=2,seqlen=2048,mask=causal_bottom_right",
                           "dtype=fp16,head_dim_qk=192,head_dim_v=128,heads=4/4,batch=1,seqlen_q=7,seqlen_kv=300,mask=none,window=128:-",
                           "dtype=fp32,head_dim=16,heads=7/1,batch=0,seqlen=0,mask=causal_top_left,window=0:0,scale=0.25"}) {
    const Problem problem = parse_problem(text);
    EXPECT_EQ(to_text(problem), text);
    EXPECT_EQ(parse_problem(to_text(problem)), problem);
  }
}

struct Bad {
  const char* text;
  std::vector<const char*> mentions;
};

TEST(Problem, RefusesWithArgumentValueAndAccepted) {
  const std::vector<Bad> table{
      {"head_dim=100,seqlen=8", {"head_dim_qk", "100", "multiples of 8 from 16 to 256"}},
      {"head_dim_qk=64,head_dim_v=264,seqlen=8", {"head_dim_v", "264"}},
      {"heads=30/8,seqlen=8", {"num_heads_q is 30", "num_heads_kv is 8", "divide"}},
      {"heads=4/8,seqlen=8", {"num_heads_kv is 8", "1 to num_heads_q (4)"}},
      {"heads=0,seqlen=8", {"num_heads_q is 0"}},
      {"seqlen=-1", {"seqlen_q is -1", "0 to"}},
      {"batch=-2,seqlen=8", {"batch is -2"}},
      {"seqlen=8,scale=nan", {"softmax_scale is nan", "finite"}},
      {"seqlen=8,scale=-1", {"softmax_scale is -1"}},
      {"seqlen=8,dtype=float8", {"dtype is \"float8\"", "fp32, bf16, fp16"}},
      {"seqlen=8,dtype=e4m3", {"e4m3", "accepted are fp32, bf16 and fp16"}},
      {"seqlen=8,mask=causal", {"mask is \"causal\"", "causal_top_left"}},
      {"seqlen=8,window=5", {"window is \"5\"", "left:right"}},
      {"seqlen=8x", {"seqlen is \"8x\"", "integer"}},
      {"colour=red", {"problem key is \"colour\"", "head_dim"}},
      {"seqlen", {"has no '='"}},
  };
  for (const Bad& bad : table) {
    const std::string message = refusal(bad.text);
    for (const char* mention : bad.mentions) EXPECT_NE(message.find(mention), std::string::npos) << bad.text << " -> " << message;
  }
}

// Counts by the definition, one element at a time.
double flops_by_definition(const Problem& p) {
  const int64_t offset = p.mask == Mask::kCausalTopLeft ? 0 : p.seqlen_kv - p.seqlen_q;
  double visible = 0;
  for (int64_t i = 0; i < p.seqlen_q; ++i)
    for (int64_t j = 0; j < p.seqlen_kv; ++j) {
      const int64_t d = i + offset;
      visible += (p.mask == Mask::kNone || j <= d) && (p.window_left < 0 || j >= d - p.window_left) && (p.window_right < 0 || j <= d + p.window_right);
    }
  return 2.0 * (p.head_dim_qk + p.head_dim_v) * visible * static_cast<double>(p.batch) * p.num_heads_q;
}

TEST(Problem, CountsVisibleFlops) {
  for (const char* mask : {"none", "causal_top_left", "causal_bottom_right"})
    for (const char* window : {"-:-", "3:-", "-:2", "4:1", "0:0"})
      for (const char* lengths : {"seqlen=17", "seqlen_q=5,seqlen_kv=19", "seqlen_q=19,seqlen_kv=5", "seqlen_q=0,seqlen_kv=4", "seqlen_q=4,seqlen_kv=0"}) {
        const Problem p = parse_problem(std::string("heads=2,batch=3,") + lengths + ",mask=" + mask + ",window=" + window);
        EXPECT_DOUBLE_EQ(visible_flops(p), flops_by_definition(p)) << to_text(p);
      }
}

TEST(KernelSpec, RunTimeFactsStayOut) {
  const KernelSpec a = spec_of(parse_problem("head_dim=64,heads=8/2,batch=1,seqlen=10"));
  const KernelSpec b = spec_of(parse_problem("head_dim=64,heads=32/8,batch=5,seqlen_q=1,seqlen_kv=99,scale=2"));
  EXPECT_EQ(to_text(a), to_text(b));
  EXPECT_NE(to_text(a), to_text(spec_of(parse_problem("head_dim=64,heads=8/4,seqlen=10"))));
}

TEST(KernelSpec, RightWindowOfCausalIsTheDiagonal) {
  const auto text = [](const char* p) { return to_text(spec_of(parse_problem(p))); };
  EXPECT_EQ(text("seqlen=8,mask=causal_top_left,window=4:0"), text("seqlen=8,mask=causal_top_left,window=4:7"));
  EXPECT_NE(text("seqlen=8,mask=none,window=4:0"), text("seqlen=8,mask=none,window=4:7"));
}

TEST(Shape, BucketsRoundUpToPowersOfTwo) {
  EXPECT_EQ(bucket_of(Shape{2, 1025, 2048, 32, 8}), bucket_of(Shape{2, 2048, 2000, 32, 8}));
  EXPECT_NE(bucket_of(Shape{2, 1024, 2048, 32, 8}), bucket_of(Shape{2, 2048, 2000, 32, 8}));
}

}  // namespace
}  // namespace attune
