// SPDX-License-Identifier: Apache-2.0
// How the work of an attention_kvcache call is dealt to a fixed number of workers (blocks of a GPU,
// threads of a CPU). Each worker computes its own part from the lengths that the device reads, so
// that no plan is made ahead. Host and kernels compile this text.
//
// An item is a request, a head of K and up to `row_tile` rows of q that share it; its keys are cut
// into tiles. Items lie one after the other on a line, request by request. Each item takes
// `tile_overhead` positions for its fixed cost, then one position for each tile that its rows see.
// The line is cut into equal ranges, one per worker, which may begin and end inside an item. So no
// worker has more than one tile more than another, and each has at most two incomplete items, whose
// parts are joined through the workspace.
//
// If there are fewer items than workers, of about the same length, all items are cut into the same
// number of parts instead: as many as there are workers per item. Then no worker has parts of two
// items, which would cost it more than a few tiles.
#pragma once

#include "shared/host_device.h"
#include "shared/layouts/decode_chunks.h"  // where kBatchInvariant, else none/

namespace attune {

// Tiles of a request that its rows may see: [first, first + count).
struct DecodeTiles {
  int first, count;
};

// Returns the tiles of keys that at least one of the last `rows` positions sees. A row sees at most
// `window_left` keys before its own position (negative: no window).
ATTUNE_HOST_DEVICE constexpr DecodeTiles decode_tiles(int length, int rows, int window_left,
                                                      int tile_keys) {
  int first = 0;
  if (window_left >= 0) {
    const int oldest = length - rows;  // position of the first row
    first = oldest > window_left ? (oldest - window_left) / tile_keys : 0;
  }
  const int end = length / tile_keys + (length % tile_keys != 0 ? 1 : 0);
  return {first, end > first ? end - first : 0};
}

// The line, and one worker's range of it.
struct DecodeRange : DecodeCut {
  int tile_overhead;  // per item; at least 1, so that an item without keys has an owner
  int items;          // per request
  int even;           // positions per item if all items are cut alike, empty ones first; else 0
  int share;          // positions per worker
  int worker;         // the worker of the range [begin, end)
  int begin, end;

  ATTUNE_HOST_DEVICE constexpr int item_cost(DecodeTiles tiles) const {
    if constexpr (kMayCutEach)
      if (cuts_each()) return pieces(tiles.count);
    return even > 0 ? even : tiles.count + tile_overhead;
  }
  ATTUNE_HOST_DEVICE constexpr int cost(DecodeTiles tiles) const {
    return items * item_cost(tiles);
  }
  // Cuts a line of `total` positions into equal shares, regardless of the items' lengths.
  ATTUNE_HOST_DEVICE constexpr void take(int total, int workers, int least_share, int number) {
    even = 0;
    share = plain_share(total, workers, least_share);
    begin_at(number, total);
  }
  // Cuts all `count` items into the same number of parts, if this makes shares at most `slack`
  // positions longer. Else does the same as take(). `most`: tiles of the longest item.
  ATTUNE_HOST_DEVICE constexpr void take_alike(int total, int count, int most, int workers,
                                               int least_share, int slack, int number) {
    if constexpr (kMayCutEach)
      if (cuts_each()) return take(total, workers, 1, number);
    take(total, workers, least_share, number);
    if (count < 1 || count > workers || most < 1) return;
    const int longest = most + tile_overhead;
    int parts = workers / count;
    if (parts > longest / least_share) parts = longest / least_share;
    if (parts < 1) parts = 1;
    const int alike = longest / parts + (longest % parts != 0 ? 1 : 0);
    if (alike > share + slack) return;
    even = alike * parts;
    share = alike;
    begin_at(number, count * even);
  }

 private:
  static ATTUNE_HOST_DEVICE constexpr int plain_share(int total, int workers, int least_share) {
    const int equal = total / workers + (total % workers != 0 ? 1 : 0);
    return equal < least_share ? least_share : equal;
  }
  // Sets a worker's range; workers past the end of the line get an empty range.
  ATTUNE_HOST_DEVICE constexpr void begin_at(int number, int total) {
    worker = number;
    begin = number <= total / share ? number * share : total;
    end = total - begin > share ? begin + share : total;
  }
};

// Returns the number of positions that a GPU's multiprocessor reads in the time of ending a piece
// and joining parts. In that time it reads 170 KB.
ATTUNE_HOST_DEVICE constexpr int decode_even_slack(int bytes_of_position) {
  constexpr int kBytes = 170 * 1024;
  return kBytes / bytes_of_position;
}

// A worker's share of one item: tiles [begin, end) of the request's tiles, counted from 0. An item
// without keys has no tiles and one part.
struct DecodePiece {
  int request, item;  // item: its number in the request
  int begin, end;
  int part, parts;  // part of the item, and its number of parts, in the order of keys
  int slot;         // where the part is stored if there are several
};

// Walks over a worker's pieces. `Tiles` is a function that returns the DecodeTiles of a request.
struct DecodeWalk {
  int request;   // the request at `position`
  int start;     // first position of the request on the line
  int position;  // position of the next piece on the line

  // Returns true and fills `piece` if there is one more.
  template <class Tiles>
  ATTUNE_HOST_DEVICE bool next(const DecodeRange& range, int batch, const Tiles& tiles_of,
                               DecodePiece* piece) {
    if constexpr (kMayCutEach)
      if (range.cuts_each()) return next_chunk(range, batch, tiles_of, piece, this);
    while (position < range.end) {
      const DecodeTiles tiles = tiles_of(request);
      const int cost = range.item_cost(tiles);
      const int item = (position - start) / cost;
      if (item >= range.items) {
        start += range.items * cost;
        if (++request >= batch) return false;
        continue;
      }
      const int item_start = start + item * cost, item_end = item_start + cost;
      const int first_tile = item_end - tiles.count;
      const bool begins_here = position == item_start;
      const int first = position > first_tile ? position : first_tile;
      const int last = range.end < item_end ? range.end : item_end;
      position = item_end < range.end ? item_end : range.end;
      if (tiles.count == 0 ? !begins_here : first >= last) continue;
      const int owner = tiles.count == 0 ? range.worker : first_tile / range.share;
      piece->request = request;
      piece->item = item;
      piece->begin = tiles.first + first - first_tile;
      piece->end = tiles.first + last - first_tile;
      if (tiles.count == 0) piece->begin = piece->end = 0;
      piece->part = range.worker - owner;
      piece->parts = tiles.count == 0 ? 1 : (item_end - 1) / range.share - owner + 1;
      piece->slot = 2 * range.worker + (piece->part == 0 ? 1 : 0);
      return true;
    }
    return false;
  }
};

}  // namespace attune
