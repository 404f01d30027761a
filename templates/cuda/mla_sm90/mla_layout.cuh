// SPDX-License-Identifier: Apache-2.0
// The shared memory of an mla_sm90 kernel, as a constant.
#pragma once

#include "cuda/sm90/sm90_layout.cuh"

namespace attune {

constexpr MlaSm90Layout kMlaLayout = mla_sm90_layout(kHeadDimQk, kRows, kKeyLists);

}  // namespace attune
