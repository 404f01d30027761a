// SPDX-License-Identifier: Apache-2.0
// ModelConfig: the attention of one model, read from a Hugging Face config.json or the config.json
// of a diffusers network, by the table of known model types (model_table.hpp). It names what
// no kernel does yet and what it did not read: it leaves nothing of a config out in silence.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "generator/core/problem.hpp"

namespace attune {

// Which lengths and batches such a layer meets by default (workload.cpp).
enum class Lengths { kDecoder, kEncoder, kImage, kAnyImage, kDiffusion };

// One kind of attention layer: all of the Problem but lengths and batch.
struct AttentionLayer {
  std::string name;  // "text: causal, window 4096"
  int layers = 0;    // how many of the model are such; 0 = not stated
  Lengths lengths = Lengths::kDecoder;
  Problem problem;  // seqlen 0; biases have the type of dtype_o (follow_dtype)
  // Lengths that the model fixes: tokens of an image, or of a cross-attention. 0 = as the sequence.
  int64_t fixed_seqlen_q = 0;
  int64_t fixed_seqlen_kv = 0;
  int64_t parts = 1;           // entries of the batch that one image or sequence is cut into
  int64_t max_seqlen = 0;      // default lengths end here; 0 = not stated
  bool may_be_padded = false;  // batches have sequences of several lengths, and no causal mask
  std::vector<std::string> not_supported;  // what the model does there and no kernel does yet
  std::string refused;  // why nothing of it is tuned (a head dim, say); empty = one does
};

struct ModelConfig {
  std::string model_type;
  std::vector<AttentionLayer> layers;  // each kind once
  std::optional<Dtype> dtype;          // the config's torch_dtype
  std::vector<std::string> notes;      // sentences
};

// `read_as`: a known model type to read it as, whatever the config says; empty = what it says.
// Throws kIo when the file cannot be read, kInvalidArgument for malformed JSON (with its line), for
// missing or bad values, and for an unknown type with attention fields that a Llama has not.
ModelConfig read_model_config(const std::filesystem::path& path, const std::string& read_as = "");

}  // namespace attune
