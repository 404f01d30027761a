// SPDX-License-Identifier: Apache-2.0
// Device buffers for measuring; see inputs.hpp.
#include "tuner/inputs.hpp"

#include <algorithm>
#include <random>
#include <utility>

#include "generator/core/narrow_float.hpp"

namespace attune {
namespace {

constexpr int64_t kAlignment = 256;
// Device memory repeats a table of this many values. It is prime, so that no stride of a tensor is
// a multiple of it: a kernel that reads a wrong row, head or batch reads other numbers.
constexpr int64_t kTableSize = 1048573;
constexpr int64_t kMaxSets = 1024;
constexpr int64_t kMaxRotatingBytes = int64_t{512}
                                      << 20;  // virtual machines report caches of their whole host
constexpr int kPoison = 0xff;                 // every float type reads a run of ones as NaN

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

struct SetBytes {
  int64_t q, k, v, o;
};

int64_t view_bytes(const OperandView& view, int64_t batch, Dtype dtype) {
  return aligned(batch * view.batch_stride * dtype_bytes(dtype));
}

// Of the default layout. The quantise op has no k and v.
SetBytes set_bytes(const Problem& p) {
  const Operands views = contiguous_operands(p, nullptr, nullptr, nullptr, nullptr, nullptr);
  const bool has_kv = p.op == Op::kPrefill;
  return {view_bytes(views.q, p.batch, p.dtype_q),
          has_kv ? view_bytes(views.k, p.batch, p.dtype_kv) : 0,
          has_kv ? view_bytes(views.v, p.batch, p.dtype_kv) : 0,
          view_bytes(views.o, p.batch, p.dtype_o)};
}

}  // namespace

DeviceMemory::DeviceMemory(const Device& device, int64_t bytes)
    : device_(&device), data_(device.allocate(std::max(bytes, kAlignment))), bytes_(bytes) {}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) device_->release(data_);
}

std::string normal_values(Dtype dtype, int64_t count, uint64_t seed, float mean) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::string bytes(static_cast<size_t>(count * dtype_bytes(dtype)), '\0');
  for (int64_t i = 0; i < count; ++i) store_element(dtype, bytes.data(), i, mean + normal(random));
  return bytes;
}

int64_t num_rotating_sets(int64_t set_bytes, int64_t l2_bytes) {
  const int64_t wanted = std::min(2 * l2_bytes, kMaxRotatingBytes);
  return std::clamp<int64_t>(wanted / std::max<int64_t>(1, set_bytes) + 1, 1, kMaxSets);
}

void Inputs::open(const Problem& problem) {
  const SetBytes bytes = set_bytes(problem);
  const int64_t count =
      num_rotating_sets(bytes.q + bytes.k + bytes.v + bytes.o, device_.facts().l2_bytes);
  reserve(problem, count * bytes.q, count * (bytes.k + bytes.v), count * bytes.o);
  output_set_bytes_ = bytes.o;
  open_factors(problem);
  sets_.clear();
  for (int64_t i = 0; i < count; ++i) {
    char* k = kv_.memory.data() + i * (bytes.k + bytes.v);
    Operands set = contiguous_operands(problem, q_.memory.data() + i * bytes.q, k, k + bytes.k,
                                       outputs_.data() + i * bytes.o, nullptr);
    set.q_scale = q_factors_.view;
    set.k_scale = k_factors_.view;
    set.v_scale = v_factors_.view;
    set.o_scale = o_factors_.view;
    sets_.push_back(set);
  }
  if (!is_fp8(problem) || problem.op != Op::kPrefill) return;
  fill(&v_mean_, problem.dtype_kv, bytes.v, seed_ + 5, 1);
  v_with_mean_ = sets_.front().v;
  v_with_mean_.data = v_mean_.memory.data();
}

void Inputs::reserve(const Problem& p, int64_t q_bytes, int64_t kv_bytes, int64_t output_bytes) {
  if (output_bytes > outputs_.bytes()) {
    outputs_ = {};
    outputs_ = DeviceMemory(device_, output_bytes);
  }
  const int64_t lse_bytes =
      p.batch * p.num_heads_q * p.seqlen_q * static_cast<int64_t>(sizeof(float));
  if (lse_bytes > lse_.bytes()) lse_ = DeviceMemory(device_, lse_bytes);
  fill(&q_, p.dtype_q, q_bytes, seed_);
  fill(&kv_, p.dtype_kv, kv_bytes, seed_ + 1);
}

void Inputs::fill(Filled* filled, Dtype dtype, int64_t bytes, uint64_t seed, float mean) const {
  if (bytes <= filled->memory.bytes() && dtype == filled->dtype) return;
  const std::string table = normal_values(dtype, kTableSize, seed, mean);
  if (bytes > filled->memory.bytes()) {
    filled->memory = {};
    filled->memory = DeviceMemory(device_, bytes);
  }
  filled->dtype = dtype;
  const auto period = static_cast<int64_t>(table.size());
  for (int64_t at = 0; at < filled->memory.bytes(); at += period)
    device_.copy_to_device(filled->memory.data() + at, table.data(),
                           std::min(period, filled->memory.bytes() - at));
}

void Inputs::open_factors(const Problem& p) {
  for (Factors* factors : {&q_factors_, &k_factors_, &v_factors_, &o_factors_}) *factors = {};
  if (!is_fp8(p)) return;
  const int ratio = p.num_heads_q / p.num_heads_kv;
  const int per_q = p.fp8.scale_block_q > 0 ? 1 : ratio;
  if (p.op == Op::kQuantise) {
    o_factors_ = make_factors(p.batch, p.num_heads_q, p.seqlen_q, p.fp8.scale_block_q, per_q, 2);
    return;
  }
  q_factors_ = make_factors(p.batch, p.num_heads_q, p.seqlen_q, p.fp8.scale_block_q, per_q, 2);
  k_factors_ = make_factors(p.batch, p.num_heads_kv, p.seqlen_kv, p.fp8.scale_block_kv, 1, 3);
  v_factors_ = make_factors(p.batch, p.num_heads_kv, p.seqlen_kv, p.fp8.scale_block_kv, 1, 4);
}

// [batch, heads, blocks]: a factor for each block of rows, or for each head.
Inputs::Factors Inputs::make_factors(int64_t batch, int heads, int64_t rows, int block,
                                     int heads_per_scale, uint64_t stream) const {
  const int64_t blocks = block > 0 ? std::max<int64_t>(1, (rows + block - 1) / block) : 1;
  const int64_t scaled_heads = heads / heads_per_scale;
  Factors factors;
  factors.host.resize(static_cast<size_t>(batch * scaled_heads * blocks));
  std::mt19937_64 random(seed_ + stream);
  std::uniform_real_distribution<float> factor(0.7F, 1.4F);
  for (float& value : factors.host) value = factor(random);
  const auto bytes = static_cast<int64_t>(factors.host.size() * sizeof(float));
  factors.memory = DeviceMemory(device_, bytes);
  if (bytes > 0) device_.copy_to_device(factors.memory.data(), factors.host.data(), bytes);
  factors.view = {reinterpret_cast<float*>(factors.memory.data()), scaled_heads * blocks, blocks,
                  block > 0 ? 1 : 0, heads_per_scale};
  return factors;
}

float Inputs::q_factor(int64_t batch, int64_t head, int64_t block) const {
  const ScaleView& view = q_factors_.view;
  return q_factors_.host[static_cast<size_t>(batch * view.batch_stride +
                                             head / view.heads_per_scale * view.head_stride +
                                             block * view.block_stride)];
}

Operands Inputs::poisoned() {
  Operands operands = set(0);
  operands.lse = reinterpret_cast<float*>(lse_.data());
  device_.fill(operands.o.data, kPoison, output_set_bytes_, nullptr);
  device_.fill(operands.lse, kPoison, lse_.bytes(), nullptr);
  if (operands.o_scale.data != nullptr)
    device_.fill(operands.o_scale.data, kPoison, o_factors_.memory.bytes(), nullptr);
  return operands;
}

}  // namespace attune
