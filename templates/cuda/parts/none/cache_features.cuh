// SPDX-License-Identifier: Apache-2.0
// The constants of features of caches that a kernel lacks. The constants of a rendered kernel
// (renderer.cpp) hide these.
#pragma once

namespace none {

// Enumerators, since objects would take memory of the kernel.
enum : bool {
  kHeadFactors = false,     // an 8-bit cache has a factor per head
  kKeyFactors = false,      // an 8-bit cache has a factor per key
  kLatentRows = false,      // the rows of an 8-bit latent cache hold their factors
  kMakesFactors = false,    // append_kv computes the factors of keys
  kGroupFactors = false,    // a 4-bit cache has a factor per group of columns of a key
  kBatchInvariant = false,  // a request's bits do not depend on other requests
  kKeyLists = false,        // each row names the keys that it sees
  kArePlaces = false        // it names them by their places in the cache
};

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
