// SPDX-License-Identifier: Apache-2.0
// The parts that families of prefill share: slices of V, the map of blocks in their launches, and
// defaults of kernels with a score stage. Families of gradients use the last part too.
#pragma once

#include <cstdint>
#include <vector>

#include "generator/core/problem/config.hpp"
#include "generator/core/problem/kernel_spec.hpp"
#include "generator/kernel_template.hpp"
#include "generator/score/features/score_feature.hpp"
#include "generator/search_space.hpp"

namespace attune {

// Knob v_slices: parts of V's columns, each a separate work tile, for a head_dim_v whose O does not
// fit the registers. Specs with a narrower V have no such knob. Kernels use it in
// templates/cuda/parts/v_slice.cuh. Used by the families of sm90/rules.hpp and
// mma/prefill_mma.hpp.

constexpr int kWidestWholeV = 256;  // head_dim_v
inline bool has_wide_v(const KernelSpec& spec) { return spec.head_dim_v > kWidestWholeV; }
// True if a head of Q and K, or of V, is wider than most kernels serve.
inline bool has_wide_heads(const KernelSpec& spec) {
  return has_wide_v(spec) || spec.head_dim_qk > kWidestWholeV;
}

// Returns the number of slices of V, the knob v_slices; 1 if the config has no such knob.
int v_slices(const Config& config);
// Returns the spec of one slice, for which a kernel is compiled.
KernelSpec slice_of(const KernelSpec& spec, const Config& config);

// For specs with a wide V: the knob with the values of a family, and the constants about slices
// that a kernel needs besides its own width.
void add_v_slices(const KernelSpec& spec, const std::vector<int64_t>& values,
                  std::vector<Knob>* knobs);
std::vector<Constant> v_slice_constants(const KernelSpec& spec, const Config& config);

// The map of blocks (templates/shared/block_map.h): the first step of a launch writes it, the main
// step reads it. Used by every CUDA family of prefill for specs with a mask program.

// The tiles of a launch, and the keys of a block.
struct MapShape {
  int64_t row_blocks = 1;
  int64_t head_tiles = 1;  // adjacent tiles per batch entry
  int64_t block_n = 1;
};

// Both do nothing for specs without a mask program. Call them last, so that the rest of the
// workspace keeps its place.
void add_block_map(const KernelSpec& spec, LaunchStructure* launch);
void add_block_map(const KernelSpec& spec, const Shape& shape, const MapShape& map,
                   LaunchSizes* sizes);

// The largest logits (templates/cuda/parts/max_logits.cuh): the step before the main one sets them
// to -infinity, and the main one raises them. Both do nothing for specs without them. Call them
// before add_block_map.
void add_max_logits(const KernelSpec& spec, LaunchStructure* launch);
void add_max_logits(const KernelSpec& spec, LaunchSizes* sizes);

// Defaults of kernels with a score stage: it needs registers, which narrower steps leave.

// Returns `config`, for a spec with a score stage, with the most legal keys per step up to
// `block_n`. blocks_per_sm, q_place and hold_offsets follow if the family has them. Tiles of more
// than `block_m` rows leave each thread fewer registers: they get `block_m` rows and the fewest
// keys. A config without such a neighbour stays as it is.
Config with_room_for_scores(const SearchSpace& legal, const Config& config, int64_t block_n,
                            int64_t block_m = INT64_MAX);

// True if the mask program reads a tensor per element, at indices of both row and column.
bool reads_elements_to_hide(const SpecFields& spec);

// True if the score stage reads a tensor per element, such as a bias but not slopes.
bool reads_elements_to_score(const SpecFields& spec);

// True if stage and mask program together read more than one tensor per element.
bool reads_several_elements(const SpecFields& spec);

}  // namespace attune
