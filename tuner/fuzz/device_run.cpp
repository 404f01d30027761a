// SPDX-License-Identifier: Apache-2.0
// Compiles, loads and launches a config on a device; see device_run.hpp.
#include "tuner/fuzz/device_run.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "generator/core/system/error.hpp"
#include "generator/render/renderer.hpp"
#include "runtime/engine/plan.hpp"

namespace attune::testing {
namespace {

class DeviceBuffer {
 public:
  DeviceBuffer(const Device& device, int64_t bytes)
      : device_(device), memory_(device.allocate(std::max<int64_t>(bytes, 256))) {}
  ~DeviceBuffer() { device_.release(memory_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  void* get() const { return memory_; }

 private:
  const Device& device_;
  void* memory_;
};

std::unique_ptr<DeviceBuffer> upload(const Device& device, const std::vector<std::byte>& bytes) {
  auto buffer = std::make_unique<DeviceBuffer>(device, static_cast<int64_t>(bytes.size()));
  device.copy_to_device(buffer->get(), bytes.data(), static_cast<int64_t>(bytes.size()));
  return buffer;
}

std::unique_ptr<DeviceBuffer> upload(const Device& device, const HostScale& scale) {
  const auto* bytes = reinterpret_cast<const std::byte*>(scale.values.data());
  return upload(device, std::vector<std::byte>(bytes, bytes + scale.values.size() * sizeof(float)));
}

}  // namespace

Arch arch_for(const Device& device, const KernelTemplate& kernel_template, const KernelSpec& spec) {
  std::string reasons;
  for (const Arch& arch : device.archs()) {
    const auto reason = kernel_template.refuses(spec, arch);
    if (!reason) return arch;
    reasons += arch.name() + ": " + *reason + "; ";
  }
  throw Error(ErrorCode::kUnsupported, reasons);
}

LoadedConfig::LoadedConfig(std::shared_ptr<const Device> device,
                           const KernelTemplate& kernel_template, const KernelSpec& spec,
                           const Config& config)
    : device_(std::move(device)), template_(kernel_template), spec_(spec), config_(config) {
  const Arch arch = arch_for(*device_, template_, spec_);
  image_ = device_->compiler().compile(render(template_, spec_, arch, config_), arch);
  fault_ = image_fault(image_.info).value_or("");
}

RunOutcome LoadedConfig::run(const AttentionCase& c) const {
  const Problem& p = c.problem;
  Plan plan;
  plan.problem = p;
  plan.operands = operands_of(p);
  plan.scores = score_captures(p);
  plan.kernel_template = &template_;
  plan.config = config_;
  plan.device = device_;
  plan.launch = template_.launch(spec_, config_, shape_of(p), device_->facts());
  plan.kernel = device_->load(image_, spec_, template_.structure(spec_, config_));

  const auto q = upload(*device_, c.q.bytes), k = upload(*device_, c.k.bytes),
             v = upload(*device_, c.v.bytes), o = upload(*device_, c.o.bytes);
  const int64_t rows = p.batch * p.num_heads_q * p.seqlen_q;
  std::vector<float> lse(static_cast<size_t>(rows + (p.max_logits ? p.num_heads_q : 0)),
                         std::numeric_limits<float>::quiet_NaN());
  const DeviceBuffer lse_buffer(*device_, static_cast<int64_t>(lse.size() * sizeof(float)));
  const DeviceBuffer workspace(*device_, plan.workspace_bytes());
  Operands operands;
  operands.q = c.q.view(q->get());
  operands.k = c.k.view(k->get());
  operands.v = c.v.view(v->get());
  operands.o = c.o.view(o->get());
  operands.lse = static_cast<float*>(lse_buffer.get());
  if (p.max_logits) operands.o_scale = {operands.lse + rows, 0, 1, 0, 1};
  const auto q_scale = upload(*device_, c.q_scale), k_scale = upload(*device_, c.k_scale),
             v_scale = upload(*device_, c.v_scale);
  operands.q_scale = c.q_scale.view(static_cast<float*>(q_scale->get()));
  operands.k_scale = c.k_scale.view(static_cast<float*>(k_scale->get()));
  operands.v_scale = c.v_scale.view(static_cast<float*>(v_scale->get()));
  std::vector<std::unique_ptr<DeviceBuffer>> captures;
  std::vector<const void*> addresses;
  for (const HostCapture& capture : c.captures) {
    captures.push_back(upload(*device_, capture.bytes));
    addresses.push_back(captures.back()->get());
  }
  const ScoreOperands scores = c.score_operands(addresses);
  operands.scores = &scores;
  init_workspace(plan, workspace.get(), plan.workspace_bytes(), nullptr);

  RunOutcome outcome;
  std::vector<std::byte> first, bytes(c.o.bytes.size());
  for (int repeat = 0; repeat < 2; ++repeat) {
    device_->copy_to_device(o->get(), c.o.bytes.data(), static_cast<int64_t>(c.o.bytes.size()));
    device_->copy_to_device(lse_buffer.get(), lse.data(),
                            static_cast<int64_t>(lse.size() * sizeof(float)));
    attune::run(plan, operands, workspace.get(), plan.workspace_bytes(), nullptr);
    device_->synchronize();
    device_->copy_to_host(bytes.data(), o->get(), static_cast<int64_t>(bytes.size()));
    if (repeat == 0) first = bytes;
  }
  outcome.repeats_bit_equal = first == bytes;
  outcome.result.o = c.read_o(bytes, &outcome.gaps_intact);
  device_->copy_to_host(lse.data(), lse_buffer.get(),
                        static_cast<int64_t>(lse.size() * sizeof(float)));
  outcome.result.lse.assign(lse.begin(), lse.end());
  return outcome;
}

namespace {

constexpr size_t kPooledRows = 64;

// Judges a case again, pooled with other cases that differ in their random numbers: at least three,
// and enough for kPooledRows rows. Called for a case that misses the twin's rule. The twin's errors
// are random too, so one case of a hundred misses the rule by chance; small cases do more often. A
// wrong result stays wrong, because the largest error is not averaged.
std::string verdict_of_more(const LoadedConfig& loaded, const AttentionCase& first,
                            const AttentionResult& result, Arithmetic arithmetic,
                            const Redraw& redraw) {
  const AttentionResult exact = first.oracle();
  Errors kernel = compare(result, exact), twin = compare(first.twin(arithmetic), exact);
  const uint64_t others =
      std::max<uint64_t>(3, kPooledRows / std::max<size_t>(1, exact.lse.size()));
  for (uint64_t seed = 1; seed <= others; ++seed) {
    const AttentionCase more = redraw(seed);
    const AttentionResult oracle = more.oracle();
    kernel = pooled(kernel, compare(loaded.run(more).result, oracle));
    twin = pooled(twin, compare(more.twin(arithmetic), oracle));
  }
  return verdict(kernel, twin, first.problem);
}

}  // namespace

Arithmetic arithmetic_of(const KernelTemplate& kernel_template, Target target) {
  return kernel_template.is_reference() || target == Target::kCpu ? Arithmetic::kFp32
                                                                  : Arithmetic::kKernel;
}

std::string fault_of(const LoadedConfig& loaded, const AttentionCase& test_case,
                     Arithmetic arithmetic, const Redraw& redraw) {
  const RunOutcome outcome = loaded.run(test_case);
  std::string broken = verdict(test_case, outcome.result, arithmetic);
  if (!broken.empty() && judged_by_twin(test_case.problem, arithmetic))
    broken = verdict_of_more(loaded, test_case, outcome.result, arithmetic, redraw);
  if (!broken.empty()) return broken;
  if (!outcome.gaps_intact) return "wrote outside o";
  return outcome.repeats_bit_equal ? "" : "two runs differ";
}

}  // namespace attune::testing
