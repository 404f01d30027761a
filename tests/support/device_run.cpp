// SPDX-License-Identifier: Apache-2.0
// See device_run.hpp.
#include "tests/support/device_run.hpp"

#include <cstring>
#include <limits>

#include "generator/core/error.hpp"
#include "generator/renderer.hpp"
#include "runtime/plan.hpp"

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

template <class T>
T pick(std::mt19937_64& random, std::initializer_list<T> values) {
  return *(values.begin() + static_cast<long>(random() % values.size()));
}

// 8-bit operands with any options.
void draw_narrow(std::mt19937_64& random, Problem* p) {
  p->dtype_kv = pick(random, {Dtype::kE4m3, Dtype::kE4m3, Dtype::kE5m2});
  p->dtype_o = pick(random, {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32});
  p->fp8.accuracy = pick(random, {Accuracy::kAccurate, Accuracy::kFast});
  p->fp8.v_layout = pick(random, {VLayout::kRows, VLayout::kRows, VLayout::kTransposed});
  p->fp8.scale_block_q = pick(random, {0, 0, 16, 64, 128, 208});
  p->fp8.scale_block_kv = pick(random, {0, 0, 16, 64, 128, 176});
}

// Of more than 256 columns: round ones, that of one latent head, and any.
void draw_wide_heads(std::mt19937_64& random, Problem* p) {
  p->head_dim_qk = pick(random, {320, 384, 512, 576, 264 + 8 * static_cast<int>(random() % 40)});
  p->head_dim_v = std::min(p->head_dim_qk, 512);
  if (random() % 3 == 0) p->head_dim_v = 8 * static_cast<int>(2 + random() % 63);
}

// Score features of any kind, one or several.
void draw_scores(std::mt19937_64& random, Problem* p) {
  if (random() % 2 == 0) p->softcap = pick(random, {1.5F, 30.0F, 50.0F});
  const auto tensor = [&] {
    return pick(random, {ScoreTensor::kNone, ScoreTensor::kNone, ScoreTensor::kFp32,
                         ScoreTensor::kBf16, ScoreTensor::kFp16});
  };
  p->bias = tensor();
  p->relative_bias = tensor();
  p->alibi = random() % 3 == 0;
  p->mask_tensor = random() % 4 == 0;
  p->key_lengths = random() % 4 == 0;
  p->prefix = p->mask == Mask::kNone && random() % 3 == 0;
  if (random() % 4 == 0) p->sinks = tensor();
  p->documents = random() % 4 == 0;
  p->chunk = pick(random, {0, 0, 0, 64, 100});
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

Problem random_problem(std::mt19937_64& random, const Device& device,
                       const KernelTemplate& kernel_template) {
  for (;;) {
    Problem p;
    p.dtype_q = p.dtype_kv = p.dtype_o =
        pick(random, {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32, Dtype::kE4m3, Dtype::kE4m3});
    if (is_fp8(p.dtype_q)) draw_narrow(random, &p);
    p.head_dim_qk = 8 * static_cast<int>(2 + random() % 31);
    p.head_dim_v = random() % 3 == 0 ? 8 * static_cast<int>(2 + random() % 31) : p.head_dim_qk;
    if (random() % 2 == 0) p.head_dim_qk = p.head_dim_v = pick<int>(random, {64, 128, 256, 96, 80});
    if (!is_fp8(p) && random() % 4 == 0) draw_wide_heads(random, &p);
    p.num_heads_kv = static_cast<int>(1 + random() % 3);
    p.num_heads_q = p.num_heads_kv * pick(random, {1, 1, 2, 4, 7, 16});
    if (p.num_heads_q > 16) p.num_heads_kv = 1, p.num_heads_q = 16;
    p.mask = pick(random, {Mask::kNone, Mask::kCausalTopLeft, Mask::kCausalBottomRight});
    if (random() % 3 == 0) p.window_left = static_cast<int64_t>(random() % 100);
    if (random() % 5 == 0) p.window_right = static_cast<int64_t>(random() % 60);
    if (random() % 4 == 0) p.softmax_scale = 0.05F + 0.01F * static_cast<float>(random() % 20);
    if (random() % 3 == 0) draw_scores(random, &p);
    for (const Arch& arch : device.archs())
      if (!kernel_template.refuses(spec_of(p), arch)) return p;
  }
}

void draw_lengths(std::mt19937_64& random, const Config& config, Problem* p) {
  const auto length = [&](int64_t tile) {
    switch (random() % 8) {
      case 0:
        return pick<int64_t>(random, {0, 1, 2, 7});
      case 1:
        return tile - 1;
      case 2:
        return tile;
      case 3:
        return tile + 1;
      case 4:
        return 2 * tile + 1;
      default:
        return static_cast<int64_t>(random() % static_cast<uint64_t>(3 * tile)) + 1;
    }
  };
  p->batch = 1 + static_cast<int64_t>(random() % 2);
  const int64_t rows = config.get("block_m", 16) / config.get("pack_heads", 1);
  p->seqlen_q = std::min<int64_t>(length(std::max<int64_t>(rows, 16)), 400);
  p->seqlen_kv =
      random() % 3 == 0
          ? p->seqlen_q
          : std::min<int64_t>(length(std::max<int64_t>(config.get("block_n", 32), 16)), 500);
}

}  // namespace attune::testing
