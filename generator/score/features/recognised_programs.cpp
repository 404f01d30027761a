// SPDX-License-Identifier: Apache-2.0
// See features.hpp. Programs are compared as trees (program.hpp), so the wording of
// their texts does not matter.
#include "generator/score/features/features.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "generator/core/problem/op.hpp"
#include "generator/core/system/error.hpp"
#include "generator/score/features/score_feature.hpp"
#include "generator/score/language/builder.hpp"

namespace attune {
namespace {

using score::Builder;
using score::Name;
using score::Node;
using score::Operation;
using score::Program;

const Node& node_of(const Program& program, int number) {
  return program.nodes()[static_cast<size_t>(number)];
}

bool is_name(const Node& node, Name name) {
  return node.operation == Operation::kName && node.index == static_cast<int>(name);
}

// ---- masks: comparisons of sums of names

// A sum of multiples of q_idx, kv_idx, seqlen_q and seqlen_kv, and a number.
struct Sum {
  std::array<int64_t, 4> factors{};
  int64_t number = 0;

  Sum& add(const Sum& other, int64_t sign) {
    for (size_t i = 0; i < factors.size(); ++i) factors[i] += sign * other.factors[i];
    number += sign * other.number;
    return *this;
  }
};

// The limit for numbers in a sum: larger ones might wrap in 32 bits.
constexpr int64_t kLargest = 1 << 28;

std::optional<Sum> sum_of(const Program& program, int number) {
  const Node& node = node_of(program, number);
  Sum sum;
  if (node.operation == Operation::kConstant && node.type == score::Type::kInt) {
    sum.number = node.int_value();
    if (std::abs(sum.number) > kLargest) return std::nullopt;
    return sum;
  }
  constexpr Name kNames[] = {Name::kQIdx, Name::kKvIdx, Name::kSeqlenQ, Name::kSeqlenKv};
  for (size_t i = 0; i < sum.factors.size(); ++i)
    if (is_name(node, kNames[i])) {
      sum.factors[i] = 1;
      return sum;
    }
  if (node.operation == Operation::kNegate) {
    const auto of = sum_of(program, node.operands[0]);
    if (!of) return std::nullopt;
    return sum.add(*of, -1);
  }
  if (node.operation != Operation::kAdd && node.operation != Operation::kSubtract)
    return std::nullopt;
  const auto a = sum_of(program, node.operands[0]), b = sum_of(program, node.operands[1]);
  if (!a || !b) return std::nullopt;
  sum = *a;
  return sum.add(*b, node.operation == Operation::kAdd ? 1 : -1);
}

// One side of a band. The left side shows keys from the diagonal - `beyond` on, the right side keys
// up to the diagonal + `beyond`.
struct Band {
  bool is_left = false;  // from; else up to
  bool is_bottom_right = false;
  int64_t beyond = 0;
};

// Returns the band that "sum >= 0" describes.
std::optional<Band> band_of(const Sum& sum) {
  const auto& [q, kv, seqlen_q, seqlen_kv] = sum.factors;
  if (std::abs(q) != 1 || kv != -q || seqlen_q != -seqlen_kv || sum.number < 0) return std::nullopt;
  if (seqlen_kv != 0 && seqlen_kv != q) return std::nullopt;
  return Band{q < 0, seqlen_kv != 0, sum.number};
}

// A comparison of two ints, a < b or a <= b, normalised from any spelling.
struct Comparison {
  int a = 0, b = 0;
  bool is_less = false;
};

std::optional<Comparison> comparison_of(const Program& program, int number) {
  const bool is_negated = node_of(program, number).operation == Operation::kNot;
  const Node& node = node_of(program, is_negated ? node_of(program, number).operands[0] : number);
  const bool is_less = node.operation == Operation::kLess;
  if (!is_less && node.operation != Operation::kLessEqual) return std::nullopt;
  if (node_of(program, node.operands[0]).type != score::Type::kInt) return std::nullopt;
  if (is_negated) return Comparison{node.operands[1], node.operands[0], !is_less};
  return Comparison{node.operands[0], node.operands[1], is_less};
}

// Returns the bands that a comparison describes; empty if it describes none.
std::vector<Band> bands_of(const Program& program, int number) {
  const auto compared = comparison_of(program, number);
  if (!compared) return {};
  const Node& left = node_of(program, compared->a);
  const bool is_abs = left.operation == Operation::kAbs;
  const auto value = sum_of(program, is_abs ? left.operands[0] : compared->a);
  const auto limit = sum_of(program, compared->b);
  if (!value || !limit) return {};
  std::vector<Band> bands;
  for (const int64_t sign : {1, -1}) {  // value <= limit, and of an absolute -value <= limit
    Sum room = *limit;
    room.add(*value, -sign);
    room.number -= compared->is_less ? 1 : 0;
    const auto band = band_of(room);
    if (!band) return {};
    bands.push_back(*band);
    if (!is_abs) break;
  }
  return bands;
}

// Moves a band into the problem's mask and windows if they can express it.
bool take(const Band& band, Problem* p) {
  const bool same_diagonals = p->seqlen_q == p->seqlen_kv;
  const bool is_top_left = !band.is_bottom_right && !same_diagonals;
  const bool is_plain = p->mask == Mask::kNone && p->window_left < 0 && p->window_right < 0;
  const Mask causal = is_top_left ? Mask::kCausalTopLeft : Mask::kCausalBottomRight;
  // These features count from the mask's diagonal. validate() refuses prefix together with a mask.
  const bool holds_diagonal =
      p->scores.prefix || (is_top_left && (p->scores.alibi || p->scores.chunk > 0));
  if (!band.is_left && band.beyond == 0 && (p->mask == causal || (is_plain && !holds_diagonal))) {
    p->mask = causal;
    return true;
  }
  const bool on_diagonal = p->mask == Mask::kNone ? !is_top_left : p->mask == causal;
  if (!on_diagonal) return false;
  if (!band.is_left && p->mask != Mask::kNone) return true;  // the causal mask ends before it
  int64_t& window = band.is_left ? p->window_left : p->window_right;
  window = window < 0 ? band.beyond : std::min(window, band.beyond);
  return true;
}

// Returns the operands of a chain of &&, the deepest left one first.
std::vector<int> terms_of(const Program& program) {
  std::vector<int> open{program.root()}, terms;
  while (!open.empty()) {
    const int number = open.back();
    open.pop_back();
    const Node& node = node_of(program, number);
    if (node.operation == Operation::kAnd) {
      open.push_back(node.operands[1]);
      open.push_back(node.operands[0]);
    } else {
      terms.push_back(number);
    }
  }
  return terms;
}

// Handles causal masks first, because windows count from the mask's diagonal.
std::vector<int> taken_terms(const Program& program, Problem* p) {
  std::vector<int> taken;
  for (const bool wants_causal : {true, false})
    for (const int term : terms_of(program)) {
      const std::vector<Band> bands = bands_of(program, term);
      const bool is_causal = bands.size() == 1 && !bands[0].is_left && bands[0].beyond == 0;
      if (bands.empty() || is_causal != wants_causal) continue;
      Problem with = *p;
      if (!std::all_of(bands.begin(), bands.end(),
                       [&](const Band& band) { return take(band, &with); }))
        continue;
      *p = with;
      taken.push_back(term);
    }
  return taken;
}

void take_mask(Problem* p) {
  const UserProgram* const mask =
      p->scores.mask_mod ? find_user_program(p->scores.mask_mod) : nullptr;
  if (mask == nullptr || mask->program.kind() != score::Kind::kMask) return;
  const Program& program = mask->program;
  Problem with = *p;
  const std::vector<int> taken = taken_terms(program, &with);
  if (taken.empty()) return;
  Builder builder("mask_mod");
  const Program rest = builder.finish(
      builder.import(program, [&](int there, std::span<const int>) -> std::optional<int> {
        if (std::count(taken.begin(), taken.end(), there) == 0) return std::nullopt;
        return builder.constant(true);
      }));
  // A call gives all captures of the original program, so none may disappear.
  if (rest.captures().size() != program.captures().size() ||
      rest.scalars().size() != program.scalars().size())
    return;
  const Node& root = node_of(rest, rest.root());
  const bool is_all = root.operation == Operation::kConstant && root.int_value() != 0;
  *p = with;
  p->scores.mask_mod = is_all ? ProgramDigest{} : add_user_program(rest).digest;
}

// ---- scores

bool is_minus_infinity(const Program& program, int number) {
  const Node& node = node_of(program, number);
  if (node.operation == Operation::kConstant)
    return node.type == score::Type::kFloat && node.float_value() == -INFINITY;
  if (node.operation != Operation::kNegate) return false;
  const Node& of = node_of(program, node.operands[0]);
  return of.operation == Operation::kConstant && of.float_value() == INFINITY;
}

bool reads_score(const Program& program) {
  return std::any_of(program.nodes().begin(), program.nodes().end(),
                     [](const Node& node) { return is_name(node, Name::kScore); });
}

// Returns an operand of the root as a separate program, negated if `is_negated`.
Program operand_of(const Program& program, size_t which, bool is_negated) {
  Builder builder("score_mod");
  return builder.finish(
      builder.import(program, [&](int there, std::span<const int> here) -> std::optional<int> {
        if (there != program.root()) return std::nullopt;
        return is_negated ? builder.negate_condition(here[which]) : here[which];
      }));
}

bool share_a_name(const Program& a, const Program& b) {
  const auto shares = [](const auto& ones, const auto& others) {
    return std::any_of(ones.begin(), ones.end(), [&](const auto& one) {
      return std::any_of(others.begin(), others.end(),
                         [&](const auto& other) { return one.name == other.name; });
    });
  };
  return shares(a.captures(), b.captures()) || shares(a.captures(), b.scalars()) ||
         shares(a.scalars(), b.captures()) || shares(a.scalars(), b.scalars());
}

// True if a feature that is on, and for which `is` holds, stands in the order between two fields.
template <class Is>
bool stands_between(const SpecFields& spec, std::string_view first, std::string_view last, Is is) {
  const auto& features = score_features();
  const auto at = [&](std::string_view field) {
    return std::find(features.begin(), features.end(), score_feature_of(field));
  };
  return std::any_of(at(first) + 1, at(last), [&](const ScoreFeature* feature) {
    return feature->is_on(spec) && is(*feature);
  });
}

// Moves the mask of where(mask, score, -INFINITY) to the problem's mask program. Returns true if it
// did.
bool take_hidden(const Program& program, Problem* p) {
  const Node& root = node_of(program, program.root());
  if (root.operation != Operation::kSelect) return false;
  const bool is_negated = is_minus_infinity(program, root.operands[1]);
  if (!is_negated && !is_minus_infinity(program, root.operands[2])) return false;
  Program seen = operand_of(program, 0, is_negated);
  if (reads_score(seen)) return false;
  if (p->scores.mask_mod) {
    const UserProgram* const mask = find_user_program(p->scores.mask_mod);
    if (mask == nullptr || mask->program.kind() != score::Kind::kMask ||
        share_a_name(mask->program, seen))
      return false;
    seen = score::both(mask->program, seen);
  }
  p->scores.mask_mod = add_user_program(seen).digest;
  p->scores.score_mod = add_user_program(operand_of(program, is_negated ? 2 : 1, false)).digest;
  return true;
}

// Returns c if the program is c * tanh(score / c) with a constant c.
std::optional<float> softcap_of(const Program& program) {
  const Node& root = node_of(program, program.root());
  if (root.operation != Operation::kMultiply) return std::nullopt;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const Node& cap = node_of(program, root.operands[i]);
    const Node& tanh = node_of(program, root.operands[1 - i]);
    if (cap.operation != Operation::kConstant || tanh.operation != Operation::kTanh) continue;
    const Node& quotient = node_of(program, tanh.operands[0]);
    const float c = cap.float_value();
    if (quotient.operation == Operation::kDivide && std::isfinite(c) && c > 0 &&
        is_name(node_of(program, quotient.operands[0]), Name::kScore) &&
        node_of(program, quotient.operands[1]) == cap)
      return c;
  }
  return std::nullopt;
}

void take_score(Problem* p) {
  const UserProgram* mod = find_user_program(p->scores.score_mod);
  if (mod == nullptr || mod->program.kind() != score::Kind::kScore) return;
  // With kSkips, the map includes only the masks that the caller knew of.
  // A later step that bends scores would turn -INFINITY into a number.
  const bool may_join = p->scores.block_map != BlockMapUse::kSkips &&
                        !stands_between(*p, "score_mod", "mask_mod",
                                        [](const ScoreFeature& feature) { return feature.bends; });
  while (may_join && take_hidden(mod->program, p)) mod = find_user_program(p->scores.score_mod);
  if (mod->program == score::identity()) {
    p->scores.score_mod = {};
    return;
  }
  // The built-in softcap comes first, so no other step may stand in between.
  const auto cap = softcap_of(mod->program);
  if (!cap || p->scores.softcap != 0 ||
      stands_between(*p, "softcap", "score_mod", [](const ScoreFeature&) { return true; }))
    return;
  p->scores.softcap = *cap;
  p->scores.score_mod = {};
}

}  // namespace

Problem with_built_ins(const Problem& problem) {
  if (describe(problem.op).keeps_programs) return problem;
  Problem p = problem;
  try {
    if (p.scores.score_mod) take_score(&p);
    if (p.scores.mask_mod) take_mask(&p);
  } catch (const Error&) {  // the joined parts are too large for one program
    return problem;
  }
  if (p.scores.block_map == BlockMapUse::kSkips && !has_mask_program(p))
    p.scores.block_map = BlockMapUse::kNone;
  return p;
}

bool has_fixed_masks(const Problem& asked, const Problem& recognised) {
  return asked.mask != recognised.mask || asked.window_left != recognised.window_left ||
         asked.window_right != recognised.window_right;
}

}  // namespace attune
