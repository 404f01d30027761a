// SPDX-License-Identifier: Apache-2.0
// The oracle of op attention_kvcache: float64 on the host, from the definition. For large problems
// it checks only some requests and rows, with all heads. The oracle determines itself which keys a
// row sees.
#include "tuner/oracles/oracles.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "generator/core/problem/narrow_float.hpp"
#include "runtime/engine/plan.hpp"
#include "templates/shared/latent_rows.h"
#include "tuner/oracles/host_scores.hpp"
#include "tuner/oracles/parallel.hpp"

namespace attune {
namespace {

constexpr double kMostFlops = 4e8;  // on the host
constexpr int64_t kFewestRequests = 4, kFewestRows = 6;

struct ExpectedRow {
  RowPlace place;  // in o: batch entry, row, head
  std::vector<float> values;
  float lse;
};

class CacheExpectation final : public Expectation {
 public:
  explicit CacheExpectation(const OracleBench& bench)
      : bench_(bench),
        problem_(bench.problem),
        operands_(operands_of(problem_)),
        lists_(bench.inputs.cache()),
        scores_(bench.device, problem_, bench.inputs.scores()) {
    for (const int64_t request : requests()) expect_request(request);
  }

  CheckError check(const std::function<void(const Operands&)>& launch) override {
    const Operands operands = bench_.inputs.poisoned();
    launch(operands);
    Comparison comparison(problem_, weights_on(bench_.device.target()));
    const OperandSpec& o = spec_of_role(Role::kO);
    std::vector<float> lse(static_cast<size_t>(o.batch * o.heads * o.rows));
    if (!lse.empty())
      bench_.device.copy_to_host(lse.data(), operands.lse,
                                 static_cast<int64_t>(lse.size() * sizeof(float)));
    std::vector<float> got;  // all heads of a row; expected rows of one place follow each other
    RowPlace read{-1, -1, 0};
    for (const ExpectedRow& expected : expected_) {
      const RowPlace& at = expected.place;
      if (at.batch != read.batch || at.row != read.row)
        got = tensor_rows(bench_.device, o, operands.o, at.batch, at.row, at.row + 1);
      read = at;
      comparison.add_row(expected.values.data(), &got[static_cast<size_t>(at.head * o.columns)],
                         static_cast<int>(o.columns), at);
      comparison.add_lse(expected.lse,
                         lse[static_cast<size_t>((at.batch * o.heads + at.head) * o.rows + at.row)],
                         at);
    }
    return comparison.result();
  }

 private:
  // Keys of a request, or of all lists of its rows: [keys, heads, columns], and the factors [keys,
  // heads].
  struct Rows {
    std::vector<float> values;
    int64_t heads, columns;
    std::vector<double> factors = {};
    const float* at(int64_t key, int64_t head) const {
      return values.data() + (key * heads + head) * columns;
    }
    double factor(int64_t key, int64_t head) const {
      return factors[static_cast<size_t>(key * heads + head)];
    }
  };

  const OperandSpec& spec_of_role(Role role) const {
    return *std::find_if(operands_.begin(), operands_.end(),
                         [&](const OperandSpec& operand) { return operand.role == role; });
  }

  // Returns all requests; or the last one and the first ones, which cover all kinds of requests.
  std::vector<int64_t> requests() const {
    const double each = useful_flops(problem_) / static_cast<double>(problem_.batch);
    const auto room = static_cast<int64_t>(kMostFlops / std::max(each, 1.0));
    std::set<int64_t> chosen;
    for (int64_t i = 0; i < std::min(problem_.batch, std::max(room, kFewestRequests)); ++i)
      chosen.insert(i);
    if (problem_.batch > 0) chosen.insert(problem_.batch - 1);
    return {chosen.begin(), chosen.end()};
  }

  bool has_latent_rows() const { return problem_.cache.kv_factors == KvFactors::kLatent; }
  int group() const { return columns_of_factor(problem_.cache.kv_factors); }
  int64_t columns_of(const OperandSpec& tensor) const {
    if (group() == 0 && !has_latent_rows()) return tensor.columns;
    return tensor.role == Role::kK ? problem_.head_dim_qk : problem_.head_dim_v;
  }
  // Returns rows of the cache. Those of K hold their factors with kv_factors=latent.
  std::vector<float> cache_rows(const OperandSpec& tensor, const OperandView& view, int64_t page,
                                int64_t first, int64_t end) const {
    if (group() > 0) return nibble_rows(tensor, view, page, first, end);
    if (!has_latent_rows()) return tensor_rows(bench_.device, tensor, view, page, first, end);
    const OperandSpec& of_k = spec_of_role(Role::kK);
    const std::vector<uint8_t> all = row_bytes(of_k, view, page, first, end);
    std::vector<float> rows;
    for (size_t at = 0; at < all.size(); at += static_cast<size_t>(of_k.columns))
      for (int64_t i = 0; i < columns_of(tensor); ++i)
        rows.push_back(latent_value(all.data() + at, static_cast<size_t>(i)));
    return rows;
  }
  // Returns rows of a 4-bit cache times the factors of their groups of columns.
  std::vector<float> nibble_rows(const OperandSpec& tensor, const OperandView& view, int64_t page,
                                 int64_t first, int64_t end) const {
    const OperandSpec& factors =
        spec_of_role(tensor.role == Role::kK ? Role::kKGroups : Role::kVGroups);
    const std::vector<uint8_t> codes = row_bytes(tensor, view, page, first, end);
    const std::vector<float> of_groups = tensor_rows(
        bench_.device, factors, bench_.inputs.set(0).*tensor_of(factors.role), page, first, end);
    const int64_t columns = columns_of(tensor);
    std::vector<float> rows;
    for (int64_t row = 0; row < (end - first) * tensor.heads; ++row)
      for (int64_t i = 0; i < columns; ++i)
        rows.push_back(load_element(tensor.dtype, codes.data(), row * columns + i) *
                       of_groups[static_cast<size_t>(row * factors.columns + i / group())]);
    return rows;
  }
  // Returns rows as bytes: the values of int8.
  std::vector<uint8_t> row_bytes(OperandSpec tensor, const OperandView& view, int64_t page,
                                 int64_t first, int64_t end) const {
    tensor.dtype = Dtype::kInt8;
    std::vector<uint8_t> bytes;
    for (const float byte : tensor_rows(bench_.device, tensor, view, page, first, end))
      bytes.push_back(to_int8(byte));
    return bytes;
  }
  float latent_value(const uint8_t* row, size_t column) const {
    const auto of_v = static_cast<size_t>(problem_.head_dim_v);
    if (column >= of_v)
      return load_element(problem_.dtype_q, row + latent_rest_at(problem_.head_dim_v),
                          static_cast<int64_t>(column - of_v));
    return from_e4m3(row[column]) *
           load_element(Dtype::kFp32, row + of_v,
                        static_cast<int64_t>(column / kLatentFactorColumns));
  }

  Rows cached(Role role, int64_t request, int64_t length) const {
    const OperandSpec& tensor = spec_of_role(role);
    const OperandView& view = bench_.inputs.set(0).*tensor_of(role);
    Rows all{{}, tensor.heads, columns_of(tensor)};
    if (problem_.cache.packed_kv) {
      const int64_t first = lists_.kv_begins[static_cast<size_t>(request)];
      all.values = cache_rows(tensor, view, 0, first, first + length);
      add_factors(role, 0, first, first + length, &all);
      return all;
    }
    const int64_t step =
        problem_.cache.page_size > 0 ? problem_.cache.page_size : std::max<int64_t>(length, 1);
    const auto page_of = [&](int64_t key) {
      return problem_.cache.page_size > 0 ? lists_.page_table[static_cast<size_t>(
                                                request * lists_.page_table_stride + key / step)]
                                          : lists_.slots[static_cast<size_t>(request)];
    };
    const int64_t of_key = all.heads * all.columns;
    all.values.resize(static_cast<size_t>(length * of_key));
    for_each_index((length + step - 1) / step, [&](int64_t i) {
      const std::vector<float> rows =
          cache_rows(tensor, view, page_of(i * step), 0, std::min(step, length - i * step));
      std::copy(rows.begin(), rows.end(), all.values.begin() + i * step * of_key);
    });
    for (int64_t key = 0; key < length; key += step)
      add_factors(role, page_of(key), 0, std::min(step, length - key), &all);
    return all;
  }

  // Returns the keys at these places of the cache.
  Rows at_places(Role role, const std::vector<int>& places) const {
    const OperandSpec& tensor = spec_of_role(role);
    const OperandView& view = bench_.inputs.set(0).*tensor_of(role);
    Rows all{{}, tensor.heads, columns_of(tensor)};
    const int64_t of_key = all.heads * all.columns;
    all.values.resize(places.size() * static_cast<size_t>(of_key));
    for_each_index(static_cast<int64_t>(places.size()), [&](int64_t i) {
      const int place = places[static_cast<size_t>(i)];
      const std::vector<float> row = cache_rows(tensor, view, place / tensor.rows,
                                                place % tensor.rows, place % tensor.rows + 1);
      std::copy(row.begin(), row.end(), all.values.begin() + i * of_key);
    });
    for (const int place : places)
      add_factors(role, place / tensor.rows, place % tensor.rows, place % tensor.rows + 1, &all);
    return all;
  }

  void add_factors(Role of, int64_t page, int64_t first, int64_t end, Rows* rows) const {
    const Role role = of == Role::kK ? Role::kKScale : Role::kVScale;
    const bool by_key = problem_.cache.kv_factors != KvFactors::kHeads && group() == 0;
    for (int64_t row = first; row < end; ++row)
      for (int64_t head = 0; head < rows->heads; ++head)
        rows->factors.push_back(!is_narrow(problem_.dtype_kv) || has_latent_rows() ? 1.0
                                : by_key ? factor(role, page, head, row)
                                         : factor(role, 0, head, 0));
  }

  void expect_request(int64_t request) {
    const auto index = static_cast<size_t>(request);
    const int64_t length = lists_.keys_of(request);
    const bool packed = problem_.cache.packed_q;
    const int64_t first = packed ? lists_.q_begins[index] : 0;
    const int64_t rows = packed ? lists_.q_begins[index + 1] - first : problem_.seqlen_q;
    if (rows == 0) return;
    const std::vector<int64_t> chosen = rows_of(rows, length);
    const int64_t first_list = packed ? first : request * problem_.seqlen_q;
    const std::vector<int> places = places_of(chosen, first_list);
    const bool has_places = problem_.cache.key_indices == KeyIndices::kPlaces;
    const auto keys_of = [&](Role role) {
      return has_places ? at_places(role, places) : cached(role, request, length);
    };
    const Rows k = keys_of(Role::kK), v = keys_of(Role::kV);
    const int64_t batch = packed ? 0 : request;
    const Rows q{tensor_rows(bench_.device, spec_of_role(Role::kQ), bench_.inputs.set(0).q, batch,
                             first, first + rows),
                 problem_.num_heads_q, problem_.head_dim_qk};
    const auto heads = static_cast<int64_t>(problem_.num_heads_q);
    const auto count = static_cast<int64_t>(chosen.size()) * heads;
    const size_t before = expected_.size();
    expected_.resize(before + static_cast<size_t>(count));
    for_each_index(count, [&](int64_t i) {
      const int64_t row = chosen[static_cast<size_t>(i / heads)];
      const auto head = static_cast<int>(i % heads);
      expected_[before + static_cast<size_t>(i)] =
          expected_row(request, q.at(row, head), k, v,
                       {length - rows + row, rows, length, first_list + row, head, places},
                       {batch, first + row, head});
    });
  }

  // Returns all places that the lists of the chosen rows name, in order.
  std::vector<int> places_of(const std::vector<int64_t>& rows, int64_t first_list) const {
    std::set<int> places;
    if (problem_.cache.key_indices != KeyIndices::kPlaces) return {};
    for (const int64_t row : rows)
      for (int head = 0; head < problem_.num_heads_kv; ++head)
        for (const int place : lists_.listed_keys(first_list + row, head)) places.insert(place);
    return {places.begin(), places.end()};
  }

  // Returns all rows; or the first, the last and some rows between them, at different positions in
  // their tiles.
  std::vector<int64_t> rows_of(int64_t rows, int64_t length) const {
    const double each = 2.0 * (problem_.head_dim_qk + problem_.head_dim_v) *
                        static_cast<double>(length) * problem_.num_heads_q;
    const double room = kMostFlops / kFewestRequests / std::max(each, 1.0);
    const int64_t count =
        std::min(rows, std::max<int64_t>(static_cast<int64_t>(room), kFewestRows));
    std::set<int64_t> chosen;
    for (int64_t i = 0; i < count; ++i) chosen.insert(count > 1 ? i * (rows - 1) / (count - 1) : 0);
    return {chosen.begin(), chosen.end()};
  }

  struct Query {
    int64_t position, rows, length, list;
    int head;
    const std::vector<int>& places;  // of the keys, if lists name places
  };

  bool sees(const Query& query, int64_t key) const {
    const Problem& p = problem_;
    if (p.mask != Mask::kNone && key > query.position) return false;
    if (p.window_left >= 0 && key < query.position - p.window_left) return false;
    return p.window_right < 0 || key <= query.position + p.window_right;
  }

  // Returns the keys that a row sees, as indices into Rows.
  std::vector<int64_t> keys_of(const Query& query, int kv_head) const {
    std::vector<int64_t> keys;
    if (problem_.cache.key_indices == KeyIndices::kNone) {
      for (int64_t key = 0; key < query.length; ++key)
        if (sees(query, key)) keys.push_back(key);
      return keys;
    }
    for (const int key : lists_.listed_keys(query.list, kv_head)) {
      const auto at = std::lower_bound(query.places.begin(), query.places.end(), key);
      const bool is_place = problem_.cache.key_indices == KeyIndices::kPlaces;
      keys.push_back(is_place ? at - query.places.begin() : key);
    }
    return keys;
  }

  ExpectedRow expected_row(int64_t request, const float* q, const Rows& k, const Rows& v,
                           const Query& query, const RowPlace& place) const {
    const Problem& p = problem_;
    const int kv_head = query.head / (p.num_heads_q / p.num_heads_kv);
    const std::vector<int64_t> keys = keys_of(query, kv_head);
    std::vector<double> scores;
    double largest = sink(query.head);
    for (const int64_t key : keys) {
      double dot = 0;
      for (int i = 0; i < p.head_dim_qk; ++i)
        dot += static_cast<double>(q[i]) * static_cast<double>(k.at(key, kv_head)[i]);
      scores.push_back(scores_
                           .at(dot * k.factor(key, kv_head) * static_cast<double>(p.scale()),
                               request, query.head, query.position, key, {query.rows, query.length})
                           .value);
      largest = std::max(largest, scores.back());
    }
    ExpectedRow row{place, std::vector<float>(static_cast<size_t>(p.head_dim_v)), -INFINITY};
    if (std::isfinite(largest)) fill(keys, scores, largest, v, kv_head, query.head, &row);
    return row;
  }

  void fill(const std::vector<int64_t>& keys, const std::vector<double>& scores, double largest,
            const Rows& v, int kv_head, int head, ExpectedRow* row) const {
    std::vector<double> sums(row->values.size());
    double sum = std::exp(sink(head) - largest);
    for (size_t at = 0; at < keys.size(); ++at) {
      const double weight = std::exp(scores[at] - largest);
      if (weight == 0) continue;
      sum += weight;
      const float* const values = v.at(keys[at], kv_head);
      const double scaled = weight * v.factor(keys[at], kv_head);
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += scaled * static_cast<double>(values[i]);
    }
    for (size_t i = 0; i < sums.size(); ++i) row->values[i] = static_cast<float>(sums[i] / sum);
    row->lse = static_cast<float>(largest + std::log(sum));
  }

  double factor(Role role, int64_t page, int64_t head, int64_t row) const {
    return static_cast<double>(bench_.inputs.factor(role, page, head, row));
  }

  double sink(int head) const {
    return problem_.scores.sinks == ScoreTensor::kNone ? -std::numeric_limits<double>::infinity()
                                                       : scores_.sink(head);
  }

  const OracleBench bench_;
  const Problem& problem_;
  const OperandList operands_;
  const CacheLists& lists_;
  const HostScores scores_;
  std::vector<ExpectedRow> expected_;
};

class AttentionKvCacheOracle final : public Oracle {
 public:
  Op op() const override { return Op::kAttentionKvCache; }
  std::unique_ptr<Expectation> expect(const OracleBench& bench) const override {
    return std::make_unique<CacheExpectation>(bench);
  }
};

}  // namespace

const Oracle& attention_kvcache_oracle() {
  static const AttentionKvCacheOracle instance;
  return instance;
}

}  // namespace attune
