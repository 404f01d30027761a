// SPDX-License-Identifier: Apache-2.0
// Executes the generated wgmma statements on the host. Descriptors must address tiles in the layout
// of templates/shared/layouts/prefill_sm90_layout.h, registers are taken by number, and both
// products must be right. numerics_test runs the compiled statements on a device.
#include "generator/render/wgmma_emitter.hpp"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <regex>
#include <sstream>
#include <tuple>
#include <vector>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

constexpr int kRows = 64;             // rows of Q, S, P and O: one warpgroup
constexpr int kRowStep = 21;          // checked rows: 0, 21, 42, 63
constexpr int kDescriptorUnit = 16;   // bytes
constexpr int kRegistersPerStep = 4;  // registers of P

struct Matrix {
  int rows, columns;
  std::vector<int64_t> values;
  Matrix(int r, int c) : rows(r), columns(c), values(static_cast<size_t>(r) * c) {}
  int64_t& at(int r, int c) { return values[static_cast<size_t>(r) * columns + c]; }
  int64_t at(int r, int c) const { return values[static_cast<size_t>(r) * columns + c]; }
};

// Returns a matrix with distinct elements, so that no two places can be confused.
Matrix numbered(int rows, int columns, int seed) {
  Matrix m(rows, columns);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) m.at(r, c) = (r * 7919 + c * 104729 + seed * 31) % 1009 - 500;
  return m;
}

// A tile in shared memory: panels of `row_bytes` bytes of each row, one panel after the other,
// zeros after the last column. The swizzle moves 16-byte pieces within a row, for descriptors and
// TMA alike, so it is left out.
struct Tile {
  Matrix matrix;
  int row_bytes, element_bytes;

  int columns_per_panel() const { return row_bytes / element_bytes; }
  int panel_bytes() const { return matrix.rows * row_bytes; }
  int64_t at_byte(int64_t address) const {
    const int64_t panel = address / panel_bytes(), inside = address % panel_bytes();
    const int64_t column = panel * columns_per_panel() + inside % row_bytes / element_bytes;
    if (column >= matrix.columns) return 0;
    return matrix.at(static_cast<int>(inside / row_bytes), static_cast<int>(column));
  }
};

// One wgmma of the text, with the descriptor moves before it.
struct Statement {
  std::string types;  // "f32.bf16.bf16"
  int n = 0, k = 0;
  std::vector<int> accumulators;  // operand numbers
  std::vector<int> registers;     // registers of A, if A is not in shared memory
  std::optional<int> a, b;        // bytes from the start of the tile
  std::string adds;               // source of the predicate
};

std::vector<int> numbers_of(const std::string& list) {
  std::vector<int> numbers;
  const std::regex number("%(\\d+)");
  for (std::sregex_iterator at(list.begin(), list.end(), number), end; at != end; ++at)
    numbers.push_back(std::stoi((*at)[1]));
  return numbers;
}

// Returns the lines of PTX in one function.
std::vector<std::string> ptx_of(const std::string& text, const std::string& function) {
  std::string body = text.substr(text.find("void " + function));
  body = body.substr(0, body.find("\n}\n"));
  std::string joined;
  const std::regex literal("\"((?:[^\"\\\\]|\\\\.)*)\"");
  for (std::sregex_iterator at(body.begin(), body.end(), literal), end; at != end; ++at) {
    const std::string piece = (*at)[1];
    if (piece == "+f" || piece == "l" || piece == "r" || piece == "memory") continue;
    joined += piece;
  }
  std::vector<std::string> lines;
  for (size_t at = 0; at < joined.size();) {
    const size_t end = joined.find("\\n", at);
    lines.push_back(joined.substr(at, end - at));
    at = end + 2;
  }
  return lines;
}

std::vector<Statement> statements_of(const std::string& text, const std::string& function) {
  std::vector<Statement> found;
  Statement next;
  int moved = 0;
  std::smatch m;
  const std::regex add("add\\.u32 low, [a-z]+_low, (\\d+);"), move("mov\\.b64 ([ab]), \\{low, .*");
  const std::regex predicate("setp\\.ne\\.b32 p, (\\S+), 0;");
  const std::regex product(
      "wgmma\\.mma_async\\.sync\\.aligned\\.m64n(\\d+)k(\\d+)\\.(\\S+) \\{([^}]*)\\}, "
      "(a|\\{[^}]*\\}), b, p, 1, 1.*");
  for (const std::string& line : ptx_of(text, function)) {
    if (std::regex_match(line, m, add)) moved = std::stoi(m[1]) * kDescriptorUnit;
    if (std::regex_match(line, m, move)) (m[1] == "a" ? next.a : next.b) = moved;
    if (std::regex_match(line, m, predicate)) next.adds = m[1];
    if (!std::regex_match(line, m, product)) continue;
    next.n = std::stoi(m[1]), next.k = std::stoi(m[2]);
    next.types = m[3];
    next.accumulators = numbers_of(m[4]);
    next.registers = numbers_of(m[5]);
    found.push_back(next);
    next.a = next.b = std::nullopt;
  }
  return found;
}

std::vector<int> counted(int first, int count) {
  std::vector<int> all;
  for (int i = 0; i < count; ++i) all.push_back(first + i);
  return all;
}

struct Case {
  int block_n, head_dim_qk, head_dim_v;
  int element_bytes = 2;
  int row_qk = 128, row_v = 128;
  std::string qk_types, pv_types;

  std::string name() const {
    std::ostringstream text;
    text << block_n << " keys, head dims " << head_dim_qk << " and " << head_dim_v << ", rows of "
         << row_qk << " and " << row_v << " bytes, " << qk_types;
    return text.str();
  }
};

// Checks S = Q K^T as computed by the statements.
void expect_qk(const std::string& text, const Case& c, const char* function = "wgmma_qk") {
  const Tile q{numbered(kRows, c.head_dim_qk, 1), c.row_qk, c.element_bytes};
  const Tile k{numbered(c.block_n, c.head_dim_qk, 2), c.row_qk, c.element_bytes};
  Matrix s = numbered(kRows, c.block_n, 3);  // left over from an earlier step
  for (const Statement& step : statements_of(text, function)) {
    ASSERT_EQ(step.types, c.qk_types);
    ASSERT_EQ(step.n, c.block_n);
    ASSERT_EQ(step.accumulators, counted(0, c.block_n / 2));
    ASSERT_TRUE(step.a && step.b && step.registers.empty());
    if (step.adds == "0") s = Matrix(kRows, c.block_n);
    for (int row = 0; row < kRows; row += kRowStep)
      for (int key = 0; key < c.block_n; ++key)
        for (int i = 0; i < step.k; ++i)
          s.at(row, key) += q.at_byte(*step.a + row * c.row_qk + i * c.element_bytes) *
                            k.at_byte(*step.b + key * c.row_qk + i * c.element_bytes);
  }
  for (int row = 0; row < kRows; row += kRowStep)
    for (int key = 0; key < c.block_n; ++key) {
      int64_t want = 0;
      for (int i = 0; i < c.head_dim_qk; ++i) want += q.matrix.at(row, i) * k.matrix.at(key, i);
      ASSERT_EQ(s.at(row, key), want) << c.name() << " row " << row << " key " << key;
    }
}

// Checks O += P V as computed by the statements. 16-bit V has one row per key; 8-bit V is
// transposed.
void expect_pv(const std::string& text, const Case& c, const char* function = "wgmma_pv") {
  const bool wide = c.element_bytes == 2;
  const Matrix p = numbered(kRows, c.block_n, 4), v = numbered(c.block_n, c.head_dim_v, 5);
  Matrix turned(c.head_dim_v, c.block_n);
  for (int key = 0; key < c.block_n; ++key)
    for (int column = 0; column < c.head_dim_v; ++column)
      turned.at(column, key) = v.at(key, column);
  const Tile tile{wide ? v : turned, c.row_v, c.element_bytes};
  const int first_register = c.head_dim_v / 2;  // after the accumulators
  const int adds_operand =
      first_register + kRegistersPerStep * c.block_n * c.element_bytes / 32 + 1;
  Matrix o(kRows, c.head_dim_v);
  std::string adds = "%" + std::to_string(adds_operand);
  for (const Statement& step : statements_of(text, function)) {
    ASSERT_EQ(step.types, c.pv_types);
    ASSERT_EQ(step.n, c.head_dim_v);
    ASSERT_EQ(step.accumulators, counted(0, c.head_dim_v / 2));
    ASSERT_TRUE(step.b && !step.a);
    ASSERT_EQ(step.adds.empty() ? adds : step.adds, adds);  // the first step uses the caller's
    adds = "1";
    ASSERT_EQ((step.registers.front() - first_register) % kRegistersPerStep, 0);
    ASSERT_EQ(step.registers, counted(step.registers.front(), kRegistersPerStep));
    const int first_key = (step.registers.front() - first_register) / kRegistersPerStep * step.k;
    for (int row = 0; row < kRows; row += kRowStep)
      for (int column = 0; column < c.head_dim_v; ++column)
        for (int i = 0; i < step.k; ++i) {
          const int64_t address = wide
                                      ? *step.b + i * c.row_v +
                                            column / tile.columns_per_panel() * tile.panel_bytes() +
                                            column % tile.columns_per_panel() * c.element_bytes
                                      : *step.b + column * c.row_v + i;
          o.at(row, column) += p.at(row, first_key + i) * tile.at_byte(address);
        }
  }
  for (int row = 0; row < kRows; row += kRowStep)
    for (int column = 0; column < c.head_dim_v; ++column) {
      int64_t want = 0;
      for (int key = 0; key < c.block_n; ++key) want += p.at(row, key) * v.at(key, column);
      ASSERT_EQ(o.at(row, column), want) << c.name() << " row " << row << " column " << column;
    }
}

TEST(WgmmaEmitter, SixteenBitStatementsComputeTheProducts) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16})
    for (const int block_n : {48, 80, 176})
      for (const auto& [qk, v] : {std::pair{16, 256}, {64, 64}, {72, 136}, {128, 40}, {256, 8}}) {
        const std::string type = dtype == Dtype::kBf16 ? "bf16" : "f16";
        const std::string types = "f32." + type + "." + type;
        const Case c{.block_n = block_n,
                     .head_dim_qk = qk,
                     .head_dim_v = v,
                     .qk_types = types,
                     .pv_types = types};
        const std::string text = emit_wgmma_products({dtype, block_n, qk, v});
        expect_qk(text, c);
        expect_pv(text, c);
      }
}

// Equal products under different names, one after the other in one text.
TEST(WgmmaEmitter, EachProductHasItsFunction) {
  const Case wide{.block_n = 96,
                  .head_dim_qk = 72,
                  .head_dim_v = 200,
                  .qk_types = "f32.f16.f16",
                  .pv_types = "f32.f16.f16"};
  const Case narrow{.block_n = 64,
                    .head_dim_qk = 256,
                    .head_dim_v = 40,
                    .qk_types = "f32.f16.f16",
                    .pv_types = "f32.f16.f16"};
  const std::string text =
      emit_wgmma_products(Dtype::kFp16, {{"first_scores", WgmmaA::kShared, 96, 72},
                                         {"first_sums", WgmmaA::kRegisters, 200, 96},
                                         {"second_scores", WgmmaA::kShared, 64, 256},
                                         {"second_sums", WgmmaA::kRegisters, 40, 64}});
  expect_qk(text, wide, "first_scores");
  expect_pv(text, wide, "first_sums");
  expect_qk(text, narrow, "second_scores");
  expect_pv(text, narrow, "second_sums");
}

// One k-step advances A^T by 16 rows of 128 bytes (or of row_a) and B^T by 32 bytes. For A and B
// the two are exchanged.
TEST(WgmmaEmitter, TransposedOperandsStepTheOtherWay) {
  const auto count = [](const std::string& text, const std::string& part) {
    int found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++found;
    return found;
  };
  for (const auto& [a, row_a, modes, of_a, of_b] :
       {std::tuple{WgmmaA::kSharedColumns, 128, "1, 0;", 128, 2},
        {WgmmaA::kSharedRows, 128, "0, 1;", 2, 128},
        {WgmmaA::kSharedBothColumns, 128, "1, 1;", 128, 128},
        {WgmmaA::kSharedBothColumns, 32, "1, 1;", 32, 128}}) {
    const std::string text = emit_wgmma_products(Dtype::kBf16, {{"product", a, 80, 64, 0, row_a}});
    EXPECT_EQ(count(text, "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16"), 4);
    EXPECT_EQ(count(text, std::string("a, b, p, 1, 1, ") + modes), 4);
    for (int step = 0; step < 4; ++step) {
      const auto moved = [&](const char* from, int by) {
        return "add.u32 low, " + std::string(from) + "_low, " + std::to_string(by) + ";";
      };
      EXPECT_EQ(count(text, moved("first", step * of_a)), 1) << text;
      EXPECT_EQ(count(text, moved("second", step * of_b)), 1) << text;
    }
    EXPECT_NE(text.find("void product(float (&d)[40], unsigned long long first,"),
              std::string::npos);
  }
}
TEST(WgmmaEmitter, EightBitStatementsComputeTheProducts) {
  for (const Dtype dtype : {Dtype::kE4m3, Dtype::kE5m2})
    for (const int block_n : {64, 96, 224})
      for (const auto& [row_qk, row_v] : {std::pair{128, 128}, {64, 32}, {32, 64}, {128, 32}})
        for (const auto& [qk, v] : {std::pair{16, 256}, {136, 72}, {256, 40}}) {
          const std::string types =
              std::string("f32.e4m3.") + (dtype == Dtype::kE4m3 ? "e4m3" : "e5m2");
          const Case c{block_n, qk, v, 1, row_qk, row_v, types, types};
          const std::string text = emit_fp8_wgmma_products({dtype, block_n, qk, v, row_qk, row_v});
          expect_qk(text, c);
          expect_pv(text, c);
        }
}

TEST(WgmmaEmitter, WritesLinesOfAHundredColumns) {
  std::istringstream text(emit_wgmma_products({Dtype::kBf16, 176, 256, 256}));
  for (std::string line; std::getline(text, line);) {
    EXPECT_LE(line.size(), 100u) << line;
    EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
  }
}

TEST(WgmmaEmitter, RefusesTypesThatWgmmaDoesNotTake) {
  EXPECT_THROW(emit_wgmma_products({Dtype::kFp32, 64, 64, 64}), Error);
  EXPECT_THROW(emit_fp8_wgmma_products({Dtype::kBf16, 64, 64, 64, 64, 64}), Error);
}

}  // namespace
}  // namespace attune
