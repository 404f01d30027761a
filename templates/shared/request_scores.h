// SPDX-License-Identifier: Apache-2.0
// Sets the lengths that score programs see over caches, on every target: the lengths of the
// request, not the largest that the call allows.
#pragma once

#include "shared/layouts/decode_requests.h"
#include "shared/score_args.h"

namespace attune {

// Replaces the call's lengths in `scores` by the request's. `scores` is a copy that the compiler
// keeps in registers, and members that a program does not read cost nothing.
ATTUNE_HOST_DEVICE inline void take_lengths(const DecodeRequest& request, ScoreArgs* scores) {
  scores->seqlen_q = request.rows;
  scores->seqlen_kv = request.length;
}

}  // namespace attune
