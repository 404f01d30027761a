// SPDX-License-Identifier: Apache-2.0
// Converts score features and programs between C and C++; see c_scores.hpp.
#include "runtime/c_api/c_scores.hpp"

#include <algorithm>
#include <cstdio>

#include "generator/score/language/user_program.hpp"

namespace attune::c_api {
namespace {

static_assert(ATTUNE_CAPTURE_BOOL == static_cast<int>(CaptureType::kBool));
static_assert(ATTUNE_MASK_MOD == static_cast<int>(score::Kind::kMask));
static_assert(ATTUNE_SCALAR_FLOAT == static_cast<int>(score::Type::kFloat));

// Casts a program to its C type: an attune_program points to a UserProgram of the registry.
const attune_program* as_c(const UserProgram& program) {
  return reinterpret_cast<const attune_program*>(&program);
}
const UserProgram& of_c(const attune_program* program) {
  return *reinterpret_cast<const UserProgram*>(program);
}

// Returns the entry of this name, or null.
template <class Named>
const Named* by_name(const Named* all, size_t count, const std::string& name) {
  for (size_t i = 0; i < count; ++i)
    if (all[i].name != nullptr && name == all[i].name) return all + i;
  return nullptr;
}

// Checks that each given entry has a name that the plan reads, and that no name is given twice.
template <class Named, class Wanted>
void check_names(const char* what, const Named* given, size_t count,
                 const std::vector<Wanted>& wanted) {
  if (given == nullptr && count > 0)
    refuse(fmt::format("operands->scores->{}s is null; must be the address of {} {}s", what, count,
                       what));
  for (size_t i = 0; i < count; ++i)
    if (given[i].name != nullptr && by_name(given, i, given[i].name) != nullptr)
      refuse(fmt::format("operands->scores has two {}s {}; must have one", what, given[i].name));
  for (size_t i = 0; i < count; ++i)
    if (given[i].name == nullptr ||
        std::none_of(wanted.begin(), wanted.end(),
                     [&](const Wanted& one) { return one.name == given[i].name; }))
      refuse(fmt::format("operands->scores has a {} {}, which this plan does not read", what,
                         given[i].name == nullptr ? "(null)" : given[i].name));
}

ScoreScalar scalar_of(const score::Scalar& declared, double value) {
  ScoreScalar scalar{};
  if (declared.type == score::Type::kFloat) {
    scalar.f32 = static_cast<float>(value);
    return scalar;
  }
  const bool fits = declared.type == score::Type::kBool
                        ? value == 0 || value == 1
                        : value >= -2147483648.0 && value <= 2147483647.0 &&
                              value == static_cast<double>(static_cast<int64_t>(value));
  if (!fits)
    refuse(fmt::format("scalar {} is {}; must be {}", declared.name, value,
                       declared.type == score::Type::kBool ? "0 or 1" : "an integer of 32 bits"));
  scalar.i32 = static_cast<int32_t>(value);
  return scalar;
}

score::Declarations declarations_of(const attune_program_desc& desc, std::string_view name) {
  score::Declarations all = declarations_in(desc.text, name);
  check_count("desc->num_captures", desc.num_captures, score::kMaxDeclared);
  check_count("desc->num_scalars", desc.num_scalars, score::kMaxDeclared);
  for (size_t i = 0; i < desc.num_captures; ++i) {
    const attune_program_capture& c = (&not_null(desc.captures, "desc->captures"))[i];
    if (c.type < 0 || c.type > ATTUNE_CAPTURE_BOOL)
      refuse(fmt::format("desc->captures[{}].type is {}; must be 0 to {}", i, c.type,
                         static_cast<int>(ATTUNE_CAPTURE_BOOL)));
    all.captures.push_back(
        {&not_null(c.name, "desc->captures[].name"), static_cast<CaptureType>(c.type), c.rank});
  }
  for (size_t i = 0; i < desc.num_scalars; ++i) {
    const attune_program_scalar& c = (&not_null(desc.scalars, "desc->scalars"))[i];
    if (c.type < 0 || c.type > ATTUNE_SCALAR_FLOAT)
      refuse(fmt::format("desc->scalars[{}].type is {}; must be 0 to {}", i, c.type,
                         static_cast<int>(ATTUNE_SCALAR_FLOAT)));
    all.scalars.push_back(
        {&not_null(c.name, "desc->scalars[].name"), static_cast<score::Type>(c.type)});
  }
  return all;
}

}  // namespace

ProgramDigest digest_of(const attune_program* program) {
  return program == nullptr ? ProgramDigest{} : of_c(program).digest;
}

const attune_program* c_program(const ProgramDigest& digest, score::Kind kind, const char* field) {
  return digest ? as_c(user_program(digest, kind, field)) : nullptr;
}

// Two programs, or a program and a feature, may share a tensor's name if type and axes are equal.
void check_names_of_plan(const Plan& plan) {
  const auto& captures = plan.scores.captures;
  for (size_t i = 0; i < captures.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const CaptureSpec &a = captures[i], &b = captures[j];
      if (a.name == b.name && (a.type != b.type || a.extents.size() != b.extents.size() ||
                               a.sized_by_call != b.sized_by_call))
        refuse(fmt::format("the problem has two captures {}, {} {} and {} {}; names must differ",
                           a.name, element_name(b.type), b.axes, element_name(a.type), a.axes));
    }
  const auto& scalars = plan.scores.scalars;
  for (size_t i = 0; i < scalars.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (scalars[i].name == scalars[j].name && scalars[i].type != scalars[j].type)
        refuse(fmt::format("the problem has two scalars {}, {} and {}; names must differ",
                           scalars[i].name, score::type_name(scalars[j].type),
                           score::type_name(scalars[i].type)));
}

// The most captures or scalars that one call may pass, for two programs and all other features.
constexpr size_t kMostGiven = 4 * score::kMaxDeclared;

ScoreOperands score_operands_of(const attune_score_operands* given, const attune_block_map* map,
                                const Plan& plan, bool has_others) {
  static const attune_score_operands nothing{};
  const bool has_map = plan.problem.scores.block_map != BlockMapUse::kNone;
  ScoreOperands operands;
  if (given == nullptr && !has_map) return operands;
  if (given == nullptr) given = &nothing;
  check_count("operands->scores->num_captures", given->num_captures, kMostGiven);
  check_count("operands->scores->num_scalars", given->num_scalars, kMostGiven);
  if (!has_others) {
    check_names("capture", given->captures, given->num_captures, plan.scores.captures);
    check_names("scalar", given->scalars, given->num_scalars, plan.scores.scalars);
  }
  for (const CaptureSpec& capture : plan.scores.captures) {
    if (has_map && capture.name == "block_map") {
      operands.add(map_view(*map));
      continue;
    }
    const attune_capture* found = by_name(given->captures, given->num_captures, capture.name);
    if (found == nullptr)
      refuse(fmt::format("operands->scores has no capture {}, which this plan reads: {} {}",
                         capture.name, element_name(capture.type), capture.axes));
    CaptureView view{found->data, {}, {}};
    std::copy(std::begin(found->strides), std::end(found->strides), view.strides);
    if (capture.sized_by_call)
      std::copy(std::begin(found->extents), std::end(found->extents), view.extents);
    operands.add(view);
  }
  for (const score::Scalar& scalar : plan.scores.scalars) {
    const attune_scalar* found = by_name(given->scalars, given->num_scalars, scalar.name);
    if (found == nullptr)
      refuse(fmt::format("operands->scores has no scalar {}, which this plan reads: {}",
                         scalar.name, score::type_name(scalar.type)));
    operands.scalars.at(operands.num_scalars++) = scalar_of(scalar, found->value);
  }
  operands.q_position0 = given->q_position0;
  operands.kv_position0 = given->kv_position0;
  return operands;
}

}  // namespace attune::c_api

using namespace attune;
using namespace attune::c_api;

extern "C" {

attune_status attune_program_parse(const attune_program_desc* desc, const attune_program** program,
                                   char* warnings, size_t capacity) {
  return guarded([&] {
    if (warnings != nullptr && capacity > 0) *warnings = '\0';
    not_null(program, "program") = nullptr;
    const attune_program_desc c =
        read_struct(desc, "desc", attune_program_desc{}, sizeof(attune_program_desc), "the caller");
    const bool is_mask = c.kind == ATTUNE_MASK_MOD;
    if (!is_mask && c.kind != ATTUNE_SCORE_MOD)
      refuse(fmt::format("desc->kind is {}; must be ATTUNE_SCORE_MOD or ATTUNE_MASK_MOD", c.kind));
    not_null(c.text, "desc->text");
    const std::string name = c.name != nullptr ? c.name : is_mask ? "mask_mod" : "score_mod";
    const UserProgram& made = add_user_program(
        c.text, is_mask ? score::Kind::kMask : score::Kind::kScore, declarations_of(c, name), name);
    std::string text;
    for (const std::string& warning : made.warnings) text += warning + "\n";
    if (warnings != nullptr && capacity > 0) std::snprintf(warnings, capacity, "%s", text.c_str());
    *program = as_c(made);
  });
}

const char* attune_program_nodes(const attune_program* program) {
  return program == nullptr ? "" : of_c(program).nodes.c_str();
}

const char* attune_program_text(const attune_program* program) {
  return program == nullptr ? "" : of_c(program).text.c_str();
}

}  // extern "C"
