// SPDX-License-Identifier: Apache-2.0
// Finds the config.json of a model from a file, a folder (also of a diffusers pipeline), a folder
// of the Hugging Face cache, or a model's name on the hub, looked up in that cache. Never
// downloads.
#pragma once

#include <filesystem>
#include <string>

namespace attune {

struct ModelFile {
  std::filesystem::path config;
  std::string name;  // "Llama-3.1-8B"
};

// Finds the config. `cache` is the Hugging Face cache, usually hugging_face_cache(). Throws kIo if
// there is no such config; the message names the places that were searched.
ModelFile find_model(const std::string& text, const std::filesystem::path& cache);

// Returns $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub;
// empty if there is no home folder either.
std::filesystem::path hugging_face_cache();

}  // namespace attune
