// SPDX-License-Identifier: Apache-2.0
// Encoding follows the driver's cuTensorMapEncodeTiled: rank 4, no interleave, out-of-bounds
// elements read as zero.
#include "runtime/cuda/tensor_map.hpp"

#include <algorithm>

namespace attune::cuda {
namespace {

struct CachedMap {
  TensorMapKey key;
  TensorMap map;
};
constexpr size_t kCachedMaps = 64;  // q, k, v and o of 16 layers
thread_local constinit CachedMap cached_maps[kCachedMaps] = {};

size_t slot_of(const TensorMapKey& key) {
  uint64_t h = reinterpret_cast<uintptr_t>(key.address);
  h = (h ^ key.dims[1] ^ key.strides[2] ^ (uint64_t{key.box[1]} << 48)) * 0x9E3779B97F4A7C15ull;
  return h >> 58;  // top 6 bits: kCachedMaps slots
}

int map_dtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFp32:
      return kMapFp32;
    case Dtype::kBf16:
      return kMapBf16;
    case Dtype::kFp16:
      return kMapFp16;
    case Dtype::kE4m3:
    case Dtype::kE5m2:
    case Dtype::kInt8:
    case Dtype::kInt4:
    case Dtype::kE2m1:
      return kMapUint8;
  }
  return kMapUint8;
}

int map_swizzle(int bytes) { return bytes == 128 ? 3 : bytes == 64 ? 2 : bytes == 32 ? 1 : 0; }

// The tensor that a kernel's map describes: `columns` are contiguous, rows are row_stride apart.
struct Seen {
  OperandView view;
  Dtype dtype;
  int64_t columns, rows, heads, batch;
};

Seen seen_rows(const OperandView& view, Dtype dtype, int columns, const AttentionArgs& args) {
  return {view, dtype, columns, args.seqlen_q, args.num_heads_q, args.batch};
}

Seen seen_keys(const OperandView& view, Dtype dtype, int columns, const AttentionArgs& args) {
  return {view, dtype, columns, args.seqlen_kv, args.num_heads_kv, args.batch};
}

// Returns k or v of a cache: pages, slots or packed keys. If num_pages is 0 it has no rows.
Seen seen_cache(const OperandView& view, int columns, const KernelSpec& spec,
                const KernelArguments& args) {
  const int64_t pages = args.cache.num_pages;
  if (spec.cache.packed_kv || pages == 0)
    return {view, spec.dtype_kv, columns, pages, args.num_heads_kv, 1};
  const int64_t rows = spec.cache.page_size > 0 ? spec.cache.page_size : args.seqlen_kv;
  return {view, spec.dtype_kv, columns, rows, args.num_heads_kv, pages};
}

Seen seen_operand(Operand operand, bool of_pages, const KernelSpec& spec,
                  const KernelArguments& args) {
  const auto of_gradient = [&](Dtype dtype) {
    return spec.backward.accumulate ? Dtype::kFp32 : dtype;
  };
  switch (operand) {
    case Operand::kQ:
      return seen_rows(args.q, spec.dtype_q, spec.head_dim_qk, args);
    case Operand::kK:
      if (of_pages)
        return seen_cache(args.k, stored_columns(spec.dtype_kv, spec.head_dim_qk), spec, args);
      return seen_keys(args.k, spec.dtype_kv, spec.head_dim_qk, args);
    case Operand::kV:
      if (of_pages)
        return seen_cache(args.v, stored_columns(spec.dtype_kv, spec.head_dim_v), spec, args);
      if (spec.fp8.v_layout == VLayout::kTransposed)
        return {args.v,          spec.dtype_kv,     args.seqlen_kv,
                spec.head_dim_v, args.num_heads_kv, args.batch};
      return seen_keys(args.v, spec.dtype_kv, spec.head_dim_v, args);
    case Operand::kDout:
      return seen_rows(args.gradients.dout, spec.dtype_o, spec.head_dim_v, args);
    case Operand::kDq:
      return seen_rows(args.gradients.dq, of_gradient(spec.dtype_q), spec.head_dim_qk, args);
    case Operand::kDk:
      return seen_keys(args.gradients.dk, of_gradient(spec.dtype_kv), spec.head_dim_qk, args);
    case Operand::kDv:
      return seen_keys(args.gradients.dv, of_gradient(spec.dtype_kv), spec.head_dim_v, args);
    case Operand::kO:
      break;
  }
  return seen_rows(args.o, spec.dtype_o, spec.head_dim_v, args);
}

Seen seen_tensor(const PlacedTensor& tensor, void* workspace) {
  const int64_t head = tensor.rows * tensor.columns;
  void* const data = static_cast<char*>(workspace) + tensor.offset;
  return {{data, tensor.heads * head, tensor.columns, head},
          tensor.dtype,
          tensor.columns,
          tensor.rows,
          tensor.heads,
          tensor.batch};
}

// Returns a valid tensor in place of an empty one: one element of an operand that is not empty. TMA
// refuses a null address and an extent of 0, but a kernel without keys still loads a box of keys.
// The address and strides of an empty tensor may be arbitrary.
Seen seen_of_nothing(const Seen& empty, const AttentionArgs& args) {
  void* const there = args.seqlen_q > 0 ? args.q.data : args.k.data;
  return {{there, 0, 0, 0}, empty.dtype, 1, 1, 1, 1};
}

}  // namespace

TensorMapKey tensor_map_key(const TensorMapPlan& map, const KernelSpec& spec,
                            const std::vector<PlacedTensor>& workspace,
                            const KernelArguments& args) {
  const Operand* const operand = std::get_if<Operand>(&map.tensor);
  Seen seen = operand != nullptr
                  ? seen_operand(*operand, map.of_pages, spec, args)
                  : seen_tensor(workspace[std::get<Workspace>(map.tensor).index], args.workspace);
  if (seen.columns < 1 || seen.rows < 1) seen = seen_of_nothing(seen, args);
  const auto element = static_cast<uint64_t>(dtype_bytes(seen.dtype));
  const int64_t row = padded_row(seen.dtype, seen.columns);
  const auto bytes = [&](long long stride, int64_t extent) {
    return static_cast<uint64_t>(extent > 1 ? stride : row) * element;
  };
  TensorMapKey key;
  key.address = seen.view.data ? seen.view.data : args.q.data;
  key.dims[0] = static_cast<uint64_t>(seen.columns);
  key.dims[1] = static_cast<uint64_t>(seen.rows);
  key.dims[2] = static_cast<uint64_t>(seen.heads);
  key.dims[3] = static_cast<uint64_t>(seen.batch);
  key.strides[0] = bytes(seen.view.row_stride, seen.rows);
  key.strides[1] = bytes(seen.view.head_stride, seen.heads);
  key.strides[2] = bytes(seen.view.batch_stride, seen.batch);
  key.box[0] = static_cast<uint32_t>(map.box_columns);
  key.box[1] = static_cast<uint32_t>(map.box_rows);
  key.box[2] = static_cast<uint32_t>(map.box_heads);
  key.box[3] = 1;
  key.dtype = map_dtype(seen.dtype);
  key.swizzle = map_swizzle(map.swizzle_bytes);
  key.promote = map.fetches_around ? kMapPromote256 : kMapPromoteNone;
  return key;
}

// The cache is two-way: a key is in its slot, or in the neighbour slot. A newer key of the same
// slot moves the older one there.
void encode_tensor_map(const DriverTable& driver, const TensorMapKey& key, TensorMap* map) {
  const size_t slot = slot_of(key);
  CachedMap &first = cached_maps[slot], &second = cached_maps[slot ^ 1];
  if (first.key == key) {
    *map = first.map;
    return;
  }
  if (second.key == key) {
    *map = second.map;
    return;
  }
  constexpr uint32_t kElementStrides[4] = {1, 1, 1, 1};
  check(driver,
        driver.cuTensorMapEncodeTiled(map, key.dtype, 4, const_cast<void*>(key.address), key.dims,
                                      key.strides, key.box, kElementStrides, 0, key.swizzle,
                                      key.promote, 0),
        "cuTensorMapEncodeTiled");
  second = first;
  first = {key, *map};
}

}  // namespace attune::cuda
