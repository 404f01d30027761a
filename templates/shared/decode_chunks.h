// SPDX-License-Identifier: Apache-2.0
// How the line of decode_partition.h is cut where the bits of a request must not depend on the
// others (batch_invariant): each item into pieces that follow from its own tiles alone,
// kLeastChunkKeys keys or more, at most kMostChunks of them. A position of the line is a piece,
// workers take equal numbers of them, and each leaves its part in a slot of its own, the
// position's; parts are joined in their order.
#pragma once

#include "shared/host_device.h"

namespace attune {

constexpr int kLeastChunkKeys = 256;
constexpr int kMostChunks = 32;

// Tiles of a piece, of an item that has `count`; `least` at least.
ATTUNE_HOST_DEVICE constexpr int chunk_tiles(int count, int least) {
  const int equal = (count + kMostChunks - 1) / kMostChunks;
  return equal > least ? equal : least;
}
// Pieces of it: one of an item without tiles, whose owner writes its rows.
ATTUNE_HOST_DEVICE constexpr int decode_chunks(int count, int least) {
  const int each = chunk_tiles(count, least);
  return count == 0 ? 1 : (count + each - 1) / each;
}

// Returns the largest number of pieces of an item of up to `most` tiles.
ATTUNE_HOST_DEVICE constexpr int most_chunks(int most, int least) {
  const int equal = (most + least - 1) / least;
  return equal < 1 ? 1 : equal < kMostChunks ? equal : kMostChunks;
}

// The next piece of a DecodeWalk over a DecodeRange.
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

// Calls take(request, item, first slot, parts) for each item of a line that has several.
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
