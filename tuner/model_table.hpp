// SPDX-License-Identifier: Apache-2.0
// The known model types: for each model_type of a Hugging Face config.json, how its attention is
// read and what the transformers library takes for fields that a config leaves out. To add a type,
// add a row; model_towers.cpp reads what a row says.
#pragma once

#include <string_view>

namespace attune {

enum class Reading {
  kDecoder,        // causal self-attention
  kEncoder,        // self-attention in both directions (causal where is_decoder is true)
  kFixedText,      // kEncoder, always of max_position_embeddings tokens
  kImage,          // both directions, (image_size / patch_size)^2 patches and extra_tokens
  kAnyImage,       // kImage, with as many patches as the image at hand has
  kWindowedImage,  // kAnyImage; most layers see windows of the image (window_size)
  kWindowStages,  // windows of an image, shifted in every other layer, in stages of ever fewer patches
  kAudio,         // both directions, always max_source_positions frames
  kEncoderDecoder,  // self-attention of encoder and decoder, cross-attention between them
  kSpeech,          // kEncoderDecoder whose encoder is kAudio
  kParts,           // no attention of its own: see `parts`
  kNotCovered,      // not_supported says why nothing of it is tuned
};

struct ModelRow {
  std::string_view types;  // model_type; several stand with spaces between
  Reading reading;
  std::string_view defaults = {};  // JSON object
  int extra_tokens = 0;            // of images: class, distillation and register tokens
  // What its self-attention does and no kernel does yet.
  std::string_view not_supported = {};
  // What its scores have and no field says: words of model_scores.cpp. Of kParts: those of the text.
  std::string_view scores = {};
  // Of configs that name a wrong model_type, or none.
  std::string_view architectures = {};
  // Nested configs and the types of those that do not name theirs: "text_config=llama".
  std::string_view parts = {};
};

// nullptr when the type is not known.
const ModelRow* find_model_row(std::string_view model_type);

// By a name in "architectures", of the few that rows list; nullptr otherwise.
const ModelRow* find_row_of_architecture(std::string_view architecture);

// All of them, for tests and messages.
const ModelRow* begin_model_rows();
const ModelRow* end_model_rows();

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
