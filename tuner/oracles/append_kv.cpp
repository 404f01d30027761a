// SPDX-License-Identifier: Apache-2.0
// The oracle of op append_kv: the expected cache and o, in float64 on the host, for all rows of all
// heads. Also checks that the kernel writes nothing else. The oracle computes rotation and
// destinations itself. It launches kernels twice: first with lengths and tables, then with explicit
// positions and destinations of rows.
#include "tuner/oracles/oracles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "generator/core/ops/ops.hpp"
#include "generator/core/problem/narrow_float.hpp"
#include "templates/shared/layouts/quantise_layout.h"
#include "tuner/measure/device_memory.hpp"

namespace attune {
namespace {

// A row of a call: its index, its position, and its destination (page below 0: none).
struct Row {
  int64_t batch, row, position, page, key;
};

struct Value {
  double want, magnitude;  // magnitude: of the largest number that was added or subtracted
};

// Returns the distance between neighbours of the type near this value.
double spacing(Dtype dtype, double value) {
  const auto [mantissa, least] = dtype == Dtype::kFp32   ? std::pair{23, -126}
                                 : dtype == Dtype::kBf16 ? std::pair{7, -126}
                                 : dtype == Dtype::kFp16 ? std::pair{10, -14}
                                 : dtype == Dtype::kE4m3 ? std::pair{3, -6}
                                 : dtype == Dtype::kE2m1 ? std::pair{1, 0}
                                                         : std::pair{2, -14};
  if (dtype == Dtype::kInt8 || dtype == Dtype::kInt4) return 1;
  const int exponent = value == 0 ? least : std::max(std::ilogb(value), least);
  return std::ldexp(1.0, exponent - mantissa);
}

constexpr int64_t kBytesAtOnce = int64_t{16} << 20;

// True if all bytes are those that fill outputs before a check.
bool is_poison(const char* bytes, int64_t count) {
  return bytes[0] == '\xff' && std::memcmp(bytes, bytes + 1, static_cast<size_t>(count - 1)) == 0;
}

class AppendExpectation final : public Expectation {
 public:
  explicit AppendExpectation(const OracleBench& bench)
      : bench_(bench), problem_(bench.problem), operands_(operands_of(problem_)) {
    for (const OperandSpec& operand : operands_)
      if (!operand.written && kind_of(operand.role) == OperandKind::kTensor)
        given_[operand.role] = read(operand);
  }

  CheckError check(const std::function<void(const Operands&)>& launch) override {
    const Operands operands = bench_.inputs.poisoned();
    launch(operands);
    compare(operands, rows_by_lists());
    check_places(launch);
    return {max_, values_ > 0 ? sum_ / static_cast<double>(values_) : 0, wrong_};
  }

 private:
  // [batch, rows, heads, columns]
  struct Tensor {
    OperandSpec spec;
    std::vector<float> values;
    const float* at(int64_t batch, int64_t row, int64_t head) const {
      return values.data() + ((batch * spec.rows + row) * spec.heads + head) * spec.columns;
    }
  };

  Tensor read(const OperandSpec& operand) const {
    Tensor tensor{operand, {}};
    const OperandView& view = bench_.inputs.set(0).*tensor_of(operand.role);
    for (int64_t batch = 0; batch < operand.batch && operand.rows > 0; ++batch) {
      const std::vector<float> rows =
          tensor_rows(bench_.device, operand, view, batch, 0, operand.rows);
      tensor.values.insert(tensor.values.end(), rows.begin(), rows.end());
    }
    return tensor;
  }

  int64_t page_rows() const {
    return problem_.cache.page_size > 0 ? problem_.cache.page_size : problem_.seqlen_kv;
  }

  std::vector<Row> rows_by_lists() const {
    const CacheLists& lists = bench_.inputs.cache();
    std::vector<Row> rows;
    for (int64_t request = 0; request < problem_.batch; ++request) {
      const auto index = static_cast<size_t>(request);
      const int64_t first = problem_.cache.packed_q ? lists.q_begins[index] : 0;
      const int64_t count =
          problem_.cache.packed_q ? lists.q_begins[index + 1] - first : problem_.seqlen_q;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t position = lists.kv_lengths[index] - count + i;
        Row row{problem_.cache.packed_q ? 0 : request, first + i, position, -1, 0};
        if (position >= 0 && problem_.cache.page_size > 0) {
          row.page = lists.page_table[static_cast<size_t>(request * lists.page_table_stride +
                                                          position / problem_.cache.page_size)];
          row.key = position % problem_.cache.page_size;
        } else if (position >= 0) {
          row.page = lists.slots[index];
          row.key = position;
        }
        rows.push_back(row);
      }
    }
    return rows;
  }

  // Checks rows with explicit destinations, in random order; every fifth row has none. Packs as
  // many rows as possible.
  void check_places(const std::function<void(const Operands&)>& launch) {
    const int64_t places = pages_of_cache(problem_) * page_rows();
    const int64_t count = problem_.batch * problem_.seqlen_q;
    if (count == 0 || places < count) return;
    std::mt19937_64 random(count);
    std::vector<int64_t> slots, positions;
    std::vector<Row> rows;
    const int64_t step = places / count;
    for (int64_t i = 0; i < count; ++i) {
      const auto within = static_cast<int64_t>(random() % static_cast<uint64_t>(step));
      const int64_t place = i % 5 == 4 ? -1 : (count - 1 - i) * step + within;
      const auto position =
          static_cast<int64_t>(random() % static_cast<uint64_t>(problem_.seqlen_kv));
      slots.push_back(place);
      positions.push_back(position);
      rows.push_back({problem_.cache.packed_q ? 0 : i / problem_.seqlen_q,
                      problem_.cache.packed_q ? i : i % problem_.seqlen_q, position,
                      place < 0 ? -1 : place / page_rows(), place < 0 ? 0 : place % page_rows()});
    }
    const DeviceMemory device_slots = on_device(slots), device_positions = on_device(positions);
    CacheArgs cache{};
    AppendArgs append{};
    append.positions = device_positions.data();
    append.row_slots = device_slots.data();
    append.index_bytes = sizeof(int64_t);
    append.num_rows = count;
    Operands operands = bench_.inputs.poisoned();
    operands.cache = &cache;
    operands.append = &append;
    launch(operands);
    compare(operands, rows);
  }

  DeviceMemory on_device(const std::vector<int64_t>& list) const {
    const auto bytes = static_cast<int64_t>(list.size() * sizeof(int64_t));
    DeviceMemory memory(bench_.device, bytes);
    bench_.device.copy_to_device(memory.data(), list.data(), bytes);
    return memory;
  }

  bool has_angles(const Row& row) const {
    return problem_.append.rotary != ScoreTensor::kNone && row.position >= 0 &&
           row.position < problem_.seqlen_kv;
  }

  // Returns column `i` of a row of k or q, rotated.
  Value turned(const float* row, int64_t position, int i) const {
    const int columns = turned_columns(problem_, problem_.head_dim_qk), pairs = columns / 2;
    if (i >= columns) return {static_cast<double>(row[i]), 0};
    const bool neighbours = problem_.append.rotary_interleaved;
    const bool second = neighbours ? i % 2 == 1 : i >= pairs;
    const int pair = neighbours ? i / 2 : i % pairs;
    const int other = neighbours ? i ^ 1 : second ? i - pairs : i + pairs;
    const double cos = static_cast<double>(given_.at(Role::kCos).at(0, position, 0)[pair]);
    const double sin = static_cast<double>(given_.at(Role::kSin).at(0, position, 0)[pair]);
    const double own = static_cast<double>(row[i]) * cos;
    const double across = static_cast<double>(row[other]) * sin;
    return {own + (second ? across : -across), std::max(std::abs(own), std::abs(across))};
  }

  void compare(const Operands& operands, const std::vector<Row>& rows) {
    compare_cache(operands, rows, Role::kK, Role::kKScale);
    compare_cache(operands, rows, Role::kV, Role::kVScale);
    if (problem_.append.rotary_q) compare_q(operands, rows);
  }

  const OperandSpec& spec_of_role(Role role) const {
    return *std::find_if(operands_.begin(), operands_.end(),
                         [&](const OperandSpec& operand) { return operand.role == role; });
  }

  // Reads the cache, or its factors, page by page, including all places that no row was written to.
  // Calls take(bytes of a row in a head, row, head), then expects `line` written bytes there.
  template <class Take>
  void each_row(const Operands& operands, const std::vector<Row>& rows, Role role, int64_t line,
                const Take& take) {
    const OperandSpec& cache = spec_of_role(role);
    const OperandView& view = operands.*tensor_of(role);
    const int64_t bytes = dtype_bytes(cache.dtype);
    std::vector<std::vector<const Row*>> of_page(static_cast<size_t>(cache.batch));
    for (const Row& row : rows)
      if (row.page >= 0) of_page[static_cast<size_t>(row.page)].push_back(&row);
    const int64_t page_bytes = view.batch_stride * bytes;
    std::string read;  // several pages, because each copy waits for the device
    for (int64_t number = 0; number < cache.batch && page_bytes > 0; ++number) {
      const int64_t at_once = std::max<int64_t>(kBytesAtOnce / page_bytes, 1);
      if (number % at_once == 0) {
        read.resize(static_cast<size_t>(std::min(at_once, cache.batch - number) * page_bytes));
        bench_.device.copy_to_host(read.data(),
                                   static_cast<const char*>(view.data) + number * page_bytes,
                                   static_cast<int64_t>(read.size()));
      }
      char* const page = read.data() + number % at_once * page_bytes;
      for (const Row* row : of_page[static_cast<size_t>(number)]) {
        for (int head = 0; head < cache.heads; ++head) {
          char* const at = page + (row->key * view.row_stride + head * view.head_stride) * bytes;
          take(at, *row, head);
          std::fill_n(at, line, '\xff');
        }
      }
      if (!is_poison(page, page_bytes))
        blame(fmt::format("page or slot {} of {} is written at a place where no row belongs",
                          number, cache.name));
    }
  }

  std::vector<Value> values_of(Role role, const Row& row, int head) const {
    const float* const from =
        given_.at(role == Role::kK ? Role::kNewK : Role::kNewV).at(row.batch, row.row, head);
    const bool turns = role == Role::kK && problem_.append.rotary != ScoreTensor::kNone;
    std::vector<Value> values;
    for (int i = 0; i < (role == Role::kK ? problem_.head_dim_qk : problem_.head_dim_v); ++i)
      values.push_back(turns ? turned(from, row.position, i)
                             : Value{static_cast<double>(from[i]), 0});
    return values;
  }

  void compare_cache(const Operands& operands, const std::vector<Row>& rows, Role role,
                     Role factors) {
    const OperandSpec& cache = spec_of_role(role);
    const int group = columns_of_factor(problem_.cache.kv_factors);
    std::map<std::pair<const Row*, int>, std::vector<double>> of_groups;
    if (group > 0)
      each_row(operands, rows, role == Role::kK ? Role::kKGroups : Role::kVGroups,
               (role == Role::kK ? problem_.head_dim_qk : problem_.head_dim_v) / group,
               [&](const char* at, const Row& row, int head) {
                 of_groups[{&row, head}] = made_factors(role, at, row, head);
               });
    each_row(operands, rows, role, cache.columns * dtype_bytes(cache.dtype),
             [&](const char* at, const Row& row, int head) {
               const std::vector<Value> values = values_of(role, row, head);
               const double of_row = factor_of(operands, factors, row, head, values);
               for (size_t i = 0; i < values.size(); ++i) {
                 double factor = of_row;
                 if (group > 0)
                   factor *= of_groups.at({&row, head})[i / static_cast<size_t>(group)];
                 const auto share = [&](double value) { return factor == 0 ? 0 : value / factor; };
                 add(cache.name, cache.dtype, {share(values[i].want), share(values[i].magnitude)},
                     load_element(cache.dtype, at, static_cast<int64_t>(i)), row, head,
                     static_cast<int>(i));
               }
             });
  }

  // Returns the factors that the kernel made for a row's groups of columns. Checks that each is the
  // e4m3 nearest to the group's largest magnitude / (largest code * factor of the head).
  std::vector<double> made_factors(Role role, const char* at, const Row& row, int head) {
    const std::vector<Value> values = values_of(role, row, head);
    const auto group = static_cast<size_t>(columns_of_factor(problem_.cache.kv_factors));
    const double of_head = static_cast<double>(
        bench_.inputs.factor(role == Role::kK ? Role::kKScale : Role::kVScale, 0, head, 0));
    const double unit = static_cast<double>(largest_code_value(problem_.dtype_kv)) * of_head;
    std::vector<double> made;
    for (size_t first = 0; first < values.size(); first += group) {
      Value largest{0, 0};
      for (size_t i = first; i < first + group; ++i) {
        largest.want = std::max(largest.want, std::abs(values[i].want));
        largest.magnitude = std::max(largest.magnitude, values[i].magnitude);
      }
      const auto i = static_cast<int64_t>(made.size());
      add(role == Role::kK ? "cache.k_factors" : "cache.v_factors", Dtype::kE4m3,
          {largest.want / unit, largest.magnitude / unit}, load_element(Dtype::kE4m3, at, i), row,
          head, static_cast<int>(i));
      made.push_back(static_cast<double>(load_element(Dtype::kE4m3, at, i)));
    }
    return made;
  }

  // Returns the factor by which the row was divided. If the kernel made it, checks that it follows
  // from the row's largest magnitude, except for rounding.
  double factor_of(const Operands& operands, Role role, const Row& row, int head,
                   const std::vector<Value>& values) {
    if (!is_narrow(problem_.dtype_kv)) return 1.0;
    if (problem_.cache.kv_factors == KvFactors::kHeads ||
        columns_of_factor(problem_.cache.kv_factors) > 0)
      return static_cast<double>(bench_.inputs.factor(role, 0, head, 0));
    if (problem_.cache.kv_factors == KvFactors::kKeys)
      return static_cast<double>(bench_.inputs.factor(role, row.page, head, row.key));
    const ScaleView& view = operands.*factors_of(role);
    float made = 0;
    bench_.device.copy_to_host(&made,
                               view.data + row.page * view.batch_stride +
                                   row.key * view.block_stride +
                                   head / view.heads_per_scale * view.head_stride,
                               sizeof made);
    double largest = 0, rounding = 0;
    for (const Value& value : values) {
      largest = std::max(largest, std::abs(value.want));
      rounding = std::max(rounding, std::max(value.magnitude, std::abs(value.want)));
    }
    const double code = static_cast<double>(largest_code_value(problem_.dtype_kv));
    const double want = std::max(largest / code, 0x1p-126);
    if (!(std::abs(static_cast<double>(made) - want) <= 0x1p-21 * std::max(want, rounding / code)))
      blame(fmt::format("{} is {} and should be {} for page {}, key {}, head {}",
                        role == Role::kKScale ? "k_scale" : "v_scale", made, want, row.page,
                        row.key, head));
    return static_cast<double>(made);
  }

  void compare_q(const Operands& operands, const std::vector<Row>& rows) {
    const OperandSpec& o = spec_of_role(Role::kO);
    for (const Row& row : rows) {
      const std::vector<float> got =
          tensor_rows(bench_.device, o, operands.o, row.batch, row.row, row.row + 1);
      for (int head = 0; head < o.heads; ++head)
        for (int i = 0; i < o.columns; ++i) {
          const float* const from = given_.at(Role::kQ).at(row.batch, row.row, head);
          add(o.name, o.dtype, has_angles(row) ? turned(from, row.position, i) : Value{0, 0},
              got[static_cast<size_t>(head * o.columns + i)], row, head, i);
        }
    }
  }

  // Adds one comparison. Allows half a step of the type, and the rounding of fp32 products.
  void add(const char* name, Dtype dtype, Value value, float got, const Row& row, int head,
           int column) {
    const double largest = is_narrow(dtype) ? static_cast<double>(largest_code_value(dtype))
                                            : std::numeric_limits<double>::max();
    const double lowest = dtype == Dtype::kInt8 ? -largest - 1 : -largest;
    const double want = std::clamp(value.want, lowest, largest);
    const double allowed =
        0.5 * spacing(dtype, want) + 0x1p-22 * std::max(value.magnitude, std::abs(want));
    const double ratio = std::abs(static_cast<double>(got) - want) / allowed;
    ++values_;
    if (ratio <= 1) {
      max_ = std::max(max_, ratio);
      sum_ += ratio;
      return;
    }
    blame(fmt::format("{} is {} and should be {} for row {} of batch entry {}, head {}, column {}",
                      name, got, want, row.row, row.batch, head, column));
    if (std::isfinite(ratio)) max_ = std::max(max_, ratio);
  }

  void blame(const std::string& sentence) {
    if (!wrong_) wrong_ = sentence;
    max_ = std::max(max_, 2.0);
  }

  const OracleBench bench_;
  const Problem& problem_;
  const OperandList operands_;
  std::map<Role, Tensor> given_;
  double max_ = 0, sum_ = 0;
  int64_t values_ = 0;
  std::optional<std::string> wrong_;
};

class AppendKvOracle final : public Oracle {
 public:
  Op op() const override { return Op::kAppendKv; }
  std::unique_ptr<Expectation> expect(const OracleBench& bench) const override {
    return std::make_unique<AppendExpectation>(bench);
  }
};

}  // namespace

const Oracle& append_kv_oracle() {
  static const AppendKvOracle instance;
  return instance;
}

}  // namespace attune
