// SPDX-License-Identifier: Apache-2.0
// The canonical problem shows the same keys to every row. Problems that show the same keys have one
// canonical form.
#include "generator/core/problem/visibility.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <vector>

#include "generator/core/problem/kernel_spec.hpp"

namespace attune {
namespace {

Problem problem(const std::string& text) {
  return parse_problem("dtype=fp32,head_dim=64,heads=4/2," + text);
}

std::string form(const std::string& text) {
  const Problem same = canonical(problem(text));
  const std::string whole = to_text(same);
  return whole.substr(whole.find("mask="));
}

// Returns the first and last visible column per row, {1, 0} for a row that sees none.
std::vector<std::pair<int64_t, int64_t>> seen(const Problem& p) {
  std::vector<std::pair<int64_t, int64_t>> rows;
  for (int64_t row = 0; row < p.seqlen_q; ++row) {
    const KeyInterval<int64_t> keys = visible_keys(p, row);
    rows.emplace_back(keys.last < keys.first ? std::pair<int64_t, int64_t>{1, 0}
                                             : std::pair(keys.first, keys.last));
  }
  return rows;
}

Problem with(Problem p, Mask mask, int64_t left, int64_t right) {
  p.mask = mask;
  p.window_left = left;
  p.window_right = right;
  return p;
}

constexpr Mask kMasks[] = {Mask::kNone, Mask::kCausalTopLeft, Mask::kCausalBottomRight};

// Tries every mask and window at all short lengths: canonical forms are equal exactly if the
// visible columns are.
TEST(Canonical, FormsAreEqualExactlyIfVisibleColumnsAre) {
  constexpr int64_t kLongest = 6;
  for (int64_t rows = 0; rows <= kLongest; ++rows)
    for (int64_t keys = 0; keys <= kLongest; ++keys) {
      std::map<std::vector<std::pair<int64_t, int64_t>>, std::string> forms;
      const Problem base =
          problem("seqlen_q=" + std::to_string(rows) + ",seqlen_kv=" + std::to_string(keys));
      for (const Mask mask : kMasks)
        for (int64_t left = -1; left <= 2 * kLongest + 1; ++left)
          for (int64_t right = -1; right <= 2 * kLongest + 1; ++right) {
            const Problem p = with(base, mask, left, right);
            const Problem same = canonical(p);
            ASSERT_NO_THROW(validate(same)) << to_text(p);
            ASSERT_EQ(seen(same), seen(p)) << to_text(p) << " is not " << to_text(same);
            ASSERT_EQ(canonical(same), same) << to_text(p);
            ASSERT_EQ(forms.emplace(seen(p), to_text(same)).first->second, to_text(same))
                << to_text(p);
          }
    }
}

TEST(Canonical, HoldsForAnyLengths) {
  EXPECT_TRUE(rc::check("the same columns, once and for all", [] {
    Problem p = problem("seqlen=1");
    p.seqlen_q = *rc::gen::inRange<int64_t>(0, 300);
    p.seqlen_kv = *rc::gen::inRange<int64_t>(0, 300);
    const auto window =
        rc::gen::oneOf(rc::gen::just<int64_t>(-1), rc::gen::inRange<int64_t>(0, 400),
                       rc::gen::just<int64_t>(2147418111));
    p = with(p, *rc::gen::elementOf(std::vector<Mask>(std::begin(kMasks), std::end(kMasks))),
             *window, *window);
    const Problem same = canonical(p);
    RC_ASSERT(seen(same) == seen(p));
    RC_ASSERT(canonical(same) == same);
    // A window that hides one key more, or less, is another problem unless neither hides anything.
    for (const int64_t by : {-1, 1})
      if (p.window_left + by >= 0 && p.window_left + by <= 2147418111) {
        const Problem other = with(p, p.mask, p.window_left + by, p.window_right);
        RC_ASSERT((seen(other) == seen(p)) == (canonical(other) == same));
      }
  }));
}

TEST(Canonical, CommonProblemsHaveTheExpectedForms) {
  EXPECT_EQ(form("seqlen=96,mask=causal_top_left"), "mask=causal_bottom_right");
  EXPECT_EQ(form("seqlen=96,mask=causal_bottom_right"), "mask=causal_bottom_right");
  EXPECT_EQ(form("seqlen_q=96,seqlen_kv=97,mask=causal_top_left"), "mask=causal_top_left");
  EXPECT_EQ(form("seqlen=96,mask=causal_top_left,window=7:9"),
            "mask=causal_bottom_right,window=7:-");
  EXPECT_EQ(form("seqlen=96,window=7:0"), "mask=causal_bottom_right,window=7:-");
  EXPECT_EQ(form("seqlen=4096,mask=causal_bottom_right,window=4095:-"), "mask=causal_bottom_right");
  EXPECT_EQ(form("seqlen=4097,mask=causal_bottom_right,window=4095:-"),
            "mask=causal_bottom_right,window=4095:-");
  EXPECT_EQ(form("seqlen=96,window=95:95"), "mask=none");
  EXPECT_EQ(form("seqlen=96,window=94:95"), "mask=none,window=94:-");
  EXPECT_EQ(form("seqlen_q=1,seqlen_kv=500,mask=causal_bottom_right"), "mask=none");
  EXPECT_EQ(form("seqlen_q=1,seqlen_kv=500,mask=causal_bottom_right,window=499:0"), "mask=none");
  EXPECT_EQ(form("seqlen_q=1,seqlen_kv=500,mask=causal_bottom_right,window=100:0"),
            "mask=none,window=100:-");
  EXPECT_EQ(form("seqlen_q=1,seqlen_kv=500,mask=causal_top_left"), "mask=causal_top_left")
      << "it sees one key";
  EXPECT_EQ(form("seqlen_q=0,seqlen_kv=5,mask=causal_top_left,window=1:1"), "mask=none");
  EXPECT_EQ(form("seqlen=9,scale=0.125"), "mask=none") << "1 / sqrt(64)";
  EXPECT_EQ(form("seqlen=9,scale=0.25"), "mask=none,scale=0.25");
}

TEST(Canonical, OtherFieldsStayUnchanged) {
  Problem p = parse_problem(
      "dtype=e4m3,dtype_kv=e5m2,dtype_o=fp16,head_dim_qk=72,head_dim_v=40,heads=4/"
      "2,batch=3,seqlen_q=5,seqlen_kv=9,accuracy=fast,"
      "v_layout=transposed,scale_block_q=16,scale=0.5");
  EXPECT_EQ(canonical(p), p);
  p = parse_problem(
      "op=quantise,dtype=fp32,dtype_o=e4m3,head_dim=64,heads=4,seqlen=9,scale_block=16,rotation="
      "hadamard");
  EXPECT_EQ(canonical(p), p);
}

}  // namespace
}  // namespace attune
