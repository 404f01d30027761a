// SPDX-License-Identifier: Apache-2.0
// The check runs the kernel of a deterministic problem twice. It refuses the kernel if its result
// depends on former contents of outputs or workspace. The kernels are backward_cpu's with one
// expression changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/core/system/error.hpp"
#include "generator/render/renderer.hpp"
#include "generator/template_registry.hpp"
#include "runtime/engine/device.hpp"
#include "runtime/operands/operands.hpp"
#include "tuner/measure/device_backend.hpp"
#include "tuner/measure/verify.hpp"

namespace attune {
namespace {

using ::testing::MatchesRegex;

struct Change {
  std::string from, to;
};

class TwoRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      device_ = open_device("cpu:2");
    } catch (const Error& error) {
      GTEST_SKIP() << "no CPU target here: " << error.what();
    }
  }

  // Returns the fault of the changed kernel; "" if there is none.
  std::string fault(const std::string& more, const Change& change) const {
    const Problem problem = parse_problem(
        "op=attention_backward,dtype=fp32,head_dim=32,heads=4/2,batch=2,seqlen_q=50,seqlen_kv=70" +
        more);
    const KernelTemplate& t = template_by_name("backward_cpu");
    const KernelSpec spec = spec_of(problem);
    const Arch arch = device_->archs().front();
    const Config config = t.default_config(spec, arch, shape_of(problem), device_->facts());
    Source source = render(t, spec, arch, config);
    const size_t at = source.text.find(change.from);
    EXPECT_NE(at, std::string::npos) << change.from;
    if (at == std::string::npos) return "";
    source.text.replace(at, change.from.size(), change.to);
    DeviceBackend backend(device_);
    backend.open({problem, 1, std::nullopt});
    const Prepared made = backend.prepare(
        0, {std::string(t.name()), config, device_->compiler().compile(source, arch)});
    if (!made.fault) return "";
    EXPECT_EQ(made.fault->status, TrialStatus::kWrongResult);
    return made.fault->reason;
  }

  std::shared_ptr<const Device> device_;
};

// The oracle uses outputs filled with NaN, with which all of these kernels are right.
const Change kOfOutputs = {
    "load<Dtype::kFp32>(sums + c) * factor",
    "load<Dtype::kFp32>(sums + c) * (to[c] == to[c] && c == 16 ? factor * 1.000001f : factor)"};
const Change kOfWorkspace = {"to[0] = lse * 1.44269504f, to[1] = delta",
                             "to[0] = lse * 1.44269504f, to[1] = to[1] == to[1] && to[1] != 0 "
                             "? delta * 1.000001f : delta"};
const Change kNone = {"to[1] = delta", "to[1] = delta"};

TEST_F(TwoRuns, EqualBitsAreRight) {
  for (const char* more : {"", ",deterministic=1", ",deterministic=1,accumulate=1",
                           ",deterministic=1,gradients=q", ",deterministic=1,mask=causal_top_left"})
    EXPECT_EQ(fault(more, kNone), "") << more;
}

// Rows of five numbers begin at multiples of 16 bytes, so they have padding.
TEST_F(TwoRuns, PaddingAfterARowIsIgnored) {
  const Problem problem = parse_problem(
      "op=attention_backward,dtype=fp32,head_dim=32,heads=2,batch=1,seqlen_q=3,seqlen_kv=5,"
      "bias=fp32,score_gradient=bias,deterministic=1");
  Inputs inputs(*device_, 1);
  inputs.open(problem);
  for (const int written : {5, 4}) {
    const auto found = difference_of_two_runs(
        *device_, problem, inputs, [&](const Operands& operands, int /*stale*/) {
          for (const OperandSpec& tensor : operands_of(problem)) {
            if (!tensor.written || kind_of(tensor.role) != OperandKind::kTensor) continue;
            const OperandView view = contiguous_view(tensor);
            ASSERT_GT(view.head_stride, tensor.columns);
            auto* const to = static_cast<float*>((operands.*tensor_of(tensor.role)).data);
            for (int64_t at = 0; at < view.batch_stride * tensor.batch; at += view.head_stride)
              std::fill_n(to + at, written, 1.0F);
          }
        });
    EXPECT_EQ(found.has_value(), written < 5);
  }
}

TEST_F(TwoRuns, ThatDependOnStaleOutputsAreRefused) {
  EXPECT_EQ(fault("", kOfOutputs), "");
  EXPECT_THAT(
      fault(",deterministic=1", kOfOutputs),
      MatchesRegex("two runs on the same inputs give different bits, but deterministic is 1: "
                   "gradients.dk of batch 0, row 0, head 0, element 16 is [-0-9.e]+ "
                   "\\(0x[0-9a-f]{8}\\), then [-0-9.e]+ \\(0x[0-9a-f]{8}\\)"));
}

TEST_F(TwoRuns, ThatDependOnAStaleWorkspaceAreRefused) {
  EXPECT_EQ(fault("", kOfWorkspace), "");
  EXPECT_THAT(
      fault(",deterministic=1", kOfWorkspace),
      MatchesRegex("two runs on the same inputs give different bits, but deterministic is 1: "
                   "gradients.dq of batch 0, row 0, head 0, element .*"));
}

}  // namespace
}  // namespace attune
