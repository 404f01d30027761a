// SPDX-License-Identifier: Apache-2.0
// Training from C++ on the CPU: a layer learns to imitate another one, by a forward that writes
// lse, op attention_backward and gradient descent. Next: attune_gradient_types.h for its operands.
#include <attune/attune.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace {
constexpr int kRows = 96, kHeads = 2, kWidth = kHeads * 16, kSize = kRows * kWidth, kSteps = 40;
const std::string kProblem = "dtype=fp32,head_dim=16,heads=2,seqlen=96,mask=causal_bottom_right";

using Memory = std::shared_ptr<float[]>;
Memory memory(std::size_t count, float value = 0, float step = 0) {
  Memory made(static_cast<float*>(std::aligned_alloc(256, (count / 64 + 1) * 256)), std::free);
  for (std::size_t i = 0; i < count; ++i) made[i] = value * std::sin(step * static_cast<float>(i));
  return made;
}

// Adds factor a b to c [rows, kWidth]; a's element (row, i) is at row * row_stride + i * stride.
void multiply(int rows, int inner, float factor, const float* a, int row_stride, int stride,
              const float* b, float* c) {
  for (int row = 0; row < rows; ++row)
    for (int i = 0; i < inner; ++i)
      for (int j = 0; j < kWidth; ++j)
        c[row * kWidth + j] += factor * a[row * row_stride + i * stride] * b[i * kWidth + j];
}
}  // namespace

int main() try {
  attune::ContextOptions options;
  options.target = "cpu";
  const attune::Context context(options);
  const attune::Problem problem(kProblem), gradients_of("op=attention_backward," + kProblem);
  const attune::Plan forward = context.plan(problem), backward = context.plan(gradients_of);
  const auto run = [](const attune::Plan& plan, const attune_operands& operands) {
    const Memory workspace = memory(plan.workspace_bytes() / 4 + 1);
    plan.init_workspace(workspace.get(), plan.workspace_bytes());
    plan.run(operands, workspace.get(), plan.workspace_bytes());
  };
  const Memory x = memory(kSize, 1, 0.91f), goal = memory(kSize), lse = memory(kRows * kHeads);
  Memory w[3], y[3], dy[3];  // for q, k and v: weights, the tensors, their gradients
  const auto attend = [&](float* out) {
    for (int part = 0; part < 3; ++part) {
      y[part] = memory(kSize), dy[part] = memory(kSize);
      multiply(kRows, kWidth, 1, x.get(), kWidth, 1, w[part].get(), y[part].get());
    }
    const auto operands = problem.contiguous(y[0].get(), y[1].get(), y[2].get(), out, lse.get());
    run(forward, operands);
    return operands;
  };
  for (int i = 0; i < 3; ++i) w[i] = memory(kWidth * kWidth, 0.25f, 0.37f * float(i + 1));
  attend(goal.get());
  for (int i = 0; i < 3; ++i) w[i] = memory(kWidth * kWidth, 0.25f, 0.53f * float(i + 1));
  float first = 0, loss = 0;
  for (int step = 1; step <= kSteps; ++step) {
    const Memory o = memory(kSize), dout = memory(kSize);
    attune_operands operands = attend(o.get());
    loss = 0;
    for (int i = 0; i < kSize; ++i) {
      dout[i] = 2 * (o[i] - goal[i]) / kSize;
      loss += (o[i] - goal[i]) * (o[i] - goal[i]) / kSize;
    }
    const auto given =
        gradients_of.contiguous_gradients(dout.get(), dy[0].get(), dy[1].get(), dy[2].get());
    operands.gradients = &given;
    run(backward, operands);
    for (int i = 0; i < 3; ++i)  // w -= 40 x^T gradient
      multiply(kWidth, kRows, -40, x.get(), 1, kWidth, dy[i].get(), w[i].get());
    if (step == 1) first = loss;
    if (step % 10 == 0) std::printf("step %2d  loss %.6f\n", step, double(loss));
  }
  return loss < 0.5f * first ? 0 : 1;
} catch (const attune::Error& error) {
  std::fprintf(stderr, "%s: %s\n", attune_status_name(error.status()), error.what());
  return 1;
}
