// SPDX-License-Identifier: Apache-2.0
// Words of the language, and composition of programs; see program.hpp.
#include "generator/score/language/program.hpp"

#include <bit>

#include "generator/core/system/error.hpp"
#include "generator/score/language/builder.hpp"

namespace attune::score {
namespace {

void require(const Program& program, Kind kind, const char* function) {
  if (program.kind() != kind)
    throw Error(
        ErrorCode::kInvalidArgument,
        std::string(function) + (kind == Kind::kScore
                                     ? " is given a mask program where it takes a score program"
                                     : " is given a score program where it takes a mask program"));
}

}  // namespace

const char* type_name(Type type) {
  constexpr const char* kNames[] = {"bool", "int", "float"};
  return kNames[static_cast<size_t>(type)];
}

Type type_of(CaptureType type) {
  switch (type) {
    case CaptureType::kFp32:
    case CaptureType::kBf16:
    case CaptureType::kFp16:
      return Type::kFloat;
    case CaptureType::kBool:
      return Type::kBool;
    default:
      return Type::kInt;
  }
}

const char* name_text(Name name) {
  constexpr const char* kTexts[kNumNames] = {"score",  "batch",    "head",      "kv_head", "q_idx",
                                             "kv_idx", "seqlen_q", "seqlen_kv", "head_dim"};
  return kTexts[static_cast<size_t>(name)];
}

float Node::float_value() const { return std::bit_cast<float>(bits); }
int32_t Node::int_value() const { return static_cast<int32_t>(bits); }

bool Program::operator==(const Program& other) const {
  return kind_ == other.kind_ && nodes_ == other.nodes_ && captures_ == other.captures_ &&
         scalars_ == other.scalars_;
}

Program identity() {
  Builder builder("identity");
  return builder.finish(builder.name(Name::kScore));
}

Program chain(const Program& first, const Program& second) {
  require(first, Kind::kScore, "chain");
  require(second, Kind::kScore, "chain");
  Builder builder("the composed program");
  const int score = builder.import(first);
  return builder.finish(
      builder.import(second, [&](int there, std::span<const int>) -> std::optional<int> {
        const Node& node = second.nodes()[static_cast<size_t>(there)];
        if (node.operation != Operation::kName || node.index != static_cast<int>(Name::kScore))
          return std::nullopt;
        return score;
      }));
}

Program hide(const Program& score, const Program& mask) {
  require(score, Kind::kScore, "hide");
  require(mask, Kind::kMask, "hide");
  Builder builder("the composed program");
  const int value = builder.import(score);
  const int seen = builder.import(mask);
  const int hidden =
      builder.make(Operation::kNegate, Type::kFloat,
                   {builder.constant(std::bit_cast<float>(0x7f800000U))});  // infinity
  return builder.finish(builder.select(seen, value, hidden));
}

Program both(const Program& first, const Program& second) {
  require(first, Kind::kMask, "both");
  require(second, Kind::kMask, "both");
  Builder builder("the composed program");
  const int a = builder.import(first);
  return builder.finish(builder.both(a, builder.import(second)));
}

}  // namespace attune::score
