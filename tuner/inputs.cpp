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
  int64_t inputs() const { return q + k + v; }
};

SetBytes set_bytes(const Problem& p) {
  const int64_t rows_q = p.batch * p.seqlen_q * p.num_heads_q;
  const int64_t rows_kv = p.batch * p.seqlen_kv * p.num_heads_kv;
  return {aligned(rows_q * p.head_dim_qk * dtype_bytes(p.dtype_q)),
          aligned(rows_kv * p.head_dim_qk * dtype_bytes(p.dtype_kv)),
          aligned(rows_kv * p.head_dim_v * dtype_bytes(p.dtype_kv)),
          aligned(rows_q * p.head_dim_v * dtype_bytes(p.dtype_o))};
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

std::string normal_values(Dtype dtype, int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::string bytes(static_cast<size_t>(count * dtype_bytes(dtype)), '\0');
  for (int64_t i = 0; i < count; ++i) store_element(dtype, bytes.data(), i, normal(random));
  return bytes;
}

int64_t num_rotating_sets(int64_t set_bytes, int64_t l2_bytes) {
  const int64_t wanted = std::min(2 * l2_bytes, kMaxRotatingBytes);
  return std::clamp<int64_t>(wanted / std::max<int64_t>(1, set_bytes) + 1, 1, kMaxSets);
}

void Inputs::open(const Problem& problem) {
  const SetBytes bytes = set_bytes(problem);
  const int64_t count = num_rotating_sets(bytes.inputs() + bytes.o, device_.facts().l2_bytes);
  sets_.clear();
  const int64_t lse_bytes =
      problem.batch * problem.num_heads_q * problem.seqlen_q * static_cast<int64_t>(sizeof(float));
  reserve(problem.dtype_q, count * bytes.inputs(), count * bytes.o, lse_bytes);
  output_set_bytes_ = bytes.o;
  for (int64_t i = 0; i < count; ++i) {
    char* q = inputs_.data() + i * bytes.inputs();
    sets_.push_back(contiguous_operands(problem, q, q + bytes.q, q + bytes.q + bytes.k,
                                        outputs_.data() + i * bytes.o, nullptr));
  }
}

void Inputs::reserve(Dtype dtype, int64_t input_bytes, int64_t output_bytes, int64_t lse_bytes) {
  if (output_bytes > outputs_.bytes()) {
    outputs_ = {};
    outputs_ = DeviceMemory(device_, output_bytes);
  }
  if (lse_bytes > lse_.bytes()) lse_ = DeviceMemory(device_, lse_bytes);
  if (input_bytes <= inputs_.bytes() && dtype == filled_dtype_) return;
  const std::string table = normal_values(dtype, kTableSize, seed_);
  if (input_bytes > inputs_.bytes()) {
    inputs_ = {};
    inputs_ = DeviceMemory(device_, input_bytes);
  }
  filled_dtype_ = dtype;
  const auto period = static_cast<int64_t>(table.size());
  for (int64_t at = 0; at < inputs_.bytes(); at += period)
    device_.copy_to_device(inputs_.data() + at, table.data(),
                           std::min(period, inputs_.bytes() - at));
}

Operands Inputs::poisoned() {
  Operands operands = set(0);
  operands.lse = reinterpret_cast<float*>(lse_.data());
  device_.fill(operands.o.data, kPoison, output_set_bytes_, nullptr);
  device_.fill(operands.lse, kPoison, lse_.bytes(), nullptr);
  return operands;
}

}  // namespace attune
