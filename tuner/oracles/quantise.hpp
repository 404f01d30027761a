// SPDX-License-Identifier: Apache-2.0
// The oracle of op quantise: expected results in float64 on the host, from the definition, and the
// comparison of a result with them. Shares nothing with the kernels: it finds codes in a table of
// all values of the type. Used by the tuner's checks and by tests.
//
// Allowed errors: a factor may differ by 1e-6 from the block's largest magnitude divided by the
// largest code (2e-6 after a rotation, whose sums kernels round to fp32). A code may be next to the
// nearest one (after a rotation: next to the nearest codes of values within 2^-21 of the row's
// RMS). At most one of 50 elements, and two more per block, may be off by one code.
#pragma once

#include <vector>

#include "tuner/oracles/oracle.hpp"

namespace attune {

// Returns one row after the problem's rotation. Magnitudes under 2^-126 become zeros.
std::vector<double> rotated_row(const Problem& problem, const Operands& host, int64_t batch,
                                int64_t head, int64_t row);

// Checks a problem of op quantise whose operands are in host memory. Errors are relative to the
// allowed errors: max in codes, mean in the share of codes that differ. For blocks with more than
// kCheckedRows rows, checks the codes of at least that many rows, spread evenly, and the largest
// magnitude of all rows.
inline constexpr int64_t kCheckedRows = 512;
CheckError check_quantised(const Problem& problem, const Operands& host);

// Checks the first, a middle and the last block of rows of a problem whose contiguous operands are
// on the device.
CheckError check_quantised(const Device& device, const Problem& problem, const Operands& operands);

}  // namespace attune
