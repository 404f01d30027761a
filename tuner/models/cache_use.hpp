// SPDX-License-Identifier: Apache-2.0
// Reads how a decoder uses its cache: rotary angles, latent vectors, and the type of its elements.
#pragma once

#include <optional>

#include "tuner/models/model_config.hpp"
#include "tuner/models/model_fields.hpp"

namespace attune {

// `problem` has the heads and head dims of the layers. The config's rotary fields may be those of
// any release of transformers.
CacheUse read_cache_use(const ModelFields& fields, const Problem& problem);

// Returns the 8-bit type that a whole config's quantization asks for in caches (kv_cache_scheme,
// kv_cache_quant_algo). Returns nullopt if caches have the model's type.
std::optional<Dtype> cache_dtype_of(const ModelFields& config);

}  // namespace attune
