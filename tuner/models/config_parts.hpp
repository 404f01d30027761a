// SPDX-License-Identifier: Apache-2.0
// Readers of the parts of a config.json: towers of transformers, the operands of one layer, caches,
// and networks of diffusers. Used by model_config.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/core/problem/problem.hpp"
#include "tuner/models/model_config.hpp"
#include "tuner/models/model_fields.hpp"
#include "tuner/models/model_table.hpp"

namespace attune {

// Turns the fields of one transformer (a model, or its text or vision part) into its kinds of
// attention layers, as its row in the table of model types states.
//
// `fields` has the row's defaults. `label` ("vision") is put before the names of the layers, unless
// it is empty. Adds to model->layers and model->notes.
void read_tower(const ModelFields& fields, const ModelRow& row, const std::string& label,
                ModelConfig* model);

// Reads the operands of one layer's attention from a config: heads, head dims and the scale. Used
// by model_towers.cpp.

extern const Names kHeadNames;    // names of the number of query heads
extern const Names kHiddenNames;  // names of the width of the model

// Returns a problem with heads, head dims and scale. Fields with these names give the number of
// query heads and the width. Throws kInvalidArgument for fields that are missing or contradict.
Problem self_attention(const ModelFields& fields, Names head_names = kHeadNames,
                       Names hidden_names = kHiddenNames);

// Sets the scale that the config states, if it is not 1 / sqrt(head_dim_qk).
void set_scale(const ModelFields& fields, Problem* problem);

// Reads how a decoder uses its cache: rotary angles, latent vectors, and the type of its elements.

// `problem` has the heads and head dims of the layers. The config's rotary fields may be those of
// any release of transformers.
CacheUse read_cache_use(const ModelFields& fields, const Problem& problem);

// Returns the 8-bit type that a whole config's quantization asks for in caches (kv_cache_scheme,
// kv_cache_quant_algo). Returns nullopt if caches have the model's type.
std::optional<Dtype> cache_dtype_of(const ModelFields& config);

// The attention of diffusers' networks: UNets of Stable Diffusion, SD3, and the transformers of
// diffusion_rows.hpp. Their config.json has a _class_name instead of a model_type.

// Returns the values of _class_name that read_diffusion() knows.
std::vector<std::string> diffusion_classes();

// Adds to model->layers and model->notes. Throws kInvalidArgument for an unknown class.
void read_diffusion(const ModelFields& fields, ModelConfig* model);

}  // namespace attune
