// SPDX-License-Identifier: Apache-2.0
// Launch arguments of attention over lists of keys, after CacheArgs, on every target. Each row of q
// names the keys that it sees. Kernels read all lists on the device at every launch.
//
// | operand | shape                                                                             |
// |---------|-----------------------------------------------------------------------------------|
// | indices | [rows, 1 or num_heads_kv, length]; row r of request b is b * seqlen_q + r;        |
// |         | packed requests: row r of q has list r                                            |
// | counts  | [rows]; entries of a row's list that are read; null: length for each row          |
//
// An entry is a key's position in the row's request, or its place in the cache (kKeyPlaces). A key
// that is named twice counts twice. An entry that names no key of the request, or no place of the
// cache, is skipped; -1 is such an entry. Entries after a row's count are not read.
#pragma once

namespace attune {

struct KeyListArgs {
  const int* indices;
  const int* counts;
  long long row_stride;   // entries from one row to the next
  long long head_stride;  // entries from one head of K to the next; 0: all heads share a row's list
  int length;             // entries of a list
};

}  // namespace attune
