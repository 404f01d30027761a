// SPDX-License-Identifier: Apache-2.0
// Compiles and runs CPU kernels between guard pages; see host_run.hpp.
#include "tests/support/host_run.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "generator/render/renderer.hpp"
#include "generator/score/features/score_operands.hpp"
#include "tests/support/tile_emulator.hpp"

namespace attune::testing {
namespace {

std::vector<std::string> entries_of(const LaunchStructure& structure, const std::string& main) {
  std::vector<std::string> entries;
  for (const StepStructure& step : structure.steps) entries.push_back(entry_in(main, step.entry));
  return entries;
}

// Hides the name by which the loader knows a kernel with tiles, so that it does not ask a system
// that has none. The emulator needs no permission.
KernelImage for_emulator(KernelImage image) {
  constexpr std::string_view kName = "attune_needs_tiles";
  const size_t at = TileEmulator::is_on() ? image.bytes.find(kName) : std::string::npos;
  if (at != std::string::npos) image.bytes[at] = '_';
  return image;
}

}  // namespace

HostConfig::HostConfig(const CpuToolchain& toolchain, const Arch& arch,
                       const KernelTemplate& kernel_template, const KernelSpec& spec,
                       const Config& config, const Arch* rendered_for)
    : template_(kernel_template),
      spec_(spec),
      config_(config),
      image_(for_emulator(toolchain.compiler().compile(
          render(kernel_template, spec, rendered_for != nullptr ? *rendered_for : arch, config),
          arch))),
      kernel_(toolchain.load(image_.bytes,
                             entries_of(kernel_template.structure(spec, config), image_.entry))) {}

HostOutcome HostConfig::run(const AttentionCase& c, int threads, Against against,
                            const DropoutArgs& dropout) const {
  const Problem& p = c.problem;
  const auto guarded = [&](const auto& values) {
    return GuardedBuffer(values.data(), values.size() * sizeof(values[0]), 16, against);
  };
  const GuardedBuffer q = guarded(c.q.bytes), k = guarded(c.k.bytes), v = guarded(c.v.bytes),
                      o = guarded(c.o.bytes), q_scale = guarded(c.q_scale.values),
                      k_scale = guarded(c.k_scale.values), v_scale = guarded(c.v_scale.values);
  const int64_t rows = p.batch * p.num_heads_q * p.seqlen_q;
  const int64_t sums = rows + (p.max_logits ? p.num_heads_q : 0);
  const GuardedBuffer lse = guarded(std::vector<float>(static_cast<size_t>(sums), NAN));
  const LaunchPlan plan = template_.launch(spec_, config_, shape_of(p), DeviceFacts{threads, 0});
  // Every byte is 0xff (NaN), except the first `zeroed_bytes`.
  const GuardedBuffer workspace(static_cast<size_t>(plan.workspace_bytes), 256, against);
  std::memset(workspace.as(), 0xff, workspace.size());
  std::memset(workspace.as(), 0, static_cast<size_t>(plan.zeroed_bytes));

  KernelArguments args{};
  args.q = c.q.view(q.as());
  args.k = c.k.view(k.as());
  args.v = c.v.view(v.as());
  args.o = c.o.view(o.as());
  args.scales.q_scale = c.q_scale.view(q_scale.as<float>());
  args.scales.k_scale = c.k_scale.view(k_scale.as<float>());
  args.scales.v_scale = c.v_scale.view(v_scale.as<float>());
  args.lse = lse.as<float>();
  args.scales.o_scale = {args.lse + rows, 0, 1, 0, 1};  // the largest logits
  args.lse_batch_stride = p.num_heads_q * p.seqlen_q;
  args.lse_head_stride = p.seqlen_q;
  args.batch = static_cast<int>(p.batch);
  args.seqlen_q = static_cast<int>(p.seqlen_q);
  args.seqlen_kv = static_cast<int>(p.seqlen_kv);
  args.num_heads_q = p.num_heads_q;
  args.num_heads_kv = p.num_heads_kv;
  args.softmax_scale = p.scale();
  args.softmax_scale_log2 = (has_score_stage(p) ? 1 : p.scale()) * 1.44269504F;
  const ScoreOperands scores = c.score_operands(c.score_data());
  args.scores = score_args(p, score_captures(p), &scores);
  args.dropout = dropout;
  args.workspace = workspace.as();

  plan.each_launch(args, [&](size_t step, KernelArguments& with) {
    std::vector<std::thread> others;
    for (int thread = 1; thread < threads; ++thread)
      others.emplace_back(kernel_->function(step), &with, thread, threads);
    kernel_->function(step)(&with, 0, threads);
    for (std::thread& other : others) other.join();
  });

  HostOutcome outcome;
  outcome.result.o = c.read_o({o.as(), o.as() + o.size()}, &outcome.gaps_intact);
  outcome.result.lse.assign(lse.as<float>(), lse.as<float>() + sums);
  outcome.counters_clear = std::all_of(workspace.as(), workspace.as() + plan.zeroed_bytes,
                                       [](std::byte b) { return b == std::byte{0}; });
  for (const GuardedBuffer* buffer :
       {&q, &k, &v, &o, &q_scale, &k_scale, &v_scale, &lse, &workspace})
    outcome.gaps_intact = outcome.gaps_intact && buffer->intact();
  return outcome;
}

}  // namespace attune::testing
