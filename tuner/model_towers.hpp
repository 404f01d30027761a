// SPDX-License-Identifier: Apache-2.0
// From the fields of one transformer (a model, or the text or vision part of one) to its kinds of
// attention layer, as its row of the table of model types says.
#pragma once

#include <string>

#include "tuner/model_config.hpp"
#include "tuner/model_fields.hpp"
#include "tuner/model_table.hpp"

namespace attune {

extern const Names kHeadNames;  // of the number of query heads

// `fields` has the row's defaults; `label` ("vision") stands before the names of the layers, unless
// it is empty. Adds to model->layers and model->notes.
void read_tower(const ModelFields& fields, const ModelRow& row, const std::string& label,
                ModelConfig* model);

}  // namespace attune
