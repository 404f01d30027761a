// SPDX-License-Identifier: Apache-2.0
// The list of score features, and the composition of their programs.
#include "generator/score/features/score_feature.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "generator/core/system/error.hpp"
#include "generator/score/analysis/dependence.hpp"
#include "generator/score/analysis/rewrites.hpp"
#include "generator/score/features/features.hpp"
#include "generator/score/language/parse.hpp"

namespace attune {
namespace {

std::vector<const ScoreFeature*>& mutable_features() {
  static std::vector<const ScoreFeature*> features = built_in_features();
  return features;
}

// The features that are on, and their composed program. Part i of the whole is from feature i - 1;
// part 0 is the raw score.
struct Composed {
  score::Program whole = score::identity();
  std::vector<const ScoreFeature*> features;
  std::vector<score::Program> parts;
};

Composed compose(const SpecFields& spec) {
  Composed made;
  for (const ScoreFeature* feature : score_features()) {
    if (!feature->is_on(spec)) continue;
    const score::Program own = feature->program(spec);
    made.whole = own.kind() == score::Kind::kMask ? score::hide(made.whole, own)
                                                  : score::chain(made.whole, own);
    made.features.push_back(feature);
    made.parts.push_back(own);
  }
  return made;
}

// Returns the capture or scalar that a program declared at `place`.
template <class Named>
const Named& declared_at(int place, const std::vector<Named>& used,
                         const std::vector<score::Origin>& origins) {
  for (size_t i = 0; i < used.size(); ++i)
    if (origins[i].place == place) return used[i];
  throw Error(ErrorCode::kInternal, "a composed score program has lost where it is from");
}

CaptureSpec sinks_of(const Problem& p) {
  return {"sinks",
          capture_type(p.scores.sinks),
          {p.num_heads_q},
          "[num_heads_q]",
          [](const std::vector<int64_t>&, std::mt19937_64& random) {
            return std::normal_distribution<double>(1, 2)(random);
          }};
}

std::vector<CaptureSpec> captures_in(const Composed& made, const Problem& problem) {
  std::vector<CaptureSpec> captures;
  for (const score::Origin& origin : made.whole.capture_origins()) {
    const auto part = static_cast<size_t>(origin.part - 1);
    const score::Program& own = made.parts.at(part);
    const std::string& name = declared_at(origin.place, own.captures(), own.capture_origins()).name;
    std::vector<CaptureSpec> given = made.features[part]->captures(problem);
    const auto found = std::find_if(given.begin(), given.end(), [&](const CaptureSpec& capture) {
      return capture.name == name;
    });
    if (found == given.end())
      throw Error(ErrorCode::kInternal,
                  fmt::format("score feature {} does not say what capture {} is",
                              made.features[part]->field, name));
    captures.push_back(std::move(*found));
  }
  return captures;
}

std::vector<score::Scalar> scalars_in(const Composed& made) {
  std::vector<score::Scalar> scalars;
  for (const score::Origin& origin : made.whole.scalar_origins()) {
    const score::Program& own = made.parts.at(static_cast<size_t>(origin.part - 1));
    scalars.push_back(declared_at(origin.place, own.scalars(), own.scalar_origins()));
  }
  return scalars;
}

}  // namespace

const std::vector<const ScoreFeature*>& score_features() { return mutable_features(); }

const ScoreFeature* score_feature_of(std::string_view field) {
  for (const ScoreFeature* feature : score_features())
    if (feature->field == field) return feature;
  return nullptr;
}

bool is_score_field(std::string_view field) {
  return field == "sinks" || score_feature_of(field) != nullptr;
}

void add_score_feature(const ScoreFeature& feature) {
  auto& features = mutable_features();
  const auto behind =
      std::find_if(features.begin(), features.end(),
                   [&](const ScoreFeature* other) { return other->step > feature.step; });
  features.insert(behind, &feature);
}

ScoreTensor draw_score_tensor(std::mt19937_64& random) {
  return std::array{ScoreTensor::kFp32, ScoreTensor::kBf16, ScoreTensor::kFp16}[random() % 3];
}

CaptureType capture_type(ScoreTensor tensor) {
  switch (tensor) {
    case ScoreTensor::kBf16:
      return CaptureType::kBf16;
    case ScoreTensor::kFp16:
      return CaptureType::kFp16;
    default:
      return CaptureType::kFp32;
  }
}

namespace {

bool is_mask(const ScoreFeature& feature) { return feature.step == ScoreStep::kMask; }

template <class Is>
bool any_on(const SpecFields& spec, Is is) {
  const auto& features = score_features();
  return std::any_of(features.begin(), features.end(), [&](const ScoreFeature* feature) {
    return is(*feature) && feature->is_on(spec);
  });
}

}  // namespace

bool is_scored(const SpecFields& spec) {
  return any_on(spec, [](const ScoreFeature&) { return true; });
}
bool bends_scores(const SpecFields& spec) {
  return any_on(spec, [](const ScoreFeature& feature) { return feature.bends; });
}
bool has_score_stage(const SpecFields& spec) {
  return any_on(spec, [](const ScoreFeature& feature) { return !is_mask(feature); });
}
bool has_mask_program(const SpecFields& spec) { return any_on(spec, is_mask); }

bool has_score_args(const SpecFields& spec) {
  return is_scored(spec) || spec.scores.sinks != ScoreTensor::kNone;
}

double sample_group(int64_t place) {
  return std::floor(std::sqrt(static_cast<double>(place) / 10));
}

double sample_normal(const std::vector<int64_t>&, std::mt19937_64& random) {
  return std::normal_distribution<double>()(random);
}

score::Program score_program(const SpecFields& spec) { return compose(spec).whole; }

namespace {

// Returns the places, in the whole program, of the captures or scalars that one half reads. Returns
// nullopt if the whole program does not read all of them. Then this half has no effect, as under a
// mask that hides everything. `features` are the features of the half's parts.
std::optional<std::vector<int>> places_in(const Composed& whole,
                                          const std::vector<score::Origin>& of_whole,
                                          const std::vector<const ScoreFeature*>& features,
                                          const std::vector<score::Origin>& of_half) {
  std::vector<int> places;
  for (const score::Origin& wanted : of_half) {
    const auto found =
        std::find_if(of_whole.begin(), of_whole.end(), [&](const score::Origin& origin) {
          return origin.place == wanted.place &&
                 whole.features.at(static_cast<size_t>(origin.part - 1)) ==
                     features.at(static_cast<size_t>(wanted.part));
        });
    if (found == of_whole.end()) return std::nullopt;
    places.push_back(static_cast<int>(found - of_whole.begin()));
  }
  return places;
}

ScoreHalf half_of(const SpecFields& spec, bool masks) {
  const Composed whole = compose(spec);
  std::vector<const ScoreFeature*> features;
  std::optional<score::Program> half;
  for (size_t i = 0; i < whole.features.size(); ++i) {
    if (is_mask(*whole.features[i]) != masks) continue;
    const score::Program& own = whole.parts[i];
    half = !half ? own : masks ? score::both(*half, own) : score::chain(*half, own);
    features.push_back(whole.features[i]);
  }
  if (half) {
    auto captures =
        places_in(whole, whole.whole.capture_origins(), features, half->capture_origins());
    auto scalars = places_in(whole, whole.whole.scalar_origins(), features, half->scalar_origins());
    if (captures && scalars) return {*half, {std::move(*captures), std::move(*scalars)}};
  }
  if (!masks) return {score::identity(), {}};
  return {score::parse("return true;", score::Kind::kMask, {{}, {}}, "a mask without effect"), {}};
}

}  // namespace

ScoreHalf score_stage_program(const SpecFields& spec) { return half_of(spec, false); }
ScoreHalf mask_program(const SpecFields& spec) { return half_of(spec, true); }

namespace {

// Returns the places in ScoreArgs for one of two programs with the same origins.
std::vector<int> places_of(const std::vector<score::Origin>& wanted,
                           const std::vector<score::Origin>& known,
                           const std::vector<int>& places) {
  std::vector<int> found;
  for (const score::Origin& origin : wanted)
    for (size_t i = 0; i < known.size(); ++i)
      if (known[i].part == origin.part && known[i].place == origin.place)
        found.push_back(score::place_of(static_cast<int>(i), places));
  return found;
}

// Composes programs up to the score program, since later features only add or hide.
std::optional<ScoreHalf> load_slope_program(const SpecFields& spec) {
  const Composed whole = compose(spec);
  std::vector<const ScoreFeature*> features;
  std::optional<score::Program> half;
  for (size_t i = 0; i < whole.features.size(); ++i) {
    if (whole.features[i]->step > ScoreStep::kProgram) continue;
    score::Program own = whole.parts[i];
    const bool is_last = whole.features[i] == &score_mod_feature();
    if (is_last)
      own = score::slope_of_load(
          own, score::float_loads(own).at(static_cast<size_t>(spec.backward.load)));
    features.push_back(whole.features[i]);
    half = half ? score::chain(*half, own) : own;
    if (is_last) break;
  }
  if (!half || score::is_one(*half)) return std::nullopt;
  auto captures =
      places_in(whole, whole.whole.capture_origins(), features, half->capture_origins());
  auto scalars = places_in(whole, whole.whole.scalar_origins(), features, half->scalar_origins());
  if (!captures || !scalars) return std::nullopt;  // everything is hidden
  return ScoreHalf{*half, {std::move(*captures), std::move(*scalars)}};
}

}  // namespace

std::optional<ScoreHalf> score_slope_program(const SpecFields& spec) {
  if (is_of_load(spec.backward.score_gradient)) return load_slope_program(spec);
  // These gradients belong to inputs applied after softcap and score program, so the raw score's
  // derivative does not matter.
  if (spec.backward.score_gradient != ScoreGradient::kNone || !has_score_stage(spec))
    return std::nullopt;
  const ScoreHalf stage = score_stage_program(spec);
  score::Program slope = score::slope(stage.program);
  if (score::is_one(slope)) return std::nullopt;
  ScoreHalf half{std::move(slope), {}};
  half.places = {places_of(half.program.capture_origins(), stage.program.capture_origins(),
                           stage.places.captures),
                 places_of(half.program.scalar_origins(), stage.program.scalar_origins(),
                           stage.places.scalars)};
  return half;
}

int sinks_capture(const SpecFields& spec) {
  return static_cast<int>(score_program(spec).captures().size());
}

int map_capture(const SpecFields& spec) {
  if (hides_by_map(spec)) return score::place_of(0, mask_program(spec).places.captures);
  return sinks_capture(spec) + (spec.scores.sinks != ScoreTensor::kNone ? 1 : 0);
}

bool asks_map(const SpecFields& spec) {
  if (spec.scores.block_map != BlockMapUse::kHides)
    return spec.scores.block_map == BlockMapUse::kSkips;
  const auto& features = score_features();
  return std::none_of(features.begin(), features.end(), [&](const ScoreFeature* feature) {
    return is_mask(*feature) && feature->is_on(spec) && feature != &block_map_feature();
  });
}

bool hides_by_map(const SpecFields& spec) {
  return spec.scores.block_map == BlockMapUse::kHides && asks_map(spec);
}

namespace {

// Does not follow the indices of a load. Instead, records the load's axes.
MaskDependence::Part dependence_on(const ScoreHalf& mask, score::Dependences what) {
  const std::vector<score::Node>& nodes = mask.program.nodes();
  MaskDependence::Part part;
  std::vector<bool> depends;
  for (const score::Node& node : nodes) {
    bool does = (score::own_dependence(node) & what) != 0;
    for (size_t i = 0; i < node.num_operands; ++i) {
      if (!depends[static_cast<size_t>(node.operands[i])]) continue;
      if (node.operation != score::Operation::kLoad)
        does = true;
      else
        part.axes.push_back(
            {static_cast<size_t>(score::place_of(node.index, mask.places.captures)), i});
    }
    depends.push_back(does);
  }
  part.directly = depends[static_cast<size_t>(mask.program.root())];
  return part;
}

}  // namespace

MaskDependence mask_dependence(const SpecFields& spec) {
  if (asks_map(spec)) {
    const auto map = static_cast<size_t>(map_capture(spec));
    return {{.axes = {{map, 0}}}, {.axes = {{map, 1}}}};
  }
  const ScoreHalf mask = mask_program(spec);
  return {dependence_on(mask, score::kOnBatch), dependence_on(mask, score::kOnHead)};
}

std::vector<CaptureSpec> captures_of(const Problem& problem) {
  return score_captures(problem).captures;
}

std::vector<score::Scalar> scalars_of(const SpecFields& spec) {
  return is_scored(spec) ? scalars_in(compose(spec)) : std::vector<score::Scalar>{};
}

ScoreCaptures score_captures(const Problem& problem) {
  ScoreCaptures all;
  all.present = has_score_args(problem);
  all.has_program = is_scored(problem);
  all.has_stage = has_score_stage(problem);
  if (all.has_program) {
    const Composed made = compose(problem);
    all.captures = captures_in(made, problem);
    all.scalars = scalars_in(made);
  }
  if (problem.scores.sinks != ScoreTensor::kNone) all.captures.push_back(sinks_of(problem));
  if (problem.scores.block_map == BlockMapUse::kSkips)
    all.captures.push_back(block_map_capture_of(problem));
  if (has_mask_program(problem)) all.masks = mask_dependence(problem);
  return all;
}

}  // namespace attune
