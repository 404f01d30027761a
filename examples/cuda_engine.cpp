// SPDX-License-Identifier: Apache-2.0
// An engine's loop on a GPU: prompts of many lengths in one call, then 100 decode steps in one CUDA
// graph. Made-up data: keys are 0, values 0 to 3, so o is the mean of the values that a row sees.
#include <cuda_runtime.h>
#include <attune/attune.hpp>
#include <cmath>
#include <cstdio>
#include <vector>
constexpr int kRequests = 4, kDim = 128, kHeads = 32, kPage = 16, kSteps = 100, kPagesEach = 50;
constexpr int kPrompt[kRequests] = {700, 33, 260, 1}, kRow = 8 * kDim, kPages = 200;
static void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}
template <class T>
static T* on_device(const std::vector<T>& host) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, sizeof(T) * host.size() + 256));
  check(cudaMemcpy(memory, host.data(), sizeof(T) * host.size(), cudaMemcpyHostToDevice));
  return static_cast<T*>(memory);
}
static uint16_t* zeros(std::size_t count) { return on_device(std::vector<uint16_t>(count)); }
static bool is_mean(const uint16_t* row, int keys) {
  float mean = 0, found = 0;  // bf16 is the upper half of a float
  for (int i = 0; i < keys; ++i) mean += float(i % 4) / float(keys);
  check(cudaMemcpy(reinterpret_cast<char*>(&found) + 2, row, 2, cudaMemcpyDeviceToHost));
  return std::abs(found - mean) < 0.02f;
}
int main() try {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream));  // makes the context that attune finds
  const attune::Context context;
  const std::string text =
      "op=kvcache,dtype=bf16,head_dim=128,heads=32/8,batch=4,page_size=16,seqlen_kv=800,";
  const attune::Problem prompts(text + "seqlen_q=700,packed_q=1,mask=causal_bottom_right"),
      steps(text + "seqlen_q=1");
  std::vector<int> begins{0}, table, lengths(kPrompt, kPrompt + kRequests);  // then of steps
  for (int i = 0; i < kSteps * kRequests; ++i) lengths.push_back(lengths[std::size_t(i)] + 1);
  for (const int rows : kPrompt) begins.push_back(begins.back() + rows);
  for (int i = 0; i < kPages; ++i) table.push_back(i * 37 % kPages);
  const auto row_of = [](uint16_t value) { return on_device(std::vector<uint16_t>(kRow, value)); };
  uint16_t* const made[] = {row_of(0), row_of(0x3f80), row_of(0x4000), row_of(0x4040)};  // of V
  uint16_t *const o = zeros(1000 * kHeads * kDim), *const v = zeros(kPages * kPage * kRow);
  void *const q = zeros(1000 * kHeads * kDim), *const k = zeros(kPages * kPage * kRow);
  attune_cache_operands cache{sizeof cache, on_device(lengths), on_device(begins), on_device(table),
                              kPagesEach};
  const auto append = [&](int request, int at) {
    const int page = table[std::size_t(request * kPagesEach + at / kPage)];
    check(cudaMemcpyAsync(v + (page * kPage + at % kPage) * kRow, made[at % 4], 2 * kRow,
                          cudaMemcpyDeviceToDevice, stream));
  };
  const auto runner = [&](const attune::Problem& problem) {
    const attune::Plan plan = context.plan(problem);
    void* const workspace = zeros(plan.workspace_bytes());  // so init_workspace is not needed
    return [=, &cache, operands = problem.contiguous(q, k, v, o)]() mutable {
      operands.cache = &cache;
      plan.run(operands, workspace, plan.workspace_bytes(), stream);
    };
  };
  auto prefill = runner(prompts), decode = runner(steps);
  for (int r = 0; r < kRequests; ++r)
    for (int at = 0; at < kPrompt[r]; ++at) append(r, at);
  prefill();
  bool right = is_mean(o + (begins.back() - 2) * kHeads * kDim, kPrompt[2]);
  cache.q_begins = nullptr;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int step = 0; step < kSteps; ++step) {
    for (int r = 0; r < kRequests; ++r) append(r, kPrompt[r] + step);
    cache.kv_lengths += kRequests;
    decode();
  }
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  check(cudaGraphLaunch(executable, stream));
  for (int r = 0; r < kRequests; ++r) right &= is_mean(o + r * kHeads * kDim, kPrompt[r] + kSteps);
  return right ? 0 : 1;
} catch (const std::exception& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
