// SPDX-License-Identifier: Apache-2.0
// Operand lists and descriptor steps of wgmma (PTX ISA 9.7.15); see wgmma_emitter.hpp.
#include "generator/render/wgmma_emitter.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

constexpr int kStepBytes = 32;  // bytes of k per instruction, for every operand type
constexpr int kPanelRowBytes = 128;
constexpr int kRowsOfQ = 64;
constexpr int kPanelColumns = kPanelRowBytes / 2;
constexpr int kMostColumns = 256;    // widest wgmma
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
    case Dtype::kInt8:
    case Dtype::kInt4:
    case Dtype::kE2m1:
      break;
  }
  throw Error(ErrorCode::kInternal,
              fmt::format("dtype is {}; must be bf16, fp16, e4m3 or e5m2", dtype_name(dtype)));
}

// Returns "%first, ..., %(first + count - 1)".
std::string operands(int first, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text.append(i ? ", %" : "%").append(std::to_string(first + i));
  return text;
}

// Returns `"+f"(s[0]), "+f"(s[1]), ...`.
std::string bindings(std::string_view constraint, std::string_view name, int count) {
  const std::string start = fmt::format("\"{}\"({}[", constraint, name);
  std::string text;
  for (int i = 0; i < count; ++i)
    text.append(i ? ", " : "").append(start).append(std::to_string(i)).append("])");
  return text;
}

// Breaks `text` after ", " into lines of at most 100 columns. Each line begins with `open` and ends
// with `close`.
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

// Returns one line of PTX as string literals, split if it exceeds 100 columns.
std::string line(const std::string& text) { return wrapped(text + "\\n", "      \"", "\""); }

// Returns the operands after one ':' of an asm statement.
std::string operand_list(const std::string& operands) {
  return wrapped(operands, "        ", "").replace(6, 1, ":");
}

// Returns the PTX that adds `by` units to a descriptor. It adds to the low half only, which never
// carries.
std::string moved(std::string_view to, std::string_view from, int by) {
  return line(fmt::format("add.u32 low, {}_low, {};", from, by)) +
         line(fmt::format("mov.b64 {}, {{low, {}_high}};", to, from));
}

// The names of a function, its accumulators, its A and its B.
struct Names {
  std::string_view function, d, a, b;
};

// A product D (64, n) = A (64, k) x B (k, n).
struct Product {
  Names names;
  Dtype type_a, type_b;
  int n, k;
  int row;  // bytes per row of a panel in shared memory
  bool adds = false;
  bool onto = false;
  int rows = 0;                // rows of a panel of B, if more than this product reads
  int row_a = kPanelRowBytes;  // bytes per row of an MN-major A

  int rows_of_b(int own) const { return rows > 0 ? rows : own; }

  int step_k() const { return kStepBytes / dtype_bytes(type_b); }
  bool wide() const { return dtype_bytes(type_b) == 2; }
  std::string shape(int columns) const { return fmt::format("m64n{}k{}.f32", columns, step_k()); }
};

// Returns the start of k-step `step` in a K-major tile of `rows` rows, in descriptor units: 32
// bytes further within a panel, then the next panel.
int k_major_step(int step, int rows, int row_bytes) {
  const int steps_per_panel = row_bytes / kStepBytes;
  return (step % steps_per_panel * kStepBytes + step / steps_per_panel * rows * row_bytes) /
         kDescriptorUnit;
}

// Returns the offset of a k-step of an MN-major operand, whose rows are the k-dimension.
int mn_major_step(const Product& t, int step, int row_bytes) {
  return step * t.step_k() * row_bytes / kDescriptorUnit;
}

// Returns the offset of a k-step of B; 16-bit B is MN-major.
int b_step(const Product& t, int step) {
  return t.wide() ? mn_major_step(t, step, kPanelRowBytes) : k_major_step(step, t.n, t.row);
}

// Returns the size of a panel of an MN-major B.
int panel_units(const Product& t) { return t.rows_of_b(t.k) * kPanelRowBytes / kDescriptorUnit; }

// Returns the function that multiplies A and B in shared memory, both K-major.
std::string emit_shared(const Product& t) {
  const auto& [function, d, a, b] = t.names;
  const int count = t.n / 2;
  const int steps = (t.k + t.step_k() - 1) / t.step_k();
  const std::string accumulators = operands(0, count);
  const std::string opening = fmt::format("__device__ __forceinline__ void {}(", function);
  std::string text = fmt::format(
      "// (64, {0}) = (64, {1}) x ({0}, {1})^T\n"
      "{4}float (&{5})[{2}], unsigned long long {6},\n"
      "{8:{9}}unsigned long long {7}{3}) {{\n  asm volatile(\n",
      t.n, t.k, count, t.adds ? ", int adds = 0" : "", opening, d, a, b, "", opening.size());
  text += line(fmt::format(
      "{{ .reg .pred p; .reg .b64 a, b; .reg .b32 {0}_low, {0}_high, {1}_low, {1}_high, low;", a,
      b));
  text += line(fmt::format("mov.b64 {{{0}_low, {0}_high}}, %{1};", a, count));
  text += line(fmt::format("mov.b64 {{{0}_low, {0}_high}}, %{1};", b, count + 1));
  for (int step = 0; step < steps; ++step) {
    // A first operand of 0 makes the first wgmma overwrite d.
    const std::string first = t.adds ? fmt::format("%{}", count + 2) : t.onto ? "1" : "0";
    text += line(fmt::format("setp.ne.b32 p, {}, 0;", step == 0 ? first : "1"));
    text += moved("a", a, k_major_step(step, kRowsOfQ, t.row));
    text += moved("b", b, k_major_step(step, t.rows_of_b(t.n), t.row));
    text += line(fmt::format("wgmma.mma_async.sync.aligned.{}.{}.{} {{{}}}, a, b, p, 1, 1{};",
                             t.shape(t.n), ptx_type(t.type_a), ptx_type(t.type_b), accumulators,
                             t.wide() ? ", 0, 0" : ""));
  }
  text += line("}");
  return text + operand_list(bindings("+f", d, count)) +
         fmt::format("      : \"l\"({}), \"l\"({}){}\n      : \"memory\");\n}}\n", a, b,
                     t.adds ? ", \"r\"(adds)" : "");
}

// The layouts of operands in shared memory: MN-major, or K-major.
struct Major {
  bool a_by_mn, b_by_mn;
};

// Returns the function that multiplies A and B in shared memory, at least one of them MN-major. It
// emits one wgmma per k-step, so n is at most kMostColumns.
std::string emit_shared_rows(const Product& t, Major major) {
  const auto& [function, d, a, b] = t.names;
  const int count = t.n / 2;
  const std::string opening = fmt::format("__device__ __forceinline__ void {}(", function);
  std::string text = fmt::format(
      "// (64, {0}) += {9}; overwrites if `adds` is 0\n"
      "{3}float (&{4})[{2}], unsigned long long {5},\n"
      "{7:{8}}unsigned long long {6}, int adds) {{\n  asm volatile(\n",
      t.n, t.k, count, opening, d, a, b, "", opening.size(),
      (major.a_by_mn ? fmt::format("({}, 64)^T", t.k) : fmt::format("(64, {})", t.k)) + " x " +
          (major.b_by_mn ? fmt::format("({}, {})", t.k, t.n)
                         : fmt::format("({}, {})^T", t.n, t.k)));
  text += line(fmt::format(
      "{{ .reg .pred p; .reg .b64 a, b; .reg .b32 {0}_low, {0}_high, {1}_low, {1}_high, low;", a,
      b));
  text += line(fmt::format("mov.b64 {{{0}_low, {0}_high}}, %{1};", a, count));
  text += line(fmt::format("mov.b64 {{{0}_low, {0}_high}}, %{1};", b, count + 1));
  for (int step = 0; step < t.k / t.step_k(); ++step) {
    if (step == 0) text += line(fmt::format("setp.ne.b32 p, %{}, 0;", count + 2));
    if (step == 1) text += line("setp.ne.b32 p, 1, 0;");
    text += moved(
        "a", a,
        major.a_by_mn ? mn_major_step(t, step, t.row_a) : k_major_step(step, kRowsOfQ, t.row));
    text += moved("b", b, major.b_by_mn ? b_step(t, step) : k_major_step(step, t.n, t.row));
    text += line(fmt::format(
        "wgmma.mma_async.sync.aligned.{}.{}.{} {{{}}}, a, b, p, 1, 1, {:d}, {:d};", t.shape(t.n),
        ptx_type(t.type_a), ptx_type(t.type_b), operands(0, count), major.a_by_mn, major.b_by_mn));
  }
  text += line("}");
  return text + operand_list(bindings("+f", d, count)) +
         fmt::format("      : \"l\"({}), \"l\"({}), \"r\"(adds)\n      : \"memory\");\n}}\n", a, b);
}

// Returns the function that multiplies A in registers by B in shared memory. If n exceeds
// kMostColumns, each k-step has two wgmma.
std::string emit_registers(const Product& t) {
  const auto& [function, d, a, b] = t.names;
  const int count = t.n / 2;
  const int steps = t.k / t.step_k();
  const int a_count = 4 * steps;
  const std::string opening = fmt::format("__device__ __forceinline__ void {}(", function);
  std::string text = fmt::format(
      "// (64, {0}) += (64, {1}) x ({1}, {0}); overwrites if `adds` is 0\n"
      "{4}float (&{5})[{2}], const unsigned (&{6})[{3}],\n"
      "{8:{9}}unsigned long long {7}, int adds) {{\n  asm volatile(\n",
      t.n, t.k, count, a_count, opening, d, a, b, "", opening.size());
  text += line(fmt::format("{{ .reg .pred p; .reg .b64 b; .reg .b32 {0}_low, {0}_high, low;", b));
  text += line(fmt::format("mov.b64 {{{0}_low, {0}_high}}, %{1};", b, count + a_count));
  for (int step = 0; step < steps; ++step) {
    if (step == 0) text += line(fmt::format("setp.ne.b32 p, %{}, 0;", count + a_count + 1));
    if (step == 1) text += line("setp.ne.b32 p, 1, 0;");
    const int width = wgmma_columns_of_v(t.n);
    for (int first = 0; first < t.n; first += width) {
      const int columns = std::min(width, t.n - first);
      text += moved("b", b, b_step(t, step) + first / kPanelColumns * panel_units(t));
      text += line(fmt::format(
          "wgmma.mma_async.sync.aligned.{}.{}.{} {{{}}}, {{{}}}, b, p, 1, 1{};", t.shape(columns),
          ptx_type(t.type_a), ptx_type(t.type_b), operands(first / 2, columns / 2),
          operands(count + 4 * step, 4), t.wide() ? ", 1" : ""));
    }
  }
  text += line("}");
  return text + operand_list(bindings("+f", d, count)) +
         operand_list(bindings("r", a, a_count) + fmt::format(", \"l\"({}), \"r\"(adds)", b)) +
         "      : \"memory\");\n}\n";
}

std::string in_namespace(const std::vector<std::string>& functions) {
  return fmt::format("namespace attune {{\n\n{}\n}}  // namespace attune\n",
                     fmt::join(functions, "\n"));
}

std::string emit(const Product& qk, const Product& pv) {
  return in_namespace({emit_shared(qk), emit_registers(pv)});
}

constexpr Names kQk{"wgmma_qk", "s", "q", "k"};
constexpr Names kPv{"wgmma_pv", "o", "p", "v"};

void check_16_bits(Dtype dtype) {
  if (dtype_bytes(dtype) != 2)
    throw Error(ErrorCode::kInternal,
                fmt::format("dtype is {}; must have 16 bits", dtype_name(dtype)));
}

}  // namespace

int wgmma_columns_of_v(int head_dim_v) {
  if (head_dim_v <= kMostColumns) return head_dim_v;
  return (head_dim_v / 2 + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
}

std::string emit_wgmma_products(const WgmmaTile& tile) {
  check_16_bits(tile.dtype);
  return emit({kQk, tile.dtype, tile.dtype, tile.block_n, tile.head_dim_qk, kPanelRowBytes,
               tile.adds_qk, tile.onto_qk},
              {kPv, tile.dtype, tile.dtype, tile.head_dim_v, tile.block_n, kPanelRowBytes});
}

std::string emit_fp8_wgmma_products(const Fp8WgmmaTile& tile) {
  if (dtype_bytes(tile.dtype_kv) != 1)
    throw Error(ErrorCode::kInternal,
                fmt::format("dtype_kv is {}; must have 8 bits", dtype_name(tile.dtype_kv)));
  return emit({kQk, Dtype::kE4m3, tile.dtype_kv, tile.block_n, tile.head_dim_qk, tile.row_qk},
              {kPv, Dtype::kE4m3, tile.dtype_kv, tile.head_dim_v, tile.block_n, tile.row_v});
}

std::string emit_wgmma_products(Dtype dtype, const std::vector<WgmmaProduct>& products) {
  check_16_bits(dtype);
  std::vector<std::string> functions;
  for (const WgmmaProduct& one : products) {
    Product product{
        {one.function, "d", "first", "second"}, dtype, dtype, one.n, one.k, kPanelRowBytes};
    product.rows = one.rows;
    product.row_a = one.row_a;
    product.adds = one.adds;
    if (one.a == WgmmaA::kShared)
      functions.push_back(emit_shared(product));
    else if (one.a == WgmmaA::kRegisters)
      functions.push_back(emit_registers(product));
    else
      functions.push_back(emit_shared_rows(product, {.a_by_mn = one.a != WgmmaA::kSharedRows,
                                                     .b_by_mn = one.a != WgmmaA::kSharedColumns}));
  }
  return in_namespace(functions);
}

}  // namespace attune
