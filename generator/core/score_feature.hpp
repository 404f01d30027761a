// SPDX-License-Identifier: Apache-2.0
// ScoreFeature: something that stands between S = Q K^T and the softmax beyond the scale, the mask
// and the window: softcap, ALiBi, a bias, documents. Each is a field of the spec and a few lines of
// the score language (score/program.hpp); one file each stands in scores/. Kernels of every family,
// the references and the oracle get the program that they make together, so a new feature needs
// nothing else.
//
// Programs are applied in this order, whatever is on: softcap, score program, biases, ALiBi, masks.
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

// What an axis of a tensor goes along that is as large as a call and comes with it: the call's own rows and keys, or the distances
// between them, wherever in longer sequences they stand.
enum class CallAxis { kNone, kRows, kKeys, kDistances };

// A tensor that a program reads, as the call must give it: indices [0, extents[i]), any strides.
struct CaptureSpec {
  std::string name;  // "alibi_slopes"
  CaptureType type = CaptureType::kFp32;
  std::vector<int64_t> extents;
  std::string axes;  // "[num_heads_q]", for messages
  // An element as a call may well have it, for measuring and tests; `at` are its indices.
  double (*sample)(const std::vector<int64_t>& at, std::mt19937_64& random) = nullptr;
  bool sized_by_call = false;  // the call says its extents; these are for measuring
  std::array<CallAxis, kMaxCaptureRank> along{};
};

// A sample: N(0,1).
double sample_normal(const std::vector<int64_t>& at, std::mt19937_64& random);
// Which group a place along a sequence is of, as an id of a document: groups of 10, 30, 50 .. places, so that short sequences have
// several and long ones do not fall into crumbs, for which other kernels are the fastest.
double sample_group(int64_t place);

// Of a ScoreTensor that is not kNone.
CaptureType capture_type(ScoreTensor tensor);

// The order of the programs.
enum class ScoreStep { kSoftcap, kProgram, kBias, kAlibi, kMask };

struct ScoreFeature {
  std::string field;  // of the spec, on where it is not at its default
  ScoreStep step = ScoreStep::kProgram;
  bool (*is_on)(const SpecFields& spec);
  // Throws for values that the field may not have; null: it has any.
  void (*validate)(const Problem& problem);
  score::Program (*program)(const SpecFields& spec);
  std::vector<CaptureSpec> (*captures)(
      const Problem& problem);  // in any order, by name; null: none
};

// In the order of their steps.
const std::vector<const ScoreFeature*>& score_features();
// Adds one that stands elsewhere, before anything else is called. It stays alive.
void add_score_feature(const ScoreFeature& feature);

// Whether a spec has a program of its scores: one that changes them, one that hides them, or both.
bool is_scored(const SpecFields& spec);
// The two halves. Kernels have a score stage for what changes scores (all steps before kMask); what hides keys they look up in a map
// of blocks, and apply in those alone that are seen in part.
bool has_score_stage(const SpecFields& spec);
bool has_mask_program(const SpecFields& spec);
// Whether its kernels are given ScoreArgs: it has a score stage, or sinks, which meet no score and so need none.
bool has_score_args(const SpecFields& spec);
// Which capture the sinks are: the last. They come with the call as any capture.
int sinks_capture(const SpecFields& spec);
// Which capture the map of a call is, for kernels that ask it (scores/block_map.hpp): that of its program where it hides, else the last.
int map_capture(const SpecFields& spec);
// Whether kernels ask the call's map alone which blocks their tiles see. Where a map hides beside other masks they ask the ranges of
// all masks: the map does not know what the others hide.
bool asks_map(const SpecFields& spec);
// Whether the map is the only mask: then blocks that a tile sees in part are those of its granules.
bool hides_by_map(const SpecFields& spec);
// What all features of a spec make of a score; identity where there is none.
score::Program score_program(const SpecFields& spec);
// One of its halves. Captures and scalars are read at the places that they have in the whole program, for ScoreArgs is one for both.
struct ScoreHalf {
  score::Program program;
  score::Places places;
};
ScoreHalf score_stage_program(const SpecFields& spec);  // identity where there is none
ScoreHalf mask_program(const SpecFields& spec);         // of a spec that has_mask_program
// By what a kernel multiplies gradients of what the first gives: how fast that moves with the score (score/slope.hpp) or, of problems
// that ask for the gradient of a load, with what is loaded. nullopt where that is 1: scores are only added to, or hidden.
std::optional<ScoreHalf> score_slope_program(const SpecFields& spec);
// What it captures, in its order. Two programs of a spec may name their captures alike: then the name stands here twice, and the
// call gives one tensor for both.
std::vector<CaptureSpec> captures_of(const Problem& problem);
std::vector<score::Scalar> scalars_of(const SpecFields& spec);

// How what a mask program makes of a row and a key may depend on the batch entry and the head. A call says the rest: along axes that
// it repeats nothing changes.
struct MaskDependence {
  struct Axis {
    size_t capture;  // in the order of the spec's captures
    size_t axis;
  };
  struct Part {
    bool directly = false;     // whatever the call repeats
    std::vector<Axis> axes{};  // of captures that it indexes
  };
  Part on_batch, on_head;
};
MaskDependence mask_dependence(const SpecFields& spec);

// All that a plan knows of it.
struct ScoreCaptures {
  bool present = false;      // kernels are given ScoreArgs
  bool has_program = false;  // of scores, or that hides keys
  bool has_stage = false;    // kernels have a score stage, which scales
  std::vector<CaptureSpec> captures;
  std::vector<score::Scalar> scalars;
  // A caller's mask program has become a mask that positions do not move (recognised_programs.hpp).
  bool has_fixed_masks = false;
  MaskDependence masks{};  // of a problem with a mask program

  // Whether a call's ScoreOperands are looked at.
  bool reads_operands() const { return present || has_fixed_masks; }
};
ScoreCaptures score_captures(const Problem& problem);
// Whether a field of specs is one of a feature.
bool is_score_field(std::string_view name);

}  // namespace attune
