// SPDX-License-Identifier: Apache-2.0
// Serving: the problems that an engine calls for the layers of a decoder. Used by the option
// --serving of the program.
//
//   decode          one row a request, over pages; as rows of requests and as packed rows
//   drafted tokens  four packed rows a request
//   chunks          packed rows of long prompts, over pages
//   prompts         packed rows and packed keys, without a cache
//   append          new rows of K and V, with rotary angles and q, and by slots without them
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generator/core/problem/arch.hpp"
#include "tuner/models/model_config.hpp"

namespace attune {

// The user's choices; 0 and empty lists keep the defaults.
struct ServingChoice {
  std::vector<int64_t> batches;     // requests that decode together
  std::vector<int64_t> kv_lengths;  // keys of a request
  int64_t page_size = 0;            // keys per page; default: 16, of latent caches 64
  int64_t max_batch_tokens = 0;     // rows of a step with prompts; default: 8192, on a CPU 64
  std::optional<Dtype> dtype_kv;    // of the caches; default: the config's, else the model's type
  int64_t memory_bytes = 0;         // of the device; 0: not known
  int tensor_parallel = 1;          // GPUs that share the heads of each layer
};

// Leaves each layer with a cache the heads that one of several GPUs has. Heads of K are repeated if
// there are fewer than GPUs. Throws kInvalidArgument if the GPUs do not divide the heads.
void take_part_of_heads(int gpus, ModelConfig* model);

// The sizes that the problems of one model have.
struct ServingSizes {
  struct Requests {
    int64_t batch, seqlen_kv;
  };
  std::vector<Requests> decode;  // those whose caches fit
  int64_t max_batch_tokens = 0;
  std::vector<std::string> notes;
};

// Returns the sizes for a model. Caches of all layers may take half of the device's memory. Lists
// that are both given are taken as they are. Throws kInvalidArgument if no cache fits.
ServingSizes serving_sizes(const ServingChoice& serving, const ModelConfig& model, Dtype dtype,
                           Target target);

// Returns the problems of one kind of layer, or nothing for a layer without a cache. Adds to
// *not_supported a cache that no kernel serves. If ops over caches do not take the layer's scores,
// the problems have one row and keys that lie together. The cache of an encoder's keys has no
// appends: its keys are written once a request.
std::vector<Problem> serving_problems(const ServingChoice& serving, const ServingSizes& sizes,
                                      const AttentionLayer& layer, const ModelConfig& model,
                                      Dtype dtype, std::vector<std::string>* not_supported);

}  // namespace attune
