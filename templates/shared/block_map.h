// SPDX-License-Identifier: Apache-2.0
// The block map of a kernel with a mask program lists, for each tile of query rows, the blocks of
// keys that the tile sees at least in part. A launch before the kernel writes the map into the
// workspace (cuda/parts/block_map.cuh). Host code computes its size, and the kernel walks it.
//
// | word of a list | what                                                                         |
// |----------------|------------------------------------------------------------------------------|
// | 0              | number of entries, at least 1: the list of a tile that sees no key has one   |
// |                | block, all of whose keys the program hides                                   |
// | 1 ..           | entries in ascending order: block << kMapGroupBits, and a bit for each group |
// |                | of the tile's rows that does not see the whole block: the program must be    |
// |                | applied to that group                                                        |
//
// A map that the caller passes (op block_map) is different: it says, for granules of rows and keys,
// what the mask program shows, independent of a plan's tiles. Kernels that get such a map build
// their lists from it (cuda/parts/granule_lists.cuh) and evaluate no ranges.
//
// | byte of a granule | the program shows                                             |
// |-------------------|---------------------------------------------------------------|
// | 0                 | no key to any row                                             |
// | kSeenInPart, 1    | some keys to some rows, or unknown: kernels test each pair    |
// | kSeenWhole, 3     | all keys to all rows                                          |
#pragma once

namespace attune {

// Rows and keys are positions, as programs see them; the last granule of either may be smaller.
constexpr int kGranuleRows = 64;
constexpr int kGranuleKeys = 16;
constexpr int kSeenInPart = 1;
constexpr int kSeenWhole = 3;
constexpr int kGranuleThreads = 128;  // of the kernel that builds lists from granules

constexpr int kMapGroupBits = 4;  // the most groups of rows in a tile
constexpr int kMapThreads = 1024;
constexpr int kMapChunk = 512;  // blocks between two barriers; each takes a word of shared memory

struct BlockMapArgs {
  int* lists;      // lists of one tile's heads are adjacent, one per block of rows
  int batch_step;  // lists from one batch entry to the next; 0: all share the same lists
  int head_step;   // lists from one tile's heads to the next tile's; 0: all share them
  int list_words;  // from one list to the next: 1 + blocks of all keys
  int by_head;     // 0: all heads use the lists of the first head; the program ignores the head
  int num_lists;
};

}  // namespace attune
