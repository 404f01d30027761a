// SPDX-License-Identifier: Apache-2.0
// Kernels whose products are of fp32.
#pragma once

#include "cpu/parts/none/features.hpp"

namespace none {

template <class Row, class Panel>
inline void pack_query_pairs(const Row* const*, int, Panel*) {}
template <class Row>
inline void pack_key_tiles(const Row*, long long, int, void*) {}
template <class Row>
inline void pack_value_tiles(const Row*, long long, int, void*) {}
template <class Panel>
inline void score_pairs(const void*, int, int, const Panel*, Panel*) {}
template <class Panel>
inline void scale_scores(int, float, Panel*, Panel&) {}
template <class Panel>
inline void output_pairs(const void*, int, int, Panel*, Panel, Panel*) {}
inline void begin_pairs() {}
inline void end_pairs() {}

}  // namespace none
