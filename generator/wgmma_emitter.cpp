// SPDX-License-Identifier: Apache-2.0
// Operand lists and descriptor steps of wgmma (PTX ISA 9.7.15); see wgmma_emitter.hpp.
#include "generator/wgmma_emitter.hpp"

#include <fmt/format.h>

#include <vector>

#include "generator/core/error.hpp"

namespace attune {
namespace {

constexpr int kStepK = 16;         // k of one instruction for 16-bit operands
constexpr int kPanelColumns = 64;  // 128 bytes
constexpr int kPanelRowBytes = 128;
constexpr int kRowsOfQ = 64;
constexpr int kDescriptorUnit = 16;  // addresses in descriptors count 16 bytes

std::string_view ptx_type(Dtype dtype) {
  if (dtype == Dtype::kBf16) return "bf16";
  if (dtype == Dtype::kFp16) return "f16";
  throw Error(ErrorCode::kInternal, fmt::format("no wgmma statement for {}", dtype_name(dtype)));
}

// "%first, ..., %(first + count - 1)"
std::string operands(int first, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("{}%{}", i ? ", " : "", first + i);
  return text;
}

// `"+f"(s[0]), "+f"(s[1]), ...`
std::string bindings(std::string_view constraint, std::string_view name, int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += fmt::format("{}\"{}\"({}[{}])", i ? ", " : "", constraint, name, i);
  return text;
}

// Start of k-step `step` in a K-major tile of `rows` rows, in descriptor units: 32 bytes on within
// a panel, then the next panel.
int k_major_step(int step, int rows) {
  const int steps_per_panel = kPanelColumns / kStepK;
  return (step % steps_per_panel * kStepK * 2 + step / steps_per_panel * rows * kPanelRowBytes) /
         kDescriptorUnit;
}

// In an MN-major tile a k-step is 16 rows further down.
int mn_major_step(int step) { return step * kStepK * kPanelRowBytes / kDescriptorUnit; }

std::string line(const std::string& text) { return fmt::format("      \"{}\\n\"\n", text); }

std::string emit_qk(const WgmmaTile& tile) {
  const int count = tile.block_n / 2;
  const int steps = (tile.head_dim_qk + kStepK - 1) / kStepK;
  std::string text = fmt::format(
      "// (64, {0}) = (64, {1}) x ({0}, {1})^T\n"
      "__device__ __forceinline__ void wgmma_qk(float (&s)[{2}], unsigned long long q, unsigned "
      "long long k) {{\n  asm volatile(\n",
      tile.block_n, tile.head_dim_qk, count);
  text += line("{ .reg .pred p; .reg .b64 a, b;");
  for (int step = 0; step < steps; ++step) {
    text += line(
        fmt::format("setp.ne.b32 p, {}, 0;", step == 0 ? 0 : 1));  // the first step overwrites s
    text += line(fmt::format("add.s64 a, %{}, {};", count, k_major_step(step, kRowsOfQ)));
    text += line(fmt::format("add.s64 b, %{}, {};", count + 1, k_major_step(step, tile.block_n)));
    text += line(
        fmt::format("wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {{{}}}, a, b, p, 1, 1, 0, 0;",
                    tile.block_n, ptx_type(tile.dtype), ptx_type(tile.dtype), operands(0, count)));
  }
  text += line("}");
  return text + fmt::format("      : {}\n      : \"l\"(q), \"l\"(k)\n      : \"memory\");\n}}\n",
                            bindings("+f", "s", count));
}

std::string emit_pv(const WgmmaTile& tile) {
  const int count = tile.head_dim_v / 2;
  const int steps = tile.block_n / kStepK;
  const int p_count = 4 * steps;
  std::string text = fmt::format(
      "// (64, {0}) += (64, {1}) x ({1}, {0})\n"
      "__device__ __forceinline__ void wgmma_pv(float (&o)[{2}], const unsigned (&p)[{3}], "
      "unsigned long long v) {{\n  asm volatile(\n",
      tile.head_dim_v, tile.block_n, count, p_count);
  text += line("{ .reg .pred p; .reg .b64 b;");
  text += line("setp.ne.b32 p, 1, 0;");
  for (int step = 0; step < steps; ++step) {
    text += line(fmt::format("add.s64 b, %{}, {};", count + p_count, mn_major_step(step)));
    text += line(fmt::format(
        "wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {{{}}}, {{{}}}, b, p, 1, 1, 1;",
        tile.head_dim_v, ptx_type(tile.dtype), ptx_type(tile.dtype), operands(0, count),
        operands(count + 4 * step, 4)));
  }
  text += line("}");
  return text + fmt::format("      : {}\n      : {}, \"l\"(v)\n      : \"memory\");\n}}\n",
                            bindings("+f", "o", count), bindings("r", "p", p_count));
}

}  // namespace

std::string emit_wgmma_products(const WgmmaTile& tile) {
  return "namespace attune {\n\n" + emit_qk(tile) + "\n" + emit_pv(tile) +
         "\n}  // namespace attune\n";
}

}  // namespace attune
