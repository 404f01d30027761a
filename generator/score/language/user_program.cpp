// SPDX-License-Identifier: Apache-2.0
// See user_program.hpp.
#include "generator/score/language/user_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <mutex>
#include <optional>

#include "generator/core/system/digest.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/files.hpp"
#include "generator/score/features/score_operands.hpp"
#include "generator/score/language/parse.hpp"
#include "generator/score/language/program.hpp"

namespace attune {
namespace {

struct Registry {
  std::mutex mutex;
  std::deque<UserProgram> programs;  // a deque: addresses stay valid
};

Registry& registry() {
  static Registry instance;
  return instance;
}

const UserProgram* find(const Registry& all, const ProgramDigest& digest) {
  for (const UserProgram& program : all.programs)
    if (program.digest == digest) return &program;
  return nullptr;
}

std::optional<ProgramDigest> digest_of(std::string_view hex) {
  if (hex.size() != 32) return std::nullopt;
  ProgramDigest digest;
  for (const auto& [part, value] :
       {std::pair{hex.substr(0, 16), &digest.high}, std::pair{hex.substr(16), &digest.low}}) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), *value, 16);
    if (error != std::errc() || end != part.data() + part.size()) return std::nullopt;
  }
  return digest;
}

ProgramDigest digest_of(const score::Program& program) {
  std::string text = score::digest(program);
  for (const score::Capture& capture : program.captures()) text += "\n" + capture.name;
  for (const score::Scalar& scalar : program.scalars()) text += "\n" + scalar.name;
  return *digest_of(xxh3_128_hex(text));
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

std::optional<CaptureType> parse_element(std::string_view name) {
  for (const CaptureType type :
       {CaptureType::kFp32, CaptureType::kBf16, CaptureType::kFp16, CaptureType::kInt32,
        CaptureType::kInt64, CaptureType::kUint8, CaptureType::kBool})
    if (name == element_name(type)) return type;
  return std::nullopt;
}

// Parses "slopes: fp32[1]".
std::optional<score::Capture> parse_capture(std::string_view text) {
  const size_t colon = text.find(':'), open = text.find('[');
  if (colon == std::string_view::npos || open == std::string_view::npos || text.back() != ']')
    return std::nullopt;
  const std::string_view rank = trimmed(text.substr(open + 1, text.size() - open - 2));
  const auto type = parse_element(trimmed(text.substr(colon + 1, open - colon - 1)));
  if (!type || rank.size() != 1 || rank[0] < '0' || rank[0] > '4') return std::nullopt;
  return score::Capture{std::string(trimmed(text.substr(0, colon))), *type, rank[0] - '0'};
}

// Parses "window: int".
std::optional<score::Scalar> parse_scalar(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view type = trimmed(text.substr(colon + 1));
  for (const score::Type one : {score::Type::kBool, score::Type::kInt, score::Type::kFloat})
    if (type == score::type_name(one))
      return score::Scalar{std::string(trimmed(text.substr(0, colon))), one};
  return std::nullopt;
}

std::string declaration_of(const score::Capture& capture) {
  return fmt::format("// capture {}: {}[{}]\n", capture.name, element_name(capture.type),
                     capture.rank);
}

std::string declaration_of(const score::Scalar& scalar) {
  return fmt::format("// scalar {}: {}\n", scalar.name, score::type_name(scalar.type));
}

// Returns the declarations, as lines, that a text lacks.
template <class Named>
std::string declarations_beside(const std::vector<Named>& all, const std::vector<Named>& in_text) {
  std::string lines;
  for (const Named& one : all)
    if (std::count(in_text.begin(), in_text.end(), one) == 0) lines += declaration_of(one);
  return lines;
}

std::string nodes_of(const score::Program& program) {
  std::string text;
  for (const score::Node& node : program.nodes()) {
    text += fmt::format("{} {} {} {}", static_cast<int>(node.operation),
                        static_cast<int>(node.type), node.index, node.bits);
    for (size_t i = 0; i < node.num_operands; ++i) text += fmt::format(" {}", node.operands[i]);
    text += '\n';
  }
  return text;
}

// Returns the kept program with this digest, or keeps this one after filling in its digest and
// texts.
const UserProgram& keep(UserProgram made) {
  made.digest = digest_of(made.program);
  for (const score::Capture& capture : made.program.captures())
    made.text += declaration_of(capture);
  for (const score::Scalar& scalar : made.program.scalars()) made.text += declaration_of(scalar);
  made.text += score::canonical_text(made.program);
  if (made.source.empty()) made.source = made.text;
  made.nodes = nodes_of(made.program);
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (const UserProgram* known = find(all, made.digest)) return *known;
  return all.programs.emplace_back(std::move(made));
}

}  // namespace

std::string to_text(const ProgramDigest& digest) {
  return digest ? fmt::format("{:016x}{:016x}", digest.high, digest.low) : "none";
}

ProgramDigest parse_program_digest(std::string_view text) {
  if (text == "none") return {};
  if (const auto digest = digest_of(text)) return *digest;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("\"{}\" is not a program's digest; must be none or 32 hex digits", text));
}

const UserProgram& add_user_program(std::string_view text, score::Kind kind,
                                    const score::Declarations& declarations,
                                    std::string_view name) {
  UserProgram made;
  made.program = score::parse(text, kind, declarations, name, &made.warnings);
  const score::Declarations in_text = declarations_in(text, name);
  made.source = declarations_beside(declarations.captures, in_text.captures) +
                declarations_beside(declarations.scalars, in_text.scalars) + std::string(text);
  return keep(std::move(made));
}

const UserProgram& add_user_program(const score::Program& program) {
  // The programs of a problem's features are numbered as parts, so a composed program must become
  // one part.
  if (program.parts() > 1)
    return add_user_program(score::canonical_text(program), program.kind(),
                            {program.captures(), program.scalars()}, "the composed program");
  UserProgram made;
  made.program = program;
  return keep(std::move(made));
}

const UserProgram& read_user_program(std::string_view text, score::Kind kind,
                                     std::string_view name) {
  return add_user_program(text, kind, declarations_in(text, name), name);
}

const UserProgram& load_user_program(const std::string& path, score::Kind kind) {
  constexpr size_t kMostBytes = size_t{1} << 20;  // no hand-written program is near this size
  return read_user_program(read_file("the program file", path, kMostBytes), kind, path);
}

const UserProgram* find_user_program(const ProgramDigest& digest) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return find(all, digest);
}

const UserProgram& user_program(const ProgramDigest& digest, score::Kind kind, const char* field) {
  constexpr const char* kScoreProgram = "score program, which returns a float";
  constexpr const char* kMaskProgram = "mask program, which returns a bool";
  const UserProgram* const found = find_user_program(digest);
  if (found == nullptr)
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} is {}; this process has no program with that digest, nor has a store that "
                    "it read; give the program's text (--{}-mod FILE), or --captured FILE of a "
                    "run with ATTUNE_CAPTURE=FILE",
                    field, to_text(digest), kind == score::Kind::kScore ? "score" : "mask"));
  if (found->program.kind() != kind)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is a {}; must be a {}", field,
                            kind == score::Kind::kScore ? kMaskProgram : kScoreProgram,
                            kind == score::Kind::kScore ? kScoreProgram : kMaskProgram));
  return *found;
}

score::Declarations declarations_in(std::string_view text, std::string_view name) {
  score::Declarations all;
  for (int line_number = 1; !text.empty(); ++line_number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with("//")) continue;
    line = trimmed(line.substr(2));
    const bool is_capture = line.starts_with("capture "), is_scalar = line.starts_with("scalar ");
    if (!is_capture && !is_scalar) continue;
    const std::string_view rest = line.substr(line.find(' ') + 1);
    const auto capture = is_capture ? parse_capture(rest) : std::nullopt;
    const auto scalar = is_scalar ? parse_scalar(rest) : std::nullopt;
    if (!capture && !scalar)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}:{}: \"{}\" is not a declaration; must be \"capture NAME: "
                              "TYPE[RANK]\" with fp32, bf16, fp16, int32, int64, uint8 or bool and "
                              "rank 0 to 4, or \"scalar NAME: TYPE\" with float, int or bool",
                              name, line_number, line));
    if (capture) all.captures.push_back(*capture);
    if (scalar) all.scalars.push_back(*scalar);
  }
  return all;
}

}  // namespace attune
