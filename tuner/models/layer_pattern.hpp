// SPDX-License-Identifier: Apache-2.0
// LayerPattern: how many layers of a decoder or encoder see all keys, a window or a chunk, and how
// many have no attention. Configs state it in many ways: a list with a word for each layer, every
// n-th layer, or all layers from a certain one on.
#pragma once

#include "tuner/models/model_fields.hpp"

namespace attune {

struct LayerPattern {
  struct Part {
    bool here = false;
    int layers = 0;  // 0 if the config does not state the number
  };
  Part full, windowed, chunked;
  Part other;  // layers without softmax self-attention: recurrent, linear, convolution, cross
};

extern const Names kLayerNames;  // names of the number of layers

// Returns the window size, in keys, as the config counts it; 0 if no layer has a window.
int window_of(const ModelFields& fields);

LayerPattern read_layer_pattern(const ModelFields& fields);

}  // namespace attune
