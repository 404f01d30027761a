// SPDX-License-Identifier: Apache-2.0
// Operand lists and descriptor steps of wgmma (PTX ISA 9.7.15); see wgmma_emitter.hpp.
#include "generator/wgmma_emitter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "generator/core/error.hpp"

namespace attune {
namespace {

constexpr int kStepBytes = 32;  // of k, in one instruction of any operand type
constexpr int kPanelRowBytes = 128;
constexpr int kRowsOfQ = 64;
constexpr int kPanelColumns = kPanelRowBytes / 2;
constexpr int kMostColumns = 256;    // of one wgmma
constexpr int kDescriptorUnit = 16;  // addresses in descriptors count 16 bytes

std::string_view ptx_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBf16:
      return "bf16";
    case Dtype::kFp16:
      return "f16";
    case Dtype::kE4m3:
      return "e4m3";
    case Dtype::kE5m2:
      return "e5m2";
    case Dtype::kFp32:
      break;
  }
  throw Error(ErrorCode::kInternal, fmt::format("no wgmma statement for {}", dtype_name(dtype)));
}

// "%first, ..., %(first + count - 1)"
std::string operands(int first, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text.append(i ? ", %" : "%").append(std::to_string(first + i));
  return text;
}

// `"+f"(s[0]), "+f"(s[1]), ...`
std::string bindings(std::string_view constraint, std::string_view name, int count) {
  const std::string start = fmt::format("\"{}\"({}[", constraint, name);
  std::string text;
  for (int i = 0; i < count; ++i)
    text.append(i ? ", " : "").append(start).append(std::to_string(i)).append("])");
  return text;
}

// `text` over lines of at most 100 columns, each broken behind a ", " and put between `open` and `close`.
std::string wrapped(std::string_view text, std::string_view open, std::string_view close) {
  constexpr size_t kColumns = 100;
  const size_t room = kColumns - open.size() - close.size();
  std::string lines;
  while (text.size() > room) {
    const size_t end = text.rfind(", ", room - 2);
    if (end == std::string_view::npos) break;
    lines.append(open).append(text.substr(0, end + (close.empty() ? 1 : 2))).append(close);
    lines += '\n';
    text.remove_prefix(end + 2);
  }
  return lines.append(open).append(text).append(close).append("\n");
}

// One line of PTX, in as many literals as it takes.
std::string line(const std::string& text) { return wrapped(text + "\\n", "      \"", "\""); }

// The operands behind one ':' of an asm statement.
std::string operand_list(const std::string& operands) {
  return wrapped(operands, "        ", "").replace(6, 1, ":");
}

// A descriptor `by` units further on: only its low half changes, so no carry is formed.
std::string moved(std::string_view to, std::string_view from, int by) {
  return line(fmt::format("add.u32 low, {}_low, {};", from, by)) +
         line(fmt::format("mov.b64 {}, {{low, {}_high}};", to, from));
}

// What the two products of one tile have in common.
struct Products {
  Dtype type_q, type_p, type_kv;
  int block_n, head_dim_qk, head_dim_v;
  int row_qk, row_v;  // bytes
  bool adds_qk = false;
  bool onto_qk = false;

  int step_k() const { return kStepBytes / dtype_bytes(type_kv); }
  bool wide() const { return dtype_bytes(type_kv) == 2; }
  std::string shape(int n) const { return fmt::format("m64n{}k{}.f32", n, step_k()); }
};

// Start of k-step `step` in a K-major tile of `rows` rows, in descriptor units: 32 bytes on within
// a panel, then the next panel.
int k_major_step(int step, int rows, int row_bytes) {
  const int steps_per_panel = row_bytes / kStepBytes;
  return (step % steps_per_panel * kStepBytes + step / steps_per_panel * rows * row_bytes) /
         kDescriptorUnit;
}

// 16-bit V is MN-major: a k-step is so many rows further down.
int v_step(const Products& t, int step) {
  return t.wide() ? step * t.step_k() * kPanelRowBytes / kDescriptorUnit
                  : k_major_step(step, t.head_dim_v, t.row_v);
}

// A panel of V.
int panel_units(const Products& t) { return t.block_n * kPanelRowBytes / kDescriptorUnit; }

std::string emit_qk(const Products& t) {
  const int count = t.block_n / 2;
  const int steps = (t.head_dim_qk + t.step_k() - 1) / t.step_k();
  const std::string s = operands(0, count);
  std::string text = fmt::format(
      "// (64, {0}) = (64, {1}) x ({0}, {1})^T\n"
      "__device__ __forceinline__ void wgmma_qk(float (&s)[{2}], unsigned long long q,\n"
      "                                         unsigned long long k{3}) {{\n  asm volatile(\n",
      t.block_n, t.head_dim_qk, count, t.adds_qk ? ", int adds = 0" : "");
  text += line("{ .reg .pred p; .reg .b64 a, b; .reg .b32 q_low, q_high, k_low, k_high, low;");
  text += line(fmt::format("mov.b64 {{q_low, q_high}}, %{};", count));
  text += line(fmt::format("mov.b64 {{k_low, k_high}}, %{};", count + 1));
  for (int step = 0; step < steps; ++step) {
    // 0: overwrites s
    const std::string first = t.adds_qk ? fmt::format("%{}", count + 2) : t.onto_qk ? "1" : "0";
    text += line(fmt::format("setp.ne.b32 p, {}, 0;", step == 0 ? first : "1"));
    text += moved("a", "q", k_major_step(step, kRowsOfQ, t.row_qk));
    text += moved("b", "k", k_major_step(step, t.block_n, t.row_qk));
    text += line(fmt::format("wgmma.mma_async.sync.aligned.{}.{}.{} {{{}}}, a, b, p, 1, 1{};",
                             t.shape(t.block_n), ptx_type(t.type_q), ptx_type(t.type_kv), s,
                             t.wide() ? ", 0, 0" : ""));
  }
  text += line("}");
  return text + operand_list(bindings("+f", "s", count)) +
         fmt::format("      : \"l\"(q), \"l\"(k){}\n      : \"memory\");\n}}\n",
                     t.adds_qk ? ", \"r\"(adds)" : "");
}

std::string emit_pv(const Products& t) {
  const int count = t.head_dim_v / 2;
  const int steps = t.block_n / t.step_k();
  const int p_count = 4 * steps;
  std::string text = fmt::format(
      "// (64, {0}) += (64, {1}) x ({1}, {0}); = where `adds` is 0\n"
      "__device__ __forceinline__ void wgmma_pv(float (&o)[{2}], const unsigned (&p)[{3}],\n"
      "                                         unsigned long long v, int adds) {{\n  asm "
      "volatile(\n",
      t.head_dim_v, t.block_n, count, p_count);
  text += line("{ .reg .pred p; .reg .b64 b; .reg .b32 v_low, v_high, low;");
  text += line(fmt::format("mov.b64 {{v_low, v_high}}, %{};", count + p_count));
  for (int step = 0; step < steps; ++step) {
    if (step == 0) text += line(fmt::format("setp.ne.b32 p, %{}, 0;", count + p_count + 1));
    if (step == 1) text += line("setp.ne.b32 p, 1, 0;");
    const int width = wgmma_columns_of_v(t.head_dim_v);
    for (int first = 0; first < t.head_dim_v; first += width) {
      const int columns = std::min(width, t.head_dim_v - first);
      text += moved("b", "v", v_step(t, step) + first / kPanelColumns * panel_units(t));
      text += line(fmt::format(
          "wgmma.mma_async.sync.aligned.{}.{}.{} {{{}}}, {{{}}}, b, p, 1, 1{};", t.shape(columns),
          ptx_type(t.type_p), ptx_type(t.type_kv), operands(first / 2, columns / 2),
          operands(count + 4 * step, 4), t.wide() ? ", 1" : ""));
    }
  }
  text += line("}");
  return text + operand_list(bindings("+f", "o", count)) +
         operand_list(bindings("r", "p", p_count) + ", \"l\"(v), \"r\"(adds)") +
         "      : \"memory\");\n}\n";
}

std::string emit(const Products& t) {
  return "namespace attune {\n\n" + emit_qk(t) + "\n" + emit_pv(t) + "\n}  // namespace attune\n";
}

}  // namespace

int wgmma_columns_of_v(int head_dim_v) {
  if (head_dim_v <= kMostColumns) return head_dim_v;
  return (head_dim_v / 2 + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
}

std::string emit_wgmma_products(const WgmmaTile& tile) {
  if (dtype_bytes(tile.dtype) != 2)
    throw Error(ErrorCode::kInternal,
                fmt::format("no 16-bit wgmma statement for {}", dtype_name(tile.dtype)));
  return emit({tile.dtype, tile.dtype, tile.dtype, tile.block_n, tile.head_dim_qk, tile.head_dim_v,
               kPanelRowBytes, kPanelRowBytes, tile.adds_qk, tile.onto_qk});
}

std::string emit_fp8_wgmma_products(const Fp8WgmmaTile& tile) {
  if (dtype_bytes(tile.dtype_kv) != 1)
    throw Error(ErrorCode::kInternal,
                fmt::format("no 8-bit wgmma statement for {}", dtype_name(tile.dtype_kv)));
  return emit({Dtype::kE4m3, Dtype::kE4m3, tile.dtype_kv, tile.block_n, tile.head_dim_qk,
               tile.head_dim_v, tile.row_qk, tile.row_v});
}

}  // namespace attune
