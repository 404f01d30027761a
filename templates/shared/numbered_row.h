// SPDX-License-Identifier: Apache-2.0
// Numbers the rows of all heads of all batch entries; the row varies fastest. The reference kernel
// deals out rows by this number. Batch entries times heads may be more than an int holds.
#pragma once

#include "shared/host_device.h"

namespace attune {

struct NumberedRow {
  int batch, head, row;
  bool exists;  // false: the number is beyond the last row
};

ATTUNE_HOST_DEVICE constexpr NumberedRow numbered_row(long long number, int batch, int num_heads,
                                                      int seqlen) {
  const long long head_of_all = number / seqlen;
  if (head_of_all >= static_cast<long long>(batch) * num_heads) return {0, 0, 0, false};
  return {static_cast<int>(head_of_all / num_heads), static_cast<int>(head_of_all % num_heads),
          static_cast<int>(number % seqlen), true};
}

}  // namespace attune
