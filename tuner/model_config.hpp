// SPDX-License-Identifier: Apache-2.0
// ModelConfig: the attention of one model, read from a Hugging Face config.json. Understood are
// decoders (Llama, Mistral, Qwen, Gemma, Phi and others with the same keys), bidirectional encoders
// (BERT, RoBERTa, ViT, ...) and diffusers' UNets.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "generator/core/problem.hpp"

namespace attune {

// One kind of attention layer: all of the Problem but lengths and batch.
struct AttentionLayer {
  Problem problem;  // seqlen 0
  // Lengths that the model fixes: image tokens, or text of a cross-attention. 0 = as the sequence.
  int64_t fixed_seqlen_q = 0;
  int64_t fixed_seqlen_kv = 0;
};

enum class ModelKind { kDecoder, kEncoder, kImageEncoder, kUnet };

struct ModelConfig {
  ModelKind kind = ModelKind::kDecoder;
  std::string model_type;
  std::vector<AttentionLayer> layers;  // each kind once
  int64_t max_seqlen = 0;              // 0 = not stated
  std::optional<Dtype> dtype;          // the config's torch_dtype
  std::vector<std::string> notes;
};

// Throws kIo when the file cannot be read, kInvalidArgument for malformed JSON (with its line),
// missing or bad values.
ModelConfig read_model_config(const std::filesystem::path& path);

}  // namespace attune
