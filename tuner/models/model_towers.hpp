// SPDX-License-Identifier: Apache-2.0
// Turns the fields of one transformer (a model, or its text or vision part) into its kinds of
// attention layers, as its row in the table of model types states.
#pragma once

#include <string>

#include "tuner/models/model_config.hpp"
#include "tuner/models/model_fields.hpp"
#include "tuner/models/model_table.hpp"

namespace attune {

// `fields` has the row's defaults. `label` ("vision") is put before the names of the layers, unless
// it is empty. Adds to model->layers and model->notes.
void read_tower(const ModelFields& fields, const ModelRow& row, const std::string& label,
                ModelConfig* model);

}  // namespace attune
