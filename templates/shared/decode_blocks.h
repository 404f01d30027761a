// SPDX-License-Identifier: Apache-2.0
// Keys that decode_cpu works on together: host code sizes the workspace, which holds their scores.
#pragma once

namespace attune {

constexpr int kDecodeBlockKeys = 64;

}  // namespace attune
