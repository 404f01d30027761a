// SPDX-License-Identifier: Apache-2.0
// ModelConfig: the attention of one model, read from a Hugging Face config.json with the table of
// known model types (model_table.hpp), or from the config.json of a diffusers network. It lists
// features without kernels and fields that were not read, so that nothing is ignored silently.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "generator/core/problem/problem.hpp"

namespace attune {

// The kind of lengths and batches that a layer has by default (workload.cpp).
enum class Lengths {
  kDecoder,
  kEncoder,
  kImage,
  kAnyImage,
  kDiffusion,
  kVideo,
  kDistilled,  // kDiffusion without an unconditional half in each batch
};

// The feature that a layer with an indexer lacks where it is tuned without lists of keys.
inline constexpr const char* kChosenKeys = "attention to only those keys that an indexer chooses";

// How a decoder's layer uses its cache, besides heads and head dims of its Problem.
struct CacheUse {
  // Latent attention keeps one vector of latent_qk columns a token. Its first latent_v columns are
  // the values. 0: the cache holds K and V.
  int latent_qk = 0, latent_v = 0;
  // Keys that an indexer chooses for each row of latent attention; 0: rows see all keys.
  int64_t listed_keys = 0;
  int rotary_dim = 0;  // columns that are turned by rotary angles; 0: none
  bool rotary_interleaved = false;
  bool is_cross = false;  // holds an encoder's keys: written once a request, seen by all rows
};

// One kind of attention layer: the Problem without lengths and batch.
struct AttentionLayer {
  std::string name;  // "text: causal, window 4096"
  int layers = 0;    // number of such layers; 0: not stated
  Lengths lengths = Lengths::kDecoder;
  Problem problem;  // seqlen 0; biases have the type of dtype_o (follow_dtype)
  // Lengths that the model fixes: tokens of an image, or of a cross-attention. 0: the sequence's
  // length.
  int64_t fixed_seqlen_q = 0;
  int64_t fixed_seqlen_kv = 0;
  bool may_be_replaced = false;   // the fixed lengths, by --seqlen: images of another size
  int64_t parts = 1;              // batch entries that one image or sequence is cut into
  int64_t max_seqlen = 0;         // default lengths end here; 0: not stated
  bool ends_at_max = false;       // no length may be above max_seqlen
  bool may_be_padded = false;     // batches have sequences of several lengths, and no causal mask
  std::optional<CacheUse> cache;  // of a decoder's layers
  std::vector<std::string> not_supported;  // features of the layer that no kernel has yet
  std::string refused;  // why this kind is not tuned (a head dim, say); empty if it is
};

struct ModelConfig {
  std::string model_type;
  std::vector<AttentionLayer> layers;  // each kind once
  std::optional<Dtype> dtype;          // the config's torch_dtype
  std::optional<Dtype> cache_dtype;    // of 8 bits, if the config asks for it
  std::string published;               // the type in which such models are published, if known
  std::vector<std::string> notes;      // sentences
};

// Reads a config. `read_as` is a known model type that replaces the config's; empty: the config's
// type counts. Throws kIo if the file cannot be read. Throws kInvalidArgument for malformed JSON
// (with its line), for missing or bad values, and for an unknown type with attention fields that a
// Llama does not have.
ModelConfig read_model_config(const std::filesystem::path& path, const std::string& read_as = "");

}  // namespace attune
