// SPDX-License-Identifier: Apache-2.0
// Checks of a call's operands. Each throws a sentence that names the fault.
#include "runtime/operands/operand_check.hpp"

#include <fmt/format.h>

#include <utility>

#include "generator/core/system/error.hpp"
#include "runtime/engine/plan.hpp"

namespace attune {
namespace {

struct Stride {
  const char* name;
  int64_t value, extent;
  bool at_most = false;  // a call may have fewer steps, so other strides may be smaller than it
};

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidArgument, sentence);
}

[[noreturn]] void refuse_address(const char* name, const void* address, int alignment) {
  if (!address)
    refuse(fmt::format("{} is a null pointer; must be an address aligned to {} bytes", name,
                       alignment));
  refuse(fmt::format("{} is at address {}; must be aligned to {} bytes", name, address, alignment));
}

bool misaligned(const void* address, int alignment) {
  return !address || reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(alignment) != 0;
}

void check_written_once(const char* output, const Stride& stride) {
  if (stride.extent > 1 && stride.value == 0)
    refuse(fmt::format("{}.{} is 0; must be above 0: {} parts of an output would have one address",
                       output, stride.name, stride.extent));
}

// Checks that no offset in bytes overflows: 16 bytes per element is more than any type has.
void check_reach(const char* operand, const Stride& stride) {
  if (stride.extent > 1 && stride.value > INT64_MAX / 16 / stride.extent)
    refuse(fmt::format("{}.{} is {}; must be at most {}: {} steps must stay in 64-bit addresses",
                       operand, stride.name, stride.value, INT64_MAX / 16 / stride.extent,
                       stride.extent));
}

void check_stride(const OperandSpec& x, int element_bytes, const Stride& stride) {
  if (stride.extent <= 1) return;
  if (stride.value < 0)
    refuse(fmt::format("{}.{} is {}; must be at least 0", x.name, stride.name, stride.value));
  check_reach(x.name, stride);
  if (stride.value * element_bytes % x.alignment != 0)
    refuse(fmt::format("{}.{} is {} elements; must be a multiple of {} ({} bytes)", x.name,
                       stride.name, stride.value, x.alignment / element_bytes, x.alignment));
  if (x.written) check_written_once(x.name, stride);
  if (stride.value != 0 && stride.value < x.line())
    refuse(
        fmt::format("{}.{} is {} elements and overlaps the head dimension; must be at least {}{}",
                    x.name, stride.name, stride.value, x.line(),
                    x.written ? "" : ", or 0 to repeat one batch entry, row or head"));
}

// Sorts two strides. If they are equal, a dimension with at_most comes first: a call with a single
// row may have the same row_stride and head_stride.
void order(Stride& a, Stride& b) {
  if (b.value < a.value || (b.value == a.value && b.at_most)) std::swap(a, b);
}

// Checks, in the order of strides, that each stride is at least as long as the elements that all
// dimensions with smaller strides span. `line` is the number of contiguous elements of the
// dimension `inner`. Strides of 0 repeat an input and need no room.
void check_overlap(const char* operand, const char* inner, int64_t line, Stride strides[3]) {
  order(strides[0], strides[1]), order(strides[1], strides[2]), order(strides[0], strides[1]);
  int64_t span = line;
  for (int i = 0; i < 3; ++i) {
    const Stride& stride = strides[i];
    if (stride.extent <= 1 || stride.value == 0) continue;
    if (stride.value < span)
      refuse(
          fmt::format("{}.{} is {} elements and overlaps {}, which spans {}; must be at least {}",
                      operand, stride.name, stride.value, inner, span, span));
    if (stride.at_most) continue;
    span = stride.value * (stride.extent - 1) + span;
    inner = stride.name;
  }
}

void check_tensor(const OperandSpec& x, const OperandView& view) {
  if (x.empty()) return;
  if (misaligned(view.data, x.alignment)) [[unlikely]]
    refuse_address(x.name, view.data, x.alignment);
  Stride strides[3] = {{"head_stride", view.head_stride, x.heads},
                       {"row_stride", view.row_stride, x.lines(), x.rows_at_most},
                       {"batch_stride", view.batch_stride, x.batch}};
  const int element_bytes = dtype_bytes(x.dtype);
  for (const Stride& stride : strides) check_stride(x, element_bytes, stride);
  check_overlap(x.name, x.transposed ? "seqlen" : "head_dim", x.line(), strides);
}

void check_row_sums(const OperandSpec& x, const RowSumsView& given) {
  if (!given.data) {
    if (!x.optional && !x.empty()) refuse_address(x.name, nullptr, sizeof(float));
    return;
  }
  if (reinterpret_cast<uintptr_t>(given.data) % sizeof(float) != 0)
    refuse_address(x.name, given.data, sizeof(float));
  if (given.batch_stride == 0 && given.head_stride == 0) return;  // contiguous
  Stride strides[3] = {{"head_stride", given.head_stride, x.heads},
                       {"batch_stride", given.batch_stride, x.batch},
                       {"", 0, 1}};
  for (const Stride& stride : strides) {
    if (stride.extent > 1 && stride.value <= 0)
      refuse(fmt::format("{}.{} is {}; must be at least {}, or both strides 0 for contiguous",
                         x.name, stride.name, stride.value, x.least_rows()));
    check_reach(x.name, stride);
  }
  check_overlap(x.name, "rows", x.least_rows(), strides);
}

void check_written_factors(const OperandSpec& x, const ScaleView& view, Stride strides[3]) {
  if (view.heads_per_scale != 1)
    refuse(fmt::format("{}.heads_per_scale is {}; must be 1: a factor is written for each head",
                       x.name, view.heads_per_scale));
  for (int i = 0; i < 3; ++i) check_written_once(x.name, strides[i]);
  check_overlap(x.name, "a factor", 1, strides);
}

void check_factors(const OperandSpec& x, const ScaleView& view) {
  if (!view.data) {
    if (!x.optional)
      refuse(fmt::format("{} is a null pointer; must be the address at which factors are {}",
                         x.name, x.written ? "written" : "read"));
    return;
  }
  if (!x.has_factors())
    refuse(fmt::format(
        "{} is given, but its tensor is {}; must be NULL unless the tensor has 8 or 4 bits", x.name,
        dtype_name(x.dtype)));
  if (reinterpret_cast<uintptr_t>(view.data) % sizeof(float) != 0)
    refuse_address(x.name, view.data, sizeof(float));
  Stride strides[3] = {{"batch_stride", view.batch_stride, x.batch},
                       {"head_stride", view.head_stride, x.heads},
                       {"block_stride", view.block_stride, x.blocks()}};
  for (const Stride& stride : strides) {
    if (stride.value < 0)
      refuse(fmt::format("{}.{} is {}; must be at least 0", x.name, stride.name, stride.value));
    check_reach(x.name, stride);
  }
  if (view.heads_per_scale < 1 || x.heads % view.heads_per_scale != 0)
    refuse(fmt::format("{}.heads_per_scale is {}; must divide the {} heads", x.name,
                       view.heads_per_scale, x.heads));
  if (x.written) check_written_factors(x, view, strides);
}

// Refuses factors that the op neither reads nor writes: they would be silently ignored.
void check_absent(const OperandList& list, const Operands& operands) {
  for (const auto& [role, name] : kFactorRoles)
    if (!list.has(role) && (operands.*factors_of(role)).data)
      refuse(fmt::format("{} is given; must be NULL: this op has no such operand", name));
}

std::optional<std::string> tensor_map_refusal(const OperandSpec& x, const OperandView& view) {
  if (x.empty()) return std::nullopt;  // its tensor map describes other memory
  const Stride strides[3] = {{"head_stride", view.head_stride, x.heads},
                             {"row_stride", view.row_stride, x.lines()},
                             {"batch_stride", view.batch_stride, x.batch}};
  for (const Stride& stride : strides) {
    if (stride.extent <= 1) continue;
    if (stride.value == 0)
      return fmt::format("{}.{} is 0; must be above 0 for TMA", x.name, stride.name);
    if (stride.value >= kTensorMapReach / 16 &&
        stride.value >= kTensorMapReach / dtype_bytes(x.dtype))
      return fmt::format("{}.{} is {} elements, beyond the 2^40 bytes of TMA", x.name, stride.name,
                         stride.value);
  }
  return std::nullopt;
}

}  // namespace

void check_operands(const OperandList& list, const Operands& operands) {
  if (list.empty()) [[unlikely]]
    throw Error(ErrorCode::kInternal, "the plan has no list of its operands");
  for (const OperandSpec& operand : list) {
    switch (kind_of(operand.role)) {
      case OperandKind::kTensor:
        check_tensor(operand, operands.*tensor_of(operand.role));
        break;
      case OperandKind::kRowSums:
        check_row_sums(operand, row_sums_of(operands, operand.role));
        break;
      case OperandKind::kFactors:
        check_factors(operand, operands.*factors_of(operand.role));
        break;
    }
  }
  check_absent(list, operands);
}

void check_workspace(const Plan& plan, const void* workspace, int64_t workspace_bytes) {
  const int64_t needed = plan.workspace_bytes();
  if (needed == 0) return;
  if (workspace_bytes < needed)
    refuse(fmt::format("workspace_bytes is {}; must be at least {} for this plan", workspace_bytes,
                       needed));
  if (misaligned(workspace, kWorkspaceAlignment))
    refuse_address("workspace", workspace, kWorkspaceAlignment);
}

void check_workspace_is_clean(const Plan& plan, const void* workspace) {
  const int64_t bytes = plan.launch.zeroed_bytes;
  if (bytes == 0 || plan.device->target() == Target::kCpu) return;  // runs on a CPU zero it
  std::string head(static_cast<size_t>(bytes), '\0');
  plan.device->synchronize();
  plan.device->copy_to_host(head.data(), workspace, bytes);
  const size_t dirty = head.find_first_not_of('\0');
  if (dirty == std::string::npos) return;
  refuse(
      fmt::format("workspace at address {} is not zero in byte {} of its first {}; call "
                  "attune_workspace_init once for each buffer, and let a buffer serve one run at a "
                  "time (checked because ATTUNE_CHECK_WORKSPACE is 1)",
                  workspace, dirty, bytes));
}

std::optional<std::string> tensor_map_refusal(const OperandList& list, const Operands& operands) {
  for (const OperandSpec& operand : list) {
    if (kind_of(operand.role) != OperandKind::kTensor) continue;
    if (auto reason = tensor_map_refusal(operand, operands.*tensor_of(operand.role))) return reason;
  }
  return std::nullopt;
}

}  // namespace attune
