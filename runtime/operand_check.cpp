// SPDX-License-Identifier: Apache-2.0
// The fast path compares numbers only; sentences are made when something is refused.
#include "runtime/operand_check.hpp"

#include <fmt/format.h>

#include "generator/core/error.hpp"

namespace attune {
namespace {

struct Extents {
  const char* name;
  const OperandView& view;
  int64_t batch, rows, heads, head_dim;
  int64_t element_bytes;
  bool written;

  bool empty() const { return batch == 0 || rows == 0 || head_dim == 0; }
};

struct Stride {
  const char* name;
  int64_t value, extent;
};

Extents q_of(const Problem& p, const Operands& x) {
  return {"q",  x.q, p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_qk, dtype_bytes(p.dtype_q),
          false};
}
Extents k_of(const Problem& p, const Operands& x) {
  return {"k",  x.k, p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim_qk, dtype_bytes(p.dtype_kv),
          false};
}
Extents v_of(const Problem& p, const Operands& x) {
  if (p.fp8.v_layout == VLayout::kTransposed)
    return {"v",  x.v, p.batch, p.head_dim_v, p.num_heads_kv, p.seqlen_kv, dtype_bytes(p.dtype_kv),
            false};
  return {"v",  x.v, p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim_v, dtype_bytes(p.dtype_kv),
          false};
}
Extents o_of(const Problem& p, const Operands& x) {
  if (p.op == Op::kQuantise && p.fp8.v_layout == VLayout::kTransposed)
    return {"o", x.o, p.batch, p.head_dim_v, p.num_heads_q, p.seqlen_q, dtype_bytes(p.dtype_o),
            true};
  return {"o", x.o, p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_v, dtype_bytes(p.dtype_o), true};
}

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidArgument, sentence);
}

[[noreturn]] void refuse_address(const char* name, const void* address, int alignment) {
  if (!address)
    refuse(fmt::format("{} is a null pointer; accepted is an address aligned to {} bytes", name,
                       alignment));
  refuse(fmt::format("{} is at address {}; accepted are addresses aligned to {} bytes", name,
                     address, alignment));
}

bool misaligned(const void* address, int alignment) {
  return !address || reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(alignment) != 0;
}

void check_written_once(const char* output, const Stride& stride) {
  if (stride.extent > 1 && stride.value == 0)
    refuse(fmt::format("{}.{} is 0 for {} steps; an output cannot be written twice at one address",
                       output, stride.name, stride.extent));
}

// Elements have at most 16 bytes with room to spare, so no offset in bytes overflows.
void check_reach(const char* operand, const Stride& stride) {
  if (stride.extent > 1 && stride.value > INT64_MAX / 16 / stride.extent)
    refuse(fmt::format("{}.{} is {}; with {} steps it leaves the 64-bit address range", operand,
                       stride.name, stride.value, stride.extent));
}

void check_stride(const Extents& x, const Stride& stride) {
  if (stride.extent <= 1) return;
  if (stride.value < 0)
    refuse(fmt::format("{}.{} is {}; accepted are strides of 0 and more", x.name, stride.name,
                       stride.value));
  check_reach(x.name, stride);
  if (stride.value * x.element_bytes % kOperandAlignment != 0)
    refuse(fmt::format("{}.{} is {} elements; accepted are multiples of {} ({} bytes)", x.name,
                       stride.name, stride.value, kOperandAlignment / x.element_bytes,
                       kOperandAlignment));
  if (x.written) check_written_once(x.name, stride);
  if (stride.value != 0 && stride.value < x.head_dim)
    refuse(fmt::format(
        "{}.{} is {} elements and overlaps the head dimension; accepted are {} and more{}", x.name,
        stride.name, stride.value, x.head_dim, x.written ? "" : ", or 0 to repeat one"));
}

void order(Stride& a, Stride& b) {
  if (b.value < a.value) std::swap(a, b);
}

// Sorted by stride, each dimension must step over all that the smaller ones span. Zero strides of
// inputs repeat and overlap nothing.
void check_overlap(const Extents& x, Stride strides[3]) {
  order(strides[0], strides[1]), order(strides[1], strides[2]), order(strides[0], strides[1]);
  int64_t span = x.head_dim;
  const char* inner = "head_dim";
  for (int i = 0; i < 3; ++i) {
    const Stride& stride = strides[i];
    if (stride.extent <= 1 || stride.value == 0) continue;
    if (stride.value < span)
      refuse(fmt::format(
          "{}.{} is {} elements and overlaps {}, which spans {}; accepted are {} and more", x.name,
          stride.name, stride.value, inner, span, span));
    span = stride.value * (stride.extent - 1) + span;
    inner = stride.name;
  }
}

void check_operand(const Extents& x) {
  if (x.empty()) return;
  if (misaligned(x.view.data, kOperandAlignment)) [[unlikely]]
    refuse_address(x.name, x.view.data, kOperandAlignment);
  Stride strides[3] = {{"head_stride", x.view.head_stride, x.heads},
                       {"row_stride", x.view.row_stride, x.rows},
                       {"batch_stride", x.view.batch_stride, x.batch}};
  for (const Stride& stride : strides) check_stride(x, stride);
  check_overlap(x, strides);
}

void check_lse(const Problem& p, const Operands& x) {
  if (!x.lse) return;
  if (reinterpret_cast<uintptr_t>(x.lse) % sizeof(float) != 0)
    refuse_address("lse", x.lse, sizeof(float));
  if (x.lse_batch_stride == 0 && x.lse_head_stride == 0) return;  // contiguous
  Extents lse{"lse", x.q, p.batch, 1, p.num_heads_q, p.seqlen_q, sizeof(float), true};
  Stride strides[3] = {{"head_stride", x.lse_head_stride, lse.heads},
                       {"batch_stride", x.lse_batch_stride, lse.batch},
                       {"", 0, 1}};
  for (const Stride& stride : strides) {
    if (stride.extent > 1 && stride.value <= 0)
      refuse(fmt::format("lse.{} is {}; accepted are {} and more, or both strides 0 for contiguous",
                         stride.name, stride.value, p.seqlen_q));
    check_reach("lse", stride);
  }
  check_overlap(lse, strides);
}

struct Scale {
  const char* name;
  const ScaleView& view;
  Dtype dtype;  // of the tensor it belongs to
  int64_t batch, num_heads, blocks;
};

int64_t blocks_of(int64_t rows, int64_t block) {
  return block > 0 ? (rows + block - 1) / block : 1;
}

void check_scale(const Scale& scale) {
  const ScaleView& view = scale.view;
  if (!view.data) return;
  if (!is_fp8(scale.dtype))
    refuse(fmt::format("{} is given, but its tensor is {}; accepted is null, or an 8-bit tensor",
                       scale.name, dtype_name(scale.dtype)));
  if (reinterpret_cast<uintptr_t>(view.data) % sizeof(float) != 0)
    refuse_address(scale.name, view.data, sizeof(float));
  for (const Stride& stride : {Stride{"batch_stride", view.batch_stride, scale.batch},
                               Stride{"head_stride", view.head_stride, scale.num_heads},
                               Stride{"block_stride", view.block_stride, scale.blocks}}) {
    if (stride.value < 0)
      refuse(fmt::format("{}.{} is {}; accepted are strides of 0 and more", scale.name, stride.name,
                         stride.value));
    check_reach(scale.name, stride);
  }
  if (view.heads_per_scale < 1 || scale.num_heads % view.heads_per_scale != 0)
    refuse(fmt::format("{}.heads_per_scale is {}; accepted are divisors of the {} heads",
                       scale.name, view.heads_per_scale, scale.num_heads));
}

std::optional<std::string> tensor_map_refusal(const Extents& x) {
  const Stride strides[3] = {{"head_stride", x.view.head_stride, x.heads},
                             {"row_stride", x.view.row_stride, x.rows},
                             {"batch_stride", x.view.batch_stride, x.batch}};
  for (const Stride& stride : strides) {
    if (stride.extent <= 1) continue;
    if (stride.value == 0)
      return fmt::format("{}.{} is 0, which TMA does not take", x.name, stride.name);
    if (stride.value >= (int64_t{1} << 40) / x.element_bytes)
      return fmt::format("{}.{} is {} elements, beyond the 2^40 bytes of TMA", x.name, stride.name,
                         stride.value);
  }
  return std::nullopt;
}

void check_quantise_operands(const Problem& problem, const Operands& operands) {
  check_operand(o_of(problem, operands));
  if (!operands.o_scale.data)
    refuse("o_scale is a null pointer; op quantise writes a factor for each block of rows there");
  const ScaleView& scale = operands.o_scale;
  const int64_t blocks = blocks_of(problem.seqlen_q, problem.fp8.scale_block_q);
  check_scale({"o_scale", scale, problem.dtype_o, problem.batch, problem.num_heads_q, blocks});
  if (scale.heads_per_scale != 1)
    refuse(fmt::format(
        "o_scale.heads_per_scale is {}; op quantise writes a factor for each head: accepted is 1",
        scale.heads_per_scale));
  const Stride strides[3] = {{"batch_stride", scale.batch_stride, problem.batch},
                             {"head_stride", scale.head_stride, problem.num_heads_q},
                             {"block_stride", scale.block_stride, blocks}};
  for (const Stride& stride : strides) check_written_once("o_scale", stride);
}

}  // namespace

void check_operands(const Problem& problem, const Operands& operands) {
  check_operand(q_of(problem, operands));
  if (problem.op == Op::kQuantise) return check_quantise_operands(problem, operands);
  check_operand(k_of(problem, operands));
  check_operand(v_of(problem, operands));
  check_operand(o_of(problem, operands));
  check_lse(problem, operands);
  const Problem& p = problem;
  const int64_t q_blocks = blocks_of(p.seqlen_q, p.fp8.scale_block_q);
  const int64_t kv_blocks = blocks_of(p.seqlen_kv, p.fp8.scale_block_kv);
  check_scale({"q_scale", operands.q_scale, p.dtype_q, p.batch, p.num_heads_q, q_blocks});
  check_scale({"k_scale", operands.k_scale, p.dtype_kv, p.batch, p.num_heads_kv, kv_blocks});
  check_scale({"v_scale", operands.v_scale, p.dtype_kv, p.batch, p.num_heads_kv, kv_blocks});
  if (operands.o_scale.data)
    refuse("o_scale is given; accepted is null: attention writes no scales");
}

void check_workspace(const Plan& plan, const void* workspace, int64_t workspace_bytes) {
  const int64_t needed = plan.workspace_bytes();
  if (needed == 0) return;
  if (workspace_bytes < needed)
    refuse(fmt::format("workspace_bytes is {}; accepted are {} and more for this plan",
                       workspace_bytes, needed));
  if (misaligned(workspace, kWorkspaceAlignment))
    refuse_address("workspace", workspace, kWorkspaceAlignment);
}

void check_workspace_is_clean(const Plan& plan, const void* workspace) {
  const int64_t bytes = plan.launch.zeroed_bytes;
  if (bytes == 0 || plan.device->target() == Target::kCpu) return;  // the CPU zeroes it itself
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

std::optional<std::string> tensor_map_refusal(const Problem& problem, const Operands& operands) {
  if (problem.op == Op::kQuantise) return std::nullopt;  // its kernels load with plain instructions
  for (const Extents& x : {q_of(problem, operands), k_of(problem, operands),
                           v_of(problem, operands), o_of(problem, operands)})
    if (auto reason = tensor_map_refusal(x)) return reason;
  return std::nullopt;
}

}  // namespace attune
