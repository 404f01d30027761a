// SPDX-License-Identifier: Apache-2.0
// Reads rows of 4-bit caches and the factors of their groups of columns (shared/nibble_rows.h).
#pragma once

#include "cpu/decode/decode_rows.hpp"
#include "shared/listed_arguments.h"
#include "shared/nibble_rows.h"

namespace attune {

// The rows of factors of a block's keys, for K or V.
struct GroupRows {
  const unsigned char* data;
  long long head_stride;
  const long long* at;

  const unsigned char* row(int place, int head) const {
    return data + at[place] + head * head_stride;
  }
};

// The places of the factors of a block's keys (KeyBlock in decode_steps.hpp).
struct GroupPlaces {
  void find(const KernelArguments& args, KeyPlace at, int place, int head) {
    const GroupFactorArgs& groups = static_cast<const GroupedArguments&>(args).groups;
    k_[place] = row_at(groups.k, at) + head * groups.k.head_stride;
    v_[place] = row_at(groups.v, at) + head * groups.v.head_stride;
  }
  GroupRows of_k(const KernelArguments& args) const {
    return rows(static_cast<const GroupedArguments&>(args).groups.k, k_);
  }
  GroupRows of_v(const KernelArguments& args) const {
    return rows(static_cast<const GroupedArguments&>(args).groups.v, v_);
  }

 private:
  static GroupRows rows(const OperandView& view, const long long* at) {
    return {static_cast<const unsigned char*>(view.data), view.head_stride, at};
  }

  long long k_[kDecodeBlockKeys], v_[kDecodeBlockKeys];  // of the first head
};

// Loads a row's columns as fp32.
template <int kHeadDim>
inline void load_nibble_row(const unsigned char* codes, const GroupRows& groups, int place,
                            int head, Floats* to) {
  const unsigned char* const factors = groups.row(place, head);
  auto* const values = reinterpret_cast<float*>(to);
  for (int first = 0; first < kHeadDim; first += kGroupColumns) {
    const float factor = group_factor(factors[first / kGroupColumns]);
    for (int i = 0; i < kGroupColumns / 2; ++i) {
      const unsigned two = codes[first / 2 + i];
      values[first + 2 * i] = nibble_value<kDtypeKv>(two) * factor;
      values[first + 2 * i + 1] = nibble_value<kDtypeKv>(two >> 4) * factor;
    }
  }
}

}  // namespace attune
