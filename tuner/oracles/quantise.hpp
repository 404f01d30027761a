// SPDX-License-Identifier: Apache-2.0
// The oracle of op quantise: what it must write, from its definition in float64 on the host, and
// how a result is held against it. Shares nothing with the kernels: codes are found in the table of
// all values of the type. Used by the tuner's gate and by tests.
//
// Allowed are a factor within 1e-6 of the block's largest magnitude (2e-6 after a rotation, whose
// sums kernels round to fp32) over the largest code, and codes next to the nearest one (after a
// rotation: to the nearest ones of values within 2^-21 of the row's RMS); of each 50 elements at
// most one may be off by that one.
#pragma once

#include <vector>

#include "tuner/oracles/oracle.hpp"

namespace attune {

const Oracle& quantise_oracle();

// One row after the problem's rotation. Magnitudes under 2^-126 are zeros.
std::vector<double> rotated_row(const Problem& problem, const Operands& host, int64_t batch,
                                int64_t head, int64_t row);

// Of a problem of op quantise whose operands lie in host memory. Errors are relative to what is
// allowed: max in codes, mean in the share of codes that differ. Of blocks with more rows than
// kCheckedRows the codes of so many rows are looked at, of all rows the largest magnitude.
inline constexpr int64_t kCheckedRows = 512;
CheckError check_quantised(const Problem& problem, const Operands& host);

// The first, a middle and the last block of rows of a problem whose contiguous operands lie on the
// device.
CheckError check_quantised(const Device& device, const Problem& problem, const Operands& operands);

}  // namespace attune
