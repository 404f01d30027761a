// SPDX-License-Identifier: Apache-2.0
// The number of keys that decode_cpu processes together. Host code needs it, because the workspace
// holds their scores.
#pragma once

namespace attune {

constexpr int kDecodeBlockKeys = 64;

}  // namespace attune
