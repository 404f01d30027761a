// SPDX-License-Identifier: Apache-2.0
// How the line of decode_partition.h is cut if the bits of a request's result must not depend on
// other requests (batch_invariant). Each item is cut into pieces that depend on its own tiles
// alone: at most kMostChunks pieces, of at least kLeastChunkKeys keys each. Each position of the
// line is one piece, and workers take equal numbers of pieces. A piece leaves its part in the slot
// of its position. Parts are joined in their order.
#pragma once

#include "shared/host_device.h"

namespace attune {

constexpr int kLeastChunkKeys = 256;
constexpr int kMostChunks = 32;
constexpr bool kMayCutEach = true;

// Returns the tiles per piece of an item of `count` tiles, at least `least`.
ATTUNE_HOST_DEVICE constexpr int chunk_tiles(int count, int least) {
  const int equal = (count + kMostChunks - 1) / kMostChunks;
  return equal > least ? equal : least;
}
// Returns the pieces of an item. An item without tiles has one piece, whose owner writes the rows.
ATTUNE_HOST_DEVICE constexpr int decode_chunks(int count, int least) {
  const int each = chunk_tiles(count, least);
  return count == 0 ? 1 : (count + each - 1) / each;
}

// Returns the largest number of pieces of an item of up to `most` tiles.
ATTUNE_HOST_DEVICE constexpr int most_chunks(int most, int least) {
  const int equal = (most + least - 1) / least;
  return equal < 1 ? 1 : equal < kMostChunks ? equal : kMostChunks;
}

// How the items of a line are cut: each by its own tiles, or all together.
struct DecodeCut {
  int least_chunk = 0;  // minimum of tiles per piece if each item is cut by its own tiles, else 0

  ATTUNE_HOST_DEVICE constexpr void cut_each(int tile_keys) {
    least_chunk = kLeastChunkKeys / tile_keys;
  }
  ATTUNE_HOST_DEVICE constexpr bool cuts_each() const { return least_chunk > 0; }
  ATTUNE_HOST_DEVICE constexpr int pieces(int count) const {
    return decode_chunks(count, least_chunk);
  }
};

// Finds the next piece of a DecodeWalk over a DecodeRange. Returns false if there is none.
template <class Range, class Tiles, class Piece, class Walk>
ATTUNE_HOST_DEVICE inline bool next_chunk(const Range& range, int batch, const Tiles& tiles_of,
                                          Piece* piece, Walk* walk) {
  while (walk->position < range.end) {
    const auto tiles = tiles_of(walk->request);
    const int parts = decode_chunks(tiles.count, range.least_chunk);
    const int item = (walk->position - walk->start) / parts;
    if (item >= range.items) {
      walk->start += range.items * parts;
      if (++walk->request >= batch) return false;
      continue;
    }
    const int part = walk->position - walk->start - item * parts;
    const int each = chunk_tiles(tiles.count, range.least_chunk);
    const int end = (part + 1) * each < tiles.count ? (part + 1) * each : tiles.count;
    piece->request = walk->request;
    piece->item = item;
    piece->begin = tiles.count == 0 ? 0 : tiles.first + part * each;
    piece->end = tiles.count == 0 ? 0 : tiles.first + end;
    piece->part = part;
    piece->parts = parts;
    piece->slot = walk->position++;
    return true;
  }
  return false;
}

// Calls take(request, item, first slot, parts) for each item of a line that has several parts.
template <class Line, class Take>
inline void each_cut_item(const Line& line, int batch, const Take& take) {
  int slot = 0;
  for (int request = 0; request < batch; ++request) {
    const int parts = decode_chunks(line.tiles_of(request).count, line.range.least_chunk);
    for (int item = 0; item < line.range.items; ++item, slot += parts)
      if (parts > 1) take(request, item, slot, parts);
  }
}

}  // namespace attune
