// SPDX-License-Identifier: Apache-2.0
// Turns a model's config into the score features of its self-attention
// (generator/score/features/score_feature.hpp): softcap, ALiBi, biases, a prefix. Fields of the
// config, or the row of its type, state the features. Used by model_towers.cpp. For spans of layers
// (windows, chunks) see layer_pattern.hpp.
#pragma once

#include <string>
#include <vector>

#include "generator/core/problem/problem.hpp"
#include "tuner/models/model_fields.hpp"
#include "tuner/models/model_table.hpp"

namespace attune {

struct ModelScores {
  std::vector<std::string> not_supported;  // features of the model that no kernel has yet
  // sentences about things that no field of the config states
  std::vector<std::string> assumptions;
  // In sequences with images, the tokens of one image see each other in both directions.
  bool sees_images = false;
};

// Sets the features on `problem`, whose heads and mask are already set. `in_window`: the layers see
// a window of keys. A bias gets the type of `dtype_o`; call follow_dtype if `dtype_o` changes.
ModelScores read_scores(const ModelFields& fields, const ModelRow& row, bool in_window,
                        Problem* problem);

// Gives the biases of a model's problem the type of its 16-bit or 32-bit tensors.
void follow_dtype(Problem* problem);

}  // namespace attune
