// SPDX-License-Identifier: Apache-2.0
// Kernels without dropout: every weight is kept.
#pragma once

#include "cpu/parts/none/features.hpp"

namespace none {

template <class Arguments, class Keys, class Panel>
inline void drop_weights(const Arguments&, int, int, long long, Keys, Panel*) {}

template <int kKeys>
struct DropoutFactors {
  template <class Arguments, class Keys>
  void find(const Arguments&, int, int, long long, Keys) {}
  template <class Panel>
  void scale(int, Panel&) const {}
};

}  // namespace none
