// SPDX-License-Identifier: Apache-2.0
// Quantises on the host and compares codes; see quantise.hpp.
#include "tuner/oracles/quantise.hpp"
#include "tuner/oracles/oracles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "generator/core/problem/narrow_float.hpp"

namespace attune {
namespace {

constexpr double kSmallest = 0x1p-126;  // smallest factor and smallest magnitude that counts
constexpr double kLargestFp32 = std::numeric_limits<float>::max();
constexpr double kMayDiffer = 0.02;         // share of all codes
constexpr int kMayAlwaysDiffer = 2;         // codes of a block
constexpr double kRotationError = 0x1p-21;  // of fp32 sums, in units of the row's RMS

// Returns the finite magnitudes of an 8-bit type, indexed by code.
std::vector<double> magnitudes_of(Dtype dtype) {
  std::vector<double> values;
  for (int code = 0; code < 128; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    const double value = load_element(dtype, &byte, 0);
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

// Returns the nearest code; the even one if two are equally near. Returns the last code for a
// magnitude beyond the table.
int nearest_code(const std::vector<double>& table, double magnitude) {
  const auto above = std::lower_bound(table.begin(), table.end(), magnitude);
  if (above == table.end()) return static_cast<int>(table.size()) - 1;
  const int code = static_cast<int>(above - table.begin());
  if (code == 0) return 0;
  const double middle = (table[static_cast<size_t>(code) - 1] + *above) / 2;
  if (magnitude == middle) return code % 2 == 0 ? code : code - 1;
  return magnitude < middle ? code - 1 : code;
}

// Multiplies the row by Sylvester's Hadamard matrix, in place.
void rotate(std::vector<double>* row) {
  const size_t size = row->size();
  for (size_t bit = 1; bit < size; bit *= 2)
    for (size_t i = 0; i < size; ++i) {
      if ((i & bit) != 0) continue;
      const double low = (*row)[i], high = (*row)[i | bit];
      (*row)[i] = low + high;
      (*row)[i | bit] = low - high;
    }
  for (double& value : *row) value /= std::sqrt(static_cast<double>(size));
}

// Returns the RMS of the finite values, over all values.
double rms(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::isfinite(value) ? value * value : 0;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

struct Block {
  int64_t batch, head, index, begin, end;
};

class QuantiseCheck {
 public:
  QuantiseCheck(const Problem& problem, const Operands& host)
      : problem_(problem), host_(host), table_(magnitudes_of(problem.dtype_o)) {}

  void add(const Block& block) {
    std::vector<std::vector<double>> rows;
    double largest = 0;
    for (int64_t row = block.begin; row < block.end; ++row) {
      rows.push_back(rotated_row(problem_, host_, block.batch, block.head, row));
      for (const double value : rows.back())
        if (std::fabs(value) <= kLargestFp32) largest = std::max(largest, std::fabs(value));
    }
    const double factor = check_factor(block, largest);
    const int64_t step = std::max<int64_t>(1, (block.end - block.begin) / kCheckedRows);
    for (int64_t row = block.begin; row < block.end; row += step)
      check_row(block, row, rows[static_cast<size_t>(row - block.begin)], factor);
    blocks_ += 1;
  }

  CheckError result() const {
    const auto allowed = kMayDiffer * static_cast<double>(elements_) +
                         static_cast<double>(kMayAlwaysDiffer * blocks_);
    CheckError error{max_, elements_ == 0 ? 0 : static_cast<double>(differ_) / allowed, wrong_};
    if (!error.wrong && error.mean > 1)
      error.wrong = fmt::format("{} of {} codes are not the nearest ones", differ_, elements_);
    return error;
  }

 private:
  double check_factor(const Block& block, double largest) {
    const ScaleView& scale = host_.o_scale;
    const double got = static_cast<double>(
        scale.data[block.batch * scale.batch_stride + block.head * scale.head_stride +
                   block.index * scale.block_stride]);
    const double want = largest < kSmallest ? 1.0 : std::max(largest / table_.back(), kSmallest);
    const double allowed = problem_.quantise.rotation == Rotation::kNone ? 1e-6 : 2e-6;
    if (!(std::fabs(got - want) <= allowed * want))
      blame(fmt::format("the factor of batch {}, head {}, block {} is {}; it should be {}",
                        block.batch, block.head, block.index, got, want));
    return got;
  }

  uint8_t code_at(const Block& block, int64_t row, int64_t column) const {
    const bool turned = problem_.fp8.v_layout == VLayout::kTransposed;
    const int64_t line = turned ? column : row;
    const int64_t within = turned ? row : column;
    return static_cast<const uint8_t*>(
        host_.o.data)[block.batch * host_.o.batch_stride + block.head * host_.o.head_stride +
                      line * host_.o.row_stride + within];
  }

  void check_row(const Block& block, int64_t row, const std::vector<double>& values,
                 double factor) {
    const double slack =
        problem_.quantise.rotation == Rotation::kNone ? 0 : kRotationError * rms(values);
    for (size_t i = 0; i < values.size(); ++i) {
      const uint8_t got = code_at(block, row, static_cast<int64_t>(i));
      ++elements_;
      const double off = distance(values[i], slack, factor, got);
      if (off > 0) ++differ_;
      max_ = std::max(max_, off);
      if (off > 1)
        blame(
            fmt::format("the code of batch {}, head {}, row {}, column {} is {:#04x}; the value "
                        "is {} and the factor {}",
                        block.batch, block.head, row, i, got, values[i], factor));
    }
  }

  // Returns how many codes `got` is away from the nearest codes of value - slack to value + slack.
  // Returns far more than 1 if only `value` or only `got` is NaN.
  double distance(double value, double slack, double factor, uint8_t got) const {
    constexpr double kFar = 1000;
    const int magnitude = got & 0x7f;
    if (std::isnan(value)) return magnitude == 0x7f ? 0 : kFar;
    if (magnitude >= static_cast<int>(table_.size())) return kFar;
    const int place = (got & 0x80) != 0 ? -magnitude : magnitude;
    return std::max({0, signed_code((value - slack) / factor) - place,
                     place - signed_code((value + slack) / factor)});
  }

  int signed_code(double value) const {
    const int code = nearest_code(table_, std::fabs(value));
    return value < 0 ? -code : code;
  }

  void blame(std::string sentence) {
    if (!wrong_) wrong_ = std::move(sentence);
  }

  const Problem& problem_;
  const Operands& host_;
  const std::vector<double> table_;
  int64_t blocks_ = 0, elements_ = 0, differ_ = 0;
  double max_ = 0;
  std::optional<std::string> wrong_;
};

}  // namespace

std::vector<double> rotated_row(const Problem& p, const Operands& host, int64_t batch, int64_t head,
                                int64_t row) {
  std::vector<double> values(static_cast<size_t>(p.head_dim_qk));
  const int64_t first =
      batch * host.q.batch_stride + head * host.q.head_stride + row * host.q.row_stride;
  for (int64_t i = 0; i < p.head_dim_qk; ++i) {
    const double value = load_element(p.dtype_q, host.q.data, first + i);
    values[static_cast<size_t>(i)] =
        std::fabs(value) < kSmallest ? std::copysign(0.0, value) : value;
  }
  if (p.quantise.rotation == Rotation::kHadamard) rotate(&values);
  return values;
}

namespace {

// A copy of one block of rows of one batch. If o is transposed, the copy contains o of the whole
// batch.
class HostBlock {
 public:
  HostBlock(const Device& device, const Problem& p, const Operands& from, int64_t batch,
            int64_t begin, int64_t end)
      : problem_(p), host_(from) {
    const bool turned = p.fp8.v_layout == VLayout::kTransposed;
    const int64_t q_at = batch * from.q.batch_stride + begin * from.q.row_stride;
    copy(device, from.q.data, q_at * dtype_bytes(p.dtype_q),
         (end - begin) * from.q.row_stride * dtype_bytes(p.dtype_q), &q_);
    const int64_t o_at = batch * from.o.batch_stride + (turned ? 0 : begin * from.o.row_stride);
    copy(device, from.o.data, o_at,
         turned ? from.o.batch_stride : (end - begin) * from.o.row_stride, &o_);
    problem_.batch = 1;
    problem_.num_heads_q = problem_.num_heads_kv = 1;
    problem_.seqlen_q = problem_.seqlen_kv = end - begin;
    o_offset_ = turned ? begin : 0;
  }

  CheckError check(const Device& device, int64_t batch, int64_t head, int64_t block) {
    float factor = 0;
    const ScaleView& scale = host_.o_scale;
    device.copy_to_host(&factor,
                        scale.data + batch * scale.batch_stride + head * scale.head_stride +
                            block * scale.block_stride,
                        sizeof factor);
    Operands part = host_;
    part.q.data = q_.data() + head * part.q.head_stride * dtype_bytes(problem_.dtype_q);
    part.o.data = o_.data() + head * part.o.head_stride + o_offset_;
    part.o_scale = {&factor, 0, 0, 0, 1};
    return check_quantised(problem_, part);
  }

 private:
  static void copy(const Device& device, const void* from, int64_t begin, int64_t bytes,
                   std::string* to) {
    to->resize(static_cast<size_t>(bytes));
    device.copy_to_host(to->data(), static_cast<const char*>(from) + begin, bytes);
  }

  Problem problem_;
  Operands host_;
  std::string q_, o_;
  int64_t o_offset_;
};

}  // namespace

CheckError check_quantised(const Device& device, const Problem& p, const Operands& operands) {
  CheckError worst;
  if (p.batch == 0 || p.seqlen_q == 0) return worst;
  const int64_t rows = p.fp8.scale_block_q > 0 ? p.fp8.scale_block_q : p.seqlen_q;
  const int64_t blocks = (p.seqlen_q + rows - 1) / rows;
  for (int i = 0; i < 3; ++i) {
    const auto place = [i](int64_t count) { return i * (count - 1) / 2; };
    const int64_t batch = place(p.batch), head = place(p.num_heads_q), block = place(blocks);
    const int64_t begin = block * rows;
    HostBlock host(device, p, operands, batch, begin, std::min(begin + rows, p.seqlen_q));
    const CheckError error = host.check(device, batch, head, block);
    worst.max = std::max(worst.max, error.max);
    worst.mean = std::max(worst.mean, error.mean);
    if (error.wrong && !worst.wrong)
      worst.wrong = fmt::format("in the slice of batch {}, head {}, block {}: {}", batch, head,
                                block, *error.wrong);
  }
  return worst;
}

CheckError check_quantised(const Problem& p, const Operands& host) {
  QuantiseCheck check(p, host);
  const int64_t rows = p.fp8.scale_block_q > 0 ? p.fp8.scale_block_q : p.seqlen_q;
  for (int64_t batch = 0; batch < p.batch; ++batch)
    for (int64_t head = 0; head < p.num_heads_q; ++head)
      for (int64_t begin = 0; begin < p.seqlen_q; begin += rows)
        check.add({batch, head, begin / rows, begin, std::min(begin + rows, p.seqlen_q)});
  return check.result();
}

namespace {

class QuantiseExpectation final : public Expectation {
 public:
  explicit QuantiseExpectation(const OracleBench& bench) : bench_(bench) {}

  CheckError check(const std::function<void(const Operands&)>& launch) override {
    const Operands operands = bench_.inputs.poisoned();
    launch(operands);
    return check_quantised(bench_.device, bench_.problem, operands);
  }

 private:
  const OracleBench bench_;
};

class QuantiseOracle final : public Oracle {
 public:
  Op op() const override { return Op::kQuantise; }
  std::unique_ptr<Expectation> expect(const OracleBench& bench) const override {
    return std::make_unique<QuantiseExpectation>(bench);
  }
};

}  // namespace

const Oracle& quantise_oracle() {
  static const QuantiseOracle instance;
  return instance;
}

}  // namespace attune
