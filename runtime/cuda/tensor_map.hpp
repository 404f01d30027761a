// SPDX-License-Identifier: Apache-2.0
// TMA descriptors: their fields, and a small cache per thread, so that a repeated launch does not
// encode again. Used by cuda_kernel. runtime/operands/operand_check.hpp checks the strides when a
// plan is made.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "generator/core/problem/kernel_spec.hpp"
#include "generator/kernel_template.hpp"
#include "runtime/cuda/driver_table.hpp"
#include "templates/shared/attention_args.h"

namespace attune::cuda {

// One tensor for TMA, innermost dimension first; see TensorMapPlan.
struct TensorMapKey {
  const void* address = nullptr;
  uint64_t dims[4] = {};
  uint64_t strides[3] = {};  // bytes: row, head, batch
  uint32_t box[4] = {};
  int32_t dtype = 0;    // CUtensorMapDataType
  int32_t swizzle = 0;  // CUtensorMapSwizzle
  int32_t promote = 0;  // CUtensorMapL2promotion
  int32_t unused = 0;   // so that equal keys have equal bytes

  bool operator==(const TensorMapKey& other) const {
    return std::memcmp(this, &other, sizeof other) == 0;
  }
};
static_assert(std::has_unique_object_representations_v<TensorMapKey>);

// Returns the fields of a descriptor. `workspace` has the tensors in the call's workspace. A
// dimension of extent 1 gets the stride of the operand's row, which changes no address.
TensorMapKey tensor_map_key(const TensorMapPlan& map, const KernelSpec& spec,
                            const std::vector<PlacedTensor>& workspace,
                            const KernelArguments& args);

// Encodes a descriptor, or copies it from this thread's cache. It is a pure function of the key, so
// an entry is never stale. Throws kDriver if the driver refuses the key.
void encode_tensor_map(const DriverTable& driver, const TensorMapKey& key, TensorMap* map);

}  // namespace attune::cuda
