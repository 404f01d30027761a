// SPDX-License-Identifier: Apache-2.0
// Compiles, loads and launches a config on a device; see device_run.hpp.
#include "tuner/fuzz/device_run.hpp"

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
  std::vector<float> lse(static_cast<size_t>(p.batch * p.num_heads_q * p.seqlen_q),
                         std::numeric_limits<float>::quiet_NaN());
  const DeviceBuffer lse_buffer(*device_, static_cast<int64_t>(lse.size() * sizeof(float)));
  const DeviceBuffer workspace(*device_, plan.workspace_bytes());
  Operands operands;
  operands.q = c.q.view(q->get());
  operands.k = c.k.view(k->get());
  operands.v = c.v.view(v->get());
  operands.o = c.o.view(o->get());
  operands.lse = static_cast<float*>(lse_buffer.get());
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

}  // namespace attune::testing
