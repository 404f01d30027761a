// SPDX-License-Identifier: Apache-2.0
// The list of oracles; see oracle.hpp.
#include "tuner/oracles/oracle.hpp"

#include <fmt/format.h>

#include "generator/core/problem/narrow_float.hpp"
#include "generator/core/system/error.hpp"
#include "tuner/oracles/oracles.hpp"
#include "tuner/oracles/quantise.hpp"

namespace attune {
namespace {

std::vector<const Oracle*>& oracles() {
  static std::vector<const Oracle*> all{&attention_oracle(),          &quantise_oracle(),
                                        &block_map_oracle(),          &merge_oracle(),
                                        &attention_backward_oracle(), &attention_kvcache_oracle(),
                                        &append_kv_oracle(),          &top_k_oracle(),
                                        &index_scores_oracle()};
  return all;
}

}  // namespace

void add_oracle(const Oracle& oracle) { oracles().push_back(&oracle); }

const Oracle& oracle_of(const Problem& problem) {
  for (const Oracle* oracle : oracles())
    if (oracle->op() == problem.op) return *oracle;
  throw Error(ErrorCode::kInternal,
              fmt::format("op {} has no oracle in tuner/oracles", op_name(problem.op)));
}

namespace {

// Returns the values of some heads of rows [row_begin, row_end), as [rows, heads, columns].
std::vector<float> rows_of_heads(const Device& device, const OperandSpec& tensor,
                                 const OperandView& view, int64_t batch, int64_t head_begin,
                                 int64_t head_end, int64_t row_begin, int64_t row_end) {
  const int64_t elements = row_end == row_begin
                               ? 0
                               : (row_end - row_begin - 1) * view.row_stride +
                                     (head_end - 1) * view.head_stride + tensor.columns;
  std::string bytes(static_cast<size_t>(elements * dtype_bytes(tensor.dtype)), '\0');
  const int64_t first = batch * view.batch_stride + row_begin * view.row_stride;
  device.copy_to_host(bytes.data(),
                      static_cast<const char*>(view.data) + first * dtype_bytes(tensor.dtype),
                      static_cast<int64_t>(bytes.size()));
  std::vector<float> values;
  values.reserve(
      static_cast<size_t>((row_end - row_begin) * (head_end - head_begin) * tensor.columns));
  for (int64_t row = 0; row < row_end - row_begin; ++row)
    for (int64_t head = head_begin; head < head_end; ++head)
      for (int64_t i = 0; i < tensor.columns; ++i)
        values.push_back(load_element(tensor.dtype, bytes.data(),
                                      row * view.row_stride + head * view.head_stride + i));
  return values;
}

}  // namespace

std::vector<float> tensor_rows(const Device& device, const OperandSpec& tensor,
                               const OperandView& view, int64_t batch, int64_t row_begin,
                               int64_t row_end) {
  return rows_of_heads(device, tensor, view, batch, 0, tensor.heads, row_begin, row_end);
}

std::vector<float> head_rows(const Device& device, const OperandSpec& tensor,
                             const OperandView& view, int64_t batch, int64_t head,
                             int64_t row_begin, int64_t row_end) {
  return rows_of_heads(device, tensor, view, batch, head, head + 1, row_begin, row_end);
}

}  // namespace attune
