// SPDX-License-Identifier: Apache-2.0
// Device buffers for measuring; see inputs.hpp.
#include "tuner/measure/inputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <new>
#include <random>
#include <utility>

#include "generator/core/ops/ops.hpp"
#include "generator/core/problem/narrow_float.hpp"
#include "generator/core/system/error.hpp"
#include "runtime/operands/operands.hpp"
#include "templates/shared/latent_rows.h"

namespace attune {
namespace {

constexpr int64_t kAlignment = 256;
// Device memory repeats a table of this many values. The number is prime, so that no stride of a
// tensor is a multiple of it: a kernel that reads a wrong row, head or batch reads other values.
constexpr int64_t kTableSize = 1048573;
constexpr int64_t kMaxSets = 1024;
// An upper limit, because virtual machines report the caches of their whole host.
constexpr int64_t kMaxRotatingBytes = int64_t{512} << 20;
constexpr int kPoison = 0xff;  // every float type reads a run of ones as NaN

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));
constexpr uint64_t kCaptureStream = 200;
constexpr uint64_t kMeanStream = 100;  // seed offset, beside those of each role

// Returns an example value for a scalar that a program declares: a plausible factor for a float, a
// plausible length for an int.
ScoreScalar sample_scalar(score::Type type) {
  ScoreScalar scalar{};
  if (type == score::Type::kFloat)
    scalar.f32 = 0.5F;
  else
    scalar.i32 = type == score::Type::kBool ? 1 : 64;
  return scalar;
}

// Returns the LSE of scores of N(0,1), which q and k of N(0,1) have. With it, the weights P sum to
// about 1.
float usual_lse(const Problem& problem) {
  return std::log(static_cast<float>(std::max<int64_t>(1, keys_of_row(problem, problem)))) + 0.5F;
}

size_t index_of(Role role) { return static_cast<size_t>(role); }
uint64_t stream_of(Role role) { return static_cast<uint64_t>(role); }

// Returns a factor that makes stored codes N(0,1) again. For int8, whole numbers are stored; codes
// of 4 bits reach to about three times the deviation.
float usual_factor(Dtype dtype) {
  return dtype == Dtype::kInt8 ? 1.0F / 32 : is_4_bit(dtype) ? 0.5F : 1.0F;
}

// Returns factors of groups of columns, e4m3.
std::string group_factors(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> factor(0.7F, 1.4F);
  std::string bytes(static_cast<size_t>(count), '\0');
  for (int64_t i = 0; i < count; ++i) store_element(Dtype::kE4m3, bytes.data(), i, factor(random));
  return bytes;
}

// Returns rows that hold their own factors.
std::string latent_values(const Problem& problem, int64_t count, uint64_t seed) {
  const int qk = problem.head_dim_qk, v = problem.head_dim_v;
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> factor(0.7F, 1.4F);
  const int64_t row_bytes = latent_row_bytes(qk, v);
  std::string bytes(static_cast<size_t>(count * row_bytes), '\0');
  for (int64_t at = 0; at < count; ++at) {
    char* const row = bytes.data() + at * row_bytes;
    for (int i = 0; i < v; ++i) store_element(Dtype::kE4m3, row, i, normal(random));
    for (int i = 0; i < v / kLatentFactorColumns; ++i)
      store_element(Dtype::kFp32, row + v, i, factor(random));
    for (int i = 0; i < qk - v; ++i)
      store_element(problem.dtype_q, row + latent_rest_at(v), i, normal(random));
  }
  return bytes;
}

}  // namespace

std::string normal_values(Dtype dtype, int64_t count, uint64_t seed, float mean) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::string bytes(static_cast<size_t>(count * dtype_bytes(dtype)), '\0');
  const float factor = usual_factor(dtype);
  if (is_4_bit(dtype)) count *= 2;
  for (int64_t i = 0; i < count; ++i)
    store_element(dtype, bytes.data(), i, (mean + normal(random)) / factor);
  return bytes;
}

int64_t num_rotating_sets(int64_t set_bytes, int64_t l2_bytes) {
  const int64_t wanted = std::min(2 * l2_bytes, kMaxRotatingBytes);
  return std::clamp<int64_t>(wanted / std::max<int64_t>(1, set_bytes) + 1, 1, kMaxSets);
}

int64_t Inputs::set_bytes(const OperandSpec& tensor) const {
  return aligned(tensor.batch * contiguous_view(tensor).batch_stride * dtype_bytes(tensor.dtype));
}

void Inputs::open(const Problem& problem, bool is_timed) {
  const auto too_large = [&](const char* why) {
    return Error(ErrorCode::kOutOfMemory, fmt::format("the operands of {} take more memory than is "
                                                      "free: {}",
                                                      to_text(problem), why));
  };
  try {
    lay_out(problem, is_timed);
  } catch (const std::bad_alloc&) {
    throw too_large("out of host memory");
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    throw too_large(error.what());
  }
}

void Inputs::lay_out(const Problem& problem, bool is_timed) {
  operands_ = operands_of(problem);
  v_in_k_ = problem.cache.v_in_k;
  int64_t bytes = 0;
  for (const OperandSpec& operand : operands_)
    if (kind_of(operand.role) == OperandKind::kTensor) bytes += set_bytes(operand);
  const int64_t count = is_timed ? num_rotating_sets(bytes, device_.facts().l2_bytes) : 1;
  for (const OperandSpec& operand : operands_) {
    if (kind_of(operand.role) == OperandKind::kTensor)
      open_tensor(problem, operand, count);
    else
      open_rest(problem, operand);
  }
  open_captures(problem);
  cache_.open(device_, problem, seed_);
  sets_.clear();
  for (int64_t i = 0; i < count; ++i) sets_.push_back(make_set(i));
}

// Fills each set with repeats of `table`.
void Inputs::fill_with(const OperandSpec& tensor, int64_t count, const std::string& table) {
  Filled& filled = tensors_[index_of(tensor.role)];
  const int64_t of_set = set_bytes(tensor);
  filled.dtype.reset();
  if (count * of_set > filled.memory.bytes()) {
    filled.memory = {};
    filled.memory = DeviceMemory(device_, count * of_set);
  }
  const auto period = static_cast<int64_t>(table.size());
  for (int64_t set = 0; set < count; ++set)
    for (int64_t at = 0; at < of_set; at += period)
      device_.copy_to_device(filled.memory.data() + set * of_set + at, table.data(),
                             std::min(period, of_set - at));
}

void Inputs::open_tensor(const Problem& problem, const OperandSpec& tensor, int64_t count) {
  if (problem.cache.kv_factors == KvFactors::kLatent && tensor.role == Role::kK)
    return fill_with(
        tensor, count,
        latent_values(problem, kTableSize / tensor.columns, seed_ + stream_of(tensor.role)));
  if (tensor.by_head && !tensor.written)
    return fill_with(tensor, count, group_factors(kTableSize, seed_ + stream_of(tensor.role)));
  const int64_t bytes = count * set_bytes(tensor);
  Filled& filled = tensors_[index_of(tensor.role)];
  if (!tensor.written) return fill(&filled, tensor.dtype, bytes, stream_of(tensor.role));
  filled.dtype.reset();
  if (bytes <= filled.memory.bytes()) return;
  filled.memory = {};
  filled.memory = DeviceMemory(device_, bytes);
}

void Inputs::open_row_sums(const Problem& problem, const OperandSpec& x) {
  Filled& filled = row_sums_[x.role == Role::kDlse ? 1 : 0];
  const int64_t bytes = x.batch * x.heads * x.rows * kFloatBytes;
  if (x.written) {
    if (bytes > filled.memory.bytes()) filled.memory = DeviceMemory(device_, bytes);
    filled.dtype.reset();
    return;
  }
  filled.dtype.reset();  // the mean depends on the problem
  fill(&filled, Dtype::kFp32, bytes, stream_of(x.role),
       x.role == Role::kLse ? usual_lse(problem) : 0);
}

void Inputs::open_rest(const Problem& problem, const OperandSpec& operand) {
  if (kind_of(operand.role) == OperandKind::kRowSums) return open_row_sums(problem, operand);
  Factors& factors = factors_[index_of(operand.role)];
  factors = {};
  if (operand.has_factors()) factors = make_factors(operand);
}

// Makes the captures and scalars. Beyond kTableSize elements, a capture repeats them.
void Inputs::open_captures(const Problem& problem) {
  captures_.clear();
  scores_ = {};
  std::mt19937_64 random(seed_ + kCaptureStream);
  const ScoreCaptures wanted = score_captures(problem);
  for (const score::Scalar& scalar : wanted.scalars)
    scores_.scalars.at(scores_.num_scalars++) = sample_scalar(scalar.type);
  for (const CaptureSpec& capture : wanted.captures) {
    int64_t count = 1;
    for (const int64_t extent : capture.extents) count *= extent;
    const int64_t drawn = std::min(count, kTableSize), size = capture_bytes(capture.type);
    std::string table(static_cast<size_t>(drawn * size), '\0');
    std::vector<int64_t> at(capture.extents.size());
    for (int64_t i = 0; i < drawn; ++i) {
      int64_t rest = i;
      for (size_t axis = at.size(); axis-- > 0; rest /= capture.extents[axis])
        at[axis] = rest % capture.extents[axis];
      store_capture(capture.type, table.data(), i, capture.sample(at, random));
    }
    DeviceMemory memory(device_, count * size);
    for (int64_t i = 0; i < count * size; i += drawn * size)
      device_.copy_to_device(memory.data() + i, table.data(),
                             std::min(drawn * size, count * size - i));
    scores_.add(contiguous_capture(capture, memory.data()));
    captures_.push_back(std::move(memory));
  }
}

void Inputs::set_row_sums(Role role, Operands* set) const {
  if (role == Role::kDlse)
    set->dlse = reinterpret_cast<const float*>(row_sums_[1].memory.data());
  else
    set->lse = reinterpret_cast<float*>(row_sums_[0].memory.data());
}

Operands Inputs::make_set(int64_t index) const {
  Operands set{};
  set.scores = &scores_;
  set.cache = cache_.timed();
  set.lists = cache_.timed_keys();
  set.append = cache_.timed_places();
  for (const OperandSpec& operand : operands_) {
    if (kind_of(operand.role) == OperandKind::kTensor) {
      OperandView& view = set.*tensor_of(operand.role);
      view = contiguous_view(operand);
      view.data = tensors_[index_of(operand.role)].memory.data() + index * set_bytes(operand);
    } else if (kind_of(operand.role) == OperandKind::kFactors) {
      set.*factors_of(operand.role) = factors_[index_of(operand.role)].view;
    } else if (!operand.optional || !operand.written) {
      set_row_sums(operand.role, &set);
    }
  }
  if (v_in_k_) set.v = set.k;
  return set;
}

void Inputs::fill(Filled* filled, Dtype dtype, int64_t bytes, uint64_t stream, float mean) const {
  if (bytes <= filled->memory.bytes() && dtype == filled->dtype) return;
  if (bytes > filled->memory.bytes()) {
    filled->memory = {};
    filled->memory = DeviceMemory(device_, bytes);
  }
  const int64_t elements = (filled->memory.bytes() - 1) / dtype_bytes(dtype) + 1;
  const std::string table =
      normal_values(dtype, std::min(elements, kTableSize), seed_ + stream, mean);
  filled->dtype = dtype;
  const auto period = static_cast<int64_t>(table.size());
  for (int64_t at = 0; at < filled->memory.bytes(); at += period)
    device_.copy_to_device(filled->memory.data() + at, table.data(),
                           std::min(period, filled->memory.bytes() - at));
}

// Returns numbers of keys, of which half are the most, or factors [batch, heads, blocks]: one for
// each block of rows, else one for each head or group of heads.
Inputs::Factors Inputs::make_factors(const OperandSpec& x) const {
  const int64_t blocks = std::max<int64_t>(1, x.blocks());
  const int64_t heads = x.heads / x.heads_per_factor;
  Factors factors;
  factors.host.resize(static_cast<size_t>(x.batch * heads * blocks));
  std::mt19937_64 random(seed_ + stream_of(x.role));
  const float usual = usual_factor(x.dtype);
  std::uniform_real_distribution<float> factor(0.7F * usual, 1.4F * usual);
  std::uniform_int_distribution<int64_t> number(0, std::max<int64_t>(0, 2 * x.most_number));
  for (float& value : factors.host)
    value = x.most_number < 0
                ? factor(random)
                : std::bit_cast<float>(static_cast<int>(std::min(number(random), x.most_number)));
  const auto bytes = static_cast<int64_t>(factors.host.size()) * kFloatBytes;
  factors.memory = DeviceMemory(device_, bytes);
  if (bytes > 0) device_.copy_to_device(factors.memory.data(), factors.host.data(), bytes);
  factors.view = {reinterpret_cast<float*>(factors.memory.data()), x.batch > 1 ? heads * blocks : 0,
                  blocks, x.block > 0 ? 1 : 0, x.heads_per_factor};
  return factors;
}

float Inputs::factor(Role role, int64_t batch, int64_t head, int64_t block) const {
  const Factors& factors = factors_[index_of(role)];
  const ScaleView& view = factors.view;
  return factors.host[static_cast<size_t>(batch * view.batch_stride +
                                          head / view.heads_per_scale * view.head_stride +
                                          block * view.block_stride)];
}

OperandView Inputs::with_mean(Role role, float mean) {
  for (const OperandSpec& operand : operands_) {
    if (operand.role != role) continue;
    Filled& filled = means_[index_of(role)];
    fill(&filled, operand.dtype, set_bytes(operand), kMeanStream + stream_of(role), mean);
    OperandView view = contiguous_view(operand);
    view.data = filled.memory.data();
    return view;
  }
  throw Error(ErrorCode::kInternal, "with_mean is called for a tensor that the op does not have");
}

Operands Inputs::poisoned() { return with_outputs_of(kPoison); }

Operands Inputs::with_outputs_of(int byte) {
  Operands operands = set(0);
  operands.cache = cache_.checked();
  operands.lists = cache_.checked_keys();
  operands.append = nullptr;
  for (const OperandSpec& operand : operands_) {
    if (!operand.written) continue;
    switch (kind_of(operand.role)) {
      case OperandKind::kTensor:
        device_.fill((operands.*tensor_of(operand.role)).data, byte, set_bytes(operand), nullptr);
        break;
      case OperandKind::kRowSums:
        set_row_sums(operand.role, &operands);
        device_.fill(operands.lse, byte, row_sums_[0].memory.bytes(), nullptr);
        break;
      case OperandKind::kFactors:
        device_.fill((operands.*factors_of(operand.role)).data, byte,
                     factors_[index_of(operand.role)].memory.bytes(), nullptr);
        break;
    }
  }
  return operands;
}

}  // namespace attune
