// SPDX-License-Identifier: Apache-2.0
// Attention over lists of keys on a CPU: each row of q is a request of the line, and its keys are
// the entries of its list (shared/key_lists.h).
#pragma once

#include "cpu/parts/none/features.hpp"
#include "shared/key_lists.h"
#include "shared/listed_arguments.h"

namespace attune {

inline const KeyListArgs& lists_of(const KernelArguments& args) {
  return static_cast<const ListedArguments&>(args).lists;
}

// The number of requests of the line, and the most rows and keys of one of them.
inline int line_requests(const KernelArguments& args) {
  return num_listed_rows<kHasBegins>(args, args.cache);
}
inline int line_rows(const KernelArguments&) { return 1; }
inline int line_keys(const KernelArguments& args) { return lists_of(args).length; }
// Returns the number of heads of K that have the same keys.
inline int heads_together(const KernelArguments& args) {
  return lists_of(args).head_stride == 0 ? args.num_heads_kv : 1;
}

// A request of the line: one row of q.
struct LineRequest {
  ListedRow listed;
  DecodeRequest request;  // the row, with the entries of its list as keys
  int number;             // of its request in the call

  LineRequest(const KernelArguments& args, int on_line)
      : listed(listed_row<kHasBegins, kHasKeyBegins>(args, args.cache, lists_of(args), on_line)),
        request(listed.alone()),
        number(listed.request) {}
  const DecodeRequest& whole() const { return listed.whole; }
  int position_of(int) const { return listed.position(); }
};

struct ListRule {
  static constexpr bool has_pages = kHasPages, are_places = kArePlaces;
  static constexpr int page_rows = kPageRows;
};

// Finds the keys that the entries of a row's list name.
class ListedKeys {
 public:
  ListedKeys(const KernelArguments& args, const LineRequest& item, int kv_head)
      : args_(args),
        row_(item.listed),
        entries_(lists_of(args).indices + row_.list * lists_of(args).row_stride +
                 kv_head * lists_of(args).head_stride) {
    if (!kHasPages && !kHasKeyBegins && !kArePlaces)
      slot_ = slot_of(args.cache.slots == nullptr ? row_.request : args.cache.slots[row_.request]);
  }
  KeyPlace place(int entry) const {
    return listed_place(ListRule{}, args_, args_.cache, row_, slot_, entries_[entry]);
  }
  // Returns the number of the key in its request, or its place.
  int key(int entry) const { return entries_[entry]; }

 private:
  int slot_of(int slot) const { return slot >= 0 && slot < args_.cache.num_pages ? slot : 0; }

  const KernelArguments& args_;
  const ListedRow& row_;
  const int* entries_;
  int slot_ = 0;
};

template <class Plain>
using KeysOf = ListedKeys;

}  // namespace attune
