// SPDX-License-Identifier: Apache-2.0
// The map of blocks of a kernel with a mask program: for each tile of query rows the blocks of keys
// of which it sees something. A step ahead of the kernel writes it into the workspace
// (cuda/attention/block_map.cuh), host code sizes it, the kernel walks it.
//
// | word of a list | what                                                                         |
// |----------------|------------------------------------------------------------------------------|
// | 0              | number of entries, at least 1: a tile that sees nothing has a block that     |
// |                | hides all of itself                                                          |
// | 1 ..           | entries, by rising block: block << kMapGroupBits, and a bit for each group   |
// |                | of the tile's rows that does not see all of the block, so that the program   |
// |                | is to be applied                                                             |
//
// A map of the caller's (op block_map) is another thing: what the mask program makes of granules of
// rows and keys, whatever tiles plans have. Kernels that are given one make their lists of it
// (cuda/attention/granule_lists.cuh) and evaluate no ranges.
//
// | byte of a granule | the program shows                                             |
// |-------------------|---------------------------------------------------------------|
// | 0                 | none of its keys to any of its rows                           |
// | kSeenInPart, 1    | some, or that is not known: kernels look at each              |
// | kSeenWhole, 3     | all its keys to all its rows                                  |
#pragma once

namespace attune {

// Rows and keys are positions, as programs see them; the last granule of either may be smaller.
constexpr int kGranuleRows = 64;
constexpr int kGranuleKeys = 16;
constexpr int kSeenInPart = 1;
constexpr int kSeenWhole = 3;
constexpr int kGranuleThreads = 128;  // of the step that makes lists of granules

constexpr int kMapGroupBits = 4;  // groups of rows that a tile may have
constexpr int kMapThreads = 1024;
constexpr int kMapChunk = 512;  // blocks between two barriers, each a word in shared memory

struct BlockMapArgs {
  int* lists;      // those of the row blocks of one tile's heads in a row
  int batch_step;  // lists from a batch entry to the next; 0 where one is for all
  int head_step;   // lists from one tile's heads to the next one's; likewise
  int list_words;  // from one list to the next: 1 + blocks of all keys
  int by_head;     // 0: all heads have the lists of the first, since the program does not differ
  int num_lists;
};

}  // namespace attune
