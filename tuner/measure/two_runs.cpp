// SPDX-License-Identifier: Apache-2.0
// Runs a kernel twice and compares bits; see verify.hpp.
#include "tuner/measure/verify.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/problem/narrow_float.hpp"
#include "runtime/operands/operands.hpp"

namespace attune {
namespace {

constexpr int64_t kMostBytes = 16 << 20;      // per tensor
constexpr int kStaleBytes[2] = {0xff, 0x3c};  // NaN in every float type, and a small number

int64_t elements_of(const OperandSpec& tensor) {
  return tensor.empty() ? 0 : contiguous_view(tensor).batch_stride * tensor.batch;
}

// Returns the operands that a run writes.
OperandList results_of(const Problem& problem) {
  OperandList results;
  for (const OperandSpec& operand : operands_of(problem))
    if (operand.written && kind_of(operand.role) == OperandKind::kTensor) results.add(operand);
  return results;
}

void fill_sums(const Device& device, const OperandList& results, const Operands& operands) {
  for (const OperandSpec& tensor : results)
    if (tensor.added_to)
      device.fill((operands.*tensor_of(tensor.role)).data, 0,
                  elements_of(tensor) * dtype_bytes(tensor.dtype), nullptr);
}

// Clears the unwritten rest of rows whose stride is longer than their contents.
void clear_padding(const OperandSpec& tensor, std::string* bytes) {
  const auto size = static_cast<size_t>(dtype_bytes(tensor.dtype));
  const size_t line = static_cast<size_t>(contiguous_view(tensor).head_stride) * size;
  const size_t used = static_cast<size_t>(tensor.columns) * size;
  for (size_t begin = 0; used < line && begin < bytes->size(); begin += line)
    for (size_t i = begin + used; i < std::min(begin + line, bytes->size()); ++i) (*bytes)[i] = 0;
}

std::string bytes_of(const Device& device, const OperandSpec& tensor, const OperandView& view) {
  const int64_t all = elements_of(tensor) * dtype_bytes(tensor.dtype);
  std::string bytes(static_cast<size_t>(std::min(all, kMostBytes)), '\0');
  if (!bytes.empty())
    device.copy_to_host(bytes.data(), view.data, static_cast<int64_t>(bytes.size()));
  clear_padding(tensor, &bytes);
  return bytes;
}

// Returns an element's value and its bits, highest byte first.
std::string element_text(const OperandSpec& tensor, const std::string& bytes, int64_t index) {
  std::string bits;
  const int64_t size = dtype_bytes(tensor.dtype);
  for (int64_t i = size; i-- > 0;)
    bits += fmt::format("{:02x}",
                        static_cast<unsigned char>(bytes[static_cast<size_t>(index * size + i)]));
  return fmt::format("{} (0x{})", load_element(tensor.dtype, bytes.data(), index), bits);
}

std::optional<std::string> difference(const OperandSpec& tensor, const std::string& first,
                                      const std::string& second) {
  if (first == second) return std::nullopt;  // compares many bytes at a time
  const auto at = std::mismatch(first.begin(), first.end(), second.begin()).first - first.begin();
  const OperandView view = contiguous_view(tensor);
  const int64_t index = at / dtype_bytes(tensor.dtype), in_batch = index % view.batch_stride;
  const int64_t in_row = in_batch % view.row_stride;
  return fmt::format(
      "two runs on the same inputs give different bits, but deterministic is 1: {} of batch {}, "
      "row {}, head {}, element {} is {}, then {}",
      tensor.name, index / view.batch_stride, in_batch / view.row_stride, in_row / view.head_stride,
      in_row % view.head_stride, element_text(tensor, first, index),
      element_text(tensor, second, index));
}

}  // namespace

std::optional<std::string> difference_of_two_runs(
    const Device& device, const Problem& problem, Inputs& inputs,
    const std::function<void(const Operands& operands, int stale)>& launch) {
  const OperandList results = results_of(problem);
  std::vector<std::string> first;
  for (const int stale : kStaleBytes) {
    const Operands operands = inputs.with_outputs_of(stale);
    fill_sums(device, results, operands);
    launch(operands, stale);
    for (size_t i = 0; const OperandSpec& tensor : results) {
      std::string bytes = bytes_of(device, tensor, operands.*tensor_of(tensor.role));
      if (stale == kStaleBytes[0])
        first.push_back(std::move(bytes));
      else if (auto found = difference(tensor, first[i++], bytes))
        return found;
    }
  }
  return std::nullopt;
}

}  // namespace attune
