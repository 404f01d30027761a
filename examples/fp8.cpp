// SPDX-License-Identifier: Apache-2.0
// 8-bit attention from C++. Quantises q, k and v with one factor per 64 rows, q and k after a
// Hadamard rotation, v transposed. Then runs attention and compares with fp32. On a GPU leave the
// target out, give device memory and a stream, and use bf16 or fp16 for o.
#include <attune/attune.hpp>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr int kSeqlen = 300, kHeadDim = 64, kHeads = 8, kHeadsKv = 2, kBlocks = (kSeqlen + 63) / 64;

struct alignas(256) Line {
  char bytes[256];
};
template <class T>
struct Array {  // aligned as attune needs it
  explicit Array(std::size_t count) : lines(count * sizeof(T) / 256 + 1) {}
  T* data() { return reinterpret_cast<T*>(lines[0].bytes); }
  std::vector<Line> lines;
};

void run(const attune::Context& context, const attune::Problem& problem,
         const attune_operands& operands) {
  const attune::Plan plan = context.plan(problem, &operands);
  Array<char> workspace(plan.workspace_bytes());
  plan.init_workspace(workspace.data(), plan.workspace_bytes());
  plan.run(operands, workspace.data(), plan.workspace_bytes());
}

struct Tensor {
  Tensor(const attune::Context& context, int heads, const std::string& options)
      : values(kSeqlen * heads * kHeadDim),
        codes((kSeqlen + 16) * heads * kHeadDim),
        factors(heads * kBlocks),
        scale(attune::contiguous_scale(factors.data(), heads, kBlocks)) {
    for (int i = 0; i < kSeqlen * heads * kHeadDim; ++i)
      values.data()[i] = std::sin(0.1f * static_cast<float>(i * 7919LL % 104729));
    const attune::Problem problem("op=quantise,dtype=fp32,dtype_o=e4m3,head_dim=64,seqlen=300" +
                                  options + ",scale_block=64,heads=" + std::to_string(heads));
    attune_operands x = problem.contiguous(values.data(), nullptr, nullptr, codes.data());
    x.o_scale = scale;
    run(context, problem, x);
  }
  Array<float> values;
  Array<unsigned char> codes;
  Array<float> factors;
  attune_scale scale;
};

}  // namespace

int main() try {
  attune::ContextOptions options;
  options.target = "cpu";
  const attune::Context context(options);
  Tensor q(context, kHeads, ",rotation=hadamard"), k(context, kHeadsKv, ",rotation=hadamard");
  Tensor v(context, kHeadsKv, ",v_layout=transposed");
  const std::string shape = ",head_dim=64,heads=8/2,seqlen=300,mask=causal_bottom_right";
  const attune::Problem problem8("dtype=e4m3,dtype_o=fp32,scale_block=64,v_layout=transposed" +
                                 shape);
  Array<float> o8(kSeqlen * kHeads * kHeadDim), o(kSeqlen * kHeads * kHeadDim);
  attune_operands x =
      problem8.contiguous(q.codes.data(), k.codes.data(), v.codes.data(), o8.data());
  x.q_scale = q.scale, x.k_scale = k.scale, x.v_scale = v.scale;
  run(context, problem8, x);
  const attune::Problem problem("dtype=fp32" + shape);
  run(context, problem,
      problem.contiguous(q.values.data(), k.values.data(), v.values.data(), o.data()));
  double error = 0, sum = 0;
  for (int i = 0; i < kSeqlen * kHeads * kHeadDim; ++i)
    error += std::pow(o8.data()[i] - o.data()[i], 2), sum += std::pow(o.data()[i], 2);
  std::printf("8 bits against fp32: relative error %.3f\n", std::sqrt(error / sum));
  return error < 0.01 * sum ? 0 : 1;
} catch (const attune::Error& error) {
  return std::fprintf(stderr, "%s: %s\n", attune_status_name(error.status()), error.what()), 1;
}
