// SPDX-License-Identifier: Apache-2.0
// Decoding from C++ on the CPU: three requests grow by one token per step in a paged cache; keys
// and queries get rotary embeddings. Next: attune_cache_types.h and attune_append_types.h.
#include <attune/attune.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>
namespace {
constexpr int kRequests = 3, kHeads = 8, kKvHeads = 2, kDim = 64, kPage = 16, kLongest = 64;
constexpr int kRow = kKvHeads * kDim;
constexpr int kPagesEach = kLongest / kPage, kPages = kRequests * kPagesEach, kSteps = 40;

using Memory = std::shared_ptr<float[]>;
Memory memory(std::size_t count) {
  Memory made(static_cast<float*>(std::aligned_alloc(256, (count / 64 + 1) * 256)), std::free);
  for (std::size_t i = 0; i < count; ++i) made[i] = 0;
  return made;
}
// Returns made-up values in place of a model's output for its newest token.
float sample(int request, int step, int i) {
  return std::sin(0.37f * float(i) + 0.11f * float(step + 7 * request));
}
}  // namespace

int main() try {
  attune::ContextOptions options;
  options.target = "cpu";
  const attune::Context context(options);
  const std::string of_cache =
      "dtype=fp32,head_dim=64,heads=8/2,batch=3,seqlen_q=1,seqlen_kv=64,page_size=16,num_pages=12";
  const attune::Problem attend("op=attention_kvcache," + of_cache);
  const attune::Problem append("op=append_kv,rotary=fp32,rotary_q=1," + of_cache);
  const attune::Plan attention = context.plan(attend), writing = context.plan(append);

  constexpr int kRowOfQ = kHeads * kDim;
  const Memory q = memory(kRequests * kRowOfQ), o = memory(kRequests * kRowOfQ);
  const Memory k = memory(kPages * kPage * kRow), v = memory(kPages * kPage * kRow);
  const Memory k_new = memory(kRequests * kRow), v_new = memory(kRequests * kRow);
  const Memory cos = memory(kLongest * kDim / 2), sin = memory(kLongest * kDim / 2);
  attune::Rotary(kDim).table(kLongest, cos.get(), sin.get());
  const Memory workspace = memory(attention.workspace_bytes() / 4 + 1);
  attention.init_workspace(workspace.get(), attention.workspace_bytes());
  std::vector<int32_t> lengths{0, 0, 0}, table(kRequests * kPagesEach, -1);
  int next_page = 0;
  attune_cache_operands cache{sizeof cache};
  cache.kv_lengths = lengths.data();
  cache.page_table = table.data();
  cache.page_table_stride = kPagesEach;
  attune_append_operands rows =
      append.contiguous_append(k_new.get(), v_new.get(), cos.get(), sin.get());
  attune_operands written = append.contiguous(q.get(), k.get(), v.get(), q.get());
  attune_operands read = attend.contiguous(q.get(), k.get(), v.get(), o.get());
  written.cache = read.cache = &cache, written.append = &rows;
  for (int step = 0; step < kSteps; ++step) {
    for (int request = 0; request < kRequests; ++request) {
      const int position = lengths[request]++;
      int32_t& page = table[request * kPagesEach + position / kPage];
      if (page < 0) page = next_page++;  // pages are given out in order of need
      for (int i = 0; i < kRowOfQ; ++i) q[request * kRowOfQ + i] = sample(request, step, i % kRow);
      for (int i = 0; i < kRow; ++i) {
        k_new[request * kRow + i] = sample(request, step, i);
        v_new[request * kRow + i] = float(position);  // so o is the mean position of a head
      }
    }
    writing.run(written, nullptr, 0);
    attention.run(read, workspace.get(), attention.workspace_bytes());
    if (step % 10 == 9)
      std::printf("step %2d  heads look at position %.1f %.1f\n", step + 1, double(o[0]),
                  double(o[2 * kRowOfQ]));
  }
  for (int i = 0; i < kRequests; ++i)
    if (!(o[i * kRowOfQ] >= 0 && o[i * kRowOfQ] < float(kSteps))) return 1;
  return 0;
} catch (const attune::Error& error) {
  std::fprintf(stderr, "%s: %s\n", attune_status_name(error.status()), error.what());
  return 1;
}
