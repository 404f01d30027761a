// SPDX-License-Identifier: Apache-2.0
// The size of an element of a capture. Host code and kernels that load captures include it.
#pragma once

#include "shared/host_device.h"
#include "shared/score_args.h"

namespace attune {

ATTUNE_HOST_DEVICE constexpr int capture_bytes(CaptureType type) {
  switch (type) {
    case CaptureType::kInt64:
      return 8;
    case CaptureType::kFp32:
    case CaptureType::kInt32:
      return 4;
    case CaptureType::kBf16:
    case CaptureType::kFp16:
      return 2;
    default:
      return 1;
  }
}

}  // namespace attune
