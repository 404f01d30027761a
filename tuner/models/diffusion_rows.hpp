// SPDX-License-Identifier: Apache-2.0
// The known transformers of diffusers. Each row states how one attends, and the lengths of its
// published default, because such a config states no image size. To add a network, add a row;
// diffusion_config.cpp reads the rows.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace attune {

struct DiffusionRow {
  std::string_view classes;  // values of _class_name, separated by spaces
  // True if patches and text attend to each other in one attention. Otherwise the patches attend to
  // themselves, and then to the text.
  bool is_joint = true;
  int64_t patches = 4096;  // of one image or video of this size; 0: from sample_size and patch_size
  std::string_view size = "1024 x 1024";
  int64_t text = 512;              // tokens of text
  std::string_view defaults = {};  // JSON object
  bool is_video = false;
  bool is_distilled = false;  // a batch has no unconditional half
};

// Returns all rows.
std::span<const DiffusionRow> diffusion_rows();

// Returns the row of a class, or nullptr.
const DiffusionRow* find_diffusion_row(std::string_view class_name);

}  // namespace attune
