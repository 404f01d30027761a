// SPDX-License-Identifier: Apache-2.0
// LayerGroup: the layers of a decoder or encoder that see the same keys and have the same heads.
// Configs state spans in many ways: a list with a word for each layer, every n-th layer, or all
// layers from a certain one on. Some layers may have other heads than the config's fields state.
#pragma once

#include <vector>

#include "tuner/models/model_fields.hpp"

namespace attune {

enum class Span {
  kFull,
  kWindow,
  kChunk,
  kSparse,  // the keys that an indexer chooses
  kOther,   // no softmax self-attention: recurrent, linear, convolution, cross-attention
};

struct LayerGroup {
  Span span = Span::kFull;
  int layers = 0;             // 0 if the config does not state the number
  ModelFields::Json changes;  // an object: fields that differ in these layers
};

extern const Names kLayerNames;  // names of the number of layers

// Returns the window size, in keys, as the config counts it; 0 if no layer has a window.
int window_of(const ModelFields& fields);

// Returns the groups in the order of Span.
std::vector<LayerGroup> read_layer_groups(const ModelFields& fields);

}  // namespace attune
