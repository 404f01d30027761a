// SPDX-License-Identifier: Apache-2.0
// The known model types. Each row states how to read the attention of a model_type of a Hugging
// Face config.json, and the transformers library's defaults for fields that a config leaves out. To
// add a type, add a row to one of the lists (rows_*.cpp); model_towers.cpp reads the rows.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace attune {

enum class Reading {
  kDecoder,        // causal self-attention
  kEncoder,        // self-attention in both directions (causal if is_decoder is true)
  kFixedText,      // kEncoder, always with max_position_embeddings tokens
  kImage,          // both directions, (image_size / patch_size)^2 patches and extra_tokens
  kAnyImage,       // kImage, with as many patches as the given image has
  kWindowedImage,  // kAnyImage; most layers see windows of the image (window_size)
  kSamImage,       // kImage; most layers see windows of the image, padded to whole windows
  // Windows of an image, shifted in every second layer, in stages with fewer and fewer patches.
  kWindowStages,
  kAudio,           // both directions, always max_source_positions frames
  kAnyAudio,        // both directions, as many frames as the given sound has
  kCrossDecoder,    // causal self-attention, and cross-attention to an encoder of another model
  kEncoderDecoder,  // self-attention of encoder and decoder, cross-attention between them
  kSpeech,          // kEncoderDecoder with kAudio as its encoder
  kParts,           // several models in one: see `parts`
  kNotCovered,      // not tuned; not_supported says why
};

struct ModelRow {
  std::string_view types;  // model_type; several are separated by spaces
  Reading reading;
  std::string_view defaults = {};  // JSON object
  int extra_tokens = 0;            // class, distillation and register tokens
  // A feature of its self-attention that no kernel has yet. For kNotCovered: what it has instead.
  std::string_view not_supported = {};
  // Features of the scores that no field of the config states, as words of model_scores.cpp. For
  // kParts, they apply to the text model.
  std::string_view scores = {};
  // Names in "architectures" that identify configs whose model_type is missing or wrong.
  std::string_view architectures = {};
  // Nested configs, as name=type, separated by spaces: "text_config=llama". The type is used if the
  // nested config states none.
  std::string_view parts = {};
  // Attention beside the self-attention that is read, as a noun: "the cross-attention to images".
  std::string_view not_tuned = {};
  int attentions_per_layer = 1;  // calls of attention that a layer makes
  std::string_view dtype = {};   // in which it is published, for configs that state none
  // Fields without effect on the attention that is read, though their names look like it.
  std::string_view ignores = {};
  // Fields of which a config must state one, because the library's default is too long for a row.
  std::string_view needs = {};
};

// The lists of rows, one a file (rows_decoders.cpp).
std::span<const ModelRow> decoder_rows();  // decoders whose layers are equal
std::span<const ModelRow> window_rows();   // decoders with windows on all or some layers
std::span<const ModelRow> hybrid_rows();   // decoders with other layers, or attention of their own
std::span<const ModelRow> encoder_rows();  // encoders of text and sound, encoders with decoders
std::span<const ModelRow> image_rows();    // encoders of images
std::span<const ModelRow> part_rows();     // several models in one

// Returns how a row's models are read, in a few words: "decoder", "images of any size".
std::string_view reading_name(Reading reading);

// Returns the row of a model type, or nullptr if the type is not known.
const ModelRow* find_model_row(std::string_view model_type);

// Returns the row that lists this name in `architectures` (few rows list any), or nullptr.
const ModelRow* find_row_of_architecture(std::string_view architecture);

// Returns all rows, for tests and messages.
const std::vector<const ModelRow*>& all_model_rows();

// Calls visit(part) for each part of `text` between `separator`s.
template <class Visit>
void for_each_part(std::string_view text, char separator, const Visit& visit) {
  while (!text.empty()) {
    const size_t end = text.find(separator);
    if (end != 0) visit(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
}

}  // namespace attune
