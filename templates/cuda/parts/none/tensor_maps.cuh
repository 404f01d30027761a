// SPDX-License-Identifier: Apache-2.0
// The names of tensor maps that a kernel does not take. Its parameters hide these.
#pragma once

namespace none {

enum NoTensorMap { k_map, v_map };

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
