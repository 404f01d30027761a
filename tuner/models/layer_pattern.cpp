// SPDX-License-Identifier: Apache-2.0
// Reads the span of each layer from the fields that configs use for it; see layer_pattern.hpp.
#include "tuner/models/layer_pattern.hpp"

#include <algorithm>
#include <optional>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

enum class Span { kFull, kWindow, kChunk, kOther };
using Spans = std::vector<Span>;  // per layer, or for a period that repeats

constexpr Names kPatternNames{"sliding_window_pattern", "_sliding_window_pattern"};

constexpr int kMostLayers = 4096;

int layers_of(const ModelFields& fields, Names names) {
  const int layers = fields.integer(names);
  if (layers > kMostLayers)
    fields.refuse(names, "an integer from 1 to " + std::to_string(kMostLayers));
  return layers;
}

// Returns the span for a word of layer_types or a similar field. In a model that states no window
// size, a word for a window means all keys.
std::optional<Span> span_of(const std::string& word, bool has_window) {
  static constexpr const char* kFull[] = {"full_attention", "attention", "global",
                                          "full",           "hybrid",    "global_attention"};
  static constexpr const char* kWindow[] = {"sliding_attention", "local", "local_attention"};
  static constexpr const char* kOther[] = {
      "linear_attention", "mamba", "mamba2", "recurrent", "conv", "moe", "mlp", "linear"};
  const auto among = [&](const auto& words) {
    return std::any_of(std::begin(words), std::end(words),
                       [&](const char* one) { return word == one; });
  };
  if (among(kFull)) return Span::kFull;
  if (among(kWindow)) return has_window ? Span::kWindow : Span::kFull;
  if (word == "chunked_attention") return Span::kChunk;
  if (among(kOther)) return Span::kOther;
  return std::nullopt;
}

Spans from_words(const ModelFields& fields, Names names, bool has_window) {
  Spans spans;
  for (const std::string& word : fields.texts(names)) {
    const std::optional<Span> span = span_of(word, has_window);
    if (!span)
      fields.refuse(names,
                    "a list of full_attention, sliding_attention, chunked_attention and layers "
                    "without attention; for other models give --problem");
    spans.push_back(*span);
  }
  return spans;
}

// Reads "LLLG", or Nemotron-H's "M-M*-". `full` and `window` are the letters of those spans. Layers
// with other letters have no attention.
Spans from_letters(const std::string& letters, char full, char window) {
  Spans spans;
  for (const char letter : letters)
    spans.push_back(letter == full ? Span::kFull : letter == window ? Span::kWindow : Span::kOther);
  return spans;
}

// Returns a period of n layers: layer `at` is `special`, the others are `usual`.
Spans every(int n, int at, Span special, Span usual) {
  Spans spans(n, usual);
  spans[at % n] = special;
  return spans;
}

// Returns spans in which the listed layers are `special`.
Spans listed(const std::vector<int>& indices, int num_layers, Span special, Span usual) {
  Spans spans(num_layers, usual);
  for (const int index : indices)
    if (index < num_layers) spans[index] = special;
  return spans;
}

// Returns which layers of a hybrid model have attention; nullopt if all layers of the model have
// it.
std::optional<Spans> hybrid_spans(const ModelFields& fields, int num_layers) {
  if (fields.is_text({"hybrid_override_pattern"}))
    return from_letters(fields.text({"hybrid_override_pattern"}), '*', 0);
  if (fields.has({"attn_layer_period"}))
    return every(layers_of(fields, {"attn_layer_period"}), fields.count({"attn_layer_offset"}),
                 Span::kFull, Span::kOther);
  if (fields.has({"full_attention_interval"})) {
    const int n = layers_of(fields, {"full_attention_interval"});
    return every(n, n - 1, Span::kFull, Span::kOther);
  }
  if (fields.is_list({"attn_layer_indices", "full_attn_idxs"}))
    return listed(fields.integers({"attn_layer_indices", "full_attn_idxs"}), num_layers,
                  Span::kFull, Span::kOther);
  if (fields.is_list({"cross_attention_layers"}))
    return listed(fields.integers({"cross_attention_layers"}), num_layers, Span::kOther,
                  Span::kFull);
  return std::nullopt;
}

Spans chunked_spans(const ModelFields& fields) {
  if (fields.is_list({"no_rope_layers"})) {
    Spans spans;
    for (const int rotated : fields.integers({"no_rope_layers"}))
      spans.push_back(rotated != 0 ? Span::kChunk : Span::kFull);
    return spans;
  }
  const int n =
      fields.has({"no_rope_layer_interval"}) ? layers_of(fields, {"no_rope_layer_interval"}) : 4;
  return every(n, n - 1, Span::kFull, Span::kChunk);
}

Spans windowed_spans(const ModelFields& fields, int num_layers) {
  if (fields.is_text(kPatternNames)) return from_letters(fields.text(kPatternNames), 'G', 'L');
  if (fields.has(kPatternNames)) {
    const int n = layers_of(fields, kPatternNames);
    return every(n, n - 1, Span::kFull, Span::kWindow);
  }
  if (fields.has({"global_attn_every_n_layers"}))
    return every(layers_of(fields, {"global_attn_every_n_layers"}), 0, Span::kFull, Span::kWindow);
  if (fields.has({"max_window_layers"})) {  // layers from this one on have the window
    if (num_layers == 0) return {Span::kFull, Span::kWindow};
    Spans spans(num_layers, Span::kFull);
    const int first = fields.count({"max_window_layers"});
    for (int layer = first; layer < num_layers; ++layer) spans[layer] = Span::kWindow;
    return spans;
  }
  return {Span::kWindow};
}

Spans read_spans(const ModelFields& fields, int num_layers) {
  static constexpr Names kWords{"layer_types", "layers_block_type", "block_types",
                                "attention_layers"};
  fields.ignore({"max_window_layers", "sliding_window_pattern", "_sliding_window_pattern",
                 "attention_types", "attention_chunk_size", "global_attn_every_n_layers",
                 "global_attn_every_n", "attn_layer_period", "attn_layer_offset",
                 "full_attention_interval", "full_attn_idxs", "attn_layer_indices", "chunk_size",
                 "attention_in_multiplier", "attention_out_multiplier"});
  const bool has_window = window_of(fields) > 0;
  if (fields.is_list(kWords)) return from_words(fields, kWords, has_window);
  if (fields.has({"attention_chunk_size"})) return chunked_spans(fields);
  Spans spans = has_window ? windowed_spans(fields, num_layers) : Spans{Span::kFull};
  if (const auto hybrid = hybrid_spans(fields, num_layers)) {
    if (!has_window) return *hybrid;
    fields.refuse(
        "attune cannot read a config with a window on some layers and no attention on others; give "
        "--problem instead");
  }
  return spans;
}

}  // namespace

const Names kLayerNames{"num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth"};

int window_of(const ModelFields& fields) {
  static constexpr Names kWindow{"sliding_window", "window_size", "attention_window_size",
                                 "local_attention"};
  if (!fields.has(kWindow) || !fields.flag({"use_sliding_window"}, true)) return 0;
  return fields.count(kWindow);
}

LayerPattern read_layer_pattern(const ModelFields& fields) {
  const int num_layers = fields.has(kLayerNames) ? layers_of(fields, kLayerNames) : 0;
  const Spans spans = read_spans(fields, num_layers);
  LayerPattern pattern;
  const size_t end = num_layers > 0 ? static_cast<size_t>(num_layers) : spans.size();
  for (size_t layer = 0; layer < end; ++layer) {
    const Span span = spans[layer % spans.size()];
    LayerPattern::Part& part = span == Span::kFull     ? pattern.full
                               : span == Span::kWindow ? pattern.windowed
                               : span == Span::kChunk  ? pattern.chunked
                                                       : pattern.other;
    part.here = true;
    part.layers += num_layers > 0 ? 1 : 0;
  }
  return pattern;
}

}  // namespace attune
