// SPDX-License-Identifier: Apache-2.0
// The views of a store, which VIEWS.md describes; a step of schema.cpp.
#pragma once

namespace attune {

extern const char* const kViewsStep;  // SQL

}  // namespace attune
