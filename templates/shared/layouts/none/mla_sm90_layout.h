// SPDX-License-Identifier: Apache-2.0
// The layout of latent attention in a kernel without it.
#pragma once

#include "shared/layouts/prefill_sm90_layout.h"

namespace none {

struct MlaSm90Layout {
  attune::PrefillSm90Layout parts;
  int slots_of_step = 1;
};
constexpr MlaSm90Layout mla_sm90_layout(int, int, bool, int) { return {}; }
constexpr int mla_code_bytes(int, int, bool, bool) { return 0; }
constexpr int mla_consumers(int) { return 1; }
constexpr int mla_warpgroups(int, bool) { return 2; }

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
