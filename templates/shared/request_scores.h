// SPDX-License-Identifier: Apache-2.0
// The lengths that score programs see over caches, on every target: each request has its own,
// whatever room the call has for others.
#pragma once

#include "shared/decode_requests.h"
#include "shared/score_args.h"

namespace attune {

// Puts the request's rows and keys in the place of the call's. `scores` is a copy that the compiler
// keeps in registers: what a program does not read of it costs nothing.
ATTUNE_HOST_DEVICE inline void take_lengths(const DecodeRequest& request, ScoreArgs* scores) {
  scores->seqlen_q = request.rows;
  scores->seqlen_kv = request.length;
}

// All arguments of a kernel, with the lengths of one request.
template <class Arguments>
ATTUNE_HOST_DEVICE inline Arguments with_lengths(const Arguments& all,
                                                 const DecodeRequest& request) {
  Arguments own = all;
  take_lengths(request, &own.scores);
  return own;
}

}  // namespace attune
