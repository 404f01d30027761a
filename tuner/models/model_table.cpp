// SPDX-License-Identifier: Apache-2.0
// Finds rows in the lists of model types; see model_table.hpp.
#include "tuner/models/model_table.hpp"

namespace attune {
namespace {

bool lists(std::string_view types, std::string_view wanted) {
  bool found = false;
  for_each_part(types, ' ', [&](std::string_view type) { found = found || type == wanted; });
  return found;
}

}  // namespace

std::string_view reading_name(Reading reading) {
  switch (reading) {
    case Reading::kDecoder:
      return "decoder";
    case Reading::kEncoder:
      return "encoder";
    case Reading::kFixedText:
      return "text of fixed length";
    case Reading::kImage:
      return "images";
    case Reading::kAnyImage:
      return "images of any size";
    case Reading::kWindowedImage:
    case Reading::kSamImage:
    case Reading::kWindowStages:
      return "images, in windows";
    case Reading::kAudio:
      return "sound of fixed length";
    case Reading::kAnyAudio:
      return "sound of any length";
    case Reading::kCrossDecoder:
      return "decoder, cross-attention";
    case Reading::kEncoderDecoder:
      return "encoder and decoder";
    case Reading::kSpeech:
      return "sound and decoder";
    case Reading::kParts:
      return "its parts";
    case Reading::kNotCovered:
      break;
  }
  return "not tuned";
}

const std::vector<const ModelRow*>& all_model_rows() {
  static const std::vector<const ModelRow*> all = [] {
    std::vector<const ModelRow*> rows;
    for (const auto list :
         {decoder_rows(), window_rows(), hybrid_rows(), encoder_rows(), image_rows(), part_rows()})
      for (const ModelRow& row : list) rows.push_back(&row);
    return rows;
  }();
  return all;
}

const ModelRow* find_model_row(std::string_view model_type) {
  for (const ModelRow* row : all_model_rows())
    if (lists(row->types, model_type)) return row;
  return nullptr;
}

const ModelRow* find_row_of_architecture(std::string_view architecture) {
  for (const ModelRow* row : all_model_rows())
    if (lists(row->architectures, architecture)) return row;
  return nullptr;
}

}  // namespace attune
