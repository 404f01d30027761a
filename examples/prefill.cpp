// SPDX-License-Identifier: Apache-2.0
// Attention from C++ on the CPU: bf16 operands in the layout of a fused QKV projection (strided,
// not copied), and the log-sum-exp of each row. Next: bundle.c, to run without compiler and store.
#include <attune/attune.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace {

constexpr int kSeqlen = 300, kHeadsQ = 8, kHeadsKv = 2, kHeadDim = 64;
constexpr int kRow =
    (kHeadsQ + 2 * kHeadsKv) * kHeadDim;  // elements of one token in the fused tensor

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
template <class T>
std::unique_ptr<T[], Free> aligned(std::size_t count) {
  return std::unique_ptr<T[], Free>(
      static_cast<T*>(std::aligned_alloc(256, (count * sizeof(T) + 255) / 256 * 256)));
}

std::uint16_t bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

attune_tensor part(std::uint16_t* qkv, int first_head) {
  return {qkv + first_head * kHeadDim, kSeqlen * kRow, kRow, kHeadDim};
}

}  // namespace

int main() try {
  attune::ContextOptions options;
  options.target = "cpu";
  const attune::Context context(options);

  auto qkv = aligned<std::uint16_t>(kSeqlen * kRow);
  for (int i = 0; i < kSeqlen * kRow; ++i)
    qkv[i] = bf16(std::sin(0.37f * static_cast<float>(i % 7919)));
  auto out = aligned<std::uint16_t>(kSeqlen * kHeadsQ * kHeadDim);
  auto lse = aligned<float>(kSeqlen * kHeadsQ);

  const attune::Problem problem(
      "dtype=bf16,head_dim=64,heads=8/2,batch=1,seqlen=300,mask=causal_bottom_right,window=128:0");
  attune_operands operands = problem.contiguous(nullptr, nullptr, nullptr, out.get(), lse.get());
  operands.q = part(qkv.get(), 0);
  operands.k = part(qkv.get(), kHeadsQ);
  operands.v = part(qkv.get(), kHeadsQ + kHeadsKv);

  const attune::Plan plan = context.plan(problem, &operands);
  std::printf("%s\n%s\n", context.device().c_str(), plan.explain().c_str());
  auto workspace = aligned<char>(plan.workspace_bytes() + 256);
  plan.init_workspace(workspace.get(), plan.workspace_bytes());
  plan.run(operands, workspace.get(), plan.workspace_bytes());

  std::printf("log-sum-exp of the last row, head by head:");
  bool finite = true;
  for (int head = 0; head < kHeadsQ; ++head) {
    const float value = lse[head * kSeqlen + kSeqlen - 1];
    finite = finite && std::isfinite(value);
    std::printf(" %.3f", static_cast<double>(value));
  }
  std::printf("\n");
  return finite ? 0 : 1;
} catch (const attune::Error& error) {
  std::fprintf(stderr, "%s: %s\n", attune_status_name(error.status()), error.what());
  return 1;
}
