// SPDX-License-Identifier: Apache-2.0
// Stands in for the rendered preamble (generator/render/renderer.hpp), so that editors and
// compilers read decode_cpu.cpp as it is.
#pragma once

#include "cpu/parts/default_spec.hpp"

namespace attune {

constexpr bool kHasPages = true;
constexpr int kPageRows = 16;
constexpr bool kHasBegins = false;
constexpr bool kHasKeyBegins = false;

constexpr int kVectors = 1;
constexpr int kVectorBytes = 32;
constexpr int kKeys = 64;

}  // namespace attune
