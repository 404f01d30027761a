// SPDX-License-Identifier: Apache-2.0
// Shared memory of a decode kernel. Each warp has its own ring of kKvSlots slots. A slot has kKeys
// rows of K and of V. So warps never wait for each other while they read the cache. With kLoads 3
// the warps that read the same keys share a ring.
//
// | kLoads | how keys come                         | a row in shared memory                       |
// |--------|---------------------------------------|----------------------------------------------|
// | 0      | cp.async, 16 bytes a thread           | as with 2 if it has whole panels, else as    |
// |        |                                       | with 1                                       |
// | 1      | a bulk copy for each row              | its bytes, up to an odd number of 16-byte    |
// |        |                                       | chunks: rows fall into different banks       |
// | 2      | TMA boxes of kKeys rows               | panels of 128 bytes, in TMA's swizzle of 128 |
// |        |                                       | bytes: a line of memory goes to one line of  |
// |        |                                       | shared memory. Of 4 bits: of 64 bytes        |
// | 3      | TMA boxes of kHeads heads and one key | for each panel a line of 128 bytes per head  |
// |        |                                       | and one idle line, in the same swizzle: keys |
// |        |                                       | of a head fall into different banks          |
#pragma once

#include "cuda/parts/none/cache_features.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "shared/layouts/decode_layout.h"

namespace attune {

constexpr bool kBoxes = kLoads == 2;
constexpr bool kTogether = kLoads == 3;  // warps of kHeads heads share a ring
constexpr bool kSwizzled = kBoxes || kTogether;
constexpr bool kNarrow = kDtypeKv != kDtypeQ;  // the cache has 8 or 4 bits
constexpr int kKvBits = !kNarrow ? 16 : kGroupFactors ? 4 : 8;
constexpr int kKvBytes = kNarrow ? 1 : 2;  // of an element of memory, which strides count
constexpr int kChunkColumns = 128 / kKvBits, kPanelBytes = decode_panel_bytes(kKvBits);
constexpr int kPanelColumns = kPanelBytes / 16 * kChunkColumns;

// How mma.sync multiplies with a cache of `kBits` bits (products_16bit.cuh and its neighbours):
// kMath is the dtype of the products. An ldmatrix of K has kStepsOfLoad steps of 16 columns. Of
// a step a lane has the words first_word and first_word + kSecondWord of a row of q, as q_word
// converts them and arrange mixes them. The first columns of two tiles of O are kTileColumns apart.
// Caches of 4 bits have no more (nibble_products.cuh). add_qk adds 8 keys of the score tiles n and
// n + 1, add_pv adds 16 keys of the tiles of O from n on; `b` is the result of ldmatrix.
// Element (n, half, column) of a lane's O is in row lane / 4 + 8 * half, at column
// first_column(n) + lane_column(n, lane) + column.
template <int kBits>
struct CacheProducts;

constexpr DecodeColumns kColumns = decode_columns(kHeadDimQk, kHeadDimV, kValuesInKeys);
constexpr int kColumnWarps = kColumns.warps;

static_assert(!kSwizzled || (kColumns.qk % kPanelColumns == 0 && kColumns.v % kPanelColumns == 0),
              "boxes have whole panels");

// The rows of K, or of V, of a slot. A row has the columns of one warp.
template <int kHeadDim>
struct DecodeTile {
  static constexpr int kCachedBytes = kHeadDim * kKvBits / 8;
  static constexpr int kLines = kTogether ? decode_lines_of_key(kHeads) : 1;  // of a row in a panel
  static constexpr bool kHasPanels = decode_has_panels(kLoads, kCachedBytes, kPanelBytes);
  static constexpr int kRowBytes =
      kHasPanels ? kLines * kPanelBytes : decode_row_bytes(kCachedBytes);
  static constexpr int kBytes = decode_tile_bytes(kKeys, kLines* kCachedBytes, kLoads, kPanelBytes);
  static constexpr int kChunks = kPanelBytes / 16, kRowsOfLine = 128 / kPanelBytes;

  // Returns the offset of 16 bytes of a row.
  static __device__ __forceinline__ unsigned place(int row, int chunk) {
    return kHasPanels ? chunk / kChunks * (kKeys * kPanelBytes) + row * kPanelBytes +
                            (chunk ^ row / kRowsOfLine) % kChunks * 16
                      : row * kRowBytes + chunk * 16;
  }

  // Returns the offset at which an ldmatrix begins; pair() moves the address on. `head` is the
  // head's index within the row.
  static __device__ __forceinline__ unsigned offset(int row, int chunk, int head = 0) {
    const int line = row * kLines + head;
    return kHasPanels ? line * kPanelBytes + (chunk ^ line / kRowsOfLine % kChunks) * 16
                      : row * kRowBytes + chunk * 16;
  }
  // Returns the address 2 * pair chunks of 16 bytes further on in the same row. `address` is the
  // address of chunk 0 or 1.
  static __device__ __forceinline__ unsigned pair(unsigned address, int pair) {
    if constexpr (!kHasPanels) return address + pair * 32;
    constexpr int kPairs = kChunks / 2;
    return (address ^ (pair % kPairs * 32)) + pair / kPairs * (kKeys * kRowBytes);
  }
};
using KTile = DecodeTile<kColumns.qk>;
using VTile = DecodeTile<kColumns.values_in_keys ? kColumns.qk : kColumns.v>;
// The place of rows of V in a slot. Their columns may be the first of K's rows.
constexpr int kValuesAt = kColumns.values_in_keys ? 0 : KTile::kBytes;

constexpr DecodeShared kShared =
    decode_shared(kWarps, kTogether ? kWarps / kHeads : kWarps, kKvSlots, kValuesAt + VTile::kBytes,
                  kColumns.qk, kRows, decode_exchange_bytes(kKeys, kColumnWarps));
constexpr int kSlotBytes = kShared.slot_bytes;
// Barriers of a ring. One per slot says that it is full; if warps share it, another says that all
// have read it.
constexpr unsigned kBarriersOfRing = kKvSlots * (kTogether ? 2 : 1);
// The number of tiles that a warp requests before it reads its first. Warps that share a ring
// request a tile when they have read the one before.
constexpr int kTilesAhead = kKvSlots - (kTogether ? 1 : 0);

}  // namespace attune
