// SPDX-License-Identifier: Apache-2.0
// Strides of packed rows in q, o and lse of attention_kvcache. A call may have fewer rows than its
// problem.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/core/system/error.hpp"
#include "runtime/operands/operand_check.hpp"
#include "runtime/operands/operand_rules.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;

// 3 requests of at most 4 rows, heads 4/2, head dim 64, fp32: addresses are never read.
class PackedOperands : public ::testing::Test {
 protected:
  static void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

  Problem problem_ = parse_problem(
      "op=attention_kvcache,dtype=fp32,head_dim=64,heads=4/2,batch=3,seqlen_q=4,seqlen_kv=16,"
      "packed_q=1,num_pages=4");
  Operands operands_ =
      contiguous_operands(problem_, at(0x10000), at(0x20000), at(0x30000), at(0x40000), nullptr);

  std::string refusal() const {
    const OperandList list = operands_of(problem_);
    std::string refused = "accepted";
    try {
      check_operands(list, operands_);
    } catch (const Error& error) {
      refused = error.what();
    }
    EXPECT_EQ(OperandRules(list).allow(operands_), refused == "accepted");
    return refused;
  }
};

TEST_F(PackedOperands, ASingleRowMayHaveTheStrideOfTheNextHead) {
  for (OperandView* view : {&operands_.q, &operands_.o}) {
    *view = {view->data, 0, 64, 64};  // [heads, 1 row, head_dim]
    EXPECT_EQ(refusal(), "accepted");
    *view = {view->data, 0, 64, 128};  // [heads, 2 rows, head_dim]
    EXPECT_EQ(refusal(), "accepted");
    *view = {view->data, 0, 256, 64};
    EXPECT_EQ(refusal(), "accepted");
  }
  operands_.q.head_stride = 32;
  EXPECT_THAT(refusal(), HasSubstr("q.head_stride is 32 elements and overlaps"));
}

TEST_F(PackedOperands, LseHasTheRowsOfTheCall) {
  operands_.lse = static_cast<float*>(at(0x50000));
  EXPECT_EQ(refusal(), "accepted");
  for (const int64_t rows : {1, 5, 12, 20})
    for (const int64_t batch_stride : {int64_t{0}, 4 * rows}) {
      operands_.lse_head_stride = rows, operands_.lse_batch_stride = batch_stride;
      EXPECT_EQ(refusal(), "accepted") << rows;
    }
  operands_.lse_head_stride = 0;
  EXPECT_EQ(refusal(),
            "lse.head_stride is 0; must be at least 1, or both strides 0 for contiguous");
  problem_.cache.packed_q = false;
  operands_ = contiguous_operands(problem_, at(0x10000), at(0x20000), at(0x30000), at(0x40000),
                                  static_cast<float*>(at(0x50000)));
  operands_.lse_head_stride = 3, operands_.lse_batch_stride = 16;
  EXPECT_EQ(refusal(),
            "lse.head_stride is 3 elements and overlaps rows, which spans 4; must be at least 4");
}

}  // namespace
}  // namespace attune
