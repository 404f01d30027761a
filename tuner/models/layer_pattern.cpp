// SPDX-License-Identifier: Apache-2.0
// Reads the span of each layer from the fields that configs use for it; see layer_pattern.hpp.
#include "tuner/models/layer_pattern.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

using Json = ModelFields::Json;
using Spans = std::vector<Span>;  // per layer, or for a period that repeats

constexpr Names kPatternNames{"sliding_window_pattern", "_sliding_window_pattern"};

constexpr Names kWords{"layer_types", "layers_block_type", "block_types", "attention_layers"};

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
  static constexpr const char* kFull[] = {"full_attention",
                                          "attention",
                                          "global",
                                          "full",
                                          "hybrid",
                                          "global_attention",
                                          "reference_sliding_attention"};
  static constexpr const char* kWindow[] = {"sliding_attention",
                                            "local",
                                            "local_attention",
                                            "hybrid_sliding",
                                            "window_attention",
                                            "compressed_sparse_attention",
                                            "heavily_compressed_attention"};
  static constexpr const char* kSparse[] = {"indexed_attention", "deepseek_sparse_attention",
                                            "qwen_sparse_attention", "minimax_m3_sparse"};
  static constexpr const char* kOther[] = {
      "linear_attention", "mamba", "mamba2", "recurrent", "conv", "moe", "mlp", "linear"};
  const auto among = [&](const auto& words) {
    return std::any_of(std::begin(words), std::end(words),
                       [&](const char* one) { return word == one; });
  };
  if (among(kFull)) return Span::kFull;
  if (among(kWindow)) return has_window ? Span::kWindow : Span::kFull;
  if (word == "chunked_attention") return Span::kChunk;
  if (among(kSparse)) return Span::kSparse;
  if (among(kOther)) return Span::kOther;
  return std::nullopt;
}

Spans from_words(const ModelFields& fields, Names names, bool has_window) {
  Spans spans;
  const bool all_local = fields.has({"attention_window_size"});  // RecurrentGemma
  for (const std::string& word : fields.texts(names)) {
    const std::optional<Span> span =
        all_local && word == "attention" ? Span::kWindow : span_of(word, has_window);
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
  if (fields.is_list({"attn_type_list"})) {  // MiniMax: 1 for softmax attention
    Spans spans;
    for (const int softmax : fields.integers({"attn_type_list"}))
      spans.push_back(softmax != 0 ? Span::kFull : Span::kOther);
    return spans;
  }
  if (fields.is_list({"linear_attn_config.full_attn_layers"})) {  // Kimi: counted from 1
    std::vector<int> layers = fields.integers({"linear_attn_config.full_attn_layers"});
    for (int& layer : layers) layer = std::max(layer, 1) - 1;
    return listed(layers, num_layers, Span::kFull, Span::kOther);
  }
  if (fields.has({"layer_group_size"})) {
    const int n = layers_of(fields, {"layer_group_size"});
    return every(n, n - 1, Span::kFull, Span::kOther);
  }
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
  if (fields.is_list({"hybrid_layer_pattern"})) {  // MiMo: 1 for a window
    Spans spans;
    for (const int windowed : fields.integers({"hybrid_layer_pattern"}))
      spans.push_back(windowed != 0 ? Span::kWindow : Span::kFull);
    return spans;
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
  fields.ignore({"max_window_layers", "sliding_window_pattern", "_sliding_window_pattern",
                 "attention_types", "attention_chunk_size", "global_attn_every_n_layers",
                 "global_attn_every_n", "attn_layer_period", "attn_layer_offset",
                 "full_attention_interval", "full_attn_idxs", "attn_layer_indices", "chunk_size",
                 "attention_in_multiplier", "attention_out_multiplier", "attn_type_list",
                 "hybrid_layer_pattern"});
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

// Returns what differs in layers of one span: "swa_head_dim" is the head_dim of layers with a
// window, "global_head_dim" that of the others.
Json changes_of(const ModelFields& fields, Span span) {
  struct Change {
    Span span;
    const char *field, *sets;
  };
  static constexpr Change kChanges[] = {
      {Span::kWindow, "swa_num_attention_heads", "num_attention_heads"},
      {Span::kWindow, "num_sliding_attention_heads", "num_attention_heads"},
      {Span::kWindow, "attention_other_setting.num_attention_heads", "num_attention_heads"},
      {Span::kWindow, "attention_other_setting.num_attention_groups", "num_key_value_heads"},
      {Span::kWindow, "attention_other_setting.head_dim", "head_dim"},
      {Span::kWindow, "swa_num_key_value_heads", "num_key_value_heads"},
      {Span::kWindow, "swa_head_dim", "head_dim"},
      {Span::kWindow, "swa_v_head_dim", "v_head_dim"},
      {Span::kFull, "global_head_dim", "head_dim"},
      {Span::kFull, "num_global_key_value_heads", "num_key_value_heads"}};
  Json changes = Json::object();
  for (const Change& one : kChanges) {
    if (!fields.has({one.field}) || one.span != span) continue;
    if (std::string_view(one.field) == "num_global_key_value_heads" &&
        !fields.flag({"attention_k_eq_v"}, true))
      continue;  // the field has no effect then
    changes[one.sets] = fields.integer({one.field});
  }
  return changes;
}

// Reads Nemotron's block_configs: groups of query heads, and blocks without attention.
void read_blocks(const ModelFields& fields, Spans* spans, std::vector<Json>* changes) {
  const Json& blocks = fields.json({"block_configs"});
  if (!blocks.is_array()) return;
  const int heads = fields.integer({"num_attention_heads"});
  for (size_t layer = 0; layer < std::min(blocks.size(), spans->size()); ++layer) {
    const ModelFields attention = fields.with_changes(blocks[layer]).object("attention", "");
    if (attention.flag({"no_op"}, false) || attention.flag({"replace_with_linear"}, false))
      (*spans)[layer] = Span::kOther;
    else
      (*changes)[layer]["num_key_value_heads"] = heads / attention.integer({"n_heads_in_group"});
  }
}

// Returns the fields that differ in each layer; empty if all layers have the same. May change
// spans.
std::vector<Json> read_changes(const ModelFields& fields, Spans* spans, size_t num_layers) {
  static constexpr Names kPerLayer{"per_layer_config"};
  static constexpr Names kHeadsPerLayer{"num_attention_heads_per_layer"};
  fields.ignore({"swa_rope_theta", "attention_k_eq_v"});
  std::vector<Json> changes(num_layers, Json::object());
  const bool per_layer = fields.is_object("per_layer_config");
  Spans whole;
  for (size_t layer = 0; layer < num_layers; ++layer) {
    whole.push_back((*spans)[layer % spans->size()]);
    if (!per_layer) changes[layer] = changes_of(fields, whole.back());
  }
  *spans = whole;
  if (per_layer)
    for (const auto& [layer, change] : fields.json(kPerLayer).items()) {
      const size_t index = std::strtoul(layer.c_str(), nullptr, 10);
      if (index < num_layers && change.is_object()) changes[index] = change;
    }
  if (fields.is_list(kHeadsPerLayer)) {
    const std::vector<int> heads = fields.integers(kHeadsPerLayer);
    for (size_t layer = 0; layer < std::min(heads.size(), num_layers); ++layer)
      changes[layer]["num_attention_heads"] = heads[layer];
  }
  read_blocks(fields, spans, &changes);
  return changes;
}

}  // namespace

const Names kLayerNames{"num_hidden_layers", "n_layer", "n_layers",
                        "num_layers",        "depth",   "layers"};

int window_of(const ModelFields& fields) {
  static constexpr Names kWindow{"sliding_window", "sliding_window_size", "window_size",
                                 "attention_window_size", "local_attention"};
  if (!fields.has(kWindow) || !fields.flag({"use_sliding_window"}, true)) return 0;
  const Json& window = fields.json(kWindow);
  return window.is_number_integer() && window.get<int64_t>() < 0 ? 0 : fields.count(kWindow);
}

std::vector<LayerGroup> read_layer_groups(const ModelFields& fields) {
  const bool counts = fields.states(kLayerNames) || !fields.states(kWords);
  int num_layers = counts && fields.has(kLayerNames) ? layers_of(fields, kLayerNames) : 0;
  Spans spans = read_spans(fields, num_layers);
  if (!counts) num_layers = static_cast<int>(spans.size());  // a list has a word for each layer
  const size_t end = num_layers > 0 ? static_cast<size_t>(num_layers) : spans.size();
  const std::vector<Json> changes = read_changes(fields, &spans, end);
  std::vector<LayerGroup> groups;
  for (const Span span : {Span::kFull, Span::kWindow, Span::kChunk, Span::kSparse, Span::kOther})
    for (size_t layer = 0; layer < end; ++layer) {
      if (spans[layer % spans.size()] != span) continue;
      const Json change = span == Span::kOther || changes.empty() ? Json::object() : changes[layer];
      auto group = std::find_if(groups.begin(), groups.end(), [&](const LayerGroup& one) {
        return one.span == span && one.changes == change;
      });
      if (group == groups.end()) group = groups.insert(group, {span, 0, change});
      group->layers += num_layers > 0 ? 1 : 0;
    }
  return groups;
}

}  // namespace attune
