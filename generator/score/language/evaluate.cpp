// SPDX-License-Identifier: Apache-2.0
// Evaluates programs in float64; see evaluate.hpp. One pass over the nodes; the values of short
// programs are on the stack.
#include "generator/score/language/evaluate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "generator/core/problem/narrow_float.hpp"
#include "generator/core/system/error.hpp"

namespace attune::score {
namespace {

int32_t low_bits(double value) {
  return static_cast<int32_t>(
      static_cast<uint32_t>(static_cast<uint64_t>(static_cast<int64_t>(value))));
}

Value integer(int32_t value) {
  Value v{};
  v.integer = value;
  return v;
}

Value real(double value) {
  Value v{};
  v.real = value;
  return v;
}

Value typed(Type type, double value) {
  if (type == Type::kFloat) return real(value);
  return integer(type == Type::kBool ? (value != 0 ? 1 : 0) : low_bits(value));
}

Value value_of_name(Name name, const Point& point) {
  switch (name) {
    case Name::kScore:
      return real(point.score);
    case Name::kBatch:
      return integer(point.batch);
    case Name::kHead:
      return integer(point.head);
    case Name::kKvHead:
      return integer(point.kv_head);
    case Name::kQIdx:
      return integer(point.q_idx);
    case Name::kKvIdx:
      return integer(point.kv_idx);
    case Name::kSeqlenQ:
      return integer(point.seqlen_q);
    case Name::kSeqlenKv:
      return integer(point.seqlen_kv);
    case Name::kHeadDim:
      return integer(point.head_dim);
    case Name::kScoreUnit:
      return real(1);
  }
  return {};
}

void check(const Program& program, const Loads& loads) {
  if (loads.scalars.size() < program.scalars().size())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("loads.scalars has {} values; the program reads {}",
                            loads.scalars.size(), program.scalars().size()));
  if (!program.captures().empty() && !loads.load)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("loads.load is empty; the program reads {} captures",
                            program.captures().size()));
}

template <class T>
T read(const void* data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const T*>(data) + index, sizeof(T));
  return value;
}

}  // namespace

Value leaf_value(const Node& node, const Point& point, const Loads& loads,
                 std::span<const int64_t> indices) {
  switch (node.operation) {
    case Operation::kConstant:
      return value_of_constant(node);
    case Operation::kName:
      return value_of_name(static_cast<Name>(node.index), point);
    case Operation::kScalar:
      return typed(node.type, loads.scalars[static_cast<size_t>(node.index)]);
    case Operation::kLoad:
      return typed(node.type, loads.load(node.index, indices));
    default:
      break;
  }
  throw Error(ErrorCode::kInternal,
              fmt::format("score operation {} is not a leaf", static_cast<int>(node.operation)));
}

double evaluate(const Program& program, const Point& point, const Loads& loads) {
  check(program, loads);
  const std::vector<Node>& nodes = program.nodes();
  constexpr size_t kFew = 256;  // a longer program costs an allocation
  Value few[kFew];
  std::vector<Value> many(nodes.size() > kFew ? nodes.size() : 0);
  Value* const values = many.empty() ? few : many.data();
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    // Operands past num_operands read the value of node 0, which is unused.
    const auto operand = [&](size_t o) { return values[static_cast<size_t>(node.operands[o])]; };
    if (node.num_operands == 0) {
      values[i] = leaf_value(node, point, loads, {});
    } else if (node.operation == Operation::kLoad) {
      const int64_t indices[kMaxCaptureRank] = {operand(0).integer, operand(1).integer,
                                                operand(2).integer, operand(3).integer};
      values[i] = leaf_value(node, point, loads, {indices, node.num_operands});
    } else {
      const Value operands[3] = {operand(0), operand(1), operand(2)};
      const Type type = nodes[static_cast<size_t>(node.operands[0])].type;
      values[i] = compute(node.operation, type, operands);
    }
  }
  const Value result = values[nodes.size() - 1];
  return program.kind() == Kind::kMask ? result.integer : result.real;
}

double element_of(CaptureType type, const ScoreCapture& capture, std::span<const int64_t> indices) {
  int64_t at = 0;
  for (size_t i = 0; i < indices.size(); ++i)
    at += std::clamp<int64_t>(indices[i], 0, std::max(capture.extents[i] - 1, 0)) *
          capture.strides[i];
  switch (type) {
    case CaptureType::kFp32:
      return static_cast<double>(read<float>(capture.data, at));
    case CaptureType::kBf16:
      return static_cast<double>(from_bf16(read<uint16_t>(capture.data, at)));
    case CaptureType::kFp16:
      return static_cast<double>(from_fp16(read<uint16_t>(capture.data, at)));
    case CaptureType::kInt32:
      return read<int32_t>(capture.data, at);
    case CaptureType::kInt64:
      return static_cast<int32_t>(static_cast<uint32_t>(read<uint64_t>(capture.data, at)));
    case CaptureType::kUint8:
      return read<uint8_t>(capture.data, at);
    case CaptureType::kBool:
      return read<uint8_t>(capture.data, at) != 0 ? 1 : 0;
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("a capture has type {}; must be 0 to {}", static_cast<int>(type),
                          static_cast<int>(CaptureType::kBool)));
}

Loads loads_of(const Program& program, const ScoreArgs& args) {
  Loads loads;
  std::vector<CaptureType> types;
  for (const Capture& capture : program.captures()) types.push_back(capture.type);
  loads.load = [types = std::move(types), &args](int capture, std::span<const int64_t> indices) {
    return element_of(types[static_cast<size_t>(capture)], args.captures[capture], indices);
  };
  for (size_t i = 0; i < program.scalars().size(); ++i) {
    const ScoreScalar& scalar = args.scalars[i];
    loads.scalars.push_back(program.scalars()[i].type == Type::kFloat
                                ? static_cast<double>(scalar.f32)
                                : static_cast<double>(scalar.i32));
  }
  return loads;
}

}  // namespace attune::score
