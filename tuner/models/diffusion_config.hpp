// SPDX-License-Identifier: Apache-2.0
// The attention of diffusers' networks: UNets of Stable Diffusion, SD3, and the transformers of
// diffusion_rows.hpp. Their config.json has a _class_name instead of a model_type.
#pragma once

#include "tuner/models/model_config.hpp"
#include "tuner/models/model_fields.hpp"

namespace attune {

// Returns the values of _class_name that read_diffusion() knows.
std::vector<std::string> diffusion_classes();

// Adds to model->layers and model->notes. Throws kInvalidArgument for an unknown class.
void read_diffusion(const ModelFields& fields, ModelConfig* model);

}  // namespace attune
