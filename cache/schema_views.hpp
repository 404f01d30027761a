// SPDX-License-Identifier: Apache-2.0
// The views of a store, which VIEWS.md describes.
#pragma once

namespace attune {

extern const char* const kViews;  // SQL

}  // namespace attune
