// SPDX-License-Identifier: Apache-2.0
// From a model's config to the score features of its self-attention (generator/core/score_feature.hpp):
// softcap, ALiBi, biases, a prefix. Fields of the config say them, or the row of its type does.
// Used by model_towers.cpp; spans of layers (windows, chunks) stand in layer_pattern.hpp.
#pragma once

#include <string>
#include <vector>

#include "generator/core/problem.hpp"
#include "tuner/model_fields.hpp"
#include "tuner/model_table.hpp"

namespace attune {

struct ModelScores {
  std::vector<std::string> not_supported;  // what the model does and no kernel does yet
  std::vector<std::string> assumptions;    // sentences: what no field of the config says
  // In sequences with images the tokens of one see each other in both directions.
  bool sees_images = false;
};

// Sets the features on `problem`, whose heads and mask are set. A bias gets the type of `dtype_o` as
// it is there; follow_dtype sets it again.
ModelScores read_scores(const ModelFields& fields, const ModelRow& row, Problem* problem);

// The biases of a model's problem have the type of its tensors of 16 or 32 bits.
void follow_dtype(Problem* problem);

}  // namespace attune
