// SPDX-License-Identifier: Apache-2.0
// The toy op through the C interface: parsed, planned, its operands checked by their own names, run
// on two inputs and two outputs.
#include <gmock/gmock.h>

#include <vector>

#include "attune/attune.h"
#include "generator/compile/cpu_toolchain.hpp"

namespace {

constexpr size_t kCount = 2 * 33 * 3 * 64;

TEST(Toy, RunsThroughTheCInterface) {
  std::string why;
  ASSERT_NE(attune::compiling_toolchain(&why), nullptr)
      << why;  // it is built here, as this test is
  attune_context_options options;
  attune_context_options_init(&options);
  options.target = "cpu:2";
  options.store = "";
  attune_context* context = nullptr;
  ASSERT_EQ(attune_context_create(&options, &context), ATTUNE_OK) << attune_last_error();
  attune_problem problem;
  ASSERT_EQ(
      attune_problem_parse("op=toy,dtype=fp32,head_dim=64,heads=3,batch=2,seqlen=33", &problem),
      ATTUNE_OK)
      << attune_last_error();
  attune_plan* plan = nullptr;
  ASSERT_EQ(attune_plan_get(context, &problem, nullptr, &plan), ATTUNE_OK) << attune_last_error();
  EXPECT_THAT(attune_plan_explain(plan), ::testing::HasSubstr("kernel     toy_cpu"));

  struct alignas(16) Aligned {
    float values[kCount] = {};
  };
  std::vector<Aligned> memory(4);
  for (size_t i = 0; i < kCount; ++i) {
    memory[0].values[i] = static_cast<float>(i);
    memory[1].values[i] = static_cast<float>(i % 7);
  }
  attune_operands operands;
  ASSERT_EQ(attune_operands_contiguous(&problem, memory[0].values, memory[1].values,
                                       memory[2].values, memory[3].values, nullptr, &operands),
            ATTUNE_OK);
  EXPECT_EQ(operands.v.row_stride, 3 * 64);
  ASSERT_EQ(attune_run(plan, &operands, nullptr, 0, nullptr), ATTUNE_OK) << attune_last_error();
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(memory[3].values[i], memory[0].values[i] + memory[1].values[i]) << i;
    ASSERT_EQ(memory[2].values[i], memory[0].values[i] - memory[1].values[i]) << i;
  }

  operands.v.row_stride = 0;
  EXPECT_EQ(attune_run(plan, &operands, nullptr, 0, nullptr), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(),
              ::testing::HasSubstr("difference.row_stride is 0; must be above 0"));
  operands.v.row_stride = 3 * 64;
  operands.k.data = nullptr;
  EXPECT_EQ(attune_run(plan, &operands, nullptr, 0, nullptr), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(), ::testing::HasSubstr("y is a null pointer"));
  attune_plan_release(plan);
  attune_context_destroy(context);
}

}  // namespace
