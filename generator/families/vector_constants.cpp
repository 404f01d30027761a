// SPDX-License-Identifier: Apache-2.0
// See vector_constants.hpp.
#include "generator/families/vector_constants.hpp"

#include "generator/families/any_dtype.hpp"

namespace attune {

std::vector<Constant> vector_constants(const KernelSpec& spec, const Arch& arch,
                                       int64_t scratch_bytes) {
  std::vector<Constant> constants = constants_without_8_bits(spec);
  constants.push_back({"int", "kVectorBytes", std::to_string(arch.vector_bytes)});
  constants.push_back({"long long", "kScratchBytes", std::to_string(scratch_bytes)});
  return constants;
}

}  // namespace attune
