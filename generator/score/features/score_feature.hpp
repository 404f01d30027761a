// SPDX-License-Identifier: Apache-2.0
// ScoreFeature: a change of scores between S = Q K^T and the softmax, beyond scale, mask and
// window. Examples are softcap, ALiBi, a bias and documents. A feature is a field of the spec and a
// few lines of the score language (language/program.hpp), in a file of this folder. Kernels,
// reference kernels and the oracle use the composed program of all features. So a new feature needs
// no code elsewhere.
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

#include "generator/core/problem/problem.hpp"
#include "generator/score/language/program.hpp"
#include "templates/shared/score_args.h"

namespace attune {

// The dimension of a call that an axis follows, for tensors that are only as long as the call.
// Index 0 is then the call's first row, key or distance, even if the call is a part of longer
// sequences.
enum class CallAxis { kNone, kRows, kKeys, kDistances };

// A tensor that a program reads. The call must give indices [0, extents[i]); any strides are valid.
struct CaptureSpec {
  std::string name;  // "alibi_slopes"
  CaptureType type = CaptureType::kFp32;
  std::vector<int64_t> extents;
  std::string axes;  // "[num_heads_q]", for messages
  // Returns a typical element, for measuring and tests; `at` are its indices.
  double (*sample)(const std::vector<int64_t>& at, std::mt19937_64& random) = nullptr;
  bool sized_by_call = false;  // the call gives the extents; these are for timing
  std::array<CallAxis, kMaxCaptureRank> along{};
};

// Returns a sample of N(0,1).
double sample_normal(const std::vector<int64_t>& at, std::mt19937_64& random);
// Returns the document id of a position, for samples: groups of 10, 30, 50 ... positions. So short
// sequences have several groups. Long ones have few tiny groups, for which other kernels would be
// faster.
double sample_group(int64_t place);

// Returns the type of a ScoreTensor that is not kNone.
CaptureType capture_type(ScoreTensor tensor);
// Returns one of the types of a ScoreTensor, but not kNone.
ScoreTensor draw_score_tensor(std::mt19937_64& random);

// The order in which programs are applied.
enum class ScoreStep { kSoftcap, kProgram, kBias, kAlibi, kMask };

struct ScoreFeature {
  std::string field;  // field of the spec; the feature is on if the field is not at its default
  ScoreStep step = ScoreStep::kProgram;
  bool (*is_on)(const SpecFields& spec) = nullptr;
  // Throws for invalid values of the field; null if every value is valid.
  void (*validate)(const Problem& problem) = nullptr;
  score::Program (*program)(const SpecFields& spec) = nullptr;
  // Returns the captures in any order, matched by name. Null: none
  std::vector<CaptureSpec> (*captures)(const Problem& problem) = nullptr;
  // Sets the field to a random value, for fuzzing and tests. Null: the fuzzer draws a program.
  void (*draw)(std::mt19937_64& random, Problem* problem) = nullptr;
  // True if the derivative by the score is not 1 everywhere.
  bool bends = false;
  // True if the result depends on nothing but the score. Levels of a cascade may have the feature.
  bool of_score_alone = false;
  bool over_caches = false;  // op attention_kvcache takes it
};

// Returns the features in the order of their steps.
const std::vector<const ScoreFeature*>& score_features();
// Returns the feature of a field; null if the field belongs to none.
const ScoreFeature* score_feature_of(std::string_view field);
// True for the fields of features, and for sinks, which change no score.
bool is_score_field(std::string_view field);
// Adds a feature from outside this folder. It must stay alive. Must be called before any other
// function of the library.
void add_score_feature(const ScoreFeature& feature);

// True if a spec has a program that changes scores or hides keys.
bool is_scored(const SpecFields& spec);
// True if a feature of the spec bends scores.
bool bends_scores(const SpecFields& spec);
// A spec's program has two halves. The score stage is code in the kernel that changes scores (all
// steps before kMask). Masks come from a map of blocks, and are evaluated only in partly visible
// blocks.
bool has_score_stage(const SpecFields& spec);
bool has_mask_program(const SpecFields& spec);
// True if kernels have the argument ScoreArgs: for a score stage, or for sinks, which need no stage
// because they change no score.
bool has_score_args(const SpecFields& spec);
// Returns the capture number of the sinks, the last one. A call gives them like any capture.
int sinks_capture(const SpecFields& spec);
// Returns the capture number of the call's map, for kernels that read it (features.hpp).
// For a map that hides, this is its program's capture; otherwise it is the last capture.
int map_capture(const SpecFields& spec);
// True if the call's map alone decides which blocks a tile visits. If the problem has other masks
// in addition to a map that hides, kernels compute the ranges of all masks, since the map does not
// include the others.
bool asks_map(const SpecFields& spec);
// True if the map is the only mask. Then a tile's partly visible blocks are blocks of the map.
bool hides_by_map(const SpecFields& spec);
// Returns the composed program of all features of a spec; identity if it has none.
score::Program score_program(const SpecFields& spec);
// One half of a spec's program. Both halves share one ScoreArgs, so each reads captures and scalars
// at their places in the whole program.
struct ScoreHalf {
  score::Program program;
  score::Places places;
};
ScoreHalf score_stage_program(const SpecFields& spec);  // identity if no feature changes scores
ScoreHalf mask_program(const SpecFields& spec);         // only if has_mask_program(spec)
// Returns the factor by which a kernel multiplies gradients of the final score. It is the
// derivative by the raw score (analysis/rewrites.hpp), or by the loaded value if the problem
// computes the gradient of a load. Returns nullopt if no factor is needed: scores are only added to
// or hidden, or the gradient is that of an input after the score program.
std::optional<ScoreHalf> score_slope_program(const SpecFields& spec);
// Returns the captures in order. If two programs of a spec use one name for their captures, the
// list has it twice, and the call gives one tensor for both.
std::vector<CaptureSpec> captures_of(const Problem& problem);
std::vector<score::Scalar> scalars_of(const SpecFields& spec);

// The dependence of a mask program's result on the batch entry and the head, at a given row and
// key. Along axes that a call's captures repeat, the result does not change.
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

// The properties of a plan's score captures.
struct ScoreCaptures {
  bool present = false;      // kernels get ScoreArgs
  bool has_program = false;  // a program changes or hides scores
  bool has_stage = false;    // kernels have a score stage, which also scales
  std::vector<CaptureSpec> captures;
  std::vector<score::Scalar> scalars;
  // A built-in mask replaced a caller's mask program. A call's q_position0 and kv_position0 do not
  // shift built-in masks, so they must be equal (features.hpp).
  bool has_fixed_masks = false;
  MaskDependence masks{};  // for a problem with a mask program

  // True if the plan reads a call's ScoreOperands.
  bool reads_operands() const { return present || has_fixed_masks; }
};
ScoreCaptures score_captures(const Problem& problem);

}  // namespace attune
