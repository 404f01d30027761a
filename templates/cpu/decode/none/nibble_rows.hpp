// SPDX-License-Identifier: Apache-2.0
// Caches without factors of groups of columns: nibble_rows.hpp without effect.
#pragma once

#include "cpu/parts/none/features.hpp"

namespace none {

struct GroupRows {};

struct GroupPlaces {
  template <class Arguments, class Place>
  void find(const Arguments&, const Place&, int, int) {}
  template <class Arguments>
  GroupRows of_k(const Arguments&) const {
    return {};
  }
  template <class Arguments>
  GroupRows of_v(const Arguments&) const {
    return {};
  }
};

template <int kHeadDim, class Codes, class Vectors>
inline void load_nibble_row(const Codes*, GroupRows, int, int, Vectors*) {}

}  // namespace none
