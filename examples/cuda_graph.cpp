// SPDX-License-Identifier: Apache-2.0
// Attention on a GPU together with the CUDA runtime: attune uses the current context, and a CUDA
// graph captures and replays the launch. Built if the CUDA toolkit is installed; attune itself does
// not need it.
#include <cuda_runtime.h>
#include <attune/attune.hpp>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

void* device_memory(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes + 256));
  return memory;
}

// Returns device memory filled with 1.0 in bf16, so that each output element must be 1.
void* ones(std::size_t count) {
  const std::vector<std::uint16_t> host(count, 0x3f80);
  void* memory = device_memory(2 * count);
  check(cudaMemcpy(memory, host.data(), 2 * count, cudaMemcpyHostToDevice));
  return memory;
}

}  // namespace

int main() try {
  check(cudaFree(nullptr));  // makes the context that attune finds
  attune::ContextOptions options;
  options.target = "cuda";
  const attune::Context context(options);
  const attune::Problem problem(
      "dtype=bf16,head_dim=128,heads=32/8,batch=1,seqlen=4096,mask=causal_bottom_right");
  const attune::Plan plan = context.plan(problem);
  std::printf("%s\n%s\n", context.device().c_str(), plan.explain().c_str());

  const std::size_t q_count = 4096ull * 32 * 128, kv_count = 4096ull * 8 * 128;
  void *q = ones(q_count), *k = ones(kv_count), *v = ones(kv_count),
       *o = device_memory(2 * q_count);
  void* workspace = device_memory(plan.workspace_bytes());
  cudaStream_t stream;
  check(cudaStreamCreate(&stream));
  plan.init_workspace(workspace, plan.workspace_bytes(), stream);

  cudaGraph_t graph;
  cudaGraphExec_t executable;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  plan.run(problem.contiguous(q, k, v, o), workspace, plan.workspace_bytes(), stream);
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 10; ++i) check(cudaGraphLaunch(executable, stream));
  check(cudaStreamSynchronize(stream));

  std::vector<std::uint16_t> out(q_count);
  check(cudaMemcpy(out.data(), o, 2 * q_count, cudaMemcpyDeviceToHost));
  std::size_t wrong = 0;
  for (const std::uint16_t value : out) wrong += value != 0x3f80;
  std::printf("%zu of %zu elements are not 1\n", wrong, out.size());
  return wrong == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
