// SPDX-License-Identifier: Apache-2.0
// See host_run.hpp.
#include "tests/support/host_run.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "generator/renderer.hpp"

namespace attune::testing {
namespace {

// 256-byte aligned, every byte 0xff (NaN), but for the first `zeroed` bytes.
struct Workspace {
  Workspace(int64_t bytes, int64_t zeroed)
      : storage(static_cast<size_t>(bytes) + 256, std::byte{0xff}) {
    const auto address = reinterpret_cast<uintptr_t>(storage.data());
    data = storage.data() + (256 - address % 256) % 256;
    std::memset(data, 0, static_cast<size_t>(zeroed));
  }
  std::vector<std::byte> storage;
  std::byte* data;
};

}  // namespace

HostConfig::HostConfig(const CpuToolchain& toolchain, const Arch& arch,
                       const KernelTemplate& kernel_template, const KernelSpec& spec,
                       const Config& config)
    : template_(kernel_template),
      spec_(spec),
      config_(config),
      image_(toolchain.compiler().compile(render(kernel_template, spec, arch, config), arch)),
      kernel_(toolchain.load(image_.bytes, image_.entry)) {}

HostOutcome HostConfig::run(const AttentionCase& c, int threads) const {
  const Problem& p = c.problem;
  std::vector<std::byte> q = c.q.bytes, k = c.k.bytes, v = c.v.bytes, o = c.o.bytes;
  std::vector<float> lse(static_cast<size_t>(p.batch * p.num_heads_q * p.seqlen_q),
                         std::numeric_limits<float>::quiet_NaN());
  const LaunchPlan plan = template_.launch(spec_, config_, shape_of(p), DeviceFacts{threads, 0});
  Workspace workspace(plan.workspace_bytes, plan.zeroed_bytes);

  std::vector<float> q_scale = c.q_scale.values, k_scale = c.k_scale.values, v_scale = c.v_scale.values;

  ScaledAttentionArgs args{};
  args.q = c.q.view(q.data());
  args.k = c.k.view(k.data());
  args.v = c.v.view(v.data());
  args.o = c.o.view(o.data());
  args.q_scale = c.q_scale.view(q_scale.data());
  args.k_scale = c.k_scale.view(k_scale.data());
  args.v_scale = c.v_scale.view(v_scale.data());
  args.lse = lse.data();
  args.lse_batch_stride = p.num_heads_q * p.seqlen_q;
  args.lse_head_stride = p.seqlen_q;
  args.batch = static_cast<int>(p.batch);
  args.seqlen_q = static_cast<int>(p.seqlen_q);
  args.seqlen_kv = static_cast<int>(p.seqlen_kv);
  args.num_heads_q = p.num_heads_q;
  args.num_heads_kv = p.num_heads_kv;
  args.softmax_scale = p.scale();
  args.softmax_scale_log2 = p.scale() * 1.44269504F;
  args.num_tiles = plan.num_tiles;
  args.workspace = workspace.data;

  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread)
    others.emplace_back(kernel_->function(), &args, thread, threads);
  kernel_->function()(&args, 0, threads);
  for (std::thread& other : others) other.join();

  HostOutcome outcome;
  outcome.result.o = c.read_o(o, &outcome.gaps_intact);
  outcome.result.lse.assign(lse.begin(), lse.end());
  outcome.counters_clear = std::all_of(workspace.data, workspace.data + plan.zeroed_bytes,
                                       [](std::byte b) { return b == std::byte{0}; });
  return outcome;
}

}  // namespace attune::testing
