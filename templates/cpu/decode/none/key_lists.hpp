// SPDX-License-Identifier: Apache-2.0
// Requests without lists of keys: rows see all keys of their request, as far as masks show them.
#pragma once

#include "cpu/parts/none/features.hpp"
#include "shared/kernel_arguments.h"
#include "shared/layouts/decode_requests.h"

namespace none {

using attune::DecodeRequest, attune::KernelArguments;

// A key's page or slot, and its row there.
struct KeyPlace {
  int page, row;
};

inline int line_requests(const KernelArguments& args) { return args.batch; }
inline int line_rows(const KernelArguments& args) { return args.seqlen_q; }
inline int line_keys(const KernelArguments& args) { return args.seqlen_kv; }
inline int heads_together(const KernelArguments& args) { return args.num_heads_kv; }

struct LineRequest {
  DecodeRequest request;
  int number;

  LineRequest(const KernelArguments& args, int of_request)
      : request(attune::decode_request<attune::kHasBegins, attune::kHasKeyBegins>(args, args.cache,
                                                                                  of_request)),
        number(of_request) {}
  const DecodeRequest& whole() const { return request; }
  int position_of(int token) const { return request.position(token); }
};

template <class Plain>
using KeysOf = Plain;

}  // namespace none
