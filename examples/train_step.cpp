// SPDX-License-Identifier: Apache-2.0
// Training from C++, on the CPU: projections of one attention layer learn what another layer does.
// Each step is a forward that writes lse, a loss, op attention_backward, and plain gradient descent.
// Next: attune_gradient_types.h, for what the backward reads and writes.
#include <attune/attune.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace {

constexpr int kRows = 96, kHeads = 2, kHeadDim = 16, kWidth = kHeads * kHeadDim, kSteps = 40;
constexpr float kRate = 40.0f;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<float[], Free>;
Memory memory(std::size_t count) {
  Memory made(
      static_cast<float*>(std::aligned_alloc(256, (count * sizeof(float) + 511) / 256 * 256)));
  for (std::size_t i = 0; i < count; ++i) made[i] = 0;
  return made;
}

// y [kRows, kWidth] = x [kRows, kWidth] w [kWidth, kWidth]
void project(const float* x, const float* w, float* y) {
  for (int row = 0; row < kRows; ++row)
    for (int to = 0; to < kWidth; ++to) {
      float sum = 0;
      for (int from = 0; from < kWidth; ++from)
        sum += x[row * kWidth + from] * w[from * kWidth + to];
      y[row * kWidth + to] = sum;
    }
}

// w -= kRate x^T dy
void descend(const float* x, const float* dy, float* w) {
  for (int from = 0; from < kWidth; ++from)
    for (int to = 0; to < kWidth; ++to) {
      float sum = 0;
      for (int row = 0; row < kRows; ++row) sum += x[row * kWidth + from] * dy[row * kWidth + to];
      w[from * kWidth + to] -= kRate * sum;
    }
}

// An op of the problem, with its workspace.
struct Op {
  Op(const attune::Context& context, const std::string& name)
      : problem(name + "dtype=fp32,head_dim=16,heads=2,seqlen=96,mask=causal_bottom_right"),
        plan(context.plan(problem)),
        workspace(memory(plan.workspace_bytes() / sizeof(float) + 64)) {
    plan.init_workspace(workspace.get(), plan.workspace_bytes());
  }
  void run(const attune_operands& operands) const {
    plan.run(operands, workspace.get(), plan.workspace_bytes());
  }
  attune::Problem problem;
  attune::Plan plan;
  Memory workspace;
};

struct Layer {
  explicit Layer(float seed) {
    for (int part = 0; part < 3; ++part) {
      weights[part] = memory(kWidth * kWidth), output[part] = memory(kRows * kWidth);
      for (int i = 0; i < kWidth * kWidth; ++i)
        weights[part][i] = 0.25f * std::sin(seed * static_cast<float>((part + 1) * (i + 1)));
    }
  }
  // o and lse of x.
  void forward(const Op& op, const float* x) {
    for (int part = 0; part < 3; ++part) project(x, weights[part].get(), output[part].get());
    op.run(operands(op));
  }
  attune_operands operands(const Op& op) const {
    return op.problem.contiguous(output[0].get(), output[1].get(), output[2].get(), o.get(),
                                 lse.get());
  }
  Memory weights[3], output[3];  // of q, k and v
  Memory o = memory(kRows * kWidth), lse = memory(kRows * kHeads);
};

}  // namespace

int main() try {
  attune::ContextOptions options;
  options.target = "cpu";
  const attune::Context context(options);
  const Op forward(context, ""), backward(context, "op=attention_backward,");
  std::printf("%s\n", backward.plan.explain().c_str());

  Memory x = memory(kRows * kWidth), dout = memory(kRows * kWidth);
  for (int i = 0; i < kRows * kWidth; ++i) x[i] = std::sin(0.91f * static_cast<float>(i % 4099));
  Layer teacher(0.37f), learner(0.53f);
  teacher.forward(forward, x.get());
  Memory gradients[3] = {memory(kRows * kWidth), memory(kRows * kWidth), memory(kRows * kWidth)};

  float first = 0, loss = 0;
  for (int step = 0; step < kSteps; ++step) {
    learner.forward(forward, x.get());
    loss = 0;
    for (int i = 0; i < kRows * kWidth; ++i) {
      const float difference = learner.o[i] - teacher.o[i];
      loss += difference * difference / (kRows * kWidth);
      dout[i] = 2 * difference / (kRows * kWidth);
    }
    attune_operands operands = learner.operands(backward);
    const attune_gradient_operands given = backward.problem.contiguous_gradients(
        dout.get(), gradients[0].get(), gradients[1].get(), gradients[2].get());
    operands.gradients = &given;
    backward.run(operands);
    for (int part = 0; part < 3; ++part)
      descend(x.get(), gradients[part].get(), learner.weights[part].get());
    if (step == 0) first = loss;
    if (step % 10 == 9 || step == 0)
      std::printf("step %2d  loss %.5f\n", step + 1, static_cast<double>(loss));
  }
  return loss < 0.5f * first ? 0 : 1;
} catch (const attune::Error& error) {
  std::fprintf(stderr, "%s: %s\n", attune_status_name(error.status()), error.what());
  return 1;
}
