// SPDX-License-Identifier: Apache-2.0
// All launch arguments of kernels, with the part of attention over lists of keys. On a CPU a kernel
// gets the address of ListedArguments. Kernels without lists know only KernelArguments, so their
// text, and stored kernels of earlier versions, stay valid. On a GPU the part is one parameter.
//
// | part  | struct      | who takes it                            |
// |-------|-------------|-----------------------------------------|
// | lists | KeyListArgs | kernels of attention over lists of keys |
#pragma once

#include "shared/kernel_arguments.h"
#include "shared/key_list_args.h"

namespace attune {

struct ListedArguments : KernelArguments {
  KeyListArgs lists;
};

}  // namespace attune
