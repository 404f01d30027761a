// SPDX-License-Identifier: Apache-2.0
// The arguments of a score program that reads the lengths of its request.
#pragma once

#include "shared/kernel_arguments.h"
#include "shared/request_scores.h"

namespace attune {

// Returns all arguments of a kernel, with the lengths of one request.
inline KernelArguments with_lengths(const KernelArguments& all, const DecodeRequest& request) {
  KernelArguments own = all;
  take_lengths(request, &own.scores);
  return own;
}

}  // namespace attune
