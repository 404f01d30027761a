// SPDX-License-Identifier: Apache-2.0
// Where the config.json of a model lies: a file, a folder (also of a diffusers pipeline), a folder
// of the Hugging Face cache, or a model's name on the hub, looked up in that cache. Nothing is ever
// downloaded.
#pragma once

#include <filesystem>
#include <string>

namespace attune {

struct ModelFile {
  std::filesystem::path config;
  std::string name;  // "Llama-3.1-8B"
};

// `cache`: the Hugging Face cache, usually hugging_face_cache(). Throws kIo when there is no such
// config, naming what was looked at.
ModelFile find_model(const std::string& text, const std::filesystem::path& cache);

// $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub; empty
// when there is no home either.
std::filesystem::path hugging_face_cache();

}  // namespace attune
