// SPDX-License-Identifier: Apache-2.0
// Decoding from C++, on the CPU: three requests grow by a token a step in a cache of pages, which are handed out as they are needed.
// One plan serves all steps. Next: attune_cache_types.h, for what a call says of its cache.
#include <attune/attune.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>
namespace {
constexpr int kRequests = 3, kHeads = 8, kKvHeads = 2, kDim = 64, kPage = 16, kLongest = 64;
constexpr int kPagesEach = kLongest / kPage, kPages = kRequests * kPagesEach, kSteps = 40;

using Memory = std::shared_ptr<float[]>;
Memory memory(std::size_t count) {
  Memory made(static_cast<float*>(std::aligned_alloc(256, (count / 64 + 1) * 256)), std::free);
  for (std::size_t i = 0; i < count; ++i) made[i] = 0;
  return made;
}
// What a model would compute of its newest token.
float sample(int request, int step, int i) {
  return std::sin(0.37f * float(i) + 0.11f * float(step + 7 * request));
}
}  // namespace

int main() try {
  attune::ContextOptions options;
  options.target = "cpu";
  const attune::Context context(options);
  attune::Problem problem(
      "op=attention_kvcache,dtype=fp32,head_dim=64,heads=8/"
      "2,batch=3,seqlen_q=1,seqlen_kv=64,page_size=16");
  problem.num_pages = kPages;
  const attune::Plan plan = context.plan(problem);

  const Memory q = memory(kRequests * kHeads * kDim), o = memory(kRequests * kHeads * kDim);
  const Memory k = memory(kPages * kPage * kKvHeads * kDim),
               v = memory(kPages * kPage * kKvHeads * kDim);
  const Memory workspace = memory(plan.workspace_bytes() / 4 + 1);
  plan.init_workspace(workspace.get(), plan.workspace_bytes());
  std::vector<int32_t> lengths{20, 0, 7}, table(kRequests * kPagesEach, -1);
  int next_page = 0;
  const auto append = [&](int request, int position, int step) {
    int32_t& page = table[request * kPagesEach + position / kPage];
    if (page < 0) page = next_page++;  // pages come in the order in which they are asked for
    const int row = (page * kPage + position % kPage) * kKvHeads * kDim;
    for (int i = 0; i < kKvHeads * kDim; ++i) {
      k[row + i] = sample(request, step, i);
      v[row + i] = float(position);  // so that o is the mean position that a head looks at
    }
  };
  for (int request = 0; request < kRequests; ++request)  // the prompts
    for (int position = 0; position < lengths[request]; ++position)
      append(request, position, position);

  attune_cache_operands cache{sizeof cache};
  cache.kv_lengths = lengths.data();
  cache.page_table = table.data();
  cache.page_table_stride = kPagesEach;
  attune_operands operands = problem.contiguous(q.get(), k.get(), v.get(), o.get());
  operands.cache = &cache;
  for (int step = 0; step < kSteps; ++step) {
    for (int request = 0; request < kRequests; ++request) {
      append(request, lengths[request]++, step);
      for (int i = 0; i < kHeads * kDim; ++i)
        q[request * kHeads * kDim + i] = sample(request, step, i % (kKvHeads * kDim));
    }
    plan.run(operands, workspace.get(), plan.workspace_bytes());
    if (step % 10 == 9)
      std::printf("step %2d  %d %d %d keys, heads look at position %.1f %.1f %.1f\n", step + 1,
                  lengths[0], lengths[1], lengths[2], double(o[0]), double(o[kHeads * kDim]),
                  double(o[2 * kHeads * kDim]));
  }
  for (int i = 0; i < kRequests; ++i)
    if (!(o[i * kHeads * kDim] >= 0 && o[i * kHeads * kDim] < float(lengths[i]))) return 1;
  return 0;
} catch (const attune::Error& error) {
  std::fprintf(stderr, "%s: %s\n", attune_status_name(error.status()), error.what());
  return 1;
}
