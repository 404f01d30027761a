// SPDX-License-Identifier: Apache-2.0
// Makes random snippets by recursive descent over types, and operands for them; see
// random_program.hpp.
#include "tuner/fuzz/random_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "generator/core/problem/narrow_float.hpp"

namespace attune::score {
namespace {

class SnippetWriter {
 public:
  SnippetWriter(uint64_t seed, Kind kind, Calculus calculus)
      : random_(seed), is_steady_(calculus == Calculus::kSteady) {
    program_.kind = kind;
  }
  RandomProgram write(int depth);

 private:
  int below(int count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }
  template <size_t kCount>
  const char* one_of(const char* const (&words)[kCount]) {
    return words[below(static_cast<int>(kCount))];
  }
  std::string float_value(int depth);
  std::string steady_value(int depth);
  std::string int_value(int depth);
  std::string bool_value(int depth);
  std::string value(Type type, int depth) {
    return type == Type::kFloat ? float_value(depth)
           : type == Type::kInt ? int_value(depth)
                                : bool_value(depth);
  }
  std::string float_leaf(int depth);
  std::string int_leaf(int depth);
  std::string bool_leaf(int depth);
  // Returns a capture, scalar or local of this type; "" if there is none. Callers do not call it at
  // negative depth, so that nested indices end.
  std::string declared(Type type, int depth);
  void declare();

  std::mt19937_64 random_;
  const bool is_steady_;
  RandomProgram program_;
  std::vector<Scalar> locals_;
};

std::string SnippetWriter::declared(Type type, int depth) {
  std::vector<std::string> found;
  for (const Capture& capture : program_.declarations.captures) {
    if (type_of(capture.type) != type) continue;
    std::string text = capture.name;
    for (int i = 0; i < capture.rank; ++i) text += "[" + int_value(std::min(depth - 1, 1)) + "]";
    found.push_back(text);
  }
  for (const std::vector<Scalar>& named : {program_.declarations.scalars, locals_})
    for (const Scalar& one : named)
      if (one.type == type) found.push_back(one.name);
  return found.empty() ? "" : found[static_cast<size_t>(below(static_cast<int>(found.size())))];
}

std::string SnippetWriter::float_leaf(int depth) {
  std::string word = depth >= 0 && below(2) == 0 ? declared(Type::kFloat, depth) : "";
  if (!word.empty()) return word;
  if (program_.kind == Kind::kScore && below(2) == 0) return "score";
  return one_of({"0.5", "2.0f", "-1.25", "3e-1", ".75", "0.0", "10.",
                 is_steady_ ? "0.125" : "float(kv_idx)"});
}

std::string SnippetWriter::int_leaf(int depth) {
  std::string word = depth >= 0 && below(3) == 0 ? declared(Type::kInt, depth) : "";
  if (!word.empty()) return word;
  return one_of({"q_idx", "kv_idx", "head", "batch", "kv_head", "seqlen_q", "seqlen_kv", "head_dim",
                 "1", "0x7", "-3", "0", "64", "q_idx", "kv_idx"});
}

std::string SnippetWriter::bool_leaf(int depth) {
  std::string word = depth >= 0 && below(3) == 0 ? declared(Type::kBool, depth) : "";
  if (!word.empty()) return word;
  return one_of({"true", "false", "kv_idx <= q_idx", "(q_idx > kv_idx)", "head != 1"});
}

// Returns an expression that keeps errors small: it bounds values before it multiplies or divides
// by them, so that errors of operands grow only by a small factor.
std::string SnippetWriter::steady_value(int depth) {
  if (depth <= 0) return float_leaf(depth);
  const auto x = [&] { return steady_value(depth - 1); };
  switch (below(12)) {
    case 0:
      return float_leaf(depth);
    case 1:
      return fmt::format("0.25 * floormod({}, 9)", int_value(depth - 1));
    case 2:
      return fmt::format("{}({})", one_of({"tanh", "sigmoid", "abs", "-"}), x());
    case 3:
      return fmt::format("exp{}(min({}, 1.0))", one_of({"", "2"}), x());
    case 4:
      return fmt::format("{}(abs({}) + 0.5)", one_of({"log", "log2", "sqrt", "rsqrt"}), x());
    case 5:
      return fmt::format("({} ? {} : {})", bool_value(depth - 1), x(), x());
    case 6:
      return fmt::format("select({}, {}, {})", bool_value(depth - 1), x(), x());
    case 7:
      return fmt::format("{}({}, {})", one_of({"min", "max"}), x(), x());
    case 8:
      return fmt::format("clamp({}, -2, {})", x(), x());
    case 9:
      return fmt::format("({} * tanh({}))", x(), x());
    case 10:
      return fmt::format("({} / (abs({}) + 1.0))", x(), x());
    default:
      return fmt::format("({} {} {})", x(), one_of({"+", "-"}), x());
  }
}

std::string SnippetWriter::float_value(int depth) {
  if (is_steady_) return steady_value(depth);
  if (depth <= 0) return below(4) == 0 ? int_leaf(depth) : float_leaf(depth);
  const auto x = [&] { return float_value(depth - 1); };
  switch (below(12)) {
    case 0:
      return float_leaf(depth);
    case 1:
      return int_value(depth - 1);
    case 2:
      return fmt::format("{}({})", one_of({"tanh", "sigmoid", "floor", "abs"}), x());
    case 3:
      return fmt::format("exp{}(min({}, 4.0))", one_of({"", "2"}), x());
    case 4:
      return fmt::format("{}(abs({}) + 0.5)", one_of({"log", "log2", "sqrt", "rsqrt"}), x());
    case 5:
      return fmt::format("-({})", x());
    case 6:
      return fmt::format("({} ? {} : {})", bool_value(depth - 1), x(), x());
    case 7:
      return fmt::format("select({}, {}, {})", bool_value(depth - 1), x(), x());
    case 8:
      return fmt::format("{}({}, {})", one_of({"min", "max"}), x(), x());
    case 9:
      return fmt::format("clamp({}, -2, {})", x(), x());
    default:
      return fmt::format("({} {} {})", x(), one_of({"+", "-", "*", "*", "/"}), x());
  }
}

std::string SnippetWriter::int_value(int depth) {
  if (depth <= 0) return int_leaf(depth);
  const auto x = [&] { return int_value(depth - 1); };
  switch (below(10)) {
    case 0:
      return int_leaf(depth);
    case 1:
      return fmt::format("{}{}({})", one_of({"-", "~", "+", "abs"}), "", x());
    case 2:
      return is_steady_ ? int_leaf(depth) : fmt::format("(int)({})", float_value(depth - 1));
    case 3:
      return fmt::format("int({})", bool_value(depth - 1));
    case 4:
      return fmt::format("{}({}, {})", one_of({"min", "max", "floordiv", "floormod"}), x(), x());
    case 5:
      return fmt::format("({} ? {} : {})", bool_value(depth - 1), x(), x());
    case 6:
      // Constants that do not fit an int are refused, so the shifted value is not a constant.
      return fmt::format("({} {} {})", x(), one_of({"&", "|", "^", "^ q_idx <<", ">>"}), x());
    default:
      return fmt::format("({} {} {})", x(), one_of({"+", "-", "*", "/", "%"}), x());
  }
}

std::string SnippetWriter::bool_value(int depth) {
  if (depth <= 0) return bool_leaf(depth);
  const auto x = [&](Type type) { return value(type, depth - 1); };
  const Type compared = is_steady_ ? Type::kInt : Type::kFloat;
  const char* comparison = one_of({"<", "<=", ">", ">=", "==", "!="});
  switch (below(6)) {
    case 0:
      return bool_leaf(depth);
    case 1:
      return fmt::format("!({})", x(Type::kBool));
    case 2:
      return fmt::format("({} {} {})", x(Type::kInt), comparison, x(Type::kInt));
    case 3:
      return fmt::format("({} {} {})", x(compared), comparison, x(compared));
    default:
      return fmt::format("(({}) {} ({}))", x(Type::kBool),
                         one_of({"&&", "||", "&", "|", "^", "==", "!="}), x(Type::kBool));
  }
}

void SnippetWriter::declare() {
  Declarations& declarations = program_.declarations;
  for (int i = below(5); i > 0; --i)
    declarations.captures.push_back(
        {fmt::format("table{}", i), static_cast<CaptureType>(below(7)), below(5)});
  for (int i = below(4); i > 0; --i)
    declarations.scalars.push_back({fmt::format("number{}", i), static_cast<Type>(below(3))});
}

RandomProgram SnippetWriter::write(int depth) {
  declare();
  const Type result = program_.kind == Kind::kScore ? Type::kFloat : Type::kBool;
  for (int i = below(3); i > 0; --i) {
    const Type type = static_cast<Type>(below(3));
    const std::string name = fmt::format("local{}", i);
    program_.text += fmt::format("{}{} {} = {};  // a local\n", below(2) == 0 ? "const " : "",
                                 type_name(type), name, value(type, depth - 2));
    locals_.push_back({name, type});
  }
  for (int i = below(3); i > 0; --i)
    program_.text +=
        fmt::format("if ({}) return {};\n", bool_value(depth - 3), value(result, depth - 2));
  program_.text += fmt::format("return {};\n", value(result, depth));
  return program_;
}

template <class T>
void store(std::vector<uint8_t>* bytes, size_t index, T value) {
  std::memcpy(bytes->data() + index * sizeof(T), &value, sizeof(T));
}

void store_random(CaptureType type, size_t index, std::mt19937_64* random,
                  std::vector<uint8_t>* bytes) {
  const int number = static_cast<int>((*random)() % 129) - 64;
  const float real = static_cast<float>(number) / 16;
  switch (type) {
    case CaptureType::kFp32:
      return store(bytes, index, real);
    case CaptureType::kBf16:
      return store(bytes, index, to_bf16(real));
    case CaptureType::kFp16:
      return store(bytes, index, to_fp16(real));
    case CaptureType::kInt32:
      return store(bytes, index, static_cast<int32_t>(number / 8));
    case CaptureType::kInt64:  // its upper half is ignored
      return store(bytes, index, static_cast<int64_t>(number / 8) + (int64_t{number} << 36));
    case CaptureType::kUint8:
      return store(bytes, index, static_cast<uint8_t>(number + 64));
    case CaptureType::kBool:
      return store(bytes, index, static_cast<uint8_t>(number > 0 ? number : 0));
  }
}

size_t bytes_of(CaptureType type) {
  constexpr size_t kBytes[] = {4, 2, 2, 4, 8, 1, 1};
  return kBytes[static_cast<size_t>(type)];
}

}  // namespace

RandomProgram random_program(uint64_t seed, Kind kind, int depth, Calculus calculus) {
  return SnippetWriter(seed, kind, calculus).write(depth);
}

RandomOperands::RandomOperands(const Program& program, uint64_t seed) {
  std::mt19937_64 random(seed);
  bytes_.resize(program.captures().size());
  for (size_t i = 0; i < bytes_.size(); ++i) {
    const Capture& declared = program.captures()[i];
    ScoreCapture& capture = args_.captures[i];
    size_t span = 1;  // elements of the dimensions so far, with their gaps
    for (int d = 0; d < declared.rank; ++d) {
      capture.extents[d] = static_cast<int>(1 + random() % 5);
      const bool repeats = random() % 4 == 0;
      capture.strides[d] = repeats ? 0 : static_cast<long long>(span + random() % 3);
      span += static_cast<size_t>(capture.strides[d]) * static_cast<size_t>(capture.extents[d] - 1);
    }
    bytes_[i].resize(span * bytes_of(declared.type));
    for (size_t e = 0; e < span; ++e) store_random(declared.type, e, &random, &bytes_[i]);
    capture.data = bytes_[i].data();
  }
  for (size_t i = 0; i < program.scalars().size(); ++i) {
    const int number = static_cast<int>(random() % 33) - 16;
    if (program.scalars()[i].type == Type::kFloat)
      args_.scalars[i].f32 = static_cast<float>(number) / 8;
    else
      args_.scalars[i].i32 = program.scalars()[i].type == Type::kBool ? number & 1 : number;
  }
  args_.seqlen_q = static_cast<int>(1 + random() % 40);
  args_.seqlen_kv = static_cast<int>(1 + random() % 40);
  args_.head_dim = 64;
}

}  // namespace attune::score
