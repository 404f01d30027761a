// SPDX-License-Identifier: Apache-2.0
// ScoreFeature: a change of scores between S = Q K^T and the softmax, beyond scale, mask and
// window: softcap, ALiBi, a bias, documents. Each is a field of the spec and a few lines of the
// score language (score/program.hpp), in a file of scores/. Kernels of every family, the references
// and the oracle get the joint program of all features, so a new feature needs nothing else.
//
// Programs are applied in this order: softcap, score program, biases, ALiBi, masks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "generator/core/problem.hpp"
#include "generator/core/score/program.hpp"
#include "templates/shared/score_args.h"

namespace attune {

// The dimension of a call along which an axis runs, if the axis is as long as the call. It is the
// call's own rows or keys, or the distances between them, wherever they are in longer sequences.
enum class CallAxis { kNone, kRows, kKeys, kDistances };

// A tensor that a program reads, as the call must give it: indices [0, extents[i]), any strides.
struct CaptureSpec {
  std::string name;  // "alibi_slopes"
  CaptureType type = CaptureType::kFp32;
  std::vector<int64_t> extents;
  std::string axes;  // "[num_heads_q]", for messages
  // Returns a typical element, for measuring and tests; `at` are its indices.
  double (*sample)(const std::vector<int64_t>& at, std::mt19937_64& random) = nullptr;
  bool sized_by_call = false;  // the call says its extents; these are for measuring
  std::array<CallAxis, kMaxCaptureRank> along{};
};

// Returns a sample of N(0,1).
double sample_normal(const std::vector<int64_t>& at, std::mt19937_64& random);
// Returns the document id of a place along a sequence, in groups of 10, 30, 50 ... places. So short
// sequences have several groups, and long ones do not fall into crumbs, for which other kernels are
// the fastest.
double sample_group(int64_t place);

// Returns the type of a ScoreTensor that is not kNone.
CaptureType capture_type(ScoreTensor tensor);

// The order in which programs are applied.
enum class ScoreStep { kSoftcap, kProgram, kBias, kAlibi, kMask };

struct ScoreFeature {
  std::string field;  // field of the spec; the feature is on if the field is not at its default
  ScoreStep step = ScoreStep::kProgram;
  bool (*is_on)(const SpecFields& spec);
  // Throws for invalid values of the field; null if every value is valid.
  void (*validate)(const Problem& problem);
  score::Program (*program)(const SpecFields& spec);
  // In any order, by name; null: none
  std::vector<CaptureSpec> (*captures)(const Problem& problem);
};

// Returns the features in the order of their steps.
const std::vector<const ScoreFeature*>& score_features();
// Adds a feature from elsewhere, before anything else is called. It must stay alive.
void add_score_feature(const ScoreFeature& feature);

// True if a spec has a program that changes scores, hides them, or both.
bool is_scored(const SpecFields& spec);
// The two halves. A score stage in the kernel changes scores (all steps before kMask). Masks are
// looked up in a map of blocks, and applied only in blocks that are partly visible.
bool has_score_stage(const SpecFields& spec);
bool has_mask_program(const SpecFields& spec);
// True if kernels get ScoreArgs: for a score stage or for sinks, which change no score and so need
// no stage.
bool has_score_args(const SpecFields& spec);
// Returns the capture number of the sinks: the last. They come with the call like any capture.
int sinks_capture(const SpecFields& spec);
// Returns the capture number of the call's map, for kernels that read it (scores/block_map.hpp):
// the one of its program if the map hides, else the last.
int map_capture(const SpecFields& spec);
// True if the call's map alone says which blocks a tile sees. With other masks beside a map that
// hides, kernels ask the ranges of all masks, since the map does not know the others.
bool asks_map(const SpecFields& spec);
// True if the map is the only mask: then the partly visible blocks of a tile are the map's own
// blocks.
bool hides_by_map(const SpecFields& spec);
// Returns the joint program of all features of a spec; identity if there are none.
score::Program score_program(const SpecFields& spec);
// One half. It reads captures and scalars at their places in the whole program, because both halves
// share one ScoreArgs.
struct ScoreHalf {
  score::Program program;
  score::Places places;
};
ScoreHalf score_stage_program(const SpecFields& spec);  // identity if no feature changes scores
ScoreHalf mask_program(const SpecFields& spec);         // only if has_mask_program(spec)
// Returns the factor by which a kernel multiplies gradients of the final score. It is the
// derivative by the raw score (score/slope.hpp), or by the loaded value if the problem asks for the
// gradient of a load. Returns nullopt if that is 1: scores are only added to, or hidden.
std::optional<ScoreHalf> score_slope_program(const SpecFields& spec);
// Returns the captures in their order. Two programs of a spec may give their captures one name.
// Then the name is here twice, and the call gives one tensor for both.
std::vector<CaptureSpec> captures_of(const Problem& problem);
std::vector<score::Scalar> scalars_of(const SpecFields& spec);

// How a mask program's result at one row and key may depend on the batch entry and the head. The
// call decides the rest: nothing changes along axes that it repeats.
struct MaskDependence {
  struct Axis {
    size_t capture;  // in the order of the spec's captures
    size_t axis;
  };
  struct Part {
    bool directly = false;     // even if the call repeats all axes
    std::vector<Axis> axes{};  // axes of captures that it indexes
  };
  Part on_batch, on_head;
};
MaskDependence mask_dependence(const SpecFields& spec);

// All that a plan knows of score captures.
struct ScoreCaptures {
  bool present = false;      // kernels get ScoreArgs
  bool has_program = false;  // a program changes or hides scores
  bool has_stage = false;    // kernels have a score stage, which also scales
  std::vector<CaptureSpec> captures;
  std::vector<score::Scalar> scalars;
  // A caller's mask program became a mask that positions do not move (recognised_programs.hpp).
  bool has_fixed_masks = false;
  MaskDependence masks{};  // for a problem with a mask program

  // True if a call's ScoreOperands are read.
  bool reads_operands() const { return present || has_fixed_masks; }
};
ScoreCaptures score_captures(const Problem& problem);
// True if a spec's field belongs to a score feature.
bool is_score_field(std::string_view name);

}  // namespace attune
