// SPDX-License-Identifier: Apache-2.0
// Finds keys of a request in the cache, for code that reads a few keys without shared memory.
#pragma once

#include "cuda/sm90/tile_stream.cuh"
#include "shared/cache_args.h"

namespace attune {

// Returns the page of a key, or the request's cache slot without pages; 0 if it is out of range.
__device__ __forceinline__ int cached_page(const CacheArgs& cache, int request, int key) {
  int page = kHasKeyBegins ? 0 : request;
  if constexpr (kHasPages)
    page = __ldg(cache.page_table + request * cache.page_table_stride + key / kPageRows);
  else if (cache.slots != nullptr)
    page = __ldg(cache.slots + request);
  return static_cast<unsigned>(page) < static_cast<unsigned>(cache.num_pages) ? page : 0;
}

// Returns the address of the first word of a key of the tile's head.
__device__ __forceinline__ const unsigned* cached_key(const AttentionArgs& args,
                                                      const PrefillTile& tile, int key) {
  const int page = cached_page(*tile.cache, tile.batch, key);
  int row = kHasPages ? key % kPageRows : key;
  if constexpr (kHasKeyBegins) row += __ldg(tile.cache->kv_begins + tile.batch);
  const long long at = page * args.k.batch_stride + row * args.k.row_stride +
                       tile.head / kGqaRatio * args.k.head_stride;
  return reinterpret_cast<const unsigned*>(static_cast<const unsigned char*>(args.k.data) +
                                           at * kOperandBytes);
}

}  // namespace attune
