// SPDX-License-Identifier: Apache-2.0
// LayerPattern: how many layers of a decoder or encoder see every key, a window or a chunk, and how
// many do not attend at all. Configs say so in many ways: a list with a word for each layer, every
// n-th layer, or from some layer on.
#pragma once

#include "tuner/model_fields.hpp"

namespace attune {

struct LayerPattern {
  struct Part {
    bool here = false;
    int layers = 0;  // 0 where the config does not say how many it has
  };
  Part full, windowed, chunked;
  Part other;  // without self-attention over a softmax: recurrent, linear, convolution, cross
};

extern const Names kLayerNames;  // of the number of layers

// Keys in the window of layers that have one, as the config counts them; 0 when no layer has one.
int window_of(const ModelFields& fields);

LayerPattern read_layer_pattern(const ModelFields& fields);

}  // namespace attune
