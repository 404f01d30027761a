// SPDX-License-Identifier: Apache-2.0
// The loop of a serving engine on a GPU: prompts of different lengths fill a cache of pages in one call, then 100 steps of decoding are
// captured into one CUDA graph and replayed. A step's new keys and values are copied into their pages inside the graph; what a model
// would compute is made up: keys of 0, so that each row of O is the mean of the values that it sees. Next: decode.cpp, for the CPU.
#include <cuda_runtime.h>
#include <attune/attune.hpp>
#include <cmath>
#include <cstdio>
#include <vector>
namespace {
constexpr int kRequests = 4, kHeads = 32, kKvHeads = 8, kDim = 128, kPage = 16, kSteps = 100;
constexpr int kPrompt[kRequests] = {700, 33, 260, 1}, kPagesEach = 50, kRow = kKvHeads * kDim;

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}
template <class T>
T* on_device(const std::vector<T>& host) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, sizeof(T) * host.size() + 256));
  check(cudaMemcpy(memory, host.data(), sizeof(T) * host.size(), cudaMemcpyHostToDevice));
  return static_cast<T*>(memory);
}
uint16_t* zeros(std::size_t count) { return on_device(std::vector<uint16_t>(count)); }
uint16_t bf16(int small) { return uint16_t(std::vector<int>{0, 0x3f80, 0x4000, 0x4040}[small]); }
float value(int position) { return float(position % 4); }  // of V at a position, in every column
bool is_mean(uint16_t got, int keys) {                     // of the values before `keys`
  float sum = 0, o = 0;
  for (int i = 0; i < keys; ++i) sum += value(i);
  const uint32_t bits = uint32_t(got) << 16;
  __builtin_memcpy(&o, &bits, 4);
  return std::abs(o - sum / float(keys)) < 0.01f;
}
}  // namespace

int main() try {
  check(cudaFree(nullptr));  // makes the context that attune finds
  const attune::Context context;
  const std::string cache_text =
      "op=attention_kvcache,dtype=bf16,head_dim=128,heads=32/8,batch=4,page_size=16,seqlen_kv=800,";
  const attune::Problem prompts(cache_text + "seqlen_q=700,packed_q=1,mask=causal_bottom_right");
  const attune::Problem steps(cache_text + "seqlen_q=1");
  std::vector<int> begins{0}, table, lengths(kPrompt, kPrompt + kRequests);
  for (int r = 0; r < kRequests; ++r) begins.push_back(begins[r] + kPrompt[r]);
  for (int i = 0; i < kRequests * kPagesEach; ++i)
    table.push_back(i * 37 % (kRequests * kPagesEach));
  for (int step = 1; step <= kSteps; ++step)  // what each step finds
    for (int r = 0; r < kRequests; ++r) lengths.push_back(kPrompt[r] + step);
  const int rows = begins.back();
  uint16_t *q = zeros(std::size_t(rows) * kHeads * kDim),
           *o = zeros(std::size_t(rows) * kHeads * kDim);
  uint16_t *k = zeros(table.size() * kPage * kRow), *v = zeros(table.size() * kPage * kRow);
  std::vector<uint16_t*> made;  // rows of V as a model would make them
  for (int i = 0; i < 4; ++i) made.push_back(on_device(std::vector<uint16_t>(kRow, bf16(i))));
  attune_cache_operands cache{};
  cache.size = sizeof cache;
  cache.kv_lengths = on_device(lengths);
  cache.q_begins = on_device(begins);
  cache.page_table = on_device(table);
  cache.page_table_stride = kPagesEach;
  cudaStream_t stream;
  check(cudaStreamCreate(&stream));
  const auto append = [&](int r, int position) {
    const int page = table[std::size_t(r * kPagesEach + position / kPage)];
    check(cudaMemcpyAsync(v + (page * kPage + position % kPage) * kRow,
                          made[std::size_t(position % 4)], 2 * kRow, cudaMemcpyDeviceToDevice,
                          stream));
  };
  const auto workspace_of = [&](const attune::Plan& plan) {
    void* memory = zeros(plan.workspace_bytes() / 2 + 1);
    plan.init_workspace(memory, plan.workspace_bytes(), stream);
    return memory;
  };
  const attune::Plan prefill = context.plan(prompts), decode = context.plan(steps);
  void *of_prefill = workspace_of(prefill), *of_decode = workspace_of(decode);
  attune_operands operands = prompts.contiguous(q, k, v, o);
  operands.cache = &cache;
  for (int r = 0; r < kRequests; ++r)
    for (int position = 0; position < kPrompt[r]; ++position) append(r, position);
  prefill.run(operands, of_prefill, prefill.workspace_bytes(), stream);
  std::vector<uint16_t> out(std::size_t(rows) * kHeads * kDim);
  check(cudaMemcpyAsync(out.data(), o, 2 * out.size(), cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));
  for (int r = 0; r < kRequests; ++r)
    if (!is_mean(out[std::size_t(begins[r + 1] - 1) * kHeads * kDim], kPrompt[r])) return 1;

  operands = steps.contiguous(q, k, v, o);
  operands.cache = &cache;
  cache.q_begins = nullptr;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int step = 0; step < kSteps; ++step) {
    for (int r = 0; r < kRequests; ++r) append(r, kPrompt[r] + step);
    cache.kv_lengths += kRequests;
    decode.run(operands, of_decode, decode.workspace_bytes(), stream);
  }
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  check(cudaGraphLaunch(executable, stream));
  check(cudaMemcpyAsync(out.data(), o, 2 * kRequests * kHeads * kDim, cudaMemcpyDeviceToHost,
                        stream));
  check(cudaStreamSynchronize(stream));
  for (int r = 0; r < kRequests; ++r)
    if (!is_mean(out[std::size_t(r * kHeads * kDim)], kPrompt[r] + kSteps)) return 1;
  std::printf("%d rows of prompts by %s, %d steps by %s\n", rows, prefill.info().kernel_template,
              kSteps, decode.info().kernel_template);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
