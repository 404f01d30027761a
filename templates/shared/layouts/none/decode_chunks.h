// SPDX-License-Identifier: Apache-2.0
// Lines whose items are cut all together: decode_chunks.h without effect.
#pragma once

#include "shared/host_device.h"

namespace none {

enum : bool { kMayCutEach = false };
enum : int { kLeastChunkKeys = 1 };

ATTUNE_HOST_DEVICE constexpr int most_chunks(int, int) { return 1; }
template <class Range, class Visit>
ATTUNE_HOST_DEVICE inline void each_cut_item(const Range&, int, const Visit&) {}

struct DecodeCut {
  ATTUNE_HOST_DEVICE constexpr void cut_each(int) {}
  ATTUNE_HOST_DEVICE constexpr bool cuts_each() const { return false; }
  ATTUNE_HOST_DEVICE constexpr int pieces(int) const { return 0; }
};

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
