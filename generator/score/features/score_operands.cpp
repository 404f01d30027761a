// SPDX-License-Identifier: Apache-2.0
// See score_operands.hpp.
#include "generator/score/features/score_operands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "generator/core/problem/narrow_float.hpp"
#include "generator/core/problem/op.hpp"
#include "generator/core/system/error.hpp"
#include "generator/score/language/evaluate.hpp"

namespace attune {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

// Returns the index of the tensor's first element along an axis, as programs count. An axis with
// one element may begin at any index, since loads clamp.
int first_index(const CaptureSpec& capture, const CaptureView& view, size_t axis,
                const ScoreOperands& operands) {
  if (view.extents[axis] != 0 || capture.extents[axis] <= 1) return 0;
  if (capture.along[axis] == CallAxis::kRows) return operands.q_position0;
  return capture.along[axis] == CallAxis::kKeys ? operands.kv_position0 : 0;
}

void check_capture(const CaptureSpec& capture, const CaptureView& view,
                   const ScoreOperands& operands) {
  const bool empty = std::count(capture.extents.begin(), capture.extents.end(), 0) > 0;
  if (empty) return;
  if (view.data == nullptr)
    refuse(fmt::format("{} is null; must be the address of {} elements {}", capture.name,
                       element_name(capture.type), capture.axes));
  const auto bytes = static_cast<uintptr_t>(capture_bytes(capture.type));
  if (reinterpret_cast<uintptr_t>(view.data) % bytes != 0)
    refuse(fmt::format("{} is at address {}; must be a multiple of {} bytes, the size of {}",
                       capture.name, view.data, bytes, element_name(capture.type)));
  for (size_t i = 0; capture.sized_by_call && i < capture.extents.size(); ++i)
    if (view.extents[i] < 1 || view.extents[i] > std::numeric_limits<int32_t>::max())
      refuse(fmt::format("{}.extents[{}] is {}; must be 1 to {}", capture.name, i, view.extents[i],
                         std::numeric_limits<int32_t>::max()));
  for (size_t i = 0; i < capture.extents.size(); ++i) {
    if (view.strides[i] < 0)
      refuse(fmt::format("{}.strides[{}] is {}; must be 0 (to repeat) or more", capture.name, i,
                         view.strides[i]));
    const int64_t extent = (capture.sized_by_call ? view.extents[i] : capture.extents[i]) +
                           first_index(capture, view, i, operands);
    if (extent > 1 && view.strides[i] > std::numeric_limits<int64_t>::max() / 64 / extent)
      refuse(fmt::format("{}.strides[{}] is {}; with {} steps it leaves the 64-bit address range",
                         capture.name, i, view.strides[i], extent));
  }
}

// Checks the position of the first row or key, and of the last of `length`.
void check_position(const char* name, int64_t first, const char* length_name, int64_t length) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() / 2;
  if (first < 0 || first > kMost)
    refuse(fmt::format("{} is {}; must be 0 to {}", name, first, kMost));
  if (first > kMaxLength - length)
    refuse(fmt::format("{} is {}; must be 0 to {} where {} is {}", name, first, kMaxLength - length,
                       length_name, length));
}

// Requires equal positions for tables of distances. These tables belong to the call, like its
// gradients, but programs use distances between positions.
void check_distances(const CaptureSpec& capture, const CaptureView& view,
                     const ScoreOperands& operands) {
  if (operands.q_position0 == operands.kv_position0) return;
  for (size_t i = 0; i < capture.extents.size(); ++i)
    if (capture.along[i] == CallAxis::kDistances && view.extents[i] == 0)
      refuse(
          fmt::format("q_position0 is {} and kv_position0 is {}; must be equal with {} {}, whose "
                      "distances count between the call's own rows and keys",
                      operands.q_position0, operands.kv_position0, capture.name, capture.axes));
}

// Programs index by position, but a tensor of the call's own rows and keys begins at the call's
// position. So the argument's address lies before the tensor, where no program reads. It is
// computed as an integer because there may be no memory.
ScoreCapture capture_arg(const CaptureSpec& capture, const CaptureView& view,
                         const ScoreOperands& operands) {
  ScoreCapture to{};
  int64_t ahead = 0;
  for (size_t axis = 0; axis < capture.extents.size(); ++axis) {
    const int64_t first = first_index(capture, view, axis, operands);
    const int64_t extent = view.extents[axis] == 0 ? capture.extents[axis] : view.extents[axis];
    to.strides[axis] = view.strides[axis];
    to.extents[axis] = static_cast<int>(first + extent);
    ahead += first * view.strides[axis] * capture_bytes(capture.type);
  }
  to.data = view.data;
  if (ahead != 0)
    to.data = reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(view.data) -
                                            static_cast<uintptr_t>(ahead));
  return to;
}

}  // namespace

const char* element_name(CaptureType type) {
  switch (type) {
    case CaptureType::kFp32:
      return "fp32";
    case CaptureType::kBf16:
      return "bf16";
    case CaptureType::kFp16:
      return "fp16";
    case CaptureType::kInt32:
      return "int32";
    case CaptureType::kInt64:
      return "int64";
    case CaptureType::kUint8:
      return "uint8";
    case CaptureType::kBool:
      return "bool";
  }
  return "unknown";
}

double load_capture(CaptureType type, const void* data, int64_t index) {
  ScoreCapture capture{};
  capture.data = static_cast<const char*>(data) + index * capture_bytes(type);
  return score::element_of(type, capture, {});
}

void store_capture(CaptureType type, void* data, int64_t index, double value) {
  char* at = static_cast<char*>(data) + index * capture_bytes(type);
  const auto whole = static_cast<int64_t>(value);
  switch (type) {
    case CaptureType::kFp32:
      return attune::store_element(Dtype::kFp32, at, 0, static_cast<float>(value));
    case CaptureType::kBf16:
      return attune::store_element(Dtype::kBf16, at, 0, static_cast<float>(value));
    case CaptureType::kFp16:
      return attune::store_element(Dtype::kFp16, at, 0, static_cast<float>(value));
    case CaptureType::kInt32:
    case CaptureType::kInt64:
    case CaptureType::kUint8:
    case CaptureType::kBool:
      std::memcpy(at, &whole, static_cast<size_t>(capture_bytes(type)));  // little-endian
  }
}

CaptureView contiguous_capture(const CaptureSpec& capture, const void* data) {
  CaptureView view{data, {}, {}};
  std::copy(capture.extents.begin(), capture.extents.end(), view.extents);
  int64_t stride = 1;
  for (size_t i = capture.extents.size(); i-- > 0; stride *= capture.extents[i])
    view.strides[i] = stride;
  return view;
}

void check_score_operands(const Problem& problem, const ScoreCaptures& wanted,
                          const ScoreOperands* operands) {
  const std::vector<CaptureSpec>& captures = wanted.captures;
  const size_t scalars = operands == nullptr ? 0 : operands->num_scalars;
  if (scalars != wanted.scalars.size())
    refuse(fmt::format("scalars has {} numbers; must be {} for this plan", scalars,
                       wanted.scalars.size()));
  const size_t given = operands == nullptr ? 0 : operands->num_captures;
  if (given != captures.size()) {
    std::string names;
    for (const CaptureSpec& capture : captures)
      names += fmt::format("{}{} {}", names.empty() ? "" : ", ", capture.name, capture.axes);
    refuse(fmt::format("captures has {} tensors; must be {} for this plan: {}", given,
                       captures.size(), names));
  }
  if (operands == nullptr) return;
  // For ops with a cache, rows count from the cache's first key.
  const bool by_position = describe(problem.op).has_cache;
  check_position("q_position0", operands->q_position0, by_position ? "seqlen_kv" : "seqlen_q",
                 by_position ? problem.seqlen_kv : problem.seqlen_q);
  check_position("kv_position0", operands->kv_position0, "seqlen_kv", problem.seqlen_kv);
  if (wanted.has_fixed_masks && operands->q_position0 != operands->kv_position0)
    refuse(
        fmt::format("q_position0 is {} and kv_position0 is {}; must be equal, because a built-in "
                    "mask replaced the mask program, and positions do not shift it; to keep the "
                    "program, add a scalar to q_idx in its text",
                    operands->q_position0, operands->kv_position0));
  for (size_t i = 0; i < captures.size(); ++i) {
    check_capture(captures[i], operands->captures[i], *operands);
    check_distances(captures[i], operands->captures[i], *operands);
  }
}

ScoreArgs score_args(const Problem& problem, const ScoreCaptures& wanted,
                     const ScoreOperands* given) {
  const std::vector<CaptureSpec>& captures = wanted.captures;
  static const ScoreOperands nothing;
  const ScoreOperands& operands = given == nullptr ? nothing : *given;
  ScoreArgs args{};
  for (size_t i = 0; i < captures.size(); ++i)
    args.captures[i] = capture_arg(captures[i], operands.captures[i], operands);
  std::copy(operands.scalars.begin(), operands.scalars.end(), args.scalars);
  args.seqlen_q = static_cast<int>(operands.seqlen_q > 0 ? operands.seqlen_q : problem.seqlen_q);
  args.seqlen_kv =
      static_cast<int>(operands.seqlen_kv > 0 ? operands.seqlen_kv : problem.seqlen_kv);
  args.head_dim = problem.head_dim_qk;
  args.q_position0 = operands.q_position0;
  args.kv_position0 = operands.kv_position0;
  args.batch0 = operands.batch0;
  args.head0 = operands.head0;
  args.kv_head0 = operands.head0 / (problem.num_heads_q / problem.num_heads_kv);
  return args;
}

}  // namespace attune
